"""Texts in batches of similar length, in bounded memory, in the order that they had.

Shapes: B sentences, S source tokens, T target tokens, end tokens included.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.progress import Progress
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.translation.constraints import check_lines, check_prefixes
from keras_luong.translation.translation import Translation

Texts: TypeAlias = Iterable[str | bytes]
#: Name → texts, the same number for each name; of "constraints", lines of phrases.
Sides: TypeAlias = Mapping[str, Texts]

# Of each side that may be cut, the field that says whether it was.
_CUT = {"texts": "truncated", "targets": "target_truncated"}


class Work(NamedTuple):
    """What is done with batches, and what people are told of it.

    Attributes:
        answer: Maps a batch of each side, tf.string [B], to
            `keras_luong.translation.graph.answers`.
        limits: Side → the name of its limit, and the most tokens that are read of it.
        target_tokenizer: The tokenizer of phrases that must occur.
    """

    answer: Callable[..., dict[str, tf.Tensor]]
    limits: Mapping[str, tuple[str, int]]
    target_tokenizer: Tokenizer


def in_batches(
    work: Work, sides: Sides, batch_size: int, progress: bool = False
) -> list[list[Translation]]:
    """Works on texts in batches of similar length.

    Args:
        work: What to do.
        sides: The texts.
        batch_size: How many are worked on at once.
        progress: Whether to show a progress bar on standard error.

    Returns:
        The hypotheses of each text, in the order of the texts. Warns once if some were
        cut, or lack a phrase.

    Raises:
        TypeError: If a side is a single string, or holds anything but strings.
        ValueError: If they differ in number, `batch_size` is below 1, or a phrase
            cannot be written.
    """
    cut: Counter[str] = Counter()
    found = _in_batches(work, sides, batch_size, progress, cut)
    warn_of_cut(work.limits, cut, len(found))
    return found


def in_windows(
    work: Work, sides: Sides, batch_size: int, window: int
) -> Iterator[list[Translation]]:
    """Works on so many texts of each side at a time, as they come.

    Args:
        work: What to do.
        sides: The texts, however many.
        batch_size: As for `in_batches`.
        window: How many texts are read ahead and sorted by length.

    Yields:
        The hypotheses of each text. Warns at the end, as `in_batches` does.

    Raises:
        TypeError, ValueError: As `in_batches`, or if `window` is below 1.
    """
    check_size("window", window)
    for name, texts in sides.items():
        check_iterable(name, texts)
    rest = {name: iter(texts) for name, texts in sides.items()}
    count, cut = 0, Counter[str]()
    while True:
        some = {name: list(itertools.islice(x, window)) for name, x in rest.items()}
        if not any(some.values()):
            break
        found = _in_batches(work, some, batch_size, False, cut)
        count += len(found)
        yield from found
    warn_of_cut(work.limits, cut, count)


def _in_batches(
    work: Work, sides: Sides, batch_size: int, progress: bool, cut: Counter[str]
) -> list[list[Translation]]:
    """Does the work of `in_batches`; `cut` counts the texts of each side that were."""
    columns = _columns(sides)
    for name, column in zip(sides, columns, strict=True):
        if name == "constraints":
            check_lines(column, work.target_tokenizer)
        elif name == "prefixes":
            check_prefixes(column, work.target_tokenizer)
    check_size("batch_size", batch_size)
    count = len(columns[0])
    order = sorted(range(count), key=lambda i: [len(x[i]) for x in columns])
    bar = Progress(count, "text") if progress else None
    found: dict[int, list[Translation]] = {}
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        batch = work.answer(*(tf.constant([x[i] for i in rows]) for x in columns))
        found.update(zip(rows, _translations(batch), strict=True))
        for side in sides.keys() & _CUT.keys():
            if number := int(tf.math.count_nonzero(batch[_CUT[side]])):
                cut[side] += number
        cut["constraints"] += sum(bool(found[i][0].unmet) for i in rows)
        if bar:
            bar.add(len(rows))
    return [found[i] for i in range(count)]


def warn_of_cut(
    limits: Mapping[str, tuple[str, int]], cut: Counter[str], count: int
) -> None:
    """Warns if texts were cut, naming their limit, or phrases found no room.

    Args:
        limits: As of `Work`.
        cut: Side → how many texts were cut; of "constraints", how many translations
            lack a phrase.
        count: The number of texts.
    """
    if unmet := cut.pop("constraints", 0):
        warnings.warn(
            f"{unmet:,} of {count:,} translations lack a phrase of their constraints, "
            "which their `unmet` names: none that has all was found within the "
            "search's maximum length.",
            stacklevel=4,
        )
    for side, number in cut.items():
        name, limit = limits[side]
        warnings.warn(
            f"{number:,} of {count:,} {side} have more than {name}={limit} tokens: "
            "only their beginnings were read.",
            stacklevel=4,
        )


def _columns(sides: Sides) -> list[list[bytes]]:
    """Encodes the texts of all sides; raises ValueError if they differ in number."""
    columns = {name: all_bytes(name, texts) for name, texts in sides.items()}
    count = len(columns["texts"])
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(
                f"There must be one of `{name}` for each text. Received: {count} "
                f"texts and {len(column)} {name}"
            )
    return list(columns.values())


def _translations(batch: dict[str, tf.Tensor]) -> Iterator[list[Translation]]:
    """Yields the hypotheses of each sentence, without padding."""
    batch = {name: value.numpy() for name, value in batch.items()}
    truncated = batch.keys() & {*_CUT.values()}
    for i, lengths in enumerate(batch["length"]):
        S = batch["source_length"][i]
        source_tokens = [_string(x) for x in batch["source_tokens"][i, :S]]
        yield [
            Translation(
                text=_string(batch["text"][i, n]),
                score=float(batch["score"][i, n]),
                tokens=[_string(x) for x in batch["tokens"][i, n, :T]],
                source_tokens=source_tokens,
                alignment=batch["alignment"][i, n, :T, :S].copy(),
                truncated=any(bool(batch[x][i]) for x in truncated),
                log_probs=batch["log_probs"][i, n, :T].copy(),
                unmet=_unmet(batch, i, n),
            )
            # Empty places are left out, except for the first one.
            for n, T in enumerate(lengths)
            if T or n == 0
        ]


def _unmet(batch: Mapping[str, np.ndarray], i: int, n: int) -> tuple[str, ...]:
    if "unmet" not in batch:
        return ()
    pairs = zip(batch["phrases"][i], batch["unmet"][i, n], strict=True)
    return tuple(_string(phrase) for phrase, lacks in pairs if lacks)


def _string(piece: bytes) -> str:
    # A piece may be one byte of a letter, which is not valid UTF-8.
    return piece.decode("utf-8", errors="replace")


def all_bytes(name: str, texts: Texts) -> list[bytes]:
    """Encodes texts in UTF-8; a lone surrogate becomes invalid UTF-8.

    Args:
        name: Name of the argument, for the error message.
        texts: Strings, or bytes in UTF-8.

    Raises:
        TypeError: If it is a single string, or holds anything but strings.
    """
    check_iterable(name, texts)
    if isinstance(texts, tf.Tensor):
        texts = texts.numpy()
    result = []
    for i, text in enumerate(texts):
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogatepass")
        if not isinstance(text, bytes):
            raise TypeError(
                f"`{name}` must hold str or bytes. Received: {type(text).__name__} "
                f"{text!r} at place {i}."
            )
        result.append(text)
    return result


def check_iterable(name: str, texts: Any) -> None:
    """Raises TypeError unless texts may be several.

    Args:
        name: Name of the argument, for the error message.
        texts: What should be a list of strings, or an iterable of them.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        one = "the single " if isinstance(texts, (str, bytes)) else ""
        raise TypeError(
            f"`{name}` must be a list of strings, or an iterable of them. Received: "
            f"{one}{texts!r:.60}" + ("; write [text]." if one else ".")
        )
