"""Leaves out what is wrong with a corpus, and mends what can be mended.

Each pair is dropped by the first fault that it has, in the order of `FAULTS`; what is
left and was there before is a repeat. Before that, three faults are mended:

1. Text that was decoded wrongly is decoded again, by ftfy: `Ã¼` is `ü`.
2. HTML's entities become characters: `&amp;` is `&`.
3. Control characters are left out.

A pair that still has the fault is dropped: lost characters (U+FFFD) do not come back,
and HTML's tags are the remains of a page, not of a sentence. OpusFilter drops them too,
Bifixer mends as above.

Shapes: N pairs of a block.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from keras_luong.text.corpus import Block
from keras_luong.text.faults import FAULTS, REPEAT, FaultFinder
from keras_luong.text.misalignment import pick
from keras_luong.text.tags import remove_tag

#: What pairs can be dropped for, in this order.
REASONS = (*FAULTS, REPEAT)
MENDED = ("mojibake", "control", "markup")

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")


class CleanBlock(NamedTuple):
    """What is left of a block of pairs.

    Attributes:
        sources: The sources that are left.
        targets: Their translations.
        rows: int [N], which of the block's pairs they are, from 0.
        dropped: Reason → how many pairs were dropped for it, in the order of `REASONS`.
        mended: How many of the pairs that are left were mended.
    """

    sources: list[str]
    targets: list[str]
    rows: np.ndarray
    dropped: dict[str, int]
    mended: int


def clean(
    blocks: Iterable[Block], finder: FaultFinder, keep: Collection[str] = ()
) -> Iterator[CleanBlock]:
    """Cleans a corpus block by block; of each pair that is left a hash is kept.

    Args:
        blocks: (sources, targets) of each block of the corpus.
        finder: What the right pairs are like: `learn_faults` of up to 30,000 pairs.
        keep: Those of `REASONS` that pairs are not dropped or mended for.

    Yields:
        A `CleanBlock` for each block.

    Raises:
        ValueError: If `keep` names another reason.

    Example:
        >>> from keras_luong.text.cleaning import clean
        >>> from keras_luong.text.faults import learn_faults
        >>> blocks = [(["a dog", "a cat", ""], ["ein Hund", "eine&nbsp;Katze", "x"])]
        >>> finder = learn_faults(*blocks[0], "en", "de")
        >>> [block] = clean(blocks, finder)
        >>> block.targets, block.dropped["empty"], block.mended
        (['ein Hund', 'eine Katze'], 1, 1)
    """
    if unknown := {*keep} - {*REASONS}:
        raise ValueError(
            f"keep must be of {', '.join(REASONS)}. Received: {sorted(unknown)}"
        )
    names = [name for name in FAULTS if name not in keep]
    seen: set[int] = set()
    for sources, targets in blocks:
        # 1. Tags of domains are no part of the text.
        x, y = [*map(remove_tag, sources)], [*targets]
        tags = [
            one[: len(one) - len(other)] for one, other in zip(sources, x, strict=True)
        ]
        # 2. Mend what has a fault that can be mended.
        rough = finder.find(x, y, [name for name in MENDED if name in names])
        changed = np.any([np.zeros(len(x), bool), *rough.values()], axis=0)
        for row in np.flatnonzero(changed):
            x[row], y[row] = mend(x[row], rough), mend(y[row], rough)
        # 3. Drop what is left of each fault.
        rows, dropped = np.arange(len(x)), dict.fromkeys(REASONS, 0)
        for name in names:
            marks = finder.find(pick(x, rows), pick(y, rows), [name])[name]
            rows, dropped[name] = rows[~marks], int(marks.sum())
        # 4. Drop repeats.
        if REPEAT not in keep:
            hashes = map(_hash, pick(x, rows), pick(y, rows))
            is_new = np.array([_is_new(value, seen) for value in hashes], bool)
            rows, dropped[REPEAT] = rows[is_new], int((~is_new).sum())
        left = [tags[row] + x[row] for row in rows.tolist()]
        yield CleanBlock(left, pick(y, rows), rows, dropped, int(changed[rows].sum()))


def mend(line: str, faults: Collection[str] = MENDED) -> str:
    """Mends a line that has faults.

    Args:
        line: The line.
        faults: What is mended, of "mojibake", "control" and "markup".

    Returns:
        The line, with single spaces as its only white space.

    Example:
        >>> from keras_luong.text.cleaning import mend
        >>> mend("fÃ¼r Dr. No &amp;&nbsp;Co.")
        'für Dr. No & Co.'
    """
    if "mojibake" in faults and not line.isascii():
        from ftfy import fix_encoding

        line = fix_encoding(line)
    if "markup" in faults:
        line = html.unescape(line)
    # Some control characters are white space, and entities may be line ends.
    line = " ".join(line.split())
    return " ".join(_CONTROL.sub("", line).split()) if "control" in faults else line


def _hash(source: str, target: str) -> int:
    both = (" ".join(text.split()) for text in (source, target))
    text = "\t".join(both).encode(errors="replace")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _is_new(value: int, seen: set[int]) -> bool:
    """Whether a value was not seen before; it is from now on."""
    size = len(seen)
    seen.add(value)
    return len(seen) > size
