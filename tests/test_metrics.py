from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy

RNG = np.random.default_rng(1)


def batch(lengths, width, vocabulary=6):
    labels = np.zeros((len(lengths), width), "int32")
    for row, length in zip(labels, lengths, strict=True):
        row[:length] = RNG.integers(1, vocabulary, length)
    logits = RNG.normal(size=(*labels.shape, vocabulary)).astype("float32") * 2
    return labels, logits


BATCHES = [batch([3, 1], 4), batch([2], 2), batch([0, 0], 1)]


def over_tokens(value):
    """Mean of `value(label, logits)` over every token that is not padding."""
    return np.mean(
        [
            value(label, logits)
            for labels, rows in BATCHES
            for label, logits in zip(labels.ravel(), rows.reshape(-1, 6), strict=True)
            if label != 0
        ]
    )


@pytest.mark.parametrize(
    "metric, expected",
    [
        (
            Perplexity(),
            np.exp(over_tokens(lambda y, z: np.log(np.exp(z).sum()) - z[y])),
        ),
        (TokenAccuracy(), over_tokens(lambda y, z: np.argmax(z) == y)),
    ],
)
def test_weighs_by_tokens_over_uneven_batches(metric, expected):
    metric.reset_state()
    for labels, logits in BATCHES:
        metric.update_state(labels, logits)
    np.testing.assert_allclose(metric.result(), expected, 1e-5)
    assert float(metric.count) == 6


def test_by_hand():
    metric = Perplexity()
    metric.update_state([[1, 2]], np.log([[[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]]]))
    assert float(metric.result()) == pytest.approx(4.0)


def test_padding_never_counts():
    labels = [[1, 0]]
    logits = np.array([[[0, 5, 0], [0, 0, 0]]], "float32")
    for metric in Perplexity(), TokenAccuracy():
        results = []
        for noise in (0.0, 50.0, np.inf):
            logits[0, 1] = [-noise, noise, 0]
            metric.reset_state()
            metric.update_state(labels, logits)
            results.append(float(metric.result()))
        assert results[0] == results[1] == results[2] and np.isfinite(results[0])


def test_ignore_id():
    metric = TokenAccuracy(ignore_id=2)
    metric.update_state([[0, 2]], [[[1.0, 0, 0], [1.0, 0, 0]]])
    assert float(metric.result()) == 1.0 and float(metric.count) == 1


@pytest.mark.parametrize("weights", [[[2.0, 0.0]], [2.0]])
def test_sample_weight(weights):
    metric = TokenAccuracy()
    metric.update_state([[1, 2]], [[[0, 1.0, 0], [0, 1.0, 0]]], weights)
    assert float(metric.result()) == (1.0 if np.ndim(weights) == 2 else 0.5)


def test_before_any_token():
    assert float(Perplexity().result()) == 1.0
    assert float(TokenAccuracy().result()) == 0.0


def test_in_compile():
    labels = np.array([[1, 2, 3], [2, 0, 0], [3, 1, 0]], "int32")
    inputs = RNG.normal(size=(3, 3, 4)).astype("float32")
    weights = (labels != 0) / np.array([[4.0], [4.0], [2.0]])  # of batches of two
    model = keras.Sequential([keras.layers.Dense(6)])
    model.compile(loss=SequenceCrossentropy(), metrics=[Perplexity(), TokenAccuracy()])
    data = tf.data.Dataset.from_tensor_slices((inputs, labels, weights)).batch(2)
    logs = model.evaluate(data, verbose=0, return_dict=True)
    logits = np.asarray(model(inputs))
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
    mask = labels != 0
    assert logs["perplexity"] == pytest.approx(np.exp(nll[mask].mean()), rel=1e-5)
    right = (logits.argmax(-1) == labels)[mask]
    assert logs["token_accuracy"] == pytest.approx(right.mean(), rel=1e-5)


@pytest.mark.parametrize("cls", [Perplexity, TokenAccuracy])
def test_serialises(cls):
    metric = cls(ignore_id=7, name="m")
    again = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(again) is cls
    assert (again.ignore_id, again.name) == (7, "m")


def test_refuses_an_ignore_id_that_is_no_integer():
    with pytest.raises(TypeError, match="ignore_id.*'a'"):
        Perplexity(ignore_id="a")
