"""Pairs to validate by, held out of a corpus that has none of its own.

Which ones depends on the text alone, so that every process and every machine holds out
the same, wherever the files lie and however they are packed: a run that goes on would
be refused on other text. So the rule must stay what it is.

Shapes: N training pairs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.files import saved_directory_beside, write_json
from keras_luong.text.corpus import (
    Block,
    Corpus,
    Fingerprint,
    check_split,
    fingerprint,
    joint_digest,
    read_blocks,
    select_pairs,
)
from keras_luong.text.corpus_files import sort_splits
from keras_luong.text.hashes import HashReader, Sample, TextHashes

_MOST, _SHARE = 1000, 20  # pairs, and one of so many
_FEW = 10  # pairs, if that is no more than a fifth of a small corpus
_OFTEN = 10  # a sentence of more pairs is for training
_LONG = 1500  # characters: more is a document, and no model translates it whole


class Parted(NamedTuple):
    """A text in two splits; pairs of neither repeat what is held out.

    Attributes:
        train: bool [N], which pairs are for training.
        validation: The pairs that are held out.
    """

    train: np.ndarray
    validation: Sample


class HeldOut:
    r"""A corpus whose validation split is held out of its training split.

    It is a random twentieth of the pairs, at most 1,000, in the order of the corpus. No
    pair that is left to train on has the source or the target of one that is held out:
    with either, a model could recite what it should translate, and validation would
    choose the weights that know the corpus by heart. What many pairs share, such as
    "Yes.", is not held out, since all of these would be lost to training; nor are
    whole documents in one line among sentences, whose BLEU would count for most.

    The text is read once to choose them, unless `part` or `load` has.

    Args:
        corpus: A corpus with a training split and no validation split.

    Attributes:
        whole: That corpus, of which nothing is held out.

    Raises:
        ValueError: When it is first read, if its pairs repeat each other so much that
            less than half of them would be left.

    Example:
        >>> from keras_luong.files import write_lines
        >>> from keras_luong.text import TextFiles
        >>> from keras_luong.text.corpus import count
        >>> from keras_luong.text.held_out import HeldOut
        >>> write_lines("dogs.tsv", (f"{n} dogs\t{n} Hunde" for n in range(40)))
        >>> corpus = HeldOut(TextFiles.from_table("dogs.tsv", "en", "de"))
        >>> count(corpus.pairs("train")), count(corpus.pairs("validation"))
        (32, 8)
        >>> corpus.notes["held out"]
        '8 of 40 pairs, chosen at random'
    """

    def __init__(self, corpus: Corpus):
        self.whole = corpus
        self.name = corpus.name
        self.source_language = corpus.source_language
        self.target_language = corpus.target_language
        self._parted: Parted | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: train, validation, then the others."""
        return sort_splits([*self.whole.splits, "validation"])

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split: of the corpus's training split, only what belongs to it.

        Args:
            split: One of `splits`.

        Returns:
            The pairs as the corpus has them, in its order; of "train" and "validation"
            those that were chosen when the corpus was first read.

        Raises:
            ValueError: If there is no such split, if too few pairs can be held out, or
                as the corpus itself raises it.
        """
        check_split(self, split)
        if split == "train":
            mask = tf.constant(self.parted.train)
            pairs = self.whole.pairs("train")
            return select_pairs(pairs, lambda places: tf.gather(mask, places))
        if split == "validation":
            _, *sides = self.parted.validation
            named = dict(zip(("source", "target"), map(list, sides), strict=True))
            return tf.data.Dataset.from_tensor_slices(named)
        return self.whole.pairs(split)

    def blocks(self, split: str) -> Iterator[Block]:
        """Yields the sources and the targets of many pairs at a time.

        Args:
            split: One of `splits`.
        """
        check_split(self, split)
        if split == "validation":
            _, *sides = self.parted.validation
            yield sides[0], sides[1]
            return
        left, begin = self.parted.train if split == "train" else None, 0
        for block in read_blocks(self.whole, split):
            end = begin + len(block[0])
            if left is None:
                yield block
            else:
                some = (list(compress(side, left[begin:end])) for side in block)
                yield next(some), next(some)
            begin = end

    def fingerprint(self, split: str, limit: int | None = None) -> Fingerprint:
        """Returns the size and a digest of a split: the whole text says what it is.

        Args:
            split: One of `splits`.
            limit: Number of pairs that count, the first ones; all by default.
        """
        check_split(self, split)
        if split not in ("train", "validation"):
            return fingerprint(self.whole, split, limit)
        train, validation = self.parted
        pairs = int(train.sum()) if split == "train" else len(validation.places)
        whole = fingerprint(self.whole, "train").digest
        digest = joint_digest(str(x).encode() for x in (whole, split, limit))
        return Fingerprint(pairs if limit is None else min(pairs, limit), digest)

    @property
    def notes(self) -> dict[str, str]:
        """What to say of how the corpus was read, by a word for each."""
        train, validation = self.parted
        held_out = len(validation.places)
        repeats = len(train) - train.sum() - held_out
        text = f"{held_out:,} of {len(train):,} pairs, chosen at random"
        if repeats:
            text += f"; {repeats:,} more left out of train as they repeat them"
        return {**getattr(self.whole, "notes", {}), "held out": text}

    @property
    def parted(self) -> Parted:
        """The two splits."""
        if self._parted is None:
            reader = HashReader().read_all(read_blocks(self.whole, "train"))
            self.part(reader.hashes, reader.sample)
        assert self._parted is not None
        return self._parted

    def part(self, hashes: TextHashes, sample: Sample) -> None:
        """Chooses the pairs to hold out, of a text that was read.

        Args:
            hashes: Of the training pairs.
            sample: The pairs with the smallest hashes, of `HashReader`.

        Raises:
            ValueError: As of the class.
        """
        parted = part(hashes, sample)
        left, all_pairs = parted.train.sum(), len(parted.train)
        if 2 * left < all_pairs or not len(parted.validation.places):
            raise ValueError(
                f"{self.name} has no validation split, and too few training pairs to "
                f"hold some out: of {all_pairs:,}, only {left:,} would be left that "
                "share no sentence with those. Give it one."
            )
        self._parted = parted

    def save(self, folder: str | Path) -> None:
        """Writes the pairs that are held out, and which ones are left.

        Args:
            folder: A folder for them; what is there is replaced.
        """
        train, (places, *sides) = self.parted
        pairs = [*zip(places.tolist(), *sides, strict=True)]
        with saved_directory_beside(Path(folder), overwrite=True) as beside:
            write_json(beside / "pairs.json", {"of": len(train), "pairs": pairs})
            np.save(beside / "train.npy", np.packbits(train))

    def load(self, folder: str | Path) -> None:
        """Reads what `save` wrote, instead of the text.

        Args:
            folder: Its folder.
        """
        known = json.loads(Path(folder, "pairs.json").read_bytes())
        packed = np.load(Path(folder, "train.npy"))
        train = np.unpackbits(packed, count=known["of"]).astype(bool)
        places, *sides = zip(*known["pairs"], strict=True)
        self._parted = Parted(train, Sample(np.array(places), *sides))


def with_validation(corpus: Corpus) -> Corpus:
    """Returns a corpus that has a validation split if it can be trained on.

    Args:
        corpus: Any corpus.
    """
    if "train" not in corpus.splits or "validation" in corpus.splits:
        return corpus
    return HeldOut(corpus)


def part(hashes: TextHashes, sample: Sample) -> Parted:
    """Chooses the pairs to hold out.

    Args:
        hashes: Of the training pairs.
        sample: The pairs with the smallest hashes, from which they are chosen.
    """
    # 1. Of different pairs, in the order of their hashes, which is a random one: those
    # whose sentences are rare, and that are no documents, come first.
    places = sample.places[np.argsort(hashes.of(sample.places).pairs)]
    chosen = hashes.of(places)
    often = np.maximum(
        _occurrences(chosen.source, hashes.source),
        _occurrences(chosen.target, hashes.target),
    )
    order = np.lexsort((np.maximum(often, _OFTEN), chosen.length > _LONG))
    held = np.sort(places[order[: _size(hashes.different)]])
    # 2. What shares no sentence with them is trained on.
    repeats = np.isin(hashes.source, hashes.source[held])
    repeats |= np.isin(hashes.target, hashes.target[held])
    return Parted(~repeats, sample.of(np.searchsorted(sample.places, held)))


def _size(pairs: int) -> int:
    """How many of so many different pairs are held out."""
    few = min(_FEW, pairs // 5)
    return min(_MOST, max(1, few, pairs // _SHARE))


def _occurrences(values: np.ndarray, of_all: np.ndarray) -> np.ndarray:
    """How often each of some values is there."""
    found, counts = np.unique(of_all, return_counts=True)
    return counts[np.searchsorted(found, values)]
