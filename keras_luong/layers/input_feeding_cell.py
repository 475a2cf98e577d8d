"""The paper's decoder step: h_t, the attention, and h̃_t, which may be fed back.

Shapes: B batch, K beam, S source positions, E embedding, H units of h, A attentional
units, Hv memory units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.base import BaseLayer, Kernel, weight_config
from keras_luong.layers.cells import CellInput
from keras_luong.layers.decoder_cell import (
    STACK_OPTIONS,
    CellStates,
    DecoderCell,
    RecurrentStack,
)
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.types import Shape, Tensor


class AttentionalCell(DecoderCell):
    """The step of Luong, Pham & Manning 2015: `h_t → a_t → c_t → h̃_t`.

    `InputFeedingDecoderCell` and `AttentionWrapper` are this with a recurrent part:
    they set `recurrent`, and then call `add_vector`.

    Args:
        attention: An attention layer such as `LuongAttention`, or None: then h̃ is h.
        attentional_units: Size A of h̃; that of h by default.
        input_feeding: Whether the next step reads h̃ (Luong et al. 2015, section 3.3).
        attentional_activation: That of h̃: "tanh", another, or None.
        attentional_bias: Whether h̃ has a bias.
        use_attentional_vector: Whether there is a W_c; if not, the context itself is h̃,
            as in `tfa.seq2seq.AttentionWrapper` with `attention_layer_size=None`.
        output_attention: Whether the output is h̃; if not, it is h, and h̃ is only fed
            back, as in tfa.
        **kwargs: `dropout`, `output_dropout`, `seed`, `name`, `dtype`.
    """

    _nested: tuple[str, ...] = (*DecoderCell._nested, "attentional_vector")

    def __init__(
        self,
        attention: Any,
        attentional_units: int | None = None,
        input_feeding: bool = True,
        attentional_activation: Any = "tanh",
        attentional_bias: bool = False,
        use_attentional_vector: bool = True,
        output_attention: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(attention, **kwargs)
        self._chosen_units = check_size("attentional_units", attentional_units, True)
        self.input_feeding = check_flag("input_feeding", input_feeding)
        self.attentional_activation = keras.activations.get(attentional_activation)
        self.attentional_bias = check_flag("attentional_bias", attentional_bias)
        check_flag("use_attentional_vector", use_attentional_vector)
        self.use_attentional_vector = use_attentional_vector
        self.output_attention = check_flag("output_attention", output_attention)
        # Without input feeding nothing recurs through most attentions.
        has_state = getattr(attention, "has_state", False)
        self.attends_in_loop = input_feeding or has_state
        if not use_attentional_vector and attentional_units is not None:
            raise ValueError(
                "With use_attentional_vector=False the context itself is h̃, and its "
                f"size is the memory's. Received: attentional_units={attentional_units}"
            )

    def add_vector(self, attentional_vector: Any, kernel_initializer: Any) -> None:
        """Sets `attentional_vector`, once `recurrent` is known.

        Args:
            attentional_vector: Somebody's own layer, or None for the paper's.
            kernel_initializer: That of the paper's W_c.
        """
        units = self._chosen_units
        if self.attention is None and units not in (None, self.query_units):
            raise ValueError(
                "Without attention the output is h itself, so attentional_units must "
                f"be units. Received: attentional_units={units}, "
                f"units={self.query_units}"
            )
        if self.attention is None or not self.use_attentional_vector:
            self.attentional_vector = attentional_vector
            return
        self.attentional_vector = attentional_vector or AttentionalVector(
            units or self.query_units,
            self.attentional_activation,
            self.attentional_bias,
            kernel_initializer=kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="attentional_vector",
        )

    @property
    def attentional_units(self) -> int:
        """Size A of h̃; where it is the context, known once the cell is built."""
        if self.attentional_vector is not None:  # somebody's own may say it itself
            default = self._chosen_units or self.query_units
            return getattr(self.attentional_vector, "units", default)
        return self.query_units if self.attention is None else self.memory_units

    @property
    def output_units(self) -> int:
        """Size of the output, h̃ or h."""
        return self.attentional_units if self.output_attention else self.query_units

    @property
    def fed_units(self) -> int | None:
        """Size of h̃ if it is fed back."""
        return self.attentional_units if self.input_feeding else None

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes the recurrent part's weights, the attention's, those for h̃, and W_c."""
        super().build(inputs_shape, memory_shape)
        self.feeding_kernel = None
        if self.input_feeding and isinstance(self.recurrent, RecurrentStack):
            # Apart from the word's rows of the lowest layer's kernel: what x
            # contributes is computed before the loop, what h̃ does inside it.
            self.feeding_kernel = self.add_projection(
                "feeding_kernel", self.attentional_units, self.recurrent.columns
            )
        vector = self.attentional_vector
        if vector is not None and not vector.built:
            vector.build((self.memory_units,), (self.query_units,))

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        # 1. The recurrent layers read the word before, of which z is what needs no
        #    state, and h̃ of the step before (section 3.3).
        kernels = () if self.feeding_kernel is None else (self.feeding_kernel,)
        x = CellInput(z, kernels, tuple(states.fed))
        h, recurrent = self.recurrent.step(x, states.recurrent, mode)  # [..., H]
        # 2. The top layer's h attends to the source (Eq. 7), and
        # 3. h̃ is made of its context and of h (Eq. 5).
        h_tilde, weights, seen = self.attentional_output(h, memory, states, mode)
        # 4. The next step reads h̃.
        fed = [h_tilde] if self.input_feeding else []
        new = CellStates(recurrent, fed, seen, states.position + 1)
        return (h_tilde if self.output_attention else h, weights), new

    def attentional_output(
        self, h: Tensor, memory: Any, states: CellStates, mode: Mode
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Eq. 7 and 5 for h [..., H]: -> h̃ [..., A], weights [..., S], their state."""
        if self.attention is None:
            return h, self.no_weights(h, memory), []
        context, weights, seen = self.attend(h, memory, states, mode)  # [..., Hv]
        h_tilde = context
        if self.attentional_vector is not None:  # tanh(W_c [c; h])
            h_tilde = self.attentional_vector(context, h, project=mode.project)
        return ops.cast(h_tilde, self.compute_dtype), weights, seen

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        activation = keras.activations.serialize(self.attentional_activation)
        return {
            **super().get_config(),
            "attentional_units": self._chosen_units,
            "input_feeding": self.input_feeding,
            "attentional_activation": activation,
            "attentional_bias": self.attentional_bias,
            "use_attentional_vector": self.use_attentional_vector,
            "output_attention": self.output_attention,
            # Also the default one: its dtype policy changes when it is quantized.
            "attentional_vector": serialize_shared(self.attentional_vector),
        }


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoderCell(AttentionalCell):
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
        attentional_vector: A layer of your own in the place of `AttentionalVector`.
        **kwargs: More options.

            - `attentional_activation`: That of h̃: "tanh", another, or None.
            - `attentional_bias`: Whether h̃ has a bias; False by default.
            - `use_attentional_vector`: Whether there is a W_c; if not, the context
              itself is h̃.
            - `output_attention`: Whether the output is h̃; if not, it is h, and h̃ is
              only fed back.
            - `dropout`: Rate on what enters each layer from below.
            - `recurrent_dropout`: Rate on the recurrent h of each layer.
            - `output_dropout`: Rate on h̃; `dropout` by default.
            - `residual`: Whether layers after the first add their input to their
              output.
            - `kernel_initializer`, `recurrent_initializer`, `bias_initializer`, `seed`,
              `name`, `dtype`: As in `keras.layers.LSTM`.

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
        attentional_vector: Any = None,
        **kwargs: Any,
    ) -> None:
        stack = {name: kwargs.pop(name) for name in STACK_OPTIONS if name in kwargs}
        super().__init__(
            attention,
            attentional_units=attentional_units,
            input_feeding=input_feeding,
            **kwargs,
        )
        self.add_stack(units, num_layers, cell_type, **stack)
        self.add_vector(attentional_vector, self.recurrent.kernel_initializer)


@keras.saving.register_keras_serializable(package="keras_luong")
class AttentionalVector(BaseLayer):
    """`h̃_t = tanh(W_c [c_t; h_t])` (Luong et al. 2015, Eq. 5), without a bias.

    Weights: `kernel` [Hv + Hq, units], the context's rows first; and `bias` [units]
    where `use_bias`.

    Args:
        units: Size of h̃.
        activation: The paper's "tanh", another function or its name; None for none, as
            in `tfa.seq2seq.AttentionWrapper`.
        use_bias: Whether a bias is added before the activation, as in JoeyNMT.
        kernel_initializer, bias_initializer: As in `keras.layers.Dense`.
        kernel_regularizer, bias_regularizer: As in `keras.layers.Dense`.
        kernel_constraint, bias_constraint: As in `keras.layers.Dense`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        context: [..., Hv].
        query: [..., Hq].

    Returns:
        h̃: [..., units].

    Raises:
        ValueError, TypeError: An argument that is none of the above, or context and
            query do not fit.

    Example:
        >>> context, states = np.random.rand(2, 4, 6), np.random.rand(2, 4, 8)
        >>> h_tilde = kl.AttentionalVector(5)(context, states)
        >>> tuple(h_tilde.shape)
        (2, 4, 5)
    """

    kernel = Kernel()
    _sizes: tuple[int | None, ...] = (None, None)  # Hv and Hq, once built

    def __init__(
        self,
        units: int,
        activation: Any = "tanh",
        use_bias: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_size("units", units)
        self.activation = keras.activations.get(activation)
        self.use_bias = check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(self, context_shape: Shape, query_shape: Shape) -> None:
        """Makes `kernel` [Hv + Hq, units], and `bias`."""
        self._sizes = context_shape[-1], query_shape[-1]
        size = (context_shape[-1] or 0) + (query_shape[-1] or 0)
        self.kernel = self.add_kernel("kernel", size, self.units)
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                shape=(self.units,),
                name="bias",
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def call(self, context: Tensor, query: Tensor, project: Project = matmul) -> Tensor:
        """See the class."""
        self._check(context, query)
        both = ops.concatenate([context, query], -1)
        return self.activation(project(self.kernel, both, bias=self.bias))

    def _check(self, context, query):
        leading = [f"axis {i}" for i in range(len(query.shape) - 1)]
        check_axes(
            query=(query, *leading, self._sizes[1]),
            context=(context, *leading, self._sizes[0]),
        )

    def compute_output_spec(
        self, context: Tensor, query: Tensor, project: Project = matmul
    ) -> keras.KerasTensor:
        """Shape and dtype of h̃."""
        self._check(context, query)
        shape = self.compute_output_shape(context.shape, query.shape)
        return keras.KerasTensor(shape, self.compute_dtype)

    def compute_output_shape(self, context_shape: Shape, query_shape: Shape) -> Shape:
        """[..., units]."""
        return (*context_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = {
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
        }
        return {
            **super().get_config(),
            **config,
            **weight_config(self, "kernel", "bias"),
        }
