"""Corpus chrF with its signature."""

import pytest

from keras_luong.evaluation.scores import chrf


def test_by_hand():
    # 1-grams: 3 of 4 each way; 2-grams: 2 of 3; 3-grams: 1 of 2; 4-grams: 0 of 1;
    # so precision and recall are equal, and so is every F-score. None are longer.
    found = chrf(["abcd"], ["abcx"])
    assert found.score == pytest.approx(100 * (3 / 4 + 2 / 3 + 1 / 2 + 0) / 4)


def test_the_score_says_how_it_was_computed():
    found = chrf(["你好，世界！"], ["你好，世界！"])
    assert found.score == 100
    assert str(found) == f"chrF 100.00 ({found.signature})"
    assert "nc:6" in found.signature and "version:" in found.signature


@pytest.mark.parametrize(
    "sides, error, message",
    [
        (("a b", ["a b"]), TypeError, "hypotheses.*'a b'"),
        ((["a"], ["a", "b"]), ValueError, "1 hypotheses, 2 references"),
        (([], []), ValueError, "at least one"),
    ],
)
def test_refuses(sides, error, message):
    with pytest.raises(error, match=message):
        chrf(*sides)
