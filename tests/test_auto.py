"""What is chosen for a corpus of some size, and what is left as it was given."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.config.auto import (
    CHOSEN,
    REASONS,
    ROWS,
    AutoTraining,
    CorpusFacts,
    choose_settings,
)

CAPTIONS = CorpusFacts(29_000, 410_000, long_line=161, characters=76)

facts = st.builds(
    CorpusFacts,
    pairs=st.integers(1, 10**9),
    content=st.integers(0, 10**12),
    long_line=st.integers(0, 4096),
    characters=st.integers(0, 20_000),
)


@pytest.mark.slow
@given(facts)
def test_any_corpus_has_a_configuration(facts):
    config = AutoTraining("my/corpus").choose(facts, "xx", "yy")
    assert config.preset == "auto"
    assert config.vocab_size >= 1.5 * facts.characters
    assert 50 <= config.max_length <= 250
    assert config.model_config(9, 9).tie_embeddings == "all"


@given(facts, facts)
def test_more_text_has_no_smaller_model(one, other):
    less, more = sorted((one, other), key=lambda facts: facts.content)
    assert choose_settings(less)["units"] <= choose_settings(more)["units"]


def test_rows_are_in_order_and_for_every_size():
    limits = [row.content for row in ROWS]
    assert limits == sorted(limits) and limits[-1] == math.inf
    assert all({*row.fields, "max_length"} == {*CHOSEN} for row in ROWS)


def test_what_is_chosen_is_explained():
    settings = AutoTraining("x").choose(CAPTIONS, "en", "de").settings()
    assert {*CHOSEN} <= REASONS.keys() <= settings.keys()


def test_what_is_given_stays():
    training = AutoTraining("x", given={"units": 24, "max_length": 7, "epochs": 3})
    config = training.choose(CAPTIONS, "en", "de")
    assert (config.model["units"], config.max_length, config.epochs) == (24, 7, 3)
    assert config.vocab_size == choose_settings(CAPTIONS)["vocab_size"]


def test_vocabularies_of_their_own_tie_what_can_be_tied():
    training = AutoTraining("x", given={"shared": False})
    config = training.choose(CAPTIONS, "en", "de")
    assert config.model_config(9, 9).tie_embeddings == "target"


@pytest.mark.parametrize(
    "given, message",
    [
        ({"dropout": 3}, "dropout must be in"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"dropuot": 0.1}, "dropout"),
        ({"beta_2": 0.9, "optimizer": "sgd"}, "beta_2 needs optimizer"),
        ({"preset": "small"}, "given cannot hold preset, .*Received: 'small'"),
        ({"init_from": "runs/mine"}, "given cannot hold init_from"),
        ({"data": "y"}, "given cannot hold data"),
    ],
)
def test_mistakes_are_found_before_the_corpus_is_read(given, message):
    with pytest.raises(ValueError, match=message):
        AutoTraining("nowhere", given=given)


def test_another_optimizer_has_its_own_rate():
    training = AutoTraining("x", given={"optimizer": "sgd"})
    assert training.choose(CAPTIONS, "en", "de").learning_rate == 1.0


def test_a_corpus_without_pairs_is_refused():
    with pytest.raises(ValueError, match="pairs must be at least 1. Received: 0"):
        choose_settings(CAPTIONS._replace(pairs=0))


def test_the_page_shows_what_is_said():
    page = Path(__file__).parents[1] / "docs" / "what_train_chooses.md"
    shown = re.findall(r"^  (\w+) +[\w.]+  (.*)$", page.read_text("utf-8"), re.M)
    assert dict(shown) == REASONS
