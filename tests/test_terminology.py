"""Terms of a source, found in any encoding; and what makes a translation have them."""

import gzip

import pytest
import tensorflow as tf
from small_translator import sentencepiece_translator

import keras_luong as kl
from keras_luong.decoding.lexical import unmet_by
from keras_luong.text import Terminology
from keras_luong.text.terminology import is_word_border, phrases_of, words_and_marks
from keras_luong.translation.graph import read_phrases

TERMS = Terminology(
    {
        "dog": "Hund",
        "US": "USA",
        "us": "uns",
        "fire truck": "Feuerwehrauto",
        "truck": "Laster",
        "Turkey": "Türkei",
        "turkey": "Truthahn",
        "कुत्ता": "Hund!",
        "क": "k",
        "café": "Kaffee",
        "cat": "Katze",
        "can't": "kann nicht",
        "red jacket": "rote Jacke",
        "T-shirt": "T-Shirt",
        'the "Bear"': "der Bär",
        "كلب": "Hund?",
        "№ 5": "Nr. 5",
        "<b> bird": "X",
    }
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        # Whole words, with a capital or without; each once, in the text's order.
        ("A dog.", ["Hund"]),
        ("Dog (dog), dog!", ["Hund"]),
        ("Dogs in doghouses and hotdogs, DOG", []),
        (b"a dog\xff and\ta dog", ["Hund"]),
        ("for us in the US", ["uns", "USA"]),
        ("Turkey, turkey", ["Türkei", "Truthahn"]),
        # The longest first.
        ("a fire  truck", ["Feuerwehrauto"]),
        ("a fire, truck", ["Laster"]),
        ("a truck behind a fire truck", ["Laster", "Feuerwehrauto"]),
        # A tag is left out of texts alone.
        ("<us> a dog", ["Hund"]),
        ("a <us>", ["uns"]),
        ("\ufeff<cat> a bird", []),
        # However it is encoded.
        ("यह कुत्ता।", ["Hund!"]),
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
        *((f"I can{x}t", ["kann nicht"]) for x in "'’´ʼ‘"),
        ("a T‑shirt", ["T-Shirt"]),
        ("in the „Bear“", ["der Bär"]),
        ("كلب، قط", ["Hund?"]),
        ("No 5", ["Nr. 5"]),
        ("cat\u0301 concatenate", []),
    ],
)
def test_what_a_text_has(text, found):
    assert TERMS.find(text) == found


def test_a_file(tmp_path):
    path = tmp_path / "terms.tsv"
    lines = "\ufeffdog\tHund\r\n\nred  jacket\trote Jacke\ncafe\u0301\tKaffee\n"
    lines += "ｃａｔ\tKatze\ncan’t\tnicht\nso\u200blo\tallein\n"
    path.write_bytes(lines.encode())
    terms = Terminology.load(path)
    assert terms.find("A red jacket") == ["rote Jacke"]
    text = "a café: the cat can't be so\u200blo, nor solo"
    assert sorted(terms.find(text)) == ["Kaffee", "Katze", "allein", "nicht"]
    packed = tmp_path / "terms.tsv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert Terminology.load(packed).terms == terms.terms


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog\tHund\ncat Katze\n", "line 2, must be .* a tab .*'cat Katze'"),
        ("dog\t\n", "line 1, must be"),
        ("a\tb\tc\n", "line 1, must be"),
        ("dog\tHund\ndog\tKöter\n", "two target terms for 'dog': 'Hund', and 'Köter'"),
    ],
)
def test_a_file_that_is_none(tmp_path, content, message):
    path = tmp_path / "terms.tsv"
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message):
        Terminology.load(path)


@pytest.mark.parametrize(
    ("terms", "error", "message"),
    [
        (["dog"], TypeError, "Received"),
        ({"dog": 3}, TypeError, "Received: 3"),
        *(
            ({x: "A"}, ValueError, "must have a word")
            for x in (" ", "\u200b", " \ufeff")
        ),
        ({"A": "\u00ad"}, ValueError, "must have a word"),
        ({"can't": "A", "can’t": "B"}, ValueError, "can’t' are read alike .* 'A', 'B'"),
    ],
)
def test_wrong_terms(terms, error, message):
    with pytest.raises(error, match=message):
        Terminology(terms)
    assert Terminology({"can't": "A", "can’t": "A"}).find("can‘t") == ["A"]


@pytest.mark.parametrize("rule", ["nmt_nfkc_cf", "identity"])
def test_w11_the_source_tokenizers_own_rule_is_followed(rule):
    tokenizer = kl.SentencePieceTokenizer.train(["a b", "b a"], 8, normalization=rule)
    terms = Terminology({"cat": "Katze"}, tokenizer)
    assert terms.find("a cat, ｃａｔ") == ["Katze"]
    assert terms.find("a CAT") == ["Katze"] * rule.endswith("_cf")


def test_w11_words_end_at_white_space_marks_and_symbols():
    borders = " \t\u00a0\u200b.,'’\"“„«-–/()<>€+·،।。🐕"
    assert [x for x in borders if not is_word_border(x)] == []
    assert [x for x in "aé9ßक\u093f\u0301ʼ\u200d中" if is_word_border(x)] == []
    assert words_and_marks("5€, (a)") == ["5", "€", ",", "(", "a", ")"]
    assert words_and_marks("犬が a") == ["犬", "が", "a"]


def test_one_phrase_of_both_files_is_required_once():
    assert phrases_of("rote  Jacke\t \tHund ") == ["rote Jacke", "Hund"]


SIGN, PRICE = "Auf dem Schild steht „Lampe“.", "am 9. September kostet es 9,50 €"


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
        ("Lampe", SIGN, True),
        ("Schild steht", SIGN, True),
        ("Lampe", "Lampen", False),  # a part of a word is not the word
        ("9. September", PRICE, True),
        ("50", PRICE, True),
        ("9,50 €", PRICE, True),
        ("犬", "犬が好き", True),
        ("日本", "日本人", True),
        ("ก", "กิน", False),
        ("กิ", "กิน", True),
        ("cafe", "cafe\u0301", False),
        ("9", "(9)", True),
        ("9", "19", False),
        ("a b", "x a b.", True),
        ("a b", "x a bc", False),
    ],
)
def test_w2_where_words_end_in_text_and_glossary(phrase, text, there):
    pieces = kl.SentencePieceTokenizer.train([f"{phrase} {text}"] * 2, 60)
    _, must = read_phrases(tf.constant([phrase]), pieces)
    ids = pieces.encode(tf.constant([text])).to_tensor()[:, None]
    assert bool(unmet_by(must, ids, 0)[0, 0, 0]) != there
    assert (Terminology({phrase: "x"}).find(text) == ["x"]) == there


def test_w2_w10_what_cannot_be_required_is_refused():
    translator = sentencepiece_translator()
    for given, message in (
        ({"prefixes": ["the 東京"]}, "can begin with 'the 東京'.*letters"),
        ({"constraints": [["dog"] * 65]}, "too many phrases.* 64. Received: 65"),
        ({"constraints": [["\ud800"]]}, "can contain"),
    ):
        with pytest.raises(ValueError, match=message):
            translator.translate(["the"], **given)
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many phrases"):
        read_phrases(tf.constant(["dog\t" * 65]), translator.target_tokenizer)
    read_phrases(tf.constant(["dog\t" * 63]), translator.target_tokenizer)


@pytest.mark.slow
def test_w2_a_saved_model_requires_the_same(tmp_path):
    translator = sentencepiece_translator()
    texts, phrases = ["the dog"] * 4, ["cat\tthe tree", "", "tree", "東京\tcat"]
    kl.export_saved_model(translator, tmp_path, version=1)
    constrain = tf.saved_model.load(str(tmp_path / "1")).signatures["constrain"]
    said = constrain(text=tf.constant(texts), phrases=tf.constant(phrases))
    must = [["cat", "the tree"], [], ["tree"], ["cat"]]
    found = translator.translate(texts, constraints=must)
    assert [x.decode() for x in said["translation"].numpy()] == [t.text for t in found]
    assert len({t.text for t in found}) == 4
    assert [x.decode() for x in said["unmet"].numpy()] == ["", "", "", "東京"]
