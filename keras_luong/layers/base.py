"""The base of the library's layers: what `keras.layers.Layer` lacks.

Layers of the library say which argument of a call is missing or is no tensor, rebuild
the layers that they are made of from their configuration, and can store their matrices
in int8: a quarter of the size, almost as exact. As in `keras.layers.Dense`, every
column of a matrix has a scale of its own. Only weights are quantized: a matrix is
multiplied out where it is read.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_luong.compat import as_tensor, keep_dtypes, outputs_of_calls

#: What to do with a list where there must be one tensor.
UNPACK = " (several outputs are unpacked, as in memory, *state = encoder(...))"
PASS = " (pass them one by one)"

_ONE = "Tensor", "Tensor | None"
_SEVERAL = "Tensors", "Tensors | None"


class BaseLayer(keras.layers.Layer):
    """Base of layers that check their calls, keep their parts, and can be quantized.

    * An argument of `call` without a default must be given. One annotated `Tensor`
      takes no list; one annotated `Tensors` takes a tensor or a list of tensors.
      Neither takes a dict, whose order Keras would not keep. The arguments of a `call`
      that is not the library's own are not checked.
    * `from_config` rebuilds the constructor's arguments that `_nested` names. What
      stands there in the configuration is from `compat.serialize_shared`.
    * `quantize("int8")` stores in int8 the weights that are made by `add_kernel` and
      declared as a `Kernel`, and so does `quantize("int8")` of a model that the layer
      is in. `add_kernel` reads `kernel_initializer`, `kernel_regularizer` and
      `kernel_constraint`.

    Args:
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Example:
        >>> attention = kl.LuongAttention("general")  # whose score is a BaseLayer too
        >>> attention.build((2, 1, 8), (2, 5, 8))
        >>> attention.quantize("int8")
        >>> [weight.dtype for weight in attention.score.weights]
        ['int8', 'float32']
    """

    #: The constructor's arguments that may be objects, or lists of them.
    _nested: tuple[str, ...] = ()

    #: Whether a call gets its arguments in the dtypes that they have. A decoder must:
    #: the sum of past alignments among its states is float32 under any policy, and
    #: would soon stop growing in bfloat16.
    _keeps_dtypes = False

    kernel_initializer: Any = keras.initializers.GlorotUniform()
    kernel_regularizer: Any = None
    kernel_constraint: Any = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if self._keeps_dtypes:
            keep_dtypes(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the layer."""
        if self._keeps_dtypes:
            args, kwargs = keras.tree.map_structure(_own_dtype, (args, kwargs))
        _check_call(self, args, kwargs)
        return super().__call__(*args, **kwargs)

    @property
    def _parts(self) -> Sequence[Any]:
        """Layers that are quantized with this one."""
        return ()

    @property
    def output(self) -> Any:
        """The symbolic outputs of the call that has the most.

        Keras has those of the first call. It counts them to see what a functional model
        has connected, also where another call returns states or weights too.
        """
        most = max(outputs_of_calls(self), key=len, default=())
        return most if len(most) > 1 else super().output

    @classmethod
    def from_config(cls: Any, config: dict[str, Any]) -> Any:
        """Rebuilds the layer, and the layers that it was given."""
        objects = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in cls._nested
            if isinstance(config.get(name), (dict, list))  # and no name, such as "dot"
        }
        return cls(**{**config, **objects})

    def add_kernel(self: Any, name: str, *shape: int | None) -> Any:
        """A weight; in int8 if the layer is quantized and has a `Kernel` of that name.

        With it comes an attribute `{name}_scale` then.
        """
        if self.quantization_mode is not None and name in self._kernel_names():
            return self._add_int8(name, shape)
        return self.add_weight(
            shape=shape,
            name=name,
            # Two weights from one unseeded initializer object would be equal.
            initializer=self.kernel_initializer.clone(),
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def _add_int8(self, name, shape):
        int8 = {"dtype": "int8", "initializer": "zeros", "trainable": False}
        weight = self.add_weight(shape, name=name, **int8)
        scale = f"{name}_scale"
        ones = {"initializer": "ones", "trainable": False, "autocast": False}
        setattr(self, scale, self.add_weight(shape[1:], name=scale, **ones))
        self._is_quantized = True
        return weight

    def _kernel_names(self):
        fields = [field for cls in type(self).__mro__ for field in vars(cls).items()]
        return {name for name, x in fields if isinstance(x, Kernel)}

    def quantize(
        self: Any, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Stores the layer's matrices in int8, for inference.

        Args:
            mode: "int8".
            type_check: Ignored; what subclasses add in `Kernel`s is quantized too.
            config: Ignored but for its mode.

        Raises:
            NotImplementedError: Another mode, or none of its weights is a `Kernel`.
            ValueError: The layer is not built, or quantized already.
        """
        if mode != "int8":
            raise NotImplementedError(
                f'{type(self).__name__} can be quantized to "int8" only. '
                f"Received: mode={mode!r}"
            )
        # A model quantizes parts one by one, the first of which takes this layer along.
        if all(part.quantization_mode is None for part in self._parts):
            for part in self._parts:
                part.quantize(mode)
        if self.quantization_mode is not None:
            return
        names = self._kernel_names()
        if self.weights and not names:
            raise NotImplementedError(
                f"{type(self).__name__} cannot be quantized: none of its weights is a "
                "keras_luong.layers.Kernel."
            )
        for name in [name for name in vars(self) if name in names]:
            floats = ops.convert_to_numpy(getattr(self, name))
            delattr(self, name)
            weight = self._add_int8(name, floats.shape)
            setattr(self, name, weight)
            values, scale = keras.quantizers.abs_max_quantize(
                floats, axis=0, to_numpy=True
            )
            weight.assign(values)
            getattr(self, f"{name}_scale").assign(ops.squeeze(scale, 0))
        self._is_quantized = True
        policy = f"int8_from_{self.dtype_policy.name}"
        self.dtype_policy = keras.dtype_policies.get(policy)

    def quantized_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The same call: kernels are multiplied out where they are read."""
        return self.call(*args, **kwargs)


class Kernel:
    """An attribute for a weight that `BaseLayer.quantize` may store in int8.

    It reads as the weight, or, if that is in int8, as the floats that it stands for.

    Example:
        >>> class Projection(kl.layers.BaseLayer):
        ...     kernel = kl.layers.Kernel()
        ...
        ...     def build(self, shape):
        ...         self.kernel = self.add_kernel("kernel", shape[-1], 8)
        ...
        ...     def call(self, x):
        ...         return keras.ops.matmul(x, self.kernel)
        >>> layer = Projection()
        >>> tuple(layer(np.random.rand(2, 3)).shape)
        (2, 8)
        >>> layer.quantize("int8")
        >>> [weight.dtype for weight in layer.weights]
        ['int8', 'float32']
    """

    def __set_name__(self, owner: type, name: str) -> None:
        """Learns its name."""
        self.name = name

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        """The weight, or the floats of [n, m]."""
        if layer is None:
            return self
        if self.name not in vars(layer):
            raise AttributeError(
                f"{layer.name} has no {self.name} yet: it is not built",
                name=self.name,
                obj=layer,
            )
        weight = vars(layer)[self.name]
        if getattr(weight, "dtype", None) != "int8":
            return weight
        # In the scale's dtype: it may be more than half precision holds.
        scale = getattr(layer, f"{self.name}_scale")
        return ops.cast(ops.cast(weight, scale.dtype) / scale, layer.compute_dtype)

    def __set__(self, layer: Any, weight: Any) -> None:
        """Stores the weight."""
        vars(layer)[self.name] = weight

    def __delete__(self, layer: Any) -> None:
        """Forgets the weight."""
        del vars(layer)[self.name]


def weight_config(layer: Any, *names: str) -> dict[str, Any]:
    """The config of how weights are made: of each initializer, regularizer, constraint.

    Args:
        layer: A layer with attributes such as `kernel_initializer`.
        *names: Such as "kernel" and "bias".
    """
    return {
        f"{name}_{kind}": getattr(keras, f"{kind}s").serialize(
            getattr(layer, f"{name}_{kind}")
        )
        for name in names
        for kind in ("initializer", "regularizer", "constraint")
    }


def arguments_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call's arguments by name, defaults included."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


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


def unpacking_hint(items: Sequence[Any], otherwise: str = "") -> str:
    """A hint for errors where tensors look like an encoder's outputs.

    Args:
        items: Tensors or their shapes.
        otherwise: What to add where they do not.
    """
    ranks = [len(getattr(x, "shape", x) or ()) for x in items]
    encoded = ranks[:1] == [3] and set(ranks[1:]) == {2}  # a memory, then states
    return UNPACK if encoded else otherwise


def _leaves(values):
    if not isinstance(values, (list, tuple)):
        return [values]
    return [leaf for x in values for leaf in _leaves(x)]


def _own_dtype(x):
    """An array or a variable as a tensor of its own dtype."""
    is_array = isinstance(x, np.ndarray) or hasattr(x, "assign")
    return as_tensor(x) if is_array else x


# Apart from `__call__`, where AutoGraph finds no `super()` beside a loop.
def _check_call(layer, args, kwargs):
    parameters = _parameters(type(layer).call)
    values = {**dict(zip(parameters, args, strict=False)), **kwargs}
    for name, parameter in parameters.items():
        value = values.get(name)
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
    if not (call.__module__ or "").startswith("keras_luong."):
        return {}
    return dict(list(inspect.signature(call).parameters.items())[1:])
