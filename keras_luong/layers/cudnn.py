"""cuDNN's recurrent layers, through Keras's own, in place of a loop (TensorFlow's GPU).

Shapes: T steps, B batch, n inputs, H units. Sequences are time-major: [T, B, ...].
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
from keras import ops

from keras_luong.types import Tensor

LAYERS = keras.layers.LSTM, keras.layers.GRU


def runs(layer: Any) -> bool:
    """Whether Keras has cuDNN run this layer: an LSTM or a GRU on TensorFlow's GPU."""
    if keras.backend.backend() != "tensorflow":
        return False
    if not isinstance(layer, LAYERS) or not layer.use_cudnn:
        return False
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


def renounce(layers: Iterable[Any]) -> None:
    """Makes layers run without cuDNN, whose kernels XLA cannot compile."""
    for layer in layers:
        if isinstance(layer, LAYERS):
            layer.use_cudnn, layer.supports_jit = False, True


def scan_layer(
    layer: Any, x: Tensor, states: Any, mask: Any, backwards: bool, otherwise: Any
) -> tuple[Tensor, Any]:
    """`keras_luong.layers.recurrence.RecurrentLayers.scan_layer` by cuDNN.

    Args:
        layer: A built layer that it `runs`.
        x: [T, B, n].
        states: Initial states [B, H].
        mask: bool [T, B], or None.
        backwards: Whether to read from the end.
        otherwise: What runs the layer under a mask that cuDNN does not take.

    Returns:
        Outputs [T, B, H] and the final states.
    """

    def through_keras():
        return _through_keras(layer, x, states, mask, backwards)

    if mask is None:
        return through_keras()
    return ops.cond(_padded_on_the_right(mask), through_keras, otherwise)


def _padded_on_the_right(mask):
    """Whether cuDNN takes the mask [T, B]: a word at least, and words come first."""
    words = ops.cast(mask, "int32")
    return ops.logical_and(ops.all(mask[0]), ops.all(words[1:] <= words[:-1]))


def _through_keras(layer, x, states, mask, backwards):
    """The layer's own loop, batch-major; the mask is padded on the right or None."""
    import tensorflow as tf

    x = ops.swapaxes(x, 0, 1)
    mask = None if mask is None else ops.transpose(mask)

    def turned(sequence):
        if not backwards:
            return sequence
        if mask is None:
            return ops.flip(sequence, 1)
        lengths = ops.sum(ops.cast(mask, "int32"), 1)
        return tf.reverse_sequence(sequence, lengths, seq_axis=1)

    _, outputs, states = layer.inner_loop(turned(x), list(states), mask, training=True)
    outputs = turned(outputs)
    if mask is not None:
        outputs = ops.where(mask[..., None], outputs, ops.zeros_like(outputs))
    return ops.swapaxes(outputs, 0, 1), list(states)
