"""The embedded corpus: English to German, generated, with gold word alignments.

Dates, times, prices, numbers and measures (from Babel's locale data and num2words) fill
the slots of nearly fifty sentence frames, whose word order differs as it does between
the two languages. A model learns the corpus in minutes, so it suits demonstrations,
tests and comparisons of attentions.

The frames are in `phrases.ini`; `keras_luong.text.phrase_frames` fills their slots.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.named_paths import EMBEDDED
from keras_luong.text.corpus import check_split
from keras_luong.text.phrase_frames import SLOTS, section


class Example(NamedTuple):
    """A pair of sentences with its gold alignment.

    Attributes:
        source: The English sentence.
        target: Its German translation.
        alignment: Pairs (index of a source word, index of a target word), counted from
            0; words are separated by white space. Every target word occurs.
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...]


class PhraseCorpus:
    """The embedded corpus "phrases", English to German.

    No sentence occurs twice, in one split or in two. The test and validation sentences
    stay the same whatever the number of training sentences.

    Args:
        source_language: "en".
        target_language: "de".
        train: Number of training pairs.
        validation: Number of validation pairs.
        test: Number of test pairs.
        seed: Seed of the sentences; the same seed always gives the same corpus.

    Raises:
        ImportError: If Babel or num2words is not installed.
        TypeError: If a number is no integer.
        ValueError: If the languages are not these, or a number is below 1.

    Example:
        >>> from keras_luong.text import PhraseCorpus
        >>> corpus = PhraseCorpus(train=10, validation=1, test=1)
        >>> example = corpus.examples("test")[0]
        >>> example.source
        'The tourists bought the clock for sixty-seven euros.'
        >>> example.target
        'Die Touristen haben die Uhr für siebenundsechzig Euro gekauft.'
        >>> example.alignment
        ((0, 0), (1, 1), (2, 2), (2, 8), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7))
    """

    name = EMBEDDED

    def __init__(
        self,
        source_language: str = "en",
        target_language: str = "de",
        train: int = 20_000,
        validation: int = 500,
        test: int = 500,
        seed: int = 0,
    ):
        if (source_language, target_language) != ("en", "de"):
            raise ValueError(
                "The embedded corpus translates 'en' into 'de'. Received: "
                f"{source_language!r} into {target_language!r}."
            )
        sizes = {"test": test, "validation": validation, "train": train}
        for split, size in sizes.items():
            check_size(split, size)
        _check_installed()
        self.source_language = source_language
        self.target_language = target_language
        self.splits = ("train", "validation", "test")
        self._examples = _generate(sizes, seed)

    def examples(self, split: str) -> list[Example]:
        """Returns the pairs of a split with their alignments.

        Args:
            split: "train", "validation" or "test".

        Returns:
            The examples, in the same order as in `pairs`.

        Raises:
            ValueError: If there is no such split.
        """
        return list(self._examples[check_split(self, split)])

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: "train", "validation" or "test".

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`.

        Raises:
            ValueError: If there is no such split.
        """
        source, target, _ = map(list, zip(*self.examples(split), strict=True))
        return tf.data.Dataset.from_tensor_slices({"source": source, "target": target})


def _check_installed() -> None:
    try:
        import babel  # noqa: F401
        import num2words  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "The embedded corpus needs Babel and num2words: "
            "pip install keras_luong[demo]"
        ) from error


def _generate(sizes: Mapping[str, int], seed: int) -> dict[str, list[Example]]:
    rng = random.Random(seed)
    seen: set[str] = set()
    examples: dict[str, list[Example]] = {split: [] for split in sizes}
    for split, size in sizes.items():
        repeats = 0
        while len(examples[split]) < size:
            example = _example(*rng.choice(section("frames")), rng)
            repeats = repeats + 1 if example.source in seen else 0
            if repeats > 10_000:
                raise ValueError(
                    f"{split}={size} is too large: the frames make no more than "
                    f"{len(seen)} distinct sentences."
                )
            if not repeats:
                seen.add(example.source)
                examples[split].append(example)
    return examples


_SLOT = re.compile(r"\{(\w+)\}(.*)")


def _example(source: str, target: str, rng: random.Random) -> Example:
    names = [match[1] for match in map(_SLOT.match, source.split()) if match]
    values = {name: SLOTS[name](rng) for name in names}
    plural = "person" in values and values["person"].plural
    english = _words(source, {name: v.source for name, v in values.items()}, plural)
    german = _words(target, {name: v.target for name, v in values.items()}, plural)
    alignment = tuple(
        (i, j)
        for i, (_, tags) in enumerate(english)
        for j, (_, others) in enumerate(german)
        if tags & others
    )
    return Example(_sentence(english), _sentence(german), alignment)


def _words(
    template: str, values: Mapping[str, str], plural: bool = False, scope: str = ""
) -> list[tuple[str, frozenset[str]]]:
    """Returns the words of a template with its slots filled, each with its tags."""
    words: list[tuple[str, frozenset[str]]] = []
    for token in template.split():
        if match := _SLOT.fullmatch(token):
            words += _words(values[match[1]], {}, scope=match[1])
            last, tags = words.pop()
            words.append((last + match[2], tags))
        else:
            text, _, letters = token.partition("~")
            forms = text.split("/")
            tags = frozenset(scope + letter for letter in letters)
            words.append((forms[-1] if plural else forms[0], tags))
    return words


def _sentence(words: list[tuple[str, frozenset[str]]]) -> str:
    text = " ".join(word for word, _ in words)
    end = "" if text.endswith("?") else "."
    return text[0].upper() + text[1:] + end
