import keras
import numpy as np
import pytest
import tensorflow as tf
from finite_differences import check_gradients
from keras import ops
from leave_slow import slow_but

from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LuongAttention,
    MultiSourceAttention,
    RecurrentEncoder,
)
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.scores import SCORES

UNITS, WIDTH, POSITIONS, STEPS = 4, 3, 5, 6
SOURCE_MASK = np.arange(POSITIONS) < np.array([[5], [3]])


def data(seed=0, steps=STEPS):
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(2, steps, WIDTH)).astype("float32")
    memory = rng.normal(size=(2, POSITIONS, UNITS)).astype("float32")
    return inputs, memory


def make(mode="general", **options):
    attention = mode and LuongAttention(mode, max_source_length=8)
    return InputFeedingDecoder(InputFeedingDecoderCell(UNITS, attention, **options))


def stepped(decoder, inputs, memory, initial=None):
    """The decoder's outputs and weights, one `cell` call at a time."""
    cell = decoder.cell
    prepared = cell.prepare(ops.array(memory), SOURCE_MASK)
    initial = initial and [s[:, None] for s in initial]
    states = cell.initial_states((2, 1), initial, prepared)
    outputs, weights = [], []
    for t in range(inputs.shape[1]):
        h_tilde, states, a = cell(inputs[:, t : t + 1], states, prepared)
        outputs.append(h_tilde[:, 0])
        weights.append(a[:, 0])
    return np.stack(outputs, 1), np.stack(weights, 1), [s[:, 0] for s in states]


@pytest.mark.parametrize(
    "cell_type, num_layers",
    [
        ("lstm", 3),
        pytest.param("lstm", 1, marks=pytest.mark.slow),
        ("gru", 1),
        pytest.param("gru", 3, marks=pytest.mark.slow),
        pytest.param("simple_rnn", 1, marks=pytest.mark.slow),
        pytest.param("simple_rnn", 3, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("mode", slow_but([*SCORES, None], "concat", "location", None))
def test_stepping_equals_teacher_forcing(mode, input_feeding, cell_type, num_layers):
    decoder = make(
        mode, input_feeding=input_feeding, cell_type=cell_type, num_layers=num_layers
    )
    inputs, memory = data()
    forced, weights, *states = decoder(
        inputs, memory, SOURCE_MASK, return_state=True, return_attention_scores=True
    )
    outputs, alignments, finals = stepped(decoder, inputs, memory)
    np.testing.assert_allclose(forced, outputs, atol=1e-5)
    np.testing.assert_allclose(weights, alignments, atol=1e-5)
    for state, final in zip(states, finals, strict=True):
        np.testing.assert_allclose(state, final, atol=1e-5)
    # And a sentence alone is the same as in a batch.
    alone = decoder(inputs[1:], memory[1:], SOURCE_MASK[1:])
    np.testing.assert_allclose(alone, forced[1:], atol=1e-5)


def test_encoder_states_start_the_decoder():
    encoder = RecurrentEncoder(UNITS // 2, 2, bidirectional=True)
    memory, *initial = encoder(data()[0], mask=np.ones((2, STEPS), bool))
    memory = ops.convert_to_numpy(memory)[:, :POSITIONS]
    decoder = make(num_layers=2)
    inputs = data(1)[0]
    outputs = decoder(inputs, memory, SOURCE_MASK, initial_state=initial)
    expected, _, _ = stepped(decoder, inputs, memory, initial)
    np.testing.assert_allclose(outputs, expected, atol=1e-5)
    assert np.abs(outputs - decoder(inputs, memory, SOURCE_MASK)).max() > 1e-3


@pytest.mark.parametrize("input_feeding", [True, False])
def test_decoding_can_go_on_where_it_stopped(input_feeding):
    decoder = make(input_feeding=input_feeding)
    inputs, memory = data()
    whole = decoder(inputs, memory, SOURCE_MASK)
    first, *states = decoder(inputs[:, :2], memory, SOURCE_MASK, return_state=True)
    second = decoder(inputs[:, 2:], memory, SOURCE_MASK, initial_state=states)
    np.testing.assert_allclose(np.concatenate([first, second], 1), whole, atol=1e-5)


@pytest.mark.parametrize("input_feeding", [True, False])
def test_masked_steps_keep_states_and_give_zeros(input_feeding):
    decoder = make(input_feeding=input_feeding)
    inputs, memory = data()
    mask = np.array([[True] * STEPS, [True] * 2 + [False] * (STEPS - 2)])
    outputs, weights, *states = decoder(
        inputs,
        memory,
        SOURCE_MASK,
        mask=mask,
        return_state=True,
        return_attention_scores=True,
    )
    alone, *alone_states = decoder(
        inputs[1:, :2], memory[1:], SOURCE_MASK[1:], return_state=True
    )
    np.testing.assert_allclose(outputs[1:, :2], alone, atol=1e-5)
    np.testing.assert_array_equal(outputs[1, 2:], 0)
    np.testing.assert_array_equal(weights[1, 2:], 0)
    for state, expected in zip(states, alone_states, strict=True):
        np.testing.assert_allclose(state[1:], expected, atol=1e-5)


def test_source_padding_never_changes_anything():
    decoder = make("concat")
    inputs, memory = data()
    outputs = decoder(inputs, memory, SOURCE_MASK)
    junk = np.where(SOURCE_MASK[..., None], memory, 1e3).astype("float32")
    np.testing.assert_allclose(decoder(inputs, junk, SOURCE_MASK), outputs, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["dot", "general", "concat", "location"])
@pytest.mark.tensorflow
def test_gradients_equal_finite_differences(mode):
    encoder = RecurrentEncoder(UNITS // 2, bidirectional=True)
    decoder = make(mode, num_layers=2)
    source, (inputs, _) = data()[0][:, :POSITIONS], data(1)
    scale = np.random.default_rng(2).normal(size=(2, STEPS, UNITS))

    def loss():
        memory, *_ = encoder(source, mask=SOURCE_MASK, training=True)
        return tf.reduce_sum(
            decoder(inputs, memory, SOURCE_MASK, training=True) * scale
        )

    loss()
    variables = encoder.trainable_variables + decoder.trainable_variables
    check_gradients(loss, variables, absolute=2e-3, relative=1e-2)


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.tensorflow
def test_dropout_is_for_training(input_feeding):
    decoder = make(
        "dot",
        input_feeding=input_feeding,
        num_layers=2,
        dropout=0.3,
        recurrent_dropout=0.3,
    )
    decoder.cell.attention.dropout = 0.3
    inputs, memory = data()
    outputs = np.asarray(decoder(inputs, memory, SOURCE_MASK))
    np.testing.assert_array_equal(decoder(inputs, memory, SOURCE_MASK), outputs)
    training = tf.function(lambda: decoder(inputs, memory, SOURCE_MASK, training=True))
    first, second = (np.asarray(training()) for _ in range(2))
    assert np.abs(first - outputs).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("rate", [None, 0.0, 0.5])
def test_the_output_has_a_dropout_of_its_own(rate):
    decoder = make("dot", dropout=0.7, output_dropout=rate)
    inputs, memory = data()
    keras.utils.set_random_seed(0)
    outputs = np.asarray(decoder(inputs, memory, SOURCE_MASK, training=True))
    units = np.all(outputs == 0, axis=1)  # the same at every step
    np.testing.assert_array_equal(outputs == 0, np.stack([units] * STEPS, 1))
    assert units.any() == (rate != 0.0)
    again = InputFeedingDecoder.from_config(decoder.get_config())
    assert again.cell.output_dropout == rate


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize(
    "input_feeding", [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_mixed_precision(input_feeding, policy):
    keras.config.set_dtype_policy(policy)
    decoder = make(input_feeding=input_feeding, dropout=0.1, cell_type="gru")
    inputs, memory = data()
    options = {"return_attention_scores": True, "training": True}
    run = tf.function(lambda: decoder(inputs, memory, SOURCE_MASK, **options))
    outputs, weights = run()
    assert keras.backend.standardize_dtype(outputs.dtype) == policy[6:]
    assert keras.backend.standardize_dtype(weights.dtype) == "float32"
    np.testing.assert_allclose(np.sum(weights, -1), 1, atol=1e-2)
    assert np.isfinite(np.asarray(outputs, "float32")).all()


@pytest.mark.parametrize(
    "input_feeding", [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_saved_and_cloned_models_compute_the_same(input_feeding, tmp_path):
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, UNITS))
    mask = keras.Input((None,), dtype="bool")
    decoder = make("concat", input_feeding=input_feeding, num_layers=2)
    results = decoder(
        inputs, memory, mask, return_state=True, return_attention_scores=True
    )
    model = keras.Model([inputs, memory, mask], list(results))
    model.save(tmp_path / "decoder.keras")
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    loaded = keras.models.load_model(tmp_path / "decoder.keras")
    for steps in (STEPS, 2):
        batch = [*data(steps=steps), SOURCE_MASK]
        for other in (loaded, cloned):
            for x, y in zip(other(batch), model(batch), strict=True):
                np.testing.assert_allclose(x, y, atol=1e-6)


def test_a_cell_of_another_kind_is_refused():
    with pytest.raises(TypeError, match="InputFeedingDecoderCell.*LSTMCell"):
        InputFeedingDecoder(keras.layers.LSTMCell(3))


@pytest.mark.tensorflow  # whose gradients it compares
@pytest.mark.parametrize("cell_type", slow_but(list(CELL_TYPES), "lstm"))
@pytest.mark.parametrize(
    "input_feeding", [True, pytest.param(False, marks=pytest.mark.slow)]
)
def test_training_computes_what_inference_does(input_feeding, cell_type):
    """Without dropout: the loop for training on TensorFlow, and the plain one.

    Outputs and gradients.
    """
    options = {"cell_type": cell_type, "num_layers": 2}
    encoder = RecurrentEncoder(UNITS, **options)
    decoder = make("concat", input_feeding=input_feeding, **options)
    source, inputs = data()[0][:, :POSITIONS], data(1)[0]
    mask = np.arange(STEPS) < np.array([[STEPS], [2]])

    def run(training):
        memory, *state = encoder(source, mask=SOURCE_MASK, training=training)
        return decoder(
            inputs,
            memory,
            SOURCE_MASK,
            mask=mask,
            initial_state=state,
            return_state=True,
            return_attention_scores=True,
            training=training,
        )

    run(False)  # builds
    weights = encoder.trainable_weights + decoder.trainable_weights

    def compute(training):
        with tf.GradientTape() as tape:
            results = run(training)
            loss = tf.reduce_sum(results[0] ** 2)
        return *results, *tape.gradient(loss, weights)

    for x, y in zip(tf.function(compute)(True), compute(False), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


class _Positions(LuongAttention):
    """Reports the positions that it was given, as its context."""

    def attend(self, query, memory, positions=None, *arguments, **options):
        shape = (*ops.shape(query)[:2], memory.values.shape[-1])
        context = ops.broadcast_to(ops.cast(positions, "float32")[..., None], shape)
        return context, *super().attend(query, memory)[1:]


@pytest.mark.parametrize("input_feeding", [True, False])
def test_positions_count_words_and_wait_at_masked_steps(input_feeding):
    attention = _Positions("dot")
    cell = InputFeedingDecoderCell(UNITS, attention, input_feeding=input_feeding)
    decoder = InputFeedingDecoder(cell)
    inputs, memory = data()
    decoder(inputs, memory)
    kernel = np.zeros(cell.attentional_vector.kernel.shape, "float32")
    kernel[0] = 0.01  # so that h̃ tells the position
    cell.attentional_vector.kernel.assign(kernel)
    mask = np.array([[True] * STEPS, [False, True, False, True, True, True]])
    outputs, *states = decoder(inputs, memory, mask=mask, return_state=True)
    counted = np.arctanh(np.asarray(outputs)[..., 0]) * 100
    np.testing.assert_allclose(counted[0], np.arange(STEPS), atol=1e-3)
    np.testing.assert_allclose(counted[1][mask[1]], np.arange(4), atol=1e-3)
    np.testing.assert_array_equal(states[-1], [[6], [4]])


@pytest.mark.parametrize(
    "training", [pytest.param(True, marks=pytest.mark.slow), False]
)
@pytest.mark.parametrize(
    "input_feeding", [True, pytest.param(False, marks=pytest.mark.slow)]
)
@pytest.mark.tensorflow
def test_an_empty_batch_has_empty_outputs_and_no_gradient(input_feeding, training):
    decoder = make(input_feeding=input_feeding)
    inputs, memory = data()
    decoder(inputs, memory)  # builds

    @tf.function(input_signature=[tf.TensorSpec([None, None, n]) for n in (3, 4)])
    def run(inputs, memory):
        with tf.GradientTape() as tape:
            outputs = decoder(inputs, memory, training=training)
            loss = tf.reduce_sum(outputs)
        return outputs, tape.gradient(loss, decoder.trainable_variables)

    outputs, gradients = run(inputs[:0], memory[:0])
    assert outputs.shape == (0, STEPS, UNITS)
    assert all(np.all(np.asarray(gradient) == 0) for gradient in gradients)


@pytest.mark.parametrize("input_feeding", [True, False])
def test_a_source_without_positions_gives_a_context_of_zeros(input_feeding):
    decoder = make(input_feeding=input_feeding)
    inputs, memory = data()
    nothing = decoder(inputs, memory, np.zeros((2, POSITIONS), bool))
    np.testing.assert_allclose(decoder(inputs, memory[:, :0]), nothing, atol=1e-6)


def test_a_cell_is_built_by_its_first_call():
    cell = InputFeedingDecoderCell(UNITS, None)
    inputs, memory = data()
    states = cell.initial_states((2, 1))
    outputs, *_ = cell(inputs[:, :1], states, cell.prepare(ops.array(memory)))
    assert outputs.shape == (2, 1, UNITS)


@pytest.mark.parametrize("input_feeding", [True, False])
def test_coverage_is_a_state_of_the_decoder(input_feeding):
    attention = LuongAttention("concat", coverage=True)
    cell = InputFeedingDecoderCell(UNITS, attention, input_feeding=input_feeding)
    decoder = InputFeedingDecoder(cell)
    inputs, memory = data()
    outputs, weights, *states = decoder(
        inputs, memory, SOURCE_MASK, return_attention_scores=True, return_state=True
    )
    np.testing.assert_allclose(states[-2], np.sum(weights, 1), atol=1e-5)
    first, *halfway = decoder(inputs[:, :2], memory, SOURCE_MASK, return_state=True)
    second = decoder(inputs[:, 2:], memory, SOURCE_MASK, initial_state=halfway)
    np.testing.assert_allclose(np.concatenate([first, second], 1), outputs, atol=1e-5)
    on_tensorflow = keras.backend.backend() == "tensorflow"
    trained = tf.function(decoder) if on_tensorflow else decoder
    trained = trained(inputs, memory, SOURCE_MASK, training=True)
    np.testing.assert_allclose(trained, outputs, atol=1e-5)
    prepared = cell.prepare(ops.array(memory), SOURCE_MASK)
    states = cell.initial_states((2, 1), memory=prepared)
    for t in range(STEPS):
        h_tilde, states, a = cell(inputs[:, t : t + 1], states, prepared)
        np.testing.assert_allclose(h_tilde[:, 0], outputs[:, t], atol=1e-5)
        np.testing.assert_allclose(a[:, 0], weights[:, t], atol=1e-5)


def test_masks_of_embeddings_are_found():
    """As by Keras's own layers: the target's and the memory's."""
    source, target = keras.Input((None,)), keras.Input((None,))
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    memory, *state = RecurrentEncoder(UNITS)(embedding(source))
    results = make()(
        embedding(target), memory, initial_state=state, return_attention_scores=True
    )
    model = keras.Model([source, target], results)
    ids = np.array([[1, 2, 0], [0, 4, 5]])
    outputs, weights = model.predict([ids, ids], verbose=0)
    words = ids != 0
    np.testing.assert_array_equal(np.any(outputs != 0, axis=-1), words)
    seen = words[:, :, None] & words[:, None, :]
    np.testing.assert_array_equal(weights > 0, seen)


@pytest.mark.parametrize(
    "cell",
    [
        InputFeedingDecoderCell(UNITS, LuongAttention("general")),
        InputFeedingDecoderCell(UNITS, MultiSourceAttention([LuongAttention("dot")])),
        InputFeedingDecoderCell(UNITS, None),
    ],
)
def test_steps_find_the_mask_of_the_memory_as_sequences_do(cell):
    ids = np.array([[1, 2, 0], [4, 5, 6]])
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    memory = RecurrentEncoder(UNITS, return_state=False)(embedding(ids))
    if isinstance(cell.attention, MultiSourceAttention):
        memory = [memory]
    inputs = np.ones((2, 1, WIDTH), "float32")
    expected = InputFeedingDecoder(cell)(inputs, memory)
    prepared = cell.prepare(memory)
    np.testing.assert_array_equal(prepared.mask, ids != 0)
    found, *_ = cell(inputs, cell.initial_states((2, 1), memory=prepared), prepared)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.tensorflow
def test_ragged_inputs_and_memories_are_refused_with_what_to_do():
    inputs, memory = data()
    for name, x in {"inputs": inputs, "memory": memory}.items():
        ragged = tf.RaggedTensor.from_tensor(tf.constant(x), [x.shape[1], 2])
        given = {"inputs": inputs, "memory": memory, name: ragged}
        with pytest.raises(TypeError, match=rf"{name} is ragged.*to_tensor\(\).*mask"):
            make()(**given)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"inputs": np.ones((2, 3))}, r"inputs must have 3 axes.*\(2, 3\)"),
        ({"inputs": np.ones((2, 3, 9))}, r"Axis 2 of inputs must be 3.*\(2, 3, 9\)"),
        ({"inputs": np.ones((2, 0, WIDTH))}, "length of at least 1"),
        ({"memory": np.ones((1, 5, UNITS))}, "Batch size.*inputs: 2, memory: 1"),
        ({"memory": np.ones((2, 5, 9))}, r"Axis 2 of memory must be 4.*\(2, 5, 9\)"),
        ({"memory_mask": np.ones((2, 4))}, "Source length.*memory: 5, memory_mask: 4"),
        ({"mask": np.ones((2, 5))}, "Target length.*inputs: 6, mask: 5"),
        ({"initial_state": [np.ones((2, 9))] * 2}, r"initial_state\[0\] must be 4"),
        ({"initial_state": [np.ones((1, UNITS))] * 2}, r"Axis 0 of initial_state\[0\]"),
        ({"initial_state": [np.ones((2, UNITS))]}, "Expected 2 initial states"),
    ],
)
def test_shapes_that_do_not_fit_are_named(change, message):
    decoder = make()
    inputs, memory = data()
    decoder(inputs, memory)
    with pytest.raises(ValueError, match=message):
        decoder(**{"inputs": inputs, "memory": memory, **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"memory": (2, UNITS)}, "memory must have 3 axes"),
        ({"memory": (2, 2, 3, UNITS)}, "memory must have 3 axes"),
        ({"memory": (2, 5, 9)}, "Axis 2 of memory must be 4"),
        ({"memory_mask": (2, 4)}, "Source length must be the same"),
        ({"mask": (2, 5)}, "Target length must be the same"),
        ({"initial_state": [(2, UNITS)]}, "Expected 2 initial states"),
        ({"initial_state": [(2, 9)] * 2}, r"Axis 1 of initial_state\[0\] must be 4"),
    ],
)
@pytest.mark.parametrize("built", [True, False])
def test_l1_symbolic_shapes_are_checked(change, message, built):
    decoder = make()
    if built:
        decoder.build((None, None, WIDTH), (None, None, UNITS))
    elif change.get("memory") == (2, 5, 9):
        pytest.skip("nothing is wrong with it then")
    given = {"inputs": (2, STEPS, WIDTH), "memory": (2, POSITIONS, UNITS), **change}
    states = [keras.KerasTensor(x) for x in given.pop("initial_state", ())]
    tensors = {name: keras.KerasTensor(shape) for name, shape in given.items()}
    with pytest.raises(ValueError, match=message):
        decoder(**tensors, initial_state=states or None)


@pytest.mark.tensorflow  # JAX has no float64 unless it is told so
@pytest.mark.parametrize("mode", ["general", None])
@pytest.mark.parametrize("input_feeding", [True, False])
def test_l8_float64_is_exact(input_feeding, mode):
    inputs, memory = [x.astype("float64") for x in data()]
    attention = mode and LuongAttention(mode, coverage=True, dtype="float64")
    options = {"input_feeding": input_feeding, "dtype": "float64"}
    cell = InputFeedingDecoderCell(UNITS, attention, **options)
    decoder = InputFeedingDecoder(cell)
    wanted = {"return_state": True, "return_attention_scores": True}
    *results, position = decoder(inputs, memory, SOURCE_MASK, **wanted)
    assert {keras.backend.standardize_dtype(x.dtype) for x in results} == {"float64"}
    symbolic = [keras.KerasTensor(x.shape, x.dtype) for x in (inputs, memory)]
    *spec, _ = decoder(*symbolic, **wanted)
    assert [x.dtype for x in spec] == ["float64"] * len(results)
    outputs, weights, finals = stepped(decoder, inputs, memory)
    stepwise = [outputs, weights, *finals[:-1]]
    for found, expected in zip(results, stepwise, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13)


@pytest.mark.tensorflow
def test_l9_variables_are_read():
    decoder = make()
    inputs, memory = data()
    expected = decoder(inputs, memory, SOURCE_MASK)
    for kind in (tf.Variable, keras.Variable):
        found = decoder(kind(inputs), kind(memory), SOURCE_MASK)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("shared", ["cell", "attention"])
def test_l10_what_two_decoders_share_is_loaded_as_one(shared, tmp_path):
    cells = [make().cell] * 2
    if shared == "attention":
        attention = LuongAttention("general")
        cells = [InputFeedingDecoderCell(UNITS, attention) for _ in cells]
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, UNITS))
    outputs = [InputFeedingDecoder(cell)(inputs, memory) for cell in cells]
    model = keras.Model([inputs, memory], outputs)
    model.save(tmp_path / "shared.keras")
    loaded = keras.models.load_model(tmp_path / "shared.keras")
    batch = [*data()]
    for x, y in zip(loaded(batch), model(batch), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert len(loaded.weights) == len(model.weights)
    first, second = [layer.cell for layer in loaded.layers if hasattr(layer, "cell")]
    assert first.attention is second.attention
    assert (first is second) == (shared == "cell")


def test_l11_output_shapes_are_known():
    decoder = make(attentional_units=7)
    assert decoder.compute_output_shape((2, 6, 3), (2, 5, 4)) == (2, 6, 7)
    inputs, memory = data()
    assert decoder(inputs, memory).shape == (2, 6, 7)
    cell = decoder.cell
    prepared = cell.prepare(ops.array(memory))
    states = cell.initial_states((2, 1))
    result = cell(inputs[:, :1], states, prepared)
    shapes = cell.compute_output_shape(
        (2, 1, WIDTH), [x.shape for x in states], memory.shape
    )
    assert shapes == keras.tree.map_structure(lambda x: tuple(x.shape), result)


@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("mask", [None, np.arange(STEPS) < np.array([[2], [STEPS]])])
def test_the_last_output_alone(mask, input_feeding):
    decoder = make(input_feeding=input_feeding)
    last = InputFeedingDecoder(decoder.cell, return_sequences=False)
    inputs, memory = data()
    options = {"mask": mask, "return_attention_scores": True, "return_state": True}
    every, weights, *states = decoder(inputs, memory, SOURCE_MASK, **options)
    one, alignment, *finals = last(inputs, memory, SOURCE_MASK, **options)
    at = [STEPS - 1] * 2 if mask is None else [1, STEPS - 1]
    for i, t in enumerate(at):
        np.testing.assert_allclose(one[i], every[i, t], atol=1e-6)
        np.testing.assert_allclose(alignment[i], weights[i, t], atol=1e-6)
    for x, y in zip(states, finals, strict=True):
        np.testing.assert_array_equal(x, y)
    symbolic = last(keras.Input((None, WIDTH)), keras.Input((None, UNITS)))
    assert symbolic.shape == (None, UNITS)
    assert InputFeedingDecoder.from_config(last.get_config()).return_sequences is False
