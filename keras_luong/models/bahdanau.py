"""Bahdanau, Cho & Bengio 2015 (arXiv:1409.0473): attention before the recurrence.

Shapes: B batch, K beam, H units, O maxout units, S source positions.
"""

from __future__ import annotations

import keras

from keras_luong.layers.cell_input import CellInput
from keras_luong.layers.maxout_cell import MaxoutCell, maxout
from keras_luong.layers.scores import matmul
from keras_luong.models.seq2seq import Seq2Seq, cell_options, make_attention


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
        **kwargs: As in `DecoderCell`.

    Call arguments, returns: As `DecoderCell`.

    Example:
        >>> attention = kl.LuongAttention("concat")
        >>> cell = BahdanauDecoderCell(1000, attention, cell_type="gru")
        >>> outputs = kl.InputFeedingDecoder(cell)(embedded, memory, memory_mask=mask)
    """

    def __init__(self, units, attention, maxout_units=None, **kwargs):
        super().__init__(units, attention, maxout_units, **kwargs)
        if attention is None:
            raise TypeError("attention must be an attention layer. Received: None")

    def build_output(self):
        """Makes C of the first layer, and U_o, V_o and C_o."""
        super().build_output()
        rows, columns = self.memory_units, self.gates * self.units
        self.context_kernel = self.add_kernel("context_kernel", rows, columns)
        self.context_readout = self.add_readout("context_readout", rows)

    def advance(self, z, states, memory, noise=None, project=matmul, training=False):
        """See `DecoderCell.advance`."""
        states = self.unpack(states)
        z, word = self.split_inputs(z)
        query = states.recurrent[-self.kind.num_states]  # h of the top layer
        context, weights, attention = self.look(
            query, memory, states, noise, project, training
        )
        inputs = CellInput(z, (self.context_kernel,), (context,))
        bottom = self.run_layer(0, inputs, states.recurrent, noise, project)
        _, above = self.run_above(bottom[0], states.recurrent, noise, project)
        kernels = self.state_readout, self.context_readout
        outputs = maxout(word + project(kernels, (query, context)))
        states = states._replace(
            recurrent=[*bottom, *above],
            attention=attention,
            position=states.position + 1,
        )
        return (outputs, weights), states.flat()


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
        >>> model = kl.Seq2Seq.from_preset("bahdanau2015", 30000, 30000)
    """

    fixed = {"bidirectional": True, "bridge": "dense", "input_feeding": False}
    required = ("attention",)

    @classmethod
    def make_cell(cls, config, dtype):
        """A step of the decoder."""
        return BahdanauDecoderCell(
            config.units,
            make_attention(config, dtype),
            maxout_units=config.embedding_dim if config.tie_embeddings else None,
            **cell_options(config, dtype),
        )

    @classmethod
    def first_states(cls, layers, states):
        """`s_0 = tanh(W_s ←h_1)`, for every layer."""
        backward = [state[..., state.shape[-1] // 2 :] for state in states]
        return super().first_states(layers, backward)
