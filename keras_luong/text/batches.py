"""What a batch is, how large, and how long an epoch is; and batches to evaluate on.

Sentences of similar length share a batch, so that it has little padding, and every
batch has about the same number of tokens.

After an epoch a model is validated and its progress judged. For a corpus of a thousand
pairs a pass is too little for that, and for one of ten million it is too much: an
`EpochShape` is several passes over a small corpus, or a part of a large one.

XLA compiles a training step anew for each shape of a batch. For it, `few_shapes`
chooses some shapes by the lengths of a corpus, and batches are filled up to these.

Shapes: B sentence pairs, S source length, T target length.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_above, check_size
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.tokenizer_pair import TokenizerPair

_TEXTS_AT_ONCE = 1024  # tokenized at a time: several times faster than one by one
PREFETCHED_BATCHES = 16  # about what one round of tokenizing makes
#: Shapes that XLA is to compile; one more holds what is longer than all known pairs.
MOST_SHAPES = 15
MOST_PADDING = 0.1  # of the tokens; no more shapes are made for less

Tensors = dict[str, tf.Tensor]  # by name, such as "source" and "target"
Batch = tuple[Tensors, tf.Tensor, tf.Tensor]  # inputs, labels, weights


class EpochShape(NamedTuple):
    """How many passes over a corpus an epoch is, or which part of one.

    Attributes:
        passes: How often an epoch goes over its pairs; 1 if it is a part.
        parts: How many epochs one pass takes; 1 if an epoch is a pass or several.
    """

    passes: int = 1
    parts: int = 1


#: What an epoch is unless it is said otherwise.
A_PASS = EpochShape()


def epoch_shape(steps_per_pass: float, steps_per_epoch: int | None) -> EpochShape:
    """Returns the shape whose epochs have about as many steps as are asked for.

    Args:
        steps_per_pass: Full batches that the corpus makes.
        steps_per_epoch: Steps that an epoch should have; None for one pass.

    Example:
        >>> from keras_luong.text.batches import epoch_shape
        >>> epoch_shape(40, 200)
        EpochShape(passes=5, parts=1)
        >>> epoch_shape(30_000, 5_000)
        EpochShape(passes=1, parts=6)
    """
    if steps_per_epoch is None:
        return A_PASS
    check_above("steps_per_pass", steps_per_pass, 0)
    check_size("steps_per_epoch", steps_per_epoch)
    return EpochShape(
        max(1, round(steps_per_epoch / steps_per_pass)),
        max(1, round(steps_per_pass / steps_per_epoch)),
    )


class BatchShape(NamedTuple):
    """The size of a batch.

    Attributes:
        rows: Number of pairs.
        source: Length of the sources, EOS included.
        target: Length of the targets, BOS included.
    """

    rows: int
    source: int
    target: int


def evaluation_batches(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    batch_tokens: int = 4096,
    max_length: int = 50,
) -> tf.data.Dataset:
    """Makes batches to evaluate on: every pair once, the same batches every time.

    Pairs are bucketed by length as in training, so their order is not the corpus's.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: The tokenizers of both languages.
        batch_tokens: Most tokens on one side of a batch, see `training_batches`.
        max_length: Number of tokens to which longer sentences are cut.

    Returns:
        Dataset of the same elements as from `training_batches`.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If it is below 1.

    Example:
        >>> from keras_luong.text import evaluation_batches, load_corpus
        >>> corpus = load_corpus("my/corpus", "en", "de")
        >>> tokenizers = kl.TokenizerPair.train(corpus.pairs("train"), kind="word")
        >>> batches = evaluation_batches(corpus.pairs("validation"), tokenizers)
        >>> len(list(batches))  # model.evaluate(batches) takes all of them
        2
    """
    check_size("batch_tokens", batch_tokens)
    check_size("max_length", max_length)
    lengths = tf.constant(bucket_lengths(max_length), tf.int64)
    sizes = tf.maximum(1, batch_tokens // lengths)

    def encode(texts: Tensors) -> Tensors:
        """Rows of one width, so that unbatching is cheap, and their buckets."""
        source, _ = ended_rows(tokenizers.source.encode(texts["source"]), max_length)
        labels, _ = ended_rows(tokenizers.target.encode(texts["target"]), max_length)
        longest = tf.maximum(source.row_lengths(), labels.row_lengths())
        shape = [None, max_length + 1]
        return {
            "source": source.to_tensor(PAD_ID, shape=shape),
            "labels": labels.to_tensor(PAD_ID, shape=shape),
            "bucket": tf.searchsorted(lengths, longest, out_type=tf.int64),
        }

    def finish(batch: Tensors) -> Batch:
        labels = _trimmed(batch["labels"])
        return with_targets(
            _trimmed(batch["source"]),
            labels,
            tf.math.count_nonzero(labels, dtype=tf.float32),
        )

    many = pairs.batch(_TEXTS_AT_ONCE).map(encode, num_parallel_calls=tf.data.AUTOTUNE)
    # (`bucket_by_sequence_length` would take time for rows of one width.)
    batches = many.unbatch().group_by_window(
        key_func=lambda row: row["bucket"],
        reduce_func=lambda bucket, rows: rows.batch(sizes[bucket]),
        window_size_func=lambda bucket: sizes[bucket],
    )
    batches = batches.map(finish, num_parallel_calls=tf.data.AUTOTUNE)
    return batches.with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)


def with_targets(source: tf.Tensor, labels: tf.Tensor, count: tf.Tensor) -> Batch:
    """Makes a batch of its sources and labels.

    Args:
        source: int32 [B, S].
        labels: int32 [B, T], each ended by EOS and padded; of a row that only fills a
            batch up, padding alone, as its target is then.
        count: float32 [], by how many labels its loss is divided.

    Returns:
        An element of the datasets of `training_batches`.
    """
    begins_with = tf.where(labels[:, :1] == PAD_ID, PAD_ID, BOS_ID)
    target = tf.concat([begins_with, labels[:, :-1]], axis=1)
    target = tf.where(target == EOS_ID, PAD_ID, target)  # of shorter rows
    weights = tf.cast(labels != PAD_ID, tf.float32) / count
    return {"source": source, "target": target}, labels, weights


def ended_rows(
    ids: tf.RaggedTensor, max_length: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts rows of ids and ends them with EOS, as an encoder reads them.

    Args:
        ids: Ragged int32 [B, None], without BOS or EOS.
        max_length: Number of ids to which longer rows are cut, EOS not counted.

    Returns:
        Ragged int32 [B, None], each row ending with EOS (an empty one becomes EOS
        alone), and bool [B]: which rows were cut.
    """
    ended = tf.concat([ids[:, :max_length], tf.fill([ids.nrows(), 1], EOS_ID)], axis=1)
    return ended, ids.row_lengths() > max_length


def bucket_lengths(max_length: int) -> list[int]:
    """Returns the length of the rows of every bucket, BOS or EOS included.

    Neighbours differ by 2 tokens for short rows, by 8% for long ones.

    Args:
        max_length: Most tokens of a sentence, BOS and EOS not counted.

    Returns:
        Increasing lengths, the last of which is `max_length + 1`.
    """
    lengths = [min(4, max_length + 1)]
    while lengths[-1] < max_length + 1:
        length = lengths[-1] + max(2, lengths[-1] * 8 // 100)
        lengths.append(min(length, max_length + 1))
    return lengths


def bucket_shapes(batch_tokens: int, max_length: int) -> list[BatchShape]:
    """Returns the largest shape that a batch of each bucket has.

    Args:
        batch_tokens: Most tokens on one side of a batch, padding included.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
    """
    lengths = bucket_lengths(max_length)
    return [BatchShape(max(1, batch_tokens // n), n, n) for n in lengths]


def few_shapes(
    pairs: Mapping[tuple[int, int], float], batch_tokens: int, max_length: int
) -> list[BatchShape]:
    """Chooses at most `MOST_SHAPES` shapes for the batches of an epoch.

    Padding is to be at most a tenth of the tokens, if so many shapes can do that. The
    pairs of a shape are divided into batches of one size, so that few rows are missing
    in the last.

    Args:
        pairs: Lengths of source and target, EOS included → how many pairs have them.
        batch_tokens: Most tokens on one side of a batch, padding included.
        max_length: Most tokens of a sentence, BOS and EOS not counted.

    Returns:
        The shapes, small ones first.

    Raises:
        ValueError: If there is no pair.

    Example:
        >>> from keras_luong.text.batches import few_shapes
        >>> for shape in few_shapes({(4, 4): 90, (9, 7): 30}, 100, max_length=50):
        ...     print(*shape)
        23 4 4
        10 10 8
    """
    if not pairs:
        raise ValueError("There are no pairs, so their batches have no shapes.")
    lengths, counts = np.array([*pairs]), np.array([*pairs.values()])
    edges = np.array(bucket_lengths(max_length))

    def sizes_with(shape: tuple[int, int]) -> np.ndarray:
        """The number of positions that each pair takes if there is this shape too."""
        fits = (lengths <= shape).all(axis=1)
        return np.where(fits, np.minimum(sizes, sum(shape)), sizes)

    # 1. A shape for all; then, one by one, those that save the most.
    longest = tuple(edges[np.searchsorted(edges, lengths.max(axis=0))].tolist())
    chosen, sizes = [longest], np.full(len(counts), sum(longest))
    most = (1 + MOST_PADDING) * (counts @ lengths.sum(axis=1))
    while len(chosen) < MOST_SHAPES and counts @ sizes > most:
        shape = min(
            itertools.product(edges.tolist(), repeat=2),
            key=lambda shape: counts @ sizes_with(shape),
        )
        chosen, sizes = [*chosen, shape], sizes_with(shape)
    # 2. Their rows. A shape whose pairs have all gone to smaller ones is none.
    shapes = [
        BatchShape(max(1, batch_tokens // max(shape)), *shape)
        for shape in sorted(chosen, key=sum)
    ]
    numbers = np.bincount(first_that_hold(lengths, shapes), counts, len(shapes))
    return [
        shape._replace(rows=math.ceil(n / math.ceil(n / shape.rows)))
        for shape, n in zip(shapes, numbers, strict=True)
        if n
    ]


def first_that_hold(lengths: np.ndarray, shapes: Sequence[BatchShape]) -> np.ndarray:
    """Returns the index of the first shape that holds each pair; the last holds all.

    Args:
        lengths: int [N, 2], of sources and targets, EOS included.
        shapes: The shapes.

    Returns:
        uint16 [N].
    """
    index = np.full(len(lengths), len(shapes) - 1, np.uint16)
    for number, (_, *longest) in reversed([*enumerate(shapes)]):
        index[(lengths <= longest).all(axis=1)] = number
    return index


def dataset_options() -> tf.data.Options:
    """Returns the options of datasets of batches: deterministic, sharded by batch."""
    options = tf.data.Options()
    options.deterministic = True
    # Sharding by file would give one worker the sources and another the targets.
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.DATA
    )
    # Keras drops a validation's iterator only when the next validation begins. By then
    # its tuning thread sleeps up to a minute at a time, and TensorFlow 2.21 may fail to
    # wake it, which would stop the training for that long.
    options.autotune.enabled = False
    return options


def _trimmed(ids: tf.Tensor) -> tf.Tensor:
    """Removes the columns that are all padding."""
    lengths = tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)
    return ids[:, : tf.reduce_max(lengths)]
