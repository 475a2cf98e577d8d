"""Runs that start from another run: its weights, its tokenizers, its text."""

from __future__ import annotations

import contextlib
import shutil

import keras
import numpy as np
import pytest
from commands import options, run
from small_training import train_words, write_corpus

import keras_luong as kl
from keras_luong.files import write_json, write_lines
from keras_luong.runs import train
from keras_luong.runs.opening import describe_corpus
from keras_luong.runs.run import (
    RunDirectory,
    read_history,
    read_record,
)
from keras_luong.runs.start import (
    _check_direction,
    describe_start,
    inherit_weights,
    old_corpus,
    training_corpus,
)
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import sentences
from keras_luong.text.tags import tags_of

MIXED = {"mix_old": "0.5", "grow_vocab": 5, "tag": "new", "old_tag": "old"}


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


@pytest.fixture(scope="module")
def old(corpora, tmp_path_factory):
    """A run on the old text, as if it had been trained for two epochs."""
    data = corpora / "old"
    pairs = load_corpus(data, "xx", "yy").pairs("train")
    words = kl.TokenizerPair.train(pairs, kind="word")
    words_of = train_words(data, tmp_path_factory.mktemp("old"))
    config, path, _ = options("train", *words_of)
    keras.utils.set_random_seed(1)
    model = kl.Seq2Seq(config.model_config(11, 11))
    translator = kl.Translator(model, words, kl.BeamSearch(2, max_length=9))
    path = kl.save_run(translator, path, config.settings())
    texts = describe_corpus(training_corpus(config.settings()), None)
    write_json(path / "run.json", {**read_record(path), "corpus": texts})
    write_lines(path / "history.jsonl", ['{"epoch": 1}', '{"epoch": 2}'])
    return path


def gone_on(old, data, run_dir, **changes):
    """A run that starts from the old one, of which it is told nothing else."""
    words = ["--run_dir", run_dir, "--init_from", old, "--data", data, "--epochs", 1]
    for name, value in changes.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    train.train(*options("train", *words)[:2])
    return run_dir


@contextlib.contextmanager
def not_training():
    """Lets a training end where it begins, with the weights that it begins with."""

    def fit(model, batches, epochs, checkpoints, **more):
        model.save_weights(checkpoints.run.best_weights)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "fit", fit)
        patch.setattr(train, "evaluate", lambda run: {})
        yield


def weights(run_dir, **which):
    model = kl.load(run_dir, **which).model
    return {f"{i} {x.path}": x.numpy() for i, x in enumerate(model.weights)}


def equal(one, other):
    """The names in `one`, the first, of weights that are equal to the bit."""
    pairs = zip(one, one.values(), other.values(), strict=True)
    return [name for name, x, y in pairs if np.array_equal(x, y)]


def test_k2_it_starts_where_the_other_ended_and_says_so(old, corpora, tmp_path, capsys):
    with not_training():
        gone_on(old, corpora / "new", tmp_path / "new")
    said, record = capsys.readouterr().out, read_record(tmp_path / "new")
    assert f"best weights of {old} after 2 epoch(s) on {corpora / 'old'}, xx" in said
    assert "/old, xx → yy, 30 pairs" in said
    assert record["came_from"]["run"] == str(old)
    assert record["came_from"]["weights"] == "model.weights.h5"
    assert record["came_from"]["epochs"] == 2
    before = read_record(old)
    assert record["came_from"]["corpus"] == before["corpus"]
    made, other = (x["model"]["config"]["config"] for x in (record, before))
    assert made == other
    assert record["settings"]["learning_rate"] == 0.01 / 4
    for path in RunDirectory(old).tokenizer.iterdir():
        copy = RunDirectory(tmp_path / "new").tokenizer / path.name
        assert copy.read_bytes() == path.read_bytes()
    kept = weights(old)
    assert equal(kept, weights(tmp_path / "new")) == list(kept)


@pytest.fixture(scope="module")
def new(old, corpora, tmp_path_factory):
    """A run on the new text and a share of the old, with tags and new words."""
    path = tmp_path_factory.mktemp("runs") / "new"
    with not_training():
        return gone_on(old, corpora / "new", path, **MIXED)


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_k2_a_run_goes_on_by_the_same_command(new, old, corpora, tmp_path):
    copy = shutil.copytree(new, tmp_path / "copy")
    moved = shutil.copytree(old, tmp_path / "moved")  # the same weights
    start = read_record(new)["came_from"]
    with not_training():
        gone_on(moved, corpora / "new", copy, **MIXED)
        assert read_record(copy)["came_from"] == start
        with pytest.raises(ValueError, match="settings.*mix_old: 0.5 there, 0.25 now"):
            gone_on(old, corpora / "new", copy, **{**MIXED, "mix_old": "0.25"})
        other = shutil.copytree(old, tmp_path / "other")
        RunDirectory(other).best_weights.write_bytes(b"")
        with pytest.raises(ValueError, match="another start.*had .*moved'.*Received: "):
            gone_on(other, corpora / "new", copy, **MIXED)


def test_k2_weights_that_changed_before_they_were_read_are_refused(old, tmp_path):
    copy = shutil.copytree(old, tmp_path / "copy")
    start = describe_start(copy)
    RunDirectory(copy).best_weights.write_bytes(b"")
    translator = kl.load(old)
    with pytest.raises(ValueError, match="has changed since this run began"):
        inherit_weights(translator.model, translator.tokenizers, copy, start)


def test_k2_weights_are_read_from_where_the_start_is_now(old, tmp_path):
    copy = shutil.copytree(old, tmp_path / "copy")
    start = describe_start(copy)
    moved = copy.rename(tmp_path / "moved")
    fresh = kl.Seq2Seq(kl.load(old).model.config)
    inherit_weights(fresh, kl.load(old).tokenizers, moved, start)
    for now, before in zip(fresh.weights, kl.load(old).model.weights, strict=True):
        np.testing.assert_array_equal(now, before)


@pytest.mark.slow
def test_k2_it_is_trained_on_the_mixed_text_and_stops_and_goes_on(
    old, corpora, tmp_path
):
    path = tmp_path / "new"
    for epochs in (1, 2):
        gone_on(old, corpora / "new", path, **MIXED, epochs=epochs, batch_tokens=200)
    history = read_history(path)
    assert [line["epoch"] for line in history] == [1, 2]
    assert history[1]["loss"] < history[0]["loss"]
    assert not equal(weights(path), weights(old))


def test_k2_the_old_text_must_be_there_and_what_it_was(old, corpora, tmp_path):
    copy = shutil.copytree(old, tmp_path / "run")
    record = read_record(copy)
    text = shutil.copytree(corpora / "old", tmp_path / "text")
    record["settings"]["data"] = str(text)
    write_json(copy / "run.json", record)
    assert old_corpus(copy).name == "text"
    (text / "train.xx").write_text("b\n" * 30)
    with pytest.raises(ValueError, match="mix_old needs the corpus .* has changed"):
        old_corpus(copy)
    shutil.rmtree(text)
    with pytest.raises(ValueError, match="mix_old needs .* where it was, .*text'"):
        gone_on(copy, corpora / "new", tmp_path / "new", mix_old="0.5")
    del record["settings"]["data"]
    write_json(copy / "run.json", record)
    with pytest.raises(ValueError, match="mix_old needs a run that names its data"):
        old_corpus(copy)


@pytest.mark.slow
def test_k2_a_run_is_not_judged_by_what_its_start_has_learned(
    old, corpora, tmp_path, capsys
):
    """Told: whether the old text is mixed in, or not, or not there any more."""
    data = shutil.copytree(corpora / "new", tmp_path / "new")
    for side in ("xx", "yy"):
        known = (corpora / f"old/train.{side}").read_text().splitlines()
        (data / f"val.{side}").write_text("\n".join(known[:6]) + "\n")
    for number, mixed in enumerate(({}, {"mix_old": "0.5", "old_tag": "old"})):
        path = tmp_path / f"run{number}"
        with not_training():
            gone_on(old, data, path, **mixed)
        counted = read_record(path)["corpus"]["train"]
        assert counted["in_splits"]["validation"][:2] == [6, 6]
        assert counted["start_compared"]
    moved = shutil.copytree(old, tmp_path / "moved")
    record = read_record(moved)
    write_json(
        moved / "run.json",
        {**record, "settings": {**record["settings"], "data": str(tmp_path / "gone")}},
    )
    with not_training():
        gone_on(moved, data, tmp_path / "run")
    counted = read_record(tmp_path / "run")["corpus"]["train"]
    assert not counted["start_compared"]
    assert "was trained on is not there as it was" in capsys.readouterr().out
    assert counted["in_splits"]["validation"][0] < 6  # some are in the new text too


def test_k2_other_languages_are_not_mixed_unless_a_tag_tells_them(old, corpora):
    settings = {"data": str(corpora / "new"), "source": "yy", "target": "xx", "seed": 1}
    mixed = {**settings, "init_from": str(old), "mix_old": 0.5}
    with pytest.raises(ValueError, match="mix xx into yy, as .*, with yy into xx. Lea"):
        training_corpus(mixed)
    assert "train" in training_corpus({**mixed, "old_tag": "yy"}).splits
    # Without mix_old it is no matter.
    assert "train" in training_corpus(settings).splits


@pytest.mark.parametrize(
    "languages",
    [{"source": "xx-US"}, {"tag": "old"}, {"source": None, "target": None}],
    ids=["a region", "a tag of its own", "unknown languages"],
)
def test_k2_what_is_mixed_although_it_looks_otherwise(
    old, corpora, tmp_path, languages
):
    copy = shutil.copytree(old, tmp_path / "copy")
    record = read_record(copy)
    record["settings"].update(languages)
    write_json(copy / "run.json", record)
    reverse = {"source": "yy", "target": "xx"} if "tag" in languages else {}
    settings = {"source": "xx", "target": "yy", **reverse, "mix_old": 0.5}
    _check_direction(settings, str(copy))


@pytest.mark.slow
def test_k2_frozen_parts_stay_equal_to_the_bit(old, corpora, tmp_path, capsys):
    parts = ["encoder", "source_embedding", "attention"]
    more = {"freeze": parts, "ema_momentum": "0.9", "weight_decay": "0.01"}
    gone_on(old, corpora / "old", tmp_path / "new", **more)
    before, now = weights(old), weights(tmp_path / "new")
    kept = equal(before, now)
    frozen = ("encoder", "source_embedding", "attention/")
    assert kept == [x for x in before if any(part in x for part in frozen)]
    assert 3 <= len(kept) < len(before)
    assert (
        "are frozen (encoder, source_embedding, attention)" in capsys.readouterr().out
    )
    assert not kl.load(tmp_path / "new").model.encoder.trainable
    with not_training():  # nothing is frozen any more
        gone_on(tmp_path / "new", corpora / "old", tmp_path / "again")
    assert kl.load(tmp_path / "again").model.encoder.trainable
    assert equal(now, weights(tmp_path / "again")) == list(now)


@pytest.mark.slow
def test_k2_new_tokens_need_weights_that_learn(old, corpora, tmp_path):
    refused = pytest.raises(ValueError, match="freeze must leave source_embedding")
    with refused, not_training():
        gone_on(old, corpora / "new", tmp_path / "n", grow_vocab=1, freeze="embeddings")
    # Nothing was written that would refuse the same command once it is put right.
    gone_on(old, corpora / "new", tmp_path / "n", grow_vocab=1, freeze="encoder")


@pytest.mark.slow
def test_k2_a_run_that_starts_from_nothing_has_tags_too(corpora, tmp_path):
    words = train_words(corpora / "old", tmp_path / "new", tag="old")
    with not_training():
        train.train(*options("train", *words)[:2])
    known = kl.load(tmp_path / "new").tokenizers.source.words
    assert known[-1] == "<old>" and len(known) == 8
    assert read_record(tmp_path / "new")["sample"].startswith("<old> ")


@pytest.mark.slow
def test_k2_tags_that_the_text_has_are_tokens_too(old, corpora, tmp_path):
    """Also beside a tag of the run's own, in front of them."""
    data = tmp_path / "data"
    shutil.copytree(corpora / "new", data)
    sources = (data / "train.xx").read_text()
    (data / "train.xx").write_text(f"<bt> {sources}")
    with not_training():
        words = train_words(data, tmp_path / "new", tag="own")
        train.train(*options("train", *words)[:2])
        gone_on(old, data, tmp_path / "on", grow_vocab=9, mix_old=0.5, tag="own")
    for run_dir in ("new", "on"):
        known = kl.load(tmp_path / run_dir).tokenizers.source.words
        assert known[-2:] == ["<bt>", "<own>"] and set("bcdefgz") < set(known)
        assert not any("<" in word for word in known[:-2])


def test_a_run_cannot_start_from_itself(old, corpora):
    with pytest.raises(ValueError, match="run_dir must be another directory than init"):
        gone_on(old, corpora / "new", old)


def shifted(path, **sizes):
    """Text whose translation is the next letter, which is another one than before."""
    path.mkdir()
    write_corpus(path, **sizes)
    for side in path.glob("*.yy"):
        side.write_text(side.read_text().translate(str.maketrans("ABCDEFG", "BCDEFGA")))
    return path


def likelihood(run_dir, data):
    """The mean log-probability of a word of the validation data."""
    sources, targets = sentences(load_corpus(data, "xx", "yy"), "validation")
    scored = kl.load(run_dir).score(sources, targets)
    return np.mean([x for t in scored for x in t.log_probs])


@pytest.mark.slow
def test_k2_new_text_is_learned_and_old_text_forgotten_less_where_it_is_mixed_in(
    tmp_path,
):
    """Each letter becomes another one: what is new contradicts what was learned."""
    data, new = tmp_path / "data", shifted(tmp_path / "new", train=100, val=20)
    data.mkdir()
    write_corpus(data, train=200, val=20)
    run("train", *train_words(data, tmp_path / "old", units=16, epochs=12))
    alone = gone_on(tmp_path / "old", new, tmp_path / "alone", learning_rate=0.01)
    mixed = gone_on(
        *(tmp_path / "old", new, tmp_path / "mixed"), learning_rate=0.01, mix_old=0.5
    )
    of_new = [likelihood(x, new) for x in (tmp_path / "old", mixed, alone)]
    of_old = [likelihood(x, data) for x in (tmp_path / "old", mixed, alone)]
    assert of_new[0] < of_new[1] and of_new[0] < of_new[2]
    assert of_old[0] > of_old[1] > of_old[2]
