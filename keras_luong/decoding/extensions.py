"""The best extensions of a sentence's hypotheses by one token each.

Shapes: A sentences, K beams, V tokens (or M shortlisted ones); G groups of D tokens in
each beam, C groups that are looked into.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE

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
