"""The decoder: runs a cell over a whole target sequence.

Shapes: B batch, S source positions, T target positions, E embedding, A attentional
units.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.checks import check_axes
from keras_luong.compat import get_keras_mask
from keras_luong.layers.decoder_cell import CellStates, DecoderCell
from keras_luong.layers.recurrence import scan
from keras_luong.layers.uncast_layer import UncastLayer


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoder(UncastLayer):
    """Runs an `InputFeedingDecoderCell`, or another `DecoderCell`, over a target.

    With input feeding, attention is a part of the recurrence. Without it nothing recurs
    through the attention, so all T queries attend at once after the loop.

    Args:
        cell: A `DecoderCell`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded target words, each the one before the word to predict
            [B, T, E].
        memory: Encoder states [B, S, Hv].
        memory_mask: bool [B, S], True at source words.
        mask: bool [B, T], True at target words; the inputs' own Keras mask by default.
            Needed only where padding comes before words or the returned states matter:
            masked steps keep the states and give zeros.
        initial_state: List of the recurrent layers' states [B, H], such as an encoder's
            (zeros by default), or all that `return_state` gave earlier.
        return_state: Whether to return the final states.
        return_attention_scores: Whether to return the alignment weights.
        training: Whether to apply dropout.

    Returns:
        h̃ [B, T, A]; with `return_attention_scores`, then the weights, float32
        [B, T, S]; with `return_state`, then each final state.

    Raises:
        TypeError, ValueError: `cell` is no `DecoderCell`, or shapes do not fit.

    Example:
        >>> memory, *state = kl.RecurrentEncoder(512)(source, mask=source_mask)
        >>> cell = kl.InputFeedingDecoderCell(512, kl.LuongAttention("dot"))
        >>> decoder = kl.InputFeedingDecoder(cell)
        >>> h_tilde = decoder(target, memory, source_mask, initial_state=state)
    """

    def __init__(self, cell, **kwargs):
        if not isinstance(cell, DecoderCell):
            raise TypeError(
                "cell must be a DecoderCell such as InputFeedingDecoderCell. "
                f"Received: {cell!r}"
            )
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = cell.dtype_policy
        super().__init__(**kwargs)
        self.cell = cell

    def build(self, inputs_shape, memory_shape):
        """Builds the cell."""
        if not self.cell.built:
            self.cell.build(tuple(inputs_shape), tuple(memory_shape))

    def call(
        self,
        inputs,
        memory,
        memory_mask=None,
        mask=None,
        initial_state=None,
        return_state=False,
        return_attention_scores=False,
        training=None,
    ):
        """See the class."""
        cell = self.cell
        if mask is None:  # Keras itself looks for masks of several tensors elsewhere
            mask = get_keras_mask(inputs)
        check_axes(
            inputs=(inputs, "batch size", "target length", self.cell.input_units),
            memory=(memory, "batch size", "source length", self.cell.memory_units),
            memory_mask=(memory_mask, "batch size", "source length"),
            mask=(mask, "batch size", "target length"),
        )
        inputs = ops.cast(inputs, cell.compute_dtype)
        memory = cell.prepare(ops.cast(memory, cell.compute_dtype), memory_mask)
        states = cell.initial_states(ops.shape(inputs)[:1], initial_state, memory)
        inputs = self._drop(inputs, cell.dropout, training)
        run = self._attend_in_loop if cell.attends_in_loop else self._attend_after_loop
        outputs, weights, states = run(
            inputs, memory, states, mask, training, return_attention_scores
        )
        results = [self._drop(outputs, cell.output_rate, training)]
        if return_attention_scores:
            results.append(weights)
        if return_state:
            results.extend(states)
        return tuple(results) if len(results) > 1 else results[0]

    def _drop(self, x, rate, training):
        """Drops the same units at every step of a sequence [B, T, n]."""
        if not (training and rate):
            return x
        shape = (ops.shape(x)[0], 1, x.shape[-1])
        return x * self.cell.noise(shape, rate)

    def _attend_in_loop(self, inputs, memory, states, mask, training, keep_weights):
        cell = self.cell
        constants = memory, cell.dropout_noise(memory, training)

        def step(z, states, constants, project):
            outputs, states = cell.advance(z, states, *constants, project, training)
            return outputs if keep_weights else outputs[:1], states

        z = cell.project_inputs(ops.swapaxes(inputs, 0, 1))
        mask = None if mask is None else ops.transpose(mask)
        outputs, states = scan(step, z, states, constants, mask, training)
        outputs = [ops.swapaxes(y, 0, 1) for y in outputs]
        return outputs[0], outputs[1] if keep_weights else None, states

    def _attend_after_loop(self, inputs, memory, states, mask, training, keep_weights):
        del keep_weights  # they are there, and a graph drops what nobody asks for
        cell, target_length = self.cell, ops.shape(inputs)[1]
        noise = cell.dropout_noise(memory, training, target_length)
        states = cell.unpack(states)
        h, recurrent = cell.run_layers(
            ops.swapaxes(inputs, 0, 1),
            states.recurrent,
            noise,
            None if mask is None else ops.transpose(ops.cast(mask, "bool")),
            training,
        )
        position, words = _count(inputs, mask)
        queries = CellStates([], [], [], states.position + position)
        outputs, weights, _ = cell.attend(
            ops.swapaxes(h, 0, 1), memory, queries, noise, training=training
        )
        states = states._replace(recurrent=recurrent, position=states.position + words)
        states = states.flat()
        if mask is not None:
            mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
            outputs = ops.where(mask, outputs, ops.zeros_like(outputs))
            weights = ops.where(mask, weights, 0.0)
        return outputs, weights, states

    def compute_mask(self, inputs, previous_mask=None):
        """The outputs are masked where the inputs are."""
        del inputs
        return previous_mask

    def compute_output_spec(
        self,
        inputs,
        memory,
        memory_mask=None,
        mask=None,
        initial_state=None,
        return_state=False,
        return_attention_scores=False,
        training=None,
    ):
        """Shapes and dtypes of `call`'s results."""
        del memory_mask, mask, initial_state, training
        cell = self.cell
        batch_size, target_length = inputs.shape[:2]
        shape = (batch_size, target_length, cell.output_units)
        results = [keras.KerasTensor(shape, dtype=cell.compute_dtype)]
        if return_attention_scores:
            shape = (batch_size, target_length, memory.shape[1])
            results.append(keras.KerasTensor(shape, dtype="float32"))
        if return_state:
            widths = [cell.units] * cell.num_recurrent_states
            if cell.fed_units is not None:
                widths.append(cell.fed_units)
            results += [
                keras.KerasTensor((batch_size, n), dtype=cell.compute_dtype)
                for n in widths
            ]
            if cell.remembers:
                shape = (batch_size, memory.shape[1])
                results.append(keras.KerasTensor(shape, dtype="float32"))
            results.append(keras.KerasTensor((batch_size, 1), dtype="int32"))
        return tuple(results) if len(results) > 1 else results[0]

    def get_config(self):
        """The constructor's arguments."""
        cell = keras.saving.serialize_keras_object(self.cell)
        return {**super().get_config(), "cell": cell}

    @classmethod
    def from_config(cls, config):
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
