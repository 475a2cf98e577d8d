import keras
import numpy as np
import pytest
from finite_differences import check_gradients
from keras import ops

import keras_luong as kl
from keras_luong.layers.pointer_generator import NOTHING, copied_weights

B, Q, S, V, H = 2, 3, 4, 5, 6
IDS = np.array([[1, 3, 1, 6], [4, 5, 0, 9]])  # 9 is no id at all


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def given(seed=0, ids=IDS):
    """Features, logits, weights with a zero, source ids."""
    rng = np.random.default_rng(seed)
    features, logits = rng.normal(size=(B, Q, H)), rng.normal(size=(B, Q, V))
    weights = softmax(rng.normal(size=(B, Q, S)))
    weights[1, :, 2] = 0.0
    weights /= weights.sum(-1, keepdims=True)
    return *(x.astype("float32") for x in (features, logits, weights)), ids


def reference(layer, features, logits, weights, ids, extra):
    """Eq. 8 and 9, word by word."""
    kernel, bias = (ops.convert_to_numpy(w) for w in layer.weights)
    p_gen = 1 / (1 + np.exp(-(features @ kernel + bias)))[..., 0]
    p = np.zeros((B, Q, V + extra))
    for b in range(B):
        for q in range(Q):
            p[b, q, :V] = p_gen[b, q] * softmax(logits[b, q])
            for i, w in enumerate(ids[b]):
                if 0 <= w < V + extra:
                    p[b, q, w] += (1 - p_gen[b, q]) * weights[b, q, i]
    return p / p.sum(-1, keepdims=True)


def test_attention_of_each_id_by_hand():
    found = copied_weights(np.array([[[0.5, 0.2, 0.3]]], "float32"), [[2, 0, 2]], 4)
    np.testing.assert_allclose(found, [[[0.2, 0.0, 0.8, 0.0]]], rtol=1e-6)


@pytest.mark.parametrize("extra", [0, 2])
def test_equations_8_and_9(extra):
    layer = kl.PointerGenerator(extra, bias_initializer="ones")
    inputs = given()
    log_probs = ops.convert_to_numpy(layer(*inputs))
    expected = reference(layer, *inputs, extra)
    np.testing.assert_allclose(np.exp(log_probs), expected, atol=1e-6)
    np.testing.assert_allclose(ops.softmax(log_probs), expected, atol=1e-6)
    assert log_probs.dtype == "float32"
    p_gen = 1 / (1 + np.exp(-(inputs[0] @ np.asarray(layer.weights[0]) + 1)))[..., 0]
    np.testing.assert_allclose(layer.p_gen(inputs[0]), p_gen, atol=1e-6)


def test_an_extra_id_that_is_not_there_is_impossible_and_finite():
    log_probs = ops.convert_to_numpy(kl.PointerGenerator(2)(*given()))
    absent = log_probs[[0, 1], :, [5, 6]]
    np.testing.assert_allclose(absent, np.log(NOTHING), atol=1.0)
    smoothed = kl.SequenceCrossentropy(0.1)(np.full((B, Q), 1), log_probs)
    assert np.isfinite(ops.convert_to_numpy(smoothed))


def test_a_list_of_features_is_what_they_are_together():
    features, *rest = given()
    one = kl.PointerGenerator()
    together = one(features, *rest)
    several = kl.PointerGenerator()
    parts = [features[..., :2], features[..., 2:3], features[..., 3:]]
    several(parts, *rest)
    several.set_weights(one.get_weights())
    np.testing.assert_allclose(several(parts, *rest), together, atol=1e-6)
    assert several.count_params() == H + 1


def test_one_step():
    layer, (features, logits, weights, ids) = kl.PointerGenerator(2), given()
    whole = layer(features, logits, weights, ids)
    for q in range(Q):
        step = layer(features[:, q], logits[:, q], weights[:, q], ids)
        np.testing.assert_allclose(step, whole[:, q], atol=1e-6)


def test_a_source_without_words_leaves_the_vocabulary():
    features, logits, weights, ids = given()
    log_probs = kl.PointerGenerator()(features, logits, 0 * weights, 0 * ids)
    np.testing.assert_allclose(np.exp(log_probs), softmax(logits), atol=1e-6)


def test_words_far_too_improbable_for_probabilities():
    features, logits, weights, ids = given()
    logits[..., 2] = -300.0  # in no source
    log_probs = ops.convert_to_numpy(
        kl.PointerGenerator()(*given()[:1], logits, weights, ids)
    )
    assert (log_probs[..., 2] < -290).all() and np.isfinite(log_probs).all()


@pytest.mark.parametrize("extra", [0, 2])
def test_gradients_are_slopes_also_where_a_weight_is_zero(extra):
    layer, inputs = kl.PointerGenerator(extra), given()
    layer(*inputs)
    features, logits, scores = (
        keras.Variable(x) for x in (*inputs[:2], np.log(inputs[2] + 1e-3))
    )
    labels = np.array([[1, 3, 2], [4, 0, 4]])

    def loss():
        weights = ops.softmax(scores, axis=-1)
        weights = weights * (inputs[2] > 0)
        log_probs = layer(features, logits, weights, inputs[3])
        return kl.SequenceCrossentropy(0.1)(labels, log_probs)

    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's gradients")
    variables = [features, logits, scores, *layer.trainable_weights]
    check_gradients(loss, variables, 2e-3, 1e-2)


def test_gradients_where_both_ways_are_as_probable():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's gradients")
    layer = kl.PointerGenerator(kernel_initializer="zeros")
    inputs = np.ones((1, 1, 2), "float32"), np.zeros((1, 1, 2), "float32")
    weights, ids = keras.Variable([[[0.5, 0.5]]]), np.array([[0, 1]])
    layer(*inputs, weights, ids)
    logits = keras.Variable(inputs[1])

    def loss():
        return layer(inputs[0], logits, weights, ids)[0, 0, 0]

    check_gradients(loss, [logits, weights, *layer.trainable_weights], 1e-3, 1e-2)


def symbolic(dtype=None, extra=2):
    inputs = [
        keras.Input((None, H)),
        keras.Input((None, V)),
        keras.Input((None, None)),
        keras.Input((None,), dtype="int32"),
    ]
    return keras.Model(inputs, kl.PointerGenerator(extra, dtype=dtype)(*inputs))


def test_in_a_functional_model_that_is_saved(tmp_path):
    model, inputs = symbolic(), given()
    assert model.output_shape == (None, None, V + 2)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(again(list(inputs)), model(list(inputs)), atol=1e-6)


def test_config():
    options = {
        "num_extra_ids": 7,
        "kernel_initializer": "he_normal",
        "bias_initializer": "ones",
        "kernel_regularizer": "l2",
        "bias_constraint": "non_neg",
    }
    config = kl.PointerGenerator(**options).get_config()
    assert kl.PointerGenerator.from_config(config).get_config() == config
    assert config["num_extra_ids"] == 7


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16", "float64"])
def test_precisions(dtype):
    inputs = given()
    exact, other = kl.PointerGenerator(2), kl.PointerGenerator(2, dtype=dtype)
    expected = exact(*inputs)
    other(*inputs)
    other.set_weights(exact.get_weights())
    found = other(*inputs)
    wanted = "float64" if dtype == "float64" else "float32"
    assert keras.backend.standardize_dtype(found.dtype) == wanted
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_xla():
    import tensorflow as tf

    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's XLA")
    layer, inputs = kl.PointerGenerator(2), given()
    expected = layer(*inputs)
    compiled = tf.function(lambda *x: layer(*x), jit_compile=True, autograph=False)
    found = compiled(*map(tf.convert_to_tensor, inputs))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_features_mask_goes_on():
    from keras_luong.compat import get_keras_mask

    ids = keras.Input((None,), dtype="int32")
    features = keras.layers.Embedding(V, H, mask_zero=True)(ids)
    logits = keras.layers.Dense(V)(features)
    weights = kl.LuongAttention("dot")(features, features, return_attention_scores=True)
    log_probs = kl.PointerGenerator()(features, logits, weights[1], ids)
    assert get_keras_mask(log_probs) is not None


@pytest.mark.parametrize(
    "change, message",
    [
        ({"features": np.zeros((B, Q + 1, H))}, "Number of queries"),
        ({"attention_weights": np.zeros((B, Q, S + 1))}, "Source length"),
        ({"source_ids": IDS[:1]}, "Batch size"),
        ({"source_ids": IDS[0]}, "source_ids must have 2 axes"),
    ],
)
def test_errors_of_shapes(change, message):
    names = "features", "logits", "attention_weights", "source_ids"
    with pytest.raises(ValueError, match=message):
        kl.PointerGenerator()(**{**dict(zip(names, given(), strict=True)), **change})


def test_errors():
    with pytest.raises(TypeError, match="source_ids must be ids.*float32"):
        kl.PointerGenerator()(*given()[:3], IDS.astype("float32"))
    with pytest.raises(ValueError, match="num_extra_ids.*-1"):
        kl.PointerGenerator(-1)


class Copier(keras.Model):
    """A user's own model: four words, and two ids more for words that it never saw."""

    words, unknown = 4, 3

    def __init__(self, bias):
        super().__init__()
        normal = keras.initializers.RandomNormal(stddev=1.5, seed=1)
        self.embed = keras.layers.Embedding(self.words, 5)
        self.read = keras.layers.GRU(5, return_sequences=True, return_state=True)
        self.cell = keras.layers.GRUCell(5)
        self.attention = kl.LuongAttention(kernel_initializer=normal)
        self.score = keras.layers.Dense(self.words, kernel_initializer=normal)
        bias = keras.initializers.Constant(bias)
        self.copying = kl.PointerGenerator(2, bias_initializer=bias)

    def known(self, ids):
        return self.embed(ops.where(ids < self.words, ids, self.unknown))

    def encode(self, source):
        memory, last = self.read(self.known(source))
        return (memory, source), last[:, None]

    def step(self, tokens, state, memory):
        memory, source = memory
        shape = ops.shape(state)
        rows = [ops.reshape(x, (-1, 5)) for x in (self.known(tokens), state)]
        h, _ = self.cell(*rows)
        h = ops.reshape(h, shape)
        context, weights = self.attention(h, memory, return_attention_scores=True)
        features = context + h
        log_probs = self.copying(features, self.score(features), weights, source)
        return log_probs, h, weights


@pytest.mark.parametrize("bias", [0.0, pytest.param(-9.0, marks=pytest.mark.slow)])
def test_a_search_over_an_extended_vocabulary(bias):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("searches are TensorFlow's")
    from own_models import IDS, VOCABULARY, exhaustive

    assert VOCABULARY == Copier.words + 2
    model, source = Copier(bias), np.array([[4, 3, 5, 4]])
    best = exhaustive(model, source, 3, **IDS)[:3]
    found = kl.generate(model, source, beam_width=80, n_best=3, max_length=3, **IDS)
    for n, (ids, log_prob) in enumerate(best):
        length = int(found.lengths[0, n])
        assert found.ids[0, n, :length].numpy().tolist() == ids
        np.testing.assert_allclose(found.log_probs[0, n], log_prob, atol=1e-4)
    if bias < 0:  # then it copies, words that it does not know too
        greedy = kl.generate(model, source, kl.GreedySearch(3, **IDS)).ids.numpy()
        assert set(greedy.ravel()) & {4, 5}
