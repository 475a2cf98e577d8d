"""Training: a directory that has all of it, and that goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
from commands import options, run
from small_training import train_words

from keras_luong.cli.export import check_text
from keras_luong.config.training import TrainingConfig
from keras_luong.runs import description, opening, train
from keras_luong.runs.load_save import load
from keras_luong.runs.opening import open_run
from keras_luong.runs.run import RunDirectory, read_history, read_results
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import first_source


@pytest.fixture
def data(tiny_run):
    """Text files in which the translation is the source, upper-cased."""
    return tiny_run.data


@pytest.fixture
def copy(tiny_run, tmp_path):
    return RunDirectory(shutil.copytree(tiny_run.run.path, tmp_path / "copy"))


def trained(data, run_dir, **changes):
    """Trains as the command does: -> the results."""
    config, path, _ = options("train", *train_words(data, run_dir, **changes))
    return train.train(config, path)


@contextlib.contextmanager
def opened(data, run_dir, **changes):
    """The run as it is before anything is trained."""
    config, path, _ = options("train", *train_words(data, run_dir, **changes))
    with open_run(config, path) as run:
        yield run


def edit(path, change):
    """Changes a record."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_leaves_all_that_a_run_directory_has(tiny_run, data):
    run, results = tiny_run.run, read_results(tiny_run.run.path)
    assert list(results) == ["validation", "test_2020"]
    test = results["test_2020"]
    searched = [test[x] for x in ("beam_width", "length_penalty", "early_stopping")]
    assert searched == [2, 0, "first"] and test["sentences"] == 6
    assert "tok:13a" in test["signature"] and any(run.logs.rglob("events.*"))
    history = read_history(run.path)
    expected = {"loss", "perplexity", "token_accuracy", "val_bleu", "learning_rate"}
    expected |= {"val_loss", "val_perplexity", "seconds", "target_tokens_per_second"}
    assert all(expected <= line.keys() for line in history)
    best = min(line["val_perplexity"] for line in history)
    assert results["validation"]["perplexity"] == pytest.approx(best, rel=1e-4)
    assert load(run.path).search.early_stopping == "first"
    sample = json.loads(run.record.read_text())["sample"]
    assert sample == (data / "val.xx").read_text().splitlines()[0]
    assert check_text(options("export", run.path, "out")) == sample


@pytest.mark.slow
def test_translations_compiled_by_xla_score_the_same(tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr("keras_luong.translation.translator.pays_to_compile", bool)
    results = trained(tiny_run.data, tmp_path)  # compiled from its second epoch on
    for one, other in zip(
        read_history(tmp_path), read_history(tiny_run.run.path), strict=True
    ):
        for name in ("val_bleu", "val_chrf"):
            assert one[name] == pytest.approx(other[name])
    for split, other in read_results(tiny_run.run.path).items():
        assert results[split]["chrf"] == pytest.approx(other["chrf"])


@pytest.mark.slow
def test_stops_early_once_its_last_epoch_is_saved(data, tmp_path, capsys):
    early = {"epochs": 5, "early_stopping": 1, "learning_rate": 1e-30}
    trained(data, tmp_path, **early)
    for path in RunDirectory(tmp_path).checkpoints.glob("ckpt-3.*"):
        path.unlink()  # killed before this was written, but not the epoch's line
    capsys.readouterr()
    trained(data, tmp_path, **early)
    said = capsys.readouterr().out
    assert "Going on after epoch 1." in said and "Stopping early after epoch 2" in said
    assert [line["epoch"] for line in read_history(tmp_path)] == [1, 2]
    trained(data, tmp_path, **early)
    assert "Training stopped early before" in capsys.readouterr().out


@pytest.mark.parametrize("shared", [False, True])
def test_t1_what_changes_in_texts_is_chosen_for_each_side(tmp_path, shared):
    """Text without letters, of which SentencePiece's trainer dies, is refused."""
    for name in ("train.xx", "train.yy", "val.xx", "val.yy"):
        (tmp_path / name).write_text("\0\n" if shared else "Ａ ｄｏｇ ½\n" * 9)
    words = f"--run_dir {tmp_path}/run --data {tmp_path} --source xx --target yy"
    words += " --preset small --vocab_size 50 --character_coverage 1"
    words += " --source_normalization identity --target_normalization nmt_nfkc_cf"
    config, path, _ = options("train", *words.split(), *["--shared"] * shared)
    with open_run(config, path) as run:
        if shared:
            with pytest.raises(ValueError, match="needs a sentence with a letter"):
                opening.get_tokenizers(run)
            return
        pair = opening.get_tokenizers(run)
    source, target = (
        x.decode(x.encode(["Ａ ｄｏｇ ½"])).numpy()[0].decode()
        for x in (pair.source, pair.target)
    )
    assert (source, target) == ("Ａ ｄｏｇ ½", "a dog 1⁄2")


def test_a_sentence_to_try_out_is_not_blank(data, tmp_path):
    for side in ("xx", "yy"):
        text = (data / f"val.{side}").read_text()
        (tmp_path / f"val.{side}").write_text(f" \n\n{text}")
    corpus = load_corpus(tmp_path, "xx", "yy")
    assert (
        first_source(corpus, "validation")
        == ((data / "val.xx").read_text().splitlines()[0])
    )


@pytest.mark.slow
def test_going_on_equals_never_stopping(tiny_run, tmp_path, monkeypatch, capsys):
    """And it says where it goes on, how long it takes, and what to do next."""
    monkeypatch.setattr(description, "MEASURED_STEPS", 1)
    monkeypatch.setattr(description, "LONGEST_HOURS", 0)
    parts, data = tmp_path / "my run", tiny_run.data
    run("train", *train_words(data, parts, epochs=1))
    first, said = read_history(parts), capsys.readouterr().out
    assert "data, xx → yy: train 40, validation 8, test_2020 6 pairs\n" in said
    assert re.search("time +about . s an epoch on this machine, and the valid", said)
    assert said.count("note: this may take") == 1
    assert f"keras-luong translate '{parts}' < in.txt" in said
    trained(data, parts, eval_sentences=3)
    assert "Going on after epoch 1." in capsys.readouterr().out
    assert [line["epoch"] for line in read_history(parts)] == [1, 2]
    assert read_history(parts)[0] == first[0]
    assert read_results(parts) == read_results(tiny_run.run.path)
    models = (load(x, "last").model for x in (tiny_run.run.path, parts))
    for a, b in zip(*(x.get_weights() for x in models), strict=True):
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
    monkeypatch.setattr(train, "largest_batch_tokens", lambda model, length: 64)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trained(data, whole, **OPTIONS, epochs=3)
    trained(data, parts, **OPTIONS, epochs=1)
    monkeypatch.delattr(train, "largest_batch_tokens")  # the run knows its size
    trained(data, parts, **OPTIONS, epochs=3)
    for one, other in zip(read_history(whole), read_history(parts), strict=True):
        for name in ("loss", "val_loss", "val_bleu", "learning_rate", "gradient_norm"):
            assert one[name] == pytest.approx(other[name], rel=1e-3), name
    settings = json.loads((parts / "run.json").read_text())["settings"]
    assert settings["chosen_batch_tokens"] == 64


def test_what_is_said_again_is_the_same_run(copy, data):
    """What the preset says, other spellings; but no other model or settings."""
    for changes in ({"num_layers": 1, "input_feeding": True}, {"source": "XX"}):
        with opened(data, copy.path, **changes) as run:
            assert run.resuming and run.config.source == "xx"
    for changes, message in (
        ({"num_layers": 2}, "other options.*num_layers: "),
        ({"input_feeding": False}, "other options.*input_feeding: "),
        ({"units": 16}, "units: 8 there, 16 now"),
    ):
        with pytest.raises(ValueError, match=message):
            with opened(data, copy.path, **changes):
                pass
    # As if the preset had changed since.
    edit(copy.record, lambda x: x["model"]["config"]["config"].update(score_mode="dot"))
    with pytest.raises(ValueError, match="options of the model.*score_mode: 'dot'"):
        trained(data, copy.path)


def test_several_machines_need_a_number_of_tokens(copy, data, tmp_path):
    """A run that goes on knows it."""
    auto = {"batch_tokens": "auto", "strategy": "multiworker"}
    with pytest.raises(ValueError, match="give a number.*batch_tokens='auto'"):
        with opened(data, tmp_path / "run", **auto):
            pass
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}
    edit(copy.record, lambda x: x["settings"].update(batch_tokens="auto"))
    with opened(data, copy.path, **auto) as run:
        assert run.resuming


@pytest.mark.parametrize(
    "split, message",
    [("test", r"no split 'train'; it has \['test'\]"), ("train", "too few training")],
)
def test_needs_pairs_to_train_on_and_to_validate_by(split, message, tmp_path):
    for side in ("xx", "yy"):
        (tmp_path / f"{split}.{side}").write_text("a b c\n")
    with pytest.raises(ValueError, match=message):
        trained(tmp_path, tmp_path / "run")
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("tag", [None, "news"])
def test_a_corpus_that_changes_meanwhile_is_told(tag, data, tmp_path):
    """Not as an error of tf.data's, with a traceback of its own; others stay so."""
    shutil.copytree(data, tmp_path / "data")
    place = {"data": str(tmp_path / "data"), "source": "xx", "target": "yy"}
    config = TrainingConfig.from_preset("small", **place, tag=tag)
    path = tmp_path / "data" / "train.xx"
    lines = path.read_text().splitlines(keepends=True)
    for text, told in (
        (sorted(lines), r"^\S+train.xx and \S+, the train split, changed since .* dif"),
        (lines[:9], r"^\S+train.yy has 40 lines and \S+train.xx has 9: "),
    ):
        path.write_text("".join(lines))
        with (
            pytest.raises(OSError, match=told),
            open_run(config, tmp_path / "r") as run,
        ):
            pairs = run.training_pairs
            assert len(list(pairs)) == len(list(pairs)) == 40
            path.write_text("".join(text))
            list(pairs)
    path.write_text("".join(lines))
    error = tf.errors.ResourceExhaustedError(None, None, "no memory is left")
    with pytest.raises(tf.errors.ResourceExhaustedError):
        with open_run(config, tmp_path / "r"):
            raise error


@pytest.mark.parametrize("worker, path", [(0, "r"), (2, "r/workers/2")])
def test_each_machine_has_a_directory_of_its_own(worker, path, monkeypatch):
    monkeypatch.setattr(opening, "worker_index", lambda strategy: worker)
    assert str(opening.own_directory("r", None)) == path


def test_one_at_a_time_and_ctrl_c_says_how_to_go_on(
    data, tmp_path, monkeypatch, capsys
):
    with opened(data, tmp_path / "run"):
        with pytest.raises(OSError, match="Another process, .*, trains in"):
            trained(data, tmp_path / "run")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "get_tokenizers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(data, tmp_path / "run")
    assert "The same command again goes on from here" in capsys.readouterr().out
    with opened(data, tmp_path / "run") as run:  # the lock is free
        assert not run.resuming


def test_says_where_it_goes_on(capsys):
    for position, said in {
        (0, 0): "Going on from the beginning: nothing was saved yet.\n",
        (0, 40): "Going on from step 40 of epoch 1.\n",
        (3, 1200): "Going on from step 1,200 of epoch 4.\n",
        (3, 0): "Going on after epoch 3.\n",
    }.items():
        train._tell_position(*position)
        assert capsys.readouterr().out == said


@pytest.mark.slow
def test_goes_on_with_another_learning_rate_and_its_own_search(
    copy, data, monkeypatch, capsys
):
    """Results of before are none of what is trained on."""
    there, evaluate = [], train.evaluate
    monkeypatch.setattr(
        train,
        "evaluate",
        lambda run: there.append(copy.results.exists()) or evaluate(run),
    )
    edit(copy.record, lambda x: x["search"].update(early_stopping=False))
    results = trained(data, copy.path, epochs=3, learning_rate=0.5, beam_width=3)
    said = capsys.readouterr().out
    assert "learning_rate was 0.01, and is 0.5 from here on" in said
    assert "beam_width was 2, and is 3 from here on" in said
    rates = [line["learning_rate"] for line in read_history(copy.path)]
    np.testing.assert_allclose(rates, [0.01, 0.01, 0.5])
    assert there == [False]
    assert load(copy.path).search.early_stopping is False
    assert results["test_2020"]["early_stopping"] is False
    assert results["test_2020"]["beam_width"] == 3


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"batch_tokens": 0}, "--batch_tokens must be at least 1.*Received: 0"),
        ({"bleu_tokenize": "foo"}, "bleu_tokenize.*'13a'.*'foo'"),
        ({"preset": "gnmt", "bidirectional": True}, "GNMT needs bidirectional=False"),
    ],
)
def test_options_are_checked_before_anything_is_written(
    data, tmp_path, changes, message, capsys
):
    with pytest.raises((SystemExit, ValueError)) as stopped:
        trained(data, tmp_path / "run", **changes)
    assert re.search(message, f"{stopped.value} {capsys.readouterr().err}")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_gpu_gets_batches_of_few_shapes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(description, "on_gpu", lambda: True)
    words = f"--data phrases --run_dir {tmp_path} --preset small --units 4 --epochs 2"
    words += " --limit_examples 900 --tokenizer word --batch_tokens 300 --beam_width 1"
    config, path, _ = options("train", *words.split(), "--eval_sentences", "2")
    seen, made = [], train.training_batches

    def noted(*args, **kwargs):
        seen.append(kwargs["shapes"])
        return made(*args, **kwargs)

    monkeypatch.setattr(train, "training_batches", noted)
    train.train(config, path)
    said = capsys.readouterr().out
    counted = json.loads(RunDirectory(path).record.read_text())["corpus"]["train"]
    number, steps = len(counted["batch_shapes"]), counted["steps"]
    assert seen == [[tuple(x) for x in counted["batch_shapes"]]] and number <= 15
    assert f"300 tokens, of {number} shapes" in said
    assert said.count(f"{number} shapes of batches were compiled in ") == 1
    assert f"\n{steps}/{steps} - " in said  # exact
