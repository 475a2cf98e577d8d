"""`quantize("int8")` of a layer's own matrices: a quarter of the size, almost as exact.

As in `keras.layers.Dense`, every column of a matrix is stored in int8 with a scale of
its own. Only the weights are quantized: a matrix is multiplied out where it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.types import Tensor

#: What a layer with kernels takes, by Keras's names.
KERNEL_OPTIONS = ("kernel_initializer", "kernel_regularizer", "kernel_constraint")


def kernel_config(layer: Any) -> dict[str, Any]:
    """The config of a layer's `KERNEL_OPTIONS`."""
    return weight_config(layer, "kernel")


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


class Kernel:
    """An attribute for a weight that `Quantizable` may store in int8.

    It reads as the weight, or, if that is in int8, as the floats that it stands for.

    Example:
        >>> class Projection(kl.layers.Quantizable, keras.layers.Layer):
        ...     kernel = kl.layers.Kernel()
        ...     kernel_initializer = keras.initializers.GlorotUniform()
        ...     kernel_regularizer = kernel_constraint = None
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
        return _floats(weight, getattr(layer, f"{self.name}_scale"), layer)

    def __set__(self, layer: Any, weight: Any) -> None:
        """Stores the weight."""
        vars(layer)[self.name] = weight

    def __delete__(self, layer: Any) -> None:
        """Forgets the weight."""
        del vars(layer)[self.name]


def _floats(weight: Any, scale: Any, layer: Any) -> Tensor:
    # In the scale's dtype: it may be more than half precision holds.
    floats = ops.cast(weight, scale.dtype) / scale
    return ops.cast(floats, layer.compute_dtype)


class Quantizable:
    """A mixin, before `keras.layers.Layer`, for layers whose weights are `Kernel`s.

    They are made by `add_kernel`, with the layer's `kernel_initializer`,
    `kernel_regularizer` and `kernel_constraint`. `layer.quantize("int8")` stores them
    in int8, and so does `quantize("int8")` of a model that the layer is in.

    Example:
        >>> attention = kl.LuongAttention("general")  # whose score is Quantizable
        >>> attention.build((2, 1, 8), (2, 5, 8))
        >>> attention.quantize("int8")
        >>> [weight.dtype for weight in attention.score.weights]
        ['int8', 'float32']
    """

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

    def _kernel_names(self) -> set[str]:
        classes = type(self).__mro__
        return {
            name
            for cls in classes
            for name, x in vars(cls).items()
            if isinstance(x, Kernel)
        }

    def _add_int8(self: Any, name: str, shape: Any) -> Any:
        scale = f"{name}_scale"
        weight = self.add_weight(
            shape=shape, name=name, dtype="int8", initializer="zeros", trainable=False
        )
        variable = self.add_weight(
            shape=shape[1:],
            name=scale,
            initializer="ones",
            trainable=False,
            autocast=False,
        )
        setattr(self, scale, variable)
        self._is_quantized = True
        return weight

    def quantize(
        self: Any, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Stores the layer's matrices in int8, for inference.

        Args:
            mode: "int8".
            type_check: Ignored; what subclasses add in `Kernel`s is quantized too.
            config: Ignored but for its mode.

        Raises:
            NotImplementedError: Another mode.
            ValueError: The layer is not built, or quantized already.
        """
        if mode != "int8":
            raise NotImplementedError(
                f'{type(self).__name__} can be quantized to "int8" only. '
                f"Received: mode={mode!r}"
            )
        names = self._kernel_names()
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
        if self.quantization_mode is None:
            policy = f"int8_from_{self.dtype_policy.name}"
            self.dtype_policy = keras.dtype_policies.get(policy)

    def quantized_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The same call: kernels are multiplied out where they are read."""
        return self.call(*args, **kwargs)


def quantize_parts(parts: Sequence[Any], mode: Any) -> bool:
    """Quantizes the parts of a layer, where it is the layer that is to be quantized.

    A model quantizes the parts one by one instead, and not the layer: so the first of
    them takes the layer along, as `Score.quantize` does its owners.

    Returns:
        Whether it did; the layer has gone along then. If not, it is being taken along.
    """
    if any(part.quantization_mode is not None for part in parts):
        return False
    for part in parts:
        part.quantize(mode)
    return True
