"""One step of a recurrent decoder: what the steps of all of them have in common.

Shapes: B batch, K beam (1 in training), E embedding, H units, S source positions.
States are [..., n]; in a training loop the leading axes are [B], in search [B, K].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes, check_rate
from keras_luong.compat import UncastLayer
from keras_luong.layers.attention import Memory, make_memory
from keras_luong.layers.cells import CellInput, States, dropped
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, RecurrentLayers
from keras_luong.types import Shape, Tensor


class CellStates(NamedTuple):
    """The states of a decoder cell by what they are; users and searches see them flat.

    Attributes:
        recurrent: Of each layer: [h, c] or [h].
        fed: What the next step reads of this one (h̃ with input feeding): one or none.
        attention: What the attention remembers, [..., S]: one or none.
        position: Target words so far, int32 [..., 1].
    """

    recurrent: Sequence[States]
    fed: Sequence[Tensor]
    attention: Sequence[Tensor]
    position: Tensor


class DecoderCell(RecurrentLayers, UncastLayer):
    """A step of a recurrent decoder; subclasses say in `step` what it computes.

    Besides `step` a subclass may override `project_inputs` (what of a step can be
    computed before the loop), `prepare` (likewise of the source) and `fed_units`.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer such as `LuongAttention`, or None.
        num_layers: How many recurrent layers.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        output_dropout: Rate on the output; `dropout` by default.
        **kwargs: `dropout`, `recurrent_dropout`, `residual`, the initializers and
            `seed` as in `RecurrentLayers`, `name`, `dtype`.
    """

    #: Whether attention is a part of the recurrence. If not, the decoder runs one layer
    #: after the other, each over the whole target, then attends once for all steps.
    attends_in_loop: bool = True

    #: Whether it makes no sense without attention.
    needs_attention = False

    #: The lowest layer whose input is added to its output, where `residual`.
    first_residual = 1

    def __init__(
        self,
        units: int,
        attention: Any,
        num_layers: int = 1,
        cell_type: str = "lstm",
        *,
        output_dropout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(units, num_layers, cell_type, **kwargs)
        none_is_fine = attention is None and not self.needs_attention
        if not none_is_fine and not hasattr(attention, "attend"):
            raise TypeError(
                f"attention must be {'' if self.needs_attention else 'None or '}an "
                f"attention layer such as LuongAttention. Received: {attention!r}"
            )
        self.attention = attention
        if output_dropout is not None:
            output_dropout = check_rate("output_dropout", output_dropout)
        self.output_dropout = output_dropout
        self.output_units = self.units  # unless a subclass sets another
        self.layers = self.make_layers(num_layers, "layer")

    @property
    def fed_units(self) -> int | None:
        """Size of what the next step reads of this one, or None."""
        return None

    @property
    def columns(self) -> int:
        """Columns of every layer's kernel, gates x H."""
        return self.layers[0].cell.kernel.shape[-1]

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes the weights for embedded words [..., E] and a memory [B, S, Hv]."""
        if isinstance(memory_shape, Memory):  # called, rather than built by a decoder
            memory_shape = memory_shape.values
        self.input_units, self.memory_units = inputs_shape[-1], memory_shape[-1]
        width = self.input_units
        for layer in self.layers:
            layer.build((None, None, width))
            width = self.units
        if self.attention is not None and not self.attention.built:
            self.attention.build((None, None, self.units), tuple(memory_shape))
        self.build_output()

    def build_output(self) -> None:
        """Makes the weights other than the recurrent layers' and the attention's.

        `input_units` and `memory_units`, the sizes E and Hv, are known by now.
        """

    def add_kernel(self, name: str, rows: int, columns: int) -> keras.Variable:
        """A weight matrix [rows, columns]."""
        initializer = self.kernel_initializer.clone()
        return self.add_weight((rows, columns), initializer, name=name)

    def state_spec(
        self, shape: Shape = (None,), source_length: int | None = None
    ) -> CellStates:
        """What the states are: symbolic tensors of leading axes `shape`."""

        def spec(size, dtype=self.compute_dtype):
            return keras.KerasTensor((*shape, size), dtype)

        recurrent = [[spec(self.units)] * self.kind.num_states] * self.num_layers
        fed = [] if self.fed_units is None else [spec(self.fed_units)]
        remembers = self.attention is not None and self.attention.has_state
        attention = [spec(source_length, "float32")] * remembers
        return CellStates(recurrent, fed, attention, spec(1, "int32"))

    def pack(self, states: Sequence[Tensor]) -> CellStates:
        """The states of a flat list, each cast to its dtype."""
        spec = self.state_spec()
        packed = keras.tree.pack_sequence_as(spec, list(states))
        return keras.tree.map_structure(
            lambda x, like: ops.cast(x, like.dtype), packed, spec
        )

    def initial_states(
        self, shape: Any, recurrent: Any = None, memory: Any = None
    ) -> list[Tensor]:
        """States before the first word: `recurrent` or zeros, and position 0.

        Args:
            shape: Leading axes, (B,) or (B, K).
            recurrent: List of the recurrent layers' states, such as an encoder's; or
                all states of an earlier call, which are returned as they are.
            memory: What `prepare` returned, for an attention that has a state.

        Returns:
            [h₁, c₁, ..., h_L, c_L, what is fed back (if anything), the attention's
            state (if it has one), position], each [*shape, n]; the position is int32
            and counts target words from 0.

        Raises:
            ValueError: The number of states, or their shapes, do not fit.
        """
        given: Any = [] if recurrent is None else keras.tree.flatten(recurrent)
        spec = self.state_spec()
        complete = len(keras.tree.flatten(spec))
        expected = len(keras.tree.flatten(spec.recurrent))
        if len(given) == complete:
            return keras.tree.flatten(self.pack(given))
        if len(given) not in (0, expected):
            raise ValueError(
                f"Expected {expected} initial states ({self.num_layers} layers of "
                f'"{self.cell_type}"), or all {complete} that return_state gives. '
                f"Received: {len(given)}"
            )
        axes = [size if isinstance(size, int) else None for size in shape]
        named = {f"initial_state[{i}]": x for i, x in enumerate(given)}
        check_axes(**{name: (x, *axes, self.units) for name, x in named.items()})
        zeros = [
            ops.zeros((*shape, like.shape[-1]), dtype=like.dtype)
            for like in keras.tree.flatten(spec._replace(attention=[]))
        ]
        states = given + zeros[len(given) :]
        if spec.attention:
            (state,) = self.attention.initial_state(memory, *shape[1:])
            states.insert(-1, state[:, 0] if len(shape) == 1 else state)
        return keras.tree.flatten(self.pack(states))

    def project_inputs(self, inputs: Tensor) -> Tensor:
        """The first layer's `x W + b`, without any state: -> [..., gates x H]."""
        return self.kind.project_input(self.layers[0].cell, inputs)

    def prepare(self, memory: Tensor, mask: Tensor | None = None) -> Any:
        """The source [B, S, Hv] as the steps want it; see `LuongAttention.prepare`."""
        if self.attention is None:
            return make_memory(memory, memory, mask)
        return self.attention.prepare(memory, mask)

    def sequence_mode(self, memory: Any, training: Any, queries: int = 1) -> Mode:
        """How to compute the steps of a sequence: draws its dropout multipliers.

        The first layer's input, and the output, are the decoder's business.

        Args:
            memory: What `prepare` returned.
            training: Whether to drop at all.
            queries: Number of queries that attend at once.
        """
        if not training:
            return INFERENCE
        batch_size, source_length = ops.shape(memory.mask)
        shape, layers = (batch_size, self.units), range(self.num_layers)
        rate = self.dropout
        below = {i: self.draw_noise(shape, rate, training) for i in layers[1:]}
        rate = self.recurrent_dropout
        recurrent = {i: self.draw_noise(shape, rate, training) for i in layers}
        attention = None
        if self.attention is not None:
            each_query = (batch_size, queries, source_length)
            attention = self.attention.draw_noise(each_query, training)
        return Mode(True, Noise(below, recurrent, attention))

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

    def attend(
        self, query: Tensor, memory: Memory, states: CellStates, mode: Mode
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Attends from the queries of this step.

        Args:
            query: [B, H] in a loop, [B, K, H] in search.
            memory: What `prepare` returned.
            states: Those before the step.
            mode: How to compute it.

        Returns:
            Context [..., Hv], weights float32 [..., S], the attention's new state.
        """
        single = len(query.shape) == 2
        state = states.attention
        if single:
            query, *state = [ops.expand_dims(x, 1) for x in (query, *state)]
        positions = ops.reshape(states.position, ops.shape(query)[:2])
        context, weights, state = self.attention.attend(
            query, memory, positions, state, mode
        )
        if single:  # a slice would have a gradient as large as what it is of
            context, weights, *state = [
                ops.squeeze(x, 1) for x in (context, weights, *state)
            ]
        return context, weights, state

    def no_weights(self, query: Tensor, memory: Any) -> Tensor:
        """Alignment weights of a decoder without attention: zeros [..., S]."""
        shape = (*ops.shape(query)[:-1], ops.shape(memory.mask)[1])
        return ops.zeros(shape, dtype="float32")

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """One step of the recurrence.

        Args:
            z: What `project_inputs` returned for this step.
            states: Those before.
            memory: What `prepare` returned.
            mode: How to compute it.

        Returns:
            (output [..., output_units], weights float32 [..., S]) and the new states.
        """
        raise TypeError(f"{type(self).__name__} must say what a step is: def step")

    def call(
        self, inputs: Tensor, states: Sequence[Tensor], memory: Any
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """One step of a search.

        Args:
            inputs: Embedded target words [B, K, E].
            states: List of states [B, K, ...], from `initial_states` or an earlier
                call.
            memory: What `prepare` returned.

        Returns:
            The output [B, K, output_units], the list of new states, and the alignment
            weights, float32 [B, K, S] (zeros without attention).
        """
        z = self.project_inputs(ops.cast(inputs, self.compute_dtype))
        (outputs, weights), new = self.step(z, self.pack(states), memory)
        return outputs, keras.tree.flatten(new), weights

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "attention": keras.saving.serialize_keras_object(self.attention),
            "output_dropout": self.output_dropout,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> DecoderCell:
        """Rebuilds the cell and its attention."""
        attention = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**{**config, "attention": attention})
