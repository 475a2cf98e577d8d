"""What becomes of a corpus in training: which pairs are left out, how many batches.

Shapes: B sentence pairs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf

from keras_luong.special_ids import UNK_ID
from keras_luong.text.batches import (
    Tensors,
    bucket_lengths,
    bucket_rows,
    buckets_of,
    splitter,
)
from keras_luong.text.epoch_shape import A_PASS, EpochShape
from keras_luong.text.tokenizer_pair import TokenizerPair

#: What of a corpus a model does not learn from, or only as `<unk>`.
LEFT_OUT = ("empty", "too_long", "unknown_source", "unknown_target")
_TEXTS_AT_ONCE = 1024


class PairCounts(NamedTuple):
    """How many pairs there are of each sort; only those of `buckets` are trained on.

    Attributes:
        empty: Those with an empty side.
        too_long: Those with a side of more than `max_length` tokens, and none empty.
        unknown_source: The share of the sources' tokens that are `<unk>`, from 0 to 1:
            words, or letters, that the vocabulary lacks.
        unknown_target: The same of the targets, where a model learns to write `<unk>`.
        source_tokens: How many tokens the sources have, EOS not counted.
        target_tokens: How many the targets have.
        buckets: The number of the others, by their lengths: see `bucket_lengths`.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
    """

    empty: int
    too_long: int
    unknown_source: float
    unknown_target: float
    source_tokens: int
    target_tokens: int
    buckets: tuple[int, ...]
    max_length: int

    @property
    def left_out(self) -> dict[str, int | float]:
        """What training does not learn from, by name."""
        counts = self._asdict()
        return {name: counts[name] for name in LEFT_OUT}

    @property
    def tokens(self) -> dict[str, int]:
        """How much text there is, by name."""
        return {
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }

    def batches(self, batch_tokens: int, shape: EpochShape = A_PASS) -> int:
        """Returns the number of batches that `training_batches` makes of an epoch.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
            shape: What of the corpus an epoch is; of parts of a corpus the number is
                about right.
        """
        share = shape.passes / shape.parts
        return sum(math.ceil(share * size) for size in self._in_batches(batch_tokens))

    def full_batches(self, batch_tokens: int) -> float:
        """Returns how many batches a pass would make if all of them were full.

        Those of a small corpus are not: pairs of about one length are a batch, and the
        last batch of each length has what is left. Several passes are batched together.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
        """
        return sum(self._in_batches(batch_tokens))

    def _in_batches(self, batch_tokens):
        """The sizes of the buckets, in batches."""
        rows = bucket_rows(batch_tokens, self.max_length)
        pairs = zip(self.buckets, rows, strict=True)
        return [number / most for number, most in pairs]


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
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.pair_counts import count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> tokenizers = kl.TokenizerPair.train(pairs, kind="word")
        >>> count_pairs(pairs, tokenizers, max_length=2).too_long
        1
    """
    split = splitter(tokenizers, subword_sampling)
    size = len(bucket_lengths(max_length))

    def counted(number: tf.Tensor, texts: Tensors) -> tf.Tensor:
        source = split("source", texts, (0, 2 * number))
        target = split("target", texts, (0, 2 * number + 1))
        lengths = source.row_lengths(), target.row_lengths()
        empty = tf.reduce_min(lengths, axis=0) == 0
        too_long = ~empty & (tf.reduce_max(lengths, axis=0) > max_length)
        buckets = buckets_of(lengths[0] + 1, lengths[1] + 1, max_length)
        # The buckets come after those that are left out.
        places = tf.where(
            empty, 0, tf.where(too_long, 1, 2 + tf.cast(buckets, tf.int32))
        )
        pairs = tf.math.bincount(places, minlength=2 + size, dtype=tf.int64)
        return tf.concat([_tokens(source), _tokens(target), pairs], axis=0)

    many = pairs.batch(_TEXTS_AT_ONCE).enumerate()
    counts = many.map(counted, num_parallel_calls=tf.data.AUTOTUNE)
    total = counts.reduce(tf.zeros([4 + 2 + size], tf.int64), tf.add).numpy().tolist()
    sources, unknown_sources, targets, unknown_targets, empty, too_long, *buckets = (
        total
    )
    return PairCounts(
        empty,
        too_long,
        unknown_sources / max(sources, 1),
        unknown_targets / max(targets, 1),
        sources,
        targets,
        tuple(buckets),
        max_length,
    )


def _tokens(ids: tf.RaggedTensor) -> tf.Tensor:
    """int64 [2]: how many tokens there are, and how many of them are `<unk>`."""
    unknown = tf.math.count_nonzero(ids.flat_values == UNK_ID)
    return tf.stack([tf.size(ids.flat_values, tf.int64), unknown])
