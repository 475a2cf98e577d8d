"""Layers that check what they are called with, before Keras builds them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from keras_luong.compat import as_tensor, keep_dtypes, outputs_of_calls

#: What to do with a list where there must be one tensor.
UNPACK = " (several outputs are unpacked, as in memory, *state = encoder(...))"
PASS = " (pass them one by one)"

_ONE = "Tensor", "Tensor | None"
_SEVERAL = "Tensors", "Tensors | None"


class CheckedLayer(keras.layers.Layer):
    """A layer whose call says which of its arguments is missing, or is no tensor.

    An argument without a default must be given. An argument annotated `Tensor` takes no
    list; one annotated `Tensors` takes a tensor or a list of tensors. Neither takes a
    dict, whose order Keras would not keep. What a subclass of somebody's own `call`
    takes is not checked.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer."""
        _check_call(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def output(self) -> Any:
        """The symbolic outputs of the call that has the most.

        Keras has those of the first call. It counts them to see what a functional model
        has connected, also where another call returns states or weights too.
        """
        most = max(outputs_of_calls(self), key=len, default=())
        return most if len(most) > 1 else super().output


class UncastLayer(CheckedLayer):
    """A layer whose call gets its arguments in the dtypes that they have.

    A decoder gets the sum of its past alignments among its states, which is float32
    under any policy: in bfloat16 it would soon stop growing.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        keep_dtypes(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer; arrays become tensors of their own dtypes."""
        args, kwargs = keras.tree.map_structure(_tensor, (args, kwargs))
        return super().__call__(*args, **kwargs)


def _tensor(x):
    is_array = isinstance(x, np.ndarray) or hasattr(x, "assign")  # or a variable
    return as_tensor(x) if is_array else x


# Apart from `__call__`, where AutoGraph finds no `super()` beside a loop.
def _check_call(layer, args, kwargs):
    parameters = _parameters(type(layer).call)
    given = {**dict(zip(parameters, args, strict=False)), **kwargs}
    for name, parameter in parameters.items():
        value = given.get(name)
        if value is None and parameter.default is parameter.empty:
            raise TypeError(
                f"{type(layer).__name__} must be called with {name}. Received: "
                f"{name}=None"
            )
        if value is not None and parameter.annotation in _ONE + _SEVERAL:
            check_tensors(name, value, one=parameter.annotation in _ONE)


@functools.cache
def _parameters(call: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Of a `call` of this library, all but `self`; of somebody's own, none."""
    if not call.__module__.startswith("keras_luong."):
        return {}
    return dict(list(inspect.signature(call).parameters.items())[1:])


def check_tensors(name: str, values: Any, one: bool = False) -> list[Any]:
    """The tensors of a list, or of lists in it; of a tensor, itself alone.

    Raises:
        TypeError: There is something else among them, such as a dict.
        ValueError: It is to be `one` tensor, and is a list.
    """
    tensors = _leaves(values)
    is_list = isinstance(values, (list, tuple))
    may_lack = is_list and name.endswith(("mask", "query"))  # a mask; the key
    for x in tensors:
        if not (hasattr(x, "shape") or (x is None and may_lack)):
            what = f"a dict of {list(x)}" if isinstance(x, dict) else repr(x)
            several = "" if one else ", or a list of them"
            raise TypeError(
                f"{name} must be a tensor or an array{several}. "
                f"Received{f' a list with {what} in it' if is_list else f': {what}'}"
            )
    if one and is_list:
        raise ValueError(
            f"{name} must be one tensor. Received: a list of {len(values)}"
            f"{unpacking_hint(tensors, PASS)}"
        )
    return tensors


def _leaves(values):
    if not isinstance(values, (list, tuple)):
        return [values]
    return [leaf for x in values for leaf in _leaves(x)]


def unpacking_hint(items: Sequence[Any], otherwise: str = "") -> str:
    """What to add to an error where tensors look like an encoder's outputs.

    Args:
        items: Tensors or their shapes.
        otherwise: What to add where they do not.
    """
    ranks = [len(getattr(x, "shape", x) or ()) for x in items]
    encoded = ranks[:1] == [3] and set(ranks[1:]) == {2}  # a memory, then states
    return UNPACK if encoded else otherwise
