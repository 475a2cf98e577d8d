"""Which of a test's cases the default run leaves to `make slow`."""

import pytest


def slow_but(names, *kept):
    """Cases for `parametrize`, by name: all but `kept` are slow."""
    return [
        pytest.param(name, id=name, marks=[pytest.mark.slow] * (name not in kept))
        for name in names
    ]
