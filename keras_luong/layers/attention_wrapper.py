"""A decoder step around any cell: Keras's own, a stack of them, or a user's.

Shapes: B batch, K beam, T target positions, E embedding, H units, A attentional units.

A cell of Keras's kind inside a decoder: called, or, where known, by its equations.

Shapes: B batch, K beam, n inputs, H units; states are [..., H].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.compat import serialize_shared, takes_training
from keras_luong.layers.cells import (
    CELL_TYPES,
    CellInput,
    CellType,
    LayerNormLSTMCell,
    States,
)
from keras_luong.layers.decoder_cell import CellStates
from keras_luong.layers.input_feeding_cell import AttentionalCell
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, scan
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


@keras.saving.register_keras_serializable(package="keras_luong")
class AttentionWrapper(AttentionalCell):
    """A decoder step around a cell: it reads `[x_t; h̃_{t-1}]`, its output attends.

    As `tfa.seq2seq.AttentionWrapper`, whose defaults are `attentional_units` given,
    `attentional_activation=None`; or, with its `attention_layer_size=None`,
    `use_attentional_vector=False`.

    Where the cell is Keras's LSTMCell, GRUCell or SimpleRNNCell with their default
    activations, biases and no dropout, or `StackedRNNCells` of these, training takes
    the gradients of its weights out of the loop, as with `InputFeedingDecoderCell`. Any
    other cell is called at every step.

    Args:
        cell: A cell of Keras's kind: `call(inputs, states)` that returns an output and
            the new states, `state_size` (an integer or a nest of them), and maybe
            `output_size` and `get_initial_state(batch_size)`. A list is stacked.
        attention: An attention layer such as `LuongAttention`, or None.
        attentional_units: Size A of h̃; that of the cell's output by default.
        input_feeding: Whether the cell reads the h̃ of the step before, after x.
        kernel_initializer: That of W_c.
        **kwargs: `attentional_activation`, `attentional_bias`,
            `use_attentional_vector`, `output_attention` and `attentional_vector` as in
            `AttentionalCell`; `dropout` (on the inputs), `output_dropout`, `seed`;
            `name`, `dtype` (the cell's by default).

    Call arguments, returns: As `InputFeedingDecoderCell`; the states are the cell's.

    Raises:
        TypeError, ValueError: An argument that is none of the above.

    Example:
        >>> words, memory = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> cell = kl.AttentionWrapper(keras.layers.GRUCell(8), kl.LuongAttention())
        >>> outputs = kl.InputFeedingDecoder(cell)(words, memory)
        >>> tuple(outputs.shape)
        (2, 4, 8)
    """

    _nested: tuple[str, ...] = (*AttentionalCell._nested, "cell")

    def __init__(
        self,
        cell: Any,
        attention: Any,
        attentional_units: int | None = None,
        input_feeding: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        cell = check_cell(cell)
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = getattr(cell, "dtype_policy", None)
        # Before the other layers are made, which are named and sized after these.
        self._query_units = output_size(cell)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        super().__init__(
            attention,
            attentional_units=attentional_units,
            input_feeding=input_feeding,
            **kwargs,
        )
        self.cell = cell

    @property
    def query_units(self) -> int:
        """Size H of the cell's output."""
        return self._query_units

    @property
    def _kinds(self):
        return kinds_of(self.cell, self.compute_dtype)

    def build_recurrent(self) -> None:
        """Makes the cell's weights."""
        width = self.input_units + (self.fed_units or 0)
        build_cell(self.cell, (None, width))

    def recurrent_spec(self, shape: Shape = (None,)) -> Any:
        """As the cell's `state_size`, in a list."""
        dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
        return keras.tree.map_structure(
            lambda size: keras.KerasTensor((*shape, size), dtype),
            state_nest(self.cell),
        )

    def first_recurrent(self, shape: Any) -> Any:
        """The cell's own first states."""
        return initial_state(self.cell, shape)

    def recurrent_noise(self, batch_size: Any, training: Any) -> Noise:
        """None of its own; Keras's cells draw theirs, once for the whole sequence."""
        width = self.input_units + (self.fed_units or 0)
        draw_masks(self.cell, batch_size, width)
        return Noise()

    def project_inputs(self, inputs: Tensor, project: Project = matmul) -> Tensor:
        """Of one step, in a search: see `project_sequence`."""
        return self.project_sequence(inputs, INFERENCE)

    def project_sequence(self, inputs: Tensor, mode: Mode) -> Tensor:
        """The lowest cell's `x W + b` of all steps, where a step does not need x."""
        if not self._is_projected(mode):
            return inputs
        lowest = cells_of(self.cell)[0]
        kernel, bias = lowest.kernel, self._kinds[0].input_bias(lowest)
        if self.input_feeding:
            kernel = kernel[: self.input_units]
        return matmul(kernel, inputs, bias=bias)

    def _is_projected(self, mode):
        # The rows of x and of h̃ are parts of one kernel. The loop for training takes
        # them apart once; any other would copy them at every step. Where x is fed back
        # there is nothing to take apart: both enter the loop's one product.
        apart = mode.training or not self.input_feeding
        return self._kinds is not None and apart and not mode.own_inputs

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        h, recurrent = self._step_cell(z, states.fed, states.recurrent, mode)
        return self.finish(h, recurrent, states, memory, mode)

    def _step_cell(self, z, fed, recurrent, mode):
        """One step of what is wrapped: -> its output, the nest of its new states."""
        if self._kinds is None:
            x = ops.concatenate([z, *fed], axis=-1) if fed else z
            h, new = call_cell(self.cell, x, recurrent, mode.training)
            return ops.cast(h, self.compute_dtype), new  # the cell may have its own
        cells = cells_of(self.cell)
        flat, states = iter(keras.tree.flatten(recurrent)), []
        for kind in self._kinds:
            states.append([next(flat) for _ in range(kind.num_states)])
        inputs = self._first_input(cells[0], z, fed, mode)
        h, new = step_kinds(cells, self._kinds, inputs, states, mode.project)
        new = keras.tree.pack_sequence_as(recurrent, keras.tree.flatten(new))
        return h, new

    def _first_input(self, cell, z, fed, mode):
        """What the lowest cell reads."""
        if not self._is_projected(mode):
            x = ops.concatenate([z, *fed], axis=-1) if fed else z
            bias = self._kinds[0].input_bias(cell)
            return CellInput(None, (cell.kernel,), (x,), bias)
        kernels = (cell.kernel[self.input_units :],) if fed else ()
        return CellInput(z, kernels, tuple(fed))

    def scan_layers(
        self, x: Tensor, states: CellStates, mask: Tensor | None, mode: Mode
    ) -> tuple[Tensor, Any]:
        """See `DecoderCell.scan_layers`."""

        def step(z, recurrent, constants, mode):
            h, recurrent = self._step_cell(z, (), recurrent, mode)
            return (h,), recurrent

        z = self.project_sequence(x, mode)
        (h,), finals = scan(step, z, states.recurrent, (), mask, mode)
        return h, finals

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {
            **super().get_config(),
            "cell": serialize_shared(self.cell),
            "kernel_initializer": initializer,
        }
