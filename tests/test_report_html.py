"""Reports: no sentence becomes part of a page, or commands a terminal."""

import base64
import re
import unicodedata
from html.parser import HTMLParser

from keras_luong.evaluation.judgement import judge
from keras_luong.evaluation.report import html_report, text_report, visible
from keras_luong.runs.validation import written_out

#: Sentences, and what is shown of them: for some letters signs that can be seen.
HOSTILE = {
    "<script>document.title = 'owned'</script>": None,
    "</style></dd><img src=x onerror=\"document.title = 'owned'\">": None,
    "שלום \u202eעולם & <b>bold</b> &lt;": None,
    "one\u2028two\u2029three\x85four": "one\u2028two\u2029three\ufffdfour",
    "]]> <!-- <!doctype html> --> ${x} {{x}} %s": None,
    "bell \x07 nul \x00 escape \x1b[31m": "bell \u2407 nul \u2400 escape \u241b[31m",
}
SHOWN = {shown or text for text, shown in HOSTILE.items()}
PNG = b"\x89PNG no picture"


def page():
    names = {"<i>mine</i>": [*HOSTILE], "yours": ["a b c"] * 6}
    judged = judge("<h1>test", [*HOSTILE], [f"{text} x" for text in HOSTILE], names)
    return html_report([judged, judged], 6, [{0: PNG}, {}])


class Reader(HTMLParser):
    """What a browser makes of it, roughly: elements, and the texts in them."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.sides, self.sources = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        attributes = dict(attrs)
        assert not any(name.startswith("on") for name in attributes)
        if tag == "dd":
            self.sides.append("")
            assert attributes == {"dir": "auto"}
        if tag == "img":
            self.sources.append(attributes["src"])

    def handle_data(self, data):
        if self.tags[-1:] == ["dd"] and not data.isspace():
            self.sides[-1] += data


def test_hostile_sentences_are_text():
    reader = Reader(page())
    known = "html head meta title style body h1 h2 h3 h4 p pre div table tr th td"
    assert set(reader.tags) == {*known.split(), "article", "dl", "dt", "dd", "img"}
    assert reader.tags.count("h1") == 1 and reader.tags.count("style") == 1
    assert SHOWN <= set(reader.sides)
    assert len(reader.sides) == 2 * 2 * 6 * 4  # tests, worst and best, sentences, sides


def test_it_needs_nothing_else_and_may_load_nothing():
    text = page()
    sources = Reader(text).sources
    assert sources == [f"data:image/png;base64,{base64.b64encode(PNG).decode()}"] * 2
    assert "default-src 'none'" in text and "http" not in text.replace("http-equiv", "")
    assert 'name="viewport"' in text and "charset" in text[:200]
    text.encode()  # UTF-8


def test_what_is_told_of_a_test_set():
    judged = judge("news", ["a b"] * 3, ["a b c d"] * 3, {"mine": ["a b c d"] * 3})
    text = re.sub(r"<[^>]*>", "|", html_report([judged], 1))
    for told in (
        *("How good is mine?", "news: 3 sentences", "|100.00|", "|up to 10||3*|"),
        *("nrefs:1|case:mixed|eff:no|tok:13a", "* fewer than 30 sentences"),
        *("The worst of mine, by the chrF of the sentence", "The best of mine"),
        "Line 1, chrF 100.0",
    ):
        assert told in text
    assert "bootstrap" not in text


def test_no_text_commands_the_terminal():
    text = "a \x1b]0;title\x07 dog\x9b31m \x7f\r\t"
    judged = judge("test", [text], ["a dog"], {"mine": [text]})
    samples = written_out([text], [text], [text], [0])
    for said in (text_report(judged, worst=1), samples):
        assert said.count("a ␛]0;title␇ dog\ufffd31m ␡␍␉") >= 2
        assert {x for x in said if unicodedata.category(x) == "Cc"} == {"\n"}
    other = "Ein Häuschen, 犬 👩‍👩‍👧 \u200f\u2028"
    assert visible(other) == other
