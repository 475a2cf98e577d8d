"""Text that is read again is the same text, or refused."""

from __future__ import annotations

import pytest

from keras_luong.runs.shards import survey, unchanged

LINES = [b"a", b"", b"\xef\xbb\xbfb", b"c\rd\r", b"\x1f\x8be", b"\xff\xfef", b"\0"]


def test_a_survey_tells_texts_from_each_other():
    assert survey(LINES)[::2] == (7, 2)
    assert survey([b"ab", b""]).digest != survey([b"a", b"b"]).digest


def test_the_same_text_is_taken_as_it_is():
    assert [*unchanged(iter(LINES), survey(LINES).digest)] == LINES
    assert [*unchanged([], survey([]).digest)] == []


@pytest.mark.parametrize("now", [LINES[::-1], LINES[:-1], [*LINES, b""], []])
def test_another_text_is_refused_at_its_end(now):
    lines = unchanged(now, survey(LINES).digest)
    assert [next(lines) for _ in now] == now
    with pytest.raises(OSError, match="changed meanwhile"):
        next(lines)
