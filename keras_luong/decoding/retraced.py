"""A traced function of a model, traced again when the model has other weights."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


class Retraced:
    """A `tf.function` of a model, made anew where the model's variables are others.

    A graph reads the variables that there were when it was traced. Their values may
    change; but `model.quantize("int8")`, say, puts others in their place.

    Args:
        model: Returns the model. What it has in `variables`, as Keras models do, is
            compared.
        make: Returns the function, not traced yet.
    """

    def __init__(self, model: Callable[[], Any], make: Callable[[], Any]) -> None:
        self._model, self._make = model, make
        self._function: Any = None
        self._variables: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        """Calls the function."""
        if self._function is None or not self._is_fresh():
            self._function = self._make()
        found = self._function(*args)
        # Only now: a model may make its variables in its first call.
        self._variables = [weakref.ref(x) for x in _variables(self._model())]
        return found

    def _is_fresh(self):
        now = _variables(self._model())
        if len(now) != len(self._variables):
            return False
        # By reference: a new variable may have the id of one that is gone.
        return all(old() is new for old, new in zip(self._variables, now, strict=True))


def _variables(model: Any) -> list[Any]:
    return list(getattr(model, "variables", ()))
