import keras
import numpy as np
import pytest

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


def random_cell(name, units=3, inputs=4):
    cell = KERAS_CELLS[name](units)
    cell.build((None, inputs))
    rng = np.random.default_rng(0)
    cell.set_weights([rng.normal(size=w.shape) for w in cell.weights])
    return cell


@pytest.mark.parametrize("name", CELL_TYPES)
def test_equations_equal_kerass_own_cells(name):
    kind, cell = get_cell_type(name), random_cell(name)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4)).astype("float32")
    states = [rng.normal(size=(2, 3)).astype("float32") for _ in range(kind.num_states)]
    _, expected = cell(x, states)
    hoisted = CellInput(kind.project_input(cell, x))
    inside = CellInput(None, (cell.kernel,), (x,), bias=kind.input_bias(cell))
    for inputs in (hoisted, inside):
        result = kind.equations(cell, inputs, states, matmul)
        assert len(result) == kind.num_states
        for new, want in zip(result, expected, strict=True):
            np.testing.assert_allclose(new, want, atol=1e-5)


@pytest.mark.parametrize("name", CELL_TYPES)
def test_leading_axes_are_free(name):
    kind, cell = get_cell_type(name), random_cell(name)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 5, 4)).astype("float32")
    states = [rng.normal(size=(2, 5, 3)).astype("float32")] * kind.num_states
    beams = kind.equations(cell, CellInput(kind.project_input(cell, x)), states, matmul)
    flat = kind.equations(
        cell,
        CellInput(kind.project_input(cell, x.reshape(10, 4))),
        [s.reshape(10, 3) for s in states],
        matmul,
    )
    for a, b in zip(beams, flat, strict=True):
        np.testing.assert_allclose(np.reshape(a, (10, 3)), b, atol=1e-5)


@pytest.mark.parametrize("name", CELL_TYPES)
def test_noise_is_on_the_product_alone(name):
    """As if the recurrent kernel's rows had been multiplied; a GRU carries all of h."""
    kind, cell = get_cell_type(name), random_cell(name)
    rng = np.random.default_rng(1)
    x = CellInput(kind.project_input(cell, rng.normal(size=(2, 4)).astype("float32")))
    states = [rng.normal(size=(2, 3)).astype("float32") for _ in range(kind.num_states)]
    noise = np.array([2.0, 0.0, 2.0], "float32")
    found = kind.equations(cell, x._replace(noise=noise), states, matmul)
    cell.recurrent_kernel.assign(noise[:, None] * cell.recurrent_kernel.numpy())
    for a, b in zip(found, kind.equations(cell, x, states, matmul), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_layer_norm_lstm_against_kerass_normalisation():
    """Gates of x W + h U, each by Keras's own layer, then the LSTM's equations."""
    cell = random_cell("layer_norm_lstm")
    rng = np.random.default_rng(1)
    x, h, c = (rng.normal(size=(2, n)).astype("float32") for n in (4, 3, 3))
    z = x @ cell.kernel + h @ cell.recurrent_kernel
    norms = [keras.layers.LayerNormalization() for _ in range(5)]
    for norm in norms:
        norm.build((None, 3))
    for norm, gamma, beta in zip(
        norms, cell.gamma.numpy(), cell.bias.numpy().reshape(4, 3), strict=False
    ):
        norm.set_weights([gamma, beta])
    norms[4].set_weights([cell.state_gamma.numpy(), np.zeros(3)])
    parts = np.split(np.asarray(z), 4, -1)
    i, f, g, o = (norm(part) for norm, part in zip(norms, parts, strict=False))
    i, f, o = (keras.ops.sigmoid(gate) for gate in (i, f, o))
    new_c = f * c + i * keras.ops.tanh(g)
    new_h = o * keras.ops.tanh(norms[4](new_c))
    _, found = cell(x, [h, c])
    np.testing.assert_allclose(found[0], new_h, atol=1e-5)
    np.testing.assert_allclose(found[1], new_c, atol=1e-5)


def test_layer_norm_lstm_is_a_keras_layer():
    layer = LayerNormLSTM(3, return_sequences=True, bias_initializer="ones", name="l")
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    again = LayerNormLSTM.from_config(layer.get_config())
    outputs = layer(x)
    again.build(x.shape)
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(x), outputs)
    assert outputs.shape == (2, 5, 3) and again.name == "l"
    assert isinstance(again.cell.bias_initializer, keras.initializers.Ones)


def test_unknown_cells_are_named():
    with pytest.raises(ValueError, match="lstm.*gru.*'elman'"):
        get_cell_type("elman")
