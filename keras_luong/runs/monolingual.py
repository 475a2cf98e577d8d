"""Which lines of a file of one language are worth translating back.

Shapes: N lines.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_file
from keras_luong.files import read_lines
from keras_luong.text.corpus import Corpus
from keras_luong.text.text_hashes import hashes_of, text_hashes
from keras_luong.translation.graph import read_text
from keras_luong.translation.translator import Translator

_AT_ONCE = 1024


class Monolingual(NamedTuple):
    """Lines of a file.

    Attributes:
        path: The file.
        kept: Which lines are translated: bool [N].
        left_out: How many are not, by why.
    """

    path: Path
    kept: np.ndarray
    left_out: dict[str, int]

    def __str__(self) -> str:
        """What is left out, in a sentence."""
        reasons = [f"{number:,} {why}" for why, number in self.left_out.items()]
        text = f"{self.kept.sum():,} of {len(self.kept):,} lines of {self.path}"
        return f"{text}; left out: {', '.join(reasons) or 'none'}"

    def lines(self) -> Iterator[str]:
        """Yields the lines that are translated."""
        return itertools.compress(read_lines(self.path), self.kept)


def read_monolingual(
    path: str | Path, corpus: Corpus, translator: Translator, limit: int | None = None
) -> Monolingual:
    """Reads a file, and chooses the lines that tell a corpus something new.

    Lines are left out that have no text, that the translator would read in part only,
    that are targets of the corpus already (of a split to be judged by, above all), or
    that were there before. Of each line 10 bytes are kept in memory, and of each pair
    of the corpus 24.

    Args:
        path: The file, plain or gzip.
        corpus: The corpus.
        translator: What will translate the lines.
        limit: Most lines to keep, the first ones; all by default.

    Returns:
        What is kept.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it cannot be read, or no line is left.
    """
    check_file("file of text", path)
    known = {split: text_hashes(corpus.pairs(split)).target for split in corpus.splits}
    train = known.pop("train")
    held_out = np.concatenate([train[:0], *known.values()])
    hashes, empty, too_long = _read(path, translator)
    reasons = {
        "empty": empty,
        f"of over {translator.max_source_length} tokens": too_long,
        "that are held-out targets": np.isin(hashes, held_out),
        "that are training targets": np.isin(hashes, train),
        "that repeat others": _repeats(hashes),
    }
    kept, left_out = np.ones(len(hashes), bool), {}
    for why, which in reasons.items():
        left_out[why] = int(np.sum(kept & which))
        kept &= ~which
    if limit is not None:
        beyond = np.cumsum(kept) > limit
        left_out[f"beyond the limit of {limit:,}"] = int(np.sum(kept & beyond))
        kept &= ~beyond
    left_out = {why: number for why, number in left_out.items() if number}
    found = Monolingual(Path(path), kept, left_out)
    if not kept.any():
        raise ValueError(f"There is nothing to translate: {found}")
    return found


def _read(
    path: str | Path, translator: Translator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each line a number that stands for it, and whether it is empty or too long."""
    lines = read_lines(path)
    blocks = [(np.zeros(0, np.uint64), np.zeros(0, bool), np.zeros(0, bool))]
    while some := list(itertools.islice(lines, _AT_ONCE)):
        texts = tf.constant(some)
        tokenizer, most = translator.source_tokenizer, translator.max_source_length
        read = read_text(texts, tokenizer, most)
        hashes = hashes_of(texts).numpy().astype(np.uint64)
        blocks.append((hashes, read.empty.numpy(), read.truncated.numpy()))
    hashes, empty, too_long = map(np.concatenate, zip(*blocks, strict=True))
    return hashes, empty, too_long


def _repeats(hashes: np.ndarray) -> np.ndarray:
    """Which are there before: bool [N]."""
    _, first = np.unique(hashes, return_index=True)
    repeats = np.ones(len(hashes), bool)
    repeats[first] = False
    return repeats
