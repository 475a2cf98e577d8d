"""One step of the attentional decoder: stacked recurrent layers, then Eq. 5.

Shapes: B batch, K beam (1 in training), E embedding, H units, A attentional units,
S source positions. States are [..., H]; in a training loop the leading axes are [B], in
search [B, K].
"""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.checks import check_rate, check_size
from keras_luong.layers.attention import AttentionalVector, Memory, make_memory
from keras_luong.layers.cells import CellInput, get_cell_type
from keras_luong.layers.scores import matmul


@keras.saving.register_keras_serializable(package="keras_luong")
class InputFeedingDecoderCell(keras.layers.Layer):
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
        cell_type: "lstm" or "gru".
        input_feeding: Whether h̃_{t-1} enters the first layer.
        dropout: Rate on what enters each recurrent layer from below (not on what
            recurs), as in Zaremba et al. 2015, and on h̃ on its way out.
        recurrent_dropout: Rate on the recurrent h of each layer (Gal & Ghahramani
            2016). Dropout masks are drawn once per sequence, as in Keras's own layers.
        residual: Whether each layer after the first adds its input to its output (Wu
            et al. 2016).
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        seed: Seed of the dropout.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

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
        units,
        attention,
        num_layers=1,
        attentional_units=None,
        cell_type="lstm",
        input_feeding=True,
        dropout=0.0,
        recurrent_dropout=0.0,
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
        self.attention = attention
        attentional_units = check_size("attentional_units", attentional_units, True)
        self.attentional_units = attentional_units or units
        if attention is None and self.attentional_units != units:
            raise ValueError(
                "Without attention the output is h itself, so attentional_units must "
                f"be units. Received: attentional_units={attentional_units}, "
                f"units={units}"
            )
        if attention is not None and not hasattr(attention, "attend"):
            raise TypeError(
                "attention must be None or an attention layer such as LuongAttention. "
                f"Received: {attention!r}"
            )
        self.cell_type = cell_type
        self.input_feeding = bool(input_feeding)
        self.dropout = check_rate("dropout", dropout)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.residual = bool(residual)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)
        self.kind = get_cell_type(cell_type)
        self.layers = [self._make_layer(i) for i in range(num_layers)]
        self.attentional_vector = None
        if attention is not None:
            self.attentional_vector = AttentionalVector(
                self.attentional_units,
                kernel_initializer=self.kernel_initializer.clone(),
                dtype=self.dtype_policy,
                name="attentional_vector",
            )

    def _make_layer(self, index):
        return self.kind.layer(
            self.units,
            kernel_initializer=self.kernel_initializer.clone(),
            recurrent_initializer=self.recurrent_initializer.clone(),
            bias_initializer=self.bias_initializer,
            dtype=self.dtype_policy,
            name=f"layer_{index}",
        )

    def build(self, inputs_shape, memory_shape):
        """Makes the weights for embedded words [..., E] and a memory [B, S, Hv]."""
        if isinstance(memory_shape, Memory):  # called, rather than built by a decoder
            memory_shape = memory_shape.values
        width = inputs_shape[-1]
        for layer in self.layers:
            layer.build((None, None, width))
            width = self.units
        self.feeding_kernel = None
        if self.input_feeding:
            # The rows of the first layer's kernel that belong to h̃: what x
            # contributes is computed before the loop, what h̃ does inside it.
            self.feeding_kernel = self.add_weight(
                shape=(self.attentional_units, self.layers[0].cell.kernel.shape[-1]),
                name="feeding_kernel",
                initializer=self.kernel_initializer.clone(),
            )
        if self.attention is not None:
            query_shape = (None, None, self.units)
            if not self.attention.built:
                self.attention.build(query_shape, tuple(memory_shape))
            self.attentional_vector.build((None, None, memory_shape[-1]), query_shape)

    @property
    def num_recurrent_states(self):
        """How many of the states belong to the recurrent layers; they come first."""
        return self.num_layers * self.kind.num_states

    def initial_states(self, shape, recurrent=None):
        """States before the first word: `recurrent` or zeros, h̃ = 0, position 0.

        Args:
            shape: Leading axes, (B,) or (B, K).
            recurrent: List of the recurrent layers' states, such as an encoder's; or
                all states of an earlier call, which are returned as they are.

        Returns:
            [h₁, c₁, ..., h_L, c_L, h̃ (with input feeding), position], each
            [*shape, n]; the position is int32 and counts target words from 0.
        """
        expected = self.num_recurrent_states
        if recurrent is None:
            recurrent = []
        elif not isinstance(recurrent, (list, tuple)):
            recurrent = [recurrent]
        recurrent = list(recurrent)
        complete = expected + self.input_feeding + 1
        if len(recurrent) == complete:
            return recurrent
        if not recurrent:
            zeros = ops.zeros((*shape, self.units), dtype=self.compute_dtype)
            recurrent = [zeros] * expected
        if len(recurrent) != expected:
            raise ValueError(
                f"Expected {expected} initial states ({self.num_layers} layers of "
                f'"{self.cell_type}"), or all {complete} that return_state gives. '
                f"Received: {len(recurrent)}"
            )
        if self.input_feeding:
            fed = ops.zeros((*shape, self.attentional_units), dtype=self.compute_dtype)
            recurrent = [*recurrent, fed]
        return [*recurrent, ops.zeros((*shape, 1), dtype="int32")]

    def project_inputs(self, inputs):
        """The first layer's `x W + b`, without any state: -> [..., gates x H]."""
        return self.kind.ready(self.layers[0].cell, inputs)

    def prepare(self, memory, mask=None):
        """The source [B, S, Hv] as `attend` wants it; see `LuongAttention.prepare`."""
        if self.attention is None:
            return make_memory(memory, memory, mask)
        return self.attention.prepare(memory, mask)

    def dropout_noise(self, batch_size, training):
        """Multipliers [B, H] for one sequence: {"below": [...], "recurrent": [...]}.

        Empty lists where nothing is dropped. The first layer's input is the decoder's.
        """
        below, recurrent = [], []
        if training and self.dropout:
            shape = (batch_size, self.units)
            below = [self.noise(shape, self.dropout) for _ in self.layers[1:]]
        if training and self.recurrent_dropout:
            shape = (batch_size, self.units)
            recurrent = [self.noise(shape, self.recurrent_dropout) for _ in self.layers]
        return {"below": below, "recurrent": recurrent}

    def noise(self, shape, rate):
        """Dropout multipliers: 0, or 1/(1-rate)."""
        ones = ops.ones(shape, dtype=self.compute_dtype)
        return keras.random.dropout(ones, rate, seed=self.seed_generator)

    def recur(self, z, states, noise=None, project=matmul):
        """The recurrent layers: projected inputs z -> top h, new states.

        Args:
            z: What `project_inputs` returned for this step, [..., gates x H].
            states: All states of the cell, see `initial_states`.
            noise: What `dropout_noise` returned, or None.
            project: How to multiply by weights (`keras_luong.layers.scores.matmul`).

        Returns:
            h [..., H] and the states, h̃ still the old one and the position advanced.
        """
        noise = noise or {"below": [], "recurrent": []}
        *states, position = states
        inputs, h = CellInput(z), None
        new_states = []
        if self.input_feeding:
            inputs = CellInput(z, (self.feeding_kernel,), (states[-1],))
        for i, layer in enumerate(self.layers):
            cell, below = layer.cell, h
            if i:
                x = below * noise["below"][i - 1] if noise["below"] else below
                bias = self.kind.input_bias(cell)
                inputs = CellInput(bias, (cell.kernel,), (x,))
            old = states[i * self.kind.num_states : (i + 1) * self.kind.num_states]
            if noise["recurrent"]:
                old = [old[0] * noise["recurrent"][i], *old[1:]]
            new = self.kind.equations(cell, inputs, old, project)
            h = new[0] + below if i and self.residual else new[0]
            new_states += new
        return h, [*new_states, *states[len(new_states) :], position + 1]

    def attend(self, h, memory, positions=None, noise=None, project=matmul):
        """Eq. 7 and 5 for queries h [B, Q, H]: -> h̃ [B, Q, A], weights [B, Q, S]."""
        if self.attention is None:
            shape = (*ops.shape(h)[:2], ops.shape(memory.values)[1])
            return h, ops.zeros(shape, dtype="float32")
        context, weights = self.attention.attend(
            h, memory, positions=positions, noise=noise, project=project
        )
        return self.attentional_vector(context, h, project=project), weights

    def call(self, inputs, states, memory):
        """See the class."""
        positions = states[-1][..., 0]
        h, states = self.recur(self.project_inputs(inputs), states)
        h_tilde, weights = self.attend(h, memory, positions)
        return h_tilde, self.feed(states, h_tilde), weights

    def feed(self, states, h_tilde):
        """The states with h̃ in its place, for the next step's input feeding."""
        if not self.input_feeding:
            return states
        return [*states[:-2], h_tilde, states[-1]]

    def get_config(self):
        """The constructor's arguments."""
        config = {
            "units": self.units,
            "attention": keras.saving.serialize_keras_object(self.attention),
            "num_layers": self.num_layers,
            "attentional_units": self.attentional_units,
            "cell_type": self.cell_type,
            "input_feeding": self.input_feeding,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
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
