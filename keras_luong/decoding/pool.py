"""The pool of a search's best finished hypotheses.

Shapes: B sentences, A of them undecided, K beam width, N hypotheses kept
per sentence.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE
from keras_luong.decoding.stepping import follow


class Pool(NamedTuple):
    """A sentence's N best finished hypotheses, best first; empty places score -inf.

    The pool only has the place of a hypothesis's last token; the history has the rest.
    """

    scores: tf.Tensor  # [A, N]
    log_probs: tf.Tensor  # [A, N]
    lengths: tf.Tensor  # [A, N]
    slots: tf.Tensor  # [A, N] the beam that held the last token


def offer(pool: Pool, others: Pool) -> Pool:
    """Returns the best of both by score; at a tie, the pool's own.

    A pool that is offered nothing keeps its order, since unfinished hypotheses come
    after the finished ones whatever their scores, see `fill`.

    Args:
        pool: N hypotheses per sentence.
        others: K other hypotheses per sentence, in any order.
    """
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)
    size = pool.scores.shape[1]
    best = tf.math.top_k(both.scores, size).indices
    offered = tf.reduce_any(others.scores > IMPOSSIBLE, axis=1, keepdims=True)
    return follow(both, tf.where(offered, best, tf.range(size)))


def fill(pool: Pool, others: Pool) -> Pool:
    """Fills the pool's empty places with the best of the others, behind its own."""
    size = pool.scores.shape[1]
    others = follow(others, tf.math.top_k(others.scores, size).indices)
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)
    taken = tf.math.count_nonzero(
        pool.scores > IMPOSSIBLE, axis=1, keepdims=True, dtype=tf.int32
    )
    place = tf.range(size)
    return follow(both, tf.where(place < taken, place, size + place - taken))


def scattered(whole: Pool, rows: tf.Tensor, part: Pool) -> Pool:
    """Returns the pools [B, N] with those of some sentences replaced.

    Args:
        whole: The pools of all sentences.
        rows: int32 [A], the sentences whose pools are replaced.
        part: Their new pools, [A, N].
    """
    return tf.nest.map_structure(
        lambda x, y: tf.tensor_scatter_nd_update(x, rows[:, None], y), whole, part
    )
