"""Which of a test's cases the default run leaves to `make slow`."""

import pytest


def slow_but(names, *kept):
    """Cases for `parametrize`, by name: all but `kept` are slow."""
    mark = pytest.mark.slow
    return [pytest.param(x, id=x, marks=[mark] * (x not in kept)) for x in names]
