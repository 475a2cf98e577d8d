"""The encoder: stacked recurrent layers, in one direction or both.

Shapes: B batch, S source positions, E embedding, H units, N outputs (H, or 2H when
bidirectional).
"""

from __future__ import annotations

import itertools

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_rate, check_size
from keras_luong.layers.cells import get_cell_type
from keras_luong.layers.recurrent_layer import run_layer


@keras.saving.register_keras_serializable(package="keras_luong")
class RecurrentEncoder(keras.layers.Layer):
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
        units,
        num_layers=1,
        bidirectional=False,
        cell_type="lstm",
        residual=False,
        dropout=0.0,
        recurrent_dropout=0.0,
        go_backwards=False,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        if bidirectional != "first":
            check_flag("bidirectional", bidirectional)
        self.bidirectional = bidirectional
        self.cell_type = cell_type
        self.residual = check_flag("residual", residual)
        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.go_backwards = check_flag("go_backwards", go_backwards)
        if bidirectional and go_backwards:
            raise ValueError(
                "A bidirectional encoder reads both ways already: go_backwards must be "
                f"False. Received: go_backwards={go_backwards}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.kind = get_cell_type(cell_type)
        backward = num_layers if bidirectional or go_backwards else 0
        self.forward_layers = self._make_layers(
            "forward", num_layers * (not go_backwards)
        )
        self.backward_layers = self._make_layers(
            "backward", 1 if bidirectional == "first" else backward
        )

    def _make_layers(self, direction, count):
        return [
            self.kind.layer(
                self.units,
                kernel_initializer=self.kernel_initializer.clone(),
                recurrent_initializer=self.recurrent_initializer.clone(),
                bias_initializer=self.bias_initializer,
                return_sequences=True,
                dtype=self.dtype_policy,
                name=f"{direction}_{i}",
            )
            for i in range(count)
        ]

    @property
    def output_units(self):
        """Size N of the memory."""
        both = self.bidirectional is True or (
            self.bidirectional and self.num_layers == 1
        )
        return self.units * (2 if both else 1)

    @property
    def state_units(self):
        """Size of every final state."""
        return self.units * (2 if self.bidirectional is True else 1)

    def _levels(self):
        """The layers by depth, each a list of (layer, reads backwards)."""
        forward = [(layer, False) for layer in self.forward_layers]
        backward = [(layer, True) for layer in self.backward_layers]
        levels = itertools.zip_longest(forward, backward)
        return [[direction for direction in level if direction] for level in levels]

    def build(self, inputs_shape):
        """Makes the weights for embedded words [B, S, E]."""
        self.input_units = width = inputs_shape[-1]
        for level in self._levels():
            for layer, _ in level:
                layer.build((None, None, width))
            width = self.units * len(level)

    def call(self, inputs, mask=None, training=None):
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
            below = x
            x = self._drop(x, training)
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
        zeros = ops.zeros((ops.shape(x)[1], self.units), dtype=self.compute_dtype)
        states = [zeros] * self.kind.num_states
        noise = None
        if training and self.recurrent_dropout:
            noise = self._noise(zeros, self.recurrent_dropout)
        return run_layer(
            self.kind,
            layer,
            x,
            states,
            mask,
            backwards,
            noise=noise,
            training=training,
        )

    def _drop(self, x, training):
        if not (training and self.dropout):
            return x
        return x * self._noise(x[:1], self.dropout)

    def _noise(self, like, rate):
        """Dropout multipliers of a tensor's shape: 0, or 1/(1-rate)."""
        ones = ops.ones_like(like)
        return keras.random.dropout(ones, rate, seed=self.seed_generator)

    def compute_mask(self, inputs, previous_mask=None):
        """The memory is masked where the inputs are; the states are not."""
        del inputs
        return previous_mask

    def compute_output_spec(self, inputs, mask=None, training=None):
        """Shapes and dtypes of `call`'s results."""
        del mask, training
        batch_size, source_length = inputs.shape[:2]
        memory = keras.KerasTensor(
            (batch_size, source_length, self.output_units), dtype=self.compute_dtype
        )
        state = (batch_size, self.state_units)
        num_states = self.num_layers * self.kind.num_states
        return memory, *[
            keras.KerasTensor(state, dtype=self.compute_dtype)
            for _ in range(num_states)
        ]

    def get_config(self):
        """The constructor's arguments."""
        config = {
            "units": self.units,
            "num_layers": self.num_layers,
            "bidirectional": self.bidirectional,
            "cell_type": self.cell_type,
            "residual": self.residual,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "go_backwards": self.go_backwards,
            "seed": self.seed,
        }
        for name in ("kernel", "recurrent", "bias"):
            name = f"{name}_initializer"
            config[name] = keras.initializers.serialize(getattr(self, name))
        return {**super().get_config(), **config}


def _joined(directions):
    """What one or two directions computed, abreast."""
    return ops.concatenate(directions, -1) if len(directions) > 1 else directions[0]
