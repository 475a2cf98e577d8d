"""What a training says of itself at its start; more is in `test_cases_t.py`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from keras_luong.config.training import TrainingConfig
from keras_luong.runs import description
from keras_luong.runs.description import MEASURED_STEPS, TimeEstimate


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"epochs": 100, "early_stopping": 5}, "30 min to 80 min for 15 to 40, which"),
        ({"epochs": 20, "early_stopping": 5}, "30 min to 40 min for 15 to 20, which"),
        ({"epochs": 10, "early_stopping": 5}, "20 min for 10"),
        ({"epochs": 100, "early_stopping": 0}, "3.3 hours for all 100"),
    ],
)
def test_how_long_it_will_take(settings, said):
    time = description._time(TrainingConfig(**settings), 120, 0)
    assert time.startswith("about 2 min an epoch on this machine, and the validation;")
    assert said in time


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
def test_how_long_the_rest_of_a_run_will_take(done, settings, said):
    config = TrainingConfig(**{"epochs": 100, **settings})
    time = description._time(config, 120, done)
    assert said in time and time.startswith("about 2 min an epoch")
    assert ";" in said or ";" not in time


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
