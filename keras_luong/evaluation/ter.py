"""Corpus TER, computed by sacrebleu and returned with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_luong.evaluation.corpus_score import CorpusScore, corpus_score

if TYPE_CHECKING:
    from sacrebleu.metrics import TER

#: BLEU's tokenisations for which TER counts East Asian characters in place of words.
OF_CHARACTERS = ("zh", "ja-mecab", "char")


def ter(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> CorpusScore:
    """Computes the corpus TER of translations, with one reference each.

    It counts the words that an editor would insert, delete, replace or move (Snover et
    al. 2006), whatever their case. Sentences of hundreds of words take seconds each.

    Args:
        hypotheses: The translations.
        references: Their references, in the same order.
        tokenize: BLEU's tokenisation of the language. Where it is one for text without
            spaces (`"zh"`, `"ja-mecab"`, `"char"`), TER counts East Asian characters in
            place of words.

    Returns:
        The score and its signature: edits for each 100 words of the reference, so 0 is
        best, and more than 100 is possible.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.ter import ter
        >>> print(ter(["a dog runs fast"], ["the dog runs fast"]))
        TER 25.00 (nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:...)
    """
    return corpus_score("TER", ter_metric(tokenize), hypotheses, references)


def ter_metric(tokenize: str) -> TER:
    """Returns sacrebleu's metric, for a language that BLEU tokenises in this way.

    Args:
        tokenize: BLEU's tokenisation.

    Example:
        >>> from keras_luong.evaluation.ter import ter_metric
        >>> ter_metric("zh").sentence_score("我爱你", ["我爱他"]).num_edits
        1
    """
    from sacrebleu.metrics import TER

    is_asian = tokenize in OF_CHARACTERS
    return TER(normalized=is_asian, asian_support=is_asian)
