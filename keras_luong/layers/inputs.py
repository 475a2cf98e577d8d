"""The inputs of an attention layer's call, in Keras's two forms: checked, made uniform.

Shapes: B batch, Q queries, Hq/Hv/Hk query/value/key units. A source has one axis [B, S,
Hv], or several that are one to the attention: [B, h, w, Hv] has S = h w positions.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_luong.checks import check_axes
from keras_luong.layers.base import PASS, check_tensors, unpacking_hint
from keras_luong.layers.memory import check_count
from keras_luong.types import Shape, Tensor

FORMS = (
    "attention(query, value), attention(query, value, key), or these in a list as in "
    "keras.layers.Attention"
)
MASKS = "query_mask", "value_mask", "key_mask"


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
    # 1. Keras's form. It finds the implicit masks of a list, and hands on a list.
    if isinstance(inputs.query, (list, tuple)):
        if inputs.value is not None:
            hint = unpacking_hint(inputs.query, PASS)
            raise ValueError(
                f"Call it with a list or with several tensors: {FORMS}. Received both: "
                f"query is a list of {len(inputs.query)}{hint}"
            )
        query, value, key = _two_or_three("query", inputs.query)
        inputs = inputs._replace(query=query, value=value, key=key)
        if isinstance(inputs.query_mask, (list, tuple)):
            implicit = _two_or_three("query_mask", inputs.query_mask)
            masks: dict[str, Any] = dict(zip(MASKS, implicit, strict=True))
            for name in MASKS[1:]:
                explicit = getattr(inputs, name)
                masks[name] = masks[name] if explicit is None else explicit
            inputs = inputs._replace(**masks)
    # 2. Other things that may be lists.
    if mask is not None:
        if not isinstance(mask, (list, tuple)):
            raise ValueError(
                "mask must be a list, [query_mask, value_mask] or [query_mask, "
                f"value_mask, key_mask]. Received: {type(mask).__name__}"
            )
        masks = dict(zip(MASKS, _two_or_three("mask", mask), strict=True))
        inputs = inputs._replace(**masks)
    if isinstance(inputs.positions, (list, tuple)):
        with contextlib.suppress(ValueError):  # of tensors of several shapes
            inputs = inputs._replace(positions=np.asarray(inputs.positions))
    # 3. Tensors, of floats: integers would be averaged by weights that round to 0.
    _require_value(inputs.query, inputs.value)
    tensors = {name: x for name, x in inputs._asdict().items() if x is not None}
    for name, x in tensors.items():
        check_tensors(name, x, one=True)
        if name in ("query", "value", "key"):
            dtype = keras.backend.standardize_dtype(x.dtype)
            if "float" not in dtype:
                raise TypeError(
                    f"{name} must be floating. Received: {name}.dtype={dtype}"
                )
    # 4. Ranks and sizes fit. A batch size of 1 fits any, and so do a mask's axes.
    count = source_axes or max(1, len(inputs.value.shape) - 2)
    source = ["source length"]
    if count > 1:
        source = [f"source axis {i}" for i in range(1, count + 1)]
    axes: dict[str, list[Any]] = {
        "query": ["batch size", "query length", sizes[0]],
        "value": ["batch size", *source, sizes[1]],
        "key": ["batch size", *source, sizes[2]],
        "query_mask": ["batch size", "query length"],
        "value_mask": ["batch size", *source],
        "key_mask": ["batch size", *source],
        "attention_mask": ["batch size", "query length", *source],
        "positions": ["batch size", "query length"],
    }
    for name, x in tensors.items():
        names, shape, loose = axes[name], tuple(x.shape), 1
        if name == "attention_mask":  # [Q, S] is the same for the whole batch
            names = names[1:] if len(shape) == len(names) - 1 else names
            loose = len(names)
        fits = [i < loose and shape[i : i + 1] == (1,) for i in range(len(names))]
        axes[name] = [None if fit else n for fit, n in zip(fits, names, strict=True)]
    check_axes(**{name: (x, *axes[name]) for name, x in tensors.items()})
    return inputs


def unpack_shapes(query: Any, value: Any, key: Any) -> tuple[Shape, Shape, Shape]:
    """Shapes [B, n, H] of query, value and key, given one by one or in a list."""
    if query and isinstance(query[0], (list, tuple)):
        query, value, key = _two_or_three("query", query)
    _require_value(query, value)
    shapes = []
    for name, shape in (("query", query), ("value", value), ("key", key or value)):
        check_count(name, shape, None)
        if name != "query" and len(shape) > 3:  # one row of positions to the score
            shape = shape[0], None, shape[-1]
        shapes.append(tuple(shape))
    return shapes[0], shapes[1], shapes[2]


def _two_or_three(name, items):
    """[query, value, key or None], or their masks."""
    hint = unpacking_hint(items)
    if hint or len(items) not in (2, 3):
        raise ValueError(
            f"{name} must have 2 or 3 elements, for query, value and perhaps key. "
            f"Received{' what an encoder returns' if hint else ''}: a list of "
            f"{len(items)}{hint}"
        )
    return [*items, None][:3]


def _require_value(query, value):
    """Raises ValueError where there is a query alone."""
    if value is None:
        shape = tuple(getattr(query, "shape", query))
        raise ValueError(
            "An attention layer needs a query and a value: "
            f"{FORMS}. Received one tensor: query.shape={shape}"
        )


def spread_batch(tensors: Any, inputs: Sequence[Any], at_run_time: bool = False) -> Any:
    """Repeats what has a batch size of 1 for the batch of the other tensors.

    Args:
        tensors: Nest of tensors [B or 1, ...], None among them.
        inputs: All the tensors that have a batch, or None.
        at_run_time: Whether to repeat also where the batch size is not known when a
            graph is made, which is otherwise left to broadcasting.
    """
    batches = [x for x in inputs if x is not None]
    sizes = {x.shape[0] for x in batches}
    if at_run_time and None in sizes:
        size = functools.reduce(ops.maximum, [ops.shape(x)[0] for x in batches])
    elif 1 in sizes and len(sizes) > 1:
        size = ops.shape(next(x for x in batches if x.shape[0] != 1))[0]
    else:
        return tensors

    def spread(x):
        if x is None or not (x.shape[0] == 1 or (at_run_time and x.shape[0] is None)):
            return x
        return ops.broadcast_to(x, (size, *ops.shape(x)[1:]))

    return keras.tree.map_structure(spread, tensors)


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
    """True where all of the masks are that are not None; None if there are none."""
    bools = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return functools.reduce(ops.logical_and, bools) if bools else None


def pair_masks(memory: Any, attention_mask: Tensor | None) -> Tensor | None:
    """Where each query may attend to, [B, Q or 1, S]: where both masks are True."""
    mask = None if memory.mask is None else ops.expand_dims(memory.mask, 1)
    return combined_masks(mask, attention_mask)


def pair_mask(
    inputs: AttentionInputs, positions: Tensor, use_causal_mask: bool
) -> Tensor | None:
    """Where each query may attend to: bool [B or 1, Q, S], or None for anywhere.

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
