"""Which form a file of parallel text has, and which of its sides is which.

TMX, XLIFF and PO are `units`; tables, JSON lines and Parquet are `rows`. Their sides
are called by languages' codes; or, where the file tells no more, "source" and "target".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from keras_luong.files import read_lines
from keras_luong.languages import standard_code
from keras_luong.text.rows import (
    Rows,
    columns_of,
    is_parquet,
    parquet_files,
    table_rows,
    texts_of,
)
from keras_luong.text.units import Units, count_units, units_of

ROLES = ("source", "target")
#: Ending of a name → the form of such a file.
FORMS = {
    "tsv": "tsv",
    "csv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "po": "units",
    "tmx": "units",
    "xlf": "units",
    "xliff": "units",
}
TABLES = ("tsv", "csv")
#: A language's code, with a script and a region or without: upper and lower case.
CODE = "[a-z]{2,3}([-_][a-z]{4})?([-_]([a-z]{2}|[0-9]{3}))?"


def form_of(path: str | Path) -> str | None:
    """Returns the form of a file, by its name; None for any other.

    Args:
        path: The path of a file; or of a folder, which is Parquet if it has such files.

    Returns:
        One of the values of `FORMS`, or None.

    Example:
        >>> from keras_luong.text.pair_formats import form_of
        >>> form_of("memory.tmx"), form_of("train.tsv.gz"), form_of("train.en")
        ('units', 'tsv', None)
    """
    if is_parquet(path):
        return "parquet"
    ending = re.sub("(?i)[.]gz$", "", Path(path).name).rpartition(".")[2].lower()
    return FORMS.get(ending) if ending != "parquet" else None


def find_side(
    language: str, names: Iterable[str], place: object, role: str, todo: str = ""
) -> str | None:
    """Returns the name of the side that is in a language; None if there is none.

    Args:
        language: The language's code. Where no side has it, one of its regions is
            taken: "en" finds "en-US".
        names: Names of sides.
        place: What has them, for the message.
        role: What the side is, for the message: "source" or "target".
        todo: What to do about several regions; by default to give one as the language.

    Raises:
        ValueError: If there are several regions of the language, and not itself.

    Example:
        >>> from keras_luong.text.pair_formats import find_side
        >>> find_side("en", ["de", "EN_us"], "memory.tmx", "source")
        'EN_us'
    """
    names, code = list(names), standard_code(language)
    if exact := [x for x in names if standard_code(x) == code]:
        return exact[0] if len(exact) == 1 else None
    codes = [x for x in names if re.fullmatch(CODE, x, re.I)]
    near = [x for x in codes if standard_code(x).split("-")[0] == code]
    if len(near) > 1:
        todo = todo or (
            f"Give one of them, as --{role} {near[0]} (in Python: {role}_language)."
        )
        which = " and ".join(sorted(near))
        raise ValueError(f"{place} has {which}: which one is {language}? {todo}")
    return near[0] if near else None


def find_sides(
    source: str, target: str, names: Sequence[str], place: object
) -> tuple[str, str] | None:
    """Returns the names of both sides; None if one is not there.

    Args:
        source: The source's language.
        target: The target's language.
        names: Names of sides: of both languages, or of both roles; or of one language,
            while the other one is told by a role only.
        place: What has them, for a message.

    Raises:
        ValueError: As of `find_side`.

    Example:
        >>> from keras_luong.text.pair_formats import find_sides
        >>> find_sides("de", "en", ["source", "de"], "app.po")
        ('de', 'source')
    """
    one = find_side(source, names, place, "source")
    other = find_side(target, names, place, "target")
    lower = [x.lower() for x in names]
    roles = [names[lower.index(x)] for x in ROLES if lower.count(x) == 1]
    if not one and not other and len(roles) == 2:
        return roles[0], roles[1]
    if len(roles) == 1 and (one or other):
        one, other = one or roles[0], other or roles[0]
    return (one, other) if one and other and one != other else None


def names_in(path: Path) -> list[str]:
    """Returns what the sides of a file are called: languages' codes, roles, columns.

    Args:
        path: A file for which `form_of` has a form. Units are read to the end, once.

    Raises:
        ImportError: If a package is missing that reads the form.
        ValueError: If the file is damaged; the message names it, and the line.
    """
    form = form_of(path)
    if form == "units":
        return sorted({name for names, _ in count_units(path) for name in names})
    if form in TABLES:
        return cells_of_line_1(path)
    return columns_of(parquet_files(path)[0] if form == "parquet" else path)


def cells_of_line_1(path: Path) -> list[str]:
    """Returns what may be the names of a table's columns, without quotation marks."""
    _, cells = next(table_rows(path), (1, [""]))
    return [cell.strip(" \"'") for cell in cells]


def is_header(path: Path, places: Iterable[int]) -> bool:
    """Tells whether line 1 of a table, which names some columns, is no row of text.

    Some tables repeat in every line which languages it is in.

    Args:
        path: The table.
        places: Of the columns that line 1 names as is asked for, from 0.
    """
    rows = [cells for _, cells in itertools.islice(table_rows(path), 2)]
    first, second = [*rows, []][:2]
    return any([first[i]] != second[i : i + 1] for i in places)


def languages_among(names: Iterable[str]) -> list[str]:
    """Returns which of the cells of a line look like languages: en, pt_BR."""
    return [x for x in names if re.fullmatch("[a-z]{2}([-_][A-Za-z]+)?", x)]


def open_pairs(path: Path, source: str, target: str) -> Units | Rows:
    """Finds both sides of a file, and returns what streams its pairs.

    Args:
        path: A file of units, JSON lines or Parquet, or a folder of Parquet.
        source: The source's language.
        target: The target's language.

    Raises:
        ImportError: If a package is missing that reads the form.
        ValueError: If the file is damaged, or has not both sides.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.files import write_lines
        >>> from keras_luong.text.pair_formats import open_pairs
        >>> write_lines("train.jsonl", ['{"en-US": "a dog", "de": "ein Hund"}'])
        >>> list(open_pairs(Path("train.jsonl"), "en", "de").pairs())
        [('a dog', 'ein Hund')]
    """
    names, form = names_in(path), form_of(path)
    sides = find_sides(source, target, names, path)
    if sides is None:
        raise ValueError(
            f"{path} must have texts in {source} and {target}, or texts that it names "
            f"source and target. It has {names}."
        )
    if form == "units":
        return Units(path, *sides)
    return Rows(tuple(parquet_files(path)) if form == "parquet" else (path,), *sides)


def read_sentences(
    path: Path, language: str | None, role: str, column: str | None = None
) -> Iterator[str]:
    """Yields the texts of one side of a file, or the lines of plain text.

    Args:
        path: The file, of any form; or a folder of Parquet.
        language: The language to read.
        role: What the side is if the file names no languages: "source" or "target".
        column: Name of the column to read, of rows; by default that of the language or
            of the role, or the only one. A table of two columns without names has the
            source first.

    Yields:
        A text of each row, or of each unit that has one. A translation that is not
        finished is none, nor is anything obsolete.

    Raises:
        ImportError: If a package is missing that reads the form.
        ValueError: If the file is damaged, or lacks the side.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.files import write_lines
        >>> from keras_luong.text.pair_formats import read_sentences
        >>> write_lines("in.csv", ["id,text,en", '1,ein Hund,"a dog, a cat"'])
        >>> list(read_sentences(Path("in.csv"), "en", "source"))
        ['a dog, a cat']
    """
    form = form_of(path)
    if form is None:
        yield from read_lines(path)
        return
    # 1. The side's name.
    names = names_in(path)
    if column is not None:
        name = column if column in names else None
    else:
        name = find_side(language, names, path, role) if language else None
        name = name or next((x for x in names if x.lower() == role), None)
        if form in TABLES and name and not is_header(path, [names.index(name)]):
            name = None
    is_alone = len(names) == 1 and form != "units" and column is None
    is_pair = form in TABLES and len(names) == 2 and column is None
    is_pair = is_pair and len(languages_among(names)) < 2
    if name is None and not is_alone and not is_pair:
        wanted = f"a column {column!r}" if column else f"texts in {language or role}"
        raise ValueError(f"{path} must have {wanted}. It has {names}.")
    # 2. Its texts.
    if form == "units":
        yield from (texts[name] for texts, _ in units_of(path) if name in texts)
    elif form in TABLES:  # whose columns need not have names
        place = names.index(name) if name else ROLES.index(role) if is_pair else 0
        yield from _column(path, place, name is not None)
    else:
        files = parquet_files(path) if form == "parquet" else [path]
        yield from (text for (text,) in texts_of(files, name or names[0]))


def _column(path: Path, place: int, has_header: bool) -> Iterator[str]:
    for row, (number, cells) in enumerate(table_rows(path)):
        if len(cells) <= place and cells != [""]:
            raise ValueError(
                f"Line {number:,} of {path} has {len(cells)} columns and needs "
                f"{place + 1}."
            )
        if row or not has_header:
            yield cells[place] if len(cells) > place else ""
