"""What commit 1176089 wrote still loads, and translates the same.

`data/make_release_0_1.py` made it: a run directory, a `.keras` file, a SavedModel and a
`.tflite` file of one small model with random weights.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_luong
from keras_luong.config.training import UNRECORDED, TrainingConfig
from keras_luong.runs.record import check_settings

DATA = Path(__file__).parent / "data" / "release_0_1.tar.xz"


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    path = tmp_path_factory.mktemp("old")
    with tarfile.open(DATA) as archive:
        archive.extractall(path, filter="data")
    return path


@pytest.fixture(scope="module")
def expected(old):
    return json.loads((old / "expected.json").read_text())


def check(translations, expected):
    for hypotheses, one in zip(translations, expected, strict=True):
        assert [t.text for t in hypotheses] == [text for text, *_ in one["hypotheses"]]
        assert [t.tokens for t in hypotheses] == [row[2] for row in one["hypotheses"]]
        scores = [row[1] for row in one["hypotheses"]]
        np.testing.assert_allclose([t.score for t in hypotheses], scores, atol=1e-4)


def test_the_run_directory(old, expected):
    translator = keras_luong.load(old / "run")
    texts = [one["source"] for one in expected]
    check(translator.translate(texts, n_best=True), expected)


@pytest.mark.parametrize("target", ["de", "fr"])
def test_a_training_goes_on_in_the_run_directory_if_it_is_the_same(old, target):
    config = TrainingConfig.from_preset(
        "small", data="phrases", source="en", target=target, epochs=3
    )
    written = json.loads((old / "run" / "run.json").read_text())["settings"]
    config = config.as_begun(written)
    names = [*written, *UNRECORDED]  # not all there are
    settings = {name: config.settings()[name] for name in names}
    if target == "de":
        assert check_settings(old / "run", settings, config.free, config.implied)
        return
    with pytest.raises(ValueError, match="differ in target: 'de' there, 'fr' now$"):
        check_settings(old / "run", settings, config.free, config.implied)


def test_the_keras_file(old):
    model = keras.models.load_model(old / "model.keras")
    known = json.loads((old / "logits.json").read_text())
    ids = {side: np.array(known[side], "int32") for side in ("source", "target")}
    np.testing.assert_allclose(model(ids)[:, :, :5], known["logits"], atol=1e-4)
    assert isinstance(model.loss, keras_luong.SequenceCrossentropy)


def test_the_saved_model(old, expected):
    import tensorflow_text  # noqa: F401 (SentencePiece's ops)

    model = tf.saved_model.load(str(old / "saved_model" / "1"))
    texts = tf.constant([one["source"] for one in expected])
    said = model.signatures["serving_default"](text=texts)
    best = [one["hypotheses"][0] for one in expected]
    assert [text.decode() for text in said["translation"].numpy()] == [
        text for text, *_ in best
    ]
    np.testing.assert_allclose(said["score"], [row[1] for row in best], atol=1e-4)


def test_the_tflite_file(old, expected):
    pytest.importorskip("ai_edge_litert.interpreter")
    edge = pytest.importorskip("keras_luong_edge")
    translator = edge.EdgeTranslator(old / "model.tflite")
    texts = [one["source"] for one in expected]
    check(translator.translate(texts, n_best=True), expected)
