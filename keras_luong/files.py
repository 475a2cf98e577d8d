"""The one way to read lines, and the one way to write a file or a directory.

What is written is written beside its target and then renamed, so that nobody ever sees
half of it, not even after the power has failed.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import gzip
import io
import itertools
import json
import math
import os
import re
import shutil
import unicodedata
import uuid
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

GZIP = b"\x1f\x8b"  # how it begins, and no UTF-8 can
WIDE_MARKS = {  # UTF-16's are how UTF-32's begin
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
TEMPORARY = ".[0-9]*.*"  # the names of what is still being written
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1b"})  # of which text has few
_SIGHT = 8192  # bytes, to tell what is no text


def read_lines(file: str | Path | IO[bytes]) -> Iterator[str]:
    r"""Yields the lines of a text file, which may be larger than memory.

    The text is UTF-8, plain or gzip. A line ends with "\n" or "\r\n" and with nothing
    else, so that no sentence is cut in two; the last one may lack its end. A byte order
    mark at the start is dropped.

    A "\r" within a line is kept. But where there is no "\n" at all, or a single one at
    the end and more than one "\r", the file is refused: its lines seem to end with
    "\r" alone, as on old Macs.

    Args:
        file: A path, or a stream of bytes such as `sys.stdin.buffer`. It is gzip if it
            begins like gzip, or if its name ends in `.gz`.

    Yields:
        The lines without their ends.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not UTF-8, or damaged gzip, in which case the message names
            the file and the line, counted from 1; if its lines seem to end with "\r"
            alone; or as of `read_raw_lines`.

    Example:
        >>> from keras_luong.files import read_lines
        >>> for line in read_lines("my/corpus/validation.en"):
        ...     print(line)
        the dog is red
        the cat
    """
    for number, line in enumerate(read_raw_lines(file), 1):
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{_name(file)} is not UTF-8: line {number} has the byte "
                f"{error.object[error.start]:#04x} ({error.reason}). Text of a Western "
                "European language is often Windows-1252: iconv -f WINDOWS-1252 "
                "-t UTF-8 old.txt > new.txt"
            ) from error


def read_raw_lines(file: str | Path | IO[bytes]) -> Iterator[bytes]:
    """Yields the lines of a file as bytes, for text that need not be UTF-8.

    Args:
        file: A path or a stream, as `read_lines` takes.

    Yields:
        The lines without their ends, and without a byte order mark.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged gzip, in which case the message names the file and
            the line; if it is gzip within gzip, UTF-16 or UTF-32, or no text at all;
            or if its lines seem to end with carriage returns alone.

    Example:
        >>> from keras_luong.files import read_raw_lines
        >>> list(read_raw_lines("my/corpus/test.de"))
        [b'der ist der Hund']
    """
    number, name = 0, _name(file)
    try:
        with opened(file) as stream:
            for number, line in enumerate(_checked(name, stream), 1):
                text = line.rstrip(b"\r\n")
                if number == 1:
                    text = text.removeprefix(codecs.BOM_UTF8)
                if text or line.endswith(b"\n"):
                    yield text
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        damage = f"its content is wrong ({error})"
        if isinstance(error, EOFError):
            damage = "the file ends too early"
        elif "Not a gzipped file" in str(error):  # as its beginning is
            damage = "there are other bytes behind the gzip"
        raise ValueError(
            f"{name} is damaged gzip: after line {number} {damage}."
        ) from error


def _checked(name: str, stream: IO[bytes]) -> Iterable[bytes]:
    """The lines of a stream that begins like text in UTF-8 of several lines."""
    # 1. What is no text has more control characters; NULs are parts of wider letters.
    start: bytes = stream.peek(_SIGHT)[:_SIGHT]  # type: ignore[attr-defined]
    encoding = _wide_encoding(start[: start.find(b"\n") + 1 or None])
    if encoding is None:
        odd = len(start) - len(start.translate(None, _CONTROLS))
    else:
        text = start.decode(encoding, "replace").lstrip("\ufeff")
        odd = sum(
            unicodedata.category(x) in ("Cc", "Cn", "Co") and x not in "\t\r\n"
            for x in text
        )
    if odd >= 8 and 100 * odd > len(start):
        raise ValueError(
            f"{name} is no text: its first {len(start):,} bytes have too many control "
            "characters. Give a file of lines in UTF-8, plain or gzip."
        )
    # 2. UTF-16 and UTF-32.
    begin = [stream.readline()]
    if encoding := _wide_encoding(begin[0]):
        raise ValueError(
            f"{name} is {encoding}, and not UTF-8. Convert it first: "
            f"iconv -f {encoding} -t UTF-8 old.txt > new.txt"
        )
    # 3. Lines that end with carriage returns alone. Only then the second line is read:
    # whoever types lines waits for the answer to the first one.
    returns = begin[0].count(b"\r")
    within = b"\r" in begin[0].rstrip(b"\r\n")
    if within and (returns > 1 or not begin[0].endswith(b"\n")):
        begin.append(stream.readline())
        if not begin[1]:
            raise ValueError(
                f"{name} is one line with carriage returns within: its lines seem to "
                "end with them alone. Convert it first: "
                "tr '\\r' '\\n' < old.txt > new.txt"
            )
    return itertools.chain(filter(None, begin), stream)


def _wide_encoding(line: bytes) -> str | None:
    """The encoding of a text that begins with this line, if its letters are wider.

    Without a mark at the start it is told by NULs, which are in half of the bytes of
    UTF-32; in UTF-16, of Latin letters and spaces, they are at every other place.
    """
    for mark, name in WIDE_MARKS.items():
        if line.startswith(mark):
            return name
    if line.startswith(codecs.BOM_UTF8) or not line.strip(b"\0\r\n"):
        return None
    even, odd = line[::2].count(0), line[1::2].count(0)
    few, many = sorted([even, odd])
    order = "BE" if even > odd else "LE"
    if many < 2 or 16 * many < len(line):
        return None
    if 8 * few <= many:
        return f"UTF-16{order}"
    return f"UTF-32{order}" if 2 * (few + many) >= len(line) - 1 else None


def _name(file: str | Path | IO[bytes]) -> str:
    if isinstance(file, (str, Path)):
        return str(file)
    return str(getattr(file, "name", "The input"))


def is_utf8(line: bytes) -> bool:
    """Whether a line can be read as it is; else parts of it become U+FFFD.

    Args:
        line: What `read_raw_lines` yields.
    """
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def count_lines(path: str | Path) -> int:
    """Returns the number of lines that `read_raw_lines` yields."""
    return sum(1 for _ in read_raw_lines(path))


def read_pairs(
    source: str | Path | IO[bytes], target: str | Path | IO[bytes]
) -> tuple[list[str], list[str]]:
    """Reads a file of sentences and the file of their translations.

    Args:
        source: What `read_lines` reads.
        target: The same, its line n a translation of the source's line n.

    Returns:
        The lines of both, equally many.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If one can't be read, or they differ in their number of lines.

    Example:
        >>> from keras_luong.files import read_pairs
        >>> read_pairs("my/corpus/test.en", "my/corpus/test.de")
        (['the cat is the dog'], ['der ist der Hund'])
    """
    sources, targets = list(read_lines(source)), list(read_lines(target))
    check_as_many_lines(source, len(sources), target, len(targets))
    return sources, targets


def check_as_many_lines(source: Any, sources: int, target: Any, targets: int) -> None:
    """Raises ValueError unless two files that translate each other are equally long.

    Args:
        source: The file of sentences.
        sources: Its number of lines.
        target: The file of translations.
        targets: Its number of lines.
    """
    (fewer, short), (more, long) = sorted(
        [(sources, str(source)), (targets, str(target))]
    )
    if fewer != more:
        raise ValueError(
            f"{long} has {more} lines and {short} has {fewer}: line {fewer + 1} of "
            f"{long} has no translation. Line n of one file must translate line n of "
            "the other."
        )


@contextlib.contextmanager
def opened(file: str | Path | IO[bytes]) -> Iterator[IO[bytes]]:
    """Opens a file's bytes, unpacked if it is gzip; a stream stays open afterwards.

    Args:
        file: What `read_lines` takes.

    Raises:
        ValueError: If it is gzip within gzip, or none though its name ends in `.gz`.
    """
    with contextlib.ExitStack() as stack:
        if isinstance(file, (str, Path)):
            stream = stack.enter_context(open(file, "rb"))
        elif isinstance(file, io.BufferedReader):
            stream = file
        else:
            stream = io.BufferedReader(cast(io.RawIOBase, file))
            stack.callback(stream.detach)  # else it would close the file with itself
        is_gzip = stream.peek(2).startswith(GZIP)
        if not is_gzip and not str(file).endswith(".gz"):
            yield stream
            return
        if stream.peek(2) and not is_gzip:
            raise ValueError(f"{_name(file)} is not gzip, though its name ends in .gz.")
        unpacked = gzip.GzipFile(fileobj=stream)
        if unpacked.peek(2).startswith(GZIP):
            raise ValueError(f"{_name(file)} is gzip within gzip: unpack it once.")
        yield cast(IO[bytes], unpacked)


def one_line(text: str) -> str:
    """Returns a text without line ends, for whatever program reads it.

    Args:
        text: Any text; its line ends, U+2028 and its like too, become spaces.
    """
    return " ".join(text.splitlines())


def without_line_ends(text: str) -> str:
    r"""Returns a text as a line that `read_lines` reads: U+2028 and its like are kept.

    Args:
        text: Any text; its "\n" and "\r", with blanks around them, become a space.
    """
    if "\n" not in text and "\r" not in text:
        return text
    return " ".join(x.strip(" \t") for x in re.split("[\r\n]+", text))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    r"""Writes lines of text, each ended by "\n".

    Args:
        path: The file; its directory is made if there is none.
        lines: The lines, which may be more than memory holds. If taking one raises an
            error, the file stays as it was.

    Example:
        >>> from keras_luong.files import write_lines
        >>> write_lines("out.en", (line.lower() for line in ["A dog", "A cat"]))
    """
    with saved_beside(path) as beside:
        with beside.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{line}\n" for line in lines)


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file, so that a reader sees all of it or the file as it was.

    Args:
        path: The file; its directory is made if there is none.
        text: All of the file, written as UTF-8.
    """
    with saved_beside(path) as beside:
        beside.write_bytes(text.encode())


def write_json(path: str | Path, content: Any) -> None:
    """Writes a JSON file, so that a reader sees all of it or the file as it was.

    Args:
        path: The file; its directory is made if there is none.
        content: What `json` can write, without NaN or infinities (see `json_number`).

    Raises:
        ValueError: If `content` holds NaN or an infinity.
        TypeError: If it holds what JSON can't.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def json_number(value: float) -> float | None:
    """Returns a number as JSON can hold it: None stands for NaN and infinities.

    Args:
        value: What `float` takes.
    """
    value = float(value)
    return value if math.isfinite(value) else None


class DiskError(OSError):
    """The disk is full, or takes no file that large; the message names the file."""


@contextlib.contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Names a file in the error that its disk is full, whatever library wrote to it.

    Args:
        path: What is written within.

    Raises:
        DiskError: The disk is full.
    """
    try:
        yield
    except Exception as error:
        reason = disk_is_full(error)
        if reason is None or isinstance(error, DiskError):
            raise
        raise DiskError(f"{path} cannot be written: {reason}.") from error


def disk_is_full(error: BaseException) -> str | None:
    """Returns what the operating system says of a full disk if an error is about one.

    Python's own errors have a number for it; HDF5's and TensorFlow's only quote it.
    """
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = os.strerror(number)
        if getattr(error, "errno", None) == number or reason in str(error):
            return reason
    return None


#: What is being written now → the directories that were made for it, innermost first.
_unfinished: dict[Path, list[Path]] = {}


def remove_unfinished() -> None:
    """Removes what other threads are writing, before the process ends under them."""
    for beside, made in list(_unfinished.items()):
        _remove_begun(beside, made)


def _remove_begun(beside: Path, made: list[Path]) -> None:
    remove(beside)
    for folder in made:
        with contextlib.suppress(OSError):  # others have put something there
            folder.rmdir()


@contextlib.contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A new name beside a path, of which nothing is left after an error.

    Neither what was written nor, if it is empty, a directory made to hold it.
    """
    made = [folder for folder in path.parents if not folder.exists()]
    beside = name_beside(path)
    _unfinished[beside] = made
    try:
        with naming(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield beside
    except BaseException as error:
        _remove_begun(beside, made)
        if isinstance(error, OSError) and error.filename == str(beside):
            error.filename = str(path)
        if isinstance(error, DiskError):  # of a file in a directory with a new name
            raise DiskError(str(error).replace(str(beside), str(path))) from error
        raise
    finally:
        del _unfinished[beside]


@contextlib.contextmanager
def saved_beside(path: str | Path) -> Iterator[Path]:
    """Gives a path to write a file to, and renames it to `path` once it is written.

    Args:
        path: The file; its directory is made if there is none. What was there before is
            replaced, or stays if there is an error. What is no file of a disk, such as
            /dev/null or a pipe, is written to itself.

    Yields:
        A path beside it, with the same suffix.

    Raises:
        DiskError: The disk is full.

    Example:
        >>> from keras_luong.files import saved_beside
        >>> with saved_beside("notes/today.txt") as beside:
        ...     number = beside.write_text("All of it, or nothing.")
    """
    path = Path(path)
    if path.exists() and not path.is_file() and not path.is_dir():
        with naming(path):
            yield path
        return
    if path.is_symlink():  # stays, and what it leads to is replaced
        path = Path(os.path.realpath(path))
    with _beside(path) as beside:
        yield beside
        _to_disk(beside)
        os.replace(beside, path)


@contextlib.contextmanager
def saved_stream(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file to be written as `saved_beside` does, as a stream of bytes.

    Args:
        path: The file, gzip if its name ends in `.gz`.
    """
    with saved_beside(path) as beside:
        is_gzip = str(path).endswith(".gz")
        with gzip.open(beside, "wb") if is_gzip else open(beside, "wb") as file:
            yield cast(IO[bytes], file)


@contextlib.contextmanager
def saved_directory_beside(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """Gives a new directory to fill, and renames it to `path` once it is filled.

    Args:
        path: The directory to be; those above it are made if there are none.
        overwrite: Whether to replace what is there, which is lost only once the new
            directory has taken its place. An empty directory is always replaced.

    Yields:
        An empty directory beside `path`, which is removed if there is an error.

    Raises:
        FileExistsError: If there is something of that name, unless `overwrite`.
        DiskError: The disk is full.

    Example:
        >>> from keras_luong.files import saved_directory_beside
        >>> with saved_directory_beside("models/numbers/1") as beside:
        ...     np.save(beside / "numbers.npy", np.arange(3))
    """
    path = Path(path)
    with _beside(path) as beside:
        beside.mkdir()
        yield beside
        for written in filter(Path.is_file, beside.rglob("*")):
            _to_disk(written)
        before = name_beside(path)
        if overwrite and path.exists():
            path.rename(before)
        try:
            beside.rename(path)
        except OSError as error:
            if before.exists():
                before.rename(path)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(f"{path} exists.") from error
            raise
        remove(before)


def _to_disk(path: Path) -> None:
    """Waits until a file is on the disk: its name may get there before its bytes."""
    with open(path, "rb+") as written:
        os.fsync(written.fileno())


def crc32(file: str | Path | IO[bytes]) -> int:
    """Returns the CRC-32 of a file: of a stream, from where it stands to its end.

    It tells what is damaged; who wants to deceive can make another file of the same.
    (Of what Python brings it is the fastest: half the time of SHA-256.)

    Args:
        file: A path, or a stream of bytes.
    """
    if isinstance(file, (str, Path)):
        with open(file, "rb") as stream:
            return crc32(stream)
    # Large blocks: between them a thread waits for its turn.
    total, block = 0, memoryview(bytearray(1 << 24))
    while size := file.readinto(block):  # type: ignore[attr-defined]
        total = zlib.crc32(block[:size], total)
    return total


def remove(path: Path) -> None:
    """Removes a file, a link or a directory with all that is in it, if it is there.

    What of a directory can't be removed stays.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def name_beside(path: Path) -> Path:
    """Returns a new name on the same disk, hidden, and of the same suffix."""
    return path.with_name(f".{os.getpid()}-{uuid.uuid4().hex[:8]}.{path.name}")
