"""What a training says of itself, and how far long work is; also: `test_doubts.py`."""

from __future__ import annotations

import io
import re
import shlex
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from keras_luong import progress
from keras_luong.cli.train import next_steps
from keras_luong.config.training import TrainingConfig
from keras_luong.files import write_json
from keras_luong.progress import Progress, in_words, telling
from keras_luong.runs import description
from keras_luong.runs.description import MEASURED_STEPS, TimeEstimate, _many_passes

EARLY, HOUR = {"epochs": 100, "early_stopping": 5}, 3600


@pytest.mark.parametrize(
    ("done", "settings", "said"),
    [
        (0, EARLY, "; 30 min to 80 min for 15 to 40, which is usual"),
        (0, {**EARLY, "epochs": 20}, "; 30 min to 40 min for 15 to 20, which is usual"),
        (0, {**EARLY, "epochs": 10}, "; 20 min for 10"),
        (0, {"epochs": 100, "early_stopping": 0}, "; 3.3 hours for all 100"),
        (5, EARLY, "; 20 min to 70 min for 10 to 35 more, which is usual"),
        (30, EARLY, "; up to 20 min for 10 more"),
        (60, EARLY, ""),  # it takes longer than is usual
        (60, {"epochs": 100, "early_stopping": 0}, "; 80 min for 40 more"),
        (9, {**EARLY, "epochs": 10}, "; 2 min for 1 more"),
    ],
)
def test_how_long_a_run_or_its_rest_will_take(done, settings, said):
    time = description._time(TrainingConfig(**settings), 120, done)
    assert time == f"about 2 min an epoch on this machine, and the validation{said}"


@pytest.mark.parametrize(
    ("step", "epoch", "note"),
    [(3, "3 min", ""), (900, "13.8 hours", "note: this may take 7 days on this")],
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
    assert number == 2 * 9 + 7 and MEASURED_STEPS == 20  # 1.1 times `step`, 50 times
    assert text.startswith(said) and note in text and bool(note) == ("note" in text)


def test_c2_a_training_of_many_hours():
    for hours, said in {48: None, 49: "49.0 hours", 720: "30 days"}.items():
        found = [*description._long_time(hours * HOUR)]
        told = f"this may take {said} on this machine. A smaller model"
        assert [told in x for x in found] == [True] * bool(said)


@pytest.mark.parametrize(
    ("epochs", "done", "said"), [(100, 0, ["80.0"]), (30, 0, ["60.0"]), (100, 20, [])]
)
def test_c2_by_what_a_training_says_of_its_time(epochs, done, said, capsys):
    """Two hours an epoch; of those that end early, 40 at the most are usual."""
    config = TrainingConfig(epochs=epochs, early_stopping=5)
    TimeEstimate(config, 1, done)._say(2 * HOUR)
    printed = capsys.readouterr().out
    assert re.findall(r"note: this may take (\S+) hours", printed) == said


@pytest.mark.parametrize(
    ("shape", "settings", "said"),
    [
        ({}, {"epochs": 2000}, None),
        ({"passes": 37}, {"preset": "auto"}, None),  # about 250 pairs
        ({"passes": 1, "parts": 60}, {"epochs": 3000}, None),
        ({}, {"epochs": 2001}, "2,001 epochs go 2,001 times over a text of 3 pairs"),
        (
            {"passes": 5761},
            {"preset": "auto", "steps_per_epoch": 150},
            "40 epochs go 230,440 times, 5,761 in each epoch, over a text of 3 pairs.*"
            "More text helps.*fewer epochs or a lower steps_per_epoch",
        ),
        ({"passes": 90}, {"preset": "auto", "epochs": 20}, None),
        ({"passes": 90}, {"preset": "auto", "epochs": 30}, "30 epochs go 2,700 times"),
    ],
)
def test_c2_a_text_that_is_gone_over_thousands_of_times(shape, settings, said):
    settings = {"preset": "small", "shared": True, **settings}
    config = TrainingConfig.from_preset(**settings)
    found = list(_many_passes(config, {"pairs": 3, "passes": 1, "parts": 1, **shape}))
    assert [re.search(said or "", x) is not None for x in found] == [True] * bool(said)


@pytest.mark.parametrize("tag", [None, "ui"])
def test_c8_the_next_command_has_the_tag_of_the_run(tmp_path, tag):
    path = tmp_path / "my run"
    parts = {"format": 1, "model": {}, "search": {}, "max_source_length": 9}
    parts |= {"paths": {}, "corpus": None, "came_from": None, "settings": {"tag": tag}}
    path.mkdir()
    write_json(path / "run.json", parts)
    said = next_steps(path)
    command = shlex.split(said.split("Translate:")[1].splitlines()[0])
    before = command[: command.index("<")]
    assert before[2:] == [str(path), *(["--tag", tag] if tag else [])]
    assert f"keras-luong export '{path}' 'models/my run'" in said


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which only the test lets go by."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_bar_on_a_terminal(capsys):
    terminal, unknown, unused = Terminal(), Terminal(), Terminal()
    bar = Progress(3, "line", terminal)
    for _ in range(3):
        bar.add()
    bar.close()
    text = terminal.getvalue()
    assert "3/3" in text and "/line" in text and text.endswith("\n")
    assert text.count("\n") == 1  # it stays in its line
    assert capsys.readouterr().out == ""  # where translations are
    bar = Progress(None, "line", unknown)  # nobody knows how many
    bar.add(2)
    assert "\n" not in unknown.getvalue()
    bar.add(5)
    bar.close()
    assert "7/Unknown" in unknown.getvalue() and unknown.getvalue().endswith("\n")
    Progress(None, "line", unused).close()
    assert unused.getvalue() == ""


def test_a_line_now_and_then_elsewhere(clock, monkeypatch, capsys):
    log, unknown = io.StringIO(), io.StringIO()
    told = Progress(1_000_000, "text", log)
    for _ in range(5):
        clock[0] += 25
        told.add(1000)
    told.close()
    assert log.getvalue() == "3,000 of 1,000,000 texts in 1 min, 415 min left\n"
    clock[0] += 60
    told.add(1000)
    assert log.getvalue().splitlines()[1:] == [
        "6,000 of 1,000,000 texts in 3 min, 511 min left"
    ]
    told = Progress(None, "line", unknown)
    clock[0] += 60
    told.add(12)  # it is not yet more than a minute
    clock[0] += 1
    told.add(1)
    told.close()
    assert unknown.getvalue() == "13 lines in 1 min\n"
    short = Progress(2)
    short.add(2)
    short.close()
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", None)
    told = Progress(2)
    clock[0] += 1000
    told.add(2)
    told.close()
    assert told.done == 2


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
