"""A bias in the output layer counts wherever the layer's matrix is read."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from small_translator import word_translator

import keras_luong as kl
from keras_luong.training.fused_model import linear_crossentropy

V = 7
SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = np.array([[2, 4, 5], [2, 6, 0]])
LABELS = np.array([[4, 5, 3], [6, 3, 0]])
INPUTS = {"source": SOURCE, "target": TARGET}


def make(dtype=None, **options):
    options = {"units": 4, "dropout": 0.0, "output_bias": True, **options}
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, V, **options), dtype=dtype)
    model.output_layer.bias.assign(np.linspace(-1.0, 1.0, V))
    return model


def test_models_without_it_have_none():
    config = kl.Seq2SeqConfig(9, V, units=4)
    assert not config.output_bias and kl.Seq2Seq(config).output_bias() is None


def test_it_is_added_to_the_logits_whole_and_stepwise():
    model = make()
    logits = np.asarray(model(INPUTS))
    memory, state = model.encode(SOURCE)
    for t in range(3):
        stepped, state, _ = model.step(TARGET[:, t : t + 1], state, memory)
        np.testing.assert_allclose(stepped[:, 0], logits[:, t], atol=1e-5)
    bias = np.asarray(model.output_bias())
    model.output_layer.bias.assign(np.zeros(V))
    np.testing.assert_allclose(logits - np.asarray(model(INPUTS)) - bias, 0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_part_of_the_vocabulary_has_its_part_of_the_bias(dtype):
    model = make(dtype)
    ids = np.array([6, 1, 3])
    few = model.restricted(ids, np.ones((2, 3), bool))
    memory, state = few.encode(SOURCE)
    found, _, _ = few.step(TARGET[:, :1], state, memory)
    expected, _, _ = model.step(TARGET[:, :1], state, memory[0])
    tolerance = 1e-6 if dtype == "float32" else 0.03
    expected = np.asarray(expected)[..., ids]
    np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("chunk", [1, 2**20])
def test_the_fused_loss_has_it_and_its_gradient(transposed, chunk):
    rng = np.random.default_rng(0)
    x, kernel, bias = [
        tf.constant(rng.normal(size=shape), tf.float32) for shape in ((5, 3), (3, V), V)
    ]
    labels, weights = tf.constant([0, 6, 2, 2, 5]), tf.constant([1, 2, 0, 1, 0.5])
    given = tf.transpose(kernel) if transposed else kernel
    sources = [x, given, bias]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        total, scores = linear_crossentropy(
            x, given, labels, weights, 0.1, transposed, chunk=chunk, bias=bias
        )
        logits = tf.matmul(x, given, transpose_b=transposed) + bias
        smooth = 0.9 * tf.one_hot(labels, V) + 0.1 / V
        losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        expected = tf.reduce_sum(losses * weights)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(scores.loss, losses, rtol=1e-5)
    for found, right in zip(
        tape.gradient(total, sources), tape.gradient(expected, sources), strict=True
    ):
        np.testing.assert_allclose(found, right, atol=1e-5)


@pytest.mark.slow
def test_evaluation_is_as_kerass():
    model, values = make(), []
    for chunk in (2**20, None):
        model.compile(loss=kl.SequenceCrossentropy(chunk=chunk))
        values.append(model.evaluate(INPUTS, LABELS, verbose=0))
    np.testing.assert_allclose(*values, rtol=1e-6)


@pytest.mark.slow
def test_fit_trains_it_as_keras_does():
    def trained(chunk):
        keras.utils.set_random_seed(1)
        model = make()
        model.compile(keras.optimizers.SGD(0.5), kl.SequenceCrossentropy(chunk=chunk))
        weights = (LABELS != 0) / 5.0
        fit = model.fit(INPUTS, LABELS, sample_weight=weights, epochs=3, verbose=0)
        return model, fit.history["loss"]

    (fused, losses), (plain, expected) = trained(2**20), trained(None)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    for x, y in zip(fused.weights, plain.weights, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6, err_msg=x.path)
    assert np.abs(fused.output_bias() - np.linspace(-1.0, 1.0, V)).max() > 0.01


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_search_follows_it(dtype):
    model = make(dtype)
    model.output_layer.bias.assign(99.0 * np.eye(V)[5])
    hypotheses = kl.BeamSearch(2, max_length=4)(model, SOURCE)
    np.testing.assert_array_equal(hypotheses.ids[:, 0, :4], np.full((2, 4), 5))


def test_a_saved_model_has_it(tmp_path):
    model = make()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(INPUTS), model(INPUTS), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("quantize", [None, "int8"])
def test_an_exported_model_has_it(quantize, tmp_path):
    edge = pytest.importorskip("keras_luong_edge")
    translator = word_translator(output_bias=True)
    translator.model.output_layer.bias.assign(9.0 * np.eye(V)[5])
    path = kl.export_tflite(translator, tmp_path / "x.tflite", quantize=quantize)
    (said,) = edge.EdgeTranslator(path).translate(["the red dog"])
    (expected,) = translator.translate(["the red dog"])
    assert said.text == expected.text
    np.testing.assert_allclose(said.score, expected.score, atol=0.05)


def test_tied_embeddings_have_none():
    with pytest.raises(ValueError, match="output_bias=True needs tie_embeddings=None"):
        kl.Seq2SeqConfig(9, 9, tie_embeddings="all", output_bias=True)


@pytest.mark.parametrize(
    "options",
    [
        {"attentional_activation": None, "attentional_bias": True},
        {"use_attentional_vector": False},
        {"output_attention": False, "input_feeding": True},
        {"output_attention": False, "input_feeding": False, "num_layers": 2},
    ],
)
def test_models_have_the_options_of_their_cell(options, tmp_path):
    model = make(**options)
    cell = model.decoder.cell
    for name in ("attentional_bias", "use_attentional_vector", "output_attention"):
        assert getattr(cell, name) == getattr(model.config, name)
    logits = np.asarray(model(INPUTS))
    memory, state = model.encode(SOURCE)
    for t in range(3):
        stepped, state, _ = model.step(TARGET[:, t : t + 1], state, memory)
        np.testing.assert_allclose(stepped[:, 0], logits[:, t], atol=1e-5)
    again = kl.Seq2Seq.from_config(model.get_config())
    assert again.config == model.config


@pytest.mark.parametrize("preset", ["gnmt", "bahdanau2015", "cho2014"])
def test_models_without_the_vector_refuse_its_options(preset):
    with pytest.raises(ValueError, match="attentional_activation=None|attention=None"):
        kl.Seq2Seq.from_preset(
            preset, 9, 9, units=4, encoder_units=4, attentional_activation=None
        )


def test_without_attention_there_is_nothing_to_choose():
    with pytest.raises(ValueError, match="Without attention.*attentional_bias=True"):
        kl.Seq2SeqConfig(9, 9, attention=None, attentional_bias=True)
