"""Which column of a table is the source, and which the target."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.files import read_lines
from keras_luong.text.language_guess import reads_like
from keras_luong.text.languages import both_ways, fold, is_language, means
from keras_luong.text.pair_files import Table

_ROLES = ("source", "src"), ("target", "tgt", "trg")
_LINES = 300  # to tell what is in a column
_SHOWN = 40  # characters of a sentence


class ReadAs(NamedTuple):
    """A table, and how its columns were told apart.

    Attributes:
        table: The table.
        told: A sentence about the columns, without the file's name.
        by: What told them apart, as in "the header says"; "" for their order.
    """

    table: Table
    told: str
    by: str = ""


def languages_of(path: Path) -> list[str]:
    """Returns the languages that a table names: in its header, or in its name.

    Args:
        path: The file.
    """
    columns = _columns(path)
    header = _header(columns)
    # The name of a column of numbers is no language: id is not Indonesian.
    found = [header[x] for x in _with_words(columns) if is_language(header[x])]
    return found if len(found) > 1 else _of_name(path)


def has_columns(path: Path) -> bool:
    """Whether a tab parts the first line of a file.

    Args:
        path: The file.
    """
    return len(_first_line(path)) > 1


def first_pair(table: Table) -> str:
    """Returns how a table begins, to see that it has no header and no quotation marks.

    Args:
        table: A table without a header.
    """
    cells = _first_line(table.path)
    pair = [cells[x] for x in (table.source, table.target) if x < len(cells)]
    shown = (x if len(x) <= _SHOWN else f"{x[:_SHOWN]} ..." for x in pair)
    return f"line 1 of {table.path.name} is a pair: {' | '.join(shown)}"


def read_as(path: Path, source: str, target: str, like: Table | None = None) -> ReadAs:
    """Returns a table whose columns are known.

    They are by its header, by the languages that their text is in, or by its name. Of
    little text they are as in another table of the corpus, or the first that have
    words.

    Args:
        path: A file of tab-separated columns.
        source: The language to translate from.
        target: The language to translate into.
        like: A table of the same corpus that tells which column is which. This one is
            read likewise if nothing in it tells, and it has as many columns.

    Raises:
        ValueError: It has one column, or a header that names other languages.
    """
    first = _first_line(path)
    if first == [""]:
        raise ValueError(
            f"Line 1 of {path} is empty: it should be two sentences, or the names of "
            "the columns."
        )
    if len(first) < 2:
        raise ValueError(
            f"Line 1 of {path} has no tab between a source and a target. If it is one "
            f"of two files side by side, give their folder, {path.parent}."
        )
    columns = _columns(path)
    header = _header(columns)
    places = _by_language(header, source, target) or _by_role(header)
    if places:
        table = Table(path, *places, has_header=True)
        return _told(table, source, target, "the header says")
    named = _by_language(_of_name(path), source, target)
    if not named:
        _check_named(path, languages_of(path), source, target)
    places = _by_text(columns, source, target)
    if places:
        return _told(Table(path, *places), source, target, "the text says")
    words = _with_words(columns)
    in_order = (words[0], words[1]) if len(words) > 1 else (0, 1)
    if named:
        places = in_order[named[0]], in_order[named[1]]
        return _told(Table(path, *places), source, target, "the name says")
    if like is not None and len(_columns(like.path)) == len(columns):
        table = like._replace(path=path, has_header=False)
        return _told(table, source, target, f"in {like.path.name}")
    return _told(Table(path, *in_order), source, target)


def _told(table: Table, source: str, target: str, by: str = "") -> ReadAs:
    columns = f"column {table.source + 1} is {source}, column {table.target + 1} is "
    if by:
        return ReadAs(table, f"{columns}{target}, as {by}", by)
    return ReadAs(
        table,
        f"{columns}{target}, as there is no header; a first line that names the "
        "columns would say otherwise",
    )


def _columns(path: Path) -> list[tuple[str, ...]]:
    """The cells of the first lines, by column."""
    lines = itertools.islice(filter(None, read_lines(path)), _LINES)
    rows = (line.split("\t") for line in lines)
    return list(itertools.zip_longest(*rows, fillvalue=""))


def _header(columns: Sequence[Sequence[str]]) -> list[str]:
    """The first line's cells; "" for what most lines have there, which is no name."""
    return [
        "" if 2 * below.count(first) > len(below) else first.strip(" \"'")
        for first, *below in columns
    ]


def _with_words(columns: Sequence[Sequence[str]]) -> list[int]:
    """The places of the columns that are text, and not numbers."""
    return [
        place
        for place, cells in enumerate(columns)
        if 2 * sum(any(map(str.isalpha, cell)) for cell in cells) > len(cells)
    ]


def _by_text(
    columns: Sequence[Sequence[str]], source: str, target: str
) -> tuple[int, int] | None:
    """The first places of the two languages, if no column may be of both."""
    texts = [(i, [x.encode() for x in columns[i]]) for i in _with_words(columns)]
    found = [
        [place for place, cells in texts if reads_like(cells, language)]
        for language in (source, target)
    ]
    sure = all(found) and set(found[0]).isdisjoint(found[1])
    return (found[0][0], found[1][0]) if sure else None


def _first_line(path: Path) -> list[str]:
    return next(iter(read_lines(path)), "").split("\t")


def _of_name(path: Path) -> list[str]:
    """The languages that a file's name says of its columns: `corpus.en-de.tsv`."""
    stem = re.sub(r"(?i)(\.\w+)(\.gz)?$", "", path.name)
    codes = fold(stem.split(".")[-1]).split("-")
    # `pt-br-en` is of `pt-br` and `en`: all ways to part it, of which one must fit.
    ways = [("-".join(codes[:i]), "-".join(codes[i:])) for i in range(1, len(codes))]
    fitting = [way for way in ways if all(map(is_language, way))]
    return list(fitting[0]) if len(fitting) == 1 else []


def _by_language(
    cells: Sequence[str], source: str, target: str
) -> tuple[int, int] | None:
    """The places of two languages among the cells, if each is there once."""
    found = [
        [place for place, cell in enumerate(cells) if means(cell, language)]
        for language in (source, target)
    ]
    return (found[0][0], found[1][0]) if [*map(len, found)] == [1, 1] else None


def _by_role(cells: Sequence[str]) -> tuple[int, int] | None:
    """The places of "source" and "target" among the cells."""
    names = [cell.lower() for cell in cells]
    found = [[i for i, name in enumerate(names) if name in role] for role in _ROLES]
    return (found[0][0], found[1][0]) if [*map(len, found)] == [1, 1] else None


def _check_named(path: Path, named: Sequence[str], source: str, target: str) -> None:
    """Refuses a table that names languages which are not both asked for."""
    if len(named) > 1:
        ways = f"{both_ways(*named)}; or correct" if len(named) == 2 else "Correct"
        raise ValueError(
            f"{path} names its columns {' and '.join(named)}, which are not {source} "
            f"and {target}. {ways} its first line, or its name."
        )
