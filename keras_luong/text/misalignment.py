"""Which pairs of a corpus are misaligned, and how many: what aligners tell from words.

A lexical table says how much more often two words are translations of each other than
by chance: IBM Model 1 (Brown et al. 1993), learned in both directions. Words that
explain each other make a pair's score. Pairs whose sides were put together at random
show how misaligned pairs score, so that nothing has to be set for a language: neither
what a good score is, nor how many pairs there are below it. Each half of the text is
scored by the table of the other half, as a table knows the very pairs by heart that it
was learned from.

Words count by their first letters, and characters of scripts without spaces are words.

Shapes: N pairs, W words of a line, V words of a language, K links.
"""

from __future__ import annotations

import itertools
import re
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

#: Letters of scripts without spaces between words: `is_unspaced`, as a range.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3031-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uaa60-\uaa7f\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
#: A word is known by its first letters, which inflection and compounds leave alone.
_WORD = re.compile(rf"\n|[{UNSPACED}]|\b[^\W{UNSPACED}]{{1,5}}")

_WORDS = 4096  # V: the most frequent ones; a table of two languages has 32 MB
_LONGEST = 40  # W
_LINKS = 3_000_000  # K: pairs of words that a table is learned from, in 200 MB
_ROUNDS = 4  # of expectation and maximization; with more it learns rare pairs by heart
_BY_CHANCE = 0.1  # how much of a word's probability no other word explains, in learning
_UNEXPLAINED = 0.2  # and in scoring
_AT_ONCE = 256  # pairs
FEWEST_WORDS = 4  # of a side that can be judged
_MOST_MIXED = 23  # of 39 quantiles: 60% of the pairs that are mixed up score less
FEWEST_PAIRS = 500  # to learn from
_MOST_PAIRS = 30_000


class LexicalTable(NamedTuple):
    """How words of two languages go together.

    Attributes:
        source: Word → its number, from 1, in the sources' language.
        target: The same in the targets'.
        gains: float16 [V, V], by the numbers of a source and a target word: how many
            times more likely each is beside the other than anywhere.
    """

    source: Mapping[str, int]
    target: Mapping[str, int]
    gains: np.ndarray


class Alignment(NamedTuple):
    """What `learn_alignment` knows of a corpus.

    Attributes:
        tables: Two of them, each learned from a half of the pairs.
        share: The estimated share of misaligned pairs, from 0 to 1.
        least: Pairs that score less are misaligned, more likely than not.
    """

    tables: tuple[LexicalTable, LexicalTable]
    share: float
    least: float

    def scores(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """Tells how well the sides of pairs fit together.

        Args:
            sources: N sentences.
            targets: Their translations.

        Returns:
            float64 [N]: logarithms of a likelihood ratio, the higher the better; NaN
            for a pair that cannot be judged, as a side has less than 4 known words.
        """
        scores = np.full(len(sources), np.nan)
        halves = halves_of(sources, targets)
        for half, table in enumerate(self.tables):
            rows = np.flatnonzero(halves != half)  # which the table has not seen
            scores[rows] = score_pairs(table, pick(sources, rows), pick(targets, rows))
        return scores

    def misaligned(self, sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
        """Tells which pairs are misaligned, more likely than not.

        Args:
            sources: N sentences.
            targets: Their translations.

        Returns:
            bool [N]; False for a pair that cannot be judged.
        """
        return self.scores(sources, targets) < self.least


def learn_alignment(sources: Sequence[str], targets: Sequence[str]) -> Alignment | None:
    """Learns what misaligned pairs of a corpus look like, from a sample of it.

    Args:
        sources: Sentences; some thousands tell the share, up to 30,000 are used.
        targets: Their translations.

    Returns:
        The `Alignment`; None if there are less than 500 different pairs that can be
        judged.

    Example:
        >>> from keras_luong.text import PhraseCorpus
        >>> from keras_luong.text.misalignment import learn_alignment
        >>> examples = PhraseCorpus(train=2000).examples("train")
        >>> sources, targets, _ = map(list, zip(*examples))
        >>> targets[:400] = targets[1:400] + targets[:1]
        >>> round(learn_alignment(sources, targets).share, 1)
        0.2
    """
    # 1. Pairs that repeat each other would tell a table what it is to judge.
    pairs = list(dict.fromkeys(zip(sources, targets, strict=True)))[:_MOST_PAIRS]
    if len(pairs) < FEWEST_PAIRS:
        return None
    sources, targets = map(list, zip(*pairs, strict=True))
    halves = halves_of(sources, targets)
    # 2. Each half is judged by the table of the other; so are its pairs mixed up.
    tables, real, mixed = [], list[np.ndarray](), list[np.ndarray]()
    for half in (0, 1):
        own, others = np.flatnonzero(halves == half), np.flatnonzero(halves != half)
        tables.append(learn_table(pick(sources, own), pick(targets, own)))
        order = np.random.default_rng(half).permutation(others)
        for scores, x, y in ((real, order, order), (mixed, order, np.roll(order, 1))):
            texts = pick(sources, x), pick(targets, y)
            scores.append(score_pairs(tables[-1], *texts))
    judged = [np.concatenate(x) for x in (real, mixed)]
    judged = [np.sort(x[~np.isnan(x)]) for x in judged]
    if min(map(len, judged)) < FEWEST_PAIRS:
        return None
    share, least = compare_scores(*judged)
    # 3. Of pairs put together at random, fewer have two sides that can be judged.
    share = min(1.0, share * len(judged[0]) / len(judged[1]))
    return Alignment((tables[0], tables[1]), share, least)


def compare_scores(real: np.ndarray, mixed: np.ndarray) -> tuple[float, float]:
    """Tells how many pairs are misaligned, and below which score most are.

    Args:
        real: The scores of pairs, sorted.
        mixed: The scores of pairs whose sides were put together at random, sorted.

    Returns:
        The share of misaligned pairs; and the score. Below it a good pair that is lost
        weighs as much as two misaligned ones that are found.

    Example:
        >>> from keras_luong.text.misalignment import compare_scores
        >>> good, bad = np.arange(500, 1500), np.arange(-1000, 0)
        >>> real = np.concatenate([bad[::10], good])  # 100 of 1,100
        >>> share, least = compare_scores(real, bad)
        >>> round(share, 2), bool(-100 < least < 0)
        (0.09, True)
    """
    shares = np.arange(1, 40) / 40
    at = np.quantile(mixed, shares)
    below = np.searchsorted(real, at) / len(real)
    # Hardly any good pair scores less than most of those that are mixed up.
    share = min(1.0, below[_MOST_MIXED] / shares[_MOST_MIXED])
    found = share * shares
    best = np.argmax(found - 2 * (below - found))
    is_worth = found[best] > 2 * (below[best] - found[best])
    return float(share), float(at[best]) if is_worth else -np.inf


def pick(lines: Sequence[str], rows: np.ndarray) -> list[str]:
    """Returns the lines of some rows, int [N]."""
    return [lines[row] for row in rows.tolist()]


def halves_of(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Tells to which half each pair belongs, by its text alone: int64 [N], 0 or 1."""
    pairs = zip(sources, targets, strict=True)
    return np.array(
        [zlib.crc32(f"{x}\t{y}".encode(errors="replace")) & 1 for x, y in pairs], int
    )


def learn_table(sources: Sequence[str], targets: Sequence[str]) -> LexicalTable:
    """Learns a lexical table: IBM Model 1 in both directions, the means of them.

    Args:
        sources: Sentences.
        targets: Their translations.

    Example:
        >>> from keras_luong.text.misalignment import learn_table
        >>> sources = ["the dog", "the cat", "a dog"]
        >>> table = learn_table(sources, ["der Hund", "die Katze", "ein Hund"])
        >>> dog = table.gains[table.source["dog"]]
        >>> bool(dog[table.target["hund"]] > 2 * dog[table.target["ein"]])
        True
    """
    # 1. Words by their numbers, and how frequent each is.
    words = [_words(side) for side in (sources, targets)]
    numbers = [_numbered(side) for side in words]
    x, y = (_rows(*side, len(sources)) for side in zip(words, numbers, strict=True))
    frequency_x, frequency_y = map(_frequency, (x, y))
    # 2. All links between words of each pair, and which two words each joins.
    pair, i, j = _links(x, y)
    cell, link = np.unique(x[pair, i] * _WORDS + y[pair, j], return_inverse=True)
    of_x, of_y = cell // _WORDS, cell % _WORDS
    # 3. How much each explains the other.
    there = _model_1(link, pair * _LONGEST + j, of_x, frequency_y[of_y])
    back = _model_1(link, pair * _LONGEST + i, of_y, frequency_x[of_x])
    gains = np.zeros((_WORDS, _WORDS), np.float16)
    gains[of_x, of_y] = np.minimum(np.sqrt(there * back), 60_000)
    return LexicalTable(numbers[0], numbers[1], gains)


def score_pairs(
    table: LexicalTable, sources: Sequence[str], targets: Sequence[str]
) -> np.ndarray:
    """Scores pairs by a table: float64 [N], see `Alignment.scores`.

    Args:
        table: The table; of other pairs than these.
        sources: N sentences.
        targets: Their translations.
    """
    size = len(sources)
    x = _rows(_words(sources), table.source, size)
    y = _rows(_words(targets), table.target, size)
    lengths = [np.count_nonzero(side, axis=1) for side in (x, y)]
    scores = np.full(size, np.nan)
    gains = table.gains.ravel()
    # Pairs of about one length come together, so that little is padding.
    order = np.lexsort(lengths)
    order = order[np.minimum(*lengths)[order] >= FEWEST_WORDS]
    for begin in range(0, len(order), _AT_ONCE):
        rows = order[begin : begin + _AT_ONCE]
        of_x, of_y = (side[rows] for side in lengths)
        a, b = x[rows, : of_x.max()], y[rows, : of_y.max()]
        gain = gains[a[:, :, None] * _WORDS + b[:, None, :]].astype(np.float32)
        scores[rows] = _explained(gain.sum(1), b > 0, of_x)
        scores[rows] += _explained(gain.sum(2), a > 0, of_y)
    return scores


def _explained(gain: np.ndarray, is_word: np.ndarray, others: np.ndarray) -> np.ndarray:
    """How much more likely words [N, W] are by so many others than by chance: [N]."""
    ratio = _UNEXPLAINED + (1 - _UNEXPLAINED) * gain / others[:, None]
    return np.sum(np.log(ratio), axis=1, where=is_word)


def _model_1(
    link: np.ndarray, place: np.ndarray, given: np.ndarray, frequency: np.ndarray
) -> np.ndarray:
    """How many times more likely a word is beside another one than anywhere: [C].

    Args:
        link: int [K], which two words each link joins: a number below C.
        place: int [K], the place in the text of the word that is explained.
        given: int [C], the word that explains it.
        frequency: float [C], the share of the explained word in its text.
    """
    gain = np.ones(len(given))
    by_chance = _BY_CHANCE * np.bincount(place)
    for _ in range(_ROUNDS):
        part = gain[link]
        part /= (np.bincount(place, part) + by_chance)[place]
        expected = np.bincount(link, part)
        gain = expected / np.bincount(given, expected)[given] / frequency
    return gain


def _links(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pair, place in `x` and place in `y` of every two words, of the first pairs."""
    number = np.cumsum(np.count_nonzero(x, axis=1) * np.count_nonzero(y, axis=1))
    size = np.searchsorted(number, _LINKS, side="right")
    blocks = []
    for begin in range(0, size, _AT_ONCE):
        rows = slice(begin, min(begin + _AT_ONCE, size))
        pair, i, j = np.nonzero((x[rows, :, None] > 0) & (y[rows, None, :] > 0))
        blocks.append(np.stack([pair + begin, i, j]).astype(np.int32))
    pair, i, j = np.concatenate(blocks, axis=1)
    return pair, i, j


def _words(lines: Sequence[str]) -> list[str]:
    """The words of lines, each line's but the last's with a line feed behind them."""
    text = "\n".join([line.replace("\n", " ") for line in lines])
    return _WORD.findall(text.lower())


def _numbered(words: list[str]) -> dict[str, int]:
    """The most frequent words → their numbers, from 1."""
    counts = Counter(words)
    counts.pop("\n", None)
    frequent = counts.most_common(_WORDS - 1)
    return {word: number for number, (word, _) in enumerate(frequent, 1)}


def _rows(words: list[str], numbers: Mapping[str, int], size: int) -> np.ndarray:
    """The numbers of the known words of lines: int32 [N, W], padded by 0."""
    known = {**numbers, "\n": -1}
    found = map(known.get, words, itertools.repeat(0))
    ids = np.fromiter(found, np.int32, len(words))
    row = np.cumsum(ids < 0)[ids > 0]
    ids = ids[ids > 0]
    place = np.arange(len(ids)) - np.searchsorted(row, np.arange(size))[row]
    rows = np.zeros((size, _LONGEST), np.int32)
    is_in = place < _LONGEST
    rows[row[is_in], place[is_in]] = ids[is_in]
    return rows


def _frequency(rows: np.ndarray) -> np.ndarray:
    """The share of each word: float64 [V]; 0 for padding."""
    counts = np.bincount(rows.ravel(), minlength=_WORDS)
    counts[0] = 0
    return counts / max(1, counts.sum())
