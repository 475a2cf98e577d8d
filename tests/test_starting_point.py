"""Runs that start from another run: its weights, its tokenizers, its text."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from commands import options, run
from small_training import train_words, write_corpus

import keras_luong as kl
from keras_luong.runs import train
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.record import read_record
from keras_luong.runs.starting_point import old_corpus, training_corpus
from keras_luong.text.corpus import sentences
from keras_luong.text.tags import tags_of


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Two texts: the new one has words that the old one has not."""
    place = tmp_path_factory.mktemp("corpora")
    for name in ("old", "new"):
        (place / name).mkdir()
        write_corpus(place / name, train=30, val=6)
    for path in (place / "new").iterdir():
        path.write_text(path.read_text().translate(str.maketrans("aA", "zZ")))
    return place


def trained(data, run_dir, **changes):
    """Trains as the command does: -> the run directory."""
    words = train_words(data, run_dir, **{"epochs": 1, "keep_epochs": 1, **changes})
    train.train(*options("train", *words))
    return run_dir


@pytest.fixture(scope="module")
def old(corpora, tmp_path_factory):
    """A run on the old text."""
    return trained(corpora / "old", tmp_path_factory.mktemp("runs") / "old")


def gone_on(old, data, run_dir, **changes):
    """A run that starts from the old one, of which it is told nothing else."""
    words = ["--run_dir", run_dir, "--init_from", old, "--data", data, "--epochs", 1]
    for name, value in changes.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    train.train(*options("train", *words))
    return run_dir


def weights(run_dir, **which):
    model = kl.load(run_dir, **which).model
    return {weight.path.split("/", 1)[-1]: weight.numpy() for weight in model.weights}


def equal(one, other):
    return [name for name in one if np.array_equal(one[name], other[name])]


def test_k2_it_starts_where_the_other_ended_and_says_so(
    old, corpora, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(train, "fit", lambda model, *args, **more: _stop(model))
    with pytest.raises(KeyboardInterrupt):
        gone_on(old, corpora / "new", tmp_path / "new")
    said, record = capsys.readouterr().out, read_record(tmp_path / "new")
    assert f"best weights of {old} after 1 epoch(s) on {corpora / 'old'}, 30" in said
    assert record["came_from"]["run"] == str(old)
    assert record["came_from"]["weights"] == "model.weights.h5"
    assert record["came_from"]["epochs"] == 1
    before = read_record(old)
    assert record["came_from"]["corpus"] == before["corpus"]
    assert record["model"]["config"] == before["model"]["config"]
    assert record["settings"]["learning_rate"] == 0.01 / 4
    for path in RunDirectory(old).tokenizer.iterdir():
        copy = RunDirectory(tmp_path / "new").tokenizer / path.name
        assert copy.read_bytes() == path.read_bytes()
    kept, now = weights(old), _stop.weights
    assert len(equal(kept, now)) == len(kept)
    assert all(not np.any(moment) for moment in _stop.moments)


def _stop(model):
    """Stands for a training that is stopped at once."""
    found = {w.path.split("/", 1)[-1]: w.numpy() for w in model.weights}
    _stop.weights, optimizer = found, model.optimizer
    _stop.moments = [v.numpy() for v in optimizer.variables if "velocity" in v.path]
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def new(old, corpora, tmp_path_factory):
    """A run on the new text and a share of the old, with tags and new words."""
    return gone_on(
        old,
        corpora / "new",
        tmp_path_factory.mktemp("runs") / "new",
        mix_old="0.5",
        grow_vocab=5,
        tag="new",
        old_tag="old",
    )


def test_k2_the_texts_are_mixed_and_tagged(new, corpora):
    settings = read_record(new)["settings"]
    sources, targets = sentences(training_corpus(settings), "train")
    assert len(sources) == 60 and read_record(new)["corpus"]["train"]["pairs"] == 60
    assert sum(x.startswith("<new> ") for x in sources) == 30
    of_old = {x[6:] for x in sources if x.startswith("<old> ")}
    assert of_old == set((corpora / "old" / "train.xx").read_text().splitlines())
    assert not any("<" in x for x in targets)
    sources, _ = sentences(training_corpus(settings), "validation")
    assert all(x.startswith("<new> ") for x in sources) and len(sources) == 6


def test_k2_the_vocabulary_grew_by_the_new_words_and_the_tags(new, old):
    before, now = kl.load(old).tokenizers, kl.load(new).tokenizers
    assert now.source.words == [*before.source.words, "z", "<new>", "<old>"]
    assert now.target.words == [*before.target.words, "Z"]
    assert tags_of(now.source) == ["new", "old"]
    config = kl.load(new).model.config
    assert config.source_vocab_size == now.source.vocab_size
    assert config.target_vocab_size == now.target.vocab_size


def test_k2_tags_are_asked_for_when_translating(new, corpora, tmp_path, capsys):
    (tmp_path / "in").write_text("z b\n\nb\n")
    words = ["--input", tmp_path / "in", "--output", tmp_path / "out", "--scores"]
    run("translate", new, *words, "--tag", "new", "--alignments")
    lines = (tmp_path / "out").read_text().splitlines()
    expected = kl.load(new).translate(["<new> z b", "", "<new> b"])
    assert [x.split(" ||| ")[0] for x in lines] == [x.text for x in expected]
    assert lines[1] == " ||| 0.0000 ||| "
    links = lines[2].split(" ||| ")[2].split()  # one word beside the tag
    assert all(link.startswith("0-") for link in links)
    with pytest.raises(ValueError, match="trained with: new, old. Received: news"):
        run("translate", new, *words, "--tag", "news")


def test_k2_a_run_goes_on_by_the_same_command(new, old, corpora, tmp_path):
    copy = shutil.copytree(new, tmp_path / "copy")
    moved = shutil.copytree(old, tmp_path / "moved")  # the same weights
    same = {"mix_old": "0.5", "grow_vocab": 5, "tag": "new", "old_tag": "old"}
    start = read_record(new)["came_from"]
    gone_on(moved, corpora / "new", copy, **same)
    assert read_record(copy)["came_from"] == start
    with pytest.raises(ValueError, match="other settings.*mix_old: 0.5 there, 0.25"):
        gone_on(old, corpora / "new", copy, **{**same, "mix_old": "0.25"})
    with pytest.raises(ValueError, match="another start.*Received"):
        gone_on(new, corpora / "new", copy, grow_vocab=5, mix_old="0.5")


def test_k2_the_old_text_must_be_there_and_what_it_was(old, corpora, tmp_path):
    copy = shutil.copytree(old, tmp_path / "run")
    record = read_record(copy)
    text = shutil.copytree(corpora / "old", tmp_path / "text")
    record["settings"]["data"] = str(text)
    (copy / "run.json").write_text(json.dumps(record))
    assert old_corpus(copy).name == "text"
    (text / "train.xx").write_text("b\n" * 30)
    with pytest.raises(ValueError, match="mix_old needs the corpus .* has changed"):
        old_corpus(copy)
    shutil.rmtree(text)
    with pytest.raises(ValueError, match="mix_old needs .* where it was, .*text'"):
        gone_on(copy, corpora / "new", tmp_path / "new", mix_old="0.5")
    with pytest.raises(ValueError, match="one|names its data"):
        del record["settings"]["data"]
        (copy / "run.json").write_text(json.dumps(record))
        old_corpus(copy)


def test_k2_weights_that_changed_before_the_first_checkpoint_are_refused(
    old, corpora, tmp_path
):
    copy = shutil.copytree(old, tmp_path / "old")
    gone_on(copy, corpora / "old", tmp_path / "new")
    shutil.rmtree(tmp_path / "new" / "checkpoints")
    (tmp_path / "new" / "history.jsonl").unlink()
    RunDirectory(copy).best_weights.write_bytes(b"")
    with pytest.raises(ValueError, match="has changed since this run began"):
        gone_on(copy, corpora / "old", tmp_path / "new")


def test_k2_frozen_parts_stay_equal_to_the_bit(old, corpora, tmp_path, capsys):
    parts = ["encoder", "source_embedding", "attention"]
    more = {"freeze": parts, "ema_momentum": "0.9", "weight_decay": "0.01"}
    gone_on(old, corpora / "old", tmp_path / "new", **more)
    before, now = weights(old), weights(tmp_path / "new")
    kept = equal(before, now)
    frozen = [x for x in before if "encoder" in x or "attention/" in x]
    frozen += [x for x in before if "source" in x]
    named = {x for x in before if x in frozen}
    assert kept and set(kept) == named, (kept, list(before))
    assert "are frozen (encoder, source_embedding, attention)" in capsys.readouterr().out
    again = tmp_path / "again"
    gone_on(tmp_path / "new", corpora / "old", again)  # nothing is frozen any more
    assert not equal(now, weights(again))


def test_k2_new_tokens_need_weights_that_learn(old, corpora, tmp_path):
    with pytest.raises(ValueError, match="freeze must leave source_embedding"):
        gone_on(old, corpora / "new", tmp_path / "n", grow_vocab=1, freeze="embeddings")


def test_k2_a_run_that_starts_from_nothing_has_tags_too(corpora, tmp_path):
    new = trained(corpora / "old", tmp_path / "new", tag="old")
    words = kl.load(new).tokenizers.source.words
    assert words[-1] == "<old>" and len(words) == 8
    assert read_record(new)["sample"].startswith("<old> ")
