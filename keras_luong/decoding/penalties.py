"""Penalties: how the log-probabilities of unequal hypotheses compare.

A search ranks *finished* hypotheses by a length penalty's `score` plus a coverage
penalty's, and stops by their `bound`s; it needs nothing else, so that a user's own
penalty is any object with these two methods.

Shapes: `...` sentences and beams, `S` source length.
"""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import tensorflow as tf

from keras_luong.checks import check_not_negative

LEAST_COVERAGE = 1e-6  # what a word without any attention counts as: its log is finite


@runtime_checkable
class LengthPenalty(Protocol):
    """What a search asks of a length penalty."""

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Rank finished hypotheses; higher is better.

        Args:
            log_probs: float32, any shape; never positive, -inf for "impossible".
            lengths: int32, broadcastable to `log_probs`, at least 1; counts the
                end token.

        Returns:
            float32 in the shape of `log_probs`; -inf wherever `log_probs` is, and
            finite elsewhere.
        """

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bound the score of everything that an open hypothesis can still become.

        Args:
            log_probs: float32, the open hypotheses' log-probabilities so far.
            limits: int32, broadcastable to `log_probs`: the longest they may grow.

        Returns:
            float32 in the shape of `log_probs`: no finished continuation scores more.
        """


@runtime_checkable
class CoveragePenalty(Protocol):
    """What a search asks of a coverage penalty."""

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """What to add to a finished hypothesis's score.

        Args:
            coverage: float32 `[..., S]`, the attention that each source word had.
            mask: bool, broadcastable to it: which are words.

        Returns:
            float32 `[...]`, never positive.
        """

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bound what it can still become.

        Args:
            coverage: float32 `[..., S]`, of open hypotheses.
            mask: bool, broadcastable to it.
            steps: int32, broadcastable to `[...]`: the most tokens that may follow,
                each of which adds at most 1 to the coverage of a word.

        Returns:
            float32 `[...]`: no continuation gets more.
        """


@dataclasses.dataclass(frozen=True)
class GNMTLengthPenalty:
    """Divides a log-probability by `((5 + length) / 6) ** alpha` (Wu et al. 2016).

    `alpha=0` divides by one: plain log-probabilities.

    Args:
        alpha: float, not negative; 0.6 to 1 are usual.

    Raises:
        TypeError: if `alpha` is not a number.
        ValueError: if `alpha` is negative, infinite or NaN.

    Example:
        >>> float(GNMTLengthPenalty(1.0).score(tf.constant(-3.0), tf.constant(7)))
        -1.5
    """

    alpha: float
    kind: str = dataclasses.field(default="gnmt", init=False)

    def __post_init__(self):
        """Check alpha."""
        object.__setattr__(self, "alpha", check_not_negative("alpha", self.alpha))

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Rank finished hypotheses; see `LengthPenalty.score`."""
        growth = (5.0 + tf.cast(lengths, tf.float32)) / 6.0
        return log_probs / tf.pow(growth, tf.cast(self.alpha, tf.float32))

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bound what open hypotheses can become; see `LengthPenalty.bound`.

        A continuation's log-probability is at most today's, `L' <= L <= 0`, since
        every further token adds the logarithm of a probability. Its divisor is at
        most the limit's, `lp(len) <= lp(limit)`, since `alpha >= 0`; and dividing a
        number that is not positive by more brings it nearer to zero. Therefore
        `L' / lp(len) <= L / lp(len) <= L / lp(limit)`. With `alpha = 0` the divisor is
        one and the bound is `L` itself. Rounding keeps the order: float addition of
        a number that is not positive, and division, are monotone.
        """
        return self.score(log_probs, limits)


@dataclasses.dataclass(frozen=True)
class AverageLengthPenalty:
    """Divides a log-probability by `length ** alpha`: with 1, the mean per token.

    Args:
        alpha: float, not negative.

    Raises:
        TypeError: if `alpha` is not a number.
        ValueError: if `alpha` is negative, infinite or NaN.

    Example:
        >>> float(AverageLengthPenalty(1.0).score(tf.constant(-3.0), tf.constant(6)))
        -0.5
    """

    alpha: float = 1.0
    kind: str = dataclasses.field(default="average", init=False)

    def __post_init__(self):
        """Check alpha."""
        object.__setattr__(self, "alpha", check_not_negative("alpha", self.alpha))

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Rank finished hypotheses; see `LengthPenalty.score`."""
        lengths = tf.cast(lengths, tf.float32)
        return log_probs / tf.pow(lengths, tf.cast(self.alpha, tf.float32))

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bound what open hypotheses can become: `GNMTLengthPenalty.bound`'s proof."""
        return self.score(log_probs, limits)


@dataclasses.dataclass(frozen=True)
class WordReward:
    """Adds `reward` to a log-probability for every token (He et al. 2016).

    Args:
        reward: float, not negative.

    Raises:
        TypeError: if `reward` is not a number.
        ValueError: if `reward` is negative, infinite or NaN.

    Example:
        >>> float(WordReward(0.5).score(tf.constant(-3.0), tf.constant(4)))
        -1.0
    """

    reward: float
    kind: str = dataclasses.field(default="reward", init=False)

    def __post_init__(self):
        """Check the reward."""
        object.__setattr__(self, "reward", check_not_negative("reward", self.reward))

    def score(self, log_probs: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
        """Rank finished hypotheses; see `LengthPenalty.score`."""
        return log_probs + self.reward * tf.cast(lengths, tf.float32)

    def bound(self, log_probs: tf.Tensor, limits: tf.Tensor) -> tf.Tensor:
        """Bound what open hypotheses can become; see `LengthPenalty.bound`.

        A continuation has `L' <= L` and at most `limit` tokens, and the reward is not
        negative: `L' + r len <= L + r limit`.
        """
        return self.score(log_probs, limits)


@dataclasses.dataclass(frozen=True)
class GNMTCoveragePenalty:
    """Adds `beta Σ_s log(min(coverage_s, 1))` (Wu et al. 2016, Eq. 14).

    It punishes source words that had little attention; what is below `LEAST_COVERAGE`
    counts as that.

    Args:
        beta: float, not negative; 0.2 is theirs.

    Raises:
        TypeError: if `beta` is not a number.
        ValueError: if `beta` is negative, infinite or NaN.
    """

    beta: float
    kind: str = dataclasses.field(default="gnmt", init=False)

    def __post_init__(self):
        """Check beta."""
        object.__setattr__(self, "beta", check_not_negative("beta", self.beta))

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """What to add; see `CoveragePenalty.score`."""
        logs = tf.math.log(tf.clip_by_value(coverage, LEAST_COVERAGE, 1.0))
        return self.beta * tf.reduce_sum(tf.where(mask, logs, 0.0), axis=-1)

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bound what it can become; see `CoveragePenalty.bound`.

        A word's coverage grows by at most 1 a step, and the penalty grows with it.
        """
        steps = tf.cast(steps, tf.float32)[..., tf.newaxis]
        return self.score(coverage + steps, mask)


@dataclasses.dataclass(frozen=True)
class SummaryCoveragePenalty:
    """Subtracts `beta Σ_s max(coverage_s - 1, 0)`, as OpenNMT's "summary" does.

    It punishes source words that had attention more than once.

    Args:
        beta: float, not negative; 5 is usual for summaries.

    Raises:
        TypeError: if `beta` is not a number.
        ValueError: if `beta` is negative, infinite or NaN.
    """

    beta: float
    kind: str = dataclasses.field(default="summary", init=False)

    def __post_init__(self):
        """Check beta."""
        object.__setattr__(self, "beta", check_not_negative("beta", self.beta))

    def score(self, coverage: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """What to add; see `CoveragePenalty.score`."""
        excess = tf.where(mask, tf.maximum(coverage - 1.0, 0.0), 0.0)
        return -self.beta * tf.reduce_sum(excess, axis=-1)

    def bound(
        self, coverage: tf.Tensor, mask: tf.Tensor, steps: tf.Tensor
    ) -> tf.Tensor:
        """Bound what it can become; see `CoveragePenalty.bound`.

        Coverage never shrinks, so the penalty never does: it is at most today's.
        """
        del steps
        return self.score(coverage, mask)


_LENGTH = {"gnmt": GNMTLengthPenalty, "average": AverageLengthPenalty}
_LENGTH["reward"] = WordReward
_COVERAGE = {"gnmt": GNMTCoveragePenalty, "summary": SummaryCoveragePenalty}


def length_penalty_of(value: float | Mapping | LengthPenalty) -> LengthPenalty:
    """Read a search's `length_penalty` argument.

    Args:
        value: GNMT's alpha (0 for none); an object with `score` and `bound`; or what
            `dataclasses.asdict` made of one of the penalties here, as in a file.

    Returns:
        A `LengthPenalty`.

    Raises:
        TypeError: if it is none of these.
        ValueError: if alpha is negative or not finite, or the kind is unknown.

    Example:
        >>> length_penalty_of(0.6).alpha
        0.6
        >>> length_penalty_of({"kind": "average", "alpha": 1.0})
        AverageLengthPenalty(alpha=1.0, kind='average')
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return GNMTLengthPenalty(value)
    return _penalty_of("length_penalty", value, _LENGTH, LengthPenalty)


def coverage_penalty_of(
    value: float | Mapping | CoveragePenalty,
) -> CoveragePenalty | None:
    """Read a search's `coverage_penalty` argument.

    Args:
        value: GNMT's beta (0 for none); an object with `score` and `bound`; or what
            `dataclasses.asdict` made of one of the penalties here, as in a file.

    Returns:
        A `CoveragePenalty`, or None for 0.

    Raises:
        TypeError: if it is none of these.
        ValueError: if beta is negative or not finite, or the kind is unknown.

    Example:
        >>> coverage_penalty_of(SummaryCoveragePenalty(5.0)).beta
        5.0
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        penalty = GNMTCoveragePenalty(value)
        return penalty if value else None
    return _penalty_of("coverage_penalty", value, _COVERAGE, CoveragePenalty)


def _penalty_of(name, value, kinds, protocol):
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
