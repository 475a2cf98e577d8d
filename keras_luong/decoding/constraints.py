"""Which tokens may come next, the best of them, and how long hypotheses may become.

Shapes: A sentences (B before the first step), K beams, V tokens (or M shortlisted
ones), T longest hypothesis, P longest prefix; in `best_extensions` G groups of D tokens
in each beam, C groups that are looked into.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    LONGEST,
    Source,
    count_of,
    length_limits,
    source_lengths,
    token_counts,
)

GROUP = 64  # tokens of a group, about; measured
SIZES = sorted(range(GROUP // 2, 2 * GROUP), key=lambda size: abs(size - GROUP))
LONG = 4  # times the tokens that are looked at, if it is to be faster


def max_lengths(search: Any, source: Source, prefix_ids: tf.Tensor) -> tf.Tensor:
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


def min_lengths(search: Any, source: Source, limits: tf.Tensor) -> list[tf.Tensor]:
    """Returns the minimum lengths, int32 [B, 1]; an empty list if there are none.

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
    if not least:
        return []
    return [tf.minimum(functools.reduce(tf.maximum, least)[:, None], limits)]


def _relative(search: Any, name: str, source: Source) -> tf.Tensor:
    """Returns the sentences' lengths times a ratio, rounded up, int32 [B]."""
    lengths = source_lengths(source, search.pad_id, name)
    product = tf.cast(lengths, tf.float32) * getattr(search, name)
    product = tf.minimum(product, float(LONGEST))
    # 0.1 * 30 is a little above 3 in floating point.
    return tf.cast(tf.math.ceil(product - 1e-4), tf.int32)


def token_ids(logits: tf.Tensor, listed: tf.Tensor | None) -> Any:
    """Returns the ids of the tokens that logits are of: NumPy's, if they are known.

    Args:
        logits: [..., V or M].
        listed: int32 [M], the shortlisted ids; or None for all.
    """
    if listed is not None:
        return listed
    size = logits.shape[-1]
    return tf.range(tf.shape(logits)[-1]) if size is None else np.arange(size)


def is_among(ids: Any, chosen: Collection[int]) -> Any:
    """Tells which ids, of `token_ids`, are among some: bool [V or M]."""
    if isinstance(ids, np.ndarray):
        return np.isin(ids, sorted(chosen))
    return tf.reduce_any(ids[:, None] == tf.constant(sorted(chosen), tf.int32), axis=1)


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
    # Counts, for each hypothesis and token, the n-grams that it would complete again.
    rows = tf.reshape(tf.range(B * K), [B, K, 1])
    counts = tf.math.unsorted_segment_sum(
        tf.reshape(tf.cast(same & there, tf.int32), [-1]),
        tf.reshape(rows * vocab_size + completing, [-1]),
        B * K * vocab_size,
    )
    return tf.reshape(counts, [B, K, vocab_size]) > 0


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
    sums = add_offsets(logits, offsets)
    if banned is not None:
        sums = tf.where(banned, IMPOSSIBLE, sums)
    if vocab_size is None:
        vocab_size = tf.shape(sums)[2]
    best, places = tf.math.top_k(tf.reshape(sums, [-1, width * vocab_size]), width)
    return best, places // vocab_size, places % vocab_size


def _of_groups(logits, offsets, banned, size, count):
    width, vocab_size = logits.shape[1:]
    missing = -vocab_size % size
    if missing:
        rest = [[0, 0], [0, 0], [0, missing]]
        logits = tf.pad(logits, rest, constant_values=IMPOSSIBLE)
    in_beam = (vocab_size + missing) // size
    groups = tf.reshape(logits, [-1, width, in_beam, size])
    highest = add_offsets(tf.reduce_max(groups, axis=-1), offsets)
    highest = tf.reshape(highest, [-1, width * in_beam])
    # In their order, so that of equal sums the first is found.
    chosen = -tf.math.top_k(-tf.math.top_k(highest, count).indices, count).values
    groups = tf.reshape(groups, [-1, width * in_beam, size])
    beams, within = chosen // in_beam, chosen % in_beam
    sums = add_offsets(
        tf.gather(groups, chosen, batch_dims=1), tf.gather(offsets, beams, batch_dims=1)
    )
    # Not -inf to add: LiteRT's converter would store such a table in int8.
    table = tf.constant(np.pad(banned, [0, missing]).reshape(in_beam, size))
    sums = tf.where(tf.gather(table, within), IMPOSSIBLE, sums)
    best, places = tf.math.top_k(tf.reshape(sums, [-1, count * size]), width)
    groups = places // size
    tokens = tf.gather(within * size, groups, batch_dims=1) + places % size
    return best, tf.gather(beams, groups, batch_dims=1), tokens


def add_offsets(logits: tf.Tensor, offsets: tf.Tensor) -> tf.Tensor:
    """Returns `offsets + logits`, -inf where the offset is, whatever the logits."""
    return tf.where(offsets > IMPOSSIBLE, logits + offsets, IMPOSSIBLE)
