"""What holds for the call of every attention: forms, masks, batches, files, dtypes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import ATTENTIONS, randomized
from keras import ops
from leave_slow import slow_but

from keras_luong.compat import get_keras_mask
from keras_luong.layers import LuongAttention

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape).astype("float32")


QUERY, VALUE, KEY = random(2, 3, 4), random(2, 5, 4), random(2, 5, 4)
QUERY_MASK = np.array([[True, True, True], [True, False, True]])
VALUE_MASK = np.arange(5) < np.array([[5], [3]])
KEY_MASK = np.array([[False, True, True, True, True]] * 2)
PAIRS = RNG.random((2, 3, 5)) > 0.4
MASKS = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "key_mask": KEY_MASK}
ALL = {"return_attention_scores": True, "return_logits": True}

OF_ANY_AXES = "global", "coverage", "multi-head"
every_attention = pytest.mark.parametrize("name", ATTENTIONS)
#: Where all but a few are slow: one that walks, and those whose calls are their own.
quick_attentions = pytest.mark.parametrize(
    "name", slow_but(ATTENTIONS, "global", "coverage", "local-p", "multi-head")
)


def built(name, **options):
    """Always of the same weights."""
    attention = ATTENTIONS[name](**options)
    attention.build(QUERY.shape, VALUE.shape, KEY.shape)
    return randomized(attention)


def same(one, other, atol=1e-6):
    one, other = keras.tree.flatten(one), keras.tree.flatten(other)
    for x, y in zip(one, other, strict=True):
        x, y = (ops.convert_to_numpy(ops.cast(z, "float64")) for z in (x, y))
        np.testing.assert_allclose(x, y, atol=atol)


# --- forms of a call


@quick_attentions
def test_l12_keras_lists_and_masks_in_a_list_are_the_same_call(name):
    attention = built(name)
    three, masks = (QUERY, VALUE, KEY), list(MASKS.values())
    expected = attention(*three, **MASKS, **ALL)
    same(attention(list(three), mask=masks, **ALL), expected)
    same(attention(list(three), **MASKS, **ALL), expected)
    same(attention(*three, mask=masks, **ALL), expected)
    both = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK & KEY_MASK}
    same(attention(*three, **both, **ALL), expected)
    two = attention(QUERY, VALUE, mask=masks[:2], **ALL)
    same(attention([QUERY, VALUE], mask=masks[:2], **ALL), two)
    same(attention([QUERY, VALUE, None], mask=[*masks[:2], None], **ALL), two)
    same(attention(QUERY, VALUE, VALUE, mask=masks[:2], **ALL), two)
    # What is not asked for does not come.
    same(attention(*three, **MASKS), expected[0])
    same(attention(*three, **MASKS, return_logits=True), expected[::2])
    same(attention(*three, **MASKS, return_attention_scores=True), expected[:2])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", ["global", "local-m"])
def test_k10_positions_may_be_a_python_list(name, symbolic):
    attention = built(name)
    expected = attention(QUERY, VALUE, positions=np.array([[0, 2, 4]]), **ALL)
    given = [QUERY, VALUE]
    inputs = [keras.Input(x.shape[1:]) for x in given] if symbolic else given
    found = attention(*inputs, positions=[[0, 2, 4]], **ALL)
    same(keras.Model(inputs, found)(given) if symbolic else found, expected)


def test_in_a_sequential_model():
    attention, dense = LuongAttention("dot"), keras.layers.Dense(2)
    model = keras.Sequential([attention, dense])
    same(model([QUERY, VALUE]), dense(attention(QUERY, VALUE)))


# --- masks


@every_attention
def test_what_is_masked_never_matters(name):
    """Not even NaN; and a masked query is as good as none."""
    attention = built(name)
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK}
    expected = attention(QUERY, VALUE, KEY, **masks, **ALL)
    junk = [
        np.where(mask[..., None], x, np.nan).astype("float32")
        for x, mask in ((QUERY, QUERY_MASK), (VALUE, VALUE_MASK), (KEY, VALUE_MASK))
    ]
    same(attention(*junk, **masks, **ALL), expected)
    context, weights, logits = map(ops.convert_to_numpy, expected)
    words = QUERY[1:, ::2], VALUE[1:, :3], KEY[1:, :3]
    alone = attention(*words, positions=np.array([[0, 2]]), **ALL)
    wanted = context[1:, ::2], weights[1:, ::2, :3], logits[1:, ::2, :3]
    same(alone, wanted, 1e-5)
    outside = ~(QUERY_MASK[:, :, None] & VALUE_MASK[:, None])
    assert not context[~QUERY_MASK].any() and not weights[outside].any()
    assert np.isfinite(logits).all() and (logits[outside] < -1e38).all()
    if not name.startswith("local"):
        assert (logits[~outside] > -1e38).all()


@pytest.mark.tensorflow
@every_attention
def test_what_is_masked_never_reaches_a_gradient(name):
    attention = built(name)
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK}
    found = []
    for junk in (0.0, np.nan):
        inputs = [
            tf.Variable(np.where(mask[..., None], x, np.float32(junk)))
            for x, mask in ((QUERY, QUERY_MASK), (VALUE, VALUE_MASK))
        ]
        with tf.GradientTape() as tape:
            context = attention(*inputs, **masks, training=True)
        weights = [w.value for w in attention.trainable_weights]
        found.append([
            tf.convert_to_tensor(g) for g in tape.gradient(context, [*inputs, *weights])
        ])  # fmt: skip
    same(*found)
    assert not np.asarray(found[0][0])[~QUERY_MASK].any()
    assert not np.asarray(found[0][1])[~VALUE_MASK].any()


@every_attention
def test_a_row_without_any_position_gets_zeros(name):
    attention, pairs = built(name), PAIRS.copy()
    pairs[0, 1] = False
    nothing = np.array([[True] * 5, [False] * 5])
    options = {"value_mask": nothing, "attention_mask": pairs}
    found = attention(QUERY, VALUE, **options, **ALL)
    context, weights, logits = map(np.asarray, found)
    for x in (context, weights):
        assert not x[1].any() and not x[0, 1].any() and x[0, 0].any()
    assert (logits[1] < -1e38).all()
    # Local ones say that they need some, and JAX has no convolution of nothing.
    on_tensorflow = keras.backend.backend() == "tensorflow"
    if name in OF_ANY_AXES or (on_tensorflow and not name.startswith("local")):
        empty = attention(QUERY, VALUE[:, :0], return_attention_scores=True)
        same(empty, [np.zeros((2, 3, 4)), np.zeros((2, 3, 0))])


#: Of (Q, S), (B, 1, S), (1, Q, S), (B, Q, 1) and (1, 1, S).
SPREAD = [PAIRS[0], PAIRS[:, :1], PAIRS[:1], PAIRS[..., :1], PAIRS[:1, :1]]


@quick_attentions
def test_k7_masks_of_pairs_are_spread_and_anded_with_a_causal_one(name):
    attention, causal = built(name), np.tri(3, 5, dtype=bool)
    options = {"value_mask": VALUE_MASK, **ALL}
    for mask in SPREAD:
        whole = np.broadcast_to(mask, PAIRS.shape)
        expected = attention(QUERY, VALUE, attention_mask=whole, **options)
        assert not np.asarray(expected[1])[~whole].any()
        same(attention(QUERY, VALUE, attention_mask=mask, **options), expected)
    trained = attention(QUERY, VALUE, attention_mask=mask, **options, training=True)
    same(trained, expected, 1e-5)
    both = {"attention_mask": PAIRS, "use_causal_mask": True}
    expected = attention(QUERY, VALUE, attention_mask=PAIRS & causal, **options)
    same(attention(QUERY, VALUE, **both, **options), expected)
    expected = attention(QUERY, VALUE, attention_mask=causal, **options)
    same(attention(QUERY, VALUE, use_causal_mask=True, **options), expected)
    # By the positions that are given.
    order = {"positions": np.array([[2, 0, 1]]), "use_causal_mask": True}
    late = attention(QUERY, VALUE, **order, **options)
    assert not np.asarray(late[1])[:, ~causal[[2, 0, 1]]].any()


IDS = [
    np.array([[1, 2, 3], [4, 5, 0]]),
    np.array([[1, 2, 3, 4, 5], [6, 7, 8, 0, 0]]),
    np.array([[1, 2, 0, 4, 5], [6, 0, 8, 0, 0]]),
]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("form", ["list", "list and mask", "tensors"])
def test_implicit_masks_count_in_either_form(form, count):
    """L7 too: that of the key."""
    embedding = keras.layers.Embedding(9, 4, mask_zero=True)
    inputs = [keras.Input((None,), dtype="int32") for _ in range(count)]
    tensors, attention = [embedding(x) for x in inputs], LuongAttention("general")
    options, ids = {"return_attention_scores": True}, IDS[:count]
    if form == "list and mask":  # then Keras hands the implicit ones on otherwise
        options["attention_mask"] = np.ones((1, 3, 5), bool)
    given = tensors if form == "tensors" else [tensors]
    context, weights = keras.Model(inputs, attention(*given, **options))(ids)
    there = np.all([x != 0 for x in ids[1:]], axis=0)
    seen = (ids[0] != 0)[:, :, None] & there[:, None]
    np.testing.assert_array_equal(np.asarray(weights) > 0, seen)
    masks = {"query_mask": ids[0] != 0, "value_mask": there, "key_mask": there | True}
    vectors = [embedding(x) for x in ids]
    same([context, weights], attention(*vectors, **masks, **options))
    # An explicit one takes its place; the query's own still counts.
    masks = {"value_mask": np.ones((2, 5), bool), "key_mask": np.ones((2, 5), bool)}
    _, weights = attention(vectors, **masks, return_attention_scores=True)
    seen = np.broadcast_to((ids[0] != 0)[:, :, None], (2, 3, 5))
    np.testing.assert_array_equal(np.asarray(weights) > 0, seen)


@pytest.mark.parametrize("form", ["explicit", "implicit", "list", "mask"])
def test_the_context_has_the_querys_mask(form):
    query = keras.layers.Masking()(QUERY * QUERY_MASK[:, :, None])
    attention = built("global")
    arguments, masks = {
        "explicit": ((QUERY, VALUE), {"query_mask": QUERY_MASK}),
        "implicit": ((query, VALUE), {}),
        "list": (([query, VALUE],), {}),
        "mask": (([QUERY, VALUE],), {"mask": [QUERY_MASK, None]}),
    }[form]
    context, *maps = attention(*arguments, **masks, **ALL)
    for each in (context, attention(*arguments, **masks)):
        np.testing.assert_array_equal(get_keras_mask(each), QUERY_MASK)
    assert [get_keras_mask(x) for x in maps] == [None, None]
    assert attention.compute_mask(query, QUERY_MASK) is QUERY_MASK
    assert attention.compute_mask(query, [QUERY_MASK, VALUE_MASK]) is QUERY_MASK


# --- batch sizes and ranks


@quick_attentions
def test_l6_one_query_for_every_source_and_the_other_way_round(name):
    attention = built(name)
    masks = {"query_mask": QUERY_MASK[1:], "value_mask": VALUE_MASK}
    twice = {"query_mask": QUERY_MASK[[1, 1]], "value_mask": VALUE_MASK}
    one = attention(QUERY[:1], VALUE, **masks, **ALL)
    same(one, attention(QUERY[[0, 0]], VALUE, **twice, **ALL))
    one = attention(QUERY, VALUE[:1], value_mask=VALUE_MASK[1:], **ALL)
    twice = {"value_mask": VALUE_MASK[[1, 1]]}
    same(one, attention(QUERY, VALUE[[0, 0]], **twice, **ALL))
    value, query = keras.Input((None, 4)), keras.Input(batch_shape=(1, 3, 4))
    model = keras.Model([query, value], attention(query, value))  # a learned query
    assert model.output_shape == (None, 3, 4)
    if keras.backend.backend() == "tensorflow":
        same(model([QUERY[:1], VALUE]), attention(QUERY[[0, 0]], VALUE))
    for sizes in ((1, 2), (2, 1), (2, 2)):
        shapes = (sizes[0], 3, 4), (sizes[1], 5, 6)
        assert attention.compute_output_shape(*shapes) == (2, 3, 6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name, sizes", [("global", (1, 3)), ("multi-head", (3, 1))])
def test_a_batch_of_1_may_be_known_at_run_time_alone(name, sizes):
    attention = built(name)
    given = [random(size, n, 4) for size, n in zip(sizes, (2, 5), strict=True)]
    specs = [tf.TensorSpec([None, n, 4]) for n in (2, 5)]
    attend = tf.function(lambda *x: attention(*x, **ALL), input_signature=specs)
    same(attend(*given), attention(*given, **ALL), 1e-5)


@every_attention
def test_sources_of_two_axes(name):
    """Are one row of positions to those that do not ask how they lie."""
    attention, image = built(name), random(2, 2, 3, 4)
    if name not in OF_ANY_AXES:
        with pytest.raises(ValueError, match=r"value must have 3 axes.*\(2, 2, 3, 4\)"):
            attention(QUERY, image)
        return
    words, pairs = RNG.random((2, 2, 3)) > 0.3, RNG.random((3, 2, 3)) > 0.3
    masks = {"value_mask": words, "attention_mask": pairs}
    context, *maps = attention(QUERY, image, **masks, **ALL)
    flat, masks = image.reshape(2, 6, 4), (words.reshape(2, 6), pairs.reshape(3, 6))
    options = {"value_mask": masks[0], "attention_mask": masks[1], **ALL}
    expected, *expected_maps = attention(QUERY, flat, **options)
    same(context, expected)
    same(maps, [np.reshape(x, (2, 3, 2, 3)) for x in expected_maps])
    memory = attention.prepare(image, words), attention.prepare(flat, masks[0])
    same(*memory)
    one_row = np.broadcast_to(pairs[:, :1], (3, 2, 3))
    same(
        attention(QUERY, image, attention_mask=pairs[:, :1]),
        attention(QUERY, image, attention_mask=one_row),
    )
    with pytest.raises(ValueError, match=r"use_causal_mask.*\(2, 2, 3, 4\)"):
        attention(QUERY, image, use_causal_mask=True)


# --- models, files, dtypes


@quick_attentions
def test_functional_saved_and_cloned_models_say_what_the_layer_does(name, tmp_path):
    attention = built(name, hard=True, dropout=0.1, seed=3)
    config = attention.get_config()
    assert type(attention).from_config(config).get_config() == config
    assert (config["hard"], config["dropout"], config["seed"]) == (True, 0.1, 3)
    inputs = [keras.Input((None, 4)) for _ in "123"]
    mask = keras.Input((None,), dtype="bool")
    outputs = attention(*inputs, value_mask=mask, **ALL)
    model = keras.Model([*inputs, mask], outputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for queries, length in ((2, 5), (1, 2)):  # and sizes are those of the call
        given = [QUERY[:, :queries]]
        given += [x[:, :length] for x in (VALUE, KEY, VALUE_MASK)]
        expected = attention(*given[:3], value_mask=given[3], **ALL)
        for one in (model, loaded, cloned):
            same(one(given), expected)
    for spec, x in zip(outputs, expected, strict=True):
        assert keras.backend.standardize_dtype(x.dtype) == spec.dtype
        assert len(spec.shape) == len(x.shape)
    assert outputs[0].shape == (None, None, 4)


WIDE = [
    pytest.param(name, policy, marks=[pytest.mark.slow] * slow)
    for name in ATTENTIONS
    for policy in ("mixed_float16", "mixed_bfloat16", "float64")
    for slow in [policy != "mixed_float16" and name not in ("global", "local-p")]
]


@pytest.mark.parametrize("name, policy", WIDE)
def test_weights_are_at_least_float32_whatever_the_policy(name, policy):
    """L8."""
    wide = "float64" if policy == "float64" else "float32"
    exact, other = built(name), built(name, dtype=policy)
    other.set_weights(exact.get_weights())
    expected = exact(QUERY, VALUE, **ALL)
    found = other(*[x.astype(wide) for x in (QUERY, VALUE)], **ALL)
    dtypes = [policy.removeprefix("mixed_"), wide, wide]
    assert [keras.backend.standardize_dtype(x.dtype) for x in found] == dtypes
    near = {"float64": 1e-5, "mixed_float16": 0.05, "mixed_bfloat16": 0.2}
    same(found[1], expected[1], near[policy])
    if name not in ("monotonic", "chunkwise"):
        np.testing.assert_allclose(np.sum(found[1], -1), 1, atol=1e-5)


@every_attention
def test_regularizers_and_constraints_of_all_matrices(name):
    options = {"kernel_regularizer": keras.regularizers.L2(0.5)}
    options |= {"kernel_constraint": keras.constraints.MaxNorm(0.25)}
    attention = built(name, **options)
    free = {"score_bias", "location_bias"}
    kernels = [w for w in attention.trainable_weights if w.name not in free]
    assert kernels and all(w.regularizer and w.constraint for w in kernels)
    total = sum(0.5 * np.sum(np.square(w)) for w in kernels)
    np.testing.assert_allclose(sum(attention.losses), total, rtol=1e-5)
    again = type(attention).from_config(attention.get_config())
    assert again.get_config() == attention.get_config()
    assert again.score.kernel_regularizer.l2 == 0.5


HARD = slow_but(ATTENTIONS, "global", "local-p", "monotonic", "multi-head")


@pytest.mark.parametrize("name", HARD)
def test_hard_weights_are_soft_in_training(name):
    soft, hard = built(name), built(name, hard=True)
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK}
    trained = hard(QUERY, VALUE, **masks, **ALL, training=True)
    same(trained, soft(QUERY, VALUE, **masks, **ALL))
    weights = np.asarray(hard(QUERY, VALUE, **masks, **ALL)[1])
    assert np.abs(weights - trained[1]).max() > 0.1
    if name not in ("chunkwise", "multi-head"):  # of a chunk, the mean of heads
        assert set(np.unique(weights)) == {0.0, 1.0} and (weights.sum(-1) <= 1).all()


# --- logits


@every_attention
def test_logits_are_what_the_weights_are_made_of(name):
    attention = built(name)
    _, weights, logits = attention(QUERY, VALUE, value_mask=VALUE_MASK, **ALL)
    logits, weights = np.asarray(logits), np.asarray(weights)
    if name in ("monotonic", "chunkwise"):
        plain = LuongAttention("general" if name == "monotonic" else "concat")
        plain.build(QUERY.shape, VALUE.shape)
        plain.set_weights(attention.score.get_weights())
        _, scores = plain(QUERY, VALUE, value_mask=VALUE_MASK, return_logits=True)
        bias = np.where(logits > -1e38, float(attention.score_bias), 0)
        np.testing.assert_allclose(logits, scores + bias, rtol=1e-5, atol=1e-6)
        return
    e = np.where(logits > -1e38, np.exp(np.maximum(logits, -50)), 0)
    expected = e / np.maximum(e.sum(-1, keepdims=True), 1e-30)
    if name == "local-p":  # before the Gaussian
        assert ((weights > 0) == (expected > 0)).all()
    else:
        np.testing.assert_allclose(weights, expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.tensorflow
@every_attention
def test_int8(name, tmp_path):
    """It is almost the same, goes through a `.keras` file, and is refused twice."""
    inputs, value = keras.Input((None, 4)), keras.Input((None, 4))
    attention = ATTENTIONS[name]()
    outputs = keras.layers.Dense(3, name="out")(attention(inputs, value))
    model = randomized(keras.Model([inputs, value], outputs))
    given = [QUERY, VALUE]
    exact = np.asarray(model(given))
    with pytest.warns(UserWarning, match="InputLayer"):
        model.quantize("int8")
    assert all(w.dtype == "int8" for w in model.weights if len(w.shape) == 2)
    result = np.asarray(model(given))
    assert 0 < np.abs(result - exact).max() < 0.05 * np.abs(exact).max()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(given), result)
    with pytest.raises(ValueError, match="already quantized"):
        attention.quantize("int8")
