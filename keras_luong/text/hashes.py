"""Hashes of sentences, by which pairs are found again, and a sample of pairs.

Shapes: N pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.text.corpus import Block
from keras_luong.text.tags import remove_tag

#: Pairs of a sample: more than are held out, and enough to learn a lexical table of.
KEPT = 30_000
_LARGEST = 2**63 - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one


class TextHashes(NamedTuple):
    """Hashes of sentences, the same on every machine; 0 for a blank one.

    Sentences that differ in their white space alone have the same: a model reads them
    alike, as SentencePiece does.

    Attributes:
        source: uint64 [N], of the sources, without tags in front of them.
        target: uint64 [N], of the targets.
        length: int64 [N], the characters of the longer side.
    """

    source: np.ndarray
    target: np.ndarray
    length: np.ndarray

    @property
    def full(self) -> np.ndarray:
        """Whether both sides have text: bool [N]."""
        return (self.source > 0) & (self.target > 0)

    @property
    def pairs(self) -> np.ndarray:
        """A number for each pair: uint64 [N]."""
        return self.source * _MIX + self.target

    @property
    def different(self) -> int:
        """The number of different pairs that have text on both sides."""
        return len(np.unique(self.pairs[self.full]))

    def of(self, places: np.ndarray | slice) -> TextHashes:
        """Returns the hashes of some pairs."""
        return TextHashes(*(x[places] for x in self))


def hashes_of(texts: Iterable[str]) -> np.ndarray:
    """Returns hashes of texts, uint64 [N]: 0 for blank ones.

    Args:
        texts: The texts.

    Example:
        >>> from keras_luong.text.hashes import hashes_of
        >>> one, same, blank = hashes_of(["a dog", " a  dog ", " "])
        >>> bool(one == same), int(blank)
        (True, 0)
    """
    # Most are printable, with single spaces; the only printable white space is a space.
    words = [
        text
        if text.isprintable() and "  " not in text and text.strip(" ") == text
        else " ".join(text.split())
        for text in texts
    ]
    as_bytes = np.array([x.encode(errors="replace") for x in words], object)
    if not len(as_bytes):
        return np.zeros(0, np.uint64)
    hashes = 1 + tf.strings.to_hash_bucket_fast(as_bytes, _LARGEST).numpy()
    return np.where(as_bytes == b"", 0, hashes).astype(np.uint64)


class Sample(NamedTuple):
    """Some pairs of a text, in its order; each different pair once.

    Attributes:
        places: int64 [N], their places in the text, from 0.
        sources: The sources.
        targets: The targets.
    """

    places: np.ndarray
    sources: Sequence[str]
    targets: Sequence[str]

    def of(self, indices: Iterable[int]) -> Sample:
        """Returns some of its pairs, by their indices in it."""
        indices = [int(i) for i in indices]
        sides = ([side[i] for i in indices] for side in (self.sources, self.targets))
        return Sample(self.places[indices], *sides)

    def thinned(self, number: int) -> Sample:
        """Returns evenly spaced pairs of it, at most so many."""
        return self.of(range(0, len(self.places), -(-len(self.places) // number) or 1))


class HashReader:
    """Hashes a text, block by block, and keeps some of its pairs.

    Those with the smallest hashes are kept: a random sample, which is the same wherever
    the text lies and however it is packed.

    Args:
        kept: How many pairs to keep.

    Example:
        >>> from keras_luong.text.hashes import HashReader
        >>> reader = HashReader(kept=1)
        >>> _ = reader.read(
        ...     ["a dog", "a cat", "a dog"], ["ein Hund", "eine Katze", "x"]
        ... )
        >>> len(reader.hashes.source), len(reader.sample.sources)
        (3, 1)
    """

    def __init__(self, kept: int = KEPT) -> None:
        self._kept, self._number = kept, 0
        nothing = np.zeros(0, np.uint64)
        self._blocks = [TextHashes(nothing, nothing, np.zeros(0, np.int64))]
        self._smallest: dict[int, tuple[int, str, str]] = {}  # hash → place and pair
        self._bound = np.iinfo(np.uint64).max

    def read(self, sources: Sequence[str], targets: Sequence[str]) -> TextHashes:
        """Takes the next pairs of the text, and returns their hashes."""
        untagged = [*map(remove_tag, sources)]
        length = np.maximum([*map(len, sources)], [*map(len, targets)])
        block = TextHashes(hashes_of(untagged), hashes_of(targets), length)
        self._blocks.append(block)
        numbers = block.pairs
        for i in np.flatnonzero(block.full & (numbers <= self._bound)).tolist():
            place = self._number + i
            self._smallest.setdefault(int(numbers[i]), (place, sources[i], targets[i]))
        self._number += len(sources)
        if len(self._smallest) > 2 * self._kept:
            self._forget()
        return block

    def read_all(self, blocks: Iterable[Block]) -> HashReader:
        """Takes all pairs of a text, from `read_blocks`."""
        for block in blocks:
            self.read(*block)
        return self

    def _forget(self) -> None:
        smallest = sorted(self._smallest)[: self._kept]
        self._smallest = {number: self._smallest[number] for number in smallest}
        if len(smallest) == self._kept:
            self._bound = smallest[-1]

    @property
    def hashes(self) -> TextHashes:
        """Of all that was read."""
        self._blocks = [
            TextHashes(*map(np.concatenate, zip(*self._blocks, strict=True)))
        ]
        return self._blocks[0]

    @property
    def sample(self) -> Sample:
        """The pairs that were kept."""
        self._forget()
        rows = sorted(self._smallest.values())
        places, sources, targets = zip(*rows, strict=True) if rows else ((), (), ())
        return Sample(np.array(places, np.int64), sources, targets)
