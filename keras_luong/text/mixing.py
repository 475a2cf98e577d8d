"""Corpora made of others: changed, or with a share of another one's pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_rate
from keras_luong.text.corpus import Corpus, count

_TEXTS_AT_ONCE = 1024


class ChangedCorpus:
    """A corpus whose pairs are changed.

    Args:
        corpus: The corpus.
        change: Maps the name of a split and its pairs, a dataset, to a dataset.
        name: What it is called.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.mixing import ChangedCorpus
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> small = ChangedCorpus(corpus, lambda split, pairs: pairs.take(1), "small")
        >>> len(list(small.pairs("train")))
        1
    """

    def __init__(
        self,
        corpus: Corpus,
        change: Callable[[str, tf.data.Dataset], tf.data.Dataset],
        name: str,
    ) -> None:
        self.name = name
        self.source_language = corpus.source_language
        self.target_language = corpus.target_language
        self._corpus, self._change = corpus, change
        self._made: dict[str, tf.data.Dataset] = {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits."""
        return self._corpus.splits

    @property
    def notes(self) -> Mapping[str, str]:
        """What to say of how the corpus was read, by a word for each."""
        return getattr(self._corpus, "notes", {})

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: One of `splits`.
        """
        if split not in self._made:  # a change may have to read all of it
            self._made[split] = self._change(split, self._corpus.pairs(split))
        return self._made[split]


def with_share(
    corpus: Corpus, other: tf.data.Dataset, share: float, name: str, seed: int = 0
) -> ChangedCorpus:
    """Returns a corpus whose training pairs are partly another one's.

    Args:
        corpus: The corpus, all of whose pairs are kept.
        other: Pairs of another one, see `mixed`.
        share: The share of the training pairs that are to be `other`'s.
        name: What `other` is called.
        seed: Seed of the choice.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.mixing import with_share
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> mixed = with_share(corpus, corpus.pairs("test"), 0.5, "test sentences")
        >>> mixed.name, len(list(mixed.pairs("train")))
        ('corpus, 50% of test sentences', 6)
    """
    check_rate("share", share)

    def change(split: str, pairs: tf.data.Dataset) -> tf.data.Dataset:
        return mixed(pairs, other, share, seed) if split == "train" else pairs

    return ChangedCorpus(corpus, change, f"{corpus.name}, {share:.0%} of {name}")


def mixed(
    pairs: tf.data.Dataset, others: tf.data.Dataset, share: float, seed: int = 0
) -> tf.data.Dataset:
    """Returns all pairs, and between them so many others that these are a share of all.

    Args:
        pairs: Dataset of pairs.
        others: Dataset of other pairs. If there are too few, each is there several
            times; if too many, some are drawn, always the same ones for one seed.
        share: The others' share of the result, from 0 to below 1.
        seed: Seed of the choice.

    Returns:
        A finite dataset that knows its size and is always in the same order.

    Raises:
        ValueError: If there are no others, or no such share.

    Example:
        >>> from keras_luong.text.mixing import mixed
        >>> numbers = tf.data.Dataset.range(3), tf.data.Dataset.range(10, 20)
        >>> [int(x) for x in mixed(*numbers, share=0.25)]
        [0, 1, 2, 18]
    """
    check_rate("share", share)
    number = count(pairs)
    wanted = round(number * share / (1 - share))
    total = number + wanted

    def turn(i: tf.Tensor) -> tf.Tensor:
        """1 where one of the others comes: as evenly as can be."""
        return (i + 1) * wanted // total - i * wanted // total

    turns = tf.data.Dataset.range(total).map(turn)
    parts = [pairs, sampled(others, wanted, seed)]
    both = tf.data.Dataset.choose_from_datasets(parts, turns)
    return both.apply(tf.data.experimental.assert_cardinality(total))


def sampled(pairs: tf.data.Dataset, number: int, seed: int = 0) -> tf.data.Dataset:
    """Returns so many of the pairs, in their order; each is there equally often.

    Args:
        pairs: Dataset of pairs.
        number: How many to return; if more than there are, some come several times.
        seed: Seed of the choice.

    Raises:
        ValueError: If there are none.

    Example:
        >>> from keras_luong.text.mixing import sampled
        >>> [int(x) for x in sampled(tf.data.Dataset.range(3), 6)]
        [0, 0, 1, 1, 2, 2]
    """
    if not (total := count(pairs)):
        raise ValueError("There are no pairs to choose from.")
    times, rest = divmod(number, total)
    drawn = np.random.default_rng(seed).choice(total, rest, replace=False)
    once_more = tf.constant(np.sort(drawn), tf.int64)

    def repeat(begin: tf.Tensor, block: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        size = tf.shape(tf.nest.flatten(block)[0], tf.int64)[0]
        index = begin * _TEXTS_AT_ONCE + tf.range(size)
        before, upto = (tf.searchsorted(once_more, index, x) for x in ("left", "right"))
        return tf.nest.map_structure(
            lambda texts: tf.repeat(texts, times + upto - before), block
        )

    return pairs.batch(_TEXTS_AT_ONCE).enumerate().map(repeat).unbatch()
