"""Checks of arguments, each naming the value that it received."""

from __future__ import annotations

import numbers
import os
from pathlib import Path


def check_size(name, value, optional=False, smallest=1, largest=None):
    """Returns `value` if it is an int that is not too small, or None if `optional`.

    Raises:
        TypeError: It is not an integer.
        ValueError: It is below `smallest`, or above `largest` if there is one.
    """
    if optional and value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(
            f"{name} must be an integer{' or None' * optional}. Received: {value!r}"
        )
    if value < smallest:
        raise ValueError(f"{name} must be at least {smallest}. Received: {value!r}")
    if largest is not None and value > largest:
        raise ValueError(f"{name} must be at most {largest}. Received: {value!r}")
    return int(value)


def check_rate(name, value):
    """Returns `value` if it is a rate, a number in [0, 1).

    Raises:
        TypeError: It is no number.
        ValueError: It is outside.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number in [0, 1). Received: {value!r}")
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1). Received: {value!r}")
    return float(value)


def check_above(name, value, limit):
    """Returns `value` if it is a number above `limit`.

    Raises:
        TypeError: It is no number.
        ValueError: It is not above.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number. Received: {value!r}")
    if not value > limit:
        raise ValueError(f"{name} must be above {limit}. Received: {value!r}")
    return float(value)


def check_not_negative(name, value):
    """Returns `value` as a float if it is at least 0 and finite, also in float32.

    Raises:
        TypeError: It is no number.
        ValueError: It is below 0, too large, infinite or NaN.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number. Received: {value!r}")
    if not 0 <= value <= 3e38:
        raise ValueError(f"{name} must be finite and not negative. Received: {value!r}")
    return float(value)


def check_flag(name, value):
    """Returns `value` if it is True or False; raises TypeError."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False. Received: {value!r}")
    return value


def check_choice(name, value, choices):
    """Returns `value` if it is one of `choices`; raises ValueError."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}. Received: {value!r}")
    return value


def check_path(name, value):
    """Returns `value` as a Path if it is one or a string; raises TypeError."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path. Received: {value!r}")
    return Path(value)


def check_same(what, **sizes):
    """Raises ValueError where sizes that must be equal are known and differ."""
    known = {name: size for name, size in sizes.items() if size is not None}
    if len(set(known.values())) > 1:
        received = ", ".join(f"{name}: {size}" for name, size in known.items())
        raise ValueError(f"{what} must be the same everywhere. Received: {received}")


def check_axes(**tensors):
    """Raises ValueError where tensors have other axes than they must.

    Args:
        **tensors: By name, (tensor or None, what each of its axes is). Axes of one name
            must have one size, where it is known; axes called None may have any, and
            axes that are numbers must have just that size.
    """
    sizes = {}
    for name, (tensor, *axes) in tensors.items():
        if tensor is None:
            continue
        shape = tuple(tensor.shape)
        if len(shape) != len(axes):
            raise ValueError(
                f"{name} must have {len(axes)} axes. Received: {name}.shape={shape}"
            )
        for i, (axis, size) in enumerate(zip(axes, shape, strict=True)):
            if isinstance(axis, int) and size not in (axis, None):
                raise ValueError(
                    f"Axis {i} of {name} must be {axis}. Received: {name}.shape={shape}"
                )
            if isinstance(axis, str):
                sizes.setdefault(axis, {})[name] = size
    for axis, by_name in sizes.items():
        check_same(axis.capitalize(), **by_name)
