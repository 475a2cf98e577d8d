"""What the steps of all recurrent decoders share: stacked layers, states, dropout.

Shapes: B batch, K beam (1 in training), E embedding, H units, S source positions.
States are [..., n]; in a training loop the leading axes are [B], in search [B, K].
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_rate, check_size
from keras_luong.layers.cell_input import CellInput
from keras_luong.layers.cells import get_cell_type
from keras_luong.layers.memory import Memory, make_memory
from keras_luong.layers.recurrent_layer import run_layer
from keras_luong.layers.scores import matmul
from keras_luong.layers.uncast_layer import UncastLayer


class CellStates(NamedTuple):
    """The states of a cell by what they are; loops and searches carry a flat list.

    Attributes:
        recurrent: h₁, c₁, ..., h_L, c_L of the layers.
        fed: What the next step reads of this one (h̃ with input feeding): one or none.
        attention: What the attention remembers, [..., S]: one or none.
        position: Target words so far, int32 [..., 1].
    """

    recurrent: list
    fed: list
    attention: list
    position: Any

    def flat(self):
        """The list that loops and searches carry."""
        return [*self.recurrent, *self.fed, *self.attention, self.position]


class DecoderCell(UncastLayer):
    """A step of a recurrent decoder; subclasses say in `advance` what it computes.

    Besides `advance` a subclass may override `project_inputs` (what of a step can be
    computed before the loop), `prepare` (likewise of the source) and `fed_units`.

    Args:
        units: Size H of every recurrent layer.
        attention: An attention layer such as `LuongAttention`, or None.
        num_layers: How many recurrent layers.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        dropout: Rate on what enters each recurrent layer from below (not on what
            recurs), as in Zaremba et al. 2015.
        recurrent_dropout: Rate on the recurrent h of each layer (Gal & Ghahramani
            2016). Dropout masks are drawn once per sequence, as in Keras's own layers.
        output_dropout: Rate on the output; `dropout` by default.
        residual: Whether each layer after the first adds its input to its output (Wu
            et al. 2016).
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.
    """

    #: Whether attention is a part of the recurrence. If not, the decoder runs one layer
    #: after the other, each over the whole target, then `attend` once for all steps.
    attends_in_loop = True

    #: The lowest layer whose input is added to its output, where `residual`.
    first_residual = 1

    def __init__(
        self,
        units,
        attention,
        num_layers=1,
        cell_type="lstm",
        dropout=0.0,
        recurrent_dropout=0.0,
        output_dropout=None,
        residual=False,
        kernel_initializer="glorot_uniform",
        recurrent_initializer="orthogonal",
        bias_initializer="zeros",
        seed=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        if attention is not None and not hasattr(attention, "attend"):
            raise TypeError(
                "attention must be None or an attention layer such as LuongAttention. "
                f"Received: {attention!r}"
            )
        self.attention = attention
        self.cell_type = cell_type
        self.kind = get_cell_type(cell_type)
        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        if output_dropout is not None:
            output_dropout = check_rate("output_dropout", output_dropout)
        self.output_dropout = output_dropout
        self.residual = check_flag("residual", residual)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.layers = [self._make_layer(i) for i in range(num_layers)]

    def _make_layer(self, index):
        return self.kind.layer(
            self.units,
            kernel_initializer=self.kernel_initializer.clone(),
            recurrent_initializer=self.recurrent_initializer.clone(),
            bias_initializer=self.bias_initializer,
            return_sequences=True,
            dtype=self.dtype_policy,
            name=f"layer_{index}",
        )

    @property
    def output_units(self):
        """Size of the output."""
        return self.units

    @property
    def output_rate(self):
        """The rate of dropout on the output."""
        return self.dropout if self.output_dropout is None else self.output_dropout

    @property
    def fed_units(self):
        """Size of what the next step reads of this one, or None."""
        return None

    @property
    def gates(self):
        """Columns of a layer's kernel for each unit."""
        return self.layers[0].cell.kernel.shape[-1] // self.units

    def build(self, inputs_shape, memory_shape):
        """Makes the weights for embedded words [..., E] and a memory [B, S, Hv]."""
        if isinstance(memory_shape, Memory):  # called, rather than built by a decoder
            memory_shape = memory_shape.values
        self.input_units, self.memory_units = inputs_shape[-1], memory_shape[-1]
        width = self.input_units
        for layer in self.layers:
            layer.build((None, None, width))
            width = self.units
        if self.attention is not None and not self.attention.built:
            self.attention.build((None, None, self.units), tuple(memory_shape))
        self.build_output()

    def build_output(self):
        """Makes the weights other than the recurrent layers' and the attention's.

        `input_units` and `memory_units`, the sizes E and Hv, are known by now.
        """

    def add_kernel(self, name, rows, columns):
        """A weight matrix [rows, columns]."""
        initializer = self.kernel_initializer.clone()
        return self.add_weight(
            shape=(rows, columns), name=name, initializer=initializer
        )

    @property
    def num_recurrent_states(self):
        """How many of the states belong to the recurrent layers; they come first."""
        return self.num_layers * self.kind.num_states

    @property
    def remembers(self):
        """Whether the attention has a state."""
        return self.attention is not None and self.attention.recurrent

    def initial_states(self, shape, recurrent=None, memory=None):
        """States before the first word: `recurrent` or zeros, and position 0.

        Args:
            shape: Leading axes, (B,) or (B, K).
            recurrent: List of the recurrent layers' states, such as an encoder's; or
                all states of an earlier call, which are returned as they are.
            memory: What `prepare` returned, for an attention that has a state.

        Returns:
            [h₁, c₁, ..., h_L, c_L, what is fed back (if anything), the attention's
            state (if it has one), position], each [*shape, n]; the position is int32
            and counts target words from 0.
        """
        if recurrent is None:
            recurrent = []
        elif not isinstance(recurrent, (list, tuple)):
            recurrent = [recurrent]
        recurrent = list(recurrent)
        expected = self.num_recurrent_states
        complete = expected + (self.fed_units is not None) + self.remembers + 1
        if len(recurrent) == complete:
            return self.cast(recurrent)
        if not recurrent:
            recurrent = [self._zeros(shape, self.units)] * expected
        if len(recurrent) != expected:
            raise ValueError(
                f"Expected {expected} initial states ({self.num_layers} layers of "
                f'"{self.cell_type}"), or all {complete} that return_state gives. '
                f"Received: {len(recurrent)}"
            )
        axes = [size if isinstance(size, int) else None for size in shape]
        check_axes(
            **{
                f"initial_state[{i}]": (x, *axes, self.units)
                for i, x in enumerate(recurrent)
            }
        )
        fed = [] if self.fed_units is None else [self._zeros(shape, self.fed_units)]
        position = ops.zeros((*shape, 1), dtype="int32")
        attention = []
        if self.remembers:
            attention = self.attention.initial_state(memory, *shape[1:])
            if len(shape) == 1:
                attention = [x[:, 0] for x in attention]
        return self.cast(CellStates(recurrent, fed, attention, position).flat())

    def cast(self, states):
        """All states in their dtypes: the attention's is float32 under any policy."""
        states = self.unpack(list(states))
        return CellStates(
            [ops.cast(x, self.compute_dtype) for x in states.recurrent],
            [ops.cast(x, self.compute_dtype) for x in states.fed],
            [ops.cast(x, "float32") for x in states.attention],
            ops.cast(states.position, "int32"),
        ).flat()

    def _zeros(self, shape, units):
        return ops.zeros((*shape, units), dtype=self.compute_dtype)

    def unpack(self, states):
        """The flat list of states as `CellStates`."""
        recurrent = self.num_recurrent_states
        fed = recurrent + (self.fed_units is not None)
        return CellStates(
            states[:recurrent], states[recurrent:fed], states[fed:-1], states[-1]
        )

    def project_inputs(self, inputs):
        """The first layer's `x W + b`, without any state: -> [..., gates x H]."""
        return self.kind.ready(self.layers[0].cell, inputs)

    def prepare(self, memory, mask=None):
        """The source [B, S, Hv] as the steps want it; see `LuongAttention.prepare`."""
        if self.attention is None:
            return make_memory(memory, memory, mask)
        return self.attention.prepare(memory, mask)

    def dropout_noise(self, memory, training, queries=1):
        """Multipliers for one sequence: lists that are empty where nothing is dropped.

        Args:
            memory: What `prepare` returned.
            training: Whether to drop at all.
            queries: Number of queries that attend at once.

        Returns:
            {"below": of each later layer's input, [B, H]; "recurrent": of each layer's
            h, [B, H]; "attention": of the weights, [B, Q or 1, S]}. The first layer's
            input is the decoder's business.
        """
        noise = {"below": [], "recurrent": [], "attention": []}
        batch_size, source_length = ops.shape(memory.mask)
        shape = (batch_size, self.units)
        if training and self.dropout:
            noise["below"] = [self.noise(shape, self.dropout) for _ in self.layers[1:]]
        if training and self.recurrent_dropout:
            rate = self.recurrent_dropout
            noise["recurrent"] = [self.noise(shape, rate) for _ in self.layers]
        if self.attention is not None:
            shape = (batch_size, queries, source_length)
            weights = self.attention.dropout_noise(shape, training)
            noise["attention"] = [] if weights is None else [weights]
        return noise

    def noise(self, shape, rate):
        """Dropout multipliers: 0, or 1/(1-rate)."""
        ones = ops.ones(shape, dtype=self.compute_dtype)
        return keras.random.dropout(ones, rate, seed=self.seed_generator)

    def run_layer(self, index, inputs, states, noise, project):
        """One recurrent layer: -> [h, ...], its new states.

        Args:
            index: Which one.
            inputs: A `CellInput`.
            states: The recurrent states of all layers.
            noise: What `dropout_noise` returned.
            project: How to multiply by weights (`keras_luong.layers.scores.matmul`).
        """
        count = self.kind.num_states
        old = states[index * count : (index + 1) * count]
        drops = noise and noise["recurrent"]
        return self.kind.equations(
            self.layers[index].cell,
            inputs,
            old,
            project,
            noise["recurrent"][index] if drops else None,
        )

    def run_above(self, h, states, noise, project, extra=()):
        """The layers above the first: -> h of the top, their new states.

        Args:
            h: Output of the first layer.
            states: The recurrent states of all layers.
            noise: What `dropout_noise` returned.
            project: How to multiply by weights.
            extra: For each of these layers, a pair (kernel, tensor) that enters it too.
        """
        new_states = []
        for i, layer in enumerate(self.layers[1:], 1):
            x = h * noise["below"][i - 1] if noise and noise["below"] else h
            pairs = [(layer.cell.kernel, x), *extra[i - 1 : i]]
            bias = self.kind.input_bias(layer.cell)
            inputs = CellInput(None, *zip(*pairs, strict=True), bias=bias)
            new = self.run_layer(i, inputs, states, noise, project)
            adds = self.residual and i >= self.first_residual
            h = new[0] + h if adds else new[0]
            new_states += new
        return h, new_states

    def run_layers(self, x, states, noise, mask, training):
        """The recurrent layers over a whole target, one after the other.

        Args:
            x: Embedded words, time-major [T, B, E].
            states: Their initial states [B, H].
            noise: What `dropout_noise` returned.
            mask: bool [T, B], or None.
            training: Whether gradients will be wanted.

        Returns:
            The top layer's h [T, B, H]; all final states.
        """
        count, finals = self.kind.num_states, []
        for i, layer in enumerate(self.layers):
            below = x
            if i and noise["below"]:
                x = x * noise["below"][i - 1]
            x, new = run_layer(
                self.kind,
                layer,
                x,
                states[i * count : (i + 1) * count],
                mask,
                noise=noise["recurrent"][i] if noise["recurrent"] else None,
                training=training,
            )
            if self.residual and i >= self.first_residual:
                x = x + below
            finals += new
        return x, finals

    def look(self, query, memory, states, noise=None, project=matmul, training=False):
        """Attends from the queries [..., H] of this step.

        Args:
            query: [B, H] in a loop, [B, K, H] in search.
            memory: What `prepare` returned.
            states: `CellStates` of the step.
            noise: What `dropout_noise` returned, or None.
            project: How to multiply by weights.
            training: Whether gradients are wanted.

        Returns:
            Context [..., Hv], weights float32 [..., S], the attention's new state.
        """
        single = len(query.shape) == 2
        state = states.attention
        if single:
            query, *state = [ops.expand_dims(x, 1) for x in (query, *state)]
        context, weights, state = self.attention.attend(
            query,
            memory,
            ops.reshape(states.position, ops.shape(query)[:2]),
            state,
            noise["attention"][0] if noise and noise["attention"] else None,
            project,
            training,
        )
        if single:  # a slice would have a gradient as large as what it is of
            context, weights, *state = [
                ops.squeeze(x, 1) for x in (context, weights, *state)
            ]
        return context, weights, state

    def advance(self, z, states, memory, noise=None, project=matmul, training=False):
        """One step of the recurrence.

        Args:
            z: What `project_inputs` returned for this step.
            states: Flat list, see `initial_states`.
            memory: What `prepare` returned.
            noise: What `dropout_noise` returned, or None.
            project: How to multiply by weights (`keras_luong.layers.scores.matmul`).
            training: Whether gradients are wanted.

        Returns:
            (output [..., output_units], weights float32 [..., S]) and the new states.
        """
        raise TypeError(f"{type(self).__name__} must say what a step is: def advance")

    def call(self, inputs, states, memory):
        """One step of a search.

        Args:
            inputs: Embedded target words [B, K, E].
            states: List of states [B, K, ...], from `initial_states` or an earlier
                call.
            memory: What `prepare` returned.

        Returns:
            The output [B, K, output_units], the list of new states, and the alignment
            weights, float32 [B, K, S] (zeros without attention).
        """
        z = self.project_inputs(ops.cast(inputs, self.compute_dtype))
        (outputs, weights), states = self.advance(z, self.cast(states), memory)
        return outputs, states, weights

    def get_config(self):
        """The constructor's arguments."""
        config = {
            "units": self.units,
            "attention": keras.saving.serialize_keras_object(self.attention),
            "num_layers": self.num_layers,
            "cell_type": self.cell_type,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "output_dropout": self.output_dropout,
            "residual": self.residual,
            "seed": self.seed,
        }
        for name in ("kernel", "recurrent", "bias"):
            name = f"{name}_initializer"
            config[name] = keras.initializers.serialize(getattr(self, name))
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the cell and its attention."""
        attention = keras.saving.deserialize_keras_object(config["attention"])
        return cls(**{**config, "attention": attention})


def no_weights(query, memory):
    """Alignment weights of a decoder without attention: zeros [..., S]."""
    shape = (*ops.shape(query)[:-1], ops.shape(memory.mask)[1])
    return ops.zeros(shape, dtype="float32")
