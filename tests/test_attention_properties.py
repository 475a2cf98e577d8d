"""Attention of any kind against plain NumPy, and against Keras's own layers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import reference_attention as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.layers import LocalAttention, LuongAttention
from keras_luong.layers.scores import SCORES

#: How far a result may be from float64: half precision has 11 bits or 8.
TOLERANCE = {
    "float32": 2e-5,
    "float64": 1e-12,
    "mixed_float16": 0.02,
    "mixed_bfloat16": 0.15,
}


class Case:
    """Random tensors and masks of one call, and the layer's random weights."""

    def __init__(self, mode, local, axes, masks, dtype, seed):
        rng = np.random.default_rng(seed)
        self.queries, self.axes = int(rng.integers(1, 4)), axes
        self.positions = int(np.prod(axes))
        units = int(rng.integers(1, 4))
        key_units = units if mode in reference.SAME_SIZES else 3
        self.query = rng.uniform(-1, 1, (2, self.queries, units))
        self.value = rng.uniform(-1, 1, (2, *axes, 2))
        self.key = rng.uniform(-1, 1, (2, *axes, key_units))
        shapes = {
            "query_mask": (2, self.queries),
            "value_mask": (2, *axes),
            "key_mask": (2, *axes),
            "attention_mask": (2, self.queries, *axes),
        }
        self.masks = {name: rng.random(shapes[name]) < 0.7 for name in masks}
        if local:  # whose sources are padded on the right, if at all
            self.masks.pop("key_mask", None)
            if "value_mask" in masks:
                lengths = rng.integers(0, axes[0] + 1, (2, 1))
                self.masks["value_mask"] = np.arange(axes[0]) < lengths
        self.mode, self.rng = mode, rng
        if local:
            kind = rng.choice(["monotonic", "predictive"])
            self.layer = LocalAttention(2, kind, mode, units=3, dtype=dtype)
        else:
            self.layer = LuongAttention(mode, 3, max_source_length=5, dtype=dtype)
        self.layer.build(self.query.shape, self.value.shape, self.key.shape)
        for weight in self.layer.trainable_weights:
            weight.assign(rng.uniform(-1, 1, weight.shape))

    def call(self, causal):
        return self.layer(
            *(x.astype(self.layer.variable_dtype) for x in (self.query, self.value)),
            self.key.astype(self.layer.variable_dtype),
            **self.masks,
            use_causal_mask=causal,
            return_attention_scores=True,
        )

    def flat(self, name, shape):
        """A mask with one axis for the source; True where there is none."""
        return np.reshape(self.masks.get(name, np.ones(shape, bool)), shape)

    def expected(self, causal):
        """The weights by the reference, one query at a time."""
        shape = (2, self.positions)
        words = self.flat("value_mask", shape) & self.flat("key_mask", shape)
        pairs = self.flat("attention_mask", (2, self.queries, self.positions))
        there = self.flat("query_mask", (2, self.queries))
        keys = self.key.reshape(2, self.positions, -1)
        result = np.zeros((2, self.queries, self.positions))
        for b, t in np.ndindex(2, self.queries):
            allowed = pairs[b, t] & ((np.arange(self.positions) <= t) | (not causal))
            if there[b, t]:
                result[b, t] = self.weigh(b, t, keys[b], words[b], allowed)
        return result

    def weigh(self, b, t, keys, words, allowed):
        weights = {
            w.name: np.asarray(w).astype("float64")
            for w in self.layer.trainable_weights
        }
        h, layer = self.query[b, t], self.layer
        if not isinstance(layer, LocalAttention):
            return reference.global_weights(
                self.mode, weights, h, keys, words & allowed
            )
        length, kind = words.sum(), layer.alignment
        p = reference.centre(kind, weights, h, t, length)
        gaussian = kind == "predictive"
        return reference.local_weights(
            self.mode, weights, h, keys, length, p, 2, gaussian, False, allowed
        )


@pytest.mark.parametrize(
    "mode", slow_but(SCORES, "general", "normed_concat", "location")
)
@settings(max_examples=20)
@given(
    local=st.booleans(),
    axes=st.sampled_from([(1,), (4,), (7,), (2, 3), (2, 1, 3)]),
    masks=st.sets(
        st.sampled_from(["query_mask", "value_mask", "key_mask", "attention_mask"])
    ),
    causal=st.booleans(),
    dtype=st.sampled_from(list(TOLERANCE)),
    seed=st.integers(0, 2**31),
)
def test_equals_the_reference(mode, local, axes, masks, causal, dtype, seed):
    local = local and len(axes) == 1 and mode != "location"
    causal = causal and len(axes) == 1
    if local and dtype.startswith("mixed"):
        dtype = "float32"  # a centre that is rounded may have another window
    if dtype == "float64" and keras.backend.backend() == "jax":
        dtype = "float32"  # which it is there
    case = Case(mode, local, axes, masks, dtype, seed)
    context, weights = case.call(causal)
    expected = case.expected(causal)
    tolerance = TOLERANCE[dtype]
    assert tuple(weights.shape) == (2, case.queries, *axes)
    flat = np.reshape(weights, expected.shape)
    np.testing.assert_allclose(flat, expected, atol=tolerance)
    np.testing.assert_array_equal(flat[expected == 0], 0)
    wanted = expected @ case.value.reshape(2, case.positions, -1)
    context = keras.ops.cast(context, "float64")
    np.testing.assert_allclose(context, wanted, atol=2 * tolerance)


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
@pytest.mark.parametrize("score", ["dot", "concat"])
@settings(max_examples=20)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6)),
    batch=st.sampled_from(["same", "query", "value"]),
    with_key=st.booleans(),
    masked=st.booleans(),
    causal=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_equals_keras(score, sizes, batch, with_key, masked, causal, seed):
    """Where both say what comes out: every query may attend to some position."""
    rng = np.random.default_rng(seed)
    (size, queries, positions), units = sizes, 4
    ours = LuongAttention(score, units=units)
    if score == "dot":
        keras_own = keras.layers.Attention()
    else:
        keras_own = keras.layers.AdditiveAttention(use_scale=True)
    batches = [1 if batch == name else size for name in ("query", "value")]
    query = rng.normal(size=(batches[0], queries, units)).astype("float32")
    value = rng.normal(size=(batches[1], positions, units)).astype("float32")
    inputs = [query, value] + [value[:, ::-1]] * with_key
    masks = None
    if masked:
        masks = [rng.random(x.shape[:2]) < 0.6 for x in inputs[:2]]
        masks[1][:, 0] = True
    options = {"return_attention_scores": True, "use_causal_mask": causal}
    expected, expected_weights = keras_own(inputs, mask=masks, **options)
    ours.build([x.shape for x in inputs])
    if score == "concat":
        ours.set_weights([np.eye(units), np.eye(units), keras_own.get_weights()[0]])
    context, weights = ours(inputs, mask=masks, **options)
    np.testing.assert_allclose(context, expected, atol=1e-5)
    expected_weights = np.broadcast_to(expected_weights, weights.shape)
    if masked:  # Keras gives masked queries weights, and zeros as their context
        expected_weights = expected_weights * masks[0][:, :, None]
    np.testing.assert_allclose(weights, expected_weights, atol=1e-5)
