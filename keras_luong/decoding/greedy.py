"""Greedy search: at every step the most probable token."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.stepping import Hypotheses, StepModel


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the most probable token at every step, the lower id at a tie.

    It is `BeamSearch(beam_width=1)` without its options. A sentence ends with the end
    token, or at the maximum length as it is.

    Args:
        max_length: Counts the end token; None for twice the sentence's source length
            and 10.

    Raises:
        TypeError: If `max_length` is not an integer.
        ValueError: If `max_length` is below 1.

    Example:
        >>> hypotheses = GreedySearch(max_length=50)(model, source_ids)
        >>> hypotheses.ids[:, 0]
    """

    max_length: int | None = 100

    def __post_init__(self) -> None:
        """Checks the length; NumPy's integer becomes Python's."""
        object.__setattr__(self, "max_length", self.as_beam_search().max_length)

    def as_beam_search(self) -> BeamSearch:
        """Returns the beam search that does the same."""
        return BeamSearch(beam_width=1, max_length=self.max_length)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Finds one hypothesis per sentence; its score is its log-probability.

        Args:
            model: A `StepModel`.
            source_ids: int32 [B, S], right-padded with `PAD_ID`.
        """
        return self.as_beam_search()(model, source_ids)
