"""What a training says at its start that will not go well."""

from __future__ import annotations

import random
import re

import pytest
from small_translator import word_translator

import keras_luong as kl
from keras_luong.config.training import TrainingConfig
from keras_luong.runs.description import find_problems
from keras_luong.runs.opening import Run
from keras_luong.text import load_corpus

FINE = {
    "pairs": 50_000,
    "steps": 900,
    "source_tokens": 500_000,
    "target_tokens": 500_000,
    "passes": 1,
    "parts": 1,
    "in_splits": {},
    "start_compared": True,
    "unknown_tags": {},
}


@pytest.fixture(scope="module")
def phrases():
    return load_corpus("phrases", "en", "de")


@pytest.fixture
def said(phrases, tmp_path):
    """A function of a corpus, of what was counted and of settings."""

    def say(corpus=phrases, train=(), vocab_size=4000, preset="small", **changes):
        settings = {"shared": True, "epochs": 10, "vocab_size": vocab_size, **changes}
        config = TrainingConfig.from_preset(preset, **settings)
        run = Run(config, tmp_path, corpus, {}, resuming=False)
        return find_problems(run, (vocab_size, vocab_size), {**FINE, **dict(train)})

    return say


def test_says_nothing_of_what_is_fine(said):
    assert said() == []
    plateau = {"epochs": 100, "schedule": "plateau"}
    assert said(train={"steps": 29}, **plateau) == []  # 2,900 steps


def test_few_steps(said):
    (doubt,) = said(train={"steps": 29}, epochs=15, batch_tokens=4096)
    assert doubt.startswith("15 epochs of 29 steps:") and "this is 435" in doubt
    assert "batch_tokens is 4096" in doubt and "--preset auto" in doubt
    (doubt,) = said(train={"steps": 29}, preset="auto", epochs=1)
    assert doubt.startswith("1 epoch of 29") and "--preset auto" not in doubt


def test_many_steps_at_next_to_no_rate(said):
    """As of a preset for a large corpus: 8 epochs at its rate, then halved each."""
    (doubt,) = said(train={"steps": 29}, epochs=100)
    assert "this is 2,900, worth 261, as the learning rate is halved each" in doubt
    assert "after the first 8. More epochs at the full rate (constant_epochs)" in doubt
    assert said(train={"steps": 29}, epochs=100, constant_epochs=50) == []


@pytest.mark.slow
def test_a_vocabulary_that_the_text_does_not_support(said):
    (doubt,) = said(train={"source_tokens": 9000, "target_tokens": 11_000})
    assert "20,000 tokens for a vocabulary of 4,000: 5.0 for each" in doubt
    assert "it is 4,000" in doubt
    few = {"source_tokens": 30_000, "target_tokens": 30_000}
    assert said(train=few) == []
    assert len(said(train=few, shared=False)) == 1  # two of them
    # With fewer pieces than the rule chooses, little text was learned worse.
    assert (
        said(train={"source_tokens": 2000, "target_tokens": 2000}, vocab_size=1000)
        == []
    )


@pytest.mark.slow
def test_a_run_that_starts_from_another_may_be_short(said, phrases, tmp_path):
    run_dir = kl.save_run(word_translator(), tmp_path / "run")
    new = {"data": "phrases", "source": "en", "target": "de", "epochs": 1}
    run = Run(TrainingConfig.from_run(run_dir, **new), tmp_path, phrases, {}, False)
    train = {**FINE, "steps": 29, "source_tokens": 5, "target_tokens": 5}
    assert find_problems(run, (4000, 4000), train) == []


def test_validation_that_is_trained_on(said):
    known = "12 of 1,000 validation pairs are in the training text too"
    (doubt,) = said(train={"in_splits": {"validation": (12, 1000, 412, 0)}})
    assert known in doubt
    doubts = said(train={"in_splits": {"test": (12, 1000, 612, 0)}})
    assert "600 of 1,000 test sources are in the training text with ano" in doubts[1]
    (doubt,) = said(train={"in_splits": {"test": (0, 1000, 612, 0)}})
    assert doubt.startswith("612 of 1,000 test sources")
    (doubt,) = said(train={"in_splits": {"test": (0, 1000, 0, 1000)}})
    assert doubt.startswith("1,000 of 1,000 test pairs are in the validation text, wh")


def corpus_of(directory, sources, targets, languages=("en", "de"), split="train"):
    for language, lines in zip(languages, (sources, targets), strict=True):
        text = "\n".join(lines) + "\n"
        (directory / f"{split}.{language}").write_text(text, encoding="utf-8")
    return load_corpus(directory, *languages)


def sides(phrases):
    pairs = list(phrases.pairs("train").take(200).as_numpy_iterator())
    return [[pair[side].decode() for pair in pairs] for side in ("source", "target")]


def test_swapped_sides(said, phrases, tmp_path):
    english, german = sides(phrases)
    (doubt,) = said(corpus_of(tmp_path, german, english))
    assert doubt.startswith("the sides look swapped") and doubt.endswith("and like en")


def test_swapped_sides_after_a_good_beginning(said, phrases, tmp_path):
    """As of two corpora, one after the other."""
    english, german = sides(phrases)
    corpus = corpus_of(tmp_path, english * 5 + german * 10, german * 5 + english * 10)
    assert any(
        map(re.compile("the sides look swapped.*quarters of train").match, said(corpus))
    )


def test_all_of_a_split_is_looked_at(said, phrases, tmp_path):
    english, german = sides(phrases)
    corpus = corpus_of(
        tmp_path, english * 5 + german[:199] * 5, german * 5 + english[:199] * 5
    )
    (doubt,) = said(corpus)
    assert doubt.startswith("the sides look swapped") and "2 quarters" in doubt
    assert said(corpus, limit_examples=1000) == []  # the rest is not trained on


def test_numbers_and_names_are_in_no_language(said, phrases, tmp_path):
    english, german = sides(phrases)
    rows = [f"{n} kg, 0.{n} km/h, {n} GB" for n in range(400)]
    assert said(corpus_of(tmp_path, english + rows, german + rows[::-1])) == []


def test_blank_lines_are_no_copies(said, phrases, tmp_path):
    english, german = sides(phrases)
    spaced = [[x for line in side for x in (line, "")] for side in (english, german)]
    assert said(corpus_of(tmp_path, *spaced)) == []


def test_swapped_sides_of_what_it_is_judged_by(said, phrases, tmp_path):
    english, german = sides(phrases)
    for split in ("val", "test", "train"):
        sources = english if split == "train" else german
        targets = german if split == "train" else english
        corpus = corpus_of(tmp_path, sources, targets, split=split)
    (doubt,) = said(corpus)
    assert doubt.startswith("the sides look swapped")
    assert doubt.endswith("and like en: in validation and test")


def test_a_side_in_another_language(said, phrases, tmp_path):
    english, german = sides(phrases)
    (doubt,) = said(corpus_of(tmp_path, english, german, ("fr", "de")))
    assert doubt == "the source should be fr, and reads like en"


@pytest.mark.slow
def test_untranslated_text(said, phrases, tmp_path):
    english, german = sides(phrases)
    copied = [*english[:100], *german[100:]]
    random.Random(0).shuffle(rows := list(zip(english, copied, strict=True)))
    found = said(corpus_of(tmp_path, *zip(*rows, strict=True)))
    told = re.compile(r"\d\d of 1\d\d pairs from all over the training text have the")
    assert any(map(told.match, found))
    tagged = [(f"<news> {source}", target) for source, target in rows]
    found = said(corpus_of(tmp_path, *zip(*tagged, strict=True)))
    assert any(map(told.match, found))


@pytest.mark.slow
def test_tags_that_are_no_pieces(said):
    (doubt,) = said(train={"unknown_tags": {"i": 2, "b": 7}})
    assert doubt.startswith("9 of 50,000 sources begin with <b>, <i>, which are plain")
    (doubt,) = said(train={"unknown_tags": dict.fromkeys("abcde", 1)})
    assert "<a>, <b>, <c> and 2 more, which" in doubt
    assert said(train={"unknown_tags": {}}) == []
