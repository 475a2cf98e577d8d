"""What every attention must do in a decoder, a search and a file; for their tests."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from finite_differences import check_gradients
from own_models import IDS, VOCABULARY, dense, exhaustive, features

import keras_luong as kl
from keras_luong.layers.scores import SCORES

UNITS, WIDTH, STEPS, POSITIONS = 4, 3, 5, 6
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, POSITIONS, UNITS)).astype("float32")
MASK = np.arange(POSITIONS) < np.array([[POSITIONS], [3]])
WORDS = np.arange(STEPS) < np.array([[2], [STEPS]])

CELLS = {
    "fed": lambda attention: kl.InputFeedingDecoderCell(UNITS, attention),
    "not fed": lambda attention: kl.InputFeedingDecoderCell(
        UNITS, attention, input_feeding=False
    ),
    "wrapped": lambda attention: kl.AttentionWrapper(
        keras.layers.GRUCell(UNITS), attention
    ),
    "called": lambda attention: kl.AttentionWrapper(
        keras.layers.LSTMCell(UNITS, recurrent_activation="hard_sigmoid"), attention
    ),
}
WAYS = ["graph", "xla", "any length"]


def randomized(layer):
    """Weights that are none of them zeros."""
    random = np.random.default_rng(3)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.7)
    return layer


def decoder_of(attention, cell):
    """A decoder of one of `CELLS`, with random weights."""
    decoder = kl.InputFeedingDecoder(CELLS[cell](attention))
    decoder(INPUTS, MEMORY, MASK)
    return randomized(decoder)


def check_stepping(attention, cell):
    """Steps as of a search compute what the decoder does, and end where it ends."""
    decoder = decoder_of(attention, cell)
    outputs, weights, *ends = decoder(
        INPUTS, MEMORY, MASK, return_attention_scores=True, return_state=True
    )
    assert np.all(np.where(MASK[:, None], 0, weights) == 0)
    cell = decoder.cell
    prepared = cell.prepare(keras.ops.array(MEMORY), MASK)
    states = cell.initial_states((2, 1), memory=prepared)
    for t in range(STEPS):
        output, states, a = cell(INPUTS[:, t : t + 1], states, prepared)
        np.testing.assert_allclose(output[:, 0], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 0], weights[:, t], atol=1e-5)
    for state, end in zip(states, ends, strict=True):
        np.testing.assert_allclose(state[:, 0], end, atol=1e-5)


def check_padding(attention, cell):
    """A shorter source and its padded one are the same, whatever padding holds."""
    decoder = decoder_of(attention, cell)
    outputs = decoder(INPUTS, MEMORY, MASK)
    junk = np.where(MASK[..., None], MEMORY, np.nan).astype("float32")
    np.testing.assert_allclose(decoder(INPUTS, junk, MASK), outputs, atol=1e-6)
    alone = decoder(INPUTS[1:], MEMORY[1:, :3])
    np.testing.assert_allclose(alone, outputs[1:], atol=1e-5)


def check_loops(attention, cell, way):
    """The loop for training has the plain one's values and gradients, by any of `WAYS`.

    In a graph that knows the source's length, under XLA, or where it is unknown.
    """
    decoder = decoder_of(attention, cell)
    given = [tf.constant(x) for x in (INPUTS, MEMORY, MASK, WORDS)]

    def gradients(inputs, memory, mask, words):
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            outputs = decoder(inputs, memory, mask, mask=words, training=True)
            loss = tf.reduce_sum(tf.sin(3 * outputs))
        found = tape.gradient(loss, [*decoder.trainable_weights, inputs, memory])
        return [outputs, *map(tf.convert_to_tensor, found)]

    expected = gradients(*given)  # by the plain loop: nothing is traced
    options: dict = {"jit_compile": way == "xla"}
    if way == "any length":
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in given]
        specs[1] = tf.TensorSpec([None, None, UNITS])
        specs[2] = tf.TensorSpec([None, None], tf.bool)
        options["input_signature"] = specs
    for x, y in zip(tf.function(gradients, **options)(*given), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=2e-5, rtol=1e-4)
    weights = expected[1 : 1 + len(decoder.trainable_weights)]
    assert all(np.abs(x).max() > 0 for x in weights)


def check_slopes(attention, cell):
    """Gradients are those of finite differences."""
    decoder = decoder_of(attention, cell)

    def loss():
        outputs = decoder(INPUTS, MEMORY, MASK, training=True)
        return tf.reduce_sum(tf.sin(3 * outputs))

    variables = decoder.trainable_variables
    check_gradients(loss, variables, absolute=5e-3, relative=2e-2, epsilon=3e-3)


class Speller(keras.Model):
    """Reads features [B, S, 3], spells with a decoder cell, in a search of any kind."""

    def __init__(self, attention, seed=1):
        super().__init__()
        self.read = keras.layers.Dense(UNITS, activation="tanh")
        self.embed = keras.layers.Embedding(VOCABULARY, WIDTH)
        self.cell = kl.InputFeedingDecoderCell(UNITS, attention)
        self.cell.build((None, None, WIDTH), (None, None, UNITS))
        randomized(self.cell)
        self.score = dense(VOCABULARY, seed)

    def encode(self, source):
        memory = self.cell.prepare(self.read(source))
        shape = (keras.ops.shape(source)[0], 1)
        return memory, self.cell.initial_states(shape, memory=memory)

    def step(self, tokens, state, memory):
        h, state, weights = self.cell(self.embed(tokens), state, memory)
        return self.score(h), state, weights


def check_search(attention):
    """States go along as beams change places: a wide beam is exhaustive search."""
    model, source = Speller(attention), features(2)
    search = kl.BeamSearch(120, n_best=9, max_length=3, **IDS)
    found = kl.generate(model, source, search)
    for row in range(2):
        one = tf.constant(source[row : row + 1])
        for n, (tokens, log_prob) in enumerate(exhaustive(model, one, 3, **IDS)[:9]):
            assert found.ids[row, n, : len(tokens)].numpy().tolist() == tokens
            np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)


def check_export(attention, tmp_path, length=None):
    """A SavedModel and a `.tflite` file say what the model does."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model, source = Speller(attention), features(2)
    search = kl.BeamSearch(3, n_best=2, max_length=5, **IDS)
    spec = tf.TensorSpec([None, length, 3], name="source")
    generator = kl.SequenceGenerator(model, spec, search)
    path = kl.export_saved_model(generator, tmp_path / "model")
    serve = tf.saved_model.load(path).signatures["serving_default"]
    path = kl.export_tflite(generator, tmp_path / "model.tflite")
    for row in (0, 1):
        one = source[row : row + 1]
        expected = generator(one)
        # Of an unknown shape: see `export_tflite`.
        run = interpreter.Interpreter(str(path)).get_signature_runner()
        for said in (serve(source=tf.constant(one)), run(source=one)):
            words = expected.ids.shape[-1]
            np.testing.assert_array_equal(said["ids"][..., :words], expected.ids)
            np.testing.assert_allclose(said["scores"], expected.scores, atol=1e-4)


def check_files(attention, tmp_path):
    """A `.keras` file gives back the layer, alone and in a decoder."""
    query, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    inputs = keras.Input((None, WIDTH))
    outputs = attention(query, value), decoder_of(attention, "fed")(inputs, value)
    model = randomized(keras.Model([query, value, inputs], list(outputs)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    given = [MEMORY[:, :4], MEMORY, INPUTS]
    for x, y in zip(model(given), again(given), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    config = attention.get_config()
    assert type(attention).from_config(config).get_config() == config


def check_half_precision(make, dtype, tolerance):
    """Mixed precision is near float32, and its weights are float32."""
    results = []
    for policy in ("float32", dtype):
        keras.config.set_dtype_policy(policy)
        decoder = decoder_of(make(), "fed")
        outputs, weights = decoder(INPUTS, MEMORY, MASK, return_attention_scores=True)
        assert weights.dtype == "float32"
        results.append([keras.ops.cast(x, "float32") for x in (outputs, weights)])
        graph = tf.function(lambda d=decoder: d(INPUTS, MEMORY, MASK, training=True))
        trained = keras.ops.cast(graph(), "float32")
        np.testing.assert_allclose(trained, results[-1][0], atol=tolerance)
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, atol=tolerance)


def check_quantized(attention, tmp_path):
    """int8 is almost the same, goes through a `.keras` file, and is refused twice."""
    inputs, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    context = attention(inputs, value)
    model = randomized(
        keras.Model([inputs, value], keras.layers.Dense(3, name="out")(context))
    )
    given = [MEMORY[:, :4], MEMORY]
    exact = np.asarray(model(given))
    with pytest.warns(UserWarning, match="InputLayer"):
        model.quantize("int8")
    assert all(w.dtype == "int8" for w in model.weights if len(w.shape) == 2)
    result = np.asarray(model(given))
    assert 0 < np.abs(result - exact).max() < 0.05 * np.abs(exact).max()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(given), result)
    with pytest.raises(ValueError, match="already quantized"):
        attention.quantize("int8")


#: Attentions of every kind; of Luong's, every score.
KINDS = {
    **{
        mode: lambda mode=mode: kl.LuongAttention(mode, units=3, max_source_length=4)
        for mode in SCORES
    },
    "coverage": lambda: kl.LuongAttention("concat", coverage=True),
    "sparsemax": lambda: kl.LuongAttention(normalizer="sparsemax"),
    "local-m": lambda: kl.LocalAttention(2, "monotonic"),
    "monotonic": lambda: kl.MonotonicAttention("general"),
    "chunkwise": lambda: kl.MonotonicChunkwiseAttention("concat", chunk_size=2),
    "location-aware": lambda: kl.LocationAwareAttention(filters=2, kernel_size=3),
    "multi-head": lambda: kl.MultiHeadLuongAttention(2, score_mode="general"),
}
#: How far XLA may be from what runs eagerly.
NEAR = {
    "float32": 1e-5,
    "float64": 1e-12,
    "mixed_float16": 0.02,
    "mixed_bfloat16": 0.15,
}


def check_xla(make, sources, memory_mask, mask, dtype):
    """Under XLA a decoder computes what it does eagerly, in either loop.

    Args:
        make: Makes the decoder.
        sources: One source [B, S, n] or a list of them.
        memory_mask: Masks bool [B, S] likewise, or None.
        mask: bool [B, T], or None.
        dtype: A policy.
    """
    keras.config.set_dtype_policy(dtype)
    try:
        decoder = make()
        sources = tf.nest.map_structure(tf.constant, sources)
        decoder(INPUTS, sources)
        randomized(decoder)
    finally:
        keras.config.set_dtype_policy("float32")

    def run(training):
        return decoder(
            INPUTS,
            sources,
            memory_mask=memory_mask,
            mask=mask,
            return_attention_scores=True,
            training=training,
        )

    expected = [np.asarray(x, "float64") for x in run(training=False)]
    for training in (False, True):
        function = tf.function(run, jit_compile=True)
        for x, y in zip(function(training), expected, strict=True):
            np.testing.assert_allclose(np.asarray(x, "float64"), y, atol=NEAR[dtype])
    words = np.ones(expected[1].shape, bool)
    if memory_mask is not None:
        several = isinstance(memory_mask, list)
        joined = np.concatenate(memory_mask, 1) if several else memory_mask
        words &= joined[:, None]
    if mask is not None:
        words &= mask[:, :, None]
    assert np.all(expected[1][~words] == 0)
