"""What a translation is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Translation(NamedTuple):
    """A translated sentence.

    Attributes:
        text: The translation; empty if the source is empty or white space.
        score: The number by which the search ranked it; 0.0 for an empty source.
        tokens: The target's pieces, the end token included.
        source_tokens: The source's pieces as the model read them, the end token
            included.
        alignment: float32 [len(tokens), len(source_tokens)], the attention.
        truncated: Whether the source was longer than the translator reads.
        log_probs: float32 [len(tokens)], the model's log-probability of each token.
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray
    truncated: bool
    log_probs: np.ndarray
