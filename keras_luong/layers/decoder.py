"""A decoder over whole sequences, around a cell that makes one step.

Shapes: B batch, S source positions, T target positions, E embedding, H units, A
attentional units, Hv memory units, V outputs.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag
from keras_luong.compat import get_keras_mask, serialize_shared
from keras_luong.layers.base import BaseLayer, arguments_of
from keras_luong.layers.cells import dropped
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.feeding import (
    apply_in_loop,
    as_feeding,
    build_layer,
    scan_feeding,
)
from keras_luong.layers.memory import (
    blanked,
    is_several,
    joined_shape,
    source_axes,
    source_shapes,
)
from keras_luong.layers.recurrence import scan
from keras_luong.types import Shape, Tensor, Tensors


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoder(BaseLayer):
    """Runs an `InputFeedingDecoderCell`, or another `DecoderCell`, over a target.

    With input feeding, attention is a part of the recurrence. Without it nothing recurs
    through the attention, so all T queries attend at once after the loop.

    Args:
        cell: A `DecoderCell`.
        return_sequences: Whether to return the outputs of all steps, or only those of
            the last (of the last word, where there is a mask).
        feeding: What the next input is: None for teacher forcing, `ScheduledEmbedding`,
            `ScheduledOutput`, `FreeRunning`, `CustomFeeding`, or a function for the
            latter. Where it feeds back, attention is a part of the recurrence.
        output_layer: A layer such as `keras.layers.Dense` that makes the outputs [V]
            of h̃, such as the logits of words.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded target words, each the one before the word to predict
            [B, T, E]; with `FreeRunning`, the first ones.
        memory: Encoder states [B, S, Hv]; a list of them for a `MultiSourceAttention`.
        memory_mask: bool [B, S], True at source words; the memory's own Keras mask by
            default. A list of them for a `MultiSourceAttention`.
        mask: bool [B, T], True at target words; the inputs' own Keras mask by default.
            Needed only where padding comes before words or the returned states matter:
            masked steps keep the states and give zeros.
        initial_state: List of the recurrent states [B, H], such as an encoder's or a
            `StateBridge`'s (zeros by default), or all that `return_state` gave earlier.
        return_state: Whether to return the final states.
        return_attention_scores: Whether to return the alignment weights.
        training: Whether to apply dropout.

    Returns:
        h̃ [B, T, A], or the output layer's [B, T, V]; with `return_attention_scores`,
        then the weights [B, T, S], float32 (float64 under that policy); with
        `return_state`, then each final state. With `return_sequences=False` there is
        no T.

    Raises:
        TypeError, ValueError: An argument is none of these, or shapes do not fit.

    Example:
        >>> source, target = np.random.rand(2, 5, 6), np.random.rand(2, 4, 6)
        >>> memory, *state = kl.RecurrentEncoder(8)(source)
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention("dot"))
        >>> decoder = kl.InputFeedingDecoder(cell)
        >>> h_tilde = decoder(target, memory, initial_state=state)
        >>> tuple(h_tilde.shape)
        (2, 4, 8)
    """

    _nested: tuple[str, ...] = ("cell", "feeding", "output_layer")
    _keeps_dtypes = True

    def __init__(
        self,
        cell: DecoderCell,
        return_sequences: bool = True,
        feeding: Any = None,
        output_layer: keras.layers.Layer | None = None,
        **kwargs: Any,
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
        self.feeding: Any = as_feeding(feeding)
        if not isinstance(output_layer, keras.layers.Layer | None):
            raise TypeError(
                "output_layer must be a layer such as keras.layers.Dense, or None. "
                f"Received: {output_layer!r}"
            )
        self.output_layer = output_layer

    def build(self, inputs_shape: Shape, memory_shape: Any) -> None:
        """Builds the cell, the output layer and the feeding."""
        if not self.cell.built:
            self.cell.build(tuple(inputs_shape), memory_shape)
        build_layer(self.output_layer, (None, None, self.cell.output_units))
        if self.feeding is not None:
            self.feeding.build_for(self._output_spec((None,)), inputs_shape[-1])

    def call(
        self,
        inputs: Tensor,
        memory: Tensors,
        memory_mask: Tensors | None = None,
        mask: Tensor | None = None,
        initial_state: Tensors | None = None,
        return_state: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """See the class."""
        # 1. The arguments. Keras itself looks for masks of several tensors elsewhere.
        cell = self.cell
        mask = get_keras_mask(inputs) if mask is None else mask
        self._check(inputs, memory, memory_mask, mask, initial_state)
        mask = None if mask is None else ops.cast(mask, "bool")
        if self._steps is not None:
            inputs = _lengthen(inputs, self._steps)
            mask = None if mask is None else _lengthen_mask(mask, self._steps)
        inputs = ops.cast(inputs, cell.compute_dtype)
        memory = keras.tree.map_structure(
            lambda x: ops.cast(x, cell.compute_dtype), memory
        )
        # 2. The source is prepared once for all steps.
        prepared = cell.prepare(memory, memory_mask)
        states = cell.initial_states(ops.shape(inputs)[:1], initial_state, prepared)
        # 3. The recurrence.
        run = self._force
        if self.feeding is not None and (training or not self.feeding.only_in_training):
            run = self._feed
        results, final = run(
            inputs, prepared, cell.pack(states), mask, training, return_attention_scores
        )
        if not return_attention_scores:
            results = results[:1]
        if return_state:
            results = [*results, *keras.tree.flatten(final)]
        return tuple(results) if len(results) > 1 else results[0]

    def _check(self, inputs, memory, memory_mask, mask, initial_state):
        """Raises ValueError unless shapes fit, of tensors and of symbolic tensors."""
        cell = self.cell
        check_axes(
            inputs=(inputs, "batch size", "target length", cell.input_units),
            mask=(mask, "batch size", "target length"),
            **source_axes(memory, memory_mask, cell.source_units),
        )
        cell.check_states(initial_state, inputs.shape[:1])
        if self.feeding is not None:
            self.feeding.check_inputs(inputs.shape)

    def _force(self, inputs, memory, states, mask, training, keep_weights):
        """Teacher forcing: all inputs [B, T, E] are known before the loop."""
        cell, time_mask = self.cell, None if mask is None else ops.transpose(mask)
        inputs = self._drop(inputs, cell.dropout, training)
        x = ops.swapaxes(inputs, 0, 1)  # [T, B, E]
        if cell.attends_in_loop:
            mode = cell.make_mode(memory, training)

            def step(z, states, memory, mode):
                outputs, states = cell.step(z, states, memory, mode)
                return outputs if keep_weights else outputs[:1], states

            z = cell.project_inputs(x, mode)
            outputs, final = scan(step, z, states, memory, time_mask, mode)
            results = [ops.swapaxes(y, 0, 1) for y in outputs]
        else:
            mode = cell.make_mode(memory, training, ops.shape(inputs)[1])
            h, recurrent = cell.recurrent.scan(x, states.recurrent, time_mask, mode)
            before, words = _count(inputs, mask)
            queries = states._replace(position=states.position + before)
            h = ops.swapaxes(h, 0, 1)  # [B, T, H]
            h_tilde, weights, _ = cell.attentional_output(h, memory, queries, mode)
            results = [h_tilde if cell.output_attention else h, weights]
            results = results if keep_weights else results[:1]
            if mask is not None:
                results = [blanked(y, mask) for y in results]
            final = states._replace(
                recurrent=recurrent, position=states.position + words
            )
        results[0] = self._drop(results[0], self._output_rate, training)
        results = self._choose(results, mask)
        if self.output_layer is not None:
            results[0] = self.output_layer(results[0])
            if mask is not None:
                seen = mask if self.return_sequences else ops.any(mask, axis=1)
                results[0] = blanked(results[0], seen)
        return results, final

    def _feed(self, inputs, memory, states, mask, training, keep_weights):
        """Feeding back: an input may be the output of the step before."""
        cell, batch_size = self.cell, ops.shape(inputs)[0]
        input_noise, output_noise = (
            cell.draw_noise((batch_size, units), rate, training)
            for units, rate in (
                (inputs.shape[-1], cell.dropout),
                (cell.output_units, self._output_rate),
            )
        )

        def finish(y, project):
            y, layer = dropped(y, output_noise), self.output_layer
            return y if layer is None else apply_in_loop(layer, y, project)

        outputs, final = scan_feeding(
            cell,
            self.feeding,
            finish,
            ops.swapaxes(inputs, 0, 1),
            states,
            memory,
            None if mask is None else ops.transpose(mask),
            cell.make_mode(memory, training),
            input_noise,
            keep_weights,
        )
        return self._choose([ops.swapaxes(y, 0, 1) for y in outputs], mask), final

    def _choose(self, results, mask):
        """All steps of results [B, T, n], or their last."""
        if self.return_sequences:
            return results
        return [_last(x, mask) for x in results]

    @property
    def _output_rate(self):
        cell = self.cell
        return cell.dropout if cell.output_dropout is None else cell.output_dropout

    def _drop(self, x, rate, training):
        """Drops the same units at every step of a sequence [B, T, n]."""
        shape = (ops.shape(x)[0], 1, x.shape[-1])
        return dropped(x, self.cell.draw_noise(shape, rate, training))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """The outputs are masked where the inputs are."""
        if not self.return_sequences:
            return None
        if previous_mask is None or self._steps is None:
            return previous_mask
        return _lengthen_mask(previous_mask, self._steps)

    def _output_spec(self, axes):
        """A symbolic tensor like the outputs, with these leading axes."""
        cell = self.cell
        spec = keras.KerasTensor((*axes, cell.output_units), cell.compute_dtype)
        layer = self.output_layer
        return spec if layer is None else layer.compute_output_spec(spec)

    def compute_output_shape(self, inputs_shape: Shape, memory_shape: Any) -> Shape:
        """The shape of the output alone: [B, T, A], or [B, A] of the last step."""
        if not self.cell.built:
            self.cell.read_shapes(inputs_shape, source_shapes(memory_shape))
        shape = (*self._axes(inputs_shape), self.cell.output_units)
        layer = self.output_layer
        return shape if layer is None else tuple(layer.compute_output_shape(shape))

    def _axes(self, inputs_shape):
        """The outputs' first axes, (B, T) or (B,)."""
        if not self.return_sequences:
            return tuple(inputs_shape[:1])
        batch_size, length = inputs_shape[:2]
        return batch_size, length if self._steps is None else self._steps

    @property
    def _steps(self):
        return None if self.feeding is None else self.feeding.steps

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        arguments = arguments_of(self.call, args, kwargs)
        inputs, memory = arguments["inputs"], arguments["memory"]
        masks = arguments["memory_mask"], arguments["mask"]
        self._check(inputs, memory, *masks, arguments["initial_state"])
        cell, shapes = self.cell, keras.tree.map_structure(lambda x: x.shape, memory)
        axes = self._axes(inputs.shape)
        results = [self._output_spec(axes)]
        if arguments["return_attention_scores"]:
            source_length = joined_shape(shapes)[1]
            shape = (*axes, source_length)
            results.append(keras.KerasTensor(shape, cell.weights_dtype))
        if arguments["return_state"]:
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
            "feeding": serialize_shared(self.feeding),
            "output_layer": serialize_shared(self.output_layer),
        }


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


def _lengthen(inputs, steps):
    """Inputs [B, T, E] for that many steps, zeros where there were none."""
    batch_size, _, units = ops.shape(inputs)
    zeros = ops.zeros((batch_size, steps, units), dtype=inputs.dtype)
    return ops.concatenate([inputs, zeros], axis=1)[:, :steps]


def _lengthen_mask(mask, steps):
    """A mask [B, T] for that many steps, True where there were none."""
    more = ops.ones((ops.shape(mask)[0], steps), dtype="bool")
    return ops.concatenate([ops.cast(mask, "bool"), more], axis=1)[:, :steps]
