"""Terminology: cases of use in which terms were not found, or not seen to be met."""

import pytest
import tensorflow as tf

import keras_luong as kl
from keras_luong.decoding.lexical import unmet_by
from keras_luong.text import Terminology
from keras_luong.text.terminology import is_word_border, phrases_of, words_and_marks
from keras_luong.translation.graph import read_phrases

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


SENTENCES = [
    "Auf dem Schild steht „Lampe“.",
    "am 9. September kostet es 9,50 €",
    "Lampen",
]


class _Says(tf.Module):
    """Says the sentence that the source's id names, sure of each piece."""

    def __init__(self, tokenizer, vocab_size):
        super().__init__()
        rows = tokenizer.encode(tf.constant(SENTENCES))
        self.rows = tf.concat([rows, [[3]] * len(SENTENCES)], 1).to_tensor(3)
        self.target_vocab_size = vocab_size

    def encode(self, source_ids):
        return source_ids[:, :1] - 4, tf.zeros([tf.shape(source_ids)[0], 1], tf.int32)

    def step(self, tokens, position, sentence):
        row = tf.gather(self.rows, sentence[:, 0])
        place = tf.minimum(position, tf.shape(row)[1] - 1)
        said = tf.gather(row, place, batch_dims=1)
        logits = 9.0 * tf.one_hot(said, self.target_vocab_size)
        logits += 0.01 * tf.range(float(self.target_vocab_size))  # or many would end
        weights = tf.ones([*tf.unstack(tf.shape(tokens)), 1])
        return logits, position + 1, weights


@pytest.fixture(scope="module")
def translator():
    """Translates "a", "b" and "c" as the sentences, written in pieces."""
    text = [*SENTENCES * 3, "Lampe 9. „Lampe“"]
    pieces = kl.SentencePieceTokenizer.train(text, 80)
    words = kl.WordTokenizer(["a", "b", "c"])
    model = _Says(pieces, pieces.vocab_size)
    search = kl.BeamSearch(5, length_penalty=1.2, early_stopping="first", max_length=60)
    return kl.Translator(model, (words, pieces), search)


def test_w2_w3_what_the_free_translation_has_is_met(translator):
    texts = ["a", "a", "b", "b", "b", "b"]
    must = ["Lampe", "Schild steht", "9", "9. September", "50", "9,50 €"]
    found = translator.translate(texts, constraints=[[x] for x in must])
    free = translator.translate(["a", "a", "b", "b", "b", "b"])
    assert [t.text for t in found] == [t.text for t in free]
    assert [t.score for t in found] == [t.score for t in free]
    assert [t.unmet for t in found] == [()] * 6
    assert {t.text for t in free} == {*SENTENCES[:2]}


def test_w2_a_part_of_a_word_is_not_the_word(translator):
    (found,) = translator.translate(["c"], constraints=[["Lampe"]])
    assert found.text != "Lampen" and "Lampe" in words_and_marks(found.text)


def test_w2_all_hypotheses_have_the_phrase_and_the_free_one_comes_first(translator):
    wide = translator.with_search(n_best=5)
    (found,) = wide.translate(["a"], constraints=[["Lampe"]], n_best=True)
    assert found[0].text == SENTENCES[0] and len(found) > 1
    assert all("Lampe" in words_and_marks(t.text) for t in found)


def test_w10_a_prefix_that_cannot_be_written_is_refused(translator):
    with pytest.raises(ValueError, match="can begin with 'Auf 東京'.*letters"):
        translator.translate(["a"], prefixes=["Auf 東京"])
    (found,) = translator.translate(["a"], prefixes=["Auf Lampe"])
    assert found.text.startswith("Auf Lampe")


@pytest.mark.slow
def test_w2_a_saved_model_says_the_same(translator, tmp_path):
    asked = ["a", "a", "c", "c"], ["Lampe\tSchild", "", "Lampe", "東京\tLampe"]
    kl.export_saved_model(translator, tmp_path, version=1)
    constrain = tf.saved_model.load(str(tmp_path / "1")).signatures["constrain"]
    said = constrain(text=tf.constant(asked[0]), phrases=tf.constant(asked[1]))
    must = [["Lampe", "Schild"], [], ["Lampe"], ["Lampe"]]
    found = translator.translate(asked[0], constraints=must)
    texts = [x.decode() for x in said["translation"].numpy()]
    assert texts == [t.text for t in found]
    unmet = [x.decode() for x in said["unmet"].numpy()]
    assert unmet == ["", "", "", "東京"]


def test_w2_a_model_may_have_more_tokens_than_its_tokenizer(translator):
    pieces = translator.target_tokenizer
    wide = kl.Translator(
        _Says(pieces, pieces.vocab_size + 8), translator.tokenizers, translator.search
    )
    found = wide.translate(["a", "c"], constraints=[["Lampe"], ["Lampe"]])
    assert found[0].text == SENTENCES[0]
    assert "Lampe" in words_and_marks(found[1].text)


def test_w2_phrases_are_limited_and_lone_surrogates_refused(translator):
    with pytest.raises(ValueError, match="too many phrases.* 64. Received: 65"):
        translator.translate(["a"], constraints=[["Lampe"] * 65])
    with pytest.raises(ValueError, match="can contain"):
        translator.translate(["a"], constraints=[["\ud800"]])
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many phrases"):
        translator.graph.translate_with(
            tf.constant(["a"]), tf.constant(["Lampe\t" * 65]), tf.constant([""])
        )


@pytest.mark.parametrize(
    ("phrase", "text", "there"),
    [
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


def test_w11_a_tag_is_left_out_of_texts_alone():
    assert Terminology({"<b> dog": "X"}).find("a dog") == []
    assert Terminology({"dog": "X"}).find("<b> dog") == ["X"]


def test_one_phrase_of_both_files_is_required_once():
    assert phrases_of("rote  Jacke\t \tHund ") == ["rote Jacke", "Hund"]
