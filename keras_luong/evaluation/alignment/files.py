"""Alignment files: the Pharaoh format, and the WA format of the shared tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from keras_luong.checks import check_flag, check_path, check_size
from keras_luong.evaluation.alignment.links import Link, link_set
from keras_luong.files import read_lines

T = TypeVar("T")

_PHARAOH_LINK = re.compile(r"(\d+)([-p?])(\d+)", re.ASCII)
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_WA_LINE = re.compile(rf"(\d+)\s+(\d+)\s+(\d+)(\s+[SP])?(\s+{_NUMBER})?", re.ASCII)


class Alignment(NamedTuple):
    """The links of a sentence pair.

    Attributes:
        sure: The links that an annotator was sure of, or that a system proposed.
        possible: The sure links and those that are merely possible.

    Example:
        >>> from keras_luong.evaluation.alignment import parse_pharaoh
        >>> parse_pharaoh("1p0")
        Alignment(sure=set(), possible={(1, 0)})
    """

    sure: set[Link]
    possible: set[Link]


class Alignments(NamedTuple):
    """The links of a corpus, in the form that `aer` takes.

    Attributes:
        sure: The sure links, one set a sentence pair.
        possible: The sure links and those that are merely possible, likewise.

    Example:
        >>> from keras_luong.evaluation.alignment import Alignments, aer
        >>> gold = Alignments(sure=[{(0, 0)}], possible=[{(0, 0), (1, 1)}])
        >>> aer([{(0, 0), (1, 1)}], *gold).aer
        0.0
    """

    sure: list[set[Link]]
    possible: list[set[Link]]


def parse_pharaoh(line: str, one_based: bool = False) -> Alignment:
    """Reads the links of a sentence pair in Pharaoh format, such as `0-0 1-2 2p2`.

    Args:
        line: Links separated by white space: `i-j` is sure, `ipj` or `i?j` is possible.
            The source index comes first.
        one_based: Whether the line counts from 1.

    Returns:
        The links, counted from 0. One that is both sure and possible is sure.

    Raises:
        ValueError: If the line holds anything but links.

    Example:
        >>> from keras_luong.evaluation.alignment import parse_pharaoh
        >>> links = parse_pharaoh("1-1 2p1", one_based=True)
        >>> sorted(links.sure), sorted(links.possible)
        ([(0, 0)], [(0, 0), (1, 0)])
    """
    first = int(check_flag("one_based", one_based))
    alignment = Alignment(set(), set())
    for item in line.split():
        match = _PHARAOH_LINK.fullmatch(item)
        if not match:
            raise ValueError(f"A link must read i-j, ipj or i?j. Received: {item!r}")
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise ValueError(f"Indices must be at least 1 here. Received: {item!r}")
        alignment.possible.add(link)
        if match[2] == "-":
            alignment.sure.add(link)
    return alignment


def format_pharaoh(
    sure: Iterable[Link], possible: Iterable[Link] = (), one_based: bool = False
) -> str:
    """Returns the links of a sentence pair in Pharaoh format, sorted.

    Args:
        sure: Links written `i-j`.
        possible: Links written `ipj`, unless they are sure.
        one_based: Whether to count from 1 in the line.

    Returns:
        The line, without a line feed.

    Raises:
        ValueError: If a link is no pair of indices.

    Example:
        >>> from keras_luong.evaluation.alignment import format_pharaoh
        >>> format_pharaoh({(1, 2), (0, 0)}, {(2, 2)})
        '0-0 1-2 2p2'
    """
    first = int(check_flag("one_based", one_based))
    sure = link_set(sure)
    return " ".join(
        f"{i + first}{'-' if (i, j) in sure else 'p'}{j + first}"
        for i, j in sorted(sure | link_set(possible))
    )


def read_pharaoh(path: str | Path, one_based: bool = False) -> Alignments:
    """Reads a file in Pharaoh format, one sentence pair a line.

    Args:
        path: The file; an empty line is a sentence pair without links.
        one_based: Whether the file counts from 1.

    Returns:
        The links, counted from 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds anything but links; the message names the line.

    Example:
        >>> from keras_luong.evaluation.alignment import read_pharaoh
        >>> from keras_luong.files import write_lines
        >>> write_lines("corpus.talp", ["0-0 1p1", "", "0-1"])
        >>> read_pharaoh("corpus.talp").sure
        [{(0, 0)}, set(), {(0, 1)}]
    """
    lines = read_lines(check_path("path", path))
    return _columns(_parsed(path, lines, partial(parse_pharaoh, one_based=one_based)))


def read_wa(path: str | Path, sentences: int | None = None) -> Alignments:
    """Reads a file in the format of the WPT 2003 shared task, one link a line.

    A line is `sentence source target [S|P] [confidence]`, all counted from 1. A link is
    sure unless marked `P`; a link to position 0, the empty word, is left out, as is the
    confidence (Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment).

    Args:
        path: The file. Its lines may be in any order; a sentence pair without links has
            no line.
        sentences: The number of sentence pairs. None takes the highest number in the
            file, which misses pairs without links at the end.

    Returns:
        The links, counted from 0, one set for each of the sentence pairs 1, 2, ....

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not of that form, or `sentences` is None and a number
            is far above the number of lines; the message names the file and the line.

    Example:
        >>> from keras_luong.evaluation.alignment import read_wa
        >>> from keras_luong.files import write_lines
        >>> write_lines("test.wa.nonullalign", ["0001 1 1 S", "0002 3 2 P"])
        >>> read_wa("test.wa.nonullalign", sentences=3)
        Alignments(sure=[{(0, 0)}, set(), set()], possible=[{(0, 0)}, {(2, 1)}, set()])
    """
    check_size("sentences", sentences, optional=True)
    lines = list(read_lines(check_path("path", path)))
    # A typo such as 20000000 for 20 must not fill the memory with empty sets.
    largest = sentences or 10 * len(lines) + 1000
    found: dict[int, Alignment] = {}
    links = filter(None, _parsed(path, lines, partial(_parse_wa, largest=largest)))
    for number, link, is_sure in links:
        alignment = found.setdefault(number, Alignment(set(), set()))
        if min(link) >= 0:
            alignment.possible.add(link)
            if is_sure:
                alignment.sure.add(link)
    numbers = range(1, (sentences or max(found, default=0)) + 1)
    return _columns(found.get(n) or Alignment(set(), set()) for n in numbers)


def _columns(alignments: Iterable[Alignment]) -> Alignments:
    alignments = list(alignments)
    return Alignments([a.sure for a in alignments], [a.possible for a in alignments])


def _parsed(
    path: str | Path, lines: Iterable[str], parse: Callable[[str], T]
) -> Iterator[T]:
    """Parses each line; an error names the file and the line."""
    for number, line in enumerate(lines, 1):
        try:
            parsed = parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        yield parsed


def _parse_wa(line: str, largest: int) -> tuple[int, Link, bool] | None:
    """Returns the sentence's number, the link counted from 0, and whether it is sure.

    For a blank line it returns None.
    """
    if not line.strip():
        return None
    match = _WA_LINE.fullmatch(line.strip())
    if not match:
        raise ValueError(
            "A line must read: sentence source target [S|P] [confidence]. "
            f"Received: {line.strip()!r:.80}"
        )
    number, i, j = (int(x) for x in match.groups()[:3])
    if not 1 <= number <= largest:
        raise ValueError(
            f"A sentence's number must be 1 to {largest}; if there are more, give "
            f"their number as sentences. Received: {number}"
        )
    return number, (i - 1, j - 1), (match[4] or "S").strip() == "S"
