"""Multi-head attention with any score against plain NumPy and Keras's own layer."""

from __future__ import annotations

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import reference_attention as reference
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.layers import MultiHeadLuongAttention, Score
from keras_luong.layers.scores import SCORES

TOLERANCE = {
    "float32": 2e-5,
    "float64": 1e-11,
    "mixed_float16": 0.05,
    "mixed_bfloat16": 0.3,
}


def make(score="concat", heads=2, **options):
    options = {"key_dim": 3, "value_dim": 2, "units": 5, **options}
    return MultiHeadLuongAttention(heads, score_mode=score, **options)


def columns(kernel, heads):
    """Each head's part of a kernel."""
    return np.split(np.float64(kernel), heads, axis=1)


def expected_weights(layer, query, key, allowed):
    """[B, N, Q, S]: one head, query and source word at a time."""
    heads, scores = layer.num_heads, layer.score
    W, U = columns(scores.query_kernel, heads), columns(scores.key_kernel, heads)
    result = np.zeros((len(query), heads, query.shape[1], key.shape[1]))
    for b, n, t in np.ndindex(*result.shape[:3]):
        own = {w.name: np.float64(w) for w in scores.scores[n].trainable_weights}
        result[b, n, t] = reference.global_weights(
            layer.score_mode, own, query[b, t] @ W[n], key[b] @ U[n], allowed[b, t]
        )
    return result


@pytest.mark.parametrize("mode", slow_but(SCORES, "general", "concat", "location"))
@settings(max_examples=12)
@given(
    heads=st.integers(1, 3),
    queries=st.integers(1, 3),
    axes=st.sampled_from([(1,), (5,), (2, 3), (2, 1, 3)]),
    masked=st.sets(
        st.sampled_from(["query_mask", "value_mask", "key_mask", "attention_mask"])
    ),
    causal=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**31),
)
def test_equals_the_reference(mode, heads, queries, axes, masked, causal, dtype, seed):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    causal = causal and len(axes) == 1
    rng, positions = np.random.default_rng(seed), int(np.prod(axes))
    query = rng.uniform(-1, 1, (2, queries, 4))
    value, key = (rng.uniform(-1, 1, (2, *axes, n)) for n in (3, 2))
    shapes = {
        "query_mask": (2, queries),
        "value_mask": (2, *axes),
        "key_mask": (2, *axes),
        "attention_mask": (2, queries, *axes),
    }
    masks = {name: rng.random(shapes[name]) < 0.7 for name in masked}
    layer = make(mode, heads, max_source_length=4, dtype=dtype)
    layer.build(query.shape, value.shape, key.shape)
    for weight in layer.trainable_weights:
        weight.assign(rng.uniform(-1, 1, weight.shape))
    given = [x.astype(layer.variable_dtype) for x in (query, value, key)]
    context, weights = layer(
        *given, **masks, use_causal_mask=causal, return_attention_scores=True
    )
    allowed = np.ones((2, queries, positions), bool)
    for name, mask in masks.items():
        if name == "query_mask":
            allowed &= mask[:, :, None]
        else:
            allowed &= mask.reshape((2, -1, positions))
    if causal:
        allowed &= np.arange(positions) <= np.arange(queries)[:, None]
    expected = expected_weights(layer, query, key.reshape(2, positions, 2), allowed)
    flat = np.reshape(weights, (2, queries, positions))
    np.testing.assert_allclose(flat, expected.mean(1), atol=TOLERANCE[dtype])
    V = columns(layer.value_kernel, heads)
    values = value.reshape(2, positions, 3)
    contexts = [expected[:, n] @ (values @ V[n]) for n in range(heads)]
    wanted = np.concatenate(contexts, -1) @ np.float64(layer.output_kernel)
    context = keras.ops.cast(context, "float64")
    np.testing.assert_allclose(context, wanted, atol=5 * TOLERANCE[dtype])


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_is_kerass_layer(masked):
    query, value, key = checks.MEMORY[:, :4], checks.MEMORY, checks.MEMORY[..., :3]
    theirs = keras.layers.MultiHeadAttention(2, 3, 5, use_bias=False, output_shape=4)
    mask = {"attention_mask": checks.MASK[:, None]} if masked else {}
    wanted, each = theirs(query, value, key, return_attention_scores=True, **mask)
    ours = MultiHeadLuongAttention(2, 3, 5)
    ours.build(query.shape, value.shape, key.shape)
    q, k, v, o = (np.asarray(w) for w in theirs.weights)
    ours.score.query_kernel.assign(q.reshape(4, 6))
    ours.score.key_kernel.assign(k.reshape(3, 6))
    ours.value_kernel.assign(v.reshape(4, 10))
    ours.output_kernel.assign(o.reshape(10, 4))
    mask = checks.MASK if masked else None
    context, weights = ours(
        query, value, key, value_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(context, wanted, atol=1e-6)
    np.testing.assert_allclose(weights, np.mean(each, axis=1), atol=1e-6)
    memory = ours.prepare(keras.ops.array(value), mask, keras.ops.array(key))
    by_head = ours.head_weights(keras.ops.array(query), memory)
    np.testing.assert_allclose(by_head, each, atol=1e-6)


@pytest.mark.parametrize("score", ["dot", "concat"])
def test_logits_give_the_weights_back(score):
    layer, query = make(score), checks.MEMORY[:, :4]
    _, weights, logits = layer(
        query,
        checks.MEMORY,
        value_mask=checks.MASK,
        return_attention_scores=True,
        return_logits=True,
    )
    np.testing.assert_allclose(keras.ops.softmax(logits), weights, atol=1e-6)


def test_sizes_by_default_are_the_layers_divided_by_heads():
    layer = MultiHeadLuongAttention(4)
    layer.build((None, None, 10), (None, None, 8), (None, None, 5))
    assert layer.score.query_kernel.shape == (10, 12)
    assert layer.score.key_kernel.shape == (5, 12)
    assert layer.value_kernel.shape == layer.output_kernel.shape == (8, 8)


def test_heads_have_weights_of_their_own_and_drop_on_their_own():
    layer = make("general", heads=3, dropout=0.5)
    layer.build((2, 4, 4), (2, 6, 4))
    kernels = [np.asarray(one.kernel) for one in layer.score.scores]
    assert not np.allclose(kernels[0], kernels[1])
    assert not np.allclose(kernels[1], kernels[2])
    noise = np.asarray(layer.draw_noise((2, 1, 6), training=True))
    assert noise.shape == (2, 1, 3, 6) and set(np.unique(noise)) == {0.0, 2.0}
    assert layer(checks.MEMORY, checks.MEMORY, training=True).shape == (2, 6, 4)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "fed"))
@pytest.mark.parametrize("score", slow_but(["concat", "general"], "general"))
def test_steps_equal_whole_sequences(cell, score):
    checks.check_stepping(make(score), cell)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "wrapped"))
def test_padding_is_as_none(cell):
    checks.check_padding(make(), cell)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("way", checks.WAYS)
@pytest.mark.parametrize("cell", checks.CELLS)
@pytest.mark.parametrize("score", ["concat", "dot"])
def test_all_loops_have_the_same_gradients(cell, score, way):
    checks.check_loops(make(score), cell, way)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("score", ["concat", "general"])
def test_gradients_equal_finite_differences(score):
    checks.check_slopes(make(score), "fed")


@pytest.mark.tensorflow
def test_a_wide_beam_is_exhaustive():
    checks.check_search(make())


@pytest.mark.tensorflow
@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.slow
def test_exports_say_the_same(length, tmp_path):
    checks.check_export(make("general"), tmp_path, length)


@pytest.mark.parametrize("score", ["location", "reduced_rank"])
def test_saved_models_compute_the_same(score, tmp_path):
    layer = make(score, max_source_length=9, hard=True, normalizer="entmax15")
    checks.check_files(layer, tmp_path)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "dtype, tolerance", [("mixed_float16", 0.03), ("mixed_bfloat16", 0.2)]
)
def test_mixed_precision(dtype, tolerance):
    checks.check_half_precision(make, dtype, tolerance)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("score", slow_but(["dot", "concat"], "concat"))
def test_int8(score, tmp_path):
    checks.check_quantized(make(score), tmp_path)


@keras.saving.register_keras_serializable("tests")
class Signed(Score):
    """A score with a weight and an option."""

    def __init__(self, sign=-1, **kwargs):
        super().__init__(**kwargs)
        self.sign = sign

    def build(self, query_shape, key_shape):
        self.gain = self.add_weight((), "random_normal", name="gain")

    def call(self, query, key, **options):
        return self.sign * self.gain * super().call(query, key, **options)

    def get_config(self):
        return {**super().get_config(), "sign": self.sign}


def test_a_score_of_ones_own_is_copied_for_each_head(tmp_path):
    layer = make(Signed(sign=2))
    checks.check_files(layer, tmp_path)
    assert [one.sign for one in layer.score.scores] == [2, 2]
    gains = [float(one.gain) for one in layer.score.scores]
    assert gains[0] != gains[1]


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"num_heads": 0}, ValueError, "num_heads must be at least 1. Received: 0"),
        ({"key_dim": 0}, ValueError, "key_dim must be at least 1. Received: 0"),
        ({"value_dim": "a"}, TypeError, "value_dim.*'a'"),
        ({"coverage": True}, ValueError, "no coverage. Received: True"),
        ({"score_mode": "dots"}, ValueError, "score_mode must be one of.*'dots'"),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        MultiHeadLuongAttention(**{"num_heads": 2, **options})


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("score", slow_but(["scaled_dot", "concat"], "scaled_dot"))
@pytest.mark.parametrize("sizes", [(1, 3), (3, 1)])
def test_a_batch_of_1_may_be_known_at_run_time_alone(score, sizes, jit_compile):
    layer = make(score)
    rng = np.random.default_rng(0)
    query, value = [
        rng.normal(size=(size, n, 4)).astype("float32")
        for size, n in zip(sizes, (2, 5), strict=True)
    ]
    attend = tf.function(
        lambda query, value: layer(query, value, return_attention_scores=True),
        input_signature=[tf.TensorSpec([None, n, 4]) for n in (2, 5)],
        jit_compile=jit_compile,
    )
    expected = layer(query, value, return_attention_scores=True)
    for x, y in zip(attend(query, value), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
