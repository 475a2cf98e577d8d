"""Alignment files: the Pharaoh format, and the WA format of the shared tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from keras_luong.checks import check_flag, check_path, check_size
from keras_luong.evaluation.alignment.links import Link, link_set

_PHARAOH_LINK = re.compile(r"(\d+)([-p?])(\d+)", re.ASCII)
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_WA_LINE = re.compile(rf"(\d+)\s+(\d+)\s+(\d+)(\s+[SP])?(\s+{_NUMBER})?", re.ASCII)


class Alignment(NamedTuple):
    """The links of a sentence pair.

    Attributes:
        sure: The links that an annotator was sure of, or that a system proposes.
        possible: These and the merely possible ones.
    """

    sure: set[Link]
    possible: set[Link]


class Alignments(NamedTuple):
    """The links of a corpus, in the form that `aer` takes.

    Attributes:
        sure: The sure links, one set a sentence pair.
        possible: These and the merely possible ones, one set a sentence pair.
    """

    sure: list[set[Link]]
    possible: list[set[Link]]


def parse_pharaoh(line: str, one_based: bool = False) -> Alignment:
    """Reads a sentence pair's links in Pharaoh format, such as `0-0 1-2 2p2`.

    Args:
        line: Links parted by white space: `i-j` is sure, `ipj` or `i?j` is possible.
            The source index comes first.
        one_based: Whether the line counts from 1.

    Returns:
        The links, counted from 0. One that is both sure and possible is sure.

    Raises:
        ValueError: If something in the line is no link.

    Example:
        >>> parse_pharaoh("1-1 2p1", one_based=True)
        Alignment(sure={(0, 0)}, possible={(0, 0), (1, 0)})
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
    """Writes a sentence pair's links in Pharaoh format, sorted.

    Args:
        sure: Links written `i-j`.
        possible: Links written `ipj`, unless they are sure.
        one_based: Whether to count from 1 in the line.

    Returns:
        The line, without a line feed.

    Raises:
        ValueError: If a link is no pair of indices.

    Example:
        >>> format_pharaoh({(1, 2), (0, 0)}, {(2, 2)})
        '0-0 1-2 2p2'
    """
    first = int(check_flag("one_based", one_based))
    return " ".join(
        f"{i + first}{'-' if is_sure else 'p'}{j + first}"
        for (i, j), is_sure in _marked(sure, possible)
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
        ValueError: If something is no link; it names the file and the line.
    """
    parsed = []
    for place, line in _lines(path):
        with _naming(place):
            parsed.append(parse_pharaoh(line, one_based))
    return _columns(parsed)


def write_pharaoh(
    path: str | Path,
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]] | None = None,
    one_based: bool = False,
) -> None:
    """Writes a file in Pharaoh format, one sentence pair a line.

    Args:
        path: The file.
        sure: The links of each sentence pair, written `i-j`.
        possible: The possible links of each, written `ipj` unless they are sure.
        one_based: Whether to count from 1 in the file.

    Raises:
        ValueError: If the lengths differ, or a link is no pair of indices.
    """
    pairs = _paired(sure, possible)
    _write(path, (format_pharaoh(*pair, one_based=one_based) for pair in pairs))


def read_wa(path: str | Path, sentences: int | None = None) -> Alignments:
    """Reads a file in the format of the WPT 2003 shared task, one link a line.

    A line is `sentence source target [S|P] [confidence]`, all counted from 1. A link is
    sure unless marked `P`; a link to position 0, the empty word, is left out, as is the
    confidence (Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment).

    Args:
        path: The file. Its lines may come in any order, and a sentence pair without
            links has none.
        sentences: The number of sentence pairs; None: the highest in the file, so that
            pairs without links at the end are not seen.

    Returns:
        The links, counted from 0, one set for each of the sentence pairs 1, 2, ....

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not of that form, or `sentences` is None and a number
            is far beyond the file's lines; it names the file and the line.
    """
    check_size("sentences", sentences, optional=True)
    found: dict[int, Alignment] = {}
    lines = list(_lines(path))
    # A slip such as 20000000 for 20 must not fill the memory with empty sets.
    largest = sentences or 10 * len(lines) + 1000
    for place, line in lines:
        if not line.strip():
            continue
        with _naming(place):
            number, link, is_sure = _parse_wa(line, largest)
        alignment = found.setdefault(number, Alignment(set(), set()))
        if min(link) >= 0:
            alignment.possible.add(link)
            if is_sure:
                alignment.sure.add(link)
    count = sentences or max(found, default=0)
    numbers = range(1, count + 1)
    return _columns(found.get(n) or Alignment(set(), set()) for n in numbers)


def write_wa(
    path: str | Path,
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]] | None = None,
) -> None:
    """Writes a file in the format that `read_wa` reads, every link marked S or P.

    The format has a line for a link and none for a sentence pair: pairs without links
    at the end leave no trace. To get them back, give `read_wa` the number `sentences`.

    Args:
        path: The file.
        sure: The links of each sentence pair, marked `S`.
        possible: The possible links of each, marked `P` unless they are sure.

    Raises:
        ValueError: If the lengths differ, or a link is no pair of indices.
    """
    _write(
        path,
        (
            f"{number} {i + 1} {j + 1} {'S' if is_sure else 'P'}"
            for number, pair in enumerate(_paired(sure, possible), 1)
            for (i, j), is_sure in _marked(*pair)
        ),
    )


def _marked(sure, possible) -> list[tuple[Link, bool]]:
    """All links, sorted, each with whether it is sure."""
    sure = link_set(sure)
    return [(link, link in sure) for link in sorted(sure | link_set(possible))]


def _paired(sure, possible) -> Iterator[tuple]:
    if possible is None:
        possible = [()] * len(sure)
    if len(sure) != len(possible):
        raise ValueError(
            "sure and possible must have one set of links for each sentence pair. "
            f"Received: {len(sure)} and {len(possible)} sets"
        )
    return zip(sure, possible, strict=True)


def _columns(alignments: Iterable[Alignment]) -> Alignments:
    alignments = list(alignments)
    return Alignments([a.sure for a in alignments], [a.possible for a in alignments])


def _parse_wa(line: str, largest: int) -> tuple[int, Link, bool]:
    """The sentence's number, the link counted from 0, and whether it is sure."""
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


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Each line, after the words that say where it is."""
    path = check_path("path", path)
    # What is not UTF-8 is no link either, and refused with its place.
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        for number, line in enumerate(file, 1):
            yield f"{path}, line {number}", line


@contextmanager
def _naming(place: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _write(path: str | Path, lines: Iterable[str]) -> None:
    text = "".join(f"{line}\n" for line in lines)  # all is well before a file is made
    check_path("path", path).write_bytes(text.encode())
