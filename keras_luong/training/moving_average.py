"""The exponential moving average of the weights, in their place for validation."""

from __future__ import annotations

import keras
import numpy as np

from keras_luong.training.optimizers import innermost
from keras_luong.types import Logs


class MovingAverage(keras.callbacks.Callback):
    """Validates, translates and saves with the average that the optimizer keeps.

    The average takes the weights' place when a validation begins, and gives it back in
    this callback's `on_epoch_end`: callbacks before it in the list see the average,
    those after it the weights that training goes on with. (Keras's `SwapEMAWeights`
    swaps by adding and subtracting, which rounds the weights, and only after the
    callbacks of the epoch's end have run.) When `fit` ends, Keras leaves the average in
    the model.

    Raises:
        ValueError: From `fit`, if the optimizer keeps no average.

    Example:
        >>> from keras_luong.training.moving_average import MovingAverage
        >>> from keras_luong.training.optimizers import make_optimizer
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile(make_optimizer("adam", 1e-3, ema_momentum=0.999), "mse")
        >>> x, y = np.ones([4, 2]), np.ones([4, 1])
        >>> history = model.fit(x, y, validation_data=(x, y), verbose=0,
        ...                     callbacks=[MovingAverage()])
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: list[np.ndarray] | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks that there is an average."""
        if not innermost(self.model.optimizer).use_ema:
            raise ValueError(
                "MovingAverage needs an optimizer that keeps the average of the "
                "weights: make_optimizer(..., ema_momentum=0.999). Received: "
                f"{self.model.optimizer.name} with use_ema=False"
            )
        self._weights = None

    def on_test_begin(self, logs: Logs = None) -> None:
        """Puts the average in the place of the weights."""
        variables = self.model.trainable_variables
        self._weights = [keras.ops.convert_to_numpy(v) for v in variables]
        self.model.optimizer.finalize_variable_values(variables)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Puts the weights back."""
        if self._weights is None:
            raise ValueError("MovingAverage needs validation_data, once every epoch")
        for variable, value in zip(
            self.model.trainable_variables, self._weights, strict=True
        ):
            variable.assign(value)
        self._weights = None
