"""What a training says of itself at its start, and how far long work is."""

import functools
import io
import json
import random
import re
import shlex
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from small_training import write_corpus
from small_translator import word_translator, written_run

import keras_luong as kl
from keras_luong import progress
from keras_luong.cli.train import next_steps
from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.files import write_lines
from keras_luong.progress import Progress, in_words, telling
from keras_luong.runs import description
from keras_luong.runs.description import (
    TimeEstimate,
    choose_by_corpus,
    doubts_and_faults,
    find_problems,
)
from keras_luong.text import PhraseCorpus, load_corpus
from keras_luong.text.faults import FAULTS, FaultCount
from keras_luong.text.survey import survey

EARLY = {"epochs": 100, "early_stopping": 5}


TIMES = [
    (0, EARLY, "; 30 min to 80 min for 15 to 40, which is usual"),
    (0, {**EARLY, "epochs": 20}, "; 30 min to 40 min for 15 to 20, which is usual"),
    (0, {**EARLY, "epochs": 10}, "; 20 min for 10"),
    (0, {"epochs": 100, "early_stopping": 0}, "; 3.3 hours for all 100"),
    (5, EARLY, "; 20 min to 70 min for 10 to 35 more, which is usual"),
    (30, EARLY, "; up to 20 min for 10 more"),
    (60, EARLY, ""),  # it takes longer than is usual
    (60, {"epochs": 100, "early_stopping": 0}, "; 80 min for 40 more"),
    (9, {**EARLY, "epochs": 10}, "; 2 min for 1 more"),
]


@pytest.mark.parametrize("done, settings, said", TIMES)
def test_how_long_a_run_or_its_rest_will_take(done, settings, said):
    time = description._time(TrainingConfig(**settings), 120, done)
    assert time == f"about 2 min an epoch on this machine, and the validation{said}"


@pytest.mark.parametrize(
    ("step", "epoch", "note"),
    [(3, "3 min", ""), (900, "13.8 hours", "note: this may take 6 days on this")],
)
def test_the_time_is_that_of_the_first_steps(step, epoch, note, monkeypatch, capsys):
    """Without tracing, compiling and validating; it is said once."""
    said = f"time         about {epoch} an epoch"
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(description, "time", clock)
    estimate = TimeEstimate(TrainingConfig(epochs=12, early_stopping=0), 50)
    told = []
    for number in range(4):
        estimate.on_epoch_begin(number)
        for batch in range(9):
            clock.now += 100 * step if batch in (0, 4) else step * (0.5, 1.5)[batch % 2]
            estimate.on_train_batch_end(batch)
            told.append(capsys.readouterr().out)
        clock.now += 70 * step  # the validation
    ((number, text),) = [(i, x) for i, x in enumerate(told) if x]
    assert description.MEASURED_STEPS == 20  # 1.1 times `step`, 50 times
    assert number == 2 * 9 + 7 and "for 10 more" in text
    assert text.startswith(said) and note in text and bool(note) == ("note" in text)


LONG_TIMES = [
    (1, 0, 48, []),
    (1, 0, 49, ["49.0 hours"]),
    (1, 0, 720, ["30 days"]),
    # Of those that end early, 40 epochs at the most are usual.
    (100, 0, 2, ["80.0 hours"]),
    (30, 0, 2, ["60.0 hours"]),
    (100, 20, 2, []),
]


@pytest.mark.parametrize("epochs, done, hours, said", LONG_TIMES)
def test_c2_a_training_of_many_hours(epochs, done, hours, said, capsys):
    estimate = TimeEstimate(TrainingConfig(epochs=epochs, early_stopping=5), 1)
    estimate.on_epoch_begin(done)
    estimate._say(hours * 3600)
    told = re.findall("note: this may take (.*) on this", capsys.readouterr().out)
    assert told == said


@pytest.mark.parametrize("tag", [None, "ui"])
def test_c8_the_next_command_has_the_tag_of_the_run(tmp_path, tag):
    path = tmp_path / "my run"
    written_run(path, word_translator(), {"tag": tag})
    said = next_steps(path)
    command = shlex.split(said.split("Translate:")[1].splitlines()[0])
    before = command[: command.index("<")]
    assert before[2:] == [str(path), *(["--tag", tag] if tag else [])]
    assert f"keras-luong export '{path}' 'models/my run'" in said


def test_a_bar_on_a_terminal(capsys):
    def told(total, *counts):
        terminal = io.StringIO()
        terminal.isatty = lambda: True
        bar = Progress(total, "line", terminal)
        for count in counts:
            bar.add(count)
        bar.close()
        return terminal.getvalue()

    text = told(3, 1, 1, 1)
    assert "3/3" in text and "/line" in text and text.endswith("\n")
    assert text.count("\n") == 1  # it stays in its line
    text = told(None, 2, 5)  # nobody knows how many
    assert "7/Unknown" in text and text.endswith("\n") and text.count("\n") == 1
    assert told(None) == ""
    assert capsys.readouterr().out == ""  # where translations are


def test_a_line_now_and_then_elsewhere(monkeypatch, capsys):
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(progress, "time", clock)

    def tell(told, *steps):
        """The lines after steps of some seconds, with so many done in each."""
        before = len(told.stream.getvalue())
        for seconds, count in steps:
            clock.now += seconds
            told.add(count)
        told.close()
        return told.stream.getvalue()[before:].splitlines()

    told = Progress(1_000_000, "text", io.StringIO())
    lines = ["3,000 of 1,000,000 texts in 1 min, 415 min left"]
    assert tell(told, *[(25, 1000)] * 5) == lines
    lines = ["6,000 of 1,000,000 texts in 3 min, 511 min left"]
    assert tell(told, (60, 1000)) == lines
    told = Progress(None, "line", io.StringIO())
    assert tell(told, (60, 12)) == []  # it is not yet more than a minute
    assert tell(told, (1, 1)) == ["13 lines in 1 min"]
    for stream in (sys.stderr, None):
        monkeypatch.setattr(sys, "stderr", stream)
        told = Progress(2)
        clock.now += 1000 * (stream is None)
        told.add(2)
        told.close()
        assert told.done == 2
    assert capsys.readouterr() == ("", "")


def test_long_work_that_cannot_be_counted_is_told(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    said, say = threading.Event(), progress._say
    monkeypatch.setattr(progress, "_say", lambda text: (say(text), said.set()))
    with telling("Counting"):
        assert said.wait(10)
    assert capsys.readouterr().err == "Counting ...\n"


def test_short_work_says_nothing(monkeypatch, capsys):
    monkeypatch.setattr(progress, "PATIENCE", 0.05)

    @telling("Counting")
    def count(*numbers):
        return sum(numbers)

    assert count(1, 2) == 3
    assert count(3, 4) == 7  # each call has a timer of its own
    with pytest.raises(KeyError), telling("Looking"):
        raise KeyError
    time.sleep(0.1)
    assert capsys.readouterr().err == ""


def test_durations_in_words():
    words = {0.1: "1 s", 89: "89 s", 90: "2 min", 5340: "89 min", 5341: "1.5 hours"}
    words |= {359_000: "99.7 hours", 360_000: "4 days"}
    assert {seconds: in_words(seconds) for seconds in words} == words


FINE = {
    "pairs": 50_000,
    "steps": 900,
    "source_tokens": 500_000,
    "target_tokens": 500_000,
    "passes": 1,
    "parts": 1,
    "splits": {"validation": 100},
    "start_compared": True,
    "doubts": [],
    **dict.fromkeys(["unknown_source", "unknown_target"], 0.0),
    **dict.fromkeys(["in_splits", "unknown_tags", "faults"], {}),
    "unknown_characters": "",
}
UNITS = {"train": "line", "validation": "pair"}


@pytest.fixture(scope="module")
def phrases():
    return PhraseCorpus(train=240, validation=20, test=20)


read = functools.cache(survey)


@pytest.fixture
def said(phrases):
    """A function of a corpus, of what was counted and of settings."""

    def say(corpus=phrases, train=(), vocab_size=4000, preset="small", **changes):
        settings = {"shared": True, "epochs": 10, "vocab_size": vocab_size, **changes}
        config = TrainingConfig.from_preset(preset, **settings)
        seen = doubts_and_faults(corpus, read(corpus, changes.get("limit_examples")))
        known = {**FINE, **json.loads(json.dumps(seen)), **dict(train)}
        return find_problems(config, (vocab_size, vocab_size), known, UNITS)

    return say


def tokens(source, target):
    return {"source_tokens": source, "target_tokens": target}


def known(pairs, sources, validated, split="test"):
    """Of a split's 1,000 pairs, those that are trained on or validated by."""
    return {"in_splits": {split: (pairs, 1000, sources, validated)}}


FEW = r" of 29 .*\(batch_tokens is 4096\)"
HALVED = "worth 261, as the learning rate is halved each epoch after the first 8. More "
ANEW = "of 1,000 test sources are in the training text with another"
HEART = (
    "230,440 times, 5,761 in each epoch, over a text of 50,000 .*or a lower steps_per"
)
PLATEAU, LONG = {"schedule": "plateau"}, {"epochs": 100}
BATCH, AUTO = {"batch_tokens": 4096}, {"preset": "auto"}


COUNTED = [
    ({}, {}, ""),
    # Few steps; or many of them, at next to no rate.
    ({"steps": 29}, LONG | PLATEAU, ""),  # 2,900 steps
    ({"steps": 29}, BATCH | {"epochs": 15}, f"15 epochs{FEW}, and --preset auto"),
    ({"steps": 29}, BATCH | AUTO | {"epochs": 1}, f"1 epoch{FEW}$"),
    ({"steps": 29}, LONG, f".*this is 2,900, {HALVED}"),
    ({"steps": 29}, LONG | {"constant_epochs": 50}, ""),
    ({"steps": 100}, PLATEAU, ""),
    ({"steps": 99}, PLATEAU, ".*this is 990. More epochs make"),
    ({"splits": {"validation": 99}}, AUTO, "the best .* BLEU of 99 validation pairs"),
    # A vocabulary that the text does not support.
    (tokens(9000, 11_000), {}, ".*20,000 tokens for a .* 4,000: 5.0.*it is 4,000"),
    (tokens(20_000, 20_000), {}, ""),
    (tokens(30_000, 30_000), {"shared": False}, ".*of 8,000: 7.5"),  # two of them
    # With fewer pieces than the rule chooses, little text was learned worse.
    (tokens(2000, 2000), {"vocab_size": 1000}, ""),
    # A text that is learned by heart.
    ({"passes": 200}, {}, ""),
    ({"passes": 201}, {}, "10 epochs go 2,010 times, 201 in each epoch, over a"),
    ({"passes": 402, "parts": 2}, {}, ".*go 2,010 times"),
    ({}, {"epochs": 2000}, ""),
    ({}, {"epochs": 2001}, "2,001 epochs go 2,001 times over a.*fewer epochs at"),
    ({"passes": 5761}, AUTO | {"epochs": 99, "steps_per_epoch": 150}, f"40.*{HEART}"),
    ({"passes": 90}, AUTO | {"epochs": 20}, ""),
    ({"passes": 90}, AUTO | {"epochs": 30}, "30 epochs go 2,700 times"),
    # What is judged is trained on.
    (known(12, 412, 0, "validation"), {}, "12 of 1,000 validation pa"),
    (known(12, 612, 0), {}, f"12 of 1,000 test pairs are in.*\n600 {ANEW}"),
    (known(0, 612, 0), {}, f"612 {ANEW}"),
    (known(0, 500, 0), {}, ""),
    (known(0, 0, 1000), {}, "1,000 of 1,000 test pairs are in the validatio"),
    # Tags that are no pieces.
    ({"unknown_tags": {"i": 2, "b": 7}}, {}, "9 of 50,000 sources .*<b>, <i>, whi"),
    ({"unknown_tags": dict.fromkeys("abcde", 1)}, {}, ".*<b>, <c> and 2 more, whi"),
]


@pytest.mark.parametrize("counted, settings, problem", COUNTED)
def test_what_was_counted(said, counted, settings, problem):
    found = said(train=counted, **settings)
    assert len(found) == len(problem.splitlines())
    assert re.match(problem, "\n".join(found))


def test_a_run_that_starts_from_another_may_be_short(phrases, tmp_path):
    run_dir = kl.save_run(word_translator(), tmp_path / "run")
    new = {"data": "phrases", "source": "en", "target": "de", "epochs": 1}
    config = TrainingConfig.from_run(run_dir, **new)
    train = {**FINE, "steps": 29, "source_tokens": 5, "target_tokens": 5}
    assert find_problems(config, (4000, 4000), train, UNITS) == []
    train |= {"unknown_source": 0.002, "unknown_characters": "?’"}
    new["mix_old"] = 0.95
    for grown, told in (None, "up to 4.0% .* [?] ’: grow_vocab 2 adds"), (9, "$"):
        config = TrainingConfig.from_run(run_dir, **new, grow_vocab=grown)
        notes = find_problems(config, (4000, 4000), train, UNITS)
        assert re.match(told, "\n".join(notes))


def test_the_worst_comes_first_and_ten_are_enough():
    half = {name: FaultCount(50, 100, 7)._asdict() for name in (*FAULTS, "repeat")}
    counted = {**FINE, **known(1, 1, 0), "faults": dict.fromkeys(UNITS, half)}
    config = TrainingConfig.from_preset("small", epochs=10)
    notes = find_problems(config, (4000, 4000), counted, UNITS)
    assert len(notes) == 10 and notes[0].startswith("1 of 1,000 test pairs are in")
    assert re.match(r"50 of 100 pairs \(50%\) were .*, as line 7: read the", notes[1])
    assert notes[9].startswith("and 11 more; keras-luong check")  # 1 + 9 + 10 in all
    none = FaultCount(0, 100, None)._asdict()
    few = {**dict.fromkeys(half, none), "copy": half["copy"], "language": half["copy"]}
    counted |= {"doubts": ["swapped"], "faults": {"validation": few}}
    doubt, _, copies = find_problems(config, (4000, 4000), counted, UNITS)
    assert doubt == "swapped" and copies.startswith("validation: 50 of 100 pairs")
    assert copies.endswith("as pair 7: the validation results count them")


@pytest.fixture
def corpus_of(tmp_path):
    """Makes a corpus of these sides, whatever was in its folder."""

    def make(sources, targets, languages=("en", "de"), split="train"):
        for language, lines in zip(languages, (sources, targets), strict=True):
            write_lines(tmp_path / f"{split}.{language}", lines)
        return load_corpus(tmp_path, *languages)

    return make


@pytest.fixture(scope="module")
def sides(phrases):
    pairs = phrases.examples("train")[:200]
    return [x.source for x in pairs], [x.target for x in pairs]


SWAPPED = "the sides look swapped"


def test_swapped_sides(said, sides, corpus_of):
    english, german = sides
    (doubt,) = said(corpus_of(german, english))
    assert doubt.startswith(SWAPPED) and doubt.endswith("and like en")


@pytest.mark.slow
def test_swapped_sides_wherever_they_are(said, sides, corpus_of):
    """Of two corpora, one after the other; or in what it is judged by."""
    english, german = sides
    corpus = corpus_of(english + german * 2, german + english * 2)
    assert any(re.match(f"{SWAPPED}.*quarters of train", x) for x in said(corpus))
    corpus = corpus_of(english + german[:199], german + english[:199])
    (doubt,) = said(corpus)
    assert doubt.startswith(SWAPPED) and "2 quarters" in doubt
    assert "validation: " in said(corpus, limit_examples=150)[0]  # of the rest alone
    for split in ("val", "test"):
        corpus_of(german, english, split=split)
    (doubt,) = said(corpus_of(english, german))
    assert doubt.startswith(SWAPPED)
    assert doubt.endswith("and like en: in validation and test")


@pytest.mark.slow
def test_what_is_in_no_language(said, sides, corpus_of):
    english, german = sides
    rows = [f"{n} kg, 0.{n} km/h, {n} GB" for n in range(400)]
    assert said(corpus_of(english + rows, german + rows)) == []
    spaced = [[x for line in side for x in (line, "")] for side in sides]
    assert said(corpus_of(*spaced)) == []  # blank lines are no copies


def test_what_is_in_another_language(said, sides, corpus_of):
    english, german = sides
    (doubt,) = said(corpus_of(english, german, ("fr", "de")))
    assert doubt == "the source should be fr, and reads like en"


@pytest.mark.parametrize("tag", ["", pytest.param("<news> ", marks=pytest.mark.slow)])
def test_untranslated_text(tag, said, sides, corpus_of):
    english, german = sides
    copied = [*english[:100], *german[100:]]
    random.Random(0).shuffle(rows := list(zip(english, copied, strict=True)))
    tagged = [(tag + source, target) for source, target in rows]
    told = re.compile(r"\d\d of 200 pairs \(\d\d%\) have the same sentence on both")
    assert any(map(told.match, said(corpus_of(*zip(*tagged, strict=True)))))


def test_what_is_chosen_is_said_and_kept(tmp_path, capsys):
    write_corpus(tmp_path, train=40, val=7)
    tiny = {"units": 8, "tokenizer": "word", "steps_per_epoch": 6, "batch_tokens": 60}
    tiny |= {"monitor": "val_loss", "epochs": 1}
    training = AutoTraining(str(tmp_path), "xx", "yy", given=tiny)
    config, own = choose_by_corpus(training, run := tmp_path / "run")
    settings = config.settings()
    chosen = [settings[x] for x in ("preset", "monitor", "vocab_size", "units")]
    assert chosen == ["auto", "val_loss", 1000, 8] and settings["dropout"] > 0
    assert (config.source, own.corpus.target_language) == ("xx", "yy")
    out = capsys.readouterr().out
    assert re.search(r"chosen for 40 different pairs, \d kB of yy when compressed", out)
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["units"].split()[1] == "8" and "as given" in lines["units"]
    assert "as given" not in lines["dropout"]
    assert "where val_loss gets no better" in out and "BLEU" not in out

    written_run(run, word_translator(), settings)
    more = AutoTraining(str(tmp_path), given={"epochs": 2})
    again, own = choose_by_corpus(more, run)  # and with the languages
    assert again.settings() == {**settings, "epochs": 2}
    assert own.survey is None  # what a run knows is not read again
    assert own.corpus.source_language == "xx" and not capsys.readouterr().out
    written_run(run, word_translator(), {**settings, "preset": "small"})
    with pytest.raises(ValueError, match="--preset small to go on"):
        choose_by_corpus(more, run)
    assert choose_by_corpus(config, run) == (config, None)
