"""Location-aware attention against plain NumPy; in decoders, searches and files."""

from __future__ import annotations

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import reference_attention as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.layers import LocationAwareAttention, Score
from keras_luong.layers.scores import SCORES

TOLERANCE = {
    "float32": 2e-5,
    "float64": 1e-11,
    "mixed_float16": 0.05,
    "mixed_bfloat16": 0.3,
}


def make(score="concat", **options):
    options = {"units": 5, "filters": 2, "kernel_size": 3, **options}
    return LocationAwareAttention(score, **options)


def expected_weights(layer, query, value, masks):
    """One query after the other, one source word at a time."""
    of_score = {w.name: np.float64(w) for w in layer.score.trainable_weights}
    filters, kernel, bias = [
        np.float64(getattr(layer, name))
        for name in ("filter_kernel", "location_kernel", "location_bias")
    ]
    batch_size, queries = query.shape[:2]
    result = np.zeros((batch_size, queries, value.shape[1]))
    for b in range(batch_size):
        seen = np.zeros(value.shape[1])
        for t in range(queries):
            if not masks["query_mask"][b, t]:
                continue
            marks = reference.location_features(filters, seen) @ kernel + bias
            words = masks["value_mask"][b] & masks["attention_mask"][b, t]
            places = np.flatnonzero(words)
            if len(places):
                result[b, t, places] = reference.softmax(
                    [
                        reference.marked_score(
                            layer.score_mode, of_score, query[b, t], value[b, s], mark
                        )
                        for s, mark in zip(places, marks[places], strict=True)
                    ]
                )
            seen = seen + result[b, t] if layer.cumulative else result[b, t]
    return result


@pytest.mark.parametrize(
    "mode",
    slow_but(sorted(SCORES.keys() - {"location"}), "concat", "cosine", "general"),
)
@settings(max_examples=12)
@given(
    sizes=st.tuples(st.integers(1, 4), st.integers(1, 7)),
    kernel_size=st.sampled_from([1, 3, 5, 17]),
    masked=st.sets(st.sampled_from(["query_mask", "value_mask", "attention_mask"])),
    cumulative=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**31),
)
def test_equals_the_reference(
    mode, sizes, kernel_size, masked, cumulative, dtype, seed
):
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
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
    layer = make(mode, kernel_size=kernel_size, cumulative=cumulative, dtype=dtype)
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
    np.testing.assert_array_equal(np.asarray(weights)[expected == 0], 0)
    context = keras.ops.cast(context, "float64")
    np.testing.assert_allclose(context, expected @ value, atol=2 * TOLERANCE[dtype])


def test_a_filter_that_looks_back_moves_on():
    """By hand: all weight goes one place to the right of where it was."""
    layer = LocationAwareAttention("dot", filters=1, kernel_size=3)
    query, value = np.ones((1, 3, 1), "float32"), np.zeros((1, 4, 1), "float32")
    layer.build(query.shape, value.shape)
    layer.filter_kernel.assign([[1.0], [0.0], [0.0]])  # reads the place to the left
    layer.location_kernel.assign([[1e3]])
    first = np.array([[[9.0], [0.0], [0.0], [0.0]]], "float32")
    _, weights = layer(query, value + first * 10, return_attention_scores=True)
    np.testing.assert_allclose(weights[0], np.eye(4)[:3], atol=1e-6)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "fed"))
@pytest.mark.parametrize("cumulative", [False, True])
def test_steps_equal_whole_sequences(cell, cumulative):
    checks.check_stepping(make(cumulative=cumulative), cell)


@pytest.mark.parametrize("cell", slow_but(list(checks.CELLS), "wrapped"))
def test_padding_is_as_none(cell):
    checks.check_padding(make(), cell)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("way", checks.WAYS)
@pytest.mark.parametrize("cell", checks.CELLS)
@pytest.mark.parametrize("score", ["concat", "general"])
def test_all_loops_have_the_same_gradients(cell, score, way):
    checks.check_loops(make(score), cell, way)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("cumulative", [False, True])
def test_gradients_equal_finite_differences(cumulative):
    checks.check_slopes(make(cumulative=cumulative), "fed")


@pytest.mark.slow
@pytest.mark.tensorflow
def test_states_go_with_their_beams():
    checks.check_search(make())


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("length", [None, 4])
def test_exports_say_the_same(length, tmp_path):
    checks.check_export(make(cumulative=True), tmp_path, length)


def test_saved_models_compute_the_same(tmp_path):
    checks.check_files(make("general", cumulative=True, hard=True), tmp_path)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "dtype, tolerance", [("mixed_float16", 0.02), ("mixed_bfloat16", 0.2)]
)
def test_mixed_precision(dtype, tolerance):
    checks.check_half_precision(make, dtype, tolerance)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_int8(tmp_path):
    checks.check_quantized(make(), tmp_path)


@keras.saving.register_keras_serializable("tests")
class Halved(Score):
    def prepare(self, key):
        return key[..., :2]

    def call(self, query, key, **options):
        return super().call(query[..., :2], key, **options)


def test_a_score_of_ones_own_and_other_normalizers():
    query, value = checks.MEMORY[:, :3], checks.MEMORY
    layer = make(Halved(), normalizer="sparsemax")
    _, weights = layer(query, value, return_attention_scores=True)
    assert layer.location_bias.shape == (2,)
    np.testing.assert_allclose(np.sum(weights, -1), 1, atol=1e-5)
    assert np.any(np.asarray(weights) == 0)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"filters": 0}, ValueError, "filters must be at least 1. Received: 0"),
        ({"kernel_size": 4}, ValueError, "kernel_size must be odd.*4"),
        ({"kernel_size": 1.5}, TypeError, "kernel_size.*1.5"),
        ({"cumulative": 1}, TypeError, "cumulative must be True or False"),
        ({"coverage": True}, ValueError, "no coverage: cumulative=True"),
        (
            {"score_mode": "location", "max_source_length": 9},
            ValueError,
            'needs a score that compares.*"location"',
        ),
    ],
)
def test_wrong_arguments_are_named(options, error, message):
    with pytest.raises(error, match=message):
        LocationAwareAttention(**options)


def test_images_have_no_order():
    with pytest.raises(ValueError, match="value must have 3 axes"):
        make()(np.ones((2, 1, 4), "float32"), np.ones((2, 3, 3, 4), "float32"))
