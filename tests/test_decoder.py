"""What every decoder cell must do: over whole sequences, in training, step by step."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from leave_slow import slow_but

import keras_luong as kl
from keras_luong.layers.scores import SCORES
from keras_luong.models.bahdanau import BahdanauDecoderCell
from keras_luong.models.cho import ChoDecoderCell
from keras_luong.models.gnmt import GNMTDecoderCell

UNITS, WIDTH, POSITIONS, STEPS = 4, 3, 5, 4
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, POSITIONS, 5)).astype("float32")
OTHER = rng.normal(size=(2, 3, 2)).astype("float32")
SOURCE_MASK = np.arange(POSITIONS) < np.array([[5], [3]])
WORDS = np.arange(STEPS) < np.array([[4], [2]])
ALL = {"return_attention_scores": True, "return_state": True}


def fed(mode="general", **options):
    if isinstance(mode, str):
        mode = kl.LuongAttention(mode, max_source_length=8)
    return kl.InputFeedingDecoderCell(UNITS, mode, **options)


def not_fed(mode="general", **options):
    return fed(mode, input_feeding=False, **options)


def coverage(**options):
    return fed(kl.LuongAttention("concat", coverage=True), **options)


def several():
    attentions = [kl.LuongAttention("general"), kl.LuongAttention("concat")]
    return fed(kl.MultiSourceAttention(attentions))


def wrapped(*cells, **options):
    cells = cells if len(cells) > 1 else cells[0]
    return kl.AttentionWrapper(cells, kl.LuongAttention("general"), **options)


LSTM, GRU = keras.layers.LSTMCell, keras.layers.GRUCell
CELLS = {
    "lstm": fed,
    "gru": lambda: fed(cell_type="gru", num_layers=3, residual=True),
    "layer_norm_lstm": lambda: fed(cell_type="layer_norm_lstm"),
    "simple_rnn": lambda: fed(cell_type="simple_rnn", num_layers=2),
    "lstm, not fed": lambda: not_fed(num_layers=3, residual=True),
    "gru, not fed": lambda: not_fed(cell_type="gru"),
    "no attention": lambda: fed(None, num_layers=2),
    "no attention, not fed": lambda: not_fed(None),
    "coverage": coverage,
    "coverage, not fed": lambda: coverage(input_feeding=False),
    "linear": lambda: fed(
        attentional_units=3, attentional_activation=None, attentional_bias=True
    ),
    "context": lambda: fed(use_attentional_vector=False),
    "h": lambda: fed(output_attention=False, attentional_units=3),
    "h, not fed": lambda: not_fed(output_attention=False),
    "several": several,
    "wrapped": lambda: wrapped(LSTM(UNITS)),
    "wrapped stack": lambda: wrapped(LSTM(5), GRU(6), LSTM(UNITS)),
    "wrapped, not fed": lambda: wrapped(GRU(5), GRU(UNITS), input_feeding=False),
    "called": lambda: wrapped(LSTM(UNITS, recurrent_activation="hard_sigmoid")),
    "called, not fed": lambda: wrapped(
        GRU(UNITS, reset_after=False), input_feeding=False
    ),
    "bahdanau": lambda: BahdanauDecoderCell(UNITS, kl.LuongAttention("concat")),
    "cho": lambda: ChoDecoderCell(UNITS, maxout_units=3, cell_type="gru"),
    "gnmt": lambda: GNMTDecoderCell(UNITS, kl.LuongAttention(), 3, residual=True),
    "local-m": lambda: fed(kl.LocalAttention(1, "monotonic")),
    "local-p": lambda: fed(kl.LocalAttention(1)),
    "monotonic": lambda: fed(kl.MonotonicAttention("general")),
    **{mode: lambda mode=mode: fed(mode) for mode in SCORES if mode != "general"},
    **{
        f"{mode}, not fed": lambda mode=mode: not_fed(mode)
        for mode in ("dot", "concat", "location")
    },
}


def source_of(cell):
    """Memory and mask, as the cell's attention wants them."""
    if isinstance(cell.attention, kl.MultiSourceAttention):
        return [MEMORY, OTHER], [SOURCE_MASK, np.ones((2, 3), bool)]
    mode = getattr(cell.attention, "score_mode", None)
    of_query = mode in ("dot", "scaled_dot", "cosine")
    return MEMORY[..., :UNITS] if of_query else MEMORY, SOURCE_MASK


def randomized(decoder):
    """Weights none of which is zero."""
    decoder(INPUTS, *source_of(decoder.cell))
    random = np.random.default_rng(1)
    for weight in decoder.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.7)
    return decoder


def decoder_of(name, **options):
    """-> the decoder, its cell, a memory, the memory's mask."""
    decoder = randomized(kl.InputFeedingDecoder(CELLS[name](), **options))
    return decoder, decoder.cell, *source_of(decoder.cell)


def tensors(nest, dtype="float32"):
    return keras.tree.map_structure(lambda x: ops.cast(x, dtype), nest)


def cases(*quick, others):
    """All cells, most of them slowly; and some in other dtypes."""
    slow = [[pytest.mark.slow] * (name not in quick) for name in CELLS]
    pairs = zip(CELLS, slow, strict=True)
    return [*(pytest.param(x, "float32", marks=marks) for x, marks in pairs), *others]


DOUBLE = [("coverage", "float64"), ("no attention, not fed", "float64")]
HALF = [("lstm", "mixed_bfloat16"), ("gru, not fed", "mixed_float16")]


def same(found, expected, atol=1e-5, rtol=1e-7):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=atol, rtol=rtol)


@pytest.mark.parametrize(
    "name, dtype", cases("lstm", "gru", "coverage", "several", "gnmt", others=DOUBLE)
)
def test_a_search_steps_as_the_decoder_does(name, dtype):
    """From given states; three hypotheses, each for itself: one reads the target."""
    keras.config.set_dtype_policy(dtype)
    atol = 1e-5 if dtype == "float32" else 1e-12
    decoder, cell, memory, mask = decoder_of(name)
    first = [rng.normal(size=(2, n)).astype("float32") for n in cell.state_sizes]
    outputs, weights, *ends = decoder(INPUTS, memory, mask, initial_state=first, **ALL)
    prepared = cell.prepare(tensors(memory, dtype), mask)
    beams = [np.stack([s, s, -s], axis=1) for s in first]
    states = cell.initial_states((2, 3), beams, prepared)
    for t in range(STEPS):
        x = np.stack([INPUTS[:, 0], INPUTS[:, t], -INPUTS[:, t]], axis=1)
        output, states, a = cell(x, states, prepared)
        same([output[:, 1], a[:, 1]], [outputs[:, t], weights[:, t]], atol)
    same([s[:, 1] for s in states], ends, atol)
    np.testing.assert_array_equal(ends[-1], [[STEPS]] * 2)
    if name.startswith("coverage"):  # what the attention remembers is its sum
        np.testing.assert_allclose(ends[-2], np.sum(weights, 1), atol=1e-5)


@pytest.mark.parametrize(
    "name", slow_but(CELLS, "lstm", "gru, not fed", "coverage", "called")
)
def test_padding_changes_nothing_and_gives_zeros(name):
    """Whatever it holds, of either side: as if the sentence were alone."""
    decoder, _, memory, mask = decoder_of(name)
    junk, inputs = (
        keras.tree.map_structure(
            lambda x, m, y=y: np.where(m[..., None], x, y).astype("float32"), *pair
        )
        for y, *pair in ((np.nan, memory, mask), (1e3, INPUTS, WORDS))
    )
    outputs, weights, *states = decoder(inputs, junk, mask, mask=WORDS, **ALL)
    memory, mask = keras.tree.map_structure(lambda x: x[1:], (memory, mask))
    alone, a, *ends = decoder(INPUTS[1:, :2], memory, mask, **ALL)
    same([outputs[1:, :2], weights[1:, :2]], [alone, a])
    np.testing.assert_array_equal(outputs[1, 2:], 0)
    np.testing.assert_array_equal(weights[1, 2:], 0)
    np.testing.assert_array_equal(np.asarray(weights)[1:, :, 3:5], 0)
    same([s[1:] for s in states], ends)


@pytest.mark.parametrize("words", [None, WORDS], ids=["all", "masked"])
@pytest.mark.parametrize("name", slow_but(CELLS, "lstm", "coverage, not fed"))
def test_it_goes_on_where_it_stopped_and_gives_the_last_word_alone(name, words):
    decoder, cell, memory, mask = decoder_of(name)
    whole, weights, *ends = decoder(INPUTS, memory, mask, mask=words, **ALL)
    halves = [None] * 2 if words is None else (words[:, :1], words[:, 1:])
    first, *states = decoder(
        INPUTS[:, :1], memory, mask, mask=halves[0], return_state=True
    )
    rest, _, *finals = decoder(
        INPUTS[:, 1:], memory, mask, mask=halves[1], initial_state=states, **ALL
    )
    same([np.concatenate([first, rest], 1), *finals], [whole, *ends])
    last = kl.InputFeedingDecoder(cell, return_sequences=False)
    at = [0, 1], [STEPS - 1, STEPS - 1 if words is None else 1]
    found = last(INPUTS, memory, mask, mask=words, **ALL)
    same(found, [np.asarray(whole)[at], np.asarray(weights)[at], *ends])
    assert (
        kl.InputFeedingDecoder.from_config(last.get_config()).return_sequences is False
    )


@pytest.mark.tensorflow  # whose loops they are
@pytest.mark.parametrize(
    "jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("name", slow_but(CELLS, "lstm", "wrapped"))
def test_training_computes_what_inference_does(name, jit_compile):
    """The loop for training, and the plain one eagerly: outputs, states, gradients."""
    decoder, _, memory, mask = decoder_of(name)
    inputs, memory = tensors((INPUTS, memory))
    weights = [weight.value for weight in decoder.trainable_weights]
    sources = [*weights, inputs, *keras.tree.flatten(memory)]

    def compute(training):
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            results = decoder(
                inputs, memory, mask, mask=WORDS, training=training, **ALL
            )
            loss = tf.reduce_sum(tf.sin(3 * results[0]))
        gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
        return *results, *map(tf.convert_to_tensor, gradients)

    expected = compute(False)
    found = tf.function(compute, jit_compile=jit_compile, autograph=False)(True)
    same(found, expected, atol=2e-5, rtol=1e-4)
    if name not in ("no attention", "no attention, not fed", "h, not fed"):
        assert all(np.abs(x).max() > 0 for x in expected[-len(sources) :])


@pytest.mark.parametrize(
    "name, dtype",
    cases("context", "h", "several", "called", "cho", "gnmt", others=DOUBLE + HALF),
)
def test_shapes_and_dtypes_are_known_before_weights_are(name, dtype):
    keras.config.set_dtype_policy(dtype)
    cell, fresh = CELLS[name](), CELLS[name]()
    memory, mask = source_of(cell)
    shapes = keras.tree.map_structure(lambda x: x.shape, memory)
    decoder = kl.InputFeedingDecoder(cell)
    early = decoder.compute_output_shape(INPUTS.shape, shapes)
    step = fresh.compute_output_shape((2, 1, WIDTH), None, shapes)
    assert not cell.built and not fresh.built
    symbolic = decoder(
        *keras.tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, x.dtype), (INPUTS, memory, mask)
        ),
        **ALL,
    )
    results = decoder(INPUTS, memory, mask, **ALL)
    assert early == decoder.compute_output_shape(INPUTS.shape, shapes)
    assert early == tuple(results[0].shape)
    for x, like in zip(results, symbolic, strict=True):
        assert (tuple(x.shape), keras.backend.standardize_dtype(x.dtype)) == (
            tuple(like.shape),
            like.dtype,
        )
    assert keras.backend.standardize_dtype(results[0].dtype) == cell.compute_dtype
    prepared = cell.prepare(tensors(memory, cell.compute_dtype), mask)
    given = cell.initial_states((2, 1), memory=prepared)
    found = cell(INPUTS[:, :1], given, prepared)
    assert step == keras.tree.map_structure(lambda x: tuple(x.shape), found)
    assert step == cell.compute_output_shape((2, 1, WIDTH), None, shapes)
    again = type(cell).from_config(cell.get_config())
    assert again.get_config() == cell.get_config()


def test_the_first_states_are_zeros_and_a_cell_is_built_by_its_first_call():
    cell = fed(None, num_layers=2, cell_type="gru")
    states, memory = cell.initial_states((2, 1)), cell.prepare(ops.array(MEMORY))
    for state, shape in zip(states, [(2, 1, UNITS)] * 3 + [(2, 1, 1)], strict=True):
        np.testing.assert_array_equal(state, np.zeros(shape))
    output, (_, h, *_), weights = cell(INPUTS[:, :1], states, memory)
    np.testing.assert_array_equal(output, h)
    np.testing.assert_array_equal(weights, np.zeros((2, 1, POSITIONS)))
    found = kl.InputFeedingDecoder(cell)(INPUTS[:, :1], MEMORY)
    np.testing.assert_allclose(found, output, atol=1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize(
    "where", ["dropout", "output_dropout", "recurrent_dropout", "attention"]
)
def test_dropout_is_for_training(where, input_feeding):
    options = {} if where == "attention" else {where: 0.3}
    cell = fed(input_feeding=input_feeding, num_layers=2, **options)
    if where == "attention":
        cell.attention.dropout = 0.3
    decoder = kl.InputFeedingDecoder(cell)
    outputs = np.asarray(decoder(INPUTS, MEMORY))
    np.testing.assert_array_equal(decoder(INPUTS, MEMORY, training=False), outputs)
    first, second = (np.asarray(decoder(INPUTS, MEMORY, training=True)) for _ in "12")
    assert np.abs(first - outputs).max() > 1e-3
    assert np.abs(first - second).max() > 1e-3


@pytest.mark.parametrize("rate", [None, 0.0, 0.5])
def test_the_output_has_a_dropout_of_its_own(rate):
    decoder = kl.InputFeedingDecoder(fed(dropout=0.7, output_dropout=rate, seed=1))
    outputs = np.asarray(decoder(INPUTS, MEMORY, training=True))
    units = np.all(outputs == 0, axis=1)  # the same at every step
    np.testing.assert_array_equal(outputs == 0, np.stack([units] * STEPS, 1))
    assert units.any() == (rate != 0.0)
    again = kl.InputFeedingDecoder.from_config(decoder.get_config())
    assert again.cell.output_dropout == rate


def test_dropout_masks_are_of_layers_and_once_a_sequence():
    cell = fed(None, num_layers=2, dropout=0.5, recurrent_dropout=0.5)
    memory = cell.prepare(ops.zeros((50, 5, 6)))
    assert not any(cell.make_mode(memory, training=False).noise)
    noise = cell.make_mode(memory, training=True).noise
    assert {i: n.shape for i, n in noise.below.items()} == {1: (50, UNITS)}
    assert {i: n.shape for i, n in noise.recurrent.items()} == dict.fromkeys(
        [0, 1], (50, UNITS)
    )
    for mask in (noise.below[1], noise.recurrent[0]):
        assert set(np.unique(mask)) == {0, 2}


class _Positions(kl.LuongAttention):
    """Reports the positions that it was given, as its context."""

    def attend(self, query, memory, positions=None, *arguments, **options):
        shape = (*ops.shape(query)[:2], memory.values.shape[-1])
        context = ops.broadcast_to(ops.cast(positions, "float32")[..., None], shape)
        return context, *super().attend(query, memory)[1:]


@pytest.mark.parametrize("input_feeding", [True, False])
def test_positions_count_words_and_wait_at_masked_steps(input_feeding):
    options = {"use_attentional_vector": False, "input_feeding": input_feeding}
    cell = kl.InputFeedingDecoderCell(UNITS, _Positions(), **options)
    mask = np.array([[True] * STEPS, [False, True, False, True]])
    outputs, *states = kl.InputFeedingDecoder(cell)(
        INPUTS, MEMORY, mask=mask, return_state=True
    )
    counted = np.asarray(outputs)[..., 0]  # the output is the context
    np.testing.assert_array_equal(counted, [[0, 1, 2, 3], [0, 0, 0, 1]])
    np.testing.assert_array_equal(states[-1], [[4], [2]])


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "input_feeding, training",
    [
        (True, False),
        *(pytest.param(x, True, marks=pytest.mark.slow) for x in (True, False)),
    ],
)
def test_an_empty_batch_has_empty_outputs_and_no_gradient(input_feeding, training):
    decoder = randomized(kl.InputFeedingDecoder(fed(input_feeding=input_feeding)))
    weights = decoder.trainable_variables

    @tf.function(
        input_signature=[tf.TensorSpec([None, None, n]) for n in (3, 5)],
        autograph=False,
    )
    def run(inputs, memory):
        with tf.GradientTape() as tape:
            outputs = decoder(inputs, memory, training=training)
        return outputs, tape.gradient(outputs, weights)

    outputs, gradients = run(INPUTS[:0], MEMORY[:0])
    assert outputs.shape == (0, STEPS, UNITS)
    assert all(np.all(np.asarray(gradient) == 0) for gradient in gradients)


@pytest.mark.parametrize("input_feeding", [True, False])
def test_a_source_without_positions_gives_a_context_of_zeros(input_feeding):
    decoder = randomized(kl.InputFeedingDecoder(fed(input_feeding=input_feeding)))
    nothing = decoder(INPUTS, MEMORY, np.zeros((2, POSITIONS), bool))
    np.testing.assert_allclose(decoder(INPUTS, MEMORY[:, :0]), nothing, atol=1e-6)
    expected = decoder(INPUTS, np.zeros_like(MEMORY))
    np.testing.assert_allclose(nothing, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["one", "several", "none"])
def test_steps_find_the_mask_of_the_memory_as_sequences_do(kind):
    attention = (
        kl.MultiSourceAttention([kl.LuongAttention()]) if kind == "several" else None
    )
    cell = fed() if kind == "one" else kl.InputFeedingDecoderCell(UNITS, attention)
    ids = np.array([[1, 2, 0], [4, 5, 6]])
    embedding = keras.layers.Embedding(9, WIDTH, mask_zero=True)
    memory = kl.RecurrentEncoder(UNITS, return_state=False)(embedding(ids))
    memory = [memory] if kind == "several" else memory
    words = embedding(np.array([[1], [0]]))  # of which the second is none
    expected = kl.InputFeedingDecoder(cell)(words, memory)
    np.testing.assert_array_equal(expected[1], np.zeros((1, UNITS)))
    prepared = cell.prepare(memory)
    np.testing.assert_array_equal(prepared.mask, ids != 0)
    states = cell.initial_states((2, 1), memory=prepared)
    found, *_ = cell(np.asarray(words), states, prepared)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)


@pytest.mark.tensorflow
def test_variables_are_read_and_ragged_tensors_refused_with_what_to_do():
    decoder = kl.InputFeedingDecoder(fed())
    expected = decoder(INPUTS, MEMORY, SOURCE_MASK)
    for kind in (tf.Variable, keras.Variable):
        found = decoder(kind(INPUTS), kind(MEMORY), SOURCE_MASK)
        np.testing.assert_array_equal(found, expected)
    for name, x in {"inputs": INPUTS, "memory": MEMORY}.items():
        ragged = tf.RaggedTensor.from_tensor(tf.constant(x), [x.shape[1], 2])
        given = {"inputs": INPUTS, "memory": MEMORY, name: ragged}
        with pytest.raises(TypeError, match=rf"{name} is ragged.*to_tensor\(\).*mask"):
            decoder(**given)


def test_what_is_no_decoder_cell_is_refused():
    with pytest.raises(TypeError, match="InputFeedingDecoderCell.*LSTMCell"):
        kl.InputFeedingDecoder(keras.layers.LSTMCell(3))


BAD_SHAPES = {
    r"inputs must have 3 axes": {"inputs": (2, 3)},
    r"Axis 2 of inputs must be 3.*\(2, 3, 9\)": {"inputs": (2, 3, 9)},
    r"memory must have 3 axes": {"memory": (2, UNITS)},
    r"memory must have 3 axes.*4\)": {"memory": (2, 2, 3, UNITS)},
    r"Batch size.*inputs: 2, memory: 1": {"memory": (1, 5, 5)},
    r"Axis 2 of memory must be 5.*\(2, 5, 9\)": {"memory": (2, 5, 9)},
    r"Source length.*memory: 5, memory_mask: 4": {"memory_mask": (2, 4)},
    r"Target length.*inputs: 4, mask: 5": {"mask": (2, 5)},
    r"Axis 1 of initial_state\[0\] must be 4": {"initial_state": [(2, 9)] * 2},
    r"Axis 0 of initial_state\[0\]": {"initial_state": [(1, UNITS)] * 2},
    r"Expected 2 initial states": {"initial_state": [(2, UNITS)]},
}


@pytest.mark.parametrize("how", ["eager", "symbolic", "unbuilt"])
@pytest.mark.parametrize("message", BAD_SHAPES)
def test_l1_shapes_that_do_not_fit_are_named(message, how):
    if how == "unbuilt" and message.startswith("Axis 2"):
        pytest.skip("nothing is wrong with it then")
    decoder = kl.InputFeedingDecoder(fed())
    if how != "unbuilt":
        decoder.build((None, None, WIDTH), (None, None, 5))
    shapes = {"inputs": INPUTS.shape, "memory": MEMORY.shape, **BAD_SHAPES[message]}
    make = np.ones if how == "eager" else keras.KerasTensor
    given = {k: [*map(make, v)] if k[-1] == "e" else make(v) for k, v in shapes.items()}
    with pytest.raises(ValueError, match=message):
        decoder(**given)


def test_a_target_without_words_is_refused():
    with pytest.raises(ValueError, match="length of at least 1"):
        kl.InputFeedingDecoder(fed())(INPUTS[:, :0], MEMORY)


@pytest.mark.parametrize("shared", ["cell", "attention", "nothing"])
def test_l10_models_are_saved_and_what_two_decoders_share_is_one(shared, tmp_path):
    cells = [fed(num_layers=2)] * 2
    if shared == "attention":
        cells = [kl.InputFeedingDecoderCell(UNITS, cells[0].attention) for _ in cells]
    if shared == "nothing":
        cells = [fed("concat"), not_fed()]
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, 5))
    outputs = [kl.InputFeedingDecoder(cell)(inputs, memory) for cell in cells]
    model = keras.Model([inputs, memory], outputs)
    model.save(tmp_path / "shared.keras")
    again = [keras.models.load_model(tmp_path / "shared.keras")]
    first, second = [layer.cell for layer in again[0].layers if hasattr(layer, "cell")]
    assert (first.attention is second.attention) == (shared != "nothing")
    assert (first is second) == (shared == "cell")
    if shared == "nothing":
        again.append(keras.models.clone_model(model))
        again[1].set_weights(model.get_weights())
    for other in again:
        assert len(other.weights) == len(model.weights)
        same(other([INPUTS, MEMORY]), model([INPUTS, MEMORY]), 1e-6)
