"""Corpus chrF, computed by sacrebleu and returned with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from keras_luong.evaluation.bleu import check_parallel


class ChrfScore(NamedTuple):
    """A chrF score with the signature that makes it comparable.

    Attributes:
        score: chrF, 0 to 100.
        signature: sacrebleu's description of how it was computed.

    Example:
        >>> from keras_luong.evaluation.chrf import chrf
        >>> print(chrf(["你好，世界！"], ["你好，世界！"]))
        chrF 100.00 (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...)
    """

    score: float
    signature: str

    def __str__(self) -> str:
        """Returns the score and its signature as text."""
        return f"chrF {self.score:.2f} ({self.signature})"


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> ChrfScore:
    """Computes the corpus chrF of translations, with one reference each.

    It compares n-grams of characters (Popović 2015), and so needs no tokenisation:
    a second opinion beside BLEU, above all where words are not separated by spaces.

    Args:
        hypotheses: The translations.
        references: Their references, in the same order.

    Returns:
        The score and its signature.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.chrf import chrf
        >>> chrf(["你好，世界！"], ["你好，世界！"]).score
        100.0
    """
    from sacrebleu.metrics import CHRF

    check_parallel(hypotheses, references)
    metric = CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return ChrfScore(score.score, str(metric.get_signature()))
