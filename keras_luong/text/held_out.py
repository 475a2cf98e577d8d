"""Pairs to validate by, held out of a corpus that has none of its own.

Which ones depends on the text alone, so that every process and every machine holds out
the same, wherever the files lie and however they are packed: a run that goes on would
be refused on other text. So the rule must stay what it is.

Shapes: N training pairs.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.text.corpus import Corpus, check_split, select_pairs
from keras_luong.text.corpus_files import sort_splits
from keras_luong.text.survey import TextHashes, text_hashes

_MOST, _SHARE = 1000, 20  # pairs, and one of so many
_FEW = 10  # pairs, if that is no more than a fifth of a small corpus
_OFTEN = 10  # a sentence of more pairs is for training
_LONG = 1500  # bytes: more is a document, and no model translates it whole


class HeldOut:
    r"""A corpus whose validation split is held out of its training split.

    It is a random twentieth of the pairs, at most 1,000, in the order of the corpus. No
    pair that is left to train on has the source or the target of one that is held out:
    with either, a model could recite what it should translate, and validation would
    choose the weights that know the corpus by heart. What many pairs share, such as
    "Yes.", is not held out, since all of these would be lost to training; nor are
    whole documents in one line among sentences, whose BLEU would count for most.

    Args:
        corpus: A corpus with a training split and no validation split.

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
            return self._chosen(self._parted.train)
        if split == "validation":
            return self._chosen(self._parted.validation)
        return self.whole.pairs(split)

    def _chosen(self, kept: np.ndarray) -> tf.data.Dataset:
        mask = tf.constant(kept)
        return select_pairs(
            self.whole.pairs("train"), lambda places: tf.gather(mask, places)
        )

    @property
    def notes(self) -> dict[str, str]:
        """What to say of how the corpus was read, by a word for each."""
        train, validation = self._parted
        repeats = len(train) - train.sum() - validation.sum()
        text = f"{validation.sum():,} of {len(train):,} pairs, chosen at random"
        if repeats:
            text += f"; {repeats:,} more left out of train as they repeat them"
        return {**getattr(self.whole, "notes", {}), "held out": text}

    @functools.cached_property
    def _parted(self) -> _Parted:
        parted = part(text_hashes(self.whole.pairs("train")))
        if 2 * parted.train.sum() < len(parted.train) or not parted.validation.any():
            raise ValueError(
                f"{self.name} has no validation split, and too few training pairs to "
                f"hold some out: of {len(parted.train):,}, only {parted.train.sum():,} "
                "would be left that share no sentence with those. Give it one."
            )
        return parted


class _Parted(NamedTuple):
    """Masks of two splits; pairs of neither repeat what is held out.

    Attributes:
        train: bool [N].
        validation: bool [N].
    """

    train: np.ndarray
    validation: np.ndarray


def with_validation(corpus: Corpus) -> Corpus:
    """Returns a corpus that has a validation split if it can be trained on.

    Args:
        corpus: Any corpus.
    """
    if "train" not in corpus.splits or "validation" in corpus.splits:
        return corpus
    return HeldOut(corpus)


def part(hashes: TextHashes) -> _Parted:
    """Chooses the pairs to hold out.

    Args:
        hashes: Of the training pairs.
    """
    rows = np.flatnonzero(hashes.full)
    # Pairs that are the same count once; the order of their hashes is a random one.
    _, first = np.unique(hashes.pairs[rows], return_index=True)
    rows = rows[first]
    often = np.maximum(_occurrences(hashes.source), _occurrences(hashes.target))[rows]
    last = np.maximum(often, _OFTEN), hashes.length[rows] > _LONG
    held = rows[np.lexsort(last)[: _size(len(rows))]]
    repeats = np.isin(hashes.source, hashes.source[held])
    repeats |= np.isin(hashes.target, hashes.target[held])
    validation = np.zeros(len(repeats), bool)
    validation[held] = True
    return _Parted(~repeats, validation)


def _size(pairs: int) -> int:
    """How many of so many different pairs are held out."""
    few = min(_FEW, pairs // 5)
    return min(_MOST, max(1, few, pairs // _SHARE))


def _occurrences(values: np.ndarray) -> np.ndarray:
    """How often each of the values is there."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return counts[inverse]
