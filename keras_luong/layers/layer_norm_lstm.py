"""An LSTM whose gates and memory are normalised (Ba, Kiros & Hinton 2016).

Shapes: B batch, E inputs, H units.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.cell_input import CellInput, dropped, total
from keras_luong.layers.scores import matmul

EPSILON = 1e-3  # Keras's own
INITIALIZERS = ("kernel_initializer", "recurrent_initializer", "bias_initializer")


def layer_norm_lstm(cell, inputs, states, project, noise=None):
    """Ba et al. 2016 (arXiv:1607.06450), Eq. 20 to 22; -> [h, c].

    The sum of all that enters a gate is normalised, gate by gate, as TensorFlow 1's
    `LayerNormBasicLSTMCell` did, and not each of its parts.
    """
    h, c = states
    weights = (*inputs.weights, cell.recurrent_kernel)
    product = project(weights, (*inputs.tensors, dropped(h, noise)))
    z = total(product, inputs.ready, inputs.beside)
    gates = ops.reshape(z, (*ops.shape(z)[:-1], 4, cell.units))
    gates = normalized(gates, cell.gamma, ops.reshape(cell.bias, (4, cell.units)))
    i, f, g, o = ops.unstack(gates, axis=-2)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(normalized(c, cell.state_gamma)), c]


def normalized(x, gamma, beta=None):
    """`γ (x - mean) / √(variance + ε) + β` over the last axis, in float32 inside."""
    wide = ops.cast(x, "float32")
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centered = wide - mean
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    normal = ops.cast(centered * ops.rsqrt(variance + EPSILON), x.dtype)
    normal = normal * ops.cast(gamma, x.dtype)
    return normal if beta is None else normal + ops.cast(beta, x.dtype)


@keras.saving.register_keras_serializable(package="keras_luong")
class LayerNormLSTMCell(keras.layers.Layer):
    """The weights of `layer_norm_lstm`, and one step of it, as a Keras cell.

    Weights: `kernel` [E, 4 H], `recurrent_kernel` [H, 4 H], gates in the order i, f, g,
    o; γ and β of the gates, `gamma` [4, H] and `bias` [4 H] (which starts at 1 for the
    forget gate, as Keras's LSTM does); and `state_gamma` [H] of c, which has no β.

    Args:
        units: Size H.
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, E].
        states: [h, c], each [B, H].

    Returns:
        h, and [h, c].

    Raises:
        TypeError, ValueError: If `units` is no positive integer.

    Example:
        >>> layer = keras.layers.RNN(LayerNormLSTMCell(256), return_sequences=True)
    """

    def __init__(
        self,
        units,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.state_size = [self.units, self.units]
        self.output_size = self.units

    def build(self, input_shape):
        """Makes the weights for inputs [B, E]."""
        gates = 4 * self.units
        for name, shape, initializer in (
            ("kernel", (input_shape[-1], gates), self.kernel_initializer),
            ("recurrent_kernel", (self.units, gates), self.recurrent_initializer),
            ("bias", (gates,), self._first_bias),
            ("gamma", (4, self.units), "ones"),
            ("state_gamma", (self.units,), "ones"),
        ):
            weight = self.add_weight(shape=shape, name=name, initializer=initializer)
            setattr(self, name, weight)

    def _first_bias(self, shape, dtype=None):
        i, _, g, o = ops.split(self.bias_initializer(shape, dtype=dtype), 4)
        return ops.concatenate([i, ops.ones_like(i), g, o])

    def call(self, inputs, states, training=False):
        """See the class."""
        del training
        x = CellInput(matmul(self.kernel, inputs))
        states = layer_norm_lstm(self, x, states, matmul)
        return states[0], states

    def get_config(self):
        """The constructor's arguments."""
        config = {"units": self.units}
        for name in INITIALIZERS:
            config[name] = keras.initializers.serialize(getattr(self, name))
        return {**super().get_config(), **config}


@keras.saving.register_keras_serializable(package="keras_luong")
class LayerNormLSTM(keras.layers.RNN):
    """A `keras.layers.RNN` around a `LayerNormLSTMCell`.

    Args:
        units: Size H.
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        **kwargs: As in `keras.layers.RNN`.

    Call arguments:
        sequences: [B, T, E].
        initial_state: [h, c], each [B, H]; zeros by default.
        mask: bool [B, T], False where there is padding; likewise `training`, as in
            `keras.layers.RNN`.

    Returns:
        As `keras.layers.LSTM`: h [B, H], or [B, T, H] of all steps; with
        `return_state` the last h and c too.

    Raises:
        TypeError, ValueError: If `units` is no positive integer.

    Example:
        >>> outputs = LayerNormLSTM(256, return_sequences=True)(embedded)
    """

    def __init__(self, units, **kwargs):
        given = {name: kwargs.pop(name) for name in INITIALIZERS if name in kwargs}
        dtype = kwargs.get("dtype")
        cell = LayerNormLSTMCell(units, dtype=dtype, name="cell", **given)
        super().__init__(cell, **kwargs)

    def get_config(self):
        """The constructor's arguments."""
        config = super().get_config()
        del config["cell"]
        cell = self.cell.get_config()
        return {**config, **{name: cell[name] for name in ("units", *INITIALIZERS)}}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the layer."""
        return cls(**config)
