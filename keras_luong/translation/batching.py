"""Texts in batches of similar length, in bounded memory, in the order that they had.

Shapes: B sentences, S source tokens, T target tokens, end tokens included.

The result of translating a sentence.

The parts of a translator's and its exports' graph before and after a search.

Shapes: B sentences, N hypotheses of each, S source tokens, T target tokens,
end tokens included.
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
from keras_luong.decoding.lexical import Constraints, unmet_by
from keras_luong.decoding.step_model import IMPOSSIBLE, Hypotheses, follow, token_counts
from keras_luong.progress import Progress
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.batches import ended_rows
from keras_luong.text.tokenizer import Tokenizer, known
from keras_luong.translation.constraints import check_lines, check_prefixes


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


# SentencePiece's longest piece: 16 characters of 4 bytes. Texts are cut to the length
# that the tokens can have, as tokenizing alone could take minutes for one request.
BYTES_PER_TOKEN = 64
WHITE_SPACE = r"[\s\x0b\x1c-\x1f\x{85}\p{Z}]*"  # what Python's strip() removes


class Source(NamedTuple):
    """A batch of sentences, ready for a search."""

    ids: tf.Tensor  # int32 [B, S]
    truncated: tf.Tensor  # bool [B]
    empty: tf.Tensor  # bool [B]


def read_text(text: tf.Tensor, tokenizer: Tokenizer, most: int) -> Source:
    """Tokenizes texts; even for an empty one the row has the end token.

    Args:
        text: tf.string [B], any bytes.
        tokenizer: The tokenizer of their language.
        most: Most tokens to read of a text, without the end token.
    """
    text = tf.strings.strip(text)
    cut = tf.strings.length(text) > BYTES_PER_TOKEN * most
    text = tf.strings.substr(text, 0, BYTES_PER_TOKEN * most)
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    source = _source(tokenizer.encode(text), most)
    empty = source.empty | tf.strings.regex_full_match(text, WHITE_SPACE)
    return Source(source.ids, cut | (source.truncated & ~empty), empty)


def read_ids(ids: tf.Tensor, lengths: tf.Tensor, vocab_size: int, most: int) -> Source:
    """Makes a `Source` of ids that were tokenized elsewhere.

    Padding, begin and end ids are removed, an end id is added to each row, and ids
    outside the vocabulary become the unknown id.

    Args:
        ids: int32 [B, S].
        lengths: int32 [B], the number of valid ids in each row.
        vocab_size: The size of the source's vocabulary.
        most: Most tokens to read of a row, without the end token.
    """
    inside = tf.range(tf.shape(ids)[1]) < lengths[:, tf.newaxis]
    words = (ids != PAD_ID) & (ids != BOS_ID) & (ids != EOS_ID)
    rows = tf.ragged.boolean_mask(known(ids, vocab_size), inside & words)
    return _source(rows, most)


def _source(ids: tf.RaggedTensor, most: int) -> Source:
    rows, truncated = ended_rows(ids, most)
    # At least one column, as an encoder's loop must run to have known shapes.
    width = tf.maximum(1, tf.cast(rows.bounding_shape(axis=1), tf.int32))
    return Source(
        ids=rows.to_tensor(PAD_ID, shape=tf.stack([-1, width])),
        truncated=truncated,
        empty=rows.row_lengths() == 1,  # the end token alone
    )


def answers(
    source: Source,
    hypotheses: Hypotheses,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    n_best: int | None = None,
    constraints: Constraints | None = None,
) -> dict[str, tf.Tensor]:
    """Returns the fields of a batch's `Translation`s as padded tensors.

    Args:
        source: The sentences that were read.
        hypotheses: The results of a search for them.
        source_tokenizer: The tokenizer that read them.
        target_tokenizer: The tokenizer of the hypotheses.
        n_best: How many of a sentence's hypotheses are kept, no two of them with the
            same text. None keeps all of them as they are.
        constraints: The phrases that they were to contain: "unmet" says which they do
            not. None for none.

    Returns:
        Name → tensor [B, N, ...], or [B, ...] for fields that all hypotheses share. An
        empty sentence has one hypothesis, "" with score 0. Places without a hypothesis
        have the text "", the length 0 and the score -inf.
    """
    empty = source.empty[:, None]
    text = target_tokenizer.decode(hypotheses.ids)
    if n_best is not None:
        hypotheses, text = _distinct(hypotheses, text, n_best)
    first = tf.range(tf.shape(text)[1]) == 0
    unmet = {}
    if constraints is not None:
        ids = tf.where(source.empty[:, None, None], PAD_ID, hypotheses.ids)
        unmet["unmet"] = unmet_by(constraints, ids, PAD_ID)
    return {
        **unmet,
        "text": tf.where(empty, "", text),
        "score": tf.where(empty, tf.where(first, 0.0, IMPOSSIBLE), hypotheses.scores),
        "tokens": target_tokenizer.pieces(hypotheses.ids),
        "length": tf.where(empty, 0, hypotheses.lengths),
        "source_tokens": source_tokenizer.pieces(source.ids),
        "source_length": tf.where(source.empty, 0, token_counts(source.ids)),
        "alignment": attention_to(source.ids, hypotheses),
        "truncated": source.truncated,
        "log_probs": hypotheses.token_log_probs,
    }


def attention_to(source_ids: tf.Tensor, hypotheses: Hypotheses) -> tf.Tensor:
    """Returns the attention [B, N, T, S]; zeros for a model that has none."""
    weights = hypotheses.weights
    if weights.shape[-1] != 0:
        return weights
    size = tf.shape(source_ids)[1]
    return tf.zeros([*tf.unstack(tf.shape(hypotheses.ids)), size])


def _distinct(
    hypotheses: Hypotheses, text: tf.Tensor, n_best: int
) -> tuple[Hypotheses, tf.Tensor]:
    """Keeps the best hypothesis of each text: one text may be segmented in two ways."""
    there = hypotheses.lengths > 0
    same = (text[:, :, None] == text[:, None, :]) & there[:, None, :]
    places = tf.range(tf.shape(text)[1])
    kept = there & ~tf.reduce_any(same & (places[:, None] > places), axis=2)
    # A stable sort: the kept ones come first, in their order.
    places = tf.argsort(tf.cast(~kept, tf.int32), axis=1, stable=True)[:, :n_best]
    hypotheses, text, kept = follow((hypotheses, text, kept), places)
    return _emptied(hypotheses, kept), tf.where(kept, text, "")


def _emptied(hypotheses: Hypotheses, kept: tf.Tensor) -> Hypotheses:
    """Makes empty places of the hypotheses that are not kept."""
    return hypotheses._replace(
        ids=tf.where(kept[:, :, None], hypotheses.ids, PAD_ID),
        lengths=tf.where(kept, hypotheses.lengths, 0),
        scores=tf.where(kept, hypotheses.scores, IMPOSSIBLE),
    )


Texts: TypeAlias = Iterable[str | bytes]
#: Name → texts, the same number for each name; of "constraints", lines of phrases.
Sides: TypeAlias = Mapping[str, Texts]

# Of each side that may be cut, the field that says whether it was.
_CUT = {"texts": "truncated", "targets": "target_truncated"}


class Work(NamedTuple):
    """What is done with batches, and what people are told of it.

    Attributes:
        answer: Maps a batch of each side, tf.string [B], to
            `keras_luong.translation.batching.answers`.
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
