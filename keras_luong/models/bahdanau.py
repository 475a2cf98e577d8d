"""Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473): attention before the recurrence.

Its deep output (Pascanu et al. 2014), a maxout layer between the decoder and the
softmax, is that of Cho et al. 2014 too.

Shapes: B batch, K beam, E embedding, H units, O maxout units, S source positions.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.cells import CellInput
from keras_luong.layers.decoder_cell import STACK_OPTIONS, CellStates, DecoderCell
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.models.seq2seq import (
    NO_ATTENTIONAL_VECTOR,
    Seq2Seq,
    cell_options,
    make_attention,
)
from keras_luong.types import Shape, Tensor


def maxout(x: Tensor) -> Tensor:
    """The larger of each pair: [..., 2 O] -> [..., O] (Goodfellow et al. 2013)."""
    pairs = ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // 2, 2))
    return ops.maximum(pairs[..., 0], pairs[..., 1])  # of no row too


class MaxoutCell(DecoderCell):
    """A decoder cell whose output is a maxout over state, previous word and context.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer, or None.
        maxout_units: Size O of the output; half of `units` by default.
        num_layers: How many recurrent layers.
        cell_type: As in `RecurrentStack`.
        **kwargs: `recurrent_dropout`, `residual` and the initializers as in
            `RecurrentStack`; the others as in `DecoderCell`.
    """

    def __init__(
        self,
        units: int,
        attention: Any,
        maxout_units: int | None = None,
        num_layers: int = 1,
        cell_type: str = "lstm",
        **kwargs: Any,
    ) -> None:
        stack = {name: kwargs.pop(name) for name in STACK_OPTIONS if name in kwargs}
        super().__init__(attention, **kwargs)
        self.add_stack(units, num_layers, cell_type, **stack)
        check_size("maxout_units", maxout_units, optional=True)
        self.maxout_units = maxout_units or max(1, units // 2)

    @property
    def output_units(self) -> int:
        """Size O of the output."""
        return self.maxout_units

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes the weights of all parts, and the output's of state and word."""
        super().build(inputs_shape, memory_shape)
        units = self.recurrent.units
        self.state_readout = self.add_readout("state_readout", units)
        self.word_readout = self.add_readout("word_readout", self.input_units)

    def add_readout(self, name: str, rows: Any) -> keras.Variable:
        """A weight matrix of the output, [rows, 2 O]."""
        return self.add_projection(name, rows, 2 * self.maxout_units)

    def project_inputs(self, inputs: Tensor, mode: Mode = INFERENCE) -> Tensor:
        """The first layer's `x W + b` and the word's part of the output, abreast."""
        word = mode.project(self.word_readout, inputs)
        return ops.concatenate([super().project_inputs(inputs, mode), word], axis=-1)

    def split_inputs(self, z: Tensor) -> list[Tensor]:
        """Splits what `project_inputs` joined: [..., gates x H] and [..., 2 O]."""
        return ops.split(z, [self.recurrent.columns], axis=-1)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "maxout_units": self.maxout_units}


@keras.saving.register_keras_serializable(package="keras_luong")
class BahdanauDecoderCell(MaxoutCell):
    """A decoder step `s_{t-1} → a_t → c_t → s_t`, with deep output (appendix A.2).

    The state before attends to the source; the context enters the recurrent layer
    beside the previous word y; and the output is `maxout(U_o s_{t-1} + V_o y + C_o
    c_t)`. A GRU is Keras's: its reset gate comes after the product, and its update gate
    says how much of the old state to keep, the paper's how much of it to replace.

    Args:
        units: Size H of every recurrent layer; the top one's state is the query.
        attention: An attention layer; "concat" is the paper's score.
        maxout_units: Size O of the output; half of `units` by default.
        **kwargs: As in `InputFeedingDecoderCell`.

    Call arguments, returns: As `DecoderCell`.

    Example:
        >>> from keras_luong.models.bahdanau import BahdanauDecoderCell
        >>> attention = kl.LuongAttention("concat")
        >>> cell = BahdanauDecoderCell(8, attention, maxout_units=5, cell_type="gru")
        >>> words, memory = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> tuple(kl.InputFeedingDecoder(cell)(words, memory).shape)
        (2, 4, 5)
    """

    needs_attention = True

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes C of the first layer too, and C_o."""
        super().build(inputs_shape, memory_shape)
        rows, columns = self.memory_units, self.recurrent.columns
        self.context_kernel = self.add_projection("context_kernel", rows, columns)
        self.context_readout = self.add_readout("context_readout", rows)

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        z, word = self.split_inputs(z)
        query = states.recurrent[-1][0]  # h of the top layer
        context, weights, attention = self.attend(query, memory, states, mode)
        x = CellInput(z, (self.context_kernel,), (context,))
        _, recurrent = self.recurrent.step(x, states.recurrent, mode)
        kernels = self.state_readout, self.context_readout
        outputs = maxout(word + mode.project(kernels, (query, context)))
        new = CellStates(recurrent, [], attention, states.position + 1)
        return (outputs, weights), new


@keras.saving.register_keras_serializable(package="keras_luong")
class Bahdanau2015(Seq2Seq):
    """RNNsearch: a bidirectional encoder and `BahdanauDecoderCell`.

    The decoder starts from a tanh layer over the backward encoder's last state (A.2.2).

    Args:
        config: A `Seq2SeqConfig` with `bidirectional=True`, `bridge="dense"` and
            `input_feeding=False`; the preset "bahdanau2015" is one.
        dtype: As in `Seq2Seq`.
        **kwargs: As in `Seq2Seq`.

    Example:
        >>> from keras_luong.models import Bahdanau2015
        >>> model = Bahdanau2015.from_preset(
        ...     "bahdanau2015", 9, 9, units=4, encoder_units=4
        ... )
        >>> type(model).__name__, model.config.score_mode
        ('Bahdanau2015', 'concat')
    """

    fixed = {"bidirectional": True, "bridge": "dense", **NO_ATTENTIONAL_VECTOR}
    required = ("attention",)

    @classmethod
    def make_cell(cls, config: Any, dtype: Any) -> DecoderCell:
        """A step of the decoder."""
        return BahdanauDecoderCell(
            config.units,
            make_attention(config, dtype),
            maxout_units=config.embedding_dim if config.tie_embeddings else None,
            **cell_options(config, dtype),
        )

    @classmethod
    def first_states(cls, layers: Any, states: list[Tensor]) -> list[Tensor]:
        """`s_0 = tanh(W_s ←h_1)`, for every layer."""
        backward = [state[..., state.shape[-1] // 2 :] for state in states]
        return super().first_states(layers, backward)
