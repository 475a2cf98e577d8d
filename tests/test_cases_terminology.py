"""Terms are found however a text encodes them: cases of use that once found nothing."""

import pytest

import keras_luong as kl
from keras_luong.text import Terminology
from keras_luong.text.terminology import is_word_border, words_and_marks

TERMS = {
    "café": "Kaffee",
    "cat": "Katze",
    "can't": "kann nicht",
    "red jacket": "rote Jacke",
    "T-shirt": "T-Shirt",
    'the "Bear"': "der Bär",
    "كلب": "Hund",
    "№ 5": "Nr. 5",
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a cafe\u0301.", ["Kaffee"]),
        ("Cafe\u0301s, CAFÉ", []),
        ("a ｃａｔ！", ["Katze"]),
        ("a ca\u200bt", ["Katze"]),
        ("a c\ufeffat", ["Katze"]),
        ("\ufeffCat", ["Katze"]),
        ("a ca\u00adt", ["Katze"]),
        ("\u200ecat\u200f", ["Katze"]),
        ("a red\u200bjacket", ["rote Jacke"]),
        ("a red\u00a0jacket", ["rote Jacke"]),
        ("a red\u200b \u200bjacket and a cat", ["rote Jacke", "Katze"]),
        ("I can’t", ["kann nicht"]),
        ("I can´t", ["kann nicht"]),
        ("I canʼt", ["kann nicht"]),
        ("a T‑shirt", ["T-Shirt"]),
        ("in the „Bear“", ["der Bär"]),
        ("كلب، قط", ["Hund"]),
        ("No 5", ["Nr. 5"]),
        ("\ufeff<cat> a dog", []),
        ("cat\u0301 concatenate", []),
    ],
)
def test_w11_a_term_is_found_however_it_is_encoded(text, found):
    assert Terminology(TERMS).find(text) == found


def test_w11_the_glossary_may_be_encoded_in_any_way_too(tmp_path):
    path = tmp_path / "terms.tsv"
    lines = "cafe\u0301\tKaffee\nｃａｔ\tKatze\ncan’t\tnicht\nso\u200blo\tallein\n"
    path.write_text(lines, "utf-8")
    terms = Terminology.load(path)
    text = "a café: the cat can't be so\u200blo, nor solo"
    assert sorted(terms.find(text)) == ["Kaffee", "Katze", "allein", "nicht"]


@pytest.mark.parametrize("rule", ["nmt_nfkc_cf", "nmt_nfkc", "identity"])
def test_w11_the_source_tokenizers_own_rule_is_followed(rule):
    tokenizer = kl.SentencePieceTokenizer.train(["a b", "b a"], 8, normalization=rule)
    terms = Terminology({"cat": "Katze"}, tokenizer)
    assert terms.find("a cat, ｃａｔ") == ["Katze"]
    assert terms.find("a CAT") == ["Katze"] * rule.endswith("_cf")


def test_w11_two_terms_that_are_read_alike_have_one_target():
    with pytest.raises(ValueError, match="can’t' are read alike .* 'A', 'B'"):
        Terminology({"can't": "A", "can’t": "B"})
    assert Terminology({"can't": "A", "can’t": "A"}).find("can‘t") == ["A"]


@pytest.mark.parametrize("term", ["\u200b", "\u00ad", " \ufeff"])
def test_w11_a_term_that_nobody_sees_is_refused(term):
    with pytest.raises(ValueError, match="must have a word"):
        Terminology({term: "A"})


def test_w11_words_end_at_white_space_marks_and_symbols():
    borders = " \t\u00a0\u200b.,'’\"“„«-–/()<>€+·،।。🐕"
    assert [x for x in borders if not is_word_border(x)] == []
    assert [x for x in "aé9ßक\u093f\u0301ʼ\u200d中" if is_word_border(x)] == []
    assert words_and_marks("5€, (a)") == ["5", "€", ",", "(", "a", ")"]
