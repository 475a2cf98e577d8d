"""Text, line by line."""

from __future__ import annotations

import codecs
import gzip
import io
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
        ValueError: If it is damaged gzip, or gzip within gzip, or if its lines end with
            carriage returns alone.

    Example:
        >>> [*read_lines(io.BytesIO(b"a\nb"))]
        [b'a', b'b']
    """
    try:
        for number, line in enumerate(_unpacked(stream)):
            text = line.rstrip(b"\r\n")
            if number == 0:
                text = text.removeprefix(codecs.BOM_UTF8)
                _check_first(line)
            if text or line.endswith(b"\n"):
                yield text
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ValueError(f"the input is damaged gzip: {error}") from error


def _check_first(first: bytes) -> None:
    """Refuses UTF-16, and text of one line with what once ended lines within."""
    if first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise ValueError(
            "the input is UTF-16, and not UTF-8. Convert it first: "
            "iconv -f UTF-16 -t UTF-8 old.txt > new.txt"
        )
    if not first.endswith(b"\n") and b"\r" in first.rstrip(b"\r"):
        raise ValueError(
            "the input has no line feed: its lines end with carriage returns alone. "
            "Convert it first: tr '\\r' '\\n' < old.txt > new.txt"
        )


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
