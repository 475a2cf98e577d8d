"""A source prepared for attention: one, or several.

One source is a tensor [B, S, Hv]; several are a list of such tensors, each with an S
and an Hv of its own, as `MultiSourceAttention` reads them.

Shapes: B batch, S source positions, Hv/Hk value/key units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.compat import get_keras_mask
from keras_luong.layers.base import PASS, unpacking_hint
from keras_luong.types import Shape, Tensor


class Memory(NamedTuple):
    """A source prepared for attention: made once, then passed along, never stored.

    Several heads have values and keys of their own, [B, N, S, d].

    Attributes:
        values: What is averaged into the context: [B, S, Hv].
        keys: What queries are scored against, projected already: [B, S, Hk]; a tuple
            of such tensors where an attention has several scores.
        mask: True where there is a word: bool [B, S]; None if that is everywhere.
        lengths: True source lengths: int32 [B].
        first: The place of the first word, 0 unless padding is on the left: int32 [B].

    Example:
        >>> attention = kl.LuongAttention()
        >>> attention.build((2, 1, 8), (2, 5, 6))
        >>> memory = attention.prepare(keras.ops.ones((2, 5, 6)))
        >>> tuple(memory.values.shape), tuple(memory.keys.shape)
        ((2, 5, 6), (2, 5, 8))
    """

    values: Tensor
    keys: Any
    mask: Tensor | None
    lengths: Tensor
    first: Tensor


def mask_of(source: Any, mask: Any = None) -> Any:
    """The mask that is given, or else the implicit Keras mask of a source, or None.

    Keras itself hands on implicit masks to calls of layers, but to no other method.

    Args:
        source: [B, S, Hv]; or a list of several.
        mask: bool [B, S] likewise, or None.
    """
    if mask is not None:
        return mask
    if isinstance(source, (list, tuple)):
        return [get_keras_mask(one) for one in source]
    return get_keras_mask(source)


def make_memory(values: Tensor, keys: Any, mask: Tensor | None = None) -> Memory:
    """A `Memory` with its lengths, of values that are `blanked` where masked."""
    if mask is None:
        batch_size, length = ops.shape(values)[:2]
        lengths = ops.full((batch_size,), length, "int32")
        return Memory(values, keys, None, lengths, ops.zeros_like(lengths))
    mask = ops.cast(mask, "bool")
    words = ops.cast(mask, "int32")
    first = ops.cast(ops.argmax(words, axis=-1), "int32")
    return Memory(values, keys, mask, ops.sum(words, axis=-1), first)


def blanked(x: Tensor, mask: Tensor | None) -> Tensor:
    """Zeros where the mask [B, n] is False, even in the place of NaN: [B, n, H].

    Weight 0 is not enough where padding holds NaN or infinity: 0 times it is NaN.
    """
    if mask is None:
        return x
    mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
    return ops.where(mask, x, ops.zeros((), x.dtype))


def weights_dtype(dtype: Any) -> str:
    """Dtype of the weights of scores of a dtype: float32, or float64 for float64."""
    return keras.backend.result_type(keras.backend.standardize_dtype(dtype), "float32")


def is_several(shape: Any) -> bool:
    """Whether a shape, as `build` gets it, is a list of shapes."""
    return any(isinstance(size, (list, tuple)) for size in shape)


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
    """Names the axes of sources and masks, for `keras_luong.checks.check_axes`.

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


def source_sizes(shape: Any) -> Any:
    """The size Hv of one source, or the sizes of several."""
    return tuple(one[-1] for one in shape) if is_several(shape) else shape[-1]


def source_shapes(shape: Any) -> Any:
    """The shape (B, S, Hv) of one source, or a list of those of several.

    Args:
        shape: Likewise, or the shapes of what `prepare` made of them.
    """
    if hasattr(shape, "each"):
        return [source_shapes(one) for one in shape.each]
    if hasattr(shape, "values") and hasattr(shape, "mask"):
        mask = shape.values[:2] if shape.mask is None else shape.mask
        return (*mask, shape.values[-1])
    return [tuple(one) for one in shape] if is_several(shape) else tuple(shape)


def joined_shape(shape: Any) -> Shape:
    """The shape [B, S, Hv] of all sources side by side: lengths and sizes add up.

    Args:
        shape: Of one source, (B, S, Hv), or a list of such shapes.

    Raises:
        ValueError: If one of these has not three axes.

    Example:
        >>> from keras_luong.layers.memory import joined_shape
        >>> joined_shape([(2, 5, 8), (2, None, 4)])
        (2, None, 12)
    """
    if not is_several(shape):
        return tuple(shape)
    for i, one in enumerate(shape):
        if len(one) != 3:
            raise ValueError(
                f"memory[{i}] must have 3 axes, [batch size, source length, size]. "
                f"Received: shape {tuple(one)}"
            )
    axes = [tuple(sizes) for sizes in zip(*shape, strict=True)]
    sums = [None if None in sizes else sum(sizes) for sizes in axes[1:]]
    return (axes[0][0], *sums)


def prepared_lengths(memory: Any) -> Any:
    """The length S of a prepared source, or a list of those of several."""
    if hasattr(memory, "each"):
        return [prepared_lengths(one) for one in memory.each]
    return memory.values.shape[-2] if memory.mask is None else memory.mask.shape[1]


def batch_and_length(memory: Any) -> tuple[Any, Any]:
    """The sizes B and S of a prepared source; S is the sum of those of several."""
    if memory.mask is not None:
        return ops.shape(memory.mask)
    shape = ops.shape(memory.values)
    return shape[0], shape[-2]


def state_lengths(attention: Any, source_length: Any) -> list[int | None]:
    """The last axis of each state that an attention, or None, carries along."""
    if attention is None or not attention.has_state:
        return []
    if hasattr(attention, "state_lengths"):
        return attention.state_lengths(source_length)
    return [source_length]
