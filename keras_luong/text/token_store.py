"""A corpus's ids on disk, what was counted when they were made, and their batches.

A text is tokenized once. Its ids lie in flat files, two bytes each if the vocabulary
allows it, from which any pairs are read without the others: so an epoch may be a tenth
of a corpus at a tenth of the cost, in another order each time. The batches of an epoch
are planned by the pairs' lengths alone; their ids are read when their turn comes. Of
several machines each reads only its own rows.

Shapes: N pairs, B pairs of a batch, S source length, T target length.
"""

from __future__ import annotations

import collections
import concurrent.futures
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import tensorflow as tf

from keras_luong.files import saved_directory_beside
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.batches import (
    A_PASS,
    PREFETCHED_BATCHES,
    BatchShape,
    EpochShape,
    bucket_shapes,
    dataset_options,
    few_shapes,
    splitter,
)
from keras_luong.text.corpus import Block, blocks_of
from keras_luong.text.tokenizer_pair import TokenizerPair

_Item = TypeVar("_Item")
_SIDES = ("source", "target")
LENGTHS = "lengths.npy"  # the name of a file of `TokenStore`
#: What of a corpus a model does not learn from, or only as `<unk>`.
LEFT_OUT = ("empty", "too_long", "unknown_source", "unknown_target")


class PairCounts(NamedTuple):
    """How many pairs there are of each sort; only those of `lengths` are trained on.

    Attributes:
        empty: Those with an empty side.
        too_long: Those with a side of more than `max_length` tokens, and none empty.
        unknown_source: The share of the sources' tokens that are `<unk>`, from 0 to 1:
            words, or letters, that the vocabulary lacks.
        unknown_target: The same of the targets, where a model learns to write `<unk>`.
        source_tokens: How many tokens the sources have, EOS not counted.
        target_tokens: How many the targets have.
        lengths: The number of the others, by the lengths of source and target, EOS
            included.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
    """

    empty: int
    too_long: int
    unknown_source: float
    unknown_target: float
    source_tokens: int
    target_tokens: int
    lengths: Mapping[tuple[int, int], int]
    max_length: int

    @property
    def left_out(self) -> dict[str, int | float]:
        """What training does not learn from, by name."""
        return {name: getattr(self, name) for name in LEFT_OUT}

    @property
    def tokens(self) -> dict[str, int]:
        """How much text there is, by name."""
        return {
            "source_tokens": self.source_tokens,
            "target_tokens": self.target_tokens,
        }

    def batches(
        self,
        batch_tokens: int,
        shape: EpochShape = A_PASS,
        batch_shapes: Sequence[BatchShape] | None = None,
    ) -> int:
        """Returns the number of batches that `training_batches` makes of an epoch.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
            shape: What of the corpus an epoch is; of parts of a corpus the number is
                about right.
            batch_shapes: The shapes of the batches, if they are fixed.
        """
        share = shape.passes / shape.parts
        sizes = self._in_batches(batch_tokens, batch_shapes)
        return sum(math.ceil(share * size) for size in sizes)

    def full_batches(self, batch_tokens: int) -> float:
        """Returns how many batches a pass would make if all of them were full.

        Those of a small corpus are not: pairs of about one length are a batch, and the
        last batch of each length has what is left. Several passes are batched together.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
        """
        return sum(self._in_batches(batch_tokens))

    def batch_shapes(
        self, batch_tokens: int, shape: EpochShape = A_PASS
    ) -> list[BatchShape]:
        """Returns `few_shapes` for the batches of an epoch, on hardware that needs XLA.

        Args:
            batch_tokens: Most tokens on one side of a batch, padding included.
            shape: What of the corpus an epoch is.
        """
        share = shape.passes / shape.parts
        pairs = {lengths: share * number for lengths, number in self.lengths.items()}
        return few_shapes(pairs, batch_tokens, self.max_length)

    def _in_batches(self, batch_tokens, batch_shapes=()):
        """How many batches the pairs of each bucket fill."""
        buckets = [*(batch_shapes or ()), *bucket_shapes(batch_tokens, self.max_length)]
        lengths = np.array([*self.lengths], np.int64).reshape(-1, 2)
        indices = _first_that_hold(lengths, buckets)
        numbers = np.bincount(indices, [*self.lengths.values()], len(buckets))
        return [n / x.rows for n, x in zip(numbers.tolist(), buckets, strict=True)]


def count_pairs(
    pairs: tf.data.Dataset | Iterable[Block],
    tokenizers: TokenizerPair,
    max_length: int,
    subword_sampling: float | None = None,
    folder: str | Path | None = None,
) -> PairCounts:
    """Tokenizes a corpus, counts what is trained on, and writes its ids.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`; or what
            `read_blocks` yields, which is faster.
        tokenizers: The tokenizers of both languages.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        subword_sampling: See `training_batches`; with it the lengths differ from epoch
            to epoch, and the numbers are about right.
        folder: A folder for the ids of what is trained on, see `TokenStore`; what is
            there is replaced. None to count only.

    Returns:
        The `PairCounts`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.token_store import count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> tokenizers = kl.TokenizerPair.train(pairs, kind="word")
        >>> count_pairs(pairs, tokenizers, max_length=2).too_long
        1
    """
    if folder is None:
        return _count_pairs(pairs, tokenizers, max_length, subword_sampling)
    with saved_directory_beside(Path(folder), overwrite=True) as beside:
        return _count_pairs(pairs, tokenizers, max_length, subword_sampling, beside)


def _count_pairs(pairs, tokenizers, max_length, subword_sampling, folder=None):
    split = splitter(tokenizers, subword_sampling)
    dtypes = [_dtype(getattr(tokenizers, side)) for side in _SIDES]

    def tokenize(numbered: tuple[int, Block]) -> tuple[Any, ...]:
        """Counts, lengths and ids of some pairs."""
        number, block = numbered
        texts = dict(zip(_SIDES, map(tf.constant, block), strict=True))
        ids = [split(x, texts, (0, 2 * number + i)) for i, x in enumerate(_SIDES)]
        flat = [x.flat_values.numpy() for x in ids]
        lengths = np.stack([x.row_lengths().numpy() for x in ids], axis=1)
        empty, longest = lengths.min(axis=1) == 0, lengths.max(axis=1)
        too_long = ~empty & (longest > max_length)
        kept = ~empty & ~too_long
        unknown = [np.count_nonzero(x == UNK_ID) for x in flat]
        counts = [empty.sum(), too_long.sum(), *unknown, *map(len, flat)]
        rows = [
            x[np.repeat(kept, lengths[:, i])].astype(dtypes[i])
            for i, x in enumerate(flat)
        ]
        return np.array(counts), lengths[kept].astype(np.int32), *rows

    # 1. Many pairs at a time, on all cores.
    blocks = blocks_of(pairs) if isinstance(pairs, tf.data.Dataset) else pairs
    files = [open(folder / side, "wb") for side in _SIDES] if folder else []
    total, counted = np.zeros(6, np.int64), Counter[tuple[int, int]]()
    all_lengths = [np.zeros((0, 2), np.int32)]
    try:
        for counts, lengths, *rows in _in_threads(tokenize, enumerate(blocks)):
            total += counts
            counted.update(map(tuple, (lengths + 1).tolist()))
            if folder:
                all_lengths.append(lengths)
                for file, ids in zip(files, rows, strict=True):
                    file.write(ids.tobytes())
    finally:
        for file in files:
            file.close()
    # 2. What is known of them.
    if folder:
        np.save(folder / LENGTHS, np.concatenate(all_lengths))
    empty, too_long, unknown_source, unknown_target, sources, targets = total.tolist()
    return PairCounts(
        empty=empty,
        too_long=too_long,
        unknown_source=unknown_source / max(sources, 1),
        unknown_target=unknown_target / max(targets, 1),
        source_tokens=sources,
        target_tokens=targets,
        lengths=counted,
        max_length=max_length,
    )


def _in_threads(
    function: Callable[[_Item], Any], items: Iterable[_Item]
) -> Iterator[Any]:
    """`map` on all cores, some items ahead: TensorFlow's operations need no lock."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        ahead: collections.deque[concurrent.futures.Future[Any]] = collections.deque()
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > 2 * (os.cpu_count() or 1):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


def _dtype(tokenizer: Any) -> Any:
    """The smallest dtype that holds all ids."""
    return np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32


class TokenStore:
    """The ids of a corpus, in files that are read where they are needed.

    Args:
        folder: What `count_pairs` wrote.
        tokenizers: The tokenizers that it was given.

    Attributes:
        lengths: int32 [N, 2], of sources and targets, EOS not counted.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.token_store import TokenStore, count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> words = kl.TokenizerPair.train(pairs, kind="word")
        >>> counts = count_pairs(pairs, words, max_length=50, folder="my/tokens")
        >>> store = TokenStore("my/tokens", words)
        >>> ids = store.rows("target", np.array([0, 1]), width=4)
        >>> rows = tf.RaggedTensor.from_tensor(ids, padding=0)
        >>> words.target.decode(rows).numpy().tolist()
        [b'der Hund', b'der']
    """

    def __init__(self, folder: str | Path, tokenizers: TokenizerPair):
        folder = Path(folder)
        self.lengths = np.load(folder / LENGTHS)
        ends = np.cumsum(self.lengths, axis=0, dtype=np.int64)
        self._begins = ends - self.lengths
        self._ids = {
            # (An empty file cannot be mapped.)
            side: np.memmap(folder / side, _dtype(getattr(tokenizers, side)), "r")
            if (folder / side).stat().st_size
            else np.zeros(0, np.uint16)
            for side in _SIDES
        }

    def __len__(self) -> int:
        """N."""
        return len(self.lengths)

    def rows(self, side: str, places: np.ndarray, width: int) -> np.ndarray:
        """Returns ids with EOS, and padding: int32 [B, width].

        Args:
            side: "source" or "target".
            places: int64 [B], which pairs.
            width: At least their longest length, EOS included.
        """
        number = _SIDES.index(side)
        columns = np.arange(width)
        lengths = self.lengths[places, number, None]
        index = self._begins[places, number, None] + columns
        ids = np.full(index.shape, PAD_ID, np.int32)
        is_id = columns < lengths
        ids[is_id] = self._ids[side][index[is_id]]
        ids[columns == lengths] = EOS_ID
        return ids


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


def plan_epoch(
    lengths: np.ndarray,
    epoch: int,
    batch_tokens: int = 4096,
    max_length: int = 50,
    shape: EpochShape = A_PASS,
    seed: int = 0,
    gradient_accumulation_steps: int = 1,
    shapes: Sequence[BatchShape] | None = None,
) -> EpochPlan:
    """Chooses the pairs of each batch of an epoch, by their lengths alone.

    Each pass over the corpus has an order of its own, and is cut into parts if an epoch
    is a part. Pairs of similar length share a batch, and batches come in random order.

    Args:
        lengths: int [N, 2], of sources and targets, EOS not counted.
        epoch: Its number, from 0.
        batch_tokens: As of `training_batches`.
        max_length: The same.
        shape: What of the corpus an epoch is.
        seed: Seed of the order; the same seed gives the same plan.
        gradient_accumulation_steps: As of `training_batches`.
        shapes: The same.

    Example:
        >>> from keras_luong.text.token_store import plan_epoch
        >>> plan = plan_epoch(np.array([[2, 3], [9, 8], [3, 2]]), 0, batch_tokens=40)
        >>> sorted((plan.ends - plan.begins).tolist()), sorted(plan.labels.tolist())
        ([1, 2], [7.0, 9.0])
    """
    # 1. The pairs of the epoch, in random order.
    number, part = divmod(epoch, shape.parts)
    passes = range(number * shape.passes, (number + 1) * shape.passes)
    rngs = (np.random.default_rng([seed, number]) for number in passes)
    order = np.concatenate([rng.permutation(len(lengths)) for rng in rngs])
    begin, end = (len(order) * x // shape.parts for x in (part, part + 1))
    order = order[begin:end]
    # 2. Those of a bucket side by side, cut into batches.
    buckets = bucket_shapes(batch_tokens, max_length)
    buckets = buckets if shapes is None else [*shapes, buckets[-1]]
    ended = lengths[order] + 1
    bucket = _first_that_hold(ended, buckets)
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
    # 3. Their shapes: those of the buckets, or of their longest rows.
    if shapes is None:
        longest = np.maximum.reduceat(ended, begins) if len(begins) else ended
        sizes = np.column_stack([ends - begins, longest])
    else:
        sizes = np.array(buckets)[bucket[begins]]
    labels = np.add.reduceat(ended[:, 1], begins) if len(begins) else ended[:, 1]
    # 4. Another order; whole groups of those that are one step of the optimizer.
    together = gradient_accumulation_steps
    mixed = np.random.default_rng([seed, epoch, 1]).permutation(len(begins))
    missing = -len(begins) % together
    begins, ends, labels, sizes = (
        np.concatenate([x[mixed], np.zeros_like(x[:1]).repeat(missing, 0)])
        for x in (begins, ends, labels, sizes)
    )
    sizes[len(mixed) :] = 1 if shapes is None else shapes[0]
    # Keras takes the mean of a group's gradients: its sum would be too large.
    means = labels.reshape(-1, together).mean(axis=1).repeat(together)
    return EpochPlan(order, begins, ends, sizes, means.astype(np.float32))


def _first_that_hold(lengths: np.ndarray, shapes: Sequence[BatchShape]) -> np.ndarray:
    """The index of the first shape that holds each pair; the last holds all."""
    index = np.full(len(lengths), len(shapes) - 1, np.uint16)
    for number, (_, *longest) in reversed([*enumerate(shapes)]):
        index[(lengths <= longest).all(axis=1)] = number
    return index


def stored_batches(
    store: TokenStore,
    epoch: int | tf.Tensor,
    *,
    part: tuple[int, int] = (0, 1),
    **options: Any,
) -> tf.data.Dataset:
    """Makes the batches of an epoch, of stored ids.

    Args:
        store: The ids.
        epoch: Its number, from 0; an int64 scalar tensor will do.
        part: Which rows of each batch to make, and of how many parts, as of several
            machines: (0, 3) is the first of three. The last rows may have no label.
        **options: More arguments of `plan_epoch`.

    Returns:
        Dataset of the same elements as from `training_batches`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.token_store import (
        ...     TokenStore, count_pairs, stored_batches
        ... )
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> words = kl.TokenizerPair.train(pairs, kind="word")
        >>> counts = count_pairs(pairs, words, max_length=50, folder="my/ids")
        >>> batches = stored_batches(TokenStore("my/ids", words), 0, batch_tokens=40)
        >>> for inputs, labels, weights in batches:  # or model.fit(batches)
        ...     print(inputs["source"].shape, labels.shape, weights.shape)
        (3, 4) (3, 3) (3, 3)
    """
    index, of = part

    def plan(epoch: np.ndarray) -> list[np.ndarray]:
        return [*plan_epoch(store.lengths, int(epoch), **options)]

    def read(places: np.ndarray, shape: np.ndarray) -> list[np.ndarray]:
        """A batch's sources and labels; rows without a word fill it up."""
        rows, *widths = shape.tolist()
        sides = []
        for side, width in zip(_SIDES, widths, strict=True):
            ids = np.full((-(-rows // of), width), PAD_ID, np.int32)
            own = store.rows(side, places[index::of], width)
            ids[: len(own)] = own
            sides.append(ids)
        sides[0][len(own) :, 0] = EOS_ID  # cuDNN needs a word in each row
        return sides

    dtypes = [tf.int64, tf.int64, tf.int64, tf.int64, tf.float32]
    planned = tf.numpy_function(plan, [epoch], dtypes, stateful=False)
    order, begins, ends, sizes, counts = planned
    for tensor in (begins, ends, counts):
        tensor.set_shape([None])
    sizes.set_shape([None, 3])

    def batch(begin, end, shape, count):
        ids = [tf.int32, tf.int32]
        both = tf.numpy_function(read, [order[begin:end], shape], ids, stateful=False)
        source, labels = (tf.ensure_shape(x, [None, None]) for x in both)
        begins_with = tf.fill([tf.shape(labels)[0], 1], BOS_ID)
        target = tf.concat([begins_with, labels[:, :-1]], axis=1)
        target = tf.where(target == EOS_ID, PAD_ID, target)  # of shorter rows
        weights = tf.cast(labels != PAD_ID, tf.float32) / count
        return {"source": source, "target": target}, labels, weights

    rows = tf.data.Dataset.from_tensor_slices((begins, ends, sizes, counts))
    return rows.map(batch).with_options(dataset_options()).prefetch(PREFETCHED_BATCHES)
