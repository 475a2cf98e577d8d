"""A memory: a source prepared for attention.

Shapes: B batch, S source positions, Hv/Hk value/key units.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.compat import get_keras_mask
from keras_luong.types import Tensor


class Memory(NamedTuple):
    """A source prepared for attention: made once, then passed along, never stored.

    Several heads have values and keys of their own, [B, N, S, d].

    Attributes:
        values: What is averaged into the context: [B, S, Hv].
        keys: What queries are scored against, projected already: [B, S, Hk]; a tuple
            of such tensors where an attention has several scores.
        mask: True where there is a word: bool [B, S].
        lengths: True source lengths: int32 [B].

    Example:
        >>> attention = kl.LuongAttention()
        >>> attention.build((2, 1, 8), (2, 5, 6))
        >>> memory = attention.prepare(keras.ops.ones((2, 5, 6)))
        >>> tuple(memory.values.shape), tuple(memory.keys.shape)
        ((2, 5, 6), (2, 5, 8))
    """

    values: Tensor
    keys: Any
    mask: Tensor
    lengths: Tensor


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
    """A `Memory` with its lengths; without a mask every position is a word."""
    if mask is None:
        mask = ops.ones(ops.shape(values)[:2], dtype="bool")
    mask = ops.cast(mask, "bool")
    # Weight 0 is not enough where padding holds NaN or infinity: 0 times it is NaN.
    values, keys = keras.tree.map_structure(lambda x: blanked(x, mask), (values, keys))
    return Memory(values, keys, mask, ops.sum(ops.cast(mask, "int32"), axis=-1))


def blanked(x: Tensor, mask: Tensor) -> Tensor:
    """Zeros where the mask [B, n] is False, even in the place of NaN: [B, n, H]."""
    mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
    return ops.where(mask, x, ops.zeros_like(x))
