"""Scores of sentences of about the same source length (Luong et al. 2015, Figure 6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from keras_luong.checks import check_strings
from keras_luong.evaluation.bleu import bleu_metric
from keras_luong.evaluation.chrf import chrf
from keras_luong.evaluation.corpus_score import check_parallel
from keras_luong.text.unspaced import is_unspaced

LENGTHS = (10, 15, 20, 30, 50, math.inf)  # upper ends of the groups
FEW = 30  # sentences, of which a score says little


class LengthGroup(NamedTuple):
    """Sentences of about the same source length.

    Attributes:
        start: The least length.
        end: The greatest length; infinite for the last group.
        rows: The sentences' indices.

    Example:
        >>> from keras_luong.evaluation.by_length import LengthGroup
        >>> LengthGroup(11, 15, [0, 7]).label
        '11 to 15'
    """

    start: int
    end: float
    rows: list[int]

    @property
    def label(self) -> str:
        """Returns the lengths in words: "11 to 15"."""
        if self.end == math.inf:
            return f"over {self.start - 1}"
        return f"{self.start} to {self.end:g}" if self.start else f"up to {self.end:g}"

    @property
    def is_small(self) -> bool:
        """Tells whether there are too few sentences to judge by."""
        return len(self.rows) < FEW


def length_unit(sources: Sequence[str]) -> str:
    """Returns what lengths are counted in: "words", or "characters".

    Characters are it where most letters are of scripts that put no spaces between
    words, such as Chinese.

    Args:
        sources: Source sentences.

    Raises:
        TypeError: If one string is given in place of a list of them.

    Example:
        >>> from keras_luong.evaluation.by_length import length_unit
        >>> length_unit(["a dog"]), length_unit(["狗在公园里跑"])
        ('words', 'characters')
    """
    check_strings("sources", sources)
    letters = unspaced = 0
    for source in sources:
        letters += sum(map(str.isalpha, source))
        unspaced += sum(map(is_unspaced, source))
    return "characters" if 2 * unspaced > letters else "words"


def length_groups(sources: Sequence[str]) -> list[LengthGroup]:
    """Groups sentences by the length of their sources.

    Args:
        sources: Source sentences.

    Returns:
        The groups that have sentences, the shortest first. Lengths are in
        `length_unit(sources)`.

    Example:
        >>> from keras_luong.evaluation.by_length import length_groups
        >>> [(group.label, group.rows) for group in length_groups(["a b", "x " * 12])]
        [('up to 10', [0]), ('11 to 15', [1])]
    """
    in_words = length_unit(sources) == "words"
    groups: dict[float, LengthGroup] = {}
    starts = [0, *(int(end) + 1 for end in LENGTHS[:-1])]
    for start, end in zip(starts, LENGTHS, strict=True):
        groups[end] = LengthGroup(start, end, [])
    for row, source in enumerate(sources):
        words = source.split()
        length = len(words) if in_words else sum(map(len, words))
        groups[next(end for end in LENGTHS if length <= end)].rows.append(row)
    return [group for group in groups.values() if group.rows]


def by_length(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    tokenize: str = "13a",
) -> list[tuple[LengthGroup, float, float]]:
    """Computes BLEU and chrF of each group of sentences.

    Args:
        hypotheses: The translations.
        references: Their references.
        sources: What they are translations of.
        tokenize: sacrebleu's tokenisation, as for `bleu`.

    Returns:
        Each group with its BLEU and its chrF, the shortest first.

    Raises:
        ValueError: If numbers of sentences differ, there are none, or `tokenize` is
            unknown.

    Example:
        >>> from keras_luong.evaluation.by_length import by_length
        >>> [(group, bleu, chrf)] = by_length(["a b c d"], ["a b c d"], ["x y"])
        >>> group.label, round(bleu), round(chrf)
        ('up to 10', 100, 100)
    """
    check_parallel(hypotheses, references)
    check_parallel(sources, references)
    bleu = bleu_metric(tokenize, quiet=True)  # what it says is of the whole text
    found = []
    for group in length_groups(sources):
        texts = [hypotheses[i] for i in group.rows]
        right = [references[i] for i in group.rows]
        score = bleu.corpus_score(texts, [right]).score
        found.append((group, score, chrf(texts, right).score))
    return found
