"""Corpora of tensorflow-datasets, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.text.corpus import (
    Fingerprint,
    check_split,
    count,
    joint_digest,
)
from keras_luong.text.file_names import ordered

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
