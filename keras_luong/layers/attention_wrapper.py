"""A decoder step around any cell: Keras's own, a stack of them, or a user's.

Shapes: B batch, K beam, T target positions, E embedding, H units, A attentional units.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.compat import serialize_shared
from keras_luong.layers import wrapped_cell
from keras_luong.layers.attentional_output import AttentionalCell
from keras_luong.layers.cell_states import CellStates
from keras_luong.layers.cells import CellInput
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, scan
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
        cell = wrapped_cell.check_cell(cell)
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = getattr(cell, "dtype_policy", None)
        # Before the other layers are made, which are named and sized after these.
        self._query_units = wrapped_cell.output_size(cell)
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
        return wrapped_cell.kinds_of(self.cell, self.compute_dtype)

    def build_recurrent(self) -> None:
        """Makes the cell's weights."""
        width = self.input_units + (self.fed_units or 0)
        wrapped_cell.build_cell(self.cell, (None, width))

    def recurrent_spec(self, shape: Shape = (None,)) -> Any:
        """As the cell's `state_size`, in a list."""
        dtype = getattr(self.cell, "compute_dtype", self.compute_dtype)
        return keras.tree.map_structure(
            lambda size: keras.KerasTensor((*shape, size), dtype),
            wrapped_cell.state_nest(self.cell),
        )

    def first_recurrent(self, shape: Any) -> Any:
        """The cell's own first states."""
        return wrapped_cell.initial_state(self.cell, shape)

    def recurrent_noise(self, batch_size: Any, training: Any) -> Noise:
        """None of its own; Keras's cells draw theirs, once for the whole sequence."""
        width = self.input_units + (self.fed_units or 0)
        wrapped_cell.draw_masks(self.cell, batch_size, width)
        return Noise()

    def project_inputs(self, inputs: Tensor, project: Project = matmul) -> Tensor:
        """Of one step, in a search: see `project_sequence`."""
        return self.project_sequence(inputs, INFERENCE)

    def project_sequence(self, inputs: Tensor, mode: Mode) -> Tensor:
        """The lowest cell's `x W + b` of all steps, where a step does not need x."""
        if not self._is_projected(mode):
            return inputs
        lowest = wrapped_cell.cells_of(self.cell)[0]
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
            h, new = wrapped_cell.call_cell(self.cell, x, recurrent, mode.training)
            return ops.cast(h, self.compute_dtype), new  # the cell may have its own
        cells = wrapped_cell.cells_of(self.cell)
        flat, states = iter(keras.tree.flatten(recurrent)), []
        for kind in self._kinds:
            states.append([next(flat) for _ in range(kind.num_states)])
        inputs = self._first_input(cells[0], z, fed, mode)
        h, new = wrapped_cell.step_kinds(
            cells, self._kinds, inputs, states, mode.project
        )
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
