"""Which files of a folder are which side of which split."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.text.corpus import ordered
from keras_luong.text.file_names import File, files_of, languages_in, visible
from keras_luong.text.languages import both_ways, fold, settled
from keras_luong.text.other_formats import advice
from keras_luong.text.pair_files import PairFiles, TwoFiles
from keras_luong.text.table_columns import (
    ReadAs,
    has_columns,
    languages_of,
    read_as,
)

_OF_A_TABLE = 10  # liberties: text files side by side come before tables


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


class _Pairs(NamedTuple):
    """Files that may be a split.

    Attributes:
        split: The split that they are by their name, or None if they are of none.
        liberties: How many it takes to read them so.
        files: Two files, or the path of a table.
    """

    split: str | None
    liberties: int
    files: TwoFiles | Path

    def names(self, directory: Path) -> str:
        """What to call them, seen from a folder."""
        paths = [self.files] if isinstance(self.files, Path) else self.files
        return " and ".join(str(path.relative_to(directory)) for path in paths)


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
    if not (named or source and target) and (instead := _other_format(files)):
        raise ValueError(f"{directory} has no text files. {instead}")
    languages = settled(directory, named, source, target)
    texts, halves = _text_files(files, languages)
    tables = list(_tables(files))
    plain = {pairs.split for pairs in texts if pairs.liberties < _OF_A_TABLE}
    complete = {"train", "validation"} <= plain
    chosen = _chosen(texts if complete else texts + tables, directory)
    for half in halves:
        if half.is_missed(chosen):
            raise FileNotFoundError(_one_side(half, languages, files))
    if not chosen:
        raise FileNotFoundError(_nothing(directory, files, languages))
    unread = [
        pairs.names(directory)
        for pairs in texts + tables
        if pairs not in chosen.values()
    ]
    found = _read(chosen, languages, directory)
    if unread:
        found.notes["not read"] = _shortened(unread)
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
    return _read({split: _Pairs(split, 0, path)}, languages, path.parent)


def _read(
    chosen: dict[str, _Pairs], languages: tuple[str, str], directory: Path
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
    return Found(files, languages, {"columns": "; ".join(said)} if said else {})


class _Side(NamedTuple):
    """A file that may be a side of a split.

    Attributes:
        liberties: How many it takes to read its name so.
        file: The file.
        language: Its language.
    """

    liberties: int
    file: File
    language: str


class _Half(NamedTuple):
    """A file that has the name of a split, and no other side.

    Attributes:
        split: The split.
        side: The file.
        stem: The two sides' name, without their languages.
    """

    split: str
    side: _Side
    stem: str

    def is_missed(self, chosen: Container[str]) -> bool:
        """Whether it must have another side, given the splits that are complete."""
        shapes = self.split in ("train", "validation") and self.split not in chosen
        return shapes or not self.side.liberties


def _text_files(
    files: Iterable[File], languages: tuple[str, str]
) -> tuple[list[_Pairs], list[_Half]]:
    """The text files that lie side by side, and those that should.

    Raises:
        ValueError: There are two plain files for one side.
    """
    pairs, halves = [], []
    for (_, stem), sides in _by_stem(files, languages).items():
        found = [_checked(sides[x], stem) for x in languages if x in sides]
        first = min(found[0])
        # What is called by its language alone is of the split that its folder is.
        split, liberties = first.file.split(stem or first.file.folder)
        if len(found) == 2:
            for taken, both in _side_by_side(*found):
                pairs.append(_Pairs(split, liberties + taken, both))
        elif split and not liberties:
            halves.append(_Half(split, first, stem))
    return pairs, halves


def _by_stem(
    files: Iterable[File], languages: tuple[str, str]
) -> dict[tuple[Path, str], dict[str, list[_Side]]]:
    """The files of each language, by what else tells sides of a split apart."""
    by_stem: dict[tuple[Path, str], dict[str, list[_Side]]] = {}
    for file in files:
        for language in languages:
            if stem := file.stem(language):
                sides = by_stem.setdefault((file.place, stem.text), {})
                side = _Side(stem.liberties, file, language)
                sides.setdefault(language, []).append(side)
    return by_stem


def _checked(sides: Sequence[_Side], stem: str) -> Sequence[_Side]:
    """The sides, of which not both `train.de` and `train.de.gz` can be meant."""
    plain = [side for side in sides if not side.liberties]
    if len(plain) > 1:
        raise ValueError(
            f"{plain[0].file.path} and {plain[1].file.path} are both the "
            f"{plain[0].language} side of the {stem} split; keep one of them, or name "
            "the files yourself."
        )
    return sides


def _side_by_side(
    sources: Sequence[_Side], targets: Sequence[_Side]
) -> Iterator[tuple[int, TwoFiles]]:
    """Yields the plainest files, and others that are written alike; with liberties."""
    plainest = min(sources).liberties, min(targets).liberties
    for source, target in itertools.product(sources, targets):
        taken = source.liberties, target.liberties
        if taken == plainest or len({*taken}) == 1:
            yield sum(taken), TwoFiles(source.file.path, target.file.path)


def _one_side(half: _Half, languages: tuple[str, str], files: Sequence[File]) -> str:
    """What is there in place of a split's other side, and what to do."""
    path = half.side.file.path
    (missing,) = {*languages} - {half.side.language}
    others = [
        x.path.name
        for x in files
        if x.place == half.side.file.place and x.path != path
        if re.match(rf"{re.escape(half.stem)}[._-]", x.path.name)
    ]
    there = f"; beside it is {_shortened(others)}" if others else ""
    return (
        f"The {half.split} split has {path} but no .{missing} file beside it{there}. "
        f"{_others(languages_in(files), languages)}"
    ).rstrip()


def _tables(files: Iterable[File]) -> Iterator[_Pairs]:
    """Yields the files of which each holds both sides."""
    for file in files:
        if file.is_table:
            split, liberties = file.split()
            yield _Pairs(split, liberties + _OF_A_TABLE, file.path)


def _chosen(pairs: Iterable[_Pairs], directory: Path) -> dict[str, _Pairs]:
    """The files of each split.

    Raises:
        ValueError: Two may be the same split.
    """
    splits: dict[str, list[_Pairs]] = {}
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
        names = _shortened(x.names(directory) for x in others)
        raise ValueError(
            f"{directory} has several pairs of files, and none is called train: "
            f"{names}. Give one of them that name."
        )
    return {split: _one_of(split, many, directory) for split, many in splits.items()}


def _one_of(split: str, many: Sequence[_Pairs], directory: Path) -> _Pairs:
    first, *others = many
    if others and others[0].liberties == first.liberties:
        raise ValueError(
            f"{first.names(directory)}, and {others[0].names(directory)}, of "
            f"{directory} are both the {split} split; keep one of them, or name the "
            "files yourself."
        )
    return first


def _nothing(directory: Path, files: Sequence[File], languages: tuple[str, str]) -> str:
    """What a folder has in place of what was looked for, and what to do."""
    source, target = languages
    names = [str(file.path.relative_to(directory)) for file in files]
    folders = [f"{path.name}/" for path in visible(directory) if path.is_dir()]
    message = (
        f"{directory} has no train, val, valid, validation, dev or test* file, and no "
        f"other pair, that ends in .{source} and .{target} (or that and .gz), nor a "
        f".tsv file; it has {_shortened({*names, *folders})}."
    )
    more = (
        _others(languages_in(files), languages)
        or _other_format(files)
        or _a_table(files)
        or f"Call the files train.{source} and train.{target}, for instance."
    )
    return f"{message} {more}"


def _others(named: list[str], languages: Iterable[str]) -> str:
    """What may have been meant by languages that are not there."""
    missing = [x for x in languages if fold(x) not in map(fold, named)]
    if missing and len(named) == 2:
        return f"{both_ways(*named)}."
    for language in missing:
        if close := difflib.get_close_matches(language, named, 1):
            return f"Did you mean {close[0]} by {language}?"
    return ""


def _other_format(files: Iterable[File]) -> str:
    """What to do with the largest file of sentences that is no text file, if any."""
    for path in _largest_first(files):
        if instead := advice(path):
            return f"{path.name} is no text file of sentences: {instead}."
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


def _shortened(names: Iterable[str], most: int = 10) -> str:
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"
