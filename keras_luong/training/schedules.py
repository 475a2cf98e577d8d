"""Learning-rate schedules, by name.

A schedule is a learning rate for the optimizer, and callbacks that change it during
training. The paper's halving depends on the epoch, which only callbacks know; a warm-up
depends on the step, which only the optimizer knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_luong.checks import check_above, check_choice, check_size
from keras_luong.training.metrics import is_better
from keras_luong.types import Tensor

History: TypeAlias = Sequence[Mapping[str, Any]]  # the logs of each epoch so far


SCHEDULES = ("constant", "halving", "cosine", "plateau", "inverse_sqrt")


class Schedule(NamedTuple):
    """A learning rate and the callbacks that drive it.

    Attributes:
        learning_rate: For the optimizer: a number, or a Keras `LearningRateSchedule`,
            a function of the step.
        callbacks: For `fit`; empty if the learning rate depends on the step only.

    Example:
        >>> from keras_luong.training.schedules import make_schedule
        >>> schedule = make_schedule("inverse_sqrt", 1e-3, warmup_steps=2)
        >>> round(float(schedule.learning_rate(0)), 6), schedule.callbacks
        (0.0005, [])
    """

    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule
    callbacks: list[keras.callbacks.Callback]


def halving(initial: float, constant_epochs: int) -> Callable[..., float]:
    """Makes the paper's schedule: constant, then halved at the start of every epoch.

    Luong et al. (2015, section 4.1): SGD from 1.0, halved every epoch after 5 of 10
    epochs; with dropout after 8 of 12.

    Args:
        initial: The learning rate of the first epochs.
        constant_epochs: How many epochs keep it.

    Returns:
        A function of the epoch, counted from 0, for
        `keras.callbacks.LearningRateScheduler`.

    Raises:
        TypeError, ValueError: If `initial` is no positive number, or `constant_epochs`
            no integer of at least 0.

    Example:
        >>> from keras_luong.training.schedules import halving
        >>> rate = halving(1.0, constant_epochs=5)
        >>> [rate(epoch) for epoch in (0, 4, 5, 6)]
        [1.0, 1.0, 0.5, 0.25]
    """
    check_above("initial", initial, 0)
    check_size("constant_epochs", constant_epochs, smallest=0)

    def rate(epoch: int, learning_rate: float | None = None) -> float:
        # Keras passes the current rate; not using it makes resuming exact.
        return float(initial) * 0.5 ** max(0, epoch - constant_epochs + 1)

    return rate


def cosine(initial: float, epochs: int) -> Callable[..., float]:
    """Makes a schedule that falls along a cosine, to 0 after the last epoch.

    `initial · (1 + cos(π · epoch / epochs)) / 2` (Loshchilov & Hutter 2017,
    arXiv:1608.03983, eq. 5, without restarts).

    Args:
        initial: The learning rate of the first epoch.
        epochs: Number of epochs of the training; later ones have rate 0.

    Returns:
        A function of the epoch, counted from 0, for
        `keras.callbacks.LearningRateScheduler`.

    Raises:
        TypeError, ValueError: If `initial` is no positive number, or `epochs` no
            positive integer.

    Example:
        >>> from keras_luong.training.schedules import cosine
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
    initial: float,
    values: Sequence[float | None],
    patience: int,
    monitor: str,
) -> float:
    """Returns the learning rate after halving it at each plateau.

    The rate is halved whenever `patience` epochs have passed without a better value, as
    by `keras.callbacks.ReduceLROnPlateau`. But it is a function of the values so far,
    so that a resumed training has the same rate.

    Args:
        initial: The learning rate of the first epoch.
        values: The monitored quantity after each epoch so far.
        patience: Epochs without a better value before the rate is halved.
        monitor: Name of the quantity, such as `"val_bleu"`.

    Returns:
        The learning rate of the next epoch.

    Raises:
        TypeError, ValueError: If `initial` is no positive number, or `patience` no
            positive integer.

    Example:
        >>> from keras_luong.training.schedules import plateau
        >>> plateau(1.0, [9.0, 8.0, 8.5, 8.2], patience=2, monitor="val_loss")
        0.5
    """
    check_size("patience", patience)
    rate, best, stale = check_above("initial", initial, 0), None, 0
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
    (Vaswani et al. 2017, arXiv:1706.03762, section 5.3, where the width of the model
    gives the peak).

    Args:
        peak: The highest learning rate, reached at `warmup_steps`.
        warmup_steps: Length of the warm-up, at least 1.

    Raises:
        TypeError, ValueError: If `peak` is no positive number, or `warmup_steps` no
            positive integer.

    Example:
        >>> from keras_luong.training.schedules import InverseSquareRoot
        >>> rate = InverseSquareRoot(1e-3, warmup_steps=4)
        >>> [round(float(rate(step)), 6) for step in (0, 3, 15)]
        [0.00025, 0.001, 0.0005]
    """

    def __init__(self, peak: float, warmup_steps: int = 4000) -> None:
        self.peak = check_above("peak", peak, 0)
        self.warmup_steps = check_size("warmup_steps", warmup_steps)

    def __call__(self, step: Tensor) -> Tensor:
        """Returns the learning rate of the update that follows `step` updates."""
        step = ops.cast(step, "float32") + 1.0
        warmup = float(self.warmup_steps)
        return self.peak * ops.minimum(step / warmup, ops.sqrt(warmup / step))

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments."""
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def make_schedule(
    name: str,
    learning_rate: float,
    *,
    epochs: int = 10,
    constant_epochs: int = 5,
    warmup_steps: int = 4000,
    patience: int = 2,
    monitor: str = "val_perplexity",
    history: Callable[[], History] = list,
) -> Schedule:
    """Makes a schedule by name.

    Args:
        name: `"constant"`, `"halving"` (the paper's), `"cosine"`, `"plateau"` or
            `"inverse_sqrt"`.
        learning_rate: The first learning rate; the peak for `"inverse_sqrt"`.
        epochs: For `"cosine"`: number of epochs until the rate is 0.
        constant_epochs: For `"halving"`: epochs before the first halving.
        warmup_steps: For `"inverse_sqrt"`: steps of warm-up.
        patience: For `"plateau"`: epochs without a better value before each halving.
        monitor: For `"plateau"`: name of the monitored quantity.
        history: For `"plateau"`: returns the logs of the epochs so far, such as
            `lambda: read_history(run_dir)`.

    Returns:
        The learning rate for the optimizer and the callbacks for `fit`.

    Raises:
        ValueError: If the name is unknown or a number is out of range.

    Example:
        >>> from keras_luong.training.schedules import make_schedule
        >>> schedule = make_schedule("halving", 1.0, constant_epochs=5)
        >>> optimizer = keras.optimizers.SGD(schedule.learning_rate)
        >>> len(schedule.callbacks)  # for model.fit(callbacks=...)
        1
    """
    check_choice("schedule", name, SCHEDULES)
    initial = check_above("learning_rate", learning_rate, 0)
    if name == "inverse_sqrt":
        return Schedule(InverseSquareRoot(initial, warmup_steps), [])
    if name == "halving":
        rate = halving(initial, constant_epochs)
    elif name == "cosine":
        rate = cosine(initial, epochs)
    elif name == "plateau":
        check_size("patience", patience)

        def rate(epoch: int, learning_rate: float | None = None) -> float:
            values = [logs.get(monitor) for logs in history()[:epoch]]
            return plateau(initial, values, patience, monitor)

    else:

        def rate(epoch: int, learning_rate: float | None = None) -> float:
            return initial  # in each epoch, as a run may go on with another rate

    return Schedule(initial, [keras.callbacks.LearningRateScheduler(rate)])
