"""Corpora of text files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_file, check_path
from keras_luong.files import check_as_many_lines
from keras_luong.text.corpus import (
    Fingerprint,
    check_split,
    joint_digest,
    new_digest,
)
from keras_luong.text.file_names import ordered
from keras_luong.text.find_files import find_files, find_table
from keras_luong.text.pair_files import PairFiles, Table, TwoFiles

_LINES_AT_ONCE = 1024


class TextFiles:
    """A corpus of text files, one pair of sentences a line, plain or gzip, streamed.

    Line n of a split's source file translates to line n of its target file; or both are
    in a line of one file, with a tab between them. Lines are what
    `keras_luong.files.read_lines` reads. When a split is first used, its files are read
    once, so that a damaged file is found before the training begins. From then on its
    text must stay the same.

    Args:
        files: For each split, its source file and its target file; or a `Table` of
            `keras_luong.text.pair_files`, which says where they are in one file.
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
        files: Mapping[str, tuple[str | Path, str | Path] | Table],
        source_language: str,
        target_language: str,
        name: str = "text files",
        notes: Mapping[str, str] | None = None,
    ):
        if not files:
            raise ValueError("files must hold at least one split. Received: none.")
        self.files = {split: _checked(split, files[split]) for split in ordered(files)}
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        self.notes = dict(notes or {})
        self._read: dict[str, _Read] = {}  # splits that were read, and are right

    @classmethod
    def from_directory(
        cls,
        directory: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Finds the files of a directory, such as `train.en` and `train.de`.

        Args:
            directory: The directory, with files named `<split>.<language>`, or
                `<split>.tsv`, of two columns; all may be `.gz`. Splits: "train"; "val",
                "valid", "validation" or "dev", all called "validation"; and any name
                that begins with "test". docs/corpus.md tells what else is read.
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
        found = find_files(Path(directory), source_language, target_language)
        name = Path(directory).resolve().name
        return cls(found.files, *found.languages, name=name, notes=found.notes)

    @classmethod
    def from_table(
        cls,
        path: str | Path,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> TextFiles:
        """Reads one file of tab-separated columns, with or without a header.

        Args:
            path: The file, plain or gzip. A header names the columns by languages, or
                as "source" and "target". Without one the text tells, or the file's
                name, as in `corpus.en-de.tsv`; or else the source comes first.
            source_language: The language to translate from. One of the two may be left
                out if the file names both.
            target_language: The language to translate into.

        Returns:
            The corpus: a training split, unless the file has the name of another one.

        Raises:
            ValueError: If it is no such file, or a language must be given.
        """
        path = check_file("file", path)
        found = find_table(path, source_language, target_language)
        return cls(found.files, *found.languages, name=path.name, notes=found.notes)

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
        side = tf.TensorSpec([None], tf.string)

        def lists_of_pairs() -> Iterator[dict[str, tuple[bytes, ...]]]:
            self._read_once(split)  # it may have changed since
            try:
                yield from _lists_of_pairs(self.files[split])
            except (ValueError, IndexError):  # or it has just now
                self._read_once(split)
                raise

        some = tf.data.Dataset.from_generator(
            lists_of_pairs,
            output_signature={"source": side, "target": side},
        )
        return some.flat_map(tf.data.Dataset.from_tensor_slices)

    def fingerprint(self, split: str) -> Fingerprint:
        """Returns what tells a split's text from any other, however it is packed.

        Args:
            split: One of `splits`.

        Raises:
            ValueError, OSError: As `pairs` does.
        """
        read = self._read_once(split)
        return Fingerprint(read.pairs, joint_digest(read.digests))

    def _read_once(self, split: str) -> _Read:
        """What is known of a split: it is read when it is first asked for.

        And once its files are others by their size or time, as copies are.
        """
        files = self.files[check_split(self, split)]
        before, states = self._read.get(split), _states(files)
        if before is None or before.states != states:
            now = _read(files)
            if before is not None and now.digests != before.digests:
                names = " and ".join(map(str, files.paths))
                raise OSError(
                    f"{names}, the {split} split, changed since it was read first: it "
                    f"had {before.pairs:,} pairs, and has {now.pairs:,}"
                    f"{', of which some differ' * (now.pairs == before.pairs)}."
                )
            self._read[split] = now
        return self._read[split]


class _Read(NamedTuple):
    """What must be known of a split whose files were read.

    Attributes:
        pairs: The number of its pairs.
        digests: A digest of the lines of each side.
        states: Of each file its size, and when it was written, before it was read.
    """

    pairs: int
    digests: tuple[bytes, bytes]
    states: tuple[tuple[int, int], ...]


def _states(files: PairFiles) -> tuple[tuple[int, int], ...]:
    found = [check_file("file", path).stat() for path in files.paths]
    return tuple((x.st_size, x.st_mtime_ns) for x in found)


def _checked(split: str, files: Any) -> PairFiles:
    """The files of a split, which are there."""
    if not isinstance(files, Table):
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


def _lists_of_pairs(files: PairFiles) -> Iterator[dict[str, tuple[bytes, ...]]]:
    """Yields some pairs at once, by the reader that counted them.

    `tf.data.TextLineDataset` reads some files otherwise: it drops carriage returns, and
    stops at an empty gzip member.
    """
    pairs = files.raw()
    while some := list(itertools.islice(pairs, _LINES_AT_ONCE)):
        source, target = zip(*some, strict=True)
        yield {"source": source, "target": target}


class _Side:
    """What is counted of the lines of one side."""

    def __init__(self, name: str):
        self.name = name
        self.lines = self.blank = 0
        self.digest = new_digest()

    def add(self, line: str | None) -> None:
        """Counts a line; None is none."""
        if line is not None:
            self.lines += 1
            self.blank += not line.strip()
            self.digest.update(line.encode() + b"\n")

    def check(self) -> None:
        """Raises ValueError if there is no sentence."""
        if self.blank == self.lines:
            what = f"has {self.lines:,} lines, all blank" if self.lines else "is empty"
            raise ValueError(f"{self.name} {what}: line 1 should be a sentence.")


def _read(files: PairFiles) -> _Read:
    """Reads all of a split, and checks it."""
    states = _states(files)
    source, target = (_Side(name) for name in files.sides)
    for one, other in files.checked():
        source.add(one)
        target.add(other)
    source.check()
    target.check()
    check_as_many_lines(source.name, source.lines, target.name, target.lines)
    digests = source.digest.digest(), target.digest.digest()
    return _Read(source.lines, digests, states)
