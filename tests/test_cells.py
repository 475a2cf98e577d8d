"""Cells: their equations against NumPy and Keras, cells of Keras in ours, bridges."""

import keras
import numpy as np
import pytest
import reference_models
from keras import ops

import keras_luong as kl
from keras_luong.layers.cells import (
    CELL_TYPES,
    CellInput,
    LayerNormLSTM,
    LayerNormLSTMCell,
    get_cell_type,
)
from keras_luong.layers.projection import matmul

KERAS_CELLS = {
    "lstm": keras.layers.LSTMCell,
    "gru": keras.layers.GRUCell,
    "layer_norm_lstm": LayerNormLSTMCell,
    "simple_rnn": keras.layers.SimpleRNNCell,
}
UNITS, WIDTH = 4, 3


def normal(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


INPUTS, MEMORY = normal(2, 3, WIDTH), normal(2, 6, 2, seed=2)
MASK = np.arange(6) < np.array([[6], [3]])
WORDS = np.arange(3) < np.array([[2], [3]])


def randomized(layer):
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(normal(*weight.shape, seed=i))
    return layer


def random_cell(name):
    cell = KERAS_CELLS[name](3)
    cell.build((None, 4))
    return randomized(cell)


def close(found, expected, atol=1e-5):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


@pytest.mark.parametrize("noise", [None, np.array([2.0, 0.0, 2.0], "float32")])
@pytest.mark.parametrize("name", CELL_TYPES)
def test_equations_equal_kerass_own_cells(name, noise):
    """With any leading axes, the input projected before or not; dropout is on the
    recurrent product alone, as if on the kernel's rows: a GRU carries all of h."""
    kind, cell = get_cell_type(name), random_cell(name)
    x = normal(2, 5, 4)
    states = [normal(2, 5, 3, seed=7 + i) for i in range(kind.num_states)]
    before = CellInput(kind.project_input(cell, x), noise=noise)
    inside = CellInput(None, (cell.kernel,), (x,), kind.input_bias(cell), noise=noise)
    found = [kind.equations(cell, x, states, matmul) for x in (before, inside)]
    if noise is not None:
        cell.recurrent_kernel.assign(noise[:, None] * cell.recurrent_kernel.numpy())
    flat = [state.reshape(10, 3) for state in states]
    h, expected = cell(x.reshape(10, 4), flat)
    assert len(expected) == kind.num_states
    np.testing.assert_array_equal(h, expected[0])
    for new in found:
        close([np.reshape(state, (10, 3)) for state in new], expected)


def test_layer_norm_lstm_against_kerass_normalisation():
    """Gates of x W + h U, each by Keras's own layer, then the LSTM's equations."""
    cell = random_cell("layer_norm_lstm")
    x, h, c = normal(2, 4), normal(2, 3, seed=8), normal(2, 3, seed=9)
    z = x @ cell.kernel.numpy() + h @ cell.recurrent_kernel.numpy()
    gammas = [*cell.gamma.numpy(), cell.state_gamma.numpy()]
    betas = [*cell.bias.numpy().reshape(4, 3), np.zeros(3)]
    norms = []
    for gamma, beta in zip(gammas, betas, strict=True):
        norms.append(keras.layers.LayerNormalization())
        norms[-1].build((None, 3))
        norms[-1].set_weights([gamma, beta])
    i, f, g, o = (norms[k](part) for k, part in enumerate(np.split(z, 4, -1)))
    i, f, o = (ops.sigmoid(gate) for gate in (i, f, o))
    new_c = f * c + i * ops.tanh(g)
    close(cell(x, [h, c])[1], [o * ops.tanh(norms[4](new_c)), new_c])


def test_layer_norm_lstm_is_a_keras_layer():
    constant = keras.initializers.Constant(0.5)
    layer = LayerNormLSTM(3, return_sequences=True, bias_initializer=constant, name="l")
    again = LayerNormLSTM.from_config(layer.get_config())
    outputs = layer(INPUTS)
    again.build(INPUTS.shape)
    # Its forget gates begin open, as those of Keras's LSTM.
    np.testing.assert_array_equal(again.cell.bias, np.repeat([0.5, 1, 0.5, 0.5], 3))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(INPUTS), outputs)
    assert outputs.shape == (2, 3, 3) and again.name == "l"


ACTIVATIONS = {"tanh": np.tanh, None: lambda x: x, "relu": lambda x: np.maximum(x, 0)}


def test_the_config_of_the_vector_has_all_options():
    kernel = dict(kernel_initializer="ones", kernel_regularizer="l2")
    bias = dict(bias_initializer="normal", bias_regularizer="l1")
    constraints = dict(kernel_constraint="non_neg", bias_constraint="unit_norm")
    layer = kl.AttentionalVector(3, "relu", True, **kernel, **bias, **constraints)
    again = kl.AttentionalVector.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again(normal(2, 4, 2), normal(2, 4, 3)).shape == (2, 4, 3)
    assert again.compute_output_shape((2, 4, 2), (2, 4, 3)) == (2, 4, 3)
    assert len(again.losses) == 2
    assert isinstance(again.kernel.constraint, keras.constraints.NonNeg)
    assert isinstance(again.bias.constraint, keras.constraints.UnitNorm)


#: How far from float64, relative to the largest logit.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "mixed_bfloat16": 0.15}


REFERRED = [
    ("tanh", False, True, "h_tilde", True, "float32"),  # the paper's
    ("relu", True, True, "h_tilde", False, "float32"),
    (None, True, True, "h", True, "float64"),
    (None, True, True, "h", False, "float32"),
    ("tanh", False, False, "h_tilde", True, "float64"),
    ("tanh", False, True, "h_tilde", True, "mixed_bfloat16"),
]


@pytest.mark.parametrize("activation, bias, vector, emits, feeds, dtype", REFERRED)
def test_a_model_equals_the_reference(activation, bias, vector, emits, feeds, dtype):
    """Eq. 5, 7 and 8, whatever h̃ is made of, and whatever is predicted from."""
    options = {"units": 3, "bidirectional": False, "dropout": 0.0, "output_bias": bias}
    options |= {"attentional_activation": activation, "attentional_bias": bias}
    options |= {"use_attentional_vector": vector, "input_feeding": feeds}
    config = kl.Seq2SeqConfig(6, 7, output_attention=emits == "h_tilde", **options)
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    model, rng = kl.Seq2Seq(config, dtype=dtype), np.random.default_rng(0)
    weights = {v.path: rng.uniform(-1, 1, v.shape) for v in model.trainable_variables}
    assert ("output/bias" in weights) == bias
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    source, target = np.array([3, 1, 5, 2]), np.array([2, 6, 1])
    logits = model({"source": source[None], "target": target[None]})[0]
    expected = reference_models.luong(
        weights, source, target, ACTIVATIONS[activation], feeds, emits
    )
    tolerance = TOLERANCE[dtype] * max(1, np.abs(expected).max())
    logits = ops.convert_to_numpy(ops.cast(logits, "float64"))
    np.testing.assert_allclose(logits, expected, atol=tolerance)


@pytest.mark.parametrize("feeds", [True, False])
def test_residual_adds_each_layers_input(feeds):
    options = {"num_layers": 3, "residual": True, "input_feeding": feeds}
    decoder = kl.InputFeedingDecoder(kl.InputFeedingDecoderCell(4, None, **options))
    h, *new = decoder(INPUTS[:, :1], MEMORY, return_state=True)
    np.testing.assert_allclose(h[:, 0], new[0] + new[2] + new[4], atol=1e-6)


def test_hard_attention_is_soft_in_training_alone():
    cell = kl.InputFeedingDecoderCell(4, kl.LuongAttention(hard=True))
    decoder, options = kl.InputFeedingDecoder(cell), {"return_attention_scores": True}
    for training in (False, True):
        _, weights = decoder(INPUTS, MEMORY, training=training, **options)
        assert np.isin(weights, [0.0, 1.0]).all() != training


class Nested(keras.layers.Layer):
    """A user's cell, whose states are a nest."""

    state_size = [[UNITS], [UNITS]]
    output_size = UNITS

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], UNITS), name="kernel")

    def call(self, inputs, states):
        assert len(inputs.shape) == 2, "a cell of Keras's kind sees [batch, n]"
        (h,), (c,) = states
        h, c = ops.tanh(ops.matmul(inputs, self.kernel) + h - c), h + c
        return h, [[h], [c]]


LSTM, GRU, RNN = (KERAS_CELLS[name] for name in ("lstm", "gru", "simple_rnn"))
CELLS = {
    **{name: lambda make=make: make(UNITS) for name, make in KERAS_CELLS.items()},
    "stack": lambda: [LSTM(5), GRU(6), LSTM(UNITS)],
}


def pair(kind, **options):
    """Decoders with the same weights: by the cell's equations; the cell is called."""
    cell = CELLS[kind]()
    stack = keras.layers.StackedRNNCells(cell) if isinstance(cell, list) else cell
    subclass = type("Called", (type(stack),), {})  # may compute something else
    cells = cell, subclass.from_config(stack.get_config())
    wrap = kl.AttentionWrapper
    wrappers = [wrap(x, kl.LuongAttention("general"), **options) for x in cells]
    hoisted, called = map(kl.InputFeedingDecoder, wrappers)
    for decoder in (hoisted, called):
        decoder(INPUTS, MEMORY, MASK)
    assert hoisted.cell.recurrent.kinds and not called.cell.recurrent.kinds
    called.set_weights(randomized(hoisted).get_weights())
    return hoisted, called


KINDS = [
    ("stack", True),
    ("gru", False),
    *(pytest.param(x, True, marks=pytest.mark.slow) for x in CELLS if x != "stack"),
    pytest.param("stack", False, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("kind, input_feeding", KINDS)
def test_equations_and_calls_of_a_cell_agree(kind, input_feeding):
    """As a sequence, in training or not, and as a search steps."""
    hoisted, called = pair(kind, input_feeding=input_feeding)
    options = {"return_attention_scores": True, "return_state": True, "mask": WORDS}
    given = [normal(2, n, seed=n) for n in hoisted.cell.state_sizes]
    results, steps = [], []
    for decoder, training in ((called, False), (hoisted, False), (hoisted, True)):
        options |= {"initial_state": given, "training": training}
        results.append(decoder(INPUTS, MEMORY, MASK, **options))
        cell = decoder.cell
        states = cell.initial_states((2, 3), [s[:, None].repeat(3, 1) for s in given])
        prepared = cell.prepare(ops.array(MEMORY), MASK)
        output, states, weights = cell(INPUTS, states, prepared)
        steps.append([output, weights, *states])
    for found in (results, steps):
        for other in found[1:]:
            close(other, found[0])


@pytest.mark.parametrize("cell_type", CELL_TYPES)
def test_it_equals_the_input_feeding_cell_with_the_same_weights(cell_type):
    ours = kl.InputFeedingDecoderCell(UNITS, kl.LuongAttention(), cell_type=cell_type)
    decoder = kl.InputFeedingDecoder(ours)
    decoder(INPUTS, MEMORY, MASK)
    expected = randomized(decoder)(INPUTS, MEMORY, MASK)
    cell = CELLS[cell_type]()
    theirs = kl.AttentionWrapper(cell, kl.LuongAttention())
    theirs.build((None, WIDTH), (None, None, 2))
    layer = ours.recurrent.layers[0].cell
    both = np.concatenate([layer.kernel.numpy(), ours.feeding_kernel.numpy()])
    cell.set_weights([both, *layer.get_weights()[1:]])
    theirs.attention.set_weights(ours.attention.get_weights())
    theirs.attentional_vector.kernel.assign(ours.attentional_vector.kernel)
    found = kl.InputFeedingDecoder(theirs)(INPUTS, MEMORY, MASK)
    np.testing.assert_allclose(found, expected, atol=1e-5)


OTHERS = [
    lambda: LSTM(UNITS, activation="relu"),
    lambda: LSTM(UNITS, recurrent_activation="hard_sigmoid"),
    lambda: LSTM(UNITS, use_bias=False),
    lambda: LSTM(UNITS, dropout=0.5),
    lambda: GRU(UNITS, recurrent_dropout=0.5),
    lambda: GRU(UNITS, reset_after=False),
    lambda: [LSTM(UNITS), GRU(UNITS, reset_after=False)],
    lambda: [LSTM(UNITS), LSTM(UNITS, dtype="bfloat16")],
]


@pytest.mark.parametrize("make", OTHERS)
def test_cells_with_other_equations_are_called(make):
    wrapper = kl.AttentionWrapper(make(), kl.LuongAttention(), dtype="float32")
    assert not wrapper.recurrent.kinds


def test_without_attention_it_is_kerass_own_rnn():
    cell = GRU(UNITS, activation="relu")
    wrapper = kl.AttentionWrapper(cell, None, input_feeding=False)
    found = kl.InputFeedingDecoder(wrapper)(INPUTS, MEMORY, mask=WORDS)
    rnn = keras.layers.RNN(cell, return_sequences=True, zero_output_for_mask=True)
    np.testing.assert_allclose(found, rnn(INPUTS, mask=WORDS), atol=1e-6)


def test_a_cells_states_may_be_a_nest():
    cell, h, c = Nested(), np.zeros((2, UNITS)), np.zeros((2, UNITS))
    wrapper = kl.AttentionWrapper(cell, None, input_feeding=False)
    decode = kl.InputFeedingDecoder(wrapper)
    outputs, *ends, _ = decode(INPUTS, MEMORY, return_state=True)
    for t in range(3):
        h, c = np.tanh(INPUTS[:, t] @ cell.kernel.numpy() + h - c), h + c
        np.testing.assert_allclose(outputs[:, t], h, atol=1e-5)
    close(ends, [h, c])


class _FromOnes(keras.layers.SimpleRNNCell):
    def get_initial_state(self, batch_size=None):
        return [ops.ones((batch_size, self.units))]


def test_a_cells_own_first_state_counts():
    cell = kl.AttentionWrapper(_FromOnes(UNITS), kl.LuongAttention())
    cell.build((None, WIDTH), (None, None, 2))
    first, *_ = cell.initial_states((2, 3))
    np.testing.assert_array_equal(first, np.ones((2, 3, UNITS)))
    given, *_ = cell.initial_states((2,), [ops.zeros((2, UNITS))])
    np.testing.assert_array_equal(given, np.zeros((2, UNITS)))


@pytest.mark.parametrize("kind", ["lstm", "stack"])
def test_dropout_of_kerass_cells_is_one_mask_a_sequence_and_for_training(kind):
    """With recurrent weights of zeros, equal words give equal h in training too."""
    cells = [LSTM(8, dropout=0.5, seed=1) for _ in range(2)]
    cell = cells[0] if kind == "lstm" else cells
    wrapper = kl.AttentionWrapper(cell, None, input_feeding=False)
    decoder = kl.InputFeedingDecoder(wrapper)
    same = np.repeat(INPUTS[:, :1], 4, axis=1)
    decoder(same, MEMORY)
    for one in cells:
        if one.built:
            one.recurrent_kernel.assign(np.zeros((8, 32)))
            one.bias.assign(np.repeat([0.0, -99.0, 0.0, 0.0], 8))
    calm = decoder(same, MEMORY, training=False)
    runs = [ops.convert_to_numpy(decoder(same, MEMORY, training=True)) for _ in "12"]
    np.testing.assert_allclose(runs[0][:, 0], runs[0][:, -1], atol=1e-6)
    assert np.abs(runs[0] - runs[1]).max() > 1e-6
    assert np.abs(runs[0] - ops.convert_to_numpy(calm)).max() > 1e-6


def test_a_wrong_number_of_states_is_named():
    wrapper = kl.AttentionWrapper(CELLS["stack"](), kl.LuongAttention())
    wrapper.build((None, WIDTH), (None, None, 2))
    assert wrapper.state_sizes == [5, 5, 6, UNITS, UNITS]
    with pytest.raises(ValueError, match="Expected 5 initial .*all 7.*: 2.*Bridge"):
        wrapper.initial_states((2,), [np.zeros((2, 5))] * 2)
    ours = kl.InputFeedingDecoderCell(3, kl.LuongAttention(), num_layers=2)
    with pytest.raises(ValueError, match='4 .*2 layers of "lstm".*all 6.*Received: 3'):
        ours.initial_states((2,), [ops.zeros((2, 3))] * 3)


STATES = [normal(2, 3), normal(2, 5)]


@pytest.mark.parametrize("activation", ["tanh", None])
@pytest.mark.parametrize("units", [[4, 2], [4], [4, 2, 6]])
def test_a_bridge_makes_states_each_of_one_or_each_of_all(units, activation):
    """Of all of them where more or fewer are wanted."""
    bridge = kl.StateBridge(units, activation)
    assert [x.shape for x in bridge(STATES)] == [(2, n) for n in units]
    randomized(bridge)
    given = [np.concatenate(STATES, -1)] * len(units) if len(units) != 2 else STATES
    function = np.tanh if activation else np.asarray
    expected = [
        function(state @ layer.kernel.numpy() + layer.bias.numpy())
        for state, layer in zip(given, bridge.layers, strict=True)
    ]
    close(bridge(STATES), expected)


def test_cells_say_what_states_they_want_of_a_bridge():
    stack = keras.layers.StackedRNNCells([LSTM(3)] * 2)
    assert kl.StateBridge(stack).units == [3, 3, 3, 3]
    assert kl.StateBridge(GRU(7)).units == [7]
    cell = kl.InputFeedingDecoderCell(4, kl.LuongAttention(), num_layers=2)
    assert kl.StateBridge(cell).units == [4, 4, 4, 4]


def test_the_config_of_a_bridge_has_all_options():
    bridge = kl.StateBridge([4, 2], "relu", use_bias=False, kernel_initializer="ones")
    again = kl.StateBridge.from_config(bridge.get_config())
    assert again.get_config() == bridge.get_config()
    sums = [x.sum(-1, keepdims=True).clip(0) for x in STATES]
    close(again(STATES), [sums[0].repeat(4, -1), sums[1].repeat(2, -1)])
