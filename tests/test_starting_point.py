"""Runs that start from another run: its settings, weights, tokenizers and text."""

import shutil

import keras
import numpy as np
import pytest
from commands import options
from small_training import not_training, train_words, write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.config.training import RATE_TO_GO_ON, TrainingConfig, fields_of_run
from keras_luong.files import write_json, write_lines
from keras_luong.models.transformer import Transformer
from keras_luong.runs import start, train
from keras_luong.runs.run import RunDirectory, read_record
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import sentences
from keras_luong.text.survey import survey
from keras_luong.text.tags import tags_of

MIXED = {"mix_old": "0.5", "grow_vocab": 5, "tag": "new", "old_tag": "old"}


@pytest.fixture(scope="session")
def corpora(tmp_path_factory):
    """Two texts: the new one has words that the old one has not."""
    place = tmp_path_factory.mktemp("corpora")
    for name in ("old", "new"):
        (place / name).mkdir()
        write_corpus(place / name, train=30, val=6)
    for path in (place / "new").iterdir():
        path.write_text(path.read_text().translate(str.maketrans("aA", "zZ")))
    return place


@pytest.fixture(scope="session")
def old(corpora, tmp_path_factory):
    """A run on the old text, as if it had been trained for two epochs."""
    pairs = load_corpus(corpora / "old", "xx", "yy").pairs("train")
    words = kl.TokenizerPair.train(pairs, kind="word")
    given = train_words(corpora / "old", tmp_path_factory.mktemp("old"))
    config, path, _ = options("train", *given)
    keras.utils.set_random_seed(1)
    model = kl.Seq2Seq(config.model_config(11, 11))
    translator = kl.Translator(model, words, kl.BeamSearch(2, max_length=9))
    path = kl.save_run(translator, path, config.settings())
    texts = survey(load_corpus(corpora / "old", "xx", "yy")).texts
    write_json(path / "run.json", {**read_record(path), "corpus": texts})
    write_lines(path / "history.jsonl", ['{"epoch": 1}', '{"epoch": 2}'])
    return path


def changed(run_dir, path, **settings):
    """A copy of a run, of other settings."""
    record = read_record(shutil.copytree(run_dir, path))
    settings = {**record["settings"], **settings}
    write_json(path / "run.json", {**record, "settings": settings})
    return path


def test_k2_a_run_goes_on_as_it_was_trained_but_more_slowly(old, corpora, tmp_path):
    """What is given counts where it may."""
    other = {"strategy": "one", "limit_examples": 5, "epochs": 7, "batch_tokens": 99}
    before = changed(old, tmp_path / "run", **other)
    config = TrainingConfig.from_run(before, data="new")
    assert (config.data, config.init_from) == ("new", str(before))
    assert (config.epochs, config.optimizer, config.batch_tokens) == (7, "adam", 99)
    assert (config.tokenizer, config.preset) == ("word", "small")
    assert config.learning_rate == 0.01 * RATE_TO_GO_ON
    assert (config.strategy, config.limit_examples) == ("auto", None)
    model = kl.load(old).model.config
    assert config.model_config(11, 11) == model
    assert TrainingConfig.from_run(before).data == str(corpora / "old")
    changes = {"epochs": 2, "learning_rate": 0.5, "dropout": 0.7, "tokenizer": "word"}
    config = TrainingConfig.from_run(before, **changes, units=8)
    assert (config.epochs, config.learning_rate) == (2, 0.5)
    assert config.model["dropout"] == 0.7 and config.model["units"] == 8
    rate = TrainingConfig.from_run(before, optimizer="sgd").learning_rate
    assert rate == RATE_TO_GO_ON
    config = TrainingConfig(init_from=str(before), data="new", optimizer="adam")
    assert config.model_config(11, 11) == model
    assert config.learning_rate == 0.01 * RATE_TO_GO_ON
    # A chain of runs does not become ever slower.
    again = changed(before, tmp_path / "again", init_from="older", mix_old=0.5)
    config = TrainingConfig.from_run(again)
    assert (config.learning_rate, config.mix_old) == (0.01, None)


CONTRADICTIONS = [
    ("units", 4, "units is taken from .*, .* units=8. Received: 4"),
    ("vocab_size", 50, "vocab_size=.* Received: 50"),
    ("preset", "multi30k", "preset='small'. Received: 'multi30k'"),
    ("unit", 8, "A setting must be"),
    ("freeze", "everything", "freeze must be"),
    ("tag", "unk", "tag must be none of"),
    ("old_tag", "a", "old_tag is for what mix_old brings"),
    ("mix_old", 1.0, "mix_old"),
]


@pytest.mark.parametrize("name, value, message", CONTRADICTIONS)
def test_k2_what_contradicts_the_run_is_refused(name, value, message, old):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainingConfig.from_run(old, **{name: value})


def test_k2_what_cannot_be_started_from_is_told(old, tmp_path, capsys):
    with pytest.raises(ValueError, match="mix_old needs init_from.*mix_old=0.5"):
        TrainingConfig(mix_old=0.5)
    with pytest.raises(ValueError, match="vocab_size is taken from"):
        TrainingConfig(init_from=str(old), vocab_size=10)
    words = ["train", "--run_dir", "new", "--init_from", str(old)]
    config, *_ = options(*words, "--epochs", "12", "--mix_old", "0.5")
    assert config.model["units"] == 8
    assert (config.epochs, config.mix_old) == (12, 0.5)  # 12 is the usual number
    for more, message in {
        "--units 5": f"--units is taken from {old}",
        "--distill": "--distill trains models from nothing, and --init",
        "--init_from nowhere": "--init_from must be a run directory",
    }.items():
        with pytest.raises(SystemExit):
            options(*words, *more.split())
        assert message in capsys.readouterr().err
    record = read_record(copy := shutil.copytree(old, tmp_path / "copy"))
    record["model"]["class"] = "mine>MyModel"
    write_json(copy / "run.json", record)
    with pytest.raises(ValueError, match="init_from must be a run of .*of MyModel"):
        fields_of_run(copy)


def test_k2_a_run_without_settings_has_a_preset_of_its_model(tmp_path):
    size = {"units": 8, "num_heads": 2, "num_layers": 1, "feedforward_units": 8}
    model = Transformer.from_preset("wu2021-tiny", 6, 6, **size)
    words = kl.WordTokenizer(["a", "b"])
    kl.save_run(kl.Translator(model, words, kl.BeamSearch(2)), tmp_path / "run")
    new = {"data": "new", "source": "fr", "target": "en"}
    config = TrainingConfig.from_run(tmp_path / "run", **new, num_heads=2)
    assert config.model_config(6, 6) == model.config
    assert config.preset.startswith("vaswani2017")
    # It is trained as by "auto", but with its own tokenizers, which are not shared.
    assert (config.optimizer, config.schedule) == ("adam", "plateau")
    assert config.learning_rate == 0.002 * RATE_TO_GO_ON
    assert config.shared == kl.TokenizerPair(words).shared
    for name in new:  # which the run does not name
        others = {x: new[x] for x in new if x != name}
        with pytest.raises(ValueError, match=f"^{name} must be given, as .*run does n"):
            TrainingConfig.from_run(tmp_path / "run", **others)
    # One may have undone what its preset ties.
    undone = {"shared": False, "tie_embeddings": None}
    settings = TrainingConfig.from_preset("multi30k-small", **undone).settings()
    before = written_run(tmp_path / "other", word_translator(), settings).path
    config = TrainingConfig.from_run(before)
    assert config.model_config(9, 7) == kl.load(before).model.config


def gone_on(old, data, run_dir, **changes):
    """A run that starts from the old one, of which it is told nothing else."""
    words = ["--run_dir", run_dir, "--init_from", old, "--data", data, "--epochs", 1]
    for name, value in changes.items():
        words += [f"--{name}", *(value if isinstance(value, list) else [value])]
    train.train(*options("train", *words)[:2])
    return run_dir


def weights(run_dir, **which):
    model = kl.load(run_dir, **which).model
    return {f"{i} {x.path}": x.numpy() for i, x in enumerate(model.weights)}


def equal(one, other):
    """The names in `one`, the first, of weights that are equal to the bit."""
    pairs = zip(one, one.values(), other.values(), strict=True)
    return [name for name, x, y in pairs if np.array_equal(x, y)]


@pytest.mark.slow
def test_k2_it_starts_where_the_other_ended_and_says_so(old, corpora, tmp_path, capsys):
    with not_training():
        gone_on(old, corpora / "new", tmp_path / "new")
    said, record = capsys.readouterr().out, read_record(tmp_path / "new")
    assert f"best weights of {old} after 2 epoch(s) on {corpora / 'old'}, xx" in said
    assert "/old, xx → yy, 30 pairs" in said
    assert "\nleft out     none of 30 training pairs\n" in said
    assert "word; the text is too small for all 50,000\n" in said
    assert "\ncut " not in said
    before, come = read_record(old), record["came_from"]
    found = [come[x] for x in ("run", "weights", "epochs", "corpus")]
    assert found == [str(old), "model.weights.h5", 2, before["corpus"]]
    made, other = (x["model"]["config"]["config"] for x in (record, before))
    assert made == other and record["settings"]["learning_rate"] == 0.01 / 4
    for path in RunDirectory(old).tokenizer.iterdir():
        copy = RunDirectory(tmp_path / "new").tokenizer / path.name
        assert copy.read_bytes() == path.read_bytes()
    kept = weights(old)
    assert equal(kept, weights(tmp_path / "new")) == list(kept)


@pytest.fixture(scope="session")
def new(old, corpora, tmp_path_factory):
    """A run on the new text and a share of the old, with tags and new words."""
    path = tmp_path_factory.mktemp("runs") / "new"
    with not_training():
        return gone_on(old, corpora / "new", path, **MIXED)


def test_k2_the_texts_are_mixed_and_tagged(new, old, corpora):
    """And the vocabulary has grown by the new words and the tags."""
    settings = read_record(new)["settings"]
    sources, targets = sentences(start.training_corpus(settings), "train")
    train = read_record(new)["corpus"]["train"]
    assert (len(sources), train["pairs"], train["mixed"]) == (60, 30, 30)
    assert sum(x.startswith("<new> ") for x in sources) == 30
    of_old = {x[6:] for x in sources if x.startswith("<old> ")}
    assert of_old == set((corpora / "old" / "train.xx").read_text().splitlines())
    assert not any("<" in x for x in targets)
    sources, _ = sentences(start.training_corpus(settings), "validation")
    assert all(x.startswith("<new> ") for x in sources) and len(sources) == 6
    before, now = kl.load(old).tokenizers, kl.load(new).tokenizers
    assert now.source.words == [*before.source.words, "z", "<new>", "<old>"]
    assert now.target.words == [*before.target.words, "Z"]
    assert tags_of(now.source) == ["new", "old"]
    config = kl.load(new).model.config
    assert config.source_vocab_size == now.source.vocab_size
    assert config.target_vocab_size == now.target.vocab_size


@pytest.mark.slow
def test_k2_a_run_goes_on_by_the_same_command(new, old, corpora, tmp_path):
    copy = shutil.copytree(new, tmp_path / "copy")
    moved = shutil.copytree(old, tmp_path / "moved")  # the same weights
    come = read_record(new)["came_from"]
    with not_training():
        gone_on(moved, corpora / "new", copy, **MIXED)
        assert read_record(copy)["came_from"] == come
        with pytest.raises(ValueError, match="settings.*mix_old: 0.5 there, 0.25 now"):
            gone_on(old, corpora / "new", copy, **{**MIXED, "mix_old": "0.25"})
        other = shutil.copytree(old, tmp_path / "other")
        RunDirectory(other).best_weights.write_bytes(b"")
        with pytest.raises(ValueError, match="another start.*had .*moved'.*Received: "):
            gone_on(other, corpora / "new", copy, **MIXED)


def test_k2_weights_are_read_from_where_the_start_is_now(old, tmp_path):
    come = start.describe_start(shutil.copytree(old, tmp_path / "copy"))
    moved = (tmp_path / "copy").rename(tmp_path / "moved")
    translator = kl.load(old)
    fresh = kl.Seq2Seq(translator.model.config)
    start.inherit_weights(fresh, translator.tokenizers, moved, come)
    for now, before in zip(fresh.weights, translator.model.weights, strict=True):
        np.testing.assert_array_equal(now, before)
    RunDirectory(moved).best_weights.write_bytes(b"")
    with pytest.raises(ValueError, match="has changed since this run began"):
        start.inherit_weights(fresh, translator.tokenizers, moved, come)


def test_k2_the_old_text_must_be_there_and_what_it_was(old, corpora, tmp_path):
    text = shutil.copytree(corpora / "old", tmp_path / "text")
    copy = changed(old, tmp_path / "run", data=str(text))
    assert start.old_corpus(copy).name == "text"
    with pytest.raises(ValueError, match="run_dir must be another directory than init"):
        gone_on(copy, corpora / "new", copy)
    (text / "train.xx").write_text("b\n" * 30)
    with pytest.raises(ValueError, match="mix_old needs the corpus .* has changed"):
        start.old_corpus(copy)
    shutil.rmtree(text)
    with pytest.raises(ValueError, match="mix_old needs .* where it was, .*text'"):
        gone_on(copy, corpora / "new", tmp_path / "new", mix_old="0.5")
    with pytest.raises(ValueError, match="mix_old needs a run that names its data"):
        start.old_corpus(changed(copy, tmp_path / "other", data=None))


@pytest.mark.slow
def test_k2_a_run_is_not_judged_by_what_its_start_has(old, corpora, tmp_path, capsys):
    """Told: whether the old text is mixed in, or not, or not there any more."""
    data = shutil.copytree(corpora / "new", tmp_path / "new")
    for side in ("xx", "yy"):
        known = (corpora / f"old/train.{side}").read_text().splitlines()
        (data / f"val.{side}").write_text("\n".join(known[:6]) + "\n")
    moved = changed(old, tmp_path / "moved", data=str(tmp_path / "gone"))
    mixed = {"mix_old": "0.5", "old_tag": "old"}
    for come, more, there in ((old, {}, True), (old, mixed, True), (moved, {}, False)):
        with not_training():
            path = gone_on(come, data, tmp_path / f"run{len(more)}{there}", **more)
        train = read_record(path)["corpus"]["train"]
        assert train["start_compared"] == there
        pairs = train["in_splits"]["validation"][:2]
        assert pairs == [6, 6] if there else pairs[0] < 6  # some are in both texts
    assert "was trained on is not there as it was" in capsys.readouterr().out


def test_k2_other_languages_are_mixed_with_a_tag_alone(old, corpora, tmp_path):
    reverse = {"source": "yy", "target": "xx", "data": str(corpora / "new"), "seed": 1}
    assert "train" in start.training_corpus(reverse).splits  # mix_old alone matters
    mixed = {**reverse, "init_from": str(old), "mix_old": 0.5}
    with pytest.raises(ValueError, match="mix xx into yy, as .*, with yy into xx. Lea"):
        start.training_corpus(mixed)
    assert "train" in start.training_corpus({**mixed, "old_tag": "yy"}).splits
    same = {**mixed, "source": "xx", "target": "yy"}
    start._check_direction(same, str(changed(old, tmp_path / "region", source="xx-US")))
    start._check_direction(mixed, str(changed(old, tmp_path / "tag", tag="old")))
    unknown = changed(old, tmp_path / "unknown", source=None, target=None)
    start._check_direction(same, str(unknown))


@pytest.mark.slow
def test_k2_frozen_parts_stay_equal_to_the_bit(old, corpora, tmp_path, capsys):
    parts = ["encoder", "source_embedding", "attention"]
    more = {"freeze": parts, "ema_momentum": "0.9", "weight_decay": "0.01"}
    gone_on(old, corpora / "old", tmp_path / "new", **more)
    before, now = weights(old), weights(tmp_path / "new")
    frozen = ("encoder", "source_embedding", "attention/")
    expected = [x for x in before if any(part in x for part in frozen)]
    assert equal(before, now) == expected and 3 <= len(expected) < len(before)
    said = capsys.readouterr().out
    assert "are frozen (encoder, source_embedding, attention)" in said
    assert "\nunknown " not in said
    assert not kl.load(tmp_path / "new").model.encoder.trainable
    with not_training():  # nothing is frozen any more
        gone_on(tmp_path / "new", corpora / "old", tmp_path / "again")
    assert kl.load(tmp_path / "again").model.encoder.trainable
    assert equal(now, weights(tmp_path / "again")) == list(now)


@pytest.mark.slow
def test_k2_tags_that_the_text_has_are_tokens_too(old, corpora, tmp_path):
    """In front of a tag of the run's own, also of one that starts from nothing."""
    data = shutil.copytree(corpora / "new", tmp_path / "data")
    sources = (data / "train.xx").read_text()
    (data / "train.xx").write_text(f"<bt> {sources}")
    with not_training():
        words = train_words(data, tmp_path / "new", tag="own")
        train.train(*options("train", *words)[:2])
        gone_on(old, data, tmp_path / "on", grow_vocab=9, mix_old=0.5, tag="own")
    assert read_record(tmp_path / "new")["sample"].startswith("<own> ")
    for run_dir in ("new", "on"):
        known = kl.load(tmp_path / run_dir).tokenizers.source.words
        assert known[-2:] == ["<bt>", "<own>"] and set("bcdefgz") < set(known)
        assert not any("<" in word for word in known[:-2])
