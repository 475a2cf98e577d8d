"""States of any sizes and number, from those of any others."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LuongAttention,
    RecurrentEncoder,
    StateBridge,
)

rng = np.random.default_rng(0)
STATES = [rng.normal(size=(2, n)).astype("float32") for n in (3, 5)]


def weights(layer):
    return [ops.convert_to_numpy(x) for x in (layer.kernel, layer.bias)]


def test_as_many_states_have_a_layer_each():
    bridge = StateBridge([4, 2])
    bridge(STATES)
    bridge.layers[0].bias.assign([1.0, 2.0, 3.0, 4.0])
    for state, made, layer in zip(STATES, bridge(STATES), bridge.layers, strict=True):
        kernel, bias = weights(layer)
        np.testing.assert_allclose(made, np.tanh(state @ kernel + bias), atol=1e-6)


@pytest.mark.parametrize("units", [[4], [4, 2, 6]])
def test_more_or_fewer_states_are_made_of_all_of_them(units):
    bridge = StateBridge(units, activation=None)
    made = bridge(STATES)
    assert [x.shape for x in made] == [(2, n) for n in units]
    for state, layer in zip(made, bridge.layers, strict=True):
        kernel, bias = weights(layer)
        expected = np.concatenate(STATES, -1) @ kernel + bias
        np.testing.assert_allclose(state, expected, atol=1e-6)


def test_cells_say_what_they_want():
    stack = keras.layers.StackedRNNCells([keras.layers.LSTMCell(3)] * 2)
    assert StateBridge(stack).units == [3, 3, 3, 3]
    assert StateBridge(keras.layers.GRUCell(7)).units == [7]
    cell = InputFeedingDecoderCell(4, LuongAttention(), num_layers=2)
    assert StateBridge(cell).units == [4, 4, 4, 4]


def test_it_joins_an_encoder_and_a_decoder_of_other_sizes(tmp_path):
    source, target = keras.Input((None, 3)), keras.Input((None, 3))
    memory, *last = RecurrentEncoder(5, bidirectional=True, cell_type="gru")(source)
    cell = InputFeedingDecoderCell(4, LuongAttention(), num_layers=2)
    first = StateBridge(cell)(last)
    outputs = InputFeedingDecoder(cell)(target, memory, initial_state=first)
    model = keras.Model([source, target], outputs)
    model.save(tmp_path / "bridge.keras")
    loaded = keras.models.load_model(tmp_path / "bridge.keras")
    batch = [rng.normal(size=(2, n, 3)).astype("float32") for n in (6, 5)]
    np.testing.assert_allclose(model(batch), loaded(batch), atol=1e-6)


def test_config_round_trip():
    bridge = StateBridge([4, 2], "relu", use_bias=False, kernel_initializer="ones")
    again = StateBridge.from_config(bridge.get_config())
    assert again.get_config() == bridge.get_config()


@pytest.mark.parametrize("states", [STATES[0], []])
def test_states_that_are_no_list_are_named(states):
    with pytest.raises(ValueError, match=r"states must be a list of tensors \[B, n\]"):
        StateBridge([4])(states)


@pytest.mark.parametrize("units", [4, [], "lstm", [4, -1], [2.5]])
def test_what_are_no_sizes_is_named(units):
    with pytest.raises((TypeError, ValueError), match="units"):
        StateBridge(units)


@pytest.mark.parametrize(
    "states, message",
    [
        (STATES[:1], "list of 2"),
        ([STATES[0]] * 2, r"Axis 1 of states\[1\] must be 5"),
        ([STATES[0], STATES[1][:1]], "Axis 0 must be the same"),
    ],
)
@pytest.mark.parametrize("symbolic", [True, False])
def test_l1_states_that_do_not_fit_are_named(states, message, symbolic):
    bridge = StateBridge([4, 2])
    bridge(STATES)
    if symbolic:
        states = [keras.KerasTensor(x.shape) for x in states]
    with pytest.raises(ValueError, match=message):
        bridge(states)
