"""Models of a user's own, as SavedModels and `.tflite` files: sources in, ids out."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_models import IDS, Both, Captioner, Transcriber, features, images

import keras_luong as kl
from keras_luong.export import saved_model
from keras_luong.export.saved_model import METADATA

SEARCH = kl.BeamSearch(3, n_best=2, max_length=5, **IDS)
IMAGES = tf.TensorSpec([None, 7, 7, 1], name="image")
NEST = {
    "features": tf.TensorSpec([None, 4, 3]),
    "style": tf.TensorSpec([None, 2], tf.int32),
}
LOWEST = np.finfo("float32").min


def nest(count=3):
    return {"features": features(count), "style": np.ones([count, 2], "int32")}


def ids_model():
    return kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))


def ids():
    return np.array([[4, 5, 3], [6, 3, 0], [7, 8, 3]], "int32")


def case(make, spec, source, search=SEARCH, slow=True):
    marks = [pytest.mark.slow] * slow
    return pytest.param(make, spec, source, search, marks=marks)


CASES = {
    "images": case(Captioner, IMAGES, lambda: {"image": images()}),
    "without attention": case(
        lambda: Captioner(attend=False), IMAGES, lambda: {"image": images()}
    ),
    "features": case(
        Transcriber,
        tf.TensorSpec([None, None, 3]),
        lambda: {"source": features()},
        kl.GreedySearch(5, **IDS),
        slow=False,
    ),
    "features, known length": case(
        Transcriber, tf.TensorSpec([None, 4, 3]), lambda: {"source": features()}
    ),
    "padding is no 0": case(
        Captioner,
        IMAGES,
        lambda: {"image": images()},
        kl.BeamSearch(3, 2, max_length=5, bos_id=0, eos_id=1, pad_id=5),
    ),
    "coverage": case(
        Captioner,
        IMAGES,
        lambda: {"image": images()},
        kl.BeamSearch(3, 2, max_length=5, coverage_penalty=0.2, **IDS),
    ),
    "a nest": case(Both, NEST, nest),
    "ids": case(
        ids_model,
        tf.TensorSpec([None, None], tf.int32),
        lambda: {"source": ids()},
        kl.BeamSearch(3, max_length=None),
    ),
    "ids, known length": case(
        ids_model,
        tf.TensorSpec([None, 3], tf.int32),
        lambda: {"source": ids()},
        kl.BeamSearch(3, max_length=None),
    ),
}
every_case = pytest.mark.parametrize(
    ("make", "spec", "source", "search"), CASES.values(), ids=CASES
)


def asked(generator, inputs):
    """What a generator says of sources by name."""
    nested = isinstance(generator.source, dict)
    return generator(inputs if nested else next(iter(inputs.values())))


def assert_same(said, expected, pad_id):
    expected = {k: v.numpy() for k, v in expected._asdict().items()}
    T = expected["ids"].shape[2]
    for name in said.keys() & {"ids", "weights", "token_log_probs"}:
        rest = said[name][:, :, T:]
        assert (rest == (pad_id if name == "ids" else 0)).all()
        said[name] = said[name][:, :, :T]
    np.testing.assert_array_equal(said["ids"], expected["ids"])
    np.testing.assert_array_equal(said["lengths"], expected["lengths"])
    for name in said.keys() - {"ids", "lengths"}:
        x = np.maximum(expected[name], LOWEST)
        np.testing.assert_allclose(said[name], x, rtol=1e-4, atol=1e-4)


@every_case
def test_keras_is_saved_model_is_litert(make, spec, source, search, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    generator, inputs = kl.SequenceGenerator(make(), spec, search), source()
    expected = asked(generator, inputs)
    path = kl.export_saved_model(generator, tmp_path / "model")
    serve = tf.saved_model.load(path).signatures["serving_default"]
    said = serve(**{name: tf.constant(x) for name, x in inputs.items()})
    outputs = {*expected._fields}
    if expected.weights.shape[-1] == 0:
        outputs -= {"weights"}
    assert said.keys() == outputs
    assert_same({name: x.numpy() for name, x in said.items()}, expected, search.pad_id)
    path = kl.export_tflite(generator, tmp_path / "x.tflite")
    specs = tf.nest.flatten(spec)
    if not all(x.shape[1:].is_fully_defined() for x in specs):
        outputs -= {"weights"}
    for row in range(2):
        one = {name: x[row : row + 1] for name, x in inputs.items()}
        # Of an unknown shape: see `export_tflite`.
        run = interpreter.Interpreter(str(path)).get_signature_runner()
        said = run(**one)
        assert said.keys() == outputs
        assert_same(said, asked(generator, one), search.pad_id)


READER = """
import json, sys
import tensorflow as tf
import numpy as np
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
said = serve(image=tf.constant(np.load(sys.argv[2])))
assert "keras_luong" not in sys.modules
print(json.dumps(said["ids"].numpy().tolist()))
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A generator, the directory of its SavedModel, and its `.tflite` file."""
    generator = kl.SequenceGenerator(Captioner(), IMAGES, SEARCH)
    generator(images())
    directory = tmp_path_factory.mktemp("exports")
    path = kl.export_saved_model(
        generator, directory / "model", max_batch_size=4, metadata={"x": 1}
    )
    return generator, path, kl.export_tflite(generator, directory / "x.tflite", "int8")


@pytest.mark.slow
def test_plain_tensorflow_and_nothing_else_runs_it(exported, tmp_path):
    generator, path, _ = exported
    np.save(tmp_path / "images.npy", images())
    command = [sys.executable, "-I", "-c", READER, str(path), tmp_path / "images.npy"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == generator(images()).ids.numpy().tolist()


def test_all_variables_are_saved(exported):
    generator, path, _ = exported
    names = dict(tf.train.list_variables(str(path / "variables" / "variables")))
    sizes = sorted(np.prod(shape) for name, shape in names.items() if "weights" in name)
    assert sizes == sorted(np.prod(x.shape) for x in generator.model.weights)


def test_what_it_says_of_itself(exported):
    _, path, file = exported
    about = json.loads((path / METADATA).read_text())
    source = {"image": {"shape": [None, 7, 7, 1], "dtype": "float32"}}
    assert about["source"] == source and about["x"] == 1
    assert about["max_batch_size"] == 4 and "BeamSearch(beam_width=3" in about["search"]
    with zipfile.ZipFile(file) as archive:
        assert archive.namelist() == ["keras_luong.json"]
        about = json.loads(archive.read("keras_luong.json"))
    assert about["source"] == source and about["quantize"] == "int8"
    assert about["special_ids"] == {"bos": 1, "eos": 2, "pad": 0}
    assert about["n_best"] == 2


@pytest.mark.slow
def test_a_request_has_a_limit_and_a_shape(exported):
    _, path, _ = exported
    serve = tf.saved_model.load(path).signatures["serving_default"]
    for count in (0, 1, 4):
        said = serve(image=tf.zeros([count, 7, 7, 1]))
        assert said["ids"].shape[:2] == (count, 2)
        assert np.isfinite(said["scores"]).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="too many"):
        serve(image=tf.zeros([5, 7, 7, 1]))


@pytest.mark.slow
def test_warmup_is_a_batch_of_sources(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_serving")
    generator = kl.SequenceGenerator(Captioner(), IMAGES, kl.GreedySearch(3, **IDS))
    said = []
    replay = saved_model.replay_warmup

    def replayed(path):
        said.append(replay(path))
        return said[-1]

    monkeypatch.setattr(saved_model, "replay_warmup", replayed)
    kl.export_saved_model(generator, tmp_path / "m", warmup=images())
    found = said[0]["serving_default"]["ids"]
    np.testing.assert_array_equal(found, generator(images()).ids)
    monkeypatch.setattr(
        saved_model,
        "replay_warmup",
        lambda path: {"serving_default": {"ids": found + 1}},
    )
    with pytest.raises(
        RuntimeError, match="ids for source 0, .* is array.*, the library's array"
    ):
        kl.export_saved_model(generator, tmp_path / "n", warmup=images())
    with pytest.raises(ValueError, match="at most max_batch_size=2"):
        kl.export_saved_model(
            generator, tmp_path / "n", warmup=images(), max_batch_size=2
        )
    assert not (tmp_path / "n" / "1").exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"search": kl.RandomSampling(**IDS)}, TypeError, "a BeamSearch or a Greedy"),
        ({"source_length": 4}, ValueError, "source_length is for a Translator.*: 4"),
    ],
)
def test_what_a_file_cannot_be(change, error, message, tmp_path):
    search = change.pop("search", SEARCH)
    generator = kl.SequenceGenerator(Captioner(), IMAGES, search)
    with pytest.raises(error, match=message):
        kl.export_tflite(generator, tmp_path / "x.tflite", **change)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_half_precision_is_refused_by_name(tmp_path):
    usual = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        generator = kl.SequenceGenerator(Captioner(), IMAGES, SEARCH)
    finally:
        keras.config.set_dtype_policy(usual)
    with pytest.raises(ValueError, match="in half precision, so that a model must"):
        kl.export_tflite(generator, tmp_path / "x.tflite")


class Blind:
    """A translation model without attention, which says so."""

    def __init__(self):
        self.model = ids_model()

    def encode(self, source):
        return self.model.encode(source)

    def step(self, tokens, state, memory):
        logits, state, _ = self.model.step(tokens, state, memory)
        return logits, state, None


@pytest.mark.slow
@pytest.mark.parametrize("source_length", [None, 6])
def test_a_translator_without_attention_has_alignments_of_zeros(
    source_length, tmp_path
):
    edge = pytest.importorskip("keras_luong_edge")
    tokenizer = kl.WordTokenizer(["a", "b", "c", "d", "e"])
    search = kl.BeamSearch(2, max_length=4)
    translator = kl.Translator(Blind(), tokenizer, search, max_source_length=5)
    (expected,) = translator.translate(["a b"])
    assert expected.alignment.shape == (len(expected.tokens), 3)
    assert not expected.alignment.any()
    path = kl.export_tflite(
        translator, tmp_path / "x.tflite", source_length=source_length
    )
    (said,) = edge.EdgeTranslator(path).translate(["a b"])
    assert said.tokens == expected.tokens
    np.testing.assert_array_equal(said.alignment, expected.alignment)
