"""Learning-rate schedules, by name.

A schedule is what the optimizer takes as its learning rate plus the callbacks that
change it while training: the paper's halving goes by epochs, which only a callback
knows; warm-up goes by steps, which only the optimizer knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_above, check_size
from keras_luong.training.monitors import is_better


class Schedule(NamedTuple):
    """A learning rate and the callbacks that drive it.

    Attributes:
        learning_rate: What the optimizer is made with: a number, or Keras's
            `LearningRateSchedule`, which goes by steps.
        callbacks: Callbacks for `fit`, empty where the optimizer needs no help.
    """

    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule
    callbacks: list[keras.callbacks.Callback]


def halving(initial: float, constant_epochs: int) -> Callable[..., float]:
    """The paper's schedule: constant, then halved at the start of every epoch.

    Luong et al. (2015, section 4.1): SGD from 1.0, halved every epoch after 5 of 10
    epochs; with dropout after 8 of 12.

    Args:
        initial: The learning rate of the first epochs.
        constant_epochs: How many epochs keep it.

    Returns:
        A function of the epoch, counted from 0, for
        `keras.callbacks.LearningRateScheduler`.

    Example:
        >>> rate = halving(1.0, constant_epochs=5)
        >>> [rate(epoch) for epoch in (0, 4, 5, 6)]
        [1.0, 1.0, 0.5, 0.25]
    """
    check_above("initial", initial, 0)
    if constant_epochs < 0:
        raise ValueError(
            f"constant_epochs must be at least 0. Received: {constant_epochs!r}"
        )

    def rate(epoch: int, learning_rate: float | None = None) -> float:
        # Keras passes the current rate; not using it makes resuming exact.
        return float(initial) * 0.5 ** max(0, epoch - constant_epochs + 1)

    return rate


def cosine(initial: float, epochs: int) -> Callable[..., float]:
    """From the first epoch on ever lower; after the last it would be 0.

    `initial · (1 + cos(π · epoch / epochs)) / 2` (Loshchilov & Hutter 2017,
    arXiv:1608.03983, eq. 5, without restarts).

    Args:
        initial: The learning rate of the first epoch.
        epochs: How many epochs the training has; any later one has rate 0.

    Returns:
        A function of the epoch, counted from 0, for
        `keras.callbacks.LearningRateScheduler`.

    Example:
        >>> rate = cosine(1.0, epochs=4)
        >>> [round(rate(epoch), 3) for epoch in range(4)]
        [1.0, 0.854, 0.5, 0.146]
    """
    check_above("initial", initial, 0)
    check_size("epochs", epochs)

    def rate(epoch: int, learning_rate: float | None = None) -> float:
        done = min(epoch / epochs, 1.0)
        return float(initial) * (1.0 + math.cos(math.pi * done)) / 2

    return rate


def plateau(
    initial: float, values: Sequence[float], patience: int, monitor: str
) -> float:
    """Halved whenever some epochs have passed without a better one.

    It is that of `keras.callbacks.ReduceLROnPlateau`, as a function of the epochs that
    were: so a training that goes on has the rate that it had.

    Args:
        initial: The learning rate of the first epoch.
        values: The monitored quantity after each epoch so far.
        patience: How many epochs without a better one halve the rate.
        monitor: What the values are, such as `"val_bleu"`.

    Returns:
        The learning rate of the next epoch.

    Example:
        >>> plateau(1.0, [9.0, 8.0, 8.5, 8.2], patience=2, monitor="val_loss")
        0.5
    """
    check_size("patience", patience)
    rate, best, stale = float(check_above("initial", initial, 0)), None, 0
    for value in values:
        stale += 1
        if is_better(value, best, monitor):
            best, stale = value, 0
        elif stale == patience:
            rate, stale = rate / 2, 0
    return rate


@keras.saving.register_keras_serializable(package="keras_luong")
class InverseSquareRoot(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up to `peak`, then decay with the square root of the step.

    `peak · min(step / warmup_steps, sqrt(warmup_steps / step))`, steps from 1
    (Vaswani et al. 2017, arXiv:1706.03762, with the peak given outright).

    Args:
        peak: The highest learning rate, reached at `warmup_steps`.
        warmup_steps: Length of the warm-up, at least 1.

    Example:
        >>> keras.optimizers.Adam(InverseSquareRoot(1e-3, warmup_steps=4000))
    """

    def __init__(self, peak: float, warmup_steps: int = 4000):
        check_above("peak", peak, 0)
        if warmup_steps < 1:
            raise ValueError(
                f"warmup_steps must be at least 1. Received: {warmup_steps!r}"
            )
        self.peak = peak
        self.warmup_steps = warmup_steps

    def __call__(self, step):
        """The learning rate of the update after `step` updates."""
        step = ops.cast(step, "float32") + 1.0
        warmup = float(self.warmup_steps)
        return self.peak * ops.minimum(step / warmup, ops.sqrt(warmup / step))

    def get_config(self):
        """The constructor's arguments."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _constant(learning_rate, **_) -> Schedule:
    # Told each epoch, for a run that goes on may do so with another rate.
    return _by_epochs(
        learning_rate, lambda epoch, learning_rate_now=None: learning_rate
    )


def _halving(learning_rate, constant_epochs, **_) -> Schedule:
    return _by_epochs(learning_rate, halving(learning_rate, constant_epochs))


def _cosine(learning_rate, epochs, **_) -> Schedule:
    return _by_epochs(learning_rate, cosine(learning_rate, epochs))


def _plateau(learning_rate, patience, monitor, history, **_) -> Schedule:
    check_size("patience", patience)

    def rate(epoch, learning_rate_now=None):
        values = [logs.get(monitor) for logs in history()[:epoch]]
        return plateau(learning_rate, values, patience, monitor)

    return _by_epochs(learning_rate, rate)


def _by_epochs(learning_rate, rate) -> Schedule:
    return Schedule(learning_rate, [keras.callbacks.LearningRateScheduler(rate)])


def _inverse_sqrt(learning_rate, warmup_steps, **_) -> Schedule:
    return Schedule(InverseSquareRoot(learning_rate, warmup_steps), [])


SCHEDULES = {
    "constant": _constant,
    "halving": _halving,
    "cosine": _cosine,
    "plateau": _plateau,
    "inverse_sqrt": _inverse_sqrt,
}


def make_schedule(
    name: str,
    learning_rate: float,
    *,
    epochs: int = 10,
    constant_epochs: int = 5,
    warmup_steps: int = 4000,
    patience: int = 2,
    monitor: str = "val_perplexity",
    history: Callable[[], Sequence[dict]] = list,
) -> Schedule:
    """Makes a schedule by name.

    Args:
        name: `"constant"`, `"halving"` (the paper's), `"cosine"`, `"plateau"` or
            `"inverse_sqrt"`.
        learning_rate: The first learning rate; the peak for `"inverse_sqrt"`.
        epochs: How many epochs the cosine takes.
        constant_epochs: Epochs before the halving begins.
        warmup_steps: Steps of warm-up for `"inverse_sqrt"`.
        patience: Epochs without a better one that halve the rate on a plateau.
        monitor: What "better" is judged by there.
        history: Gives the logs of the epochs that were, for the plateau: such as
            `lambda: read_history(run_dir)`.

    Returns:
        The learning rate for the optimizer and the callbacks for `fit`.

    Raises:
        ValueError: If the name is unknown or a number is out of range.

    Example:
        >>> schedule = make_schedule("halving", 1.0, constant_epochs=5)
        >>> optimizer = make_optimizer("sgd", schedule.learning_rate)
        >>> model.fit(batches, callbacks=schedule.callbacks)
    """
    if name not in SCHEDULES:
        raise ValueError(
            f"Unknown schedule. Received: {name!r}, expected one of {list(SCHEDULES)}"
        )
    learning_rate = check_above("learning_rate", learning_rate, 0)
    return SCHEDULES[name](
        learning_rate,
        epochs=epochs,
        constant_epochs=constant_epochs,
        warmup_steps=warmup_steps,
        patience=patience,
        monitor=monitor,
        history=history,
    )
