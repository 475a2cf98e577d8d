"""BLEU, chrF and TER of a text by sacrebleu, with their signatures; and by length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_luong.checks import check_choice, check_strings
from keras_luong.text.words import is_unspaced

#: What `metric` can make.
METRICS = ("BLEU", "chrF", "TER")


class CorpusScore(NamedTuple):
    """A score with the signature that makes it comparable.

    Attributes:
        score: 0 to 100; of TER, in which 0 is best, possibly more.
        signature: sacrebleu's description of how it was computed. Scores with
            different signatures can't be compared.
        metric: What it is called: "BLEU", "chrF" or "TER".

    Example:
        >>> from keras_luong.evaluation.scores import CorpusScore
        >>> print(CorpusScore(33.712, "nrefs:1|...", "BLEU"))
        BLEU 33.71 (nrefs:1|...)
    """

    score: float
    signature: str
    metric: str

    def __str__(self) -> str:
        """Returns the score and its signature as text."""
        return f"{self.metric} {self.score:.2f} ({self.signature})"


def metric(name: str, tokenize: str = "13a", **options: Any) -> Any:
    """Returns one of sacrebleu's metrics.

    Args:
        name: One of `METRICS`.
        tokenize: BLEU's tokenisation of the language, see `bleu` and `ter`.
        **options: More arguments of sacrebleu's class.

    Raises:
        ValueError: If `tokenize` is unknown.

    Example:
        >>> from keras_luong.evaluation.scores import metric
        >>> metric("BLEU", "none").corpus_score(["a b c d"], [["a b c d"]]).score > 99
        True
        >>> metric("TER", "zh").sentence_score("我爱你", ["我爱他"]).num_edits
        1
    """
    from sacrebleu.metrics import BLEU, CHRF, TER

    if name == "chrF":
        return CHRF(**options)
    if name == "TER":
        is_asian = tokenize in ("zh", "ja-mecab", "char")
        return TER(normalized=is_asian, asian_support=is_asian, **options)
    check_tokenize("tokenize", tokenize)
    options.setdefault("force", tokenize == "none")  # else it says so of such text
    return BLEU(tokenize=tokenize, **options)


def _corpus_score(
    name: str,
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    **options: Any,
) -> CorpusScore:
    """A score of a whole text, with one reference for each sentence."""
    check_parallel(hypotheses, references)
    if name == "BLEU" and not _looks_tokenized(references):
        options["force"] = True  # of translations alone sacrebleu would say so wrongly
    scorer = metric(name, tokenize, **options)
    found = scorer.corpus_score(list(hypotheses), [list(references)])
    return CorpusScore(found.score, str(scorer.get_signature()), name)


def _looks_tokenized(lines: Sequence[str]) -> bool:
    return 2 * sum(line.endswith(" .") for line in lines) > len(lines)


def check_parallel(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Checks that there is one reference for each hypothesis.

    Args:
        hypotheses: The translations.
        references: Their references.

    Raises:
        TypeError: If either is a single string instead of a sequence of them.
        ValueError: If the two differ in length, or are empty.

    Example:
        >>> from keras_luong.evaluation.scores import check_parallel
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
        >>> from keras_luong.evaluation.scores import bleu
        >>> score = bleu(["a dog runs in the park"], ["a dog runs in the park"])
        >>> print(score)
        BLEU 100.00 (nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...)
    """
    return _corpus_score("BLEU", hypotheses, references, tokenize, lowercase=lowercase)


def check_tokenize(name: str, tokenize: str) -> str:
    """Returns `tokenize` if it is one of sacrebleu's tokenisations.

    Args:
        name: Name of the argument, for the error message.
        tokenize: The tokenisation.

    Raises:
        ValueError: If sacrebleu has no such tokenisation, or lacks what it needs.

    Example:
        >>> from keras_luong.evaluation.scores import check_tokenize
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
        >>> from keras_luong.evaluation.scores import chrf
        >>> print(chrf(["你好，世界！"], ["你好，世界！"]))
        chrF 100.00 (nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...)
    """
    return _corpus_score("chrF", hypotheses, references)


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
        >>> from keras_luong.evaluation.scores import ter
        >>> print(ter(["a dog runs fast"], ["the dog runs fast"]))
        TER 25.00 (nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:...)
    """
    return _corpus_score("TER", hypotheses, references, tokenize)


LENGTHS = (10, 15, 20, 30, 50, math.inf)  # upper ends of the groups
FEW = 30  # sentences, of which a score says little


class LengthGroup(NamedTuple):
    """Sentences of about the same source length.

    Attributes:
        start: The least length.
        end: The greatest length; infinite for the last group.
        rows: The sentences' indices.

    Example:
        >>> from keras_luong.evaluation.scores import LengthGroup
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
        >>> from keras_luong.evaluation.scores import length_unit
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
        >>> from keras_luong.evaluation.scores import length_groups
        >>> [(group.label, group.rows) for group in length_groups(["a b", "x " * 12])]
        [('up to 10', [0]), ('11 to 15', [1])]
    """
    in_words = length_unit(sources) == "words"
    starts = [0, *(int(end) + 1 for end in LENGTHS[:-1])]
    groups = [LengthGroup(*ends, []) for ends in zip(starts, LENGTHS, strict=True)]
    for row, source in enumerate(sources):
        words = source.split()
        length = len(words) if in_words else sum(map(len, words))
        next(x for x in groups if length <= x.end).rows.append(row)
    return [group for group in groups if group.rows]


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
        >>> from keras_luong.evaluation.scores import by_length
        >>> [(group, bleu, chrf)] = by_length(["a b c d"], ["a b c d"], ["x y"])
        >>> group.label, round(bleu), round(chrf)
        ('up to 10', 100, 100)
    """
    check_parallel(hypotheses, references)
    check_parallel(sources, references)
    # What sacrebleu says of text that is tokenised already is of the whole text.
    metrics = metric("BLEU", tokenize, force=True), metric("chrF")
    found = []
    for group in length_groups(sources):
        texts, right = ([x[i] for i in group.rows] for x in (hypotheses, references))
        bleu, chrf = (x.corpus_score(texts, [right]).score for x in metrics)
        found.append((group, bleu, chrf))
    return found
