"""Constraints: which tokens may or must come next in a hypothesis.

Shapes: B sentences, K beams, V vocabulary, T longest hypothesis, P prefix.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE


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
