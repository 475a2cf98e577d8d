"""A bar on a terminal, and elsewhere a line now and then."""

from __future__ import annotations

import io
import sys
import threading
import time

import pytest

from keras_luong import progress
from keras_luong.progress import Progress, in_words, telling


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
    terminal = Terminal()
    bar = Progress(3, "line", terminal)
    for _ in range(3):
        bar.add()
    bar.close()
    text = terminal.getvalue()
    assert "3/3" in text and "/line" in text and text.endswith("\n")
    assert text.count("\n") == 1  # it stays in its line
    assert capsys.readouterr().out == ""  # where translations are


def test_a_bar_of_who_knows_how_many():
    terminal = Terminal()
    bar = Progress(None, "line", terminal)
    bar.add(2)
    assert "\n" not in terminal.getvalue()
    bar.add(5)
    bar.close()
    text = terminal.getvalue()
    assert "7/Unknown" in text and text.endswith("\n")
    unused = Terminal()
    Progress(None, "line", unused).close()
    assert unused.getvalue() == ""


def test_a_line_now_and_then_elsewhere(clock):
    log = io.StringIO()
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


def test_a_line_where_the_total_is_not_known(clock):
    log = io.StringIO()
    told = Progress(None, "line", log)
    clock[0] += 61
    told.add(12)
    told.close()
    assert log.getvalue() == "12 lines in 1 min\n"


def test_short_work_says_nothing_elsewhere(capsys):
    told = Progress(2)
    told.add(2)
    told.close()
    assert capsys.readouterr() == ("", "")


def test_nothing_where_there_is_no_stream(monkeypatch, clock):
    monkeypatch.setattr(sys, "stderr", None)
    told = Progress(2)
    clock[0] += 1000
    told.add(2)
    told.close()
    assert told.done == 2


class TestTelling:
    def test_long_work(self, monkeypatch, capsys):
        monkeypatch.setattr(progress, "PATIENCE", 0.01)
        said, say = threading.Event(), progress._say
        monkeypatch.setattr(progress, "_say", lambda text: (say(text), said.set()))
        with telling("Counting"):
            assert said.wait(10)
        assert capsys.readouterr().err == "Counting ...\n"

    def test_short_work_says_nothing(self, monkeypatch, capsys):
        monkeypatch.setattr(progress, "PATIENCE", 0.05)

        @telling("Counting")
        def count(*numbers):
            return sum(numbers)

        assert count(1, 2) == 3
        assert count(3, 4) == 7  # each call has a timer of its own
        with pytest.raises(KeyError), telling("Looking"):
            raise KeyError
        time.sleep(0.2)
        assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "seconds, words",
    [(0.1, "1 s"), (89, "89 s"), (91, "2 min"), (5340, "89 min"), (7200, "2.0 hours")],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
