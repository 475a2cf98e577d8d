"""The recurrent cells' equations, over weights that cells of Keras's kind hold.

Shapes: H units; states and inputs are [..., H], with any leading axes. Weights are
multiplied only through `project`, see `keras_luong.layers.scores`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.layers.cell_input import dropped, total
from keras_luong.layers.layer_norm_lstm import LayerNormLSTM, layer_norm_lstm
from keras_luong.layers.scores import matmul


def lstm(cell, inputs, states, project, noise=None):
    """Hochreiter & Schmidhuber 1997, gates in the order i, f, g, o; -> [h, c]."""
    h, c = states
    weights = (*inputs.weights, cell.recurrent_kernel)
    tensors = (*inputs.tensors, dropped(h, noise))
    product = project(weights, tensors, bias=inputs.bias)  # one for all
    z = total(product, inputs.ready, inputs.beside)
    i, f, g, o = ops.split(z, 4, axis=-1)
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def gru(cell, inputs, states, project, noise=None):
    """Cho et al. 2014, with the reset after the product as in Keras and cuDNN; -> [h].

    Gates in the order z (update), r (reset), candidate.
    """
    (h,) = states
    x = inputs.ready
    if inputs.weights:
        x = total(project(inputs.weights, inputs.tensors, bias=inputs.bias), x)
    u = project(cell.recurrent_kernel, dropped(h, noise), bias=cell.bias[1])
    u = total(u, inputs.beside)
    x_z, x_r, x_h = ops.split(x, 3, axis=-1)
    u_z, u_r, u_h = ops.split(u, 3, axis=-1)
    z = ops.sigmoid(x_z + u_z)
    candidate = ops.tanh(x_h + ops.sigmoid(x_r + u_r) * u_h)
    return [z * h + (1 - z) * candidate]


def simple_rnn(cell, inputs, states, project, noise=None):
    """Elman 1990: `h = tanh(x W + h U + b)`; -> [h]."""
    weights = (*inputs.weights, cell.recurrent_kernel)
    tensors = (*inputs.tensors, dropped(states[0], noise))
    product = project(weights, tensors, bias=inputs.bias)
    return [ops.tanh(total(product, inputs.ready, inputs.beside))]


class CellType(NamedTuple):
    """A kind of recurrent cell.

    Attributes:
        layer: The layer whose cell holds the weights.
        equations: `(cell, inputs, states, project, noise=None) -> states`; the first
            is h, which `noise` multiplies where it meets the recurrent kernel.
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
