"""The recurrent cells' equations, over weights that Keras's own cells hold.

Shapes: H units; states and inputs are [..., H], with any leading axes. Weights are
multiplied only through `project`, see `keras_luong.layers.scores`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.layers.layer_norm_lstm import LayerNormLSTM, layer_norm_lstm
from keras_luong.layers.scores import matmul


class CellInput(NamedTuple):
    """What enters a cell from outside: a part projected already and parts to project.

    Attributes:
        ready: `x W + b` if that could be done before the loop, or None.
        weights: Tuple of matrices for `tensors`.
        tensors: Tuple of inputs that exist only inside the loop.
        bias: Of the input's projection, if it is not in `ready`; or None.
        beside: What is added to the state's own projection `h U`, which a GRU's reset
            gate goes over; or None.
    """

    ready: Any = None
    weights: tuple = ()
    tensors: tuple = ()
    bias: Any = None
    beside: Any = None


def _sum(*parts):
    """The sum of those that are there."""
    return functools.reduce(operator.add, [x for x in parts if x is not None])


def lstm(cell, inputs, states, project):
    """Hochreiter & Schmidhuber 1997, gates in the order i, f, g, o; -> [h, c]."""
    h, c = states
    weights = (*inputs.weights, cell.recurrent_kernel)
    product = project(weights, (*inputs.tensors, h), bias=inputs.bias)  # one for all
    z = _sum(product, inputs.ready, inputs.beside)
    i, f, g, o = ops.split(z, 4, axis=-1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def gru(cell, inputs, states, project):
    """Cho et al. 2014, with the reset after the product as in Keras and cuDNN; -> [h].

    Gates in the order z (update), r (reset), candidate.
    """
    (h,) = states
    x = inputs.ready
    if inputs.weights:
        x = _sum(project(inputs.weights, inputs.tensors, bias=inputs.bias), x)
    u = _sum(project(cell.recurrent_kernel, h, bias=cell.bias[1]), inputs.beside)
    x_z, x_r, x_h = ops.split(x, 3, axis=-1)
    u_z, u_r, u_h = ops.split(u, 3, axis=-1)
    z = ops.sigmoid(x_z + u_z)
    candidate = ops.tanh(x_h + ops.sigmoid(x_r + u_r) * u_h)
    return [z * h + (1 - z) * candidate]


def simple_rnn(cell, inputs, states, project):
    """Elman 1990: `h = tanh(x W + h U + b)`; -> [h]."""
    weights = (*inputs.weights, cell.recurrent_kernel)
    product = project(weights, (*inputs.tensors, *states), bias=inputs.bias)
    return [ops.tanh(_sum(product, inputs.ready, inputs.beside))]


class CellType(NamedTuple):
    """A kind of recurrent cell.

    Attributes:
        layer: The Keras layer whose cell holds the weights.
        equations: `(cell, inputs, states, project) -> states`; the first is h.
        num_states: How many states it has.
        input_bias: `cell -> bias` of the input's projection, or None.
    """

    layer: type
    equations: Callable
    num_states: int
    input_bias: Callable

    def ready(self, cell, x, project=matmul):
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


def get_cell_type(name) -> CellType:
    """The `CellType` named `name`, one of `CELL_TYPES`."""
    return CELL_TYPES[check_choice("cell_type", name, CELL_TYPES)]
