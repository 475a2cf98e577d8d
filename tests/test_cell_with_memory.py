"""A decoder cell in `keras.layers.RNN`: the same as in `InputFeedingDecoder`."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import (
    AttentionWrapper,
    CellWithMemory,
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LuongAttention,
    MonotonicAttention,
    MultiHeadLuongAttention,
)
from keras_luong.models.cho import ChoDecoderCell

UNITS, WIDTH, MEMORY_UNITS = 4, 3, 2
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, 5, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, 6, MEMORY_UNITS)).astype("float32")
MASK = np.arange(6) < np.array([[6], [3]])
WORDS = np.arange(5) < np.array([[2], [5]])
RECURRENT = [rng.normal(size=(2, UNITS)).astype("float32") for _ in "hc"]

CELLS = {
    "ours": lambda: InputFeedingDecoderCell(UNITS, LuongAttention("general")),
    "heads": lambda: InputFeedingDecoderCell(UNITS, MultiHeadLuongAttention(2)),
    "wrapper": lambda: AttentionWrapper(
        keras.layers.LSTMCell(UNITS), MonotonicAttention("general")
    ),
}


@pytest.fixture(params=CELLS)
def both(request):
    """A decoder, and the cell of a `keras.layers.RNN` with the same weights."""
    cell = CELLS[request.param]()
    return InputFeedingDecoder(cell), CellWithMemory(cell, MEMORY_UNITS)


def run(cell, inputs=INPUTS, mask=None, training=False, **options):
    states = cell.first_states(MEMORY, MASK, RECURRENT)
    options = {"zero_output_for_mask": True, **options}
    rnn = keras.layers.RNN(cell, **options)
    return rnn(inputs, initial_state=states, mask=mask, training=training)


@pytest.mark.parametrize("unroll", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.parametrize("mask", [pytest.param(None, marks=pytest.mark.slow), WORDS])
def test_sequences_states_and_masks(both, mask, unroll):
    decoder, cell = both
    if unroll and mask is not None and keras.backend.backend() == "jax":
        pytest.skip("There Keras ignores zero_output_for_mask where it unrolls")
    expected, *finals = decoder(
        INPUTS, MEMORY, MASK, mask=mask, initial_state=RECURRENT, return_state=True
    )
    options = {"return_sequences": True, "return_state": True, "unroll": unroll}
    found, *states = run(cell, mask=mask, **options)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for state, final in zip(states, finals, strict=False):
        np.testing.assert_allclose(state, final, atol=1e-5)
    # What is carried along besides is the memory, as it was.
    first = cell.first_states(MEMORY, MASK, RECURRENT)
    for state, given in zip(states[len(finals) :], first[len(finals) :], strict=True):
        np.testing.assert_array_equal(state, given)


@pytest.mark.parametrize("training", [True, False])
def test_the_last_output_alone(both, training):
    decoder, cell = both
    expected = decoder(INPUTS, MEMORY, MASK, initial_state=RECURRENT)
    found = run(cell, training=training)
    np.testing.assert_allclose(found, expected[:, -1], atol=1e-5)
    assert found.shape == (2, cell.output_size)


def test_from_the_end_to_the_beginning(both):
    decoder, cell = both
    turned = INPUTS[:, ::-1].copy()
    expected = decoder(turned, MEMORY, MASK, initial_state=RECURRENT)
    found = run(cell, go_backwards=True, return_sequences=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_sequence_can_go_on_with_the_states_of_its_beginning(both):
    _, cell = both
    whole = run(cell, return_sequences=True)
    _, *states = run(cell, INPUTS[:, :2], return_state=True)
    rest = keras.layers.RNN(cell, return_sequences=True)(
        INPUTS[:, 2:], initial_state=states
    )
    np.testing.assert_allclose(rest, whole[:, 2:], atol=1e-5)


def test_functional_models_are_saved(both, tmp_path):
    _, cell = both
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, MEMORY_UNITS))
    mask, words = [keras.Input((None,), dtype="bool") for _ in "12"]
    states = cell.first_states(memory, mask)
    rnn = keras.layers.RNN(cell, return_state=True)
    results = rnn(inputs, initial_state=states, mask=words)
    model = keras.Model([inputs, memory, mask, words], results)
    assert results[0].shape == (None, UNITS)
    model.save(tmp_path / "rnn.keras")
    loaded = keras.models.load_model(tmp_path / "rnn.keras")
    batch = [INPUTS, MEMORY, MASK, WORDS]
    flat = [keras.tree.flatten(m(batch)) for m in (model, loaded)]
    for x, y, like in zip(*flat, keras.tree.flatten(results), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
        assert len(x.shape) == len(like.shape)
        assert like.shape[-1] in (None, x.shape[-1])


@pytest.mark.slow
@pytest.mark.tensorflow
def test_a_model_with_it_learns():
    inputs, memory = keras.Input((5, WIDTH)), keras.Input((None, MEMORY_UNITS))
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    last = keras.layers.RNN(cell)(inputs, initial_state=cell.first_states(memory))
    model = keras.Model([inputs, memory], keras.layers.Dense(1)(last))
    model.compile(keras.optimizers.Adam(0.03), "mse")
    targets = MEMORY[:, 0, :1]
    losses = model.fit([INPUTS, MEMORY], targets, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.2 * losses[0]


def test_in_half_precision_positions_are_counted_all_the_same():
    keras.config.set_dtype_policy("mixed_bfloat16")
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, MEMORY_UNITS))
    rnn = keras.layers.RNN(cell, return_state=True, dtype="float32")
    _, *states = rnn(inputs, initial_state=cell.first_states(memory))
    model = keras.Model([inputs, memory], states[3])
    long = np.zeros((2, 300, WIDTH), "float32")
    position = model.predict([long, MEMORY], verbose=0)
    np.testing.assert_array_equal(position, [[300], [300]])


def test_the_implicit_mask_of_the_memory_counts():
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    ids = np.array([[1, 2, 3], [4, 0, 0]])
    memory = keras.layers.Embedding(5, MEMORY_UNITS, mask_zero=True)(ids)
    found = cell.first_states(memory, recurrent=RECURRENT)
    expected = cell.first_states(np.asarray(memory), ids != 0, RECURRENT)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("stateful", [True, False])
def test_without_a_memory_it_says_what_to_do(stateful):
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    with pytest.raises(ValueError, match="first_states.*not with stateful=True"):
        keras.layers.RNN(cell, stateful=stateful)(INPUTS)


def test_a_cell_that_prepares_with_weights_of_its_own_is_built_first():
    cell = ChoDecoderCell(UNITS, cell_type="gru")
    with pytest.raises(ValueError, match="ChoDecoderCell needs.*cell.build"):
        keras.layers.RNN(CellWithMemory(cell, MEMORY_UNITS))
    expected = InputFeedingDecoder(cell)(INPUTS, MEMORY, MASK)
    wrapped = CellWithMemory(cell, MEMORY_UNITS)
    states = wrapped.first_states(MEMORY, MASK)
    found = keras.layers.RNN(wrapped)(INPUTS, initial_state=states)
    np.testing.assert_allclose(found, expected[:, -1], atol=1e-6)


def test_config_round_trip():
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    again = CellWithMemory.from_config(cell.get_config())
    assert again.get_config() == cell.get_config()


def test_a_cell_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="DecoderCell.*LSTMCell"):
        CellWithMemory(keras.layers.LSTMCell(3), MEMORY_UNITS)


def test_the_memory_is_a_state_of_two_axes():
    cell = CellWithMemory(CELLS["ours"](), MEMORY_UNITS)
    assert [len(ops.shape(x)) for x in cell.first_states(MEMORY)] == [2] * 8
