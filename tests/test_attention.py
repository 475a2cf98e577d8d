import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.layers import (
    AttentionalVector,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    Score,
    attention_weights,
    dot,
)
from keras_luong.layers.normalizers import masked_softmax
from keras_luong.layers.scores import SCORES

MODES = list(SCORES)


def tensors(batch=2, queries=3, positions=5, units=4, seed=0):
    rng = np.random.default_rng(seed)
    query = rng.normal(size=(batch, queries, units)).astype("float32")
    value = rng.normal(size=(batch, positions, units)).astype("float32")
    return query, value


def make(mode, **arguments):
    return LuongAttention(mode, max_source_length=8, **arguments)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_masked_softmax_by_hand():
    scores = np.log([[1.0, 3.0, 5.0], [1.0, 1.0, 2.0], [7.0, 7.0, 7.0]])
    mask = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], bool)
    expected = [[0.25, 0.75, 0], [0.25, 0.25, 0.5], [0, 0, 0]]
    np.testing.assert_allclose(masked_softmax(scores, mask), expected, atol=1e-6)


@pytest.mark.parametrize("mask", [None, np.ones((3, 3), bool)])
def test_scores_that_overflowed_half_precision_are_finite(mask):
    scores = [[-np.inf, 6e4, -6e4], [np.inf, 0, 0], [-np.inf] * 3]
    result = masked_softmax(np.array(scores, "float16"), mask)
    np.testing.assert_array_equal(result, [[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def test_what_is_masked_has_weight_0_whatever_the_others_scores_are():
    scores = np.array([[-np.inf, 1e38, -1e38], [-np.inf] * 2 + [0]], "float32")
    result = masked_softmax(scores, np.array([[True] * 3, [True, True, False]]))
    np.testing.assert_array_equal(result, [[0, 1, 0], [0, 0, 0]])


def test_dot_attention_by_hand():
    query = np.array([[[np.log(3), 0.0]]], "float32")
    value = np.array([[[0.0, 1.0], [1.0, 0.0], [9.0, 9.0]]], "float32")
    mask = np.array([[True, True, False]])
    context, weights = LuongAttention("dot")(
        query, value, value_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, [[[0.25, 0.75, 0]]], atol=1e-6)
    np.testing.assert_allclose(context, [[[0.75, 0.25]]], atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_attention_is_the_softmax_of_its_score(mode):
    query, value = tensors()
    attention = make(mode)
    context, weights = attention(query, value, return_attention_scores=True)
    scores = np.asarray(attention.score(query, attention.score.prepare(value)))
    np.testing.assert_allclose(weights, softmax(scores), atol=1e-6)
    np.testing.assert_allclose(context, softmax(scores) @ value, atol=1e-5)
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"


@pytest.mark.parametrize("mode", slow_but(MODES, "general", "concat", "location"))
@settings(max_examples=10)
@given(length=st.integers(1, 5), padding=st.integers(0, 3), seed=st.integers(0, 2**31))
def test_padding_never_changes_anything(mode, length, padding, seed):
    query, value = tensors(positions=length, seed=seed)
    attention = make(mode)
    context, weights = attention(query, value, return_attention_scores=True)
    rng = np.random.default_rng(seed)
    junk = rng.normal(size=(2, padding, 4), scale=100).astype("float32")
    mask = np.arange(length + padding) < length
    padded, padded_weights = attention(
        query,
        np.concatenate([value, junk], 1),
        value_mask=np.stack([mask, mask]),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(padded, context, atol=1e-5)
    np.testing.assert_allclose(padded_weights[..., :length], weights, atol=1e-6)
    np.testing.assert_array_equal(padded_weights[..., length:], 0)


@pytest.mark.parametrize("mode", MODES)
def test_a_fully_masked_source_gives_zeros(mode):
    query, value = tensors()
    mask = np.array([[True] * 5, [False] * 5])
    context, weights = make(mode)(
        query, value, value_mask=mask, return_attention_scores=True
    )
    np.testing.assert_array_equal(context[1], 0)
    np.testing.assert_array_equal(weights[1], 0)
    np.testing.assert_allclose(np.sum(weights[0], -1), 1, atol=1e-6)


def test_a_masked_query_gets_zeros_and_hands_its_mask_on():
    query, value = tensors()
    mask = np.array([[True, False, True], [False, True, True]])
    attention = make("dot")
    context, weights = attention(
        query, value, query_mask=mask, return_attention_scores=True
    )
    np.testing.assert_array_equal(np.asarray(context)[~mask], 0)
    np.testing.assert_array_equal(np.asarray(weights)[~mask], 0)
    assert attention.compute_mask(query, mask) is mask


def test_implicit_masks_of_embeddings_are_used():
    ids = np.array([[3, 4, 0, 0]])
    embedding = keras.layers.Embedding(5, 4, mask_zero=True)
    query = keras.layers.Embedding(5, 4)(np.array([[1, 2]]))
    _, weights = make("dot")(query, embedding(ids), return_attention_scores=True)
    np.testing.assert_array_equal(weights[..., 2:], 0)


def test_scores_compare_with_key_and_contexts_average_value():
    query, value = tensors()
    key = tensors(seed=1)[1]
    context, weights = make("dot")(query, value, key, return_attention_scores=True)
    expected = softmax(query @ key.transpose(0, 2, 1))
    np.testing.assert_allclose(weights, expected, atol=1e-6)
    np.testing.assert_allclose(context, expected @ value, atol=1e-5)


def test_query_and_value_may_differ_in_size():
    query, value = tensors(units=4)[0], tensors(units=6)[1]
    for mode in ("general", "concat", "location", "reduced_rank"):
        assert make(mode)(query, value).shape == (2, 3, 6)


def test_attention_is_the_same_one_query_at_a_time():
    query, value = tensors()
    attention = make("concat")
    together = np.asarray(attention(query, value))
    memory = attention.prepare(value)
    for q in range(3):
        context, *_ = attention.attend(query[:, q : q + 1], memory)
        np.testing.assert_allclose(context[:, 0], together[:, q], atol=1e-6)


def test_memory_knows_the_true_lengths():
    value = tensors()[1]
    mask = np.array([[1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
    attention = make("dot")
    assert np.array_equal(attention.prepare(value, mask).lengths, [3, 0])
    assert np.array_equal(attention.prepare(value).lengths, [5, 5])


def test_dropout_drops_in_training_only_and_keeps_the_mean():
    query, value = np.ones((1, 400, 2), "float32"), np.ones((1, 50, 2), "float32")
    attention = make("dot", dropout=0.5, seed=1)
    np.testing.assert_allclose(attention(query, value), 1, atol=1e-5)
    context, weights = attention(
        query, value, training=True, return_attention_scores=True
    )
    assert np.std(context) > 0.05
    np.testing.assert_allclose(np.mean(context), 1, atol=0.05)
    np.testing.assert_allclose(weights, 1 / 50, atol=1e-6)  # before dropout


@keras.saving.register_keras_serializable(package="tests")
class ShiftedDot(Score):
    """A user's own score, with a weight."""

    def build(self, query_shape, key_shape):
        self.bias = self.add_weight(shape=(key_shape[-1],), name="bias")

    def prepare(self, key):
        return key + self.bias


def functional_model(attention):
    query, value = keras.Input((None, 4)), keras.Input((None, 4))
    mask = keras.Input((None,), dtype="bool")
    context, weights = attention(
        query, value, value_mask=mask, return_attention_scores=True
    )
    return keras.Model([query, value, mask], [context, weights])


@pytest.mark.parametrize("mode", [*MODES, ShiftedDot()])
def test_saved_and_cloned_models_compute_the_same(mode, tmp_path):
    model = functional_model(make(mode))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for positions in (5, 3):  # and shapes are dynamic
        query, value = tensors(positions=positions)
        inputs = [query, value, np.ones((2, positions), bool)]
        for other in (loaded, cloned):
            for x, y in zip(other(inputs), model(inputs), strict=True):
                np.testing.assert_allclose(x, y, atol=1e-6)


def test_config_round_trip():
    attention = LuongAttention("concat", units=7, dropout=0.1, seed=3, name="a")
    again = LuongAttention.from_config(attention.get_config())
    assert again.get_config() == attention.get_config()


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("mode", MODES)
def test_mixed_precision_keeps_the_softmax_in_float32(mode, policy):
    query, value = tensors()
    exact = make(mode)
    context, weights = exact(query, value, return_attention_scores=True)
    mixed = make(mode, dtype=policy)
    mixed.build(query.shape, value.shape)
    mixed.set_weights(exact.get_weights())
    half, half_weights = mixed(query, value, return_attention_scores=True)
    assert keras.backend.standardize_dtype(half.dtype) == policy[6:]
    assert keras.backend.standardize_dtype(half_weights.dtype) == "float32"
    np.testing.assert_allclose(np.sum(half_weights, -1), 1, atol=1e-6)
    np.testing.assert_allclose(half_weights, weights, atol=0.05)


def test_output_specs_are_what_call_gives():
    spec = make("dot").compute_output_spec(
        keras.KerasTensor((2, 3, 4)),
        keras.KerasTensor((2, 5, 4)),
        return_attention_scores=True,
    )
    results = make("dot")(*tensors(), return_attention_scores=True)
    assert [s.shape for s in spec] == [tuple(r.shape) for r in results]


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"score_mode": "bahdanau"}, ValueError, "bahdanau"),
        ({"dropout": 1.0}, ValueError, "1.0"),
        ({"dropout": "0.1"}, TypeError, "'0.1'"),
        ({"score_mode": "location"}, ValueError, "max_source_length.*None"),
        ({"units": -3}, ValueError, "units.*-3"),
        ({"units": "8"}, TypeError, "units.*'8'"),
    ],
)
def test_wrong_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        LuongAttention(**arguments)


def test_attentional_vector_by_hand():
    layer = AttentionalVector(1)
    layer.build((1, 1, 2), (1, 1, 1))
    layer.set_weights([np.array([[1.0], [2.0], [4.0]])])  # the context's rows first
    context, query = np.array([[[0.1, 0.2]]]), np.array([[[-0.1]]])
    np.testing.assert_allclose(layer(context, query), [[[np.tanh(0.1)]]], atol=1e-6)


def test_attentional_vector_round_trip_and_errors():
    layer = AttentionalVector(3, name="h_tilde")
    again = AttentionalVector.from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    with pytest.raises(ValueError, match="units.*0"):
        AttentionalVector(0)


def test_what_stands_in_the_padding_never_matters():
    value = np.array([[[1.0, 2.0], [np.nan, np.inf]]], "float32")
    context = LuongAttention("dot")(
        np.ones((1, 1, 2)), value, value_mask=np.array([[True, False]])
    )
    np.testing.assert_array_equal(context, [[[1, 2]]])


def test_scores_that_overflow_in_half_precision_are_survived():
    x = np.full((1, 2, 512), 20.0, "float32")
    context, weights = LuongAttention("dot", dtype="mixed_float16")(
        x, x, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, 0.5)
    np.testing.assert_allclose(context, 20)


def test_wrong_ranks_are_named():
    query, value = tensors()
    with pytest.raises(ValueError, match=r"query must have 3 axes.*\(3, 4\)"):
        make("general")(query[0], value)
    with pytest.raises(ValueError, match=r"value_mask must have 2 axes.*\(2, 5, 1\)"):
        make("general")(query, value, value_mask=np.ones((2, 5, 1), bool))


def test_shapes_that_do_not_fit_are_named():
    query, value = tensors()
    attention = make("general")
    with pytest.raises(ValueError, match="Batch size.*query: 3, value: 2"):
        attention(np.concatenate([query, query[:1]]), value)
    with pytest.raises(ValueError, match="Source length.*value: 5, value_mask: 4"):
        attention(query, value, value_mask=np.ones((2, 4), bool))
    with pytest.raises(ValueError, match="Query length.*query: 3, query_mask: 2"):
        attention(query, value, query_mask=np.ones((2, 2), bool))
    with pytest.raises(ValueError, match="Source length.*value: 5, key: 4"):
        attention(query, value, key=value[:, :4])


def test_prepare_before_build_is_refused():
    _, value = tensors()
    with pytest.raises(ValueError, match="no weights yet"):
        make("general").prepare(value)


def test_output_shape():
    assert make("dot").compute_output_shape((2, 3, 4), (2, 5, 4)) == (2, 3, 4)


def test_hard_attention_takes_the_highest_at_inference_only():
    query, value = tensors()
    soft, hard = LuongAttention("dot"), LuongAttention("dot", hard=True)
    _, weights = soft(query, value, return_attention_scores=True)
    context, chosen = hard(query, value, return_attention_scores=True)
    best = np.argmax(weights, -1)
    np.testing.assert_array_equal(chosen, np.eye(5)[best])
    np.testing.assert_allclose(context, np.take_along_axis(value, best[..., None], 1))
    trained = hard(query, value, training=True)
    np.testing.assert_allclose(trained, soft(query, value), atol=1e-6)
    nowhere = hard(query, value, value_mask=np.zeros((2, 5), bool))
    np.testing.assert_array_equal(nowhere, np.zeros((2, 3, 4)))


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
    np.testing.assert_allclose(model.predict(x), expected @ value, atol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


def covered(mode, attention, query, value, mask):
    """Each query after the other, in NumPy; See et al. 2017, Eq. 10 and 11."""
    kernel = attention.coverage_kernel.numpy()
    weights = {w.name: w.numpy() for w in attention.score.trainable_weights}
    result = np.zeros((*query.shape[:2], value.shape[1]))
    for b in range(len(query)):
        coverage = np.zeros(value.shape[1])
        for t, h in enumerate(query[b]):
            if mode == "concat":
                hidden = (
                    h @ weights["query_kernel"] + value[b] @ weights["value_kernel"]
                )
                hidden = np.tanh(hidden + coverage[:, None] * kernel)
                scores = hidden @ weights["scale"]
            else:
                keys = value[b] @ weights["kernel"].T + coverage[:, None] * kernel
                scores = keys @ h
            e = np.where(mask[b], np.exp(scores), 0)
            result[b, t] = e / e.sum()
            coverage += result[b, t]
    return result


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("mode", ["concat", "general"])
def test_coverage_is_the_sum_of_the_earlier_weights(mode, training):
    query, value = tensors(queries=6)
    mask = np.arange(5) < np.array([[5], [3]])
    attention = LuongAttention(mode, coverage=True)
    attention.build(query.shape, value.shape)
    attention.coverage_kernel.assign(np.array([-1.0, 0.5, -2.0, 1.0]))
    context, weights = attention(
        query,
        value,
        value_mask=mask,
        return_attention_scores=True,
        training=training,
    )
    expected = covered(mode, attention, query, value, mask)
    np.testing.assert_allclose(weights, expected, atol=1e-5)
    np.testing.assert_allclose(context, expected @ value, atol=1e-5)


def test_coverage_and_local_attention_go_together():
    query, value = tensors(queries=4)
    local = LocalAttention(20, "monotonic", "general", coverage=True)
    local.build(query.shape, value.shape)
    everywhere = LuongAttention("general", coverage=True)
    everywhere.build(query.shape, value.shape)
    everywhere.set_weights(local.get_weights())
    np.testing.assert_allclose(local(query, value), everywhere(query, value), atol=1e-5)


def test_coverage_needs_a_score_that_compares():
    with pytest.raises(ValueError, match="coverage.*location"):
        LuongAttention("location", max_source_length=5, coverage=True)


@pytest.mark.tensorflow
@pytest.mark.parametrize("mode", ["general", "concat"])
def test_what_stands_in_the_padding_never_reaches_a_gradient(mode):
    query, value = tensors()
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    value[1, 3:] = np.nan
    layer = make(mode)
    layer.build(query.shape, value.shape)
    with tf.GradientTape() as tape:
        context = layer(query, value, value_mask=mask)
    for gradient in tape.gradient(context, layer.trainable_variables):
        assert np.isfinite(gradient).all()


TURNS = {
    "coverage": lambda: LuongAttention("general", coverage=True),
    "monotonic": lambda: MonotonicAttention("general"),
    "local": lambda: LocalAttention(1, "monotonic", "dot", coverage=True),
}


@pytest.mark.parametrize("name", TURNS)
def test_a_masked_query_is_as_good_as_none(name):
    query, value = tensors(queries=4)
    query[:, 1] = np.nan
    layer, kept = TURNS[name](), [0, 2, 3]
    mask = np.tile([True, False, True, True], (2, 1))
    positions = np.arange(4)[None]
    context, weights = layer(
        query,
        value,
        query_mask=mask,
        positions=positions,
        return_attention_scores=True,
    )
    alone = layer(query[:, kept], value, positions=positions[:, kept])
    np.testing.assert_allclose(np.asarray(context)[:, kept], alone, atol=1e-6)
    assert not np.asarray(context)[:, 1].any() and not np.asarray(weights)[:, 1].any()


def test_positions_are_those_given_in_turn_too():
    query, value = tensors()
    layer = LocalAttention(1, "monotonic", "dot", coverage=True)
    _, weights = layer(
        query, value, positions=np.array([[0, 2, 4]]), return_attention_scores=True
    )
    seen = np.asarray(weights)[0] > 0
    assert [np.flatnonzero(row).tolist() for row in seen] == [[0, 1], [1, 2, 3], [3, 4]]


def test_whole_numbers_are_refused():
    query, value = tensors()
    with pytest.raises(TypeError, match="value must be floating.*int32"):
        make("dot")(query, value.astype("int32"))


@pytest.mark.parametrize("options", [{}, {"hard": True}, {"coverage": True}])
def test_a_source_without_positions_gives_zeros(options):
    query, value = tensors()
    context, weights = make("general", **options)(
        query, value[:, :0], return_attention_scores=True
    )
    np.testing.assert_array_equal(context, np.zeros((2, 3, 4)))
    assert weights.shape == (2, 3, 0)


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
