"""The script that writes a corpus with the teachers' translations."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong.decoding import BeamSearch
from keras_luong.files import write_json
from keras_luong.runs.directory import RunDirectory, read_history
from keras_luong.runs.ensemble import load_ensemble
from keras_luong.runs.record import read_record

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


@pytest.fixture
def runs(data, tmp_path):
    """Two runs that say different things, and their corpus."""
    for side, line in (("en", "the red dog"), ("de", "der Hund")):
        for split in ("train", "val"):
            (data / f"{split}.{side}").write_text(f"{line}\n{line} is\n")
    rng, paths = np.random.default_rng(0), []
    for name in ("a", "b"):
        translator = word_translator(BeamSearch(2, max_length=6))
        for weight in translator.model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        run = written_run(tmp_path / name, translator)
        record = read_record(run.path)
        record["settings"] = {"data": str(data), "source": "en", "target": "de"}
        write_json(run.record, record)
        paths.append(str(run.path))
    return paths


def test_the_runs_translate_their_corpus_together(runs, tmp_path, capsys, monkeypatch):
    asked = []

    def loaded(run_dirs, dtype):
        asked.append(([str(path) for path in run_dirs], dtype))
        return load_ensemble(run_dirs, dtype)

    monkeypatch.setattr(script, "load_ensemble", loaded)
    out = script.main([*runs, "--out", str(tmp_path / "d")])
    assert asked == [(runs, "float32")]
    said = load_ensemble(runs).translate(["the red dog", "the red dog is"])
    lines = (out / "train.de").read_text().splitlines()
    assert lines == ["der Hund", said[0].text, "der Hund is", said[1].text]
    assert (out / "validation.de").read_text() == "der Hund\nder Hund is\n"
    assert "2 model(s) translate data, train" in capsys.readouterr().out


def test_another_corpus_and_precision(runs, tmp_path):
    flags = ["--source", "de", "--target", "en", "--precision", "mixed_bfloat16"]
    out = script.main([*runs, "--out", str(tmp_path / "d"), *flags])
    assert (out / "train.en").read_text().startswith("the red dog\n")


def test_what_is_there_is_refused_first(tmp_path, capsys):
    with pytest.raises(SystemExit):
        script.main(["nowhere", "--out", str(tmp_path)])
    assert f"must be a new directory. Received: {tmp_path}" in capsys.readouterr().err


def train_distilled(*arguments, python=sys.executable, **options):
    """Runs the shell script that does it all."""
    return subprocess.run(
        ["bash", EXAMPLES / "train_distilled.sh", *arguments],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        **options,
    )


@pytest.fixture
def echo(tmp_path):
    """An interpreter that only says what it was asked for."""
    path = tmp_path / "echo.sh"
    path.write_text('#!/bin/sh\nshift 0; s=${1##*/}; shift; echo "$s $*"\n')
    path.chmod(0o755)
    return path


SMALL = "train_wmt.py --preset multi30k-small --data x --seed 7 --run_dir"
STUDENT = "train_wmt.py --preset multi30k --constant_epochs 8 --epochs 12 --data x"


def test_the_whole_recipe(echo, tmp_path):
    flags = ["--data", "x", "--seed", "7"]
    lines = train_distilled("my out/", *flags, python=echo, cwd=tmp_path).stdout
    corpus = "distill_corpus.py {0}/teacher1 {0}/teacher2 {0}/teacher3 --out {0}/corpus"
    expected = [
        *(f"{SMALL} my out/teacher{seed} --seed {seed}" for seed in (1, 2, 3)),
        corpus.format("my out"),
        f"{STUDENT} --seed 7 --run_dir my out/student --data my out/corpus",
    ]
    assert lines.splitlines() == expected
    (tmp_path / "my out" / "corpus").mkdir(parents=True)  # which then stays
    lines = train_distilled("my out", *flags, python=echo, cwd=tmp_path).stdout
    assert lines.splitlines() == expected[:3] + expected[4:]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "OUT must come first. Received: nothing"),
        (["--data", "x"], "OUT must come first. Received: --data"),
        (["", "--data", "x"], "OUT must come first. Received: nothing"),
        (["out"], "There must be --data"),
        (["out", "--data=x", "--run_dir", "y"], "Not for these trainings: --run_dir"),
        (["out", "--data", "x", "--limit_examples=9"], "trainings: --limit_examples=9"),
    ],
)
def test_the_whole_recipe_says_how_it_is_used(arguments, message, echo):
    done = train_distilled(*arguments, python=echo)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and "usage: " in done.stderr


def test_the_whole_recipe_has_help(echo):
    done = train_distilled("out", "--help", python=echo)
    assert done.returncode == 0 and done.stdout.startswith("usage: ")
    done = train_distilled("out", "--data", "x", python="no-such-python")
    assert done.returncode == 2 and "There is no no-such-python" in done.stderr


@pytest.mark.slow
def test_the_whole_recipe_goes_on_where_it_stopped(data, tmp_path):
    """In relative directories, as it is written."""
    write_corpus(data, train=40, val=6)
    flags = ["--data", "data", "--source", "xx", "--target", "yy", "--units", "8"]
    flags += ["--tokenizer", "word", "--vocab_size", "30", "--no-shared"]
    flags += ["--tie_embeddings", "none", "--batch_tokens", "60", "--beam_width", "2"]
    first = train_distilled("out", *flags, "--epochs", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    out = tmp_path / "out"
    presets = {
        run.name: read_record(run)["settings"]["preset"] for run in out.glob("[ts]*")
    }
    small = dict.fromkeys(("teacher1", "teacher2", "teacher3"), "multi30k-small")
    assert presets == {**small, "student": "multi30k"}
    assert len((out / "corpus" / "train.xx").read_text().splitlines()) == 80
    again = train_distilled("out", *flags, "--epochs", "2", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert all(len(read_history(out / name)) == 2 for name in presets)
    assert RunDirectory(out / "student").results.exists()


def test_a_training_that_fails_ends_it(data, tmp_path):
    flags = ["--data", data, "--source", "xx", "--target", "yy", "--units", "0"]
    done = train_distilled(tmp_path / "out", *flags)
    assert done.returncode == 2 and "units" in done.stderr
    assert not (tmp_path / "out").exists()
