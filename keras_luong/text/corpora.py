"""Corpora: where pairs of sentences come from.

A corpus has splits ("train", "validation", "test", ...) and streams the pairs of each
in a fixed order. `load` finds the right kind: the embedded corpus, a directory of text
files, or tensorflow-datasets.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

_BLOCK_BYTES = 1 << 22
_STANDARD_SPLITS = ("train", "validation", "test")
_VALIDATION_STEMS = ("val", "valid", "validation", "dev")


class Corpus(Protocol):
    """What the library needs from a corpus; make your own with these members."""

    name: str
    source_language: str
    target_language: str
    splits: tuple[str, ...]

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams `{"source": tf.string [], "target": tf.string []}`, in fixed order.

        Args:
            split: One of `splits`.
        """


class TextFiles:
    """A corpus of text files, one sentence a line, plain or gzip (`.gz`), streamed.

    Line n of a split's source file translates to line n of its target file. A line ends
    with a line feed, and carriage returns are dropped. Both files are read through once
    when a split is first used, to refuse what would spoil a training hours later.

    Args:
        files: For each split, its source file and its target file.
        source_language: Name of the source language, as in "en".
        target_language: Name of the target language.
        name: Name of the corpus.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If there are no files.

    Example:
        ```python
        corpus = TextFiles(
            {"train": ("news.en.gz", "news.de.gz"), "test": ("test.en", "test.de")},
            source_language="en",
            target_language="de",
        )
        for pair in corpus.pairs("train").take(3):
            print(pair["source"], pair["target"])
        ```
    """

    def __init__(
        self,
        files: Mapping[str, tuple[str | Path, str | Path]],
        source_language: str,
        target_language: str,
        name: str = "text files",
    ):
        if not files:
            raise ValueError("files must hold at least one split, received none.")
        self.files = {
            split: (Path(files[split][0]), Path(files[split][1]))
            for split in _ordered(files)
        }
        for path in (path for sides in self.files.values() for path in sides):
            if not path.is_file():
                raise FileNotFoundError(f"There is no file {path}.")
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        self._validated: set[str] = set()

    @classmethod
    def from_directory(
        cls, directory: str | Path, source_language: str, target_language: str
    ) -> TextFiles:
        """Finds `train.en`, `train.de` and the like.

        Args:
            directory: Holds files named `<split>.<language>` or
                `<split>.<language>.gz`. Splits: "train"; "val", "valid", "validation"
                or "dev", all called "validation"; and any name that begins with "test".
            source_language: The source files' suffix, without the dot.
            target_language: The target files' suffix.

        Returns:
            The corpus.

        Raises:
            FileNotFoundError: If there is no such split, or it lacks one side.
            ValueError: If two files claim to be the same side of a split.
        """
        directory = Path(directory)
        if not directory.is_dir():
            raise FileNotFoundError(f"There is no directory {directory}.")
        languages = (source_language, target_language)
        if source_language == target_language:
            raise ValueError(f"The two languages are the same: {source_language!r}.")
        found = _find_splits(directory, languages)
        if not found:
            raise FileNotFoundError(
                f"{directory} has no train, val, valid, validation, dev or test* file "
                f"that ends in .{source_language} or .{target_language} (or that and "
                f".gz); it has {_shortened(p.name for p in directory.iterdir())}."
            )
        for split, sides in found.items():
            for missing in (lang for lang in languages if lang not in sides):
                beside = next(iter(sides.values()))
                raise FileNotFoundError(
                    f"The {split} split has {beside} but no .{missing} file beside it."
                )
        files = {s: (found[s][languages[0]], found[s][languages[1]]) for s in found}
        return cls(files, *languages, name=directory.resolve().name)

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
            ValueError: If there is no such split, if the two files differ in their
                number of lines, or if one is empty or not UTF-8; it names the file and
                the line.
        """
        source, target = self.files[check_split(self, split)]
        if split not in self._validated:
            validate_text_files(source, target)
            self._validated.add(split)
        return tf.data.Dataset.zip({"source": _lines(source), "target": _lines(target)})


class TfdsCorpus:
    """A corpus of tensorflow-datasets, downloaded and prepared if it is not yet.

    Args:
        name: Its name there, such as "wmt14_translate/de-en".
        source_language: Key of the source sentence, such as "en".
        target_language: Key of the target sentence.
        data_dir: Where tensorflow-datasets keeps its data, its default if None.

    Raises:
        ValueError: If the name or a language is unknown.

    Example:
        ```python
        corpus = TfdsCorpus("wmt14_translate/de-en", "en", "de")
        ```
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
        self.splits = _ordered(self._builder.info.splits or _STANDARD_SPLITS)

    def pairs(self, split: str) -> tf.data.Dataset:
        """Streams a split.

        Args:
            split: One of `splits`.

        Returns:
            Dataset of `{"source": tf.string [], "target": tf.string []}`, in the order
            in which they were prepared.

        Raises:
            ValueError: If there is no such split.
        """
        examples = self._builder.as_dataset(
            split=check_split(self, split), shuffle_files=False
        )
        source, target = self.source_language, self.target_language
        return examples.map(lambda e: {"source": e[source], "target": e[target]})


def load(
    data: str | Path | Mapping[str, tuple[str | Path, str | Path]],
    source_language: str,
    target_language: str,
    data_dir: str | Path | None = None,
) -> Corpus:
    """Loads a corpus by what it is called.

    Args:
        data: "phrases" (the embedded corpus, English to German); a directory of text
            files (see `TextFiles.from_directory`); a dict of a source and a target file
            for each split; or a name in tensorflow-datasets.
        source_language: The language to translate from, such as "en".
        target_language: The language to translate into.
        data_dir: Where tensorflow-datasets keeps its data.

    Returns:
        The corpus.

    Raises:
        ValueError: If `data` is none of these, or hasn't these languages.
        FileNotFoundError: If a file is missing.

    Example:
        ```python
        corpus = load("data/multi30k", "en", "de")
        corpus.splits                                  # ("train", "validation", ...)
        ```
    """
    if isinstance(data, Mapping):
        return TextFiles(data, source_language, target_language)
    if str(data) == "phrases":
        from keras_luong.text.phrases import PhraseCorpus

        return PhraseCorpus(source_language, target_language)
    if Path(data).is_dir():
        return TextFiles.from_directory(data, source_language, target_language)
    try:
        return TfdsCorpus(str(data), source_language, target_language, data_dir)
    except _UnknownTfdsName as error:
        raise ValueError(
            f"Found no corpus {str(data)!r}. Tried: the embedded corpus (it is called "
            f"'phrases'); a directory (there is none); tensorflow-datasets ({error})"
        ) from error


class _UnknownTfdsName(ValueError):
    """Tensorflow-datasets knows no data set of that name."""


def _tfds_builder(name: str, data_dir: str | Path | None) -> Any:
    import tensorflow_datasets as tfds

    try:
        return tfds.builder(name, data_dir=data_dir)
    except tfds.core.DatasetNotFoundError as error:
        raise _UnknownTfdsName(f"There is no data set {name!r} in it.") from error
    except ValueError as error:
        dataset = name.split("/")[0]
        if dataset not in tfds.list_builders(with_community_datasets=False):
            raise _UnknownTfdsName(f"{name!r} is no name of a data set.") from error
        configs = sorted(tfds.builder_cls(dataset).builder_configs)
        raise _UnknownTfdsName(
            f"{dataset} is there, but not {name!r}; it has {configs}."
        ) from error


def _ordered(splits: Iterable[str]) -> tuple[str, ...]:
    """Puts train first, then validation, then the others by name."""
    rank = {"train": 0, "validation": 1}
    return tuple(sorted(splits, key=lambda split: (rank.get(split, 2), split)))


def _lines(path: Path) -> tf.data.Dataset:
    compression = "GZIP" if _is_gzip(path) else None
    return tf.data.TextLineDataset(str(path), compression_type=compression)


def _is_gzip(path: Path) -> bool:
    return path.suffix == ".gz"


def _find_splits(
    directory: Path, languages: tuple[str, str]
) -> dict[str, dict[str, Path]]:
    """Maps each split to its files by language, as far as there are any."""
    pattern = re.compile(
        rf"({'|'.join(('train', *_VALIDATION_STEMS))}|test.*?)"
        rf"\.({'|'.join(map(re.escape, languages))})(\.gz)?"
    )
    found: dict[str, dict[str, Path]] = {}
    for path in sorted(directory.iterdir()):
        match = pattern.fullmatch(path.name)
        if not match:
            continue
        stem, language = match[1], match[2]
        split = "validation" if stem in _VALIDATION_STEMS else stem
        earlier = found.setdefault(split, {}).setdefault(language, path)
        if earlier is not path:
            raise ValueError(
                f"{earlier} and {path} are both the {language} side of the {split} "
                f"split; keep one of them, or name the files yourself."
            )
    return found


def _shortened(names: Iterable[str], most: int = 10) -> str:
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"


def check_split(corpus: Corpus, split: str) -> str:
    """Returns `split` if the corpus has it.

    Args:
        corpus: The corpus.
        split: Name of a split.

    Returns:
        `split`.

    Raises:
        ValueError: If the corpus has no such split; it names those there are.
    """
    if split not in corpus.splits:
        raise ValueError(
            f"{corpus.name} has no split {split!r}; it has {list(corpus.splits)}."
        )
    return split


def validate_text_files(source: str | Path, target: str | Path) -> int:
    """Reads two parallel text files through and refuses them if they are spoilt.

    Args:
        source: File of the source sentences, gzip if it ends in `.gz`.
        target: File of their translations.

    Returns:
        The number of lines, the same in both.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is empty or blank, is not UTF-8, or is shorter than the
            other; it names the file and the line, counted from 1.

    Example:
        ```python
        validate_text_files("train.en", "train.de")  # 29000
        ```
    """
    counts = {Path(path): _count_lines(Path(path)) for path in (source, target)}
    (short, fewer), *rest = sorted(counts.items(), key=lambda item: item[1])
    for long, more in rest:
        if fewer != more:
            raise ValueError(
                f"{long} has {more} lines and {short} has {fewer}: line {fewer + 1} of "
                f"{long} has no translation. Line n of one file must translate line n "
                f"of the other."
            )
    return fewer


class _Progress(NamedTuple):
    """How far a file has been read."""

    lines: int = 0
    tail: bool = False  # is there text after the last line feed?
    blank: bool = True  # has there been nothing but white space?


def _count_lines(path: Path) -> int:
    """Counts lines as tf.data.TextLineDataset does, checking that they are UTF-8."""
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}.")
    decoder = codecs.getincrementaldecoder("utf-8")()
    progress = _Progress()
    try:
        with gzip.open(path) if _is_gzip(path) else path.open("rb") as file:
            while block := file.read(_BLOCK_BYTES):
                decoder.decode(block)
                progress = _advance(progress, block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        before = error.object[: error.start].count(b"\n")
        raise ValueError(
            f"{path} is not UTF-8: line {progress.lines + before + 1} has the byte "
            f"{error.object[error.start]:#04x} ({error.reason})."
        ) from error
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(
            f"{path} is not gzip, or is damaged after line {progress.lines}: {error}."
        ) from error
    if progress.blank:
        raise ValueError(f"{path} is empty: line 1 should be a sentence.")
    return progress.lines + progress.tail


def _advance(progress: _Progress, block: bytes) -> _Progress:
    feeds = block.count(b"\n")
    last = block[block.rfind(b"\n") + 1 :].strip(b"\r")
    tail = bool(last) or (progress.tail and not feeds)
    return _Progress(progress.lines + feeds, tail, progress.blank and block.isspace())
