"""The result of translating a sentence."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Translation(NamedTuple):
    """A translated sentence, with its score and alignment.

    Attributes:
        text: The translation; empty if the source is empty or white space.
        score: The score by which the search ranked it; 0.0 for an empty source.
        tokens: The target's pieces, the end token included.
        source_tokens: The source's pieces as the model read them, the end token
            included.
        alignment: float32 [len(tokens), len(source_tokens)], the attention.
        truncated: Whether the source, or the target of `score`, was too long and only
            its beginning was read.
        log_probs: float32 [len(tokens)], the model's log-probability of each token.
        unmet: The phrases that it should contain and does not, as no translation with
            all of them was found within the maximum length.

    Example:
        >>> [translation] = kl.load("runs/mine").translate(["the dog"])
        >>> translation.source_tokens
        ['the', 'dog', '</s>']
        >>> translation.alignment.shape == (len(translation.tokens), 3)
        True
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray
    truncated: bool
    log_probs: np.ndarray
    unmet: tuple[str, ...] = ()
