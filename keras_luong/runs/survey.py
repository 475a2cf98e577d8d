"""Text that is read more than once, hours apart, must be the same text each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_luong.files import is_utf8
from keras_luong.text.corpus import new_digest

#: What is said of text that is another one when it is read again.
CHANGED = (
    "The text is another one than when it was read first: it was changed meanwhile, or "
    "can be read only once, as a pipe can"
)


class Survey(NamedTuple):
    """What tells a text from any other.

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
        >>> from keras_luong.runs.survey import survey
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
        >>> from keras_luong.runs.survey import survey, unchanged
        >>> list(unchanged([b"a dog"], survey([b"a dog"]).digest))
        [b'a dog']
    """
    now = new_digest()
    for line in lines:
        now.update(line + b"\n")
        yield line
    if now.hexdigest() != digest:
        raise OSError(CHANGED)
