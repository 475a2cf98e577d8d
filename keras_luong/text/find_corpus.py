"""Corpora by name: the embedded one, text files, or tensorflow-datasets.

A corpus has splits ("train", "validation", "test", ...) and streams the pairs of
sentences of each in a fixed order.

Corpora of tensorflow-datasets, by name.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.config.training import EMBEDDED
from keras_luong.text.corpus import (
    Corpus,
    Fingerprint,
    check_split,
    count,
    joint_digest,
)
from keras_luong.text.corpus_files import File, TextFiles, ordered
from keras_luong.text.held_out import with_validation
from keras_luong.text.phrases import PhraseCorpus

_STANDARD_SPLITS = ("train", "validation", "test")


class TfdsCorpus:
    """A corpus of tensorflow-datasets, downloaded and prepared if necessary.

    Args:
        name: Its name there, such as "wmt14_translate/de-en".
        source_language: Key of the source sentence, such as "en".
        target_language: Key of the target sentence.
        data_dir: Where tensorflow-datasets keeps its data; its own default if None.

    Raises:
        ValueError: If the name or a language is unknown.

    Example:
        >>> from keras_luong.text import TfdsCorpus
        >>> corpus = TfdsCorpus("wmt14_translate/de-en", "en", "de")
        >>> pairs = corpus.pairs("train")
    """

    def __init__(
        self,
        name: str,
        source_language: str,
        target_language: str,
        data_dir: str | Path | None = None,
    ):
        self._builder = _tfds_builder(name, data_dir)
        keys = sorted(self._builder.info.features.keys())
        for language in (source_language, target_language):
            if language not in keys:
                raise ValueError(
                    f"{name} has no sentences in {language!r}; it has {keys}."
                )
        if source_language == target_language:
            raise ValueError(f"The two languages are the same: {source_language!r}.")
        self._builder.download_and_prepare()
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        # Prepared data names its splits; only mocked data does not.
        self.splits = ordered(self._builder.info.splits or _STANDARD_SPLITS)

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: One of `splits`.

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`, in the order
            of the prepared data.

        Raises:
            ValueError: If there is no such split.
        """
        examples = self._builder.as_dataset(
            split=check_split(self, split), shuffle_files=False
        )
        source, target = self.source_language, self.target_language
        return examples.map(lambda e: {"source": e[source], "target": e[target]})

    def fingerprint(self, split: str) -> Fingerprint:
        """Returns what tells a split's text from any other.

        The text is not read: the name of prepared data has its version, which is
        another one wherever the text is.

        Args:
            split: One of `splits`.

        Raises:
            ValueError: If there is no such split.
        """
        pairs = count(self.pairs(split))
        languages = self.source_language, self.target_language
        names = (self._builder.info.full_name, split, *languages)
        return Fingerprint(pairs, joint_digest(f"{x}\n".encode() for x in names))


class UnknownDataset(ValueError):
    """The error for a name that tensorflow-datasets does not know."""


def _tfds_builder(name: str, data_dir: str | Path | None) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        raise UnknownDataset(f"There is no data set {name!r} in it.") from error
    except ValueError as error:
        dataset = name.split("/")[0]
        if dataset not in tfds.list_builders(with_community_datasets=False):
            raise UnknownDataset(f"{name!r} is no name of a data set.") from error
        configs = sorted(tfds.builder_cls(dataset).builder_configs)
        raise UnknownDataset(
            f"{dataset} is there, but not {name!r}; it has {configs}."
        ) from error


def load_corpus(
    data: str | Path | Mapping[str, tuple[str | Path, str | Path]],
    source_language: str | None = None,
    target_language: str | None = None,
    data_dir: str | Path | None = None,
) -> Corpus:
    """Loads a corpus by its name or files.

    One that can be trained on and has no validation split gets one that is held out of
    its training split: see `keras_luong.text.held_out`.

    Args:
        data: "phrases" (the embedded corpus, English to German); a directory of text
            files (see `TextFiles.from_directory`); one file of tab-separated columns; a
            dict of a source and a target file for each split; or a name in
            tensorflow-datasets.
        source_language: The language to translate from, such as "en". One of the two
            may be left out where files have no others.
        target_language: The language to translate into.
        data_dir: Where tensorflow-datasets keeps its data.

    Returns:
        The corpus.

    Raises:
        ValueError: If `data` is none of these, or lacks one of the languages.
        FileNotFoundError: If a file is missing.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> load_corpus("my/corpus", "en", "de").splits
        ('train', 'validation', 'test')
    """
    corpus = _named(data, source_language, target_language, data_dir)
    return with_validation(corpus)


def _named(
    data: str | Path | Mapping[str, tuple[str | Path, str | Path]],
    source: str | None,
    target: str | None,
    data_dir: str | Path | None,
) -> Corpus:
    if not isinstance(data, Mapping):
        if str(data) == EMBEDDED:
            return PhraseCorpus(source or "en", target or "de")
        if Path(data).is_dir():
            return TextFiles.from_directory(data, source, target)
        if Path(data).is_file():
            return TextFiles.from_table(data, source, target)
    if source is None or target is None:
        here = "" if isinstance(data, Mapping) else f", and no file{_like(Path(data))}"
        raise ValueError(
            f"{str(data)!r} is no folder{here}; any other corpus needs both languages. "
            f"Received: {source!r} and {target!r}."
        )
    if isinstance(data, Mapping):
        return TextFiles(data, source, target)
    try:
        return TfdsCorpus(str(data), source, target, data_dir)
    except UnknownDataset as error:
        raise ValueError(
            f"Found no corpus {str(data)!r}. Tried: the embedded corpus (it is called "
            f"'phrases'); a directory or a file (there is none{_like(Path(data))}); "
            f"tensorflow-datasets ({error})"
        ) from error


def _like(missing: Path) -> str:
    """A question whether something beside what is missing was meant, if any."""
    beside = missing.parent
    names = [x.name for x in beside.glob("*") if x.is_dir() or File(x).is_table]
    close = difflib.get_close_matches(missing.name, names, 1)
    return f"; did you mean {str(beside / close[0])!r}?" if close else ""


load = load_corpus  # its name in `keras_luong.text.corpora`
