"""Checks of a dataclass's fields, to be run by its `__post_init__`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[str, Any], Any]
"""A function of a field's name and value that returns the value to keep, or raises."""


def check_fields(settings: Any, checks: Mapping[str, Check]) -> None:
    """Checks fields, and replaces them by the values that the checks return.

    Args:
        settings: An instance of a dataclass, frozen or not.
        checks: Field → check.
    """
    for name, check in checks.items():
        # Works for frozen ones too.
        object.__setattr__(settings, name, check(name, getattr(settings, name)))


def optional(check: Check) -> Check:
    """Returns a check that lets None pass."""
    return lambda name, value: None if value is None else check(name, value)
