"""The choices of a beam search at each step, and the hypotheses that follow from them.

Shapes: B sentences, A of them undecided, K beam width, N hypotheses kept
per sentence, S source length, T steps taken.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.hypotheses import Hypotheses, Written, collect
from keras_luong.decoding.pool import Pool
from keras_luong.decoding.stepping import follow
from keras_luong.special_ids import PAD_ID


class History(NamedTuple):
    """The choices of every step: a tree, in which a hypothesis is a path to the root.

    Tokens and attention are written once, and not moved when the beams change places.
    """

    written: Written  # of N = K
    parents: Any  # T x [B, K] the beam of the step before

    @classmethod
    def empty(
        cls, shape: list[int | None], attended: list[Any], steps: tf.Tensor
    ) -> History:
        """Returns a history without steps; see `Written.empty`."""
        parents = tf.TensorArray(tf.int32, steps, element_shape=shape)
        return cls(Written.empty(shape, attended, steps), parents)


def record(
    history: History,
    time: tf.Tensor,
    chosen: History,
    rows: tf.Tensor | None,
    count: tf.Tensor,
) -> History:
    """Returns the history with one more step.

    Args:
        history: The choices so far.
        time: int32, the number of the step.
        chosen: This step's choices, tensors [A, K, ...].
        rows: int32 [A], the sentences' places in the whole batch; None if no sentence
            has left it.
        count: int32, the number of sentences in the whole batch.
    """
    if rows is not None:
        places = rows[:, None]

        def in_batch(x):
            shape = tf.concat([[count], tf.shape(x)[1:]], axis=0)
            return tf.scatter_nd(places, x, shape)

        chosen = tf.nest.map_structure(in_batch, chosen)
    written = history.written.write(time, chosen.written)
    return History(written, history.parents.write(time, chosen.parents))


def trace_back(
    pool: Pool, history: History, steps: tf.Tensor, pad_id: int = PAD_ID
) -> Hypotheses:
    """Reads the pool's hypotheses from the history, from last token to first.

    Args:
        pool: The places of their last tokens.
        history: The choices of every step.
        steps: int32, the number of steps.
        pad_id: What fills the ids up.
    """

    def read(time, slots, written):
        time -= 1
        chosen = tf.nest.map_structure(lambda a: a.read(time), history.written)
        written = written.write(time, follow(chosen, slots))
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        slots = tf.where(time < pool.lengths, parents, slots)
        return time, slots, written

    shape = [history.parents.element_shape[0], pool.slots.shape[1]]
    attended = [x.element_shape[2:] for x in history.written.weights]
    start = steps, pool.slots, Written.empty(shape, attended, steps)
    _, _, written = tf.while_loop(lambda time, *_: time > 0, read, start)
    return collect(written.stack(), pool.lengths, pool.scores, pad_id)
