"""Greedy search: at every step the most probable token."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.stepping import Hypotheses, StepModel


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """A search that takes the most probable token at every step.

    At a tie it takes the lower id. It is a `BeamSearch(beam_width=1)` with no other
    options. A hypothesis ends with the end token, or is cut off at the maximum length.

    Args:
        max_length: Longest hypothesis, the end token included; None for twice the
            sentence's source length plus 10.

    Raises:
        TypeError: If `max_length` is not an integer.
        ValueError: If `max_length` is below 1.

    Example:
        >>> hypotheses = GreedySearch(max_length=50)(model, source_ids)
        >>> hypotheses.ids[:, 0]
    """

    max_length: int | None = 100

    def __post_init__(self) -> None:
        """Checks the length, and converts a NumPy integer to Python's."""
        object.__setattr__(self, "max_length", self.as_beam_search().max_length)

    def as_beam_search(self) -> BeamSearch:
        """Returns the equivalent beam search."""
        return BeamSearch(beam_width=1, max_length=self.max_length)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Finds one hypothesis per sentence, scored by its log-probability.

        Args:
            model: A `StepModel`.
            source_ids: int32 [B, S], right-padded with `PAD_ID`.
        """
        return self.as_beam_search()(model, source_ids)
