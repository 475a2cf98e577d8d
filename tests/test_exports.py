"""Keras, SavedModel and LiteRT say the same, whatever the model and the search.

Models of a user's own too: sources in, ids out. What is exported of text in the default
run is in `test_saved_model.py` and `test_tflite.py`. In `test_web_page.py` the page
says what LiteRT says in Python.
"""

import functools
import json
import zipfile

import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from opinionated import opinionated
from own_models import IDS, Both, Captioner, Transcriber, features, images
from small_models import MODELS
from small_translator import untraced, word_translator
from test_tflite import assert_the_same

import keras_luong as kl
from keras_luong.decoding import BeamSearch, Ensemble, GreedySearch, penalties
from keras_luong.export.saved_model import METADATA
from keras_luong.models import build

edge = pytest.importorskip("keras_luong_edge")
interpreter = pytest.importorskip("ai_edge_litert.interpreter")

pytestmark = pytest.mark.filterwarnings("ignore:.*max_source_length")
slow = pytest.mark.slow

SMALL = BeamSearch(3, 2, max_length=7)
TEXTS = ["the red dog", "", "dog", "cat " * 7, "the red dog cat is x " * 3, "x"]
ANY, KNOWN = None, 16  # tokens of a source


def translator_of(model, search=SMALL):
    """For models of nine source words and seven target words."""
    tokenizers = word_translator().tokenizers
    return kl.Translator(model, tokenizers, search, max_source_length=14)


def small(preset="small", **fields):
    return opinionated(build(preset, 9, 7, units=4, **fields))


def assert_a_saved_model_says_the_same(translator, folder):
    path = kl.export_saved_model(translator, folder / "model")
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
    kl.export_tflite(translator, path, source_length=source_length)
    said = edge.EdgeTranslator(path).translate(TEXTS, n_best=True)
    assert_the_same(said, translator.translate(TEXTS, n_best=True), atol=1e-4)


@slow
@pytest.mark.parametrize("preset, fields", MODELS.values(), ids=MODELS)
def test_every_model(preset, fields, tmp_path):
    translator = translator_of(small(preset, **fields))
    assert_a_saved_model_says_the_same(translator, tmp_path)
    assert_litert_says_the_same(translator, tmp_path, ANY)
    assert_litert_says_the_same(translator, tmp_path, KNOWN)


PENALTIES = {"coverage_penalty": penalties.SummaryCoveragePenalty(0.2)}
PENALTIES |= {"length_penalty": penalties.AverageLengthPenalty(0.8)}
REWARD = penalties.WordReward(0.3)
CONSTRAINTS = {"min_length_ratio": 0.5, "max_length_ratio": 1.5, "no_repeat_ngram": 2}
CONSTRAINTS |= {"min_length": 3, "forbidden": (1,)}
SHORTLIST = kl.Shortlist([4], [[4 + i % 3] for i in range(9)], vocab_size=7)
SEARCHES = {
    "greedy, any length": GreedySearch(None),
    "a beam of one": BeamSearch(1, max_length=6),
    "any length": BeamSearch(3, max_length=None),
    "GNMT's penalties": BeamSearch(3, 1, 7, length_penalty=0.6, coverage_penalty=0.2),
    "other penalties": BeamSearch(3, 2, 7, early_stopping="first", **PENALTIES),
    "word reward": BeamSearch(3, 1, 7, length_penalty=REWARD),
    "constraints": BeamSearch(4, 4, None, early_stopping=False, **CONSTRAINTS),
    "shortlist": BeamSearch(3, 1, 4, min_length=3, forbidden=(1,), shortlist=SHORTLIST),
}
SERVED = "greedy, any length", "constraints", "shortlist"


@slow
@pytest.mark.parametrize("name", SEARCHES)
def test_every_search(name, tmp_path):
    translator = translator_of(small(), SEARCHES[name])
    if name != "shortlist":
        assert_litert_says_the_same(translator, tmp_path, ANY)
        assert_litert_says_the_same(translator, tmp_path, KNOWN)
    if name in SERVED:
        assert_a_saved_model_says_the_same(translator, tmp_path)


@slow
@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble(mean, tmp_path):
    translator = translator_of(Ensemble([small(), small("cho2014")], mean))
    assert_litert_says_the_same(translator, tmp_path, ANY)
    if mean == "geometric":
        assert_a_saved_model_says_the_same(translator, tmp_path)


@slow
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_is_exported_in_float32(dtype, tmp_path):
    model = small(dtype=dtype)
    path = kl.export_tflite(translator_of(Ensemble([model])), tmp_path / "x.tflite")
    twin = build("small", 9, 7, units=4)
    twin.set_weights(model.get_weights())
    expected = translator_of(twin).translate(TEXTS, n_best=True)
    said = edge.EdgeTranslator(path).translate(TEXTS, n_best=True)
    assert_the_same(said, expected, atol=1e-4)


class Blind:
    """A translation model without attention, which says so."""

    def __init__(self):
        self.model = small()

    def encode(self, source):
        return self.model.encode(source)

    def step(self, tokens, state, memory):
        logits, state, _ = self.model.step(tokens, state, memory)
        return logits, state, None


@slow
@pytest.mark.parametrize("source_length", [ANY, KNOWN])
def test_without_attention_alignments_are_of_zeros(source_length, tmp_path):
    translator = translator_of(Blind())
    (expected,) = translator.translate(["the dog"])
    assert expected.alignment.shape == (len(expected.tokens), 3)
    assert not expected.alignment.any()
    assert_litert_says_the_same(translator, tmp_path, source_length)


# Models of a user's own.

spec = tf.TensorSpec
SEARCH = BeamSearch(3, n_best=2, max_length=5, **IDS)
GREEDY, ANY_LENGTH = GreedySearch(5, **IDS), BeamSearch(3, max_length=None)
OTHERS = {"bos_id": 0, "eos_id": 1, "pad_id": 5, "coverage_penalty": 0.2}
PENALIZED = BeamSearch(3, 2, max_length=5, **OTHERS)
IMAGES, IMAGE = spec([None, 7, 7, 1], name="image"), {"image": images()}
NEST = {"features": spec([None, 4, 3]), "style": spec([None, 2], tf.int32)}
NESTED = {"features": features(), "style": np.ones([3, 2], "int32")}
FEATURES = {"source": features()}
TOKENS = {"source": np.array([[4, 5, 3], [6, 3, 0], [7, 8, 3]], "int32")}
Unattentive = functools.partial(Captioner, attend=False)
Small = functools.partial(kl.Seq2Seq, kl.Seq2SeqConfig(9, 9, units=4))
CASES = {  # what makes the model, its source's spec, sources, and the search
    "images": (Captioner, IMAGES, IMAGE, SEARCH),
    "without attention": (Unattentive, IMAGES, IMAGE, SEARCH),
    "features": (Transcriber, spec([None, None, 3]), FEATURES, GREEDY),
    "features, known length": (Transcriber, spec([None, 4, 3]), FEATURES, PENALIZED),
    "a nest": (Both, NEST, NESTED, SEARCH),
    "ids": (Small, spec([None, None], tf.int32), TOKENS, ANY_LENGTH),
    "ids, known length": (Small, spec([None, 3], tf.int32), TOKENS, ANY_LENGTH),
}


def asked(generator, inputs):
    """What a generator says of sources by name."""
    nested = isinstance(generator.source, dict)
    with untraced():
        return generator(inputs if nested else next(iter(inputs.values())))


def outputs_of(hypotheses):
    left_out = ["weights"] * (hypotheses.weights.shape[-1] == 0)
    return {*hypotheses._fields}.difference(left_out)


def assert_same(said, expected, pad_id):
    expected = {k: v.numpy() for k, v in expected._asdict().items()}
    T = expected["ids"].shape[2]
    for name in said.keys() & {"ids", "weights", "token_log_probs"}:
        assert (said[name][:, :, T:] == (pad_id if name == "ids" else 0)).all()
        said[name] = said[name][:, :, :T]
    for name, x in said.items():
        lowest = np.finfo("float32").min
        y = expected[name] if x.dtype == "int32" else np.maximum(expected[name], lowest)
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="session")
def exported(request, tmp_path_factory):
    """A generator, sources, its SavedModel and its `.tflite` file."""
    make, source, inputs, search = CASES[getattr(request, "param", "features")]
    generator = kl.SequenceGenerator(make(), source, search)
    folder, about = tmp_path_factory.mktemp("exported"), {"x": 1}
    path = kl.export_saved_model(generator, folder / "model", 1, False, 4, (), about)
    return generator, inputs, path, kl.export_tflite(generator, folder / "x.tflite")


FAST = slow_but(CASES, "features")
every_case = pytest.mark.parametrize("exported", FAST, indirect=True)


@every_case
def test_a_saved_model_says_what_keras_says(exported):
    generator, inputs, path, _ = exported
    expected = asked(generator, inputs)
    serve = tf.saved_model.load(path).signatures["serving_default"]
    said = serve(**{name: tf.constant(x) for name, x in inputs.items()})
    assert said.keys() == outputs_of(expected)
    pad_id = generator.search.pad_id
    assert_same({name: x.numpy() for name, x in said.items()}, expected, pad_id)
    for count in (0, 1, 4):
        some = {name: x[[0] * count] for name, x in inputs.items()}
        said = serve(**{name: tf.constant(x) for name, x in some.items()})
        assert {len(x) for x in said.values()} == {count}
        assert np.isfinite(said["scores"]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many"):
        serve(**{name: tf.constant(x[[0] * 5]) for name, x in inputs.items()})


@every_case
def test_litert_says_what_keras_says(exported):
    generator, inputs, _, path = exported
    run = interpreter.Interpreter(str(path)).get_signature_runner()
    for row in range(2):
        one = {name: x[row : row + 1] for name, x in inputs.items()}
        said, expected = run(**one), asked(generator, one)
        specs = tf.nest.flatten(generator.source)
        outputs = outputs_of(expected)
        if not all(x.shape[1:].is_fully_defined() for x in specs):
            outputs -= {"weights"}  # of an unknown shape: see `export_tflite`
        assert said.keys() == outputs
        assert_same(said, expected, generator.search.pad_id)
        if outputs_of(expected) - outputs:  # XNNPACK's memory: see `export_tflite`
            run = interpreter.Interpreter(str(path)).get_signature_runner()


@every_case
def test_what_it_holds_and_says_of_itself(exported):
    generator, inputs, path, file = exported
    names = dict(tf.train.list_variables(str(path / "variables" / "variables")))
    sizes = sorted(np.prod(shape) for name, shape in names.items() if "weights" in name)
    weights = getattr(generator.model, "weights", None)
    assert weights is None or sizes == sorted(np.prod(x.shape) for x in weights)
    about = json.loads((path / METADATA).read_text())
    assert about["source"] == {
        name: {"shape": x.shape.as_list(), "dtype": x.dtype.name}
        for name, x in zip(inputs, tf.nest.flatten(generator.source), strict=True)
    }
    assert (about["max_batch_size"], about["x"]) == (4, 1)
    assert "Search(" in about["search"]
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["keras_luong.json"]
        of_file = json.loads(archive.read("keras_luong.json"))
    assert of_file["source"] == about["source"] and of_file["quantize"] is None
    search = generator.search
    ids = {"bos": search.bos_id, "eos": search.eos_id, "pad": search.pad_id}
    assert of_file["special_ids"] == ids
    assert of_file["n_best"] == getattr(search, "n_best", 1)


def test_only_a_translators_source_has_another_length(tmp_path):
    generator = kl.SequenceGenerator(Captioner(), IMAGES, SEARCH)
    with pytest.raises(ValueError, match="is for a Translator.*: 4"):
        kl.export_tflite(generator, tmp_path / "x.tflite", source_length=4)
    assert not list(tmp_path.iterdir())
