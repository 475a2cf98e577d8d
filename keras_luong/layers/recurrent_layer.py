"""One recurrent layer over a whole sequence: a loop, or cuDNN on a GPU.

Shapes: T steps, B batch, n inputs, H units. Sequences are time-major.
"""

from __future__ import annotations

import functools

import keras
from keras import ops

from keras_luong.layers.cell_input import CellInput
from keras_luong.layers.recurrence import scan

CUDNN_LAYERS = keras.layers.LSTM, keras.layers.GRU


def run_layer(
    kind,
    layer,
    x,
    states,
    mask=None,
    backwards=False,
    noise=None,
    training=False,
):
    """Runs one layer, whose input projection is one product for all steps.

    Args:
        kind: The layer's `CellType`.
        layer: The Keras layer that has the weights.
        x: [T, B, n].
        states: List of initial states [B, H].
        mask: bool [T, B], or None; where False, states are kept and outputs are zeros.
        backwards: Whether to read from the end. Outputs are in the order of x.
        noise: Dropout multipliers [B, H] of the recurrent h, or None.
        training: Whether gradients will be wanted.

    Returns:
        Outputs [T, B, H] and the list of final states.
    """
    loop = functools.partial(
        _loop, kind, layer.cell, x, states, mask, backwards, noise, training
    )
    if not (training and noise is None and cudnn_runs(layer)):
        return loop()
    if mask is None:
        return _through_keras(layer, x, states, mask, backwards)
    return ops.cond(
        _padded_on_the_right(mask),
        lambda: _through_keras(layer, x, states, mask, backwards),
        loop,
    )


def _loop(kind, cell, x, states, mask, backwards, noise, training):
    def step(z, states, noise, project):
        states = kind.equations(cell, CellInput(z), states, project, *noise)
        return (states[0],), states

    z = kind.ready(cell, x)
    if backwards:
        z = ops.flip(z, 0)
        mask = None if mask is None else ops.flip(mask, 0)
    noise = [] if noise is None else [noise]
    (h,), states = scan(step, z, states, noise, mask, training)
    return (ops.flip(h, 0) if backwards else h), states


def cudnn_runs(layer) -> bool:
    """Whether Keras has cuDNN run this layer: an LSTM or a GRU on TensorFlow's GPU."""
    if keras.backend.backend() != "tensorflow":
        return False
    if not isinstance(layer, CUDNN_LAYERS) or not layer.use_cudnn:
        return False
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU"))


def renounce_cudnn(layers):
    """Lets XLA compile what is made of these layers: it cannot with cuDNN's kernels."""
    for layer in layers:
        if isinstance(layer, CUDNN_LAYERS):
            layer.use_cudnn, layer.supports_jit = False, True


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
