"""Weights in int8; those of every attention are in test_attention_call.py."""

import gc

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.layers import LuongAttention, Score
from keras_luong.layers.scores import SCORES

RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(2, 3, 16)).astype("float32")
VALUE = RNG.normal(size=(2, 7, 16)).astype("float32")

WITHOUT_WEIGHTS = "dot", "scaled_dot", "cosine"


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """Of garbage, in the whole session, for which Keras asks with each weight."""
    monkeypatch.setattr(gc, "collect", lambda: 0)


def quantized(model):
    """Quantizes a model: -> what it is warned of, which Keras's own layers are."""
    with pytest.warns(UserWarning, match="not have a .quantize|InputLayer") as told:
        model.quantize("int8")
    return " ".join(str(warning.message) for warning in told)


def check_saved(model, given, tmp_path):
    """A file gives back the same weights, in their dtypes, and the same results."""
    result = model(given)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert [w.dtype for w in again.weights] == [w.dtype for w in model.weights]
    assert any(w.dtype == "int8" for w in again.weights)
    for x, y in zip(*map(keras.tree.flatten, (again(given), result)), strict=True):
        np.testing.assert_array_equal(x, y)
    return again


def functional(call):
    inputs = keras.Input((None, 16)), keras.Input((None, 16))
    return keras.Model(inputs, call(*inputs))


@pytest.mark.parametrize("mode", slow_but(SCORES, "concat"))
def test_an_attention_is_quantized_and_saved(mode, tmp_path):
    attention, output = LuongAttention(mode, max_source_length=8), keras.layers.Dense(3)
    model = functional(lambda *x: output(attention(*x)))
    exact = np.asarray(model([QUERY, VALUE]))
    messages = quantized(model)
    assert "Score" not in messages and "Attention" not in messages
    assert all(w.dtype == "int8" for w in model.weights if len(w.shape) == 2)
    result = np.asarray(model([QUERY, VALUE]))
    assert np.abs(result - exact).max() < 0.03 * np.abs(exact).max()
    check_saved(model, [QUERY, VALUE], tmp_path)
    if mode in WITHOUT_WEIGHTS:
        return
    assert attention.score.dtype_policy.name in ("int8_from_float32", "float32")
    assert attention.dtype_policy.name == "int8_from_float32"
    again = type(attention).from_config(attention.get_config())
    again.build(QUERY.shape, VALUE.shape)
    again.set_weights(attention.get_weights())
    np.testing.assert_array_equal(again(QUERY, VALUE), attention(QUERY, VALUE))


def test_each_column_has_a_scale_by_hand():
    attention = LuongAttention("general")
    attention.build((None, None, 2), (None, None, 3))
    attention.score.kernel.assign([[127.0, 0.25, 0.0], [-63.0, 1.0, 0.0]])
    unbuilt = LuongAttention(attention.score)  # which goes along once it is built
    attention.quantize("int8")
    assert unbuilt.quantization_mode is None
    stored, scale = attention.score.weights
    np.testing.assert_array_equal(stored, [[127, 32, 0], [-63, 127, 0]])
    np.testing.assert_allclose(scale[:2], [1, 127], rtol=1e-5)
    kernel = [[127, 32 / 127, 0], [-63, 1, 0]]
    np.testing.assert_allclose(attention.score.kernel, kernel, rtol=1e-5)


@pytest.mark.parametrize("mode", ["int4", "float8"])
def test_other_modes_are_refused(mode):
    attention = LuongAttention("general")
    with pytest.raises(ValueError, match="isn't yet built"):
        attention.quantize("int8")
    with pytest.raises(AttributeError, match="kernel.*not built"):
        attention.score.kernel  # noqa: B018
    attention.build(QUERY.shape, VALUE.shape)
    with pytest.raises(NotImplementedError, match=f'"int8" only.*{mode}'):
        attention.quantize(mode)


def test_mixed_precision_reads_in_its_own_dtype():
    attention = LuongAttention("general", dtype="mixed_bfloat16")
    exact = attention(QUERY, VALUE)
    attention.quantize("int8")
    result, kernel = attention(QUERY, VALUE), attention.score.kernel
    for x in (result, kernel, exact):
        assert keras.backend.standardize_dtype(x.dtype) == "bfloat16"
    wide = [keras.ops.cast(x, "float32") for x in (result, exact)]
    np.testing.assert_allclose(*wide, atol=0.05)


def test_trained_weights_are_none_any_more():
    attention = kl.LocalAttention(2, "predictive", "general")
    attention.build(QUERY.shape, VALUE.shape)
    attention.quantize("int8")
    assert [w.name for w in attention.trainable_weights] == ["position_scale"]
    others = [w.name for w in attention.non_trainable_weights if w.dtype != "uint32"]
    kernels = ["kernel", "kernel_scale", "position_kernel", "position_kernel_scale"]
    assert sorted(others) == kernels


@pytest.mark.slow
@pytest.mark.tensorflow
def test_in_the_loop_of_a_decoder():
    """Of training, which other weights may need."""
    cell = kl.InputFeedingDecoderCell(4, LuongAttention("concat"))
    decoder = kl.InputFeedingDecoder(cell)
    exact = decoder(QUERY, VALUE)
    cell.attention.quantize("int8")

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            outputs = decoder(QUERY, VALUE, training=True)
            loss = tf.reduce_sum(outputs**2)
        return outputs, tape.gradient(loss, decoder.trainable_variables)

    outputs, gradients = run()
    np.testing.assert_allclose(outputs, exact, atol=0.02)
    np.testing.assert_allclose(outputs, decoder(QUERY, VALUE), atol=1e-5)
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


def test_a_score_whose_weights_are_no_kernels_stays_as_it_is():
    class Mine(Score):
        def build(self, query_shape, key_shape):
            self.gain = self.add_weight((), "ones")

    attention = kl.LocalAttention(2, "predictive", Mine())
    model = functional(attention)
    assert "Mine cannot be quantized" in quantized(model)
    assert attention.quantization_mode is None
    model([QUERY, VALUE])


def test_a_cell_without_the_vector_in_its_config_is_made_as_before():
    """As the files of earlier versions have it."""
    cell = kl.InputFeedingDecoderCell(6, LuongAttention(), attentional_units=5)
    config = cell.get_config()
    del config["attentional_vector"]
    again = kl.InputFeedingDecoderCell.from_config(config)
    assert again.attentional_vector.get_config() == cell.attentional_vector.get_config()


QUANTIZED = [{"attention": "local-p", "bridge": "dense"}, {"tie_embeddings": "all"}]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("options", QUANTIZED)
def test_a_quantized_translation_model_is_saved_and_loaded(options, tmp_path):
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=6, **options))
    model.target_embedding.trainable = False
    quantized(model)
    inputs = {"source": np.array([[4, 5, 3]]), "target": np.array([[1, 4]])}
    assert not check_saved(model, inputs, tmp_path).target_embedding.trainable
