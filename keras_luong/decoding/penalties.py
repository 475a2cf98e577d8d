"""Length penalties: how the log-probabilities of unequally long sequences compare.

A search ranks *finished* hypotheses by `score` and stops by `bound`; it needs
nothing else, so that a user's own penalty is any object with these two methods.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from typing import Protocol, runtime_checkable

import tensorflow as tf


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

    def __post_init__(self):
        """Refuse what would break the stop rule's proof."""
        if isinstance(self.alpha, bool) or not isinstance(self.alpha, numbers.Real):
            raise TypeError(f"`alpha` must be a number. Received: {self.alpha!r}")
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ValueError(
                f"`alpha` must be finite and not negative. Received: {self.alpha!r}"
            )

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


def length_penalty_of(value: float | LengthPenalty) -> LengthPenalty:
    """Read a search's `length_penalty` argument.

    Args:
        value: GNMT's alpha (0 for none), or an object with `score` and `bound`.

    Returns:
        A `LengthPenalty`.

    Raises:
        TypeError: if it is neither.
        ValueError: if alpha is negative or not finite.

    Example:
        >>> length_penalty_of(0.6)
        GNMTLengthPenalty(alpha=0.6)
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return GNMTLengthPenalty(value)
    if isinstance(value, LengthPenalty) and not isinstance(value, type):
        return value
    raise TypeError(
        "`length_penalty` must be a number (the alpha of GNMT's penalty, 0 for none) "
        f"or an object with methods `score` and `bound`. Received: {value!r}"
    )
