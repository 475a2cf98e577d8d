"""Corpus chrF, computed by sacrebleu and returned with its signature."""

from __future__ import annotations

from collections.abc import Sequence

from keras_luong.evaluation.corpus_score import CorpusScore, corpus_score


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> CorpusScore:
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
        >>> print(chrf(["你好，世界！"], ["你好，世界！"]))
        chrF 100.00 (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...)
    """
    from sacrebleu.metrics import CHRF

    return corpus_score("chrF", CHRF(), hypotheses, references)
