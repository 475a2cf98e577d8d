"""A decoder step whose recurrent part is a stack of this library's own layers.

Shapes: B batch, K beam, T target positions, E embedding, H units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from keras_luong.layers.cell_states import CellStates
from keras_luong.layers.cells import CellInput, States, dropped
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import Mode, Noise, RecurrentLayers
from keras_luong.types import Shape, Tensor


class StackedDecoderCell(RecurrentLayers, DecoderCell):
    """A `DecoderCell` of stacked recurrent layers; subclasses say what a step is.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer such as `LuongAttention`, or None.
        num_layers: How many recurrent layers.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        **kwargs: `dropout`, `recurrent_dropout`, `residual` and the initializers as in
            `RecurrentLayers`, `output_dropout` as in `DecoderCell`, `seed`, `name`,
            `dtype`.

    Example:
        >>> cell = kl.InputFeedingDecoderCell(  # a StackedDecoderCell
        ...     8, kl.LuongAttention(), num_layers=2, cell_type="gru", residual=True
        ... )
        >>> cell.build((None, None, 3), (None, None, 6))
        >>> cell.state_sizes
        [8, 8]
    """

    #: The lowest layer whose input is added to its output, where `residual`.
    first_residual = 1

    def __init__(
        self,
        units: int,
        attention: Any,
        num_layers: int = 1,
        cell_type: str = "lstm",
        **kwargs: Any,
    ) -> None:
        super().__init__(units, num_layers, cell_type, attention=attention, **kwargs)
        self.layers = self.make_layers(num_layers, "layer")

    @property
    def query_units(self) -> int:
        """Size H of every layer."""
        return self.units

    @property
    def columns(self) -> int:
        """Columns of every layer's kernel, gates x H."""
        return self.layers[0].cell.kernel.shape[-1]

    def build_recurrent(self) -> None:
        """Makes the weights of the layers."""
        width = self.input_units
        for layer in self.layers:
            layer.build((None, None, width))
            width = self.units

    def add_kernel(self, name: str, rows: int, columns: int) -> keras.Variable:
        """A weight matrix [rows, columns]."""
        initializer = self.kernel_initializer.clone()
        return self.add_weight((rows, columns), initializer, name=name)

    def recurrent_spec(self, shape: Shape = (None,)) -> list[list[Any]]:
        """Of each layer, [h, c] or [h]."""
        state = keras.KerasTensor((*shape, self.units), self.compute_dtype)
        return [[state] * self.kind.num_states] * self.num_layers

    def _what_recurs(self):
        return f'{self.num_layers} layers of "{self.cell_type}"'

    def project_inputs(self, inputs: Tensor, project: Project = matmul) -> Tensor:
        """The first layer's `x W + b`, without any state: -> [..., gates x H]."""
        return self.kind.project_input(self.layers[0].cell, inputs, project)

    def recurrent_noise(self, batch_size: Any, training: Any) -> Noise:
        """The dropout multipliers of the layers; the decoder has the first input's."""
        shape, layers = (batch_size, self.units), range(self.num_layers)
        rate = self.dropout
        below = {i: self.draw_noise(shape, rate, training) for i in layers[1:]}
        rate = self.recurrent_dropout
        recurrent = {i: self.draw_noise(shape, rate, training) for i in layers}
        return Noise(below, recurrent)

    def step_layer(
        self, index: int, inputs: CellInput, states: CellStates, mode: Mode
    ) -> States:
        """One step of one recurrent layer: -> [h, ...], its new states."""
        inputs = inputs._replace(noise=mode.noise.recurrent.get(index))
        cell, old = self.layers[index].cell, states.recurrent[index]
        return self.kind.equations(cell, inputs, old, mode.project)

    def step_layers_above(
        self,
        bottom: States,
        states: CellStates,
        mode: Mode,
        extra: Sequence[tuple[Tensor, Tensor]] = (),
    ) -> tuple[Tensor, list[States]]:
        """One step of the layers above the first.

        Args:
            bottom: New states of the first layer.
            states: All states before.
            mode: How to compute the step.
            extra: For each of these layers, a pair (kernel, tensor) that enters it too.

        Returns:
            h of the top layer, and the new states of all layers.
        """
        h, recurrent = bottom[0], [bottom]
        for i, layer in enumerate(self.layers[1:], 1):
            x = dropped(h, mode.noise.below.get(i))
            pairs = [(layer.cell.kernel, x), *extra[i - 1 : i]]
            bias = self.kind.input_bias(layer.cell)
            kernels, tensors = zip(*pairs, strict=True)
            inputs = CellInput(None, kernels, tensors, bias)
            new = self.step_layer(i, inputs, states, mode)
            adds = self.residual and i >= self.first_residual
            h = new[0] + h if adds else new[0]
            recurrent.append(new)
        return h, recurrent

    def step_layers(
        self, inputs: CellInput, states: CellStates, mode: Mode
    ) -> tuple[Tensor, list[States]]:
        """One step of all layers: -> h of the top one, their new states."""
        bottom = self.step_layer(0, inputs, states, mode)
        return self.step_layers_above(bottom, states, mode)

    def scan_layers(
        self, x: Tensor, states: CellStates, mask: Tensor | None, mode: Mode
    ) -> tuple[Tensor, list[States]]:
        """The recurrent layers over a whole target, one after the other.

        Args:
            x: Embedded words, time-major [T, B, E].
            states: The states before.
            mask: bool [T, B], or None.
            mode: How to compute the steps.

        Returns:
            The top layer's h [T, B, H]; the final states of all layers.
        """
        finals = []
        for i, layer in enumerate(self.layers):
            below, x = x, dropped(x, mode.noise.below.get(i))
            old, noise = states.recurrent[i], mode.noise.recurrent.get(i)
            x, new = self.scan_layer(layer, x, old, mask, noise, mode.training)
            if self.residual and i >= self.first_residual:
                x = x + below
            finals.append(new)
        return x, finals
