"""Training: a directory that has all of it, and that goes on where it stopped."""

import contextlib
import json
import re
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import options, run
from small_training import (
    not_training,
    small_data,
    small_model,
    train_words,
    write_corpus,
)

from keras_luong import progress
from keras_luong.cli.export import check_text
from keras_luong.cli.train import next_steps
from keras_luong.config.training import TrainingConfig
from keras_luong.files import write_json, write_lines
from keras_luong.runs import description, opening, train
from keras_luong.runs.callbacks import EpochBar
from keras_luong.runs.description import count_texts
from keras_luong.runs.load_save import load
from keras_luong.runs.opening import check_corpus, open_run
from keras_luong.runs.run import RunDirectory, read_history, read_record, read_results
from keras_luong.text import corpus_files
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import fingerprint, sentences
from keras_luong.text.held_out import with_validation
from keras_luong.text.survey import survey


@pytest.fixture
def data(tiny_run):
    """Text files in which the translation is the source, upper-cased."""
    return tiny_run.data


@pytest.fixture
def copy(tiny_run, tmp_path):
    return RunDirectory(shutil.copytree(tiny_run.run.path, tmp_path / "copy"))


def words(data, run_dir, **changes):
    """What `tiny_run` was trained with, and changes of it."""
    return train_words(data, run_dir, **{"batch_tokens": 400, "epochs": 1, **changes})


def trained(data, run_dir, **changes):
    """Trains as the command does: -> the results."""
    config, path, _ = options("train", *words(data, run_dir, **changes))
    return train.train(config, path)


@contextlib.contextmanager
def opened(data, run_dir, **changes):
    """The run as it is before anything is trained."""
    config, path, _ = options("train", *words(data, run_dir, **changes))
    with open_run(config, path) as run:
        yield run


def goes_on(data, run_dir, **changes):
    """Whether a command would go on with the run; nothing is trained."""
    with opened(data, run_dir, **changes) as run:
        return run.resuming


def edit(path, change):
    """Changes a record."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def add_lines(folder, lines, split="train"):
    for side, change in (("xx", str), ("yy", str.upper)):
        with (folder / f"{split}.{side}").open("a") as file:
            file.writelines(f"{change(line)}\n" for line in lines)


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
def test_c5_what_is_left_out_and_what_can_be_pasted_is_said(tmp_path, capsys):
    """Before: pairs were left out, and words unknown, without a word."""
    long = " ".join("abcdefg" * 3)  # 21 tokens
    write_corpus(tmp_path, train=35, val=8)
    add_lines(tmp_path, ["", " \t", "", long, long])
    add_lines(tmp_path, [long], "val")
    few = {"vocab_size": 9, "max_length": 20, "epochs": 1}
    with not_training():
        run("train", *train_words(tmp_path, path := tmp_path / "my run", **few))
    said, record = capsys.readouterr().out, read_record(path)
    left_out = "5 of 40 training pairs: 3 with an empty side, 2 of over 20 tokens"
    assert f"left out     {left_out}" in said
    cut = "1 of 9 validation pairs: val_loss is of their first 20"
    assert f"\ncut          {cut}" in said
    known = record["corpus"]["train"]
    assert [known[x] for x in ("pairs", "empty", "too_long")] == [40, 3, 2]
    assert record["corpus"]["validation"]["too_long"] == 1
    for side, name in (("xx", "unknown_source"), ("yy", "unknown_target")):
        counted = Counter((tmp_path / f"train.{side}").read_text().split())
        rest = counted.most_common()[5:]  # 4 of 9 are special
        assert known[name] == sum(n for _, n in rest) / counted.total() > 0.1
    shares = "{unknown_source:.2%} of the xx tokens are <unk>, {unknown_target:.2%} of"
    assert f"\nunknown      {shares.format(**known)} the yy ones\n" in said
    assert re.search("^note: 1 epoch of [0-9]+ steps: a model", said, re.MULTILINE)
    assert next_steps(path) in said and f" '{path}' " in next_steps(path)
    assert "\nvocabulary   9 xx, 9 yy, word\n" in said
    with opened(tmp_path, tmp_path / "run", **{**few, "max_length": 1}) as begun:
        with pytest.raises(ValueError, match="No pair is left.*3 have an empty.*37"):
            count_texts(begun, load(path).tokenizers, 60)


def test_t1_what_changes_in_texts_is_chosen_for_each_side(tmp_path):
    """Text without letters, of which SentencePiece's trainer dies, is refused.

    And the sentence to try a run out with is not blank.
    """
    rules = {"source_normalization": "identity", "target_normalization": "nmt_nfkc_cf"}
    pieces = {"tokenizer": "sentencepiece", "vocab_size": 50, "character_coverage": 1}
    for text, times in (("Ａ ｄｏｇ ½", 9), ("\0", 1)):
        for name in ("train.xx", "train.yy", "val.xx", "val.yy"):
            (tmp_path / name).write_text(" \n\n" + f"{text}\n" * times)
        with opened(tmp_path, tmp_path / "run", **pieces, **rules) as run:
            assert run.sample == text
            if text == "\0":
                with pytest.raises(ValueError, match="needs a sentence with a letter"):
                    opening.get_tokenizers(run)
                continue
            pair = opening.get_tokenizers(run)
        for x, expected in ((pair.source, text), (pair.target, "a dog 1⁄2")):
            assert x.decode(x.encode([text])).numpy()[0].decode() == expected


@pytest.mark.slow
def test_going_on_equals_never_stopping(data, tmp_path, monkeypatch, capsys):
    """And it says where it goes on, how long it takes, and what to do next."""
    monkeypatch.setattr(description, "MEASURED_STEPS", 1)
    monkeypatch.setattr(description, "LONGEST_HOURS", 0)
    parts = tmp_path / "my run"
    trained(data, whole := tmp_path / "whole", epochs=2)
    capsys.readouterr()
    run("train", *words(data, parts))
    first, said = read_history(parts), capsys.readouterr().out
    assert "data, xx → yy: train 40, validation 8, test_2020 6 pairs\n" in said
    assert re.search("time +about . s an epoch on this machine, and the valid", said)
    assert said.count("note: this may take") == 1
    assert f"keras-luong translate '{parts}' < in.txt" in said
    trained(data, parts, epochs=2, eval_sentences=3)
    assert "Going on after epoch 1." in capsys.readouterr().out
    assert [line["epoch"] for line in read_history(parts)] == [1, 2]
    assert read_history(parts)[0] == first[0]
    assert read_results(parts) == read_results(whole)
    models = (load(x, "last").model for x in (whole, parts))
    for a, b in zip(*(x.get_weights() for x in models), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


SAMPLED = {"tokenizer": "sentencepiece", "vocab_size": 30, "subword_sampling": 0.2}
OPTIONS = {
    **SAMPLED,
    **{"batch_tokens": "auto", "gradient_accumulation_steps": 2, "ema_momentum": 0.9},
    **{"schedule": "plateau", "patience": 1, "monitor": "val_bleu"},
    **{"precision": "mixed_float16", "weight_decay": 0.01, "beta_2": 0.98},
    **{"word_dropout": 0.1, "memory_dropout": 0.1, "recurrent_dropout": 0.1},
    **{"output_dropout": 0.4, "cell_type": "layer_norm_lstm"},
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
            goes_on(data, copy.path, **changes)
    # As if the preset had changed since.
    edit(copy.record, lambda x: x["model"]["config"]["config"].update(score_mode="dot"))
    with pytest.raises(ValueError, match="options of the model.*score_mode: 'dot'"):
        trained(data, copy.path)


def test_c2_text_counts_not_its_folder(copy, data, tmp_path, monkeypatch, capsys):
    """Before: refused, as data differed as strings.

    Nor how it is packed, nor text for tests, nor lines after --limit_examples.
    """
    monkeypatch.chdir(data.parent)
    (tmp_path / "link").symlink_to(data)
    copied, name = shutil.copytree(data, tmp_path / "data"), data.name
    write_corpus(copied, test_2020=3)
    text = (copied / "train.xx").read_bytes()
    (copied / "train.xx").write_bytes(text.replace(b"\n", b"\r\n"))
    for other in (f"{name}/", f"{name}/../{name}", data, tmp_path / "link", copied):
        assert goes_on(other, copy.path)
    assert goes_on(copied, tmp_path / "none") is False  # a new one
    assert read_record(copy.path)["settings"]["data"] == str(data)  # as it was given
    assert not capsys.readouterr().out
    first = [fingerprint(load_corpus(data, "xx", "yy"), "train", n) for n in (30, None)]
    add_lines(copied, ["a b c"])
    corpus = load_corpus(copied, "xx", "yy")
    then = [fingerprint(corpus, "train", n) for n in (30, None)]
    assert first[0] == then[0] and first[0].pairs == 30
    assert first[1].digest != then[1].digest and then[1].pairs == 41
    # Of a corpus of one's own its pairs are read, and files say the same of theirs.
    assert fingerprint(SimpleNamespace(pairs=corpus.pairs), "train") == then[1]


def test_c3_text_that_was_changed_is_refused(copy, data, tmp_path):
    """Before: the run went on with other data, without a word."""
    copied = shutil.copytree(data, tmp_path / "data")
    text = (copied / "val.yy").read_text()
    (copied / "val.yy").write_text(text.replace("A", "B", 1))
    with pytest.raises(ValueError, match="validation split had 8 pairs.*8, of which"):
        goes_on(copied, copy.path)  # nothing but the digest tells
    (copied / "val.yy").write_text(text)
    add_lines(copied, ["a b c"] * 500)
    with pytest.raises(ValueError) as refused:
        goes_on(copied, copy.path)
    said = str(refused.value)
    assert "its train split had 40 pairs" in said
    assert "has 540: pairs were added at its end" in said
    assert "Give another run directory to train on this text" in said
    assert f"--init_from {copy.path} starts from what this run has learned" in said
    text = (copied / "train.xx").read_text()
    (copied / "train.xx").write_text(text.replace("a", "b", 1))
    with pytest.raises(ValueError, match="and that of '.*' has 540. Give another"):
        goes_on(copied, copy.path)


def test_c3_lines_that_were_appended_to_what_is_held_out_of_too(copy, tmp_path):
    """Other pairs are held out of the longer text, which has grown at its end alone."""
    corpora = []
    for size in (20, 30):
        pairs = [f"a {n}\tA {n}" for n in range(size)]
        write_lines(tmp_path / f"{size}.tsv", pairs)
        corpora.append(load_corpus(tmp_path / f"{size}.tsv", "xx", "yy"))
    before, after = map(with_validation, corpora)
    record = {**read_record(copy.path), "corpus": survey(before).texts}
    write_json(copy.record, record)
    now = survey(after).texts
    with pytest.raises(ValueError, match=": pairs were added at its end. Give another"):
        check_corpus(copy.path, "mine", now, after)


def test_several_machines_need_a_number_of_tokens(copy, data, tmp_path):
    """A run that goes on knows it."""
    auto = {"batch_tokens": "auto", "strategy": "multiworker"}
    with pytest.raises(ValueError, match="give a number.*batch_tokens='auto'"):
        goes_on(data, tmp_path / "run", **auto)
    assert {path.name for path in (tmp_path / "run").iterdir()} <= {".lock"}
    edit(copy.record, lambda x: x["settings"].update(batch_tokens="auto"))
    assert goes_on(data, copy.path, **auto)


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
        is_told = pytest.raises(OSError, match=told)
        with is_told, open_run(config, tmp_path / "r") as run:
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


def test_one_at_a_time_and_how_to_go_on(data, tmp_path, monkeypatch, capsys):
    with opened(data, tmp_path / "run"):
        with pytest.raises(OSError, match="Another process, .*, trains in"):
            trained(data, tmp_path / "run")

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "get_tokenizers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(data, tmp_path / "run")
    assert "The same command again goes on from here" in capsys.readouterr().out
    assert not goes_on(data, tmp_path / "run")  # the lock is free


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
def test_goes_on_with_another_learning_rate(copy, data, monkeypatch, capsys):
    """Results of before are none of what is trained on."""
    there, evaluate = [], train.evaluate

    def noted(run):
        there.append(copy.results.exists())
        return evaluate(run)

    monkeypatch.setattr(train, "evaluate", noted)
    edit(copy.record, lambda x: x["search"].update(early_stopping=False))
    results = trained(data, copy.path, epochs=2, learning_rate=0.5, beam_width=3)
    said = capsys.readouterr().out
    assert "learning_rate was 0.01, and is 0.5 from here on" in said
    assert "beam_width was 2, and is 3 from here on" in said
    rates = [line["learning_rate"] for line in read_history(copy.path)]
    np.testing.assert_allclose(rates, [0.01, 0.5])
    assert there == [False]
    assert load(copy.path).search.early_stopping is False
    assert results["test_2020"]["early_stopping"] is False
    assert results["test_2020"]["beam_width"] == 3


IMPOSSIBLE = [
    ({"bleu_tokenize": "foo"}, "bleu_tokenize.*'13a'.*'foo'"),
    ({"preset": "gnmt", "bidirectional": True}, "GNMT needs bidirectional=False"),
]


@pytest.mark.parametrize("changes, message", IMPOSSIBLE)
def test_options_are_checked_first(data, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        trained(data, tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_gpu_gets_batches_of_few_shapes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(description, "on_gpu", lambda: True)
    words = f"--data phrases --run_dir {tmp_path} --preset small --units 4 --epochs 2"
    words += " --limit_examples 900 --tokenizer word --batch_tokens 300 --beam_width 1"
    config, path, _ = options("train", *words.split(), "--eval_sentences", "2")
    seen, made = [], train.stored_batches

    def noted(*args, **kwargs):
        seen.append(kwargs["shapes"])
        return made(*args, **kwargs)

    monkeypatch.setattr(train, "stored_batches", noted)
    train.train(config, path)
    said = capsys.readouterr().out
    counted = json.loads(RunDirectory(path).record.read_text())["corpus"]["train"]
    number, steps = len(counted["batch_shapes"]), counted["steps"]
    assert seen == [[tuple(x) for x in counted["batch_shapes"]]] and number <= 15
    assert f"300 tokens, of {number} shapes" in said
    assert said.count(f"{number} shapes of batches were compiled in ") == 1
    assert f"\n{steps}/{steps} - " in said  # exact


def bar_of(bar, batches, capsys, **options):
    """What is said of a training of so many batches, of which each is shown."""
    at_once = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(bar.progbar, "interval", -1)
    )
    model = small_model("adam")
    model.run_eagerly = True
    callbacks = [*[at_once] * (options["verbose"] == 1), bar]
    model.fit(small_data(batches), callbacks=callbacks, **options)
    return re.sub("\x1b.*?m", "", capsys.readouterr().out)


@pytest.mark.parametrize("steps", [7, 3, 20])
def test_c11_a_bar_that_knows_its_end(steps, capsys):
    """Before: "1/Unknown". Where more steps come than were thought, it says so."""
    said = bar_of(EpochBar(steps), 7, capsys, epochs=2, verbose=1)
    assert f"1/{steps} " in said
    assert ("4/Unknown" in said) == (steps == 3)
    assert said.count("7/7") >= 2  # the end of each epoch


def test_c11_a_bar_of_the_rest_of_an_epoch(capsys):
    """Where a training goes on, the steps that were done before are not waited for."""
    bar = EpochBar(7, started_at=(1, 4))
    assert "1/3" in bar_of(bar, 3, capsys, initial_epoch=1, epochs=2, verbose=1)
    bar.on_epoch_begin(2)
    assert bar.target == 7


def test_c11_a_line_now_and_then(capsys, monkeypatch):
    """Before: nothing until the epoch's end where there is no terminal."""
    monkeypatch.setattr(progress, "SECONDS", -1)
    *lines, last = bar_of(EpochBar(3), 3, capsys, verbose=2).splitlines()
    assert lines == [f"{n} of 3 steps in 0 min, 0 min left" for n in (1, 2, 3)]
    assert last.startswith("3/3 - ")
    assert bar_of(EpochBar(3), 3, capsys, verbose=0) == ""


@pytest.fixture
def readings(monkeypatch):
    """The names of files that were read to their end, as they come."""
    names = []

    def reading(path, read=corpus_files.read_lines):
        yield from read(path)
        names.append(Path(path).name)

    monkeypatch.setattr(corpus_files, "read_lines", reading)
    return names


@pytest.mark.parametrize("held_out", [True, False])
@pytest.mark.parametrize("really", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("changes", [{}, SAMPLED], ids=["words", "sampled"])
def test_the_text_is_read_three_times(held_out, really, changes, readings, tmp_path):
    """To look at it, to learn the vocabulary, to tokenize it: no more, however long."""
    write_corpus(tmp_path, train=60, val=5)
    if held_out:
        for side in ("xx", "yy"):
            (tmp_path / f"val.{side}").unlink()
    run = tmp_path / "run"
    with contextlib.nullcontext() if really else not_training():
        trained(tmp_path, run, epochs=2, **changes)
    assert readings.count("train.xx") == readings.count("train.yy") == 3
    readings.clear()
    # A training that goes on looks at the files' sizes and times alone.
    with opened(tmp_path, run, epochs=2, **changes) as begun:
        assert begun.resuming and begun.own.survey is None
        found = sentences(begun.corpus, "validation")
    assert readings.count("train.xx") == 0 and len(found[0]) == (10 if held_out else 5)
    assert ((run / "held_out").exists(), (run / "tokens").exists()) == (held_out, False)
