"""How long the hypotheses of each sentence must and may be, by a search's settings.

Shapes: B sentences, P prefix length.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from keras_luong.decoding.sources import (
    Source,
    count_of,
    length_limits,
    share_of_lengths,
    token_counts,
)


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
