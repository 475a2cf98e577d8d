"""Numbers that stand for the sentences of a split, to compare many of them quickly.

Shapes: N pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

_AT_ONCE = 8192
_LARGEST = 2**63 - 1
#: White space, no-break spaces too; but for a single plain space, which most of it is.
_WHITE = r"[\s\p{Z}]{2,}|[\t\n\f\r]|[^\P{Z} ]"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one


class TextHashes(NamedTuple):
    """A number for each sentence, the same on every machine; 0 for a blank one.

    Sentences that differ in their white space alone have the same: a model reads them
    alike, as SentencePiece does.

    Attributes:
        source: uint64 [N], of the sources.
        target: uint64 [N], of the targets.
        length: int64 [N], the bytes of the longer side.
    """

    source: np.ndarray
    target: np.ndarray
    length: np.ndarray

    @property
    def full(self) -> np.ndarray:
        """Whether both sides have text: bool [N]."""
        return (self.source > 0) & (self.target > 0)

    @property
    def pairs(self) -> np.ndarray:
        """A number for each pair: uint64 [N]."""
        return self.source * _MIX + self.target


def text_hashes(pairs: tf.data.Dataset) -> TextHashes:
    """Reads pairs, and keeps 24 bytes of each.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.

    Example:
        >>> from keras_luong.text.text_hashes import text_hashes
        >>> pairs = {"source": ["a dog", " "], "target": ["ein Hund", "eine Katze"]}
        >>> text_hashes(tf.data.Dataset.from_tensor_slices(pairs)).full
        array([ True, False])
    """
    found = pairs.batch(_AT_ONCE).map(_of_block).as_numpy_iterator()
    nothing = (np.zeros(0, np.int64),) * 3
    source, target, length = map(np.concatenate, zip(nothing, *found, strict=True))
    return TextHashes(source.astype(np.uint64), target.astype(np.uint64), length)


def _of_block(block: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
    source, target = block["source"], block["target"]
    length = tf.maximum(tf.strings.length(source), tf.strings.length(target))
    return hashes_of(source), hashes_of(target), tf.cast(length, tf.int64)


def hashes_of(texts: tf.Tensor) -> tf.Tensor:
    """Returns numbers for texts, int64 [N]: 0 for blank ones.

    Args:
        texts: tf.string [N].
    """
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _WHITE, " "))
    blank = tf.strings.length(texts) == 0
    hashes = 1 + tf.strings.to_hash_bucket_fast(texts, _LARGEST)
    return tf.where(blank, tf.zeros_like(hashes), hashes)
