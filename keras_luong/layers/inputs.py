"""What an attention layer is called with, in Keras's two forms; checked, made uniform.

Shapes: B batch, Q queries, Hq/Hv/Hk query/value/key units. A source has one axis [B, S,
Hv], or several that are one to the attention: [B, h, w, Hv] has S = h w positions.

One source or several: what a decoder asks of either.

One source is a tensor [B, S, Hv]; several are a list of such tensors, each with an S
and an Hv of its own, as `MultiSourceAttention` reads them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_luong.checks import check_axes
from keras_luong.layers.base import PASS, check_tensors, unpacking_hint
from keras_luong.layers.normalizers import Memory
from keras_luong.types import Shape, Tensor


def joined_shape(shape: Any) -> Shape:
    """The shape [B, S, Hv] of all sources side by side: lengths and sizes add up.

    Args:
        shape: Of one source, (B, S, Hv), or a list of such shapes.

    Example:
        >>> from keras_luong.layers.inputs import joined_shape
        >>> joined_shape([(2, 5, 8), (2, None, 4)])
        (2, None, 12)
    """
    if not is_several(shape):
        return tuple(shape)
    axes = [tuple(sizes) for sizes in zip(*shape, strict=True)]
    sums = [None if None in sizes else sum(sizes) for sizes in axes[1:]]
    return (axes[0][0], *sums)


def source_shapes(shape: Any) -> Any:
    """The shape (B, S, Hv) of one source, or a list of those of several.

    Args:
        shape: Likewise, or the shapes of what `prepare` made of them.
    """
    if hasattr(shape, "each"):
        return [source_shapes(one) for one in shape.each]
    if hasattr(shape, "values") and hasattr(shape, "mask"):
        return (*shape.mask, shape.values[-1])
    return [tuple(one) for one in shape] if is_several(shape) else tuple(shape)


def prepared_lengths(memory: Any) -> Any:
    """The length S of a prepared source, or a list of those of several."""
    if hasattr(memory, "each"):
        return [one.mask.shape[1] for one in memory.each]
    return memory.mask.shape[1]


def is_several(shape: Any) -> bool:
    """Whether a shape, as `build` gets it, is a list of shapes."""
    return any(isinstance(size, (list, tuple)) for size in shape)


def source_sizes(shape: Any) -> Any:
    """The size Hv of one source, or the sizes of several."""
    return tuple(one[-1] for one in shape) if is_several(shape) else shape[-1]


def shapes_of(sources: Any) -> Any:
    """The shape of one tensor, or a list of those of several; () for None."""
    if isinstance(sources, (list, tuple)):
        return [shapes_of(x) for x in sources]
    return tuple(getattr(sources, "shape", ()))


def check_count(name: str, shape: Any, expected: int | None) -> None:
    """Raises ValueError unless there are as many sources as an attention reads.

    Args:
        name: What they are.
        shape: The shape of one, or a list of shapes.
        expected: How many there must be in a list; None for one source and no list.
    """
    received = len(shape) if is_several(shape) else None
    if received != expected:
        wanted, got = [
            "one tensor" if count is None else f"a list of {count}"
            for count in (expected, received)
        ]
        hint = ""
        if received is not None:
            hint = unpacking_hint(shape, PASS if expected is None else "")
        raise ValueError(
            f"{name} must be {wanted}, as the attention reads it (MultiSourceAttention "
            f"reads lists). Received: {got}{hint}"
        )
    for i in range(received or 0):
        check_count(f"{name}[{i}]", shape[i], None)


def source_axes(memory: Any, mask: Any, sizes: Any) -> dict[str, Any]:
    """What the axes of sources and masks are, for `keras_luong.checks.check_axes`.

    Args:
        memory: One source or several.
        mask: Masks bool [B, S] likewise, or None.
        sizes: `source_sizes` of what the layer was built for.

    Raises:
        ValueError: There are more or fewer sources, or masks, than there must be.
    """
    count = len(sizes) if isinstance(sizes, tuple) else None
    check_count("memory", shapes_of(memory), count)
    if mask is not None:
        check_count("memory_mask", shapes_of(mask), count)
    if count is None:
        return {
            "memory": (memory, "batch size", "source length", sizes),
            "memory_mask": (mask, "batch size", "source length"),
        }
    axes: dict[str, Any] = {}
    for i, (x, one, size) in enumerate(
        zip(memory, mask or [None] * count, sizes, strict=True)
    ):
        length = f"length of source {i}"
        axes[f"memory[{i}]"] = (x, "batch size", length, size)
        axes[f"memory_mask[{i}]"] = (one, "batch size", length)
    return axes


def state_lengths(attention: Any, source_length: Any) -> list[int | None]:
    """The last axis of each state that an attention, or None, carries along."""
    if attention is None or not attention.has_state:
        return []
    if hasattr(attention, "state_lengths"):
        return attention.state_lengths(source_length)
    return [source_length]


FORMS = (
    "attention(query, value), attention(query, value, key), or these in a list as in "
    "keras.layers.Attention"
)


class AttentionInputs(NamedTuple):
    """The tensors of a call; all but the first two may be None.

    Attributes:
        query: [B, Q, Hq].
        value: [B, S, Hv] or [B, h, w, Hv].
        key: Like `value`, [B, S, Hk].
        query_mask: [B, Q].
        value_mask: [B, S] or [B, h, w].
        key_mask: Likewise.
        attention_mask: [B, Q, S] or [B, Q, h, w]; axes of 1, and no B, are spread.
        positions: int [B or 1, Q].
    """

    query: Tensor
    value: Tensor
    key: Tensor | None
    query_mask: Tensor | None
    value_mask: Tensor | None
    key_mask: Tensor | None
    attention_mask: Tensor | None
    positions: Tensor | None


def read_inputs(
    inputs: AttentionInputs,
    mask: Any = None,
    source_axes: int | None = None,
    sizes: Sequence[int | None] = (None, None, None),
) -> AttentionInputs:
    """The tensors of a call, of either form, checked.

    Args:
        inputs: The arguments of the call; a list of tensors as `query` is Keras's form.
        mask: Keras's `mask` argument, a list, which replaces the three masks.
        source_axes: How many axes of positions the source must have; any number by
            default.
        sizes: Hq, Hv and Hk, once they are known.

    Returns:
        The tensors, none of them in a list any more.

    Raises:
        ValueError, TypeError: There is one tensor only, or their ranks, sizes or dtypes
            do not fit together.
    """
    if isinstance(inputs.positions, (list, tuple)):
        with contextlib.suppress(ValueError):  # of tensors of several shapes
            inputs = inputs._replace(positions=np.asarray(inputs.positions))
    inputs = _with_masks(_from_lists(inputs), mask)
    _check(inputs, source_axes, sizes)
    return inputs


def unpack_shapes(query: Any, value: Any, key: Any) -> tuple[Shape, Shape, Shape]:
    """Shapes [B, n, H] of query, value and key, given one by one or in a list."""
    if query and isinstance(query[0], (list, tuple)):
        query, value, key = _padded("query", query)
    _require_value(query, value)
    key = key or value
    for name, shape in (("query", query), ("value", value), ("key", key)):
        check_count(name, shape, None)
    value, key = tuple(value), tuple(key)
    return tuple(query), _in_a_row(value), _in_a_row(key)


def _require_value(query, value):
    """Raises ValueError where there is a query alone."""
    if value is None:
        shape = tuple(getattr(query, "shape", query))
        raise ValueError(
            "An attention layer needs a query and a value: "
            f"{FORMS}. Received one tensor: query.shape={shape}"
        )


def _in_a_row(shape):
    """[B, S, H] of the shape of a source [B, h, w, H]."""
    return shape if len(shape) <= 3 else (shape[0], None, shape[-1])


def _padded(name: str, items: Sequence[Any]) -> list[Any]:
    hint = unpacking_hint(items)
    if hint or len(items) not in (2, 3):
        raise ValueError(
            f"{name} must have 2 or 3 elements, for query, value and perhaps key. "
            f"Received{' what an encoder returns' if hint else ''}: a list of "
            f"{len(items)}{hint}"
        )
    return [*items, None][:3]


def _from_lists(inputs):
    """Keras finds the implicit masks of a list, and hands them on in a list."""
    if not isinstance(inputs.query, (list, tuple)):
        return inputs
    if inputs.value is not None:
        hint = unpacking_hint(inputs.query, PASS)
        raise ValueError(
            f"Call it with a list or with several tensors: {FORMS}. Received both: "
            f"query is a list of {len(inputs.query)}{hint}"
        )
    query, value, key = _padded("query", inputs.query)
    inputs = inputs._replace(query=query, value=value, key=key)
    if isinstance(inputs.query_mask, (list, tuple)):
        query_mask, value_mask, key_mask = _padded("query_mask", inputs.query_mask)
        inputs = inputs._replace(
            query_mask=query_mask,
            value_mask=value_mask if inputs.value_mask is None else inputs.value_mask,
            key_mask=key_mask if inputs.key_mask is None else inputs.key_mask,
        )
    return inputs


def _with_masks(inputs, mask):
    """With Keras's `mask=[query_mask, value_mask]`, which replaces all others."""
    if mask is None:
        return inputs
    if not isinstance(mask, (list, tuple)):
        raise ValueError(
            "mask must be a list, [query_mask, value_mask] or [query_mask, value_mask, "
            f"key_mask]. Received: {type(mask).__name__}"
        )
    query_mask, value_mask, key_mask = _padded("mask", mask)
    return inputs._replace(
        query_mask=query_mask, value_mask=value_mask, key_mask=key_mask
    )


def _check(inputs, source_axes, sizes):
    """Raises unless ranks, batch sizes and lengths fit together, and floats are floats.

    Integers would have been averaged by weights that are rounded to 0.
    """
    _require_value(inputs.query, inputs.value)
    for name, x in inputs._asdict().items():
        if x is not None:
            check_tensors(name, x, one=True)
    for name in ("query", "value", "key"):
        x = getattr(inputs, name)
        dtype = None if x is None else keras.backend.standardize_dtype(x.dtype)
        if dtype and "float" not in dtype:
            raise TypeError(f"{name} must be floating. Received: {name}.dtype={dtype}")
    source = _source_names(inputs.value, source_axes)
    of_query, of_value, of_key = sizes
    axes = {
        "query": ("batch size", "query length", of_query),
        "value": ("batch size", *source, of_value),
        "key": ("batch size", *source, of_key),
        "query_mask": ("batch size", "query length"),
        "value_mask": ("batch size", *source),
        "key_mask": ("batch size", *source),
        "attention_mask": ("batch size", "query length", *source),
        "positions": ("batch size", "query length"),
    }
    pairs = inputs.attention_mask
    if pairs is not None and len(pairs.shape) == 1 + len(source):
        axes["attention_mask"] = axes["attention_mask"][1:]
    check_axes(
        **{
            name: (x, *_fitting(x, axes[name], name == "attention_mask"))
            for name, x in inputs._asdict().items()
            if x is not None
        }
    )


def _fitting(x, names, every):
    """Names of axes; None where 1 fits any size: in the batch, or in `every` axis."""
    sizes = tuple(x.shape)[: len(names) if every else 1]
    ones = [size == 1 for size in sizes] + [False] * len(names)
    return [None if one else name for name, one in zip(names, ones, strict=False)]


def _source_names(value, count):
    rank = len(value.shape)
    if count is None:
        count = max(1, rank - 2)
    if count == 1:
        return ("source length",)
    return tuple(f"source axis {i}" for i in range(1, count + 1))


def shared_batch_size(*tensors: Tensor | None) -> Any:
    """The batch size of tensors of which some have 1; None if all have the same.

    What is not known when a graph is made is left to broadcasting.
    """
    there = [x for x in tensors if x is not None]
    others = [x for x in there if x.shape[0] != 1]
    if not others or len(others) == len(there):
        return None
    return ops.shape(others[0])[0]


def spread(x: Tensor | None, batch_size: Any) -> Tensor | None:
    """Repeats [1, ...] for a whole batch; leaves other tensors as they are."""
    if x is None or x.shape[0] != 1:
        return x
    return ops.broadcast_to(x, (batch_size, *ops.shape(x)[1:]))


def spread_memory(memory: Memory, batch_size: Any) -> Memory:
    """A memory of one source, or with one mask, for a whole batch."""
    return keras.tree.map_structure(lambda x: spread(x, batch_size), memory)


def flattened(x: Tensor | None, first: int, last: int) -> Tensor | None:
    """Makes one axis of all but the `first` and the `last` so many of them."""
    if x is None or len(x.shape) == first + 1 + last:
        return x
    shape = ops.shape(x)
    return ops.reshape(x, (*shape[:first], -1, *shape[len(shape) - last :]))


def as_source(x: Tensor, value: Tensor) -> Tensor:
    """Gives [B, Q, S] the axes of a source [B, h, w, Hv]: [B, Q, h, w]."""
    if len(value.shape) == 3:
        return x
    return ops.reshape(x, (*ops.shape(x)[:2], *ops.shape(value)[1:-1]))


def combined_masks(*masks: Tensor | None) -> Tensor | None:
    """True where all of them are that there are; None if there are none."""
    there = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    for mask in there[1:]:
        there[0] = ops.logical_and(there[0], mask)
    return there[0] if there else None


def pair_mask(
    inputs: AttentionInputs, positions: Tensor, use_causal_mask: bool
) -> Tensor | None:
    """What each query may attend to: bool [B or 1, Q, S], or None for anything.

    Raises:
        ValueError: A causal mask of a source that has no order.
    """
    mask = inputs.attention_mask
    if mask is not None:  # [Q, S] is the same for the whole batch, as in Keras
        if len(mask.shape) < len(inputs.value.shape):
            mask = ops.expand_dims(mask, 0)
        queries, source = ops.shape(inputs.query)[1], ops.shape(inputs.value)[1:-1]
        mask = ops.broadcast_to(mask, (ops.shape(mask)[0], queries, *source))
        mask = flattened(mask, 2, 0)
    if not use_causal_mask:
        return combined_masks(mask)
    if len(inputs.value.shape) > 3:
        raise ValueError(
            "use_causal_mask=True needs a source of one axis, [B, S, Hv]. Received: "
            f"value.shape={tuple(inputs.value.shape)}"
        )
    source = ops.arange(ops.shape(inputs.value)[1], dtype="int32")
    positions = ops.expand_dims(ops.cast(positions, "int32"), -1)
    return combined_masks(positions >= source, mask)
