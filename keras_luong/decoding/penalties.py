"""Penalties: scores that make hypotheses of different lengths comparable.

A search ranks *finished* hypotheses by a length penalty's `score` plus a coverage
penalty's, and stops by their `bound`s. Any object with these two methods can be used
as a penalty.

Shapes: ... sentences and beams, S source length.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, runtime_checkable

import tensorflow as tf

from keras_luong.config.fields import NotNegative, check_fields

LEAST_COVERAGE = 1e-6  # at least this, so that its logarithm is finite


@runtime_checkable
class LengthPenalty(Protocol):
    """The methods of a length penalty.

    Example:
        >>> class NoShortOnes(kl.decoding.LengthPenalty):
        ...     def score(self, log_probs, lengths):
        ...         return log_probs - tf.where(lengths < 5, 10.0, 0.0)
        ...
        ...     def bound(self, log_probs, limits):  # may still grow to 5
        ...         return log_probs
        >>> search = kl.BeamSearch(4, length_penalty=NoShortOnes())
    """

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Scores finished hypotheses; higher is better.

        Args:
            log_probs: float32 of any shape; never positive, -inf for "impossible".
            lengths: int32, broadcastable to `log_probs`, at least 1; the end token is
                included.

        Returns:
            float32 in the shape of `log_probs`; -inf wherever `log_probs` is, and
            finite elsewhere.
        """

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bounds the scores of all continuations of open hypotheses.

        Args:
            log_probs: float32, the open hypotheses' log-probabilities so far.
            limits: int32, broadcastable to `log_probs`: their maximum lengths.

        Returns:
            float32 in the shape of `log_probs`: no finished continuation scores more.
        """


@runtime_checkable
class CoveragePenalty(Protocol):
    """The methods of a coverage penalty.

    Example:
        >>> class Forgotten(kl.decoding.CoveragePenalty):
        ...     def score(self, coverage, mask):  # little attention to a word
        ...         few = tf.cast((coverage < 0.5) & mask, tf.float32)
        ...         return -tf.reduce_sum(few, axis=-1)
        ...
        ...     def bound(self, coverage, mask, steps):  # none, at best
        ...         return tf.zeros(tf.shape(coverage)[:-1])
        >>> search = kl.BeamSearch(4, coverage_penalty=Forgotten())
    """

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the term to add to a finished hypothesis's score.

        Args:
            coverage: float32 [..., S], the attention that each source word had.
            mask: bool, broadcastable to `coverage`: True for words, False for padding.

        Returns:
            float32 [...], never positive.
        """

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bounds the terms of all continuations of open hypotheses.

        Args:
            coverage: float32 [..., S], of open hypotheses.
            mask: bool, broadcastable to `coverage`.
            steps: int32, broadcastable to [...]: the most tokens that may follow,
                each of which adds at most 1 to the coverage of a word.

        Returns:
            float32 [...]: no continuation has a larger term.
        """


class _Weighted:
    """Base of penalties with a single number, which is finite and not negative."""

    def __post_init__(self) -> None:
        """Checks the number."""
        check_fields(self)


class _WeightedLengthPenalty(_Weighted, LengthPenalty):
    """Base of length penalties whose `score` increases with both of its arguments."""

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bounds the score of all continuations; see `LengthPenalty.bound`.

        A continuation's log-probability is at most today's, `L' <= L <= 0`, since
        every further token adds the logarithm of a probability; its length is at most
        the limit. The score grows with both, so it is at most `score(L, limit)`.
        Rounding keeps the order: float addition, and division by a positive number,
        are monotone.
        """
        return self.score(log_probs, limits)


@dataclasses.dataclass(frozen=True)
class GNMTLengthPenalty(_WeightedLengthPenalty):
    """The log-probability divided by `((5 + length) / 6) ** alpha` (Wu et al. 2016).

    With `alpha=0` scores are plain log-probabilities. The score increases with the
    length, as dividing a negative number by more brings it nearer to zero.

    Args:
        alpha: Not negative; 0.6 to 1 are usual.

    Raises:
        TypeError: If `alpha` is not a number.
        ValueError: If `alpha` is negative, infinite or NaN.

    Example:
        >>> from keras_luong.decoding import GNMTLengthPenalty
        >>> float(GNMTLengthPenalty(1.0).score(tf.constant(-3.0), tf.constant(7)))
        -1.5
    """

    alpha: NotNegative
    kind: str = dataclasses.field(default="gnmt", init=False)

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Scores finished hypotheses; see `LengthPenalty.score`."""
        if not self.alpha:
            return log_probs
        growth = (5.0 + tf.cast(lengths, tf.float32)) / 6.0
        return log_probs / tf.pow(growth, tf.cast(self.alpha, tf.float32))


@dataclasses.dataclass(frozen=True)
class AverageLengthPenalty(_WeightedLengthPenalty):
    """The log-probability divided by `length ** alpha`: with 1, the mean per token.

    Args:
        alpha: Not negative.

    Raises:
        TypeError: If `alpha` is not a number.
        ValueError: If `alpha` is negative, infinite or NaN.

    Example:
        >>> from keras_luong.decoding import AverageLengthPenalty
        >>> float(AverageLengthPenalty(1.0).score(tf.constant(-3.0), tf.constant(6)))
        -0.5
    """

    alpha: NotNegative = 1.0
    kind: str = dataclasses.field(default="average", init=False)

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Scores finished hypotheses; see `LengthPenalty.score`."""
        lengths = tf.cast(lengths, tf.float32)
        return log_probs / tf.pow(lengths, tf.cast(self.alpha, tf.float32))


@dataclasses.dataclass(frozen=True)
class WordReward(_WeightedLengthPenalty):
    """The log-probability plus `reward` for every token (He et al. 2016).

    Args:
        reward: Not negative.

    Raises:
        TypeError: If `reward` is not a number.
        ValueError: If `reward` is negative, infinite or NaN.

    Example:
        >>> from keras_luong.decoding import WordReward
        >>> float(WordReward(0.5).score(tf.constant(-3.0), tf.constant(4)))
        -1.0
    """

    reward: NotNegative
    kind: str = dataclasses.field(default="reward", init=False)

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Scores finished hypotheses; see `LengthPenalty.score`."""
        return log_probs + self.reward * tf.cast(lengths, tf.float32)


@dataclasses.dataclass(frozen=True)
class GNMTCoveragePenalty(_Weighted):
    """The term `beta Σ_s log(min(coverage_s, 1))` (Wu et al. 2016, Eq. 14).

    It penalizes source words that had little attention. Coverage below `LEAST_COVERAGE`
    is raised to that.

    Args:
        beta: Not negative; 0.2 in the paper.

    Raises:
        TypeError: If `beta` is not a number.
        ValueError: If `beta` is negative, infinite or NaN.

    Example:
        >>> from keras_luong.decoding import GNMTCoveragePenalty
        >>> coverage, words = tf.constant([0.5, 2.0]), tf.constant([True, True])
        >>> score = GNMTCoveragePenalty(1.0).score(coverage, words)
        >>> round(float(score), 4)  # log 0.5 + log 1
        -0.6931
    """

    beta: NotNegative
    kind: str = dataclasses.field(default="gnmt", init=False)

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the term to add; see `CoveragePenalty.score`."""
        logs = tf.math.log(tf.clip_by_value(coverage, LEAST_COVERAGE, 1.0))
        return self.beta * tf.reduce_sum(tf.where(mask, logs, 0.0), axis=-1)

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bounds the term of all continuations; see `CoveragePenalty.bound`.

        A word's coverage grows by at most 1 a step, and the penalty grows with it.
        """
        steps = tf.cast(steps, tf.float32)[..., tf.newaxis]
        return self.score(coverage + steps, mask)


@dataclasses.dataclass(frozen=True)
class SummaryCoveragePenalty(_Weighted):
    """The term `-beta Σ_s max(coverage_s - 1, 0)`, OpenNMT's "summary" penalty.

    It penalizes source words that had attention more than once.

    Args:
        beta: Not negative; 5 is usual for summaries.

    Raises:
        TypeError: If `beta` is not a number.
        ValueError: If `beta` is negative, infinite or NaN.

    Example:
        >>> from keras_luong.decoding import SummaryCoveragePenalty
        >>> coverage, words = tf.constant([0.5, 2.0]), tf.constant([True, True])
        >>> float(SummaryCoveragePenalty(5.0).score(coverage, words))
        -5.0
    """

    beta: NotNegative
    kind: str = dataclasses.field(default="summary", init=False)

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the term to add; see `CoveragePenalty.score`."""
        excess = tf.where(mask, tf.maximum(coverage - 1.0, 0.0), 0.0)
        return -self.beta * tf.reduce_sum(excess, axis=-1)

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bounds the term of all continuations; see `CoveragePenalty.bound`.

        Coverage never shrinks, so the penalty never does: it is at most today's.
        """
        del steps
        return self.score(coverage, mask)


_LENGTH = {x.kind: x for x in (GNMTLengthPenalty, AverageLengthPenalty, WordReward)}
_COVERAGE = {x.kind: x for x in (GNMTCoveragePenalty, SummaryCoveragePenalty)}


def length_penalty_of(
    value: float | Mapping[str, Any] | LengthPenalty,
) -> LengthPenalty:
    """Reads a search's `length_penalty` argument.

    Args:
        value: GNMT's alpha (0 for none); an object with `score` and `bound`; or the
            `dataclasses.asdict` of one of the penalties here, as in a file.

    Raises:
        TypeError: If it is none of these.
        ValueError: If alpha is negative or not finite, or the kind is unknown.

    Example:
        >>> from keras_luong.decoding.penalties import length_penalty_of
        >>> length_penalty_of(0.6).alpha
        0.6
        >>> length_penalty_of({"kind": "average", "alpha": 1.0})
        AverageLengthPenalty(alpha=1.0, kind='average')
    """
    return _penalty_of("length_penalty", value, _LENGTH, LengthPenalty)


def coverage_penalty_of(
    value: float | Mapping[str, Any] | CoveragePenalty,
) -> CoveragePenalty | None:
    """Reads a search's `coverage_penalty` argument; returns None for 0.

    Args:
        value: GNMT's beta (0 for none); an object with `score` and `bound`; or the
            `dataclasses.asdict` of one of the penalties here, as in a file.

    Raises:
        TypeError: If it is none of these.
        ValueError: If beta is negative or not finite, or the kind is unknown.

    Example:
        >>> from keras_luong.decoding.penalties import coverage_penalty_of
        >>> coverage_penalty_of({"kind": "summary", "beta": 5.0})
        SummaryCoveragePenalty(beta=5.0, kind='summary')
    """
    penalty = _penalty_of("coverage_penalty", value, _COVERAGE, CoveragePenalty)
    return None if value == 0 else penalty


def _kept(read: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """Returns a check of a field that keeps numbers, and makes objects of mappings."""

    def check(name: str, value: Any) -> Any:
        del name  # `read` has it
        penalty = read(value)
        return float(value) if isinstance(value, numbers.Real) else penalty

    return check


#: What a search's fields may be, checked by `keras_luong.config.fields.check_fields`.
LengthPenaltyOf = Annotated[
    float | Mapping[str, Any] | LengthPenalty, _kept(length_penalty_of)
]
CoveragePenaltyOf = Annotated[
    float | Mapping[str, Any] | CoveragePenalty, _kept(coverage_penalty_of)
]


def _penalty_of(name: str, value: Any, kinds: Mapping[str, Any], protocol: Any) -> Any:
    if not isinstance(value, bool) and isinstance(value, numbers.Real):
        return kinds["gnmt"](value)
    if isinstance(value, Mapping):
        fields = dict(value)
        kind = fields.pop("kind", None)
        if kind not in kinds:
            raise ValueError(
                f"{name} must be of one of the kinds {list(kinds)}. Received: {value!r}"
            )
        return kinds[kind](**fields)
    if isinstance(value, protocol) and not isinstance(value, type):
        return value
    raise TypeError(
        f"{name} must be a number (GNMT's, 0 for none) or an object with methods "
        f"score and bound. Received: {value!r}"
    )
