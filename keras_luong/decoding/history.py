"""The choices of a beam search at each step, and the hypotheses that follow from them.

Shapes: B sentences, A of them undecided, K beam width, N hypotheses kept
per sentence, S source length, T steps taken.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.decoding.hypotheses import Hypotheses, Written, collect
from keras_luong.decoding.pool import Pool
from keras_luong.decoding.stepping import follow


class History(NamedTuple):
    """The choices of every step: a tree, in which a hypothesis is a path to the root.

    Tokens and attention are written once, and not moved when the beams change places.
    """

    written: Written  # of N = K
    parents: tf.TensorArray  # T x [B, K] the beam of the step before

    @classmethod
    def empty(cls, shape: list[int | None], steps: tf.Tensor) -> History:
        """Returns a history without steps; see `Written.empty`."""
        parents = tf.TensorArray(tf.int32, steps, element_shape=shape[:2])
        return cls(Written.empty(shape, steps), parents)


def record(
    history: History,
    time: tf.Tensor,
    chosen: tuple[tf.Tensor, ...],
    rows: tf.Tensor | None,
    count: tf.Tensor,
) -> History:
    """Returns the history with one more step.

    Args:
        history: The choices so far.
        time: int32, the number of the step.
        chosen: Tensors [A, K, ...]: ids, weights, log-probabilities, parents.
        rows: int32 [A], the sentences' places in the whole batch; None if no sentence
            has left it.
        count: int32, the number of sentences in the whole batch.
    """
    if rows is not None:
        shapes = (tf.concat([[count], tf.shape(x)[1:]], axis=0) for x in chosen)
        pairs = zip(chosen, shapes, strict=True)
        chosen = tuple(tf.scatter_nd(rows[:, None], x, shape) for x, shape in pairs)
    *written, parents = chosen
    return History(
        history.written.write(time, *written), history.parents.write(time, parents)
    )


def trace_back(pool: Pool, history: History, steps: tf.Tensor) -> Hypotheses:
    """Reads the pool's hypotheses from the history, from last token to first."""

    def read(time, slots, written):
        time -= 1
        chosen = (follow(array.read(time), slots) for array in history.written)
        written = written.write(time, *chosen)
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        slots = tf.where(time < pool.lengths, parents, slots)
        return time, slots, written

    B, _, S = history.written.weights.element_shape
    written = Written.empty([B, pool.slots.shape[1], S], steps)
    start = steps, pool.slots, written
    _, _, written = tf.while_loop(lambda time, *_: time > 0, read, start)
    arrays = [array.stack() for array in written]
    return collect(*arrays, lengths=pool.lengths, scores=pool.scores)
