"""The requests that a server sends itself before it takes others'."""

from __future__ import annotations

import builtins

import pytest
import tensorflow as tf
from small_translator import word_translator

from keras_luong import export_saved_model
from keras_luong.export import saved_model
from keras_luong.export.warmup import WARMUP, replay_warmup

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
    assert sorted(spec.signature_name for spec in specs) == sorted(answers)
    assert set(answers) == set(tf.saved_model.load(path).signatures)
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
