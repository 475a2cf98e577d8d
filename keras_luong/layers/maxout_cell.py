"""Deep output (Pascanu et al. 2014): a maxout layer between a decoder and the softmax.

Shapes: B batch, E embedding, H units, O maxout units.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.stacked_cell import StackedDecoderCell
from keras_luong.types import Tensor


def maxout(x: Tensor) -> Tensor:
    """The larger of each pair: [..., 2 O] -> [..., O] (Goodfellow et al. 2013)."""
    pairs = ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // 2, 2))
    return ops.maximum(pairs[..., 0], pairs[..., 1])  # of no row too


class MaxoutCell(StackedDecoderCell):
    """A decoder cell whose output is a maxout over state, previous word and context.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer, or None.
        maxout_units: Size O of the output; half of `units` by default.
        **kwargs: As in `StackedDecoderCell`.
    """

    def __init__(
        self, units: int, attention: Any, maxout_units: int | None = None, **kwargs: Any
    ) -> None:
        super().__init__(units, attention, **kwargs)
        check_size("maxout_units", maxout_units, optional=True)
        self.maxout_units = maxout_units or max(1, units // 2)

    @property
    def output_units(self) -> int:
        """Size O of the output."""
        return self.maxout_units

    def add_readout(self, name: str, rows: Any) -> keras.Variable:
        """A weight matrix of the output, [rows, 2 O]."""
        return self.add_kernel(name, rows, 2 * self.maxout_units)

    def build_output(self) -> None:
        """Makes the output's weights of state and word."""
        self.state_readout = self.add_readout("state_readout", self.units)
        self.word_readout = self.add_readout("word_readout", self.input_units)

    def project_inputs(self, inputs: Tensor, project: Project = matmul) -> Tensor:
        """The first layer's `x W + b` and the word's part of the output, abreast."""
        word = project(self.word_readout, inputs)
        return ops.concatenate([super().project_inputs(inputs, project), word], axis=-1)

    def split_inputs(self, z: Tensor) -> list[Tensor]:
        """What `project_inputs` joined: [..., gates x H] and [..., 2 O]."""
        return ops.split(z, [self.columns], axis=-1)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "maxout_units": self.maxout_units}
