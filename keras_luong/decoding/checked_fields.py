"""Checks of a frozen dataclass's fields, field → check, as its `__post_init__` runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Check: TypeAlias = Callable[[str, Any], Any]
"""Takes a field's name and value; returns what to keep, or raises."""


def check_fields(settings: Any, checks: Mapping[str, Check]) -> None:
    """Replaces fields by what their checks return.

    Args:
        settings: A dataclass, also a frozen one, that is being made.
        checks: Field → check.
    """
    for name, check in checks.items():
        # Frozen for its users, not for its own making.
        object.__setattr__(settings, name, check(name, getattr(settings, name)))


def optional(check: Check) -> Check:
    """Returns a check that lets None pass."""
    return lambda name, value: None if value is None else check(name, value)
