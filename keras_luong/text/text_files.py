"""A corpus of text files: found, checked and streamed."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_path
from keras_luong.text.corpus import check_split, ordered

_BLOCK_BYTES = 1 << 22
_VALIDATION_STEMS = ("val", "valid", "validation", "dev")


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
            raise ValueError("files must hold at least one split. Received: none.")
        self.files = {
            split: _two_paths(split, files[split]) for split in ordered(files)
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


def _two_paths(split: str, files: Any) -> tuple[Path, Path]:
    if isinstance(files, (str, Path)) or len(files) != 2:
        raise ValueError(
            f"The {split} split must have two files, source and target. "
            f"Received: {files!r}"
        )
    return tuple(check_path(f"A file of the {split} split", file) for file in files)


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


def _lines(path: Path) -> tf.data.Dataset:
    compression = "GZIP" if _is_gzip(path) else None
    lines = tf.data.TextLineDataset(str(path), compression_type=compression)
    # A byte order mark is no part of the first sentence.
    first = lines.take(1).map(lambda x: tf.strings.regex_replace(x, "^\ufeff", ""))
    return first.concatenate(lines.skip(1))


def _is_gzip(path: Path) -> bool:
    return path.suffix == ".gz"


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
