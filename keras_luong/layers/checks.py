"""Checks of constructor arguments, each naming the value that it received."""

from __future__ import annotations

import numbers


def check_size(name, value, optional=False):
    """Returns `value` if it is a positive int (or None, when `optional`)."""
    if optional and value is None:
        return None
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(f"{name} must be a positive integer. Received: {value!r}")
    return int(value)


def check_rate(name, value):
    """Returns `value` if it is a dropout rate, a number in [0, 1)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number in [0, 1). Received: {value!r}")
    if not 0 <= value < 1:
        raise ValueError(f"{name} must be in [0, 1). Received: {value!r}")
    return float(value)


def check_flag(name, value):
    """Returns `value` if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False. Received: {value!r}")
    return value


def check_choice(name, value, choices):
    """Returns `value` if it is one of `choices`."""
    if not (value is None or isinstance(value, str)) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}. Received: {value!r}")
    return value
