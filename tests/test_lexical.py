"""Phrases that must occur, in any spelling, and a glossary's that a text asks for.

`test_beam` has phrases in every search.
"""

import gzip
from random import Random

import numpy as np
import pytest
import tensorflow as tf
from brute_force import (
    SOURCES,
    ScriptModel,
    TableModel,
    constraints,
    log_of,
    missing,
    padded,
)
from small_translator import sentencepiece_translator

import keras_luong as kl
from keras_luong.decoding import BeamSearch, Constraints, Shortlist
from keras_luong.decoding.lexical import Spelling, unmet_by
from keras_luong.special_ids import PAD_ID
from keras_luong.text import Terminology
from keras_luong.text.terminology import is_word_border, phrases_of, words_and_marks
from keras_luong.translation.graph import read_phrases

AMBIGUOUS = ["", "u", "", "", " a", " ab", " b", "b", "a-"]
QUICK = 15, 25, 32
TEXTS = AMBIGUOUS, None, "| u||| a| b| c|d|e".split("|")


@pytest.mark.parametrize(
    "seed",
    [pytest.param(i, marks=[pytest.mark.slow] * (i not in QUICK)) for i in range(40)],
)
def test_what_fits_occurs_in_every_hypothesis(seed):
    random, texts = Random(seed), TEXTS[seed % 3]

    def phrase():
        """Words that go on: (4, 7) is a longer word than (4,), which it begins with."""
        first = random.choices([4, 5, 6], k=random.randint(1, 3))
        return (*first, *random.choices([4, 7, 8], k=random.randint(0, 2)))

    rows = [[phrase() for _ in range(random.randint(0, 3))] for _ in SOURCES]
    limit = max(1, *(sum(map(len, row)) for row in rows)) + random.randint(0, 3)
    model, width = TableModel(seed, vocabulary=9), random.randint(1, 6)
    search, must = BeamSearch(width, width, limit, 0.6), constraints(rows, texts)
    found = search(model, SOURCES, constraints=must)
    assert (found.lengths[:, 0].numpy() > 0).all()
    lacks = unmet_by(must, found.ids, PAD_ID).numpy()
    for (row, n), length in np.ndenumerate(found.lengths):
        if length:
            tokens = found.ids[row, n, :length].numpy().tolist()
            assert missing(tokens, rows[row], texts) == 0 and not lacks[row, n].any()
    must = Constraints(padded(rows[1:2]), must.spelling)
    alone = search(model, SOURCES[1:2], constraints=must)
    ids = found.ids[1].numpy()[:, : alone.ids.shape[2]]
    np.testing.assert_array_equal(ids, alone.ids[0].numpy())
    # Sums may differ in the last bit with another number of rows.
    np.testing.assert_allclose(found.scores[1], alone.scores[0], atol=1e-5)


def test_without_phrases_it_is_the_ordinary_search():
    model, search = TableModel(0, vocabulary=9), BeamSearch(3, 3, 4, 0.6)
    expected = search(model, SOURCES)
    for shape in ((3, 0, 0), (3, 2, 1)):
        must = constraints([], AMBIGUOUS)._replace(ids=np.zeros(shape, "int32"))
        found = search(model, SOURCES, constraints=must)
        for x, y in zip(expected, found, strict=True):
            np.testing.assert_array_equal(x, y)


class Listed(TableModel):
    """Can be restricted, to any words or to all but some that become impossible."""

    def __init__(self, *args, words=slice(None), allowed=None):
        super().__init__(*args)
        self.args, self.words, self.allowed = args, words, allowed

    def restricted(self, ids, allowed):
        return Listed(*self.args, words=ids, allowed=allowed)

    def step(self, tokens, state, memory):
        logits, *rest = super().step(tokens, state, memory)
        if self.allowed is None:
            return logits, *rest
        logits = tf.gather(logits, self.words, axis=2)
        return tf.where(self.allowed[:, None], logits, -np.inf), *rest


@pytest.mark.parametrize("texts", [None, [""] * 9 + "| c| d| dc".split("|")])
def test_phrases_of_words_on_a_list_are_those_of_a_model_without_the_others(texts):
    """The last word of all, too; and the end token may be beyond the list's size."""
    shortlist = Shortlist([4, 5], [[0]] * 10, 12, eos_id=9, unk_id=1)
    rows = [((11,), (10,))] * 3
    search = BeamSearch(4, 3, 4, 0.6, eos_id=9, compact=False)
    listed = BeamSearch(4, 3, 4, 0.6, eos_id=9, compact=False, shortlist=shortlist)
    words = tf.constant([0, 1, 2, 4, 5, 9, 10, 11])
    only = np.isin(np.arange(12), words)
    bare = Listed(1, 12)
    without = Listed(1, 12, words=tf.range(12), allowed=tf.constant([only] * 3))
    must = constraints(rows, texts)
    found = listed(bare, SOURCES, constraints=must)
    expected = search(without, SOURCES, constraints=must)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    assert (found.lengths[:, 0].numpy() >= 3).all()


def test_what_is_forbidden_stays_so():
    model, must = TableModel(4, vocabulary=9), constraints([[(4,), (5,)]] * 3)
    found = BeamSearch(3, 1, 6, forbidden=(4,))(model, SOURCES, constraints=must)
    for tokens in found.ids[:, 0].numpy().tolist():
        assert 5 in tokens and 4 not in tokens


def a_or_b(source, spoken):
    if not spoken:
        return log_of({3: 0.5, 5: 0.1, 6: 0.4, 8: 0.2}, 9)
    return log_of({3 if 5 in spoken else 6: 1.0, 5: 0.1, 8: 0.2}, 9)


PHRASED = [
    # " a" without a space, where that alone is possible.
    (BeamSearch(1, 1, 3), (4,), [[5, 3]]),
    # Where none has the phrase, the best without it; where one has, no others.
    (BeamSearch(3, 1, 1), (6, 4), [[6]]),
    (BeamSearch(3, 2, 2, forbidden=(8,)), (4,), [[5, 3], [0, 0]]),
    # A space of its own is a token written; without it the phrase begins behind it.
    (BeamSearch(1, 1, 2), (8, 5), [[8, 5]]),
    (BeamSearch(1, 1, 2, forbidden=(8,)), (8, 5), [[5, 3]]),
]


@pytest.mark.parametrize("search, phrase, expected", PHRASED)
def test_phrases_by_hand(search, phrase, expected):
    must = constraints([[phrase]], ["", "u", "", "", " a", "a", " b", "", " "])
    found = search(ScriptModel(a_or_b, 9), [[7]], constraints=must)
    assert found.ids[0].numpy().tolist() == expected


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1), (3, 1, 1, 1)])
def test_constraints_of_a_wrong_shape(shape):
    must = Constraints(np.ones(shape, "int32"))
    with pytest.raises(ValueError, match=r"row of phrases .*Received: \("):
        BeamSearch(2)(TableModel(0), SOURCES, constraints=must)


def test_a_phrase_is_met_by_any_tokens_that_write_it():
    texts = ["", "u", "", "", " a", "b", " ab", "\u201eab\u201c", "ab", "\u0301", "-ab"]
    met = [[6, 3], [4, 5, 3], [7, 3], [8, 3], [4, 8, 6], [8, 10], [10, 6, 8], [99]]
    lacking = [[6, 5, 3], [5, 8], [4, 8, 3], [4, 3], [6, 9]]
    ids = tf.ragged.constant([[*met, *lacking]]).to_tensor(PAD_ID)
    lacks = unmet_by(constraints([[(6,)]], texts), ids, PAD_ID)[0, :, 0].numpy()
    assert lacks.tolist() == [False] * len(met) + [True] * len(lacking)
    # Twice is twice.
    lacks = unmet_by(constraints([[(6,)] * 2], texts), ids, PAD_ID)[0, :, 1].numpy()
    assert np.flatnonzero(~lacks).tolist() == [5]
    # An accent may be the first of all; and padding have a higher id.
    ids, must = tf.constant([[[9, 3], [8, 3]]]), constraints([[(9,)]], texts)
    assert unmet_by(must, ids, pad_id=10).numpy().ravel().tolist() == [False, True]


def test_a_word_without_the_space_before_it_by_hand():
    spelling = Spelling.of([" a", "a", " b", "c", ""], str.isalpha)
    assert spelling.bare.tolist() == [1, 1, 2, 3, 4]
    assert spelling.starts.tolist() == [0, 2, 3, 5, 6, 6]
    assert spelling.first.tolist() == [128, 389, 128, 397, 0]  # 4 * " ", 4 * "a" + 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "n_best"), [(1, 1), (3, 1), (3, 3)])
def test_a_graph_of_known_shape_and_phrases(count, n_best):
    """TensorFlow once inferred the shapes of such a loop without an end."""
    model, rows = TableModel(0, vocabulary=9), [[(4, 5), (6,)], [(4, 5, 6)], [(8,)]]
    must = constraints(rows[:count], AMBIGUOUS)
    search, sources = BeamSearch(4, n_best, 7, 0.6), tf.constant(SOURCES[:count])

    def find(ids, phrases):
        known = must if count == 1 else must._replace(ids=phrases)
        return search(model, ids, constraints=known)

    specs = [tf.TensorSpec([None] * n, tf.int32) for n in (2, 3)] if count > 1 else None
    graph = tf.function(find, input_signature=specs, autograph=False)
    found = search(model, sources, constraints=must)
    for x, y in zip(graph(sources, must.ids), found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


# Terms of a glossary.

WORDS = "dog=Hund US=USA us=uns truck=Laster Turkey=Türkei turkey=Truthahn cat=Katze"
WORDS += " कुत्ता=Hund! क=k café=Kaffee كلب=Hund?"
PHRASES = "fire truck=Feuerwehrauto|can't=kann nicht|red jacket=rote Jacke|<b> bird=X"
PHRASES += '|the "Bear"=der Bär|№ 5=Nr. 5'
TERMS = Terminology(dict(x.split("=") for x in WORDS.split() + PHRASES.split("|")))


FOUND = [
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
    ("a truck behind a fire truck", ["Laster", "Feuerwehrauto"]),
    # A tag is left out of texts alone.
    ("<us> a dog", ["Hund"]),
    ("\ufeff<cat> a bird", []),
    # However it is encoded.
    ("यह कुत्ता।", ["Hund!"]),
    ("a cafe\u0301.", ["Kaffee"]),
    ("Cafe\u0301s, CAFÉ", []),
    ("a ｃａｔ！", ["Katze"]),
    ("a c\ufeffat", ["Katze"]),
    ("\u200ecat\u200f", ["Katze"]),
    ("a red\u200b \u200bjacket and a cat", ["rote Jacke", "Katze"]),
    *((f"I can{x}t", ["kann nicht"]) for x in "'’´ʼ‘"),
    ("in the „Bear“", ["der Bär"]),
    ("كلب، قط", ["Hund?"]),
    ("No 5", ["Nr. 5"]),
    ("cat\u0301 concatenate", []),
]


@pytest.mark.parametrize("text, found", FOUND)
def test_what_a_text_has(text, found):
    assert TERMS.find(text) == found


def test_a_file(tmp_path):
    lines = "\ufeffdog\tHund\r\n\nred  jacket\trote Jacke\ncafe\u0301\tKaffee\n"
    lines += "ｃａｔ\tKatze\ncan’t\tnicht\nso\u200blo\tallein\n"
    path, packed = tmp_path / "terms.tsv", tmp_path / "terms.tsv.gz"
    path.write_bytes(lines.encode())
    packed.write_bytes(gzip.compress(lines.encode()))
    terms = Terminology.load(path)
    assert terms.find("A red jacket") == ["rote Jacke"]
    text = "a café: the cat can't be so\u200blo, nor solo"
    assert sorted(terms.find(text)) == ["Kaffee", "Katze", "allein", "nicht"]
    assert Terminology.load(packed).terms == terms.terms


NO_GLOSSARIES = [
    ("dog\tHund\ncat Katze\n", "line 2, must be .* a tab .*'cat Katze'"),
    ("dog\t\n", "line 1, must be"),
    ("a\tb\tc\n", "line 1, must be"),
    ("dog\tHund\ndog\tKöter\n", "two target terms for 'dog': 'Hund', and 'Köter'"),
]


@pytest.mark.parametrize("content, message", NO_GLOSSARIES)
def test_a_file_that_is_none(tmp_path, content, message):
    path = tmp_path / "terms.tsv"
    path.write_text(content, "utf-8")
    with pytest.raises(ValueError, match=message):
        Terminology.load(path)


def test_wrong_terms():
    for terms, error, message in (
        (["dog"], TypeError, "Received"),
        ({"dog": 3}, TypeError, "Received: 3"),
        ({" \ufeff": "A"}, ValueError, "must have a word"),
        ({"A": "\u00ad"}, ValueError, "must have a word"),
        ({"can't": "A", "can’t": "B"}, ValueError, "can’t' are read alike.*: 'A', 'B'"),
    ):
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


ENDS = [
    ("Lampe", SIGN, True),
    ("Lampe", "Lampen", False),  # a part of a word is not the word
    ("9. September", PRICE, True),
    ("9,50 €", PRICE, True),
    ("犬", "犬が好き", True),
    ("ก", "กิน", False),
    ("กิ", "กิน", True),
    ("cafe", "cafe\u0301", False),
    ("9", "19", False),
    ("a b", "x a b.", True),
    ("a b", "x a bc", False),
]


@pytest.mark.parametrize("phrase, text, there", ENDS)
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
