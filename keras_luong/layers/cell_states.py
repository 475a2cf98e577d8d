"""The states of a decoder cell: what they are, and how they begin.

Shapes: B batch, K beam (1 in training), S source positions. States are [..., n]; in a
training loop the leading axes are [B], in search [B, K].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes
from keras_luong.layers.checked_layer import check_tensors, unpacking_hint
from keras_luong.layers.normalizers import weights_dtype
from keras_luong.layers.sources import state_lengths
from keras_luong.types import Shape, Tensor


class CellStates(NamedTuple):
    """The states of a decoder cell by what they are; users and searches see them flat.

    Attributes:
        recurrent: Nest of what recurs: of each layer [h, c] or [h], or as a wrapped
            cell has it.
        fed: What the next step reads of this one (h̃ with input feeding): one or none.
        attention: What the attention remembers, each [..., S]; often nothing.
        position: Target words so far, int32 [..., 1].

    Example:
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> cell.build((None, None, 3), (None, None, 6))
        >>> states = cell.pack(cell.initial_states((2,)))
        >>> tuple(states.fed[0].shape), tuple(states.position.shape)
        ((2, 8), (2, 1))
    """

    recurrent: Any
    fed: Sequence[Tensor]
    attention: Sequence[Tensor]
    position: Tensor


class HasStates(keras.layers.Layer):
    """Base of a decoder cell, which knows its states flat and by what they are."""

    attention: Any

    @property
    def weights_dtype(self) -> str:
        """Dtype of the alignment weights: float32, or float64 under that policy."""
        return weights_dtype(self.compute_dtype)

    @property
    def fed_units(self) -> int | None:
        """Size of what the next step reads of this one, or None."""
        return None

    def recurrent_spec(self, shape: Shape = (None,)) -> Any:
        """Nest of symbolic tensors, with leading axes `shape`, of what recurs."""
        raise TypeError(f"{type(self).__name__} must say what recurs: recurrent_spec")

    @property
    def state_sizes(self) -> list[int]:
        """The size of each recurrent state, as a `StateBridge` makes them."""
        return [like.shape[-1] for like in keras.tree.flatten(self.recurrent_spec())]

    def state_spec(
        self, shape: Shape = (None,), source_length: Any = None
    ) -> CellStates:
        """What the states are: symbolic tensors of leading axes `shape`.

        Each is an object of its own, also where `recurrent_spec` repeats one: Keras
        tells a functional model's outputs apart by identity.

        Args:
            shape: Leading axes.
            source_length: S, or a list of the lengths of several sources; or None.
        """

        def spec(size, dtype=self.compute_dtype):
            return keras.KerasTensor((*shape, size), dtype)

        recurrent = keras.tree.map_structure(
            lambda like: keras.KerasTensor(like.shape, like.dtype),
            self.recurrent_spec(shape),
        )
        fed = [] if self.fed_units is None else [spec(self.fed_units)]
        lengths = state_lengths(self.attention, source_length)
        attention = [spec(length, self.weights_dtype) for length in lengths]
        return CellStates(recurrent, fed, attention, spec(1, "int32"))

    def pack(self, states: Sequence[Tensor]) -> CellStates:
        """The states of a flat list, each cast to its dtype."""
        spec = self.state_spec()
        packed = keras.tree.pack_sequence_as(spec, list(states))
        return keras.tree.map_structure(
            lambda x, like: ops.cast(x, like.dtype), packed, spec
        )

    def check_states(self, given: Any, shape: Any) -> list[Tensor]:
        """Initial states as a flat list.

        Args:
            given: None, the recurrent states, or all states.
            shape: Leading axes.

        Raises:
            ValueError: The number of states, or their shapes, do not fit.
        """
        given = [] if given is None else check_tensors("initial_state", given)
        spec = self.state_spec()
        complete, recurrent = keras.tree.flatten(spec), self.state_sizes
        if len(given) not in (0, len(recurrent), len(complete)):
            raise ValueError(
                f"Expected {len(recurrent)} initial states ({self._what_recurs()}), or "
                f"all {len(complete)} that return_state gives. Received: {len(given)}"
                f"{unpacking_hint(given)}"
            )
        axes = [size if isinstance(size, int) else None for size in shape]
        check_axes(
            **{
                f"initial_state[{i}]": (x, *axes, *like.shape[1:])
                for i, (x, like) in enumerate(zip(given, complete, strict=False))
            }
        )
        return given

    def _what_recurs(self):
        return f"of {type(self).__name__}"

    def initial_states(
        self, shape: Any, recurrent: Any = None, memory: Any = None
    ) -> list[Tensor]:
        """States before the first word: `recurrent` or zeros, and position 0.

        Args:
            shape: Leading axes, (B,) or (B, K).
            recurrent: List of the recurrent states, such as an encoder's; or all states
                of an earlier call, which are returned as they are.
            memory: What `prepare` returned, for an attention that has a state.

        Returns:
            The recurrent states (h₁, c₁, ..., h_L, c_L of LSTMs), what is fed back (if
            anything), the attention's state (if it has one), position, each
            [*shape, n]; the position is int32 and counts target words from 0.

        Raises:
            ValueError: The number of states, or their shapes, do not fit.
        """
        given = self.check_states(recurrent, shape)
        spec = self.state_spec()
        if len(given) == len(keras.tree.flatten(spec)):
            return keras.tree.flatten(self.pack(given))
        fed, position = [
            [ops.zeros((*shape, like.shape[-1]), dtype=like.dtype) for like in part]
            for part in (spec.fed, [spec.position])
        ]
        attention = []
        if spec.attention:
            attention = self.attention.initial_state(memory, *shape[1:])
        if len(shape) == 1:
            attention = [state[:, 0] for state in attention]
        first = given or keras.tree.flatten(self.first_recurrent(shape))
        return keras.tree.flatten(self.pack([*first, *fed, *attention, *position]))

    def first_recurrent(self, shape: Any) -> Any:
        """The recurrent states where none are given: zeros [*shape, n]."""
        return keras.tree.map_structure(
            lambda like: ops.zeros((*shape, *like.shape[1:]), dtype=like.dtype),
            self.recurrent_spec(),
        )
