"""What becomes of a corpus in training: which pairs are left out, how many batches.

Shapes: B sentence pairs.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from keras_luong.text.batches import (
    Tensors,
    bucket_lengths,
    bucket_rows,
    buckets_of,
    splitter,
)
from keras_luong.text.tokenizer_pair import TokenizerPair

_TEXTS_AT_ONCE = 1024


class PairCounts(NamedTuple):
    """How many pairs there are of each sort; only those of `buckets` are trained on.

    Attributes:
        empty: Those with an empty side.
        too_long: Those with a side of more than `max_length` tokens, and none empty.
        buckets: The number of the others, by their lengths: see `bucket_lengths`.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
    """

    empty: int
    too_long: int
    buckets: tuple[int, ...]
    max_length: int

    def batches(self, batch_tokens: int) -> int:
        """Returns the number of batches that `training_batches` makes of the pairs.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
        """
        rows = bucket_rows(batch_tokens, self.max_length)
        return sum(-(-n // most) for n, most in zip(self.buckets, rows, strict=True))


def count_pairs(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    max_length: int,
    subword_sampling: float | None = None,
) -> PairCounts:
    """Tokenizes a corpus, and counts what `training_batches` will make of it.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: The tokenizers of both languages.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        subword_sampling: See `training_batches`; with it the lengths differ from epoch
            to epoch, and the numbers are about right.

    Returns:
        The `PairCounts`.

    Example:
        >>> count_pairs(corpus.pairs("train"), tokenizers, max_length=50).too_long
        24
    """
    split = splitter(tokenizers, subword_sampling)
    size = len(bucket_lengths(max_length))

    def counted(number: tf.Tensor, texts: Tensors) -> tf.Tensor:
        source = split("source", texts, (0, 2 * number)).row_lengths()
        target = split("target", texts, (0, 2 * number + 1)).row_lengths()
        empty = (source == 0) | (target == 0)
        too_long = ~empty & (tf.maximum(source, target) > max_length)
        buckets = tf.cast(buckets_of(source + 1, target + 1, max_length), tf.int32)
        # The buckets come after those that are left out.
        places = tf.where(empty, 0, tf.where(too_long, 1, 2 + buckets))
        return tf.math.bincount(places, minlength=2 + size, dtype=tf.int64)

    many = pairs.batch(_TEXTS_AT_ONCE).enumerate()
    counts = many.map(counted, num_parallel_calls=tf.data.AUTOTUNE)
    total = counts.reduce(tf.zeros([2 + size], tf.int64), tf.add)
    empty, too_long, *buckets = (int(n) for n in total)
    return PairCounts(empty, too_long, tuple(buckets), max_length)
