"""The encoder: stacked recurrent layers, in one direction or both.

Shapes: B batch, S source positions, E embedding, H units, N outputs (H, or 2H when
bidirectional).
"""

from __future__ import annotations

import itertools
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag
from keras_luong.layers.cells import dropped
from keras_luong.layers.recurrence import RecurrentLayers
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class RecurrentEncoder(RecurrentLayers):
    """Stacked recurrent layers over the source: all states of the top, last of each.

    Args:
        units: Size H of each layer and direction.
        num_layers: How many layers.
        bidirectional: Whether each layer also reads from the end, as in Bahdanau et
            al. 2015; the two directions' states are concatenated. "first": only the
            first layer does, as in Wu et al. 2016; its final states are those of the
            backward direction, so that all have the same size.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        residual: Whether each layer after the first adds its input to its output,
            where both have one size (Wu et al. 2016).
        dropout: Rate on what enters each layer from below (Zaremba et al. 2015), with
            one mask per sequence, as in Keras's own layers.
        recurrent_dropout: Rate on the recurrent h of each layer (Gal & Ghahramani
            2016), likewise.
        go_backwards: Whether a unidirectional encoder reads the source reversed, as in
            Sutskever et al. 2014. The outputs are in the source's order all the same.
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded source words [B, S, E].
        mask: bool [B, S], True at words. Padding may stand anywhere: masked steps keep
            the state and give zeros.
        training: Whether to apply dropout.

    Returns:
        memory [B, S, N], then each layer's final states, from the bottom: h, c (only
        LSTMs have it), each [B, N] (or [B, H] where only the first layer reads both
        ways).

    Raises:
        ValueError, TypeError: An argument that is none of the above, or shapes do not
            fit.

    Example:
        >>> memory, *state = kl.RecurrentEncoder(256, bidirectional=True)(
        ...     embedded, mask=ids != 0
        ... )
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        bidirectional: bool | str = False,
        cell_type: str = "lstm",
        residual: bool = False,
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        go_backwards: bool = False,
        **kwargs: Any,
    ) -> None:
        rates = dropout, recurrent_dropout
        super().__init__(units, num_layers, cell_type, *rates, residual, **kwargs)
        if bidirectional != "first":
            check_flag("bidirectional", bidirectional)
        self.bidirectional = bidirectional
        self.go_backwards = check_flag("go_backwards", go_backwards)
        if bidirectional and go_backwards:
            raise ValueError(
                "A bidirectional encoder reads both ways already: go_backwards must be "
                f"False. Received: go_backwards={go_backwards}"
            )
        forward = 0 if go_backwards else num_layers
        backward = num_layers if bidirectional or go_backwards else 0
        if bidirectional == "first":
            backward = 1
        self.forward_layers = self.make_layers(forward, "forward")
        self.backward_layers = self.make_layers(backward, "backward")
        self.output_units = self.units * len(self._levels()[-1])  # N, of the memory
        self.state_units = self.units * (2 if bidirectional is True else 1)

    def _levels(self):
        """The layers by depth, each a list of (layer, reads backwards)."""
        forward = [(layer, False) for layer in self.forward_layers]
        backward = [(layer, True) for layer in self.backward_layers]
        levels = itertools.zip_longest(forward, backward)
        return [[direction for direction in level if direction] for level in levels]

    def build(self, inputs_shape: Shape) -> None:
        """Makes the weights for embedded words [B, S, E]."""
        self.input_units = width = inputs_shape[-1]
        for level in self._levels():
            for layer, _ in level:
                layer.build((None, None, width))
            width = self.units * len(level)

    def call(
        self, inputs: Tensor, mask: Tensor | None = None, training: bool | None = None
    ) -> tuple[Tensor, ...]:
        """See the class."""
        check_axes(
            inputs=(inputs, "batch size", "source length", self.input_units),
            mask=(mask, "batch size", "source length"),
        )
        if not keras.backend.is_float_dtype(inputs.dtype):
            raise TypeError(
                "inputs must be embedded words of a floating dtype. Received: "
                f"{inputs.dtype}"
            )
        x = ops.swapaxes(inputs, 0, 1)
        mask = None if mask is None else ops.transpose(ops.cast(mask, "bool"))
        states = []
        for depth, level in enumerate(self._levels()):
            below, x = x, self._drop(x, training)
            runs = [self._run(layer, x, mask, back, training) for layer, back in level]
            outputs, finals = zip(*runs, strict=True)
            x = _joined(outputs)
            if self.residual and depth and x.shape[-1] == below.shape[-1]:
                x = x + below
            if self.bidirectional == "first":
                finals = finals[-1:]
            states += [_joined(pair) for pair in zip(*finals, strict=True)]
        return ops.swapaxes(x, 0, 1), *states

    def _run(self, layer, x, mask, backwards, training):
        """One layer, one direction, over x [S, B, n]: -> outputs, final states."""
        shape = (ops.shape(x)[1], self.units)
        states = [ops.zeros(shape, dtype=self.compute_dtype)] * self.kind.num_states
        noise = self.draw_noise(shape, self.recurrent_dropout, training)
        return self.scan_layer(layer, x, states, mask, noise, training, backwards)

    def _drop(self, x, training):
        """Drops the same units at every step of a sequence [S, B, n]."""
        shape = (1, *ops.shape(x)[1:])
        return dropped(x, self.draw_noise(shape, self.dropout, training))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """The memory is masked where the inputs are; the states are not."""
        return previous_mask

    def compute_output_spec(
        self, inputs: Tensor, mask: Any = None, training: bool | None = None
    ) -> tuple[keras.KerasTensor, ...]:
        """Shapes and dtypes of `call`'s results."""
        batch_size, source_length = inputs.shape[:2]
        memory: Shape = (batch_size, source_length, self.output_units)
        states: list[Shape] = [(batch_size, self.state_units)] * self.kind.num_states
        shapes = [memory, *states * self.num_layers]
        return tuple(keras.KerasTensor(x, dtype=self.compute_dtype) for x in shapes)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "bidirectional": self.bidirectional,
            "go_backwards": self.go_backwards,
        }


def _joined(directions):
    """What one or two directions computed, abreast."""
    return ops.concatenate(directions, -1) if len(directions) > 1 else directions[0]
