from __future__ import annotations

import json
import shutil

import keras
import numpy as np
import pytest

from keras_luong.config.models import Seq2SeqConfig
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.load_save import load
from keras_luong.runs.run import FORMAT, RunDirectory, write_record
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

SETTINGS = {"units": 8, "epochs": 3, "data": "phrases"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with best and last weights, which differ, and its model's translations."""
    run = RunDirectory(tmp_path_factory.mktemp("run") / "m")
    tokenizers = TokenizerPair(
        WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE"))
    )
    keras.utils.set_random_seed(0)
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=8))
    model.compile("adam", "mse")
    tokenizers.save(run.tokenizer)
    search = BeamSearch(3, max_length=7, length_penalty=0.5)
    write_record(run.path, model, search, 20, SETTINGS)
    run.checkpoints.mkdir()
    model.save_weights(run.last_weights)
    for weight in model.weights:
        weight.assign(weight + 0.5)
    model.optimizer.build(model.trainable_variables)
    model.save_weights(run.best_weights)
    return run, model


@pytest.fixture
def run(finished, tmp_path):
    """A copy to damage."""
    shutil.copytree(finished[0].path, tmp_path / "copy")
    return RunDirectory(tmp_path / "copy")


def edit(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


@pytest.mark.slow
def test_loads_what_was_written(finished):
    run, model = finished
    translator = load(run.path)
    for a, b in zip(translator.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert translator.model.config == model.config
    assert translator.search == BeamSearch(3, max_length=7, length_penalty=0.5)
    assert translator.max_source_length == 20
    assert translator.tokenizers.source.words == list("abcd")
    assert len(translator.translate(["a b", ""])) == 2


def test_last_weights_and_another_search(finished):
    run, model = finished
    translator = load(str(run.path), weights="last", search=GreedySearch(5))
    assert translator.search == GreedySearch(5)
    for a, b in zip(translator.model.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(a, b - 0.5, atol=1e-6)


def test_new_weights(run):
    weights = load(run.path).model.get_weights()
    run.best_weights.unlink()
    model = load(run.path, weights=None).model
    assert model.get_weights()[0].shape == weights[0].shape
    assert not np.array_equal(model.get_weights()[0], weights[0])


def test_another_precision(run):
    weights = load(run.path).model.get_weights()
    model = load(run.path, dtype="mixed_bfloat16").model
    assert model.dtype_policy.name == "mixed_bfloat16"
    for one, other in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="float33"):
        load(run.path, dtype="float33")


@pytest.mark.parametrize(
    "part, message",
    [
        ("record", "is no run directory, as it has no run.json"),
        ("tokenizer", "no directory of tokenizers"),
        ("best_weights", "best weights at .*model.weights.h5; put it back; .*last"),
    ],
)
def test_names_the_missing_part(run, part, message):
    path = getattr(run, part)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(FileNotFoundError, match=message):
        load(run.path)


def test_names_a_missing_tokenizer(run):
    (run.tokenizer / "target.txt").unlink()
    with pytest.raises(FileNotFoundError, match="target.txt"):
        load(run.path)


def test_without_any_weights_or_any_run(run, tmp_path):
    run.best_weights.unlink()
    run.last_weights.unlink()
    for weights in ("best", "last"):
        with pytest.raises(FileNotFoundError, match=f"{weights} weights.*no epoch"):
            load(run.path, weights)
    with pytest.raises(FileNotFoundError, match="no run directory at .*nowhere"):
        load(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="run_dir must be a path. Received: None"):
        load(None)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format": FORMAT + 1, "library": "keras_luong 9.9"}, "by keras_luong 9.9"),
        ({"format": None}, "no format version"),
        ({"model": {"class": "other>Model", "config": {}}}, "'other>Model'.*import"),
        ({"model": {"class": "keras_luong>Seq2Seq"}}, "config"),
        ({"model": 3}, "damaged"),
        ({"search": {"beam_width": 5, "magic": 1}}, "magic"),
        ({"search": {"beam_width": 0}}, "beam_width"),
        ({"max_source_length": "long"}, "max_source_length.*'long'"),
    ],
)
def test_refuses_a_record_that_it_cannot_read(run, changes, message):
    edit(run.record, **changes)
    with pytest.raises(ValueError, match=message):
        load(run.path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '{"format": 1}', "\x00"])
def test_refuses_a_damaged_record(run, text):
    run.record.write_text(text)
    with pytest.raises(ValueError, match="run.json is damaged"):
        load(run.path)


@pytest.mark.parametrize(
    "changes",
    [
        {"units": 12},
        {"num_layers": 2},
        {"attention": None},
        {"tie_embeddings": "target"},
        {"bidirectional": False},
        {"score_mode": "dot"},
    ],
)
def test_refuses_weights_of_another_model(run, changes):
    other = Seq2Seq(Seq2SeqConfig(8, 9, **{"units": 8, **changes}))
    other.save_weights(run.best_weights)
    with pytest.raises(ValueError, match="model.weights.h5 .*another model"):
        load(run.path)


@pytest.mark.parametrize("keep", [0, 100, 3000])
def test_refuses_damaged_weights(run, keep):
    run.best_weights.write_bytes(run.best_weights.read_bytes()[:keep])
    with pytest.raises(ValueError, match="model.weights.h5 is damaged"):
        load(run.path)


def test_refuses_unknown_weights(run):
    with pytest.raises(ValueError, match="one of .'best', 'last'.*'newest'"):
        load(run.path, "newest")
