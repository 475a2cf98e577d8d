"""Constraints: which tokens may or must come next in a hypothesis.

Shapes: B sentences, K beams, V vocabulary, T longest hypothesis, P prefix.

Settings of searches, checked by `keras_luong.config.fields.check_fields`.

How long the hypotheses of each sentence must and may be, by a search's settings.

Shapes: B sentences, P prefix length.

The best extensions of a sentence's hypotheses by one token each.

Shapes: A sentences, K beams, V tokens (or M shortlisted ones); G groups of D tokens in
each beam, C groups that are looked into.
"""

from __future__ import annotations

import functools
import numbers
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.penalties import (
    CoveragePenalty,
    LengthPenalty,
    coverage_penalty_of,
    length_penalty_of,
)
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    LONGEST,
    Source,
    count_of,
    length_limits,
    share_of_lengths,
    token_counts,
)

Size = Annotated[int, partial(check_size, largest=LONGEST)]
SizeOrZero = Annotated[int, partial(check_size, smallest=0, largest=LONGEST)]
SizeOrNone = Annotated[int | None, partial(check_size, optional=True, largest=LONGEST)]


def _penalty(read: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """Returns a check of a penalty that keeps numbers and makes objects of mappings."""

    def check(name: str, given: Any) -> Any:
        del name  # `read` has it
        penalty = read(given)
        return float(given) if isinstance(given, numbers.Real) else penalty

    return check


def _check_forbidden(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be ids, such as (1,). Received: {given!r}")
    # Files hold a list. A tuple makes the search hashable.
    return tuple(check_size(f"an id in {name}", x, smallest=0) for x in given)


def _check_shortlist(name: str, given: Any) -> Shortlist | None:
    if not isinstance(given, Shortlist | None):
        raise TypeError(f"{name} must be a Shortlist or None. Received: {given!r}")
    return given


def _check_early_stopping(name: str, given: Any) -> bool | str:
    if not isinstance(given, bool) and given != "first":
        raise ValueError(f'{name} must be True, False or "first". Received: {given!r}')
    return given


LengthPenaltyOf = Annotated[
    float | Mapping[str, Any] | LengthPenalty, _penalty(length_penalty_of)
]
CoveragePenaltyOf = Annotated[
    float | Mapping[str, Any] | CoveragePenalty, _penalty(coverage_penalty_of)
]
Forbidden = Annotated[tuple[int, ...], _check_forbidden]
ShortlistOrNone = Annotated[Shortlist | None, _check_shortlist]
EarlyStopping = Annotated[bool | str, _check_early_stopping]


def longest(search: Any, source: Source, prefix_ids: tf.Tensor) -> tf.Tensor:
    """Returns the maximum length of each sentence's hypotheses, int32 [B, 1].

    Args:
        search: A `BeamSearch`.
        source: The source.
        prefix_ids: int32 [B, P], how hypotheses must begin; they may go on for a token.
    """
    if search.max_length_ratio is None:
        limits = length_limits(source, search.max_length, search.pad_id)
    else:
        limits = tf.maximum(1, _relative(search, "max_length_ratio", source))
        if search.max_length is not None:
            limits = tf.minimum(limits, search.max_length)
    if prefix_ids.shape[1] != 0:
        prefix = token_counts(prefix_ids, search.pad_id)
        limits = tf.where(prefix > 0, tf.maximum(limits, prefix + 1), limits)
    return limits[:, None]


def shortest(search: Any, source: Source, limits: tf.Tensor) -> list[tf.Tensor]:
    """Returns the minimum lengths, each int32 [B, 1]; nothing if there are none.

    Args:
        search: A `BeamSearch`.
        source: The source.
        limits: The maximum lengths, which are never below.
    """
    least = []
    if search.min_length:
        least.append(tf.fill([count_of(source)], search.min_length))
    if search.min_length_ratio:
        least.append(_relative(search, "min_length_ratio", source))
    return [tf.minimum(x[:, None], limits) for x in least]


def _relative(search, name, source):
    return share_of_lengths(source, search.pad_id, getattr(search, name), name)


def repeats(
    written: tf.Tensor, time: tf.Tensor, size: int, vocab_size: Any
) -> tf.Tensor:
    """Returns which tokens would repeat an n-gram of the hypothesis, bool [B, K, V].

    Args:
        written: int32 [B, K, T], the tokens so far.
        time: int32, the number of tokens so far.
        size: The n of the n-grams.
        vocab_size: V, an int or a scalar tensor.
    """
    B, K, T = tf.unstack(tf.shape(written))
    windows = tf.maximum(T - size + 1, 0)  # the places where an n-gram may begin
    same = tf.fill([B, K, windows], True)
    for j in range(size - 1):
        last = tf.gather(written, tf.maximum(time - size + 1 + j, 0), axis=2)
        same &= written[:, :, j : windows + j] == last[..., None]
    there = (tf.range(windows) <= time - size) & (time >= size - 1)
    completing = written[:, :, size - 1 : windows + size - 1]
    return _any_of(completing, same & there, vocab_size)


def _any_of(tokens: tf.Tensor, chosen: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Returns which ids are among the chosen tokens [B, K, n], bool [B, K, V]."""
    shape = tf.shape(tokens)
    rows = tf.reshape(tf.range(shape[0] * shape[1]), [shape[0], shape[1], 1])
    places = rows * vocab_size + tokens
    counts = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(chosen, tf.int32), [-1]),
        tf.reshape(places, [-1]),
        shape[0] * shape[1] * vocab_size,
    )
    return tf.reshape(counts, [shape[0], shape[1], vocab_size]) > 0


def forced_tokens(prefix: tf.Tensor, time: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Returns the token that must come next in each sentence's hypotheses.

    Args:
        prefix: int32 [B, P], right-padded with `pad_id`.
        time: int32, the number of tokens so far.
        pad_id: The id of padding.

    Returns:
        int32 [B], `pad_id` where any token is allowed.
    """
    open_end = tf.pad(prefix, [[0, 0], [0, 1]], constant_values=pad_id)
    return open_end[:, tf.minimum(time, tf.shape(prefix)[1])]


def words_of(
    logits: tf.Tensor, never: Collection[int], ids: tf.Tensor | None
) -> tuple[Any, Any] | None:
    """Returns the tokens that a search chooses from, before its loop.

    Args:
        logits: Such as its model's, [..., V or M].
        never: The ids that are never generated.
        ids: int32 [M], the shortlisted ids; or None for all.

    Returns:
        The ids, and whether they are never generated: tensors if there are `ids`, else
        NumPy arrays [V]. None if V is not known.
    """
    if ids is not None:
        is_never = ids[:, None] == tf.constant(sorted(never), tf.int32)
        return ids, tf.reduce_any(is_never, axis=1)
    if logits.shape[-1] is None:
        return None
    words = np.arange(logits.shape[-1])
    return words, np.isin(words, sorted(never))


def constrained(
    logits: tf.Tensor,
    masks: list[Any],
    forced: tf.Tensor | None,
    pad_id: int,
    ids: Any,
) -> tf.Tensor:
    """Returns the logits, with -inf where constraints forbid an id.

    Args:
        logits: [B, K, V], or [B, K, M] of the shortlisted words.
        masks: bool, broadcastable to the logits: tokens that are forbidden.
        forced: int32 [B], what `forced_tokens` returned, or None.
        pad_id: The id of padding.
        ids: Integers [V] or [M], the tokens' ids.
    """
    banned = functools.reduce(operator.or_, masks) if masks else False
    if forced is not None:
        forced = forced[:, None, None]
        banned = tf.where(forced == pad_id, banned, ids != forced)
    return logits if banned is False else tf.where(banned, IMPOSSIBLE, logits)


GROUP = 64  # tokens of a group, about; measured
SIZES = sorted(range(GROUP // 2, 2 * GROUP), key=lambda size: abs(size - GROUP))
LONG = 4  # times the tokens that are looked at, if it is to be faster


def best_extensions(
    logits: tf.Tensor, offsets: tf.Tensor, banned: Any = None
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Finds the K highest of all sums `offsets + logits` of a sentence.

    On a CPU `tf.math.top_k` pushes every entry to a heap, which takes several times as
    long as a maximum. So where the vocabulary is large, the tokens are grouped, the C
    groups with the largest maxima are found, and only these are looked into. No other
    group can have one of the best: the maxima of K groups, banned tokens left out, are
    larger, or as large and earlier.

    Args:
        logits: float32 [A, K, V]; V must be static for the faster way.
        offsets: float32 [A, K, 1], -inf where a beam has nothing to offer: then its
            logits may be NaN.
        banned: bool [V], tokens that are not to be found, a NumPy array or a tensor; or
            None.

    Returns:
        The sums, highest first, their beams and their tokens, [A, K]; among equals the
        lower beam, then the lower token, comes first. A sum is -inf if there is none.
    """
    width, vocab_size = logits.shape[1:]
    if isinstance(banned, np.ndarray) and vocab_size is not None:
        size = next((size for size in SIZES if vocab_size % size == 0), GROUP)
        dirty = len(set(np.flatnonzero(banned) // size))  # their maxima say nothing
        count = width * (1 + dirty)
        if vocab_size * width >= LONG * count * size:
            return _of_groups(logits, offsets, banned, size, count)
    return _of_all(logits, offsets, banned)


def summed(logits: tf.Tensor, offsets: tf.Tensor) -> tf.Tensor:
    """Returns `offsets + logits`, -inf where the offset is, whatever the logits."""
    return tf.where(offsets > IMPOSSIBLE, logits + offsets, IMPOSSIBLE)


def _of_all(logits, offsets, banned):
    sums = summed(logits, offsets)
    if banned is not None:
        sums = tf.where(banned, IMPOSSIBLE, sums)
    width, vocab_size = sums.shape[1:]
    if vocab_size is None:
        vocab_size = tf.shape(sums)[2]
    sums = tf.reshape(sums, [-1, width * vocab_size])
    best, places = tf.math.top_k(sums, width)
    return best, places // vocab_size, places % vocab_size


def _of_groups(logits, offsets, banned, size, count):
    width, vocab_size = logits.shape[1:]
    missing = -vocab_size % size
    if missing:
        rest = [[0, 0], [0, 0], [0, missing]]
        logits = tf.pad(logits, rest, constant_values=IMPOSSIBLE)
    in_beam = (vocab_size + missing) // size
    groups = tf.reshape(logits, [-1, width, in_beam, size])
    highest = summed(tf.reduce_max(groups, axis=-1), offsets)
    highest = tf.reshape(highest, [-1, width * in_beam])
    # In their order, so that of equal sums the first is found.
    chosen = -tf.math.top_k(-tf.math.top_k(highest, count).indices, count).values
    groups = tf.reshape(groups, [-1, width * in_beam, size])
    beams, within = chosen // in_beam, chosen % in_beam
    sums = summed(
        tf.gather(groups, chosen, batch_dims=1), tf.gather(offsets, beams, batch_dims=1)
    )
    # Not -inf to add: LiteRT's converter would store such a table in int8.
    table = tf.constant(np.pad(banned, [0, missing]).reshape(in_beam, size))
    sums = tf.where(tf.gather(table, within), IMPOSSIBLE, sums)
    best, places = tf.math.top_k(tf.reshape(sums, [-1, count * size]), width)
    found = places // size
    tokens = tf.gather(within * size, found, batch_dims=1) + places % size
    return best, tf.gather(beams, found, batch_dims=1), tokens
