"""A corpus whose training pairs a translator has made in part, as text files.

It is what distillation and back-translation share.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import tensorflow as tf

from keras_luong.files import saved_directory_beside
from keras_luong.progress import Progress
from keras_luong.runs.half_written import written_alone
from keras_luong.runs.survey import CHANGED
from keras_luong.text.corpus import Corpus, new_digest
from keras_luong.translation.translator import Translator

_AT_ONCE = 64  # sentences that are translated in a batch
_WINDOW = 1024  # and those whose translations come at once, sorted by length
_Item = TypeVar("_Item")


def check_new(directory: str | Path) -> Path:
    """Returns the path of a directory to be.

    Args:
        directory: The directory.

    Raises:
        FileExistsError: If there is something of that name.
    """
    directory = Path(directory)
    if directory.exists() or directory.is_symlink():
        raise FileExistsError(f"{directory} exists; give the name of a new directory")
    return directory


def write_corpus(
    corpus: Corpus, training_pairs: Iterable[tuple[str, str]], directory: Path
) -> None:
    """Writes a corpus with other training pairs.

    The other splits are written as they are, but line ends within a sentence become
    spaces. It takes bounded memory, and the directory appears when it is complete; what
    a killed process had begun is removed and begun anew.

    Args:
        corpus: The corpus.
        training_pairs: Sources and targets; the first one is asked for only once the
            other splits are found to be sound.
        directory: A new directory, for text files as `TextFiles.from_directory` reads
            them: `train.en`, `train.de`, `validation.en`, ...

    Raises:
        FileExistsError: If there is something of that name.
        OSError: If another process writes it.
        ValueError: If files of the corpus are damaged.
    """
    others = {split: corpus.pairs(split) for split in corpus.splits if split != "train"}
    with written_alone(directory):
        check_new(directory)
        with saved_directory_beside(directory) as beside:
            _write(corpus, "train", training_pairs, beside)
            for split, pairs in others.items():
                _write(corpus, split, texts_of(pairs), beside)


def with_translations(
    items: Iterable[_Item],
    text_of: Callable[[_Item], str],
    translator: Translator,
    bar: Progress | None = None,
) -> Iterator[tuple[_Item, str]]:
    """Yields each item with the translation of its text.

    Args:
        items: What has texts, in any number; an iterator, or what can be read several
            times, as a translator that reads all before it says anything needs.
        text_of: Returns an item's text.
        translator: What translates it.
        bar: Counts the items.

    Yields:
        The items in their order, and their translations.

    Raises:
        OSError: If the items are others when they are read again.
    """
    ahead = items
    if iter(items) is items:
        items, ahead = itertools.tee(items)
    texts = _Digested(lambda: map(text_of, ahead))
    translations = translator.stream(texts, _AT_ONCE, _WINDOW)
    done, now = 0, new_digest()
    for item, translation in zip(items, translations, strict=True):
        now.update(_to_digest(text_of(item)))
        yield item, translation.text
        done += 1
        # The first of a window has waited for all: what it took tells nothing.
        if bar is not None and done % _WINDOW == 0:
            bar.add(_WINDOW)
    if now.digest() != texts.digest.digest():
        raise OSError(CHANGED)
    if bar is not None:
        bar.add(done % _WINDOW)


class Again(Generic[_Item]):
    """What can be read several times.

    Args:
        make: Returns an iterator from the beginning.

    Example:
        >>> from keras_luong.runs.translated_corpus import Again
        >>> letters = Again(lambda: map(str.upper, "ab"))
        >>> list(letters), list(letters)
        (['A', 'B'], ['A', 'B'])
    """

    def __init__(self, make: Callable[[], Iterator[_Item]]):
        self._make = make

    def __iter__(self) -> Iterator[_Item]:
        """Returns an iterator from the beginning."""
        return self._make()


class _Digested(Again[str]):
    """Texts, and the digest of those that were read the last time."""

    def __init__(self, make: Callable[[], Iterator[str]]):
        super().__init__(make)
        self.digest = new_digest()

    def __iter__(self) -> Iterator[str]:
        self.digest = new_digest()
        for text in super().__iter__():
            self.digest.update(_to_digest(text))
            yield text


def _to_digest(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass") + b"\n"


def texts_of(pairs: tf.data.Dataset) -> Iterator[tuple[str, str]]:
    """Yields the sources and targets of a dataset.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
    """
    for pair in pairs.as_numpy_iterator():
        yield pair["source"].decode(), pair["target"].decode()


def _write(
    corpus: Corpus, split: str, pairs: Iterable[tuple[str, str]], directory: Path
) -> None:
    source, target = (
        directory / f"{split}.{language}"
        for language in (corpus.source_language, corpus.target_language)
    )
    with (
        source.open("w", encoding="utf-8", newline="\n") as sources,
        target.open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for one, other in pairs:
            print(_in_a_line(one), file=sources)
            print(_in_a_line(other), file=targets)


def _in_a_line(text: str) -> str:
    """A text as `TextFiles` will read it: U+2028 and its like are kept as they are."""
    return re.sub(r"[\r\n]+", " ", text)
