from __future__ import annotations

import json
import shutil

import keras
import numpy as np
import pytest

from keras_luong.config.seq2seq import Seq2SeqConfig
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.files import write_json
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.directory import RunDirectory, read_history, read_results
from keras_luong.runs.loading import load
from keras_luong.runs.record import (
    FORMAT,
    check_config,
    check_settings,
    read_record,
    write_record,
)
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
        ("record", "no record of the run at .*run.json"),
        ("tokenizer", "no directory of tokenizers"),
        ("best_weights", "best weights at .*model.weights.h5; weights='last'"),
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


class TestSettings:
    def test_same_settings_go_on(self, run):
        assert check_settings(run.path, SETTINGS) is True
        assert check_settings(run.path, {**SETTINGS, "epochs": 9}, ["epochs"]) is True

    @pytest.mark.parametrize(
        "settings, message",
        [
            ({**SETTINGS, "units": 9}, "units: 8 there, 9 now"),
            ({**SETTINGS, "dropout": 0.2}, "dropout: None there, 0.2 now"),
            ({"units": 8, "epochs": 3}, "data: 'phrases' there, None now"),
        ],
    )
    def test_other_settings_are_refused(self, run, settings, message):
        with pytest.raises(ValueError, match=message):
            check_settings(run.path, settings, ["epochs"])

    def test_another_model_is_refused(self, run):
        """Its preset may have been changed since."""
        check_config(run.path, Seq2SeqConfig(8, 9, units=8))
        with pytest.raises(ValueError, match="other options.*dropout: 0.2 there, 0.5"):
            check_config(run.path, Seq2SeqConfig(8, 9, units=8, dropout=0.5))
        record = read_record(run.path)
        del record["model"]["config"]["config"]["dropout"]  # older than the option
        write_json(run.record, record)
        check_config(run.path, Seq2SeqConfig(8, 9, units=8, dropout=0.5))

    def test_new_directories(self, tmp_path):
        assert check_settings(tmp_path / "new", SETTINGS) is False
        assert check_settings(tmp_path, SETTINGS) is False  # empty
        (tmp_path / "tokenizer").mkdir()  # of a run that was stopped at once
        assert check_settings(tmp_path, SETTINGS) is False

    def test_what_is_no_run_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(ValueError, match="not empty.*thesis.tex"):
            check_settings(tmp_path, SETTINGS)
        with pytest.raises(ValueError, match="is a file"):
            check_settings(tmp_path / "thesis.tex", SETTINGS)

    def test_tuples_are_lists_in_the_file(self, tmp_path, finished):
        settings = {"sizes": (1, 2)}
        write_record(tmp_path, finished[1], BeamSearch(), 5, settings)
        assert check_settings(tmp_path, settings) is True


def test_refuses_a_model_that_cannot_be_reloaded(tmp_path):
    class Mine(keras.Model):
        pass

    with pytest.raises(ValueError, match="Mine.*register_keras_serializable"):
        write_record(tmp_path, Mine(), BeamSearch(), 5, {})
    assert list(tmp_path.iterdir()) == []


def test_record_says_who_wrote_it(finished):
    record = read_record(finished[0].path)
    assert record["format"] == FORMAT
    assert record["library"].startswith("keras_luong ")
    assert record["settings"] == SETTINGS


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": "ü"})
    for bad in ({"a": float("nan")}, {"a": object()}):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, bad)
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": "ü"}
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]


def test_history(tmp_path):
    assert read_history(tmp_path) == []
    path = RunDirectory(tmp_path).history
    path.write_text('{"epoch": 1}\n{"epoch": 2}\n')
    assert read_history(tmp_path) == [{"epoch": 1}, {"epoch": 2}]
    path.write_text('{"epoch": 1}\n{"epo')
    with pytest.raises(ValueError, match="line 2 is damaged"):
        read_history(tmp_path)


def test_results(tmp_path):
    assert read_results(tmp_path) is None
    RunDirectory(tmp_path).results.write_text('{"test": {"bleu": 1.5}}')
    assert read_results(tmp_path) == {"test": {"bleu": 1.5}}
    RunDirectory(tmp_path).results.write_text('{"test"')
    with pytest.raises(ValueError, match="results.json is damaged"):
        read_results(tmp_path)
