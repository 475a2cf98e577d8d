"""Attentions by hand, what they do in training, and the options that they refuse."""

from __future__ import annotations

import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import (
    LocalAttention,
    LocationAwareAttention,
    LuongAttention,
    MonotonicAttention,
    MonotonicChunkwiseAttention,
    MultiHeadLuongAttention,
    MultiSourceAttention,
    Score,
    attention_weights,
    dot,
)
from keras_luong.layers.local_attention import scatter


def tensors(queries=3, positions=5, units=4):
    rng = np.random.default_rng(0)
    shapes = (2, queries, units), (2, positions, units)
    return [rng.normal(size=shape).astype("float32") for shape in shapes]


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_dot_attention_by_hand():
    query = np.array([[[np.log(3), 0.0]]], "float32")
    value = np.array([[[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]]], "float32")
    mask = np.array([[True, True, False]])
    context, weights = LuongAttention("dot")(
        query, value, value_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, [[[0.25, 0.75, 0]]], atol=1e-6)
    np.testing.assert_allclose(context, [[[0.75, 0.25]]], atol=1e-6)


def test_local_m_by_hand():
    """D = 1 in a sentence of 4: the window moves along and stops at the end."""
    value = np.eye(5, dtype="float32")[None]
    query = np.zeros((1, 6, 5), "float32")  # equal scores
    mask = np.array([[True] * 4 + [False]])
    attention = LocalAttention(1, "monotonic", "dot")
    context = attention(query, value, value_mask=mask)
    third = 1 / 3
    rows = [
        [0.5, 0.5, 0, 0, 0],
        [third, third, third, 0, 0],
        [0, third, third, third, 0],
        [0, 0, 0.5, 0.5, 0],
        [0, 0, 0.5, 0.5, 0],  # beyond the sentence: its last word
        [0, 0, 0.5, 0.5, 0],
    ]
    np.testing.assert_allclose(context[0], rows, atol=1e-6)


def test_local_p_by_hand():
    """p_t = S/2 = 2 with D = 2: weights 1/4 over 0..3, times exp(-(s-2)²/2)."""
    value = np.eye(6, dtype="float32")[None]
    query = np.zeros((1, 1, 6), "float32")  # sigmoid(0) = 1/2
    mask = np.array([[True] * 4 + [False] * 2])
    attention = LocalAttention(2, "predictive", "dot")
    context = attention(query, value, value_mask=mask)
    gauss = np.exp([-2.0, -0.5, 0.0, -0.5])
    np.testing.assert_allclose(context[0, 0], [*gauss / 4, 0, 0], atol=1e-6)


@pytest.mark.parametrize("edge", [-50.0, 50.0])
def test_windows_at_both_ends(edge):
    """A saturated sigmoid puts p_t at 0 or at S."""
    attention = LocalAttention(2, "predictive", "dot", gaussian=False)
    query, value = tensors(queries=1, positions=8)
    mask = np.arange(8) < np.array([[7], [3]])
    attention.build(query.shape, value.shape)
    attention.position_kernel.assign(np.ones((4, 4)))
    attention.position_scale.assign(np.full(4, edge))
    query = np.abs(query)
    _, weights = attention(query, value, value_mask=mask, return_attention_scores=True)
    seen = np.asarray(weights[:, 0]) > 0
    ends = [[0, 1, 2], [0, 1, 2]] if edge < 0 else [[5, 6], [1, 2]]
    assert [list(np.flatnonzero(row)) for row in seen] == ends


def test_scatter_puts_each_weight_in_its_place():
    weights = np.array([[[1.0, 2, 3], [4, 5, 6]]])
    start = np.array([[[-1], [3]]], "int32")
    result = scatter(ops.array(weights), ops.array(start), 5)
    np.testing.assert_array_equal(result, [[[2, 3, 0, 0, 0], [0, 0, 0, 4, 5]]])


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


def test_what_is_prepared_once_is_what_a_call_attends_to():
    query, value = tensors()
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
    attention = LuongAttention("concat")
    together = np.asarray(attention(query, value))
    memory = attention.prepare(value)
    np.testing.assert_array_equal(memory.lengths, [5, 5])
    np.testing.assert_array_equal(attention.prepare(value, mask).lengths, [3, 0])
    for q in range(3):
        context, _, state = attention.attend(query[:, q : q + 1], memory)
        np.testing.assert_allclose(context[:, 0], together[:, q], atol=1e-6)
        assert state == attention.initial_state(memory) == []
    covered = LuongAttention("dot", coverage=True)
    covered.build(query.shape, value.shape)
    (state,) = covered.initial_state(covered.prepare(value), queries=2)
    np.testing.assert_array_equal(state, np.zeros((2, 2, 5)))
    walks = MonotonicAttention("dot")
    (state,) = walks.initial_state(walks.prepare(value), queries=2)
    np.testing.assert_array_equal(state, np.eye(5)[[[0, 0], [0, 0]]])


def test_dropout_drops_in_training_only_and_keeps_the_mean():
    query, value = np.ones((1, 400, 2), "float32"), np.ones((1, 50, 2), "float32")
    attention = LuongAttention("dot", dropout=0.5, seed=1)
    np.testing.assert_allclose(attention(query, value), 1, atol=1e-5)
    context, weights = attention(
        query, value, training=True, return_attention_scores=True
    )
    assert np.std(context) > 0.05
    np.testing.assert_allclose(np.mean(context), 1, atol=0.05)
    np.testing.assert_allclose(weights, 1 / 50, atol=1e-6)  # before dropout


@pytest.mark.parametrize("name", ["local", "coverage"])
def test_dropout_is_one_row_for_all_queries(name):
    """Where a row each would cost too much, or queries come in turn."""
    if name == "local":
        attention = LocalAttention(4, "monotonic", "dot", dropout=0.5, seed=0)
    else:
        attention = LuongAttention("dot", coverage=True, dropout=0.5, seed=0)
    value, query = np.eye(9, dtype="float32")[None], np.zeros((1, 5, 9), "float32")
    kept = np.asarray(attention(query, value, training=True)) > 0
    inside = np.abs(np.arange(9) - np.arange(5)[:, None]) <= 4
    row = kept.any(axis=1)[0]
    inside = inside if name == "local" else inside | True
    np.testing.assert_array_equal(kept[0], inside & row)
    assert 0 < row.sum() < 9


def test_heads_have_sizes_weights_and_dropout_of_their_own():
    layer = MultiHeadLuongAttention(4, score_mode="general", dropout=0.5)
    layer.build((None, None, 10), (None, None, 8), (None, None, 5))
    assert layer.score.query_kernel.shape == (10, 12)  # rounded up
    assert layer.score.key_kernel.shape == (5, 12)
    assert layer.value_kernel.shape == layer.output_kernel.shape == (8, 8)
    kernels = [np.asarray(one.kernel) for one in layer.score.scores]
    assert all(np.abs(kernels[0] - other).max() > 0.01 for other in kernels[1:])
    noise = np.asarray(layer.draw_noise((2, 1, 6), training=True))
    assert noise.shape == (2, 1, 4, 6) and set(np.unique(noise)) == {0.0, 2.0}
    query, value, key = (np.ones((2, 3, n), "float32") for n in (10, 8, 5))
    assert layer(query, value, key, training=True).shape == (2, 3, 8)
    weights = layer.head_weights(query, layer.prepare(value, key=key))
    np.testing.assert_allclose(weights, np.full((2, 4, 3, 3), 1 / 3), atol=1e-6)


def test_scores_that_overflow_in_half_precision_are_survived():
    x = np.full((1, 2, 512), 20.0, "float32")
    context, weights = LuongAttention("dot", dtype="mixed_float16")(
        x, x, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, 0.5)
    np.testing.assert_allclose(context, 20)


@keras.saving.register_keras_serializable(package="tests")
def sigmoids(scores, mask):
    return keras.ops.where(mask, keras.ops.sigmoid(scores), 0.0)


def test_a_normalizer_of_ones_own_takes_the_softmaxs_place(tmp_path):
    query, value = tensors()
    mask = np.arange(5) < np.array([[5], [2]])
    inputs = [keras.Input((None, 4)), keras.Input((None, 4)), keras.Input((None,))]
    attention = LuongAttention("dot", normalizer=sigmoids)
    model = keras.Model(inputs, attention(*inputs[:2], value_mask=inputs[2]))
    expected = mask[:, None] / (1 + np.exp(-query @ value.transpose(0, 2, 1)))
    x = [query, value, mask]
    model.save(tmp_path / "model.keras")
    for one in (model, keras.models.load_model(tmp_path / "model.keras")):
        np.testing.assert_allclose(one(x), expected @ value, atol=1e-5)


def test_positions_are_those_given_in_turn_too():
    query, value = tensors()
    layer = LocalAttention(1, "monotonic", "dot", coverage=True)
    _, weights = layer(
        query, value, positions=np.array([[0, 2, 4]]), return_attention_scores=True
    )
    seen = np.asarray(weights)[0] > 0
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0, 1], [1, 2, 3], [3, 4]]


def test_a_subclass_says_how_to_weigh():
    class Mine(LuongAttention):
        def weigh(self, query, keys, mask, state, mode):
            weights, scores, state = super().weigh(query, keys, mask, state, mode)
            return (20 if mode.training else 2) * weights, scores, state

    mine, plain = (cls(score_mode="dot") for cls in (Mine, LuongAttention))
    query, value = tensors()
    twice = 2 * np.asarray(plain(query, value))
    np.testing.assert_allclose(mine(query, value), twice, rtol=1e-5)
    trained = mine(query, value, training=True)
    np.testing.assert_allclose(trained, 10 * twice, rtol=1e-5)


def test_weights_of_a_function_of_ones_own_and_of_any_mask():
    query, value = tensors()
    weights, scores = attention_weights(query, value)
    np.testing.assert_allclose(scores, query @ value.transpose(0, 2, 1), atol=1e-5)
    np.testing.assert_allclose(weights, softmax(np.asarray(scores)), atol=1e-6)
    mask = np.arange(5) < np.array([[[5]], [[2]]])
    weights, _ = attention_weights(query, value, mask, lambda q, k, project: -dot(q, k))
    expected = np.exp(-np.asarray(scores)) * mask
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, atol=1e-6)


@keras.saving.register_keras_serializable("tests")
class Halved(Score):
    def prepare(self, key):
        return key[..., :2]

    def call(self, query, key, **options):
        return super().call(query[..., :2], key, **options)


@pytest.mark.parametrize("kind", [LocationAwareAttention, LuongAttention])
def test_what_is_added_to_keys_is_as_wide_as_the_score_compares(kind):
    options = {"coverage": True} if kind is LuongAttention else {}
    layer = kind(Halved(), normalizer="sparsemax", **options)
    _, weights = layer(*tensors(), return_attention_scores=True)
    added = layer.coverage_kernel if options else layer.location_bias
    assert added.shape == (2,)
    np.testing.assert_allclose(np.sum(weights, -1), 1, atol=1e-5)
    assert np.any(np.asarray(weights) == 0)


HEADS = MultiHeadLuongAttention
LOCATION = {"score_mode": "location", "max_source_length": 5}
WRONG = [
    (LuongAttention, {"score_mode": "bahdanau"}, ValueError, "bahdanau"),
    (LuongAttention, {"score_mode": "dott"}, ValueError, "Did you mean 'dot'"),
    (LuongAttention, {"score_mode": "location"}, ValueError, "max_source_length.*None"),
    (LuongAttention, {"normalizer": "softmx"}, ValueError, "mean 'softmax'"),
    (LuongAttention, {"normalizer": "sparse"}, ValueError, "one of.*sparsemax"),
    (LuongAttention, {"dropout": 1.0}, ValueError, "1.0"),
    (LuongAttention, {"dropout": "0.1"}, TypeError, "'0.1'"),
    (LuongAttention, {"units": -3}, ValueError, "units.*-3"),
    (LuongAttention, {"units": "8"}, TypeError, "units.*'8'"),
    (LuongAttention, {"hard": 1}, TypeError, "hard.*1"),
    (LuongAttention, {"coverage": 1}, TypeError, "coverage.*1"),
    (LuongAttention, {"coverage": True, **LOCATION}, ValueError, "coverage=True needs"),
    (LocalAttention, LOCATION, ValueError, "LocalAttention needs.*location"),
    (LocalAttention, {"window": 0}, ValueError, "window.*0"),
    (LocalAttention, {"window": 2.5}, TypeError, "window.*2.5"),
    (LocalAttention, {"alignment": "local-p"}, ValueError, "predictive.*'local-p'"),
    (LocalAttention, {"gaussian": "yes"}, TypeError, "gaussian.*'yes'"),
    (LocalAttention, {"renormalize": 1}, TypeError, "renormalize.*1"),
    (MonotonicAttention, {"mode": "hard"}, ValueError, "mode.*parallel.*'hard'"),
    (MonotonicAttention, {"sigmoid_noise": -1}, ValueError, "sigmoid_noise.*-1"),
    (MonotonicAttention, {"sigmoid_noise": "a"}, TypeError, "sigmoid_noise.*'a'"),
    (MonotonicAttention, {"coverage": True}, ValueError, "no coverage.*True"),
    (MonotonicAttention, {"normalizer": "sparsemax"}, ValueError, "no normalizer"),
    (MonotonicChunkwiseAttention, {"chunk_size": 0}, ValueError, "at least 1.*0"),
    (MonotonicChunkwiseAttention, {"chunk_score_mode": "x"}, ValueError, "one of"),
    (LocationAwareAttention, LOCATION, ValueError, "needs a score that compares"),
    (LocationAwareAttention, {"filters": 0}, ValueError, "filters.*at least 1.*0"),
    (LocationAwareAttention, {"kernel_size": 4}, ValueError, "must be odd.*4"),
    (LocationAwareAttention, {"kernel_size": 1.5}, TypeError, "kernel_size.*1.5"),
    (LocationAwareAttention, {"cumulative": 1}, TypeError, "cumulative.*1"),
    (LocationAwareAttention, {"coverage": True}, ValueError, "coverage: cumulative="),
    (HEADS, {"num_heads": 0}, ValueError, "num_heads must be at least 1.*0"),
    (HEADS, {"num_heads": 2, "key_dim": 0}, ValueError, "key_dim must be at least 1"),
    (HEADS, {"num_heads": 2, "value_dim": "a"}, TypeError, "value_dim.*'a'"),
    (HEADS, {"num_heads": 2, "coverage": True}, ValueError, "no coverage. .*True"),
    (HEADS, {"num_heads": 2, "score_mode": "generl"}, ValueError, "mean 'general'"),
    (MultiSourceAttention, {"attentions": []}, TypeError, "list of attention layers"),
    (MultiSourceAttention, {"attentions": ["dot"]}, TypeError, "list of.*'dot'"),
    (
        MultiSourceAttention,
        {"attentions": LuongAttention()},
        TypeError,
        "list of attention layers",
    ),
]


@pytest.mark.parametrize("kind, options, error, message", WRONG)
def test_wrong_options_are_named(kind, options, error, message):
    with pytest.raises(error, match=message):
        kind(**options)


def test_a_source_without_positions_is_refused_where_a_window_must_lie():
    query, value = tensors()
    with pytest.raises(ValueError, match=r"at least one position.*\(2, 0, 4\)"):
        LocalAttention(3)(query, value[:, :0])


def test_l12_a_score_without_project_is_refused():
    class Mine(Score):
        def call(self, query, key):
            return keras.ops.matmul(query, keras.ops.transpose(key, (0, 2, 1)))

    with pytest.raises(TypeError, match=r"Mine.call must take project.*query, key\)"):
        LuongAttention(Mine())
