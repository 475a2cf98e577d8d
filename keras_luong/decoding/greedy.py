"""Greedy search: at every step the most probable token."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.stepping import LONGEST, Hypotheses, StepModel


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the most probable token at every step, the lower id at a tie.

    It is `BeamSearch(beam_width=1)` without its options. A sentence ends with the end
    token, or at the maximum length as it is.

    Args:
        max_length: int, counting the end token; or None for twice the sentence's
            source length and 10.

    Raises:
        TypeError: if `max_length` is not an integer.
        ValueError: if `max_length` is below 1.

    Example:
        >>> hypotheses = GreedySearch(max_length=50)(model, source_ids)
        >>> hypotheses.ids[:, 0]
    """

    max_length: int | None = 100

    def __post_init__(self):
        """Refuse an impossible length."""
        size = check_size("max_length", self.max_length, True, largest=LONGEST)
        object.__setattr__(self, "max_length", size)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Search.

        Args:
            model: a `StepModel`.
            source_ids: int32 `[B, S]`, right-padded with `PAD_ID`.

        Returns:
            `Hypotheses`, one per sentence; scores are log-probabilities.
        """
        search = BeamSearch(beam_width=1, max_length=self.max_length)
        return search(model, source_ids)
