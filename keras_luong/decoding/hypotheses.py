"""What a search returns, and how it is written down step by step.

Shapes: B batch, S source length, N hypotheses of a sentence, T length of the
longest of them.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.special_ids import PAD_ID

IMPOSSIBLE = float("-inf")


class Hypotheses(NamedTuple):
    """What a search returns, the best hypothesis of each sentence first.

    Attributes:
        ids: int32 [B, N, T], without the begin token, up to and with the end token
            (absent if the maximum length cut the hypothesis), then `PAD_ID`.
        lengths: int32 [B, N], counting the end token. 0 where the sentence has no
            such hypothesis: the search found no more of a probability above zero.
        scores: float32 [B, N], by which they are ranked; -inf where there is none.
        log_probs: float32 [B, N], the sum over the tokens.
        weights: float32 [B, N, T, S], the attention at each token, 0 after the end.
        token_log_probs: float32 [B, N, T], of each token, 0 after the end.
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    weights: tf.Tensor
    token_log_probs: tf.Tensor


class Written(NamedTuple):
    """What was chosen at each step: an array of tensors for each of its parts."""

    ids: tf.TensorArray  # T x [B, N]
    weights: tf.TensorArray  # T x [B, N, S]
    log_probs: tf.TensorArray  # T x [B, N] of the hypothesis so far

    @classmethod
    def empty(cls, shape: list[int | None], steps: int | tf.Tensor) -> Written:
        """Returns arrays for so many steps.

        Args:
            shape: [B, N, S], None where a size is not known.
            steps: int32, at least as many as will be written.
        """

        def array(dtype: tf.DType, shape: list[int | None]) -> tf.TensorArray:
            return tf.TensorArray(dtype, steps, element_shape=shape)

        ids, log_probs = array(tf.int32, shape[:2]), array(tf.float32, shape[:2])
        return cls(ids, array(tf.float32, shape), log_probs)

    def write(self, time: tf.Tensor, *chosen: tf.Tensor) -> Written:
        """Returns the arrays with one more step, given in their order."""
        pairs = zip(self, chosen, strict=True)
        return Written(*(array.write(time, x) for array, x in pairs))

    def first(self, steps: tf.Tensor) -> list[tf.Tensor]:
        """Reads the first steps; what was never written has no shape yet."""
        return [array.gather(tf.range(steps)) for array in self]


def collect(
    ids: tf.Tensor,
    weights: tf.Tensor,
    log_probs: tf.Tensor,
    *,
    lengths: tf.Tensor,
    scores: tf.Tensor,
) -> Hypotheses:
    """Makes `Hypotheses` of what a search wrote.

    Args:
        ids: int32 [T, B, N] of at least one step. What follows the end of a
            hypothesis is ignored, and so is all of one whose score is -inf.
        weights: float32 [T, B, N, S].
        log_probs: float32 [T, B, N], of the hypothesis up to there.
        lengths: int32 [B, N].
        scores: float32 [B, N].

    Returns:
        `Hypotheses`, as long as the longest of them, and at least one token.
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
