"""The Transformer against its equations; what it has in common is in test_models.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_models import batch, stepped

from keras_luong.models.transformer import (
    CachedMultiHeadAttention,
    SinusoidalPositions,
    Transformer,
    TransformerConfig,
)


def make(**fields):
    """A model none of whose weights is 0 or 1, so that every one of them counts."""
    sizes = {"units": 6, "num_layers": 1, "num_heads": 2, "cache_length": 9}
    model = Transformer(TransformerConfig(11, 11, **{**sizes, **fields}))
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if len(weight.shape) == 1:
            weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


# The paper's equations for one sentence without padding, in float64.


def positions(length, size):
    table = np.zeros((length, size))
    for p in range(length):
        for i in range(0, size, 2):
            table[p, i] = np.sin(p / 10000 ** (i / size))
            table[p, i + 1 : i + 2] = np.cos(p / 10000 ** (i / size))
    return table


def norm(x, layer):
    deviation = x - x.mean(-1, keepdims=True)
    scaled = deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-6)
    return scaled * layer.gamma.numpy() + layer.beta.numpy()


def heads(layer, query, value, mask):
    """MultiHead(Q, K, V) of section 3.2.2: the output, and each head's weights."""
    names = ("query_dense", "key_dense", "value_dense", "output_dense")
    W_q, W_k, W_v, W_o = (getattr(layer, name).kernel.numpy() for name in names)
    contexts, weights = [], []
    for h in range(W_q.shape[1]):
        Q, K, V = query @ W_q[:, h], value @ W_k[:, h], value @ W_v[:, h]
        scores = np.exp(Q @ K.T / np.sqrt(Q.shape[-1])) * mask
        weights.append(scores / scores.sum(-1, keepdims=True))
        contexts.append(weights[-1] @ V)
    return np.concatenate(contexts, -1) @ W_o.reshape(-1, W_o.shape[-1]), weights


def feed_forward(block, x):
    layers = block.expand, block.contract
    W_1, b_1, W_2, b_2 = (w.numpy() for layer in layers for w in layer.weights)
    return np.maximum(0, norm(x, block.feedforward_norm) @ W_1 + b_1) @ W_2 + b_2


def embed(layer, ids):
    vectors = layer.embeddings.numpy().astype("float64")[ids]
    return np.sqrt(vectors.shape[1]) * vectors + positions(*vectors.shape)


def reference(model, source, target, window):
    """Source ids [S], target ids [T] -> logits [T, V], alignments [T, S]."""
    x = embed(model.source_embedding, source)
    for block in model.encoder:
        h = norm(x, block.self_norm)
        x = x + heads(block.self_attention, h, h, 1)[0]
        x = x + feed_forward(block, x)
    memory = norm(x, model.encoder_norm)
    y = embed(model.target_embedding, target)
    back = np.subtract.outer(np.arange(len(target)), np.arange(len(target)))
    for block in model.decoder:
        h = norm(y, block.self_norm)
        y = y + heads(block.self_attention, h, h, (back >= 0) & (back < window))[0]
        h = norm(y, block.cross_norm)
        context, weights = heads(block.cross_attention, h, memory, 1)
        y = y + context
        y = y + feed_forward(block, y)
    W = model.output_layer.kernel.numpy()
    return norm(y, model.decoder_norm) @ W, np.mean(weights, axis=0)


EQUATIONS = [
    pytest.param({}, 99, marks=pytest.mark.slow),
    ({"units": 5, "num_heads": 1, "num_layers": 2, "feedforward_units": 7}, 99),
    ({"num_layers": 2, "cache_length": 3}, 3),
    pytest.param({"num_layers": 2, "cache_length": 1}, 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("fields, window", EQUATIONS)
def test_the_model_is_the_papers_equations(fields, window):
    """Of which a step sees the last `cache_length` words, in each layer."""
    model, inputs = make(**fields), batch(target_length=5)
    logits, weights = stepped(model, inputs)
    called = np.asarray(model(inputs))
    for i, length in enumerate([6, 4, 1]):
        ids = inputs["source"][i, :length], inputs["target"][i]
        expected, alignment = reference(model, *ids, window)
        np.testing.assert_allclose(logits[i], expected, atol=1e-5)
        np.testing.assert_allclose(weights[i, :, :length], alignment, atol=1e-5)
        expected, _ = reference(model, *ids, 99)
        np.testing.assert_allclose(called[i], expected, atol=1e-5)


def test_a_step_transposes_no_words_before():
    """Only what is new: nothing that has an axis of all that it remembers."""
    model = make(cache_length=7)  # no other size here
    ids = tf.constant(batch()["source"])
    memory, state = model.encode(ids)
    assert {x.shape for x in memory.keys} == {(4, 2, 3, 6)}
    assert {x.shape for x in memory.values} == {(4, 2, 6, 3)}
    step = tf.function(model.step, autograph=False)
    step = step.get_concrete_function(ids[:, :1], state, memory)
    turned = [x for x in step.graph.get_operations() if x.type == "Transpose"]
    assert turned and not any(7 in x.outputs[0].shape for x in turned)


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_l8_positions_are_as_exact_as_the_policy(dtype, tolerance):
    embedded = np.random.default_rng(0).normal(size=(1, 7, 6)).astype(dtype)
    layer, table = SinusoidalPositions(dtype=dtype), positions(7, 6)
    expected = embedded[0] * 6**0.5 + table
    np.testing.assert_allclose(layer(embedded)[0], expected, atol=tolerance)
    # In whatever order they are asked for.
    turned = layer(embedded[:, :2], tf.constant([[5, 0]]))[0]
    expected = embedded[0, :2] * 6**0.5 + table[[5, 0]]
    np.testing.assert_allclose(turned, expected, atol=tolerance)


def test_an_empty_batch_has_no_logits():
    model = make()
    memory, state = model.encode(tf.zeros((0, 3), tf.int32))
    logits, _, weights = model.step(tf.zeros((0, 1), tf.int32), state, memory)
    assert logits.shape == (0, 1, 11) and weights.shape == (0, 1, 3)


def test_attention_survives_scores_that_half_precision_cannot_hold():
    attention = CachedMultiHeadAttention(1, 2, dtype="mixed_float16", use_bias=False)
    x = tf.constant([[[300.0, 300.0], [250.0, 300.0], [-300.0, -300.0]]])
    attention.build(x.shape, x.shape)
    for layer in (attention.query_dense, attention.key_dense, attention.value_dense):
        layer.kernel.assign(tf.eye(2)[:, None])
    attention.output_dense.kernel.assign(tf.eye(2)[None])
    mask = tf.constant([[[True, False, True]]])
    output, weights = attention.attend(x, *attention.keys_and_values(x), mask)
    expected = [[1, 0, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(weights[0, 0], expected)
    np.testing.assert_array_equal(output[0], expected @ x[0].numpy())


@pytest.mark.parametrize("mask", [None, [[[True, True, False, False]]]])
def test_attending_in_two_parts_is_calling_and_is_kerass(mask):
    attention = CachedMultiHeadAttention(2, 3)
    rng = np.random.default_rng(0)
    query, value = (rng.normal(size=(2, n, 6)).astype("float32") for n in (3, 4))
    called = attention(query, value, attention_mask=mask, return_attention_scores=True)
    mask = None if mask is None else tf.constant(mask)
    parts = attention.attend(query, *attention.keys_and_values(value), mask)
    plain = keras.layers.MultiHeadAttention(2, 3)
    plain.build(query.shape, value.shape)
    plain.set_weights(attention.get_weights())
    expected = plain(query, value, attention_mask=mask, return_attention_scores=True)
    for x, y, z in zip(called, parts, expected, strict=True):
        np.testing.assert_allclose(x, z, atol=1e-6)
        np.testing.assert_allclose(y, z, atol=1e-6)
