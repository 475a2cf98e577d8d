"""Eq. 5 with others' options, and decoder cells whose output it is."""

import keras
import numpy as np
import pytest
import reference_models
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_luong.layers import (
    AttentionalVector,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LuongAttention,
)
from keras_luong.models import Seq2Seq, Seq2SeqConfig

UNITS, WIDTH = 4, 3
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, 6, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, 5, 2)).astype("float32")
MASK = np.arange(5) < np.array([[5], [3]])


ACTIVATIONS = {"tanh": np.tanh, None: lambda x: x, "relu": lambda x: np.maximum(x, 0)}
#: How far from float64, relative to the largest logit.
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "mixed_bfloat16": 0.15}


@pytest.mark.slow
@settings(max_examples=25)
@given(
    activation=st.sampled_from(list(ACTIVATIONS)),
    bias=st.booleans(),
    vector=st.booleans(),
    emits=st.sampled_from(["h", "h_tilde"]),
    feeds=st.booleans(),
    output_bias=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**31),
)
def test_a_model_equals_the_reference(
    activation, bias, vector, emits, feeds, output_bias, dtype, seed
):
    """Whatever h̃ is made of, whatever is predicted from, in any precision."""
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    config = Seq2SeqConfig(
        6,
        7,
        units=3,
        bidirectional=False,
        dropout=0.0,
        input_feeding=feeds,
        attentional_activation=activation,
        attentional_bias=bias,
        use_attentional_vector=vector,
        output_attention=emits == "h_tilde",
        output_bias=output_bias,
    )
    model, rng = Seq2Seq(config, dtype=dtype), np.random.default_rng(seed)
    weights = {v.path: rng.uniform(-1, 1, v.shape) for v in model.trainable_variables}
    assert ("output/bias" in weights) == output_bias
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    source, target = rng.integers(1, 6, 4), rng.integers(1, 7, 3)
    logits = model({"source": source[None], "target": target[None]})[0]
    expected = reference_models.luong(
        weights, source, target, ACTIVATIONS[activation], feeds, emits
    )
    tolerance = TOLERANCE[dtype] * max(1, np.abs(expected).max())
    logits = ops.convert_to_numpy(ops.cast(logits, "float64"))
    np.testing.assert_allclose(logits, expected, atol=tolerance)


@pytest.mark.parametrize("activation, function", ACTIVATIONS.items())
@pytest.mark.parametrize("use_bias", [True, False])
def test_equation_5_with_any_activation_and_bias(activation, function, use_bias):
    layer = AttentionalVector(3, activation, use_bias, bias_initializer="normal")
    context, query = MEMORY[:, :4], INPUTS[:, :4]
    result = layer(context, query)
    expected = np.concatenate([context, query], -1) @ ops.convert_to_numpy(layer.kernel)
    if use_bias:
        expected = expected + ops.convert_to_numpy(layer.bias)
    np.testing.assert_allclose(result, function(expected), atol=1e-6)
    assert len(layer.weights) == 1 + use_bias


def test_the_config_of_the_vector_has_all_options():
    layer = AttentionalVector(
        3,
        activation="relu",
        use_bias=True,
        kernel_initializer="ones",
        bias_initializer="normal",
        kernel_regularizer="l2",
        bias_regularizer="l1",
        kernel_constraint="non_neg",
        bias_constraint="unit_norm",
    )
    again = AttentionalVector.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again(MEMORY[:, :4], INPUTS[:, :4])
    assert len(again.losses) == 2
    assert isinstance(again.kernel.constraint, keras.constraints.NonNeg)


@pytest.mark.parametrize(
    "context, query, message",
    [
        ((2, 5, 2), (2, 6, 3), "Axis 1 must be the same"),
        ((2, 5, 4), (2, 5, 3), "Axis 2 of context must be 2"),
        ((2, 2), (2, 5, 3), "context must have 3 axes"),
    ],
)
def test_l1_the_vector_refuses_symbolic_shapes_as_it_does_others(
    context, query, message
):
    layer = AttentionalVector(3)
    layer.build((None, None, 2), (None, None, 3))
    with pytest.raises(ValueError, match=message):
        layer(np.zeros(context), np.zeros(query))
    with pytest.raises(ValueError, match=message):
        layer(keras.KerasTensor(context), keras.KerasTensor(query))


def decode(steps_too=True, **options):
    """A decoder's outputs; the same step by step; its cell."""
    cell = InputFeedingDecoderCell(UNITS, LuongAttention("general"), **options)
    outputs = ops.convert_to_numpy(InputFeedingDecoder(cell)(INPUTS, MEMORY, MASK))
    prepared = cell.prepare(ops.array(MEMORY), MASK)
    states, stepped = cell.initial_states((2, 1)), []
    for t in range(INPUTS.shape[1]):
        output, states, _ = cell(INPUTS[:, t : t + 1], states, prepared)
        stepped.append(ops.convert_to_numpy(output)[:, 0])
    np.testing.assert_allclose(outputs, np.stack(stepped, 1), atol=1e-5)
    assert cell.output_units == outputs.shape[-1]
    return outputs, states, cell


@pytest.mark.parametrize("input_feeding", [True, False])
def test_a_linear_vector_with_a_bias_can_leave_the_range_of_tanh(input_feeding):
    outputs, _, cell = decode(
        attentional_activation=None, attentional_bias=True, input_feeding=input_feeding
    )
    cell.attentional_vector.bias.assign(np.full(UNITS, 7.0))
    again = InputFeedingDecoder(cell)(INPUTS, MEMORY, MASK)
    assert np.abs(outputs).max() < 7 and np.min(again) > 3


@pytest.mark.parametrize("input_feeding", [True, False])
def test_without_the_vector_the_output_is_the_context(input_feeding):
    cell = InputFeedingDecoderCell(
        UNITS,
        LuongAttention("general"),
        use_attentional_vector=False,
        input_feeding=input_feeding,
    )
    outputs, weights = InputFeedingDecoder(cell)(
        INPUTS, MEMORY, MASK, return_attention_scores=True
    )
    expected = ops.convert_to_numpy(weights) @ MEMORY
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    decode(use_attentional_vector=False, input_feeding=input_feeding)
    assert cell.attentional_units == 2 and cell.attentional_vector is None


def test_the_output_may_be_h_while_the_vector_is_fed_back():
    outputs, states, cell = decode(output_attention=False, attentional_units=5)
    h, _, fed, _ = states
    np.testing.assert_allclose(outputs[:, -1], h[:, 0], atol=1e-5)
    assert fed.shape[-1] == 5 and np.abs(fed).max() > 0
    # That h̃ is fed back: without W_c the same cell says something else.
    kernel = cell.attentional_vector.kernel
    kernel.assign(np.zeros(kernel.shape))
    silent = InputFeedingDecoder(cell)(INPUTS, MEMORY, MASK)
    np.testing.assert_allclose(silent[:, 0], outputs[:, 0], atol=1e-6)
    assert np.abs(silent - outputs)[:, 1:].max() > 1e-3


def test_without_feeding_the_output_may_be_h():
    outputs, states, _ = decode(output_attention=False, input_feeding=False)
    np.testing.assert_allclose(outputs[:, -1], states[0][:, 0], atol=1e-5)


def test_the_cells_config_has_all_options():
    cell = InputFeedingDecoderCell(
        UNITS,
        LuongAttention("dot"),
        attentional_activation=None,
        attentional_bias=True,
        output_attention=False,
    )
    again = InputFeedingDecoderCell.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()
    assert again.attentional_vector.use_bias and not again.output_attention


@pytest.mark.parametrize(
    "options, message",
    [
        ({"use_attentional_vector": False, "attentional_units": 3}, "memory's.*3"),
        ({"attentional_activation": "tanhh"}, "tanhh"),
    ],
)
def test_options_that_cannot_be_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        InputFeedingDecoderCell(UNITS, LuongAttention("dot"), **options)


@keras.saving.register_keras_serializable(package="tests")
class _Doubled(AttentionalVector):
    """Twice the sum of context and query: no tanh, no weights that matter."""

    def call(self, context, query, project=None):
        return 2.0 * super().call(context, query)


@pytest.mark.parametrize("given", ["to the cell", "set afterwards"])
def test_l14_a_vector_of_ones_own_is_saved(given, tmp_path):
    own = _Doubled(UNITS, activation=None)
    if given == "to the cell":
        cell = InputFeedingDecoderCell(
            UNITS, LuongAttention("general"), attentional_vector=own
        )
    else:
        cell = InputFeedingDecoderCell(UNITS, LuongAttention("general"))
        cell.attentional_vector = own
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, 2))
    model = keras.Model([inputs, memory], InputFeedingDecoder(cell)(inputs, memory))
    model.save(tmp_path / "own.keras")
    loaded = keras.models.load_model(tmp_path / "own.keras")
    np.testing.assert_allclose(
        loaded([INPUTS, MEMORY]), model([INPUTS, MEMORY]), atol=1e-6
    )
    assert isinstance(loaded.layers[-1].cell.attentional_vector, _Doubled)
