"""A traced function of a model, traced again when the model has other weights."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, cast

import tensorflow as tf

Method = TypeVar("Method", bound=Callable[..., Any])


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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the function."""
        if self._function is None or not self._is_fresh():
            self._function = self._make()
        found = self._function(*args, **kwargs)
        # Only now: a model may make its variables in its first call.
        self._variables = [weakref.ref(x) for x in _variables(self._model())]
        return found

    def _is_fresh(self):
        now = _variables(self._model())
        if len(now) != len(self._variables):
            return False
        # By reference: a new variable may have the id of one that is gone.
        return all(old() is new for old, new in zip(self._variables, now, strict=True))


def retraced(*signature: tf.TensorSpec) -> Callable[[Method], Method]:
    """Decorates a method of objects with a `model`: each runs it in a graph of its own.

    Args:
        *signature: What its arguments are.
    """

    def decorate(method: Method) -> Method:
        name = f"_traced_{method.__name__}"

        @functools.wraps(method)
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if name not in vars(self):
                vars(self)[name] = Retraced(lambda: self.model, lambda: trace(self))
            return vars(self)[name](*args, **kwargs)

        def trace(self: Any) -> Any:
            own = functools.partial(method, self)
            return tf.function(own, input_signature=signature, autograph=False)

        return cast(Method, run)

    return decorate


def _variables(model: Any) -> list[Any]:
    return list(getattr(model, "variables", ()))
