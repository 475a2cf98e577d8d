"""Files of odd text: a table for a test."""

import gzip
from typing import NamedTuple

BOM = "\ufeff".encode()
BEFORE, AFTER = b"the red dog", b"a cat"


class Row(NamedTuple):
    """A file.

    Attributes:
        content: What is in it.
        lines: Its lines, for whoever reads it; None if it has none.
    """

    content: bytes
    lines: list[bytes] | None


def line(odd):
    """A file in which the odd line has others before and behind it."""
    odd = odd if isinstance(odd, bytes) else odd.encode()
    lines = [BEFORE, odd, AFTER]
    return Row(b"\n".join(lines) + b"\n", lines)


DOG = line("a dog")


def packed(content):
    return gzip.compress(content, mtime=0)


PACKED = packed(BOM + DOG.content)
ROWS = {
    "byte order mark": Row(BOM + DOG.content, DOG.lines),
    "two byte order marks": Row(2 * BOM + DOG.content, [BOM + BEFORE, *DOG.lines[1:]]),
    "byte order mark, later": line("\ufeffa dog"),
    "CR inside a line": line("the\rdog"),
    "CRs inside a line": line("the\rred\rdog"),
    "CR LF": Row(b"the red dog\r\na dog\r\na cat\r\n", DOG.lines),
    "CR alone": Row(b"the red dog\ra dog\ra cat\r", None),
    "CR alone, and a last LF": Row(b"the red dog\ra dog\ra cat\n", None),
    "NUL": line("the\0dog \0"),
    "U+2028": line("the\u2028dog\u2029"),
    "U+0085": line("the\x85dog\x0b\x0c"),
    "NBSP": line("the\u00a0dog\u3000"),
    "white space alone": line(" \u00a0\u2028\x85\t"),
    "zero-width letters": line("the\u200bred\u200c dog\u200d\u2060"),
    "soft hyphens": line("the d\u00ado\u00adg"),
    "combined letters (NFC)": line("d\u00f6g d\u1ed9g \uac01"),
    "combining marks (NFD)": line("do\u0308g do\u0323\u0302g \u1100\u1161\u11a8"),
    "right-to-left marks": line("\u202bthe\u202c \u200fdog\u200e \u05db\u05dc"),
    "emoji with joiners": line("the \U0001f468\u200d\U0001f469\u200d\U0001f467 dog"),
    "unpaired surrogates": line(b"the \xed\xa0\x80 dog"),
    "other bytes": line(b"the \xff dog \xc3"),
    "UTF-16": Row("\ufeffthe red dog\na dog\n".encode("utf-16-le"), None),
    "UTF-16 without a mark": Row("the red dog\na dog\n".encode("utf-16-be"), None),
    "UTF-32": Row("\ufeffthe red dog\na dog\n".encode("utf-32-le"), None),
    "1 MB": line("the dog " * 125_000),
    "1 MB without a space": line("x" * 1_000_000),
    "no last line end": Row(DOG.content[:-1], DOG.lines),
    "CR for a last line": Row(DOG.content + b"\r", DOG.lines),
    "empty lines": line(""),
    "empty file": Row(b"", []),
    "gzip": Row(PACKED, DOG.lines),
    "gzip of several members": Row(
        packed(BEFORE + b"\n") + packed(b"") + bytes(4) + packed(b"a dog\na cat\n"),
        DOG.lines,
    ),
    "gzip filled up with zeros": Row(PACKED + bytes(64), DOG.lines),
    "gzip cut short": Row(PACKED[:-6], None),
    "gzip and other bytes": Row(PACKED + b"garbage", None),
    "gzip within gzip": Row(packed(packed(b"a dog\n")), None),
}

#: What a wrong reader could make of these lines.
MISREAD = (
    "the|dog|thedog|red|thereddog|thered dog|the d-o-g|dog dog|the \xff dog \xc3|"
    "\ufeffthe red dog|\ufeff\ufeffthe red dog|the \U0001f468\U0001f469\U0001f467 dog|"
    "the dog \u05db\u05dc"
).split("|")
