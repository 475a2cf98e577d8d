from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_luong
from keras_luong.decoding.beam import BeamSearch
from keras_luong.models.config import Seq2SeqConfig
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.averaging import EPOCH_WEIGHTS
from keras_luong.runs.directory import (
    RunDirectory,
    check_settings,
    write_record,
)
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

SCRIPT = Path(__file__).parent.parent / "examples" / "average_checkpoints.py"
SPEC = importlib.util.spec_from_file_location("average_checkpoints", SCRIPT)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

SETTINGS = {"units": 4, "epochs": 6}


@pytest.fixture
def run(tmp_path):
    """A run of six epochs; after each, all weights are 2 to the power of its number."""
    run = RunDirectory(tmp_path / "runs" / "m")
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDE")))
    pair.save(run.tokenizer)
    model = Seq2Seq(Seq2SeqConfig(8, 9, units=4))
    write_record(run.path, model, BeamSearch(3, max_length=7), 20, SETTINGS)
    (run.path / EPOCH_WEIGHTS).parent.mkdir()
    for epoch in range(1, 7):
        for weight in model.weights:
            weight.assign(keras.ops.full_like(weight, 2.0**epoch))
        model.save_weights(run.path / EPOCH_WEIGHTS.format(epoch=epoch))
    return run


def weights_of(run_dir):
    """The one value that all weights have."""
    translator = keras_luong.load(run_dir)
    assert len(translator.translate(["a b", ""])) == 2
    values = np.unique(
        np.concatenate([w.ravel() for w in translator.model.get_weights()])
    )
    assert len(values) == 1
    return values[0]


def listing(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.slow
def test_the_last_five_by_default(run, capsys):
    before = listing(run.path)
    out = script.main([str(run.path)])
    assert out == run.path.with_name("m-average").resolve()
    assert weights_of(out) == (4 + 8 + 16 + 32 + 64) / 5
    printed = capsys.readouterr().out
    assert "average of 5" in printed and "epoch-0002" in printed
    assert "epoch-0001" not in printed
    assert listing(run.path) == before and listing(run.path.parent) == [
        "m",
        "m-average",
    ]
    assert listing(out) == ["model.weights.h5", "run.json", "tokenizer"]


def test_as_many_as_asked_for_where_asked_for(run, tmp_path):
    out = tmp_path / "deep" / "down"
    assert script.main([str(run.path), "--last", "2", "--out", str(out)]) == out
    assert weights_of(out) == 48
    empty = tmp_path / "empty"
    empty.mkdir()
    script.main([str(run.path), "--last", "1", "--out", str(empty)])
    assert weights_of(empty) == 64


@pytest.mark.slow
def test_files_that_are_named(run, tmp_path):
    files = [str(run.path / EPOCH_WEIGHTS.format(epoch=i)) for i in (1, 6, 3)]
    out = tmp_path / "out"
    script.main([str(run.path), "--out", str(out), "--weights", *files])
    assert weights_of(out) == pytest.approx((2 + 64 + 8) / 3, rel=1e-6)
    settings = json.loads(RunDirectory(out).record.read_text())["settings"]
    assert settings == {**SETTINGS, "average_of": files}


def test_training_does_not_go_on_in_an_average(run):
    assert check_settings(run.path, SETTINGS)
    out = script.main([str(run.path)])
    with pytest.raises(ValueError, match="other settings.*average_of"):
        check_settings(out, SETTINGS)


def test_finds_the_runs_name_from_within(run, monkeypatch):
    monkeypatch.chdir(run.path)
    assert script.main(["."]).name == "m-average"


class TestErrors:
    def refuse(self, error, message, *args):
        with pytest.raises(error, match=message):
            script.main([str(arg) for arg in args])

    def test_there_is_nothing_to_average(self, run, tmp_path):
        self.refuse(FileNotFoundError, "fewer than the last 7", run.path, "--last", 7)
        for path in (run.path / "epochs").iterdir():
            path.unlink()
        self.refuse(FileNotFoundError, "no weights of single epochs in", run.path)
        self.refuse(FileNotFoundError, "no run directory at .*nowhere", "nowhere")
        self.refuse(FileNotFoundError, "no record of the run", tmp_path)
        assert listing(run.path.parent) == ["m"]

    def test_numbers_that_are_none(self, run, capsys):
        self.refuse(ValueError, "last must be at least 1", run.path, "--last", 0)
        self.refuse(SystemExit, "2", run.path, "--last", "3", "--weights", "a")
        assert "not allowed with" in capsys.readouterr().err

    def test_what_is_there_is_kept(self, run, tmp_path):
        script.main([str(run.path)])
        self.refuse(FileExistsError, "m-average exists and is not empty", run.path)
        file = tmp_path / "file"
        file.touch()
        self.refuse(FileExistsError, "file exists", run.path, "--out", file)

    def test_weights_of_a_larger_model(self, run, tmp_path):
        """Keras alone would load the first layer, and say nothing."""
        other = Seq2Seq(Seq2SeqConfig(8, 9, units=4, num_layers=2))
        path = tmp_path / "other.weights.h5"
        other.save_weights(path)
        message = r"it has \d+ weights, and the model \d+"
        self.refuse(ValueError, message, run.path, "--weights", path)
        assert listing(run.path.parent) == ["m"]

    @pytest.mark.filterwarnings("ignore:Skipping nested container")
    def test_weights_of_another_model(self, run, tmp_path):
        other = Seq2Seq(Seq2SeqConfig(8, 9, units=6))
        path = tmp_path / "other.weights.h5"
        other.save_weights(path)
        self.refuse(ValueError, "another model", run.path, "--weights", path)
        good = run.path / EPOCH_WEIGHTS.format(epoch=1)
        self.refuse(ValueError, r"\(4, 9\)", run.path, "--weights", path, good)
        self.refuse(FileNotFoundError, "nowhere", run.path, "--weights", "nowhere")
        assert listing(run.path.parent) == ["m"]  # nothing half done is left behind
