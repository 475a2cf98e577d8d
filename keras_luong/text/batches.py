"""Batches for `model.fit`: padded rows of ids, made of pairs of sentences.

Sentences of similar length share a batch, so that it has little padding, and every
batch has about the same number of tokens. The number of pairs in memory is bounded,
whatever the corpus's size.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_above, check_size
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.corpus import select_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair

_TEXTS_AT_ONCE = 1024  # tokenized at a time: several times faster than one by one
_SHUFFLED_BATCHES = 64
PREFETCHED_BATCHES = 16  # about what one round of tokenizing makes
#: Shapes that XLA is to compile; one more holds what is longer than all known pairs.
MOST_SHAPES = 15
MOST_PADDING = 0.1  # of the tokens; no more shapes are made for less

Tensors = dict[str, tf.Tensor]  # by name, such as "source" and "target"


class EpochShape(NamedTuple):
    """How many passes over a corpus an epoch is, or which part of one.

    Attributes:
        passes: How often an epoch goes over its pairs; 1 if it is a part.
        parts: How many epochs one pass takes; 1 if an epoch is a pass or several.

    Example:
        >>> from keras_luong.text.batches import EpochShape
        >>> numbers = tf.data.Dataset.range(5)
        >>> thirds = EpochShape(passes=1, parts=2)
        >>> [[int(x) for x in thirds.of_epoch(numbers, e)] for e in (0, 1)]
        [[0, 2], [1, 3, 4]]
    """

    passes: int = 1
    parts: int = 1

    def of_epoch(
        self, pairs: tf.data.Dataset, epoch: int | tf.Tensor
    ) -> tf.data.Dataset:
        """Returns the pairs of one epoch, in the corpus's order.

        A part has one of each so many neighbours, drawn by their place. It is not
        always the first or the last of them: where every other pair comes from another
        text, one part would have all of that.

        Args:
            pairs: The training pairs.
            epoch: Its number, from 0; an int64 scalar tensor will do.
        """
        if self.parts > 1:
            pairs = select_pairs(
                pairs, lambda places: self._part(places) == epoch % self.parts
            )
        return pairs.repeat(self.passes) if self.passes > 1 else pairs

    def _part(self, places: tf.Tensor) -> tf.Tensor:
        """Which part the pairs at these places are of."""
        neighbours = tf.strings.as_string(places // self.parts)
        drawn = tf.strings.to_hash_bucket_strong(neighbours, self.parts, key=[0, 0])
        return (places + drawn) % self.parts


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


def training_batches(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    batch_tokens: int = 4096,
    max_length: int = 50,
    seed: int = 0,
    shuffle_pairs: int = 100_000,
    subword_sampling: float | None = None,
    gradient_accumulation_steps: int = 1,
    shapes: Sequence[BatchShape] | None = None,
) -> tf.data.Dataset:
    """Makes batches to train on: shuffled, filtered and bucketed by length.

    Each iteration is one epoch, and every epoch has another order; datasets with the
    same seed have the same batches in the same epoch. Pairs are left out if one side is
    empty or longer than `max_length`.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: The tokenizers of both languages.
        batch_tokens: Most tokens on one side of a batch, padding, BOS and EOS included.
            The number of rows is `batch_tokens` divided by the length of the bucket
            (see `bucket_lengths`), at least 1.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        seed: Seed of the order.
        shuffle_pairs: Number of pairs in the window within which pairs are shuffled. A
            larger corpus that is sorted in some way should be shuffled before.
        subword_sampling: The `alpha` of `SentencePieceTokenizer.sample`, which splits
            words at random, differently in each epoch. None always takes the best
            split.
        gradient_accumulation_steps: How many batches the optimizer takes together, see
            `make_optimizer`. They give the gradient of one batch of all their pairs,
            and an epoch has whole groups of them: its last batches may have no label.
        shapes: The shapes that batches have, for XLA: of `PairCounts.batch_shapes`. A
            pair goes to the first that holds it. Rows without a label, whose weights
            are 0, fill a batch up. None makes batches as small as their longest rows.

    Returns:
        Dataset of `({"source": int32 [B, S], "target": int32 [B, T]}, labels int32
        [B, T], weights float32 [B, T])`, padded with 0 on the right. A source ends with
        EOS; a target begins with BOS; the labels are the target one step ahead and end
        with EOS. The weight of each label that is not padding is 1 divided by their
        number in the batch, so that the weighted sum of a loss is its mean per token.

    Raises:
        TypeError: If a number is no integer.
        ValueError: If it is below 1, or if `subword_sampling` is given and a tokenizer
            knows only one split of a word.

    Example:
        >>> from keras_luong.text import load_corpus, training_batches
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> tokenizers = kl.TokenizerPair.train(pairs, kind="word")
        >>> batches = training_batches(pairs, tokenizers, batch_tokens=40)
        >>> for inputs, labels, weights in batches:  # or model.fit(batches)
        ...     print(inputs["source"].shape, labels.shape, weights.shape)
        (3, 4) (3, 3) (3, 3)
    """
    check_size("batch_tokens", batch_tokens)
    check_size("max_length", max_length)
    check_size("shuffle_pairs", shuffle_pairs)
    check_size("gradient_accumulation_steps", gradient_accumulation_steps)

    split = splitter(tokenizers, subword_sampling)
    buckets = bucket_shapes(batch_tokens, max_length)
    if shapes is not None:
        buckets = [*shapes, buckets[-1]]

    def encode(number: tf.Tensor, texts: Tensors) -> Tensors:
        source = split("source", texts, (seed, 2 * number))
        target = split("target", texts, (seed, 2 * number + 1))
        kept = _fits(source, max_length) & _fits(target, max_length)
        return _rows(
            tf.ragged.boolean_mask(source, kept),
            tf.ragged.boolean_mask(target, kept),
            buckets,
        )

    shuffled = pairs.shuffle(shuffle_pairs, seed=seed, reshuffle_each_iteration=True)
    batches = _bucketed(_encoded(shuffled, encode), buckets, fill=shapes is not None)
    # The last, partly filled batches of all buckets come by length: mix them in.
    batches = batches.shuffle(
        _SHUFFLED_BATCHES, seed=seed, reshuffle_each_iteration=True
    )
    fixed = buckets if shapes is not None else None
    return _finished(batches, gradient_accumulation_steps, fixed)


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
    buckets = bucket_shapes(batch_tokens, max_length)

    def encode(number: tf.Tensor, texts: Tensors) -> Tensors:
        source = tokenizers.source.encode(texts["source"])
        target = tokenizers.target.encode(texts["target"])
        return _rows(source[:, :max_length], target[:, :max_length], buckets)

    return _finished(_bucketed(_encoded(pairs, encode), buckets))


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
    return _with_eos(ids[:, :max_length]), ids.row_lengths() > max_length


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

    Example:
        >>> from keras_luong.text.batches import few_shapes
        >>> for shape in few_shapes({(4, 4): 90, (9, 7): 30}, 100, max_length=50):
        ...     print(*shape)
        23 4 4
        10 10 8
    """
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
    numbers = np.bincount(
        shape_indices(lengths[:, 0], lengths[:, 1], shapes), counts, len(shapes)
    )
    return [
        shape._replace(rows=math.ceil(n / math.ceil(n / shape.rows)))
        for shape, n in zip(shapes, numbers, strict=True)
        if n
    ]


def shape_indices(
    source: tf.Tensor, target: tf.Tensor, shapes: Sequence[BatchShape]
) -> tf.Tensor:
    """Returns the index of the first shape that holds each pair.

    Args:
        source: int64 [B], lengths of the sources, EOS included.
        target: int64 [B], lengths of the targets, EOS included.
        shapes: The shapes, the last of which holds every pair.

    Returns:
        int64 [B].
    """
    _, longest_source, longest_target = np.array(shapes, np.int64).T
    fits = (source[:, None] <= longest_source) & (target[:, None] <= longest_target)
    indices = tf.range(len(shapes), dtype=tf.int64)
    return tf.reduce_min(tf.where(fits, indices, len(shapes) - 1), axis=1)


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


def splitter(
    tokenizers: TokenizerPair, alpha: float | None
) -> Callable[[str, Tensors, tuple[Any, Any]], tf.RaggedTensor]:
    """Makes a function that turns one side's texts into ids, with two seeds.

    Args:
        tokenizers: The tokenizers of both languages.
        alpha: See `subword_sampling` of `training_batches`.

    Raises:
        ValueError: If there is an alpha, and a tokenizer knows only one split of a
            word.
    """
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


def _rows(
    source: tf.RaggedTensor, target: tf.RaggedTensor, buckets: Sequence[BatchShape]
) -> Tensors:
    """Pads rows to one width, so that unbatching is cheap, and adds their buckets."""
    source, labels = _with_eos(source), _with_eos(target)
    shape = [None, buckets[-1].target]
    lengths = source.row_lengths(), labels.row_lengths()
    return {
        "source": source.to_tensor(PAD_ID, shape=shape),
        "labels": labels.to_tensor(PAD_ID, shape=shape),
        "bucket": shape_indices(*lengths, buckets),
    }


def _with_eos(ids: tf.RaggedTensor) -> tf.RaggedTensor:
    return tf.concat([ids, tf.fill([ids.nrows(), 1], EOS_ID)], axis=1)


def _encoded(
    pairs: tf.data.Dataset, encode: Callable[[tf.Tensor, Tensors], Tensors]
) -> tf.data.Dataset:
    """Encodes numbered groups of many pairs, then returns the pairs one by one."""
    many = pairs.batch(_TEXTS_AT_ONCE).enumerate()
    return many.map(encode, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def _bucketed(
    rows: tf.data.Dataset, buckets: Sequence[BatchShape], fill: bool = False
) -> tf.data.Dataset:
    """Batches rows of the same bucket; rows without a word fill batches up.

    `bucket_by_sequence_length` could not be used, since the rows are already padded to
    one width, to be encoded many at a time.
    """
    counts = tf.constant([bucket.rows for bucket in buckets], tf.int64)
    empty = tf.one_hot(0, buckets[-1].source, EOS_ID, PAD_ID, dtype=tf.int32)
    nothing = {
        "source": empty,  # cuDNN needs a word in each row
        "labels": tf.fill(empty.shape, PAD_ID),
        "bucket": tf.constant(0, tf.int64),
    }
    filling = tf.data.Dataset.from_tensors(nothing).repeat()

    def batch_of(bucket: tf.Tensor, group: tf.data.Dataset) -> tf.data.Dataset:
        if fill:
            group = group.concatenate(filling).take(counts[bucket])
        return group.batch(counts[bucket])

    return rows.group_by_window(
        key_func=lambda row: row["bucket"],
        reduce_func=batch_of,
        window_size_func=lambda bucket: counts[bucket],
    )


def _finished(
    batches: tf.data.Dataset,
    together: int = 1,
    shapes: Sequence[BatchShape] | None = None,
) -> tf.data.Dataset:
    """Makes inputs, labels and weights of batches, `together` of which are one step.

    Batches have the shapes of their buckets; None cuts them to their longest rows.
    """

    def model_inputs(batch: Tensors) -> tuple[Tensors, tf.Tensor, tf.Tensor]:
        if shapes is None:
            source, labels = _trimmed(batch["source"]), _trimmed(batch["labels"])
        else:
            _, s, t = tf.unstack(tf.constant(shapes)[batch["bucket"][0]])
            source, labels = batch["source"][:, :s], batch["labels"][:, :t]
        begin = tf.fill([tf.shape(labels)[0], 1], BOS_ID)
        target = tf.concat([begin, labels[:, :-1]], axis=1)
        target = tf.where(target == EOS_ID, PAD_ID, target)  # of shorter rows
        counted = tf.cast(labels != PAD_ID, tf.float32)
        weights = counted / tf.reduce_sum(counted)
        return {"source": source, "target": target}, labels, weights

    def as_one_batch(
        inputs: Any, labels: tf.data.Dataset, weights: tf.data.Dataset
    ) -> tf.data.Dataset:
        # Keras takes the mean of the batches' gradients, so their sum is `together`
        # times too large. The last ones of an epoch may be fewer: batches without a
        # label follow them.
        counts = labels.map(
            lambda x: tf.math.count_nonzero(x != PAD_ID, dtype=tf.float32)
        )
        mean = counts.reduce(0.0, tf.add) / together
        counted = weights.map(lambda x: tf.cast(x > 0, tf.float32) / mean)
        group = tf.data.Dataset.zip((inputs, labels, counted))
        filling = tf.data.Dataset.from_tensors(nothing).repeat()
        return group.concatenate(filling).take(together)

    rows, s, t = BatchShape(1, 1, 1) if shapes is None else shapes[0]

    def empty_rows(first: int, length: int) -> list[list[int]]:
        return [[first] + [PAD_ID] * (length - 1)] * rows

    nothing = (
        {"source": empty_rows(EOS_ID, s), "target": empty_rows(BOS_ID, t)},
        empty_rows(PAD_ID, t),
        [[0.0] * t] * rows,
    )
    batches = batches.map(model_inputs, num_parallel_calls=tf.data.AUTOTUNE)
    if together > 1:
        batches = batches.window(together).flat_map(as_one_batch)
    return batches.with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)


def _trimmed(ids: tf.Tensor) -> tf.Tensor:
    """Removes the columns that are all padding."""
    lengths = tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)
    return ids[:, : tf.reduce_max(lengths)]
