"""What every attention must do in a decoder, a search and a file."""

from __future__ import annotations

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import INPUTS, MASK, MEMORY, STEPS, UNITS, WIDTH, WORDS
from leave_slow import slow_but
from own_models import IDS, VOCABULARY, dense, exhaustive, features

import keras_luong as kl

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
LOCATION_AWARE = {"filters": 2, "kernel_size": 3}
ATTENTIONS = {
    "coverage": lambda **o: kl.LuongAttention("concat", coverage=True, **o),
    "local-m": lambda **o: kl.LocalAttention(1, "monotonic", coverage=True, **o),
    "local-p": lambda **o: kl.LocalAttention(2, score_mode="concat", **o),
    "monotonic": lambda **o: kl.MonotonicAttention(**o),
    "chunkwise": lambda **o: kl.MonotonicChunkwiseAttention(
        "concat", chunk_size=3, mode="parallel", **o
    ),
    "location-aware": lambda **o: kl.LocationAwareAttention(**LOCATION_AWARE, **o),
    "cumulative": lambda **o: kl.LocationAwareAttention(
        "general", cumulative=True, **LOCATION_AWARE, **o
    ),
    "multi-head": lambda **o: kl.MultiHeadLuongAttention(
        2, 3, 2, score_mode="concat", **o
    ),
}
BY_HEAD_OR_STATE = ["chunkwise", "location-aware", "multi-head"]
every_attention = pytest.mark.parametrize("kind", ATTENTIONS)


def decoder_of(kind, cell, **options):
    """A decoder of an attention and of one of `CELLS`, with random weights."""
    decoder = kl.InputFeedingDecoder(CELLS[cell](ATTENTIONS[kind](**options)))
    decoder(INPUTS, MEMORY, MASK)
    return checks.randomized(decoder)


@pytest.mark.parametrize("cell", slow_but(list(CELLS), "fed"))
@every_attention
def test_steps_equal_whole_sequences(kind, cell):
    """As of a search with two unlike hypotheses; they end where the decoder ends."""
    decoder = decoder_of(kind, cell, hard=cell in ("wrapped", "called"))
    outputs, weights, *ends = decoder(
        INPUTS, MEMORY, MASK, return_attention_scores=True, return_state=True
    )
    assert np.all(np.where(MASK[:, None], 0, weights) == 0)
    prepared = decoder.cell.prepare(keras.ops.array(MEMORY), MASK)
    states = decoder.cell.initial_states((2, 2), memory=prepared)
    beams = np.stack([INPUTS[:, ::-1], INPUTS], axis=2)
    for t in range(STEPS):
        output, states, a = decoder.cell(beams[:, t], states, prepared)
        np.testing.assert_allclose(output[:, 1], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 1], weights[:, t], atol=1e-5)
    for state, end in zip(states, ends, strict=True):
        np.testing.assert_allclose(state[:, 1], end, atol=1e-5)


@pytest.mark.parametrize("cell", slow_but(["wrapped", "not fed"], "wrapped"))
@every_attention
def test_padding_is_as_none(kind, cell):
    """A shorter source and its padded one are the same, whatever padding holds."""
    decoder = decoder_of(kind, cell)
    outputs = decoder(INPUTS, MEMORY, MASK)
    junk = np.where(MASK[..., None], MEMORY, np.nan).astype("float32")
    np.testing.assert_allclose(decoder(INPUTS, junk, MASK), outputs, atol=1e-6)
    alone = decoder(INPUTS[1:], MEMORY[1:, :3])
    np.testing.assert_allclose(alone, outputs[1:], atol=1e-5)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "cell, way",
    [
        ("fed", "graph"),
        ("fed", "xla"),
        ("not fed", "any length"),
        ("wrapped", "any length"),
        ("called", "xla"),
    ],
)
@every_attention
def test_all_loops_have_the_same_gradients(kind, cell, way):
    """The loop for training has the plain one's values and gradients.

    In a graph that knows the source's length, under XLA, or where it is unknown.
    """
    decoder = decoder_of(kind, cell)
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


class Speller(keras.Model):
    """Reads features [B, S, 3], spells with a decoder cell, in a search of any kind."""

    def __init__(self, attention, seed=1):
        super().__init__()
        self.read = keras.layers.Dense(UNITS, activation="tanh")
        self.embed = keras.layers.Embedding(VOCABULARY, WIDTH)
        self.cell = kl.InputFeedingDecoderCell(UNITS, attention)
        self.cell.build((None, None, WIDTH), (None, None, UNITS))
        checks.randomized(self.cell)
        self.score = dense(VOCABULARY, seed)

    def encode(self, source):
        memory = self.cell.prepare(self.read(source))
        shape = (keras.ops.shape(source)[0], 1)
        return memory, self.cell.initial_states(shape, memory=memory)

    def step(self, tokens, state, memory):
        h, state, weights = self.cell(self.embed(tokens), state, memory)
        return self.score(h), state, weights


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", slow_but(BY_HEAD_OR_STATE, "multi-head"))
def test_states_go_with_their_beams(kind):
    """A wide beam is exhaustive search."""
    model, source = Speller(ATTENTIONS[kind]()), features(2)
    search = kl.BeamSearch(120, n_best=9, max_length=3, **IDS)
    found = kl.generate(model, source, search)
    for row in range(2):
        one = tf.constant(source[row : row + 1])
        for n, (tokens, log_prob) in enumerate(exhaustive(model, one, 3, **IDS)[:9]):
            assert found.ids[row, n, : len(tokens)].numpy().tolist() == tokens
            np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "kind, hard, length",
    [
        ("cumulative", False, None),
        ("chunkwise", True, None),
        ("monotonic", True, 4),
        ("monotonic", False, None),
        ("multi-head", False, 4),
    ],
)
def test_exports_say_the_same(kind, hard, length, tmp_path):
    """A SavedModel and a `.tflite` file, of a source of any or of one length."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model, source = Speller(ATTENTIONS[kind](hard=hard)), features(2)
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


@keras.saving.register_keras_serializable("tests")
class Signed(kl.Score):
    """Somebody's own score, with a weight and an option."""

    def __init__(self, sign=-1, **kwargs):
        super().__init__(**kwargs)
        self.sign = sign

    def build(self, query_shape, key_shape):
        self.gain = self.add_weight((), "random_normal", name="gain")

    def call(self, query, key, **options):
        return self.sign * self.gain * super().call(query, key, **options)

    def get_config(self):
        return {**super().get_config(), "sign": self.sign}


#: Of a layer with such scores, or of one with another for its chunks, the signs.
OWN_SCORES = {"heads": [2, 2], "chunks": [2, 2], "another": [-1, 2], "dot": [2]}


@pytest.mark.parametrize("kind", OWN_SCORES)
def test_a_score_of_ones_own_is_copied_and_saved(kind, tmp_path):
    attention = kl.MultiHeadLuongAttention(2, score_mode=Signed(sign=2))
    if kind != "heads":
        other = {"another": Signed(), "dot": "dot"}.get(kind)
        attention = kl.MonotonicChunkwiseAttention(Signed(2), chunk_score_mode=other)
    query, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    inputs = keras.Input((None, WIDTH))
    decoder = kl.InputFeedingDecoder(CELLS["fed"](attention))
    outputs = attention(query, value), decoder(inputs, value)
    scores = [layer for layer in attention._flatten_layers() if type(layer) is Signed]
    assert sorted(one.sign for one in scores) == OWN_SCORES[kind]
    assert len({float(one.gain) for one in scores}) == len(scores)
    model = checks.randomized(keras.Model([query, value, inputs], list(outputs)))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    given = [MEMORY[:, :4], MEMORY, INPUTS]
    for x, y in zip(model(given), again(given), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.slow
@pytest.mark.tensorflow
@every_attention
def test_int8(kind, tmp_path):
    """It is almost the same, goes through a `.keras` file, and is refused twice."""
    inputs, value = keras.Input((None, UNITS)), keras.Input((None, UNITS))
    attention = ATTENTIONS[kind]()
    outputs = keras.layers.Dense(3, name="out")(attention(inputs, value))
    model = checks.randomized(keras.Model([inputs, value], outputs))
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
