"""What `train` says at its start: what will not go well, and what it chose."""

from __future__ import annotations

import random
import re

import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.runs.description import choose_by_corpus, find_problems
from keras_luong.runs.opening import Run
from keras_luong.text import PhraseCorpus, load_corpus

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
    return PhraseCorpus(train=240, validation=20, test=20)


@pytest.fixture
def said(phrases, tmp_path):
    """A function of a corpus, of what was counted and of settings."""

    def say(corpus=phrases, train=(), vocab_size=4000, preset="small", **changes):
        settings = {"shared": True, "epochs": 10, "vocab_size": vocab_size, **changes}
        config = TrainingConfig.from_preset(preset, **settings)
        run = Run(config, tmp_path, corpus, {}, resuming=False)
        return find_problems(run, (vocab_size, vocab_size), {**FINE, **dict(train)})

    return say


def tokens(source, target):
    return {"source_tokens": source, "target_tokens": target}


def judged_by(*counts, split="test"):
    return {"in_splits": {split: counts}}


FEW = r" of 29 .*\(batch_tokens is 4096\)"
HALVED = "worth 261, as the learning rate is halved each epoch after the first 8. More "
ANEW = "of 1,000 test sources are in the training text with another"
BATCH = {"batch_tokens": 4096}


@pytest.mark.parametrize(
    ("counted", "settings", "problem"),
    [
        ({}, {}, ""),
        # Few steps; or many of them, at next to no rate.
        ({"steps": 29}, {"epochs": 100, "schedule": "plateau"}, ""),  # 2,900 steps
        ({"steps": 29}, {"epochs": 15, **BATCH}, f"15 epochs{FEW}, and --preset auto"),
        ({"steps": 29}, {"preset": "auto", "epochs": 1, **BATCH}, f"1 epoch{FEW}$"),
        ({"steps": 29}, {"epochs": 100}, f".*this is 2,900, {HALVED}"),
        ({"steps": 29}, {"epochs": 100, "constant_epochs": 50}, ""),
        ({"steps": 100}, {"schedule": "plateau"}, ""),
        ({"steps": 99}, {"schedule": "plateau"}, ".*this is 990. More epochs make"),
        # A vocabulary that the text does not support.
        (tokens(9000, 11_000), {}, ".*20,000 tokens for a .* 4,000: 5.0.*it is 4,000"),
        (tokens(20_000, 20_000), {}, ""),
        (tokens(30_000, 30_000), {"shared": False}, ".*of 8,000: 7.5"),  # two of them
        # With fewer pieces than the rule chooses, little text was learned worse.
        (tokens(2000, 2000), {"vocab_size": 1000}, ""),
        # A text that is learned by heart.
        ({"passes": 201}, {}, "10 epochs go 2,010 times, 201 in each epoch, over a"),
        ({"passes": 200}, {}, ""),
        ({"passes": 402, "parts": 2}, {}, ".*go 2,010 times"),
        # What is judged is trained on.
        (
            judged_by(12, 1000, 412, 0, split="validation"),
            {},
            "12 of 1,000 validation pa",
        ),
        (
            judged_by(12, 1000, 612, 0),
            {},
            f"12 of 1,000 test pairs are in.*\n600 {ANEW}",
        ),
        (judged_by(0, 1000, 612, 0), {}, f"612 {ANEW}"),
        (judged_by(0, 1000, 500, 0), {}, ""),
        (
            judged_by(0, 1000, 0, 1000),
            {},
            "1,000 of 1,000 test pairs are in the validatio",
        ),
        # Tags that are no pieces.
        ({"unknown_tags": {"i": 2, "b": 7}}, {}, "9 of 50,000 sources .*<b>, <i>, whi"),
        ({"unknown_tags": dict.fromkeys("abcde", 1)}, {}, ".*<b>, <c> and 2 more, whi"),
    ],
)
def test_what_was_counted(said, counted, settings, problem):
    found = said(train=counted, **settings)
    assert len(found) == len(problem.splitlines())
    assert re.match(problem, "\n".join(found))


def test_a_run_that_starts_from_another_may_be_short(phrases, tmp_path):
    run_dir = kl.save_run(word_translator(), tmp_path / "run")
    new = {"data": "phrases", "source": "en", "target": "de", "epochs": 1}
    run = Run(TrainingConfig.from_run(run_dir, **new), tmp_path, phrases, {}, False)
    train = {**FINE, "steps": 29, "source_tokens": 5, "target_tokens": 5}
    assert find_problems(run, (4000, 4000), train) == []


def corpus_of(directory, sources, targets, languages=("en", "de"), split="train"):
    for language, lines in zip(languages, (sources, targets), strict=True):
        text = "\n".join(lines) + "\n"
        (directory / f"{split}.{language}").write_text(text, encoding="utf-8")
    return load_corpus(directory, *languages)


@pytest.fixture(scope="module")
def sides(phrases):
    pairs = phrases.examples("train")[:200]
    return [x.source for x in pairs], [x.target for x in pairs]


SWAPPED = "the sides look swapped"


def test_swapped_sides_wherever_they_are(said, sides, tmp_path):
    english, german = sides
    corpus = corpus_of(tmp_path, german, english)
    (doubt,) = said(corpus)
    assert doubt.startswith(SWAPPED) and doubt.endswith("and like en")
    # As of two corpora, one after the other.
    corpus = corpus_of(tmp_path, english + german * 2, german + english * 2)
    assert any(re.match(f"{SWAPPED}.*quarters of train", x) for x in said(corpus))
    corpus = corpus_of(tmp_path, english + german[:199], german + english[:199])
    (doubt,) = said(corpus)
    assert doubt.startswith(SWAPPED) and "2 quarters" in doubt
    assert said(corpus, limit_examples=200) == []  # the rest is not trained on


def test_swapped_sides_of_what_it_is_judged_by(said, sides, tmp_path):
    english, german = sides
    for split in ("val", "test", "train"):
        pair = (english, german)[:: 1 if split == "train" else -1]
        corpus = corpus_of(tmp_path, *pair, split=split)
    (doubt,) = said(corpus)
    assert doubt.startswith(SWAPPED)
    assert doubt.endswith("and like en: in validation and test")


def test_what_is_in_no_language_or_another(said, sides, tmp_path):
    english, german = sides
    rows = [f"{n} kg, 0.{n} km/h, {n} GB" for n in range(400)]
    assert said(corpus_of(tmp_path, english + rows, german + rows[::-1])) == []
    spaced = [[x for line in side for x in (line, "")] for side in sides]
    assert said(corpus_of(tmp_path, *spaced)) == []  # blank lines are no copies
    (doubt,) = said(corpus_of(tmp_path, english, german, ("fr", "de")))
    assert doubt == "the source should be fr, and reads like en"


def test_untranslated_text(said, sides, tmp_path):
    english, german = sides
    copied = [*english[:100], *german[100:]]
    random.Random(0).shuffle(rows := list(zip(english, copied, strict=True)))
    tagged = [(f"<news> {source}", target) for source, target in rows]
    told = re.compile(r"\d\d of 1\d\d pairs from all over the training text have the")
    for some in (rows, tagged):
        found = said(corpus_of(tmp_path, *zip(*some, strict=True)))
        assert any(map(told.match, found))


TINY = {"units": 8, "tokenizer": "word", "steps_per_epoch": 6, "batch_tokens": 60}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    write_corpus(directory, train=40, val=7)
    return str(directory)


def test_what_is_chosen_is_said_and_kept(data, tmp_path, capsys):
    training = AutoTraining(data, "xx", "yy", given={**TINY, "epochs": 1})
    config, corpus = choose_by_corpus(training, run := tmp_path / "run")
    settings = config.settings()
    chosen = [settings[x] for x in ("preset", "monitor", "vocab_size", "units")]
    assert chosen == ["auto", "val_bleu", 1000, 8] and settings["dropout"] > 0
    assert (config.source, corpus.target_language) == ("xx", "yy")
    out = capsys.readouterr().out
    assert re.search(r"chosen for 40 pairs, \d kB of yy when compressed", out)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["units"].split()[1] == "8" and "as given" in lines["units"]
    assert "as given" not in lines["dropout"]

    written_run(run, word_translator(), settings)
    more = AutoTraining(data, given={"epochs": 2})
    again, corpus = choose_by_corpus(more, run)  # and with the languages
    assert again.settings() == {**settings, "epochs": 2}
    assert corpus.source_language == "xx" and not capsys.readouterr().out
    written_run(run, word_translator(), {**settings, "preset": "small"})
    with pytest.raises(ValueError, match="--preset small to go on"):
        choose_by_corpus(more, run)
    assert choose_by_corpus(config, run) == (config, None)
