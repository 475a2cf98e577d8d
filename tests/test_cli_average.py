"""The average of a run's epochs as a run; see test_averaging.py."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from commands import run
from small_translator import word_translator, written_run

from keras_luong.decoding import BeamSearch
from keras_luong.runs.average import EPOCH_WEIGHTS
from keras_luong.runs.load_save import load
from keras_luong.runs.run import read_record


@pytest.fixture(params=[6], ids="{} epochs".format)
def path(tmp_path, request):
    """A run of some epochs; after each, all weights are 2 to the power of it."""
    translator = word_translator(BeamSearch(3, max_length=7))
    written = written_run(tmp_path / "runs" / "m", translator)
    written.epochs.mkdir()
    for epoch in range(1, request.param + 1):
        for weight in translator.model.weights:
            weight.assign(keras.ops.full_like(weight, 2.0**epoch))
        translator.model.save_weights(written.path / EPOCH_WEIGHTS.format(epoch=epoch))
    return written.path


def weight_of(run_dir):
    """The one value that all weights have."""
    weights = load(run_dir).model.get_weights()
    (value,) = np.unique(np.concatenate([weight.ravel() for weight in weights]))
    return value


@pytest.mark.parametrize(
    "path, mean", [(6, (4 + 8 + 16 + 32 + 64) / 5), (2, 3)], indirect=["path"]
)
def test_up_to_five_by_default(path, mean, capsys):
    run("average", path)
    out = path.with_name("m-average")
    assert weight_of(out) == mean
    said = capsys.readouterr().out
    assert f"{out} is the average of {said.count('epoch-')}" in said
    assert ("epoch-0001" in said) == (mean == 3)


def test_as_many_as_asked_for_where_asked_for(path, tmp_path):
    run("average", path, "--last", "2", "--out", tmp_path / "deep" / "down")
    assert weight_of(tmp_path / "deep" / "down") == 48


def test_files_that_are_named(path, tmp_path):
    files = [path / EPOCH_WEIGHTS.format(epoch=i) for i in (1, 6, 3)]
    run("average", path, "--out", tmp_path / "out", "--weights", *files)
    assert weight_of(tmp_path / "out") == pytest.approx((2 + 64 + 8) / 3, rel=1e-6)
    settings = read_record(tmp_path / "out")["settings"]
    assert settings == {"epochs": 3, "average_of": list(map(str, files))}


def test_finds_the_runs_name_from_within(path, monkeypatch):
    monkeypatch.chdir(path)
    run("average", ".", "--last", "1")
    assert weight_of(path.with_name("m-average")) == 64


class TestRefusals:
    def refuse(self, error, message, *words):
        with pytest.raises(error, match=message):
            run("average", *words)

    def test_there_is_nothing_to_average(self, path, tmp_path):
        self.refuse(FileNotFoundError, "fewer than the last 7", path, "--last", 7)
        for file in (path / "epochs").iterdir():
            file.unlink()
        self.refuse(FileNotFoundError, "no weights of single epochs in", path)
        self.refuse(FileNotFoundError, "no run directory at .*nowhere", "nowhere")
        self.refuse(FileNotFoundError, "is no run directory", tmp_path)
        self.refuse(FileNotFoundError, "no file.*x", path, "--weights", "x")
        assert not path.with_name("m-average").exists()

    def test_what_is_there_is_kept(self, path):
        run("average", path)
        self.refuse(FileExistsError, "m-average exists and is not empty", path)

    def test_numbers_that_are_none(self, path, capsys):
        self.refuse(SystemExit, "2", path, "--last", 0)
        assert "--last must be at least 1. Received: 0" in capsys.readouterr().err
