"""What a beam search chose, step by step, and how its hypotheses are read off that.

Shapes: `B` sentences, `A` of them not decided yet, `K` beam width, `N` hypotheses kept
per sentence, `S` source length, `T` steps taken.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.decoding.pool import Pool
from keras_luong.decoding.stepping import Hypotheses, collect, follow


class History(NamedTuple):
    """What every step chose: a tree, of which a hypothesis is a path to the root.

    Tokens and attention are written once and never moved as the beams change places.
    """

    tokens: tf.TensorArray  # T x [B, K]
    parents: tf.TensorArray  # T x [B, K] the beam of the step before
    log_probs: tf.TensorArray  # T x [B, K] of the hypothesis so far
    weights: tf.TensorArray  # T x [B, K, S]


def record(history, time, chosen, rows, count):
    """Write down a step.

    Args:
        history: `History`.
        time: int32, which step.
        chosen: a tuple in the order of `History`, of tensors `[A, K, ...]`.
        rows: int32 `[A]`, the sentences' places in the whole batch; None if all of it
            are there.
        count: int32, how many sentences the batch has.

    Returns:
        The `History` with it.
    """

    def full(x):
        if rows is None:
            return x
        shape = tf.concat([[count], tf.shape(x)[1:]], axis=0)
        return tf.scatter_nd(rows[:, None], x, shape)

    pairs = zip(history, chosen, strict=True)
    return History(*(array.write(time, full(x)) for array, x in pairs))


def trace_back(pool: Pool, history: History, steps: tf.Tensor) -> Hypotheses:
    """Read the pool's hypotheses off the history, from last token to first."""

    def read(time, slots, *arrays):
        time -= 1
        ids, log_probs, weights = (
            array.write(time, follow(source.read(time), slots))
            for array, source in zip(
                arrays,
                (history.tokens, history.log_probs, history.weights),
                strict=True,
            )
        )
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        slots = tf.where(time < pool.lengths, parents, slots)
        return time, slots, ids, log_probs, weights

    like = history.tokens, history.log_probs, history.weights
    N = [pool.slots.shape[1]]
    shapes = [[x.element_shape[0], *N, *x.element_shape[2:]] for x in like]
    arrays = [
        tf.TensorArray(x.dtype, steps, element_shape=shape)
        for x, shape in zip(like, shapes, strict=True)
    ]
    *_, ids, log_probs, weights = tf.while_loop(
        lambda time, *_: time > 0, read, (steps, pool.slots, *arrays)
    )
    ids, log_probs, weights = ids.stack(), log_probs.stack(), weights.stack()
    return collect(ids, weights, log_probs, pool.lengths, pool.scores)
