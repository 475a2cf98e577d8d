"""Sentences that a corpus both trains on and is judged by."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from keras_luong.text.corpus import Corpus
from keras_luong.text.text_hashes import text_hashes


class Overlap(NamedTuple):
    """How much of a split is in the training split too; blank sentences don't count.

    Attributes:
        size: The number of the split's pairs.
        pairs: Those of which the very pair is there.
        sources: Those of which the source is there, whatever its translation.
    """

    size: int
    pairs: int
    sources: int


def overlaps(corpus: Corpus, limit: int | None = None) -> dict[str, Overlap]:
    """Counts what of each other split is in the training split, word by word.

    Args:
        corpus: A corpus with a training split. It is read once, and 24 bytes of each
            of its pairs are kept meanwhile.
        limit: Number of training pairs that count, the first ones; all by default.

    Returns:
        Split → its `Overlap`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.overlap import overlaps
        >>> overlaps(load_corpus("my/corpus", "en", "de"))["test"]
        Overlap(size=1, pairs=0, sources=0)
    """
    train = text_hashes(corpus.pairs("train").take(limit or -1))
    found = {}
    for split in corpus.splits:
        if split != "train":
            other = text_hashes(corpus.pairs(split))
            pairs = np.isin(other.pairs, train.pairs) & other.full
            sources = np.isin(other.source, train.source) & (other.source > 0)
            sizes = len(other.source), int(pairs.sum()), int(sources.sum())
            found[split] = Overlap(*sizes)
    return found
