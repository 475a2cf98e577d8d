"""The paper's decoder: Eq. 5, one step with input feeding, and whole sequences.

Shapes: B batch, K beam, S source positions, T target positions, E embedding, H units, A
attentional units, Hv memory units.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag
from keras_luong.compat import UncastLayer, get_keras_mask, serialize_shared
from keras_luong.layers.attention import arguments_of, blanked
from keras_luong.layers.attentional_output import AttentionalCell
from keras_luong.layers.attentional_output import AttentionalVector as AttentionalVector
from keras_luong.layers.cells import CellInput, dropped
from keras_luong.layers.decoder_cell import CellStates, DecoderCell
from keras_luong.layers.recurrence import INFERENCE, Mode, scan
from keras_luong.layers.sources import (
    is_several,
    joined_shape,
    source_axes,
    source_shapes,
)
from keras_luong.layers.stacked_cell import StackedDecoderCell
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoderCell(AttentionalCell, StackedDecoderCell):
    """A decoder step of Luong, Pham & Manning 2015: `h_t → a_t → c_t → h̃_t`.

    Stacked recurrent layers read the previous word and, with input feeding (section
    3.3), the previous attentional vector h̃_{t-1}; the top layer's h_t attends to the
    source, and `h̃_t = tanh(W_c [c_t; h_t])` (Eq. 5) is the output.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer such as `LuongAttention`, or None for a decoder
            that sees the source through its initial state only: then h̃ is h.
        num_layers: How many recurrent layers.
        attentional_units: Size A of h̃; `units` by default.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        input_feeding: Whether h̃_{t-1} enters the first layer.
        **kwargs: `attentional_activation`, `attentional_bias`,
            `use_attentional_vector`, `output_attention` and `attentional_vector` as in
            `AttentionalCell`; `dropout`, `recurrent_dropout`, `output_dropout`,
            `residual`, the initializers and `seed` as in `StackedDecoderCell`; `name`,
            `dtype`.

    Call arguments:
        inputs: Embedded target words [B, K, E].
        states: List of states [B, K, ...], from `initial_states` or an earlier call.
        memory: What `attention.prepare` made of the source.

    Returns:
        h̃ [B, K, A], the list of new states, and the alignment weights, float32
        [B, K, S] (zeros without attention).

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> cell = kl.InputFeedingDecoderCell(512, kl.LuongAttention("general"))
        >>> outputs = kl.InputFeedingDecoder(cell)(embedded, memory, memory_mask=mask)
    """

    def __init__(
        self,
        units: int,
        attention: Any,
        num_layers: int = 1,
        attentional_units: int | None = None,
        cell_type: str = "lstm",
        input_feeding: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            units,
            attention,
            num_layers,
            cell_type,
            attentional_units=attentional_units,
            input_feeding=input_feeding,
            **kwargs,
        )

    def build_output(self) -> None:
        """Makes the rows of the first layer's kernel that belong to h̃, and W_c."""
        self.feeding_kernel = None
        if self.input_feeding:
            # Apart from the word's rows: what x contributes is computed before the
            # loop, what h̃ does inside it.
            self.feeding_kernel = self.add_kernel(
                "feeding_kernel", self.attentional_units, self.columns
            )
        super().build_output()

    def step(
        self, z: Tensor, states: CellStates, memory: Any, mode: Mode = INFERENCE
    ) -> tuple[tuple[Tensor, Tensor], CellStates]:
        """See `DecoderCell.step`."""
        kernels = (self.feeding_kernel,) if self.input_feeding else ()
        inputs = CellInput(z, kernels, tuple(states.fed))
        h, recurrent = self.step_layers(inputs, states, mode)
        return self.finish(h, recurrent, states, memory, mode)


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoder(UncastLayer):
    """Runs an `InputFeedingDecoderCell`, or another `DecoderCell`, over a target.

    With input feeding, attention is a part of the recurrence. Without it nothing recurs
    through the attention, so all T queries attend at once after the loop.

    Args:
        cell: A `DecoderCell`.
        return_sequences: Whether to return the outputs of all steps, or only those of
            the last (of the last word, where there is a mask).
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded target words, each the one before the word to predict
            [B, T, E].
        memory: Encoder states [B, S, Hv]; a list of them for a `MultiSourceAttention`.
        memory_mask: bool [B, S], True at source words; likewise.
        mask: bool [B, T], True at target words; the inputs' own Keras mask by default.
            Needed only where padding comes before words or the returned states matter:
            masked steps keep the states and give zeros.
        initial_state: List of the recurrent states [B, H], such as an encoder's or a
            `StateBridge`'s (zeros by default), or all that `return_state` gave earlier.
        return_state: Whether to return the final states.
        return_attention_scores: Whether to return the alignment weights.
        training: Whether to apply dropout.

    Returns:
        h̃ [B, T, A]; with `return_attention_scores`, then the weights [B, T, S],
        float32 (float64 under that policy); with `return_state`, then each final state. With
        `return_sequences=False` there is no T.

    Raises:
        TypeError, ValueError: `cell` is no `DecoderCell`, or shapes do not fit.

    Example:
        >>> memory, *state = kl.RecurrentEncoder(512)(source, mask=source_mask)
        >>> cell = kl.InputFeedingDecoderCell(512, kl.LuongAttention("dot"))
        >>> decoder = kl.InputFeedingDecoder(cell)
        >>> h_tilde = decoder(target, memory, source_mask, initial_state=state)
    """

    def __init__(
        self, cell: DecoderCell, return_sequences: bool = True, **kwargs: Any
    ) -> None:
        if not isinstance(cell, DecoderCell):
            raise TypeError(
                "cell must be a DecoderCell such as InputFeedingDecoderCell. "
                f"Received: {cell!r}"
            )
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = cell.dtype_policy
        super().__init__(**kwargs)
        self.cell = cell
        self.return_sequences = check_flag("return_sequences", return_sequences)

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Builds the cell."""
        if not self.cell.built:
            self.cell.build(tuple(inputs_shape), memory_shape)

    def call(
        self,
        inputs: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        mask: Tensor | None = None,
        initial_state: Any = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """See the class."""
        cell = self.cell
        if mask is None:  # Keras itself looks for masks of several tensors elsewhere
            mask = get_keras_mask(inputs)
        self._check(inputs, memory, memory_mask, mask, initial_state)
        if mask is not None:
            mask = ops.cast(mask, "bool")
        inputs = ops.cast(inputs, cell.compute_dtype)
        memory = keras.tree.map_structure(
            lambda x: ops.cast(x, cell.compute_dtype), memory
        )
        prepared = cell.prepare(memory, memory_mask)
        states = cell.initial_states(ops.shape(inputs)[:1], initial_state, prepared)
        inputs = self._drop(inputs, cell.dropout, training)
        run = self._attend_in_loop if cell.attends_in_loop else self._attend_after_loop
        outputs, *weights, final = run(
            inputs, prepared, cell.pack(states), mask, training, return_attention_scores
        )
        rate = cell.dropout if cell.output_dropout is None else cell.output_dropout
        results = [self._drop(outputs, rate, training), *weights]
        if not self.return_sequences:
            results = [_last(x, mask) for x in results]
        if return_state:
            results.extend(keras.tree.flatten(final))
        return tuple(results) if len(results) > 1 else results[0]

    def _check(self, inputs, memory, memory_mask, mask, initial_state):
        """Raises unless shapes fit: of tensors as of symbolic ones."""
        cell = self.cell
        check_axes(
            inputs=(inputs, "batch size", "target length", cell.input_units),
            mask=(mask, "batch size", "target length"),
            **source_axes(memory, memory_mask, cell.source_units),
        )
        cell.check_states(initial_state, inputs.shape[:1])

    def _drop(self, x, rate, training):
        """Drops the same units at every step of a sequence [B, T, n]."""
        shape = (ops.shape(x)[0], 1, x.shape[-1])
        return dropped(x, self.cell.draw_noise(shape, rate, training))

    def _attend_in_loop(self, inputs, memory, states, mask, training, keep_weights):
        cell = self.cell
        mode = cell.sequence_mode(memory, training)

        def step(z, states, memory, mode):
            outputs, states = cell.step(z, states, memory, mode)
            return outputs if keep_weights else outputs[:1], states

        z = cell.project_sequence(ops.swapaxes(inputs, 0, 1), mode)
        mask = None if mask is None else ops.transpose(mask)
        outputs, states = scan(step, z, states, memory, mask, mode)
        return *[ops.swapaxes(y, 0, 1) for y in outputs], states

    def _attend_after_loop(self, inputs, memory, states, mask, training, keep_weights):
        cell = self.cell
        mode = cell.sequence_mode(memory, training, ops.shape(inputs)[1])
        time_mask = None if mask is None else ops.transpose(mask)
        x = ops.swapaxes(inputs, 0, 1)
        h, recurrent = cell.scan_layers(x, states, time_mask, mode)
        before, words = _count(inputs, mask)
        queries = states._replace(position=states.position + before)
        h = ops.swapaxes(h, 0, 1)
        h_tilde, weights, _ = cell.attentional_output(h, memory, queries, mode)
        outputs = [h_tilde if cell.output_attention else h, weights]
        position = states.position + words
        if mask is not None:
            outputs = [blanked(y, mask) for y in outputs]
        kept = outputs if keep_weights else outputs[:1]
        return *kept, states._replace(recurrent=recurrent, position=position)

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """The outputs are masked where the inputs are."""
        return previous_mask if self.return_sequences else None

    def compute_output_shape(self, inputs_shape: Shape, memory_shape: Any) -> Shape:
        """The shape of the output alone: [B, T, A], or [B, A] of the last step."""
        if not self.cell.built:
            self.cell.read_shapes(inputs_shape, source_shapes(memory_shape))
        axes = inputs_shape[:2] if self.return_sequences else inputs_shape[:1]
        return (*axes, self.cell.output_units)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        given = arguments_of(self.call, args, kwargs)
        inputs, memory = given["inputs"], given["memory"]
        masks = given["memory_mask"], given["mask"]
        self._check(inputs, memory, *masks, given["initial_state"])
        cell, shapes = self.cell, keras.tree.map_structure(lambda x: x.shape, memory)
        lengths = inputs.shape[: 2 if self.return_sequences else 1]
        results = [keras.KerasTensor((*lengths, cell.output_units), cell.compute_dtype)]
        if given["return_attention_scores"]:
            source_length = joined_shape(shapes)[1]
            shape = (*lengths, source_length)
            results.append(keras.KerasTensor(shape, cell.weights_dtype))
        if given["return_state"]:
            each = [x[1] for x in shapes] if is_several(shapes) else shapes[1]
            spec = cell.state_spec(inputs.shape[:1], each)
            results.extend(keras.tree.flatten(spec))
        return tuple(results) if len(results) > 1 else results[0]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "cell": serialize_shared(self.cell),
            "return_sequences": self.return_sequences,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputFeedingDecoder:
        """Rebuilds the decoder and its cell."""
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})


def _count(inputs, mask):
    """Words before each target position, [1 or B, T]; and all of them, [1 or B, 1]."""
    length = ops.shape(inputs)[1]
    if mask is None:
        return ops.arange(length, dtype="int32")[None], length
    words = ops.cast(mask, "int32")
    return ops.cumsum(words, axis=1) - words, ops.sum(words, 1, keepdims=True)


def _last(x, mask):
    """The last step of outputs [B, T, n]: the last word's where there is a mask."""
    if mask is None:
        return x[:, -1]
    # 0 where there is none: its output is zeros already.
    last = ops.max(ops.where(mask, ops.arange(ops.shape(x)[1]), 0), axis=1)
    return ops.squeeze(ops.take_along_axis(x, last[:, None, None], axis=1), 1)
