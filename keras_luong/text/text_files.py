"""Corpora of text files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_file, check_path
from keras_luong.files import (
    check_as_many_lines,
    is_gzip,
    read_lines,
    read_raw_lines,
)
from keras_luong.text.corpus import (
    Fingerprint,
    check_split,
    joint_digest,
    new_digest,
    ordered,
)

_VALIDATION_STEMS = ("val", "valid", "validation", "dev")


class TextFiles:
    """A corpus of text files, one sentence a line, plain or gzip, streamed.

    Line n of a split's source file translates to line n of its target file. Lines are
    what `keras_luong.files.read_lines` reads. When a split is first used, both files
    are read once, so that a damaged file is found before the training begins.

    Args:
        files: For each split, its source file and its target file.
        source_language: Name of the source language, as in "en".
        target_language: Name of the target language.
        name: Name of the corpus.

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
        files: Mapping[str, tuple[str | Path, str | Path]],
        source_language: str,
        target_language: str,
        name: str = "text files",
    ):
        if not files:
            raise ValueError("files must hold at least one split. Received: none.")
        self.files = {
            split: _two_files(split, files[split]) for split in ordered(files)
        }
        self.name = name
        self.source_language = source_language
        self.target_language = target_language
        self._read: dict[str, list[_Text]] = {}  # splits that were read, and are right

    @classmethod
    def from_directory(
        cls, directory: str | Path, source_language: str, target_language: str
    ) -> TextFiles:
        """Finds the files of a directory, such as `train.en` and `train.de`.

        Args:
            directory: The directory, with files named `<split>.<language>` or
                `<split>.<language>.gz`. Splits: "train"; "val", "valid", "validation"
                or "dev", all called "validation"; and any name that begins with "test".
            source_language: The source files' suffix, without the dot.
            target_language: The target files' suffix.

        Returns:
            The corpus.

        Raises:
            FileNotFoundError: If there is no such file, or a split lacks one side.
            ValueError: If there are two files for the same side of a split.
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
                number of lines, or if one is empty or not UTF-8; the message names the
                file and the line.
        """
        source, target = self._texts(split)
        return tf.data.Dataset.zip({"source": _lines(source), "target": _lines(target)})

    def fingerprint(self, split: str) -> Fingerprint:
        """Returns what tells a split's text from any other, however it is packed.

        Args:
            split: One of `splits`.

        Raises:
            ValueError: As `pairs` does.
        """
        source, target = self._texts(split)
        return Fingerprint(source.lines, joint_digest([source.digest, target.digest]))

    def _texts(self, split: str) -> list[_Text]:
        """A split's two files, which are read when they are first asked for."""
        files = self.files[check_split(self, split)]
        if split not in self._read:
            self._read[split] = _read_both(*files)
        return self._read[split]


class _Text(NamedTuple):
    """A text file that was read: what must be known of it.

    Attributes:
        path: The file.
        lines: The number of its lines.
        digest: A digest of them.
        tensorflow_differs: Whether TensorFlow reads it otherwise than `read_lines`.
    """

    path: Path
    lines: int
    digest: bytes
    tensorflow_differs: bool


def _two_files(split: str, files: Any) -> tuple[Path, Path]:
    if isinstance(files, (str, Path)) or len(files) != 2:
        raise ValueError(
            f"The {split} split must have two files, source and target. "
            f"Received: {files!r}"
        )
    source, target = (check_path(f"A file of the {split} split", x) for x in files)
    return check_file("file", source), check_file("file", target)


def _find_splits(
    directory: Path, languages: tuple[str, str]
) -> dict[str, dict[str, Path]]:
    """Returns the files that were found, by split and language."""
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


def _lines(text: _Text) -> tf.data.Dataset:
    if text.tensorflow_differs:
        return tf.data.Dataset.from_generator(
            lambda: read_raw_lines(text.path),
            output_signature=tf.TensorSpec([], tf.string),
        )
    compression = "GZIP" if is_gzip(text.path) else None
    lines = tf.data.TextLineDataset(str(text.path), compression_type=compression)
    # A byte order mark is not part of the first sentence.
    first = lines.take(1).map(lambda x: tf.strings.regex_replace(x, "^\ufeff", ""))
    return first.concatenate(lines.skip(1))


def validate_text_files(source: str | Path, target: str | Path) -> int:
    """Reads two parallel text files, and checks that they can be used.

    Args:
        source: File of the source sentences, plain or gzip.
        target: File of their translations.

    Returns:
        The number of lines, the same in both.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is empty or blank, is not UTF-8, or is shorter than the
            other; the message names the file and the line, counted from 1.

    Example:
        >>> from keras_luong.text.text_files import validate_text_files
        >>> validate_text_files("my/corpus/train.en", "my/corpus/train.de")
        3
    """
    return _read_both(Path(source), Path(target))[0].lines


def _read_both(source: Path, target: Path) -> list[_Text]:
    texts = [_read(source), _read(target)]
    check_as_many_lines(source, texts[0].lines, target, texts[1].lines)
    return texts


def _read(path: Path) -> _Text:
    count = blank = returns = 0
    digest = new_digest()
    for line in read_lines(check_file("file", path)):
        count += 1
        blank += not line.strip()
        returns += "\r" in line
        digest.update(line.encode() + b"\n")
    if blank == count:
        what = f"has {count:,} lines, all blank" if count else "is empty"
        raise ValueError(f"{path} {what}: line 1 should be a sentence.")
    # TensorFlow would drop these returns: "a\rb" would become one word.
    tensorflow_differs = returns > 0 or (is_gzip(path) and _is_padded(path))
    return _Text(path, count, digest.digest(), tensorflow_differs)


def _is_padded(path: Path) -> bool:
    """Whether a file ends with zeros, which TensorFlow takes for damage behind gzip."""
    with path.open("rb") as file:
        file.seek(-min(8, path.stat().st_size), os.SEEK_END)
        return not any(file.read())
