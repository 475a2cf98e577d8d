"""What makes weights of scores: normalizers, and monotonic attention and its chunks."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from leave_slow import slow_but
from reference_attention import chunkwise, stopping

from keras_luong.layers import LocalAttention, LuongAttention, MonotonicAttention
from keras_luong.layers.monotonic_attention import (
    chunkwise_weights,
    monotonic_weights,
    shifted,
)
from keras_luong.layers.normalizers import (
    NORMALIZERS,
    get_normalizer,
    hardened,
    masked_logits,
    masked_softmax,
    sparsemax,
)

POWERS = {"sparsemax": (1.0, 1.0), "entmax15": (0.5, 2.0)}
sparse = pytest.mark.parametrize("name", POWERS)


def by_bisection(name, scores):
    """`max(scale z - τ, 0)^power`, with τ found by halving where it may be."""
    scale, power = POWERS[name]
    z = scale * np.asarray(scores, "float64")
    low, high = z.max() - 1, z.max()
    for _ in range(100):
        middle = (low + high) / 2
        total = np.sum(np.maximum(z - middle, 0) ** power)
        low, high = (middle, high) if total >= 1 else (low, middle)
    return np.maximum(z - low, 0) ** power


TAU = -(1 + 7**0.5) / 4  # of two scores 0 and -1, by p₁ + p₂ = 1
SHARES = [[1 / 9, 3 / 9, 5 / 9], [0.25, 0.25, 0.5]]
ROWS = [[0.5, 0.0, -1.0], [3.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
BY_HAND = {
    "softmax": (np.log([[1.0, 3, 5], [1, 1, 2]]), SHARES),
    "sparsemax": (ROWS, [[0.75, 0.25, 0], [1, 0, 0], [1 / 3] * 3]),
    "entmax15": ([[0, -1, -9.0], ROWS[1]], [[TAU**2, (-0.5 - TAU) ** 2, 0], [1, 0, 0]]),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_by_hand(name):
    scores, expected = map(np.array, BY_HAND[name])
    result = NORMALIZERS[name](scores, np.ones(scores.shape, bool))
    np.testing.assert_allclose(result, expected, atol=1e-6)
    nowhere = NORMALIZERS[name](scores, np.zeros(scores.shape, bool))
    np.testing.assert_array_equal(nowhere, np.zeros(scores.shape))


@sparse
@settings(max_examples=60)
@given(
    scores=st.lists(st.floats(-6, 6, width=32), min_size=1, max_size=9),
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 99),
)
def test_equals_bisection(name, scores, dtype, seed):
    there = np.random.default_rng(seed).random(len(scores)) < 0.7
    result = NORMALIZERS[name](np.array([scores], dtype), there[None])
    expected = np.zeros(len(scores))
    if there.any():
        expected[there] = by_bisection(name, np.array(scores)[there])
    result = np.asarray(result)[0]
    np.testing.assert_allclose(result, expected, atol=2e-6)
    assert not result[~there].any()


@sparse
@pytest.mark.tensorflow
def test_gradients_equal_finite_differences(name):
    """But where a score is just about to get a weight."""
    rng = np.random.default_rng(1)
    scores, upstream = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))
    mask = np.arange(6) < np.array([[6], [6], [3], [1]])
    x = tf.Variable(scores)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(NORMALIZERS[name](x, mask) * upstream)
    gradient = tape.gradient(loss, x).numpy()
    for i, j in np.ndindex(*scores.shape):
        slopes = []
        for step in (1e-6, -1e-6):
            moved = scores[i].copy()
            moved[j] += step
            weights = by_bisection(name, moved[mask[i]])
            slopes.append(np.sum(weights * upstream[i][mask[i]]) / 2e-6)
        assert abs(gradient[i, j] - (slopes[0] - slopes[1])) < 1e-4


@pytest.mark.parametrize("name", NORMALIZERS)
def test_hostile_scores(name):
    scores = np.array([[-np.inf, 1e30, -1e30], [1, 2, 3], [np.inf, 0, 0]], "float32")
    mask = np.array([[True] * 3, [False] * 3, [True] * 3])
    result = np.asarray(NORMALIZERS[name](scores[:2], mask[:2]))
    np.testing.assert_array_equal(result, [[0, 1, 0], [0, 0, 0]])
    half = ops.cast(scores[2:], "float16")  # which overflowed
    np.testing.assert_array_equal(NORMALIZERS[name](half, mask[2:]), [[1, 0, 0]])
    nothing = NORMALIZERS[name](np.zeros((2, 0), "float32"), np.zeros((2, 0), bool))
    assert tuple(nothing.shape) == (2, 0)


def test_a_softmax_is_finite_whatever_the_scores_are():
    half = np.array([[-np.inf, 6e4, -6e4], [np.inf, 0, 0], [-np.inf] * 3], "float16")
    for mask in (None, np.ones((3, 3), bool)):
        result = masked_softmax(half, mask)
        np.testing.assert_array_equal(result, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
    scores = np.array([[-np.inf, 1e38, -1e38], [-np.inf] * 2 + [0]], "float32")
    result = masked_softmax(scores, np.array([[True] * 3, [True, True, False]]))
    np.testing.assert_array_equal(result, [[0, 1, 0], [0, 0, 0]])


@pytest.mark.filterwarnings("error")  # Keras warns of a softmax over one place
def test_a_source_of_one_word_has_all_of_the_weight():
    scores = np.array([[-7.0], [7.0]], "float32")
    np.testing.assert_array_equal(masked_softmax(scores), [[1], [1]])
    masked = masked_softmax(scores, np.array([[True], [False]]))
    np.testing.assert_array_equal(masked, [[1], [0]])


def test_masked_logits_and_hardened_by_hand():
    scores = np.array([[1.0, np.inf, 3.0]], "float32")
    logits = np.asarray(masked_logits(scores, np.array([[True, True, False]])))
    assert np.isfinite(logits).all()
    assert logits[0, 0] == 1 and logits[0, 1] > 1e38 and logits[0, 2] < -1e38
    weights = np.array([[0.2, 0.4, 0.4], [0, 0, 0], [0.6, 0, 0.4]], "float32")
    np.testing.assert_array_equal(hardened(weights), [[0, 1, 0], [0, 0, 0], [1, 0, 0]])
    assert hardened(weights[:, :0]).shape == (3, 0)


@pytest.mark.parametrize("name", NORMALIZERS)
@pytest.mark.parametrize("coverage", [False, True])
def test_an_attention_takes_it_by_name(name, coverage):
    rng = np.random.default_rng(0)
    x = [rng.normal(size=(2, n, 4)).astype("float32") for n in (3, 5)]
    options = {"normalizer": name, "coverage": coverage}
    both = {"return_attention_scores": True, "return_logits": True}
    _, weights, logits = LuongAttention("dot", **options)(*x, **both)
    expected = NORMALIZERS[name](logits, np.ones((2, 3, 5), bool))
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    half = LuongAttention("dot", dtype="mixed_float16", **options)
    assert half.get_config()["normalizer"] == name
    _, found, _ = half(*x, **both)
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_allclose(np.sum(found, -1), 1, atol=1e-6)
    if not coverage:
        np.testing.assert_allclose(found, weights, atol=0.02)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", slow_but(POWERS, "entmax15"))
def test_local_attention_and_xla_are_sparse_too(name):
    rng = np.random.default_rng(0)
    x = [5 * rng.normal(size=(2, n, 4)).astype("float32") for n in (3, 9)]
    attention = LocalAttention(3, "monotonic", "dot", normalizer=name)
    context, weights = attention(*x, return_attention_scores=True)
    np.testing.assert_allclose(np.sum(weights, -1), 1, atol=1e-5)
    assert np.count_nonzero(np.asarray(weights)[:, 0]) < 8
    compiled = tf.function(attention, jit_compile=True)
    np.testing.assert_allclose(compiled(*x), context, atol=1e-5)


def test_softmax_is_what_none_means():
    assert get_normalizer(None) is get_normalizer("softmax") is masked_softmax
    assert get_normalizer(sparsemax) is sparsemax
    with pytest.raises(TypeError, match="one of.*Received: 3"):
        get_normalizer(3)
    with pytest.raises(ValueError, match="one of.*'softmin'"):
        get_normalizer("softmin")


# Monotonic attention and its chunks, by hand and against walking from word to word.


SHIFTED = [
    (0, [1, 2, 3, 4]),
    (1, [0, 1, 2, 3]),
    (3, [0, 0, 0, 1]),
    (-1, [2, 3, 4, 0]),
    (-3, [4, 0, 0, 0]),
]


@pytest.mark.parametrize("places, row", SHIFTED)
def test_zeros_come_in_where_something_is_shifted(places, row):
    x = ops.array(np.arange(1, 9, dtype="float32").reshape(2, 4))
    found = ops.convert_to_numpy(shifted(x, places))
    np.testing.assert_array_equal(found, [row, [x + 4 * (x > 0) for x in row]])
    if places >= 0:  # as in a loop
        by_tensor = shifted(x, ops.convert_to_tensor(places, "int32"))
        np.testing.assert_array_equal(ops.convert_to_numpy(by_tensor), found)


@settings(max_examples=50)
@given(p=st.lists(st.floats(0, 0.98), min_size=1, max_size=8), seed=st.integers(0, 99))
@pytest.mark.parametrize("mode", ["parallel", "recursive"])
def test_equals_walking(mode, p, seed):
    previous = np.random.default_rng(seed).dirichlet(np.ones(len(p)))
    arrays = ops.array([p], "float32"), ops.array([previous], "float32")
    result = monotonic_weights(*arrays, mode)
    np.testing.assert_allclose(result[0], stopping(p, previous), atol=2e-6)


@pytest.mark.tensorflow
def test_equals_walking_where_the_length_is_not_known():
    p = np.random.default_rng(0).uniform(0, 1, (2, 6)).astype("float32")
    previous = np.eye(6, dtype="float32")[[0, 2]]
    spec = tf.TensorSpec([None, None])

    @tf.function(input_signature=[spec, spec], autograph=False)
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


HARD = [
    ([0, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0]),
    ([1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 1]),  # never back
    ([1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]),  # nowhere to stop
    ([1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 1, 0]),  # may stay
]


@pytest.mark.parametrize("p, previous, expected", HARD)
def test_hard_by_hand(p, previous, expected):
    arrays = ops.array(p, "float32"), ops.array(previous, "float32")
    np.testing.assert_array_equal(monotonic_weights(*arrays, "hard"), expected)


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


def test_a_hard_stop_has_a_softmax_over_its_chunk():
    stops = ops.array([0.0, 0.0, 1.0, 0.0])
    scores = ops.array([9.0, np.log(3.0), 0.0, 9.0])
    for mask in (None, ops.array([True] * 4)):
        found = chunkwise_weights(stops, scores, mask, 2)
        np.testing.assert_allclose(found, [0, 0.75, 0.25, 0], atol=1e-6)


@pytest.mark.tensorflow
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
