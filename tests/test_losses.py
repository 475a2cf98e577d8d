"""The training loss and the metrics; see test_fused_model.py."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from reference_models import crossentropy

from keras_luong.training.losses import SequenceCrossentropy, token_nll
from keras_luong.training.metrics import Perplexity, TokenAccuracy

B, T, V = 2, 3, 5
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(B, T, V)).astype("float32") * 3
LABELS = np.array([[1, 4, 2], [3, 0, 0]], "int32")
WEIGHTS = (LABELS != 0).astype("float32") / (LABELS != 0).sum()


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_the_loss_is_the_weighted_sum_of_dense_cross_entropies(smoothing):
    expected, slope = crossentropy(LABELS, LOGITS, smoothing)
    np.testing.assert_allclose(token_nll(LABELS, LOGITS, smoothing), expected, 1e-5)
    loss = SequenceCrossentropy(smoothing)
    value = loss(LABELS, LOGITS, WEIGHTS)
    np.testing.assert_allclose(value, (expected * WEIGHTS).sum(), 1e-5)
    np.testing.assert_allclose(loss(LABELS, LOGITS), expected.sum(), 1e-5)
    if keras.backend.backend() == "tensorflow":
        logits = tf.constant(LOGITS)
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(LABELS, logits, WEIGHTS)
        gradient = tape.gradient(value, logits)
        np.testing.assert_allclose(gradient, slope * WEIGHTS[..., None], atol=1e-6)


def test_by_hand():
    # softmax(log 1, log 3) = (1/4, 3/4)
    logits = np.log([[[1.0, 3.0]]])
    np.testing.assert_allclose(token_nll([[0]], logits), [[np.log(4)]], 1e-6)
    expected = 0.8 * np.log(4) + 0.2 * (np.log(4) + np.log(4 / 3)) / 2
    np.testing.assert_allclose(token_nll([[0]], logits, 0.2), [[expected]], 1e-6)
    metric = Perplexity()
    metric.update_state([[1, 2]], np.log([[[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]]))
    assert float(metric.result()) == pytest.approx(4.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_float32_from_low_precision_logits(dtype):
    # 20,000 equal logits: in float16 the sum of exponentials is off, ids are too.
    logits = tf.zeros([1, 1, 20_001], dtype)
    nll = token_nll([[20_000]], logits, 0.1)
    assert nll.dtype == tf.float32
    np.testing.assert_allclose(nll, [[np.log(20_001)]], 1e-6)
    keras.config.set_floatx("float16")
    try:
        loss = SequenceCrossentropy()([[20_000]], logits)
    finally:
        keras.config.set_floatx("float32")
    assert loss.dtype == tf.float32
    np.testing.assert_allclose(loss, np.log(20_001), 1e-6)


def test_losses_and_metrics_serialise():
    loss = SequenceCrossentropy(0.1, chunk=7, name="l")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is SequenceCrossentropy
    assert again.get_config() == loss.get_config()
    values = again.label_smoothing, again.chunk, again.reduction
    assert values == (0.1, 7, "sum")
    for cls in Perplexity, TokenAccuracy:
        metric = cls(ignore_id=7, name="m")
        again = keras.metrics.deserialize(keras.metrics.serialize(metric))
        assert type(again) is cls
        assert (again.ignore_id, again.name) == (7, "m")


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan"), "a", True])
def test_what_cannot_be_is_named(smoothing):
    with pytest.raises((TypeError, ValueError), match=f"label_smoothing.*{smoothing}"):
        SequenceCrossentropy(smoothing)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        SequenceCrossentropy(chunk=0)
    with pytest.raises(TypeError, match="ignore_id.*'a'"):
        Perplexity(ignore_id="a")


# Metrics.


def test_metrics_weigh_by_tokens_over_uneven_batches():
    """Whatever there is at padding, even infinities."""
    metrics, nll, right = (Perplexity(), TokenAccuracy()), [], []
    assert [float(metric.result()) for metric in metrics] == [1.0, 0.0]
    for lengths in ([3, 1], [2], [0, 0]):
        shape = len(lengths), max(*lengths, 1)
        inside = np.arange(shape[1]) < np.array(lengths)[:, None]
        labels = np.where(inside, RNG.integers(1, V, shape), 0)
        logits = 2 * RNG.normal(size=(*shape, V)).astype("float32")
        nll += [*crossentropy(labels, logits)[0][inside]]
        right += [*(logits.argmax(-1) == labels)[inside]]
        logits[~inside] = [-np.inf, np.inf, 0, 0, 0]
        for metric in metrics:
            metric.update_state(labels, logits)
    perplexity, accuracy = (float(metric.result()) for metric in metrics)
    assert perplexity == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)
    assert accuracy == pytest.approx(np.mean(right))
    assert float(metrics[0].count) == 6 == len(nll)


IGNORED = [
    (2, [[0, 2]], None, 1.0, 1),
    (0, [[1, 2]], [[2.0, 0.0]], 1.0, 2),  # of tokens
    (0, [[1, 2]], [2.0], 0.5, 4),  # of a sentence
    (-1, [[1, 0]], None, 0.5, 2),
]


@pytest.mark.parametrize("ignored, labels, weights, result, count", IGNORED)
def test_what_is_ignored_and_sample_weights(ignored, labels, weights, result, count):
    metric = TokenAccuracy(ignore_id=ignored)
    best = labels[0][0]  # at both places
    metric.update_state(labels, [[np.eye(3)[best], np.eye(3)[best]]], weights)
    assert (float(metric.result()), float(metric.count)) == (result, count)
