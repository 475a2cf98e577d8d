import doctest

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but
from reference_attention import SAME_SIZES
from reference_attention import score as equation

import keras_luong
from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
)
from keras_luong.layers.projection import dot, matmul
from keras_luong.layers.scores import SCORES, Score, make_score

# One sentence, two queries, three source positions; numbers to check by hand.
QUERY = np.array([[[1.0, 0.0], [1.0, 2.0]]], "float32")
KEY = np.array([[[1.0, 1.0], [0.0, 2.0], [3.0, -1.0]]], "float32")


def score_of(name, query=QUERY, key=KEY, weights=(), **arguments):
    score = make_score(name, **arguments)
    score.build(query.shape, key.shape)
    score.set_weights([np.array(w, "float32") for w in weights])
    return np.asarray(score(query, score.prepare(key)))


def test_dot_by_hand():
    expected = [[[1, 0, 3], [3, 4, 1]]]
    np.testing.assert_allclose(score_of("dot"), expected, atol=1e-6)


def test_scaled_dot_by_hand():
    expected = np.array([[[1, 0, 3], [3, 4, 1]]]) / np.sqrt(2)
    np.testing.assert_allclose(score_of("scaled_dot"), expected, atol=1e-6)


def test_general_by_hand():
    kernel = [[1, 2], [0, -1]]  # q·kernel: [1, 2] and [1, 0]
    expected = [[[3, 4, 1], [1, 0, 3]]]
    result = score_of("general", weights=[kernel])
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_concat_by_hand():
    query_kernel, value_kernel, scale = [[1], [0]], [[0], [1]], [2]
    # 2 tanh(q₀ + k₁): q₀ is 1 for both queries, k₁ = 1, 2, -1.
    row = 2 * np.tanh([2, 3, 0])
    result = score_of("concat", weights=[query_kernel, value_kernel, scale], units=1)
    np.testing.assert_allclose(result, [[row, row]], atol=1e-6)


def test_location_by_hand():
    kernel = [[1, 2, 3, 4], [0, 1, 0, -1]]
    expected = [[[1, 2, 3], [1, 4, 3]]]  # the first three of four positions
    result = score_of("location", weights=[kernel], max_source_length=4)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_location_ignores_words_past_its_positions():
    result = score_of("location", weights=[[[1, 2], [0, 1]]], max_source_length=2)
    np.testing.assert_array_equal(result, [[[1, 2, -np.inf], [1, 4, -np.inf]]])


def test_reduced_rank_by_hand():
    u, v = [[1], [1]], [[2], [0]]  # (q₀ + q₁) · 2 k₀
    expected = [[[2, 0, 6], [6, 0, 18]]]
    result = score_of("reduced_rank", weights=[u, v], units=1)
    np.testing.assert_allclose(result, expected, atol=1e-6)


def test_cosine_by_hand():
    norms = np.sqrt([[2, 4, 10]])
    expected = [[[1, 0, 3] / norms[0], [3, 4, 1] / norms[0] / np.sqrt(5)]]
    np.testing.assert_allclose(score_of("cosine"), expected, atol=1e-6)


def test_cosine_of_a_zero_vector_is_zero():
    result = score_of("cosine", query=np.zeros((1, 1, 2), "float32"))
    np.testing.assert_array_equal(result, np.zeros((1, 1, 3)))


def numpy_scores(name, query, key, weights):
    """Eq. 8, position by position, from the paper."""
    if name == "location":
        return query @ weights["kernel"][:, : len(key)]
    rows = [[equation(name, weights, h, source) for source in key] for h in query]
    return np.array(rows)


@pytest.mark.parametrize("name", SCORES)
@settings(max_examples=20)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    seed=st.integers(0, 2**31),
)
def test_scores_equal_numpy(name, sizes, seed):
    queries, positions, query_units, key_units = sizes
    if name in SAME_SIZES:
        key_units = query_units
    rng = np.random.default_rng(seed)
    query = rng.normal(size=(2, queries, query_units)).astype("float32")
    key = rng.normal(size=(2, positions, key_units)).astype("float32")
    score = make_score(name, units=3, max_source_length=6)
    score.build(query.shape, key.shape)
    weights = {w.name: rng.normal(size=w.shape) for w in score.weights}
    score.set_weights(list(weights.values()))
    result = np.asarray(score(query, score.prepare(key)))
    for b in range(2):
        expected = numpy_scores(name, query[b], key[b], weights)
        np.testing.assert_allclose(result[b], expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("name", [n for n in SCORES if n != "location"])
def test_each_querys_own_keys_score_like_shared_ones(name):
    rng = np.random.default_rng(0)
    query = rng.normal(size=(2, 3, 4)).astype("float32")
    key = rng.normal(size=(2, 5, 4)).astype("float32")
    score = make_score(name, units=3)
    score.build(query.shape, key.shape)
    prepared = score.prepare(key)
    own = np.repeat(np.asarray(prepared)[:, None], 3, axis=1)  # [B, Q, W, Hk]
    np.testing.assert_allclose(score(query, own), score(query, prepared), atol=1e-5)


def test_location_refuses_gathered_keys():
    score = make_score("location", max_source_length=4)
    score.build((1, 1, 2), (1, 1, 2))
    with pytest.raises(ValueError, match="location"):
        score(np.ones((1, 1, 2)), np.ones((1, 1, 3, 2)))


def test_weights_have_the_documented_names_and_shapes():
    documented = {
        "general": [("kernel", (4, 6))],
        "concat": [("query_kernel", (4, 3)), ("value_kernel", (6, 3)), ("scale", (3,))],
        "location": [("kernel", (4, 9))],
        "reduced_rank": [("query_kernel", (4, 3)), ("value_kernel", (6, 3))],
    }
    for name, expected in documented.items():
        score = make_score(name, units=3, max_source_length=9)
        score.build((None, None, 4), (None, None, 6))
        assert [(w.name, tuple(w.shape)) for w in score.weights] == expected


def test_default_widths():
    concat, reduced = make_score("concat"), make_score("reduced_rank")
    for score in (concat, reduced):
        score.build((None, None, 8), (None, None, 6))
    assert concat.scale.shape == (8,)
    assert reduced.query_kernel.shape == (8, 3)


def test_weights_of_one_score_differ():
    score = make_score("reduced_rank", units=3)
    score.build((None, None, 4), (None, None, 4))
    assert np.abs(score.query_kernel - score.value_kernel).max() > 0


@pytest.mark.parametrize("name", SAME_SIZES)
def test_sizes_that_cannot_be_compared_are_named(name):
    score = make_score(name)
    with pytest.raises(ValueError, match=rf"{name}.*\(2, 3, 4\).*\(2, 5, 6\)"):
        score.build((2, 3, 4), (2, 5, 6))


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (("luong",), ValueError, "one of.*general.*'luong'"),
        ((3,), TypeError, "one of.*Received: 3"),
        (("location",), ValueError, "max_source_length.*None"),
        (("location", None, 0), ValueError, "max_source_length.*0"),
        (("concat", -1), ValueError, "units.*-1"),
        (("concat", 2.5), TypeError, "units.*2.5"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        make_score(*arguments)


def test_a_users_own_score_is_taken_as_it_is():
    score = Score()
    assert make_score(score) is score


def test_matmul_sums_pairs_and_keeps_leading_axes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 3, 5))
    v, w = rng.normal(size=(4, 6)), rng.normal(size=(5, 6))
    result = matmul(tuple(map(keras.ops.array, (v, w))), (x, y))
    np.testing.assert_allclose(result, x @ v + y @ w, rtol=1e-5)


def test_dot_takes_no_batch_for_another():
    rng = np.random.default_rng(0)
    query, key = rng.normal(size=(3, 2, 4)), rng.normal(size=(3, 5, 4))
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


def functional(*attentions):
    query, value = keras.Input((None, 4)), keras.Input((None, 6))
    contexts = [attention(query, value) for attention in attentions]
    return keras.Model([query, value], contexts)


def assert_loads(model, path):
    model.save(path)
    again = keras.models.load_model(path)
    for x, y in zip(again([STATES, SOURCE]), model([STATES, SOURCE]), strict=True):
        np.testing.assert_array_equal(x, y)
    return again


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
    model = functional(attention)
    if attention.coverage:  # whose width is the score's, not the value's
        assert attention.coverage_kernel.shape == (8,)
        attention.coverage_kernel.assign(RNG.normal(size=8))
    assert_loads(model, tmp_path / "model.keras")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "policy",
    slow_but(["mixed_float16", "mixed_bfloat16", "float64"], "mixed_float16"),
)
def test_l5_the_example_works_step_by_step_in_any_precision(kind, policy, example):
    attention = KINDS[kind](example(dtype=policy))
    attention = type(attention).from_config({**attention.get_config(), "dtype": policy})
    together = keras.ops.cast(attention(STATES, SOURCE), "float32")
    dtype = attention.compute_dtype
    memory = attention.prepare(keras.ops.cast(SOURCE, dtype))
    assert keras.backend.standardize_dtype(memory.keys.dtype) == dtype
    state = attention.initial_state(memory)
    for t in range(3):
        context, _, state = attention.attend(
            keras.ops.cast(STATES[:, t : t + 1], dtype),
            memory,
            np.array([[t]]),
            state,
        )
        context = keras.ops.cast(context[:, 0], "float32")
        np.testing.assert_allclose(context, together[:, t], atol=0.05)


def test_l5_the_example_is_trained_in_a_decoders_loop(example):
    cell = InputFeedingDecoderCell(4, LuongAttention(example(), coverage=True))
    decoder = InputFeedingDecoder(cell)
    outputs = decoder(STATES, SOURCE, training=True)
    np.testing.assert_allclose(decoder(STATES, SOURCE), outputs, atol=1e-6)


@pytest.mark.parametrize("mode", [None, "general", "concat"])
def test_l10_a_shared_score_is_shared_in_a_file(mode, example, tmp_path):
    """And one that belongs to three layers, of which one is gone."""
    score = example() if mode is None else make_score(mode)
    model = functional(LuongAttention(score), LocalAttention(2, score_mode=score))
    again = assert_loads(model, tmp_path / "model.keras")
    one, other = [x.score for x in again.layers if hasattr(x, "score")]
    assert one is other
    assert len(again.weights) == len(model.weights)


def test_a_score_of_one_layer_has_a_plain_config(example):
    config = LuongAttention(example()).get_config()
    assert "shared_object_id" not in config["score_mode"]


@pytest.mark.parametrize("name", SCORES)
def test_a_score_says_how_wide_its_keys_are(name):
    score = make_score(name, units=3, max_source_length=6)
    shape = (2, 5, 4)
    score.build((2, 3, 4), shape)
    width = score.prepare(keras.ops.ones(shape)).shape[-1]
    assert score.key_units((2, 3, 4), shape) == width
    assert Score.key_units(score, (None, None, 4), (None, None, 4)) == width


@pytest.mark.parametrize("name", SCORES)
def test_config_round_trip(name):
    options = {"kernel_regularizer": "l2", "kernel_constraint": "non_neg"}
    score = make_score(name, units=3, max_source_length=6, **options)
    again = type(score).from_config(score.get_config())
    assert again.get_config() == score.get_config()
    assert isinstance(again.kernel_regularizer, keras.regularizers.L2)
    assert isinstance(again.kernel_constraint, keras.constraints.NonNeg)
