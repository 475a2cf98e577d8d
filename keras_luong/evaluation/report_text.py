"""A judgement as text: short tables in Markdown, and the worst sentences."""

from __future__ import annotations

from collections.abc import Sequence

from keras_luong.evaluation.by_length import FEW
from keras_luong.evaluation.judgement import SAMPLES, Judgement, MetricScore

#: For characters that would command a terminal, the signs that stand for them.
_SIGNS = {
    **{code: chr(0x2400 + code) for code in range(32)},
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
}


def visible(text: str) -> str:
    r"""Returns a line of anybody's text as it may be shown on a terminal or page.

    Args:
        text: The line.

    Example:
        >>> from keras_luong.evaluation.report_text import visible
        >>> visible("a\x1b[31m dog")
        'a␛[31m dog'
    """
    return text.translate(_SIGNS)


def text_report(judged: Judgement, worst: int = 0) -> str:
    """Returns what there is to say of a test set, for people at a terminal.

    Args:
        judged: What was found.
        worst: Number of worst sentences to show.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_text import text_report
        >>> texts = ["a b c d"]
        >>> print(text_report(judge("test", ["x y"], texts, {"mine": texts})))
        test: 1 sentence
        <BLANKLINE>
        | system | BLEU   | chrF   | TER  |
        | -------|--------|--------|----- |
        | mine   | 100.00 | 100.00 | 0.00 |
        <BLANKLINE>
        BLEU  nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...
        chrF  nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:...
        TER   nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|version:...
        <BLANKLINE>
        | source words | sentences | BLEU   | chrF   |
        | -------------|-----------|--------|------- |
        | up to 10     | 1*        | 100.00 | 100.00 |
        <BLANKLINE>
        * fewer than 30 sentences: their scores say little
    """
    number = len(judged.sources)
    parts = [f"{judged.name}: {number:,} sentence{'s' * (number != 1)}"]
    parts += [table(score_rows(judged)), signatures(judged)]
    if len(judged.systems) > 1:
        parts.append(explanation(judged))
    parts.append(table(length_rows(judged)))
    if any(group.is_small for group, *_ in judged.groups[0]):
        parts.append(f"* {FEW_SAID}")
    rows = judged.worst(worst)
    if rows:
        first = next(iter(judged.systems))
        parts.append(f"The worst of {first}, by the chrF of the sentence:")
    parts += [_sentence(judged, row) for row in rows]
    return "\n\n".join(parts)


#: What is said below scores of a few sentences.
FEW_SAID = f"fewer than {FEW} sentences: their scores say little"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Returns a Markdown table, padded so that its source is readable too.

    Args:
        rows: The header, and the rows.

    Example:
        >>> from keras_luong.evaluation.report_text import table
        >>> print(table([("run", "BLEU"), ("mine", "33.7")]))
        | run  | BLEU |
        | -----|----- |
        | mine | 33.7 |
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])


def score_text(score: MetricScore) -> str:
    """Returns a score with what the bootstrap says of it.

    Args:
        score: The score.

    Example:
        >>> from keras_luong.evaluation.judgement import MetricScore
        >>> from keras_luong.evaluation.report_text import score_text
        >>> score_text(MetricScore(33.7, "nrefs:1|...", 1.2, 0.012))
        '33.70 ± 1.20 (p = 0.012)'
    """
    text = f"{score.score:.2f}"
    if score.interval is not None:
        text += f" ± {score.interval:.2f}"
    if score.p_value is not None:
        text += f" (p = {score.p_value:.3f})"
    return text


def score_rows(judged: Judgement) -> list[tuple[str, ...]]:
    """Returns the table of scores: a header, and a row for each system.

    Args:
        judged: What was found.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_text import score_rows
        >>> score_rows(judge("test", ["x"], ["a b c d"], {"mine": ["a b c d"]}))[1]
        ('mine', '100.00', '100.00', '0.00')
    """
    scores = judged.scores
    header = ("system", *next(iter(scores.values())))
    rows = [(name, *map(score_text, x.values())) for name, x in scores.items()]
    return [header, *rows]


def length_rows(judged: Judgement) -> list[tuple[str, ...]]:
    """Returns the table of scores by source length: a header, and a row for each group.

    Args:
        judged: What was found.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_text import length_rows
        >>> length_rows(judge("test", ["x"], ["a b c d"], {"mine": ["a b c d"]}))[1]
        ('up to 10', '1*', '100.00', '100.00')
    """
    of = [f", {name}" if len(judged.systems) > 1 else "" for name in judged.systems]
    metrics = [f"{metric}{name}" for name in of for metric in ("BLEU", "chrF")]
    rows = [(f"source {judged.unit}", "sentences", *metrics)]
    for found in zip(*judged.groups, strict=True):
        group = found[0][0]
        number = f"{len(group.rows):,}{'*' * group.is_small}"
        scores = [f"{score:.2f}" for _, *both in found for score in both]
        rows.append((group.label, number, *scores))
    return rows


def signatures(judged: Judgement) -> str:
    """Returns a line for each metric with its signature, without which it says nothing.

    Args:
        judged: What was found.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_text import signatures
        >>> judged = judge("test", ["x"], ["a b c d"], {"mine": ["a b c d"]})
        >>> [line.split()[0] for line in signatures(judged).splitlines()]
        ['BLEU', 'chrF', 'TER']
    """
    scores = next(iter(judged.scores.values()))
    return "\n".join(f"{metric:5} {x.signature}" for metric, x in scores.items())


def explanation(judged: Judgement) -> str:
    """Returns what "±" and "p" mean where systems are compared.

    Args:
        judged: What was found.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_text import explanation
        >>> texts = ["a b c d"]
        >>> explanation(judge("t", texts, texts, {"mine": texts, "yours": texts}))[:48]
        'p: how probable so large a difference from mine '
    """
    first = next(iter(judged.systems))
    return (
        f"p: how probable so large a difference from {first} is by chance, by paired "
        f"bootstrap of {SAMPLES:,} samples; ±: half of the 95% confidence interval. "
        "Differences with p < 0.05 are commonly taken for real. Less TER is better."
    )


def _sentence(judged: Judgement, row: int) -> str:
    """A sentence with its translations, below each other."""
    lines = [f"line {row + 1:,}, chrF {judged.sentence_chrf[row]:.1f}"]
    width = max(map(len, ("reference", *judged.systems)))
    lines += [
        f"  {name:{width}}  {visible(text)}"
        for name, text in (
            ("source", judged.sources[row]),
            ("reference", judged.references[row]),
            *((name, texts[row]) for name, texts in judged.systems.items()),
        )
    ]
    return "\n".join(lines)
