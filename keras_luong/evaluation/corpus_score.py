"""A score of a whole text by one of sacrebleu's metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_luong.checks import check_strings


class CorpusScore(NamedTuple):
    """A score with the signature that makes it comparable.

    Attributes:
        score: 0 to 100; of TER, in which 0 is best, possibly more.
        signature: sacrebleu's description of how it was computed. Scores with
            different signatures can't be compared.
        metric: What it is called: "BLEU", "chrF" or "TER".

    Example:
        >>> from keras_luong.evaluation.corpus_score import CorpusScore
        >>> print(CorpusScore(33.712, "nrefs:1|...", "BLEU"))
        BLEU 33.71 (nrefs:1|...)
    """

    score: float
    signature: str
    metric: str

    def __str__(self) -> str:
        """Returns the score and its signature as text."""
        return f"{self.metric} {self.score:.2f} ({self.signature})"


def corpus_score(
    name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]
) -> CorpusScore:
    """Scores translations, with one reference each.

    Args:
        name: What the metric is called.
        metric: A metric of sacrebleu.
        hypotheses: The translations.
        references: Their references, in the same order.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.bleu import bleu_metric
        >>> from keras_luong.evaluation.corpus_score import corpus_score
        >>> texts = ["a dog runs far"]
        >>> round(corpus_score("BLEU", bleu_metric(), texts, texts).score)
        100
    """
    check_parallel(hypotheses, references)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    return CorpusScore(found.score, str(metric.get_signature()), name)


def check_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Checks that there is one reference for each hypothesis.

    Args:
        hypotheses: The translations.
        references: Their references.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.corpus_score import check_parallel
        >>> check_parallel(["a dog runs"], ["a dog is running"])
    """
    check_strings("hypotheses", hypotheses)
    check_strings("references", references)
    if len(hypotheses) != len(references):
        raise ValueError(
            "There must be one reference for each hypothesis. "
            f"Received: {len(hypotheses)} hypotheses, {len(references)} references"
        )
    if not hypotheses:
        raise ValueError("A score needs at least one hypothesis. Received none")
