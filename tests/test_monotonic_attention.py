import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from reference_attention import stopping

from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    MonotonicAttention,
)
from keras_luong.layers.monotonic_attention import monotonic_weights


@settings(max_examples=50)
@given(
    p=st.lists(st.floats(0, 0.98), min_size=1, max_size=8),
    seed=st.integers(0, 99),
)
@pytest.mark.parametrize("mode", ["parallel", "recursive"])
def test_equals_walking(mode, p, seed):
    previous = np.random.default_rng(seed).dirichlet(np.ones(len(p)))
    result = monotonic_weights(
        ops.array([p], "float32"), ops.array([previous], "float32"), mode
    )
    np.testing.assert_allclose(result[0], stopping(p, previous), atol=2e-6)


@pytest.mark.slow
def test_a_long_source_loses_nothing():
    p, weights = np.full(100, 0.5), np.eye(100)[0]
    found = ops.array([weights], "float32")
    for _ in range(80):
        weights = stopping(p, weights)
        found = monotonic_weights(ops.array([p], "float32"), found, "recursive")
    assert weights.sum() > 0.9
    np.testing.assert_allclose(found[0], weights, atol=1e-5)


@pytest.mark.parametrize(
    "p, previous, expected",
    [
        ([0, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]),
        ([1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]),  # never back
        ([1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]),  # nowhere to stop
        ([1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 1, 0]),  # may stay
    ],
)
def test_hard_by_hand(p, previous, expected):
    result = monotonic_weights(
        ops.array(p, "float32"), ops.array(previous, "float32"), "hard"
    )
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("mode", ["parallel", "recursive"])
@pytest.mark.tensorflow
def test_gradients_are_finite_where_probabilities_saturate(mode):
    p = tf.Variable([[0.0, 1.0, 1.0, 0.5, 0.0]])
    with tf.GradientTape() as tape:
        weights = monotonic_weights(p, tf.constant([[1.0, 0, 0, 0, 0]]), mode)
        loss = tf.reduce_sum(weights * tf.range(5.0))
    assert np.isfinite(tape.gradient(loss, p)).all()


def data(queries=4):
    rng = np.random.default_rng(0)
    query = rng.normal(size=(2, queries, 3)).astype("float32")
    value = rng.normal(size=(2, 6, 3)).astype("float32")
    return query, value, np.arange(6) < np.array([[6], [4]])


@pytest.mark.parametrize("hard", [False, True])
def test_a_layer_walks_from_query_to_query(hard):
    query, value, mask = data()
    attention = MonotonicAttention("dot", hard=hard, score_bias_init=-0.5)
    context, weights = attention(
        query, value, value_mask=mask, return_attention_scores=True
    )
    p = 1 / (1 + np.exp(0.5 - query @ value.transpose(0, 2, 1))) * mask[:, None]
    p = np.round(p) if hard else p
    for b in range(2):
        previous = np.eye(6)[0]
        for t in range(4):
            previous = stopping(p[b, t], previous)
            np.testing.assert_allclose(weights[b, t], previous, atol=1e-5)
    np.testing.assert_allclose(context, weights @ value, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.tensorflow
def test_sources_of_any_length_have_the_gradients_of_known_ones(input_feeding):
    """A graph that does not know the length, on the path that training takes."""
    cell = InputFeedingDecoderCell(
        3, MonotonicAttention("general"), input_feeding=input_feeding
    )
    decoder = InputFeedingDecoder(cell)
    inputs, memory, mask = (tf.constant(x) for x in data())
    decoder(inputs, memory, mask)

    def gradients(inputs, memory, mask):
        with tf.GradientTape() as tape:
            tape.watch(memory)
            loss = tf.reduce_sum(decoder(inputs, memory, mask, training=True) ** 2)
        return tape.gradient(loss, [memory, *decoder.trainable_variables])

    unknown = [tf.TensorSpec([None] * x.shape.rank, x.dtype) for x in (memory, mask)]
    unknown[0] = tf.TensorSpec([None, None, memory.shape[-1]], memory.dtype)
    any_length = tf.function(
        gradients, input_signature=[tf.TensorSpec(inputs.shape, inputs.dtype), *unknown]
    )
    expected = gradients(inputs, memory, mask)
    for one, other in zip(any_length(inputs, memory, mask), expected, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-5
        )


@pytest.mark.parametrize("input_feeding", [True, False])
def test_stepping_equals_teacher_forcing(input_feeding):
    cell = InputFeedingDecoderCell(
        3, MonotonicAttention("general"), input_feeding=input_feeding
    )
    decoder = InputFeedingDecoder(cell)
    inputs, memory, mask = data()
    outputs, weights, *states = decoder(
        inputs, memory, mask, return_attention_scores=True, return_state=True
    )
    on_tensorflow = keras.backend.backend() == "tensorflow"
    trained = tf.function(decoder) if on_tensorflow else decoder
    trained = trained(inputs, memory, mask, training=True)
    np.testing.assert_allclose(trained, outputs, atol=1e-5)
    prepared = cell.prepare(ops.array(memory), mask)
    stepped = cell.initial_states((2, 1), memory=prepared)
    for t in range(4):
        h_tilde, stepped, a = cell(inputs[:, t : t + 1], stepped, prepared)
        np.testing.assert_allclose(h_tilde[:, 0], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 0], weights[:, t], atol=1e-5)
    for state, expected in zip(stepped, states, strict=True):
        np.testing.assert_allclose(state[:, 0], expected, atol=1e-5)


@pytest.mark.tensorflow
def test_noise_is_for_training_and_new_at_every_query():
    query, value, mask = data()
    query[:] = query[:, :1]  # equal queries
    attention = MonotonicAttention("dot", sigmoid_noise=1.0, seed=0)
    quiet = attention(query, value)
    np.testing.assert_array_equal(quiet, attention(query, value))
    noisy = attention(query, value, training=True)
    assert np.abs(noisy - quiet).max() > 1e-3
    again = attention(query, value, training=True)
    assert np.abs(noisy - again).max() > 1e-3


def test_a_source_of_padding_gives_zeros():
    query, value, _ = data()
    context = MonotonicAttention("dot")(query, value, value_mask=np.zeros((2, 6), bool))
    np.testing.assert_array_equal(context, np.zeros((2, 4, 3)))


@pytest.mark.slow
def test_saved_models_compute_the_same(tmp_path):
    query, value = keras.Input((None, 3)), keras.Input((None, 3))
    attention = MonotonicAttention("concat", units=5, mode="recursive", hard=True)
    model = keras.Model([query, value], attention(query, value))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = data()[:2]
    np.testing.assert_array_equal(model.predict(x), again.predict(x))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"mode": "hard"}, ValueError, "mode.*parallel.*'hard'"),
        ({"sigmoid_noise": -1}, ValueError, "sigmoid_noise.*-1"),
        ({"sigmoid_noise": "a"}, TypeError, "sigmoid_noise.*'a'"),
        ({"coverage": True}, ValueError, "coverage.*True"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        MonotonicAttention(**arguments)
