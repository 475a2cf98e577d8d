"""Corpus TER with its signature."""

import pytest

from keras_luong.evaluation.scores import ter


def test_by_hand():
    # "dog" is moved (one edit), "fast" is replaced: 2 edits for 5 words.
    found = ter(["runs the dog very fast"], ["the dog runs very far"])
    assert found.score == pytest.approx(40)
    assert str(found) == f"TER 40.00 ({found.signature})"
    assert "tok:tercom" in found.signature and "asian:no" in found.signature


@pytest.mark.parametrize("tokenize", ["zh", "ja-mecab", "char"])
def test_text_without_spaces_is_compared_by_characters(tokenize):
    found = ter(["我爱你"], ["我爱他"], tokenize)
    assert found.score == pytest.approx(100 / 3)
    assert "norm:yes" in found.signature and "asian:yes" in found.signature
    assert ter(["我爱你"], ["我爱他"]).score == 100


def test_nothing_and_too_much():
    assert ter([""], [""]).score == 0
    assert ter(["a b c d"], ["x"]).score == 400
    assert ter(["a"], [""]).score == 100


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
        ter(*sides)
