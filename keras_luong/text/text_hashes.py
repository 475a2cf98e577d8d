"""Numbers that stand for the sentences of a split, to compare many of them quickly.

Shapes: N pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

_AT_ONCE = 8192
_LARGEST = 2**63 - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one


class TextHashes(NamedTuple):
    """A number for each sentence, the same on every machine; 0 for a blank one.

    Attributes:
        source: uint64 [N], of the sources.
        target: uint64 [N], of the targets.
    """

    source: np.ndarray
    target: np.ndarray

    @property
    def full(self) -> np.ndarray:
        """Whether both sides have text: bool [N]."""
        return (self.source > 0) & (self.target > 0)

    @property
    def pairs(self) -> np.ndarray:
        """A number for each pair: uint64 [N]."""
        return self.source * _MIX + self.target


def text_hashes(pairs: tf.data.Dataset) -> TextHashes:
    """Reads pairs, and keeps 16 bytes of each.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.

    Example:
        >>> from keras_luong.text.text_hashes import text_hashes
        >>> pairs = {"source": ["a dog", " "], "target": ["ein Hund", "eine Katze"]}
        >>> text_hashes(tf.data.Dataset.from_tensor_slices(pairs)).full
        array([ True, False])
    """
    blocks = pairs.batch(_AT_ONCE).map(
        lambda block: (hashes_of(block["source"]), hashes_of(block["target"]))
    )
    sides = list(zip(*blocks.as_numpy_iterator(), strict=True)) or [(), ()]
    source, target = (
        np.concatenate([np.zeros(0, np.int64), *side]).astype(np.uint64)
        for side in sides
    )
    return TextHashes(source, target)


def hashes_of(texts: tf.Tensor) -> tf.Tensor:
    """Returns numbers for texts, int64 [N].

    Args:
        texts: tf.string [N].
    """
    blank = tf.strings.length(tf.strings.strip(texts)) == 0
    hashes = 1 + tf.strings.to_hash_bucket_fast(texts, _LARGEST)
    return tf.where(blank, tf.zeros_like(hashes), hashes)
