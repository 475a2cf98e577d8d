"""The script that writes a corpus with the teachers' translations."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong.training.run_directory import (
    RunDirectory,
    load,
    read_history,
    read_record,
    write_json,
)

EXAMPLES = Path(__file__).parent.parent / "examples"
SPEC = importlib.util.spec_from_file_location(
    "distill_corpus", EXAMPLES / "distill_corpus.py"
)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.fixture
def data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    return data


def test_translates_the_runs_own_corpus(data, tmp_path, capsys):
    for side in ("en", "de"):
        for split in ("train", "val"):
            (data / f"{split}.{side}").write_text("the red dog\nthe cat\n")
    run = written_run(tmp_path / "run", word_translator())
    record = read_record(run.path)
    record["settings"] = {"data": str(data), "source": "en", "target": "de"}
    write_json(run.record, record)
    out = script.main([str(run.path), "--out", str(tmp_path / "d")])
    said = load(run.path).translate(["the red dog", "the cat"])
    lines = (out / "train.de").read_text().splitlines()
    assert lines == ["the red dog", said[0].text, "the cat", said[1].text]
    assert (out / "validation.de").read_text() == "the red dog\nthe cat\n"
    assert "translate data, train" in capsys.readouterr().out


@pytest.mark.parametrize(
    "flags, message",
    [(["--batch_size", "0"], "Received: 0"), ([], "must be a new directory")],
)
def test_wrong_flags_are_refused_first(tmp_path, flags, message, capsys):
    out = tmp_path / "d"
    if not flags:
        out.mkdir()
    with pytest.raises(SystemExit):
        script.main(["nowhere", "--out", str(out), *flags])
    assert message in capsys.readouterr().err


def train_distilled(out, *flags):
    """Runs the shell script that does it all."""
    environment = os.environ | {"PYTHON": sys.executable}
    return subprocess.run(
        ["bash", EXAMPLES / "train_distilled.sh", out, *flags],
        env=environment,
        capture_output=True,
        text=True,
    )


def test_the_whole_recipe_says_how_it_is_used(tmp_path):
    for arguments in ([], [tmp_path / "out"], ["--data", "phrases"]):
        done = subprocess.run(
            ["bash", EXAMPLES / "train_distilled.sh", *arguments],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2 and "usage: " in done.stderr


@pytest.mark.slow
def test_the_whole_recipe_goes_on_where_it_stopped(data, tmp_path):
    write_corpus(data, train=40, val=6)
    out = tmp_path / "out"
    flags = ["--data", data, "--source", "xx", "--target", "yy", "--units", "8"]
    flags += ["--tokenizer", "word", "--vocab_size", "30", "--no-shared"]
    flags += ["--tie_embeddings", "none", "--batch_tokens", "60", "--beam_width", "2"]
    first = train_distilled(out, *flags, "--epochs", "1", "--seed", "7")
    assert first.returncode == 0, first.stderr
    settings = {run.name: read_record(run)["settings"] for run in out.glob("[ts]*")}
    seeds = {name: s["seed"] for name, s in settings.items()}
    assert seeds == {"teacher1": 1, "teacher2": 2, "teacher3": 3, "student": 7}
    assert settings["student"]["data"] == str(out / "corpus")
    assert settings["student"]["constant_epochs"] == 8
    assert len((out / "corpus" / "train.xx").read_text().splitlines()) == 80
    again = train_distilled(out, *flags, "--epochs", "2", "--seed", "7")
    assert again.returncode == 0, again.stderr
    assert len(read_history(out / "student")) == 2
    assert len(read_history(out / "teacher3")) == 1  # what they said is used already
    assert RunDirectory(out / "student").results.exists()


def test_a_training_that_fails_ends_it(data, tmp_path):
    flags = ["--data", data, "--source", "xx", "--target", "yy", "--units", "0"]
    done = train_distilled(tmp_path / "out", *flags)
    assert done.returncode == 2 and "units" in done.stderr
    assert not (tmp_path / "out").exists()
