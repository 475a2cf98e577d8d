"""A rate that changes in training: by a variable, or by a schedule."""

from __future__ import annotations

import numbers
from typing import Any

import keras
from keras import ops

from keras_luong.types import Tensor


class ScheduledRate(keras.layers.Layer):
    """A probability, given as a Keras optimizer's `learning_rate` is given.

    Its variable, or the number of calls, is a weight: saved, and restored, with others.

    Args:
        rate: A number in [0, 1], which becomes a variable; a `keras.Variable` that is
            not trainable; or a schedule, from the number of calls to the rate.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError, ValueError: It is none of these.
    """

    def __init__(self, rate: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.function = None
        if isinstance(rate, keras.Variable):
            if rate.trainable:
                raise ValueError(
                    "rate must be a variable with trainable=False: no gradient reaches "
                    f"it. Received: {rate!r}"
                )
            self.variable = rate
        elif callable(rate):
            self.function = rate
            self.variable = self._weight("iterations", 0, "int32")
        else:
            self.variable = self._weight("rate", _checked(rate), "float32")
        self.built = True  # or a model that has it could not be quantized

    def _weight(self, name, value, dtype):
        return self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(value),
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )

    @property
    def rate(self) -> Any:
        """The variable; where there is a schedule, its value."""
        return self.variable if self.function is None else self.function(self.variable)

    def next_rate(self) -> Tensor:
        """The rate of this call, float32; counts the call."""
        rate = ops.cast(self.rate, "float32")
        if self.function is not None:
            self.variable.assign_add(1)
        return rate

    def serialized(self) -> Any:
        """The argument `rate` for a configuration."""
        if self.function is None:
            return float(ops.convert_to_numpy(self.variable))
        return keras.saving.serialize_keras_object(self.function)


def _checked(rate):
    """Returns the rate if it is a number in [0, 1]."""
    if isinstance(rate, bool) or not isinstance(rate, numbers.Real):
        raise TypeError(
            "rate must be a number in [0, 1], a keras.Variable or a schedule. "
            f"Received: {rate!r}"
        )
    if not 0 <= float(rate) <= 1:
        raise ValueError(f"rate must be in [0, 1]. Received: {rate!r}")
    return float(rate)
