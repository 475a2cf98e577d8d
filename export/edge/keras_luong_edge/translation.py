"""What a translation is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Translation(NamedTuple):
    """A translated sentence.

    Attributes:
        text: The translation; empty if the source is empty or white space.
        score: float, by which the search ranked it; 0.0 for an empty source.
        tokens: The target's pieces, the end token included.
        source_tokens: The source's pieces as the model read them, the end token
            included.
        alignment: float32 array `[len(tokens), len(source_tokens)]`, the attention.
        truncated: Whether the source was longer than the translator reads.
        log_probs: float32 array `[len(tokens)]`, the model's log-probability of each
            token.

    Example:
        >>> from keras_luong_edge import EdgeTranslator
        >>> [translation] = EdgeTranslator("mine.tflite").translate(["the dog"])
        >>> translation.source_tokens
        ['the', 'dog', '</s>']
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: NDArray[np.float32]
    truncated: bool
    log_probs: NDArray[np.float32]
