"""Attentions by hand, what they do in training, and the options that they refuse."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import (
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    MultiHeadLuongAttention,
    MultiSourceAttention,
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
    options = {"value_mask": mask, "return_attention_scores": True}
    context, weights = LuongAttention("dot")(query, value, **options)
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
    options = {"training": True, "return_attention_scores": True}
    context, weights = attention(query, value, **options)
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
    options = {"return_attention_scores": True}
    _, weights = layer(query, value, positions=np.array([[0, 2, 4]]), **options)
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


def test_several_sources_are_each_attentions_answer_side_by_side():
    query, first = tensors()
    sources = [first, np.random.default_rng(1).normal(size=(2, 7, 2))]
    masks = [np.arange(n) < np.array(m) for n, m in ((5, [[5], [3]]), (7, [[2], [7]]))]
    seen = np.array([[True, True, False], [True, True, True]])
    both = [LuongAttention("dot"), MonotonicAttention("general", dropout=0.5)]
    attention = MultiSourceAttention(both)
    options = {"query_mask": seen, "return_attention_scores": True}
    found = attention(query, sources, value_mask=masks, **options)
    each = [
        one(query, x, value_mask=mask, **options)
        for one, x, mask in zip(attention.attentions, sources, masks, strict=True)
    ]
    for x, parts in zip(found, zip(*each, strict=True), strict=True):
        np.testing.assert_allclose(x, np.concatenate(parts, -1), atol=1e-6)
    # Each drops in its own source.
    trained, _ = attention(query, sources, value_mask=masks, training=True, **options)
    changes = np.abs(np.asarray(found[0]) - trained).max((0, 1))
    np.testing.assert_allclose(changes[:4], 0, atol=1e-6)
    assert changes[4:].max() > 1e-3


@pytest.mark.tensorflow
def test_a_window_of_seven_places_is_no_relu_of_floats():
    """LiteRT's converter takes a clip from 0 to 6 for one."""
    import tensorflow as tf

    attention = LocalAttention(3, "predictive", "dot")
    attention.build((1, 9, 2), (1, 7, 2))
    signature = [tf.TensorSpec([1, n, 2]) for n in (9, 7)]
    call = tf.function(lambda *x: attention(*x), input_signature=signature)
    function = call.get_concrete_function()
    convert = tf.lite.TFLiteConverter.from_concrete_functions([function], attention)
    assert convert.convert()


@pytest.mark.parametrize("alignment", ["monotonic", "predictive"])
def test_padding_may_be_on_the_left(alignment):
    """As `keras.utils.pad_sequences` has it by default."""
    query, value = tensors()
    layer, words = LocalAttention(1, alignment), np.ones([2, 5], bool)
    expected = layer(query, value, return_attention_scores=True)
    for pads in ((2, 0), (0, 2), (2, 1)):
        padded = np.pad(value, [(0, 0), pads, (0, 0)], constant_values=7)
        mask = np.pad(words, [(0, 0), pads])
        found = layer(query, padded, value_mask=mask, return_attention_scores=True)
        np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
        weights = np.asarray(found[1])[:, :, mask[0]]
        np.testing.assert_allclose(weights, expected[1], atol=1e-6)
