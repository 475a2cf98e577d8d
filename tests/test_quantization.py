"""Weights in int8."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but

from keras_luong.layers import (
    AttentionalVector,
    AttentionWrapper,
    BaseLayer,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    Kernel,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    PointerNetwork,
    RecurrentEncoder,
    ScheduledOutput,
    Score,
    StateBridge,
)
from keras_luong.layers.scores import SCORES
from keras_luong.models import Seq2Seq, Seq2SeqConfig

RNG = np.random.default_rng(0)
QUERY = RNG.normal(size=(2, 3, 16)).astype("float32")
VALUE = RNG.normal(size=(2, 7, 16)).astype("float32")

ATTENTIONS = {
    **{mode: lambda mode=mode: LuongAttention(mode, max_source_length=8)
       for mode in SCORES},
    "coverage": lambda: LuongAttention("general", coverage=True),
    "local-p": lambda: LocalAttention(2, "predictive", "concat"),
    "local-p dot": lambda: LocalAttention(2, "predictive", "dot"),
    "monotonic": lambda: MonotonicAttention("general"),
}  # fmt: skip


def model_of(attention):
    inputs = keras.Input((None, 16)), keras.Input((None, 16))
    context = attention(*inputs)
    return keras.Model(inputs, keras.layers.Dense(3)(context))


def matrices(model):
    return [w for w in model.weights if len(w.shape) == 2]


@pytest.mark.parametrize("name", slow_but(ATTENTIONS, "monotonic"))
def test_a_models_attention_is_quantized_and_saved(name, tmp_path):
    model = model_of(ATTENTIONS[name]())
    exact = np.asarray(model([QUERY, VALUE]))
    with pytest.warns(UserWarning, match="InputLayer") as warned:  # as ever
        model.quantize("int8")
    messages = [str(warning.message) for warning in warned]
    assert not any("Score" in x or "Attention" in x for x in messages), messages
    assert all(w.dtype == "int8" for w in matrices(model))
    result = np.asarray(model([QUERY, VALUE]))
    assert np.abs(result - exact).max() < 0.03 * np.abs(exact).max()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert all(w.dtype == "int8" for w in matrices(again))
    np.testing.assert_array_equal(again([QUERY, VALUE]), result)


@pytest.mark.parametrize(
    "name", slow_but(["concat", "coverage", "local-p", "monotonic"], "coverage")
)
def test_a_layer_alone_changes_by_about_a_hundredth(name):
    attention = ATTENTIONS[name]()
    exact = attention(QUERY, VALUE, return_attention_scores=True)
    attention.quantize("int8")
    assert attention.dtype_policy.name == "int8_from_float32"
    assert attention.score.dtype_policy.name == "int8_from_float32"
    result = attention(QUERY, VALUE, return_attention_scores=True)
    for x, y in zip(result, exact, strict=True):
        assert np.abs(np.asarray(x) - y).mean() < 0.01 * np.abs(y).max()
    with pytest.raises(ValueError, match="already quantized"):
        attention.quantize("int8")
    again = type(attention).from_config(attention.get_config())
    again.build(QUERY.shape, VALUE.shape)
    again.set_weights(attention.get_weights())
    np.testing.assert_array_equal(again(QUERY, VALUE), attention(QUERY, VALUE))


@pytest.mark.slow
def test_each_column_has_a_scale_by_hand():
    attention = LuongAttention("general")
    attention.build((None, None, 2), (None, None, 3))
    attention.score.kernel.assign([[127.0, 0.25, 0.0], [-63.0, 1.0, 0.0]])
    attention.quantize("int8")
    stored, scale = attention.score.weights
    np.testing.assert_array_equal(stored, [[127, 32, 0], [-63, 127, 0]])
    np.testing.assert_allclose(scale[:2], [1, 127], rtol=1e-5)
    np.testing.assert_allclose(
        attention.score.kernel, [[127, 32 / 127, 0], [-63, 1, 0]], rtol=1e-5
    )


@pytest.mark.parametrize("mode", ["int4", "float8"])
def test_other_modes_are_refused(mode):
    attention = LuongAttention("general")
    attention.build(QUERY.shape, VALUE.shape)
    with pytest.raises(NotImplementedError, match=f'"int8" only.*{mode}'):
        attention.quantize(mode)
    with pytest.raises(ValueError, match="isn't yet built"):
        LuongAttention().quantize("int8")


@pytest.mark.slow
def test_mixed_precision_reads_in_its_own_dtype():
    attention = LuongAttention("general", dtype="mixed_bfloat16")
    exact = attention(QUERY, VALUE)
    attention.quantize("int8")
    kernel = attention.score.kernel
    assert keras.backend.standardize_dtype(kernel.dtype) == "bfloat16"
    result = attention(QUERY, VALUE)
    assert result.dtype == exact.dtype
    np.testing.assert_allclose(
        *[keras.ops.cast(x, "float32") for x in (result, exact)], atol=0.05
    )


def test_trained_weights_are_none_any_more():
    attention = LocalAttention(2, "predictive", "general")
    attention.build(QUERY.shape, VALUE.shape)
    attention.quantize("int8")
    names = [w.name for w in attention.trainable_weights]
    assert names == ["position_scale"]
    assert sorted(w.name for w in attention.non_trainable_weights if w.dtype != "uint32"
                  ) == ["kernel", "kernel_scale", "position_kernel",
                        "position_kernel_scale"]  # fmt: skip


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "training", [pytest.param(False, marks=pytest.mark.slow), True]
)
def test_in_the_loop_of_a_decoder(training):
    """The path for training too, which other weights may need."""
    cell = InputFeedingDecoderCell(16, LuongAttention("concat"))
    decoder = InputFeedingDecoder(cell)
    exact = decoder(QUERY, VALUE)
    cell.attention.quantize("int8")

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            outputs = decoder(QUERY, VALUE, training=training)
            loss = tf.reduce_sum(outputs**2)
        return outputs, tape.gradient(loss, decoder.trainable_variables)

    outputs, gradients = run()
    np.testing.assert_allclose(outputs, exact, atol=0.02)
    np.testing.assert_allclose(outputs, decoder(QUERY, VALUE), atol=1e-5)
    assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_models_attentional_vector():
    cell = InputFeedingDecoderCell(16, LuongAttention("dot"))
    inputs = keras.Input((None, 16)), keras.Input((None, 16))
    model = keras.Model(inputs, InputFeedingDecoder(cell)(*inputs))
    exact = model([QUERY, VALUE])
    with pytest.warns(UserWarning) as warned:  # of what Keras itself cannot
        model.quantize("int8")
    messages = [str(warning.message) for warning in warned]
    assert not any("AttentionalVector" in x for x in messages), messages
    vector = cell.attentional_vector
    assert {w.dtype for w in vector.weights} == {"int8", "float32"}
    np.testing.assert_allclose(model([QUERY, VALUE]), exact, atol=0.02)
    again = AttentionalVector.from_config(vector.get_config())
    again.build((16,), (16,))
    again.set_weights(vector.get_weights())
    np.testing.assert_array_equal(again(QUERY, QUERY), vector(QUERY, QUERY))


@pytest.mark.slow
def test_a_score_whose_weights_are_no_kernels_stays_as_it_is():
    class Mine(Score):
        def build(self, query_shape, key_shape):
            self.gain = self.add_weight((), "ones")

    attention = LocalAttention(2, "predictive", Mine())
    model = model_of(attention)
    with pytest.warns(UserWarning, match="Mine cannot be quantized"):
        model.quantize("int8")
    assert attention.quantization_mode is None
    model([QUERY, VALUE])


@pytest.mark.slow
def test_the_example_of_a_layer_of_ones_own():
    class Projection(BaseLayer):
        kernel = Kernel()

        def build(self, shape):
            self.kernel = self.add_kernel("kernel", shape[-1], 8)

        def call(self, x):
            return keras.ops.matmul(x, self.kernel)

    layer = Projection()
    with pytest.raises(AttributeError, match="kernel.*not built"):
        layer.kernel  # noqa: B018
    exact = layer(QUERY)
    layer.quantize("int8")
    np.testing.assert_allclose(layer(QUERY), exact, atol=0.05)


def wrapped_decoder(words, source):
    cell = AttentionWrapper(keras.layers.GRUCell(6), LuongAttention())
    return InputFeedingDecoder(cell)(words, source)


def decoder_with_bridge(words, source):
    memory, *last = RecurrentEncoder(4)(source)
    cell = InputFeedingDecoderCell(6, LuongAttention())
    first = StateBridge(cell)(last)
    return InputFeedingDecoder(cell)(words, memory, initial_state=first)


def scheduled_decoder(words, source):
    return InputFeedingDecoder(
        InputFeedingDecoderCell(6, LuongAttention()),
        feeding=ScheduledOutput(0.5),
        output_layer=keras.layers.Dense(16),
    )(words, source)


def pointers(words, source):
    ids = keras.ops.cast(words[..., 0] > 0, "int32")
    cell = InputFeedingDecoderCell(6, LuongAttention())
    return PointerNetwork(cell)(ids, source)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
@pytest.mark.parametrize(
    "make", [wrapped_decoder, decoder_with_bridge, scheduled_decoder, pointers]
)
def test_a_quantized_decoder_is_saved_and_loaded(make, tmp_path):
    inputs = keras.Input((None, 16)), keras.Input((None, 16))
    model = keras.Model(inputs, make(*inputs))
    model.quantize("int8")
    result = model([QUERY, VALUE])
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert [w.dtype for w in again.weights] == [w.dtype for w in model.weights]
    assert any(w.dtype == "int8" for w in again.weights)
    np.testing.assert_array_equal(again([QUERY, VALUE]), result)


def test_a_cell_without_the_vector_in_its_config_is_made_as_before():
    """As the files of earlier versions have it."""
    cell = InputFeedingDecoderCell(6, LuongAttention(), attentional_units=5)
    config = cell.get_config()
    del config["attentional_vector"]
    again = InputFeedingDecoderCell.from_config(config)
    assert again.attentional_vector.get_config() == cell.attentional_vector.get_config()


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
@pytest.mark.parametrize(
    "options",
    [{}, {"attention": "local-p", "bridge": "dense"}, {"tie_embeddings": "all"}],
)
def test_a_quantized_translation_model_is_saved_and_loaded(options, tmp_path):
    model = Seq2Seq(Seq2SeqConfig(9, 9, units=6, **options))
    model.target_embedding.trainable = False
    model.quantize("int8")
    inputs = {"source": np.array([[4, 5, 3]]), "target": np.array([[1, 4]])}
    result = model(inputs)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert [w.dtype for w in again.weights] == [w.dtype for w in model.weights]
    assert not again.target_embedding.trainable
    np.testing.assert_array_equal(again(inputs), result)
