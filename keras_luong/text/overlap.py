"""Sentences that a corpus both learns from and is judged by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.text.corpus import Corpus
from keras_luong.text.tags import untagged
from keras_luong.text.text_hashes import TextHashes, text_hashes


class Overlap(NamedTuple):
    """How much of a split is in others too; blank sentences don't count.

    Attributes:
        size: The number of the split's pairs.
        pairs: Those of which the very pair is trained on.
        sources: Those of which the source is, whatever its translation.
        validated: Those of which the very pair is in the validation split, of another
            split.
    """

    size: int
    pairs: int
    sources: int
    validated: int = 0


def overlaps(
    corpus: Corpus, limit: int | None = None, learned: Iterable[tf.data.Dataset] = ()
) -> dict[str, Overlap]:
    """Counts what of each other split is trained on, word by word, tags aside.

    Args:
        corpus: A corpus with splits to train and validate on. It is read once, and 24
            bytes of each of its pairs are kept meanwhile.
        limit: Number of training pairs that count, the first ones; all by default.
        learned: More pairs that count as trained on, as those of a run that training
            starts from.

    Returns:
        Split → its `Overlap`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.overlap import overlaps
        >>> overlaps(load_corpus("my/corpus", "en", "de"))["test"]
        Overlap(size=1, pairs=0, sources=0, validated=0)
    """
    texts = [corpus.pairs("train").take(limit or -1), *learned]
    train = [_hashes(text) for text in texts]
    pairs = np.concatenate([text.pairs for text in train])
    sources = np.concatenate([text.source for text in train])
    others = {x: _hashes(corpus.pairs(x)) for x in corpus.splits if x != "train"}
    found = {}
    for split, other in others.items():
        full = other.pairs[other.full]
        judged = others["validation"].pairs if split != "validation" else full[:0]
        found[split] = Overlap(
            len(other.source),
            int(np.isin(full, pairs).sum()),
            int(np.isin(other.source[other.source > 0], sources).sum()),
            int(np.isin(full, judged).sum()),
        )
    return found


def _hashes(pairs: tf.data.Dataset) -> TextHashes:
    return text_hashes(untagged(pairs))
