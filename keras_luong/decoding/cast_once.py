"""Mixed precision in a search: weights are cast before the loop, not in every step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_luong.decoding.stepping import StepModel


@contextlib.contextmanager
def cast_once(model: StepModel) -> Iterator[None]:
    """Makes a model read weights that are already cast to its compute dtype.

    Under mixed precision Keras casts a weight wherever it is read, in a loop's body
    too, and TensorFlow does not move the cast out of the loop. So each step of a search
    would cast all weights of the decoder and of the output layer.

    Args:
        model: A `StepModel`. Its method `cast_weights`, if it has one, returns a pair
            of a Keras variable and the tensor to read in its place, for every variable
                that the model reads. It ignores a `keras.StatelessScope` around it.

    Example:
        >>> from keras_luong.decoding.cast_once import cast_once
        >>> config = kl.Seq2SeqConfig(9, 9, units=4)
        >>> model = kl.Seq2Seq(config, dtype="mixed_bfloat16")
        >>> with cast_once(model):  # a whole search
        ...     memory, state = model.encode(np.array([[4, 5, 3]]))
        ...     logits, state, weights = model.step(np.array([[2]]), state, memory)
    """
    pairs = cast_weights(model)
    if not pairs:
        yield
        return
    scope = keras.StatelessScope()
    for pair in pairs:  # given to the constructor, they would be cast back
        scope.add_update(pair)
    with scope:
        yield


def cast_weights(model: Any) -> list[tuple[keras.Variable, tf.Tensor]]:
    """Returns the model's pairs of a variable and its cast, or an empty list."""
    return model.cast_weights() if hasattr(model, "cast_weights") else []
