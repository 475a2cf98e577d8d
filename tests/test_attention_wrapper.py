"""A decoder around cells of Keras, stacks of them, and somebody's own."""

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops
from leave_slow import slow_but

from keras_luong.layers import (
    AttentionWrapper,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LuongAttention,
    RecurrentEncoder,
)

UNITS, WIDTH = 4, 3
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, 5, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, 6, 2)).astype("float32")
MASK = np.arange(6) < np.array([[6], [3]])
WORDS = np.arange(5) < np.array([[2], [5]])

CELLS = {
    "lstm": lambda: keras.layers.LSTMCell(UNITS),
    "gru": lambda: keras.layers.GRUCell(UNITS),
    "simple_rnn": lambda: keras.layers.SimpleRNNCell(UNITS),
    "stack": lambda: [
        keras.layers.LSTMCell(5),
        keras.layers.GRUCell(6),
        keras.layers.LSTMCell(UNITS),
    ],
}


@keras.saving.register_keras_serializable(package="tests")
class Plain(keras.layers.Layer):
    """Any cell, hidden: its states a nest, their names a user's own."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell
        sizes = keras.tree.flatten(cell.state_size)
        self.state_size = [sizes[:1], sizes[1:]]

    @property
    def output_size(self):
        return self.cell.output_size

    def build(self, shape):
        if not self.cell.built:
            self.cell.build(shape)

    def call(self, inputs, states):
        assert len(inputs.shape) == 2, "a cell of Keras's kind sees [batch, n]"
        given = keras.tree.flatten(states)
        nest = keras.layers.RNN(self.cell).state_size
        output, new = self.cell(inputs, keras.tree.pack_sequence_as(nest, given))
        new = keras.tree.flatten(new)
        return output, [new[:1], new[1:]]

    def get_config(self):
        cell = keras.saving.serialize_keras_object(self.cell)
        return {**super().get_config(), "cell": cell}

    @classmethod
    def from_config(cls, config):
        cell = keras.saving.deserialize_keras_object(config["cell"])
        return cls(**{**config, "cell": cell})


def pair(kind, **options):
    """Two decoders with the same weights: the cell's equations; the cell called."""
    cell = CELLS[kind]()
    stack = keras.layers.StackedRNNCells(cell) if isinstance(cell, list) else cell
    hoisted = InputFeedingDecoder(
        AttentionWrapper(cell, LuongAttention("general"), **options)
    )
    called = InputFeedingDecoder(
        AttentionWrapper(
            Plain(type(stack).from_config(stack.get_config())),
            LuongAttention("general"),
            **options,
        )
    )
    for decoder in (hoisted, called):
        decoder(INPUTS, MEMORY, MASK)
    assert hoisted.cell.recurrent.kinds and not called.cell.recurrent.kinds
    called.set_weights(hoisted.get_weights())
    return hoisted, called


OPTIONS = {
    "default": {},
    "not_fed": {"input_feeding": False},
    "small": {
        "attentional_units": 3,
        "attentional_activation": None,
        "attentional_bias": True,
    },
    "context": {"use_attentional_vector": False},
    "h": {"output_attention": False},
}


@pytest.mark.parametrize("options", slow_but(list(OPTIONS), "small"))
@pytest.mark.parametrize("kind", CELLS)
def test_equations_and_calls_of_a_cell_agree(kind, options):
    hoisted, called = pair(kind, **OPTIONS[options])
    results = [
        decoder(
            INPUTS,
            MEMORY,
            MASK,
            mask=WORDS,
            return_attention_scores=True,
            return_state=True,
        )
        for decoder in (hoisted, called)
    ]
    for x, y in zip(*results, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("options", slow_but(["default", "not_fed"], "not_fed"))
@pytest.mark.parametrize("kind", slow_but(list(CELLS), "stack"))
def test_both_ways_have_the_same_gradients(kind, options):
    """In a graph: by the loop that takes the gradients of products out, and not."""
    inputs, memory = tf.constant(INPUTS), tf.constant(MEMORY)

    def gradients(decoder, training):
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            outputs = decoder(inputs, memory, MASK, mask=WORDS, training=training)
            loss = tf.reduce_sum(tf.sin(outputs))
        return loss, tape.gradient(loss, [*decoder.trainable_weights, inputs, memory])

    hoisted, called = pair(kind, **OPTIONS[options])
    expected_loss, expected = gradients(called, training=False)  # eagerly
    for decoder in (hoisted, called):
        loss, found = tf.function(lambda d=decoder: gradients(d, training=True))()
        np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=2e-5)


@pytest.mark.parametrize("cell_type", ["lstm", "gru", "simple_rnn"])
def test_it_equals_the_input_feeding_cell_with_the_same_weights(cell_type):
    ours = InputFeedingDecoderCell(UNITS, LuongAttention("dot"), cell_type=cell_type)
    memory = rng.normal(size=(2, 6, UNITS)).astype("float32")
    expected = InputFeedingDecoder(ours)(INPUTS, memory, MASK)
    cell = CELLS[cell_type]()
    theirs = AttentionWrapper(cell, LuongAttention("dot"))
    theirs.build((None, WIDTH), (None, None, UNITS))
    layer = ours.recurrent.layers[0].cell
    both = [ops.convert_to_numpy(x) for x in (layer.kernel, ours.feeding_kernel)]
    cell.kernel.assign(np.concatenate(both))
    cell.recurrent_kernel.assign(layer.recurrent_kernel)
    cell.bias.assign(layer.bias)
    theirs.attentional_vector.kernel.assign(ours.attentional_vector.kernel)
    found = InputFeedingDecoder(theirs)(INPUTS, memory, MASK)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("kind", ["stack", "gru"])
def test_a_search_steps_as_the_decoder_does(kind, which):
    decoder = pair(kind)[which]
    cell = decoder.cell
    outputs = ops.convert_to_numpy(decoder(INPUTS, MEMORY, MASK))
    prepared = cell.prepare(ops.array(MEMORY), MASK)
    states = cell.initial_states((2, 3))
    for t in range(5):
        x = np.stack([INPUTS[:, 0], INPUTS[:, t], INPUTS[:, -1]], axis=1)
        output, states, weights = cell(x, states, prepared)
        np.testing.assert_allclose(output[:, 1], outputs[:, t], atol=1e-5)
    assert weights.shape == (2, 3, 6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: keras.layers.LSTMCell(UNITS, activation="relu"),
        lambda: keras.layers.GRUCell(UNITS, reset_after=False),
        lambda: keras.layers.LSTMCell(UNITS, use_bias=False),
        lambda: keras.layers.LSTMCell(UNITS, dropout=0.5),
        lambda: [
            keras.layers.LSTMCell(UNITS),
            keras.layers.GRUCell(UNITS, reset_after=False),
        ],
    ],
)
def test_cells_with_other_equations_are_called(make):
    assert not AttentionWrapper(make(), LuongAttention()).recurrent.kinds


class _Other(keras.layers.StackedRNNCells):
    """A stack that may compute something else."""


def test_subclasses_are_called():
    cell = _Other([keras.layers.GRUCell(UNITS)])
    assert not AttentionWrapper(cell, LuongAttention()).recurrent.kinds


def test_without_attention_it_is_kerass_own_rnn():
    cell = keras.layers.GRUCell(UNITS, activation="relu")
    wrapper = AttentionWrapper(cell, None, input_feeding=False)
    found = InputFeedingDecoder(wrapper)(INPUTS, MEMORY, mask=WORDS)
    rnn = keras.layers.RNN(cell, return_sequences=True, zero_output_for_mask=True)
    np.testing.assert_allclose(found, rnn(INPUTS, mask=WORDS), atol=1e-6)


class _FromOnes(keras.layers.SimpleRNNCell):
    def get_initial_state(self, batch_size=None):
        return [ops.ones((batch_size, self.units))]


def test_a_cells_own_first_state_counts():
    cell = AttentionWrapper(_FromOnes(UNITS), LuongAttention())
    cell.build((None, WIDTH), (None, None, 2))
    first, *_ = cell.initial_states((2, 3))
    np.testing.assert_array_equal(first, np.ones((2, 3, UNITS)))
    given, *_ = cell.initial_states((2,), [ops.zeros((2, UNITS))])
    np.testing.assert_array_equal(given, np.zeros((2, UNITS)))


@pytest.mark.parametrize("kind", ["lstm", "stack"])
def test_dropout_of_kerass_cells_is_one_mask_a_sequence_and_for_training(kind):
    """With recurrent weights of zeros, equal words give equal h in training too."""
    cells = [keras.layers.LSTMCell(8, dropout=0.5, seed=1) for _ in range(2)]
    cell = cells[0] if kind == "lstm" else cells
    decoder = InputFeedingDecoder(AttentionWrapper(cell, None, input_feeding=False))
    same = np.repeat(INPUTS[:, :1], 4, axis=1)
    decoder(same, MEMORY)
    for one in cells:
        if one.built:
            one.recurrent_kernel.assign(np.zeros((8, 32)))
            one.bias.assign(np.repeat([0.0, -99.0, 0.0, 0.0], 8))
    calm = decoder(same, MEMORY, training=False)
    runs = [ops.convert_to_numpy(decoder(same, MEMORY, training=True)) for _ in "12"]
    np.testing.assert_allclose(runs[0][:, 0], runs[0][:, -1], atol=1e-6)
    assert np.abs(runs[0] - runs[1]).max() > 1e-6
    assert np.abs(runs[0] - ops.convert_to_numpy(calm)).max() > 1e-6


@pytest.mark.parametrize("kind", ["lstm", "stack", "plain"])
def test_saved_models_compute_the_same(kind, tmp_path):
    cell = Plain(keras.layers.GRUCell(UNITS)) if kind == "plain" else CELLS[kind]()
    wrapper = AttentionWrapper(
        cell, LuongAttention("concat"), 3, output_attention=False, dropout=0.1, seed=3
    )
    again = AttentionWrapper.from_config(wrapper.get_config())
    assert again.get_config() == wrapper.get_config()
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, 2))
    outputs = InputFeedingDecoder(wrapper)(inputs, memory, return_state=True)
    model = keras.Model([inputs, memory], list(outputs))
    model.save(tmp_path / "wrapper.keras")
    loaded = keras.models.load_model(tmp_path / "wrapper.keras")
    batch = [INPUTS, MEMORY]
    for x, y, symbolic in zip(model(batch), loaded(batch), outputs, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
        assert x.shape[1:][-1] == symbolic.shape[-1]


def test_mixed_precision_computes_in_half():
    keras.config.set_dtype_policy("mixed_bfloat16")
    wrapper = AttentionWrapper(CELLS["stack"](), LuongAttention("general"))
    for training in (False, True):
        outputs = InputFeedingDecoder(wrapper)(INPUTS, MEMORY, MASK, training=training)
        assert keras.backend.standardize_dtype(outputs.dtype) == "bfloat16"


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_model_around_a_users_cell_learns():
    encoder = RecurrentEncoder(UNITS, return_state=False)
    wrapper = AttentionWrapper(Plain(keras.layers.LSTMCell(8)), LuongAttention())
    inputs, source = keras.Input((None, WIDTH)), keras.Input((None, 2))
    h_tilde = InputFeedingDecoder(wrapper)(inputs, encoder(source))
    model = keras.Model([inputs, source], keras.layers.Dense(1)(h_tilde))
    model.compile(keras.optimizers.Adam(0.03), "mse")
    targets = MEMORY[:, :5, :1]
    losses = model.fit([INPUTS, MEMORY], targets, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    "cell, message",
    [
        (keras.layers.Dense(3), "Keras cell such as.*Dense"),
        ("lstm", "Keras cell such as.*'lstm'"),
        (None, "Keras cell such as.*None"),
        (keras.layers.LSTM(8), "keras.layers.LSTMCell, say, in the place.*<LSTM name"),
        ([keras.layers.GRU(8)], "keras.layers.LSTMCell, say, in the place.*<GRU name"),
    ],
)
def test_what_is_no_cell_is_named(cell, message):
    with pytest.raises(TypeError, match=message):
        AttentionWrapper(cell, LuongAttention())


def test_a_wrong_number_of_states_is_named():
    wrapper = AttentionWrapper(CELLS["stack"](), LuongAttention())
    wrapper.build((None, WIDTH), (None, None, 2))
    assert wrapper.state_sizes == [5, 5, 6, UNITS, UNITS]
    with pytest.raises(ValueError, match="Expected 5 initial states.*all 7.*: 2"):
        wrapper.initial_states((2,), [np.zeros((2, 5))] * 2)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", checks.KINDS)
@settings(max_examples=3)
@given(
    cell=st.sampled_from(["lstm", "gru"]),
    feeding=st.booleans(),
    masked=st.sets(st.sampled_from(["source", "target"])),
    dtype=st.sampled_from(list(checks.NEAR)),
)
def test_any_attention_under_xla(kind, cell, feeding, masked, dtype):
    def make():
        attention = checks.KINDS[kind]()
        cells = CELLS[cell]()
        return InputFeedingDecoder(
            AttentionWrapper(cells, attention, input_feeding=feeding)
        )

    masks = [
        mask if name in masked else None
        for name, mask in (("source", checks.MASK), ("target", checks.WORDS))
    ]
    checks.check_xla(make, checks.MEMORY, *masks, dtype)
