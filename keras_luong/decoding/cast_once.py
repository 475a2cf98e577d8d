"""Mixed precision in a search's loop: weights are cast before it, not in every step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_luong.decoding.stepping import StepModel


@contextlib.contextmanager
def cast_once(model: StepModel) -> Iterator[None]:
    """Lets a model read weights that are in its compute dtype already.

    Under mixed precision Keras casts a weight wherever it is read. A loop body is such
    a place, and TensorFlow does not move it out: each step of a search would cast all
    of the decoder and of the output layer.

    Args:
        model: A `StepModel`. If it has a method `cast_weights`, that returns pairs of a
            Keras variable and the tensor to read in its place, for all variables that
            it reads. A `keras.StatelessScope` around this one is ignored meanwhile.

    Example:
        >>> with cast_once(model):
        ...     memory, state = model.encode(source_ids)
        ...     end = tf.while_loop(any_open, body, start)
    """
    pairs = cast_weights(model)
    if not pairs:
        yield
        return
    scope = keras.StatelessScope()
    for pair in pairs:  # a mapping given at once would be cast back
        scope.add_update(pair)
    with scope:
        yield


def cast_weights(model: Any) -> list[tuple[keras.Variable, tf.Tensor]]:
    """Returns the model's pairs of a variable and its cast; none if it offers none."""
    return model.cast_weights() if hasattr(model, "cast_weights") else []
