"""The example that trains as the paper did, part by part."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import tensorflow as tf
from commands import run
from small_training import train_words, write_corpus

from keras_luong.runs.run import read_record, read_results

SCRIPT = Path(__file__).parents[1] / "examples" / "train_wmt.py"


def main(*words):
    spec = importlib.util.spec_from_file_location("train_wmt", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main([str(word) for word in words])


def listing(path):
    files = {file.relative_to(path) for file in path.rglob("*") if file.is_file()}
    return {file for file in files if file.parts[0] not in ("logs", "saved_model")}


def record_of(path):
    """The record, without the number that Keras gives each of a process's models."""
    record = read_record(path)
    del record["model"]["config"]["name"]
    return record


@pytest.mark.slow
def test_leaves_what_the_command_leaves_and_a_saved_model(tmp_path):
    data, one, other = tmp_path / "data", tmp_path / "one", tmp_path / "other"
    data.mkdir()
    write_corpus(data, train=20, val=4)
    run("train", *train_words(data, one, epochs=1))
    main(*train_words(data, other, epochs=1))
    assert listing(one) == listing(other)
    assert read_results(one) == read_results(other)
    assert record_of(one) == record_of(other)
    model = tf.saved_model.load(str(other / "saved_model" / "1"))
    said = model.signatures["serving_default"](text=tf.constant(["a b"]))
    assert said["translation"].shape == (1,)


def test_takes_the_same_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        main("--run_dir", "x", "--epochs", "0")
    assert stopped.value.code == 2
    assert "--epochs must be at least 1. Received: 0" in capsys.readouterr().err
    main("--help")
    assert "--run_dir PATH" in capsys.readouterr().out


def test_mistakes_have_no_traceback(tmp_path, capsys):
    for side in ("xx", "yy"):
        (tmp_path / f"train.{side}").write_text("a\n")
    with pytest.raises(SystemExit) as stopped:
        main(*train_words(tmp_path, tmp_path / "run"))
    assert stopped.value.code == 2
    assert "has no validation split" in capsys.readouterr().err
