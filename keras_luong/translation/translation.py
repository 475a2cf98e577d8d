"""What a translation is, on a server as on the edge; needs NumPy alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

BYTES_PER_TOKEN = 64  # SentencePiece makes none longer: 16 characters of 4 bytes


class Translation(NamedTuple):
    """A translated sentence.

    Attributes:
        text: the translation; empty if the source is empty or white space.
        score: float, by which the search ranked it; 0.0 for an empty source.
        tokens: the target's pieces, the end token included.
        source_tokens: the source's pieces as the model read them, the end token
            included.
        alignment: float32 array `[len(tokens), len(source_tokens)]`, the attention.
        truncated: whether the source was longer than the translator reads.
        log_probs: float32 array `[len(tokens)]`, the model's log-probability of each
            token.
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray
    truncated: bool
    log_probs: np.ndarray


def most_bytes(max_source_length: int) -> int:
    """So many bytes of a text are read, ASCII white space around it not counted.

    Without a limit the tokenizer alone could take minutes for one request.

    Args:
        max_source_length: int, the tokens that are read.

    Returns:
        An int.
    """
    return BYTES_PER_TOKEN * max_source_length


def string(piece: bytes) -> str:
    """Read what a graph wrote.

    Args:
        piece: perhaps a single byte of a letter, which is not UTF-8 on its own.

    Returns:
        A str.
    """
    return piece.decode("utf-8", errors="replace")
