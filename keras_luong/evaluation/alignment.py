"""Links between words: from attention, in files, and scored against a gold standard.

An alignment is a set of links (source index, target index), counted from 0. Files are
in Pharaoh format, or in the WA format of the shared tasks. Tokens become words by
`words_of`, `merge_weights` and `merge_links`; unknown words are replaced.

Shapes: T target tokens, S source tokens.
"""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from keras_luong.checks import check_flag, check_path, check_size, check_strings
from keras_luong.files import read_lines
from keras_luong.special_ids import UNK_ID
from keras_luong.text.tokenizer import SPECIAL_PIECES

Link = tuple[int, int]
T = TypeVar("T")

WORD_START = "▁"
UNKNOWN = SPECIAL_PIECES[UNK_ID]
CONTROLS = frozenset(SPECIAL_PIECES) - {UNKNOWN}  # tokens without text

_PHARAOH_LINK = re.compile(r"(\d+)([-p?])(\d+)", re.ASCII)
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_WA_LINE = re.compile(rf"(\d+)\s+(\d+)\s+(\d+)(\s+[SP])?(\s+{_NUMBER})?", re.ASCII)


class AlignmentScore(NamedTuple):
    """How well a corpus is aligned, in percent.

    Attributes:
        aer: Alignment error rate, 0 is best.
        precision: Share of the proposed links that are possible; NaN without any.
        recall: Share of the sure links that were proposed; NaN without any.

    Example:
        >>> from keras_luong.evaluation.alignment import aer
        >>> score = aer([{(0, 0), (1, 0)}], sure=[{(0, 0), (1, 1)}])
        >>> score.precision, score.recall
        (50.0, 50.0)
    """

    aer: float
    precision: float
    recall: float

    def __str__(self) -> str:
        """Returns the three numbers as text."""
        return f"AER {self.aer:.1f} (P {self.precision:.1f}, R {self.recall:.1f})"


def hard_alignment(
    weights: ArrayLike,
    shift: int = 0,
    source_end: bool = False,
    target_end: bool = False,
) -> set[Link]:
    """Links each target token to the source token that it attends to most.

    Row `t` of `weights` is the attention of the step that *predicts* target token `t`
    and reads token `t - 1`, as in `Translation.alignment` and in what a decoder returns
    for the inputs `[<s>, y_0, y_1, ...]`. With `shift=1` a token is aligned by the next
    row, that of the step which *reads* it and so knows what it is (Shift-Att of Chen et
    al. 2020, arXiv:2004.14837); the last token then has no row and no link. Which is
    better depends on the model: measure both.

    Args:
        weights: Attention weights [T, S]; anything NumPy can read.
        shift: 0 for the step that predicts a token, 1 for the one that reads it.
        source_end: Whether the last column is an end token. A target token that attends
            to it most has no link.
        target_end: Whether the last row is an end token, which then has no link.

    Returns:
        The links. Of equal weights the lowest source index wins; a row without any
        weight above 0 gives no link.

    Raises:
        ValueError: If `weights` is not [T, S] or not finite, or `shift` is not 0 or
            1.

    Example:
        >>> from keras_luong.evaluation.alignment import hard_alignment
        >>> sorted(hard_alignment([[0.9, 0.1], [0.2, 0.8]]))
        [(0, 0), (1, 1)]
    """
    weights = matrix(weights)
    if check_size("shift", shift, smallest=0) > 1:
        raise ValueError(f"shift must be 0 or 1. Received: {shift!r}")
    T, S = weights.shape
    if S == 0:
        return set()
    end = S - 1 if check_flag("source_end", source_end) else S
    rows = weights[shift : T - 1 + shift if check_flag("target_end", target_end) else T]
    return {
        (int(s), t)
        for t, s in enumerate(rows.argmax(axis=1))
        if s < end and rows[t, s] > 0
    }


def aer(
    hypothesis: Sequence[Iterable[Link]],
    sure: Sequence[Iterable[Link]],
    possible: Sequence[Iterable[Link]] | None = None,
) -> AlignmentScore:
    """Computes the alignment error rate of a corpus, with precision and recall.

    `AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|)`, precision `|A∩P| / |A|`, recall
    `|A∩S| / |S|`, counted over the whole corpus (Och and Ney 2003, A Systematic
    Comparison of Various Statistical Alignment Models).

    Args:
        hypothesis: `A`, the proposed links of each sentence pair.
        sure: `S`, the sure links of each.
        possible: `P`, the possible links of each; sure links are always possible.
            None if there are no others.

    Returns:
        The score in percent.

    Raises:
        ValueError: If the lengths differ, there is no sentence pair, there is no link
            at all, or a link is no pair of indices.

    Example:
        >>> from keras_luong.evaluation.alignment import aer
        >>> sure, possible = [{(0, 0)}, {(1, 1)}], [{(1, 0)}, set()]
        >>> print(aer([{(0, 0), (1, 0)}, {(0, 1)}], sure, possible))
        AER 40.0 (P 66.7, R 50.0)
    """
    possible = sure if possible is None else possible
    lengths = len(hypothesis), len(sure), len(possible)
    if len(set(lengths)) > 1:
        raise ValueError(
            "hypothesis, sure and possible must have one set of links for each "
            "sentence pair. Received: {}, {} and {} sets".format(*lengths)
        )
    if not lengths[0]:
        raise ValueError("AER needs at least one sentence pair. Received none")
    A = S = AS = AP = 0
    for one in zip(hypothesis, sure, possible, strict=True):
        a, s, p = map(link_set, one)
        A, S = A + len(a), S + len(s)
        AS, AP = AS + len(a & s), AP + len(a & (p | s))
    if A + S == 0:
        raise ValueError("AER needs links. Received none, neither proposed nor sure")
    return AlignmentScore(
        aer=100 * (1 - (AS + AP) / (A + S)),
        precision=100 * AP / A if A else float("nan"),
        recall=100 * AS / S if S else float("nan"),
    )


def matrix(
    weights: ArrayLike,
    source: Sequence[str] | None = None,
    target: Sequence[str] | None = None,
) -> np.ndarray:
    """Returns weights as a floating-point matrix [T, S], after checks.

    They must be finite and, if tokens are given, have one row for each target token and
    one column for each source token.

    Integers become floats, and half precision becomes single.

    Args:
        weights: Weights [T, S]; anything NumPy can read.
        source: The S source tokens, if they are to be compared with the shape.
        target: The T target tokens, likewise.

    Raises:
        TypeError: If one string is given in place of a list of tokens.
        ValueError: If `weights` is not [T, S] or not finite.

    Example:
        >>> from keras_luong.evaluation.alignment import matrix
        >>> matrix([[1, 0], [0, 1]], ["a", "dog"], ["ein", "Hund"]).dtype.name
        'float64'
    """
    weights = np.asarray(weights)
    weights = weights.astype(np.result_type(weights.dtype, np.float32), copy=False)
    if source is not None and target is not None:
        check_strings("source tokens", source)
        check_strings("target tokens", target)
        expected = len(target), len(source)
        if weights.shape != expected:
            raise ValueError(
                "weights must be [target tokens, source tokens], here "
                f"{list(expected)}. Received shape: {list(weights.shape)}"
            )
    if weights.ndim != 2:
        raise ValueError(
            "weights must be [target tokens, source tokens]. "
            f"Received shape: {list(weights.shape)}"
        )
    if not np.isfinite(weights).all():
        raise ValueError("weights must be finite. Received NaN or infinite values")
    return weights


def link_set(links: Iterable[Link]) -> set[Link]:
    """Returns links as a set of pairs of ints; raises ValueError if they are none.

    Args:
        links: Pairs (source index, target index), counted from 0.

    Raises:
        ValueError: If one is no pair of integers, or an index is negative.

    Example:
        >>> from keras_luong.evaluation.alignment import link_set
        >>> link_set([[1, 0], (1, 0)])
        {(1, 0)}
    """
    try:
        result = {(operator.index(i), operator.index(j)) for i, j in links}
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"Links must be pairs (source index, target index). Received: {links!r:.80}"
        ) from error
    if any(min(link) < 0 for link in result):
        raise ValueError(f"Indices must be at least 0. Received: {links!r:.80}")
    return result


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
        >>> from keras_luong.evaluation.alignment import Word, merge_ranges
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


class Alignment(NamedTuple):
    """The links of a sentence pair.

    Attributes:
        sure: The links that an annotator was sure of, or that a system proposed.
        possible: The sure links and those that are merely possible.

    Example:
        >>> from keras_luong.evaluation.alignment import parse_pharaoh
        >>> parse_pharaoh("1p0")
        Alignment(sure=set(), possible={(1, 0)})
    """

    sure: set[Link]
    possible: set[Link]


class Alignments(NamedTuple):
    """The links of a corpus, in the form that `aer` takes.

    Attributes:
        sure: The sure links, one set a sentence pair.
        possible: The sure links and those that are merely possible, likewise.

    Example:
        >>> from keras_luong.evaluation.alignment import Alignments, aer
        >>> gold = Alignments(sure=[{(0, 0)}], possible=[{(0, 0), (1, 1)}])
        >>> aer([{(0, 0), (1, 1)}], *gold).aer
        0.0
    """

    sure: list[set[Link]]
    possible: list[set[Link]]


def parse_pharaoh(line: str, one_based: bool = False) -> Alignment:
    """Reads the links of a sentence pair in Pharaoh format, such as `0-0 1-2 2p2`.

    Args:
        line: Links separated by white space: `i-j` is sure, `ipj` or `i?j` is possible.
            The source index comes first.
        one_based: Whether the line counts from 1.

    Returns:
        The links, counted from 0. One that is both sure and possible is sure.

    Raises:
        ValueError: If the line holds anything but links.

    Example:
        >>> from keras_luong.evaluation.alignment import parse_pharaoh
        >>> links = parse_pharaoh("1-1 2p1", one_based=True)
        >>> sorted(links.sure), sorted(links.possible)
        ([(0, 0)], [(0, 0), (1, 0)])
    """
    first = int(check_flag("one_based", one_based))
    alignment = Alignment(set(), set())
    for item in line.split():
        match = _PHARAOH_LINK.fullmatch(item)
        if not match:
            raise ValueError(f"A link must read i-j, ipj or i?j. Received: {item!r}")
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise ValueError(f"Indices must be at least 1 here. Received: {item!r}")
        alignment.possible.add(link)
        if match[2] == "-":
            alignment.sure.add(link)
    return alignment


def format_pharaoh(
    sure: Iterable[Link], possible: Iterable[Link] = (), one_based: bool = False
) -> str:
    """Returns the links of a sentence pair in Pharaoh format, sorted.

    Args:
        sure: Links written `i-j`.
        possible: Links written `ipj`, unless they are sure.
        one_based: Whether to count from 1 in the line.

    Returns:
        The line, without a line feed.

    Raises:
        ValueError: If a link is no pair of indices.

    Example:
        >>> from keras_luong.evaluation.alignment import format_pharaoh
        >>> format_pharaoh({(1, 2), (0, 0)}, {(2, 2)})
        '0-0 1-2 2p2'
    """
    first = int(check_flag("one_based", one_based))
    sure = link_set(sure)
    return " ".join(
        f"{i + first}{'-' if (i, j) in sure else 'p'}{j + first}"
        for i, j in sorted(sure | link_set(possible))
    )


def read_pharaoh(path: str | Path, one_based: bool = False) -> Alignments:
    """Reads a file in Pharaoh format, one sentence pair a line.

    Args:
        path: The file; an empty line is a sentence pair without links.
        one_based: Whether the file counts from 1.

    Returns:
        The links, counted from 0.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file holds anything but links; the message names the line.

    Example:
        >>> from keras_luong.evaluation.alignment import read_pharaoh
        >>> from keras_luong.files import write_lines
        >>> write_lines("corpus.talp", ["0-0 1p1", "", "0-1"])
        >>> read_pharaoh("corpus.talp").sure
        [{(0, 0)}, set(), {(0, 1)}]
    """
    lines = read_lines(check_path("path", path))
    parse = partial(parse_pharaoh, one_based=one_based)
    alignments = list(_parsed(path, lines, parse))
    return Alignments([x.sure for x in alignments], [x.possible for x in alignments])


def read_wa(path: str | Path, sentences: int | None = None) -> Alignments:
    """Reads a file in the format of the WPT 2003 shared task, one link a line.

    A line is `sentence source target [S|P] [confidence]`, all counted from 1. A link is
    sure unless marked `P`; a link to position 0, the empty word, is left out, as is the
    confidence (Mihalcea and Pedersen 2003, An Evaluation Exercise for Word Alignment).

    Args:
        path: The file. Its lines may be in any order; a sentence pair without links has
            no line.
        sentences: The number of sentence pairs. None takes the highest number in the
            file, which misses pairs without links at the end.

    Returns:
        The links, counted from 0, one set for each of the sentence pairs 1, 2, ....

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a line is not of that form, or `sentences` is None and a number
            is far above the number of lines; the message names the file and the line.

    Example:
        >>> from keras_luong.evaluation.alignment import read_wa
        >>> from keras_luong.files import write_lines
        >>> write_lines("test.wa.nonullalign", ["0001 1 1 S", "0002 3 2 P"])
        >>> read_wa("test.wa.nonullalign", sentences=3)
        Alignments(sure=[{(0, 0)}, set(), set()], possible=[{(0, 0)}, {(2, 1)}, set()])
    """
    check_size("sentences", sentences, optional=True)
    lines = list(read_lines(check_path("path", path)))
    # A typo such as 20000000 for 20 must not fill the memory with empty sets.
    largest = sentences or 10 * len(lines) + 1000
    sure, possible = defaultdict[int, set[Link]](set), defaultdict[int, set[Link]](set)
    for line in _parsed(path, lines, partial(_parse_wa, largest=largest)):
        if line is not None:
            number, link, is_sure = line
            links = {link} if min(link) >= 0 else set()  # none to the empty word
            possible[number] |= links
            sure[number] |= links if is_sure else set()
    numbers = range(1, (sentences or max(possible, default=0)) + 1)
    return Alignments([sure[n] for n in numbers], [possible[n] for n in numbers])


def _parsed(
    path: str | Path, lines: Iterable[str], parse: Callable[[str], T]
) -> Iterator[T]:
    """Parses each line; an error names the file and the line."""
    for number, line in enumerate(lines, 1):
        try:
            parsed = parse(line)
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: {error}") from error
        yield parsed


def _parse_wa(line: str, largest: int) -> tuple[int, Link, bool] | None:
    """Returns the sentence's number, the link counted from 0, and whether it is sure.

    For a blank line it returns None.
    """
    if not line.strip():
        return None
    match = _WA_LINE.fullmatch(line.strip())
    if not match:
        raise ValueError(
            "A line must read: sentence source target [S|P] [confidence]. "
            f"Received: {line.strip()!r:.80}"
        )
    number, i, j = (int(x) for x in match.groups()[:3])
    if not 1 <= number <= largest:
        raise ValueError(
            f"A sentence's number must be 1 to {largest}; if there are more, give "
            f"their number as sentences. Received: {number}"
        )
    return number, (i - 1, j - 1), (match[4] or "S").strip() == "S"
