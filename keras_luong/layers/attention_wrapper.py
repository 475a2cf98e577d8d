"""A decoder step around any Keras cell: Keras's own, a stack of them, or a user's.

Shapes: B batch, K beam, T target positions, E embedding, n inputs, H units, A
attentional units; states are [..., H].
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.compat import serialize_shared, takes_training
from keras_luong.layers.cells import (
    CELL_TYPES,
    CellInput,
    CellType,
    LayerNormLSTMCell,
)
from keras_luong.layers.input_feeding_cell import AttentionalCell
from keras_luong.layers.projection import matmul
from keras_luong.layers.recurrence import Mode, Noise, scan
from keras_luong.types import Shape, Tensor


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
        attentional_vector: A layer of your own in the place of `AttentionalVector`.
        **kwargs: `attentional_activation`, `attentional_bias`,
            `use_attentional_vector` and `output_attention` as in
            `InputFeedingDecoderCell`;
            `dropout` (on the inputs), `output_dropout`, `seed`; `name`, `dtype` (the
            cell's by default).

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
        attentional_vector: Any = None,
        **kwargs: Any,
    ) -> None:
        cell = check_cell(cell)
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = getattr(cell, "dtype_policy", None)
        super().__init__(
            attention,
            attentional_units=attentional_units,
            input_feeding=input_feeding,
            **kwargs,
        )
        self.cell = cell
        self.recurrent = WrappedCell(cell, self.compute_dtype)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.add_vector(attentional_vector, self.kernel_initializer)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        return {
            **super().get_config(),
            "cell": serialize_shared(self.cell),
            "kernel_initializer": initializer,
        }


class WrappedCell:
    """A Keras cell as a decoder's recurrent part, like a `RecurrentStack`.

    It is called; or, where it is of a known kind, computed by the equations of
    `keras_luong.layers.cells`, so that training takes its weights' gradients out of the
    loop.

    Args:
        cell: What `check_cell` returned. Keras finds it in the `AttentionWrapper`.
        compute_dtype: That of the decoder's cell.
    """

    def __init__(self, cell: Any, compute_dtype: str) -> None:
        self.cell, self.compute_dtype = cell, compute_dtype
        size = getattr(cell, "output_size", None)
        self.units = keras.tree.flatten(cell.state_size)[0] if size is None else size

    def state_spec(self, shape: Shape) -> Any:
        """Symbolic states with leading axes `shape`, as `keras.layers.RNN` has them."""
        sizes = self.cell.state_size
        return keras.tree.map_structure(
            lambda size: keras.KerasTensor((*shape, size), self._cell_dtype),
            list(sizes) if isinstance(sizes, (list, tuple)) else [sizes],
        )

    @property
    def _cell_dtype(self):
        return getattr(self.cell, "compute_dtype", self.compute_dtype)

    def first_states(self, shape: Any) -> list[Tensor]:
        """The cell's own first states, each [*shape, H], flat."""
        if not hasattr(self.cell, "get_initial_state"):
            sizes, dtype = keras.tree.flatten(self.cell.state_size), self._cell_dtype
            return [ops.zeros((*shape, n), dtype=dtype) for n in sizes]
        first = keras.tree.flatten(self.cell.get_initial_state(batch_size=shape[0]))
        if len(shape) == 1:
            return first
        return [ops.broadcast_to(x[:, None], (*shape, x.shape[-1])) for x in first]

    def build(self, input_units: int, fed_units: int | None = None) -> None:
        """Makes the cell's weights for inputs [x; h̃]."""
        self._input_units, self._fed_units = input_units, fed_units or 0
        if isinstance(self.cell, keras.layers.Layer) and not self.cell.built:
            self.cell.build((None, input_units + self._fed_units))
            self.cell.built = True

    def draw_sequence_noise(self, batch_size: Any, training: Any) -> Noise:
        """None: Keras's cells draw their own masks, here once for a whole sequence."""
        width = self._input_units + self._fed_units
        for cell in cells_of(self.cell):
            if hasattr(cell, "get_dropout_mask"):
                cell.reset_dropout_mask()
                cell.reset_recurrent_dropout_mask()
                dtype = cell.compute_dtype
                cell.get_dropout_mask(ops.zeros((batch_size, width), dtype=dtype))
                size = keras.tree.flatten(cell.state_size)[0]
                state = ops.zeros((batch_size, size), dtype=dtype)
                cell.get_recurrent_dropout_mask(state)
            sizes = keras.tree.flatten(cell.state_size)
            width = getattr(cell, "output_size", None) or sizes[0]
        return Noise()

    @property
    def kinds(self) -> list[CellType]:
        """The `CellType` of each of its cells; none if one is of no known kind."""
        return kinds_of(self.cell, self.compute_dtype)

    def _projects_inputs(self, mode):
        # The rows of x and of h̃ are parts of one kernel. The loop for training takes
        # them apart once; any other would copy them at every step. Where x is fed back
        # there is nothing to take apart: both enter the loop's one product.
        apart = mode.training or not self._fed_units
        return bool(self.kinds) and apart and not mode.own_inputs

    def project_inputs(self, inputs: Tensor, mode: Mode) -> Tensor:
        """The lowest cell's `x W + b`, where a step does not need x; else x itself."""
        if not self._projects_inputs(mode):
            return inputs
        lowest = cells_of(self.cell)[0]
        kernel, bias = lowest.kernel, self.kinds[0].input_bias(lowest)
        if self._fed_units:
            kernel = kernel[: self._input_units]
        return matmul(kernel, inputs, bias=bias)

    def step(self, x: CellInput, states: Any, mode: Mode) -> tuple[Tensor, Any]:
        """One step: -> the output [..., H], the nest of new states.

        Args:
            x: `projected` is what `project_inputs` returned, `tensors` what is fed.
            states: Nest, as `state_spec`.
            mode: How to compute it.
        """
        z, fed = x.projected, x.tensors
        if not self.kinds:
            joined = ops.concatenate([z, *fed], axis=-1) if fed else z
            h, new = self._call_cell(joined, states, mode.training)
            return ops.cast(h, self.compute_dtype), new  # the cell may have its own
        # The equations of each cell, the one above the other.
        cells, flat = cells_of(self.cell), iter(keras.tree.flatten(states))
        if self._projects_inputs(mode):
            kernels = (cells[0].kernel[self._input_units :],) if fed else ()
            x = CellInput(z, kernels, tuple(fed))
        else:
            joined = ops.concatenate([z, *fed], axis=-1) if fed else z
            bias = self.kinds[0].input_bias(cells[0])
            x = CellInput(None, (cells[0].kernel,), (joined,), bias)
        new = []
        for cell, kind in zip(cells, self.kinds, strict=True):
            if new:
                h, bias = new[-1][0], kind.input_bias(cell)
                x = CellInput(None, (cell.kernel,), (h,), bias)
            old = [next(flat) for _ in range(kind.num_states)]
            new.append(kind.equations(cell, x, old, mode.project))
        flat_new = keras.tree.flatten(new)
        return new[-1][0], keras.tree.pack_sequence_as(states, flat_new)

    def _call_cell(self, inputs, states, training):
        """One step as `keras.layers.RNN` calls a cell, which sees one leading axis."""
        leading = ops.shape(inputs)[:-1]

        def flat(x):
            return x if len(leading) == 1 else ops.reshape(x, (-1, x.shape[-1]))

        def back(x):
            return x if len(leading) == 1 else ops.reshape(x, (*leading, x.shape[-1]))

        options = {"training": training} if takes_training(self.cell) else {}
        call = self.cell if callable(self.cell) else self.cell.call
        flat_states = keras.tree.map_structure(flat, states)
        output, new = call(flat(inputs), flat_states, **options)
        new = [back(x) for x in keras.tree.flatten(new)]
        return back(output), keras.tree.pack_sequence_as(states, new)

    def scan(
        self, x: Tensor, states: Any, mask: Tensor | None, mode: Mode
    ) -> tuple[Tensor, Any]:
        """The cell over a whole target; see `RecurrentStack.scan`."""

        def step(z, states, constants, mode):
            h, states = self.step(CellInput(z), states, mode)
            return (h,), states

        z = self.project_inputs(x, mode)
        (h,), finals = scan(step, z, states, (), mask, mode)
        return h, finals


#: Cells whose equations `keras_luong.layers.cells` has too.
KINDS = {
    keras.layers.LSTMCell: CELL_TYPES["lstm"],
    keras.layers.GRUCell: CELL_TYPES["gru"],
    keras.layers.SimpleRNNCell: CELL_TYPES["simple_rnn"],
    LayerNormLSTMCell: CELL_TYPES["layer_norm_lstm"],
}

#: The options that those equations are for, where a cell has them at all.
DEFAULT_CELL_OPTIONS = {
    "activation": keras.activations.tanh,
    "recurrent_activation": keras.activations.sigmoid,
    "use_bias": True,
    "reset_after": True,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
}


def cells_of(cell: Any) -> list[Any]:
    """The cells of a stack, from below; or the one cell."""
    stacked = isinstance(cell, keras.layers.StackedRNNCells)
    return [each for one in cell.cells for each in cells_of(one)] if stacked else [cell]


def kinds_of(cell: Any, compute_dtype: str) -> list[CellType]:
    """The `CellType` of each of `cells_of(cell)`; none if any is of no known one."""
    if type(cell) is keras.layers.StackedRNNCells:
        kinds = [kinds_of(one, compute_dtype) for one in cell.cells]
        return [kind for each in kinds for kind in each] if all(kinds) else []
    # A subclass may compute something else.
    if type(cell) not in KINDS or cell.compute_dtype != compute_dtype:
        return []
    options = DEFAULT_CELL_OPTIONS.items()
    is_default = all(getattr(cell, name, value) == value for name, value in options)
    return [KINDS[type(cell)]] if is_default else []


def check_cell(cell: Any) -> Any:
    """Returns a cell, or the `StackedRNNCells` of a list, that a decoder can have.

    Raises:
        TypeError: It has no `call` or no `state_size`, or states without a size; or it
            is a layer that runs a cell.
    """
    for one in cell if isinstance(cell, (list, tuple)) else [cell]:
        if isinstance(one, keras.layers.RNN):
            raise TypeError(
                "cell must be a Keras cell, which makes one step, and not a layer that "
                "makes all of them: keras.layers.LSTMCell, say, in the place of "
                f"keras.layers.LSTM. Received: {one!r}"
            )
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
