"""Eq. 5 with others' options, and decoder cells whose output it is."""

import itertools

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
@settings(max_examples=15)
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


def test_equation_5_with_any_activation_and_bias():
    context, query = MEMORY[:, :4], INPUTS[:, :4]
    for (activation, function), use_bias in itertools.product(
        ACTIVATIONS.items(), (True, False)
    ):
        layer = AttentionalVector(3, activation, use_bias, bias_initializer="normal")
        result = layer(context, query)
        both = np.concatenate([context, query], -1)  # the context's rows first
        expected = both @ ops.convert_to_numpy(layer.kernel)
        if use_bias:
            expected = expected + ops.convert_to_numpy(layer.bias)
        np.testing.assert_allclose(result, function(expected), atol=1e-6)
        assert len(layer.weights) == 1 + use_bias
        assert layer.compute_output_shape(context.shape, query.shape) == (2, 4, 3)


def test_the_config_of_the_vector_has_all_options():
    kernel = dict(kernel_initializer="ones", kernel_regularizer="l2")
    bias = dict(bias_initializer="normal", bias_regularizer="l1")
    constraints = dict(kernel_constraint="non_neg", bias_constraint="unit_norm")
    layer = AttentionalVector(3, "relu", True, **kernel, **bias, **constraints)
    again = AttentionalVector.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again(MEMORY[:, :4], INPUTS[:, :4])
    assert len(again.losses) == 2
    assert isinstance(again.kernel.constraint, keras.constraints.NonNeg)
    assert isinstance(again.bias.constraint, keras.constraints.UnitNorm)


@pytest.mark.parametrize("make", [np.zeros, keras.KerasTensor])
def test_l1_the_vector_refuses_shapes_that_do_not_fit(make):
    layer = AttentionalVector(3)
    layer.build((None, None, 2), (None, None, 3))
    for context, query, message in (
        ((2, 5, 2), (2, 6, 3), "Axis 1 must be the same"),
        ((2, 5, 4), (2, 5, 3), "Axis 2 of context must be 2"),
        ((2, 2), (2, 5, 3), "context must have 3 axes"),
    ):
        with pytest.raises(ValueError, match=message):
            layer(make(context), make(query))


OPTIONS = {
    "linear": {"attentional_activation": None, "attentional_bias": True},
    "context": {"use_attentional_vector": False},
    "h": {"output_attention": False, "attentional_units": 5},
}


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("name", OPTIONS)
def test_what_comes_out_of_a_decoder_and_of_its_steps(name, input_feeding):
    attention = LuongAttention("general")
    options = {"input_feeding": input_feeding, **OPTIONS[name]}
    cell = InputFeedingDecoderCell(UNITS, attention, **options)
    again = InputFeedingDecoderCell.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()
    decoder, units = InputFeedingDecoder(cell), {"context": 2}.get(name, UNITS)
    # Before anything is built, as a model's summary asks.
    shapes = (2, None, WIDTH), (2, None, 2)
    assert decoder.compute_output_shape(*shapes) == (2, None, units)
    assert not cell.built

    def decode():
        return [
            ops.convert_to_numpy(x)
            for x in decoder(INPUTS, MEMORY, MASK, return_attention_scores=True)
        ]

    outputs, weights = decode()
    prepared = cell.prepare(ops.array(MEMORY), MASK)
    states = cell.initial_states((2, 1))
    for t in range(INPUTS.shape[1]):
        output, states, _ = cell(INPUTS[:, t : t + 1], states, prepared)
        np.testing.assert_allclose(output[:, 0], outputs[:, t], atol=1e-5)
    assert cell.output_units == outputs.shape[-1] == units
    assert decoder.compute_output_shape(*shapes) == (2, None, units)
    vector = cell.attentional_vector
    if name == "context":
        np.testing.assert_allclose(outputs, weights @ MEMORY, atol=1e-6)
        assert cell.attentional_units == 2 and vector is None
        return
    if name == "linear":  # which can leave the range of tanh
        vector.bias.assign(np.full(UNITS, 7.0))
        assert np.abs(outputs).max() < 7 and np.min(decode()[0]) > 3
        return
    np.testing.assert_allclose(outputs[:, -1], states[0][:, 0], atol=1e-5)
    assert cell.attentional_units == vector.units == 5
    # That h̃ is fed back, if it is: without W_c the same cell says something else.
    vector.kernel.assign(np.zeros(vector.kernel.shape))
    change = np.abs(decode()[0] - outputs).max((0, 2))
    assert change[0] < 1e-6 and (change[1:].max() > 1e-3) == input_feeding


@pytest.mark.parametrize(
    "options, message",
    [
        ({"use_attentional_vector": False, "attentional_units": 3}, "memory's.*3"),
        ({"attentional_activation": "tanhh"}, "tanhh"),
        ({"attentional_units": 0}, "attentional_units.*0"),
    ],
)
def test_options_that_cannot_be_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        InputFeedingDecoderCell(UNITS, LuongAttention("dot"), **options)


@keras.saving.register_keras_serializable(package="tests")
class _Doubled(AttentionalVector):
    """Somebody's own."""

    def call(self, context, query, project=None):
        return 2.0 * super().call(context, query)


@pytest.mark.parametrize("given", ["to the cell", "set afterwards"])
def test_l14_a_vector_of_ones_own_is_saved(given, tmp_path):
    own, attention = _Doubled(UNITS, activation=None), LuongAttention("general")
    if given == "to the cell":
        cell = InputFeedingDecoderCell(UNITS, attention, attentional_vector=own)
    else:
        cell = InputFeedingDecoderCell(UNITS, attention)
        cell.attentional_vector = own
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, 2))
    model = keras.Model([inputs, memory], InputFeedingDecoder(cell)(inputs, memory))
    model.save(tmp_path / "own.keras")
    loaded, given = keras.models.load_model(tmp_path / "own.keras"), [INPUTS, MEMORY]
    np.testing.assert_allclose(loaded(given), model(given), atol=1e-6)
    assert isinstance(loaded.layers[-1].cell.attentional_vector, _Doubled)
