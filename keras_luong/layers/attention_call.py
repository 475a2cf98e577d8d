"""The call of an attention layer as Keras sees it: what comes in, what goes out.

Shapes: B batch, Q queries, S source positions, Hq/Hv query/value units.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_luong.compat import set_keras_mask
from keras_luong.layers.attention_inputs import (
    AttentionInputs,
    as_source,
    combined_masks,
    pair_mask,
    read_inputs,
    shared_batch_size,
    spread,
    spread_memory,
    unpack_shapes,
)
from keras_luong.layers.checked_layer import CheckedLayer
from keras_luong.layers.memory import blanked
from keras_luong.layers.normalizers import masked_logits
from keras_luong.layers.recurrence import Mode, Noise, scan
from keras_luong.types import Shape, Tensor, Tensors


class AttentionCall(CheckedLayer):
    """Base of attention layers: `call`, from what a subclass says of one attention.

    That is `prepare`, `attend`, `draw_noise`, `has_state`, `initial_state` and
    `weights_dtype`, see `LuongAttention`.
    """

    #: How many axes of positions a source may have; None for any number.
    source_axes: int | None = None

    #: Units of query, value and key, once it is built.
    _sizes: tuple[int | None, ...] = (None, None, None)

    prepare: Callable[..., Any]
    attend: Callable[..., Any]
    draw_noise: Callable[..., Any]
    has_state: Any
    weights_dtype: Any

    def call(
        self,
        query: Tensors,
        value: Tensor | None = None,
        key: Tensor | None = None,
        query_mask: Tensors | None = None,
        value_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        positions: Any = None,
        training: bool | None = None,
        mask: Tensors | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_logits: bool = False,
    ) -> Any:
        """See the class."""
        tensors = (query, value, key, query_mask, value_mask, key_mask)
        inputs = AttentionInputs(*tensors, attention_mask, positions)
        inputs = read_inputs(inputs, mask, self.source_axes, self._sizes)
        inputs, memory = self._read(inputs)
        context, maps = self._attend_from(
            inputs, memory, training, use_causal_mask, return_logits
        )
        if inputs.query_mask is not None:
            set_keras_mask(context, inputs.query_mask)
        maps = maps if return_attention_scores else maps[1:]
        maps = [as_source(x, inputs.value) for x in maps]
        return (context, *maps) if maps else context

    def _read(self, inputs):
        """The memory, and the inputs with queries of its batch size."""
        inputs = keras.tree.map_structure(_tensor, inputs)
        mask = combined_masks(inputs.value_mask, inputs.key_mask)
        memory = self.prepare(inputs.value, mask, inputs.key)
        size = shared_batch_size(*inputs[:-1])
        if size is None:
            return inputs, memory
        query, query_mask = spread(inputs.query, size), spread(inputs.query_mask, size)
        inputs = inputs._replace(query=query, query_mask=query_mask)
        return inputs, spread_memory(memory, size)

    def _attend_from(self, inputs, memory, training, use_causal_mask, return_logits):
        """The context [B, Q, Hv], and weights and perhaps logits [B, Q, S]."""
        query, query_mask, positions = inputs.query, inputs.query_mask, inputs.positions
        shape = (*ops.shape(query)[:2], ops.shape(memory.mask)[1])
        if positions is None:
            positions = ops.expand_dims(ops.arange(shape[1], dtype="int32"), 0)
        positions = ops.convert_to_tensor(positions)
        options: dict[str, Any] = {"return_logits": True} if return_logits else {}
        pairs = pair_mask(inputs, positions, use_causal_mask)
        if pairs is not None:  # a subclass's `attend` may not know of it
            options["attention_mask"] = pairs
        mode = Mode(bool(training), Noise(attention=self.draw_noise(shape, training)))
        if query_mask is not None:
            query = blanked(query, query_mask)
        if self.has_state:
            context, *maps = _attend_in_turn(
                self, query, query_mask, memory, positions, mode, options
            )
        else:
            context, weights, _, *logits = self.attend(
                query, memory, positions, (), mode, **options
            )
            maps = [weights, *logits]
        if query_mask is not None:
            context = blanked(context, query_mask)
            maps = _without_masked(maps, query_mask)
        return context, maps

    def compute_output_shape(
        self,
        query_shape: Any,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> Shape:
        """The context's shape, [B, Q, Hv]."""
        query, value, _ = unpack_shapes(query_shape, value_shape, key_shape)
        batch_size = value[0] if query[0] == 1 else query[0]
        return (batch_size, *query[1:-1], value[-1])

    def compute_mask(self, query: Any, query_mask: Any = None) -> Any:
        """The context is masked where the query is."""
        return query_mask[0] if isinstance(query_mask, (list, tuple)) else query_mask

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        given = arguments_of(self.call, args, kwargs)
        inputs = AttentionInputs(*[given[name] for name in AttentionInputs._fields])
        inputs = read_inputs(inputs, given["mask"], self.source_axes, self._sizes)
        shape = self.compute_output_shape(inputs.query.shape, inputs.value.shape)
        context = keras.KerasTensor(shape, self.compute_dtype)
        if inputs.query_mask is not None:
            set_keras_mask(context, inputs.query_mask)
        count = given["return_attention_scores"] + given["return_logits"]
        shape = (*shape[:-1], *inputs.value.shape[1:-1])
        maps = [keras.KerasTensor(shape, self.weights_dtype) for _ in range(count)]
        return (context, *maps) if maps else context


def arguments_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call's arguments by name, defaults included."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _tensor(x):
    """A variable's value: Keras takes one of TensorFlow for a tensor."""
    return x.read_value() if hasattr(x, "read_value") else x


def _without_masked(maps, query_mask):
    """Zeros as the weights of masked queries, and the lowest logits."""
    weights, *logits = maps
    there = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
    return [blanked(weights, query_mask), *[masked_logits(x, there) for x in logits]]


def _attend_in_turn(attention, query, mask, memory, positions, mode, options):
    """One query after the other, each knowing what the earlier ones looked at."""
    batch_size, length = ops.shape(query)[:2]
    positions = ops.broadcast_to(positions, (batch_size, length))
    mask = ops.ones_like(positions) if mask is None else mask
    if mode.noise.attention is not None:  # one row serves the whole recurrence
        mode = mode._replace(noise=Noise(attention=mode.noise.attention[:, :1]))
    pairs = options.get("attention_mask")
    state = [ops.squeeze(x, 1) for x in attention.initial_state(memory)]
    constants = (memory, positions, ops.cast(mask, "bool"))
    (context, maps), _ = scan(
        _step_of(attention, options),
        ops.swapaxes(query, 0, 1),
        (state, ops.zeros((batch_size, 1), dtype="int32")),
        constants if pairs is None else (*constants, pairs),
        mode=mode,
    )
    context, maps = ops.swapaxes(context, 0, 1), ops.swapaxes(maps, 0, 1)
    if not options.get("return_logits"):
        return context, maps
    source_length = ops.shape(memory.mask)[1]
    return context, maps[..., :source_length], maps[..., source_length:]


def _step_of(attention, options):
    """One query's step, for `scan`: its state is the attention's, and whose turn it is.

    Its outputs are two, context [B, Hv] and weights [B, S], with the logits beside them
    if wanted: a loop knows the sizes of all its outputs but one.
    """

    def step(query, states, constants, mode):
        memory, positions, mask, *pairs = constants
        before, turn = states
        now = dict(options)
        if pairs:
            now["attention_mask"] = ops.take(pairs[0], turn[0], axis=1)
        context, weights, after, *logits = attention.attend(
            ops.expand_dims(query, 1),
            memory,
            ops.take_along_axis(positions, turn, axis=1),
            [ops.expand_dims(x, 1) for x in before],
            mode,
            **now,
        )
        # A masked query is as good as none: those after it do not know of it.
        there = ops.take_along_axis(mask, turn, axis=1)
        after = [
            ops.where(there, ops.squeeze(new, 1), old)
            for new, old in zip(after, before, strict=True)
        ]
        maps = ops.concatenate([weights, *logits], -1) if logits else weights
        return (ops.squeeze(context, 1), ops.squeeze(maps, 1)), (after, turn + 1)

    return step
