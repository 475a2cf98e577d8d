from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest
from keras_luong.cli.flags import free, parse, settings_of
from small_training import write_corpus

from keras_luong.runs.directory import RunDirectory, read_history
from keras_luong.runs.loading import load
from keras_luong.runs.record import check_settings

EXAMPLES = Path(__file__).parent.parent / "examples"
SPEC = importlib.util.spec_from_file_location("train_wmt", EXAMPLES / "train_wmt.py")
train_wmt = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(train_wmt)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text files in which the translation is the source, upper-cased."""
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=40, val=8, test_2020=6)
    return directory


def flags(data, run_dir, **changes):
    values = {
        "run_dir": run_dir,
        "data": data,
        "source": "xx",
        "target": "yy",
        "preset": "small",
        "units": 8,
        "dropout": 0.3,  # its random numbers too must go on where they were
        "tokenizer": "word",
        "optimizer": "adam",
        "learning_rate": 0.01,
        "batch_tokens": 60,
        "epochs": 2,
        "beam_width": 2,
        **changes,
    }
    return [
        text for name, value in values.items() for text in (f"--{name}", str(value))
    ]


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    """A whole training: its results and its run directory."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return train_wmt.main(flags(data, path)), RunDirectory(path)


def test_leaves_all_that_a_run_directory_has(run):
    results, whole = run
    for part in ("record", "best_weights", "last_weights", "history", "results"):
        assert getattr(whole, part).is_file(), part
    assert json.loads(whole.results.read_text()) == results
    assert list(results) == ["validation", "test_2020"]
    assert results["test_2020"]["sentences"] == 6
    assert [results["test_2020"][x] for x in ("beam_width", "length_penalty")] == [2, 0]
    assert "tok:13a" in results["test_2020"]["signature"]
    assert any(whole.logs.rglob("events.*"))
    expected = {"loss", "perplexity", "token_accuracy", "val_bleu", "learning_rate"}
    expected |= {"val_loss", "val_perplexity", "seconds", "target_tokens_per_second"}
    assert all(expected <= line.keys() for line in read_history(whole.path))
    assert load(whole.path).translate(["a b c"])[0].text.isupper()


def test_validation_is_of_the_best_weights(run):
    results, whole = run
    best = min(line["val_perplexity"] for line in read_history(whole.path))
    assert results["validation"]["perplexity"] == pytest.approx(best, rel=1e-4)


@pytest.mark.slow
def test_going_on_equals_never_stopping(run, data, tmp_path):
    parts = tmp_path / "parts"
    train_wmt.main(flags(data, parts, epochs=1))
    first = read_history(parts)
    train_wmt.main(flags(data, parts, eval_sentences=3))
    assert [line["epoch"] for line in read_history(parts)] == [1, 2]
    assert read_history(parts)[0] == first[0]
    assert json.loads((parts / "results.json").read_text()) == run[0]
    weights = [load(path, "last").model.get_weights() for path in (run[1].path, parts)]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


OPTIONS = {
    "tokenizer": "sentencepiece",
    "vocab_size": 30,
    "subword_sampling": 0.2,
    "batch_tokens": "auto",
    "gradient_accumulation_steps": 2,
    "ema_momentum": 0.9,
    "schedule": "plateau",
    "patience": 1,
    "precision": "mixed_float16",
    "monitor": "val_bleu",
    "r_drop": 2.0,
    "weight_decay": 0.01,
    "beta_2": 0.98,
    "word_dropout": 0.1,
    "memory_dropout": 0.1,
    "recurrent_dropout": 0.1,
    "output_dropout": 0.4,
    "cell_type": "layer_norm_lstm",
}


@pytest.mark.slow
def test_going_on_with_every_option(data, tmp_path, monkeypatch):
    monkeypatch.setattr(train_wmt, "largest_batch_tokens", lambda model, length: 64)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train_wmt.main(flags(data, whole, **{**OPTIONS, "epochs": 3}))
    train_wmt.main(flags(data, parts, **{**OPTIONS, "epochs": 1}))
    monkeypatch.delattr(train_wmt, "largest_batch_tokens")  # the run knows its size
    train_wmt.main(flags(data, parts, **{**OPTIONS, "epochs": 3}))
    for one, other in zip(read_history(whole), read_history(parts), strict=True):
        for name in ("loss", "val_loss", "val_bleu", "learning_rate", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name
    settings = json.loads((parts / "run.json").read_text())["settings"]
    assert settings["chosen_batch_tokens"] == 64


def test_a_run_goes_on_that_knows_nothing_of_new_flags(run, data, tmp_path):
    """What a new flag is by default is what was done before there was one."""
    record = json.loads(run[1].record.read_text())
    for name in ("r_drop", "weight_decay", "beta_2"):
        del record["settings"][name]
    (tmp_path / "run.json").write_text(json.dumps(record))
    args = parse(flags(data, tmp_path))
    assert check_settings(tmp_path, settings_of(args), free(args))


def test_what_the_best_weights_are_judged_by_stays(tmp_path):
    """A BLEU of other sentences would be better or worse than all that were before."""
    for monitor in ("val_bleu", "val_perplexity"):
        judged = free(parse(["--run_dir", str(tmp_path), "--monitor", monitor]))
        assert ("eval_sentences" in judged) == (monitor != "val_bleu")
        assert ("bleu_tokenize" in judged) == (monitor != "val_bleu")
        assert "beam_width" in judged


def test_other_settings_are_refused(run, data):
    with pytest.raises(ValueError, match="units: 8 there, 16 now"):
        train_wmt.main(flags(data, run[1].path, units=16))


def test_several_machines_need_a_number_of_tokens(data, tmp_path):
    auto = {"batch_tokens": "auto", "strategy": "multiworker"}
    args = parse(flags(data, tmp_path / "run", **auto))
    with pytest.raises(ValueError, match="give a number.*--batch_tokens auto"):
        train_wmt.run(args, None, None)
    assert not (tmp_path / "run").exists()


def test_needs_a_validation_split(data, tmp_path):
    for side in ("xx", "yy"):
        (tmp_path / f"train.{side}").write_text("a b c\n")
    with pytest.raises(ValueError, match="no validation split"):
        train_wmt.main(flags(tmp_path, tmp_path / "run"))


@pytest.mark.slow
def test_goes_on_with_another_learning_rate(data, tmp_path, monkeypatch, capsys):
    train_wmt.main(flags(data, tmp_path / "run", epochs=1))
    with monkeypatch.context() as stopped:
        stopped.setattr(train_wmt, "evaluate", lambda args, corpus: {})
        changes = {"learning_rate": 0.5, "beam_width": 3}
        train_wmt.main(flags(data, tmp_path / "run", **changes))
    said = capsys.readouterr().out
    assert "learning_rate was 0.01, and is 0.5 from here on" in said
    assert "beam_width was 2, and is 3 from here on" in said
    assert not (tmp_path / "run" / "results.json").exists()  # it was of one epoch
    rates = [line["learning_rate"] for line in read_history(tmp_path / "run")]
    np.testing.assert_allclose(rates, [0.01, 0.5])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"batch_tokens": 0}, "--batch_tokens must be at least 1.*Received: 0"),
        ({"limit_examples": -5}, "--limit_examples must be .*Received: -5"),
        ({"eval_sentences": 0}, "--eval_sentences must be .*Received: 0"),
        ({"subword_sampling": 0.1}, "--subword_sampling needs .*Received: word"),
    ],
)
def test_flags_are_checked_before_anything_is_written(
    data, tmp_path, changes, message, capsys
):
    with pytest.raises(SystemExit):
        train_wmt.main(flags(data, tmp_path / "run", **changes))
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "run").exists()
