"""Inputs of layers that are refused, and what is said; and some that are not."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import INPUTS, MASK, MEMORY, STEPS, UNITS, WIDTH
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


def built(layer, *args, **kwargs):
    layer(*args, **kwargs)
    return layer


def attend(*args, **kwargs):
    return kl.LuongAttention()(*args, **kwargs)


def built_attention():
    return built(kl.LuongAttention(), QUERY, MEMORY)


def encode(memory=MEMORY, **options):
    return kl.RecurrentEncoder(UNITS)(memory, **options)


def decode(inputs=INPUTS, memory=MEMORY, **options):
    return decoder()(inputs, memory, **options)


def attend_to_two(sources, query=QUERY, **options):
    return several()(query, sources, **options)


def bridge(states, sizes=(UNITS, UNITS)):
    return kl.StateBridge(list(sizes))(states)


def cover(outputs=QUERY, weights=WEIGHTS, **options):
    return kl.CoverageLoss()(outputs, weights, **options)


def test_k1_the_summary_of_somebodys_model_has_a_row_for_a_cell():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.cell = kl.InputFeedingDecoderCell(UNITS, several())
            self.decoder = kl.InputFeedingDecoder(self.cell)

        def call(self, words):
            return self.decoder(words, [MEMORY, MEMORY])

    model, lines = Own(), []
    model(INPUTS)
    model.summary(print_fn=lambda line, **options: lines.append(line))
    assert f"((2, {STEPS}, " in "".join(lines)  # its output; its states and weights


UNPACKED = {
    "attention": lambda made: attend(QUERY, made),
    "list": lambda made: attend([QUERY, made]),
    "query": lambda made: attend(made, MEMORY),
    "sources": lambda made: attend_to_two(made),
    "decoder": lambda made: decode(memory=made),
    "inputs": lambda made: decode(made),
    "encoder": lambda made: encode(made),
    "vector": lambda made: kl.AttentionalVector(3)(made, QUERY),
    "pointer": lambda made: kl.PointerNetwork(cell())(IDS, made),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", UNPACKED)
def test_k4_what_an_encoder_returns_is_to_be_unpacked(name, symbolic):
    source = keras.Input((POSITIONS, UNITS), batch_size=2) if symbolic else MEMORY
    with pytest.raises(ValueError, match=r"list of 3.*memory, \*state = encoder"):
        UNPACKED[name](kl.RecurrentEncoder(UNITS)(source))


@pytest.mark.parametrize("kind", ["gru", "simple_rnn", "lstm"])
def test_k6_one_state_may_be_a_bare_tensor(kind):
    encoder = kl.RecurrentEncoder(UNITS, cell_type=kind)
    state = [QUERY[:, 0]] * (2 if kind == "lstm" else 1)
    other = [state] if kind == "lstm" else state[0]  # or a list within a list
    expected = encoder(MEMORY, initial_state=state)
    inputs = [keras.Input(x.shape[1:]) for x in (MEMORY, QUERY[:, 0])]
    symbolic = keras.tree.map_structure(lambda _: inputs[1], other)
    model = keras.Model(inputs, encoder(inputs[0], initial_state=symbolic))
    for found in (
        encoder(MEMORY, initial_state=other),
        model([MEMORY, QUERY[:, 0]]),
    ):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)


def wrapped(rnn, **options):
    options = {"output_attention": False, "dtype": "mixed_float16", **options}
    return kl.AttentionWrapper(
        rnn(UNITS, dtype="float32"), kl.LuongAttention(), **options
    )


def half(attention=None, **options):
    attention = attention or kl.LuongAttention()
    options = {"dtype": "mixed_float16", **options}
    return kl.InputFeedingDecoderCell(UNITS, attention, **options)


OTHER_DTYPES = {
    "float32 cell, h": lambda: wrapped(keras.layers.LSTMCell),
    "float32 cell, after the loop": lambda: wrapped(
        keras.layers.GRUCell, input_feeding=False
    ),
    "float32 attention": lambda: half(
        kl.LuongAttention(dtype="float32"), use_attentional_vector=False
    ),
    "float32 vector": lambda: half(
        attentional_vector=kl.AttentionalVector(3, dtype="float32")
    ),
    "float64 attention": lambda: half(
        kl.LuongAttention(dtype="float64", coverage=True), dtype="float32"
    ),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", OTHER_DTYPES)
def test_k9_outputs_have_the_dtype_that_was_promised(name, training):
    decode = kl.InputFeedingDecoder(OTHER_DTYPES[name]())
    options = {"return_attention_scores": True, "return_state": True}
    options["training"] = training
    specs = decode(keras.Input((None, WIDTH)), keras.Input((None, UNITS)), **options)
    promised = [keras.backend.standardize_dtype(x.dtype) for x in specs]
    calls = [lambda: decode(INPUTS, MEMORY, **options)]
    if keras.backend.backend() == "tensorflow":  # loops that would not run
        calls.append(tf.function(calls[0]))
    for call in calls:
        assert [keras.backend.standardize_dtype(x.dtype) for x in call()] == promised


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
    searches = [
        kl.BeamSearch(2, max_length=3, length_penalty=x)
        for x in (penalty, Penalty(2.0))
    ]
    first = kl.generate(model, source, searches[0])
    times = len(traced)
    for search in searches:
        kl.generate(model, source, search)
    assert len(traced) == times
    penalty.weight = 1.0
    changed = kl.generate(model, source, searches[0])
    assert set(traced) == {2.0, 1.0}
    np.testing.assert_allclose(2 * changed.scores, first.scores, rtol=1e-5)


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


def test_k5_a_pointer_generator_whose_build_is_somebodys_own():
    class Own(kl.PointerGenerator):
        def build(self, features, *others):
            self.kernel = self.add_weight((features[-1], 1), name="kernel")
            self.bias = self.add_weight((1,), name="bias")

    own = Own()(QUERY, QUERY, WEIGHTS, SOURCE_IDS)
    assert own.shape == (2, STEPS, UNITS)


def test_k4_states_in_a_list_within_a_list_are_flat_to_a_bridge_too():
    bridge, (_, *states) = kl.StateBridge([UNITS, UNITS]), encoded()
    for x, y in zip(bridge([states]), bridge(states), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


STATE = rng.normal(size=(2, UNITS)).astype("float32")
NAMED = {"h": STATE, "c": STATE}
HINT = r"memory, \*state = encoder"


def decoder_of_two():
    return kl.InputFeedingDecoder(kl.InputFeedingDecoderCell(UNITS, several()))


def encoded():
    return kl.RecurrentEncoder(UNITS)(MEMORY)


def one_step(memory):
    step = built(decoder(), INPUTS, MEMORY).cell
    return step(INPUTS[:, :1], step.initial_states((2, 1)), memory)


def copying(features=(QUERY, QUERY), **options):
    layer = built(kl.PointerGenerator(), [QUERY, QUERY], QUERY, WEIGHTS, SOURCE_IDS)
    return layer(features, QUERY, WEIGHTS, SOURCE_IDS)


TWO, LIST = [MEMORY, MEMORY], MASK.tolist()
TYPE_ERRORS = [
    # What is missing.
    ("called with query. .*=None", lambda: attend(None, MEMORY)),
    ("called with query. .*=None", lambda: attend_to_two(TWO, query=None)),
    ("called with inputs. .*=None", lambda: decode(None)),
    ("called with memory. .*=None", lambda: decode(memory=None)),
    ("called with features. .*=None", lambda: copying(None)),
    ("called with weights. .*=None", lambda: cover(weights=None)),
    ("value must be .*list with None in it", lambda: attend_to_two([MEMORY, None])),
    ("initial_state must be .*None", lambda: encode(initial_state=[STATE, None])),
    ("initial_state must be .*None", lambda: decode(initial_state=[STATE, None])),
    ("outputs must be .* None among them", lambda: cover([QUERY, None])),
    # A mask is no Python list, nor a flag.
    ("value_mask must be .*True", lambda: attend(QUERY, MEMORY, value_mask=LIST)),
    ("value_mask must be", lambda: attend_to_two(TWO, value_mask=[LIST, None])),
    ("memory_mask must be .*True", lambda: decode(memory_mask=LIST)),
    ("mask must be a tensor or an array. Received: True", lambda: decode(mask=True)),
    (r"^mask must be .*True", lambda: cover(mask=LIST)),
    # A dict, whose order would be lost.
    ("initial_state must be a .*a dict of", lambda: encode(initial_state=NAMED)),
    ("initial_state must be a .*a dict of", lambda: decode(initial_state=NAMED)),
    ("initial_state must be a .*a dict", lambda: cell().initial_states((2,), NAMED)),
    (
        "initial_state must be a .*a dict of",
        lambda: kl.PointerNetwork(cell()).encode(MEMORY, initial_state=[NAMED]),
    ),
    ("states must be a .*a dict of", lambda: kl.StateBridge(cell())(NAMED)),
    ("query must be a .*a dict of", lambda: attend({"query": QUERY, "value": MEMORY})),
    ("value must be a .*a dict of", lambda: attend_to_two(dict(a=MEMORY, b=MEMORY))),
    # Something else.
    (r"memory must be what .*prepare.*: tuple", lambda: one_step(encoded())),
    (
        r"memory must be what .*prepare.*: \w*(Tensor|Array)",
        lambda: one_step(ops.array(MEMORY)),
    ),
    (
        'True, False or "first".*frist',
        lambda: kl.RecurrentEncoder(UNITS, bidirectional="frist"),
    ),
]
VALUE_ERRORS = [
    # What an encoder returns is to be unpacked.
    (
        rf"query must be one tensor.*list of 3.*{HINT}",
        lambda: attend([encoded(), MEMORY]),
    ),
    (rf"2 or 3 elements.*{HINT}", lambda: attend(encoded())),
    (rf"2 or 3 elements.*list of 3.*{HINT}", lambda: built_attention()(encoded())),
    (
        rf"query_mask must be one tensor.*{HINT}",
        lambda: attend(QUERY, MEMORY, query_mask=encoded()),
    ),
    (
        rf"positions must be one tensor.*{HINT}",
        lambda: attend(QUERY, MEMORY, positions=encoded()),
    ),
    (
        rf"memory\[0\] must be one tensor.*{HINT}",
        lambda: decoder_of_two()(INPUTS, [encoded(), MEMORY]),
    ),
    (
        rf"Expected 2 initial states.*Received: 3.*{HINT}",
        lambda: encode(initial_state=encoded()),
    ),
    (
        rf"Expected 2 initial states.*all 4 .*Received: 3.*{HINT}",
        lambda: decode(initial_state=encoded()),
    ),
    (
        rf"states must be a list of 2.*\(2, 6, 4\), \(2, 4\).*{HINT}",
        lambda: built(kl.StateBridge([UNITS] * 2), encoded()[1:])(encoded()),
    ),
    (rf"list of 3.*{HINT}", lambda: cell().prepare(encoded())),
    (r"states\[0\] must have 2 axes", lambda: bridge(encoded(), [UNITS])),
    # Others that are too many or too few.
    ("Expected 2 initial states.*Received: 1", lambda: encode(initial_state=STATE)),
    (
        "inputs must be one tensor.*list of 2 .pass them one by one",
        lambda: decoder()([INPUTS, MEMORY]),
    ),
    (
        "value must be one tensor.*list of 1 .pass them one by one",
        lambda: attend(QUERY, value=[MEMORY]),
    ),
    ("value must be a list of 2.*Received: one tensor$", lambda: attend_to_two(MEMORY)),
    ("needs a query and a value", lambda: built_attention()(QUERY)),
    ("features must be 2 tensors.*Received: 1", lambda: copying(QUERY)),
    # Of another size.
    (r"Axis 2 of features\[1\] must be 4", lambda: copying([QUERY, QUERY[..., :3]])),
    (
        "Axis 2 of value must be 4",
        lambda: built(several(), QUERY, TWO)(QUERY, [MEMORY, MEMORY[..., :3]]),
    ),
    (r"weights must have 3 axes.*\(5, 6\)", lambda: cover(weights=WEIGHTS[0])),
    ("Target length.*weights: 5, mask: 6", lambda: cover(mask=MASK)),
    (
        "compute_output_shape.*memory_shape=None",
        lambda: cell().compute_output_shape((2, 1, WIDTH)),
    ),
    (
        "no weights yet.*GeneralScore has no 'kernel'",
        lambda: kl.LuongAttention().prepare(ops.array(MEMORY)),
    ),
]
REFUSED = [
    *((TypeError, *row) for row in TYPE_ERRORS),
    *((ValueError, *row) for row in VALUE_ERRORS),
]


@pytest.mark.parametrize("error, message, call", REFUSED)
def test_k10_what_does_not_fit_is_said_in_a_sentence(error, message, call):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "numpy=" not in str(caught.value).split("Arguments received")[0]
