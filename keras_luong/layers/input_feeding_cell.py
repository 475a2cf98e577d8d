"""One step of the paper's decoder: recurrent layers, attention, Eq. 5, input feeding.

Shapes: B batch, K beam, H units, A attentional units, S source positions.
"""

from __future__ import annotations

import keras

from keras_luong.checks import check_flag, check_size
from keras_luong.layers.attentional_vector import AttentionalVector
from keras_luong.layers.cell_input import CellInput
from keras_luong.layers.decoder_cell import CellStates, DecoderCell, no_weights
from keras_luong.layers.scores import matmul


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoderCell(DecoderCell):
    """A decoder step of Luong, Pham & Manning 2015: `h_t → a_t → c_t → h̃_t`.

    Stacked recurrent layers read the previous word and, with input feeding (section
    3.3), the previous attentional vector h̃_{t-1}; the top layer's h_t attends to the
    source, and `h̃_t = tanh(W_c [c_t; h_t])` (Eq. 5) is the output.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer such as `LuongAttention`, or None for a decoder
            that sees the source through its initial state only: then h̃ is h.
        num_layers: How many recurrent layers.
        attentional_units: Size A of h̃; `units` by default.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        input_feeding: Whether h̃_{t-1} enters the first layer.
        **kwargs: `dropout`, `recurrent_dropout`, `output_dropout`, `residual`, the
            initializers and `seed` as in `DecoderCell`, `name`, `dtype`.

    Call arguments:
        inputs: Embedded target words [B, K, E].
        states: List of states [B, K, ...], from `initial_states` or an earlier call.
        memory: What `attention.prepare` made of the source.

    Returns:
        h̃ [B, K, A], the list of new states, and the alignment weights, float32
        [B, K, S] (zeros without attention).

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> cell = kl.InputFeedingDecoderCell(512, kl.LuongAttention("general"))
        >>> outputs = kl.InputFeedingDecoder(cell)(embedded, memory, memory_mask=mask)
    """

    def __init__(
        self,
        units,
        attention,
        num_layers=1,
        attentional_units=None,
        cell_type="lstm",
        input_feeding=True,
        **kwargs,
    ):
        super().__init__(units, attention, num_layers, cell_type, **kwargs)
        attentional_units = check_size("attentional_units", attentional_units, True)
        self.attentional_units = attentional_units or units
        if attention is None and self.attentional_units != units:
            raise ValueError(
                "Without attention the output is h itself, so attentional_units must "
                f"be units. Received: attentional_units={attentional_units}, "
                f"units={units}"
            )
        self.input_feeding = check_flag("input_feeding", input_feeding)
        self.attentional_vector = None
        if attention is not None:
            self.attentional_vector = AttentionalVector(
                self.attentional_units,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="attentional_vector",
            )

    @property
    def output_units(self):
        """Size A of h̃."""
        return self.attentional_units

    @property
    def fed_units(self):
        """Size of h̃ if it is fed back."""
        return self.attentional_units if self.input_feeding else None

    @property
    def attends_in_loop(self):
        """Without input feeding nothing recurs through most attentions."""
        return self.input_feeding or self.remembers

    def build_output(self):
        """Makes the rows of the first layer's kernel that belong to h̃, and W_c."""
        self.feeding_kernel = None
        if self.input_feeding:
            # Apart from the word's rows: what x contributes is computed before the
            # loop, what h̃ does inside it.
            columns = self.gates * self.units
            self.feeding_kernel = self.add_kernel(
                "feeding_kernel", self.attentional_units, columns
            )
        if self.attention is not None:
            self.attentional_vector.build((self.memory_units,), (self.units,))

    def attend(self, h, memory, states, noise=None, project=matmul, training=False):
        """Eq. 7 and 5 for h [..., H]: -> h̃ [..., A], weights [..., S], their state."""
        if self.attention is None:
            return h, no_weights(h, memory), []
        context, weights, state = self.look(h, memory, states, noise, project, training)
        return self.attentional_vector(context, h, project=project), weights, state

    def advance(self, z, states, memory, noise=None, project=matmul, training=False):
        """See `DecoderCell.advance`."""
        states = self.unpack(states)
        inputs = CellInput(z)
        if self.input_feeding:
            inputs = CellInput(z, (self.feeding_kernel,), tuple(states.fed))
        bottom = self.run_layer(0, inputs, states.recurrent, noise, project)
        h, above = self.run_above(bottom[0], states.recurrent, noise, project)
        h_tilde, weights, attention = self.attend(
            h, memory, states, noise, project, training
        )
        fed = [h_tilde] if self.input_feeding else []
        new = CellStates([*bottom, *above], fed, attention, states.position + 1)
        return (h_tilde, weights), new.flat()

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "attentional_units": self.attentional_units,
            "input_feeding": self.input_feeding,
        }
