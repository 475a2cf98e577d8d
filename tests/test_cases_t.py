"""Texts that came out wrong in use: of each case, the right answer.

That marked and packed files are read (T2, T4) is in `test_odd_text.py`, more of
what a SavedModel answers (T9, T10) in `test_saved_model.py`.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_translator import sentencepiece_translator

import keras_luong as kl

pytestmark = pytest.mark.usefixtures("eagerly")

TEXTS = ["in is in in is under", "is cat is", "", "under is dog", "the red dog"]
LOWEST = np.finfo("float32").min


@pytest.fixture(scope="module")
def translator():
    """Some of its sentences have hypotheses of one text in other pieces."""
    keras.utils.set_random_seed(1)
    search = kl.BeamSearch(12, n_best=4, max_length=5, length_penalty=0.6)
    return sentencepiece_translator().with_search(search)


@pytest.fixture(scope="module")
def ask(translator, tmp_path_factory):
    path = kl.export_saved_model(translator, tmp_path_factory.mktemp("model"))
    loaded = tf.saved_model.load(path)

    def ask(signature, **inputs):
        said = loaded.signatures[signature](**inputs)
        return {name: x.numpy() for name, x in said.items()}

    return ask


@pytest.fixture(scope="module")
def on_edge(translator, tmp_path_factory):
    edge = pytest.importorskip("keras_luong_edge")
    path = tmp_path_factory.mktemp("edge") / "x.tflite"
    return edge.EdgeTranslator(kl.export_tflite(translator, path))


@pytest.fixture(scope="module")
def whole(translator):
    """All that the beam finds: (text, score) of each hypothesis of each sentence."""
    search = kl.BeamSearch(12, n_best=12, max_length=5, length_penalty=0.6)
    found = search(translator.model, translator.graph.read(tf.constant(TEXTS)).ids)
    texts = translator.target_tokenizer.decode(found.ids).numpy()
    rows = zip(texts, found.scores.numpy(), strict=True)
    rows = [[(x.decode(), y) for x, y in zip(*row, strict=True)] for row in rows]
    # One text twice among the first four: else the tests below would show nothing.
    assert any(len({text for text, _ in row[:4]}) < 4 for row in rows)
    return rows


def assert_these(found, expected):
    assert [text for text, _ in found] == [text for text, _ in expected]
    np.testing.assert_allclose(*([x for _, x in y] for y in (found, expected)), 1e-4)


def best_distinct(hypotheses, most):
    """The first of each text, in their order."""
    first = {text: (text, x) for text, x in reversed(hypotheses)}
    return sorted(first.values(), key=hypotheses.index)[:most]


RUNTIMES = ["translator", pytest.param("on_edge", marks=pytest.mark.slow)]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_t6_n_best_texts_differ(runtime, whole, request):
    """A text came twice where it had two segmentations, and a worse one was missing."""
    found = request.getfixturevalue(runtime).translate(TEXTS, n_best=True)
    for text, hypotheses, row in zip(TEXTS, found, whole, strict=True):
        said = [(t.text, t.score) for t in hypotheses]
        assert_these(said, best_distinct(row, 4) if text else [("", 0.0)])


def test_t6_n_best_texts_differ_with_prefixes(translator):
    """Which take another way through the graph."""
    found = translator.translate(TEXTS, n_best=True, prefixes=[""] * len(TEXTS))
    expected = translator.translate(TEXTS, n_best=True)
    for some, others, text in zip(found, expected, TEXTS, strict=True):
        assert [t.text for t in some] == [t.text for t in others]
        assert all(t.tokens and len(t.log_probs) for t in others if text)


@pytest.mark.slow
def test_t6_n_best_texts_differ_in_the_saved_model(ask, whole):
    """Its signature repeated them too; the places that are left over are empty."""
    said = ask("n_best", text=tf.constant(TEXTS))
    assert said["translation"].shape == (len(TEXTS), 12)
    for i, row in enumerate(whole):
        if TEXTS[i]:
            expected = best_distinct(row, 12)
            texts = [x.decode() for x in said["translation"][i]]
            pairs = list(zip(texts, said["score"][i], strict=True))
            assert_these(pairs[: len(expected)], expected)
            assert pairs[len(expected) :] == [("", LOWEST)] * (12 - len(expected))


def test_t6_one_hypothesis_costs_no_more():
    """A wider pool would make this search longer."""
    assert kl.BeamSearch(5).with_spares() == kl.BeamSearch(5)
    assert kl.BeamSearch(5, n_best=2).with_spares() == kl.BeamSearch(5, n_best=5)
