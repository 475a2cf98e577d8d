"""Constraints: which tokens may or must come next in a hypothesis.

Shapes: B sentences, K beams, V vocabulary, T longest hypothesis, P prefix.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE
from keras_luong.decoding.stepping import vocab_size_in


def listed(ids: Sequence[int], vocab_size: Any) -> Any:
    """Returns which of all ids are among some, bool [V].

    Args:
        ids: Some ids.
        vocab_size: V, an int or a scalar tensor.
    """
    if isinstance(vocab_size, int):
        return np.isin(np.arange(vocab_size), ids)
    return tf.reduce_any(tf.range(vocab_size)[:, None] == tf.constant(ids), axis=1)


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


def constrained(
    logits: tf.Tensor,
    masks: list[Any],
    forced: tf.Tensor | None,
    pad_id: int,
    ids: tf.Tensor | None,
) -> tf.Tensor:
    """Returns the logits, with -inf where constraints forbid an id.

    Args:
        logits: [B, K, V], or [B, K, M] of the shortlisted words.
        masks: bool, broadcastable to [B, K, V]: ids that are forbidden.
        forced: int32 [B, 1, 1], what `forced_tokens` returned, or None.
        pad_id: The id of padding.
        ids: int32 [M], the shortlisted words, or None.
    """
    if ids is not None:
        masks = [tf.gather(mask, ids, axis=-1) for mask in masks]
    banned = functools.reduce(operator.or_, masks) if masks else False
    if forced is not None:
        others = (tf.range(vocab_size_in(logits)) if ids is None else ids) != forced
        banned = tf.where(forced == pad_id, banned, others)
    return logits if banned is False else tf.where(banned, IMPOSSIBLE, logits)
