"""The interface of a corpus, and what is made of any: text, counts, mixtures.

A corpus has splits ("train", "validation", "test", ...) and streams the pairs of
sentences of each in a fixed order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_rate

_PAIRS_AT_ONCE = 1024
_BLOCK = 8192  # pairs
Block: TypeAlias = tuple[Sequence[str], Sequence[str]]  # sources and targets


class Fingerprint(NamedTuple):
    """Size and digest of a split's text, to tell whether it has changed.

    Attributes:
        pairs: The number of pairs.
        digest: Hexadecimal digits that are others for another text.
    """

    pairs: int
    digest: str


class Corpus(Protocol):
    """The interface of a corpus: your own one needs these members.

    It may also have `fingerprint(split, limit)`, which returns a `Fingerprint`, or None
    to have all pairs read, if it knows a quicker way; `blocks(split)`, see
    `read_blocks`; and `notes`, what to say of how it was read, by a word for each.

    Example:
        >>> class Greetings:
        ...     name = "greetings"
        ...     source_language, target_language = "en", "de"
        ...     splits = ("train", "validation")
        ...
        ...     def pairs(self, split):
        ...         sides = {"source": ["good morning"], "target": ["guten Morgen"]}
        ...         return tf.data.Dataset.from_tensor_slices(sides)
        >>> from keras_luong.text import sentences
        >>> sentences(Greetings(), "train")
        (['good morning'], ['guten Morgen'])
    """

    name: str
    source_language: str
    target_language: str

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: train, validation, then the others."""

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams `{"source": tf.string [], "target": tf.string []}`, in fixed order.

        Args:
            split: One of `splits`.
        """


def read_blocks(corpus: Corpus, split: str) -> Iterator[Block]:
    """Returns the sources and the targets of many pairs at a time.

    Args:
        corpus: The corpus.
        split: Name of a split.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import read_blocks
        >>> next(read_blocks(load_corpus("my/corpus", "en", "de"), "test"))
        (['the cat is the dog'], ['der ist der Hund'])
    """
    if hasattr(corpus, "blocks"):
        return corpus.blocks(split)
    return blocks_of(corpus.pairs(split))


def blocks_of(pairs: tf.data.Dataset) -> Iterator[Block]:
    """Yields the sources and the targets of many pairs at a time.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
    """
    for block in pairs.batch(_BLOCK).as_numpy_iterator():
        source, target = (
            [text.decode(errors="replace") for text in block[side]]
            for side in ("source", "target")
        )
        yield source, target


def check_split(corpus: Corpus, split: str) -> str:
    """Returns `split` if the corpus has it, and raises ValueError if not."""
    if split not in corpus.splits:
        unread = getattr(corpus, "notes", {}).get("not read")
        raise ValueError(
            f"{corpus.name} has no split {split!r}; it has {list(corpus.splits)}."
            f"{f' Not read: {unread}.' if unread else ''}"
        )
    return split


def sentences(
    corpus: Corpus, split: str, limit: int | None = None
) -> tuple[list[str], list[str]]:
    """Returns a split as text, for example to translate and score it.

    Args:
        corpus: The corpus.
        split: Name of a split.
        limit: Number of pairs to return, the first ones; all by default.

    Returns:
        The source sentences, and the target sentences.

    Raises:
        ValueError: If the corpus has no such split.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text import sentences
        >>> sentences(load_corpus("my/corpus", "en", "de"), "test")
        (['the cat is the dog'], ['der ist der Hund'])
    """
    pairs = corpus.pairs(split).take(-1 if limit is None else limit)
    pairs = list(pairs.as_numpy_iterator())
    sources, targets = (
        [pair[side].decode() for pair in pairs] for side in ("source", "target")
    )
    return sources, targets


def notes(corpus: Corpus) -> dict[str, str]:
    """Returns remarks on how a corpus was read, by a word for each.

    Args:
        corpus: The corpus.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import notes
        >>> notes(load_corpus("my/corpus", "en", "de"))
        {}
    """
    said = dict(getattr(corpus, "notes", {}))
    if not set(corpus.splits) - {"train", "validation"}:
        said["no test"] = (
            "results are of the validation pairs, which choose the weights"
        )
    return said


def first_source(corpus: Corpus, split: str) -> str:
    """Returns the first source sentence of a split that is not blank.

    Args:
        corpus: The corpus.
        split: Name of a split.

    Returns:
        The sentence; "" if all are blank.
    """
    sources = (
        pair["source"].decode() for pair in corpus.pairs(split).as_numpy_iterator()
    )
    return next(filter(str.strip, sources), "")


def count(pairs: tf.data.Dataset) -> int:
    """Returns the number of pairs, reading them if necessary.

    Args:
        pairs: Dataset from `Corpus.pairs`.

    Returns:
        Their number.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import count
        >>> count(load_corpus("my/corpus", "en", "de").pairs("train"))
        3
    """
    number = int(pairs.cardinality())
    if number < 0:
        blocks = pairs.batch(8192).map(lambda block: tf.size(block["source"]))
        number = int(blocks.reduce(0, lambda total, size: total + size))
    return number


def select_pairs(
    pairs: tf.data.Dataset, of_place: Callable[[tf.Tensor], tf.Tensor]
) -> tf.data.Dataset:
    """Returns the pairs at some places, in their order.

    Args:
        pairs: Dataset from `Corpus.pairs`.
        of_place: Maps the places of pairs, int64 [N], to whether they are chosen, bool
            [N].

    Example:
        >>> from keras_luong.text.corpus import select_pairs
        >>> numbers = tf.data.Dataset.range(10, 16)
        >>> [int(x) for x in select_pairs(numbers, lambda place: place % 2 == 0)]
        [10, 12, 14]
    """

    def of_block(number: tf.Tensor, block: Any) -> Any:
        size = tf.shape(tf.nest.flatten(block)[0], tf.int64)[0]
        kept = of_place(number * _PAIRS_AT_ONCE + tf.range(size))
        return tf.nest.map_structure(lambda x: tf.boolean_mask(x, kept), block)

    blocks = pairs.batch(_PAIRS_AT_ONCE).enumerate().map(of_block)
    return blocks.flat_map(tf.data.Dataset.from_tensor_slices)


def fingerprint(corpus: Corpus, split: str, limit: int | None = None) -> Fingerprint:
    """Returns the size and a digest of a split's text.

    Args:
        corpus: The corpus.
        split: Name of a split.
        limit: Number of pairs that count, the first ones; all by default.

    Returns:
        The `Fingerprint`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import fingerprint
        >>> fingerprint(load_corpus("my/corpus", "en", "de"), "train").pairs
        3
    """
    if hasattr(corpus, "fingerprint") and (found := corpus.fingerprint(split, limit)):
        return found
    digest = PairDigest(limit)
    for block in corpus.pairs(split).take(limit or -1).batch(8192).as_numpy_iterator():
        digest.update(block["source"], block["target"])
    return digest.fingerprint


class PairDigest:
    """Adds up a `Fingerprint` of pairs, as they come.

    Args:
        limit: Number of pairs that count, the first ones; all by default.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit, self._pairs = limit, 0
        self._sides = new_digest(), new_digest()

    def update(self, *sides: Sequence[bytes]) -> None:
        """Takes the next sources and targets."""
        rest = None if self._limit is None else self._limit - self._pairs
        for digest, texts in zip(self._sides, sides, strict=True):
            digest.update(b"".join(text + b"\n" for text in texts[:rest]))
        self._pairs += len(sides[0][:rest])

    @property
    def fingerprint(self) -> Fingerprint:
        """Of the pairs until now."""
        digests = (side.digest() for side in self._sides)
        return Fingerprint(self._pairs, joint_digest(digests))


def new_digest() -> hashlib.blake2b:
    """Returns a digest of the lines of one side, each ended by a line feed."""
    return hashlib.blake2b(digest_size=16)


def joint_digest(parts: Iterable[bytes]) -> str:
    """Returns one digest of several."""
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


class ChangedCorpus:
    """A corpus whose pairs are changed.

    Args:
        corpus: The corpus.
        change: Maps the name of a split and its pairs, a dataset, to a dataset.
        name: What it is called.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import ChangedCorpus
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
        other: Pairs of another one, see `mix_pairs`.
        share: The share of the training pairs that are to be `other`'s.
        name: What `other` is called.
        seed: Seed of the choice.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.corpus import with_share
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> mixed = with_share(corpus, corpus.pairs("test"), 0.5, "test sentences")
        >>> mixed.name, len(list(mixed.pairs("train")))
        ('corpus, 50% of test sentences', 6)
    """
    check_rate("share", share)

    def change(split: str, pairs: tf.data.Dataset) -> tf.data.Dataset:
        return mix_pairs(pairs, other, share, seed) if split == "train" else pairs

    return ChangedCorpus(corpus, change, f"{corpus.name}, {share:.0%} of {name}")


def mix_pairs(
    pairs: tf.data.Dataset, others: tf.data.Dataset, share: float, seed: int = 0
) -> tf.data.Dataset:
    """Returns all pairs, with others evenly between them that are a share of all.

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
        >>> from keras_luong.text.corpus import mix_pairs
        >>> numbers = tf.data.Dataset.range(3), tf.data.Dataset.range(10, 20)
        >>> [int(x) for x in mix_pairs(*numbers, share=0.25)]
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
    parts = [pairs, sample_pairs(others, wanted, seed)]
    both = tf.data.Dataset.choose_from_datasets(parts, turns)
    return both.apply(tf.data.experimental.assert_cardinality(total))


def sample_pairs(pairs: tf.data.Dataset, number: int, seed: int = 0) -> tf.data.Dataset:
    """Returns a number of the pairs, in their order; each is there equally often.

    Args:
        pairs: Dataset of pairs.
        number: How many to return; if more than there are, some come several times.
        seed: Seed of the choice.

    Raises:
        ValueError: If there are none.

    Example:
        >>> from keras_luong.text.corpus import sample_pairs
        >>> [int(x) for x in sample_pairs(tf.data.Dataset.range(3), 6)]
        [0, 0, 1, 1, 2, 2]
    """
    if not (total := count(pairs)):
        raise ValueError("There are no pairs to choose from.")
    times, rest = divmod(number, total)
    drawn = np.random.default_rng(seed).choice(total, rest, replace=False)
    once_more = tf.constant(np.sort(drawn), tf.int64)

    def repeat(begin: tf.Tensor, block: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        size = tf.shape(tf.nest.flatten(block)[0], tf.int64)[0]
        index = begin * _PAIRS_AT_ONCE + tf.range(size)
        before, upto = (tf.searchsorted(once_more, index, x) for x in ("left", "right"))
        return tf.nest.map_structure(
            lambda texts: tf.repeat(texts, times + upto - before), block
        )

    return pairs.batch(_PAIRS_AT_ONCE).enumerate().map(repeat).unbatch()
