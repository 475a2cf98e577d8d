import keras
import numpy as np
import pytest
from decoding_attentions import randomized
from keras import ops
from leave_slow import slow_but

from keras_luong.layers import RecurrentEncoder
from keras_luong.layers.cells import CELL_TYPES

LENGTHS = [5, 3, 1]
MASK = np.arange(5) < np.array(LENGTHS)[:, None]
EMBEDDED = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
WAYS = {"forward": {}, "backwards": {"go_backwards": True}}
WAYS |= {"both": {"bidirectional": True}, "first": {"bidirectional": "first"}}


def close(found, expected, atol=1e-5):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=atol)


def read_by_keras(encoder, start=None):
    """Outputs and final states of Keras's own loop around the encoder's cells."""
    x, finals = EMBEDDED, []
    start = iter(start or ())
    count, both = encoder.kind.num_states, encoder.bidirectional is True
    layers = encoder.forward_layers, encoder.backward_layers
    for depth in range(encoder.num_layers):
        level = [(each[depth], i) for i, each in enumerate(layers) if each[depth:]]
        states = [next(start, None) for _ in range(count)]
        outputs, ends = [], []
        for k, (layer, backwards) in enumerate(level):
            options = dict.fromkeys(["return_sequences", "return_state"], True)
            options |= {"zero_output_for_mask": True, "go_backwards": bool(backwards)}
            loop = keras.layers.RNN(layer.cell, **options)
            there = [s for s in states if s is not None]
            own = [s[:, 3 * k : 3 * k + 3] if both else s for s in there]
            if len(level) == 2 and not both and not backwards:
                own = []  # of the first layer alone its backward direction has states
            y, *end = loop(x, mask=MASK, initial_state=own or None)
            outputs.append(ops.flip(y, 1) if backwards else y)
            ends.append(end)
        below, x = x, ops.concatenate(outputs, -1)
        if encoder.residual and depth and below.shape[-1] == x.shape[-1]:
            x = x + below
        ends = ends if both else ends[-1:]
        finals += [ops.concatenate(pair, -1) for pair in zip(*ends, strict=True)]
    return x, *finals


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cell_type", slow_but(CELL_TYPES, "lstm"))
def test_it_equals_kerass_own_loops(cell_type, way):
    """From zeros and from given states; residual where sizes are the same."""
    options = {"cell_type": cell_type, "residual": True, **WAYS[way]}
    layers = 3 if way == "first" else 2  # until one may be residual
    encoder = RecurrentEncoder(3, layers, **options)
    memory, *zeros = encoder(EMBEDDED, mask=MASK)
    randomized(encoder)
    random = np.random.default_rng(2)
    start = [random.normal(size=s.shape).astype("float32") for s in zeros]
    for given in (None, start):
        found = encoder(EMBEDDED, mask=MASK, initial_state=given)
        close(found, read_by_keras(encoder, given))
    shapes = [tuple(x.shape) for x in (memory, *zeros)]
    fresh = RecurrentEncoder(3, layers, **options)
    assert [*fresh.compute_output_shape((3, 5, 4))] == shapes
    spec = encoder.compute_output_spec(keras.KerasTensor((3, 5, 4)))
    assert [tuple(x.shape) for x in spec] == shapes
    assert [x[-1] for x in shapes[1:]] == encoder.state_sizes
    config = {**encoder.get_config(), "return_state": False}
    alone = RecurrentEncoder.from_config(config)
    assert alone.compute_output_shape((3, 5, 4)) == shapes[0]
    alone.build((None, None, 4))
    alone.set_weights(encoder.get_weights())
    close([alone(EMBEDDED, mask=MASK)], encoder(EMBEDDED, mask=MASK)[:1])


@pytest.mark.parametrize("way", WAYS)
def test_a_sentence_does_not_see_its_padding(way):
    encoder = RecurrentEncoder(6, 2, **WAYS[way])
    memory, *states = encoder(EMBEDDED, mask=MASK)
    for i, length in enumerate(LENGTHS):
        alone, *alone_states = encoder(EMBEDDED[i : i + 1, :length])
        close([memory[i, :length]], alone, 1e-6)
        np.testing.assert_array_equal(memory[i, length:], 0)
        close([s[i] for s in states], [s[0] for s in alone_states], 1e-6)


def test_an_empty_row_is_zeros():
    for x in RecurrentEncoder(6, bidirectional=True)(EMBEDDED, mask=0 * MASK):
        np.testing.assert_array_equal(x, 0)


def test_a_long_source_can_be_read_in_parts():
    encoder = RecurrentEncoder(3, num_layers=2)
    whole, *ends = encoder(EMBEDDED)
    _, *states = encoder(EMBEDDED[:, :2])
    rest, *finals = encoder(EMBEDDED[:, 2:], initial_state=states)
    close([rest, *finals], [whole[:, 2:], *ends], 1e-6)


def recorded(monkeypatch):
    """The dropout multipliers that are drawn from now on."""
    draw, drawn = keras.random.dropout, []

    def record(*arguments, **options):
        drawn.append(np.asarray(draw(*arguments, **options)))
        return ops.convert_to_tensor(drawn[-1])

    monkeypatch.setattr(keras.random, "dropout", record)
    return drawn


def test_dropout_is_for_training_and_one_mask_a_sequence(monkeypatch):
    """Once for all steps, of what enters each layer: as of the inputs themselves."""
    encoder = RecurrentEncoder(50, 2, dropout=0.5, seed=1)
    plain = RecurrentEncoder(50)
    drawn = recorded(monkeypatch)
    expected = encoder(EMBEDDED, mask=MASK)
    close(encoder(EMBEDDED, mask=MASK, training=False), expected, 0)
    assert not drawn
    trained = encoder(EMBEDDED, mask=MASK, training=True)[0]
    first, second = drawn
    assert first.shape == (1, 3, 4) and second.shape == (1, 3, 50)
    assert (second[0, 0] != second[0, 1]).any()
    assert set(np.unique(second)) == {0, 2} and 0.8 < second.mean() < 1.2
    x = EMBEDDED
    for layer, noise in zip(encoder.forward_layers, drawn, strict=True):
        x = x * noise.swapaxes(0, 1)
        plain = RecurrentEncoder(50, return_state=False)
        plain.build(x.shape)
        plain.set_weights(layer.get_weights())
        x = plain(x, mask=MASK)
    close([trained], [x])


@pytest.mark.parametrize("cell_type", slow_but(CELL_TYPES, "gru", "layer_norm_lstm"))
def test_recurrent_dropout_is_one_mask_a_sentence_and_direction(cell_type, monkeypatch):
    """As if each sentence had a recurrent kernel of its own, some rows of it zero."""
    options = {"bidirectional": True, "cell_type": cell_type, "recurrent_dropout": 0.5}
    config = RecurrentEncoder(6, seed=1, **options).get_config()
    encoder = RecurrentEncoder.from_config(config)
    drawn = recorded(monkeypatch)
    encoder(EMBEDDED)
    trained = np.asarray(encoder(EMBEDDED, mask=MASK, training=True)[0])
    assert [noise.shape for noise in drawn] == [(3, 6)] * 2  # once for all steps
    assert (drawn[0][0] != drawn[0][1]).any() and (drawn[0] != drawn[1]).any()
    layers = encoder.forward_layers[0], encoder.backward_layers[0]
    kernels = [layer.cell.recurrent_kernel.numpy() for layer in layers]
    for i in range(3):
        for layer, kernel, noise in zip(layers, kernels, drawn, strict=True):
            layer.cell.recurrent_kernel.assign(kernel * noise[i][:, None])
        expected = encoder(EMBEDDED, mask=MASK)[0]
        np.testing.assert_allclose(trained[i], expected[i], atol=1e-5)


def test_documents_of_sentences_are_read_a_sentence_at_a_time():
    encoder = RecurrentEncoder(3, 2, bidirectional=True, return_state=False)
    inputs = keras.Input((None, 5, 4))
    model = keras.Model(inputs, keras.layers.TimeDistributed(encoder)(inputs))
    assert model.output_shape == (None, None, 5, 6)
    expected = np.stack([encoder(EMBEDDED), encoder(-EMBEDDED)], 1)
    close([model(np.stack([EMBEDDED, -EMBEDDED], 1))], [expected], 1e-6)


def test_the_implicit_mask_counts_beside_initial_states():
    ids = np.array([[1, 2, 0], [3, 4, 5]])
    embedded = keras.layers.Embedding(6, 4, mask_zero=True)(ids)
    encoder, zeros = RecurrentEncoder(3), [np.zeros((2, 3), "float32")] * 2
    found = encoder(embedded, initial_state=zeros)
    close(found, encoder(np.asarray(embedded), mask=ids != 0), 1e-6)
