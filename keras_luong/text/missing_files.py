"""What to say of a folder that lacks files: what is there instead, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from keras_luong.text.file_names import File, languages_in, visible
from keras_luong.text.languages import both_ways, fold
from keras_luong.text.other_formats import advice
from keras_luong.text.side_by_side import Half
from keras_luong.text.table_columns import has_columns


def side_missing(half: Half, languages: tuple[str, str], files: Sequence[File]) -> str:
    """Returns what is there in place of a split's other side, and what to do.

    Args:
        half: The side that is there.
        languages: The language to translate from, and the one to translate into.
        files: The files of the folder.
    """
    path = half.side.file.path
    (missing,) = {*languages} - {half.side.language}
    others = [
        x.path.name
        for x in files
        if x.place == half.side.file.place and x.path != path
        if re.match(rf"{re.escape(half.stem)}[._-]", x.path.name)
    ]
    there = f"; beside it is {shortened(others)}" if others else ""
    return (
        f"The {half.split} split has {path} but no .{missing} file beside it{there}. "
        f"{_others(languages_in(files), languages)}"
    ).rstrip()


def nothing_found(
    directory: Path, files: Sequence[File], languages: tuple[str, str]
) -> str:
    """Returns what a folder has that has no pair of files, and what to do.

    Args:
        directory: The folder.
        files: Its files.
        languages: The language to translate from, and the one to translate into.
    """
    source, target = languages
    names = [str(file.path.relative_to(directory)) for file in files]
    folders = [f"{path.name}/" for path in visible(directory) if path.is_dir()]
    message = (
        f"{directory} has no train, val, valid, validation, dev or test* file, and no "
        f"other pair, that ends in .{source} and .{target} (or that and .gz), nor a "
        f".tsv file; it has {shortened({*names, *folders})}."
    )
    more = (
        _others(languages_in(files), languages)
        or other_format(files)
        or _a_table(files)
        or f"Call the files train.{source} and train.{target}, for instance."
    )
    return f"{message} {more}"


def other_format(files: Iterable[File]) -> str:
    """Returns what to do with the largest file that is no text file; or "".

    Args:
        files: The files of a folder.
    """
    for path in _largest_first(files):
        if instead := advice(path):
            return f"{path.name} is no text file of sentences: {instead}."
    return ""


def _others(named: list[str], languages: Iterable[str]) -> str:
    """What may have been meant by languages that are not there."""
    missing = [x for x in languages if fold(x) not in map(fold, named)]
    if missing and len(named) == 2:
        return f"{both_ways(*named)}."
    for language in missing:
        if close := difflib.get_close_matches(language, named, 1):
            return f"Did you mean {close[0]} by {language}?"
    return ""


def _a_table(files: Iterable[File]) -> str:
    """What to do with the largest text file whose lines have tabs, if any."""
    for path in _largest_first(files):
        if re.fullmatch(r"(?i).+\.txt(\.gz)?", path.name) and has_columns(path):
            return f"{path.name} is a table: give the file itself, {path}."
    return ""


def _largest_first(files: Iterable[File]) -> list[Path]:
    paths = (file.path for file in files if file.path.exists())
    return sorted(paths, key=lambda path: path.stat().st_size, reverse=True)


def shortened(names: Iterable[str], most: int = 10) -> str:
    """Returns names for a message, and how many more there are.

    Args:
        names: The names.
        most: How many are said.

    Example:
        >>> from keras_luong.text.missing_files import shortened
        >>> shortened(["b", "c", "a"], most=2)
        "['a', 'b'] and 1 more"
    """
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"
