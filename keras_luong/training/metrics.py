"""What training reports: perplexity and token accuracy, padding excluded.

Both are averages over tokens, not over batches: batches of different sizes weigh in
by the tokens that they hold. Give them to `compile(metrics=[...])`; padding is known
by its label, so they need no sample weights.

Shapes: B batch, T target length, V vocabulary.

What training is judged by: whether it should rise or fall, and the best so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.special_ids import PAD_ID
from keras_luong.training.losses import token_nll
from keras_luong.types import Tensor


class TokenMean(keras.metrics.Metric):
    """The mean of a function of each token, over those that are not padding.

    Args:
        function: Takes labels `[B, T]` and logits `[B, T, V]`, returns `[B, T]`.
        score: Which of the `TokenScores` has its values, if those are known already.
        ignore_id: The label that marks padding.
        name: Name of the metric, and its key in Keras's logs.

    Raises:
        TypeError, ValueError: If `ignore_id` is no integer that int32 can hold.

    Example:
        >>> from keras_luong.training.losses import token_nll
        >>> from keras_luong.training.metrics import TokenMean
        >>> metric = TokenMean(token_nll, "nll", ignore_id=0, name="nll")
        >>> metric.update_state(np.array([[1, 0]]), np.zeros([1, 2, 4]))
        >>> round(float(metric.result()), 4)  # log 4
        1.3863
    """

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        score: str,
        ignore_id: int,
        name: str,
    ) -> None:
        super().__init__(name=name, dtype="float32")
        self.function = function
        self.score = score
        # Any label that int32 has.
        self.ignore_id = check_size("ignore_id", ignore_id, smallest=-(2**31))
        self.total = self.add_weight(shape=(), initializer="zeros", name="total")
        self.count = self.add_weight(shape=(), initializer="zeros", name="count")

    def update_state(
        self, y_true: Tensor, y_pred: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch.

        Args:
            y_true: Labels, int `[B, T]`.
            y_pred: Logits `[B, T, V]`.
            sample_weight: Weights `[B]` or `[B, T]`; None weighs every token alike,
                as the reported numbers do.
        """
        self.add(self.function(y_true, y_pred), y_true, sample_weight)

    def add(
        self, values: Tensor, y_true: Tensor, sample_weight: Tensor | None = None
    ) -> None:
        """Adds a batch whose values of the function are known.

        Args:
            values: `[B, T]`.
            y_true: Labels, int `[B, T]`.
            sample_weight: As in `update_state`.
        """
        weights = ops.cast(ops.not_equal(y_true, self.ignore_id), "float32")
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            if len(sample_weight.shape) == 1:
                sample_weight = sample_weight[:, None]
            weights = weights * sample_weight
        # A value at an ignored token may be anything, even infinite: 0·inf is NaN.
        values = ops.where(weights > 0, values * weights, 0.0)
        self.total.assign_add(ops.sum(values))
        self.count.assign_add(ops.sum(weights))

    def result(self) -> Tensor:
        """The mean so far; 0 before any token was seen."""
        return ops.divide_no_nan(self.total, self.count)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {"name": self.name, "ignore_id": self.ignore_id}


@keras.saving.register_keras_serializable(package="keras_luong")
class Perplexity(TokenMean):
    """`exp` of the mean negative log-likelihood per token, never label-smoothed.

    Args:
        ignore_id: The label that marks padding.
        name: Name of the metric.

    Example:
        >>> perplexity = kl.Perplexity()
        >>> perplexity.update_state(np.array([[3, 1, 0]]), np.zeros([1, 3, 5]))
        >>> round(float(perplexity.result()), 3)
        5.0
    """

    def __init__(self, ignore_id: int = PAD_ID, name: str = "perplexity") -> None:
        super().__init__(token_nll, "nll", ignore_id, name)

    def result(self) -> Tensor:
        """The perplexity so far; 1 before any token was seen."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="keras_luong")
class TokenAccuracy(TokenMean):
    """The share of tokens whose label has the highest logit, given the true history.

    Args:
        ignore_id: The label that marks padding.
        name: Name of the metric.

    Example:
        >>> accuracy = kl.TokenAccuracy()
        >>> logits = np.array([[[0, 0, 0, 1.0], [1.0, 0, 0, 0]]])
        >>> accuracy.update_state(np.array([[3, 0]]), logits)  # 0 is padding
        >>> float(accuracy.result())
        1.0
    """

    def __init__(self, ignore_id: int = PAD_ID, name: str = "token_accuracy") -> None:
        super().__init__(_is_right, "is_right", ignore_id, name)


def _is_right(labels: Tensor, logits: Tensor) -> Tensor:
    winners = ops.cast(ops.argmax(logits, axis=-1), "int32")
    return ops.cast(ops.equal(winners, ops.cast(labels, "int32")), "float32")


def direction(monitor: str) -> str:
    """Tells whether a monitored quantity should rise or fall.

    Args:
        monitor: Its name in the logs, such as `"val_bleu"`.

    Returns:
        Keras's `mode`: `"max"` for BLEU and accuracies, `"min"` for the rest.

    Example:
        >>> from keras_luong.training.metrics import direction
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
        >>> from keras_luong.training.metrics import is_better
        >>> is_better(3.0, 2.0, "val_bleu"), is_better(3.0, 2.0, "val_perplexity")
        (True, False)
    """
    if value is None or not math.isfinite(value):
        return False
    if best is None:
        return True
    return value > best if direction(monitor) == "max" else value < best


def best_so_far(history: Sequence[Mapping[str, Any]], monitor: str) -> float | None:
    """Finds the best value in a history.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.

    Returns:
        The value, None if it was never logged.

    Example:
        >>> from keras_luong.training.metrics import best_so_far
        >>> best_so_far([{"val_bleu": 3.0}, {"val_bleu": 2.0}], "val_bleu")
        3.0
    """
    best = None
    for epoch in history:
        value = epoch.get(monitor)
        if is_better(value, best, monitor):
            best = value
    return best


def epochs_without_progress(history: Sequence[Mapping[str, Any]], monitor: str) -> int:
    """Counts the epochs since the best one.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.

    Example:
        >>> from keras_luong.training.metrics import epochs_without_progress
        >>> history = [{"val_bleu": bleu} for bleu in (3.0, 3.3, 3.2, 3.1)]
        >>> epochs_without_progress(history, "val_bleu")
        2
    """
    best, stale = None, 0
    for epoch in history:
        value = epoch.get(monitor)
        stale += 1
        if is_better(value, best, monitor):
            best, stale = value, 0
    return stale
