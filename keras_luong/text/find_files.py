"""Which files of a folder are which side of which split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.text.file_names import File, files_of, languages_in, ordered
from keras_luong.text.languages import settled
from keras_luong.text.missing_files import (
    nothing_found,
    other_format,
    shortened,
    side_missing,
)
from keras_luong.text.other_formats import advice
from keras_luong.text.pair_files import PairFiles, Table, TwoFiles
from keras_luong.text.side_by_side import OF_A_TABLE, Pairs, tables_of, text_files
from keras_luong.text.table_columns import ReadAs, first_pair, languages_of, read_as


class Found(NamedTuple):
    """What a folder or a file holds.

    Attributes:
        files: The files of each split.
        languages: The language to translate from, and the one to translate into.
        notes: What to say of how they were read, by a word for each.
    """

    files: dict[str, PairFiles]
    languages: tuple[str, str]
    notes: dict[str, str]


def find_files(directory: Path, source: str | None, target: str | None) -> Found:
    """Finds the files of a folder.

    Args:
        directory: The folder.
        source: The suffix of the source files, if it is known.
        target: The suffix of the target files, if it is known.

    Raises:
        FileNotFoundError: There is no such folder, no pair of files, or a side lacks.
        ValueError: Names have two readings; it says which.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"There is no directory {directory}.")
    files = list(files_of(directory))
    named = [] if source and target else languages_in(files)
    if not (named or source and target) and (instead := other_format(files)):
        raise ValueError(f"{directory} has no text files. {instead}")
    languages = settled(directory, named, source, target)
    texts, halves = text_files(files, languages)
    tables = list(tables_of(files))
    plain = {pairs.split for pairs in texts if pairs.liberties < OF_A_TABLE}
    complete = {"train", "validation"} <= plain
    chosen = _chosen(texts if complete else texts + tables, directory)
    for half in halves:
        if half.is_missed(chosen):
            raise FileNotFoundError(side_missing(half, languages, files))
    if not chosen:
        raise FileNotFoundError(nothing_found(directory, files, languages))
    unread = [
        pairs.names(directory)
        for pairs in texts + tables
        if pairs not in chosen.values()
    ]
    found = _read(chosen, languages, directory)
    if unread:
        found.notes["not read"] = shortened(unread)
    return found


def find_table(path: Path, source: str | None, target: str | None) -> Found:
    """Reads what a single file is.

    Args:
        path: A file of tab-separated columns.
        source: The language to translate from, if it is known.
        target: The language to translate into, if it is known.

    Raises:
        ValueError: It is no such file, or its columns have two readings.
    """
    if instead := advice(path):
        raise ValueError(f"{path} is no text file of sentences: {instead}.")
    languages = settled(path, languages_of(path), source, target)
    split = File(path).split().name or "train"
    return _read({split: Pairs(split, 0, path)}, languages, path.parent)


def _read(
    chosen: dict[str, Pairs], languages: tuple[str, str], directory: Path
) -> Found:
    """Looks into the tables among the files, for which column is which."""
    files: dict[str, PairFiles] = {}
    tables: dict[str, ReadAs] = {}
    for split in ordered(chosen):
        found = chosen[split].files
        if isinstance(found, TwoFiles):
            files[split] = found
        else:
            tables[split] = read_as(found, *languages)
    columns: dict[str, list[str]] = {}
    like = next((read.table for read in tables.values() if read.by), None)
    for split, read in tables.items():
        if like and not read.by:
            read = read_as(read.table.path, *languages, like)
        files[split] = read.table
        columns.setdefault(read.told, []).append(chosen[split].names(directory))
    said = [f"{', '.join(names)}: {told}" for told, names in columns.items()]
    bare = [x for x in files.values() if isinstance(x, Table) and not x.has_header]
    said += map(first_pair, bare[:1])
    return Found(files, languages, {"columns": "; ".join(said)} if said else {})


def _chosen(pairs: Iterable[Pairs], directory: Path) -> dict[str, Pairs]:
    """The files of each split.

    Raises:
        ValueError: Two may be the same split.
    """
    splits: dict[str, list[Pairs]] = {}
    others = []
    for found in sorted(pairs, key=lambda x: x.liberties):
        if found.split is None:
            others.append(found)
        else:
            splits.setdefault(found.split, []).append(found)
    others = [x for x in others if x.liberties == others[0].liberties]
    if "train" not in splits and len(others) == 1:
        splits["train"] = others
    elif not splits and others:
        names = shortened(x.names(directory) for x in others)
        raise ValueError(
            f"{directory} has several pairs of files, and none is called train: "
            f"{names}. Give one of them that name."
        )
    return {split: _one_of(split, many, directory) for split, many in splits.items()}


def _one_of(split: str, many: Sequence[Pairs], directory: Path) -> Pairs:
    first, *others = many
    if others and others[0].liberties == first.liberties:
        raise ValueError(
            f"{first.names(directory)}, and {others[0].names(directory)}, of "
            f"{directory} are both the {split} split; keep one of them, or name the "
            "files yourself."
        )
    return first
