"""Corpus BLEU, computed by sacrebleu and returned with its signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from keras_luong.checks import check_choice
from keras_luong.evaluation.corpus_score import CorpusScore, corpus_score

if TYPE_CHECKING:
    from sacrebleu.metrics import BLEU


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
) -> CorpusScore:
    """Computes the corpus BLEU of translations, with one reference each.

    Args:
        hypotheses: The translations.
        references: Their references, in the same order.
        tokenize: sacrebleu's tokenisation: `"13a"` for detokenised text, `"none"` for
            text that is tokenised already, `"char"`, `"zh"`, `"intl"` and so on.
        lowercase: Whether case is ignored.

    Returns:
        The score and its signature.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, are empty, or `tokenize` is unknown.

    Example:
        >>> from keras_luong.evaluation.bleu import bleu
        >>> score = bleu(["a dog runs in the park"], ["a dog runs in the park"])
        >>> print(score)
        BLEU 100.00 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...)
    """
    metric = bleu_metric(tokenize, lowercase)
    return corpus_score("BLEU", metric, hypotheses, references)


def bleu_metric(
    tokenize: str = "13a", lowercase: bool = False, quiet: bool = False
) -> BLEU:
    """Returns sacrebleu's metric.

    Args:
        tokenize: As for `bleu`.
        lowercase: As for `bleu`.
        quiet: Whether it does not say so where text seems to be tokenised already. It
            never does for `"none"`.

    Raises:
        ValueError: If `tokenize` is unknown.

    Example:
        >>> from keras_luong.evaluation.bleu import bleu_metric
        >>> bleu_metric("none").corpus_score(["a b c d"], [["a b c d"]]).score > 99
        True
    """
    from sacrebleu.metrics import BLEU

    check_tokenize("tokenize", tokenize)
    force = quiet or tokenize == "none"
    return BLEU(tokenize=tokenize, lowercase=lowercase, force=force)


def check_tokenize(name: str, tokenize: str) -> str:
    """Returns `tokenize` if it is one of sacrebleu's tokenisations.

    Args:
        name: Name of the argument, for the error message.
        tokenize: The tokenisation.

    Raises:
        ValueError: If sacrebleu has no such tokenisation, or lacks what it needs.

    Example:
        >>> from keras_luong.evaluation.bleu import check_tokenize
        >>> check_tokenize("tokenize", "13a")
        '13a'
    """
    from sacrebleu.metrics import BLEU

    check_choice(name, tokenize, sorted(BLEU.TOKENIZERS))
    try:
        BLEU(tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:  # MeCab, or a download
        raise ValueError(
            f"{name}={tokenize!r} needs what is not there: {error}"
        ) from error
    return tokenize
