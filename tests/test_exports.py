"""Keras, SavedModel and LiteRT say the same, whatever the model and the search.

What is exported in the default run is in `test_saved_model.py` and `test_tflite.py`. In
`test_web_page.py` the page says what LiteRT says in Python.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from opinionated import opinionated
from small_models import MODELS
from test_tflite import assert_the_same

from keras_luong import Translator, export_saved_model, export_tflite
from keras_luong.decoding import (
    AverageLengthPenalty,
    BeamSearch,
    Ensemble,
    GreedySearch,
    Shortlist,
    SummaryCoveragePenalty,
    WordReward,
)
from keras_luong.models import build
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

edge = pytest.importorskip("keras_luong_edge")
pytest.importorskip("ai_edge_litert.interpreter")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*max_source_length"),
]

SMALL = BeamSearch(3, 2, max_length=7)
TEXTS = ["the red dog", "", "dog", "cat " * 7, "the red dog cat is x " * 3, "x"]
ANY, KNOWN = None, 16  # tokens of a source


def translator_of(model, search=SMALL):
    """For models of nine source words and seven target words."""
    source = WordTokenizer(["the", "red", "dog", "cat", "is"])
    pair = TokenizerPair(source, WordTokenizer(["der", "Hund", "ist"]))
    return Translator(model, pair, search, max_source_length=14)


def small(preset="small", **fields):
    return opinionated(build(preset, 9, 7, units=4, **fields))


def assert_a_saved_model_says_the_same(translator, folder):
    path = export_saved_model(translator, folder / "model")
    serve = tf.saved_model.load(path).signatures["serving_default"]
    expected = translator.translate(TEXTS)
    for texts in (slice(None), slice(1), slice(-2, None), slice(0)):
        said = serve(text=tf.constant(TEXTS[texts], tf.string))
        found = [x.decode() for x in said["translation"].numpy()]
        assert found == [t.text for t in expected[texts]]
        scores = [t.score for t in expected[texts]]
        np.testing.assert_allclose(said["score"], scores, rtol=1e-4, atol=1e-5)
        truncated = [t.truncated for t in expected[texts]]
        assert said["truncated"].numpy().tolist() == truncated


def assert_litert_says_the_same(translator, folder, source_length):
    path = folder / f"{source_length}.tflite"
    export_tflite(translator, path, source_length=source_length)
    said = edge.EdgeTranslator(path).translate(TEXTS, n_best=True)
    assert_the_same(said, translator.translate(TEXTS, n_best=True), atol=1e-4)


@pytest.mark.parametrize("preset, fields", MODELS.values(), ids=MODELS)
def test_every_model(preset, fields, tmp_path):
    translator = translator_of(small(preset, **fields))
    assert_a_saved_model_says_the_same(translator, tmp_path)
    assert_litert_says_the_same(translator, tmp_path, ANY)
    assert_litert_says_the_same(translator, tmp_path, KNOWN)


SEARCHES = {
    "greedy, any length": GreedySearch(None),
    "a beam of one": BeamSearch(1, max_length=6),
    "any length": BeamSearch(3, max_length=None),
    "GNMT's penalties": BeamSearch(
        3, max_length=7, length_penalty=0.6, coverage_penalty=0.2
    ),
    "other penalties": BeamSearch(
        3,
        2,
        max_length=7,
        length_penalty=AverageLengthPenalty(0.8),
        coverage_penalty=SummaryCoveragePenalty(0.2),
        early_stopping="first",
    ),
    "word reward": BeamSearch(3, max_length=7, length_penalty=WordReward(0.3)),
    "constraints": BeamSearch(
        4,
        4,
        max_length=None,
        min_length=3,
        min_length_ratio=0.5,
        max_length_ratio=1.5,
        no_repeat_ngram=2,
        forbidden=(1,),
        early_stopping=False,
    ),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
def test_every_search(search, tmp_path):
    translator = translator_of(small(), search)
    assert_litert_says_the_same(translator, tmp_path, ANY)
    assert_litert_says_the_same(translator, tmp_path, KNOWN)


SHORTLIST = Shortlist([4], [[4 + i % 3] for i in range(9)], vocab_size=7)
SERVED = {
    "greedy, any length": GreedySearch(None),
    "constraints": SEARCHES["constraints"],
    "shortlist": BeamSearch(
        3, max_length=4, forbidden=(1,), min_length=3, shortlist=SHORTLIST
    ),
}


@pytest.mark.parametrize("search", SERVED.values(), ids=SERVED)
def test_searches_that_are_served(search, tmp_path):
    assert_a_saved_model_says_the_same(translator_of(small(), search), tmp_path)


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble(mean, tmp_path):
    translator = translator_of(Ensemble([small(), small("cho2014")], mean))
    assert_litert_says_the_same(translator, tmp_path, ANY)
    if mean == "geometric":
        assert_a_saved_model_says_the_same(translator, tmp_path)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_exported_in_float32(dtype, tmp_path):
    model = small(dtype=dtype)
    path = export_tflite(translator_of(Ensemble([model])), tmp_path / "x.tflite")
    twin = build("small", 9, 7, units=4)
    twin.set_weights(model.get_weights())
    expected = translator_of(twin).translate(TEXTS, n_best=True)
    said = edge.EdgeTranslator(path).translate(TEXTS, n_best=True)
    assert_the_same(said, expected, atol=1e-4)


class Wide:
    """A model that says ids beyond its tokenizer's vocabulary, or nothing at all."""

    def __init__(self, bias):
        self.model = build("small", 6, 12, units=4)
        self.bias = np.array(bias, "float32")

    def encode(self, source_ids):
        return self.model.encode(source_ids)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + self.bias, state, weights


@pytest.mark.parametrize(
    ("bias", "text"),
    [([0] * 11 + [99], "<unk> <unk> <unk>"), ([np.nan] * 12, "")],
    ids=["ids beyond the vocabulary", "nothing is possible"],
)
def test_strange_models_are_read_as_keras_reads_them(bias, text, tmp_path):
    search = BeamSearch(2, max_length=3)
    translator = Translator(Wide(bias), WordTokenizer(["a", "b"]), search)
    path = export_tflite(translator, tmp_path / "x.tflite")
    (found,) = edge.EdgeTranslator(path).translate(["a b"])
    (expected,) = translator.translate(["a b"])
    assert found.text == expected.text == text and found.tokens == expected.tokens
    np.testing.assert_allclose(found.score, expected.score, rtol=1e-4)
    assert text or found.score == -np.inf


class Blind:
    """A translation model without attention, which says so."""

    def __init__(self):
        self.model = small()

    def encode(self, source):
        return self.model.encode(source)

    def step(self, tokens, state, memory):
        logits, state, _ = self.model.step(tokens, state, memory)
        return logits, state, None


@pytest.mark.parametrize("source_length", [ANY, KNOWN])
def test_without_attention_alignments_are_of_zeros(source_length, tmp_path):
    translator = translator_of(Blind())
    (expected,) = translator.translate(["the dog"])
    assert expected.alignment.shape == (len(expected.tokens), 3)
    assert not expected.alignment.any()
    assert_litert_says_the_same(translator, tmp_path, source_length)


class Determined(Blind):
    """A model with an operation that LiteRT has not."""

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits + tf.linalg.det(logits[0, :1, :1]), state, weights


def test_what_litert_lacks_is_named(tmp_path):
    message = "cannot be converted for LiteRT: LiteRT lacks the operations MatrixDeter"
    with pytest.raises(ValueError, match=message):
        export_tflite(translator_of(Determined()), tmp_path / "x.tflite")
    assert not list(tmp_path.iterdir())
