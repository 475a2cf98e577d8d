"""What a search reads: ids, features, images, or several of them at once.

Shapes: B sentences, S source length, P prefix length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from keras_luong.checks import check_same, check_tensorflow
from keras_luong.special_ids import PAD_ID

SEEDS = 2**63  # a seed is an int64
LONGEST = 2**20  # tokens: far beyond any sentence, far from overflow

#: A tensor [B, ...], or a tuple or dict of them.
Source: TypeAlias = Any


def check_source(source: Any) -> Source:
    """Returns a source as tensors; integers of two axes, which are ids, as int32.

    Args:
        source: A tensor [B, ...], or something to make one of; or a tuple or dict of
            them, which may be nested.

    Raises:
        TypeError: If it cannot be made tensors.
        ValueError: If a tensor has no axis of sentences, or one of ids has no column,
            or they have different numbers of sentences.
    """
    check_tensorflow()
    if _is_nest(source):
        nest = tf.nest.map_structure(_tensor, source)
    else:
        nest = _tensor(source, alone=True)
    leaves = tf.nest.flatten(nest)
    if not leaves:
        raise ValueError(f"The source must hold a tensor. Received: {source!r}")
    counts = {f"tensor {i}": _count(x) for i, x in enumerate(leaves)}
    check_same("The number of sentences in the source", **counts)
    return nest


def _is_nest(source):
    """Tells whether it is a dict, or a tuple of more than numbers."""
    if isinstance(source, tuple):
        return any(getattr(x, "shape", ()) != () for x in tf.nest.flatten(source))
    return isinstance(source, Mapping)


def _tensor(x, alone=False):
    try:
        x = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "The source must be a tensor, or a tuple or dict of tensors (of a "
            f"RaggedTensor give its to_tensor()). Received: {x!r:.200}"
        ) from error
    rank = x.shape.rank
    ids = x.dtype.is_integer and rank in (1, 2, None)
    # One number for each sentence may be its length, but it is no sentence.
    number = rank == 0 or (alone and ids and rank == 1)
    if number or (rank is not None and 0 in x.shape[1:]):
        raise ValueError(
            "The source must have a row for each sentence: the shape [B, S] if it is "
            f"ids, S at least 1. Received: {x.shape}"
        )
    return tf.cast(x, tf.int32) if ids else x


def _count(x):
    return None if x.shape.rank is None else x.shape[0]


def count_of(source: Source) -> tf.Tensor:
    """Returns the number of sentences, an int32 scalar."""
    return tf.shape(tf.nest.flatten(source)[0])[0]


def known_count_of(source: Source) -> int | None:
    """Returns the number of sentences if the graph knows it, else None."""
    return _count(tf.nest.flatten(source)[0])


def is_ids(source: Source) -> bool:
    """Tells whether a source is one tensor of ids, int32 [B, S]."""
    is_tensor = tf.is_tensor(source)
    return is_tensor and source.dtype == tf.int32 and source.shape.rank in (2, None)


def source_lengths(source: Source, pad_id: int, needed_by: str) -> tf.Tensor:
    """Returns the number of ids that are not padding in each sentence, int32 [B].

    Args:
        source: A source of ids, right-padded with `pad_id`.
        pad_id: The id of padding.
        needed_by: What needs the lengths, for the error message.

    Raises:
        ValueError: If the source is no ids, so that nothing says where it ends.
    """
    if not is_ids(source):
        raise ValueError(
            f"{needed_by} needs a source of ids, int32 [B, S], whose length without "
            f"padding is known. Give a max_length. Received: {_described(source)}"
        )
    return token_counts(source, pad_id)


def _described(source):
    shapes = tf.nest.map_structure(lambda x: f"{x.dtype.name} {x.shape}", source)
    return shapes if isinstance(shapes, str) else repr(shapes)


def share_of_lengths(
    source: Source, pad_id: int, ratio: float, needed_by: str
) -> tf.Tensor:
    """Returns the sentences' lengths times a ratio, rounded up, int32 [B].

    Args:
        source: A source of ids.
        pad_id: The id of padding.
        ratio: Not negative.
        needed_by: As for `source_lengths`.
    """
    lengths = source_lengths(source, pad_id, needed_by)
    product = tf.minimum(tf.cast(lengths, tf.float32) * ratio, float(LONGEST))
    # 0.1 * 30 is a little above 3 in floating point.
    return tf.cast(tf.math.ceil(product - 1e-4), tf.int32)


def source_mask(source: Source, pad_id: int, positions: tf.TensorShape) -> tf.Tensor:
    """Returns which of the attended positions are no padding, bool [B, S] or [B, 1].

    Args:
        source: The source.
        pad_id: The id of padding.
        positions: The shape [S] of a step's attention. Where it is another than that of
            ids, as for images, no position is padding.
    """
    if is_ids(source) and source.shape[1:].is_compatible_with(positions):
        return source != pad_id
    return tf.fill([count_of(source), 1], True)


def length_limits(source: Source, max_length: int | None, pad_id: int) -> tf.Tensor:
    """Returns the maximum length of each sentence's hypotheses, int32 [B].

    Args:
        source: The source.
        max_length: The maximum of all, or None for twice the sentence's own length
            (without padding, so it does not depend on other sentences) plus 10.
        pad_id: The id of padding.

    Raises:
        ValueError: If there is no maximum, and the source is no ids.
    """
    if max_length is not None:
        return tf.fill(tf.shape(tf.nest.flatten(source)[0])[:1], max_length)
    return 2 * source_lengths(source, pad_id, "max_length=None") + 10


def token_counts(ids: tf.Tensor, pad_id: int = PAD_ID) -> tf.Tensor:
    """Returns the number of ids without padding in each row [B, T], int32 [B]."""
    return tf.reduce_sum(tf.cast(ids != pad_id, tf.int32), axis=1)


def check_target_ids(name: str, ids: tf.Tensor, source: Source) -> tf.Tensor:
    """Returns ids of the target language as int32, a row for each source.

    Args:
        name: Name of the argument, such as "prefix_ids", for the error message.
        ids: Integers [B, any].
        source: The source.

    Raises:
        ValueError: If the ids are of another shape.
    """
    ids = tf.cast(tf.convert_to_tensor(ids), tf.int32)
    rows = tf.TensorShape([known_count_of(source)])
    if ids.shape.rank != 2 or not rows.is_compatible_with(ids.shape[:1]):
        raise ValueError(
            f"{name} must have a row for each of the sentences, two axes. Received: "
            f"{ids.shape} for a source of {_described(source)}"
        )
    return ids


def fingerprints(source: Source, pad_id: int) -> tf.Tensor:
    """Returns a hash of each sentence without its padding, int64 [B].

    Args:
        source: The source.
        pad_id: The id of padding; where the source is no ids, zeros are padding.
    """
    padding = pad_id if is_ids(source) else 0
    words = [_words(x, padding) for x in tf.nest.flatten(source)]
    sentences = words[0] if len(words) == 1 else tf.strings.join(words, "|")
    return tf.strings.to_hash_bucket_fast(sentences, SEEDS - 1)


def _words(x, padding):
    """Writes the values of each row that are not padding: string [B]."""
    if x.dtype == tf.string:
        return tf.strings.reduce_join(x, axis=range(1, x.shape.rank), separator=" ")
    values = tf.where(tf.cast(x, tf.bool), x, 0) if x.dtype.is_floating else x
    bits = {2: tf.int16, 4: tf.int32, 8: tf.int64}
    if x.dtype.is_floating:  # all of them, where a decimal number would lose some
        values = tf.bitcast(values, bits[x.dtype.size])
    words = tf.strings.as_string(values) + " "
    words = tf.where(values == tf.cast(padding, values.dtype), "", words)
    if x.shape.rank != 2:
        words = tf.reshape(words, [tf.shape(x)[0], -1])
    return tf.strings.reduce_join(words, axis=1)
