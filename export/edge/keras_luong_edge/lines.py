"""Text, line by line."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import itertools
import unicodedata
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

GZIP = b"\x1f\x8b"  # how it begins, and no UTF-8 can
WIDE_MARKS = {  # UTF-16's are how UTF-32's begin
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1b"})  # of which text has few
_SIGHT = 8192  # bytes, to tell what is no text


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    r"""Reads a stream of text, plain or gzip, as it comes.

    Args:
        stream: Bytes, such as `sys.stdin.buffer`. It stays open.

    Yields:
        The lines. Only line feeds end one; a carriage return before it is none of the
        text, nor is a byte order mark at the start.

    Raises:
        ValueError: If it is damaged gzip, gzip within gzip, UTF-16 or UTF-32, or no
            text at all; or if its lines seem to end with carriage returns alone, since
            it has no line feed, or one at the end and several carriage returns.

    Example:
        >>> import io
        >>> from keras_luong_edge.lines import read_lines
        >>> [*read_lines(io.BytesIO(b"a\nb"))]
        [b'a', b'b']
    """
    try:
        with _buffered(stream) as buffered:
            for number, line in enumerate(_checked(_unpacked(buffered))):
                text = line.rstrip(b"\r\n")
                if number == 0:
                    text = text.removeprefix(codecs.BOM_UTF8)
                if text or line.endswith(b"\n"):
                    yield text
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"the input is damaged gzip: {_damage(error)}") from error


def _checked(stream: io.BufferedReader | gzip.GzipFile) -> Iterable[bytes]:
    """Refuses what is no text, UTF-16 and UTF-32, and one line of many."""
    start = stream.peek(_SIGHT)[:_SIGHT]
    line = start[: start.find(b"\n") + 1 or None]
    if _is_binary(start, _wide_encoding(line)):
        raise ValueError(
            f"the input is no text: its first {len(start):,} bytes have too many "
            "control characters. Give lines in UTF-8, plain or gzip"
        )
    lines = iter(stream)
    begin = list(itertools.islice(lines, 1))
    if encoding := _wide_encoding(b"".join(begin)):
        raise ValueError(
            f"the input is {encoding}, and not UTF-8. Convert it first: "
            f"iconv -f {encoding} -t UTF-8 old.txt > new.txt"
        )
    if any(map(_seems_lines, begin)):
        # Only then, since whoever types lines waits for the answer to the first one.
        begin += itertools.islice(lines, 1)
        if len(begin) == 1:
            raise ValueError(
                "the input is one line with carriage returns within: its lines seem to "
                "end with them alone. Convert it first: "
                "tr '\\r' '\\n' < old.txt > new.txt"
            )
    return itertools.chain(begin, lines)


def _is_binary(start: bytes, encoding: str | None) -> bool:
    """Whether a file begins with more control characters than a text has.

    Args:
        start: Its first bytes.
        encoding: What else than UTF-8 they look like; NULs are parts of letters then.
    """
    if encoding is None:
        odd = len(start) - len(start.translate(None, _CONTROLS))
    else:
        text = start.decode(encoding, "replace").lstrip("\ufeff")
        odd = sum(
            unicodedata.category(x) in ("Cc", "Cn", "Co") and x not in "\t\r\n"
            for x in text
        )
    return odd >= 8 and 100 * odd > len(start)


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


def _seems_lines(line: bytes) -> bool:
    """Whether a line would be several if carriage returns ended lines."""
    within = b"\r" in line.rstrip(b"\r\n")
    return within and (line.count(b"\r") > 1 or not line.endswith(b"\n"))


def _damage(error: Exception) -> str:
    """What is wrong with what begins like gzip."""
    if isinstance(error, EOFError):
        return "it ends too early"
    if "Not a gzipped file" in str(error):  # as its beginning is
        return "there are other bytes behind it"
    return f"its content is wrong ({error})"


@contextlib.contextmanager
def _buffered(stream: BinaryIO) -> Iterator[io.BufferedReader]:
    """The stream with a buffer, which does not close it."""
    # A second buffer would wait until it is full, and not for a line.
    if isinstance(stream, io.BufferedReader):
        yield stream
        return
    buffered: io.BufferedReader = io.BufferedReader(cast(io.RawIOBase, stream))
    try:
        yield buffered
    finally:
        buffered.detach()


def _unpacked(stream: io.BufferedReader) -> io.BufferedReader | gzip.GzipFile:
    if not stream.peek(2).startswith(GZIP):
        return stream
    lines = gzip.GzipFile(fileobj=stream)
    if lines.peek(2).startswith(GZIP):
        raise ValueError("the input is gzip within gzip: unpack it once")
    return lines
