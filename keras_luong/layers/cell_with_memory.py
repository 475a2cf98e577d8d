"""A decoder cell as a cell of Keras's kind, for `keras.layers.RNN`.

Shapes: B batch, E inputs, S source positions, Hv memory units.

`keras.layers.RNN` gives a cell nothing but inputs and states: the prepared memory is
carried along as its last states, each [B, n], which no step changes.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.compat import output_spec, serialize_shared
from keras_luong.layers.checked_layer import UncastLayer
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.memory import mask_of
from keras_luong.layers.nested import Nested
from keras_luong.layers.recurrence import Mode
from keras_luong.types import Shape, Tensor, Tensors


@keras.saving.register_keras_serializable(package="keras_luong")
class CellWithMemory(Nested, UncastLayer):
    """A `DecoderCell` for `keras.layers.RNN`, where attention is one part of a model.

    `InputFeedingDecoder` is faster, returns alignment weights and applies the cell's
    dropout; here there is none. Give `keras.layers.RNN` the states that `first_states`
    makes; `stateful=True` is refused, since no batch has the memory of the one before.

    To copy a model with it, save and load it. `clone_model` and `from_config` copy each
    layer alone, so that what makes the first states and `keras.layers.RNN` would get a
    cell each, with weights of its own: they are refused.

    Args:
        cell: A `DecoderCell` such as `InputFeedingDecoderCell` or `AttentionWrapper`.
        memory_units: Size Hv of the memory; a list of sizes for several sources.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: [B, E].
        states: List of the cell's states, then the prepared memory, from
            `first_states` or an earlier call.

    Returns:
        The output [B, A], and the list of new states.

    Raises:
        TypeError, ValueError: `cell` is no `DecoderCell`; there are no states.

    Example:
        >>> words, memory = np.random.rand(2, 4, 3), np.random.rand(2, 5, 6)
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> cell = kl.CellWithMemory(cell, memory_units=6)
        >>> states = cell.first_states(memory)
        >>> last = keras.layers.RNN(cell)(words, initial_state=states)
        >>> tuple(last.shape)
        (2, 8)
    """

    _nested: tuple[str, ...] = ("cell",)

    def __init__(self, cell: DecoderCell, memory_units: Any, **kwargs: Any) -> None:
        if not isinstance(cell, DecoderCell):
            raise TypeError(
                "cell must be a DecoderCell such as InputFeedingDecoderCell. "
                f"Received: {cell!r}"
            )
        if kwargs.get("dtype") is None:
            # `RNN` casts all states to this dtype. Positions count in them.
            half = cell.compute_dtype in ("float16", "bfloat16")
            kwargs["dtype"] = "float32" if half else cell.dtype_policy
        super().__init__(**kwargs)
        self.cell = cell
        for i, size in enumerate(keras.tree.flatten(memory_units)):
            check_size(f"memory_units[{i}]", size)
        self.memory_units = memory_units
        self._spec: Any = None

    @property
    def output_size(self) -> int:
        """Size of the output."""
        return self.cell.output_units

    @property
    def state_size(self) -> list[Any]:
        """Size of each state; (None,) where it depends on the source's length."""
        self.build_attention()
        own = keras.tree.flatten(self.cell.state_spec())
        sizes = [like.shape[-1] for like in own]
        carried = [None] * len(keras.tree.flatten(self._prepared_spec()))
        return [(None,) if size is None else size for size in [*sizes, *carried]]

    def build_attention(self) -> None:
        """Makes the attention's weights, which preparing a memory needs."""
        cell = self.cell
        if not cell.built:
            cell.read_shapes((None, None), self._memory_shape())
        if cell.attention is not None and not cell.attention.built:
            query_shape = (None, None, cell.query_units)
            cell.attention.build(query_shape, self._memory_shape())

    def _memory_shape(self):
        if isinstance(self.memory_units, (list, tuple)):
            return [(None, None, size) for size in self.memory_units]
        return (None, None, self.memory_units)

    def _prepared_spec(self):
        """What a prepared memory is like: a nest of symbolic tensors."""
        if self._spec is None:
            self._spec = self._make_spec()
        return self._spec

    def _make_spec(self):
        shapes, dtype = self._memory_shape(), self.cell.compute_dtype
        if isinstance(shapes, list):
            memory = [keras.KerasTensor(shape, dtype) for shape in shapes]
        else:
            memory = keras.KerasTensor(shapes, dtype)
        try:
            return output_spec(self.cell.prepare, memory)
        except AttributeError as error:
            if self.cell.built or not isinstance(error.obj, keras.layers.Layer):
                # No AttributeError: Keras would say that `state_size` is missing.
                name = type(self.cell).__name__
                raise RuntimeError(f"{name}.prepare failed: {error}") from error
            raise ValueError(
                f"{type(self.cell).__name__} needs weights of its own to prepare a "
                "memory: call cell.build(inputs_shape, memory_shape) first."
            ) from error

    def build(self, inputs_shape: Shape) -> None:
        """Makes the cell's weights for inputs [B, E]."""
        self.build_attention()
        if not self.cell.built:
            self.cell.build(inputs_shape, self._memory_shape())
            self.cell.built = True

    def first_states(
        self, memory: Any, mask: Any = None, recurrent: Any = None
    ) -> list[Tensor]:
        """The states before the first step, for `keras.layers.RNN`'s `initial_state`.

        Args:
            memory: Source [B, S, Hv], or several.
            mask: bool [B, S], True at words; likewise.
            recurrent: The cell's recurrent states, such as an encoder's; zeros by
                default.

        Returns:
            List of tensors [B, n], of tensors as of symbolic ones.
        """
        return FirstStates(self)(memory, mask=mask, recurrent=recurrent)

    def get_initial_state(self, batch_size: Any = None) -> list[Tensor]:
        """Refuses: a first state has a memory in it."""
        raise ValueError(
            "CellWithMemory needs its memory: call keras.layers.RNN with initial_state="
            "cell.first_states(memory, mask), and not with stateful=True."
        )

    def call(
        self, inputs: Tensor, states: Tensors, training: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """See the class."""
        flat = keras.tree.flatten(states)
        count = len(keras.tree.flatten(self.cell.state_spec()))
        memory = self._unpack(flat[count:])
        mode = Mode(bool(training))
        z = self.cell.project_sequence(ops.cast(inputs, self.cell.compute_dtype), mode)
        packed = self.cell.pack(flat[:count])
        (output, _), after = self.cell.step(z, packed, memory, mode)
        new = [ops.cast(x, self.compute_dtype) for x in keras.tree.flatten(after)]
        return ops.cast(output, self.compute_dtype), [*new, *flat[count:]]

    def pack_memory(self, memory: Any) -> list[Tensor]:
        """A prepared memory as states, each [B, n] in this layer's dtype."""
        dtype = self.compute_dtype
        return [
            ops.reshape(ops.cast(x, dtype), (ops.shape(x)[0], -1))
            for x in keras.tree.flatten(memory)
        ]

    def _unpack(self, states):
        """The prepared memory that `pack_memory` got."""
        spec = self._prepared_spec()
        likes = keras.tree.flatten(spec)
        tensors = [_like(x, like) for x, like in zip(states, likes, strict=True)]
        return keras.tree.pack_sequence_as(spec, tensors)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "cell": serialize_shared(self.cell),
            "memory_units": self.memory_units,
        }


def _like(x, like):
    """A state [B, n] in the rank and dtype of what it was made of."""
    # The one size that is not known is the length S, if it has that axis.
    sizes = [-1 if size is None else size for size in like.shape[1:]]
    x = ops.reshape(x, (ops.shape(x)[0], *sizes))
    return x > 0.5 if like.dtype == "bool" else ops.cast(x, like.dtype)


@keras.saving.register_keras_serializable(package="keras_luong")
class FirstStates(Nested, UncastLayer):
    """The states of a `CellWithMemory`, made of a memory; see its `first_states`.

    Args:
        cell: A `CellWithMemory`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.
    """

    _nested: tuple[str, ...] = ("cell",)

    def __init__(self, cell: CellWithMemory, **kwargs: Any) -> None:
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = cell.dtype_policy
        super().__init__(**kwargs)
        self.supports_masking = True
        self.cell = cell

    def compute_mask(self, memory: Any, previous_mask: Any = None) -> None:
        """States have no mask: it is one of them."""

    def build(self, memory_shape: Any) -> None:
        """Makes what preparing a memory needs."""
        self.cell.build_attention()

    def call(
        self,
        memory: Tensors,
        mask: Tensors | None = None,
        recurrent: Tensors | None = None,
    ) -> list[Tensor]:
        """See `CellWithMemory.first_states`."""
        cell = self.cell.cell
        mask = mask_of(memory, mask)  # which a cast leaves behind
        memory = keras.tree.map_structure(
            lambda x: ops.cast(x, cell.compute_dtype), memory
        )
        prepared = cell.prepare(memory, mask)
        batch_size = ops.shape(keras.tree.flatten(memory)[0])[:1]
        states = cell.initial_states(batch_size, recurrent, prepared)
        states = [ops.cast(x, self.compute_dtype) for x in states]
        return [*states, *self.cell.pack_memory(prepared)]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "cell": serialize_shared(self.cell)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> FirstStates:
        """Rebuilds the layer around the cell of a model that is loaded.

        Raises:
            ValueError: Nothing says which cell it shares, outside of saving.
        """
        if "shared_object_id" not in config["cell"]:
            raise ValueError(
                "A model with a CellWithMemory is copied by saving and loading it: "
                "copies by configuration (from_config, clone_model, to_json) would "
                "have two cells, each with weights of its own. Received: the "
                f"configuration of {config['name']}"
            )
        return super().from_config(config)
