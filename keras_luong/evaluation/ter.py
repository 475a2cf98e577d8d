"""Corpus TER, computed by sacrebleu and returned with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from keras_luong.evaluation.bleu import check_parallel

if TYPE_CHECKING:
    from sacrebleu.metrics import TER

#: BLEU's tokenisations of text without spaces, whose characters TER must count.
WITHOUT_SPACES = ("zh", "ja-mecab", "char")


class TerScore(NamedTuple):
    """A translation edit rate with the signature that makes it comparable.

    Attributes:
        score: Edits for each 100 words of the reference: 0 is best, and more than 100
            is possible.
        signature: sacrebleu's description of how it was computed.

    Example:
        >>> from keras_luong.evaluation.ter import ter
        >>> print(ter(["a dog runs"], ["a dog runs"]))
        TER 0.00 (nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:...)
    """

    score: float
    signature: str

    def __str__(self) -> str:
        """Returns the score and its signature as text."""
        return f"TER {self.score:.2f} ({self.signature})"


def ter(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> TerScore:
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
        The score and its signature.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.ter import ter
        >>> ter(["a dog runs fast"], ["the dog runs fast"]).score
        25.0
    """
    check_parallel(hypotheses, references)
    metric = ter_metric(tokenize)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return TerScore(score.score, str(metric.get_signature()))


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

    is_asian = tokenize in WITHOUT_SPACES
    return TER(normalized=is_asian, asian_support=is_asian)
