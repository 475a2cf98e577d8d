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
    places: tf.Tensor  # int32 [A, N], K times the last token's step, plus its beam

    def first(self, number: int) -> Pool:
        """Returns a pool of no more than its first hypotheses."""
        if self.scores.shape[1] == number:
            return self
        return Pool(self.scores[:, :number], self.places[:, :number])

    def score(self, number: int) -> tf.Tensor:
        """Returns the score of a hypothesis, the best of which is number 1: [A, 1]."""
        if self.scores.shape[1] == 1:
            return self.scores
        return self.scores[:, number - 1 : number]


def offer(pool: Pool, others: Pool) -> Pool:
    """Returns the best of both by score; at a tie, the pool's own.

    Args:
        pool: N hypotheses per sentence.
        others: K other hypotheses per sentence, in any order.
    """
    both = _joined(pool, others)
    scores, best = tf.math.top_k(both.scores, pool.scores.shape[1])
    return Pool(scores, follow(both.places, best))


def fill(pool: Pool, others: Pool) -> Pool:
    """Fills the pool's empty places with the best of the others, behind its own."""
    size = pool.scores.shape[1]
    others = follow(others, tf.math.top_k(others.scores, size).indices)
    taken = tf.math.count_nonzero(
        pool.scores > IMPOSSIBLE, axis=1, keepdims=True, dtype=tf.int32
    )
    place = tf.range(size)
    chosen = tf.where(place < taken, place, size + place - taken)
    return follow(_joined(pool, others), chosen)


def _joined(pool, others):
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)
