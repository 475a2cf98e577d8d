"""Corpora of files and of tensorflow-datasets, and `load_corpus` for any."""

from __future__ import annotations

import difflib
import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_file, check_path
from keras_luong.config.training import EMBEDDED
from keras_luong.text.corpus import (
    Corpus,
    Fingerprint,
    PairDigest,
    check_split,
    count,
    joint_digest,
)
from keras_luong.text.corpus_files import (
    PairFiles,
    TwoFiles,
    find_corpus_files,
    find_file,
    find_in_folder,
    sort_splits,
)
from keras_luong.text.held_out import with_validation
from keras_luong.text.phrases import PhraseCorpus
from keras_luong.text.units import Units

_PAIRS_AT_ONCE, _BLOCK = 1024, 8192
_STANDARD_SPLITS = ("train", "validation", "test")


class TextFiles:
    """A corpus of files, plain or gzip, streamed.

    Line n of a split's source file translates to line n of its target file; or both
    sides are in one file, in columns or in a form of `keras_luong.text.pair_formats`.
    Lines are what `keras_luong.files.read_lines` reads. When a split is first used, its
    files are read once, so that a damaged file is found before the training begins.
    From then on its text must stay the same.

    Args:
        files: For each split, its source file and its target file; or what streams the
            pairs of one file, such as a `Table` of `keras_luong.text.rows`.
        source_language: Name of the source language, as in "en".
        target_language: Name of the target language.
        name: Name of the corpus.
        notes: What to say of how the files were read, by a word for each.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If there are no files.

    Example:
        >>> from keras_luong.text import TextFiles
        >>> files = {"train": ("my/corpus/train.en", "my/corpus/train.de")}
        >>> corpus = TextFiles(files, source_language="en", target_language="de")
        >>> for pair in corpus.pairs("train").take(1).as_numpy_iterator():
        ...     print(pair["source"], pair["target"])
        b'the dog' b'der Hund'
    """

    def __init__(
        self,
        files: Mapping[str, tuple[str | Path, str | Path] | PairFiles],
        source_language: str,
        target_language: str,
        name: str = "text files",
        notes: Mapping[str, str] | None = None,
    ):
        if not files:
            raise ValueError("files must hold at least one split. Received: none.")
        self.files = {x: _check_pair_files(x, files[x]) for x in sort_splits(files)}
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        self._notes = dict(notes or {})
        self._read: dict[str, _Read] = {}  # splits that were read, and are right

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Finds the files of a folder.

        Args:
            directory: A folder with `train.SOURCE` and `train.TARGET`, or one file
                such as `train.tsv` or `train.tmx` (see `docs/corpus.md`); the same
                called `val`, `valid`, `validation` or `dev`, and `test*`. They may end
                in `.txt` or `.gz` besides.
            source_language: The source files' suffix, without the dot. One of the two
                languages may be left out if the files have no others.
            target_language: The target files' suffix.

        Returns:
            The corpus.

        Raises:
            FileNotFoundError: If there is no such file, or a split lacks one side.
            ValueError: If there are two files for the same side of a split, or a
                language must be given.
        """
        return cls(*find_in_folder(Path(directory), source_language, target_language))

    @classmethod
    def from_table(
        cls,
        path: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Reads one file of both sides, such as a table.

        Args:
            path: A file of tab-separated columns, plain or gzip, or one of the forms of
                `keras_luong.text.pair_formats`, by its name. A header names the columns
                by the languages' codes, or as "source" and "target". Without one there
                are two columns, and the source comes first.
            source_language: The language to translate from. One of the two may be left
                out if the file names both.
            target_language: The language to translate into.

        Returns:
            The corpus: a training split, unless the file has the name of another one.

        Raises:
            ImportError: If a package is missing that reads the form.
            ValueError: If it is no such file, or a language must be given.
        """
        return cls(*find_file(Path(path), source_language, target_language))

    @property
    def notes(self) -> dict[str, str]:
        """What to say of how the files were read, by a word for each."""
        return {**self._notes, **self._left_out}

    @functools.cached_property
    def _left_out(self) -> dict[str, str]:
        said = []
        for files in self.files.values():
            if isinstance(files, Units) and (left_out := files.left_out()):
                units = (
                    f"{number:,} {why}" for why, number in sorted(left_out.items())
                )
                said.append(f"units of {files.path.name}: {', '.join(units)}")
        return {"left out": "; ".join(said)} if said else {}

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: train, validation, then the others."""
        return tuple(self.files)

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: One of `splits`.

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`, in the order
            of the files.

        Raises:
            ValueError: If there is no such split, if its files differ in their number
                of lines, or if one is empty, lacks a column or is not UTF-8; the
                message names the file and the line.
            OSError: If the text is another one than when it was read first. A dataset
                that is read again raises it too, as an error of TensorFlow's.
        """
        self._read_once(split)

        # `tf.data.TextLineDataset` drops carriage returns, and stops at an empty gzip
        # member: pairs are streamed by the reader that counted them.
        def lists_of_pairs() -> Iterator[dict[str, list[bytes]]]:
            self._read_once(split)  # it may have changed since
            pairs = self.files[split].pairs()
            try:
                while some := list(itertools.islice(pairs, _PAIRS_AT_ONCE)):
                    yield {
                        "source": [source.encode() for source, _ in some],
                        "target": [target.encode() for _, target in some],
                    }
            except ValueError:  # or it has just now
                self._read_once(split)
                raise

        side = tf.TensorSpec([None], tf.string)
        some = tf.data.Dataset.from_generator(
            lists_of_pairs, output_signature={"source": side, "target": side}
        )
        return some.flat_map(tf.data.Dataset.from_tensor_slices)

    def blocks(self, split: str) -> Iterator[tuple[list[str], list[str]]]:
        """Yields the sources and the targets of many pairs at a time.

        The files are checked meanwhile, so that `pairs` need not read them for that.

        Args:
            split: One of `splits`.

        Raises:
            ValueError, OSError: As `pairs` does.
        """
        files = self.files[check_split(self, split)]
        states, digest, has_text = _states(files), PairDigest(), [False, False]
        pairs = files.pairs()
        while some := list(itertools.islice(pairs, _BLOCK)):
            sides = [pair[0] for pair in some], [pair[1] for pair in some]
            digest.update(*([text.encode() for text in side] for side in sides))
            for i, side in enumerate(sides):
                has_text[i] = has_text[i] or any(map(str.strip, side))
            yield sides
        self._settle(split, _Read(digest.fingerprint, states), has_text)

    def fingerprint(self, split: str, limit: int | None = None) -> Fingerprint | None:
        """Returns the size and a digest of a split's text, however it is packed.

        Args:
            split: One of `splits`.
            limit: Only None has been read.

        Raises:
            ValueError, OSError: As `pairs` does.
        """
        return self._read_once(split) if limit is None else None

    def _read_once(self, split: str) -> Fingerprint:
        """Reads a split when it is first asked for, and checks it.

        And once its files are others by their size or time, as copies are.
        """
        files, before = self.files[check_split(self, split)], self._read.get(split)
        if before is None or before.states != _states(files):
            for _ in self.blocks(split):
                pass
        return self._read[split].fingerprint

    def _settle(self, split: str, now: _Read, has_text: Sequence[bool]) -> None:
        """Remembers what was read, if it is text, and the same as before."""
        files, before = self.files[split], self._read.get(split)
        number = now.fingerprint.pairs
        for name, has_some in zip(files.sides, has_text, strict=True):
            if not has_some:
                what = f"has {number:,} lines, all blank" if number else "is empty"
                raise ValueError(f"{name} {what}: line 1 should be a sentence.")
        if before is not None and now.fingerprint != before.fingerprint:
            names, were = " and ".join(map(str, files.paths)), before.fingerprint.pairs
            raise OSError(
                f"{names}, the {split} split, changed since it was read first: it had "
                f"{were:,} pairs, and has {number:,}"
                f"{', of which some differ' * (number == were)}."
            )
        self._read[split] = now


class _Read(NamedTuple):
    """A split as it was when its files were read.

    Attributes:
        fingerprint: Of its text.
        states: Of each file its size, and when it was written, before it was read.
    """

    fingerprint: Fingerprint
    states: list[tuple[int, int]]


def _states(files: PairFiles) -> list[tuple[int, int]]:
    found = [check_file("file", path).stat() for path in files.paths]
    return [(x.st_size, x.st_mtime_ns) for x in found]


def _check_pair_files(split: str, files: Any) -> PairFiles:
    """Returns the files of a split, which must be there."""
    if not hasattr(files, "pairs"):
        if isinstance(files, (str, Path)) or len(files) != 2:
            raise ValueError(
                f"The {split} split must have two files, source and target. "
                f"Received: {files!r}"
            )
        name = f"A file of the {split} split"
        files = TwoFiles(*(check_path(name, path) for path in files))
    for path in files.paths:
        check_file("file", path)
    return files


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
        self.splits = sort_splits(self._builder.info.splits or _STANDARD_SPLITS)

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

    def fingerprint(self, split: str, limit: int | None = None) -> Fingerprint | None:
        """Returns the size and a digest of a split.

        The text is not read: the name of prepared data has its version, which is
        another one wherever the text is.

        Args:
            split: One of `splits`.
            limit: Only of all pairs this is known.

        Raises:
            ValueError: If there is no such split.
        """
        if limit is not None:
            return None
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
    except ValueError as error:  # its own names every data set that there is
        dataset = name.split("/")[0]
        why = f"There is no data set {name!r}"
        if dataset in tfds.list_builders(with_community_datasets=False):
            configs = sorted(tfds.builder_cls(dataset).builder_configs)
            why = f"{dataset} is there, but not {name!r}; it has {configs}"
        raise UnknownDataset(f"{why}.") from error


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
        data: "phrases" (the embedded corpus, English to German); a directory of files
            (see `TextFiles.from_directory`); one file of both sides: tab-separated
            columns, CSV, JSON lines, Parquet, TMX, XLIFF or PO; two files with a comma
            between them, as in "a.en,b.de"; a dict of a source and a target file for
            each split; or a name in tensorflow-datasets.
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
    source, target = source_language, target_language
    if str(data) == EMBEDDED:
        return PhraseCorpus(source or "en", target or "de")
    if not isinstance(data, Mapping) and (
        found := find_corpus_files(data, source, target)
    ):
        return with_validation(TextFiles(*found))
    meant = ""
    if not isinstance(data, Mapping):
        beside = [str(x) for x in Path(data).parent.glob("*")]
        close = difflib.get_close_matches(str(Path(data)), beside, 1)
        meant = f" (did you mean {close[0]!r}?)" if close else ""
    if source is None or target is None:
        here = "" if isinstance(data, Mapping) else f" is no folder or file{meant}, and"
        raise ValueError(
            f"{str(data)!r}{here} needs both languages. Received: {source!r} and "
            f"{target!r}."
        )
    if isinstance(data, Mapping):
        return with_validation(TextFiles(data, source, target))
    try:
        return with_validation(TfdsCorpus(str(data), source, target, data_dir))
    except UnknownDataset as error:
        raise ValueError(
            f"Found no corpus {str(data)!r}{meant}. Tried: the embedded corpus (it is "
            "called 'phrases'); a directory or a file (there is none); "
            f"tensorflow-datasets ({error})"
        ) from error
