"""What is measured of a corpus: its size, its characters, its languages."""

from __future__ import annotations

import bz2
import random

import pytest

from keras_luong.languages import language_code, standard_code
from keras_luong.text import load_corpus
from keras_luong.text.survey import (
    are_alike,
    corpus_facts,
    guess_language,
    language_doubts,
    reads_like,
)
from keras_luong.text.words import is_unspaced


@pytest.fixture
def measure(tmp_path):
    """Facts of a corpus of these lines on both sides, or of two lists of them."""

    def measure(source, target=None, **options):
        for language, texts in {"xx": source, "yy": target or source}.items():
            for split in ("train", "val"):
                text = "".join(f"{line}\n" for line in texts)
                (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
        return corpus_facts(load_corpus(tmp_path, "xx", "yy"), **options)

    return measure


#: Three short pairs, and one of which a side is long.
SIDES = ["ab", "é", "c", "d " * 300], ["x", "y", "漢字", "z"]


def test_counts_bytes_and_characters(measure):
    facts = measure(*SIDES, coverage=1.0)
    assert facts.pairs == 4
    assert facts.content == len(bz2.compress("x\ny\n漢字\nz".encode()))
    # of the longer side; 599 if the reader strips lines
    assert facts.long_line in (599, 600)
    assert facts.characters == len(set("abécd xyz漢字"))
    # rare ones need not be covered: "d" and space are left
    assert measure(*SIDES, coverage=0.9).characters == 2
    some = measure(*SIDES, limit=3)
    assert (some.pairs, some.long_line) == (3, 6)


def test_what_repeats_itself_is_little_content(measure):
    rng = random.Random(0)
    lines = [" ".join(rng.choices("abcdefghij", k=20)) for _ in range(500)]
    assert measure(lines[:25] * 20).content < measure(lines).content / 5


def test_a_document_in_one_line_is_not_measured_whole(measure):
    """It is not trained on, and no reason for a larger model."""
    rng = random.Random(0)
    words = [str(rng.random()) for _ in range(20_000)]
    one, other = (
        measure([*words[:100], " ".join(words[:length])]).content
        for length in (1000, 20_000)
    )
    assert one == other


@pytest.fixture(scope="module")
def sides():
    """The English and the German sentences of the embedded corpus."""
    pairs = load_corpus("phrases", "en", "de").pairs("train").take(200)
    pairs = list(pairs.as_numpy_iterator())
    names = {"en": "source", "de": "target"}
    return {x: [pair[side] for pair in pairs] for x, side in names.items()}


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
    """The more text, the less a letter counts."""
    assert guess_language(sides[lines], declared) == look
    assert guess_language(sides[lines] * 100, declared) == look


def test_says_nothing_of_little_text():
    assert [guess_language([b"a dog"] * 9, x) for x in ("en", "de")] == [None, None]


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


def test_one_way_to_write_a_code():
    codes = "EN pt_BR por-br zho_Hans ger yue xx fil Go."
    expected = ["en", "pt-BR", "pt-BR", "zh-Hans", "de", "yue", "xx", "tl", "go."]
    assert list(map(standard_code, codes.split())) == expected
    assert standard_code("") == ""


def test_the_code_of_a_language_alone():
    codes = ["de-AT", "zh_Hant", "yue", "cmn", "jpn_Jpan", "Tok.en", "nb", "tl"]
    expected = ["de", "zh", "zh", "zh", "ja", "tok.en", "nb", "tl"]
    assert list(map(language_code, codes)) == expected
    for one, other, same in (
        *(("zh", "zh_Hans", True), ("no", "nb", True)),
        ("fr", "en", False),
    ):
        assert are_alike(one, other) is are_alike(other, one) is same


def test_scripts_without_spaces_between_words():
    unspaced, others = "中々あアｱไລខမབ", "aßжαא한अ。、！1 \u2028\x00\ue000"
    assert "".join(filter(is_unspaced, unspaced + others)) == unspaced
