"""The batches of an epoch of a stored corpus, planned by lengths alone.

The ids are read when their turn comes; of several machines each reads only its own
rows. Where words are split at random, those of many pairs are split at a time, and
batches are planned by the lengths that they get, so that none is too large.

Shapes: N pairs, B pairs of a batch, S source length, T target length.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.special_ids import EOS_ID, PAD_ID
from keras_luong.text.batches import (
    A_PASS,
    PREFETCHED_BATCHES,
    Batch,
    BatchShape,
    EpochShape,
    bucket_shapes,
    dataset_options,
    first_that_hold,
    with_targets,
)
from keras_luong.text.token_store import SIDES, Rows, TokenStore, count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair

#: Pairs whose words are split at random at a time, which takes seconds: so many that
#: few of their batches are not full.
DRAWN_AT_ONCE = 1 << 16


def training_batches(
    pairs: tf.data.Dataset,
    tokenizers: TokenizerPair,
    batch_tokens: int = 4096,
    max_length: int = 50,
    seed: int = 0,
    subword_sampling: float | None = None,
    gradient_accumulation_steps: int = 1,
    shapes: Sequence[BatchShape] | None = None,
) -> tf.data.Dataset:
    """Makes batches to train on: shuffled, filtered and bucketed by length.

    The text is read and tokenized at once, and never again: its ids lie in a temporary
    file. Each iteration is one epoch, and every epoch has another order; datasets with
    the same seed have the same batches in the same epoch. Pairs are left out if one
    side is empty or longer than `max_length`.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tokenizers: The tokenizers of both languages.
        batch_tokens: Most tokens on one side of a batch, padding, BOS and EOS included.
            The number of rows is `batch_tokens` divided by the length of the bucket
            (see `bucket_lengths`), at least 1.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        seed: Seed of the order.
        subword_sampling: The `alpha` of `SentencePieceTokenizer.sample`, which splits
            words at random, differently in each epoch. A text that gets longer than
            `max_length` by that is split in the best way, as all are if this is None.
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
        ValueError: If it is below 1, if there are no `shapes`, or if `subword_sampling`
            is given and a tokenizer knows only one split of a word.

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
    check_size("gradient_accumulation_steps", gradient_accumulation_steps)
    if shapes is not None and not len(shapes):
        raise ValueError(f"shapes must be one or more, or None. Received: {shapes!r}")
    # 1. The ids. (A file that is mapped can be read after it was removed.)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "tokens")
        count_pairs(pairs, tokenizers, max_length, subword_sampling, folder)
        store = TokenStore(folder, tokenizers, subword_sampling)
    # 2. The batches of the next epoch, whenever there is one.
    numbers = itertools.count()

    def next_epoch(_: tf.Tensor) -> tf.data.Dataset:
        epoch = tf.numpy_function(lambda: np.int64(next(numbers)), [], tf.int64)
        return stored_batches(
            store,
            epoch,
            max_length=max_length,
            seed=seed,
            batch_tokens=batch_tokens,
            gradient_accumulation_steps=gradient_accumulation_steps,
            shapes=shapes,
        )

    batches = tf.data.Dataset.from_tensors(0).flat_map(next_epoch)
    return batches.with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)


def stored_batches(
    store: TokenStore,
    epoch: int | tf.Tensor,
    *,
    max_length: int = 50,
    shape: EpochShape = A_PASS,
    seed: int = 0,
    part: tuple[int, int] = (0, 1),
    **options: Any,
) -> tf.data.Dataset:
    """Makes the batches of an epoch of a stored corpus.

    Args:
        store: The ids; or the texts, whose words are split anew in each epoch. A text
            that gets longer than `max_length` by that is split in the best way.
        epoch: Its number, from 0; an int64 scalar tensor will do.
        max_length: As of `training_batches`.
        shape: What of the corpus an epoch is.
        seed: Seed of the order, and of the splits.
        part: Which rows of each batch to make, and of how many parts, as of several
            machines: (0, 3) is the first of three. The last rows may have no label.
        **options: More arguments of `plan_batches`.

    Returns:
        Dataset of the same elements as from `training_batches`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.epoch_batches import stored_batches
        >>> from keras_luong.text.token_store import TokenStore, count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> words = kl.TokenizerPair.train(pairs, kind="word")
        >>> counts = count_pairs(pairs, words, max_length=50, folder="my/ids")
        >>> batches = stored_batches(TokenStore("my/ids", words), 0, batch_tokens=40)
        >>> for inputs, labels, weights in batches:  # or model.fit(batches)
        ...     print(inputs["source"].shape, labels.shape, weights.shape)
        (3, 4) (3, 3) (3, 3)
    """
    index, of = part
    is_drawn = store.subword_sampling is not None

    def plan(epoch: np.int64, begin: np.int64, places: np.ndarray) -> list[np.ndarray]:
        """The batches of some pairs; and their ids, if those are drawn."""
        key = [seed, int(epoch), int(begin)]
        if not is_drawn:
            lengths = store.rows.lengths
            return [*plan_batches(lengths, places, key, max_length, **options)]
        rows = store.draw(places, key, max_length)
        order = np.arange(len(places))
        return [*plan_batches(rows.lengths, order, key, max_length, **options), *rows]

    def read(
        places: np.ndarray, size: np.ndarray, *drawn: np.ndarray
    ) -> list[np.ndarray]:
        """A batch's sources and labels; rows without a word fill it up."""
        rows = Rows(*drawn) if is_drawn else store.rows
        count, *widths = size.tolist()
        sides = []
        for side, width in zip(SIDES, widths, strict=True):
            ids = np.full((-(-count // of), width), PAD_ID, np.int32)
            own = rows.padded(side, places[index::of], width)
            ids[: len(own)] = own
            sides.append(ids)
        sides[0][len(own) :, 0] = EOS_ID  # cuDNN needs a word in each row
        return sides

    def batches_of(order: tf.Tensor, *planned: tf.Tensor) -> tf.data.Dataset:
        """Reads batches as they are planned."""
        begins, ends, sizes, counts, *drawn = planned

        def batch(
            begin: tf.Tensor, end: tf.Tensor, size: tf.Tensor, count: tf.Tensor
        ) -> Batch:
            given = [order[begin:end], size, *drawn]
            both = tf.numpy_function(read, given, [tf.int32] * 2, stateful=False)
            source, labels = (tf.ensure_shape(x, [None, None]) for x in both)
            return with_targets(source, labels, count)

        for tensor in (begins, ends, counts):
            tensor.set_shape([None])
        sizes.set_shape([None, 3])
        numbers = tf.data.Dataset.from_tensor_slices((begins, ends, sizes, counts))
        return numbers.map(batch)

    # 1. The order of the pairs.
    order = tf.numpy_function(
        lambda epoch: epoch_order(len(store), int(epoch), shape, seed),
        [epoch],
        tf.int64,
        stateful=False,
    )
    total = tf.size(order, tf.int64)
    together = tf.constant(DRAWN_AT_ONCE, tf.int64) if is_drawn else total
    # 2. The batches of all of them; or of some whose ids are drawn, one lot ahead.
    dtypes = [*[tf.int64] * 4, tf.float32, *[tf.int32] * 2 * is_drawn]
    dtypes += [tf.int64] * 2 * is_drawn
    plans = tf.data.Dataset.range(0, total, tf.maximum(together, 1)).map(
        lambda begin: tf.numpy_function(
            plan, [epoch, begin, order[begin : begin + together]], dtypes
        )
    )
    # 3. Their rows.
    batches = plans.prefetch(1).flat_map(batches_of)
    return batches.with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)


class EpochPlan(NamedTuple):
    """The batches of an epoch: which pairs are in each, and what it is padded to.

    Attributes:
        order: int64 [N], places of pairs, those of a batch side by side.
        begins: int64 [number of batches], where each batch begins in `order`.
        ends: The same, where it ends; at its beginning for a batch without pairs.
        shapes: int64 [number of batches, 3], a `BatchShape` each.
        labels: float32 [number of batches], by how many labels the loss of a batch is
            divided, so that it is a mean.
    """

    order: np.ndarray
    begins: np.ndarray
    ends: np.ndarray
    shapes: np.ndarray
    labels: np.ndarray


def epoch_order(pairs: int, epoch: int, shape: EpochShape, seed: int) -> np.ndarray:
    """Chooses the pairs of an epoch, in random order.

    Each pass over the corpus has an order of its own, and is cut into parts if an epoch
    is a part.

    Args:
        pairs: How many there are.
        epoch: Its number, from 0.
        shape: What of the corpus an epoch is.
        seed: Seed of the order.

    Returns:
        int64 [N], places of pairs.

    Example:
        >>> from keras_luong.text.batches import EpochShape
        >>> from keras_luong.text.epoch_batches import epoch_order
        >>> halves = [epoch_order(5, i, EpochShape(parts=2), seed=0) for i in (0, 1)]
        >>> [len(half) for half in halves], sorted(np.concatenate(halves).tolist())
        ([2, 3], [0, 1, 2, 3, 4])
    """
    number, part = divmod(epoch, shape.parts)
    passes = range(number * shape.passes, (number + 1) * shape.passes)
    rngs = (np.random.default_rng([seed, number]) for number in passes)
    order = np.concatenate([rng.permutation(pairs) for rng in rngs])
    begin, end = (len(order) * x // shape.parts for x in (part, part + 1))
    return order[begin:end]


def plan_batches(
    lengths: np.ndarray,
    order: np.ndarray,
    key: Sequence[int],
    max_length: int = 50,
    batch_tokens: int = 4096,
    gradient_accumulation_steps: int = 1,
    shapes: Sequence[BatchShape] | None = None,
) -> EpochPlan:
    """Chooses the pairs of each batch, by their lengths alone.

    Pairs of similar length share a batch, and batches come in random order.

    Args:
        lengths: int [N, 2], of sources and targets, EOS not counted.
        order: int64, places of pairs, those of the batches in random order.
        key: Numbers that the order of the batches follows from.
        max_length: As of `training_batches`.
        batch_tokens: The same.
        gradient_accumulation_steps: The same.
        shapes: The same.

    Example:
        >>> from keras_luong.text.epoch_batches import plan_batches
        >>> lengths = np.array([[2, 3], [9, 8], [3, 2]])
        >>> plan = plan_batches(lengths, np.arange(3), key=[0], batch_tokens=40)
        >>> sorted((plan.ends - plan.begins).tolist()), sorted(plan.labels.tolist())
        ([1, 2], [7.0, 9.0])
    """
    buckets = bucket_shapes(batch_tokens, max_length)
    buckets = buckets if shapes is None else [*shapes, buckets[-1]]
    # 1. Those of a bucket side by side, cut into batches.
    ended = lengths[order] + 1
    bucket = first_that_hold(ended, buckets)
    by_bucket = np.argsort(bucket, kind="stable")
    order, ended, bucket = order[by_bucket], ended[by_bucket], bucket[by_bucket]
    counts = np.bincount(bucket, minlength=len(buckets))
    firsts = np.cumsum(counts) - counts
    begins = np.concatenate(
        [
            np.arange(first, first + count, size.rows)
            for first, count, size in zip(firsts, counts, buckets, strict=True)
        ]
    )
    ends = np.append(begins[1:], len(order))
    # 2. Their shapes: those of the buckets, or of their longest rows.
    if shapes is None:
        longest = np.maximum.reduceat(ended, begins) if len(begins) else ended
        sizes = np.column_stack([ends - begins, longest])
    else:
        sizes = np.array(buckets)[bucket[begins]]
    labels = np.add.reduceat(ended[:, 1], begins) if len(begins) else ended[:, 1]
    # 3. Another order; whole groups of those that are one step of the optimizer.
    together = gradient_accumulation_steps
    mixed = np.random.default_rng(key).permutation(len(begins))
    missing = -len(begins) % together
    begins, ends, labels, sizes = (
        np.concatenate([x[mixed], np.zeros_like(x[:1]).repeat(missing, 0)])
        for x in (begins, ends, labels, sizes)
    )
    sizes[len(mixed) :] = 1 if shapes is None else shapes[0]
    # Keras takes the mean of a group's gradients: its sum would be too large.
    means = labels.reshape(-1, together).mean(axis=1).repeat(together)
    return EpochPlan(order, begins, ends, sizes, means.astype(np.float32))
