"""How long training will take."""

from __future__ import annotations

import pytest

from keras_luong.training import batch_size as step_time
from keras_luong.training.batch_size import estimated_seconds, in_words


def test_time_goes_with_the_products(monkeypatch):
    monkeypatch.setattr(step_time, "_products_a_second", lambda: 1e9)
    once = estimated_seconds(1_000_000, 1000)
    assert once == pytest.approx(6 / 0.4)
    assert estimated_seconds(2_000_000, 3000) == pytest.approx(6 * once)


def test_measures_this_machine():
    assert 1e8 < step_time._products_a_second() < 1e15


@pytest.mark.parametrize(
    "seconds, words",
    [(0.1, "1 s"), (89, "89 s"), (91, "2 min"), (5340, "89 min"), (7200, "2.0 hours")],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
