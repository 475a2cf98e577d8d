"""A cell of Keras's kind inside a decoder: called, or, where known, by its equations.

Shapes: B batch, K beam, n inputs, H units; states are [..., H].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.compat import takes_training
from keras_luong.layers.cells import (
    CELL_TYPES,
    CellInput,
    CellType,
    LayerNormLSTMCell,
    States,
)
from keras_luong.layers.projection import Project
from keras_luong.types import Shape, Tensor

#: Cells whose equations `keras_luong.layers.cells` has too.
KINDS = {
    keras.layers.LSTMCell: CELL_TYPES["lstm"],
    keras.layers.GRUCell: CELL_TYPES["gru"],
    keras.layers.SimpleRNNCell: CELL_TYPES["simple_rnn"],
    LayerNormLSTMCell: CELL_TYPES["layer_norm_lstm"],
}

#: What a cell of these must be like for that, where it has a choice at all.
AS_THERE = {
    "activation": keras.activations.tanh,
    "recurrent_activation": keras.activations.sigmoid,
    "use_bias": True,
    "reset_after": True,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
}


def check_cell(cell: Any) -> Any:
    """Returns a cell, or the `StackedRNNCells` of a list, that a decoder can have.

    Raises:
        TypeError: It has no `call` or no `state_size`, or states without a size; or it
            is a layer that runs a cell.
    """
    for one in cell if isinstance(cell, (list, tuple)) else [cell]:
        _refuse_layer(one)
    if isinstance(cell, (list, tuple)):
        cell = keras.layers.StackedRNNCells(list(cell))
    if not callable(getattr(cell, "call", None)) or not hasattr(cell, "state_size"):
        raise TypeError(
            "cell must be a Keras cell such as keras.layers.LSTMCell: a layer with "
            f"call(inputs, states) and state_size. Received: {cell!r}"
        )
    sizes = keras.tree.flatten(cell.state_size)
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise TypeError(
            "The state_size of cell must be an integer, or a nest of them. Received: "
            f"cell.state_size={cell.state_size!r}"
        )
    return cell


def _refuse_layer(cell):
    if isinstance(cell, keras.layers.RNN):
        raise TypeError(
            "cell must be a Keras cell, which makes one step, and not a layer that "
            "makes all of them: keras.layers.LSTMCell, say, in the place of "
            f"keras.layers.LSTM. Received: {cell!r}"
        )


def cells_of(cell: Any) -> list[Any]:
    """The cells of a stack, from below; or the one cell."""
    stacked = isinstance(cell, keras.layers.StackedRNNCells)
    return [each for one in cell.cells for each in cells_of(one)] if stacked else [cell]


def kinds_of(cell: Any, compute_dtype: str) -> list[CellType] | None:
    """The `CellType` of each of `cells_of(cell)`; None if any is of no known one."""
    if not _is_known(cell, compute_dtype):
        return None
    return [KINDS[type(one)] for one in cells_of(cell)]


def _is_known(cell, compute_dtype):
    # A subclass may compute something else.
    if type(cell) is keras.layers.StackedRNNCells:
        return all(_is_known(one, compute_dtype) for one in cell.cells)
    if type(cell) not in KINDS or cell.compute_dtype != compute_dtype:
        return False
    return all(getattr(cell, name, x) == x for name, x in AS_THERE.items())


def output_size(cell: Any) -> int:
    """The size H of a cell's output."""
    size = getattr(cell, "output_size", None)
    return keras.tree.flatten(cell.state_size)[0] if size is None else size


def state_nest(cell: Any) -> Any:
    """`state_size` as a list, as `keras.layers.RNN` gives the states to a cell."""
    sizes = cell.state_size
    return list(sizes) if isinstance(sizes, (list, tuple)) else [sizes]


def initial_state(cell: Any, shape: Any) -> list[Tensor]:
    """A cell's own first states, each [*shape, H], flat."""
    if not hasattr(cell, "get_initial_state"):
        sizes, dtype = keras.tree.flatten(cell.state_size), cell.compute_dtype
        return [ops.zeros((*shape, size), dtype=dtype) for size in sizes]
    first = keras.tree.flatten(cell.get_initial_state(batch_size=shape[0]))
    if len(shape) == 1:
        return first
    return [ops.broadcast_to(x[:, None], (*shape, x.shape[-1])) for x in first]


def call_cell(
    cell: Any, inputs: Tensor, states: Any, training: bool
) -> tuple[Tensor, Any]:
    """One step of a cell as `keras.layers.RNN` calls it.

    Args:
        cell: The cell.
        inputs: [..., n]; a cell sees all leading axes as one.
        states: Nest [..., H], as `state_nest`.
        training: Whether to drop.

    Returns:
        The output [..., H]; the nest of new states.
    """
    leading = ops.shape(inputs)[:-1]

    def flat(x):
        return x if len(leading) == 1 else ops.reshape(x, (-1, x.shape[-1]))

    def back(x):
        return x if len(leading) == 1 else ops.reshape(x, (*leading, x.shape[-1]))

    given = keras.tree.map_structure(flat, states)
    options = {"training": training} if takes_training(cell) else {}
    call = cell if callable(cell) else cell.call
    output, new = call(flat(inputs), given, **options)
    new = keras.tree.flatten(new)
    return back(output), keras.tree.pack_sequence_as(states, [back(x) for x in new])


def step_kinds(
    cells: Sequence[Any],
    kinds: Sequence[CellType],
    first: CellInput,
    states: Sequence[States],
    project: Project,
) -> tuple[Tensor, list[States]]:
    """One step of known cells, the one above the other.

    Args:
        cells: As `cells_of`.
        kinds: As `kinds_of`.
        first: What the lowest reads.
        states: Of each, [h, ...].
        project: How to multiply by weights.

    Returns:
        The top one's h, and the new states of each.
    """
    inputs = first
    new: list[States] = []
    for i, (cell, kind) in enumerate(zip(cells, kinds, strict=True)):
        if i:
            bias = kind.input_bias(cell)
            inputs = CellInput(None, (cell.kernel,), (new[-1][0],), bias)
        new.append(kind.equations(cell, inputs, states[i], project))
    return new[-1][0], new


def build_cell(cell: Any, shape: Shape) -> None:
    """Makes a cell's weights for inputs of a shape."""
    if isinstance(cell, keras.layers.Layer) and not cell.built:
        cell.build(shape)
        cell.built = True


def draw_masks(cell: Any, batch_size: Any, width: int) -> None:
    """Lets Keras's cells draw their dropout masks, which they keep for a sequence.

    Args:
        cell: The cell or stack.
        batch_size: B.
        width: Size n of the lowest cell's inputs.
    """
    for one in cells_of(cell):
        if hasattr(one, "get_dropout_mask"):
            one.reset_dropout_mask()
            one.reset_recurrent_dropout_mask()
            dtype = one.compute_dtype
            one.get_dropout_mask(ops.zeros((batch_size, width), dtype=dtype))
            state = keras.tree.flatten(one.state_size)[0]
            one.get_recurrent_dropout_mask(ops.zeros((batch_size, state), dtype=dtype))
        width = output_size(one)
