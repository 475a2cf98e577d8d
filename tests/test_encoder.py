import keras
import numpy as np
import pytest
from keras import ops

from keras_luong.layers import RecurrentEncoder
from keras_luong.layers.cells import CELL_TYPES

LENGTHS = [5, 3, 1]
MASK = np.arange(5) < np.array(LENGTHS)[:, None]
KERAS_LAYERS = {
    "lstm": keras.layers.LSTM,
    "gru": keras.layers.GRU,
    "simple_rnn": keras.layers.SimpleRNN,
}


def embedded(seed=0, length=5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(3, length, 4)).astype("float32")


@pytest.mark.parametrize("cell_type", ["lstm", "gru", "simple_rnn"])
@pytest.mark.parametrize("backwards", [False, True])
def test_one_layer_equals_kerass_own(cell_type, backwards):
    encoder = RecurrentEncoder(6, cell_type=cell_type, go_backwards=backwards)
    memory, *states = encoder(embedded(), mask=MASK)
    layer = KERAS_LAYERS[cell_type](
        6,
        return_sequences=True,
        return_state=True,
        zero_output_for_mask=True,
        go_backwards=backwards,
    )
    layer.build((None, None, 4))
    layer.set_weights(encoder.get_weights())
    expected, *finals = layer(embedded(), mask=MASK)
    if backwards:
        expected = ops.flip(expected, 1)
    np.testing.assert_allclose(memory, expected, atol=1e-5)
    for state, final in zip(states, finals, strict=True):
        np.testing.assert_allclose(state, final, atol=1e-5)


@pytest.mark.parametrize("cell_type", ["lstm", "gru", "simple_rnn"])
def test_stacked_bidirectional_equals_kerass_own(cell_type):
    encoder = RecurrentEncoder(3, 2, bidirectional=True, cell_type=cell_type)
    memory, *states = encoder(embedded(), mask=MASK)
    x, finals = embedded(), []
    for forward, backward in zip(
        encoder.forward_layers, encoder.backward_layers, strict=True
    ):
        make = KERAS_LAYERS[cell_type]
        layer = keras.layers.Bidirectional(
            make(3, return_sequences=True, return_state=True, zero_output_for_mask=True)
        )
        layer.build((None, None, x.shape[-1]))
        layer.set_weights(forward.get_weights() + backward.get_weights())
        x, *both = layer(x, mask=MASK)
        half = len(both) // 2
        pairs = zip(both[:half], both[half:], strict=True)
        finals += [np.concatenate(pair, -1) for pair in pairs]
    np.testing.assert_allclose(memory, x, atol=1e-5)
    assert len(states) == len(finals)
    for state, final in zip(states, finals, strict=True):
        np.testing.assert_allclose(state, final, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"bidirectional": True}, {"go_backwards": True}]
)
def test_a_sentence_does_not_see_its_padding(options):
    encoder = RecurrentEncoder(6, 2, **options)
    memory, *states = encoder(embedded(), mask=MASK)
    for i, length in enumerate(LENGTHS):
        alone, *alone_states = encoder(embedded()[i : i + 1, :length])
        np.testing.assert_allclose(memory[i, :length], alone[0], atol=1e-6)
        np.testing.assert_array_equal(memory[i, length:], 0)
        for state, alone_state in zip(states, alone_states, strict=True):
            np.testing.assert_allclose(state[i], alone_state[0], atol=1e-6)


def test_an_empty_row_is_zeros():
    encoder = RecurrentEncoder(6, bidirectional=True)
    memory, *states = encoder(embedded(), mask=np.zeros((3, 5), bool))
    for x in (memory, *states):
        np.testing.assert_array_equal(x, 0)


def test_dropout_is_for_training_and_one_mask_a_sequence(monkeypatch):
    encoder = RecurrentEncoder(200, dropout=0.5, seed=1)
    x = np.ones((1, 3, 4), "float32")
    np.testing.assert_array_equal(encoder(x)[0], encoder(x, training=False)[0])
    assert np.abs(encoder(x, training=True)[0] - encoder(x)[0]).max() > 1e-3
    recurrent = RecurrentEncoder(200, recurrent_dropout=0.5, seed=1)
    np.testing.assert_array_equal(recurrent(x)[0], recurrent(x, training=False)[0])
    trained, expected = recurrent(x, training=True)[0], recurrent(x)[0]
    np.testing.assert_allclose(trained[:, 0], expected[:, 0], atol=1e-6)  # from zeros
    assert np.abs(trained - expected)[:, 1].max() > 1e-3
    read = []

    def scan_layer(layer, x, *args, **kwargs):
        read.append(x)
        return RecurrentEncoder.scan_layer(encoder, layer, x, *args, **kwargs)

    encoder = RecurrentEncoder(3, dropout=0.5, seed=1)
    monkeypatch.setattr(encoder, "scan_layer", scan_layer)
    encoder(np.ones((2, 4, 500), "float32"), training=True)
    dropped = np.asarray(read[0])  # [T, B, n]
    np.testing.assert_array_equal(dropped[0], dropped[-1])
    assert (dropped[:, 0] != dropped[:, 1]).any()
    assert set(np.unique(dropped)) == {0, 2} and 0.9 < dropped.mean() < 1.1


@pytest.mark.parametrize("cell_type", CELL_TYPES)
def test_recurrent_dropout_is_one_mask_a_sentence_and_direction(cell_type, monkeypatch):
    """As if each sentence had a recurrent kernel of its own, some rows of it zero."""
    options = {"bidirectional": True, "cell_type": cell_type, "recurrent_dropout": 0.5}
    config = RecurrentEncoder(6, seed=1, **options).get_config()
    encoder = RecurrentEncoder.from_config(config)
    draw, drawn = keras.random.dropout, []

    def record(*arguments, **options):
        drawn.append(np.asarray(draw(*arguments, **options)))
        return ops.convert_to_tensor(drawn[-1])

    monkeypatch.setattr(keras.random, "dropout", record)
    encoder(embedded())
    trained = np.asarray(encoder(embedded(), mask=MASK, training=True)[0])
    assert [noise.shape for noise in drawn] == [(3, 6)] * 2  # once for all steps
    assert (drawn[0][0] != drawn[0][1]).any() and (drawn[0] != drawn[1]).any()
    layers = encoder.forward_layers[0], encoder.backward_layers[0]
    kernels = [layer.cell.recurrent_kernel.numpy() for layer in layers]
    for i in range(3):
        for layer, kernel, noise in zip(layers, kernels, drawn, strict=True):
            layer.cell.recurrent_kernel.assign(kernel * noise[i][:, None])
        expected = encoder(embedded(), mask=MASK)[0]
        np.testing.assert_allclose(trained[i], expected[i], atol=1e-5)


def test_recurrent_dropout_does_not_pile_up():
    """However long a sentence: what a GRU carries from step to step stays below 1."""
    encoder = RecurrentEncoder(8, cell_type="gru", recurrent_dropout=0.5, seed=1)
    x = np.random.default_rng(0).normal(size=(2, 60, 4)).astype("float32")
    encoder.build(x.shape)
    cell = encoder.forward_layers[0].cell  # that keeps nearly all
    cell.bias.assign(np.repeat([[3.0, 0, 0], [0, 0, 0]], 8, -1))
    assert np.abs(encoder(x, training=True)[0]).max() <= 1


@pytest.mark.parametrize("bidirectional", [False, True])
def test_saved_and_cloned_models_compute_the_same(bidirectional, tmp_path):
    inputs, mask = keras.Input((None, 4)), keras.Input((None,), dtype="bool")
    encoder = RecurrentEncoder(3, 2, bidirectional=bidirectional)
    model = keras.Model([inputs, mask], list(encoder(inputs, mask=mask)))
    model.save(tmp_path / "encoder.keras")
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for other in (keras.models.load_model(tmp_path / "encoder.keras"), cloned):
        pairs = zip(other([embedded(), MASK]), model([embedded(), MASK]), strict=True)
        for x, y in pairs:
            np.testing.assert_allclose(x, y, atol=1e-6)


def test_output_specs_are_what_call_gives():
    encoder = RecurrentEncoder(3, 2, bidirectional=True, cell_type="gru")
    specs = encoder.compute_output_spec(keras.KerasTensor((3, 5, 4)))
    results = encoder(embedded())
    assert [s.shape for s in specs] == [tuple(r.shape) for r in results]


def test_mixed_precision_computes_in_half():
    memory, *_ = RecurrentEncoder(3, dtype="mixed_bfloat16")(embedded(), mask=MASK)
    assert keras.backend.standardize_dtype(memory.dtype) == "bfloat16"


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"units": 0}, "units.*0"),
        ({"units": 3, "num_layers": 0}, "num_layers.*0"),
        ({"units": 3, "cell_type": "rwkv"}, "rwkv"),
        ({"units": 3, "dropout": -0.1}, "-0.1"),
        ({"units": 3, "recurrent_dropout": 1.0}, "recurrent_dropout.*1.0"),
        ({"units": 3, "bidirectional": True, "go_backwards": True}, "go_backwards"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        RecurrentEncoder(**arguments)


def test_gnmts_encoder_equals_kerass_own():
    """Both ways at the bottom, forward above, residual from the third on."""
    encoder = RecurrentEncoder(4, 4, bidirectional="first", residual=True)
    memory, *states = encoder(embedded(), mask=MASK)
    options = {"return_sequences": True, "return_state": True}
    options["zero_output_for_mask"] = True

    def run(layer, x, **more):
        own = keras.layers.LSTM(4, **options, **more)
        own.build((None, None, x.shape[-1]))
        own.set_weights(layer.get_weights())
        return own(x, mask=MASK)

    f = run(encoder.forward_layers[0], embedded())
    b = run(encoder.backward_layers[0], embedded(), go_backwards=True)
    # Keras gives a reversed layer's outputs in its own order, padding first.
    x = ops.concatenate([f[0], ops.flip(b[0], 1)], -1)
    expected = [*b[1:]]
    for i, layer in enumerate(encoder.forward_layers[1:], 1):
        y, *final = run(layer, x)
        x = y + x if i > 1 else y
        expected += final
    np.testing.assert_allclose(memory, x, atol=1e-5)
    for state, want in zip(states, expected, strict=True):
        np.testing.assert_allclose(state, want, atol=1e-5)
    spec = encoder.compute_output_spec(keras.KerasTensor((3, 5, 4)))
    assert [s.shape for s in spec] == [tuple(s.shape) for s in (memory, *states)]


@pytest.mark.parametrize(
    "inputs, mask, message",
    [
        (np.ones((3, 4)), None, r"inputs must have 3 axes.*\(3, 4\)"),
        (np.ones((3, 5, 9)), None, r"Axis 2 of inputs must be 4.*\(3, 5, 9\)"),
        (np.ones((3, 0, 4)), None, "length of at least 1"),
        (np.ones((3, 5, 4)), MASK[:, :4], "Source length.*inputs: 5, mask: 4"),
        (np.ones((3, 5, 4)), MASK[:2], "Batch size.*inputs: 3, mask: 2"),
    ],
)
def test_shapes_that_do_not_fit_are_named(inputs, mask, message):
    encoder = RecurrentEncoder(6)
    encoder(embedded())
    with pytest.raises(ValueError, match=message):
        encoder(inputs, mask=mask)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell_type", ["lstm", "gru"])
def test_reading_can_start_from_states(cell_type, bidirectional):
    """Equals Keras's own layers, given the same states."""
    encoder = RecurrentEncoder(3, 1, bidirectional, cell_type)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    mask = np.arange(5) < np.array([[5], [2]])
    _, *zeros = encoder(x, mask=mask)
    rng = np.random.default_rng(1)
    states = [rng.normal(size=s.shape).astype("float32") for s in zeros]
    found, *finals = encoder(x, mask=mask, initial_state=states)
    outputs, ends = [], []
    for i, layer in enumerate(encoder.forward_layers + encoder.backward_layers):
        cell = layer.cell
        own = keras.layers.RNN(
            cell,
            return_sequences=True,
            return_state=True,
            go_backwards=bool(i),
            zero_output_for_mask=True,
        )
        start = [s[:, 3 * i : 3 * i + 3] for s in states]
        y, *end = own(x, initial_state=start, mask=mask)
        outputs.append(np.asarray(y)[:, ::-1] if i else np.asarray(y))
        ends.append(end)
    np.testing.assert_allclose(found, np.concatenate(outputs, -1), atol=1e-6)
    for final, parts in zip(finals, zip(*ends, strict=True), strict=True):
        np.testing.assert_allclose(final, np.concatenate(parts, -1), atol=1e-6)


def test_a_long_source_can_be_read_in_parts():
    encoder = RecurrentEncoder(3, num_layers=2)
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    whole, *ends = encoder(x)
    _, *states = encoder(x[:, :2])
    rest, *finals = encoder(x[:, 2:], initial_state=states)
    np.testing.assert_allclose(rest, whole[:, 2:], atol=1e-6)
    for final, end in zip(finals, ends, strict=True):
        np.testing.assert_allclose(final, end, atol=1e-6)


def test_the_first_layers_states_are_those_of_its_backward_direction():
    encoder = RecurrentEncoder(3, 2, bidirectional="first", cell_type="gru")
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype("float32")
    _, *zeros = encoder(x)
    np.testing.assert_allclose(
        encoder(x)[0],
        encoder(x, initial_state=[np.zeros(s.shape, "float32") for s in zeros])[0],
        atol=1e-6,
    )
    ones = [np.ones(s.shape, "float32") for s in zeros]
    below = encoder.backward_layers[0].cell
    rnn = keras.layers.RNN(below, go_backwards=True)
    _, first, _ = encoder(x, initial_state=ones)
    np.testing.assert_allclose(first, rnn(x, initial_state=ones[:1]), atol=1e-6)


@pytest.mark.parametrize(
    "states, message",
    [
        ([(2, 3)], "Expected 2 initial states.*lstm.*Received: 1"),
        ([(2, 5)] * 2, r"Axis 1 of initial_state\[0\] must be 3"),
        ([(1, 3)] * 2, "Batch size must be the same"),
    ],
)
@pytest.mark.parametrize("symbolic", [False, True])
def test_initial_states_that_do_not_fit_are_named(states, message, symbolic):
    encoder = RecurrentEncoder(3)
    make = keras.KerasTensor if symbolic else np.zeros
    with pytest.raises(ValueError, match=message):
        encoder(make((2, 5, 4)), initial_state=[make(shape) for shape in states])


@pytest.mark.parametrize(
    "shape, mask, message",
    [
        ((2, 5, 7), None, "Axis 2 of inputs must be 4"),
        ((2, 4), None, "inputs must have 3 axes"),
        ((2, 5, 4), (2, 6), "Source length must be the same"),
    ],
)
def test_l1_symbolic_shapes_are_checked(shape, mask, message):
    encoder = RecurrentEncoder(3)
    encoder.build((None, None, 4))
    mask = mask and keras.KerasTensor(mask, "bool")
    with pytest.raises(ValueError, match=message):
        encoder(keras.KerasTensor(shape), mask=mask)
    with pytest.raises(TypeError, match="floating.*int32"):
        encoder(keras.KerasTensor((2, 5, 4), "int32"))


@pytest.mark.tensorflow
def test_l9_variables_are_read():
    import tensorflow as tf

    encoder = RecurrentEncoder(3)
    x = np.random.default_rng(0).normal(size=(2, 5, 4)).astype("float32")
    np.testing.assert_array_equal(encoder(tf.Variable(x))[0], encoder(x)[0])
    np.testing.assert_array_equal(encoder(keras.Variable(x))[0], encoder(x)[0])


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_l11_output_shapes_are_known(options):
    encoder = RecurrentEncoder(3, **options)
    shapes = encoder.compute_output_shape((2, 5, 4))
    assert [*shapes] == [tuple(x.shape) for x in encoder(np.zeros((2, 5, 4)))]
    alone = RecurrentEncoder(3, return_state=False, **options)
    assert alone.compute_output_shape((2, 5, 4)) == shapes[0]


@pytest.mark.parametrize("length", [3, None])
def test_l11_it_works_at_every_time_step(length, tmp_path):
    """Documents of sentences: each sentence is read alone."""
    encoder = RecurrentEncoder(3, bidirectional=True, return_state=False)
    inputs = keras.Input((length, 5, 4))
    model = keras.Model(inputs, keras.layers.TimeDistributed(encoder)(inputs))
    assert model.output_shape == (None, length, 5, 6)
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype("float32")
    each = [encoder(x[:, i]) for i in range(3)]
    np.testing.assert_allclose(model(x), np.stack(each, 1), atol=1e-6)
    model.save(tmp_path / "documents.keras")
    loaded = keras.models.load_model(tmp_path / "documents.keras")
    np.testing.assert_allclose(loaded(x), model(x), atol=1e-6)


def test_the_implicit_mask_counts_beside_initial_states():
    ids = np.array([[1, 2, 0], [3, 4, 5]])
    embedded = keras.layers.Embedding(6, 4, mask_zero=True)(ids)
    encoder = RecurrentEncoder(3)
    zeros = [np.zeros((2, 3), "float32")] * 2
    _, h, _ = encoder(embedded, initial_state=zeros)
    _, expected, _ = encoder(np.asarray(embedded), mask=ids != 0)
    np.testing.assert_allclose(h, expected, atol=1e-6)


@pytest.mark.tensorflow
def test_a_ragged_source_is_refused_with_what_to_do():
    import tensorflow as tf

    ragged = tf.RaggedTensor.from_row_lengths(np.ones((3, 4), "float32"), [2, 1])
    with pytest.raises(TypeError, match=r"inputs is ragged.*to_tensor\(\).*mask"):
        RecurrentEncoder(3)(ragged)
