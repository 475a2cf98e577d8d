"""What every decoder cell must do: over whole sequences, in training, step by step."""

import decoding_attentions as checks
import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import (
    ATTENTIONS,
    CELLS,
    GRU,
    INPUTS,
    LSTM,
    MEMORY,
    POSITIONS,
    STEPS,
    UNITS,
    WIDTH,
    fed,
    not_fed,
    randomized,
    source_of,
    wrapped,
)
from keras import ops
from leave_slow import slow_but

import keras_luong as kl

WORDS = checks.WORDS[::-1]  # the second sentence is short, and so is its source
ALL = {"return_attention_scores": True, "return_state": True}
OF_ATTENTION = [name for name in ATTENTIONS if name in CELLS]


def decoder_of(name, **options):
    """-> the decoder, its cell, a memory, the memory's mask."""
    cell = CELLS[name]() if isinstance(name, str) else name
    decoder = kl.InputFeedingDecoder(cell, **options)
    memory, mask = source_of(cell)
    decoder(INPUTS, memory, mask)
    return randomized(decoder), cell, memory, mask


def tensors(nest, dtype="float32"):
    return keras.tree.map_structure(lambda x: ops.cast(x, dtype), nest)


def cases(*quick, others):
    """All cells, most of them slowly; and some in other dtypes."""
    slow = [[pytest.mark.slow] * (name not in quick) for name in CELLS]
    pairs = zip(CELLS, slow, strict=True)
    return [*(pytest.param(x, "float32", marks=marks) for x, marks in pairs), *others]


DOUBLE = [("coverage", "float64"), ("no attention, not fed", "float64")]
HALF = {"dtype": "mixed_float16"}


FULL, WIDE = {"dtype": "float32"}, {"dtype": "float64", "coverage": True}
#: Cells that have parts of other dtypes than the policy's.
OTHER_DTYPES = {
    "cell": lambda: wrapped(LSTM(UNITS, **FULL), output_attention=False, **HALF),
    "not fed": lambda: wrapped(
        GRU(UNITS, **FULL), output_attention=False, input_feeding=False, **HALF
    ),
    "attention": lambda: fed(
        kl.LuongAttention(**FULL), use_attentional_vector=False, **HALF
    ),
    "vector": lambda: fed(attentional_vector=kl.AttentionalVector(3, **FULL), **HALF),
    "float64 attention": lambda: fed(kl.LuongAttention(**WIDE), **FULL),
}
LATER = "not fed", "vector"
DTYPES = [
    *DOUBLE,
    ("lstm", "mixed_bfloat16"),
    ("gru, not fed", "mixed_float16"),
    *(
        pytest.param(name, "float32", marks=[pytest.mark.slow] * (name in LATER))
        for name in OTHER_DTYPES
    ),
]


def same(found, expected, atol=1e-5, rtol=1e-7):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=atol, rtol=rtol)


STEPPED = cases(*OF_ATTENTION, "lstm", "gru", "several", "gnmt", "h", others=DOUBLE)


@pytest.mark.parametrize("name, dtype", STEPPED)
def test_a_search_steps_as_the_decoder_does(name, dtype):
    """From given states; three hypotheses, each for itself: one reads the target."""
    keras.config.set_dtype_policy(dtype)
    atol = 1e-5 if dtype == "float32" else 1e-12
    decoder, cell, memory, mask = decoder_of(name)
    rng = np.random.default_rng(2)
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


PADDED = slow_but(CELLS, *OF_ATTENTION, "lstm", "gru, not fed", "called", "several")


@pytest.mark.parametrize("name", PADDED)
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
    np.testing.assert_array_equal(np.asarray(weights)[1:, :, 3:POSITIONS], 0)
    same([s[1:] for s in states], ends)


@pytest.mark.parametrize("words", [None, WORDS], ids=["all", "masked"])
@pytest.mark.parametrize("name", slow_but(CELLS, "lstm", "coverage, not fed"))
def test_it_goes_on_where_it_stopped_and_gives_the_last_word_alone(name, words):
    decoder, cell, memory, mask = decoder_of(name)
    whole, weights, *ends = decoder(INPUTS, memory, mask, mask=words, **ALL)
    halves = [None] * 2 if words is None else (words[:, :1], words[:, 1:])
    given = {"mask": halves[0], "return_state": True}
    first, *states = decoder(INPUTS[:, :1], memory, mask, **given)
    given = {"mask": halves[1], "initial_state": states, **ALL}
    rest, _, *finals = decoder(INPUTS[:, 1:], memory, mask, **given)
    same([np.concatenate([first, rest], 1), *finals], [whole, *ends])
    last = kl.InputFeedingDecoder(cell, return_sequences=False)
    at = [0, 1], [STEPS - 1, STEPS - 1 if words is None else 1]
    found = last(INPUTS, memory, mask, mask=words, **ALL)
    same(found, [np.asarray(whole)[at], np.asarray(weights)[at], *ends])
    again = kl.InputFeedingDecoder.from_config(last.get_config())
    assert again.return_sequences is False


#: Cells, and the loop of training: of a graph, of XLA, of memories of any length.
WAYS = [
    pytest.param(name, way, marks=[pytest.mark.slow] * ((name, way) not in fast))
    for fast in [[("lstm", "graph"), ("wrapped", "graph")]]
    for way in ("graph", "xla", "any length")
    for name in CELLS
    if way != "any length" or name in ("lstm", "wrapped", *OF_ATTENTION)
]


@pytest.mark.tensorflow  # whose loops they are
@pytest.mark.parametrize("name, way", WAYS)
def test_training_computes_what_inference_does(name, way):
    """The loop for training, and the plain one eagerly: outputs, states, gradients."""
    decoder, _, memory, mask = decoder_of(name)
    given = *tensors((INPUTS, memory)), *tensors((mask, WORDS), "bool")

    def compute(inputs, memory, mask, words, training=True):
        with tf.GradientTape() as tape:
            tape.watch([inputs, memory])
            options = {"mask": words, "training": training, **ALL}
            results = decoder(inputs, memory, mask, **options)
            loss = tf.reduce_sum(tf.sin(3 * results[0]))
        weights = [weight.value for weight in decoder.trainable_weights]
        sources = [*weights, inputs, *keras.tree.flatten(memory)]
        gradients = tape.gradient(loss, sources, unconnected_gradients="zero")
        return *results, *map(tf.convert_to_tensor, gradients)

    options = {"jit_compile": way == "xla", "autograph": False}
    if way == "any length":
        shapes = [([None, None, *x.shape[2:]], x.dtype) for x in given]
        options["input_signature"] = [tf.TensorSpec(*x) for x in shapes]
    expected = compute(*given, training=False)
    found = tf.function(compute, **options)(*given)
    same(found, expected, atol=2e-5, rtol=1e-4)
    if name not in ("no attention", "no attention, not fed", "h, not fed"):
        count = len(decoder.trainable_weights) + len(keras.tree.flatten(memory)) + 1
        assert all(np.abs(x).max() > 0 for x in expected[-count:])


SHAPED = "linear context h several called cho gnmt".split()


@pytest.mark.parametrize("name, dtype", cases(*SHAPED, others=DTYPES))
def test_shapes_and_dtypes_are_known_before_weights_are(name, dtype):
    keras.config.set_dtype_policy(dtype)
    cell, fresh = ({**CELLS, **OTHER_DTYPES}[name]() for _ in "12")
    memory, mask = source_of(cell)
    shapes = keras.tree.map_structure(lambda x: x.shape, memory)
    decoder = kl.InputFeedingDecoder(cell)
    early = decoder.compute_output_shape(INPUTS.shape, shapes)
    step = fresh.compute_output_shape((2, 1, WIDTH), None, shapes)
    assert not cell.built and not fresh.built
    given = keras.tree.map_structure(
        lambda x: keras.KerasTensor(x.shape, x.dtype), (INPUTS, memory, mask)
    )
    symbolic = decoder(*given, **ALL)
    results = decoder(INPUTS, memory, mask, **ALL)
    assert early == decoder.compute_output_shape(INPUTS.shape, shapes)
    assert early == tuple(results[0].shape)
    calls = [results]
    if keras.backend.backend() == "tensorflow" and name in OTHER_DTYPES:
        # K9: loops that would not run
        train = tf.function(lambda: decoder(INPUTS, memory, mask, training=True, **ALL))
        calls.append(train())
    for call in calls:
        for x, like in zip(call, symbolic, strict=True):
            assert tuple(x.shape) == tuple(like.shape)
            assert keras.backend.standardize_dtype(x.dtype) == like.dtype
    assert keras.backend.standardize_dtype(results[0].dtype) == cell.compute_dtype
    prepared = cell.prepare(tensors(memory, cell.compute_dtype), mask)
    given = cell.initial_states((2, 1), memory=prepared)
    found = cell(INPUTS[:, :1], given, prepared)
    assert step == keras.tree.map_structure(lambda x: tuple(x.shape), found)
    assert step == cell.compute_output_shape((2, 1, WIDTH), None, shapes)
    if name != "cho":  # whose summary has no positions
        shapes = keras.tree.map_structure(lambda x: x.shape, prepared)
        assert step == fresh.compute_output_shape((2, 1, WIDTH), None, shapes)
    spec = cell.compute_output_spec(INPUTS[:, :1], given, prepared)
    assert step == keras.tree.map_structure(lambda x: x.shape, spec)
    again = type(cell).from_config(cell.get_config())
    assert again.get_config() == cell.get_config()


def test_the_first_states_are_zeros_and_a_cell_is_built_by_its_first_call():
    cell = fed(None, num_layers=2, cell_type="gru")
    memory, states = cell.start(ops.array(MEMORY))
    shapes = keras.tree.map_structure(lambda x: getattr(x, "shape", None), memory)
    assert cell.compute_output_shape((2, 1, WIDTH), None, shapes)[2][2] == POSITIONS
    for state, shape in zip(states, [(2, 1, UNITS)] * 3 + [(2, 1, 1)], strict=True):
        np.testing.assert_array_equal(state, np.zeros(shape))
    words = keras.layers.Embedding(9, WIDTH, mask_zero=True)(ops.array([[4], [5]]))
    output, (_, h, *_), weights = cell(words, states, memory)
    np.testing.assert_array_equal(output, h)
    np.testing.assert_array_equal(weights, np.zeros((2, 1, POSITIONS)))
    found = kl.InputFeedingDecoder(cell)(words, MEMORY)
    np.testing.assert_allclose(found, output, atol=1e-6)


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "input_feeding", [True, pytest.param(False, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "where", ["dropout", "output_dropout", "recurrent_dropout", "attention"]
)
def test_dropout_is_for_training(where, input_feeding):
    options = {} if where == "attention" else {where: 0.5}
    cell = fed(input_feeding=input_feeding, num_layers=2, **options)
    if where == "attention":
        cell.attention.dropout = 0.5
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
    shapes = {i: n.shape for i, n in noise.recurrent.items()}
    assert shapes == dict.fromkeys([0, 1], (50, UNITS))
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
    mask = np.array([[True] * STEPS, [True, False, True]])
    decode = kl.InputFeedingDecoder(cell)
    outputs, *states = decode(INPUTS, MEMORY, mask=mask, return_state=True)
    counted = np.asarray(outputs)[..., 0]  # the output is the context
    np.testing.assert_array_equal(counted, [[0, 1, 2], [0, 0, 1]])
    np.testing.assert_array_equal(states[-1], [[STEPS], [2]])


SLOWLY = [pytest.param(x, True, marks=pytest.mark.slow) for x in (True, False)]
EMPTY = [(True, False), *SLOWLY]


@pytest.mark.tensorflow
@pytest.mark.parametrize("input_feeding, training", EMPTY)
def test_an_empty_batch_has_empty_outputs_and_no_gradient(input_feeding, training):
    """In training, in a graph that knows no sizes."""
    decoder, *_ = decoder_of(fed(input_feeding=input_feeding))
    weights = decoder.trainable_variables

    def run(inputs, memory):
        with tf.GradientTape() as tape:
            outputs = decoder(inputs, memory, training=training)
        return outputs, tape.gradient(outputs, weights)

    if training:
        specs = [tf.TensorSpec([None, None, n]) for n in (WIDTH, UNITS)]
        run = tf.function(run, input_signature=specs, autograph=False)
    outputs, gradients = run(INPUTS[:0], MEMORY[:0])
    assert outputs.shape == (0, STEPS, UNITS)
    assert all(np.all(np.asarray(gradient) == 0) for gradient in gradients)


@pytest.mark.parametrize("kind", ["one", "several", "none"])
def test_steps_find_the_mask_of_the_memory_as_sequences_do(kind):
    one = kl.LuongAttention()
    several = kl.MultiSourceAttention([one])
    cell = fed({"one": one, "several": several, "none": None}[kind])
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


@keras.saving.register_keras_serializable(package="tests")
class Doubled(kl.AttentionalVector):
    """Somebody's own."""

    def call(self, context, query, project=None):
        return 2.0 * super().call(context, query)


@pytest.mark.parametrize("shared", ["cell", "attention", "nothing"])
def test_l10_models_are_saved_and_what_two_decoders_share_is_one(shared, tmp_path):
    """L14: vectors of ones own, given or set, are saved too."""
    cells = [fed(num_layers=2, attentional_vector=Doubled(UNITS))] * 2
    if shared == "attention":
        cells = [fed(cells[0].attention) for _ in cells]
    if shared == "nothing":
        cells = [fed("concat"), not_fed()]
        cells[0].attentional_vector = Doubled(UNITS, activation=None)
    inputs, memory = keras.Input((None, WIDTH)), keras.Input((None, UNITS))
    outputs = [kl.InputFeedingDecoder(cell)(inputs, memory) for cell in cells]
    model = keras.Model([inputs, memory], outputs)
    model.save(tmp_path / "shared.keras")
    again = [keras.models.load_model(tmp_path / "shared.keras")]
    first, second = [layer.cell for layer in again[0].layers if hasattr(layer, "cell")]
    assert (first.attention is second.attention) == (shared != "nothing")
    assert (first is second) == (shared == "cell")
    assert (type(first.attentional_vector) is Doubled) == (shared != "attention")
    if shared == "nothing":
        again.append(keras.models.clone_model(model))
        again[1].set_weights(model.get_weights())
    for other in again:
        assert len(other.weights) == len(model.weights)
        same(other([INPUTS, MEMORY]), model([INPUTS, MEMORY]), 1e-6)
