"""A corpus with the teachers' translations, and the script that makes and uses one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import run, run_checked
from small_training import write_corpus
from small_translator import word_translator, written_run

from keras_luong.decoding import BeamSearch
from keras_luong.runs import load_save
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.run import RunDirectory, read_history, read_record

ROOT = Path(__file__).parents[1]


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
    settings = {"data": str(data), "source": "en", "target": "de"}
    rng, paths = np.random.default_rng(0), []
    for name in ("a", "b"):
        translator = word_translator(BeamSearch(2, max_length=6))
        for weight in translator.model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        paths.append(written_run(tmp_path / name, translator, settings).path)
    return paths


def test_the_runs_translate_their_corpus_together(runs, tmp_path, capsys, monkeypatch):
    asked = []

    def loaded(run_dirs, dtype):
        asked.append((list(run_dirs), dtype))
        return load_ensemble(run_dirs, dtype)

    monkeypatch.setattr(load_save, "load_ensemble", loaded)
    out = tmp_path / "d"
    run("distill", *runs, "--out", out)
    assert asked == [(runs, "float32")]
    said = load_ensemble(runs).translate(["the red dog", "the red dog is"])
    lines = (out / "train.de").read_text().splitlines()
    assert lines == ["der Hund", said[0].text, "der Hund is", said[1].text]
    assert (out / "validation.de").read_text() == "der Hund\nder Hund is\n"
    assert "2 model(s) translate data\n" in capsys.readouterr().out


@pytest.mark.slow
def test_another_corpus_and_precision(runs, tmp_path):
    words = ["--source", "de", "--target", "en", "--precision", "mixed_bfloat16"]
    run("distill", *runs, "--out", tmp_path / "d", *words)
    assert (tmp_path / "d" / "train.en").read_text().startswith("the red dog\n")


def test_what_is_there_is_refused_first(tmp_path):
    (tmp_path / "run.json").touch()
    with pytest.raises(FileExistsError, match=f"--out must be new.*: {tmp_path}"):
        run_checked("distill", tmp_path, "--out", tmp_path)


@pytest.fixture
def keras_luong(tmp_path):
    """The command, of this code."""
    path = tmp_path / "keras-luong"
    command = f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m keras_luong.cli "$@"'
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def echo(tmp_path):
    """A command that only says what it was asked for."""
    path = tmp_path / "echo.sh"
    path.write_text('#!/bin/sh\necho "$*"\n')
    path.chmod(0o755)
    return path


def train_distilled(command, *arguments, **options):
    """Runs the shell script that does it all."""
    return subprocess.run(
        ["bash", ROOT / "examples" / "train_distilled.sh", *arguments],
        env=os.environ | {"KERAS_LUONG": str(command)},
        capture_output=True,
        text=True,
        **options,
    )


TEACHER = "train --preset multi30k-small --data x --seed 7 --run_dir"
STUDENT = "train --preset multi30k --constant_epochs 8 --epochs 12 --data x --seed 7"


def test_the_whole_recipe(echo, tmp_path):
    """Of an option that is given twice, the last one counts."""
    words = ["--data", "x", "--seed", "7"]
    corpus = "distill {0}/teacher1 {0}/teacher2 {0}/teacher3 --out {0}/corpus"
    expected = [
        *(f"{TEACHER} my out/teacher{seed} --seed {seed}" for seed in (1, 2, 3)),
        corpus.format("my out"),
        f"{STUDENT} --run_dir my out/student --data my out/corpus",
    ]
    done = train_distilled(echo, "my out/", *words, cwd=tmp_path)
    assert done.stdout.splitlines() == expected
    (tmp_path / "my out" / "corpus").mkdir(parents=True)  # which then stays
    done = train_distilled(echo, "my out", *words, cwd=tmp_path)
    assert done.stdout.splitlines() == expected[:3] + expected[4:]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "OUT must come first. Received: nothing"),
        (["--data", "x"], "OUT must come first. Received: --data"),
        (["", "--data", "x"], "OUT must come first. Received: nothing"),
        (["out"], "There must be --data"),
        (["out", "--data=x", "--run_dir", "y"], "Not for these trainings: --run_dir"),
        (["out", "--data=x", "--preset=y"], "Not for these trainings: --preset=y"),
        (["out", "--data", "x", "--limit_examples=9"], "trainings: --limit_examples=9"),
    ],
)
def test_the_whole_recipe_says_how_it_is_used(arguments, message, echo):
    done = train_distilled(echo, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr and "usage: " in done.stderr


def test_the_whole_recipe_has_help(echo):
    done = train_distilled(echo, "out", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage: ")
    done = train_distilled("no-such-command", "out", "--data", "x")
    assert done.returncode == 2 and "There is no no-such-command" in done.stderr


@pytest.mark.slow
def test_the_whole_recipe_goes_on_where_it_stopped(keras_luong, data, tmp_path):
    """In relative directories, as it is written."""
    write_corpus(data, train=40, val=6)
    words = ["--data", "data", "--source", "xx", "--target", "yy", "--units", "8"]
    words += ["--tokenizer", "word", "--vocab_size", "30", "--no-shared"]
    words += ["--tie_embeddings", "none", "--batch_tokens", "60", "--beam_width", "2"]
    first = train_distilled(keras_luong, "out", *words, "--epochs", "1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    out = tmp_path / "out"
    presets = {
        run.name: read_record(run)["settings"]["preset"] for run in out.glob("[ts]*")
    }
    small = dict.fromkeys(("teacher1", "teacher2", "teacher3"), "multi30k-small")
    assert presets == {**small, "student": "multi30k"}
    assert len((out / "corpus" / "train.xx").read_text().splitlines()) == 80
    again = train_distilled(keras_luong, "out", *words, "--epochs", "2", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert all(len(read_history(out / name)) == 2 for name in presets)
    assert RunDirectory(out / "student").results.exists()


def test_a_training_that_fails_ends_it(keras_luong, tmp_path):
    words = ["--data", "x", "--units", "0"]
    done = train_distilled(keras_luong, tmp_path / "out", *words)
    assert done.returncode == 2 and "units" in done.stderr
    assert not (tmp_path / "out").exists()
