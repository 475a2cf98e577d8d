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


def is_better(value: float | None, best: float | None, monitor: str) -> bool:
    """Tells whether a monitored value is better than the best so far.

    Args:
        value: The value; None, NaN and infinities are never better.
        best: The best so far, None if there is none.
        monitor: Name of the quantity.

    Example:
        >>> from keras_luong.training.monitors import is_better
        >>> is_better(3.0, 2.0, "val_bleu"), is_better(3.0, 2.0, "val_perplexity")
        (True, False)
    """
    if value is None or not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if direction(monitor) == "max" else value < best


def best_so_far(
    history: Sequence[Mapping[str, Any]], monitor: str
) -> tuple[float | None, int]:
    """Finds the best value in a history, and how many epochs ago it was reached.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.

    Returns:
        The value, None if it was never logged; and the number of epochs after it.

    Example:
        >>> from keras_luong.training.monitors import best_so_far
        >>> best_so_far([{"val_bleu": 3.0}, {"val_bleu": 2.0}], "val_bleu")
        (3.0, 1)
    """
    best, stale = None, 0
    for epoch in history:
        value = epoch.get(monitor)
        stale += 1
        if is_better(value, best, monitor):
            best, stale = value, 0
    return best, stale
