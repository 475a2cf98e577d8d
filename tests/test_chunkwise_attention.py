"""Monotonic chunkwise attention against plain NumPy; in decoders, search and files."""

from __future__ import annotations

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import reference_attention as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from leave_slow import slow_but

from keras_luong.layers import (
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    Score,
)
from keras_luong.layers.monotonic_attention import chunkwise_weights
from keras_luong.layers.scores import SCORES

TOLERANCE = {
    "float32": 2e-5,
    "float64": 1e-11,
    "mixed_float16": 0.05,
    "mixed_bfloat16": 0.3,
}


def make(score="concat", **options):
    options = {"units": 5, "chunk_size": 3, **options}
    return MonotonicChunkwiseAttention(score, **options)


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
    expected = reference.chunkwise(stops, np.float64(scores), words, size)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    np.testing.assert_allclose(np.sum(found), np.sum(stops), atol=1e-5)


def test_a_hard_stop_has_a_softmax_over_its_chunk():
    stops = ops.array([0.0, 0.0, 1.0, 0.0])
    scores = ops.array([9.0, np.log(3.0), 0.0, 9.0])
    found = chunkwise_weights(stops, scores, ops.array([True] * 4), 2)
    np.testing.assert_allclose(found, [0, 0.75, 0.25, 0], atol=1e-6)


def expected_weights(layer, query, value, masks):
    """One query after the other."""
    kinds = [layer.score_mode, layer.chunk_score_mode or layer.score_mode]
    both = [
        (kind, {w.name: np.float64(w) for w in score.trainable_weights})
        for kind, score in zip(kinds, (layer.score, layer.chunk_score), strict=True)
    ]
    result = np.zeros((len(query), query.shape[1], value.shape[1]))
    for b in range(len(query)):
        stops = np.eye(value.shape[1])[0]
        for t in range(query.shape[1]):
            if not masks["query_mask"][b, t]:
                continue
            words = masks["value_mask"][b] & masks["attention_mask"][b, t]
            stopping, chunk = (
                np.array([reference.score(*one, query[b, t], k) for k in value[b]])
                for one in both
            )
            p = 1 / (1 + np.exp(-(stopping + float(layer.score_bias)))) * words
            stops = reference.stopping(np.round(p) if layer.hard else p, stops)
            result[b, t] = reference.chunkwise(stops, chunk, words, layer.chunk_size)
    return result


@pytest.mark.parametrize(
    "mode", slow_but(sorted(SCORES.keys() - {"location"}), "scaled_dot")
)
@settings(max_examples=12)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 7)),
    chunk_size=st.integers(1, 9),
    chunk_score_mode=st.sampled_from([None, "dot", "concat"]),
    masked=st.sets(st.sampled_from(["query_mask", "value_mask", "attention_mask"])),
    hard=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**31),
)
def test_equals_the_reference(
    mode, sizes, chunk_size, chunk_score_mode, masked, hard, dtype, seed
):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    hard = hard and not dtype.startswith("mixed")  # rounding may stop elsewhere
    rng = np.random.default_rng(seed)
    queries, positions = sizes
    query = rng.uniform(-1, 1, (2, queries, 3))
    value = rng.uniform(-1, 1, (2, positions, 3))
    shapes = {
        "query_mask": (2, queries),
        "value_mask": (2, positions),
        "attention_mask": (2, queries, positions),
    }
    masks = {
        name: rng.random(shape) < (0.7 if name in masked else 2)
        for name, shape in shapes.items()
    }
    layer = make(
        mode,
        chunk_size=chunk_size,
        chunk_score_mode=chunk_score_mode,
        hard=hard,
        dtype=dtype,
    )
    layer.build(query.shape, value.shape)
    for weight in layer.trainable_weights:
        weight.assign(rng.uniform(-1, 1, weight.shape))
    context, weights = layer(
        query.astype(layer.variable_dtype),
        value.astype(layer.variable_dtype),
        **{name: masks[name] for name in masked},
        return_attention_scores=True,
    )
    expected = expected_weights(layer, query, value, masks)
    np.testing.assert_allclose(weights, expected, atol=TOLERANCE[dtype])
    context = keras.ops.cast(context, "float64")
    np.testing.assert_allclose(context, expected @ value, atol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("hard", [False, True])
def test_chunks_of_one_are_monotonic_attention(hard):
    ours = make("general", chunk_size=1, hard=hard, score_bias_init=-0.5)
    plain = MonotonicAttention("general", hard=hard, score_bias_init=-0.5)
    query, options = checks.MEMORY[:, :4], {"return_attention_scores": True}
    for layer in (ours, plain):
        layer.build(query.shape, checks.MEMORY.shape)
    plain.score.kernel.assign(ours.score.kernel)
    for x, y in zip(
        ours(query, checks.MEMORY, **options),
        plain(query, checks.MEMORY, **options),
        strict=True,
    ):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "fed"))
@pytest.mark.parametrize("hard", [False, True])
def test_steps_equal_whole_sequences(cell, hard):
    checks.check_stepping(make("general", hard=hard), cell)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "wrapped"))
def test_padding_is_as_none(cell):
    checks.check_padding(make(), cell)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("way", checks.WAYS)
@pytest.mark.parametrize("cell", checks.CELLS)
@pytest.mark.parametrize("mode", ["recursive", "parallel"])
def test_all_loops_have_the_same_gradients(cell, mode, way):
    checks.check_loops(make(mode=mode), cell, way)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_gradients_equal_finite_differences():
    checks.check_slopes(make("general"), "fed")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_states_go_with_their_beams():
    checks.check_search(make())


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "hard, length", [(True, None), (True, 4), (False, 4), (False, None)]
)
def test_exports_say_the_same(hard, length, tmp_path):
    checks.check_export(make("general", hard=hard), tmp_path, length)


@pytest.mark.parametrize(
    "chunk_score_mode", [None, pytest.param("concat", marks=pytest.mark.slow)]
)
def test_saved_models_compute_the_same(chunk_score_mode, tmp_path):
    layer = make("general", chunk_score_mode=chunk_score_mode, score_bias_init=1.0)
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
def test_int8(tmp_path):
    checks.check_quantized(make(), tmp_path)


@keras.saving.register_keras_serializable("tests")
class Gained(Score):
    def build(self, query_shape, key_shape):
        self.gain = self.add_weight((), "random_normal", name="gain")

    def call(self, query, key, **options):
        return self.gain * super().call(query, key, **options)


@pytest.mark.parametrize(
    "chunk_score_mode",
    [*(pytest.param(x, marks=pytest.mark.slow) for x in (None, Gained)), "dot"],
)
def test_scores_of_ones_own(chunk_score_mode, tmp_path):
    own = chunk_score_mode() if chunk_score_mode is Gained else chunk_score_mode
    layer = make(Gained(), chunk_score_mode=own)
    checks.check_files(layer, tmp_path)
    assert layer.chunk_score is not layer.score
    assert len(layer.trainable_weights) == (2 if own == "dot" else 3)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"chunk_size": 0}, ValueError, "chunk_size must be at least 1. Received: 0"),
        ({"chunk_size": None}, TypeError, "chunk_size must be an integer"),
        ({"chunk_score_mode": "dots"}, ValueError, "must be one of.*'dots'"),
        ({"coverage": True}, ValueError, "coverage.*True"),
        ({"normalizer": "sparsemax"}, ValueError, "normalizer.*sparsemax"),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        MonotonicChunkwiseAttention(**options)
