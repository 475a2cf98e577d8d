"""The results of a search, and how they are recorded step by step.

Shapes: B batch, S source length, N hypotheses of a sentence, T length of the
longest of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.special_ids import PAD_ID

IMPOSSIBLE = float("-inf")


class Hypotheses(NamedTuple):
    """The results of a search, the best hypothesis of each sentence first.

    Attributes:
        ids: int32 [B, N, T], without the begin token, up to and with the end token
            (absent if the maximum length cut the hypothesis), then padding.
        lengths: int32 [B, N], the end token included. 0 where the search found fewer
            than N hypotheses of non-zero probability.
        scores: float32 [B, N], by which they are ranked; -inf where there is none.
        log_probs: float32 [B, N], the sum over the tokens.
        weights: float32 [B, N, T, S], the attention at each token, 0 after the end. S
            is what the model's own step says, such as two axes; it is 0 for a model
            without attention.
        token_log_probs: float32 [B, N, T], log-probability of each token, 0 after the
            end.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> found = kl.GreedySearch(max_length=4)(model, np.array([[4, 5, 3]]))
        >>> T = found.ids.shape[-1]
        >>> found.ids.shape == (1, 1, T), found.weights.shape == (1, 1, T, 3)
        (True, True)
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    weights: tf.Tensor
    token_log_probs: tf.Tensor


class Written(NamedTuple):
    """The tokens, log-probabilities and attention of each step, or of one step.

    They are arrays while a search writes, then tensors with all steps.
    """

    ids: Any  # T x [B, N]
    log_probs: Any  # T x [B, N] of the hypothesis so far
    weights: list[Any]  # T x [B, N, S]; [] if the model has no attention

    @classmethod
    def empty(
        cls, shape: list[int | None], attended: list[Any], steps: int | tf.Tensor
    ) -> Written:
        """Returns empty arrays.

        Args:
            shape: The sizes [B, N], None for an unknown one.
            attended: The shapes [S] of a step's attention, none or one.
            steps: int32, at least the number of steps that will be written.
        """

        def array(dtype: tf.DType, *rest: int | None) -> tf.TensorArray:
            return tf.TensorArray(dtype, steps, element_shape=[*shape, *rest])

        weights = [array(tf.float32, *axes) for axes in attended]
        return cls(array(tf.int32), array(tf.float32), weights)

    def write(self, time: tf.Tensor, chosen: Written) -> Written:
        """Returns the arrays with one more step."""
        return tf.nest.map_structure(lambda a, x: a.write(time, x), self, chosen)

    def first(self, steps: tf.Tensor) -> Written:
        """Returns the first steps only, as unwritten ones have no shape."""
        return tf.nest.map_structure(lambda a: a.gather(tf.range(steps)), self)

    def stack(self) -> Written:
        """Returns all steps, each of which was written."""
        return tf.nest.map_structure(lambda a: a.stack(), self)


def collect(
    written: Written, lengths: tf.Tensor, scores: tf.Tensor, pad_id: int = PAD_ID
) -> Hypotheses:
    """Makes `Hypotheses` of the steps that a search recorded.

    Args:
        written: At least one step. What is after the end of a hypothesis is ignored,
            and so are hypotheses whose score is -inf.
        lengths: int32 [B, N].
        scores: float32 [B, N].
        pad_id: What fills the ids up.

    Returns:
        `Hypotheses` with T the length of the longest of them, at least 1.
    """
    there = scores > IMPOSSIBLE
    lengths = tf.where(there, lengths, 0)
    longest = tf.maximum(1, tf.reduce_max(lengths))
    inside = tf.range(longest) < lengths[..., tf.newaxis]
    by_hypothesis = tf.nest.map_structure(lambda x: _steps_last(x[:longest]), written)
    sums = tf.where(inside, by_hypothesis.log_probs, 0.0)
    before = tf.pad(sums, [[0, 0], [0, 0], [1, 0]])[..., :-1]
    last = tf.maximum(lengths - 1, 0)
    total = tf.gather(sums, last, batch_dims=2)
    return Hypotheses(
        ids=tf.where(inside, by_hypothesis.ids, pad_id),
        lengths=lengths,
        scores=scores,
        log_probs=tf.where(there, total, IMPOSSIBLE),
        weights=_attention(by_hypothesis.weights, inside),
        token_log_probs=tf.where(inside, sums - before, 0.0),
    )


def _steps_last(x):
    """[T, B, N, ...] -> [B, N, T, ...]."""
    return tf.transpose(x, [1, 2, 0, *range(3, x.shape.rank)])


def _attention(weights, inside):
    """Returns the attention [B, N, T, S], 0 after the end, with S 0 without any."""
    if not weights:
        return tf.zeros([*tf.unstack(tf.shape(inside)), 0])
    (weights,) = weights
    for _ in range(weights.shape.rank - 3):
        inside = inside[..., tf.newaxis]
    return tf.where(inside, weights, 0.0)
