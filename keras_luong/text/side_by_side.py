"""Files that may be a split: two text files side by side, or a table."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.text.file_names import File
from keras_luong.text.pair_files import TwoFiles

OF_A_TABLE = 10  #: Liberties: text files side by side come before tables.


class Pairs(NamedTuple):
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


class Half(NamedTuple):
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


def text_files(
    files: Iterable[File], languages: tuple[str, str]
) -> tuple[list[Pairs], list[Half]]:
    """Returns the text files that lie side by side, and those that should.

    Args:
        files: The files of a folder.
        languages: The language to translate from, and the one to translate into.

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
                pairs.append(Pairs(split, liberties + taken, both))
        elif split and not liberties:
            halves.append(Half(split, first, stem))
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


def tables_of(files: Iterable[File]) -> Iterator[Pairs]:
    """Yields the files of which each holds both sides.

    Args:
        files: The files of a folder.
    """
    for file in files:
        if file.is_table:
            split, liberties = file.split()
            yield Pairs(split, liberties + OF_A_TABLE, file.path)
