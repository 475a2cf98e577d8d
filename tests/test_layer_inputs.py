"""Options and inputs of layers that are refused, and what is said of them."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from copy_translator import CopyModel
from decoding_attentions import (
    INPUTS,
    LSTM,
    MASK,
    MEMORY,
    STEPS,
    UNITS,
    WIDTH,
    fed,
    several,
)
from keras import ops

import keras_luong as kl
from keras_luong.layers.scores import make_score

POSITIONS = MEMORY.shape[1]
rng = np.random.default_rng(0)
QUERY = rng.normal(size=(2, STEPS, UNITS)).astype("float32")
WEIGHTS = np.full((2, STEPS, POSITIONS), 1 / POSITIONS, "float32")
IDS = np.ones((2, STEPS), "int32")
SOURCE_IDS = np.ones((2, POSITIONS), "int32")


def decoder(cell=None, **options):
    return kl.InputFeedingDecoder(cell or fed(), **options)


def network():
    return kl.PointerNetwork(fed())


class Alone(kl.Score):
    def call(self, query, key):
        return query + key


# --- options


HEADS, CHUNKS = kl.MultiHeadLuongAttention, kl.MonotonicChunkwiseAttention
LUONG, LOCAL, AWARE = kl.LuongAttention, kl.LocalAttention, kl.LocationAwareAttention
SEVERAL, POINT = kl.MultiSourceAttention, kl.PointerNetwork
WRAPPER, PAPERS = kl.AttentionWrapper, kl.InputFeedingDecoderCell
ENCODER, BRIDGE = kl.RecurrentEncoder, kl.StateBridge
FREE, SOMETIMES = kl.FreeRunning, kl.ScheduledOutput
RUNS = keras.layers.LSTM  # and is no cell
LOCATION = {"score_mode": "location", "max_source_length": 5}
#: What is said of options that cannot be.
WRONG_VALUES = [
    ("Did you mean 'dot'", lambda: LUONG(score_mode="dott")),
    ("max_source_length.*None", lambda: LUONG(score_mode="location")),
    ("mean 'softmax'", lambda: LUONG(normalizer="softmx")),
    ("1.0", lambda: LUONG(dropout=1.0)),
    ("units.*-3", lambda: LUONG(units=-3)),
    ("coverage=True needs", lambda: LUONG(coverage=True, **LOCATION)),
    ("max_source_length.*0", lambda: make_score("location", max_source_length=0)),
    ("LocalAttention needs.*location", lambda: LOCAL(**LOCATION)),
    ("window.*0", lambda: LOCAL(window=0)),
    ("predictive.*'local-p'", lambda: LOCAL(alignment="local-p")),
    ("mode.*parallel.*'hard'", lambda: kl.MonotonicAttention(mode="hard")),
    ("sigmoid_noise.*-1", lambda: kl.MonotonicAttention(sigmoid_noise=-1)),
    ("no coverage.*True", lambda: kl.MonotonicAttention(coverage=True)),
    ("no normalizer", lambda: kl.MonotonicAttention(normalizer="sparsemax")),
    ("at least 1.*0", lambda: CHUNKS(chunk_size=0)),
    ("one of", lambda: CHUNKS(chunk_score_mode="x")),
    ("needs a score that compares", lambda: AWARE(**LOCATION)),
    ("must be odd.*4", lambda: AWARE(kernel_size=4)),
    ("coverage: cumulative=", lambda: AWARE(coverage=True)),
    ("num_heads must be at least 1.*0", lambda: HEADS(num_heads=0)),
    ("no coverage. .*True", lambda: HEADS(2, coverage=True)),
    ("mean 'general'", lambda: HEADS(2, score_mode="generl")),
    ("lstm.*gru.*'ssm'", lambda: fed(cell_type="ssm")),
    ("attentional_units", lambda: fed(attention=None, attentional_units=5)),
    ("memory's.*3", lambda: fed(use_attentional_vector=False, attentional_units=3)),
    ("tanhh", lambda: fed(attentional_activation="tanhh")),
    ("go_backwards", lambda: ENCODER(3, bidirectional=True, go_backwards=True)),
    ("units", lambda: BRIDGE([4, -1])),
    ("factor must be finite.*-1", lambda: kl.CoverageLoss(factor=-1)),
    ("num_extra_ids.*-1", lambda: kl.PointerGenerator(num_extra_ids=-1)),
    (r"\[0, 1\]. Received: 1.5", lambda: SOMETIMES(rate=1.5)),
    (r"\[0, 1\]. Received: -0.1", lambda: SOMETIMES(rate=-0.1)),
    ("trainable=Fal", lambda: SOMETIMES(rate=keras.Variable(0.5))),
    ("given must be at most 2", lambda: FREE(2, given=3)),
    ("needs an embedding", lambda: FREE(2, sample=True)),
    ("both", lambda: FREE(2, keras.layers.Embedding(7, 3), function=len)),
]
WRONG_TYPES = [
    ("one of.*Received: 3", lambda: LUONG(score_mode=3)),
    (r"must take project.*: def call\(query, key\)", lambda: LUONG(Alone())),
    ("'0.1'", lambda: LUONG(dropout="0.1")),
    ("units.*'8'", lambda: LUONG(units="8")),
    ("hard.*1", lambda: LUONG(hard=1)),
    ("gaussian.*'yes'", lambda: LOCAL(gaussian="yes")),
    ("sigmoid_noise.*'a'", lambda: kl.MonotonicAttention(sigmoid_noise="a")),
    ("kernel_size.*1.5", lambda: AWARE(kernel_size=1.5)),
    ("list of attention layers", lambda: SEVERAL([])),
    ("list of.*'dot'", lambda: SEVERAL(["dot"])),
    ("LuongAttention.*'general'", lambda: PAPERS(3, "general")),
    ("Keras cell such as.*Dense", lambda: WRAPPER(keras.layers.Dense(3), None)),
    ("keras.layers.LSTMCell, say.*<LSTM name", lambda: WRAPPER(RUNS(8), None)),
    ("LSTMCell, say.*<GRU name", lambda: WRAPPER([keras.layers.GRU(8)], None)),
    ('True, False or "first".*frist', lambda: ENCODER(3, bidirectional="frist")),
    ("units", lambda: BRIDGE(4)),
    ("units", lambda: BRIDGE([2.5])),
    ("rate must be.*'half'", lambda: SOMETIMES(rate="half")),
    ("rate must be.*True", lambda: SOMETIMES(rate=True)),
    ("embedding must be", lambda: kl.ScheduledEmbedding(0.5, embedding=None)),
    ("function must be callable.*3", lambda: kl.CustomFeeding(function=3)),
    ("feeding must be.*'free'", lambda: decoder(feeding="free")),
    ("feeding must.*class", lambda: decoder(feeding=kl.FreeRunning)),
    ("output_layer must.*'7'", lambda: decoder(output_layer="7")),
    ("InputFeedingDecoderCell.*LSTMCell", lambda: decoder(LSTM(3))),
    ("must be a DecoderCell", lambda: POINT(LSTM(4))),
    (
        "without coverage.*: <LuongAttention",
        lambda: POINT(fed(None), LUONG(coverage=True)),
    ),
    ("Received: <LocalAttention", lambda: POINT(fed(None), LOCAL())),
]


# --- shapes


#: Layers, and shapes that fit.
OF_VECTOR = {"context": (2, 5, 2), "query": (2, 5, 3)}
OF_TWO = {"inputs": (2, 4, 3), "memory": [(2, 6, 4), (2, 7, 2)]}
OF_GENERATOR = {"features": [(2, 3, 6), (2, 3, 4)], "logits": (2, 3, 5)}
OF_GENERATOR |= {"attention_weights": (2, 3, 4), "source_ids": (2, 4)}
FITTING = {
    "attention": (kl.LuongAttention, {"query": (2, 3, 4), "value": (2, 5, 4)}),
    "vector": (lambda: kl.AttentionalVector(3), OF_VECTOR),
    "decoder": (decoder, {"inputs": (2, 4, 3), "memory": (2, 5, 6)}),
    "two sources": (lambda: decoder(several()), OF_TWO),
    "encoder": (lambda: ENCODER(3), {"inputs": (3, 5, 4)}),
    "bridge": (lambda: kl.StateBridge([4, 2]), {"states": [(2, 3), (2, 5)]}),
    "coverage": (kl.CoverageLoss, {"outputs": (2, 5, 4), "weights": (2, 5, 6)}),
    "generator": (kl.PointerGenerator, OF_GENERATOR),
    "network": (network, {"targets": (2, 3), "memory": (2, 5, 4)}),
}
#: Of each layer, what is said of which shapes in their place.
NOT_FITTING = {
    "attention": {
        "query must have 3 axes": {"query": (2, 4)},
        "value must have 3 axes": {"value": (2, 4)},
        "key must have 3 axes": {"key": (2, 1, 5, 4)},
        "Source length.*value: 5, key: 6": {"key": (2, 6, 4)},
        "Batch size.*query: 3, value: 2": {"query": (3, 3, 4)},
        "Query length.*query_mask: 5": {"query_mask": (2, 5)},
        "value: 5, value_mask: 3": {"value_mask": (2, 3)},
        r"value_mask must have 2 axes.*1\)": {"value_mask": (2, 5, 1)},
        "attention_mask: 5": {"attention_mask": (2, 5, 3)},
        r"attention_mask must have 3 axes.*\(5,\)": {"attention_mask": (5,)},
        "attention_mask must have 3 axes": {"attention_mask": (2, 1, 3, 5)},
        r"Axis 2 of query must be 4.*, 3\)": {"query": (2, 3, 3)},
        r"Axis 2 of value must be 4.*, 3\)": {"value": (2, 5, 3), "key": (2, 5, 4)},
        r"Axis 2 of key must be 4.*, 3\)": {"key": (2, 5, 3)},
    },
    "vector": {
        "Axis 2 of context must be 2": {"context": (2, 5, 4)},
        "context must have 3 axes": {"context": (2, 2)},
    },
    "decoder": {
        "inputs must have 3 axes": {"inputs": (2, 3)},
        r"Axis 2 of inputs must be 3.*\(2, 4, 9\)": {"inputs": (2, 4, 9)},
        "memory must have 3 axes": {"memory": (2, 6)},
        "Batch size.*inputs: 2, memory: 1": {"memory": (1, 5, 6)},
        r"Axis 2 of memory must be 6.*\(2, 5, 9\)": {"memory": (2, 5, 9)},
        "Source length.*memory: 5, memory_mask: 4": {"memory_mask": (2, 4)},
        "Target length.*inputs: 4, mask: 5": {"mask": (2, 5)},
        "Axis 1 of initial_state.0. must be 4.*Bridge": {"initial_state": [(2, 9)] * 2},
        "Expected 2 initial states.*Received: 1": {"initial_state": [(2, 4)]},
        "memory must be one tensor.*a list of 2 .pass": {"memory": [(2, 5, 6)] * 2},
    },
    "two sources": {
        "memory must be a list of 2.*one tensor": {"memory": (2, 6, 4)},
        "memory must be a list of 2.*a list of 1": {"memory": [(2, 6, 4)]},
        "memory_mask must be a list of 2": {"memory_mask": (2, 6)},
        "Length of source 0 must be": {"memory_mask": [(2, 7), (2, 6)]},
        "Batch size": {"memory": [(2, 6, 4), (1, 7, 2)]},
        r"memory\[1\] must have 3 axes": {"memory": [(2, 6, 4), (2, 7)]},
    },
    "encoder": {
        r"inputs must have 3 axes.*\(3, 4\)": {"inputs": (3, 4)},
        r"Axis 2 of inputs must be 4.*\(3, 5, 9\)": {"inputs": (3, 5, 9)},
        "Source length.*inputs: 5, mask: 4": {"mask": (3, 4)},
        "Expected 2 initial states.*lstm.*: 1": {"initial_state": [(3, 3)]},
        r"Axis 1 of initial_state\[0\] must be 3": {"initial_state": [(3, 5)] * 2},
        r"Batch size.*initial_state\[0\]: 1": {"initial_state": [(1, 3)] * 2},
    },
    "bridge": {
        "states must be a list of 2 tensors": {"states": [(2, 3)]},
        "Axis 0 must be the same": {"states": [(2, 3), (1, 5)]},
    },
    "coverage": {
        r"weights must have 3 axes.*\(5, 6\)": {"weights": (5, 6)},
        "Target length.*weights: 5, mask: 6": {"mask": (2, 6)},
    },
    "generator": {
        "Number of queries": {"features": [(2, 4, 6), (2, 3, 4)]},
        "source_ids must have 2 axes": {"source_ids": (4,)},
        r"Axis 2 of features\[1\] must be 4": {"features": [(2, 3, 6), (2, 3, 3)]},
        "features must be 2 tensors.*Received: 1": {"features": (2, 3, 6)},
    },
    "network": {"Source length.*inputs": {"inputs": (2, 6, 4)}},
}


UNFIT = [
    pytest.param(name, message, make, marks=[pytest.mark.slow] * (i % 2 == j))
    for name in NOT_FITTING
    for i, message in enumerate(NOT_FITTING[name])
    for j, make in enumerate([keras.KerasTensor, np.ones])
]


@pytest.mark.parametrize("name, message, make", UNFIT)
def test_l1_shapes_that_do_not_fit_are_named(name, message, make):
    """Before a layer is built too, but where that says what fits."""
    new, shapes = FITTING[name]

    def call(layer, **changes):
        layer(**{x: tensors(x, shape) for x, shape in {**shapes, **changes}.items()})

    def tensors(name, shape):
        if isinstance(shape, list):
            return [tensors(name, one) for one in shape]
        kinds = {"mask": "bool", "_ids": "int32", "gets": "int32"}
        return make(shape, kinds.get(name[-4:], "float32"))

    built = new()
    call(built)
    for layer in (built,) if "must be" in message else (built, new()):
        with pytest.raises(ValueError, match=message):
            call(layer, **NOT_FITTING[name][message])


# --- calls


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
    return several().attention(query, sources, **options)


def cover(outputs=QUERY, weights=WEIGHTS, **options):
    return kl.CoverageLoss()(outputs, weights, **options)


HINT = r"(list of|Received:) 3.*memory, \*state = encoder"
UNPACKED = [
    lambda made: attend(QUERY, made),
    lambda made: attend([QUERY, made]),
    lambda made: attend(made, MEMORY),
    lambda made: attend([made, MEMORY]),
    lambda made: attend(made),
    lambda made: built_attention()(made),
    lambda made: attend(QUERY, MEMORY, query_mask=made),
    lambda made: attend(QUERY, MEMORY, positions=made),
    lambda made: attend_to_two(made),
    lambda made: decode(memory=made),
    lambda made: decode(made),
    lambda made: decode(initial_state=made),
    lambda made: decoder(several())(INPUTS, [made, MEMORY]),
    lambda made: fed().prepare(made),
    lambda made: encode(made),
    lambda made: encode(initial_state=made),
    lambda made: kl.AttentionalVector(3)(made, QUERY),
    lambda made: network()(IDS, made),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("call", UNPACKED)
def test_k4_what_an_encoder_returns_is_to_be_unpacked(call, symbolic):
    source = keras.Input((POSITIONS, UNITS), batch_size=2) if symbolic else MEMORY
    with pytest.raises(ValueError, match=HINT):
        call(kl.RecurrentEncoder(UNITS)(source))


@pytest.mark.parametrize("kind", ["gru", "simple_rnn", "lstm"])
def test_k6_one_state_may_be_a_bare_tensor(kind):
    encoder = kl.RecurrentEncoder(UNITS, cell_type=kind)
    state = [QUERY[:, 0]] * (2 if kind == "lstm" else 1)
    other = [state] if kind == "lstm" else state[0]  # or a list within a list
    expected = encoder(MEMORY, initial_state=state)
    inputs = [keras.Input(x.shape[1:]) for x in (MEMORY, QUERY[:, 0])]
    symbolic = keras.tree.map_structure(lambda _: inputs[1], other)
    model = keras.Model(inputs, encoder(inputs[0], initial_state=symbolic))
    for found in (encoder(MEMORY, initial_state=other), model([MEMORY, QUERY[:, 0]])):
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)


SEARCHES = [kl.BeamSearch(), kl.GreedySearch(), kl.RandomSampling()]


@pytest.mark.tensorflow
@pytest.mark.parametrize("search", SEARCHES)
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

    attention = kl.LuongAttention(Wrong())
    for _ in "not built", "built":
        with pytest.raises(AttributeError, match="of_a_name_that_is_not_there"):
            attention.prepare(ops.array(MEMORY))
        attention.build(QUERY.shape, MEMORY.shape)


@pytest.mark.tensorflow
def test_k10_a_plain_dataclass_for_a_penalty_is_traced_once_for_each_of_its_values():
    traced = []

    @dataclasses.dataclass
    class Penalty:
        weight: float

        def score(self, log_probs, lengths):
            traced.append(self.weight)
            return self.weight * (log_probs - 1.0)

        def bound(self, log_probs, limits):
            return self.weight * (log_probs - 1.0)

    model, source, penalty = CopyModel(), [[4, 3]], Penalty(2.0)
    searches = [kl.BeamSearch(2, length_penalty=x) for x in (penalty, Penalty(2.0))]
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
    outputs = Decoder(fed())(INPUTS, MEMORY, memory_mask=None)
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

    assert Own()(QUERY, QUERY, WEIGHTS, SOURCE_IDS).shape == (2, STEPS, UNITS)


def test_k4_states_in_a_list_within_a_list_are_flat_to_a_bridge_too():
    bridge, (_, *states) = kl.StateBridge([UNITS, UNITS]), encoded()
    for x, y in zip(bridge([states]), bridge(states), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


STATE = rng.normal(size=(2, UNITS)).astype("float32")
NAMED = {"h": STATE, "c": STATE}


def encoded():
    return kl.RecurrentEncoder(UNITS)(MEMORY)


def point(**options):
    return network().encode(MEMORY, **options)


def one_step(memory):
    step = built(decoder(), INPUTS, MEMORY).cell
    return step(INPUTS[:, :1], step.initial_states((2, 1)), memory)


def copying(features=(QUERY, QUERY), source_ids=SOURCE_IDS):
    return kl.PointerGenerator()(features, QUERY, WEIGHTS, source_ids)


def attend_again(sources):
    return built(several().attention, QUERY, [MEMORY, MEMORY])(QUERY, sources)


def one_list(attention):
    return attention([QUERY, MEMORY])


NARROW = ops.array(MEMORY[..., :3])


ON_TENSORS = dict.fromkeys(["query", "value"], (attend, QUERY, MEMORY))
ON_TENSORS |= dict.fromkeys(["inputs", "memory"], (decode, INPUTS, MEMORY))
ON_TENSORS["source"] = encode, MEMORY


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ON_TENSORS)
def test_l9_variables_are_tensors_and_l12_ragged_ones_are_refused(name):
    """With what to do."""
    call, *given = ON_TENSORS[name]
    place = 1 if name in ("value", "memory") else 0

    def said(tensor):
        keras.utils.set_random_seed(1)
        return call(*given[:place], tensor, *given[place + 1 :])

    x = given[place]
    expected = said(x)
    for kind in (keras.Variable, tf.Variable):
        for one, other in zip(said(kind(x)), expected, strict=True):
            np.testing.assert_array_equal(one, other)
    ragged = tf.RaggedTensor.from_tensor(tf.constant(x), [x.shape[1], 2])
    with pytest.raises(TypeError, match=r"is ragged.*to_tensor\(\).*mask"):
        said(ragged)


LIST = MASK.tolist()
TYPE_ERRORS = [
    # What is missing.
    ("called with query. .*=None", lambda: attend(None, MEMORY)),
    ("called with inputs. .*=None", lambda: decode(None)),
    ("called with memory. .*=None", lambda: decode(memory=None)),
    ("called with features. .*=None", lambda: copying(None)),
    ("called with weights. .*=None", lambda: cover(weights=None)),
    ("value must be .*list with None in it", lambda: attend_to_two([MEMORY, None])),
    ("initial_state must be .*None", lambda: encode(initial_state=[STATE, None])),
    ("outputs must be .* None among them", lambda: cover([QUERY, None])),
    # A mask is no Python list, nor a flag.
    ("value_mask must be .*True", lambda: attend(QUERY, MEMORY, value_mask=LIST)),
    ("memory_mask must be .*True", lambda: decode(memory_mask=LIST)),
    (r"^mask must be .*True", lambda: cover(mask=LIST)),
    # A dict, whose order would be lost.
    ("initial_state must be a .*a dict of", lambda: encode(initial_state=NAMED)),
    ("initial_state must be a .*a dict", lambda: fed().initial_states((2,), NAMED)),
    ("initial_state must be a .*a dict of", lambda: point(initial_state=[NAMED])),
    ("states must be a .*a dict of", lambda: kl.StateBridge(fed())(NAMED)),
    ("query must be a .*a dict of", lambda: attend({"query": QUERY, "value": MEMORY})),
    ("value must be a .*a dict of", lambda: attend_to_two(dict(a=MEMORY, b=MEMORY))),
    # Of another dtype.
    (
        "targets must be ids.*targets.dtype=float32",
        lambda: network()(QUERY[..., 0], MEMORY),
    ),
    ("source_ids must be ids.*float", lambda: copying(source_ids=1.0 * SOURCE_IDS)),
    ("value must be floating.*int32", lambda: attend(QUERY, IDS[..., None])),
    ("floating.*int32", lambda: encode(keras.KerasTensor((2, 5, 4), "int32"))),
    # Something else.
    (r"memory must be what .*prepare.*: tuple", lambda: one_step(encoded())),
    (
        r"memory must be what .*prepare.*: \w*(Tensor|Array)",
        lambda: one_step(ops.array(MEMORY)),
    ),
]
VALUE_ERRORS = [
    # Too many or too few.
    ("Expected 2 initial states.*Received: 1", lambda: encode(initial_state=STATE)),
    ("one tensor.*list of 2 .pass them one", lambda: decoder()([INPUTS, MEMORY])),
    ("one tensor.*list of 1 .pass them one", lambda: attend(QUERY, value=[MEMORY])),
    ("value must be a list of 2.*Received: one tensor$", lambda: attend_to_two(MEMORY)),
    ("needs a query and a value.*3, 4", lambda: attend(QUERY)),
    ("needs a query and a value", lambda: attend([QUERY, None])),
    ("2 or 3.*Received: a list of 1", lambda: attend([QUERY])),
    ("list or with several tensors", lambda: attend([QUERY, QUERY], QUERY)),
    ("mask must be a list", lambda: attend(QUERY, MEMORY, mask=MASK)),
    (r"states must be a list of tensors \[B, n\]", lambda: kl.StateBridge([4])(STATE)),
    (r"states must be a list of tensors \[B, n\]", lambda: kl.StateBridge([4])([])),
    (r"attention\(query, \[source_1", lambda: one_list(SEVERAL([LUONG()]))),
    (
        r"attention\(query, \[source_1",
        lambda: one_list(built(SEVERAL([LUONG()]), QUERY, [MEMORY])),
    ),
    # Of another size, or not known.
    ("length of at least 1", lambda: encode(MEMORY[:, :0])),
    ("length of at least 1", lambda: decode(INPUTS[:, :0])),
    ("Axis 2 of value must be 4", lambda: attend_again([MEMORY, MEMORY[..., :3]])),
    ("Axis 2 of value must be 4", lambda: built_attention().prepare(NARROW)),
    (
        "compute_output_shape.*memory_shape=None",
        lambda: fed().compute_output_shape((2, 1, WIDTH)),
    ),
    (
        "no weights yet.*GeneralScore has no 'kernel'",
        lambda: kl.LuongAttention().prepare(NARROW),
    ),
    (
        "call the attention itself",
        lambda: built_attention().prepare(keras.Input((5, 4))),
    ),
    (r"dot.*\(2, 3, 4\).*\(2, 5, 3\)", lambda: kl.LuongAttention("dot")(QUERY, NARROW)),
    (
        r"at least one position.*\(2, 0, 4\)",
        lambda: kl.LocalAttention(3)(QUERY, MEMORY[:, :0]),
    ),
]
REFUSED = [
    *((TypeError, *row) for row in (*WRONG_TYPES, *TYPE_ERRORS)),
    *((ValueError, *row) for row in (*WRONG_VALUES, *VALUE_ERRORS)),
]


@pytest.mark.parametrize("error, message, call", REFUSED)
def test_k10_what_does_not_fit_is_said_in_a_sentence(error, message, call):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "numpy=" not in str(caught.value).split("Arguments received")[0]
