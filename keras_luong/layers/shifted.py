"""What stands some places away."""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_luong.types import Tensor


def shifted(x: Tensor, places: Any) -> Tensor:
    """Moves x along its last axis, where zeros come in.

    Args:
        x: [..., S].
        places: How far to the right, an int or an int tensor; an int may be negative,
            which is to the left.

    Returns:
        [..., S].
    """
    if not isinstance(places, int):  # in a loop, where no slice has a fixed size
        source = ops.arange(ops.shape(x)[-1]) - places
        return ops.where(source >= 0, ops.take(x, ops.maximum(source, 0), axis=-1), 0)
    if places == 0:
        return x
    nothing = [(0, 0)] * (len(x.shape) - 1)
    if places > 0:
        return ops.pad(x, [*nothing, (places, 0)])[..., :-places]
    return ops.pad(x, [*nothing, (0, -places)])[..., -places:]
