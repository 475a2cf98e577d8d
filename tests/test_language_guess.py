"""Sides that are not in the languages that they should be in."""

from __future__ import annotations

import pytest

from keras_luong.text import load_corpus
from keras_luong.text.survey import (
    are_alike,
    guess_language,
    language_doubts,
    reads_like,
)


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
    assert guess_language(sides[lines], declared) == look


def test_says_nothing_of_little_text():
    assert (
        guess_language([b"a dog"] * 9, "en")
        is guess_language([b"a dog"] * 9, "de")
        is None
    )


FEW_WORDS = {
    "greetings": ("en", "Hello!"),
    "names": ("en", "Maria Garcia\nJames Ivanov\nWei Chen\nJan Kowalski\nLuigi Rossi"),
    "addresses": ("en", "https://www.example.com/kim/7\nhttps://www.example.com/silva"),
    "e-mails": ("en", "jansen@firma.de\nnovak@firma.de\nokafor@firma.de"),
    "medicines": ("en", "paracetamol ibuprofen amoxicillin metformin omeprazole"),
    "menus": ("en", "OK Cancel Save File Edit View Help Open Close Print"),
    "kanji": ("ja", "東京都渋谷区神南一丁目"),
    "units": ("de", "5 kg 10 km 7 m/s 20 °C"),
}


@pytest.mark.parametrize("declared, text", FEW_WORDS.values(), ids=FEW_WORDS)
def test_w5_says_nothing_of_what_is_no_sentences(declared, text):
    lines = text.encode().splitlines() * 400
    assert list(language_doubts({"source": lines}, {"source": declared})) == []


@pytest.mark.parametrize(
    "declared, text",
    [
        ("es", "Il ragazzo gioca con la palla sulla spiaggia oggi."),
        ("et", "Poika leikkii pallolla rannalla tänään."),
        ("az", "Çocuk bugün sahilde topla oynuyor."),
    ],
)
def test_w5_says_it_of_neighbours(declared, text):
    lines = [text.encode()] * 40
    (doubt,) = language_doubts({"source": lines}, {"source": declared})
    assert f"should be {declared}, and reads like" in doubt
    assert not reads_like(lines, declared)


def test_w5_says_it_of_much_text_too(sides):
    """The more text, the less a letter counts."""
    assert guess_language(sides["en"] * 100, "de") == "en"


@pytest.mark.parametrize(
    "one, other, same",
    [("zh", "zh_Hans", True), ("no", "nb", True), ("fr", "en", False)],
)
def test_codes_of_one_language(one, other, same):
    assert are_alike(one, other) is are_alike(other, one) is same
