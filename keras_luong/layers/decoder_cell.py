"""One step of a recurrent decoder: what recurs, an attention, and the states of both.

A decoder cell *has* what recurs: a `RecurrentStack` of this library's own layers, or a
Keras cell (`keras_luong.layers.attention_wrapper.WrappedCell`). Its `step` says how
that and the attention come together.

Shapes: B batch, K beam (1 in training), T target positions, S source positions, E
embedding, H units. States are [..., n]; in a training loop the leading axes are [B], in
search [B, K].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes, check_rate
from keras_luong.compat import serialize_shared
from keras_luong.layers.base import BaseLayer, check_tensors, unpacking_hint
from keras_luong.layers.cells import (
    INITIALIZERS,
    CellInput,
    States,
    draw_noise,
    dropped,
)
from keras_luong.layers.memory import (
    batch_and_length,
    blanked,
    check_count,
    is_several,
    joined_shape,
    make_memory,
    mask_of,
    prepared_lengths,
    shapes_of,
    source_shapes,
    source_sizes,
    state_lengths,
    weights_dtype,
)
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, RecurrentLayers
from keras_luong.types import Shape, Tensor, Tensors


class CellStates(NamedTuple):
    """A decoder cell's states, grouped by kind; users and searches see a flat list.

    Attributes:
        recurrent: Nest of what recurs: of each layer [h, c] or [h], or as a Keras cell
            has it.
        fed: What the next step reads of this one (h̃ with input feeding): one or none.
        attention: What the attention remembers, each [..., S]; often nothing.
        position: Target words so far, int32 [..., 1].

    Example:
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> cell.build((None, None, 3), (None, None, 6))
        >>> states = cell.pack(cell.initial_states((2,)))
        >>> tuple(states.fed[0].shape), tuple(states.position.shape)
        ((2, 8), (2, 1))
    """

    recurrent: Any
    fed: Sequence[Tensor]
    attention: Sequence[Tensor]
    position: Tensor


class RecurrentStack(RecurrentLayers):
    """Stacked recurrent layers: what a decoder cell has as its `recurrent` part.

    Args:
        *args: As in `RecurrentLayers`: `units`, `num_layers`, `cell_type`, ...
        first_residual: The lowest layer whose input is added to its output, where
            `residual`.
        **kwargs: As in `RecurrentLayers`. `dropout` is the rate between the layers: the
            decoder drops the inputs of the lowest.

    Example:
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention(), num_layers=2)
        >>> type(cell.recurrent).__name__, cell.recurrent.num_layers
        ('RecurrentStack', 2)
    """

    def __init__(self, *args: Any, first_residual: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.first_residual = first_residual
        self.layers = self.make_layers(self.num_layers, "layer")

    def build(self, input_units: int, fed_units: int | None = None) -> None:
        """Makes the layers' weights, for embedded words [..., E]."""
        for i, layer in enumerate(self.layers):
            layer.build((None, None, self.units if i else input_units))
        self.built = True

    @property
    def columns(self) -> int:
        """Number of columns of every layer's kernel: gates x H."""
        return self.layers[0].cell.kernel.shape[-1]

    def state_spec(self, shape: Shape) -> list[list[Any]]:
        """Symbolic states with leading axes `shape`: of each layer, [h, c] or [h]."""
        state = keras.KerasTensor((*shape, self.units), self.compute_dtype)
        return [[state] * self.kind.num_states] * self.num_layers

    def first_states(self, shape: Any) -> list[Tensor]:
        """Zeros for all layers, as a flat list."""
        zeros = ops.zeros((*shape, self.units), dtype=self.compute_dtype)
        return [zeros] * (self.kind.num_states * self.num_layers)

    def draw_sequence_noise(self, batch_size: Any, training: Any) -> Noise:
        """The dropout multipliers of a sequence, but for the lowest layer's inputs."""
        shape, layers = (batch_size, self.units), range(self.num_layers)
        rate = self.dropout
        below = {i: self.draw_noise(shape, rate, training) for i in layers[1:]}
        rate = self.recurrent_dropout
        recurrent = {i: self.draw_noise(shape, rate, training) for i in layers}
        return Noise(below, recurrent)

    def project_inputs(self, inputs: Tensor, mode: Mode) -> Tensor:
        """The lowest layer's `x W + b`, which needs no state: -> [..., gates x H]."""
        return self.kind.project_input(self.layers[0].cell, inputs, mode.project)

    def step(
        self, x: CellInput, states: Sequence[States], mode: Mode
    ) -> tuple[Tensor, list[States]]:
        """One step of all layers: -> h of the top one, their new states.

        Args:
            x: What the lowest layer reads.
            states: Of each layer, [h, c] or [h].
            mode: How to compute it.
        """
        bottom = self.step_layer(0, x, states, mode)
        return self.step_above(bottom, states, mode)

    def step_layer(
        self, index: int, x: CellInput, states: Sequence[States], mode: Mode
    ) -> States:
        """One step of one layer: -> [h, ...], its new states."""
        x = x._replace(noise=mode.noise.recurrent.get(index))
        cell = self.layers[index].cell
        return self.kind.equations(cell, x, states[index], mode.project)

    def step_above(
        self,
        bottom: States,
        states: Sequence[States],
        mode: Mode,
        extra: Sequence[tuple[Tensor, Tensor]] = (),
    ) -> tuple[Tensor, list[States]]:
        """One step of the layers above the lowest.

        Args:
            bottom: The new states of the lowest layer.
            states: Those of all layers before.
            mode: How to compute it.
            extra: For each of these layers, a pair (kernel, tensor) that it reads too.

        Returns:
            h of the top layer, and the new states of all layers.
        """
        h, new = bottom[0], [bottom]
        for i, layer in enumerate(self.layers[1:], 1):
            below = dropped(h, mode.noise.below.get(i))
            pairs = [(layer.cell.kernel, below), *extra[i - 1 : i]]
            kernels, tensors = zip(*pairs, strict=True)
            x = CellInput(None, kernels, tensors, self.kind.input_bias(layer.cell))
            new.append(self.step_layer(i, x, states, mode))
            adds = self.residual and i >= self.first_residual
            h = new[i][0] + h if adds else new[i][0]
        return h, new

    def scan(
        self, x: Tensor, states: Sequence[States], mask: Tensor | None, mode: Mode
    ) -> tuple[Tensor, list[States]]:
        """All layers over a whole target, one layer after the other.

        Args:
            x: Embedded words, time-major [T, B, E].
            states: Of each layer, before.
            mask: bool [T, B], or None.
            mode: How to compute the steps.

        Returns:
            h of the top layer [T, B, H]; the final states of all layers.
        """
        finals = []
        for i, layer in enumerate(self.layers):
            below, x = x, dropped(x, mode.noise.below.get(i))
            noise = mode.noise.recurrent.get(i)
            x, new = self.scan_layer(layer, x, states[i], mask, noise, mode.training)
            if self.residual and i >= self.first_residual:
                x = x + below
            finals.append(new)
        return x, finals

    def describe(self) -> str:
        """The stack in words, for error messages."""
        return f'{self.num_layers} layers of "{self.cell_type}"'


_BRIDGE = "StateBridge(cell)(states) makes a decoder's states of others."

#: What `RecurrentStack` takes that a cell has among its keyword arguments.
STACK_OPTIONS = ("recurrent_dropout", "residual", *INITIALIZERS)


class DecoderCell(BaseLayer):
    """Base of a decoder's step: what recurs, an attention, and how they come together.

    A subclass sets `self.recurrent` to its recurrent part, such as a `RecurrentStack`;
    or, if its `step` computes all that recurs, it says what that is in `recurrent_spec`
    and `query_units`. It says in `step` what a step is, and may override `build` (its
    weights), `project_inputs` (what of a step can be computed before the loop),
    `prepare` (likewise of the source), `fed_units` and `output_units`.

    Args:
        attention: An attention layer such as `LuongAttention`, or None.
        dropout: Rate on the inputs, and between recurrent layers.
        output_dropout: Rate on the output; `dropout` by default.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError: If `attention` is no attention layer; or, when it is first used, if a
            subclass does not say what it must.
        ValueError: If a rate is none in [0, 1).

    Example:
        >>> ops = keras.ops
        >>> class ElmanCell(kl.layers.DecoderCell):
        ...     query_units = 8
        ...
        ...     def build(self, inputs_shape, memory_shape):
        ...         super().build(inputs_shape, memory_shape)
        ...         rows = self.input_units + 8
        ...         self.kernel = self.add_weight((rows, 8), name="kernel")
        ...
        ...     def recurrent_spec(self, shape=(None,)):
        ...         return [keras.KerasTensor((*shape, 8), self.compute_dtype)]
        ...
        ...     def step(self, z, states, memory, mode=kl.layers.INFERENCE):
        ...         x = ops.concatenate([z, *states.recurrent], axis=-1)
        ...         h = ops.tanh(mode.project(self.kernel, x))
        ...         context, weights, seen = self.attend(h, memory, states, mode)
        ...         new = states._replace(
        ...             recurrent=[h], attention=seen, position=states.position + 1
        ...         )
        ...         return (h + context, weights), new
        >>> decoder = kl.InputFeedingDecoder(ElmanCell(kl.LuongAttention()))
        >>> tuple(decoder(np.random.rand(2, 4, 3), np.random.rand(2, 5, 8)).shape)
        (2, 4, 8)
    """

    _nested: tuple[str, ...] = ("attention",)
    _keeps_dtypes = True

    #: What recurs; None where `step` computes it itself.
    recurrent: Any = None

    #: Whether attention is a part of the recurrence. If not, the decoder runs what
    #: recurs over the whole target, then attends once for all steps.
    attends_in_loop: bool = True

    #: Whether it makes no sense without attention.
    needs_attention = False

    def __init__(
        self,
        attention: Any,
        *,
        dropout: float = 0.0,
        output_dropout: float | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True  # the decoder masks; a search's tokens are words
        none_is_fine = attention is None and not self.needs_attention
        if not none_is_fine and not hasattr(attention, "attend"):
            raise TypeError(
                f"attention must be {'' if self.needs_attention else 'None or '}an "
                f"attention layer such as LuongAttention. Received: {attention!r}"
            )
        self.attention = attention
        self.dropout = check_rate("dropout", dropout)
        if output_dropout is not None:
            output_dropout = check_rate("output_dropout", output_dropout)
        self.output_dropout = output_dropout
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def add_stack(
        self, units: int, num_layers: int, cell_type: str, **options: Any
    ) -> None:
        """Sets `recurrent` to a stack with the cell's dropout, seed and dtype.

        Args:
            units: Size H of every layer.
            num_layers: How many layers.
            cell_type: As in `RecurrentStack`; likewise the options.
            **options: `STACK_OPTIONS`, `first_residual`.
        """
        self.recurrent = RecurrentStack(
            units,
            num_layers,
            cell_type,
            self.dropout,
            seed_generator=self.seed_generator,
            dtype=self.dtype_policy,
            name="recurrent",
            **options,
        )

    # Its sizes.

    def recurrent_spec(self, shape: Shape = (None,)) -> Any:
        """Nest of symbolic tensors, with leading axes `shape`, of what recurs."""
        if self.recurrent is None:
            raise TypeError(
                f"{type(self).__name__} must define recurrent_spec, or set recurrent"
            )
        return self.recurrent.state_spec(shape)

    @property
    def state_sizes(self) -> list[int]:
        """The size of each recurrent state, as a `StateBridge` makes them."""
        return [like.shape[-1] for like in keras.tree.flatten(self.recurrent_spec())]

    @property
    def query_units(self) -> int:
        """Size H of the state that attends to the source."""
        if self.recurrent is None:
            name = type(self).__name__
            raise TypeError(f"{name} must define query_units, or set recurrent")
        return self.recurrent.units

    @property
    def output_units(self) -> int:
        """Size of the output."""
        return self.query_units

    @property
    def fed_units(self) -> int | None:
        """Size of the tensor that is fed to the next step; None for none."""
        return None

    @property
    def weights_dtype(self) -> str:
        """Dtype of the alignment weights: float32, or float64 under that policy."""
        return weights_dtype(self.compute_dtype)

    # Its weights.

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Makes the weights for embedded words [..., E] and memories [B, S, Hv].

        A subclass makes its own after these, and knows `input_units`, E, and
        `memory_units`, Hv, by then.
        """
        memory_shape = source_shapes(memory_shape)
        self.read_shapes(inputs_shape, memory_shape)
        if self.recurrent is not None:
            self.recurrent.build(self.input_units, self.fed_units)
        if self.attention is not None and not self.attention.built:
            self.attention.build((None, None, self.query_units), memory_shape)

    def read_shapes(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Takes the sizes E and Hv from shapes, without making weights."""
        several = getattr(self.attention, "num_sources", None)
        check_count("memory", memory_shape, several)
        self.input_units: Any = inputs_shape[-1]
        self.source_units = source_sizes(memory_shape)
        self.memory_units: Any = joined_shape(memory_shape)[-1]

    def add_projection(self, name: str, rows: int, columns: int) -> keras.Variable:
        """A weight matrix [rows, columns], made as those of the recurrent layers."""
        initializer = self.recurrent.kernel_initializer.clone()
        return self.add_weight((rows, columns), initializer, name=name)

    # A sequence: what comes before its first step.

    def prepare(self, memory: Any, mask: Any = None) -> Any:
        """The source [B, S, Hv] as the steps want it; see `LuongAttention.prepare`."""
        several = getattr(self.attention, "num_sources", None)
        check_count("memory", shapes_of(memory), several)
        if self.attention is None:
            mask = mask_of(memory, mask)
            return make_memory(blanked(memory, mask), (), mask)
        return self.attention.prepare(memory, mask)

    def start(
        self, memory: Any, mask: Any = None, initial_state: Any = None
    ) -> tuple[Any, list[Tensor]]:
        """Prepares a source and the first states: what `StepModel.encode` returns.

        Args:
            memory: The source [B, S, Hv].
            mask: bool [B, S], True at words; the memory's own Keras mask by default.
            initial_state: List of the recurrent states [B, H]; zeros by default.

        Returns:
            What `prepare` made of the source, and the first states [B, 1, ...].
        """
        rows = ops.shape(keras.tree.flatten(memory)[0])[0]
        memory = self.prepare(memory, mask)
        given = () if initial_state is None else initial_state
        states = check_tensors("initial_state", given)
        states = [ops.expand_dims(state, 1) for state in states]
        return memory, self.initial_states((rows, 1), states, memory)

    def project_inputs(self, inputs: Tensor, mode: Mode = INFERENCE) -> Tensor:
        """Computes the part of a step that needs its input [..., E] and no state.

        Called on all steps [T, B, E] before the loop; inside of it where inputs are fed
        back, or in a search. A subclass multiplies by weights through `mode.project`.
        """
        if self.recurrent is None:
            return inputs
        return self.recurrent.project_inputs(inputs, mode)

    def make_mode(self, memory: Any, training: Any, queries: int = 1) -> Mode:
        """Makes the `Mode` of a sequence: draws its dropout multipliers.

        Those of the inputs, and of the output, are the decoder's business.

        Args:
            memory: What `prepare` returned.
            training: Whether to drop at all.
            queries: Number of queries that attend at once.
        """
        if not training:
            return INFERENCE
        batch_size, source_length = batch_and_length(memory)
        noise = Noise()
        if self.recurrent is not None:
            noise = self.recurrent.draw_sequence_noise(batch_size, training)
        if self.attention is not None:
            each_query = (batch_size, queries, source_length)
            attention = self.attention.draw_noise(each_query, training)
            noise = noise._replace(attention=attention)
        return Mode(True, noise)

    def draw_noise(self, shape: Any, rate: float, training: Any) -> Tensor | None:
        """Dropout multipliers of a shape; None where nothing is dropped."""
        seed, dtype = self.seed_generator, self.compute_dtype
        return draw_noise(shape, rate, training, seed, dtype)

    # A step.

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
            (output [..., output_units], weights [..., S] in `weights_dtype`) and the
            new states.
        """
        raise TypeError(f"{type(self).__name__} must define the method step")

    def attend(
        self, query: Tensor, memory: Any, states: CellStates, mode: Mode
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Attends to the source from the queries of this step.

        Args:
            query: [B, H] in a loop, [B, K, H] in search.
            memory: What `prepare` returned.
            states: Those before the step.
            mode: How to compute it.

        Returns:
            Context [..., Hv], weights [..., S] in `weights_dtype`, the attention's new
            state.
        """
        single = len(query.shape) == 2
        state = states.attention
        if single:
            query, *state = [ops.expand_dims(x, 1) for x in (query, *state)]
        positions = ops.reshape(states.position, ops.shape(query)[:2])
        context, weights, state = self.attention.attend(
            query, memory, positions, state, mode
        )
        weights = ops.cast(weights, self.weights_dtype)
        if single:  # a slice would have a gradient as large as what it is of
            context, weights, *state = [
                ops.squeeze(x, 1) for x in (context, weights, *state)
            ]
        return context, weights, state

    def no_weights(self, query: Tensor, memory: Any) -> Tensor:
        """Alignment weights of a decoder without attention: zeros [..., S]."""
        shape = (*ops.shape(query)[:-1], batch_and_length(memory)[1])
        return ops.zeros(shape, dtype=self.weights_dtype)

    # Its states.

    def state_spec(
        self, shape: Shape = (None,), source_length: Any = None
    ) -> CellStates:
        """Symbolic states with leading axes `shape`, for shapes and dtypes.

        Args:
            shape: Leading axes.
            source_length: S, or a list of the lengths of several sources; or None.
        """

        def spec(size, dtype=self.compute_dtype):
            return keras.KerasTensor((*shape, size), dtype)

        # Each an object of its own: Keras knows a model's outputs by identity.
        recurrent = keras.tree.map_structure(
            lambda like: keras.KerasTensor(like.shape, like.dtype),
            self.recurrent_spec(shape),
        )
        fed = [] if self.fed_units is None else [spec(self.fed_units)]
        lengths = state_lengths(self.attention, source_length)
        attention = [spec(length, self.weights_dtype) for length in lengths]
        return CellStates(recurrent, fed, attention, spec(1, "int32"))

    def pack(self, states: Sequence[Tensor]) -> CellStates:
        """Groups a flat list of states by kind, each cast to its dtype."""
        spec = self.state_spec()
        packed = keras.tree.pack_sequence_as(spec, list(states))
        return keras.tree.map_structure(
            lambda x, like: ops.cast(x, like.dtype), packed, spec
        )

    def check_states(self, initial_state: Any, shape: Any) -> list[Tensor]:
        """Checks initial states, and returns them as a flat list.

        Args:
            initial_state: None, the recurrent states, or all states.
            shape: Leading axes.

        Raises:
            ValueError: The number of states, or their shapes, do not fit.
        """
        if initial_state is None:
            return []
        states = check_tensors("initial_state", initial_state)
        recurrent, complete = self.state_sizes, keras.tree.flatten(self.state_spec())
        if len(states) not in (0, len(recurrent), len(complete)):
            what = f"of {type(self).__name__}"
            if isinstance(self.recurrent, RecurrentStack):
                what = self.recurrent.describe()
            raise ValueError(
                f"Expected {len(recurrent)} initial states ({what}), or all "
                f"{len(complete)} that return_state gives. Received: {len(states)}"
                f"{unpacking_hint(states)}. {_BRIDGE}"
            )
        axes = [size if isinstance(size, int) else None for size in shape]
        try:
            check_axes(
                **{
                    f"initial_state[{i}]": (x, *axes, *like.shape[1:])
                    for i, (x, like) in enumerate(zip(states, complete, strict=False))
                }
            )
        except ValueError as error:
            raise ValueError(f"{error}. {_BRIDGE}") from None
        return states

    def initial_states(
        self, shape: Any, recurrent: Any = None, memory: Any = None
    ) -> list[Tensor]:
        """States before the first word: `recurrent` or zeros, and position 0.

        Args:
            shape: Leading axes, (B,) or (B, K).
            recurrent: List of the recurrent states, such as an encoder's; or all states
                of an earlier call, which are returned as they are.
            memory: What `prepare` returned, for an attention that has a state.

        Returns:
            The recurrent states (h₁, c₁, ..., h_L, c_L of LSTMs), what is fed back (if
            anything), the attention's state (if it has one), position, each
            [*shape, n]; the position is int32 and counts target words from 0.

        Raises:
            ValueError: The number of states, or their shapes, do not fit.
        """
        first = self.check_states(recurrent, shape)
        spec = self.state_spec()
        if len(first) == len(keras.tree.flatten(spec)):
            return keras.tree.flatten(self.pack(first))
        if not first:
            first = self.first_recurrent(shape)
        attention = []
        if spec.attention:
            attention = self.attention.initial_state(memory, *shape[1:])
        if len(shape) == 1:
            attention = [state[:, 0] for state in attention]
        fed, position = (
            [ops.zeros((*shape, like.shape[-1]), dtype=like.dtype) for like in part]
            for part in (spec.fed, [spec.position])
        )
        return keras.tree.flatten(self.pack([*first, *fed, *attention, *position]))

    def first_recurrent(self, shape: Any) -> list[Tensor]:
        """The recurrent states where none are given, flat: zeros [*shape, n]."""
        if self.recurrent is not None:
            return self.recurrent.first_states(shape)
        return [
            ops.zeros((*shape, *like.shape[1:]), dtype=like.dtype)
            for like in keras.tree.flatten(self.recurrent_spec())
        ]

    # As a layer: one step of a search.

    def call(
        self, inputs: Tensor, states: Tensors, memory: Any
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """One step of a search.

        Args:
            inputs: Embedded target words [B, K, E].
            states: List of states [B, K, ...], from `initial_states` or an earlier
                call.
            memory: What `prepare` returned.

        Returns:
            The output [B, K, output_units], the list of new states, and the alignment
            weights [B, K, S] in `weights_dtype` (zeros without attention).
        """
        self._check_prepared(memory)
        z = self.project_inputs(ops.cast(inputs, self.compute_dtype), INFERENCE)
        (outputs, weights), new = self.step(z, self.pack(states), memory)
        return outputs, keras.tree.flatten(new), weights

    def _check_prepared(self, memory):
        """Raises TypeError for a source that was not prepared."""
        prepare = type(self if self.attention is None else self.attention).prepare
        # What somebody's own `prepare` returns may be anything.
        own = {f.__module__.split(".")[0] for f in (prepare, type(self).prepare)}
        if own == {"keras_luong"} and not hasattr(memory, "mask"):
            raise TypeError(
                "memory must be what the cell's prepare(memory, mask) returned. "
                f"Received: {type(memory).__name__}"
            )

    def compute_output_spec(
        self, inputs: Tensor, states: Sequence[Tensor], memory: Any
    ) -> tuple[Any, list[Any], Any]:
        """Shapes and dtypes of `call`'s results."""
        self._check_prepared(memory)
        shape, lengths = inputs.shape[:-1], prepared_lengths(memory)
        length = memory.mask.shape[1] if hasattr(memory, "each") else lengths
        weights = keras.KerasTensor((*shape, length), self.weights_dtype)
        new = keras.tree.flatten(self.state_spec(shape, lengths))
        output = keras.KerasTensor((*shape, self.output_units), self.compute_dtype)
        return output, new, weights

    def compute_output_shape(
        self, inputs_shape: Shape, states_shape: Any = None, memory_shape: Any = None
    ) -> tuple[Shape, list[Shape], Shape]:
        """Shapes of `call`'s results; of a memory [B, S, Hv] or a prepared one.

        The states' own are not needed: a model's summary knows what `build` was given.
        """
        if memory_shape is None:
            raise ValueError(
                "A step's shapes depend on the memory's: compute_output_shape("
                "inputs_shape, states_shape, memory_shape). Received: memory_shape=None"
            )
        shape = source_shapes(memory_shape)
        if not self.built:
            self.read_shapes(inputs_shape, shape)
        axes = tuple(inputs_shape[:-1])
        lengths = [one[1] for one in shape] if is_several(shape) else shape[1]
        states = keras.tree.flatten(self.state_spec(axes, lengths))
        weights = (*axes, joined_shape(shape)[1])
        return (*axes, self.output_units), [x.shape for x in states], weights

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        stack = self.recurrent
        return {
            **super().get_config(),
            **(stack.options() if isinstance(stack, RecurrentStack) else {}),
            "attention": serialize_shared(self.attention),
            "dropout": self.dropout,
            "output_dropout": self.output_dropout,
            "seed": self.seed,
        }
