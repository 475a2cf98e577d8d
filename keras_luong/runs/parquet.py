"""Texts in Parquet: a column of a file, or of the files of a folder.

What is made of the texts is written as further columns of the same rows, in files of
the same names. It needs pyarrow.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from keras_luong.files import saved_beside, saved_directory_beside
from keras_luong.runs.survey import CHANGED
from keras_luong.text.corpus import new_digest

_AT_ONCE = 8192  # rows


def is_parquet(path: str | Path) -> bool:
    """Tells by its name whether a path is a Parquet file, or a folder of them.

    Args:
        path: The path.

    Example:
        >>> from keras_luong.runs.parquet import is_parquet
        >>> is_parquet("my/news.parquet"), is_parquet("in.en")
        (True, False)
    """
    path = Path(path)
    return path.suffix == ".parquet" or (path.is_dir() and any(_within(path)))


def _within(folder: Path) -> Iterator[Path]:
    """The Parquet files of a folder, without what their writers hide."""
    for path in folder.rglob("*.parquet"):
        if path.is_file() and not any(map(_is_hidden, path.relative_to(folder).parts)):
            yield path


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


class ParquetTexts:
    """The texts of a Parquet file, or of a folder of them.

    Args:
        path: The file; or the folder, whose files are read in the order of their
            names. As Spark does, it leaves out what begins with "." or "_", but not
            partitions such as "_day=1".
        column: Name of the column of texts; by default the only one of strings.

    Raises:
        ImportError: If pyarrow is missing.
        ValueError: If it is not Parquet, or has no such column.
    """

    def __init__(self, path: str | Path, column: str | None = None):
        self.path = Path(path)
        self.files = sorted(_within(self.path)) if self.path.is_dir() else [self.path]
        if not self.files:
            raise ValueError(f"{self.path} holds no Parquet files (*.parquet)")
        self.column = column or ""
        for file in self.files:
            self.column = _column(file, _open(file).schema_arrow, column)
            column = self.column  # the same one in all files

    def lines(self) -> Iterator[bytes]:
        """Yields each text as a line: its line ends become spaces; none is empty."""
        for file in self.files:
            for rows in _open(file).iter_batches(_AT_ONCE, columns=[self.column]):
                yield from map(_line, rows.column(0).to_pylist())

    def check_new_columns(self, names: list[str]) -> None:
        """Raises ValueError if there are columns of these names already.

        Args:
            names: Names of columns to be.
        """
        for file in self.files:
            if there := set(names) & set(_open(file).schema_arrow.names):
                raise ValueError(
                    f"{file} has a column {sorted(there)[0]!r} already, which is to "
                    "be written: rename it first"
                )

    def write(
        self,
        output: Path,
        values: Iterator[tuple[Any, ...]],
        types: Mapping[str, str],
        digest: str,
    ) -> None:
        """Writes all rows with further columns.

        Args:
            output: A file, or a new folder, as the texts are in.
            values: For each text, the value of each of those columns. Where there is
                no text there is none of them.
            types: Name of a column → name of its type in Arrow.
            digest: That of the survey of the texts that the values are of.

        Raises:
            OSError: If the texts are others now, in which case nothing is written.
        """
        now = new_digest()
        saved = saved_directory_beside if self.path.is_dir() else saved_beside
        with saved(output) as beside:
            for file in self.files:
                target = beside / file.relative_to(self.path)  # "." of the only file
                target.parent.mkdir(parents=True, exist_ok=True)
                self._write_file(file, target, values, types, now)
            if now.hexdigest() != digest or next(values, None) is not None:
                raise OSError(CHANGED)

    def is_written(self, output: Path, names: list[str]) -> bool:
        """Tells whether there are all files, rows and columns that `write` makes.

        Args:
            output: The folder that was to be written.
            names: Names of the further columns.
        """
        made = {path.relative_to(output): path for path in _within(output)}
        ours = {path.relative_to(self.path): path for path in self.files}
        return made.keys() == ours.keys() and all(
            _shape(made[name]) == _shape(path, names) for name, path in ours.items()
        )

    def _write_file(
        self,
        file: Path,
        target: Path,
        values: Iterator[tuple[Any, ...]],
        types: Mapping[str, str],
        digest: hashlib.blake2b,
    ) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        rows = _open(file)
        schema = rows.schema_arrow
        for name, kind in types.items():
            schema = schema.append(pa.field(name, pa.type_for_alias(kind)))
        with parquet.ParquetWriter(target, schema) as writer:
            for batch in rows.iter_batches(_AT_ONCE):
                texts = batch.column(self.column).to_pylist()
                digest.update(b"".join(_line(text) + b"\n" for text in texts))
                rows_of_values = [
                    (None,) * len(types) if text is None else row
                    for text, row in zip(texts, values, strict=False)
                ]
                if len(rows_of_values) < len(texts):
                    raise OSError(CHANGED)
                made = [
                    pa.array(
                        [row[i] for row in rows_of_values], pa.type_for_alias(kind)
                    )
                    for i, kind in enumerate(types.values())
                ]
                columns = [*batch.columns, *made]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def check_pyarrow() -> None:
    """Raises ImportError that says what to install if pyarrow is missing.

    Raises:
        ImportError: If it is missing.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "Parquet needs pyarrow, which is not installed. Install the extra that "
            "has it: pip install 'keras_luong[ray]'"
        ) from error


def _open(file: Path) -> Any:
    check_pyarrow()
    import pyarrow as pa
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file} is not Parquet, or damaged: {error}") from error


def _line(text: str | None) -> bytes:
    return re.sub(r"[\r\n]+", " ", text or "").encode()


def _shape(file: Path, further: Sequence[str] = ()) -> tuple[int, list[str]]:
    """The number of rows, and the names of the columns with further ones."""
    rows = _open(file)
    return rows.metadata.num_rows, [*rows.schema_arrow.names, *further]


def _column(file: Path, schema: Any, asked: str | None) -> str:
    """The name of the column of texts."""
    texts = [field.name for field in schema if _is_text(field.type)]
    if asked is not None:
        if asked not in texts:
            raise ValueError(
                f"{file} has no column of strings {asked!r}; it has {texts}"
            )
        return asked
    if len(texts) != 1:
        raise ValueError(
            f"{file} must have one column of strings, or --column must name one. "
            f"Received: {texts}"
        )
    return str(texts[0])


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        test(kind)
        for test in (types.is_string, types.is_large_string, types.is_string_view)
    )
