"""Models of a user's own, as SavedModels and `.tflite` files: sources in, ids out."""

from __future__ import annotations

import functools
import json
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from own_models import IDS, Both, Captioner, Transcriber, features, images

import keras_luong as kl
from keras_luong.export.saved_model import METADATA
from keras_luong.export.signatures import exported as exported_of

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

spec = tf.TensorSpec
SEARCH = kl.BeamSearch(3, n_best=2, max_length=5, **IDS)
GREEDY, ANY_LENGTH = kl.GreedySearch(5, **IDS), kl.BeamSearch(3, max_length=None)
OTHERS = {"bos_id": 0, "eos_id": 1, "pad_id": 5, "coverage_penalty": 0.2}
PENALIZED = kl.BeamSearch(3, 2, max_length=5, **OTHERS)
IMAGES, IMAGE = spec([None, 7, 7, 1], name="image"), {"image": images()}
NEST = {"features": spec([None, 4, 3]), "style": spec([None, 2], tf.int32)}
NESTED = {"features": features(), "style": np.ones([3, 2], "int32")}
FEATURES = {"source": features()}
TOKENS = {"source": np.array([[4, 5, 3], [6, 3, 0], [7, 8, 3]], "int32")}
Blind = functools.partial(Captioner, attend=False)
Small = functools.partial(kl.Seq2Seq, kl.Seq2SeqConfig(9, 9, units=4))
CASES = {  # what makes the model, its source's spec, sources, and the search
    "images": (Captioner, IMAGES, IMAGE, SEARCH),
    "without attention": (Blind, IMAGES, IMAGE, SEARCH),
    "features": (Transcriber, spec([None, None, 3]), FEATURES, GREEDY),
    "features, known length": (Transcriber, spec([None, 4, 3]), FEATURES, PENALIZED),
    "a nest": (Both, NEST, NESTED, SEARCH),
    "ids": (Small, spec([None, None], tf.int32), TOKENS, ANY_LENGTH),
    "ids, known length": (Small, spec([None, 3], tf.int32), TOKENS, ANY_LENGTH),
}


def asked(generator, inputs):
    """What a generator says of sources by name."""
    nested = isinstance(generator.source, dict)
    return generator(inputs if nested else next(iter(inputs.values())))


def outputs_of(hypotheses):
    left_out = ["weights"] * (hypotheses.weights.shape[-1] == 0)
    return {*hypotheses._fields}.difference(left_out)


def assert_same(said, expected, pad_id):
    expected = {k: v.numpy() for k, v in expected._asdict().items()}
    T = expected["ids"].shape[2]
    for name in said.keys() & {"ids", "weights", "token_log_probs"}:
        rest = said[name][:, :, T:]
        assert (rest == (pad_id if name == "ids" else 0)).all()
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
    path = kl.export_saved_model(
        generator, folder / "model", max_batch_size=4, metadata=about
    )
    return generator, inputs, path, kl.export_tflite(generator, folder / "x.tflite")


every_case = pytest.mark.parametrize(
    "exported", slow_but(CASES, "features"), indirect=True
)


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
    assert about["source"].keys() == inputs.keys() and about["x"] == 1
    assert about["max_batch_size"] == 4 and "Search(" in about["search"]
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["keras_luong.json"]
        of_file = json.loads(archive.read("keras_luong.json"))
    assert of_file["source"] == about["source"] and of_file["quantize"] is None
    search = generator.search
    ids = {"bos": search.bos_id, "eos": search.eos_id, "pad": search.pad_id}
    assert of_file["special_ids"] == ids
    assert of_file["n_best"] == getattr(search, "n_best", 1)


def test_the_sources_names_shapes_and_types():
    export = exported_of(kl.SequenceGenerator(Both(), NEST, SEARCH))
    assert export.about["source"] == {
        "features": {"shape": [None, 4, 3], "dtype": "float32"},
        "style": {"shape": [None, 2], "dtype": "int32"},
    }


@pytest.mark.parametrize(
    ("search", "change", "error", "message"),
    [
        (kl.RandomSampling(**IDS), {}, TypeError, "a BeamSearch or a Greedy"),
        (SEARCH, {"source_length": 4}, ValueError, "is for a Translator.*: 4"),
    ],
)
def test_what_a_file_cannot_be(search, change, error, message, tmp_path):
    generator = kl.SequenceGenerator(Captioner(), IMAGES, search)
    with pytest.raises(error, match=message):
        kl.export_tflite(generator, tmp_path / "x.tflite", **change)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_half_precision_is_refused_by_name(tmp_path):
    keras.config.set_dtype_policy("mixed_float16")  # until the test's end
    generator = kl.SequenceGenerator(Captioner(), IMAGES, SEARCH)
    keras.config.set_dtype_policy("float32")
    with pytest.raises(ValueError, match="in half precision, so that a model must"):
        kl.export_tflite(generator, tmp_path / "x.tflite")
