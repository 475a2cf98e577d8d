"""The loop of a decoder whose outputs are fed back, and its output layer.

Shapes: B batch, T steps, E inputs, A outputs of the cell, V outputs, S source
positions. Sequences are time-major.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.compat import autocasting
from keras_luong.layers.cell_states import CellStates
from keras_luong.layers.cells import dropped
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.feeding import Feeding
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import Mode, scan
from keras_luong.types import Tensor


class Loop(NamedTuple):
    """A decoder's loop over inputs that are its own outputs, or the teacher's.

    Attributes:
        cell: The cell.
        feeding: Which inputs.
        finish: `(the cell's output, project) -> the decoder's`: [B, A] -> [B, V].
        mode: How to compute the steps.
        noise: Dropout multipliers of the inputs [B, E], or None.
        keep_weights: Whether to return the alignment weights.
    """

    cell: DecoderCell
    feeding: Feeding
    finish: Callable[[Tensor, Project], Tensor]
    mode: Mode
    noise: Tensor | None
    keep_weights: bool

    def run(
        self, inputs: Tensor, states: CellStates, memory: Any, mask: Tensor | None
    ) -> tuple[tuple[Tensor, ...], CellStates]:
        """Runs it; all that is random is drawn before.

        Args:
            inputs: The teacher's [T, B, E].
            states: Those before.
            memory: What the cell's `prepare` returned.
            mask: bool [T, B], or None.

        Returns:
            The outputs [T, B, V] and maybe weights [T, B, S], and the final states.
        """
        start, units, dtype = states.position, inputs.shape[-1], inputs.dtype

        def step(packed, carried, memory, mode):
            states, before = carried
            teacher = ops.cast(packed[:, :units], dtype)
            fed = self.feeding.next_input(before, teacher, states.position)
            own = (packed[:, units : units + 1] > 0.5) & (states.position > start)
            x = dropped(ops.where(own, fed, teacher), self.noise)
            z = self.cell.project_sequence(x, mode)
            (y, weights), states = self.cell.step(z, states, memory, mode)
            y = self.finish(y, mode.project)
            outputs = (y, weights) if self.keep_weights else (y,)
            return outputs, (states, self._remember(y, packed, units))

        packed = _pack(self.feeding, inputs)
        before = self._remember(self._no_outputs(inputs), packed[0], units)
        mode = self.mode._replace(own_inputs=True)
        outputs, (states, _) = scan(step, packed, (states, before), memory, mask, mode)
        return outputs, states

    def _remember(self, outputs, packed, units):
        drawn = packed.shape[-1] > units + 1
        return self.feeding.remember(outputs, packed[:, units + 1] if drawn else None)

    def _no_outputs(self, inputs):
        """Zeros in the shape and dtype of a step's outputs."""
        shape = ops.shape(inputs)[1], self.cell.output_units
        return ops.zeros_like(self.finish(ops.zeros(shape, dtype=inputs.dtype), matmul))


def lengthened(inputs: Tensor, steps: int) -> Tensor:
    """Inputs [B, T, E] for that many steps, zeros where there were none."""
    batch_size, _, units = ops.shape(inputs)
    zeros = ops.zeros((batch_size, steps, units), dtype=inputs.dtype)
    return ops.concatenate([inputs, zeros], axis=1)[:, :steps]


def lengthened_mask(mask: Tensor, steps: int) -> Tensor:
    """A mask [B, T] for that many steps, True where there were none."""
    more = ops.ones((ops.shape(mask)[0], steps), dtype="bool")
    return ops.concatenate([ops.cast(mask, "bool"), more], axis=1)[:, :steps]


def _pack(feeding, inputs):
    """What a step reads: [T, B, E + 1 or 2], its input and numbers in float32."""
    length, batch_size, _ = ops.shape(inputs)
    wide = keras.backend.result_type(inputs.dtype, "float32")
    columns = [feeding.is_own(length, batch_size), feeding.draw(length, batch_size)]
    parts = [inputs, *(x[..., None] for x in columns if x is not None)]
    return ops.concatenate([ops.cast(x, wide) for x in parts], axis=-1)


def apply_in_loop(layer: Any, x: Tensor, project: Project) -> Tensor:
    """A layer's outputs [B, V], within a loop.

    The weights of a plain `keras.layers.Dense` have their gradients taken out of it.
    """
    if type(layer) is not keras.layers.Dense or layer.quantization_mode is not None:
        return layer(x)
    if layer.lora_enabled:
        return layer(x)
    x = ops.cast(x, layer.compute_dtype)
    with autocasting(layer):
        y = project(layer.kernel, x, bias=layer.bias)
    return y if layer.activation is None else layer.activation(y)


def check_output_layer(layer: Any) -> Any:
    """Returns it if it is a layer or None; raises TypeError if not."""
    if layer is None or isinstance(layer, keras.layers.Layer):
        return layer
    raise TypeError(
        "output_layer must be a layer such as keras.layers.Dense, or None. Received: "
        f"{layer!r}"
    )
