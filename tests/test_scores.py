"""Scores: their equations, their weights, and scores of ones own."""

import doctest

import keras
import numpy as np
import pytest
from decoding_attentions import INPUTS, MEMORY, UNITS, WIDTH, fed, randomized
from leave_slow import slow_but

import keras_luong as kl
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
    prepared = np.asarray(score.prepare(KEY))
    np.testing.assert_allclose(score(QUERY, prepared), [expected], atol=1e-6)
    own = np.stack([prepared, -prepared], axis=1)  # of each query, [B, Q, W, Hk]
    if name == "location":
        with pytest.raises(ValueError, match="location"):
            score(QUERY, own)
    else:
        each = [score(QUERY, x)[:, i] for i, x in enumerate((prepared, -prepared))]
        np.testing.assert_allclose(score(QUERY, own)[0], [x[0] for x in each])
    assert score.key_units(QUERY.shape, KEY.shape) == prepared.shape[-1]
    assert score.compute_output_shape(QUERY.shape, KEY.shape) == (1, 2, 3)


def test_cosine_of_a_zero_vector_is_zero_and_of_a_short_one_as_of_a_long_one():
    score = make_score("cosine")
    for query, key in ((0 * QUERY, KEY), (QUERY, 0 * KEY)):
        found = score(query, score.prepare(key))
        np.testing.assert_array_equal(found, np.zeros((1, 2, 3)))
    found = score(0.1 * QUERY, score.prepare(0.1 * KEY))
    np.testing.assert_allclose(found, [DOT / NORMS], atol=1e-6)


#: Units, and the shapes of weights for queries of 8 and keys of 6.
SHAPES = {
    "general": (3, [(8, 6)]),
    "scaled_general": (3, [(8, 6), ()]),
    "concat": (None, [(8, 8), (6, 8), (8,)]),
    "normed_concat": (None, [(8, 8), (6, 8), (8,), (), (8,)]),
    "location": (3, [(8, 6)]),
    "reduced_rank": (None, [(8, 3), (6, 3)]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_weights_have_the_documented_shapes_and_first_values(name):
    units, shapes = SHAPES[name]
    score = made(name, (None, None, 8), (None, None, 6), units=units)
    assert [tuple(w.shape) for w in score.weights] == shapes
    first, *others = (np.asarray(w)[:3, :3] for w in score.weights if w.ndim == 2)
    assert all(np.abs(first - other).max() > 0.01 for other in others)
    if name == "normed_concat":
        np.testing.assert_allclose(score.gain, 8**-0.5, rtol=1e-6)


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
    half = matmul(keras.ops.array(v, "float32"), keras.ops.array(x, "float16"))
    assert keras.backend.standardize_dtype(half.dtype) == "float16"
    for shape in ((3, 1, 4), (3, 2, 4), (1, 2, 4)):  # one query: another product
        query, key = rng.normal(size=shape), rng.normal(size=(3, 5, 4))
        expected = query @ np.swapaxes(key, 1, 2)
        np.testing.assert_allclose(dot(query, key), expected, rtol=1e-4, atol=1e-6)


@pytest.fixture(scope="module")
def example():
    """What the docstring of `Score` makes: its class."""
    names = {"kl": kl, "keras": keras, "np": np}
    for part in doctest.DocTestParser().get_examples(Score.__doc__):
        exec(part.source, names)
    return names["BiasedGeneral"]


@pytest.mark.parametrize("mode", [None, "general"])
def test_l10_a_shared_score_is_shared_in_a_file(mode, example, tmp_path):
    """It is taken as it is; and of that of three layers there is one."""
    score = example() if mode is None else make_score(mode)
    assert make_score(score) is kl.LuongAttention(score).score is score
    layers = (
        kl.LuongAttention(score, coverage=mode is None, normalizer="sparsemax"),
        kl.LocationAwareAttention(score),
        kl.LocalAttention(2, score_mode=score),
    )
    query, value = keras.Input((None, 4)), keras.Input((None, 6))
    model = keras.Model([query, value], [layer(query, value) for layer in layers])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    rng = np.random.default_rng(0)
    given = [rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 6))]
    for x, y in zip(again(given), model(given), strict=True):
        np.testing.assert_array_equal(x, y)
    assert len(again.weights) == len(model.weights)
    scores = [x.score for x in again.layers if hasattr(x, "score")]
    assert len(scores) == 3 and all(x is scores[0] for x in scores)
    if mode is None:  # whose width is the score's, not the value's
        assert layers[0].coverage_kernel.shape == (8,)
        assert layers[1].location_bias.shape == (8,)
        assert "shared_object_id" not in layers[0].get_config()["score_mode"]


@pytest.mark.parametrize("kind", [kl.LuongAttention, kl.LocalAttention])
def test_a_score_of_ones_own_may_have_a_dtype_of_its_own(kind, example):
    """It computes in that one; weights and context are in the layer's."""
    query, value = np.random.default_rng(0).normal(size=(2, 2, 5, 4))
    results = []
    for dtype in ("float32", "float64"):
        layer = kind(score_mode=example(dtype=dtype), dtype="float64")
        layer.build(query.shape, value.shape)
        layer.set_weights([np.full(w.shape, 0.1) for w in layer.weights])
        results.append(layer(query, value, return_attention_scores=True))
        assert all(x.dtype == "float64" for x in results[-1])
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5)


@keras.saving.register_keras_serializable("tests")
class Signed(Score):
    """Somebody's own score, with a weight and an option."""

    def __init__(self, sign=-1, **kwargs):
        super().__init__(**kwargs)
        self.sign = sign

    def build(self, query_shape, key_shape):
        self.gain = self.add_weight((), "random_normal", name="gain")

    def call(self, query, key, **options):
        return self.sign * self.gain * super().call(query, key, **options)

    def get_config(self):
        return {**super().get_config(), "sign": self.sign}


def chunkwise(score, other=None):
    return kl.MonotonicChunkwiseAttention(score, chunk_score_mode=other)


#: Layers of such scores, and the signs that they have.
OWN_SCORES = {
    "coverage": (lambda: kl.LuongAttention(Signed(2), coverage=True), [2]),
    "local": (lambda: kl.LocalAttention(2, score_mode=Signed(2), coverage=True), [2]),
    "sparse": (lambda: kl.LuongAttention(Signed(2), normalizer="sparsemax"), [2]),
    "heads": (lambda: kl.MultiHeadLuongAttention(2, score_mode=Signed(2)), [2, 2]),
    "chunks": (lambda: chunkwise(Signed(2)), [2, 2]),
    "another": (lambda: chunkwise(Signed(2), Signed()), [-1, 2]),
    "dot": (lambda: chunkwise(Signed(2), "dot"), [2]),
}


@pytest.mark.parametrize("kind", slow_but(OWN_SCORES, "coverage", "another"))
def test_l5_a_score_of_ones_own_is_copied_and_saved(kind, tmp_path):
    make, signs = OWN_SCORES[kind]
    attention = make()
    query, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    inputs = keras.Input((None, WIDTH))
    decoder = kl.InputFeedingDecoder(fed(attention))
    outputs = attention(query, value), decoder(inputs, value)
    scores = [layer for layer in attention._flatten_layers() if type(layer) is Signed]
    assert sorted(one.sign for one in scores) == signs
    assert len({float(one.gain) for one in scores}) == len(scores)
    model = randomized(keras.Model([query, value, inputs], list(outputs)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    given = [MEMORY[:, :5], MEMORY, INPUTS]
    for x, y in zip(model(given), again(given), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
