"""What commands do with what people really give them: one test a case, at least."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import subprocess
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf
from commands import options, run
from small_training import small_data, small_model, train_words, write_corpus
from small_translator import word_translator, written_run

from keras_luong import progress
from keras_luong.cli import export
from keras_luong.cli.train import next_steps
from keras_luong.files import read_lines, write_json, write_lines
from keras_luong.runs.callbacks import EpochBar, StepCurves
from keras_luong.runs.description import count_texts
from keras_luong.runs.opening import check_corpus, describe_corpus, open_run
from keras_luong.runs.run import RunDirectory, read_record
from keras_luong.text.batches import training_batches
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import fingerprint
from keras_luong.text.held_out import with_validation
from keras_luong.text.survey import count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

LONG = " ".join("abcdefg" * 3)  # 21 tokens
EMPTY, TOO_LONG = 3, 2


def add_lines(folder, lines, split="train", target=str.upper):
    for side, change in (("xx", str), ("yy", target)):
        with (folder / f"{split}.{side}").open("a") as file:
            file.writelines(f"{change(line)}\n" for line in lines)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A corpus of 40 pairs to train on, some of which cannot be."""
    folder = tmp_path_factory.mktemp("data")
    write_corpus(folder, train=40 - EMPTY - TOO_LONG, val=8)
    add_lines(folder, ["", " \t", ""], target=lambda line: line and "A")
    add_lines(folder, [LONG] * TOO_LONG)
    return folder


def words(data, run_dir, **changes):
    return train_words(data, run_dir, **{"max_length": 20, "epochs": 1, **changes})


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """A trained run, and what was said on the way."""
    path, said = tmp_path_factory.mktemp("my runs") / "my run", io.StringIO()
    with contextlib.redirect_stdout(said):
        run("train", *words(data, path))
    return path, said.getvalue()


def go_on(data, path, **changes):
    """Whether a command would go on with the run; nothing is trained."""
    config, path, _ = options("train", *words(data, path, **changes))
    with open_run(config, path) as begun:
        return begun.resuming


def test_c2_a_folder_written_otherwise(trained, data, tmp_path, monkeypatch):
    """Before: refused, as data differed as strings."""
    monkeypatch.chdir(data.parent)
    (tmp_path / "link").symlink_to(data)
    copy, name = shutil.copytree(data, tmp_path / "copy"), data.name
    for other in (f"{name}/", f"{name}/../{name}", data, tmp_path / "link", copy):
        assert go_on(other, trained[0])
    assert read_record(trained[0])["settings"]["data"] == str(data)  # as it was given


@pytest.fixture
def copied(data, tmp_path):
    return shutil.copytree(data, tmp_path / "copied")


def test_c3_text_that_was_changed(trained, copied):
    """Before: the run went on with other data, without a word."""
    text = (copied / "val.yy").read_text()
    (copied / "val.yy").write_text(text.replace("A", "B", 1))
    with pytest.raises(ValueError, match="validation split had 8 pairs.*8, of which"):
        go_on(copied, trained[0])  # nothing but the digest tells
    (copied / "val.yy").write_text(text)
    add_lines(copied, ["a b c"] * 500)
    with pytest.raises(ValueError) as refused:
        go_on(copied, trained[0])
    said = str(refused.value)
    assert "its train split had 40 pairs" in said
    assert "has 540: pairs were added at its end" in said
    assert "Give another run directory to train on this text" in said
    assert f"--init_from {trained[0]} starts from what this run has learned" in said
    text = (copied / "train.xx").read_text()
    (copied / "train.xx").write_text(text.replace("a", "b", 1))
    with pytest.raises(ValueError, match="and that of '.*' has 540. Give another"):
        go_on(copied, trained[0])


def test_c3_lines_that_were_appended_to_what_is_held_out_of_too(tmp_path):
    """Other pairs are held out of the longer text, which has grown at its end alone."""
    corpora = []
    for size in (200, 300):
        pairs = [f"a {n}\tA {n}" for n in range(size)]
        write_lines(tmp_path / f"{size}.tsv", pairs)
        corpora.append(load_corpus(tmp_path / f"{size}.tsv", "xx", "yy"))
    before, after = map(with_validation, corpora)
    record_of_before = {
        **{"format": 1, "model": {}, "search": {}, "max_source_length": 9},
        **{"settings": {"data": "mine"}, "corpus": describe_corpus(before, None)},
        **{"paths": {}, "came_from": None},
    }
    write_json(tmp_path / "run" / "run.json", record_of_before)
    now = describe_corpus(after, None)
    with pytest.raises(ValueError, match=": pairs were added at its end. Give another"):
        check_corpus(tmp_path / "run", "mine", now, after)


def test_c3_what_does_not_shape_the_run_may_change(trained, copied, capsys):
    """Text for tests, and how text is packed."""
    write_corpus(copied, test=3)
    text = (copied / "train.xx").read_bytes()
    (copied / "train.xx").write_bytes(text.replace(b"\n", b"\r\n"))
    assert go_on(copied, trained[0])
    assert go_on(copied, trained[0].parent / "none") is False  # a new one
    assert not capsys.readouterr().out


def test_c3_only_pairs_that_are_trained_on_count(data, copied):
    """Lines after --limit_examples are no part of a run."""
    first = [fingerprint(load_corpus(data, "xx", "yy"), "train", n) for n in (30, None)]
    add_lines(copied, ["a b c"])
    corpus = load_corpus(copied, "xx", "yy")
    then = [fingerprint(corpus, "train", n) for n in (30, None)]
    assert first[0] == then[0] and first[0].pairs == 30
    assert first[1].digest != then[1].digest and then[1].pairs == 41
    # Of a corpus of one's own its pairs are read, and files say the same of theirs.
    mine = SimpleNamespace(pairs=corpus.pairs)
    assert fingerprint(mine, "train") == then[1]


def test_c5_last_lines_can_be_pasted(trained):
    """Before: paths with spaces were not quoted."""
    path, said = trained
    assert re.search("^note: 1 epoch of [0-9]+ steps: a model", said, re.MULTILINE)
    assert next_steps(path) in said
    for line in next_steps(path).strip().splitlines():
        pasted = shlex.split(line)
        assert str(path) in pasted or str(path / "logs") in pasted


@pytest.mark.slow
def test_c5_so_can_those_of_an_export(tmp_path, capsys):
    """Before: the path of a .tflite file was not quoted."""
    pytest.importorskip("ai_edge_litert.interpreter")
    path = written_run(tmp_path / "run", word_translator(), {"data": "x"}).path
    run("export", path, tmp_path / "my file.tflite", "--check", "the red dog")
    command = re.search("^  (keras-luong-edge .*) <", capsys.readouterr().out, re.M)[1]
    pasted = ["keras-luong-edge", str(tmp_path / "my file.tflite")]
    assert shlex.split(command) == pasted


@pytest.mark.slow
def test_c10_exporting_says_how_to_warm_up(tmp_path, capsys, monkeypatch):
    """Before: "No warm-up requests", not what that means, nor that a batch helps."""
    path = written_run(tmp_path / "run", word_translator(), {"data": "x"}).path
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    run("export", path, tmp_path / "model", "--check", "the red dog")
    said = " ".join(capsys.readouterr().out.split())
    assert "No warm-up requests are written, so TensorFlow Serving compiles" in said
    assert "first request to each signature compiles it" in said
    signatures = tf.saved_model.load(str(tmp_path / "model" / "1")).signatures
    pasted = said.split("done before: ")[1]
    names = {"serve": signatures["serving_default"], "tf": tf}
    assert eval(pasted, names)["score"].shape == [1]


def test_c11_the_steps_of_an_epoch_are_known(trained, data):
    """Before: "1/Unknown", and no time of arrival; they were not counted."""
    path, said = trained
    steps = read_record(path)["corpus"]["train"]["steps"]
    assert f"\n{steps}/{steps} - " in said  # exact
    pairs = load_corpus(data, "xx", "yy").pairs("train")
    tokenizers = TokenizerPair.train(pairs, "word")
    counts = count_pairs(pairs, tokenizers, 20)
    assert sum(counts.lengths.values()) == 40 - EMPTY - TOO_LONG
    for batch_tokens in (20, 60, 5000):
        batches = list(training_batches(pairs, tokenizers, batch_tokens, 20))
        assert counts.batches(batch_tokens) == len(batches)
        assert sum(len(labels) for _, labels, _ in batches) == 40 - EMPTY - TOO_LONG
    # An estimate where words are split at random.
    tokenizers = TokenizerPair.train(pairs, "sentencepiece", 30)
    counts = count_pairs(pairs, tokenizers, 20, subword_sampling=0.1)
    batches = training_batches(pairs, tokenizers, 200, 20, subword_sampling=0.1)
    number = int(batches.reduce(0, lambda n, _: n + 1))
    assert counts.batches(200) == pytest.approx(number, rel=0.5)


def bar_of(data, bar, capsys, *more, **options):
    small_model("adam").fit(data, verbose=1, callbacks=[*more, bar], **options)
    return re.sub("\x1b.*?m", "", capsys.readouterr().out)


@pytest.mark.parametrize("steps", [7, 3, 20])
def test_c11_a_bar_that_knows_its_end(steps, capsys):
    """Before: "1/Unknown". Where more steps come than were thought, it says so."""
    bar = EpochBar(steps)
    every_step = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: setattr(bar.progbar, "interval", -1)
    )
    said = bar_of(small_data(7), bar, capsys, every_step, epochs=2)
    assert f"1/{steps} " in said
    assert ("4/Unknown" in said) == (steps == 3)
    assert said.count("7/7") >= 2  # the end of each epoch


def test_c11_a_bar_of_the_rest_of_an_epoch(capsys):
    """Where a training goes on, the steps that were done before are not waited for."""
    bar = EpochBar(7, started_at=(1, 4))
    assert "1/3" in bar_of(small_data(3), bar, capsys, initial_epoch=1, epochs=2)
    bar.on_epoch_begin(2)
    assert bar.target == 7


def test_c11_a_line_now_and_then(capsys, monkeypatch):
    """Before: nothing until the epoch's end where there is no terminal."""
    monkeypatch.setattr(progress, "SECONDS", -1)
    small_model("adam").fit(small_data(3), verbose=2, callbacks=[EpochBar(3)])
    *lines, last = capsys.readouterr().out.splitlines()
    assert lines == [f"{n} of 3 steps in 0 min, 0 min left" for n in (1, 2, 3)]
    assert last.startswith("3/3 - ")
    small_model("adam").fit(small_data(3), verbose=0, callbacks=[EpochBar(3)])
    assert capsys.readouterr().out == ""


def test_c11_tensorboard_within_the_epoch(tmp_path):
    """Before: nothing but what an epoch ends with."""
    model = small_model("adam")
    model.fit(small_data(7), verbose=0, callbacks=[StepCurves(tmp_path, every=3)])
    model.fit(small_data(3), verbose=0, callbacks=[StepCurves(tmp_path, every=3)])
    found = [
        (event.step, value.tag)
        for path in sorted(tmp_path.glob("events*"))
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    ]
    assert found == [(step, "batch_loss") for step in (3, 6, 9)]


def test_t7_lone_carriage_returns_as_line_ends(data, tmp_path):
    """Before: training failed after 51 s with a message about batches."""
    folder = shutil.copytree(data, tmp_path / "data")
    (folder / "train.xx").write_bytes(b"a b\rc d\r")
    with pytest.raises(ValueError, match=r"train\.xx is one line with.*tr '\\r' '\\n'"):
        go_on(folder, tmp_path / "run")
    assert not RunDirectory(tmp_path / "run").record.exists()


def test_t7_what_it_says_to_do_helps(tmp_path):
    """The command that it names can be pasted."""
    (tmp_path / "old.txt").write_bytes(b"a b\rc d\r")
    with pytest.raises(ValueError) as said:
        list(read_lines(tmp_path / "old.txt"))
    command = str(said.value).split("first: ")[1]
    subprocess.run(command, shell=True, cwd=tmp_path, check=True)
    assert list(read_lines(tmp_path / "new.txt")) == ["a b", "c d"]


def test_t8_pairs_that_are_left_out(trained):
    """Before: they were left out without a word."""
    path, said = trained
    left_out = "5 of 40 training pairs: 3 with an empty side, 2 of over 20 tokens"
    assert f"left out     {left_out}" in said
    known = read_record(path)["corpus"]["train"]
    assert [known[x] for x in ("pairs", "empty", "too_long")] == [40, EMPTY, TOO_LONG]


def test_t8_what_is_left_out_elsewhere(data, tmp_path):
    """Before: letters without a piece, and long pairs to validate by, were not told."""
    copied = shutil.copytree(data, tmp_path / "data")
    add_lines(copied, [LONG], "val")
    with open_run(*options("train", *words(copied, tmp_path / "run"))[:2]) as begun:
        # As if a corpus had more words than its vocabularies: "A" is unknown.
        sides = WordTokenizer([*"abcdefg"]), WordTokenizer([*"BCDEFG"])
        tokenizers = TokenizerPair(*sides)
        counted = count_texts(begun, tokenizers, 60)
    assert counted["validation"]["too_long"] == 1
    lines = (copied / "train.yy").read_text()
    target = counted["train"]["unknown_target"]
    assert target == lines.count("A") / len(lines.split()) > 0.1
    assert counted["train"]["unknown_source"] == 0


@pytest.mark.slow
def test_t8_what_is_left_out_elsewhere_is_said(trained, data, tmp_path, capsys):
    """Before: as above."""
    copied = shutil.copytree(data, tmp_path / "data")
    add_lines(copied, [LONG], "val")
    add_lines(copied, ["a ж c d"])
    changes = {"tokenizer": "sentencepiece", "vocab_size": 20, "max_length": 20}
    given = words(copied, tmp_path / "run", character_coverage=0.99, **changes)
    run("train", *given)
    said = capsys.readouterr().out
    assert (
        "\ncut          1 of 9 validation pairs: val_loss is of their first 20" in said
    )
    share, other = re.search(
        r"\nunknown      (.*)% of the xx tokens are <unk>, (.*)% of the yy ones\n", said
    ).groups()
    known = read_record(tmp_path / "run")["corpus"]["train"]
    assert float(share) == pytest.approx(100 * known["unknown_source"], abs=0.01)
    assert float(other) == pytest.approx(100 * known["unknown_target"], abs=0.01)
    assert float(share) > 0.1
    assert "\ncut " not in trained[1] and "\nunknown " not in trained[1]


def test_t8_a_vocabulary_smaller_than_was_asked_for(trained):
    """Before: --vocab_size 30000 silently became 2,348."""
    path, said = trained
    small = "11 xx, 11 yy, word; the text is too small for all 50,000"
    assert f"vocabulary   {small}" in said
    record = read_record(path)
    assert record["settings"]["vocab_size"] == 50_000  # as it was asked for
    assert record["model"]["config"]["config"]["target_vocab_size"] == 11


@pytest.mark.slow
def test_t8_nothing_is_left(data, tmp_path):
    """Before: "The data has no batch", after the whole epoch's data was read."""
    given = words(data, tmp_path / "run", max_length=1)
    with pytest.raises(ValueError, match="No pair is left.*3 have an empty side.*37"):
        run("train", *given)
