"""Sides that are not in the languages that they should be in."""

from __future__ import annotations

import pytest

from keras_luong.text import load_corpus
from keras_luong.text.language_guess import alike, look_of


@pytest.fixture(scope="module")
def sides():
    """The English and the German sentences of the embedded corpus."""
    pairs = load_corpus("phrases", "en", "de").pairs("train").take(200)
    pairs = list(pairs.as_numpy_iterator())
    return {
        language: [pair[side] for pair in pairs]
        for language, side in {"en": "source", "de": "target"}.items()
    }


@pytest.mark.parametrize(
    ("lines", "declared", "look"),
    [
        ("en", "en", "en"),
        ("en", "de", "en"),
        ("de", "nl", "de"),
        ("de", "fra", "de"),
        ("de", "deu", "deu"),
        ("en", "xx", None),  # a language that is not known
    ],
)
def test_tells_languages(sides, lines, declared, look):
    assert look_of(sides[lines], declared) == look


def test_says_nothing_of_little_text():
    assert look_of([b"a dog"] * 9, "en") is look_of([b"a dog"] * 9, "de") is None


@pytest.mark.parametrize(
    "one, other, same",
    [("zh", "zh_Hans", True), ("no", "nb", True), ("fr", "en", False)],
)
def test_codes_of_one_language(one, other, same):
    assert alike(one, other) is alike(other, one) is same
