"""A corpus's ids on disk, and what was counted when they were made.

A text is read once. Its ids lie in flat files, two bytes each if the vocabulary allows
it, from which any pairs are read without the others: so an epoch may be a tenth of a
corpus at a tenth of the cost, in another order each time. If words are split at random,
anew in each epoch, the text itself lies there, in the same way.

Shapes: N pairs, B pairs of a batch.
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
from keras_luong.special_ids import EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.batches import (
    A_PASS,
    BatchShape,
    EpochShape,
    bucket_shapes,
    few_shapes,
    first_that_hold,
)
from keras_luong.text.corpus import Block, blocks_of
from keras_luong.text.tokenizer_pair import TokenizerPair

_Item = TypeVar("_Item")
SIDES = ("source", "target")
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
        indices = first_that_hold(lengths, buckets)
        numbers = np.bincount(indices, [*self.lengths.values()], len(buckets))
        return [n / x.rows for n, x in zip(numbers.tolist(), buckets, strict=True)]


def count_pairs(
    pairs: tf.data.Dataset | Iterable[Block],
    tokenizers: TokenizerPair,
    max_length: int,
    subword_sampling: float | None = None,
    folder: str | Path | None = None,
) -> PairCounts:
    """Tokenizes a corpus, counts what is trained on, and writes it down.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`; or what
            `read_blocks` yields, which is faster.
        tokenizers: The tokenizers of both languages.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        subword_sampling: See `training_batches`. What is left out is that of the best
            splits all the same; the lengths are of one drawing, and about right.
        folder: A folder for what is trained on, see `TokenStore`; what is there is
            replaced. None to count only.

    Returns:
        The `PairCounts`.

    Raises:
        ValueError: If `subword_sampling` is given, and a tokenizer knows only one split
            of a word.

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


def _count_pairs(pairs, tokenizers, max_length, alpha, folder=None):
    both = tokenizers.source, tokenizers.target
    dtypes = _dtypes(tokenizers, alpha)
    for tokenizer in both if alpha is not None else ():
        if not hasattr(tokenizer, "sample"):
            raise ValueError(
                "subword_sampling needs a tokenizer with several ways to split a "
                f"word: sentencepiece. Received: {type(tokenizer).__name__}"
            )

    def tokenize(numbered: tuple[int, Block]) -> tuple[Any, ...]:
        """Counts, lengths of ids, and what is stored of some pairs."""
        number, block = numbered
        texts = [tf.constant(side) for side in block]
        ids = [x.encode(side) for x, side in zip(both, texts, strict=True)]
        lengths = _lengths(ids)
        empty, longest = lengths.min(axis=1) == 0, lengths.max(axis=1)
        too_long = ~empty & (longest > max_length)
        kept = ~empty & ~too_long
        unknown = [np.count_nonzero(x.flat_values.numpy() == UNK_ID) for x in ids]
        counts = [empty.sum(), too_long.sum(), *unknown, *lengths.sum(axis=0)]
        if not kept.all():
            ids = [tf.ragged.boolean_mask(x, kept) for x in ids]
        stored = ids
        if alpha is not None:
            texts = [tf.boolean_mask(side, kept) for side in texts]
            stored = [_bytes_of(side) for side in texts]
            ids = _draw(tokenizers, texts, (0, number), alpha, max_length)
        flat = [x.flat_values.numpy() for x in stored]
        return np.array(counts), _lengths(ids), _lengths(stored), *flat

    # 1. Many pairs at a time, on all cores.
    blocks = blocks_of(pairs) if isinstance(pairs, tf.data.Dataset) else pairs
    files = [open(folder / side, "wb") for side in SIDES] if folder else []
    total, counted = np.zeros(6, np.int64), Counter[tuple[int, int]]()
    all_lengths = [np.zeros((0, 2), np.int32)]
    try:
        tokenized = _in_threads(tokenize, enumerate(blocks))
        for counts, lengths, stored_lengths, *stored in tokenized:
            total += counts
            counted.update(map(tuple, (lengths + 1).tolist()))
            if folder:
                all_lengths.append(stored_lengths.astype(np.int32))
                for file, flat, dtype in zip(files, stored, dtypes, strict=True):
                    file.write(flat.astype(dtype).tobytes())
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


def _dtypes(tokenizers: TokenizerPair, subword_sampling: float | None) -> list[Any]:
    """The smallest dtypes that hold all ids; bytes for text."""
    if subword_sampling is not None:
        return [np.uint8, np.uint8]
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    return [np.uint16 if size <= 1 << 16 else np.uint32 for size in sizes]


def _lengths(rows: Sequence[tf.RaggedTensor]) -> np.ndarray:
    return np.stack([side.row_lengths().numpy() for side in rows], axis=1)


def _bytes_of(texts: tf.Tensor) -> tf.RaggedTensor:
    """Strings [B] as ragged uint8 [B, None]."""
    flat = tf.io.decode_raw(tf.strings.reduce_join(texts), tf.uint8)
    return tf.RaggedTensor.from_row_lengths(flat, tf.strings.length(texts))


def _draw(
    tokenizers: TokenizerPair,
    texts: Iterable[tf.Tensor],
    key: Sequence[int],
    alpha: float | None,
    max_length: int,
) -> list[tf.RaggedTensor]:
    """Splits both sides at random; what gets longer than `max_length`, as usual."""
    # SentencePiece takes an int32 that is not negative.
    seeds = np.random.SeedSequence(key).generate_state(len(SIDES)) >> 1
    both: tuple[Any, Any] = tokenizers.source, tokenizers.target
    drawn = []
    for tokenizer, side, seed in zip(both, texts, seeds.tolist(), strict=True):
        ids = tokenizer.sample(side, seed, alpha)
        too_long = np.flatnonzero(ids.row_lengths() > max_length)
        order = np.arange(len(side))
        order[too_long] = len(side) + np.arange(len(too_long))
        usual = tokenizer.encode(tf.gather(side, too_long))
        drawn.append(tf.gather(tf.concat([ids, usual], axis=0), order))
    return drawn


class Rows(NamedTuple):
    """Rows of both sides of pairs, in flat arrays from which any of them is read.

    Attributes:
        source: int [total length of all sources].
        target: The same of the targets.
        lengths: int [N, 2], of the sources' rows and the targets'.
        begins: int64 [N, 2], where they begin.
    """

    source: np.ndarray
    target: np.ndarray
    lengths: np.ndarray
    begins: np.ndarray

    @classmethod
    def of(cls, flat: Sequence[np.ndarray], lengths: np.ndarray) -> Rows:
        """Rows that lie one after the other, of both sides."""
        source, target = flat
        ends = np.cumsum(lengths, axis=0, dtype=np.int64)
        return cls(source, target, lengths, ends - lengths)

    def padded(self, side: str, places: np.ndarray, width: int) -> np.ndarray:
        """Returns ids with EOS, and padding: int32 [B, width].

        Args:
            side: "source" or "target".
            places: int64 [B], which pairs.
            width: At least their longest length, EOS included.
        """
        number = SIDES.index(side)
        columns = np.arange(width)
        lengths = self.lengths[places, number, None]
        index = self.begins[places, number, None] + columns
        ids = np.full(index.shape, PAD_ID, np.int32)
        is_id = columns < lengths
        ids[is_id] = self[number][index[is_id]]
        ids[columns == lengths] = EOS_ID
        return ids


class TokenStore:
    """The ids of a corpus, in files that are read where they are needed.

    With `subword_sampling` its texts, whose ids are drawn when they are needed.

    Args:
        folder: What `count_pairs` wrote.
        tokenizers: The tokenizers that it was given.
        subword_sampling: As it was given.

    Attributes:
        rows: The ids as `Rows`, or the bytes of the texts.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.token_store import TokenStore, count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> words = kl.TokenizerPair.train(pairs, kind="word")
        >>> counts = count_pairs(pairs, words, max_length=50, folder="my/tokens")
        >>> store = TokenStore("my/tokens", words)
        >>> ids = store.rows.padded("target", np.array([0, 1]), width=4)
        >>> rows = tf.RaggedTensor.from_tensor(ids, padding=0)
        >>> words.target.decode(rows).numpy().tolist()
        [b'der Hund', b'der']
    """

    def __init__(
        self,
        folder: str | Path,
        tokenizers: TokenizerPair,
        subword_sampling: float | None = None,
    ):
        folder = Path(folder)
        dtypes = _dtypes(tokenizers, subword_sampling)
        flat = [
            # (An empty file cannot be mapped.)
            np.memmap(folder / side, dtype, "r")
            if (folder / side).stat().st_size
            else np.zeros(0, dtype)
            for side, dtype in zip(SIDES, dtypes, strict=True)
        ]
        self.rows = Rows.of(flat, np.load(folder / LENGTHS))
        self.subword_sampling = subword_sampling
        self._tokenizers = tokenizers

    def __len__(self) -> int:
        """N."""
        return len(self.rows.lengths)

    def draw(self, places: np.ndarray, key: Sequence[int], max_length: int) -> Rows:
        """Splits the words of some pairs at random.

        Args:
            places: int64 [B], which pairs.
            key: Numbers that the splits follow from.
            max_length: Most tokens of a sentence, BOS and EOS not counted. What would
                get more is split as usual.

        Returns:
            The ids of these pairs, in this order.
        """
        alpha = self.subword_sampling
        begins, lengths = self.rows.begins[places], self.rows.lengths[places]
        spans = np.stack([begins, begins + lengths], axis=-1)  # [B, 2, 2]
        texts = (
            tf.constant([self.rows[i][x:y].tobytes() for x, y in spans[:, i].tolist()])
            for i in range(len(SIDES))
        )
        ids = _draw(self._tokenizers, texts, key, alpha, max_length)
        return Rows.of([side.flat_values.numpy() for side in ids], _lengths(ids))
