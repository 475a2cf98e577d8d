import keras
import numpy as np
import pytest

from keras_luong.layers.cells import CELL_TYPES, CellInput, get_cell_type
from keras_luong.layers.scores import matmul

KERAS_CELLS = {
    "lstm": keras.layers.LSTMCell,
    "gru": keras.layers.GRUCell,
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
    hoisted = CellInput(kind.ready(cell, x))
    inside = CellInput(kind.input_bias(cell), (cell.kernel,), (x,))
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
    beams = kind.equations(cell, CellInput(kind.ready(cell, x)), states, matmul)
    flat = kind.equations(
        cell,
        CellInput(kind.ready(cell, x.reshape(10, 4))),
        [s.reshape(10, 3) for s in states],
        matmul,
    )
    for a, b in zip(beams, flat, strict=True):
        np.testing.assert_allclose(np.reshape(a, (10, 3)), b, atol=1e-5)


def test_unknown_cells_are_named():
    with pytest.raises(ValueError, match="lstm.*gru.*'elman'"):
        get_cell_type("elman")
