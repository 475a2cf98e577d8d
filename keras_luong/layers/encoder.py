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
from keras_luong.compat import as_tensor, get_keras_mask
from keras_luong.layers.base import check_tensors, unpacking_hint
from keras_luong.layers.cells import dropped
from keras_luong.layers.recurrence import RecurrentLayers
from keras_luong.types import Shape, Tensor, Tensors


@keras.saving.register_keras_serializable(package="keras_luong")
class RecurrentEncoder(RecurrentLayers):
    """Stacked recurrent layers that read the source.

    They return all states of the top layer, and the last ones of each layer.

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
        return_state: Whether to return the final states too. `TimeDistributed`, and a
            `Sequential` model, need a layer with one output: False.
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        inputs: Embedded source words [B, S, E].
        mask: bool [B, S], True at words; the inputs' own Keras mask by default. Padding
            may stand anywhere: masked steps keep the state and give zeros.
        training: Whether to apply dropout.
        initial_state: List of the layers' states before the first word, as many and as
            large as those that are returned (one may be a tensor alone); zeros by
            default. Where only the first layer reads both ways, its forward direction
            starts from zeros.

    Returns:
        memory [B, S, N]; with `return_state` then each layer's final states, from the
        bottom: h, c (only LSTMs have it), each [B, N] (or [B, H] where only the first
        layer reads both ways).

    Raises:
        ValueError, TypeError: An argument that is none of the above, or shapes do not
            fit.

    Example:
        >>> words, mask = np.random.rand(2, 5, 3), np.ones([2, 5], bool)
        >>> encoder = kl.RecurrentEncoder(8, bidirectional=True)
        >>> memory, *state = encoder(words, mask=mask)
        >>> tuple(memory.shape), [tuple(x.shape) for x in state]
        ((2, 5, 16), [(2, 16), (2, 16)])
    """

    input_units: int | None = None  # E, once built

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
        return_state: bool = True,
        **kwargs: Any,
    ) -> None:
        rates = dropout, recurrent_dropout
        super().__init__(units, num_layers, cell_type, *rates, residual, **kwargs)
        if not (isinstance(bidirectional, bool) or bidirectional == "first"):
            raise TypeError(
                'bidirectional must be True, False or "first". Received: '
                f"{bidirectional!r}"
            )
        self.bidirectional = bidirectional
        self.go_backwards = check_flag("go_backwards", go_backwards)
        self.return_state = check_flag("return_state", return_state)
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
        self,
        inputs: Tensor,
        mask: Tensor | None = None,
        training: bool | None = None,
        initial_state: Tensors | None = None,
    ) -> Any:
        """See the class."""
        if mask is None:  # Keras fills it in only where there is no other tensor
            mask = get_keras_mask(inputs)
        inputs = as_tensor(inputs)
        initial_state = self._check(inputs, mask, initial_state)
        x = ops.swapaxes(inputs, 0, 1)
        mask = None if mask is None else ops.transpose(ops.cast(mask, "bool"))
        shape = (ops.shape(x)[1], self.units)  # [B, H]
        zeros = [ops.zeros(shape, dtype=self.compute_dtype)] * self.kind.num_states
        states: list[Tensor] = []
        for depth, level in enumerate(self._levels()):
            below = x  # the same units are dropped at every step
            noise = self.draw_noise((1, *ops.shape(x)[1:]), self.dropout, training)
            x, runs = dropped(x, noise), []
            first = self._first_states(initial_state, depth, len(level))
            for (layer, backwards), old in zip(level, first, strict=True):
                noise = self.draw_noise(shape, self.recurrent_dropout, training)
                runs.append(
                    self.scan_layer(
                        layer, x, old or zeros, mask, noise, training, backwards
                    )
                )
            outputs, finals = zip(*runs, strict=True)
            x = _joined(outputs)
            if self.residual and depth and x.shape[-1] == below.shape[-1]:
                x = x + below
            if self.bidirectional == "first":
                finals = finals[-1:]
            states += [_joined(pair) for pair in zip(*finals, strict=True)]
        memory = ops.swapaxes(x, 0, 1)
        return (memory, *states) if self.return_state else memory

    def _check(self, inputs, mask, initial_state):
        """Checks shapes and dtypes; returns the initial states as a list, or None.

        The tensors may be symbolic.
        """
        sizes, states = self.state_sizes, []
        if initial_state is not None:
            states = check_tensors("initial_state", initial_state)
            if len(states) != len(sizes):
                raise ValueError(
                    f"Expected {len(sizes)} initial states ({self.num_layers} layers "
                    f'of "{self.cell_type}"). Received: {len(states)}'
                    f"{unpacking_hint(states)}"
                )
        check_axes(
            inputs=(inputs, "batch size", "source length", self.input_units),
            mask=(mask, "batch size", "source length"),
            **{
                f"initial_state[{i}]": (x, "batch size", size)
                for i, (x, size) in enumerate(zip(states, sizes, strict=False))
            },
        )
        if not keras.backend.is_float_dtype(inputs.dtype):
            raise TypeError(
                "inputs must be embedded words of a floating dtype. Received: "
                f"{inputs.dtype}"
            )
        return states or None

    @property
    def state_sizes(self) -> list[int]:
        """The size of each state that is returned, as a `StateBridge` may want it."""
        return [self.state_units] * self.kind.num_states * self.num_layers

    def _first_states(self, initial_state, depth, directions):
        """One layer's initial states of each direction, or None for zeros."""
        if initial_state is None:
            return [None] * directions
        count = self.kind.num_states
        states = initial_state[depth * count : (depth + 1) * count]
        states = [ops.cast(x, self.compute_dtype) for x in states]
        if directions == 1 or self.bidirectional == "first":
            return [None, states][-directions:]
        halves = [ops.split(x, 2, axis=-1) for x in states]
        return list(zip(*halves, strict=True))

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor | None = None) -> Any:
        """The memory is masked where the inputs are; the states are not."""
        return previous_mask

    def compute_output_spec(
        self,
        inputs: Tensor,
        mask: Any = None,
        training: bool | None = None,
        initial_state: Any = None,
    ) -> Any:
        """Shapes and dtypes of `call`'s results."""
        self._check(inputs, mask, initial_state)
        shapes = self.compute_output_shape(inputs.shape)
        shapes = shapes if self.return_state else (shapes,)
        specs = tuple(keras.KerasTensor(x, dtype=self.compute_dtype) for x in shapes)
        return specs if self.return_state else specs[0]

    def compute_output_shape(self, inputs_shape: Shape) -> Any:
        """Shapes of the memory, and of each state."""
        memory = (*inputs_shape[:2], self.output_units)
        states = [(inputs_shape[0], size) for size in self.state_sizes]
        return (memory, *states) if self.return_state else memory

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            **self.options(),
            "seed": self.seed,
            "bidirectional": self.bidirectional,
            "go_backwards": self.go_backwards,
            "return_state": self.return_state,
        }


def _joined(directions):
    """Concatenates the outputs of one or two directions."""
    return ops.concatenate(directions, -1) if len(directions) > 1 else directions[0]
