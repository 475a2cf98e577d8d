"""Scores: their equations, their weights, and scores of ones own."""

import doctest

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_attention import SAME_SIZES, scores

import keras_luong
from keras_luong.layers import (
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
)
from keras_luong.layers.projection import dot, matmul
from keras_luong.layers.scores import SCORES, Score, make_score

# One sentence, two queries, three source positions; numbers to check by hand.
QUERY = np.array([[[1.0, 0.0], [1.0, 2.0]]], "float32")
KEY = np.array([[[1.0, 1.0], [0.0, 2.0], [3.0, -1.0]]], "float32")
DOT = np.array([[1, 0, 3], [3, 4, 1]])
NORMS = np.sqrt([[1], [5]]) * np.sqrt([2, 4, 10])
CONCAT = [[1], [0]], [[0], [1]]  # q₀ + k₁: q₀ is 1 for both, k₁ = 1, 2, -1
#: Weights, in their order, and what they make of these.
BY_HAND = {
    "dot": ([], DOT),
    "scaled_dot": ([], DOT / np.sqrt(2)),
    "cosine": ([], DOT / NORMS),
    "general": (
        [[[1, 2], [0, -1]]],
        [[3, 4, 1], [1, 0, 3]],
    ),  # q·kernel: [1, 2], [1, 0]
    "scaled_general": ([[[1, 2], [0, -1]], 3], [[9, 12, 3], [3, 0, 9]]),
    "concat": ([*CONCAT, [2]], 2 * np.tanh([[2, 3, 0]] * 2)),
    "normed_concat": ([*CONCAT, [-2], 3, [0.5]], -3 * np.tanh([[2.5, 3.5, 0.5]] * 2)),
    "location": ([[[1, 2], [0, 1]]], [[1, 2, -np.inf], [1, 4, -np.inf]]),
    "reduced_rank": ([[[1], [1]], [[2], [0]]], [[2, 0, 6], [6, 0, 18]]),
}


def made(name, query_shape, key_shape, **options):
    score = make_score(name, **{"units": 3, "max_source_length": 6, **options})
    score.build(query_shape, key_shape)
    return score


@pytest.mark.parametrize("name", SCORES)
def test_scores_by_hand(name):
    weights, expected = BY_HAND[name]
    score = made(name, QUERY.shape, KEY.shape, units=1, max_source_length=2)
    score.set_weights([np.array(w, "float32") for w in weights])
    found = score(QUERY, score.prepare(KEY))
    np.testing.assert_allclose(found, [expected], atol=1e-6)


def test_cosine_of_a_zero_vector_is_zero():
    score = make_score("cosine")
    for query, key in ((0 * QUERY, KEY), (QUERY, 0 * KEY)):
        found = score(query, score.prepare(key))
        np.testing.assert_array_equal(found, np.zeros((1, 2, 3)))


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=10)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    seed=st.integers(0, 2**31),
)
def test_scores_equal_numpy(name, sizes, seed):
    """Of keys of all queries, and of each query's own."""
    queries, positions, query_units, key_units = sizes
    if name in SAME_SIZES:
        key_units = query_units
    rng = np.random.default_rng(seed)
    query = rng.normal(size=(2, queries, query_units)).astype("float32")
    key = rng.normal(size=(2, positions, key_units)).astype("float32")
    score = made(name, query.shape, key.shape)
    weights = {w.name: rng.normal(size=w.shape) for w in score.weights}
    score.set_weights(list(weights.values()))
    prepared = np.asarray(score.prepare(key))
    found = np.asarray(score(query, prepared))
    for b, t in np.ndindex(2, queries):
        expected = scores(name, weights, query[b, t], key[b])
        np.testing.assert_allclose(found[b, t], expected, rtol=1e-4, atol=2e-6)
    own = np.repeat(prepared[:, None], queries, axis=1)  # [B, Q, W, Hk]
    if name == "location":
        with pytest.raises(ValueError, match="location"):
            score(query, own)
    else:
        np.testing.assert_allclose(score(query, own), found, atol=1e-5)
    assert score.key_units(query.shape, key.shape) == prepared.shape[-1]
    assert score.compute_output_shape(query.shape, key.shape) == found.shape


QUERY_KERNEL, VALUE_KERNEL = ("query_kernel", (8, 3)), ("value_kernel", (6, 3))
CONCAT_3 = [QUERY_KERNEL, VALUE_KERNEL, ("scale", (3,))]
#: Units, 3 or by default; weights' names and shapes.
WEIGHTS = {
    "general": [(3, [("kernel", (8, 6))])],
    "scaled_general": [(3, [("kernel", (8, 6)), ("gain", ())])],
    "concat": [
        (3, CONCAT_3),
        (None, [("query_kernel", (8, 8)), ("value_kernel", (6, 8)), ("scale", (8,))]),
    ],
    "normed_concat": [(3, [*CONCAT_3, ("gain", ()), ("bias", (3,))])],
    "location": [(3, [("kernel", (8, 6))])],
    "reduced_rank": [(None, [QUERY_KERNEL, VALUE_KERNEL])],
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights_have_the_documented_names_and_shapes(name):
    for units, expected in WEIGHTS[name]:
        score = made(name, (None, None, 8), (None, None, 6), units=units)
        first, *others = (np.asarray(w)[:3, :3] for w in score.weights if w.ndim == 2)
        assert all(np.abs(first - other).max() > 0.01 for other in others)
        assert [(w.name, tuple(w.shape)) for w in score.weights] == expected
    if name == "normed_concat":
        np.testing.assert_allclose(score.gain, 3**-0.5, rtol=1e-6)


@pytest.mark.parametrize("name", SAME_SIZES)
def test_sizes_that_cannot_be_compared_are_named(name):
    with pytest.raises(ValueError, match=rf"{name}.*\(2, 3, 4\).*\(2, 5, 6\)"):
        made(name, (2, 3, 4), (2, 5, 6))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("luong",), ValueError, "one of.*general.*'luong'"),
        ((3,), TypeError, "one of.*Received: 3"),
        (("location", None, 0), ValueError, "max_source_length.*0"),
        (("concat", 2.5), TypeError, "units.*2.5"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        make_score(*arguments)


@pytest.mark.parametrize("name", SCORES)
def test_config_round_trip(name):
    options = {"kernel_regularizer": "l2", "kernel_constraint": "non_neg"}
    score = make_score(name, units=3, max_source_length=6, **options)
    again = type(score).from_config(score.get_config())
    assert again.get_config() == score.get_config() and again.units == 3
    assert isinstance(again.kernel_regularizer, keras.regularizers.L2)
    assert isinstance(again.kernel_constraint, keras.constraints.NonNeg)


def test_products_sum_pairs_and_take_no_batch_for_another():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 5))
    v, w = rng.normal(size=(4, 6)), rng.normal(size=(5, 6))
    result = matmul(tuple(map(keras.ops.array, (v, w))), (x, y))
    np.testing.assert_allclose(result, x @ v + y @ w, rtol=1e-5)
    for queries in (2, 20):  # from 16 on the keys are turned
        query, key = rng.normal(size=(3, queries, 4)), rng.normal(size=(3, 5, 4))
        expected = np.einsum("bqh,bsh->bqs", query, key)
        np.testing.assert_allclose(dot(query, key), expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def example():
    """What the docstring of `Score` makes: its class."""
    names = {"kl": keras_luong, "keras": keras, "np": np}
    for part in doctest.DocTestParser().get_examples(Score.__doc__):
        exec(part.source, names)
    return names["BiasedGeneral"]


RNG = np.random.default_rng(0)
STATES = RNG.normal(size=(2, 3, 4)).astype("float32")
SOURCE = RNG.normal(size=(2, 5, 6)).astype("float32")


def assert_loads(path, *attentions):
    """Of a functional model."""
    query, value = keras.Input((None, 4)), keras.Input((None, 6))
    contexts = [attention(query, value) for attention in attentions]
    model = keras.Model([query, value], contexts)
    model.save(path)
    again = keras.models.load_model(path)
    for x, y in zip(again([STATES, SOURCE]), model([STATES, SOURCE]), strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(again.weights) == len(model.weights)
    return [x.score for x in again.layers if hasattr(x, "score")]


KINDS = {
    "global": lambda score: LuongAttention(score),
    "coverage": lambda score: LuongAttention(score, coverage=True),
    "local": lambda score: LocalAttention(2, "predictive", score),
    "local coverage": lambda score: LocalAttention(2, score_mode=score, coverage=True),
    "monotonic": lambda score: MonotonicAttention(score),
    "sparse": lambda score: LuongAttention(score, normalizer="sparsemax"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_l5_the_example_works_in_every_attention_and_file(kind, example, tmp_path):
    attention = KINDS[kind](example())
    assert "shared_object_id" not in attention.get_config()["score_mode"]
    assert_loads(tmp_path / "model.keras", attention)
    if attention.coverage:  # whose width is the score's, not the value's
        assert attention.coverage_kernel.shape == (8,)


@pytest.mark.parametrize("policy", ["mixed_float16", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_l5_the_example_works_step_by_step_in_any_precision(kind, policy, example):
    attention = KINDS[kind](example(dtype=policy))
    attention = type(attention).from_config({**attention.get_config(), "dtype": policy})
    together = keras.ops.cast(attention(STATES, SOURCE), "float32")
    dtype = attention.compute_dtype
    memory = attention.prepare(keras.ops.cast(SOURCE, dtype))
    assert keras.backend.standardize_dtype(memory.keys.dtype) == dtype
    state = attention.initial_state(memory)
    for t in range(3):
        query = keras.ops.cast(STATES[:, t : t + 1], dtype)
        context, _, state = attention.attend(query, memory, np.array([[t]]), state)
        context = keras.ops.cast(context[:, 0], "float32")
        np.testing.assert_allclose(context, together[:, t], atol=0.05)


@pytest.mark.parametrize("mode", [None, "general"])
def test_l10_a_shared_score_is_shared_in_a_file(mode, example, tmp_path):
    """It is taken as it is, and of three layers one is gone."""
    score = example() if mode is None else make_score(mode)
    assert make_score(score) is LuongAttention(score).score is score
    layers = LuongAttention(score), LocalAttention(2, score_mode=score)
    one, other = assert_loads(tmp_path / "model.keras", *layers)
    assert one is other
