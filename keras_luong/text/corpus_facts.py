"""What a recipe must know of a corpus: how much text there is, how long lines are."""

from __future__ import annotations

import bz2
from collections import Counter
from collections.abc import Iterable

import numpy as np

from keras_luong.config.auto import CorpusFacts
from keras_luong.text.corpus import Corpus

_PAIRS_AT_ONCE = 8192
_PAIRS_FOR_CHARACTERS = 100_000  # a language's characters are all seen by then
_MOST_BYTES = 4096  # longer lines count as this long: they are not trained on


def corpus_facts(
    corpus: Corpus, limit: int | None = None, coverage: float = 0.9999
) -> CorpusFacts:
    """Measures the training split of a corpus, in one pass and little memory.

    Args:
        corpus: The corpus.
        limit: Number of pairs to train on, the first ones; None for all.
        coverage: Share of the text that the counted characters must cover.

    Returns:
        The `CorpusFacts`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus_facts import corpus_facts
        >>> corpus_facts(load_corpus("my/corpus", "en", "de")).pairs
        3
    """
    pairs, content, compressor = 0, 0, bz2.BZ2Compressor()
    lengths = np.zeros(_MOST_BYTES + 1, np.int64)
    characters: Counter[str] = Counter()
    blocks = corpus.pairs("train").take(limit or -1).batch(_PAIRS_AT_ONCE)
    for block in blocks.as_numpy_iterator():
        sides = [[len(text) for text in block[side]] for side in ("source", "target")]
        longest = np.minimum(np.max(sides, axis=0), _MOST_BYTES)
        lengths += np.bincount(longest, minlength=_MOST_BYTES + 1)
        content += len(compressor.compress(_joined(block["target"])))
        if pairs < _PAIRS_FOR_CHARACTERS:
            for side in ("source", "target"):
                characters.update(b"".join(block[side]).decode(errors="replace"))
        pairs += len(block["target"])
    return CorpusFacts(
        pairs=pairs,
        content=content + len(compressor.flush()),
        long_line=_quantile(lengths, 0.995),
        characters=_covering(characters, coverage),
    )


def _joined(texts: Iterable[bytes]) -> bytes:
    return b"\n".join(text[:_MOST_BYTES] for text in texts)


def _quantile(counts: np.ndarray, share: float) -> int:
    """The smallest index up to which there is this share of the counts."""
    return int(np.searchsorted(np.cumsum(counts), share * counts.sum()))


def _covering(characters: Counter[str], coverage: float) -> int:
    """How many characters, the most frequent ones, make up this share of the text."""
    counts = np.array(sorted(characters.values(), reverse=True), np.int64)
    if not counts.size:
        return 0
    return int(np.searchsorted(np.cumsum(counts), coverage * counts.sum())) + 1
