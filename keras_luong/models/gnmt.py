"""GNMT (Wu et al. 2016, arXiv:1609.08144): the bottom layer attends, for all of them.

As in tensorflow/nmt's "gnmt_v2": the upper layers read this step's context (in the
paper the bottom layer's state of the step before attends), and its normalised score.

Shapes: B batch, K beam, H units, Hv memory units, S source positions.
"""

from __future__ import annotations

from typing import Any

import keras

from keras_luong.layers.cells import CellInput
from keras_luong.layers.decoder_cell import STACK_OPTIONS, CellStates, DecoderCell
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.models.seq2seq import (
    NO_ATTENTIONAL_VECTOR,
    Seq2Seq,
    cell_options,
    make_attention,
    recurrent_options,
)
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class GNMTDecoderCell(DecoderCell):
    """A decoder step whose bottom layer attends: `h¹_t → a_t → c_t → h²_t ... hᴸ_t`.

    The bottom layer reads the previous word and the previous context; every other reads
    the layer below and this step's context. The output is the top layer's h.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer.
        num_layers: How many of them.
        cell_type: As in `RecurrentStack`.
        **kwargs: As in `InputFeedingDecoderCell`; `residual=True` is the paper's. As in
            tensorflow/nmt the first layer above the bottom has no residual yet.

    Call arguments, returns: As `DecoderCell`.

    Example:
        >>> from keras_luong.models.gnmt import GNMTDecoderCell
        >>> cell = GNMTDecoderCell(8, kl.LuongAttention(), num_layers=3, residual=True)
        >>> words, memory = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> tuple(kl.InputFeedingDecoder(cell)(words, memory).shape)
        (2, 4, 8)
    """

    needs_attention = True

    def __init__(
        self,
        units: int,
        attention: Any,
        num_layers: int = 1,
        cell_type: str = "lstm",
        **kwargs: Any,
    ) -> None:
        stack = {name: kwargs.pop(name) for name in STACK_OPTIONS if name in kwargs}
        super().__init__(attention, **kwargs)
        self.add_stack(units, num_layers, cell_type, first_residual=2, **stack)

    @property
    def fed_units(self) -> int | None:
        """Size of the context, Hv; known once the cell is built."""
        return self.memory_units

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes the rows of every layer's kernel that belong to the context, too."""
        super().build(inputs_shape, memory_shape)
        rows, columns = self.memory_units, self.recurrent.columns
        self.context_kernels = [
            self.add_projection(f"context_kernel_{i}", rows, columns)
            for i in range(self.recurrent.num_layers)
        ]

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        bottom_kernel, *kernels = self.context_kernels
        x, old = CellInput(z, (bottom_kernel,), tuple(states.fed)), states.recurrent
        bottom = self.recurrent.step_layer(0, x, old, mode)
        context, weights, attention = self.attend(bottom[0], memory, states, mode)
        extra = [(kernel, context) for kernel in kernels]
        h, recurrent = self.recurrent.step_above(bottom, old, mode, extra)
        new = CellStates(recurrent, [context], attention, states.position + 1)
        return (h, weights), new


@keras.saving.register_keras_serializable(package="keras_luong")
class GNMT(Seq2Seq):
    """Deep residual LSTMs; the encoder's first layer reads both ways.

    Args:
        config: A `Seq2SeqConfig` with `bidirectional=False` (the encoder's structure is
            GNMT's own) and `input_feeding=False`; the preset "gnmt" is one.
        dtype: As in `Seq2Seq`.
        **kwargs: As in `Seq2Seq`.

    Example:
        >>> from keras_luong.models import GNMT
        >>> model = GNMT.from_preset("gnmt", 9, 9, units=4, num_layers=2)
        >>> type(model).__name__, model.config.residual
        ('GNMT', True)
    """

    fixed = {
        "bidirectional": False,
        "reverse_source": False,
        **NO_ATTENTIONAL_VECTOR,
    }
    required = ("attention",)

    @classmethod
    def make_encoder(cls, config: Any, dtype: Any) -> RecurrentEncoder:
        """Reads embedded words: -> memory, final states."""
        return RecurrentEncoder(
            config.encoder_units,
            bidirectional="first",
            residual=config.residual,
            name="encoder",
            **recurrent_options(config, dtype),
        )

    @classmethod
    def make_cell(cls, config: Any, dtype: Any) -> DecoderCell:
        """A step of the decoder."""
        return GNMTDecoderCell(
            config.units,
            make_attention(config, dtype),
            **cell_options(config, dtype),
        )
