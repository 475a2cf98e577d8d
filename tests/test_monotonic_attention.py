"""Monotonic attention and its chunks, by hand and against walking from word to word."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from reference_attention import chunkwise, stopping

from keras_luong.layers import MonotonicAttention
from keras_luong.layers.monotonic_attention import (
    chunkwise_weights,
    monotonic_weights,
    shifted,
)


@pytest.mark.parametrize(
    "places, row",
    [
        (0, [1, 2, 3, 4]),
        (1, [0, 1, 2, 3]),
        (3, [0, 0, 0, 1]),
        (-1, [2, 3, 4, 0]),
        (-3, [4, 0, 0, 0]),
    ],
)
def test_zeros_come_in_where_something_is_shifted(places, row):
    x = ops.array(np.arange(1, 9, dtype="float32").reshape(2, 4))
    found = ops.convert_to_numpy(shifted(x, places))
    np.testing.assert_array_equal(found, [row, [x + 4 * (x > 0) for x in row]])
    if places >= 0:  # as in a loop
        by_tensor = shifted(x, ops.convert_to_tensor(places, "int32"))
        np.testing.assert_array_equal(ops.convert_to_numpy(by_tensor), found)


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


@pytest.mark.tensorflow
def test_equals_walking_where_the_length_is_not_known():
    p = np.random.default_rng(0).uniform(0, 1, (2, 6)).astype("float32")
    previous = np.eye(6, dtype="float32")[[0, 2]]
    spec = tf.TensorSpec([None, None])

    @tf.function(input_signature=[spec, spec])
    def weights(p, previous):
        return monotonic_weights(p, previous, "recursive")

    expected = [stopping(*one) for one in zip(p, previous, strict=True)]
    np.testing.assert_allclose(weights(p, previous), expected, atol=2e-6)


def test_a_long_source_loses_nothing():
    p, weights = np.full(100, 0.5), np.eye(100)[0]
    found = ops.array([weights], "float32")
    for _ in range(20):
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


@settings(max_examples=50)
@given(
    positions=st.integers(1, 9),
    size=st.integers(1, 12),
    scale=st.sampled_from([1, 50, 1e4]),
    seed=st.integers(0, 2**31),
)
def test_chunks_equal_the_reference(positions, size, scale, seed):
    """Also where the scores of a chunk are far below the highest of the source."""
    rng = np.random.default_rng(seed)
    stops = rng.dirichlet(np.ones(positions)).astype("float32")
    scores = (scale * rng.normal(size=positions)).astype("float32")
    words = rng.random(positions) < 0.8
    stops = stops * words
    found = chunkwise_weights(ops.array(stops), ops.array(scores), words, size)
    expected = chunkwise(stops, np.float64(scores), words, size)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.sum(found), np.sum(stops), atol=1e-5)


@pytest.mark.parametrize("mask", [None, [True] * 4])
def test_a_hard_stop_has_a_softmax_over_its_chunk(mask):
    stops = ops.array([0.0, 0.0, 1.0, 0.0])
    scores = ops.array([9.0, np.log(3.0), 0.0, 9.0])
    mask = None if mask is None else ops.array(mask)
    found = chunkwise_weights(stops, scores, mask, 2)
    np.testing.assert_allclose(found, [0, 0.75, 0.25, 0], atol=1e-6)


def test_a_chunk_beyond_what_location_scores_reach_has_no_nan():
    scores = tf.constant([0.0, -np.inf, -np.inf, -np.inf])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        found = chunkwise_weights(ops.array([0.5, 0.5, 0, 0]), scores, None, 2)
    np.testing.assert_allclose(found, [1, 0, 0, 0])
    assert np.isfinite(tape.gradient(found, scores)).all()


@pytest.mark.tensorflow
def test_noise_is_for_training_and_new_at_every_query():
    rng = np.random.default_rng(0)
    query, value = rng.normal(size=(2, 1, 3)), rng.normal(size=(2, 6, 3))
    query = np.repeat(query, 4, axis=1).astype("float32")
    layer = MonotonicAttention("dot", sigmoid_noise=0.5, seed=0)
    logits = [layer(query, value, return_logits=True)[1]]
    logits += [layer(query, value, training=True, return_logits=True)[1] for _ in "12"]
    quiet, *noisy = map(np.asarray, logits)
    np.testing.assert_allclose(quiet, query @ value.transpose(0, 2, 1), atol=1e-5)
    noises = [x - quiet for x in noisy]
    for one, other in ((noises[0], noises[1]), (noises[0][:, 0], noises[0][:, 1])):
        assert np.abs(one - other).max() > 1e-3
    assert 0.3 < np.std(noises) < 0.7
