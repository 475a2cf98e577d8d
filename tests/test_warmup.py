"""The requests that a server sends itself before it takes others'."""

from __future__ import annotations

import builtins
from types import SimpleNamespace

import pytest
import tensorflow as tf
from own_models import IDS, Both, Transcriber
from small_translator import word_translator

from keras_luong import export_saved_model
from keras_luong.decoding import BeamSearch, GreedySearch, SequenceGenerator
from keras_luong.export import saved_model, warm_up
from keras_luong.export.warmup import WARMUP, replay_warmup

NAMES = ["serving_default", "n_best", "align", "score", "ids", "constrain"]
TEXTS = ["the red dog", "", b"the \xff cat", "\ud800"]


@pytest.mark.slow
def test_they_are_written_where_serving_looks_and_answered(tmp_path, monkeypatch):
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    translator = word_translator()
    found = []

    def replay(path):
        found.append(replay_warmup(path))
        return found[-1]

    monkeypatch.setattr(saved_model, "replay_warmup", replay)
    path = export_saved_model(translator, tmp_path / "dogs", warmup=TEXTS)
    (answers,) = found  # before it was published
    file = path / "assets.extra" / "tf_serving_warmup_requests"
    assert file == path / WARMUP
    logs = [
        apis.PredictionLog.FromString(record.numpy())
        for record in tf.data.TFRecordDataset(str(file))
    ]
    assert all(x.WhichOneof("log_type") == "predict_log" for x in logs)
    specs = [x.predict_log.request.model_spec for x in logs]
    assert {spec.name for spec in specs} == {"dogs"}
    assert [spec.signature_name for spec in specs] == NAMES
    assert set(answers) == set(NAMES) == set(tf.saved_model.load(path).signatures)
    assert all(len(x) == len(TEXTS) for said in answers.values() for x in said.values())
    said = answers["serving_default"]["translation"].numpy()
    assert [x.decode() for x in said] == [t.text for t in translator.translate(TEXTS)]


@pytest.mark.parametrize(
    ("warmup", "error", "message"),
    [
        ("a dog", TypeError, "`warmup` must be a list .* single 'a dog'"),
        ([3], TypeError, "`warmup` must hold str or bytes. Received: int 3"),
        (["a"] * 3, ValueError, "at most max_batch_size=2 texts. Received: 3"),
    ],
)
def test_wrong_texts(warmup, error, message, tmp_path):
    with pytest.raises(error, match=message):
        export_saved_model(word_translator(), tmp_path, warmup=warmup, max_batch_size=2)
    assert not list(tmp_path.iterdir())


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    load = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("tensorflow_serving"):
            raise ModuleNotFoundError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModuleNotFoundError, match=r"keras_luong\[serving\]"):
        export_saved_model(word_translator(), tmp_path, warmup=TEXTS)
    assert not list(tmp_path.iterdir())


class Counted:
    """A signature that keeps what it was asked."""

    def __init__(self, function):
        self.function, self.asked = function, []
        self.structured_input_signature = function.structured_input_signature

    def __call__(self, **inputs):
        self.asked.append(inputs)
        return self.function(**inputs)


class Loaded:
    """What was loaded, with its signatures counted."""

    def __init__(self, path):
        signatures = tf.saved_model.load(path).signatures
        self.signatures = {name: Counted(x) for name, x in signatures.items()}


@pytest.mark.slow
def test_warm_up_asks_every_signature_for_one_sentence_and_for_two(tmp_path):
    translator = word_translator(BeamSearch(2, max_length=6))
    loaded = Loaded(export_saved_model(translator, tmp_path))
    serve = loaded.signatures["serving_default"].function
    before = serve(text=tf.constant(["the dog", ""]))
    warm_up(loaded)
    assert sorted(loaded.signatures) == sorted(NAMES)
    for signature in loaded.signatures.values():
        _, specs = signature.structured_input_signature
        for asked, size in zip(signature.asked, (1, 2), strict=True):
            assert asked.keys() == specs.keys()
            assert {len(x) for x in asked.values()} == {size}
    after = serve(text=tf.constant(["the dog", ""]))
    for name, x in before.items():
        assert x.numpy().tolist() == after[name].numpy().tolist()


def test_warm_up_asks_a_generators_signature_too(tmp_path):
    source = {
        "features": tf.TensorSpec([None, 4, 3]),
        "style": tf.TensorSpec([None, None], tf.int32),
    }
    generator = SequenceGenerator(Both(), source, GreedySearch(5, **IDS))
    loaded = Loaded(export_saved_model(generator, tmp_path))
    warm_up(loaded)
    asked = loaded.signatures["serving_default"].asked
    assert [x["features"].shape for x in asked] == [(1, 4, 3), (2, 4, 3)]


@pytest.mark.slow
def test_warm_up_asks_for_one_alone_where_no_more_are_taken(tmp_path):
    source = tf.TensorSpec([None, None, 3])
    generator = SequenceGenerator(Transcriber(), source, GreedySearch(5, **IDS))
    path = export_saved_model(generator, tmp_path, max_batch_size=1)
    warm_up(tf.saved_model.load(path))


def test_warm_up_hides_no_other_failure():
    class Failing:
        structured_input_signature = (), {"text": tf.TensorSpec([None], tf.string)}

        def __call__(self, text):
            raise tf.errors.InvalidArgumentError(None, None, "A table is missing")

    loaded = SimpleNamespace(signatures={"serving_default": Failing()})
    with pytest.raises(tf.errors.InvalidArgumentError, match="A table is missing"):
        warm_up(loaded)


def test_warm_up_wants_what_was_loaded():
    with pytest.raises(TypeError, match="must be what tf.saved_model.load returns"):
        warm_up("models/mine/1")
