"""A judgement as one HTML file, which needs no network and no JavaScript.

It is built as a tree whose text is escaped where it is written, so that no sentence can
become part of the page.
"""

from __future__ import annotations

import base64
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from keras_luong.evaluation.judgement import Judgement
from keras_luong.evaluation.report_text import (
    FEW_SAID,
    explanation,
    length_rows,
    score_rows,
    signatures,
    visible,
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
    """Returns a page with all that was found, to be read in any browser.

    Args:
        judgements: What was found, of each test set.
        sentences: Number of worst sentences to show, and of best ones.
        pictures: For each test set the PNG files of sentences' attention, by row; none
            by default.

    Example:
        >>> from keras_luong.evaluation.judgement import judge
        >>> from keras_luong.evaluation.report_html import html_report
        >>> judged = judge("test", ["<b>"], ["a b c d"], {"mine": ["a b c d"]})
        >>> page = html_report([judged])
        >>> "<b>" in page, "&lt;b&gt;" in page
        (False, True)
    """
    root = ET.Element("html", lang="en")
    head = ET.SubElement(root, "head")
    ET.SubElement(head, "meta", charset="utf-8")
    policy = {"http-equiv": "Content-Security-Policy", "content": POLICY}
    ET.SubElement(head, "meta", policy)
    screen = {"name": "viewport", "content": "width=device-width, initial-scale=1"}
    ET.SubElement(head, "meta", screen)
    title = f"How good is {' against '.join(judgements[0].systems)}?"
    _add(head, "title", title)
    ET.SubElement(head, "style").text = STYLE
    body = ET.SubElement(root, "body")
    _add(body, "h1", title)
    drawn = pictures or [{}] * len(judgements)
    for judged, of_rows in zip(judgements, drawn, strict=True):
        _test_set(body, judged, sentences, of_rows)
    return f"<!doctype html>\n{ET.tostring(root, 'unicode', 'html')}\n"


def _add(parent: ET.Element, tag: str, text: str, name: str = "") -> ET.Element:
    """Adds an element with a text, which is escaped once it is written."""
    attributes = {"class": name} if name else {}
    element = ET.SubElement(parent, tag, attributes)
    element.text = "\n".join(map(visible, text.split("\n")))
    return element


def _test_set(
    body: ET.Element, judged: Judgement, sentences: int, pictures: Pictures
) -> None:
    _add(body, "h2", f"{judged.name}: {len(judged.sources):,} sentences")
    _table(body, score_rows(judged))
    if len(judged.systems) > 1:
        _add(body, "p", explanation(judged), "note")
    _add(body, "pre", signatures(judged))
    _add(body, "h3", "By source length")
    _table(body, length_rows(judged))
    if any(group.is_small for group, *_ in judged.groups[0]):
        _add(body, "p", f"* {FEW_SAID}", "note")
    first = next(iter(judged.systems))
    for which, rows in (("worst", judged.worst), ("best", judged.best)):
        if found := rows(sentences):
            _add(body, "h3", f"The {which} of {first}, by the chrF of the sentence")
            _sentences(body, judged, found, pictures)


def _table(body: ET.Element, rows: Iterable[tuple[str, ...]]) -> None:
    """Adds a table, which scrolls by itself where the screen is narrow."""
    table = ET.SubElement(ET.SubElement(body, "div", {"class": "wide"}), "table")
    for number, row in enumerate(rows):
        line = ET.SubElement(table, "tr")
        for text in row:
            _add(line, "td" if number else "th", text)


def _sentences(
    body: ET.Element, judged: Judgement, rows: Iterable[int], pictures: Pictures
) -> None:
    """Adds sentences, each with its reference and translations beside it."""
    for row in rows:
        article = ET.SubElement(body, "article")
        chrf = judged.sentence_chrf[row]
        _add(article, "h4", f"Line {row + 1:,}, chrF {chrf:.1f}")
        sides = ET.SubElement(article, "dl", {"class": "sides"})
        for name, texts in (
            ("source", judged.sources),
            ("reference", judged.references),
            *judged.systems.items(),
        ):
            side = ET.SubElement(sides, "div")
            _add(side, "dt", name)
            _add(side, "dd", texts[row]).set("dir", "auto")
        if row in pictures:
            _picture(article, pictures[row])


def _picture(article: ET.Element, png: bytes) -> None:
    data = base64.b64encode(png).decode("ascii")
    about = "Attention from each word of the translation to the words of the source"
    wide = ET.SubElement(article, "div", {"class": "wide"})
    ET.SubElement(wide, "img", alt=about, src=f"data:image/png;base64,{data}")
