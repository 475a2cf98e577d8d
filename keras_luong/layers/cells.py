"""The recurrent cells: their equations, over weights that cells of Keras's kind hold.

Shapes: B batch, E inputs, H units; states and inputs are [..., H], with any leading
axes. Weights are multiplied only through `project`, see `keras_luong.layers.scores`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_luong.checks import check_choice, check_size
from keras_luong.layers.projection import Project, matmul
from keras_luong.types import Shape, Tensor

EPSILON = 1e-3  # of layer normalisation: Keras's own
INITIALIZERS = ("kernel_initializer", "recurrent_initializer", "bias_initializer")

#: What a cell carries from step to step: [h], or [h, c].
States: TypeAlias = Sequence[Tensor]


class CellInput(NamedTuple):
    """What a step of a cell reads beside its states and its recurrent weights.

    Attributes:
        projected: `x W + b` if that could be computed before the loop, or None.
        weights: Matrices for `tensors`.
        tensors: Inputs that exist only inside the loop.
        bias: Of the input's projection, if it is not in `projected`; or None.
        beside: What is added to the state's own projection `h U`, before a GRU's reset
            gate multiplies it; or None.
        noise: Dropout multipliers of the h that meets the recurrent kernel (what a GRU
            carries of it stays whole), or None.

    Example:
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> cell.build((None, None, 3), (None, None, 6))
        >>> z = cell.project_inputs(keras.ops.ones((2, 3)))  # x W + b, before the loop
        >>> states = cell.pack(cell.initial_states((2,)))
        >>> x = kl.layers.CellInput(z, (cell.feeding_kernel,), tuple(states.fed))
        >>> mode = kl.layers.INFERENCE
        >>> h, recurrent = cell.recurrent.step(x, states.recurrent, mode)
        >>> tuple(h.shape)
        (2, 8)
    """

    projected: Tensor | None = None
    weights: tuple[Tensor, ...] = ()
    tensors: tuple[Tensor, ...] = ()
    bias: Tensor | None = None
    beside: Tensor | None = None
    noise: Tensor | None = None


def lstm(cell: Any, x: CellInput, states: States, project: Project) -> States:
    """Hochreiter & Schmidhuber 1997, gates in the order i, f, g, o; -> [h, c]."""
    h, c = states
    i, f, g, o = ops.split(_preactivation(cell, x, h, project), 4, axis=-1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def layer_norm_lstm(
    cell: Any, x: CellInput, states: States, project: Project
) -> States:
    """Ba et al. 2016 (arXiv:1607.06450), Eq. 20 to 22; -> [h, c].

    The sum of all that enters a gate is normalised, gate by gate, as TensorFlow 1's
    `LayerNormBasicLSTMCell` did, and not each of its parts.
    """
    h, c = states
    z = _preactivation(cell, x, h, project)
    gates = ops.reshape(z, (*ops.shape(z)[:-1], 4, cell.units))
    gates = normalized(gates, cell.gamma, ops.reshape(cell.bias, (4, cell.units)))
    i, f, g, o = ops.unstack(gates, axis=-2)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(normalized(c, cell.state_gamma)), c]


def normalized(x: Tensor, gamma: Tensor, beta: Tensor | None = None) -> Tensor:
    """`γ (x - mean) / √(variance + ε) + β` over the last axis, in float32 inside.

    So γ and β, which are float32, are not cast at every step of a loop.
    """
    dtype = keras.backend.result_type(x.dtype, "float32")
    wide = ops.cast(x, dtype)
    mean = ops.mean(wide, axis=-1, keepdims=True)
    centered = wide - mean
    variance = ops.mean(ops.square(centered), axis=-1, keepdims=True)
    normal = centered * ops.rsqrt(variance + EPSILON) * ops.cast(gamma, dtype)
    normal = normal if beta is None else normal + ops.cast(beta, dtype)
    return ops.cast(normal, x.dtype)


def gru(cell: Any, x: CellInput, states: States, project: Project) -> States:
    """Cho et al. 2014, with the reset after the product as in Keras and cuDNN; -> [h].

    Gates in the order z (update), r (reset), candidate.
    """
    (h,) = states
    w = x.projected
    if x.weights:
        w = project(x.weights, x.tensors, bias=x.bias, plus=w)
    h_in = dropped(h, x.noise)
    u = project(cell.recurrent_kernel, h_in, bias=lambda: cell.bias[1], plus=x.beside)
    w_z, w_r, w_h = ops.split(w, 3, axis=-1)
    u_z, u_r, u_h = ops.split(u, 3, axis=-1)
    z = ops.sigmoid(w_z + u_z)
    candidate = ops.tanh(w_h + ops.sigmoid(w_r + u_r) * u_h)
    return [z * h + (1 - z) * candidate]


def simple_rnn(cell: Any, x: CellInput, states: States, project: Project) -> States:
    """Elman 1990: `h = tanh(x W + h U + b)`; -> [h]."""
    return [ops.tanh(_preactivation(cell, x, states[0], project))]


def _preactivation(cell, x, h, project):
    """`x W + h U + b`: one product of all that is multiplied inside the loop."""
    weights = (*x.weights, cell.recurrent_kernel)
    tensors = (*x.tensors, dropped(h, x.noise))
    return project(weights, tensors, bias=x.bias, plus=_total(x.projected, x.beside))


def _total(*parts):
    """The sum of those parts that are not None; or None."""
    there = [x for x in parts if x is not None]
    return functools.reduce(operator.add, there) if there else None


def dropped(x: Tensor, noise: Tensor | None) -> Tensor:
    """`x` times its dropout multipliers, if there are any."""
    return x if noise is None else x * noise


def draw_noise(
    shape: Any, rate: float, training: Any, seed: Any, dtype: str
) -> Tensor | None:
    """Dropout multipliers, each 0 or 1/(1-rate); None where nothing is dropped."""
    if not (training and rate):
        return None
    return keras.random.dropout(ops.ones(shape, dtype=dtype), rate, seed=seed)


def serialized_initializers(layer: Any) -> dict[str, Any]:
    """The `INITIALIZERS` of a layer for its `get_config`."""
    given = {name: getattr(layer, name) for name in INITIALIZERS}
    return {name: keras.initializers.serialize(x) for name, x in given.items()}


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
        >>> from keras_luong.layers.cells import LayerNormLSTMCell
        >>> layer = keras.layers.RNN(LayerNormLSTMCell(8), return_sequences=True)
        >>> tuple(layer(np.random.rand(2, 4, 3)).shape)
        (2, 4, 8)
    """

    def __init__(
        self,
        units: int,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.state_size = [self.units, self.units]
        self.output_size = self.units

    def build(self, input_shape: Shape) -> None:
        """Makes the weights for inputs [B, E]."""
        gates = 4 * self.units
        for name, shape, initializer in (
            ("kernel", (input_shape[-1], gates), self.kernel_initializer),
            ("recurrent_kernel", (self.units, gates), self.recurrent_initializer),
            ("bias", (gates,), self._first_bias),
            ("gamma", (4, self.units), "ones"),
            ("state_gamma", (self.units,), "ones"),
        ):
            weight = self.add_weight(
                shape=shape,
                name=name,
                initializer=initializer,
                autocast="kernel" in name,  # the others are for `normalized`
            )
            setattr(self, name, weight)

    def _first_bias(self, shape, dtype=None):
        i, _, g, o = ops.split(self.bias_initializer(shape, dtype=dtype), 4)
        return ops.concatenate([i, ops.ones_like(i), g, o])

    def call(
        self, inputs: Tensor, states: States, training: bool = False
    ) -> tuple[Tensor, States]:
        """See the class."""
        x = CellInput(matmul(self.kernel, inputs))
        states = layer_norm_lstm(self, x, states, matmul)
        return states[0], states

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = {"units": self.units, **serialized_initializers(self)}
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
        >>> from keras_luong.layers.cells import LayerNormLSTM
        >>> outputs = LayerNormLSTM(8, return_sequences=True)(np.random.rand(2, 4, 3))
        >>> tuple(outputs.shape)
        (2, 4, 8)
    """

    def __init__(self, units: int, **kwargs: Any) -> None:
        given = {name: kwargs.pop(name) for name in INITIALIZERS if name in kwargs}
        dtype = kwargs.get("dtype")
        cell = LayerNormLSTMCell(units, dtype=dtype, name="cell", **given)
        super().__init__(cell, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = super().get_config()
        del config["cell"]
        return {
            **config,
            "units": self.cell.units,
            **serialized_initializers(self.cell),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LayerNormLSTM:
        """Rebuilds the layer."""
        return cls(**config)


class CellType(NamedTuple):
    """A kind of recurrent cell.

    Attributes:
        layer: The layer whose cell holds the weights.
        equations: `(cell, x, states, project) -> states`; the first of them is h.
        num_states: How many states it has.
        input_bias: `cell -> bias` of the input's projection, or None.
    """

    layer: type
    equations: Callable[[Any, CellInput, States, Project], States]
    num_states: int
    input_bias: Callable[[Any], Tensor | None]

    def project_input(self, cell: Any, x: Tensor, project: Project = matmul) -> Tensor:
        """`x W + b`: the part of a cell's work that needs no state."""
        return project(cell.kernel, x, bias=self.input_bias(cell))


CELL_TYPES = {
    "lstm": CellType(keras.layers.LSTM, lstm, 2, lambda cell: cell.bias),
    "gru": CellType(keras.layers.GRU, gru, 1, lambda cell: cell.bias[0]),
    "layer_norm_lstm": CellType(LayerNormLSTM, layer_norm_lstm, 2, lambda cell: None),
    "simple_rnn": CellType(
        keras.layers.SimpleRNN, simple_rnn, 1, lambda cell: cell.bias
    ),
}


def get_cell_type(name: str) -> CellType:
    """The `CellType` named `name`, one of `CELL_TYPES`."""
    return CELL_TYPES[check_choice("cell_type", name, CELL_TYPES)]
