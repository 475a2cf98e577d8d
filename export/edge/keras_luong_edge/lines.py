"""Text, line by line."""

from __future__ import annotations

import codecs
import gzip
import io
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

GZIP = b"\x1f\x8b"  # how it begins, and no UTF-8 can


def read_lines(stream: BinaryIO) -> Iterator[bytes]:
    r"""Reads a stream of text, plain or gzip, as it comes.

    Args:
        stream: Bytes, such as `sys.stdin.buffer`.

    Yields:
        The lines. Only line feeds end one; a carriage return before it is none of the
        text, nor is a byte order mark at the start.

    Raises:
        ValueError: If it is damaged gzip, gzip within gzip, or UTF-16; or if its lines
            seem to end with carriage returns alone, since it has no line feed, or one
            at the end and several carriage returns.

    Example:
        >>> import io
        >>> from keras_luong_edge.lines import read_lines
        >>> [*read_lines(io.BytesIO(b"a\nb"))]
        [b'a', b'b']
    """
    try:
        for number, line in enumerate(_checked(_unpacked(stream))):
            text = line.rstrip(b"\r\n")
            if number == 0:
                text = text.removeprefix(codecs.BOM_UTF8)
            if text or line.endswith(b"\n"):
                yield text
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"the input is damaged gzip: {_damage(error)}") from error


def _checked(lines: Iterable[bytes]) -> Iterable[bytes]:
    """Refuses UTF-16, and text of one line with what once ended lines within."""
    lines = iter(lines)
    begin = list(itertools.islice(lines, 1))
    if b"".join(begin).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            "the input is UTF-16, and not UTF-8. Convert it first: "
            "iconv -f UTF-16 -t UTF-8 old.txt > new.txt"
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


def _unpacked(stream: BinaryIO) -> Iterable[bytes]:
    # A second buffer would wait until it is full, and not for a line.
    buffered = stream
    if not isinstance(buffered, io.BufferedReader):
        buffered = io.BufferedReader(cast(io.RawIOBase, stream))
    if not buffered.peek(2).startswith(GZIP):
        return buffered
    lines = gzip.GzipFile(fileobj=buffered)
    if lines.peek(2).startswith(GZIP):
        raise ValueError("the input is gzip within gzip: unpack it once")
    return lines
