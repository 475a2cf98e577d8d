"""The results of a search, and how they are recorded step by step.

Shapes: B batch, S source length, N hypotheses of a sentence, T length of the
longest of them.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.special_ids import PAD_ID

IMPOSSIBLE = float("-inf")


class Hypotheses(NamedTuple):
    """The results of a search, the best hypothesis of each sentence first.

    Attributes:
        ids: int32 [B, N, T], without the begin token, up to and with the end token
            (absent if the maximum length cut the hypothesis), then `PAD_ID`.
        lengths: int32 [B, N], the end token included. 0 where the search found fewer
            than N hypotheses of non-zero probability.
        scores: float32 [B, N], by which they are ranked; -inf where there is none.
        log_probs: float32 [B, N], the sum over the tokens.
        weights: float32 [B, N, T, S], the attention at each token, 0 after the end.
        token_log_probs: float32 [B, N, T], log-probability of each token, 0 after the
            end.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    weights: tf.Tensor
    token_log_probs: tf.Tensor


class Written(NamedTuple):
    """Arrays of the tokens, attention and log-probabilities of each step."""

    ids: tf.TensorArray  # T x [B, N]
    weights: tf.TensorArray  # T x [B, N, S]
    log_probs: tf.TensorArray  # T x [B, N] of the hypothesis so far

    @classmethod
    def empty(cls, shape: list[int | None], steps: int | tf.Tensor) -> Written:
        """Returns empty arrays.

        Args:
            shape: The sizes [B, N, S], None for an unknown one.
            steps: int32, at least the number of steps that will be written.
        """

        def array(dtype: tf.DType, shape: list[int | None]) -> tf.TensorArray:
            return tf.TensorArray(dtype, steps, element_shape=shape)

        ids, log_probs = array(tf.int32, shape[:2]), array(tf.float32, shape[:2])
        return cls(ids, array(tf.float32, shape), log_probs)

    def write(self, time: tf.Tensor, *chosen: tf.Tensor) -> Written:
        """Returns the arrays with one more step, a tensor for each array."""
        pairs = zip(self, chosen, strict=True)
        return Written(*(array.write(time, x) for array, x in pairs))

    def first(self, steps: tf.Tensor) -> list[tf.Tensor]:
        """Returns the first steps only, as unwritten ones have no shape."""
        return [array.gather(tf.range(steps)) for array in self]


def collect(
    ids: tf.Tensor,
    weights: tf.Tensor,
    log_probs: tf.Tensor,
    *,
    lengths: tf.Tensor,
    scores: tf.Tensor,
) -> Hypotheses:
    """Makes `Hypotheses` of the steps that a search recorded.

    Args:
        ids: int32 [T, B, N] of at least one step. Ids after the end of a hypothesis are
            ignored, and so are hypotheses whose score is -inf.
        weights: float32 [T, B, N, S].
        log_probs: float32 [T, B, N], of the hypothesis up to each step.
        lengths: int32 [B, N].
        scores: float32 [B, N].

    Returns:
        `Hypotheses` with T the length of the longest of them, at least 1.
    """
    there = scores > IMPOSSIBLE
    lengths = tf.where(there, lengths, 0)
    longest = tf.maximum(1, tf.reduce_max(lengths))
    inside = tf.range(longest) < lengths[..., tf.newaxis]
    ids = tf.transpose(ids[:longest], [1, 2, 0])
    weights = tf.transpose(weights[:longest], [1, 2, 0, 3])
    sums = tf.transpose(log_probs[:longest], [1, 2, 0])
    sums = tf.where(inside, sums, 0.0)
    before = tf.pad(sums, [[0, 0], [0, 0], [1, 0]])[..., :-1]
    last = tf.maximum(lengths - 1, 0)
    total = tf.gather(sums, last, batch_dims=2)
    return Hypotheses(
        ids=tf.where(inside, ids, PAD_ID),
        lengths=lengths,
        scores=scores,
        log_probs=tf.where(there, total, IMPOSSIBLE),
        weights=tf.where(inside[..., tf.newaxis], weights, 0.0),
        token_log_probs=tf.where(inside, sums - before, 0.0),
    )
