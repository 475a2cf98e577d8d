"""Batches: pairs of sentences to padded rows of ids, as `model.fit` takes them.

Sentences of about the same length share a batch, so that little of it is padding, and
every batch has about the same number of tokens. Memory holds a bounded number of pairs,
whatever the corpus's size.

Shapes: B sentence pairs, S source length, T target length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.tokenizer_pair import TokenizerPair

_TEXTS_AT_ONCE = 1024  # tokenizing many at a time is several times faster than one
_SHUFFLED_BATCHES = 64
PREFETCHED_BATCHES = 16  # about what one round of tokenizing makes

Tensors = dict[str, tf.Tensor]  # by name, such as "source" and "target"


def training_batches(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    batch_tokens: int = 4096,
    max_length: int = 50,
    seed: int = 0,
    shuffle_pairs: int = 100_000,
    subword_sampling: float | None = None,
) -> tf.data.Dataset:
    """Batches to train on: shuffled, filtered, bucketed by length, sized in tokens.

    Iterating once is one epoch, and every epoch has another order; datasets made with
    the same seed have the same batches in the same epoch. Only pairs with an empty side
    or with one longer than `max_length` are left out.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: What turns them into ids.
        batch_tokens: Most tokens on one side of a batch, padding, BOS and EOS included
            (a batch has one row at least): the rows of a batch are `batch_tokens`
            divided by the longest row of its bucket, see `bucket_lengths`.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
        seed: Seed of the order.
        shuffle_pairs: Shuffle within a window of so many pairs. A larger corpus that
            is sorted in some way should be shuffled before.
        subword_sampling: Splits words at random, differently in each epoch: the
            `alpha` of `SentencePieceTokenizer.sample`. None always takes the best
            split.

    Returns:
        Dataset of `({"source": int32 [B, S], "target": int32 [B, T]}, labels int32
        [B, T], weights float32 [B, T])`, padded with 0 on the right. A source ends with
        EOS; a target begins with BOS; the labels are the target one step ahead and end
        with EOS. The weights of the labels that aren't padding are one divided by their
        number in the batch, so that the weighted sum of a loss is its mean per token.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If it is below 1, or if `subword_sampling` is given and a tokenizer
            knows only one split of a word.

    Example:
        ```python
        batches = training_batches(corpus.pairs("train"), tokenizers, batch_tokens=4096)
        model.fit(batches, epochs=10)
        ```
    """
    check_size("batch_tokens", batch_tokens)
    check_size("max_length", max_length)
    check_size("shuffle_pairs", shuffle_pairs)

    split = _splitter(tokenizers, subword_sampling)

    def encode(number: tf.Tensor, texts: Tensors) -> Tensors:
        source = split("source", texts, (seed, 2 * number))
        target = split("target", texts, (seed, 2 * number + 1))
        kept = _fits(source, max_length) & _fits(target, max_length)
        return _rows(
            tf.ragged.boolean_mask(source, kept),
            tf.ragged.boolean_mask(target, kept),
            max_length,
        )

    shuffled = pairs.shuffle(shuffle_pairs, seed=seed, reshuffle_each_iteration=True)
    batches = _bucketed(_encoded(shuffled, encode), batch_tokens, max_length)
    # The buckets' last, partly filled batches come in order of length: mix them in.
    batches = batches.shuffle(
        _SHUFFLED_BATCHES, seed=seed, reshuffle_each_iteration=True
    )
    return _finished(batches)


def evaluation_batches(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    batch_tokens: int = 4096,
    max_length: int = 50,
) -> tf.data.Dataset:
    """Batches to evaluate on: every pair exactly once, the same batches every time.

    Pairs are bucketed by length like the training batches, so their order is not the
    corpus's.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: What turns them into ids.
        batch_tokens: Most tokens on one side of a batch, see `training_batches`.
        max_length: Longer sentences are cut to so many tokens.

    Returns:
        Dataset of the same elements as `training_batches` has.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If it is below 1.

    Example:
        ```python
        model.evaluate(evaluation_batches(corpus.pairs("validation"), tokenizers))
        ```
    """
    check_size("batch_tokens", batch_tokens)
    check_size("max_length", max_length)

    def encode(number: tf.Tensor, texts: Tensors) -> Tensors:
        source = tokenizers.source.encode(texts["source"])
        target = tokenizers.target.encode(texts["target"])
        return _rows(source[:, :max_length], target[:, :max_length], max_length)

    return _finished(_bucketed(_encoded(pairs, encode), batch_tokens, max_length))


def ended_rows(
    ids: tf.RaggedTensor, max_length: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts rows of ids and ends them with EOS, as an encoder reads them.

    Args:
        ids: Ragged int32 [B, None], without BOS or EOS.
        max_length: Longer rows are cut to so many ids, EOS not counted.

    Returns:
        Ragged int32 [B, None], each row ending with EOS (an empty one becomes EOS
        alone), and bool [B]: which rows were cut.
    """
    return _with_eos(ids[:, :max_length]), ids.row_lengths() > max_length


def bucket_lengths(max_length: int) -> list[int]:
    """Returns the longest row of every bucket, BOS or EOS included.

    They are 2 tokens apart for short rows and 8% for long ones.

    Args:
        max_length: Most tokens of a sentence, BOS and EOS not counted.

    Returns:
        Rising lengths, the last of which is `max_length + 1`.
    """
    lengths = [min(4, max_length + 1)]
    while lengths[-1] < max_length + 1:
        length = lengths[-1] + max(2, lengths[-1] * 8 // 100)
        lengths.append(min(length, max_length + 1))
    return lengths


def dataset_options() -> tf.data.Options:
    """Returns the options of datasets of batches: in order, sharded by batch."""
    options = tf.data.Options()
    options.deterministic = True
    # Sharding by file would hand one worker the sources and another the targets.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    # Keras drops a validation's iterator only when the next validation begins. By then
    # its tuning thread sleeps up to a minute at a time, and TensorFlow 2.21 may fail to
    # wake it: the training would stand still for as long.
    options.autotune.enabled = False
    return options


def _splitter(
    tokenizers: TokenizerPair, alpha: float | None
) -> Callable[[str, Tensors, tuple[Any, Any]], tf.RaggedTensor]:
    """Makes a function that turns one side's texts into ids, with two seeds."""
    if alpha is None:
        return lambda side, texts, seeds: getattr(tokenizers, side).encode(texts[side])
    for tokenizer in (tokenizers.source, tokenizers.target):
        if not hasattr(tokenizer, "sample"):
            raise ValueError(
                "subword_sampling needs a tokenizer with several ways to split a "
                f"word: sentencepiece. Received: {type(tokenizer).__name__}"
            )

    def split(side: str, texts: Tensors, seeds: tuple[Any, Any]) -> tf.RaggedTensor:
        seeds = tuple(tf.cast(seed, tf.int64) for seed in seeds)
        seed = tf.random.stateless_uniform([], seeds, maxval=2**31 - 1, dtype=tf.int32)
        return getattr(tokenizers, side).sample(texts[side], seed, alpha)

    return split


def _fits(ids: tf.RaggedTensor, max_length: int) -> tf.Tensor:
    lengths = ids.row_lengths()
    return (lengths > 0) & (lengths <= max_length)


def _rows(source: tf.RaggedTensor, target: tf.RaggedTensor, max_length: int) -> Tensors:
    """Pads rows to one width, cheap to take apart, and adds the bucket of each."""
    source, labels = _with_eos(source), _with_eos(target)
    longer = tf.maximum(source.row_lengths(), labels.row_lengths())
    shape = [None, max_length + 1]
    return {
        "source": source.to_tensor(PAD_ID, shape=shape),
        "labels": labels.to_tensor(PAD_ID, shape=shape),
        "bucket": tf.searchsorted(
            tf.constant(bucket_lengths(max_length), tf.int64), longer, out_type=tf.int64
        ),
    }


def _with_eos(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS_ID)], axis=1)


def _encoded(
    pairs: tf.data.Dataset, encode: Callable[[tf.Tensor, Tensors], Tensors]
) -> tf.data.Dataset:
    """Encodes many pairs at a time, numbered, then hands them out one by one."""
    many = pairs.batch(_TEXTS_AT_ONCE).enumerate()
    return many.map(encode, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _bucketed(
    rows: tf.data.Dataset, batch_tokens: int, max_length: int
) -> tf.data.Dataset:
    """Batches rows of the same bucket.

    The rows have one width already: `bucket_by_sequence_length`, which would pad each
    batch by itself, does not take apart what was encoded many at a time.
    """
    lengths = bucket_lengths(max_length)
    counts = tf.constant(
        [max(1, batch_tokens // length) for length in lengths], tf.int64
    )
    return rows.group_by_window(
        key_func=lambda row: row["bucket"],
        reduce_func=lambda bucket, group: group.batch(counts[bucket]),
        window_size_func=lambda bucket: counts[bucket],
    )


def _finished(batches: tf.data.Dataset) -> tf.data.Dataset:
    batches = batches.map(_model_inputs, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)


def _model_inputs(batch: Tensors) -> tuple[Tensors, tf.Tensor, tf.Tensor]:
    source, labels = _trimmed(batch["source"]), _trimmed(batch["labels"])
    begin = tf.fill([tf.shape(labels)[0], 1], BOS_ID)
    target = tf.concat([begin, labels[:, :-1]], axis=1)
    target = tf.where(target == EOS_ID, PAD_ID, target)  # rows shorter than the longest
    counted = tf.cast(labels != PAD_ID, tf.float32)
    weights = counted / tf.reduce_sum(counted)
    return {"source": source, "target": target}, labels, weights


def _trimmed(ids: tf.Tensor) -> tf.Tensor:
    """Cuts the columns that are all padding."""
    lengths = tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)
    return ids[:, : tf.reduce_max(lengths)]
