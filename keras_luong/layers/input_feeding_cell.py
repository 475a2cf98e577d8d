"""A step of the paper's decoder: h_t, the attention, and h̃_t, which may be fed back.

Shapes: B batch, K beam, S source positions, E embedding, H units, A attentional units.
"""

from __future__ import annotations

from typing import Any

import keras

from keras_luong.layers.attentional_output import AttentionalCell
from keras_luong.layers.cell_states import CellStates
from keras_luong.layers.cells import CellInput
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.layers.stacked_cell import StackedDecoderCell
from keras_luong.types import Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoderCell(AttentionalCell, StackedDecoderCell):
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
        **kwargs: `attentional_activation`, `attentional_bias`,
            `use_attentional_vector`, `output_attention` and `attentional_vector` as in
            `AttentionalCell`; `dropout`, `recurrent_dropout`, `output_dropout`,
            `residual`, the initializers and `seed` as in `StackedDecoderCell`; `name`,
            `dtype`.

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
        >>> words, source = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention("general"))
        >>> outputs = kl.InputFeedingDecoder(cell)(words, source)  # of a whole target
        >>> memory = cell.prepare(keras.ops.convert_to_tensor(source, "float32"))
        >>> states = cell.initial_states((2, 1), memory=memory)
        >>> output, states, weights = cell(words[:, :1], states, memory)  # of one word
        >>> tuple(output.shape), tuple(weights.shape)
        ((2, 1, 8), (2, 1, 5))
    """

    def __init__(
        self,
        units: int,
        attention: Any,
        num_layers: int = 1,
        attentional_units: int | None = None,
        cell_type: str = "lstm",
        input_feeding: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            attention,
            num_layers,
            cell_type,
            attentional_units=attentional_units,
            input_feeding=input_feeding,
            **kwargs,
        )

    def build_output(self) -> None:
        """Makes the rows of the first layer's kernel that belong to h̃, and W_c."""
        self.feeding_kernel = None
        if self.input_feeding:
            # Apart from the word's rows: what x contributes is computed before the
            # loop, what h̃ does inside it.
            self.feeding_kernel = self.add_kernel(
                "feeding_kernel", self.attentional_units, self.columns
            )
        super().build_output()

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        kernels = (self.feeding_kernel,) if self.input_feeding else ()
        inputs = CellInput(z, kernels, tuple(states.fed))
        h, recurrent = self.step_layers(inputs, states, mode)
        return self.finish(h, recurrent, states, memory, mode)
