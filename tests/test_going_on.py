"""What a new run takes from the one that it starts from, as settings."""

from __future__ import annotations

import json

import pytest
from commands import options
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.config.training import RATE_TO_GO_ON, TrainingConfig, fields_of_run
from keras_luong.models.transformer import Transformer
from keras_luong.text.tokenizer_pair import TokenizerPair


@pytest.fixture
def run(tmp_path):
    """A run of a preset's model with other units, by a recipe of its own."""
    settings = TrainingConfig.from_preset(
        "small", tokenizer="word", data="old", optimizer="adam", epochs=7, vocab_size=9
    ).settings()
    settings |= {"batch_tokens": 99, "strategy": "one", "limit_examples": 5, "units": 4}
    return written_run(tmp_path / "old", word_translator(), settings).path


def test_k2_a_run_goes_on_as_it_was_trained_but_more_slowly(run):
    config = TrainingConfig.from_run(run, data="new")
    assert (config.data, config.init_from) == ("new", str(run))
    assert (config.tokenizer, config.vocab_size, config.preset) == ("word", 9, "small")
    assert (config.epochs, config.optimizer, config.batch_tokens) == (7, "adam", 99)
    assert config.learning_rate == 1e-3 * RATE_TO_GO_ON
    assert (config.strategy, config.limit_examples) == ("auto", None)
    assert config.model_config(9, 7) == kl.load(run).model.config
    assert TrainingConfig.from_run(run).data == "old"  # to go on with the same text


def test_k2_what_is_given_counts_where_it_may(run):
    changes = {"epochs": 2, "learning_rate": 0.5, "dropout": 0.7, "tokenizer": "word"}
    config = TrainingConfig.from_run(run, **changes, units=4)
    assert (config.epochs, config.learning_rate) == (2, 0.5)
    assert config.model["dropout"] == 0.7 and config.model["units"] == 4
    assert TrainingConfig.from_run(run, optimizer="sgd").learning_rate == RATE_TO_GO_ON


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("units", 8, "units is taken from .*old, .* units=4. Received: 8"),
        ("vocab_size", 50_000, "vocab_size=9. Received: 50000"),
        ("shared", True, "shared=False. Received: True"),
        ("tokenizer", "sentencepiece", "tokenizer='word'. Received: 'sentencepiece'"),
        ("preset", "multi30k", "preset='small'. Received: 'multi30k'"),
        ("unit", 8, "A setting must be"),
        ("freeze", "everything", "freeze must be"),
        ("tag", "New", "tag must be of small letters.*Received: 'New'"),
        ("tag", "unk", "tag must be none of"),
        ("old_tag", "a", "old_tag is for what mix_old brings"),
        ("mix_old", 1.0, "mix_old"),
    ],
)
def test_k2_what_contradicts_the_run_is_refused(name, value, message, run):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainingConfig.from_run(run, **{name: value})


def test_k2_on_the_command_line_too(run, capsys):
    words = ["train", "--run_dir", "new", "--init_from", str(run)]
    config, *_ = options(*words, "--epochs", "12", "--mix_old", "0.5")
    assert config.model["units"] == 4
    assert (config.epochs, config.mix_old) == (12, 0.5)  # 12 is the usual number
    for more in (["--units", "5"], ["--shared"], ["--preset", "multi30k"]):
        with pytest.raises(SystemExit):
            options(*words, *more)
        assert f"{more[0]} is taken from {run}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        options(*words, "--distill")
    assert "--distill trains models from nothing, and --init" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        options("train", "--run_dir", "new", "--init_from", "nowhere")
    assert "--init_from must be a run directory" in capsys.readouterr().err


def test_k2_a_configuration_made_directly_takes_the_model_over(run):
    config = TrainingConfig(init_from=str(run), data="new", optimizer="adam")
    assert config.model_config(9, 7) == kl.load(run).model.config
    assert config.learning_rate == 1e-3 * RATE_TO_GO_ON
    with pytest.raises(ValueError, match="vocab_size is taken from"):
        TrainingConfig(init_from=str(run), vocab_size=10)
    with pytest.raises(ValueError, match="mix_old needs init_from.*mix_old=0.5"):
        TrainingConfig(mix_old=0.5)


def test_k2_a_chain_of_runs_does_not_become_ever_slower(run):
    record = json.loads((run / "run.json").read_text())
    record["settings"] |= {"init_from": "older", "learning_rate": 0.01, "mix_old": 0.5}
    (run / "run.json").write_text(json.dumps(record))
    config = TrainingConfig.from_run(run)
    assert (config.learning_rate, config.mix_old) == (0.01, None)


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
    assert config.shared == TokenizerPair(words).shared


@pytest.mark.parametrize("name", ["data", "source", "target"])
def test_what_a_run_does_not_name_must_be_given(name, tmp_path):
    kl.save_run(word_translator(), tmp_path / "run")
    new = {"data": "new", "source": "fr", "target": "en"}
    del new[name]
    with pytest.raises(ValueError, match=f"^{name} must be given, as .*run does not"):
        TrainingConfig.from_run(tmp_path / "run", **new)


def test_k2_a_run_may_have_undone_what_its_preset_ties(tmp_path):
    settings = TrainingConfig.from_preset(
        "multi30k-small", shared=False, tie_embeddings=None
    ).settings()
    run = written_run(tmp_path / "run", word_translator(), settings).path
    config = TrainingConfig.from_run(run)
    assert config.model_config(9, 7) == kl.load(run).model.config


def test_k2_a_model_that_no_preset_makes_is_named(run):
    record = json.loads((run / "run.json").read_text())
    record["model"]["class"] = "mine>MyModel"
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="init_from must be a run of .*of MyModel"):
        fields_of_run(run)
    (run / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="run.json is damaged"):
        fields_of_run(run)
