"""A judgement as text, whatever the sentences hold."""

from __future__ import annotations

import unicodedata

from keras_luong.evaluation.judgement import judge
from keras_luong.evaluation.report import text_report, visible
from keras_luong.runs.validation import written_out

HOSTILE = "a \x1b]0;title\x07 dog\x9b31m \x7f\r\t"


def test_no_text_commands_the_terminal():
    report = text_report(
        judge("test", [HOSTILE], ["a dog"], {"mine": [HOSTILE]}), worst=1
    )
    samples = written_out([HOSTILE], [HOSTILE], [HOSTILE], [0])
    for said in (report, samples):
        assert said.count("a ␛]0;title␇ dog\ufffd31m ␡␍␉") >= 2
        assert {x for x in said if unicodedata.category(x) == "Cc"} == {"\n"}


def test_other_text_stays_as_it_is():
    text = "Ein Häuschen, 犬 👩‍👩‍👧 \u200f\u2028"
    assert visible(text) == text
