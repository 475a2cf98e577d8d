"""What one must know of a corpus before a training: found by reading it once.

`corpus_facts` says how much text there is, `count_pairs` what becomes of it in
training, `overlaps` which sentences are both learned from and judged by, and
`language_doubts` which sides are in another language than they should be.

Shapes: N pairs, B pairs of a block.
"""

from __future__ import annotations

import bz2
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.config.auto import CorpusFacts
from keras_luong.languages import language_code
from keras_luong.special_ids import UNK_ID
from keras_luong.text.batches import (
    A_PASS,
    BatchShape,
    EpochShape,
    Tensors,
    bucket_shapes,
    few_shapes,
    shape_indices,
    splitter,
)
from keras_luong.text.corpus import Corpus
from keras_luong.text.tags import remove_tags
from keras_luong.text.tokenizer_pair import TokenizerPair

_PAIRS_AT_ONCE = 8192
_LARGEST = 2**63 - 1
#: White space, no-break spaces too; but for a single plain space, which most of it is.
_WHITE = r"[\s\p{Z}]{2,}|[\t\n\f\r]|[^\P{Z} ]"
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: no two numbers become one
_PAIRS_FOR_CHARACTERS = 100_000  # a language's characters are all seen by then
_MOST_BYTES = 4096  # longer lines count as this long: they are not trained on
_TEXTS_AT_ONCE = 1024
#: What of a corpus a model does not learn from, or only as `<unk>`.
LEFT_OUT = ("empty", "too_long", "unknown_source", "unknown_target")

_LEAST_LETTERS = 1000  # of less text the language is guessed
#: By how much a letter a guess must score above the language that it should be. Names,
#: addresses and lists have up to 0.13, sentences in another language from 0.16.
_LEAST_LEAD = 0.14
_SAMPLE = 3000  # characters that it is guessed by

#: Languages that are often written alike, and taken for each other.
_ALIKE = tuple(
    frozenset(codes.split())
    for codes in (
        "bs hr sr sh me",
        "nb nn no da sv",
        "id ms jv su",
        "cs sk",
        "es gl ca pt oc an",
        "hi mr ne",
        "fa ar ur ku ps",
        "nl af",
        "ru uk be bg mk",
        "xh zu",
    )
)


class TextHashes(NamedTuple):
    """Hashes of sentences, the same on every machine; 0 for a blank one.

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
    """Hashes the sentences of pairs: 24 bytes a pair.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.

    Example:
        >>> from keras_luong.text.survey import text_hashes
        >>> pairs = {"source": ["a dog", " "], "target": ["ein Hund", "eine Katze"]}
        >>> text_hashes(tf.data.Dataset.from_tensor_slices(pairs)).full
        array([ True, False])
    """

    def of_block(block: dict[str, tf.Tensor]) -> tuple[tf.Tensor, ...]:
        sides = block["source"], block["target"]
        length = tf.maximum(*map(tf.strings.length, sides))
        return *map(hashes_of, sides), tf.cast(length, tf.int64)

    blocks = pairs.batch(_PAIRS_AT_ONCE).map(of_block).as_numpy_iterator()
    nothing = (np.zeros(0, np.int64),) * 3
    source, target, length = map(np.concatenate, zip(nothing, *blocks, strict=True))
    return TextHashes(source.astype(np.uint64), target.astype(np.uint64), length)


def hashes_of(texts: tf.Tensor) -> tf.Tensor:
    """Returns hashes of texts, int64 [N]: 0 for blank ones.

    Args:
        texts: tf.string [N].
    """
    texts = tf.strings.strip(tf.strings.regex_replace(texts, _WHITE, " "))
    blank = tf.strings.length(texts) == 0
    hashes = 1 + tf.strings.to_hash_bucket_fast(texts, _LARGEST)
    return tf.where(blank, tf.zeros_like(hashes), hashes)


def corpus_facts(
    corpus: Corpus, limit: int | None = None, coverage: float = 0.9999
) -> CorpusFacts:
    """Measures the training split of a corpus, in one pass and little memory.

    Args:
        corpus: The corpus.
        limit: Number of pairs to train on, the first ones; None for all.
        coverage: Share of the text that the counted characters must cover.

    Returns:
        The `CorpusFacts`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.survey import corpus_facts
        >>> corpus_facts(load_corpus("my/corpus", "en", "de")).pairs
        3
    """
    pairs, content, compressor = 0, 0, bz2.BZ2Compressor()
    lengths = np.zeros(_MOST_BYTES + 1, np.int64)  # how many pairs have each length
    characters: Counter[str] = Counter()
    blocks = corpus.pairs("train").take(limit or -1).batch(_PAIRS_AT_ONCE)
    for block in blocks.as_numpy_iterator():
        sides = [[len(text) for text in block[side]] for side in ("source", "target")]
        longest = np.minimum(np.max(sides, axis=0), _MOST_BYTES)
        lengths += np.bincount(longest, minlength=_MOST_BYTES + 1)
        text = b"\n".join(text[:_MOST_BYTES] for text in block["target"])
        content += len(compressor.compress(text))
        if pairs < _PAIRS_FOR_CHARACTERS:
            for side in ("source", "target"):
                characters.update(b"".join(block[side]).decode(errors="replace"))
        pairs += len(block["target"])
    # The fewest characters, the most frequent ones, that cover so much of the text.
    counts = np.array(sorted(characters.values(), reverse=True), np.int64)
    covering = int(np.searchsorted(np.cumsum(counts), coverage * counts.sum())) + 1
    return CorpusFacts(
        pairs=pairs,
        content=content + len(compressor.flush()),
        long_line=int(np.searchsorted(np.cumsum(lengths), 0.995 * lengths.sum())),
        characters=covering if counts.size else 0,
    )


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
        """Returns `few_shapes` for `training_batches`, on hardware that needs XLA.

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
        source, target = np.array([*self.lengths], np.int64).reshape(-1, 2).T
        indices = shape_indices(source, target, buckets)
        numbers = np.bincount(indices, [*self.lengths.values()], len(buckets))
        return [n / x.rows for n, x in zip(numbers.tolist(), buckets, strict=True)]


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
        >>> from keras_luong.text.survey import count_pairs
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> tokenizers = kl.TokenizerPair.train(pairs, kind="word")
        >>> count_pairs(pairs, tokenizers, max_length=2).too_long
        1
    """
    split = splitter(tokenizers, subword_sampling)

    def counted(number: tf.Tensor, texts: Tensors) -> tuple[tf.Tensor, ...]:
        source = split("source", texts, (0, 2 * number))
        target = split("target", texts, (0, 2 * number + 1))
        lengths = tf.stack([source.row_lengths(), target.row_lengths()], axis=1)
        empty = tf.reduce_min(lengths, axis=1) == 0
        too_long = ~empty & (tf.reduce_max(lengths, axis=1) > max_length)
        left_out = [tf.math.count_nonzero(x) for x in (empty, too_long)]
        kept = tf.boolean_mask(lengths, ~empty & ~too_long)
        return tf.concat([_tokens(source), _tokens(target), left_out], 0), kept + 1

    many = pairs.batch(_TEXTS_AT_ONCE).enumerate()
    blocks = many.map(counted, num_parallel_calls=tf.data.AUTOTUNE)
    total, lengths = np.zeros(6, np.int64), Counter[tuple[int, int]]()
    for numbers, kept in blocks.as_numpy_iterator():
        total += numbers
        lengths.update(map(tuple, kept.tolist()))
    sources, unknown_source, targets, unknown_target, empty, too_long = total.tolist()
    return PairCounts(
        empty=empty,
        too_long=too_long,
        unknown_source=unknown_source / max(sources, 1),
        unknown_target=unknown_target / max(targets, 1),
        source_tokens=sources,
        target_tokens=targets,
        lengths=lengths,
        max_length=max_length,
    )


def _tokens(ids: tf.RaggedTensor) -> tf.Tensor:
    """int64 [2]: how many tokens there are, and how many of them are `<unk>`."""
    unknown = tf.math.count_nonzero(ids.flat_values == UNK_ID)
    return tf.stack([tf.size(ids.flat_values, tf.int64), unknown])


class Overlap(NamedTuple):
    """How many of a split's pairs are in others too; blank sentences don't count.

    Attributes:
        size: The number of the split's pairs.
        pairs: Those of which the very pair is trained on.
        sources: Those of which the source is, whatever its translation.
        validated: Those of which the very pair is in the validation split, of another
            split.
    """

    size: int
    pairs: int
    sources: int
    validated: int = 0


def overlaps(
    corpus: Corpus, limit: int | None = None, learned: Iterable[tf.data.Dataset] = ()
) -> dict[str, Overlap]:
    """Counts what of each other split is trained on, word by word, tags aside.

    Args:
        corpus: A corpus with splits to train and validate on. It is read once, and 24
            bytes of each of its pairs are kept meanwhile.
        limit: Number of training pairs that count, the first ones; all by default.
        learned: More pairs that count as trained on, as those of a run that training
            starts from.

    Returns:
        Split → its `Overlap`.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.survey import overlaps
        >>> overlaps(load_corpus("my/corpus", "en", "de"))["test"]
        Overlap(size=1, pairs=0, sources=0, validated=0)
    """
    texts = [corpus.pairs("train").take(limit or -1), *learned]
    train = [text_hashes(remove_tags(text)) for text in texts]
    pairs = np.concatenate([text.pairs for text in train])
    sources = np.concatenate([text.source for text in train])
    names = [split for split in corpus.splits if split != "train"]
    others = {split: text_hashes(remove_tags(corpus.pairs(split))) for split in names}
    overlap = {}
    for split, other in others.items():
        full = other.pairs[other.full]
        judged = others["validation"].pairs if split != "validation" else full[:0]
        overlap[split] = Overlap(
            len(other.source),
            int(np.isin(full, pairs).sum()),
            int(np.isin(other.source[other.source > 0], sources).sum()),
            int(np.isin(full, judged).sum()),
        )
    return overlap


def guess_language(lines: Iterable[bytes], declared: str) -> str | None:
    """Tells what language lines look like.

    Args:
        lines: UTF-8.
        declared: The code of the language that they should be in.

    Returns:
        That code if they look like it, or like a language that is easily taken for it;
        another one of ISO 639-1, by py3langid; None for little text, if it is not sure,
        or if it does not know the language that they should be in.

    Example:
        >>> from keras_luong.text.survey import guess_language
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> guess_language(lines, "en"), guess_language(lines, "de")
        ('en', 'en')
    """
    text = b"\n".join(lines).decode(errors="replace")
    if sum(map(str.isalpha, text)) < _LEAST_LETTERS:
        return None
    from py3langid import rank  # which brings a model of 5 MB

    # Of some lines: a lead grows by the logarithm of the text.
    some = text.split("\n")[:: 1 + len(text) // _SAMPLE]
    text = "\n".join(some)[:_SAMPLE]
    letters = sum(map(str.isalpha, text))
    scores = dict(rank(text))  # the first guess first
    look, code = next(iter(scores)), language_code(declared)
    if code not in scores:
        return None
    if are_alike(look, declared):
        return declared
    is_sure = scores[look] - scores[code] > _LEAST_LEAD * letters
    return look if is_sure and len(look) == 2 else None  # zxx is none


def language_doubts(
    sides: Mapping[str, Sequence[bytes]], declared: Mapping[str, str]
) -> Iterator[str]:
    """Yields sentences on sides that do not look like what they should be.

    Args:
        sides: "source", "target" or both → lines in UTF-8.
        declared: The same names → the code of the language that it should be in.

    Example:
        >>> from keras_luong.text.survey import language_doubts
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> list(language_doubts({"source": lines}, {"source": "fr"}))
        ['the source should be fr, and reads like en']
    """
    looks = {
        side: guess_language(lines, declared[side]) for side, lines in sides.items()
    }
    wrong = {
        side: look
        for side, look in looks.items()
        if look is not None and not are_alike(look, declared[side])
    }
    if len(looks) == 2:
        source, target = looks["source"], looks["target"]
        codes = declared["source"], declared["target"]
        if (
            source
            and target
            and are_alike(source, codes[1])
            and are_alike(target, codes[0])
        ):
            yield (
                f"the sides look swapped: the source should be {codes[0]} and reads "
                f"like {source}, the target {codes[1]} and like {target}"
            )
            return
        if source == target and source not in codes:
            return  # names, numbers and code look like a language by chance
    for side, look in wrong.items():
        yield f"the {side} should be {declared[side]}, and reads like {look}"


def reads_like(lines: Iterable[bytes], language: str) -> bool:
    """Whether lines are surely in a language, or in one that is easily taken for it.

    Args:
        lines: UTF-8; of little text nothing is sure.
        language: The language's code.

    Example:
        >>> from keras_luong.text.survey import reads_like
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> few = lines[:9]
        >>> reads_like(lines, "en"), reads_like(lines, "de"), reads_like(few, "en")
        (True, False, False)
    """
    return guess_language(lines, language) == language


def are_alike(one: str, other: str) -> bool:
    """Whether two codes are of one language, or of two that are easily mixed up.

    Example:
        >>> from keras_luong.text.survey import are_alike
        >>> are_alike("pt", "pt-BR"), are_alike("hr", "sr_Latn"), are_alike("en", "de")
        (True, True, False)
        >>> are_alike("deu", "de-AT")
        True
    """
    codes = {language_code(one), language_code(other)}
    return len(codes) == 1 or any(codes <= group for group in _ALIKE)
