"""What training is judged by: whether it should rise or fall, and the best so far."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def direction(monitor: str) -> str:
    """Tells whether a monitored quantity should rise or fall.

    Args:
        monitor: Its name in the logs, such as `"val_bleu"`.

    Returns:
        Keras's `mode`: `"max"` for BLEU and accuracies, `"min"` for the rest.

    Example:
        >>> from keras_luong.training.monitors import direction
        >>> direction("val_bleu"), direction("val_loss")
        ('max', 'min')
    """
    return "max" if monitor.endswith(("bleu", "accuracy")) else "min"


def is_better(
    value: float | None, best: float | None, monitor: str, min_delta: float = 0.0
) -> bool:
    """Tells whether a monitored value is better than the best so far.

    Args:
        value: The value; None, NaN and infinities are never better.
        best: The best so far, None if there is none.
        monitor: Name of the quantity.
        min_delta: By how much more than this it must be better, as in
            `keras.callbacks.EarlyStopping`.

    Example:
        >>> from keras_luong.training.monitors import is_better
        >>> is_better(3.0, 2.0, "val_bleu"), is_better(3.0, 2.0, "val_perplexity")
        (True, False)
    """
    if value is None or not math.isfinite(value):
        return False
    if best is None:
        return True
    gain = value - best if direction(monitor) == "max" else best - value
    return gain > min_delta


def best_so_far(history: Sequence[Mapping[str, Any]], monitor: str) -> float | None:
    """Finds the best value in a history.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.

    Returns:
        The value, None if it was never logged.

    Example:
        >>> from keras_luong.training.monitors import best_so_far
        >>> best_so_far([{"val_bleu": 3.0}, {"val_bleu": 2.0}], "val_bleu")
        3.0
    """
    best = None
    for epoch in history:
        value = epoch.get(monitor)
        if is_better(value, best, monitor):
            best = value
    return best


def epochs_without_progress(
    history: Sequence[Mapping[str, Any]], monitor: str, min_delta: float = 0.0
) -> int:
    """Counts the epochs since the last progress.

    Progress is from the value that the last progress was to: many small gains count
    once they add up to more than `min_delta`.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.
        min_delta: A gain that is no greater is no progress.

    Example:
        >>> from keras_luong.training.monitors import epochs_without_progress
        >>> history = [{"val_bleu": bleu} for bleu in (3.0, 3.1, 3.2, 3.3)]
        >>> epochs_without_progress(history, "val_bleu")
        0
        >>> epochs_without_progress(history, "val_bleu", min_delta=0.25)
        0
        >>> epochs_without_progress(history, "val_bleu", min_delta=0.5)
        3
    """
    best, stale = None, 0
    for epoch in history:
        value = epoch.get(monitor)
        stale += 1
        if is_better(value, best, monitor, min_delta):
            best, stale = value, 0
    return stale
