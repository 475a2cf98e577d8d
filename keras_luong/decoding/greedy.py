"""Greedy search: at every step the most probable token."""

from __future__ import annotations

import dataclasses

from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.settings import SizeOrNone
from keras_luong.decoding.sources import Source
from keras_luong.decoding.special_tokens import SpecialTokens
from keras_luong.decoding.stepping import StepModel


@dataclasses.dataclass(frozen=True, repr=False)
class GreedySearch(SpecialTokens):
    """A search that takes the most probable token at every step.

    At a tie it takes the lower id. It is a `BeamSearch(beam_width=1)` with no other
    options. A hypothesis ends with the end token, or is cut off at the maximum length.

    Args:
        max_length: Longest hypothesis, the end token included; None for twice the
            sentence's source length plus 10, if the source is ids.
        bos_id: The token that the model reads first; see `SpecialTokens`.
        eos_id: The token that ends a hypothesis.
        pad_id: The id of padding, in sources of ids and results.

    Raises:
        TypeError: If `max_length` or an id is not an integer.
        ValueError: If `max_length` is below 1, or an id negative.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> hypotheses = kl.GreedySearch(max_length=4)(model, np.array([[4, 5, 3]]))
        >>> tuple(hypotheses.lengths.shape)
        (1, 1)
    """

    max_length: SizeOrNone = 100

    def as_beam_search(self) -> BeamSearch:
        """Returns the equivalent beam search."""
        return BeamSearch(1, max_length=self.max_length, **self.special_ids)

    def __call__(self, model: StepModel, source: Source) -> Hypotheses:
        """Finds one hypothesis per sentence, scored by its log-probability.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads: int32 [B, S] ids, right-padded with
                `pad_id`; or tensors [B, ...] of any dtype, or a tuple or dict of them.
        """
        return self.as_beam_search()(model, source)
