"""What a training says of itself at its start; more is in `test_cases_t.py`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keras_luong.config.training import TrainingConfig
from keras_luong.runs import description

COUNTED = {"source_tokens": 900, "target_tokens": 1000, "passes": 3, "parts": 1}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epochs": 100, "early_stopping": 5}, "30 min to 80 min for 15 to 40, which"),
        ({"epochs": 20, "early_stopping": 5}, "30 min to 40 min for 15 to 20, which"),
        ({"epochs": 10, "early_stopping": 5}, "20 min for 10"),
        ({"epochs": 100, "early_stopping": 0}, "3.3 hours for all 100"),
    ],
)
def test_how_long_it_will_take(settings, said, monkeypatch):
    monkeypatch.setattr(
        description, "estimated_seconds", lambda parameters, tokens: tokens / 25
    )
    model = SimpleNamespace(count_params=lambda: 7)
    time = description._time(TrainingConfig(**settings), COUNTED, model, 1, 0)
    assert time.startswith("about 2 min an epoch on this machine, and the validation;")
    assert said in time
    shared = description._time(TrainingConfig(**settings), COUNTED, model, 2, 0)
    assert shared.startswith("about 60 s an epoch")  # by two devices


@pytest.mark.parametrize(
    ("done", "settings", "said"),
    [
        (5, {"early_stopping": 5}, "; 20 min to 70 min for 10 to 35 more, which is"),
        (30, {"early_stopping": 5}, "; up to 20 min for 10 more"),
        (60, {"early_stopping": 5}, "and the validation"),
        (60, {"early_stopping": 0}, "; 80 min for 40 more"),
        (9, {"early_stopping": 5, "epochs": 10}, "; 2 min for 1 more"),
    ],
)
def test_how_long_the_rest_of_a_run_will_take(done, settings, said, monkeypatch):
    monkeypatch.setattr(
        description, "estimated_seconds", lambda parameters, tokens: tokens / 25
    )
    model, config = SimpleNamespace(count_params=lambda: 7), {"epochs": 100, **settings}
    time = description._time(TrainingConfig(**config), COUNTED, model, 1, done)
    assert said in time and time.startswith("about 2 min an epoch")
    assert ";" in said or ";" not in time
