"""Where the pairs of a split lie: in two files side by side, or in one table."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from keras_luong.files import read_lines, read_raw_lines


class TwoFiles(NamedTuple):
    """A file of sentences, and a file of their translations, line by line.

    Attributes:
        source: The file of sentences.
        target: The file of translations.
    """

    source: Path
    target: Path

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that must be there."""
        return tuple(self)

    @property
    def sides(self) -> tuple[str, str]:
        """What to call the two sides."""
        return str(self.source), str(self.target)

    def checked(self) -> Iterator[tuple[str | None, str | None]]:
        """Yields the pairs; None where one of the files has no more lines.

        Raises:
            ValueError: A file can't be read; the message names it and the line.
        """
        return itertools.zip_longest(read_lines(self.source), read_lines(self.target))

    def raw(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the pairs of files that are known to be right."""
        lines = read_raw_lines(self.source), read_raw_lines(self.target)
        return zip(*lines, strict=True)


class Table(NamedTuple):
    r"""A file of tab-separated columns, of which one is the source and one the target.

    A tab parts two columns and a line end two pairs, always: quotation marks and
    backslashes are letters as others are. An empty line is a pair of empty sentences.

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

    def checked(self) -> Iterator[tuple[str | None, str | None]]:
        """Yields the pairs.

        Raises:
            ValueError: The file can't be read, or a line has too few columns, or more
                than the first one; the message names the file and the line.
        """
        most = 0
        for number, line in enumerate(read_lines(self.path), 1):
            columns = line.count("\t") + 1
            most = most or columns
            if line and not max(self.source, self.target) < columns <= most:
                raise ValueError(self._bad_line(number, columns, most))
            if number > self.has_header:
                cells = line.split("\t") if line else [""] * most
                yield cells[self.source], cells[self.target]

    def _bad_line(self, number: int, columns: int, most: int) -> str:
        if columns > most:
            return (
                f"Line {number} of {self.path} has {columns} columns and the first one "
                f"has {most}: there is a tab too many in it."
            )
        needed = max(self.source, self.target) + 1
        return (
            f"Line {number} of {self.path} has {columns} column{'s' * (columns > 1)} "
            f"and needs {needed}, with a tab between two of them."
        )

    def raw(self) -> Iterator[tuple[bytes, bytes]]:
        """Yields the pairs of a file that is known to be right."""
        lines = read_raw_lines(self.path)
        for line in itertools.islice(lines, int(self.has_header), None):
            cells = line.split(b"\t")
            yield (cells[self.source], cells[self.target]) if line else (b"", b"")


PairFiles: TypeAlias = TwoFiles | Table
