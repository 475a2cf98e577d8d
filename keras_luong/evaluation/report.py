"""A judgement as text for a terminal, and as one HTML page.

The page needs no network and no JavaScript. All of its text is escaped in one function,
so that no sentence can become part of the page.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from keras_luong.evaluation.judgement import SAMPLES, Judgement, MetricScore
from keras_luong.evaluation.scores import FEW

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
        >>> from keras_luong.evaluation.report import visible
        >>> visible("a\x1b[31m dog")
        'a␛[31m dog'
    """
    return text.translate(_SIGNS)


def text_report(judged: Judgement, worst: int = 0) -> str:
    """Returns the scores of a test set as text for a terminal.

    Args:
        judged: What was found.
        worst: Number of worst sentences to show.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report import text_report
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
        >>> from keras_luong.evaluation.report import table
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
        >>> from keras_luong.evaluation.report import score_text
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
        >>> from keras_luong.evaluation.report import score_rows
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
        >>> from keras_luong.evaluation.report import length_rows
        >>> length_rows(judge("test", ["x"], ["a b c d"], {"mine": ["a b c d"]}))[1]
        ('up to 10', '1*', '100.00', '100.00')
    """
    of = [f", {name}" if len(judged.systems) > 1 else "" for name in judged.systems]
    metrics = [f"{metric}{name}" for name in of for metric in ("BLEU", "chrF")]
    rows = [(f"source {judged.unit}", "sentences", *metrics)]
    for systems in zip(*judged.groups, strict=True):
        group = systems[0][0]
        number = f"{len(group.rows):,}{'*' * group.is_small}"
        scores = [f"{score:.2f}" for _, *both in systems for score in both]
        rows.append((group.label, number, *scores))
    return rows


def signatures(judged: Judgement) -> str:
    """Returns a line for each metric with its signature.

    Args:
        judged: What was found.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report import signatures
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
        >>> from keras_luong.evaluation.report import explanation
        >>> texts = ["a b c d"]
        >>> explanation(judge("t", texts, texts, {"mine": texts, "yours": texts}))[:48]
        'p: how probable so large a difference from mine '
    """
    first = next(iter(judged.systems))
    real = "Differences with p < 0.05 are commonly taken for real."
    if len(judged.sources) < FEW:
        real = f"Of fewer than {FEW} sentences neither says much."
    return (
        f"p: how probable so large a difference from {first} is by chance, by paired "
        f"bootstrap of {SAMPLES:,} samples; ±: half of the 95% confidence interval. "
        f"{real} Less TER is better."
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


#: What a page says first, to those who don't know the scores.
SCORES_SAID = (
    "BLEU counts groups of words that a translation has in common with the reference, "
    "chrF groups of characters: 100 is the reference itself. Of short sentences chrF "
    "says more. TER is how many of 100 words one would have to change: less is better."
)
#: PNG files of sentences' attention, by row.
Pictures: TypeAlias = Mapping[int, bytes]

#: Nothing may be loaded or run, whatever the page holds.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light; }
body { font: 1rem/1.5 system-ui, sans-serif; color: #222; background: #fff;
  max-width: 64rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h3 { font-size: 1.1rem; margin-top: 2rem; } h4 { margin: 0 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; overflow-wrap: normal; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: right;
  white-space: nowrap; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: start; padding-left: 0; }
pre, .note { font-size: .8rem; color: #555; white-space: pre-wrap; }
article { border-top: 1px solid #ccc; padding: 1rem 0; }
.sides { display: grid; gap: .75rem 1.5rem; margin: 0;
  grid-template-columns: repeat(auto-fit, minmax(min(12rem, 100%), 1fr)); }
dt { font-size: .8rem; color: #555; } dd { margin: 0; white-space: pre-wrap; }
img { display: block; margin-top: .75rem; }
@media (max-width: 40rem) { th, td { white-space: normal; padding: .25rem .4rem; } }
"""


def html_report(
    judgements: Sequence[Judgement],
    sentences: int = 3,
    pictures: Sequence[Pictures] = (),
) -> str:
    """Returns the scores of test sets as a page for any browser.

    Args:
        judgements: What was found, of each test set.
        sentences: Number of worst sentences to show, and of best ones.
        pictures: For each test set the PNG files of sentences' attention, by row; none
            by default.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report import html_report
        >>> judged = judge("test", ["<b>"], ["a b c d"], {"mine": ["a b c d"]})
        >>> page = html_report([judged])
        >>> "<b>" in page, "&lt;b&gt;" in page
        (False, True)
    """
    title = _element("title", f"How good is {' against '.join(judgements[0].systems)}?")
    parts = [
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{title}<style>{STYLE}</style></head><body>",
        title.replace("title>", "h1>"),
        _element("p", SCORES_SAID),
    ]
    drawn = pictures or [{}] * len(judgements)
    for judged, of_rows in zip(judgements, drawn, strict=True):
        parts += _test_set(judged, sentences, of_rows)
    return "\n".join([*parts, "</body></html>\n"])


def _element(tag: str, text: str, attributes: str = "") -> str:
    """An element with a text, which is escaped here: all text of the page is."""
    shown = "\n".join(map(visible, text.split("\n")))
    return f"<{tag}{attributes}>{html.escape(shown)}</{tag}>"


def _test_set(judged: Judgement, sentences: int, pictures: Pictures) -> Iterator[str]:
    """Yields the parts of the page that are of one test set."""
    note = ' class="note"'
    yield _element("h2", f"{judged.name}: {len(judged.sources):,} sentences")
    yield _html_table(score_rows(judged))
    if len(judged.systems) > 1:
        yield _element("p", explanation(judged), note)
    yield _element("pre", signatures(judged))
    yield _element("h3", "By source length")
    yield _html_table(length_rows(judged))
    if any(group.is_small for group, *_ in judged.groups[0]):
        yield _element("p", f"* {FEW_SAID}", note)
    first = next(iter(judged.systems))
    for which, rows in (("worst", judged.worst), ("best", judged.best)):
        if found := rows(sentences):
            yield _element("h3", f"The {which} of {first}, by the chrF of the sentence")
        for row in found:
            yield _html_sentence(judged, row, pictures.get(row))


def _html_table(rows: Iterable[tuple[str, ...]]) -> str:
    """A table, which scrolls by itself where the screen is narrow."""
    lines = []
    for number, row in enumerate(rows):
        cells = (_element("td" if number else "th", text) for text in row)
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def _html_sentence(judged: Judgement, row: int, png: bytes | None) -> str:
    """A sentence with its reference and translations beside it."""
    chrf = judged.sentence_chrf[row]
    parts = [_element("h4", f"Line {row + 1:,}, chrF {chrf:.1f}"), '<dl class="sides">']
    texts = {"source": judged.sources, "reference": judged.references}
    for name, side in [*texts.items(), *judged.systems.items()]:
        text = _element("dd", side[row], ' dir="auto"')
        parts.append(f"<div>{_element('dt', name)}{text}</div>")
    parts.append("</dl>")
    if png is not None:
        about = "Attention from each word of the translation to the words of the source"
        data = f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
        parts.append(f'<div class="wide"><img alt="{about}" src="{data}"></div>')
    return f"<article>{''.join(parts)}</article>"
