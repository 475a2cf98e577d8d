import warnings

import keras
import numpy as np
import pytest

from keras_luong import (
    CoverageLoss,
    LuongAttention,
    Perplexity,
    Seq2Seq,
    SequenceCrossentropy,
)
from keras_luong.compat import get_keras_mask
from keras_luong.layers.pointer_generator import coverage_loss
from keras_luong.models import build

WEIGHTS = np.array([[[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.25, 0.75, 0.0]]], "float32")
SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = np.array([[2, 4, 5], [2, 6, 0]])
LABELS = np.array([[4, 5, 3], [6, 3, 0]])
COUNTED = (LABELS != 0) / 5


def test_by_hand():
    np.testing.assert_allclose(coverage_loss(WEIGHTS), [[0.0, 0.5, 0.75]])


@pytest.mark.parametrize(
    "mask, mean", [(None, 1.25 / 3), (np.array([[1, 1, 0]]), 0.25)]
)
def test_the_layer_adds_the_mean_over_words(mask, mean):
    layer = CoverageLoss(2.0)
    np.testing.assert_array_equal(layer(WEIGHTS, WEIGHTS, mask), WEIGHTS)
    np.testing.assert_allclose(layer.losses, [2.0 * mean], rtol=1e-6)
    assert CoverageLoss.from_config(layer.get_config()).factor == 2.0


@pytest.mark.parametrize("kind", ["subclassed", "functional"])
def test_l4_an_implicit_mask_counts(kind):
    """And goes on: the model's loss is that of words alone, without a warning."""
    ids = np.array([[3, 4, 5, 6], [7, 8, 0, 0]])
    embed = keras.layers.Embedding(9, 3, mask_zero=True)
    attention, coverage = LuongAttention("dot"), CoverageLoss(2.0)

    def call(ids):
        query = embed(ids)
        return coverage(*attention(query, query, return_attention_scores=True))

    class Subclassed(keras.Model):
        def __init__(self):
            super().__init__()
            self.parts = [embed, attention, coverage]

        def call(self, ids):
            return call(ids)

    inputs = keras.Input((None,), dtype="int32")
    made = Subclassed() if kind == "subclassed" else keras.Model(inputs, call(inputs))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context = made(ids)
    losses = list(made.losses)
    _, weights = attention(embed(ids), embed(ids), return_attention_scores=True)
    words = np.asarray(coverage_loss(weights))[ids != 0]
    assert not np.isclose(words.mean(), np.mean(coverage_loss(weights)))
    np.testing.assert_allclose(losses, [2.0 * words.mean()], rtol=1e-6)
    np.testing.assert_array_equal(get_keras_mask(context), ids != 0)


def test_l4_whose_mask_counts_and_whose_goes_on():
    layer, words = CoverageLoss(), [[True, True, False]]
    masked = keras.layers.Lambda(lambda x: x + 0, mask=keras.ops.array(words))
    outputs, weights = keras.ops.ones((1, 3, 2)), keras.ops.array(WEIGHTS)
    for given, mean, goes_on in (
        ((outputs, masked(weights)), 0.25, None),  # as the outputs have none
        ((outputs, weights, np.array(words)), 0.25, None),
        ((masked(outputs), weights), 0.25, words),
        ((masked(outputs), weights, np.ones((1, 3), bool)), 1.25 / 3, words),
    ):
        mask = get_keras_mask(layer(*given))
        assert goes_on == (None if mask is None else np.asarray(mask).tolist())
        np.testing.assert_allclose(layer.losses[-1], mean, rtol=1e-6)


def test_weights_keep_their_precision_in_half():
    layer = CoverageLoss(dtype="mixed_bfloat16")
    weights = np.full((1, 300, 3), 1 / 3, "float32")
    layer(keras.ops.ones((1, 300, 2), "bfloat16"), weights)
    np.testing.assert_allclose(layer.losses, [299 / 300], rtol=1e-6)


def model(**changes):
    keras.utils.set_random_seed(1)
    changes = {"units": 6, "dropout": 0.0, "coverage": True, **changes}
    model = build("small", 9, 9, **changes)
    model.compile(
        keras.optimizers.Adam(0.02),
        SequenceCrossentropy(),
        metrics=[Perplexity()],
        jit_compile=keras.backend.backend() == "jax",
    )
    return model


def alignments(model):
    """Of the given targets, step by step."""
    memory, state = model.encode(SOURCE)
    rows = []
    for t in range(3):
        _, state, weights = model.step(TARGET[:, t : t + 1], state, memory)
        rows.append(np.asarray(weights)[:, 0])
    return np.stack(rows, 1)


def data():
    return {"source": SOURCE, "target": TARGET}, LABELS, COUNTED


@pytest.mark.slow
@pytest.mark.parametrize("input_feeding", [True, False])
def test_a_models_loss_has_it(input_feeding):
    with_loss = model(coverage_loss=0.5, input_feeding=input_feeding)
    without = model(input_feeding=input_feeding)
    without.set_weights(with_loss.get_weights())
    inputs, labels, weights = data()
    options = {"sample_weight": weights, "verbose": 0, "return_dict": True}
    one, other = (m.evaluate(inputs, labels, **options) for m in (with_loss, without))
    words = np.asarray(coverage_loss(alignments(with_loss)))[LABELS != 0]
    assert words.mean() > 0.01
    np.testing.assert_allclose(one["loss"] - other["loss"], words.mean() / 2, rtol=1e-4)
    np.testing.assert_allclose(one["perplexity"], other["perplexity"], rtol=1e-5)


def test_a_model_with_it_can_be_reloaded(tmp_path):
    one = model(coverage_loss=1.0)
    other = Seq2Seq.from_config(one.get_config())
    one.save_weights(tmp_path / "w.weights.h5")
    other.load_weights(tmp_path / "w.weights.h5")
    np.testing.assert_allclose(one(data()[0]), other(data()[0]), atol=1e-6)


def test_refuses():
    with pytest.raises(ValueError, match="factor must be finite.*-1"):
        CoverageLoss(-1)
    with pytest.raises(ValueError, match="coverage_loss needs an attention"):
        model(coverage_loss=1.0, coverage=False, attention=None)
