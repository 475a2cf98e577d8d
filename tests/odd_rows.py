"""Files of odd text: a table for a test."""

from __future__ import annotations

import gzip
from typing import NamedTuple

BOM = "\ufeff".encode()
BEFORE, AFTER = b"the red dog", b"a cat"


class Row(NamedTuple):
    """A file.

    Attributes:
        content: What is in it.
        lines: Its lines, for whoever reads it; None if it has none.
        wrong: What a wrong reader could make of its odd line: see `odd_line`.
    """

    content: bytes
    lines: list[bytes] | None
    wrong: tuple[str | bytes, ...] = ()

    @property
    def odd_line(self):
        """The line that is odd: the second one, but the first one holds the mark."""
        return self.lines[0 if self.content.startswith(BOM) else 1]


def line(odd, *wrong):
    """A file in which the odd line has others before and behind it."""
    odd = odd if isinstance(odd, bytes) else odd.encode()
    lines = [BEFORE, odd, AFTER]
    return Row(b"\n".join(lines) + b"\n", lines, wrong)


COMBINED, DECOMPOSED = (
    "d\u00f6g d\u1ed9g \uac01",
    "do\u0308g do\u0323\u0302g \u1100\u1161\u11a8",
)
PACKED = gzip.compress(BOM + line("a dog").content, mtime=0)
ROWS = {
    "byte order mark": Row(
        BOM + line("a dog").content, line("a dog").lines, (BOM + BEFORE,)
    ),
    "two byte order marks": Row(
        2 * BOM + line("a dog").content,
        [BOM + BEFORE, b"a dog", AFTER],
        (BEFORE, 2 * BOM + BEFORE),
    ),
    "byte order mark, later": line("\ufeffa dog", "a dog"),
    "CR inside a line": line("the\rdog", "thedog", "the", "dog"),
    "CRs inside a line": line("the\rred\rdog", "thereddog", "the", "dog"),
    "CR LF": Row(b"the red dog\r\na dog\r\na cat\r\n", line("a dog").lines),
    "CR alone": Row(b"the red dog\ra dog\ra cat\r", None),
    "CR alone, and a last LF": Row(b"the red dog\ra dog\ra cat\n", None),
    "NUL": line("the\0dog \0", "the", "thedog", "the dog"),
    "U+2028": line("the\u2028dog\u2029", "the", "thedog"),
    "U+0085": line("the\x85dog\x0b\x0c", "the", "thedog"),
    "NBSP": line("the\u00a0dog\u3000", "the", "thedog"),
    "white space alone": line(" \u00a0\u2028\x85\t"),
    "zero-width letters": line(
        "the\u200bred\u200c dog\u200d\u2060", "thered dog", "the red dog"
    ),
    "soft hyphens": line("the d\u00ado\u00adg", "the dog", "the d-o-g"),
    "combined letters (NFC)": line(COMBINED, DECOMPOSED, "dog dog"),
    "combining marks (NFD)": line(DECOMPOSED, COMBINED, "dog dog"),
    "right-to-left marks": line(
        "\u202bthe\u202c \u200fdog\u200e \u05db\u05dc\u05d1",
        "the dog \u05db\u05dc\u05d1",
    ),
    "emoji with joiners": line(
        "the \U0001f468\u200d\U0001f469\u200d\U0001f467 dog",
        "the \U0001f468\U0001f469\U0001f467 dog",
        "the dog",
    ),
    "unpaired surrogates": line(b"the \xed\xa0\x80 dog", "the dog", "the"),
    "other bytes": line(b"the \xff dog \xc3", "the dog", "the", "the \xff dog \xc3"),
    "UTF-16": Row("\ufeffthe red dog\na dog\n".encode("utf-16-le"), None),
    "UTF-16 without a mark": Row("the red dog\na dog\n".encode("utf-16-be"), None),
    "UTF-32": Row("\ufeffthe red dog\na dog\n".encode("utf-32-le"), None),
    "1 MB": line("the dog " * 125_000),
    "1 MB without a space": line("x" * 1_000_000),
    "no last line end": Row(line("a dog").content[:-1], line("a dog").lines),
    "CR for a last line": Row(line("a dog").content + b"\r", line("a dog").lines),
    "empty lines": line(""),
    "empty file": Row(b"", []),
    "gzip": Row(PACKED, line("a dog").lines),
    "gzip of several members": Row(
        gzip.compress(b"the red dog\n", mtime=0)
        + gzip.compress(b"", mtime=0)
        + bytes(4)
        + gzip.compress(b"a dog\na cat\n", mtime=0),
        line("a dog").lines,
    ),
    "gzip filled up with zeros": Row(PACKED + bytes(64), line("a dog").lines),
    "gzip cut short": Row(PACKED[:-6], None),
    "gzip and other bytes": Row(PACKED + b"garbage", None),
    "gzip within gzip": Row(
        gzip.compress(gzip.compress(b"a dog\n", mtime=0), mtime=0), None
    ),
}
