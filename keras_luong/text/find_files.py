"""Which files of a folder are which side of which split."""

from __future__ import annotations

import difflib
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.text.corpus import ordered
from keras_luong.text.file_names import File, files_of, languages_in, visible
from keras_luong.text.languages import both_ways, fold, settled
from keras_luong.text.other_formats import advice
from keras_luong.text.pair_files import PairFiles, Table, TwoFiles
from keras_luong.text.table_columns import has_columns, languages_of, read_as

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

    @property
    def names(self) -> str:
        """What to call them."""
        if isinstance(self.files, Path):
            return self.files.name
        return " and ".join(path.name for path in self.files)


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
    complete = {"train", "validation"} <= {pairs.split for pairs in texts}
    chosen = _chosen(texts if complete else texts + tables, directory)
    for half in halves:
        if half.is_missed(chosen):
            raise FileNotFoundError(_one_side(half, languages, files))
    if not chosen:
        raise FileNotFoundError(_nothing(directory, files, languages))
    unread = [x.names for x in texts + tables if x not in chosen.values()]
    return _read(chosen, languages, {"not read": _shortened(unread)} if unread else {})


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
    return _read({split: _Pairs(split, 0, path)}, languages, {})


def _read(
    chosen: dict[str, _Pairs], languages: tuple[str, str], notes: dict[str, str]
) -> Found:
    """Looks into the tables among the files, for which column is which."""
    files: dict[str, PairFiles] = {}
    columns: dict[str, list[str]] = {}
    like: Table | None = None
    for split in ordered(chosen):
        pairs = chosen[split]
        if isinstance(pairs.files, TwoFiles):
            files[split] = pairs.files
        else:
            read = read_as(pairs.files, *languages, like)
            if read.by == "text":
                like = like or read.table
            files[split] = read.table
            columns.setdefault(read.told, []).append(pairs.names)
    if columns:
        said = [f"{', '.join(names)}: {told}" for told, names in columns.items()]
        notes = {"columns": "; ".join(said), **notes}
    return Found(files, languages, notes)


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
        stem: The two sides' path, without their languages.
    """

    split: str
    side: _Side
    stem: Path

    def is_missed(self, chosen: Container[str]) -> bool:
        """Whether it must have another side, given the splits that are complete."""
        shapes = self.split in ("train", "validation") and self.split not in chosen
        return shapes or not self.side.liberties


def _text_files(
    files: Iterable[File], languages: tuple[str, str]
) -> tuple[list[_Pairs], list[_Half]]:
    """The text files that lie side by side, and those that should.

    Raises:
        ValueError: There are two files for one side.
    """
    pairs, halves = [], []
    by_stem: dict[Path, dict[str, list[_Side]]] = {}
    for file in files:
        for language in languages:
            if stem := file.stem(language):
                sides = by_stem.setdefault(file.path.parent / stem.text, {})
                side = _Side(stem.liberties, file, language)
                sides.setdefault(language, []).append(side)
    for path, sides in by_stem.items():
        found = [_plainest(sides[x], path) for x in languages if x in sides]
        file = found[0].file
        # What is called by its language alone is of the split that its folder is.
        alone = path == file.path.parent
        split, liberties = file.split(file.folder if alone else path.name)
        if len(found) == 2:
            liberties += sum(side.liberties for side in found)
            both = TwoFiles(*(side.file.path for side in found))
            pairs.append(_Pairs(split, liberties, both))
        elif split and not liberties:
            halves.append(_Half(split, found[0], path))
    return pairs, halves


def _plainest(sides: Iterable[_Side], stem: Path) -> _Side:
    """The file that takes the fewest liberties."""
    first, *others = sorted(sides)
    if others and others[0].liberties == first.liberties:
        raise ValueError(
            f"{first.file.path} and {others[0].file.path} are both the "
            f"{first.language} side of the {first.file.split(stem.name).name or stem} "
            "split; keep one of them, or name the files yourself."
        )
    return first


def _one_side(half: _Half, languages: tuple[str, str], files: Sequence[File]) -> str:
    """What is there in place of a split's other side, and what to do."""
    path = half.side.file.path
    (missing,) = {*languages} - {half.side.language}
    beside = [x.path for x in files if str(x.path).startswith(f"{half.stem}.")]
    others = [x.name for x in beside if x != path]
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
    others = [x for x in others if isinstance(x.files, TwoFiles)] or others
    if "train" not in splits and len(others) == 1:
        splits["train"] = others
    elif not splits and others:
        raise ValueError(
            f"{directory} has several pairs of files, and none is called train: "
            f"{_shortened(x.names for x in others)}. Give one of them that name."
        )
    return {split: _one_of(split, many, directory) for split, many in splits.items()}


def _one_of(split: str, many: Sequence[_Pairs], directory: Path) -> _Pairs:
    first, *others = many
    if others and others[0].liberties == first.liberties:
        raise ValueError(
            f"{first.names}, and {others[0].names}, of {directory} are both the "
            f"{split} split; keep one of them, or name the files yourself."
        )
    return first


def _nothing(directory: Path, files: Sequence[File], languages: tuple[str, str]) -> str:
    """What a folder has in place of what was looked for, and what to do."""
    source, target = languages
    names = [file.path.name for file in files]
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
    """What to do with a file of sentences that is no text file, if there is one."""
    for path, _ in files:
        if instead := advice(path):
            return f"{path.name} is no text file of sentences: {instead}."
    return ""


def _a_table(files: Iterable[File]) -> str:
    """What to do with a text file whose lines have tabs, if there is one."""
    for path, _ in files:
        if re.fullmatch(r"(?i).+\.txt(\.gz)?", path.name) and has_columns(path):
            return f"{path.name} is a table: give the file itself, {path}."
    return ""


def _shortened(names: Iterable[str], most: int = 10) -> str:
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{names[:most]}{more}"
