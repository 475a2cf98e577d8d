from __future__ import annotations

import json

import keras
import pytest

from keras_luong.config.models import Seq2SeqConfig
from keras_luong.decoding.beam import BeamSearch
from keras_luong.files import write_json
from keras_luong.models.seq2seq import Seq2Seq
from keras_luong.runs.run import (
    FORMAT,
    check_config,
    check_settings,
    read_record,
    write_record,
)

SETTINGS = {"units": 8, "epochs": 3, "data": "phrases"}


@pytest.fixture(scope="module")
def model():
    return Seq2Seq(Seq2SeqConfig(8, 9, units=8))


@pytest.fixture
def run(model, tmp_path):
    """A run directory with a record."""
    write_record(tmp_path / "run", model, BeamSearch(3), 20, SETTINGS)
    return tmp_path / "run"


class TestSettings:
    def test_same_settings_go_on(self, run):
        assert check_settings(run, SETTINGS) is True
        assert check_settings(run, {**SETTINGS, "epochs": 9}, ["epochs"]) is True

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
            check_settings(run, settings, ["epochs"])

    def test_another_model_is_refused(self, run):
        """Its preset may have been changed since."""
        check_config(run, Seq2SeqConfig(8, 9, units=8))
        with pytest.raises(ValueError, match="other options.*dropout: 0.2 there, 0.5"):
            check_config(run, Seq2SeqConfig(8, 9, units=8, dropout=0.5))

    def test_new_directories(self, tmp_path):
        assert check_settings(tmp_path / "new", SETTINGS) is False
        assert check_settings(tmp_path, SETTINGS) is False  # empty
        (tmp_path / "tokenizer").mkdir()  # of a run that was stopped at once
        for name in (".lock", ".lock.owner", ".12-ab.run.json"):
            (tmp_path / name).touch()
        assert check_settings(tmp_path, SETTINGS) is False

    def test_what_is_no_run_is_left_alone(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("")
        with pytest.raises(ValueError, match="not empty.*thesis.tex"):
            check_settings(tmp_path, SETTINGS)
        with pytest.raises(ValueError, match="is a file"):
            check_settings(tmp_path / "thesis.tex", SETTINGS)

    def test_tuples_are_lists_in_the_file(self, tmp_path, model):
        settings = {"sizes": (1, 2)}
        write_record(tmp_path, model, BeamSearch(), 5, settings)
        assert check_settings(tmp_path, settings) is True


def test_refuses_a_model_that_cannot_be_reloaded(tmp_path):
    class Mine(keras.Model):
        pass

    with pytest.raises(ValueError, match="Mine.*register_keras_serializable"):
        write_record(tmp_path, Mine(), BeamSearch(), 5, {})
    assert list(tmp_path.iterdir()) == []


def test_record_says_who_wrote_it(run):
    record = read_record(run)
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
