"""Training: a directory that has all of it, and that goes on where it stopped."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from commands import options, run
from small_training import train_words, write_corpus

from keras_luong.cli.export import check_text
from keras_luong.runs import description, opening, train
from keras_luong.runs.load_save import load
from keras_luong.runs.run import RunDirectory, read_history
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import first_source


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Text files in which the translation is the source, upper-cased."""
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=40, val=8, test_2020=6)
    return directory


def trained(data, run_dir, **changes):
    """Trains as the command does: -> the results."""
    config, path, _ = options("train", *train_words(data, run_dir, **changes))
    return train.train(config, path)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A whole training: its results and its run directory."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return trained(data, path), RunDirectory(path)


@pytest.mark.slow
def test_leaves_all_that_a_run_directory_has(whole):
    results, whole = whole
    for part in ("record", "best_weights", "last_weights", "history", "results"):
        assert getattr(whole, part).is_file(), part
    assert json.loads(whole.results.read_text()) == results
    assert list(results) == ["validation", "test_2020"]
    assert results["test_2020"]["sentences"] == 6
    searched = [results["test_2020"][x] for x in ("beam_width", "length_penalty")]
    assert searched == [2, 0] and results["test_2020"]["early_stopping"] == "first"
    assert load(whole.path).search.early_stopping == "first"
    assert "tok:13a" in results["test_2020"]["signature"]
    assert any(whole.logs.rglob("events.*"))
    expected = {"loss", "perplexity", "token_accuracy", "val_bleu", "learning_rate"}
    expected |= {"val_loss", "val_perplexity", "seconds", "target_tokens_per_second"}
    assert all(expected <= line.keys() for line in read_history(whole.path))
    assert load(whole.path).translate(["a b c"])[0].text.isupper()


@pytest.mark.slow
def test_translations_compiled_by_xla_score_the_same(
    data, whole, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_luong.translation.translator.pays_to_compile", bool)
    results = trained(data, tmp_path)  # compiled from its second epoch on
    one, other = read_history(tmp_path), read_history(whole[1].path)
    for name in ("val_bleu", "val_chrf"):
        assert [x[name] for x in one] == pytest.approx([x[name] for x in other])
    for split in results:
        assert results[split]["chrf"] == pytest.approx(whole[0][split]["chrf"])


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


def test_keeps_a_sentence_for_whoever_tries_an_export_out(whole, data):
    sample = json.loads(whole[1].record.read_text())["sample"]
    assert sample == (data / "val.xx").read_text().splitlines()[0]
    assert check_text(options("export", whole[1].path, "out")) == sample


def test_t1_what_changes_in_texts_is_chosen_for_each_side(tmp_path):
    for split in ("train", "val"):
        for side in ("xx", "yy"):
            (tmp_path / f"{split}.{side}").write_text("Ａ ｄｏｇ ½\n" * 9)
    words = f"--run_dir {tmp_path}/run --data {tmp_path} --source xx --target yy"
    words += " --preset small --vocab_size 50 --character_coverage 1"
    words += " --source_normalization identity --target_normalization nmt_nfkc_cf"
    config, path, _ = options("train", *words.split())
    with opening.open_run(config, path) as begun:
        pair = train.get_tokenizers(begun)
    source, target = (
        x.decode(x.encode(["Ａ ｄｏｇ ½"])).numpy()[0].decode()
        for x in (pair.source, pair.target)
    )
    assert (source, target) == ("Ａ ｄｏｇ ½", "a dog 1⁄2")


def test_t3_lines_of_any_length_are_learnt_from(tmp_path):
    """Where every line had over 4,192 bytes, there was "no text to train on"."""
    for split in ("train", "val"):
        for side, word in (("xx", "hill"), ("yy", "berg")):
            (tmp_path / f"{split}.{side}").write_text(f"{word} " * 900 + "\n")
    words = f"--run_dir {tmp_path}/run --data {tmp_path} --source xx --target yy"
    words += " --preset small --vocab_size 50 --max_length 2000"
    config, path, _ = options("train", *words.split())
    with opening.open_run(config, path) as begun:
        pair = train.get_tokenizers(begun)
    assert "▁hill" in pair.source.vocabulary and "▁berg" in pair.target.vocabulary


@pytest.mark.parametrize("sides", [[], ["--shared"]])
def test_text_without_letters_is_refused(tmp_path, sides):
    """SentencePiece's trainer ended the process."""
    for split in ("train", "val"):
        (tmp_path / f"{split}.xx").write_text("the dog\n" * (1 - len(sides)) + "\0\n")
        (tmp_path / f"{split}.yy").write_text("\0\n" * (2 - len(sides)))
    words = f"--run_dir {tmp_path}/run --data {tmp_path} --source xx --target yy"
    config, path, _ = options("train", *words.split(), "--preset", "small", *sides)
    with opening.open_run(config, path) as begun:
        message = "needs a sentence with a letter"
        message = message if sides else f"The target side: .*{message}"
        with pytest.raises(ValueError, match=message):
            train.get_tokenizers(begun)


def test_a_sentence_to_try_out_is_not_blank(tmp_path):
    write_corpus(tmp_path, train=20, val=5)
    for side in ("xx", "yy"):
        path = tmp_path / f"val.{side}"
        path.write_text(f" \n\n{path.read_text()}")
    corpus = load_corpus(tmp_path, "xx", "yy")
    expected = (tmp_path / "val.xx").read_text().split("\n")[2]
    assert first_source(corpus, "validation") == expected


def test_validation_is_of_the_best_weights(whole):
    results, whole = whole
    best = min(line["val_perplexity"] for line in read_history(whole.path))
    assert results["validation"]["perplexity"] == pytest.approx(best, rel=1e-4)


@pytest.mark.slow
def test_going_on_equals_never_stopping(whole, data, tmp_path):
    parts = tmp_path / "parts"
    trained(data, parts, epochs=1)
    first = read_history(parts)
    trained(data, parts, eval_sentences=3)
    assert [line["epoch"] for line in read_history(parts)] == [1, 2]
    assert read_history(parts)[0] == first[0]
    assert json.loads((parts / "results.json").read_text()) == whole[0]
    weights = [
        load(path, "last").model.get_weights() for path in (whole[1].path, parts)
    ]
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


@contextlib.contextmanager
def opened(data, run_dir, **changes):
    """The run as it is before anything is trained."""
    config, path, _ = options("train", *train_words(data, run_dir, **changes))
    with opening.open_run(config, path) as run:
        yield run


def recorded(whole, path, change):
    """A run directory that has but the record of a run, with other settings."""
    record = json.loads(whole[1].record.read_text())
    change(record["settings"])
    path.mkdir(exist_ok=True)
    (path / "run.json").write_text(json.dumps(record))
    return path


def test_what_the_preset_says_may_be_said_again(whole, data):
    path = whole[1].path
    with opened(data, path, num_layers=1, input_feeding=True) as run:
        assert run.resuming
    for changes in ({"num_layers": 2}, {"input_feeding": False}):
        with pytest.raises(ValueError, match=f"other options.*{[*changes][0]}: "):
            with opened(data, path, **changes):
                pass


@pytest.mark.slow
@pytest.mark.parametrize("early_stopping", [True, False])
def test_a_run_goes_on_with_its_search(whole, data, tmp_path, early_stopping):
    path = Path(shutil.copytree(whole[1].path, tmp_path / "run"))
    record = json.loads((path / "run.json").read_text())
    record["search"]["early_stopping"] = early_stopping
    (path / "run.json").write_text(json.dumps(record))
    results = trained(data, path)
    assert load(path).search.early_stopping is early_stopping
    assert results["test_2020"]["early_stopping"] is early_stopping


def test_languages_may_be_spelled_in_other_ways(whole, data):
    with opened(data, whole[1].path, source="XX") as run:
        assert run.resuming and run.config.source == "xx"


def test_other_settings_are_refused(whole, data):
    with pytest.raises(ValueError, match="units: 8 there, 16 now"):
        trained(data, whole[1].path, units=16)


def test_another_model_is_refused(whole, data, tmp_path):
    """As if the preset had changed since."""
    path = recorded(whole, tmp_path, lambda settings: None)
    record = json.loads((path / "run.json").read_text())
    record["model"]["config"]["config"]["score_mode"] = "dot"
    (path / "run.json").write_text(json.dumps(record))
    (path / "tokenizer").symlink_to(whole[1].tokenizer)
    with pytest.raises(ValueError, match="options of the model.*score_mode: 'dot'"):
        trained(data, path)


def test_several_machines_need_a_number_of_tokens(data, tmp_path):
    auto = {"batch_tokens": "auto", "strategy": "multiworker"}
    with pytest.raises(ValueError, match="give a number.*batch_tokens='auto'"):
        with opened(data, tmp_path / "run", **auto):
            pass
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}


def test_a_run_that_knows_its_size_goes_on_with_several_machines(whole, data, tmp_path):
    path = recorded(whole, tmp_path, lambda x: x.update(batch_tokens="auto"))
    auto = {"batch_tokens": "auto", "strategy": "multiworker"}
    with opened(data, path, **auto) as run:
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


def test_one_at_a_time(data, tmp_path):
    with opened(data, tmp_path / "run"):
        with pytest.raises(OSError, match="Another process, .*, trains in"):
            trained(data, tmp_path / "run")


@pytest.mark.parametrize("worker, path", [(0, "r"), (2, "r/workers/2")])
def test_each_machine_has_a_directory_of_its_own(worker, path, monkeypatch):
    monkeypatch.setattr(opening, "worker_index", lambda strategy: worker)
    assert str(opening.own_directory("r", None)) == path


def test_ctrl_c_says_how_to_go_on(data, tmp_path, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "get_tokenizers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(data, tmp_path / "run")
    assert "The same command again goes on from here" in capsys.readouterr().out
    with opened(data, tmp_path / "run") as run:  # the lock is free
        assert not run.resuming


@pytest.mark.parametrize(
    "epoch, step, said",
    [
        (0, 0, "Going on from the beginning: nothing was saved yet.\n"),
        (0, 40, "Going on from step 40 of epoch 1.\n"),
        (3, 1200, "Going on from step 1,200 of epoch 4.\n"),
        (3, 0, "Going on after epoch 3.\n"),
    ],
)
def test_says_where_it_goes_on(epoch, step, said, capsys):
    train._tell_position(epoch, step)
    assert capsys.readouterr().out == said


@pytest.mark.slow
def test_the_command_says_what_to_do_next(data, tmp_path, capsys):
    path = tmp_path / "my run"
    run("train", *train_words(data, path, epochs=1))
    out = capsys.readouterr().out
    assert "corpus       data, xx → yy: train 40, validation 8, test_2020 6 pairs" in (
        re.sub("data[0-9]+", "data", out)
    )
    assert f"keras-luong translate '{path}' < in.txt" in out
    assert f"keras-luong export '{path}' 'models/my run'" in out
    run("train", *train_words(data, path, epochs=1))  # nothing is left to train
    assert "Going on after epoch 1." in capsys.readouterr().out
    assert len(read_history(path)) == 1 and RunDirectory(path).results.exists()


@pytest.mark.slow
def test_goes_on_with_another_learning_rate(data, tmp_path, monkeypatch, capsys):
    trained(data, tmp_path / "run", epochs=1)
    with monkeypatch.context() as stopped:
        stopped.setattr(train, "evaluate", lambda run: {})
        trained(data, tmp_path / "run", learning_rate=0.5, beam_width=3)
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
        ({"subword_sampling": 0.1}, "--subword_sampling needs .*Received.*'word'"),
        ({"bleu_tokenize": "foo"}, "bleu_tokenize.*'13a'.*'foo'"),
        ({"preset": "gnmt", "bidirectional": True}, "GNMT needs bidirectional=False"),
        ({"preset": "bahdanau2015", "attention": "none"}, "needs attention.*None"),
        ({"preset": "cho2014", "memory_dropout": 0.5}, "memory_dropout needs.*0.5"),
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
