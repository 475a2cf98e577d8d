"""Rows of columns: tables with tabs, CSV, JSON lines and Parquet, streamed.

Line ends within a text become a space, as a sentence is a line to all that follows.
"""

from __future__ import annotations

import csv
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.files import one_line, read_lines, without_line_ends
from keras_luong.lazy import needed

_AT_ONCE = 8192  # rows of Parquet
_NESTED = "translation"  # an object of both sides, as Hugging Face's data sets have it


class Table(NamedTuple):
    r"""A file of columns, of which one is the source and one the target.

    A tab parts two columns and a line end two pairs, always: quotation marks and
    backslashes are letters as others are; but a file whose name ends in `.csv` is read
    as CSV. An empty line is a pair of empty sentences.

    Attributes:
        path: The file, plain or gzip.
        source: Place of the source's column, from 0.
        target: Place of the target's column.
        has_header: Whether the first line only names the columns.
    """

    path: Path
    source: int = 0
    target: int = 1
    has_header: bool = False

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""
        return (self.path,)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        return (
            f"Column {self.source + 1} of {self.path}",
            f"Column {self.target + 1} of {self.path}",
        )

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs.

        Raises:
            ValueError: The file can't be read, or a line has too few columns, or more
                than the first one; the message names the file and the line.
        """
        most, needed = 0, max(self.source, self.target) + 1
        parts, header = "comma" if is_csv(self.path) else "tab", self.has_header
        for number, cells in table_rows(self.path):
            most, is_blank = most or len(cells), cells == [""]
            if not is_blank and len(cells) > most:
                raise ValueError(
                    f"Line {number} of {self.path} has {len(cells)} columns and the "
                    f"first one has {most}: there is a {parts} too many in it."
                )
            if not is_blank and len(cells) < needed:
                raise ValueError(
                    f"Line {number} of {self.path} has {len(cells)} "
                    f"column{'s' * (len(cells) > 1)} and needs {needed}, with a "
                    f"{parts} between two of them."
                )
            if not header:
                yield ("", "") if is_blank else (cells[self.source], cells[self.target])
            header = False


def table_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the cells of each row of a table, and the number of its first line.

    Args:
        path: A file of CSV by its name, or else of columns with tabs between.

    Raises:
        ValueError: If the file is damaged; the message names it, and the line.
    """
    if is_csv(path):
        yield from read_csv(path)
    else:
        for number, line in enumerate(read_lines(path), 1):
            yield number, line.split("\t")


def is_csv(path: Path) -> bool:
    """Tells by its name whether a file is CSV."""
    return bool(re.search("(?i)[.]csv([.]gz)?$", path.name))


class Rows(NamedTuple):
    """The rows of JSON lines or of Parquet, of which two columns are the two sides.

    Where a side is null it is an empty sentence.

    Attributes:
        paths: The files, in their order.
        source: Name of the source's column.
        target: Name of the target's column.
    """

    paths: tuple[Path, ...]
    source: str
    target: str

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        first, *more = self.paths
        names = f"{first} and {len(more):,} more" if more else str(first)
        return f"{self.source} of {names}", f"{self.target} of {names}"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields the pairs.

        Raises:
            ImportError: If a package is missing that reads the form.
            ValueError: If a file is damaged; the message names it, and the line.
        """
        rows = texts_of(self.paths, self.source, self.target)
        yield from ((source, target) for source, target in rows)


def texts_of(paths: Iterable[Path], *names: str) -> Iterator[list[str]]:
    """Yields the texts that each row has in some columns.

    Args:
        paths: Files of JSON lines or of Parquet.
        *names: Names of columns.

    Raises:
        ImportError, ValueError: As of `Rows.pairs`.
    """
    for path in paths:
        read = _parquet_values if path.suffix == ".parquet" else _json_values
        for row in read(path, names):
            yield [without_line_ends(text or "") for text in row]


def columns_of(path: Path) -> list[str]:
    """Returns the names of the columns of texts, those of the first row of JSON lines.

    Args:
        path: A file of JSON lines or of Parquet.

    Raises:
        ImportError, ValueError: As of `Rows.pairs`.
    """
    if path.suffix == ".parquet":
        schema = open_parquet(path).schema_arrow
        return text_columns(_sides(schema) or schema)
    first = next((row for _, row in _json_rows(path)), {})
    return [name for name, text in first.items() if isinstance(text, str)]


# JSON lines and CSV.


def _json_values(path: Path, names: Sequence[str]) -> Iterator[list[str | None]]:
    for number, row in _json_rows(path):
        for name in names:
            if name not in row:
                raise ValueError(
                    f"Line {number:,} of {path} has no {name!r}. It has {[*row]}."
                )
            value = row[name]
            is_text = isinstance(value, str) and not re.search("[\ud800-\udfff]", value)
            if value is not None and not is_text:
                raise ValueError(
                    f"Line {number:,} of {path}: {name!r} must be text. Received: "
                    f"{value!r:.60}"
                )
        yield [row[name] for name in names]


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the object of each line that is not blank, and the line's number."""
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "it goes too deep")
            raise ValueError(
                f"Line {number:,} of {path} is no JSON: {reason}."
            ) from error
        if not isinstance(row, dict):
            raise ValueError(
                f'Line {number:,} of {path} must be an object, as {{"en": "a dog", '
                f'"de": "ein Hund"}}. Received: {line:.60}'
            )
        yield number, row[_NESTED] if isinstance(row.get(_NESTED), dict) else row


def read_csv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yields the rows of a CSV file, and the number of the line that each begins in.

    Args:
        path: The file, plain or gzip. What parts its cells is a comma, a semicolon as
            spreadsheets of some languages write it, or a tab: what line 1 has most of.

    Yields:
        The number and the cells; of a blank line one empty cell.

    Raises:
        ValueError: If the file is damaged; the message names it, and the line.
    """
    lines = (f"{line}\n" for line in read_lines(path))
    first = [*itertools.islice(lines, 1)]
    parts = max(",;\t", key="".join(first).count)
    rows = csv.reader(itertools.chain(first, lines), delimiter=parts, strict=True)
    number = 1
    try:
        for row in rows:
            yield number, [without_line_ends(cell) for cell in row] or [""]
            number = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path} is damaged: the row of line {number:,}: {error}. A quotation mark "
            'within a quoted cell is written twice: "a ""quoted"" word".'
        ) from error


# Parquet.


def is_parquet(path: str | Path) -> bool:
    """Tells by its name whether a path is a Parquet file, or a folder of them.

    Args:
        path: The path.

    Example:
        >>> from keras_luong.text.rows import is_parquet
        >>> is_parquet("my/news.parquet"), is_parquet("in.en")
        (True, False)
    """
    path = Path(path)
    return path.suffix == ".parquet" or (path.is_dir() and any(parquet_within(path)))


def parquet_files(path: Path) -> list[Path]:
    """Returns the Parquet files at a path, in the order of their names.

    Args:
        path: A file, or a folder; see `parquet_within`.

    Raises:
        ValueError: If a folder has none.
    """
    files = sorted(parquet_within(path)) if path.is_dir() else [path]
    if not files:
        raise ValueError(f"{path} holds no Parquet files (*.parquet)")
    return files


def parquet_within(folder: Path) -> Iterator[Path]:
    """Yields the Parquet files of a folder, without what their writers hide.

    Args:
        folder: The folder. Left out is what begins with "." or "_", as Spark does it,
            but not partitions such as "_day=1".
    """
    for path in folder.rglob("*.parquet"):
        hidden = (
            name.startswith(".") or (name.startswith("_") and "=" not in name)
            for name in path.relative_to(folder).parts
        )
        if path.is_file() and not any(hidden):
            yield path


def open_parquet(file: Path) -> Any:
    """Opens a Parquet file.

    Args:
        file: The file.

    Returns:
        A `pyarrow.parquet.ParquetFile`.

    Raises:
        ImportError: If pyarrow is missing.
        ValueError: If it is not Parquet, or damaged.
    """
    parquet = needed("pyarrow.parquet", "Parquet needs pyarrow", "parquet")
    import pyarrow as pa

    try:
        return parquet.ParquetFile(file)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        said = one_line(str(error))
        raise ValueError(f"{file} is not Parquet, or damaged: {said}") from error


def text_columns(fields: Iterable[Any]) -> list[str]:
    """Returns the names of the fields of strings.

    Args:
        fields: A schema or a struct of Arrow.
    """
    import pyarrow.types as types

    kinds = {  # by name; of a dictionary's values
        field.name: field.type.value_type
        if types.is_dictionary(field.type)
        else field.type
        for field in fields
    }
    is_text = (types.is_string, types.is_large_string, types.is_string_view)
    return [name for name, kind in kinds.items() if any(x(kind) for x in is_text)]


def _sides(schema: Any) -> Any:
    """The struct that holds both sides; None if they are columns."""
    import pyarrow.types as types

    nested = schema.field(_NESTED).type if _NESTED in schema.names else None
    return nested if nested is not None and types.is_struct(nested) else None


def _parquet_values(path: Path, names: Sequence[str]) -> Iterator[list[str | None]]:
    file, number = open_parquet(path), 0
    import pyarrow as pa

    nested = _sides(file.schema_arrow)
    there = text_columns(nested or file.schema_arrow)
    if missing := [name for name in names if name not in there]:
        raise ValueError(
            f"{path} has no column of strings {missing[0]!r}. It has {there}."
        )
    columns = [f"{_NESTED}.{x}" for x in names] if nested else [*names]
    try:
        for batch in file.iter_batches(_AT_ONCE, columns=columns):
            for row in batch.to_pylist():
                row = row[_NESTED] or {} if nested else row
                yield [row.get(name) for name in names]
            number += len(batch)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{path} is damaged after row {number:,}: {one_line(str(error))}."
        ) from error
