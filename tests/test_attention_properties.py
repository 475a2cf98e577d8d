"""Attentions of every kind against plain NumPy, and against Keras's own layers."""

import keras
import numpy as np
import pytest
import reference_attention as reference
import tensorflow as tf
from decoding_attentions import randomized
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong import layers
from keras_luong.layers.scores import SCORES

#: How far a result may be from float64: half precision has 11 bits or 8.
TOLERANCE = {"float32": 2e-5, "float64": 1e-11}
TOLERANCE |= {"mixed_float16": 0.05, "mixed_bfloat16": 0.3}
#: The layers, and their options, of which Hypothesis chooses.
LOCAL = {"window": [1, 2, 5], "alignment": ["monotonic", "predictive"]}
LOCAL |= {"gaussian": [None, False, True], "renormalize": [False, True]}
CHUNKWISE = {"chunk_size": [1, 2, 3, 9], "chunk_score_mode": [None, "dot", "concat"]}
LOCATIONS = {"filters": [2], "kernel_size": [1, 3, 5, 17], "cumulative": [False, True]}
HEADS = {"num_heads": [1, 2, 3], "key_dim": [3], "value_dim": [None, 2]}
KINDS = {
    "global": (layers.LuongAttention, {}),
    "coverage": (layers.LuongAttention, {"coverage": [True]}),
    "local": (layers.LocalAttention, {**LOCAL, "coverage": [False, True]}),
    "monotonic": (layers.MonotonicAttention, {"mode": ["parallel", "recursive"]}),
    "chunkwise": (layers.MonotonicChunkwiseAttention, CHUNKWISE),
    "location-aware": (layers.LocationAwareAttention, LOCATIONS),
    "multi-head": (layers.MultiHeadLuongAttention, HEADS),
}
NOT_OF_POSITIONS = ("coverage", "local", "location-aware")
OF_ONE_SIZE = ("local", "chunkwise")  # of query and key
CASES = {
    f"{kind} {mode}": (kind, mode)
    for kind in KINDS
    for mode in SCORES
    if mode != "location" or kind not in NOT_OF_POSITIONS
}
FAST = [
    *("global general", "global normed_concat", "global location"),
    *("coverage concat", "local general", "monotonic general", "chunkwise scaled_dot"),
    *("location-aware concat", "multi-head concat"),
]


def made(kind, mode, choose, **options):
    """A layer of the kind, with those of its options that `choose` chooses."""
    layer, own = KINDS[kind]
    own = {name: choose(values) for name, values in own.items()}
    return layer(score_mode=mode, units=3, max_source_length=4, **own, **options)


MASKS = st.sampled_from("query_mask value_mask key_mask attention_mask".split())


@pytest.mark.parametrize("case", slow_but(CASES, *FAST))
@settings(max_examples=10)
@given(
    **{"choose": st.data(), "queries": st.integers(1, 3), "masks": st.sets(MASKS)},
    axes=st.sampled_from([(1,), (4,), (7,), (2, 3), (2, 1, 3)]),
    **{"causal": st.booleans(), "hard": st.booleans(), "seed": st.integers(0, 2**31)},
    dtype=st.sampled_from(list(TOLERANCE)),
)
def test_equals_the_reference(
    case, choose, queries, axes, masks, causal, hard, dtype, seed
):
    kind, mode = CASES[case]
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    mixed = dtype.startswith("mixed")
    hard = hard and not mixed  # rounding may find another highest
    if mixed and kind == "local":
        dtype = "float32"  # a centre that is rounded may have another window
    if KINDS[kind][0].source_axes:
        axes = (int(np.prod(axes)),)
    causal = causal and len(axes) == 1
    rng, positions = np.random.default_rng(seed), int(np.prod(axes))
    key_units = 4 if mode in reference.SAME_SIZES or kind in OF_ONE_SIZE else 3
    query = rng.uniform(-1, 1, (2, queries, 4))
    value, key = (rng.uniform(-1, 1, (2, *axes, n)) for n in (2, key_units))
    shapes = {"query_mask": (2, queries), "attention_mask": (2, queries, *axes)}
    shapes |= dict.fromkeys(["value_mask", "key_mask"], (2, *axes))
    masks = {name: rng.random(shapes[name]) < 0.7 for name in sorted(masks)}
    if kind == "local":  # whose sources are padded on the right, if at all
        masks.pop("key_mask", None)
        if "value_mask" in masks:
            lengths = rng.integers(0, positions + 1, (2, 1))
            masks["value_mask"] = np.arange(positions) < lengths
    draw = lambda values: choose.draw(st.sampled_from(values))  # noqa: E731
    layer = made(kind, mode, draw, hard=hard, dtype=dtype)
    layer.build(query.shape, value.shape, key.shape)
    for weight in layer.trainable_weights:
        weight.assign(rng.uniform(-1, 1, weight.shape))
    given = (x.astype(layer.variable_dtype) for x in (query, value, key))
    options = {"use_causal_mask": causal, "return_attention_scores": True}
    context, weights = layer(*given, **masks, **options)

    def flat(name, *shape):
        return np.reshape(masks.get(name, np.ones(shape, bool)), shape)

    words = flat("value_mask", 2, positions) & flat("key_mask", 2, positions)
    pairs = flat("attention_mask", 2, queries, positions)
    if causal:
        pairs = pairs & np.tri(queries, positions, dtype=bool)
    there = flat("query_mask", 2, queries)
    flat_value, flat_key = (x.reshape(2, positions, -1) for x in (value, key))
    arrays = query, flat_value, flat_key, words, pairs, there
    wanted, expected = reference.attend(layer, *arrays)
    expected = expected.mean(1)
    assert tuple(weights.shape) == (2, queries, *axes)
    weights = np.reshape(weights, expected.shape)
    np.testing.assert_allclose(weights, expected, atol=TOLERANCE[dtype])
    np.testing.assert_array_equal(weights[expected == 0], 0)
    context = keras.ops.cast(context, "float64")
    np.testing.assert_allclose(context, wanted, atol=5 * TOLERANCE[dtype])


@pytest.mark.tensorflow
@pytest.mark.parametrize("case", slow_but(CASES, *FAST))
def test_gradients_equal_finite_differences_of_the_reference(case):
    """The slope of the reference, in float64, along random directions."""
    layer = made(*CASES[case], lambda values: values[-1])
    rng = np.random.default_rng(5)
    tensors = [rng.uniform(-1, 1, (2, n, 4)) for n in (3, 8, 8)]
    words = np.arange(8) < np.array([[7], [3]])
    inputs = [tf.Variable(x, dtype="float32") for x in tensors]
    layer(*inputs)
    variables = [w.value for w in randomized(layer).trainable_weights]
    with tf.GradientTape() as tape:
        context = layer(*inputs, value_mask=words)
        upstream = rng.normal(size=context.shape)
        loss = tf.reduce_sum(context * tf.constant(upstream, "float32"))
    zero = tf.UnconnectedGradients.ZERO  # "location" does not know of keys
    gradients = tape.gradient(loss, [*inputs, *variables], unconnected_gradients=zero)
    weights = reference.arrays(layer)
    pairs, there = np.ones((2, 3, 8), bool), np.ones((2, 3), bool)
    for i, gradient in enumerate(gradients):
        direction = rng.normal(size=gradient.shape)
        values = []
        for step in (1e-6, -1e-6):
            moved, changed = list(tensors), dict(weights)
            if i < 3:
                moved[i] = moved[i] + step * direction
            else:
                path = layer.trainable_weights[i - 3].path
                changed[path] = changed[path] + step * direction
            said, _ = reference.attend(layer, *moved, words, pairs, there, changed)
            values.append(np.sum(said * upstream))
        wanted = (values[0] - values[1]) / 2e-6
        along = np.sum(tf.convert_to_tensor(gradient).numpy() * direction)
        assert abs(along - wanted) < 1e-4 * max(1, abs(wanted)), i


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
@pytest.mark.parametrize("score", ["dot", "concat", "heads"])
@settings(max_examples=10)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)),
    **dict.fromkeys(["with_key", "masked", "causal"], st.booleans()),
    seed=st.integers(0, 2**31),
)
def test_equals_keras(score, sizes, with_key, masked, causal, seed):
    """Where both say what comes out: every query may attend to some position."""
    rng, units = np.random.default_rng(seed), 4
    size, queries, positions = sizes
    query, value = (
        rng.normal(size=(size, n, units)).astype("float32")
        for n in (queries, positions)
    )
    inputs = [query, value] + [value[:, ::-1]] * with_key
    there, words = (rng.random(x.shape[:2]) < 0.6 for x in (query, value))
    words[:, 0] = True
    masks = {"query_mask": there, "value_mask": words} if masked else {}
    options = {"return_attention_scores": True, "use_causal_mask": causal}
    if score == "heads":
        ours = layers.MultiHeadLuongAttention(2, 3, 5)
        heads = {"use_bias": False, "output_shape": units}
        theirs = keras.layers.MultiHeadAttention(2, 3, 5, **heads)
        expected, expected_weights = theirs(*inputs, **masks, **options)
        expected_weights = np.mean(expected_weights, axis=1)
    else:
        ours = layers.LuongAttention(score, units=units)
        theirs = keras.layers.Attention()
        if score == "concat":
            theirs = keras.layers.AdditiveAttention(use_scale=True)
        options["mask"] = list(masks.values()) or None
        expected, expected_weights = theirs(inputs, **options)
    ours.build([x.shape for x in inputs])
    kernels, weights = ours.weights, theirs.get_weights()
    if score == "concat":
        weights = [np.eye(units), np.eye(units), *weights]
    if score == "heads":
        kernels = [ours.score.query_kernel, ours.score.key_kernel]
        kernels += [ours.value_kernel, ours.output_kernel]
    for kernel, weight in zip(kernels, weights, strict=True):
        kernel.assign(weight.reshape(kernel.shape))
    context, found = ours(*inputs, **masks, **options)
    if masked:  # Keras gives masked queries weights; and heads a context
        there = there[:, :, None]
        expected, expected_weights = expected * there, expected_weights * there
    np.testing.assert_allclose(context, expected, atol=1e-5)
    np.testing.assert_allclose(found, expected_weights, atol=1e-5)
