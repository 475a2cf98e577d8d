"""From tokens to words: merges alignments and replaces unknown words.

Shapes: T target tokens, S source tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from keras_luong.checks import check_strings
from keras_luong.evaluation.alignment.links import (
    Link,
    hard_alignment,
    link_set,
    matrix,
)
from keras_luong.special_ids import UNK_ID
from keras_luong.text.tokenizer import SPECIAL_PIECES

WORD_START = "▁"
UNKNOWN = SPECIAL_PIECES[UNK_ID]
CONTROLS = frozenset(SPECIAL_PIECES) - {UNKNOWN}  # tokens without text


class Word(NamedTuple):
    """A word and the tokens that it is made of.

    Attributes:
        text: The word, without word-start signs.
        tokens: The range of its tokens' indices.

    Example:
        >>> from keras_luong.evaluation.alignment import words_of
        >>> words_of(["▁Hun", "de"])
        [Word(text='Hunde', tokens=range(0, 2))]
    """

    text: str
    tokens: range


def words_of(pieces: Sequence[str]) -> list[Word]:
    """Groups a sentence's tokens into its words.

    If any token holds a "▁", the tokens are SentencePiece's: a "▁" starts a word, and a
    "▁" alone belongs to the piece after it. Otherwise each token is a word. Padding,
    begin and end tokens are always words of their own.

    Args:
        pieces: The tokens, such as `Translation.tokens`.

    Returns:
        The words, in order. Every token belongs to exactly one.

    Raises:
        TypeError: If `pieces` is a single string.

    Example:
        >>> from keras_luong.evaluation.alignment import words_of
        >>> [word.text for word in words_of(["▁Hun", "de", "▁", "Ω", "</s>"])]
        ['Hunde', 'Ω', '</s>']
    """
    check_strings("pieces", pieces)
    spaced = any(WORD_START in piece for piece in pieces)
    starts = [i for i in range(len(pieces)) if not spaced or _starts_word(pieces, i)]
    words = []
    for start, stop in pairwise([*starts, len(pieces)]):
        text = "".join(pieces[start:stop]).replace(WORD_START, " ").strip()
        words.append(Word(text, range(start, stop)))
    return words


def word_indices(pieces: Sequence[str]) -> list[int]:
    """Returns the index of the word that each token belongs to, as in `words_of`.

    Args:
        pieces: The tokens.

    Example:
        >>> from keras_luong.evaluation.alignment import word_indices
        >>> word_indices(["▁Hun", "de", "▁!"])
        [0, 0, 1]
    """
    return [n for n, word in enumerate(words_of(pieces)) for _ in word.tokens]


def merge_weights(
    weights: ArrayLike, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> np.ndarray:
    """Merges attention between sub-word tokens to attention between words.

    Attention *to* the pieces of a source word is summed. Attention *from* the pieces of
    a target word is averaged, so that a row still sums to 1 (Clark et al. 2019,
    arXiv:1906.04341, section 4.1). To align words by the step that reads them, pass
    `weights[1:]` and `target_tokens[:-1]`.

    Args:
        weights: Attention weights [T, S].
        source_tokens: The S source tokens.
        target_tokens: The T target tokens.

    Returns:
        Weights [target words, source words], with words as in `words_of`.

    Raises:
        ValueError: If `weights` is not [T, S] or not finite.

    Example:
        >>> from keras_luong.evaluation.alignment import merge_weights
        >>> merge_weights([[0.5, 0.3, 0.2]], ["▁Hun", "de", "▁!"], ["▁dogs"])
        array([[0.8, 0.2]])
    """
    weights = matrix(weights, source_tokens, target_tokens)
    return merge_ranges(weights, words_of(source_tokens), words_of(target_tokens))


def merge_ranges(
    weights: np.ndarray, columns: Sequence[Word], rows: Sequence[Word]
) -> np.ndarray:
    """Merges weights as `merge_weights` does, whatever is to be a word.

    Args:
        weights: Attention weights [T, S], a float array.
        columns: The source words: every source token belongs to exactly one.
        rows: The target words, likewise.

    Returns:
        Weights [target words, source words].

    Example:
        >>> from keras_luong.evaluation.alignment.words import Word, merge_ranges
        >>> whole = [Word("Hunde!", range(0, 3))]
        >>> merge_ranges(np.array([[0.5, 0.25, 0.25]]), whole, [Word("x", range(1))])
        array([[1.]])
    """
    to_words = _membership(columns, weights.dtype)
    from_words = _membership(rows, weights.dtype)
    mean = from_words / from_words.sum(axis=0)
    return mean.T @ weights @ to_words


def merge_links(
    links: Iterable[Link], source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> set[Link]:
    """Merges links between sub-word tokens to links between words.

    Args:
        links: Links between tokens.
        source_tokens: The source tokens.
        target_tokens: The target tokens.

    Returns:
        Links between words as in `words_of`: two words are linked if a token of one is
        linked to a token of the other.

    Raises:
        ValueError: If a link is no pair of indices, or points outside the tokens.

    Example:
        >>> from keras_luong.evaluation.alignment import merge_links
        >>> merge_links({(1, 0)}, ["▁Hun", "de"], ["▁dogs"])
        {(0, 0)}
    """
    source, target = word_indices(source_tokens), word_indices(target_tokens)
    links = link_set(links)
    for i, j in links:
        if i >= len(source) or j >= len(target):
            raise ValueError(
                f"Links must stay within {len(source)} source tokens and "
                f"{len(target)} target tokens. Received: {(i, j)}"
            )
    return {(source[i], target[j]) for i, j in links}


def replace_unknowns(
    tokens: Sequence[str],
    source_tokens: Sequence[str],
    weights: ArrayLike,
    dictionary: Mapping[str, str] | None = None,
    unknown: str = UNKNOWN,
) -> list[str]:
    """Replaces unknown words of a translation by the source words they attend to.

    Each becomes the dictionary's translation of the source word that it attends to
    most, or a copy of that word where the dictionary has none (Luong et al. 2015,
    Addressing the Rare Word Problem; by attention as in Jean et al. 2015, On Using Very
    Large Target Vocabulary).

    Args:
        tokens: The T target words.
        source_tokens: The S source words as they were written, since words that are
            `<unk>` here would be copied as `<unk>`. Attention to padding, begin and end
            tokens is ignored.
        weights: Attention weights [T, S].
        dictionary: Target words by source word.
        unknown: The token of an unknown word.

    Returns:
        The target words. One without attention to any word stays unknown.

    Raises:
        ValueError: If `weights` is not [T, S] or not finite.

    Example:
        >>> from keras_luong.evaluation.alignment import replace_unknowns
        >>> replace_unknowns(["Herr", "<unk>"], ["Mr", "Ng"], [[1, 0], [0.2, 0.8]])
        ['Herr', 'Ng']
    """
    weights = matrix(weights, source_tokens, tokens)
    is_word = np.array([token not in CONTROLS for token in source_tokens], bool)
    source = {t: s for s, t in hard_alignment(weights * is_word)}
    dictionary = {} if dictionary is None else dictionary
    result = list(tokens)
    for t, token in enumerate(tokens):
        if token == unknown and t in source:
            word = source_tokens[source[t]]
            result[t] = dictionary.get(word, word)
    return result


def _membership(words: Sequence[Word], dtype: DTypeLike) -> np.ndarray:
    """Returns a matrix [tokens, words] that is 1 where a token belongs to a word."""
    owners = [n for n, word in enumerate(words) for _ in word.tokens]
    return np.eye(len(words), dtype=dtype)[np.array(owners, int)]


def _starts_word(pieces: Sequence[str], i: int) -> bool:
    """Tells whether SentencePiece's piece `i` is the first of a word."""
    if i == 0 or pieces[i] in CONTROLS or pieces[i - 1] in CONTROLS:
        return True
    rest = takewhile(lambda piece: piece not in CONTROLS, pieces[i:])
    return (
        pieces[i].startswith(WORD_START)
        and pieces[i - 1].strip(WORD_START) != ""  # a lone "▁" has started it already
        and any(piece.strip(WORD_START) for piece in rest)  # else it ends a sentence
    )
