"""Larger vocabularies: all ids stay what they are, and new ones come after them."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.training import DataConfig
from keras_luong.special_ids import EOS_ID, UNK_ID
from keras_luong.text.hashes import Sample
from keras_luong.text.sentencepiece import (
    RESERVED,
    WORD_START,
    SentencePieceTokenizer,
    normalizer,
    parse_model,
)
from keras_luong.text.tags import remove_tag
from keras_luong.text.tokenizer import Tokenizer, nonblank
from keras_luong.text.tokenizer_pair import TokenizerPair, sample_sides
from keras_luong.text.words import WordTokenizer

Texts: TypeAlias = Iterable[str | bytes]
_NO_PIECES = " ", WORD_START, *RESERVED


def grow_tokenizers(
    tokenizers: TokenizerPair,
    pairs: tf.data.Dataset,
    number: int,
    character_coverage: float = DataConfig.character_coverage,
    limit: int | None = 500_000,
) -> TokenizerPair:
    """Adds pieces or words of another text to tokenizers.

    Args:
        tokenizers: SentencePiece or word tokenizers; they do not change.
        pairs: The other text: a dataset of `{"source": tf.string [], "target":
            tf.string []}`.
        number: Most new tokens of each vocabulary, or of the shared one.
        character_coverage: As of `SentencePieceTokenizer.train`.
        limit: Number of pairs to learn from, sampled evenly; None takes all.

    Returns:
        A new pair, shared where `tokenizers` is. What was a token before has its id.

    Raises:
        TypeError: If the tokenizers are others, or `number` is no integer.
        ValueError: If `number` is below 1, or there is no text.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.growing import grow_tokenizers
        >>> sides = kl.WordTokenizer(["the"]), kl.WordTokenizer(["der"])
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> grow_tokenizers(kl.TokenizerPair(*sides), pairs, number=2).source.words
        ['the', 'dog', 'cat']
    """
    check_size("grow_vocab", number)
    source, target = tokenizers.source, tokenizers.target
    sources: Texts
    sources, targets = sample_sides(pairs, limit, seed=0)
    if not tokenizers.shared:
        sides = (source, sources), (target, targets)
        return TokenizerPair(*(_grow(*x, number, character_coverage) for x in sides))
    if source is not target and isinstance(source, SentencePieceTokenizer):
        # The same pieces, for texts that are prepared by different rules.
        sources = map(normalizer(source.normalization), nonblank(sources))
    both = _grow(target, itertools.chain(sources, targets), number, character_coverage)
    return TokenizerPair(_prepared_as(source, both), both)


def add_tokens(
    tokenizers: TokenizerPair, tokens: Sequence[str], sides: Sequence[str]
) -> TokenizerPair:
    """Adds given tokens to tokenizers, each a piece of its own.

    Args:
        tokenizers: SentencePiece or word tokenizers; they do not change.
        tokens: Texts without white space, which begin a word. One that a vocabulary has
            already stays what it is.
        sides: Which tokenizers get them: "source", "target", or both. Those that share
            one vocabulary always get them both.

    Raises:
        TypeError: If the tokenizers are others.

    Example:
        >>> from keras_luong.text.growing import add_tokens
        >>> words = kl.TokenizerPair(kl.WordTokenizer(["the", "dog"]))
        >>> add_tokens(words, ["<news>"], ["source"]).source.words
        ['the', 'dog', '<news>']
    """
    source, target = tokenizers.source, tokenizers.target
    if tokenizers.shared:
        both = _add_tokens(target, tokens)
        return TokenizerPair(_prepared_as(source, both), both)
    new = (
        _add_tokens(tokenizer, tokens) if side in sides else tokenizer
        for side, tokenizer in (("source", source), ("target", target))
    )
    return TokenizerPair(*new)


def missing_characters(
    tokenizers: TokenizerPair,
    sample: Sample,
    coverage: float = DataConfig.character_coverage,
) -> list[str]:
    """The characters of a text that SentencePiece lacks, and that growing would add.

    Args:
        tokenizers: Those of its sources and targets; others lack none.
        sample: Some of its pairs.
        coverage: Share of the text that what it learns must cover.

    Returns:
        The most frequent first.
    """
    missing = Counter[str]()
    source, target = tokenizers.source, tokenizers.target
    for texts, tokenizer in (sample.sources, source), (sample.targets, target):
        if isinstance(tokenizer, SentencePieceTokenizer):
            read = map(normalizer(tokenizer.normalization), map(remove_tag, texts))
            seen = Counter(itertools.chain.from_iterable(read))
            known, left = {*tokenizer.vocabulary, *_NO_PIECES}, coverage * seen.total()
            for character, number in seen.most_common():
                if left > 0 and character not in known:
                    missing[character] += number
                left -= number
    return [character for character, _ in missing.most_common()]


def origins(old: Tokenizer, new: Tokenizer) -> list[list[int]]:
    """Returns the old ids of the text of each new token.

    Args:
        old: The tokenizer.
        new: The tokenizer, grown.

    Returns:
        The old ids of each new token's text, in the order of the new ids; those that
        were unknown are left out, and where all were, there are none.
    """
    ids = tf.range(old.vocab_size, new.vocab_size)
    texts = tf.strings.regex_replace(new.pieces(ids), "▁", " ")
    rows = old.encode(texts).to_list()
    return [[i for i in row if i != UNK_ID] for row in rows]


def _grow(tokenizer: Any, texts: Texts, number: int, coverage: float) -> Any:
    if isinstance(tokenizer, WordTokenizer):
        known = set(tokenizer.vocabulary)
        size = number + tokenizer.vocab_size
        words = WordTokenizer.train(texts, size).words
        new = [word for word in words if word not in known][:number]
        return WordTokenizer([*tokenizer.words, *new])
    _check_kind(tokenizer)
    return _add_pieces(tokenizer, _new_pieces(tokenizer, texts, number, coverage))


def _new_pieces(
    tokenizer: SentencePieceTokenizer, texts: Texts, number: int, coverage: float
) -> list[tuple[str, float]]:
    """The pieces, with their scores, that a text needs and a tokenizer has not.

    A unigram model of the text alone says which ones, and how probable they are. Those
    of a single character come first, as without them the text is unknown; then the
    most probable ones. What both models have says how their scores compare: a rare word
    of one text may be a common one of the other, so it is the median that counts.
    """
    size, rule = tokenizer.vocab_size + number, tokenizer.normalization
    try:
        fresh = SentencePieceTokenizer.train(texts, size, coverage, rule)
    except ValueError as error:
        raise ValueError(
            f"grow_vocab cannot choose {number} new pieces. With those that are there, "
            f"{error}"
        ) from error
    before, now = _scores(tokenizer), _scores(fresh)
    shift = [before[piece] - now[piece] for piece in before.keys() & now.keys()]
    level = statistics.median(shift) if shift else 0.0
    missing = [piece for piece in now if piece not in before]
    missing.sort(key=lambda piece: (len(piece) > 1, -now[piece], piece))
    return [(piece, min(now[piece] + level, 0.0)) for piece in missing[:number]]


def _scores(tokenizer: SentencePieceTokenizer) -> dict[str, float]:
    """The logarithms of the pieces' probabilities, without the special tokens."""
    pieces = parse_model(tokenizer.model).pieces[EOS_ID + 1 :]
    return {piece.piece: piece.score for piece in pieces}


def _add_tokens(tokenizer: Any, tokens: Sequence[str]) -> Any:
    if isinstance(tokenizer, WordTokenizer):
        known = set(tokenizer.vocabulary)
        new = [token for token in tokens if token not in known]
        return WordTokenizer([*tokenizer.words, *new]) if new else tokenizer
    _check_kind(tokenizer)
    known, pieces = set(tokenizer.vocabulary), [f"▁{token}" for token in tokens]
    return _add_pieces(tokenizer, [(x, _CERTAIN) for x in pieces if x not in known])


#: A score with which a piece is taken wherever it fits, also when splits are drawn. As
#: a piece among others, and not SentencePiece's "user-defined", every runtime knows it.
_CERTAIN = 100.0


def _add_pieces(
    tokenizer: SentencePieceTokenizer, pieces: Sequence[tuple[str, float]]
) -> SentencePieceTokenizer:
    model = parse_model(tokenizer.model)
    for piece, score in pieces:
        model.pieces.add(piece=piece, score=score)
    model.trainer_spec.vocab_size = len(model.pieces)
    return SentencePieceTokenizer(model.SerializeToString(deterministic=True))


def _prepared_as(source: Any, both: Any) -> Any:
    """A shared vocabulary for the source, which may be prepared by another rule."""
    if isinstance(source, SentencePieceTokenizer):
        if source.normalization != both.normalization:
            return both.with_normalization(source.normalization)
    return both


def _check_kind(tokenizer: Any) -> None:
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise TypeError(
            "Only a SentencePieceTokenizer or a WordTokenizer can get more tokens. "
            f"Received: {type(tokenizer).__name__}"
        )
