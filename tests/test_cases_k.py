"""Inputs of layers that were wrong, refused or not explained, by their case."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import INPUTS, KINDS, MASK, MEMORY, STEPS, UNITS, WIDTH
from keras import ops

import keras_luong as kl

POSITIONS = MEMORY.shape[1]
rng = np.random.default_rng(0)
QUERY = rng.normal(size=(2, STEPS, UNITS)).astype("float32")
WEIGHTS = np.full((2, STEPS, POSITIONS), 1 / POSITIONS, "float32")
IDS = np.ones((2, STEPS), "int32")
SOURCE_IDS = np.ones((2, POSITIONS), "int32")


def cell(attention="general", **options):
    return kl.InputFeedingDecoderCell(UNITS, kl.LuongAttention(attention), **options)


def decoder(**options):
    return kl.InputFeedingDecoder(cell(**options))


def several():
    return kl.MultiSourceAttention([kl.LuongAttention(), kl.LuongAttention()])


@pytest.mark.parametrize("kind", ["one source", "two sources"])
def test_k1_the_summary_of_somebodys_model_has_a_row_for_a_cell(kind):
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            attention = several() if kind == "two sources" else kl.LuongAttention()
            self.cell = kl.InputFeedingDecoderCell(UNITS, attention)
            self.decoder = kl.InputFeedingDecoder(self.cell)

        def call(self, words):
            memory = [MEMORY, MEMORY] if kind == "two sources" else MEMORY
            return self.decoder(words, memory)

    model, lines = Own(), []
    model(INPUTS)
    model.summary(print_fn=lambda line, **options: lines.append(line))
    assert f"((2, {STEPS}, " in "".join(lines)  # its output; its states and weights


UNPACKED = {
    "attention": lambda made: kl.LuongAttention()(QUERY, made),
    "built attention": lambda made: built(kl.LuongAttention(), QUERY, MEMORY)(
        QUERY, made
    ),
    "list": lambda made: kl.LuongAttention()([QUERY, made]),
    "heads": lambda made: kl.MultiHeadLuongAttention(2)(QUERY, made),
    "query": lambda made: kl.LuongAttention()(made, MEMORY),
    "sources": lambda made: several()(QUERY, made),
    "decoder": lambda made: decoder()(INPUTS, made),
    "inputs": lambda made: decoder()(made, MEMORY),
    "encoder": lambda made: kl.RecurrentEncoder(UNITS)(made),
    "vector": lambda made: kl.AttentionalVector(3)(made, QUERY),
    "pointer": lambda made: kl.PointerNetwork(cell())(IDS, made),
    "prepare": lambda made: cell().prepare(made),
}


def built(layer, *args, **kwargs):
    layer(*args, **kwargs)
    return layer


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", UNPACKED)
def test_k4_what_an_encoder_returns_is_to_be_unpacked(name, symbolic):
    if symbolic and name == "prepare":
        pytest.skip("takes tensors")
    source = keras.Input((POSITIONS, UNITS), batch_size=2) if symbolic else MEMORY
    with pytest.raises(ValueError, match=r"list of 3.*memory, \*state = encoder"):
        UNPACKED[name](kl.RecurrentEncoder(UNITS)(source))


def test_k4_a_memory_among_the_states_of_a_bridge():
    with pytest.raises(ValueError, match=r"states\[0\] must have 2 axes"):
        kl.StateBridge([UNITS])(kl.RecurrentEncoder(UNITS)(MEMORY))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["query", "value", "key"])
def test_k5_an_attention_says_which_size_is_another(kind, name, symbolic):
    attention = built(KINDS[kind](), QUERY, MEMORY, MEMORY)
    given = {"query": QUERY, "value": MEMORY, "key": MEMORY}
    given[name] = given[name][..., :3]
    if symbolic:
        given = {k: keras.Input(x.shape[1:], batch_size=2) for k, x in given.items()}
    with pytest.raises(ValueError, match=rf"Axis 2 of {name} must be {UNITS}.*, 3\)"):
        attention(**given)


def test_k5_so_do_prepare_and_several_sources():
    attention = built(kl.LuongAttention(), QUERY, MEMORY)
    with pytest.raises(ValueError, match="Axis 2 of value must be 4"):
        attention.prepare(ops.array(MEMORY[..., :3]))
    attention = built(several(), QUERY, [MEMORY, MEMORY])
    with pytest.raises(ValueError, match="Axis 2 of value must be 4"):
        attention(QUERY, [MEMORY, MEMORY[..., :3]])


def test_k5_a_pointer_generator_says_which_of_its_features():
    copying = kl.PointerGenerator()
    copying([QUERY, QUERY], QUERY, WEIGHTS, SOURCE_IDS)
    with pytest.raises(ValueError, match=r"Axis 2 of features\[1\] must be 4"):
        copying([QUERY, QUERY[..., :3]], QUERY, WEIGHTS, SOURCE_IDS)
    with pytest.raises(ValueError, match="features must be 2 tensors.*Received: 1"):
        copying(QUERY, QUERY, WEIGHTS, SOURCE_IDS)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("kind", ["gru", "simple_rnn"])
def test_k6_one_state_may_be_a_bare_tensor(kind, symbolic):
    encoder = kl.RecurrentEncoder(UNITS, cell_type=kind)
    words, h = MEMORY, QUERY[:, 0]
    expected = encoder(words, initial_state=[h])
    if symbolic:
        inputs = [keras.Input(x.shape[1:]) for x in (words, h)]
        found = keras.Model(inputs, encoder(inputs[0], initial_state=inputs[1]))(
            [words, h]
        )
    else:
        found = encoder(words, initial_state=h)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_k6_an_lstm_has_two_and_counts_them():
    encoder, h = kl.RecurrentEncoder(UNITS), QUERY[:, 0]
    with pytest.raises(ValueError, match="Expected 2 initial states.*Received: 1"):
        encoder(MEMORY, initial_state=h)
    nested = encoder(MEMORY, initial_state=[[h, h]])
    np.testing.assert_allclose(nested[0], encoder(MEMORY, initial_state=[h, h])[0])


PAIRS = rng.random((2, STEPS, POSITIONS)) > 0.4
SPREAD = {
    "(Q, S)": PAIRS[0],
    "(B, 1, S)": PAIRS[:, :1],
    "(1, Q, S)": PAIRS[:1],
    "(B, Q, 1)": PAIRS[..., :1],
    "(1, 1, S)": PAIRS[:1, :1],
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", SPREAD)
@pytest.mark.parametrize(
    "kind", ["general", "coverage", "local-m", "monotonic", "multi-head"]
)
def test_k7_a_mask_of_pairs_is_spread(kind, shape, symbolic):
    attention, mask = KINDS[kind](), SPREAD[shape]
    whole = np.broadcast_to(mask, PAIRS.shape)
    options = {"return_attention_scores": True}
    expected = attention(QUERY, MEMORY, attention_mask=whole, **options)
    given = [QUERY, MEMORY, mask]
    if symbolic:
        inputs = [keras.Input(batch_shape=(2, None, UNITS)) for _ in "12"]
        inputs += [keras.Input(batch_shape=mask.shape, dtype="bool")]
        query, value, pairs = inputs
        outputs = attention(query, value, attention_mask=pairs, **options)
        found = keras.Model(inputs, list(outputs))(given)
    else:
        found = attention(QUERY, MEMORY, attention_mask=mask, **options)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    assert np.all(np.where(whole, 0, found[1]) == 0)


def test_k7_as_multi_head_attention_of_keras_spreads_it():
    theirs = keras.layers.MultiHeadAttention(1, UNITS, use_bias=False)
    ours = kl.MultiHeadLuongAttention(1)
    for attention in (theirs, ours):
        attention(QUERY, MEMORY)
    own = ours.score.query_kernel, ours.score.key_kernel
    for kernel, w in zip(
        [*own, ours.value_kernel, ours.output_kernel], theirs.get_weights(), strict=True
    ):
        kernel.assign(w.reshape(kernel.shape))
    for mask in SPREAD.values():
        seen = np.broadcast_to(mask, PAIRS.shape).any(-1, keepdims=True)
        x, y = [f(QUERY, MEMORY, attention_mask=mask) for f in (theirs, ours)]
        np.testing.assert_allclose(np.where(seen, x, 0), y, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2])
def test_k7_a_mask_of_an_image(rows):
    image = rng.normal(size=(2, 2, 3, UNITS)).astype("float32")
    mask = PAIRS.reshape(2, STEPS, 2, 3)[0, :, :rows]
    attention = kl.LuongAttention()
    whole = np.broadcast_to(mask, (2, STEPS, 2, 3))
    np.testing.assert_allclose(
        attention(QUERY, image, attention_mask=mask),
        attention(QUERY, image, attention_mask=whole),
        atol=1e-6,
    )


def test_k7_a_mask_that_does_not_fit_is_refused():
    for mask in (PAIRS[:, :3], PAIRS[0, :3], PAIRS[0, 0], PAIRS[:, None]):
        with pytest.raises(ValueError, match=r"attention_mask"):
            kl.LuongAttention()(QUERY, MEMORY, attention_mask=mask)


def functional(kind):
    """A model of somebody's."""
    memory, words = keras.Input((POSITIONS, UNITS)), keras.Input((STEPS, WIDTH))
    if kind == "decoder":
        options = {"return_attention_scores": True}
        return keras.Model([memory, words], list(decoder()(words, memory, **options)))
    mask = keras.Input((POSITIONS,), dtype="bool")
    encoder = kl.RecurrentEncoder(UNITS, num_layers=2, bidirectional="first")
    encoded, *state = encoder(memory, mask=mask)
    if kind == "encoder":
        return keras.Model([memory, mask], [encoded, *state])
    forecast = kl.InputFeedingDecoder(
        kl.AttentionWrapper([keras.layers.GRUCell(UNITS)], KINDS["coverage"]()),
        feeding=kl.FreeRunning(3, keras.layers.Embedding(7, WIDTH)),
        output_layer=keras.layers.Dense(7),
    )
    first = keras.Input((1, WIDTH))
    return keras.Model([memory, mask, first], forecast(first, encoded, mask))


SLOW = [pytest.param(x, marks=pytest.mark.slow) for x in ("encoder", "own words")]


@pytest.mark.tensorflow
@pytest.mark.parametrize("kind", ["decoder", *SLOW])
def test_k8_keras_exports_a_file_that_litert_runs(kind, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    model = functional(kind)
    signature = [tf.TensorSpec((1, *x.shape[1:]), x.dtype) for x in model.inputs]
    model.export(
        tmp_path / "model.tflite",
        format="litert",
        input_signature=[signature],
        target_spec={"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]},
        verbose=False,
    )
    batch = [rng.random(x.shape).round().astype(x.dtype.name) for x in signature]
    run = interpreter.Interpreter(str(tmp_path / "model.tflite")).get_signature_runner()
    said = run(**dict(zip(run.get_input_details(), batch, strict=True)))
    for i, x in enumerate(keras.tree.flatten(model(batch))):
        np.testing.assert_allclose(said[f"output_{i}"], x, atol=1e-5)


OTHER_DTYPES = {
    "float32 cell, h": lambda: kl.AttentionWrapper(
        keras.layers.LSTMCell(UNITS, dtype="float32"),
        kl.LuongAttention(),
        output_attention=False,
        dtype="mixed_float16",
    ),
    "float32 cell, after the loop": lambda: kl.AttentionWrapper(
        keras.layers.GRUCell(UNITS, dtype="float32"),
        kl.LuongAttention(),
        output_attention=False,
        input_feeding=False,
        dtype="mixed_float16",
    ),
    "float32 attention": lambda: kl.InputFeedingDecoderCell(
        UNITS,
        kl.LuongAttention(dtype="float32"),
        use_attentional_vector=False,
        dtype="mixed_float16",
    ),
    "float32 vector": lambda: kl.InputFeedingDecoderCell(
        UNITS,
        kl.LuongAttention(),
        attentional_vector=kl.AttentionalVector(3, dtype="float32"),
        dtype="mixed_float16",
    ),
    "float64 attention": lambda: kl.InputFeedingDecoderCell(
        UNITS, kl.LuongAttention(dtype="float64", coverage=True)
    ),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", OTHER_DTYPES)
def test_k9_outputs_have_the_dtype_that_was_promised(name, training):
    decode = kl.InputFeedingDecoder(OTHER_DTYPES[name]())
    options = {
        "return_attention_scores": True,
        "return_state": True,
        "training": training,
    }
    specs = decode(keras.Input((None, WIDTH)), keras.Input((None, UNITS)), **options)
    results = decode(INPUTS, MEMORY, **options)
    promised = [keras.backend.standardize_dtype(x.dtype) for x in specs]
    assert [keras.backend.standardize_dtype(x.dtype) for x in results] == promised
    if keras.backend.backend() == "tensorflow":  # loops that would not run
        traced = tf.function(lambda: decode(INPUTS, MEMORY, **options))()
        assert [x.dtype.name for x in traced] == promised


MISSING = {
    "query": lambda: kl.LuongAttention()(None, MEMORY),
    "query ": lambda: several()(None, [MEMORY, MEMORY]),
    "inputs": lambda: decoder()(None, MEMORY),
    "memory": lambda: decoder()(INPUTS, None),
    "inputs ": lambda: kl.RecurrentEncoder(UNITS)(None),
    "context": lambda: kl.AttentionalVector(3)(None, QUERY),
    "states": lambda: kl.StateBridge([UNITS])(None),
    "features": lambda: kl.PointerGenerator()(None, QUERY, WEIGHTS, SOURCE_IDS),
    "targets": lambda: kl.PointerNetwork(cell())(None, MEMORY),
    "weights": lambda: kl.CoverageLoss()(QUERY, None),
}


@pytest.mark.parametrize("name", MISSING)
def test_k10_what_is_missing_is_named(name):
    with pytest.raises(TypeError, match=f"called with {name.strip()}. .*=None"):
        MISSING[name]()


def test_k10_a_built_attention_without_a_value():
    attention = built(kl.LuongAttention(), QUERY, MEMORY)
    with pytest.raises(ValueError, match="needs a query and a value"):
        attention(QUERY)


LISTS = {
    "value_mask": lambda mask: kl.LuongAttention()(QUERY, MEMORY, value_mask=mask),
    "attention_mask": lambda mask: kl.LuongAttention()(
        QUERY, MEMORY, attention_mask=mask
    ),
    "value_mask ": lambda mask: several()(
        QUERY, [MEMORY, MEMORY], value_mask=[mask, None]
    ),
    "memory_mask": lambda mask: decoder()(INPUTS, MEMORY, memory_mask=mask),
    "mask": lambda mask: decoder()(INPUTS, MEMORY, mask=mask),
    "mask ": lambda mask: kl.RecurrentEncoder(UNITS)(MEMORY, mask=mask),
    "mask  ": lambda mask: kl.CoverageLoss()(QUERY, WEIGHTS, mask=mask),
    "memory_mask ": lambda mask: kl.PointerNetwork(cell())(
        IDS, MEMORY, memory_mask=mask
    ),
}


@pytest.mark.parametrize("name", LISTS)
def test_k10_a_mask_is_no_python_list(name):
    with pytest.raises(TypeError, match=f"{name.strip()} must be .*Received .*True"):
        LISTS[name](MASK.tolist())


@pytest.mark.parametrize("make", [decoder, lambda: kl.RecurrentEncoder(UNITS)])
def test_k10_a_state_is_no_none(make):
    layer, h = make(), np.zeros((2, UNITS), "float32")
    args = (INPUTS, MEMORY) if isinstance(layer, kl.InputFeedingDecoder) else (MEMORY,)
    with pytest.raises(TypeError, match="initial_state must be .*Received .*None"):
        layer(*args, initial_state=[h, None])


def test_k10_the_coverage_loss_is_of_weights_of_three_axes():
    with pytest.raises(ValueError, match=r"weights must have 3 axes.*\(5, 6\)"):
        kl.CoverageLoss()(QUERY, WEIGHTS[0])
    with pytest.raises(ValueError, match="Target length.*weights: 5, mask: 6"):
        kl.CoverageLoss()(QUERY, WEIGHTS, mask=MASK)


@pytest.mark.parametrize(
    ("make", "close"),
    [
        (lambda: kl.LuongAttention("dott"), "dot"),
        (lambda: kl.MultiHeadLuongAttention(2, score_mode="generl"), "general"),
        (lambda: kl.LuongAttention(normalizer="softmx"), "softmax"),
    ],
)
def test_k10_a_name_that_is_almost_right(make, close):
    with pytest.raises(ValueError, match=f"Did you mean '{close}'"):
        make()


def test_k10_a_direction_that_is_none():
    with pytest.raises(TypeError, match='True, False or "first".*frist'):
        kl.RecurrentEncoder(UNITS, bidirectional="frist")


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "search", [kl.BeamSearch(), kl.GreedySearch(), kl.RandomSampling()]
)
def test_k10_a_search_of_a_model_that_reads_ids_takes_no_text(search):
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    for find in (search, lambda model, source: kl.generate(model, source, search)):
        with pytest.raises(TypeError, match="Translator takes text.*dtype=string"):
            find(model, ["a b"])
        with pytest.raises(TypeError, match="must be ids.*float"):
            find(model, np.array([[4.5, 3.0]]))


def test_k10_a_mistake_in_somebodys_score_is_theirs():
    class Wrong(kl.Score):
        def prepare(self, key):
            return key.of_a_name_that_is_not_there

    for attention in (kl.LuongAttention(Wrong()), built_without_call(Wrong)):
        with pytest.raises(AttributeError, match="of_a_name_that_is_not_there"):
            attention.prepare(ops.array(MEMORY))
    with pytest.raises(
        ValueError, match="no weights yet.*GeneralScore has no 'kernel'"
    ):
        kl.LuongAttention().prepare(ops.array(MEMORY))


def built_without_call(score):
    attention = kl.LuongAttention(score())
    attention.build(QUERY.shape, MEMORY.shape)
    return attention


@pytest.mark.tensorflow
def test_k10_a_plain_dataclass_for_a_penalty_is_traced_once_for_each_of_its_values():
    traced = []

    @dataclasses.dataclass
    class Penalty:
        weight: float

        def score(self, log_probs, lengths):
            traced.append(self.weight)
            return self.weight * log_probs

        def bound(self, log_probs, limits):
            return self.weight * log_probs

    class Model:
        def encode(self, source):
            return source, tf.zeros([1, 1, 1])

        def step(self, tokens, state, memory):
            return tf.one_hot(tokens, 5), state, None

    model, source, penalty = Model(), [[4, 3]], Penalty(2.0)
    search = kl.BeamSearch(2, max_length=3, length_penalty=penalty)
    first = kl.generate(model, source, search)
    times = len(traced)
    kl.generate(model, source, search)
    kl.generate(
        model, source, kl.BeamSearch(2, max_length=3, length_penalty=Penalty(2.0))
    )
    assert len(traced) == times
    penalty.weight = 1.0
    changed = kl.generate(model, source, search)
    assert set(traced) == {2.0, 1.0}
    np.testing.assert_allclose(2 * changed.scores, first.scores, rtol=1e-5)


STATE = rng.normal(size=(2, UNITS)).astype("float32")
DICTS = {
    "initial_state": lambda: kl.RecurrentEncoder(UNITS)(
        MEMORY, initial_state={"h": STATE, "c": -STATE}
    ),
    "initial_state ": lambda: decoder()(
        INPUTS, MEMORY, initial_state={"h": STATE, "c": -STATE}
    ),
    "initial_state  ": lambda: cell().initial_states((2,), {"h": STATE, "c": STATE}),
    "initial_state   ": lambda: kl.PointerNetwork(cell()).encode(
        MEMORY, initial_state=[{"h": STATE, "c": STATE}]
    ),
    "states": lambda: kl.StateBridge(cell())({"h": STATE, "c": STATE}),
    "query": lambda: kl.LuongAttention()({"query": QUERY, "value": MEMORY}),
    "value": lambda: kl.LuongAttention()(QUERY, {"value": MEMORY}),
    "value_mask": lambda: kl.LuongAttention()(QUERY, MEMORY, value_mask={"mask": MASK}),
    "value ": lambda: several()(QUERY, {"one": MEMORY, "other": MEMORY}),
    "inputs": lambda: decoder()({"x": INPUTS}, MEMORY),
    "memory": lambda: decoder()(INPUTS, {"memory": MEMORY}),
    "features": lambda: kl.PointerGenerator()({"h": QUERY}, QUERY, WEIGHTS, SOURCE_IDS),
}


@pytest.mark.parametrize("name", DICTS)
def test_k6_a_dict_whose_order_would_be_lost_is_refused(name):
    with pytest.raises(TypeError, match=f"{name.strip()} must be a .*a dict of"):
        DICTS[name]()


def test_k10_what_a_call_of_somebodys_own_takes_is_theirs():
    class Bridge(kl.StateBridge):
        def call(self, states: "Tensor | list[Tensor]"):  # noqa: F821
            return super().call(states)

    class Encoder(kl.RecurrentEncoder):
        def call(self, inputs, lengths: "Any" = None, mask=None):  # noqa: F821
            return super().call(inputs, mask)

        def compute_output_spec(self, inputs, **kwargs):
            return super().compute_output_spec(inputs)

    class Decoder(kl.InputFeedingDecoder):
        def call(self, inputs, memory, memory_mask):
            return super().call(inputs, memory, memory_mask)

    assert len(Bridge([UNITS, UNITS])([STATE, STATE])) == 2
    assert Encoder(UNITS)(MEMORY, lengths=[5, 3])[0].shape == (2, POSITIONS, UNITS)
    outputs = Decoder(cell())(INPUTS, MEMORY, memory_mask=None)
    assert outputs.shape == (2, STEPS, UNITS)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("kind", ["general", "local-m", "coverage"])
def test_k10_positions_may_be_a_python_list(kind, symbolic):
    attention, places = KINDS[kind](), np.arange(STEPS)[None] % 3
    expected = attention(QUERY, MEMORY, positions=places)
    given = [QUERY, MEMORY]
    if symbolic:
        inputs = [keras.Input(x.shape[1:]) for x in given]
        made = attention(*inputs, positions=places.tolist())
        found = keras.Model(inputs, made)(given)
    else:
        found = attention(*given, positions=places.tolist())
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_k10_the_key_in_a_list_may_be_none():
    attention = kl.LuongAttention()
    np.testing.assert_allclose(
        attention([QUERY, MEMORY, None]), attention(QUERY, MEMORY), atol=1e-6
    )
    with pytest.raises(ValueError, match="needs a query and a value"):
        attention([QUERY, None])
    with pytest.raises(TypeError, match="value must be .*list with None in it"):
        several()(QUERY, [MEMORY, None])


class Pairs(kl.LuongAttention):
    """Somebody's, whose memory has something that may lack."""

    def prepare(self, value, mask=None, key=None):
        return super().prepare(value, mask, key), None

    def attend(self, query, memory, *args, **kwargs):
        return super().attend(query, memory[0], *args, **kwargs)


def test_k10_a_memory_of_somebodys_own_attention_may_hold_none():
    step = kl.InputFeedingDecoderCell(UNITS, Pairs())
    step.build((2, 1, WIDTH), MEMORY.shape)
    states, memory = step.initial_states((2, 1)), step.prepare(ops.array(MEMORY))
    output, _, weights = step(INPUTS[:, :1], states, memory=memory)
    assert output.shape == (2, 1, UNITS)
    np.testing.assert_allclose(ops.sum(weights, -1), np.ones((2, 1)), atol=1e-5)


class Matrix(kl.layers.DecoderCell):
    """Somebody's, whose state is a matrix."""

    query_units = UNITS

    def recurrent_spec(self, shape=(None,)):
        return [keras.KerasTensor((*shape, 3, UNITS), self.compute_dtype)]

    def step(self, z, states, memory, mode=kl.layers.INFERENCE):
        (matrix,) = states.recurrent
        matrix = matrix + ops.mean(z, -1)[..., None, None] + 1
        h = matrix[..., 0, :]
        context, weights, seen = self.attend(h, memory, states, mode)
        new = states._replace(
            recurrent=[matrix], attention=seen, position=states.position + 1
        )
        return (h + context, weights), new


def test_w1_a_state_of_several_axes_keeps_them():
    decode = kl.InputFeedingDecoder(Matrix(kl.LuongAttention()))
    inputs = [keras.Input((None, n)) for n in (WIDTH, UNITS)]
    spec = decode(*inputs, return_state=True)
    outputs = decode(INPUTS, MEMORY, return_state=True)
    assert spec[1].shape == (None, 3, UNITS)
    assert outputs[1].shape == (2, 3, UNITS)
    again = decode(INPUTS, MEMORY, initial_state=outputs[1])
    np.testing.assert_allclose(
        keras.Model(inputs, list(spec))([INPUTS, MEMORY])[0], outputs[0], atol=1e-6
    )
    assert np.abs(again - outputs[0]).max() > 1
    with pytest.raises(ValueError, match=r"Axis 1 of initial_state\[0\] must be 3"):
        decode(INPUTS, MEMORY, initial_state=np.ones((2, 2, UNITS), "float32"))


def test_k5_a_pointer_generator_whose_build_is_somebodys_own():
    class Own(kl.PointerGenerator):
        def build(self, features, *others):
            self.kernel = self.add_weight((features[-1], 1), name="kernel")
            self.bias = self.add_weight((1,), name="bias")

    own = Own()(QUERY, QUERY, WEIGHTS, SOURCE_IDS)
    assert own.shape == (2, STEPS, UNITS)


def encoded():
    return kl.RecurrentEncoder(UNITS)(MEMORY)


def one_step(memory):
    step = built(decoder(), INPUTS, MEMORY).cell
    return step(INPUTS[:, :1], step.initial_states((2, 1)), memory)


def decoder_of_several():
    attention = several()
    return kl.InputFeedingDecoder(kl.InputFeedingDecoderCell(UNITS, attention))


HINT = r"memory, \*state = encoder"
REFUSED = {
    rf"query must be one tensor.*a list of 3.*{HINT}": (
        lambda: kl.LuongAttention()([encoded(), MEMORY])
    ),
    rf"query_mask must be one tensor.*{HINT}": (
        lambda: kl.LuongAttention()(QUERY, MEMORY, query_mask=encoded())
    ),
    rf"memory\[0\] must be one tensor.*{HINT}": (
        lambda: decoder_of_several()(INPUTS, [encoded(), MEMORY])
    ),
    r"mask must be a tensor or an array. Received: True": (
        lambda: decoder()(INPUTS, MEMORY, mask=True)
    ),
    r"memory must be what .*prepare.*Received: \w*(Tensor|Array)": (
        lambda: one_step(ops.array(MEMORY))
    ),
    r"memory must be what .*prepare.*Received: tuple": lambda: one_step(encoded()),
    rf"Expected 2 initial states.*Received: 3.*{HINT}": (
        lambda: kl.RecurrentEncoder(UNITS)(MEMORY, initial_state=encoded())
    ),
    rf"Expected 2 initial states.*all 4 .*Received: 3.*{HINT}": (
        lambda: decoder()(INPUTS, MEMORY, initial_state=encoded())
    ),
    rf"states must be a list of 2.*\(2, 6, 4\), \(2, 4\).*{HINT}": (
        lambda: built(kl.StateBridge([UNITS] * 2), encoded()[1:])(encoded())
    ),
    rf"2 or 3 elements.*{HINT}": lambda: kl.LuongAttention()(encoded()),
    rf"2 or 3 elements.*list of 3.*{HINT}": (
        lambda: built(kl.LuongAttention(), QUERY, MEMORY)(encoded())
    ),
    "inputs must be one tensor.*list of 2 .pass them one by one": (
        lambda: decoder()([INPUTS, MEMORY])
    ),
    "value must be one tensor.*list of 1 .pass them one by one": (
        lambda: kl.LuongAttention()(QUERY, value=[MEMORY])
    ),
    "value must be a list of 2.*Received: one tensor$": (
        lambda: several()(QUERY, MEMORY)
    ),
    rf"positions must be one tensor.*{HINT}": (
        lambda: kl.LuongAttention()(QUERY, MEMORY, positions=encoded())
    ),
    "compute_output_shape.*memory_shape=None": (
        lambda: cell().compute_output_shape((2, 1, WIDTH))
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_k10_what_does_not_fit_is_said_in_a_sentence(message):
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        REFUSED[message]()
    assert "numpy=" not in str(caught.value).split("Arguments received")[0]


def test_k4_states_in_a_list_within_a_list_are_flat_to_a_bridge_too():
    bridge, (_, *states) = kl.StateBridge([UNITS, UNITS]), encoded()
    for x, y in zip(bridge([states]), bridge(states), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_k10_outputs_of_a_coverage_loss_are_tensors():
    outputs, weights = np.zeros((2, 3, 4)), np.zeros((2, 3, 5))
    with pytest.raises(TypeError, match="outputs must be .* None among them"):
        kl.layers.CoverageLoss()([outputs, None], weights)
    assert len(kl.layers.CoverageLoss()([outputs, outputs], weights)) == 2
