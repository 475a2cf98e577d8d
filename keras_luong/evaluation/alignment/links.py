"""Links between words: derived from attention, and scored against a gold standard.

An alignment is a set of links (source index, target index), counted from 0. Shapes: T
target tokens, S source tokens.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from keras_luong.checks import check_flag, check_size, check_strings

Link = tuple[int, int]


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
        >>> from keras_luong.evaluation.alignment.links import matrix
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
        >>> from keras_luong.evaluation.alignment.links import link_set
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
