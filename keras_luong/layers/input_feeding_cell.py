"""A step of the paper's decoder: h_t, the attention, and h̃_t, which may be fed back.

Shapes: B batch, K beam, S source positions, E embedding, H units, A attentional units.

A decoder step whose recurrent part is a stack of this library's own layers.

Shapes: B batch, K beam, T target positions, E embedding, H units.

What leaves a decoder step: Eq. 5, and the decoder cells whose output it is.

Shapes: B batch, K beam, H units of h, A attentional units, Hv memory units, S source
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.base import BaseLayer, Kernel, weight_config
from keras_luong.layers.cells import CellInput, States, dropped
from keras_luong.layers.decoder_cell import CellStates, DecoderCell
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, RecurrentLayers
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


class AttentionalCell(DecoderCell):
    """A `DecoderCell` whose h attends, and whose output is h̃, which may be fed back.

    Args:
        *args: Arguments of the next base.
        attentional_units: Size A of h̃; that of h by default.
        input_feeding: Whether the next step reads h̃ (Luong et al. 2015, section 3.3).
        attentional_activation: That of h̃: "tanh", another, or None.
        attentional_bias: Whether h̃ has a bias.
        use_attentional_vector: Whether there is a W_c; if not, the context itself is h̃,
            as in `tfa.seq2seq.AttentionWrapper` with `attention_layer_size=None`.
        output_attention: Whether the output is h̃; if not, it is h, and h̃ is only fed
            back, as in tfa.
        attentional_vector: A layer in the place of `AttentionalVector`, with its call
            arguments; the three options before are for the default one.
        **kwargs: As in the next base.
    """

    _nested: tuple[str, ...] = (*DecoderCell._nested, "attentional_vector")

    def __init__(
        self,
        *args: Any,
        attentional_units: int | None = None,
        input_feeding: bool = True,
        attentional_activation: Any = "tanh",
        attentional_bias: bool = False,
        use_attentional_vector: bool = True,
        output_attention: bool = True,
        attentional_vector: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        check_size("attentional_units", attentional_units, True)
        self._given_units = attentional_units
        self.input_feeding = check_flag("input_feeding", input_feeding)
        self.attentional_activation = keras.activations.get(attentional_activation)
        self.attentional_bias = check_flag("attentional_bias", attentional_bias)
        check_flag("use_attentional_vector", use_attentional_vector)
        self.use_attentional_vector = use_attentional_vector
        self.output_attention = check_flag("output_attention", output_attention)
        # Without input feeding nothing recurs through most attentions.
        has_state = getattr(self.attention, "has_state", False)
        self.attends_in_loop = input_feeding or has_state
        self._check_options()
        self.attentional_vector = attentional_vector or self._make_vector()

    def _check_options(self):
        units = self._given_units
        if self.attention is None and units not in (None, self.query_units):
            raise ValueError(
                "Without attention the output is h itself, so attentional_units must "
                f"be units. Received: attentional_units={units}, "
                f"units={self.query_units}"
            )
        if not self.use_attentional_vector and units is not None:
            raise ValueError(
                "With use_attentional_vector=False the context itself is h̃, and its "
                f"size is the memory's. Received: attentional_units={units}"
            )

    def _make_vector(self):
        if self.attention is None or not self.use_attentional_vector:
            return None
        return AttentionalVector(
            self._default_units,
            self.attentional_activation,
            self.attentional_bias,
            kernel_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="attentional_vector",
        )

    @property
    def attentional_units(self) -> int:
        """Size A of h̃; where it is the context, known once the cell is built."""
        if self.attentional_vector is not None:  # somebody's own may say it itself
            return getattr(self.attentional_vector, "units", self._default_units)
        return self.query_units if self.attention is None else self.memory_units

    @property
    def _default_units(self):
        return self._given_units or self.query_units

    @property
    def output_units(self) -> int:
        """Size of the output, h̃ or h."""
        return self.attentional_units if self.output_attention else self.query_units

    @property
    def fed_units(self) -> int | None:
        """Size of h̃ if it is fed back."""
        return self.attentional_units if self.input_feeding else None

    def build_output(self) -> None:
        """Makes W_c."""
        vector = self.attentional_vector
        if vector is not None and not vector.built:
            vector.build((self.memory_units,), (self.query_units,))

    def attentional_output(
        self, h: Tensor, memory: Any, states: CellStates, mode: Mode
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Eq. 7 and 5 for h [..., H]: -> h̃ [..., A], weights [..., S], their state."""
        if self.attention is None:
            return h, self.no_weights(h, memory), []
        h_tilde, weights, state = self.attend(h, memory, states, mode)
        if self.attentional_vector is not None:
            h_tilde = self.attentional_vector(h_tilde, h, project=mode.project)
        return ops.cast(h_tilde, self.compute_dtype), weights, state

    def finish(
        self, h: Tensor, recurrent: Any, states: CellStates, memory: Any, mode: Mode
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """What a step does once it has h.

        Args:
            h: [..., H].
            recurrent: The new recurrent states.
            states: All states before.
            memory: What `prepare` returned.
            mode: How to compute it.

        Returns:
            As `step`.
        """
        h_tilde, weights, attention = self.attentional_output(h, memory, states, mode)
        fed = [h_tilde] if self.input_feeding else []
        new = CellStates(recurrent, fed, attention, states.position + 1)
        return (h_tilde if self.output_attention else h, weights), new

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = {
            "attentional_units": self._given_units,
            "input_feeding": self.input_feeding,
            "attentional_activation": keras.activations.serialize(
                self.attentional_activation
            ),
            "attentional_bias": self.attentional_bias,
            "use_attentional_vector": self.use_attentional_vector,
            "output_attention": self.output_attention,
            # Also the default one: its dtype policy changes when it is quantized.
            "attentional_vector": serialize_shared(self.attentional_vector),
        }
        return {**super().get_config(), **config}


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
