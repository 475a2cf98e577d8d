"""Work on a file in parts that outlive a killed process.

A text is cut into shards of so many lines, in a folder beside the output:

```
plan.json      what the work is: another one is refused; and the folder's own id
000012.in      the lines of shard 12, until it is done
000012.with    what goes with each of its lines, if anything does
000012.out     what was made of them
000012.json    what is to be told of it; it is there when the shard is done
000012.tries   a byte for each time that a worker began with it
```

Each file is written beside and then renamed, so that what is there is complete. A text
that is read more than once, hours apart, must be the same each time: see `survey`.

`ParquetTexts` are texts in Parquet: a column of a file, or of the files of a folder.
What is made of them is written as further columns of the same rows, in files of the
same names. It needs pyarrow.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from keras_luong.files import (
    TEMPORARY,
    is_utf8,
    name_beside,
    remove,
    saved_beside,
    saved_directory_beside,
    write_json,
)
from keras_luong.runs.run import (
    RunDirectory,
    file_digest,
    read_json,
    remove_half_written,
)
from keras_luong.text.corpus import new_digest
from keras_luong.text.rows import (
    open_parquet,
    parquet_files,
    parquet_within,
    text_columns,
)

MOST = 20_000  # shards: more files in a folder are slow to list
TRIES = 5  # of a worker that dies of a shard
_AT_ONCE = 8192  # rows of Parquet
#: What is said of text that is another one when it is read again.
CHANGED = (
    "The text is another one than when it was read first: it was changed meanwhile, or "
    "can be read only once, as a pipe can"
)


def shard_size(lines: int, window: int) -> int:
    """Returns the number of lines of a shard.

    It is a multiple of the window that is sorted by length, so that each batch is of
    the same lines as if the text were translated as a whole. A shard is one window,
    or more of a text that would have too many shards.

    Args:
        lines: The number of lines of the text.
        window: The number of lines that are sorted by length.

    Example:
        >>> from keras_luong.runs.shards import shard_size
        >>> shard_size(100_000, 1024), shard_size(1_000_000_000, 1024)
        (1024, 50176)
    """
    windows = -(-lines // window)
    return window * max(1, -(-windows // MOST))


def run_digest(run_dir: str | Path) -> str:
    """Returns what tells a run's translations from those of any other.

    Args:
        run_dir: A run directory; its record, tokenizers and best weights count.

    Example:
        >>> from keras_luong.runs.shards import run_digest
        >>> run_digest("runs/mine") == run_digest("runs/mine")
        True
    """
    run = RunDirectory(run_dir)
    files = [run.record, *sorted(run.tokenizer.iterdir()), run.best_weights]
    return hashlib.blake2b(
        "".join(f"{path.name} {file_digest(path)}\n" for path in files).encode(),
        digest_size=16,
    ).hexdigest()


class Survey(NamedTuple):
    """A fingerprint of a text: its number of lines, and their digest.

    Attributes:
        lines: The number of its lines.
        digest: Hexadecimal digits that are others for another text.
        damaged: The number of lines that are not UTF-8.
    """

    lines: int
    digest: str
    damaged: int


def survey(lines: Iterable[bytes]) -> Survey:
    """Reads a text once.

    Args:
        lines: What `read_raw_lines` yields.

    Example:
        >>> from keras_luong.runs.shards import survey
        >>> survey([b"a dog", b"a cat"]).lines
        2
    """
    number, damaged, digest = 0, 0, new_digest()
    for line in lines:
        number += 1
        damaged += not is_utf8(line)
        digest.update(line + b"\n")
    return Survey(number, digest.hexdigest(), damaged)


def unchanged(lines: Iterable[bytes], digest: str) -> Iterator[bytes]:
    """Yields the lines of a text that was read before.

    What is made of them counts only once the last one is taken.

    Args:
        lines: The lines.
        digest: The digest of its survey.

    Raises:
        OSError: If it is another text, at its end.

    Example:
        >>> from keras_luong.runs.shards import survey, unchanged
        >>> list(unchanged([b"a dog"], survey([b"a dog"]).digest))
        [b'a dog']
    """
    now = new_digest()
    for line in lines:
        now.update(line + b"\n")
        yield line
    if now.hexdigest() != digest:
        raise OSError(CHANGED)


class Shards:
    """The shards of a text, in a folder.

    Args:
        folder: The folder, which need not exist yet.
        lines: The number of lines of the text.
        size: The number of lines of a shard, but of the last one.
        id: What tells the folder from a later one of the same name; `begun` sets it.

    Example:
        >>> from keras_luong.runs.shards import Shards
        >>> shards = Shards("out.de.parts", lines=5, size=2)
        >>> shards.numbers, shards.length(0), shards.length(2)
        (range(0, 3), 2, 1)
    """

    def __init__(self, folder: str | Path, lines: int, size: int, id: str = ""):
        self.folder, self.lines, self.size, self.id = Path(folder), lines, size, id

    @property
    def numbers(self) -> range:
        """The number of each shard, in order."""
        return range(-(-self.lines // self.size))

    def length(self, number: int) -> int:
        """Returns the number of lines of a shard."""
        return min(self.size, self.lines - number * self.size)

    def path(self, number: int, suffix: str) -> Path:
        """Returns the name of a shard's file."""
        return self.folder / f"{number:06d}.{suffix}"

    def is_done(self, number: int) -> bool:
        """Tells whether a shard is done."""
        return self.path(number, "json").exists()

    @contextlib.contextmanager
    def begun(self, plan: Mapping[str, Any]) -> Iterator[list[int]]:
        """Makes the folder, or goes on in it, and keeps other processes out.

        Args:
            plan: All that the output depends on, as JSON can hold it.

        Yields:
            The numbers of the shards that are not done.

        Raises:
            OSError: If another process works in the folder.
            ValueError: If the folder was begun with another plan; it names what
                differs, and what to do.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:  # the operating system frees the lock when the process ends
            lock = filelock.FileLock(self.folder / ".lock").acquire(blocking=False)
        except filelock.Timeout:
            raise OSError(
                f"Another process works in {self.folder}: wait for its end, or give "
                "another output"
            ) from None
        with lock:
            remove_half_written(self.folder)  # or rather half removed
            self._agree(json.loads(json.dumps(plan)))
            for leftover in self.folder.glob(TEMPORARY):
                remove(leftover)
            done = {path.name for path in self.folder.glob("*.json")}
            todo = [x for x in self.numbers if self.path(x, "json").name not in done]
            for number in todo:
                self.path(number, "tries").unlink(missing_ok=True)
            yield todo

    def _agree(self, plan: dict[str, Any]) -> None:
        """Takes over a folder of the same plan, or gives a new folder an id."""
        path = self.folder / "plan.json"
        if not path.exists():
            for shard in self.folder.glob(
                "0*.*"
            ):  # of a worker that outlived its command
                remove(shard)
            self.id = uuid.uuid4().hex
            write_json(path, {**plan, "id": self.id})
            return
        before = read_json(path)
        self.id = str(before.pop("id", ""))
        names = sorted({*before, *plan})
        if differing := [x for x in names if before.get(x) != plan.get(x)]:
            raise ValueError(
                f"{self.folder} holds the parts of other work, which differs in "
                f"{', '.join(differing)}. Repeat the former command to go on with it, "
                f"or begin anew: rm -r {shlex.quote(str(self.folder))}"
            )

    def cut(self, todo: Iterable[int], **sides: Iterable[bytes]) -> None:
        """Writes the lines of the shards that are not done, where they are missing.

        Args:
            todo: The numbers of those shards.
            **sides: Suffix → as many lines as the text has. Where any are needed all
                are taken, and if taking one raises an error, nothing is cut: see
                `keras_luong.runs.shards.unchanged`.

        Raises:
            OSError: If a side has fewer lines, or more: it has changed since it was
                counted, or can be read only once.
        """
        wanted = {
            number
            for number in todo
            if not all(self.path(number, suffix).exists() for suffix in sides)
        }
        if not wanted:
            return
        rest = {suffix: iter(lines) for suffix, lines in sides.items()}
        for number in self.numbers:
            for suffix, lines in rest.items():
                some = _exactly(self.length(number), lines)
                if number in wanted:
                    _write(self._not_yet(number, suffix), some)
                else:
                    for _ in some:
                        pass
        if any(next(lines, None) is not None for lines in rest.values()):
            raise OSError(CHANGED)
        for number in wanted:
            for suffix in sides:
                self._not_yet(number, suffix).replace(self.path(number, suffix))

    def _not_yet(self, number: int, suffix: str) -> Path:
        """The hidden name of a shard's lines until all are cut; `begun` removes it."""
        return self.folder / f".{self.path(number, suffix).name}"

    def begin(self, number: int) -> None:
        """Notes that a worker begins with a shard.

        Args:
            number: The shard.

        Raises:
            OSError: If workers have died of it too often, or the folder is not that
                which the worker was sent to.
        """
        self._check_id()
        with open(self.path(number, "tries"), "ab") as file:
            file.write(b"1")
            if file.tell() > TRIES:
                first = number * self.size + 1
                raise OSError(
                    f"{TRIES} workers have died of the lines from {first:,} on, in "
                    f"{self.path(number, 'in')}: it may be memory, of which each "
                    "needs about 1 GB"
                )

    def read(self, number: int, suffix: str) -> Iterator[bytes]:
        """Yields the lines of a shard's file, whatever bytes they are.

        Args:
            number: The shard.
            suffix: Which of its files.
        """
        with open(self.path(number, suffix), "rb") as file:
            for line in file:
                yield line[:-1]

    def finish(
        self, number: int, lines: Iterable[bytes], told: Mapping[str, Any]
    ) -> None:
        """Writes what was made of a shard, which is then done.

        Args:
            number: The shard.
            lines: What was made, any number of lines. `told` may still change until
                the last one is taken.
            told: What is to be told, as JSON can hold it.

        Raises:
            OSError: If the folder is not that which the worker was sent to.
        """

        def while_ours() -> Iterator[bytes]:
            yield from lines
            self._check_id()  # the folder may have become another one meanwhile

        _write(self.path(number, "out"), while_ours())
        write_json(self.path(number, "json"), told)
        for suffix in ("in", "constraints", "prefixes", "tries"):
            self.path(number, suffix).unlink(missing_ok=True)

    def _check_id(self) -> None:
        """Raises OSError for a worker that has outlived its command and the folder."""
        path = self.folder / "plan.json"
        if self.id != (read_json(path).get("id", "") if path.exists() else ""):
            raise OSError(f"{self.folder} is of other work now, which began anew")

    def told(self) -> Iterator[dict[str, Any]]:
        """Yields what is to be told of each shard, in order."""
        for number in self.numbers:
            yield read_json(self.path(number, "json"))

    def results(self) -> Iterator[bytes]:
        """Yields the lines that were made of all shards, in order."""
        for number in self.numbers:
            yield from self.read(number, "out")

    def remove(self) -> None:
        """Removes the folder: at once, as a part of it would look like work to do."""
        if self.folder.exists():
            remove(self.folder.rename(name_beside(self.folder)))


def _exactly(number: int, lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yields `number` lines; raises OSError if there are fewer."""
    for _ in range(number):
        if (line := next(lines, None)) is None:
            raise OSError(CHANGED)
        yield line


def _write(path: Path, lines: Iterable[bytes]) -> None:
    with saved_beside(path) as beside, beside.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)


class ParquetTexts:
    """The texts of a Parquet file, or of a folder of them.

    Args:
        path: The file; or the folder, whose files are read in the order of their
            names: see `keras_luong.text.rows.parquet_within`.
        column: Name of the column of texts; by default the only one of strings.

    Raises:
        ImportError: If pyarrow is missing.
        ValueError: If it is not Parquet, or has no such column.
    """

    def __init__(self, path: str | Path, column: str | None = None):
        self.path = Path(path)
        self.files = parquet_files(self.path)
        self.column = column or ""
        for file in self.files:
            self.column = _column(file, open_parquet(file).schema_arrow, column)
            column = self.column  # the same one in all files

    def lines(self) -> Iterator[bytes]:
        """Yields each text as a line: its line ends become spaces; none is empty."""
        for file in self.files:
            for rows in open_parquet(file).iter_batches(
                _AT_ONCE, columns=[self.column]
            ):
                yield from map(_line, rows.column(0).to_pylist())

    def check_new_columns(self, names: list[str]) -> None:
        """Raises ValueError if there are columns of these names already.

        Args:
            names: Names of columns to be.
        """
        for file in self.files:
            if there := set(names) & set(open_parquet(file).schema_arrow.names):
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
        made = {path.relative_to(output): path for path in parquet_within(output)}
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

        rows = open_parquet(file)
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
                columns = list(batch.columns)
                for i, kind in enumerate(types.values()):
                    column = [row[i] for row in rows_of_values]
                    columns.append(pa.array(column, pa.type_for_alias(kind)))
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))


def _line(text: str | None) -> bytes:
    return re.sub(r"[\r\n]+", " ", text or "").encode()


def _shape(file: Path, further: Sequence[str] = ()) -> tuple[int, list[str]]:
    """The number of rows, and the names of the columns with further ones."""
    rows = open_parquet(file)
    return rows.metadata.num_rows, [*rows.schema_arrow.names, *further]


def _column(file: Path, schema: Any, asked: str | None) -> str:
    """The name of the column of texts."""
    texts = text_columns(schema)
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
