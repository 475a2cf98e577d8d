"""From states of one part of a model to those of another, whatever their sizes.

Shapes: B batch; m and n units, before and after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.base import BaseLayer, check_tensors, unpacking_hint
from keras_luong.layers.memory import is_several, shapes_of
from keras_luong.types import Shape, Tensor, Tensors


@keras.saving.register_keras_serializable(package="keras_luong")
class StateBridge(BaseLayer):
    """Dense layers that make a decoder's first states of an encoder's last ones.

    `s_i = tanh(W_i h_i + b_i)` where as many states are wanted as there are (Bahdanau
    et al. 2015, appendix A.2.2, has one). Where there are more or fewer, each is made
    of all of them side by side: `s_i = tanh(W_i [h_1; h_2; ...] + b_i)`.

    Args:
        units: List of the sizes of the states wanted; or the `DecoderCell` or Keras
            cell whose states they are to be.
        activation: A function or its name; None for none.
        use_bias: Whether there are biases.
        kernel_initializer: Initializer of the kernels.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        states: List of states [B, m], of any sizes and number, with any other leading
            axes too.

    Returns:
        List of states [B, n], as many as `units` has.

    Raises:
        TypeError, ValueError: An argument that is none of the above, or states that are
            no list, or of other sizes than before.

    Example:
        >>> source, target = np.random.rand(2, 5, 6), np.random.rand(2, 4, 6)
        >>> memory, *last = kl.RecurrentEncoder(4, bidirectional=True)(source)
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> first = kl.StateBridge(cell)(last)
        >>> outputs = kl.InputFeedingDecoder(cell)(target, memory, initial_state=first)
        >>> [tuple(state.shape) for state in first]
        [(2, 8), (2, 8)]
    """

    def __init__(
        self,
        units: Any,
        activation: Any = "tanh",
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.units = [check_size(f"units[{i}]", n) for i, n in enumerate(_sizes(units))]
        self.activation = keras.activations.get(activation)
        self.use_bias = check_flag("use_bias", use_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.layers = [
            keras.layers.Dense(
                n,
                activation=self.activation,
                use_bias=use_bias,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name=f"dense_{i}",
            )
            for i, n in enumerate(self.units)
        ]

    def build(self, states_shape: Sequence[Shape]) -> None:
        """Makes the kernels."""
        if not is_several(states_shape or ()):
            raise ValueError(
                "states must be a list of tensors [B, n], one at least. Received the "
                f"shape {states_shape}"
            )
        states_shape = _flat(states_shape)
        self._received: list[Any] = [shape[-1] for shape in states_shape]
        together = len(states_shape) != len(self.layers)
        for layer, size in zip(
            self.layers,
            [sum(self._received)] * len(self.layers) if together else self._received,
            strict=True,
        ):
            if not layer.built:  # it may be, when it was loaded
                layer.build((None, size))

    def call(self, states: Tensors) -> list[Tensor]:
        """See the class."""
        states = self._check(states)
        if len(states) != len(self.layers):
            states = [ops.concatenate(list(states), axis=-1)] * len(self.layers)
        return [layer(x) for layer, x in zip(self.layers, states, strict=True)]

    def _check(self, given):
        """The states as a flat list."""
        states = check_tensors("states", given)
        if not isinstance(given, (list, tuple)) or len(states) != len(self._received):
            raise ValueError(
                f"states must be a list of {len(self._received)} tensors. Received "
                f"the shapes {shapes_of(given)}{unpacking_hint(states)}"
            )
        axes = [f"axis {i}" for i in range(len(states[-1].shape) - 1)]
        check_axes(
            **{
                f"states[{i}]": (x, *axes, size)
                for i, (x, size) in enumerate(zip(states, self._received, strict=True))
            }
        )
        return states

    def compute_output_spec(self, states: Tensors) -> list[keras.KerasTensor]:
        """Shapes and dtypes of the states wanted."""
        states = self._check(states)
        shapes = self.compute_output_shape([x.shape for x in states])
        return [keras.KerasTensor(shape, self.compute_dtype) for shape in shapes]

    def compute_output_shape(self, states_shape: Sequence[Shape]) -> list[Shape]:
        """[B, n] of each."""
        return [(*_flat(states_shape)[0][:-1], n) for n in self.units]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": list(self.units),
            "activation": keras.activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            # Their dtype policies change when a model is quantized.
            "layers": [serialize_shared(layer) for layer in self.layers],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> StateBridge:
        """Rebuilds the layer, and the dense layers that it is made of."""
        config = dict(config)
        layers = config.pop("layers")
        bridge = cls(**config)
        bridge.layers = [keras.saving.deserialize_keras_object(x) for x in layers]
        return bridge


def _flat(shapes):
    """The shapes of lists within a list too."""
    nested = [_flat(one) if is_several(one) else [one] for one in shapes]
    return [shape for shapes in nested for shape in shapes]


def _sizes(units):
    """The sizes of states: a list of them, or what a cell says."""
    if hasattr(units, "state_sizes"):  # a DecoderCell
        units = units.state_sizes
    elif hasattr(units, "state_size"):  # a cell of Keras's kind
        units = keras.tree.flatten(units.state_size)
    if not isinstance(units, (list, tuple)) or not units:
        raise TypeError(
            "units must be a list of the sizes of the states wanted, or a cell. "
            f"Received: {units!r}"
        )
    return units
