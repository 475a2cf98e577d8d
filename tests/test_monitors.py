from __future__ import annotations

import pytest

from keras_luong.training.metrics import (
    best_so_far,
    direction,
    epochs_without_progress,
    is_better,
)


@pytest.mark.parametrize(
    "monitor, expected",
    [
        ("val_bleu", "max"),
        ("val_token_accuracy", "max"),
        ("val_loss", "min"),
        ("val_perplexity", "min"),
    ],
)
def test_direction(monitor, expected):
    assert direction(monitor) == expected


@pytest.mark.parametrize(
    "monitor, values, expected",
    [
        ("val_bleu", [1.0, 3.0, 2.0], (3.0, 1)),
        ("val_loss", [1.0, 3.0, 2.0], (1.0, 2)),
        ("val_loss", [2.0, 2.0], (2.0, 1)),  # a tie is no improvement
        ("val_loss", [None, 2.0, None], (2.0, 1)),
        ("val_loss", [None], (None, 1)),
        ("val_loss", [], (None, 0)),
    ],
)
def test_best_so_far(monitor, values, expected):
    history = [{monitor: value} for value in values]
    found = best_so_far(history, monitor), epochs_without_progress(history, monitor)
    assert found == expected


@pytest.mark.parametrize(
    "value, best, monitor, expected",
    [
        (1.0, None, "val_perplexity", True),
        (1.0, 2.0, "val_perplexity", True),
        (2.0, 2.0, "val_perplexity", False),
        (1.0, 2.0, "val_bleu", False),
        (float("nan"), None, "val_bleu", False),
        (None, None, "val_bleu", False),
    ],
)
def test_is_better(value, best, monitor, expected):
    assert is_better(value, best, monitor) is expected
