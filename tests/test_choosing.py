"""`train` with the corpus alone: what is chosen, said, kept, and refused."""

from __future__ import annotations

import pytest
from small_training import write_corpus

from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.runs.run import read_history, read_record
from keras_luong.runs.train import train

TINY = {"units": 8, "tokenizer": "word", "steps_per_epoch": 6, "batch_tokens": 60}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=40, val=7)
    return directory


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A run of one epoch, by its directory."""
    path = tmp_path_factory.mktemp("runs") / "run"
    train(AutoTraining(str(data), "xx", "yy", given={**TINY, "epochs": 1}), path)
    return path


def test_what_is_chosen_is_recorded(run):
    record = read_record(run)
    settings = record["settings"]
    assert settings["preset"] == "auto" and settings["monitor"] == "val_bleu"
    assert settings["vocab_size"] == 1000 and settings["dropout"] > 0
    assert (settings["units"], settings["source"]) == (8, "xx")
    counted = record["corpus"]["train"]
    assert counted["parts"] == 1 and counted["passes"] >= 1
    assert counted["source_tokens"] == counted["target_tokens"] > 40 * 4


@pytest.mark.slow
def test_a_run_goes_on_with_what_was_chosen(run, data, capsys):
    more = AutoTraining(str(data), given={"epochs": 2})
    train(more, run)  # and with the languages, which are not given again
    out = capsys.readouterr().out
    assert "Going on after epoch 1." in out and "chosen for" not in out
    assert [line["epoch"] for line in read_history(run)] == [1, 2]
    assert read_record(run)["settings"]["units"] == 8


def test_what_is_given_anew_is_refused_if_it_makes_another_run(run, data):
    with pytest.raises(ValueError, match="units: 8 there, 16 now"):
        train(AutoTraining(str(data), given={"units": 16}), run)


@pytest.mark.slow
def test_a_run_of_a_preset_is_not_taken_for_one_of_auto(data, tmp_path):
    settings = {**TINY, "optimizer": "adam", "epochs": 1}
    languages = {"source": "xx", "target": "yy"}
    config = TrainingConfig.from_preset(
        "small", data=str(data), **languages, **settings
    )
    train(config, tmp_path / "run")
    with pytest.raises(ValueError, match="--preset small to go on"):
        train(AutoTraining(str(data), "xx", "yy"), tmp_path / "run")


@pytest.mark.slow
def test_says_what_it_chose_and_shows_translations(data, tmp_path, capsys):
    given = {**TINY, "epochs": 1}
    train(AutoTraining(str(data), "xx", "yy", given=given), tmp_path / "run")
    out = capsys.readouterr().out
    assert "chosen for 40 pairs" in out
    (units,) = [line for line in out.splitlines() if line.startswith("  units ")]
    assert units.split()[1] == "8" and "as given" in units
    shown = out[out.index("validation   BLEU") :]
    assert shown.count("  translation  ") == 5
