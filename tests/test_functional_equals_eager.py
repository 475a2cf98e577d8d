"""W1: a layer says the same called eagerly, in a functional model and in a graph.

Graphs of every layer are slow; other tests have those of decoders and attentions.

The walk is over all public layers, with what changes how many outputs there are and of
what kind. It fails where a public layer is in none of the cases.
"""

import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import ATTENTIONS, CELLS, fed, several, wrapped
from keras import ops
from leave_slow import slow_but

import keras_luong as kl
from keras_luong import layers
from keras_luong.compat import get_keras_mask, serialize_shared
from keras_luong.layers.base import BaseLayer
from keras_luong.layers.scores import SCORES

B, T, S, E, H, V = 2, 3, 4, 3, 4, 6
rng = np.random.default_rng(0)
SHAPES = {
    **{"words": (B, T, E), "first_word": (B, 1, E), "values": (B, T, V)},
    **{"first_value": (B, 1, V), "beam": (B, 2, E), "query": (B, T, H)},
    **{"memory": (B, S, H), "image": (B, 2, 3, H), "other": (B, 3, E)},
    "weights": (B, T, S),
    **dict.fromkeys(["h", "c", "h2", "c2"], (B, H)),
    **dict.fromkeys(["wide", "wide2"], (B, 2 * H)),
}
#: What the cases' functions are called with, by the names of their arguments. Row 1 has
#: a source of 3 and a target of 2 words.
INPUTS = {
    **{name: rng.normal(size=size).astype("float32") for name, size in SHAPES.items()},
    "source_ids": np.array([[2, 7, 3, 5], [1, 2, 4, 0]], "int32"),
    "source": np.array([[2, 1, 3, 5], [1, 2, 4, 0]], "int32"),
    "target": np.array([[2, 4, 1], [3, 1, 0]], "int32"),
    "memory_mask": np.arange(S) < np.array([[S], [3]]),
    "mask": np.arange(T) < np.array([[T], [2]]),
    "pairs": np.tril(np.ones((T, S), bool), 1),
}
OF_ANY_LENGTH = "words values query memory other source target mask memory_mask".split()


@keras.saving.register_keras_serializable("walk")
class OwnCell(layers.DecoderCell):
    """Somebody's cell, of two matrices, which it says with one symbolic tensor."""

    query_units = H

    def build(self, inputs_shape, memory_shape):
        super().build(inputs_shape, memory_shape)
        self.kernel = self.add_weight((self.input_units + 2 * H, H), name="kernel")

    def recurrent_spec(self, shape=(None,)):
        return [keras.KerasTensor((*shape, 3, H), self.compute_dtype)] * 2

    def step(self, z, states, memory, mode=layers.INFERENCE):
        one, other = states.recurrent
        x = ops.concatenate([z, one[..., 0, :], other[..., 1, :]], axis=-1)
        new = ops.tanh(mode.project(self.kernel, x))
        context, weights, seen = self.attend(new, memory, states, mode)
        states = states._replace(
            recurrent=[one + new[..., None, :], one],
            attention=seen,
            position=states.position + 1,
        )
        return (new + context, weights), states


@keras.saving.register_keras_serializable("walk")
class Prepare(BaseLayer):
    """A search's memory and first states."""

    _nested = ("cell",)

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        self.cell = cell

    def call(self, memory, mask):
        prepared = self.cell.prepare(memory, mask)
        shape = ops.shape(memory)[0], 2
        return prepared, self.cell.initial_states(shape, memory=prepared)

    def get_config(self):
        return {**super().get_config(), "cell": serialize_shared(self.cell)}


@keras.saving.register_keras_serializable("walk")
def halfway(outputs, teacher_input, time):
    return (outputs + teacher_input) / 2


AFTER_THE_LOOP = "lstm, not fed", "called, not fed"
WALKED = {
    **{
        name: make
        for name, make in CELLS.items()
        if not (name in SCORES or name == "several" or "," in name)
        or name in AFTER_THE_LOOP
    },
    "sparsemax": lambda: fed(kl.LuongAttention(normalizer="sparsemax")),
    "float32": lambda: wrapped(
        keras.layers.LSTMCell(H, dtype="float32"), output_attention=False
    ),
}
BOTH = {"return_state": True, "return_attention_scores": True}


def embedding(units=E, **options):
    return keras.layers.Embedding(V, units, **options)


def decoder(make, returned=BOTH, **options):
    """A case: what makes a layer, and what is called with it and `INPUTS`."""

    def call(decode, words, memory, memory_mask, mask):
        return decode(words, memory, memory_mask, mask=mask, **returned)

    return lambda: kl.InputFeedingDecoder(make(), **options), call


#: Feedings, and what the decoder reads with them.
FEEDINGS = {
    "ScheduledEmbedding": (
        "words",
        lambda: kl.ScheduledEmbedding(1.0, embedding(), sample=False),
    ),
    "ScheduledOutput": ("values", lambda: kl.ScheduledOutput(1.0)),
    "FreeRunning": ("first_value", lambda: kl.FreeRunning(T)),
    "FreeRunning words": ("first_word", lambda: kl.FreeRunning(T, embedding())),
    "CustomFeeding": ("values", lambda: kl.CustomFeeding(halfway)),
}


def feeding_back(read, feeding, training):
    def make():
        options = {"feeding": feeding(), "output_layer": keras.layers.Dense(V)}
        return kl.InputFeedingDecoder(fed(num_layers=2), **options)

    def call(decode, inputs, memory):
        return decode(inputs, memory, training=training, **BOTH)

    return make, call, [read, "memory"]


ENCODERS = {
    "lstm": {},
    "no states": {"return_state": False},
    "gru 2 both": {"cell_type": "gru", "num_layers": 2, "bidirectional": True},
    "lstm 2 first": {"num_layers": 2, "bidirectional": "first"},
    "simple back": {"cell_type": "simple_rnn", "go_backwards": True},
    "layer norm": {"cell_type": "layer_norm_lstm", "residual": True, "num_layers": 2},
}


MANY = {"return_attention_scores": True}
CASES = {
    **{f"decoder {name}": decoder(make) for name, make in WALKED.items()},
    "decoder, outputs": decoder(CELLS["gru"], {}),
    "decoder, states": decoder(CELLS["gru"], {"return_state": True}),
    "decoder, last": decoder(CELLS["gru"], return_sequences=False),
    **{
        f"{name}, training={training}": feeding_back(*given, training)
        for name, given in FEEDINGS.items()
        for training in (False, True)
    },
    **{
        f"encoder {name}": (
            lambda options=options: kl.RecurrentEncoder(H, **options),
            lambda encode, words, mask: encode(words, mask=mask),
        )
        for name, options in ENCODERS.items()
    },
    "score": (layers.Score, lambda score, query, memory: score(query, memory)),
}


def case(make):
    """A case of its own: a function of what `make` makes and of `INPUTS`."""

    def add(call):
        CASES[call.__name__.replace("_", " ")] = make, call

    return add


@case(lambda: kl.RecurrentEncoder(H, num_layers=2))
def encoder_with_first_states(encode, words, h, c, h2, c2):
    return encode(words, initial_state=[h, c, h2, c2])


@case(lambda: kl.RecurrentEncoder(H, bidirectional=True))
def both_ways_with_first_states(encode, words, wide, wide2):
    return encode(words, initial_state=[wide, wide2])


def encoder_and_decoder():
    step = fed(num_layers=2)
    encode = kl.RecurrentEncoder(H, bidirectional=True)
    decode, bridge = kl.InputFeedingDecoder(step), kl.StateBridge(step)
    return embedding(mask_zero=True), encode, decode, bridge


@case(encoder_and_decoder)
def implicit_masks_from_the_encoder_to_the_decoder(layers, source, target):
    embed, encode, decode, bridge = layers
    memory, *last = encode(embed(source))
    first = bridge(last)
    outputs = decode(embed(target), memory, initial_state=first, **BOTH)
    return memory, last, first, outputs


@case(lambda: kl.InputFeedingDecoder(fed(ATTENTIONS["coverage"]())))
def all_states_go_on(decode, words, memory, h, c):
    _, *states = decode(words, memory, initial_state=[h, c], return_state=True)
    return states, decode(words, memory, initial_state=states, return_state=True)


@case(lambda: kl.InputFeedingDecoder(OwnCell(kl.LuongAttention())))
def matrices_go_on(decode, words, memory):
    _, one, other, *rest = decode(words, memory, return_state=True)
    assert one.shape[1:] == other.shape[1:] == (3, H)
    return decode(words, memory, initial_state=[other, one, *rest], **BOTH)


@case(kl.LuongAttention)
def attention_with_a_causal_mask(attend, query, memory, mask, memory_mask, pairs):
    masks = {"query_mask": mask, "value_mask": memory_mask, "attention_mask": pairs}
    options = {"return_logits": True, "use_causal_mask": True}
    return attend(query, memory, **masks, **options, **MANY)


@case(lambda: several("monotonic").attention)
def attention_to_several_sources(attend, query, memory, other, mask, memory_mask):
    masks = {"query_mask": mask, "value_mask": [memory_mask, None]}
    return attend(query, [memory, other], **masks, **MANY)


@case(lambda: [embedding(H, mask_zero=True), several("monotonic").attention])
def several_sources_with_implicit_masks(layers, target, source, other):
    embed, attend = layers
    return attend(embed(target), [embed(source), other], **MANY)


@case(lambda: kl.InputFeedingDecoder(several("monotonic")))
def decoder_of_several_sources(decode, words, memory, other, mask, memory_mask):
    return decode(words, [memory, other], [memory_mask, None], mask=mask, **BOTH)


def search_step():
    step = fed(ATTENTIONS["coverage"](), num_layers=2)
    step.build((None, None, E), (None, None, H))
    return step, Prepare(step)


@case(search_step)
def step_of_a_search(layers, beam, memory, memory_mask):
    step, prepare = layers
    memory, states = prepare(memory, memory_mask)
    return step(beam, states, memory)


@case(lambda: kl.StateBridge([2, H]))
def bridge_of_each(bridge, h, wide):
    return bridge([h, wide])


@case(lambda: kl.StateBridge([H, H, H]))
def bridge_of_all(bridge, h, c):
    return bridge([h, c])


@case(lambda: kl.AttentionalVector(3))
def attentional_vector(vector, query, values):
    return vector(values, query)


@case(kl.CoverageLoss)
def coverage_loss(loss, query, h, weights, mask):
    return loss([query, h], weights, mask)


@case(lambda: kl.PointerGenerator(num_extra_ids=2))
def pointer_generator(copying, query, words, values, weights, source_ids):
    return copying([query, words], values, weights, source_ids)


@case(lambda: kl.PointerNetwork(fed()))
def pointer_network(point, target, memory, memory_mask, h, c):
    return point(target, memory, memory_mask, initial_state=[h, c])


@case(lambda: layers.LayerNormLSTM(H, return_sequences=True, return_state=True))
def layer_norm_lstm(layer, words, h, c):
    return layer(words, initial_state=[h, c])


@case(lambda: layers.LayerNormLSTMCell(H))
def layer_norm_lstm_cell(layer, wide, h, c):
    return layer(wide, [h, c])


@functools.cache
def built(name, dtype="float32"):
    """A case's function; its functional model; and what both are called with."""
    make, call, *names = CASES[name]
    call = functools.partial(call, make())
    names = names[0] if names else inspect.signature(call).parameters
    batch = {name: INPUTS[name] for name in names}
    inputs = {}
    for name, x in batch.items():
        shape = [None] * x.ndim if name in OF_ANY_LENGTH else [None, *x.shape[1:]]
        if x.dtype == "float32":
            shape[-1] = x.shape[-1]
        if name == "pairs":  # one row serves any batch
            shape[0] = 1
        inputs[name] = keras.Input(batch_shape=shape, dtype=x.dtype, name=name)
    outputs = keras.tree.flatten(call(*inputs.values()))
    return call, keras.Model(inputs, outputs), batch


def check_same(results, expected, like, tolerance=1e-5):
    """Numbers, dtypes and shapes."""
    pairs = zip(keras.tree.flatten(results), expected, like, strict=True)
    for i, (x, y, spec) in enumerate(pairs):
        assert x.dtype == y.dtype == spec.dtype, i
        assert tf.TensorShape(spec.shape).is_compatible_with(y.shape), i
        x, y = [np.asarray(z, "float64") for z in (x, y)]
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=1e-4, err_msg=f"{i}")


#: Attentions alone are called both ways in test_attention_call.py.
SLOW = [f"decoder {name}" for name in ATTENTIONS if name not in ("coverage", "local-p")]
SLOW += ["decoder linear", "decoder context", "decoder wrapped", "decoder cumulative"]
SLOW += [f"{name}, training=False" for name in FEEDINGS if name != "FreeRunning"]
QUICK = {*CASES} - {*SLOW}
#: Those that are traced: as a model, and in somebody's function, which AutoGraph reads.
IN_GRAPHS = "attention with a causal mask", "bridge of each", "pointer generator"


@pytest.mark.parametrize("name", slow_but(CASES, *QUICK))
def test_w1_functional_models_and_eager_calls_are_the_same(name):
    call, model, batch = built(name)
    # Keras tells a model's outputs apart by identity.
    assert len({id(x) for x in model.outputs}) == len(model.outputs)
    batch = {name: ops.convert_to_tensor(x) for name, x in batch.items()}
    expected = keras.tree.flatten(call(*batch.values()))
    check_same(model(batch), expected, model.outputs)
    if name in IN_GRAPHS and keras.backend.backend() == "tensorflow":
        check_same(tf.function(model)(batch), expected, model.outputs)
        check_same(tf.function(call)(*batch.values()), expected, model.outputs)
    masks = [[get_keras_mask(x) is None for x in y] for y in (expected, model.outputs)]
    assert masks[0] == masks[1]


SHARED = {
    "decoder": lambda: (kl.InputFeedingDecoder(fed()), BOTH),
    "attention": lambda: (kl.LuongAttention(), {**MANY, "return_logits": True}),
    "several": lambda: (several().attention, MANY),
}


FEW_FIRST = [("decoder", True), ("attention", False), ("several", True)]


@pytest.mark.parametrize("name, few_first", FEW_FIRST)
def test_w1_models_share_a_layer_and_want_more_or_less(name, few_first, tmp_path):
    layer, options = SHARED[name]()
    inputs = [keras.Input((None, H)) for _ in "12"]

    def call(query, memory, **options):
        both = [memory, memory] if name == "several" else memory
        return layer(query, both, **options)

    models = {}
    for few in (few_first, not few_first):
        outputs = call(*inputs, **({} if few else options))
        models[few] = keras.Model(inputs, keras.tree.flatten(outputs))
    together = [models[True].outputs[0], *models[False].outputs]
    models["both"] = keras.Model(inputs, together)
    batch = [ops.convert_to_tensor(INPUTS[name]) for name in ("query", "memory")]
    expected = keras.tree.flatten(call(*batch, **options))
    wanted = {True: expected[:1], False: expected, "both": [expected[0], *expected]}
    for which, model in models.items():
        check_same(model(batch), wanted[which], model.outputs)
    model.save(tmp_path / "both.keras")
    loaded = keras.models.load_model(tmp_path / "both.keras")
    check_same(loaded(batch), wanted["both"], model.outputs)


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("dtype", ["mixed_float16", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_w1_so_are_saved_and_nested_models_in_every_dtype(name, dtype, tmp_path):
    keras.config.set_dtype_policy(dtype)
    call, model, batch = built(name, dtype)
    batch = {name: ops.convert_to_tensor(x) for name, x in batch.items()}
    expected, like = keras.tree.flatten(call(*batch.values())), model.outputs
    near = 0.02 if dtype == "mixed_float16" else 1e-5
    results = [tf.function(model)(batch), tf.function(call)(*batch.values())]
    if name != "step of a search":  # a named tuple is a list in a file
        model.save(tmp_path / "model.keras")
        results.append(keras.models.load_model(tmp_path / "model.keras")(batch))
    for one in results:
        check_same(one, expected, like, near)
    if name == "layer norm lstm cell":  # Keras's own cells say no dtype there
        return
    # Within another model, whose inputs have known sizes.
    sizes = {k: {"batch_shape": x.shape, "dtype": x.dtype} for k, x in batch.items()}
    known = {k: keras.Input(**x) for k, x in sizes.items()}
    check_same(expected, expected, keras.tree.flatten(model(known)))


EXPORTED = ["lstm", "local-m", "chunkwise", "location-aware", "multi-head", "sparsemax"]
EXPORTED = [f"decoder {name}" for name in EXPORTED]
EXPORTED += ["encoder lstm 2 first", "FreeRunning words, training=False"]


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", EXPORTED)
def test_k8_keras_exports_a_file_that_litert_runs(name, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    call, model, batch = built(name)
    batch = {name: x[:1] for name, x in batch.items()}
    model = keras.Model(list(model.input.values()), model.outputs)
    specs = [[tf.TensorSpec(x.shape, x.dtype) for x in batch.values()]]
    options = {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS]}
    options = {"format": "litert", "target_spec": options, "verbose": False}
    model.export(path := tmp_path / "model.tflite", input_signature=specs, **options)
    run = interpreter.Interpreter(str(path)).get_signature_runner()
    said = run(**dict(zip(run.get_input_details(), batch.values(), strict=True)))
    expected = keras.tree.flatten(call(*map(ops.convert_to_tensor, batch.values())))
    for i, x in enumerate(expected):
        np.testing.assert_allclose(said[f"output_{i}"], x, atol=1e-5)


def test_w1_every_public_layer_is_walked():
    """K1: and has a row in the summary of somebody's model."""
    first = {}  # case of each kind of layer
    for name, (make, *_) in reversed(CASES.items()):
        for layer in keras.tree.flatten(make()):
            first |= {type(x): name for x in layer._flatten_layers()}
    models = [built(name)[1] for name in {*first.values()}]
    found = [x for model in models for x in model._flatten_layers(include_self=False)]
    for layer in {type(layer): layer for layer in found}.values():
        own = keras.Model()
        own.layer, own.built = layer, True
        nodes, layer._inbound_nodes = layer._inbound_nodes, []
        own.summary(print_fn=lambda *args, **kwargs: None)
        layer._inbound_nodes = nodes
    walked = {*map(type, found)}
    for base in (layers.BaseLayer, layers.DecoderCell, kl.Feeding):
        assert any(issubclass(layer, base) for layer in walked)
        walked.add(base)
    classes = filter(inspect.isclass, (getattr(layers, x) for x in layers.__all__))
    public = {x for x in classes if issubclass(x, keras.layers.Layer)}
    assert len(public) > 20
    assert not public - walked
