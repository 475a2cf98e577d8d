"""Texts in batches of similar length, in bounded memory, in the order that they had.

`Translation` is the result for one of them.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.progress import Progress
from keras_luong.special_ids import UNK_ID
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.translation.graph import MOST_PHRASES, SEPARATOR, TOO_MANY

Texts: TypeAlias = Iterable[str | bytes]
PhraseLists: TypeAlias = Iterable[Iterable[str]]  # those of each text
#: Name → texts, the same number for each name; of "constraints", lines of phrases.
Sides: TypeAlias = Mapping[str, Texts]

MOST = 10  # phrases that an error message names

# Of each side that may be cut, the field that says whether it was.
_CUT = {"texts": "truncated", "targets": "target_truncated"}


class Translation(NamedTuple):
    """A translated sentence, with its score and alignment.

    Attributes:
        text: The translation; empty if the source is empty or white space.
        score: The score by which the search ranked it; 0.0 for an empty source.
        tokens: The target's pieces, the end token included.
        source_tokens: The source's pieces as the model read them, the end token
            included.
        alignment: float32 [len(tokens), len(source_tokens)], the attention.
        truncated: Whether the source, or the target of `score`, was too long and only
            its beginning was read.
        log_probs: float32 [len(tokens)], the model's log-probability of each token.
        unmet: The phrases that it should contain and does not, as no translation with
            all of them was found within the maximum length.

    Example:
        >>> [translation] = kl.load("runs/mine").translate(["the dog"])
        >>> translation.source_tokens
        ['the', 'dog', '</s>']
        >>> translation.alignment.shape == (len(translation.tokens), 3)
        True
    """

    text: str
    score: float
    tokens: list[str]
    source_tokens: list[str]
    alignment: np.ndarray
    truncated: bool
    log_probs: np.ndarray
    unmet: tuple[str, ...] = ()


def in_batches(
    translator: Any,
    answer: Callable[..., dict[str, tf.Tensor]],
    sides: Sides,
    batch_size: int,
    window: int | None = None,
    progress: bool = False,
) -> Iterator[list[Translation]]:
    """Works on texts in batches of similar length.

    Args:
        translator: The `Translator`, for its limits and its target tokenizer.
        answer: Maps a batch of each side, tf.string [B], to
            `keras_luong.translation.graph.answers`.
        sides: The texts.
        batch_size: How many are worked on at once.
        window: How many texts are read ahead and sorted by length; None for all.
        progress: Whether to show a progress bar on standard error.

    Yields:
        The hypotheses of each text, in the order of the texts. Warns at the end, once,
        if some were cut, or lack a phrase.

    Raises:
        TypeError: If a side is a single string, or holds anything but strings.
        ValueError: If they differ in number, a size is below 1, or a phrase cannot be
            written.
    """
    check_size("batch_size", batch_size)
    check_size("window", window, optional=True)
    for name, texts in sides.items():
        _check_iterable(name, texts)
    rest = {name: iter(_without_tensor(texts)) for name, texts in sides.items()}
    count, cut = 0, Counter[str]()
    while True:
        some = {
            name: all_bytes(name, itertools.islice(texts, window))
            for name, texts in rest.items()
        }
        if not any(some.values()):
            break
        _check_sides(some, translator.target_tokenizer)
        yield from _in_batches(answer, some, batch_size, progress, cut)
        count += len(some["texts"])
    names = {"texts": "max_source_length", "targets": "max_target_length"}
    limits = {side: (name, getattr(translator, name)) for side, name in names.items()}
    warn_of_cut(limits, cut, count)


def _in_batches(answer, sides, batch_size, progress, cut):
    """Works on the texts of a window; `cut` counts those of each side that were."""
    count, columns = len(sides["texts"]), list(sides.values())
    order = sorted(range(count), key=lambda i: [len(x[i]) for x in columns])
    bar = Progress(count, "text") if progress else None
    done: dict[int, list[Translation]] = {}
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        batch = answer(*(tf.constant([x[i] for i in rows]) for x in columns))
        done.update(zip(rows, _translations(batch), strict=True))
        for name in sides.keys() & _CUT.keys():
            if number := int(tf.math.count_nonzero(batch[_CUT[name]])):
                cut[name] += number
        cut["constraints"] += sum(bool(done[i][0].unmet) for i in rows)
        if bar:
            bar.add(len(rows))
    return [done[i] for i in range(count)]


def _translations(batch: dict[str, tf.Tensor]) -> Iterator[list[Translation]]:
    """Yields the hypotheses of each sentence, without padding."""
    batch = {name: value.numpy() for name, value in batch.items()}
    truncated = batch.keys() & {*_CUT.values()}

    def strings(pieces):
        # A piece may be one byte of a letter, which is not valid UTF-8.
        return [piece.decode("utf-8", errors="replace") for piece in pieces]

    for i, lengths in enumerate(batch["length"]):
        S = batch["source_length"][i]
        phrases = strings(batch["phrases"][i]) if "phrases" in batch else []
        yield [
            Translation(
                text=strings([batch["text"][i, n]])[0],
                score=float(batch["score"][i, n]),
                tokens=strings(batch["tokens"][i, n, :T]),
                source_tokens=strings(batch["source_tokens"][i, :S]),
                alignment=batch["alignment"][i, n, :T, :S].copy(),
                truncated=any(bool(batch[x][i]) for x in truncated),
                log_probs=batch["log_probs"][i, n, :T].copy(),
                unmet=tuple(
                    x for k, x in enumerate(phrases) if batch["unmet"][i, n, k]
                ),
            )
            # Empty places are left out, except for the first one.
            for n, T in enumerate(lengths)
            if T or n == 0
        ]


def warn_of_cut(
    limits: Mapping[str, tuple[str, int]], cut: Counter[str], count: int
) -> None:
    """Warns if texts were cut, naming their limit, or phrases found no room.

    Args:
        limits: Side → the name of its limit, and the most tokens that are read of it.
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


def all_bytes(name: str, texts: Texts) -> list[bytes]:
    """Encodes texts in UTF-8; a lone surrogate becomes invalid UTF-8.

    Args:
        name: Name of the argument, for the error message.
        texts: Strings, or bytes in UTF-8.

    Raises:
        TypeError: If it is a single string, or holds anything but strings.
    """
    _check_iterable(name, texts)
    result = []
    for i, text in enumerate(_without_tensor(texts)):
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogatepass")
        if not isinstance(text, bytes):
            raise TypeError(
                f"`{name}` must hold str or bytes. Received: {type(text).__name__} "
                f"{text!r} at place {i}."
            )
        result.append(text)
    return result


def _without_tensor(texts: Any) -> Any:
    return texts.numpy() if isinstance(texts, tf.Tensor) else texts


def _check_iterable(name: str, texts: Any) -> None:
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


def phrase_lines(constraints: PhraseLists) -> Iterator[str]:
    """Yields the phrases of each text as one line, separated by tabs.

    Args:
        constraints: For each text, the phrases that its translation must contain.

    Raises:
        TypeError: If something else than lists of strings is given.
        ValueError: If a phrase is blank, or a text has too many.
    """
    if isinstance(constraints, (str, bytes)) or not isinstance(constraints, Iterable):
        raise TypeError(
            "`constraints` must be a list of phrases for each text, such as "
            f'[["Hund"], []]. Received: {constraints!r:.60}'
        )
    for place, phrases in enumerate(constraints):
        if isinstance(phrases, (str, bytes)) or not isinstance(phrases, Iterable):
            raise TypeError(
                "`constraints` must hold a list of phrases for each text. Received: "
                f"{phrases!r:.60} at place {place}; write [phrase]."
            )
        cleaned = [_clean(phrase) for phrase in phrases]
        if len(cleaned) > MOST_PHRASES:
            raise ValueError(
                f"{TOO_MANY} {MOST_PHRASES}. Received: {len(cleaned)} at place {place}"
            )
        yield SEPARATOR.join(cleaned)


def _clean(phrase: Any) -> str:
    if not isinstance(phrase, str):
        raise TypeError(f"A phrase must be a str. Received: {phrase!r:.60}")
    if not phrase.strip():
        raise ValueError(f"A phrase must have a word. Received: {phrase!r}")
    return " ".join(phrase.split())


def _check_sides(sides: Mapping[str, list[bytes]], tokenizer: Tokenizer) -> None:
    """Raises ValueError if sides differ in number, or a phrase cannot be written."""
    count = len(sides["texts"])
    for name, side in sides.items():
        if len(side) != count:
            raise ValueError(
                f"There must be one of `{name}` for each text. Received: {count} "
                f"texts and {len(side)} {name}"
            )
    lines, prefixes = (
        [text.decode("utf-8", "replace") for text in sides.get(name, ())]
        for name in ("constraints", "prefixes")
    )
    phrases = sorted({phrase for line in lines for phrase in line.split(SEPARATOR)})
    for must, texts in {"contain": phrases, "begin with": prefixes}.items():
        if unknown := unwritable(texts, tokenizer):
            more = f" and {len(unknown) - MOST} more" if len(unknown) > MOST else ""
            raise ValueError(
                f"No translation can {must} {', '.join(map(repr, unknown[:MOST]))}"
                f"{more}: the target tokenizer does not know all of its words or "
                "letters."
            )


def unwritable(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Returns the texts of which a tokenizer does not know all, each once.

    Args:
        texts: Phrases, or beginnings of translations.
        tokenizer: The target language's tokenizer.
    """
    if not (texts := [x for x in dict.fromkeys(texts) if x.strip()]):
        return []
    rows = tokenizer.encode(tf.constant(texts)).to_list()
    pairs = zip(texts, rows, strict=True)
    return [text for text, ids in pairs if not ids or UNK_ID in ids]
