"""The call of an attention layer: Keras's forms, masks, ranks, and what is refused."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.compat import get_keras_mask
from keras_luong.layers import LocalAttention, LuongAttention, MonotonicAttention
from keras_luong.layers.scores import Score

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape).astype("float32")


def mask(*lengths, size):
    return np.arange(size) < np.array(lengths)[:, None]


QUERY, VALUE, KEY = random(2, 3, 4), random(2, 5, 4), random(2, 5, 4)
QUERY_MASK, VALUE_MASK = mask(3, 2, size=3), mask(5, 3, size=5)
KEY_MASK = np.roll(mask(4, 4, size=5), 1, axis=1)

ATTENTIONS = {
    "global": lambda **options: LuongAttention("general", **options),
    "coverage": lambda **options: LuongAttention("concat", coverage=True, **options),
    "local-m": lambda **options: LocalAttention(1, "monotonic", **options),
    "local-p": lambda **options: LocalAttention(2, "predictive", **options),
    "monotonic": lambda **options: MonotonicAttention("general", **options),
}
every_attention = pytest.mark.parametrize("name", ATTENTIONS)


def built(name, **options):
    attention = ATTENTIONS[name](**options)
    attention.build(QUERY.shape, VALUE.shape)
    if name == "coverage":
        attention.coverage_kernel.assign([1.0, -1.0, 2.0, 0.5])
    return attention


def same(one, other, atol=1e-6):
    for x, y in zip(keras.tree.flatten(one), keras.tree.flatten(other), strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


# --- as Keras has it: lists


@every_attention
def test_l12_a_list_is_the_same_as_several_tensors(name):
    attention = built(name)
    options = {"return_attention_scores": True}
    several = attention(QUERY, VALUE, **options)
    same(attention([QUERY, VALUE], **options), several)
    several = attention(QUERY, VALUE, KEY, **options)
    same(attention([QUERY, VALUE, KEY], **options), several)


@every_attention
def test_l12_masks_of_a_list(name):
    attention = built(name)
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK}
    expected = attention(QUERY, VALUE, **masks)
    same(attention([QUERY, VALUE], mask=[QUERY_MASK, VALUE_MASK]), expected)
    same(attention([QUERY, VALUE], **masks), expected)
    same(attention(QUERY, VALUE, mask=[QUERY_MASK, VALUE_MASK]), expected)
    expected = attention(QUERY, VALUE, KEY, value_mask=VALUE_MASK, key_mask=KEY_MASK)
    same(attention([QUERY, VALUE, KEY], mask=[None, VALUE_MASK, KEY_MASK]), expected)


IDS = {
    "query": np.array([[1, 2, 3], [4, 5, 0]]),
    "value": np.array([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]),
    "key": np.array([[1, 2, 0, 4, 5], [6, 0, 8, 0, 0]]),
}


def embedded(count=3):
    names = ("query", "value", "key")[:count]
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    inputs = [keras.Input((None,), dtype="int32", name=name) for name in names]
    return inputs, [embedding(x) for x in inputs], embedding


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["list", "list and mask", "tensors"])
def test_implicit_masks_count_in_either_form(form, count):
    """L7 too: that of the key."""
    inputs, tensors, embedding = embedded(count)
    attention = LuongAttention("general")
    if form == "list":
        outputs = attention(tensors, return_attention_scores=True)
    elif form == "tensors":
        outputs = attention(*tensors, return_attention_scores=True)
    else:  # then Keras hands the implicit ones on by another name
        everything = keras.ops.ones_like(inputs[0], dtype="bool")[:, :, None]
        everything = keras.ops.repeat(everything, 5, axis=2)
        outputs = attention(
            tensors, attention_mask=everything, return_attention_scores=True
        )
    model = keras.Model(inputs, outputs)
    ids = [IDS[x.name] for x in inputs]
    context, weights = model(ids)
    there = np.all([x != 0 for x in ids[1:]], axis=0)
    seen = (ids[0] != 0)[:, :, None] & there[:, None]
    np.testing.assert_array_equal(np.asarray(weights) > 0, seen)
    expected = attention(
        *[embedding(x) for x in ids],
        query_mask=ids[0] != 0,
        value_mask=there,
        key_mask=np.ones_like(there),
        return_attention_scores=True,
    )
    same([context, weights], expected)


def test_an_explicit_mask_takes_the_implicit_ones_place():
    _, _, embedding = embedded(2)
    query, value = embedding(IDS["query"]), embedding(IDS["value"])
    everything = np.ones((2, 5), bool)
    _, weights = LuongAttention("dot")(
        [query, value], value_mask=everything, return_attention_scores=True
    )
    assert (np.asarray(weights)[0] > 0).all()
    assert (np.asarray(weights)[1, :2] > 0).all()  # the query's own still counts
    assert not np.asarray(weights)[1, 2].any()


@pytest.mark.parametrize(
    "name, shapes",
    [
        ("global", [(2, 5, 4)]),
        ("global", [(2, 2, 3, 4)] * 2),
        ("coverage", [(2, 2, 3, 4)]),
        ("local-m", [(2, 5, 4)] * 2),
        ("local-p", [(2, 5, 4)]),
        ("monotonic", [(2, 5, 4)]),
    ],
)
def test_functional_and_subclassed_models_and_keras_files(name, shapes, tmp_path):
    arrays = [QUERY, *[random(*shape) for shape in shapes]]
    inputs = [keras.Input((*[None] * (x.ndim - 2), 4)) for x in arrays]
    attention = ATTENTIONS[name]()
    outputs = attention(inputs, return_attention_scores=True, return_logits=True)
    model = keras.Model(inputs, outputs)
    expected = model(arrays)
    for spec, result in zip(outputs, expected, strict=True):
        assert spec.dtype == keras.backend.standardize_dtype(result.dtype)
        assert len(spec.shape) == len(result.shape)
    model.save(tmp_path / "model.keras")
    same(keras.models.load_model(tmp_path / "model.keras")(arrays), expected)

    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.attention = ATTENTIONS[name]()

        def call(self, inputs):
            return self.attention(inputs)

    mine = Mine()
    mine(arrays)
    mine.set_weights(model.get_weights())
    same(mine(arrays), expected[0], 1e-5)


def test_in_a_sequential_model():
    model = keras.Sequential([LuongAttention("dot"), keras.layers.Dense(2)])
    assert model([QUERY, VALUE]).shape == (2, 3, 2)


# --- masks


def causal(queries, positions):
    return np.arange(queries)[:, None] >= np.arange(positions)


@every_attention
def test_a_causal_mask_is_a_mask_per_query(name):
    attention = built(name)
    options = {"return_attention_scores": True, "value_mask": VALUE_MASK}
    result = attention(QUERY, VALUE, use_causal_mask=True, **options)
    per_query = np.broadcast_to(causal(3, 5), (2, 3, 5))
    same(result, attention(QUERY, VALUE, attention_mask=per_query, **options))
    assert not np.asarray(result[1])[:, ~causal(3, 5)].any()
    open_mask = random(2, 3, 5) > 0
    both = attention(
        QUERY, VALUE, use_causal_mask=True, attention_mask=open_mask, **options
    )
    same(both, attention(QUERY, VALUE, attention_mask=open_mask & per_query, **options))


def test_a_causal_mask_goes_by_the_positions_that_are_given():
    _, weights = LuongAttention("dot")(
        QUERY[:, :1],
        VALUE,
        positions=np.array([[2]]),
        use_causal_mask=True,
        return_attention_scores=True,
    )
    np.testing.assert_array_equal(np.asarray(weights)[0, 0] > 0, [1, 1, 1, 0, 0])


@pytest.mark.parametrize("training", [False, True])
@every_attention
def test_a_query_sees_what_its_own_mask_says(name, training):
    attention = built(name)
    allowed = random(2, 3, 5) > -0.5
    context, weights = attention(
        QUERY,
        VALUE,
        attention_mask=allowed,
        return_attention_scores=True,
        training=training,
    )
    assert not np.asarray(weights)[~allowed].any()
    assert np.asarray(weights).any()
    if name == "global":
        for t in range(3):
            alone = attention(QUERY[:, t : t + 1], VALUE, value_mask=allowed[:, t])
            np.testing.assert_allclose(alone[:, 0], context[:, t], atol=1e-6)


def test_a_mask_without_a_batch_is_for_a_batch_of_1_too():
    attention, allowed = LuongAttention("dot"), causal(3, 5)
    context = attention(QUERY[:1], VALUE[:1], attention_mask=allowed)
    same(context, attention(QUERY, VALUE, attention_mask=allowed)[:1])


def test_a_query_without_any_position_gets_zeros():
    context, weights = LuongAttention("dot")(
        QUERY,
        VALUE,
        attention_mask=np.zeros((2, 3, 5), bool),
        return_attention_scores=True,
    )
    assert not np.asarray(context).any() and not np.asarray(weights).any()


def test_l7_a_key_mask_is_anded_with_the_values():
    attention = LuongAttention("dot")
    both = attention(QUERY, VALUE, KEY, value_mask=VALUE_MASK & KEY_MASK)
    apart = attention(QUERY, VALUE, KEY, value_mask=VALUE_MASK, key_mask=KEY_MASK)
    same(apart, both)


@pytest.mark.parametrize("form", ["explicit", "implicit", "list", "mask"])
def test_the_context_has_the_querys_mask(form):
    query = keras.layers.Masking()(QUERY * QUERY_MASK[:, :, None])
    call = {
        "explicit": lambda f: f(QUERY, VALUE, query_mask=QUERY_MASK),
        "implicit": lambda f: f(query, VALUE),
        "list": lambda f: f([query, VALUE]),
        "mask": lambda f: f([QUERY, VALUE], mask=[QUERY_MASK, None]),
    }[form]
    np.testing.assert_array_equal(get_keras_mask(call(LuongAttention())), QUERY_MASK)
    context, weights = call(
        lambda *x, **y: LuongAttention()(*x, **y, return_attention_scores=True)
    )
    np.testing.assert_array_equal(get_keras_mask(context), QUERY_MASK)
    assert get_keras_mask(weights) is None


def test_an_explicit_mask_goes_on_through_a_functional_model():
    inputs = keras.Input((3, 4)), keras.Input((5, 4)), keras.Input((3,), dtype="bool")
    context = LuongAttention("dot")(*inputs[:2], query_mask=inputs[2])
    pooled = keras.layers.GlobalAveragePooling1D()(context)
    model = keras.Model(inputs, [context, pooled])
    context, pooled = model([QUERY, VALUE, QUERY_MASK])
    counts = QUERY_MASK.sum(1, keepdims=True)
    np.testing.assert_allclose(pooled, np.sum(context, 1) / counts, atol=1e-6)


# --- batch sizes and ranks


@every_attention
def test_l6_one_query_for_every_source_and_the_other_way_round(name):
    attention = built(name)
    masks = {"query_mask": QUERY_MASK[1:], "value_mask": VALUE_MASK}
    options = {"return_attention_scores": True, "return_logits": True}
    one = attention(QUERY[:1], VALUE, **masks, **options)
    each = attention(np.repeat(QUERY[:1], 2, 0), VALUE, mask=[
        np.repeat(QUERY_MASK[1:], 2, 0), VALUE_MASK], **options)  # fmt: skip
    same(one, each)
    one = attention(QUERY, VALUE[:1], value_mask=VALUE_MASK[1:], **options)
    twice = np.repeat(VALUE[:1], 2, 0)
    masks = {"value_mask": np.repeat(VALUE_MASK[1:], 2, 0)}
    same(one, attention(QUERY, twice, **masks, **options))
    assert attention.compute_output_shape((1, 3, 4), (2, 5, 4)) == (2, 3, 4)


@pytest.mark.tensorflow
@every_attention
def test_l6_a_learned_query_in_a_functional_model(name):
    value = keras.Input((None, 4))
    query = keras.Input(batch_shape=(1, 3, 4))
    attention = built(name)
    context = attention(query, value)
    assert context.shape == (None, 3, 4)
    model = keras.Model([query, value], context)
    same(model([QUERY[:1], VALUE]), attention(np.repeat(QUERY[:1], 2, 0), VALUE))


@pytest.mark.parametrize("name", ["global", "coverage"])
def test_sources_of_two_axes(name):
    image, key = random(2, 2, 3, 4), random(2, 2, 3, 4)
    words = random(2, 2, 3) > -0.5
    allowed = random(2, 3, 2, 3) > -0.5
    options = {"return_attention_scores": True, "return_logits": True}
    attention = built(name)
    context, *maps = attention(
        QUERY, image, key, value_mask=words, attention_mask=allowed, **options
    )
    flat, *flat_maps = attention(
        QUERY,
        image.reshape(2, 6, 4),
        key.reshape(2, 6, 4),
        value_mask=words.reshape(2, 6),
        attention_mask=allowed.reshape(2, 3, 6),
        **options,
    )
    same(context, flat)
    for x, y in zip(maps, flat_maps, strict=True):
        assert x.shape == (2, 3, 2, 3)
        np.testing.assert_array_equal(x, np.reshape(y, x.shape))
    memory = attention.prepare(image, words)
    assert memory.values.shape == (2, 6, 4)


def test_a_score_of_ones_own_sees_one_row_of_positions():
    seen = []

    class Mine(Score):
        def build(self, query_shape, key_shape):
            seen.append(key_shape)

        def prepare(self, key):
            seen.append(tuple(key.shape))
            return super().prepare(key)

    LuongAttention(Mine(), coverage=True)(QUERY, random(2, 2, 3, 4))
    assert seen[0] == (2, None, 4) and seen[-1] == (2, 6, 4)


def test_a_source_of_three_axes_whose_sizes_are_not_known():
    query, video = keras.Input((None, 4)), keras.Input((None, None, None, 4))
    outputs = LuongAttention("dot")(query, video, return_attention_scores=True)
    assert [x.shape for x in outputs] == [(None, None, 4), (None,) * 5]
    model = keras.Model([query, video], outputs)
    assert model([QUERY, random(2, 2, 3, 2, 4)])[1].shape == (2, 3, 2, 3, 2)


# --- logits


@every_attention
def test_logits_are_what_the_weights_are_made_of(name):
    attention = built(name)
    context, weights, logits = attention(
        QUERY,
        VALUE,
        query_mask=QUERY_MASK,
        value_mask=VALUE_MASK,
        return_attention_scores=True,
        return_logits=True,
    )
    only = attention(QUERY, VALUE, mask=[QUERY_MASK, VALUE_MASK], return_logits=True)
    same(only, [context, logits])
    logits, weights = np.asarray(logits), np.asarray(weights)
    assert logits.dtype == "float32" and np.isfinite(logits).all()
    outside = ~(QUERY_MASK[:, :, None] & VALUE_MASK[:, None])
    assert (logits[outside] < -1e38).all()
    if name == "monotonic":
        first = 1 / (1 + np.exp(-logits[:, 0, 0]))
        np.testing.assert_allclose(weights[:, 0, 0], first, atol=1e-6)
        return
    e = np.where(logits > -1e38, np.exp(np.maximum(logits, -50)), 0)
    expected = e / np.maximum(e.sum(-1, keepdims=True), 1e-30)
    if name == "local-p":  # before the Gaussian
        assert ((weights > 0) == (expected > 0)).all()
    else:
        np.testing.assert_allclose(weights, expected, atol=1e-5)


def test_logits_are_for_keras_cross_entropy():
    """A pointer network: which position is meant."""
    labels = np.array([[0, 4, 2], [1, 2, 0]])
    _, weights, logits = LuongAttention("dot")(
        QUERY,
        VALUE,
        value_mask=VALUE_MASK,
        return_attention_scores=True,
        return_logits=True,
    )
    loss = keras.losses.SparseCategoricalCrossentropy(True, reduction="none")
    chosen = np.take_along_axis(np.asarray(weights), labels[:, :, None], 2)[..., 0]
    np.testing.assert_allclose(loss(labels, logits), -np.log(chosen), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_pointer_network_learns_from_logits():
    value = random(64, 6, 4)
    labels = np.argmax(value[..., 0], axis=1)[:, None]
    inputs = keras.Input((6, 4)), keras.Input((1, 4))
    hidden = keras.layers.Dense(8, "tanh")(inputs[0])
    _, logits = LuongAttention("concat", units=8)(inputs[1], hidden, return_logits=True)
    model = keras.Model(inputs, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.03), loss, metrics=["accuracy"])
    x = [value, np.ones((64, 1, 4), "float32")]
    model.fit(x, labels, epochs=40, verbose=0)
    assert model.evaluate(x, labels, verbose=0)[1] > 0.9


# --- what is refused, when a model is made as when it is called


WRONG = {
    "query of rank 2": (((2, 4), (2, 5, 4)), {}, "query must have 3 axes"),
    "value of rank 2": (((2, 3, 4), (2, 4)), {}, "value must have 3 axes"),
    "key's length": (((2, 3, 4), (2, 5, 4), (2, 6, 4)), {}, "ource length.*key: 6"),
    "key's rank": (((2, 3, 4), (2, 5, 4), (2, 1, 5, 4)), {}, "key must have 3 axes"),
    "batch": (((3, 3, 4), (2, 5, 4)), {}, "Batch size.*query: 3, value: 2"),
    "query_mask": (((2, 3, 4), (2, 5, 4)), {"query_mask": (2, 5)}, "query_mask: 5"),
    "value_mask": (((2, 3, 4), (2, 5, 4)), {"value_mask": (2, 3)}, "value_mask: 3"),
    "key_mask": (((2, 3, 4), (2, 5, 4)), {"key_mask": (2, 3)}, "key_mask: 3"),
    "attention_mask": (
        ((2, 3, 4), (2, 5, 4)),
        {"attention_mask": (2, 5, 3)},
        "attention_mask: 5",
    ),
    "mask of rank 1": (
        ((2, 3, 4), (2, 5, 4)),
        {"attention_mask": (5,)},
        "attention_mask must have 3 axes",
    ),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", WRONG)
def test_l1_wrong_shapes_are_refused_at_once(case, symbolic):
    shapes, masks, message = WRONG[case]

    def tensor(shape, dtype="float32"):
        if symbolic:
            return keras.Input(batch_shape=shape, dtype=dtype)
        return np.ones(shape, dtype)

    options = {name: tensor(shape, "bool") for name, shape in masks.items()}
    with pytest.raises(ValueError, match=message):
        LuongAttention("general")(*[tensor(x) for x in shapes], **options)


def test_l1_integers_are_refused_when_a_model_is_made():
    with pytest.raises(TypeError, match="query must be floating.*int32"):
        LuongAttention()(keras.Input((3, 4), dtype="int32"), keras.Input((5, 4)))


@pytest.mark.parametrize("symbolic", [False, True])
def test_l12_one_tensor_is_not_enough(symbolic):
    one = keras.Input((3, 4)) if symbolic else QUERY
    with pytest.raises(ValueError, match="needs a query and a value.*3, 4"):
        LuongAttention()(one)
    with pytest.raises(ValueError, match="2 or 3.*Received: a list of 1"):
        LuongAttention()([one])
    with pytest.raises(ValueError, match="Received: a list of 4"):
        LuongAttention()([one] * 4)
    with pytest.raises(ValueError, match="list or with several tensors"):
        LuongAttention()([one, one], one)
    with pytest.raises(ValueError, match="mask must be a list"):
        LuongAttention()(one, one, mask=QUERY_MASK)


@pytest.mark.tensorflow
def test_l12_ragged_tensors_are_refused_with_what_to_do():
    ragged = tf.RaggedTensor.from_row_lengths(random(7, 4), [4, 3])
    for arguments in ((ragged, VALUE), (QUERY, ragged)):
        with pytest.raises(TypeError, match=r"is ragged.*to_tensor\(\).*mask"):
            LuongAttention()(*arguments)


def test_l12_prepare_in_a_functional_model_says_what_to_do():
    attention = built("global")
    with pytest.raises(ValueError, match="call the attention itself"):
        attention.prepare(keras.Input((5, 4)))


def test_l12_a_score_without_project_is_refused():
    class Mine(Score):
        def call(self, query, key):
            return keras.ops.matmul(query, keras.ops.transpose(key, (0, 2, 1)))

    with pytest.raises(TypeError, match=r"Mine.call must take project.*query, key\)"):
        LuongAttention(Mine())


@pytest.mark.parametrize("name", ["local-m", "local-p", "monotonic"])
def test_a_line_of_positions_is_what_some_need(name):
    with pytest.raises(ValueError, match=r"value must have 3 axes.*\(2, 2, 3, 4\)"):
        ATTENTIONS[name]()(QUERY, random(2, 2, 3, 4))


def test_a_source_of_two_axes_has_no_order():
    with pytest.raises(ValueError, match=r"use_causal_mask.*\(2, 2, 3, 4\)"):
        LuongAttention()(QUERY, random(2, 2, 3, 4), use_causal_mask=True)


# --- dtypes


@every_attention
def test_l8_float64_is_exact(name):
    exact = built(name, dtype="float64")
    query, value = QUERY.astype("float64"), VALUE.astype("float64")
    plain = built(name)
    exact.set_weights(plain.get_weights())
    shifted = [w + 0.1 for w in exact.get_weights()]  # no float32 has them
    exact.set_weights(shifted)
    plain.set_weights(shifted)
    results = exact(query, value, return_attention_scores=True, return_logits=True)
    if keras.backend.backend() != "jax":
        for x in results:
            assert keras.backend.standardize_dtype(x.dtype) == "float64"
        _, weights, logits = map(np.asarray, results)
        if name in ("global", "coverage"):
            e = np.exp(logits - logits.max(-1, keepdims=True))
            expected = e / e.sum(-1, keepdims=True)
            np.testing.assert_allclose(weights, expected, rtol=1e-13)
            np.testing.assert_allclose(results[0], weights @ value, rtol=1e-13)
    same(plain(QUERY, VALUE), results[0], 1e-5)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "variable", [keras.Variable, pytest.param(tf.Variable, marks=pytest.mark.slow)]
)
@every_attention
def test_l9_variables_are_as_good_as_tensors(name, variable):
    attention = built(name)
    expected = attention(QUERY, VALUE, KEY, value_mask=VALUE_MASK)
    tensors = [variable(x) for x in (QUERY, VALUE, KEY)]
    same(attention(*tensors, value_mask=tf.Variable(VALUE_MASK)), expected)
    same(attention(tensors, mask=[None, tf.Variable(VALUE_MASK), None]), expected)
    first = attention(tensors[0], tensors[1], positions=tf.Variable([[0, 1, 2]]))
    same(first, attention(QUERY, VALUE))


# --- the layer's other options


@every_attention
def test_regularizers_and_constraints_of_all_matrices(name):
    options = {
        "kernel_regularizer": keras.regularizers.L2(0.5),
        "kernel_constraint": keras.constraints.MaxNorm(0.25),
    }
    attention = built(name, **options)
    free = {"score_bias"}
    kernels = [w for w in attention.trainable_weights if w.name not in free]
    assert kernels
    assert all(w.regularizer and w.constraint for w in kernels)
    total = sum(0.5 * np.sum(np.square(w)) for w in kernels)
    np.testing.assert_allclose(sum(attention.losses), total, rtol=1e-5)
    again = type(attention).from_config(attention.get_config())
    assert again.get_config() == attention.get_config()
    assert again.score.kernel_regularizer.l2 == 0.5


@pytest.mark.parametrize("attention", [LuongAttention, LocalAttention])
def test_an_unknown_normalizer_is_named(attention):
    with pytest.raises(ValueError, match="one of.*sparsemax.*'sparse'"):
        attention(normalizer="sparse")
