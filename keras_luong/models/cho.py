"""Cho et al. 2014 (arXiv:1406.1078): every step reads the source as one vector.

Shapes: B batch, K beam, H units, O maxout units, S source positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.layers.cells import CellInput
from keras_luong.layers.decoder_cell import CellStates, DecoderCell
from keras_luong.layers.memory import blanked, make_memory, mask_of
from keras_luong.layers.projection import matmul
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.models.bahdanau import MaxoutCell, maxout
from keras_luong.models.seq2seq import NO_ATTENTIONAL_VECTOR, Seq2Seq, cell_options
from keras_luong.types import Shape, Tensor


class Summary(NamedTuple):
    """A source in one vector c: the products of it that every step needs.

    Attributes:
        start: `tanh(V' c)`, the first state: [B, H].
        gates: c's part in the first layer: [B, gates x H].
        readout: c's part in the output: [B, 2 O].
        mask: True at words: bool [B, S].
    """

    start: Tensor
    gates: Tensor
    readout: Tensor
    mask: Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class ChoDecoderCell(MaxoutCell):
    """A decoder step that reads the source's summary c beside the previous word y.

    `c = tanh(V h_S)` of the encoder's last state, `h_0 = tanh(V' c)`, and the output is
    `maxout(O_h h_t + O_y y + O_c c)` (appendix A.1). As in the paper, a GRU's reset
    gate also multiplies what the summary adds: `r (U h + C c)`; as in Keras, it comes
    after the product.

    Args:
        units: Size H of every recurrent layer and of c.
        maxout_units: Size O of the output; half of `units` by default.
        **kwargs: As in `InputFeedingDecoderCell`, without attention.

    Call arguments, returns: As `DecoderCell`; the weights are zeros.

    Example:
        >>> from keras_luong.models.cho import ChoDecoderCell
        >>> cell = ChoDecoderCell(8, maxout_units=5, cell_type="gru")
        >>> words, memory = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> tuple(kl.InputFeedingDecoder(cell)(words, memory).shape)
        (2, 4, 5)
    """

    def __init__(
        self,
        units: int,
        attention: None = None,
        maxout_units: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, attention, maxout_units, **kwargs)
        if attention is not None:
            raise TypeError(f"attention must be None. Received: {attention!r}")

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes V, V', C of the first layer too, and O_c."""
        super().build(inputs_shape, memory_shape)
        units, columns = self.recurrent.units, self.recurrent.columns
        self.summary_kernel = self.add_projection(
            "summary_kernel", self.memory_units, units
        )
        self.start_kernel = self.add_projection("start_kernel", units, units)
        self.context_kernel = self.add_projection("context_kernel", units, columns)
        self.context_readout = self.add_readout("context_readout", units)

    def prepare(self, memory: Tensor, mask: Tensor | None = None) -> Summary:
        """The `Summary` of encoder states [B, S, Hv], padded on one side."""
        mask = mask_of(memory, mask)
        values, _, mask, lengths, first = make_memory(blanked(memory, mask), (), mask)
        if mask is None:
            mask = ops.ones(ops.shape(values)[:2], "bool")
        last = (first + ops.maximum(lengths - 1, 0))[:, None, None]
        last = ops.take_along_axis(values, last, axis=1)[:, 0]
        summary = ops.tanh(matmul(self.summary_kernel, last))
        return Summary(
            ops.tanh(matmul(self.start_kernel, summary)),
            matmul(self.context_kernel, summary),
            matmul(self.context_readout, summary),
            mask,
        )

    def initial_states(
        self, shape: Any, recurrent: Any = None, memory: Any = None
    ) -> list[Tensor]:
        """As in `DecoderCell`, but every layer starts from `tanh(V' c)`."""
        if not recurrent:
            if memory is None:
                raise ValueError(
                    "The first states are made of the source's summary: give memory, "
                    "as prepare returns it. Received: memory=None"
                )
            start = memory.start if len(shape) == 1 else memory.start[:, None]
            stack = self.recurrent
            start = ops.broadcast_to(start, (*shape, stack.units))
            zeros = [ops.zeros_like(start)] * (stack.kind.num_states - 1)
            recurrent = [start, *zeros] * stack.num_layers
        return super().initial_states(shape, recurrent, memory)

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        gates, readout = memory.gates, memory.readout
        if len(z.shape) == 3:  # the same for every hypothesis
            gates, readout = gates[:, None], readout[:, None]
        z, word = self.split_inputs(z)
        x = CellInput(z, beside=gates)
        h, recurrent = self.recurrent.step(x, states.recurrent, mode)
        outputs = maxout(word + readout + mode.project(self.state_readout, h))
        new = CellStates(recurrent, [], [], states.position + 1)
        return (outputs, self.no_weights(h, memory)), new


@keras.saving.register_keras_serializable(package="keras_luong")
class Cho2014(Seq2Seq):
    """The RNN encoder-decoder: one vector is all that the decoder sees of the source.

    Args:
        config: A `Seq2SeqConfig` with `attention=None`, `bidirectional=False` and
            `input_feeding=False`; the preset "cho2014" is one.
        dtype: As in `Seq2Seq`.
        **kwargs: As in `Seq2Seq`.

    Example:
        >>> from keras_luong.models import Cho2014
        >>> model = Cho2014.from_preset("cho2014", 9, 9, units=4)
        >>> type(model).__name__, model.config.attention
        ('Cho2014', None)
    """

    fixed = {
        "attention": None,
        "bidirectional": False,
        "reverse_source": False,
        "bridge": None,
        **NO_ATTENTIONAL_VECTOR,
    }

    @classmethod
    def make_cell(cls, config: Any, dtype: Any) -> DecoderCell:
        """A step of the decoder."""
        return ChoDecoderCell(
            config.units,
            maxout_units=config.embedding_dim if config.tie_embeddings else None,
            **cell_options(config, dtype),
        )

    @classmethod
    def first_states(cls, layers: Any, states: list[Tensor]) -> list[Tensor]:
        """None: the cell makes them of the summary."""
        return []
