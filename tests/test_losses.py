from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.training.losses import SequenceCrossentropy, token_nll

B, T, V = 2, 3, 5
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(B, T, V)).astype("float32") * 3
LABELS = np.array([[1, 4, 2], [3, 0, 0]], "int32")
WEIGHTS = (LABELS != 0).astype("float32") / (LABELS != 0).sum()


def reference_nll(labels, logits, smoothing):
    """Cross-entropy against the dense smoothed distribution, in float64."""
    logits = logits.astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    q = (1 - smoothing) * np.eye(logits.shape[-1])[labels]
    q = q + smoothing / logits.shape[-1]
    return -(q * log_p).sum(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_equals_dense_cross_entropy(smoothing):
    expected = reference_nll(LABELS, LOGITS, smoothing)
    np.testing.assert_allclose(token_nll(LABELS, LOGITS, smoothing), expected, 1e-5)
    loss = SequenceCrossentropy(smoothing)(LABELS, LOGITS, WEIGHTS)
    np.testing.assert_allclose(loss, (expected * WEIGHTS).sum(), 1e-5)
    unweighted = SequenceCrossentropy(smoothing)(LABELS, LOGITS)
    np.testing.assert_allclose(unweighted, expected.sum(), 1e-5)


def test_by_hand():
    # softmax(log 1, log 3) = (1/4, 3/4)
    logits = np.log([[[1.0, 3.0]]])
    np.testing.assert_allclose(token_nll([[0]], logits), [[np.log(4)]], 1e-6)
    expected = 0.8 * np.log(4) + 0.2 * (np.log(4) + np.log(4 / 3)) / 2
    np.testing.assert_allclose(token_nll([[0]], logits, 0.2), [[expected]], 1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_against_finite_differences(smoothing):
    loss = SequenceCrossentropy(smoothing)
    logits = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(LABELS, logits, WEIGHTS)
    gradient = tape.gradient(value, logits).numpy()
    step = 1e-4
    for index in np.ndindex(B, T, V):
        shifted = [LOGITS.astype("float64") for _ in range(2)]
        shifted[0][index] += step
        shifted[1][index] -= step
        up, down = (
            (reference_nll(LABELS, x, smoothing) * WEIGHTS).sum() for x in shifted
        )
        assert gradient[index] == pytest.approx((up - down) / (2 * step), abs=1e-6)


@pytest.mark.tensorflow
def test_padding_has_no_gradient_and_stays_finite():
    logits = tf.constant(np.full((1, 2, V), 1e4, "float32"))
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = SequenceCrossentropy(0.1)([[0, 0]], logits, tf.zeros([1, 2]))
    assert float(value) == 0.0
    assert not np.any(tape.gradient(value, logits))


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


def test_parts_of_a_batch_add_up_to_the_whole():
    loss = SequenceCrossentropy(0.1)
    whole = loss(LABELS, LOGITS, WEIGHTS)
    rows = [slice(0, 1), slice(1, 2)]
    parts = [loss(LABELS[row], LOGITS[row], WEIGHTS[row]) for row in rows]
    np.testing.assert_allclose(sum(map(float, parts)), whole, 1e-6)


def test_serialises():
    loss = SequenceCrossentropy(0.1, name="l")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(again, SequenceCrossentropy)
    assert again.get_config() == loss.get_config()
    assert again.label_smoothing == 0.1 and again.reduction == "sum"


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan"), "a", None, True])
def test_refuses_bad_smoothing(smoothing):
    with pytest.raises((TypeError, ValueError), match=f"label_smoothing.*{smoothing}"):
        SequenceCrossentropy(smoothing)
