"""No loop computes again what is the same at all of its steps."""

import dataclasses

import keras
import pytest
import tensorflow as tf
from loop_graphs import (
    invariants,
    is_row,
    is_vector,
    is_view,
    loop_bodies,
    of_memory,
    traced,
)
from small_models import MODELS as OTHERS

from keras_luong import BeamSearch, GreedySearch, SequenceCrossentropy
from keras_luong.decoding import Ensemble, RandomSampling, force
from keras_luong.models import build

IDS = tf.TensorSpec([None, None], tf.int32)
SCORES = ("dot", "scaled_dot", "scaled_general", "normed_concat", "reduced_rank")
MODELS = {
    "tied": ("small", {"tie_embeddings": "target"}),
    "one embedding": ("small", {"tie_embeddings": "all"}),
    "untied": ("small", {"tie_embeddings": None, "num_layers": 2}),
    "without input feeding": ("small", {"input_feeding": False}),
    **{score: ("small", {"score_mode": score}) for score in SCORES},
    "copy": ("small", {"copy": True, "tie_embeddings": "all"}),
    "layer norm, mixed": (
        "small",
        {"cell_type": "layer_norm_lstm", "dtype": "mixed_bfloat16"},
    ),
    **OTHERS,
}
QUICK = ("tied",)
#: As trained runs have it: it computes all that the default search does, and more.
OF_RUNS = {"max_length": None, "length_penalty": 1.2, "early_stopping": "first"}
BEAM, ONE = BeamSearch(5, **OF_RUNS), BeamSearch(5, compact=False, **OF_RUNS)
#: Functions of a model and a source; batches of one keep their memory as it is.
SEARCHES = {
    "beam": lambda model, ids, _: BEAM(model, ids),
    "beam, one": lambda model, ids, _: ONE(model, ids),
    "greedy": lambda model, ids, _: GreedySearch()(model, ids),
    "sampling": lambda model, ids, _: RandomSampling(num_samples=2)(model, ids),
    "score": force,
}
#: Which of the source's ids may be copied: a few comparisons, beside a softmax.
OF_COPYING = ("GreaterEqual", "Less", "LogicalAnd", "SelectV2")

models = pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.slow] * (x not in QUICK)) for x in MODELS],
)


def make(name, **options):
    preset, changes = MODELS[name]
    sizes = {"units": 8}
    if preset.startswith("vaswani"):
        sizes["feedforward_units"] = 16
    else:
        sizes["embedding_dim"] = 8
    vocabulary = 11 if changes.get("tie_embeddings") == "all" else 12
    return build(preset, 11, vocabulary, **{**sizes, **changes}, **options)


def repeated(model, search):
    graphs = traced(lambda *ids: search(model, *ids), IDS, IDS)
    return [
        (body.signature.name, node.op, node.name)
        for body in loop_bodies(graphs)
        for node in invariants(body)
        if not _is_of_encoder(body) or not (is_view(node) or is_row(node))
    ]


def _is_of_encoder(body):
    """Whether a loop is over a source: it may see a weight's rows, or other axes."""
    return "encoder" in body.signature.name


@models
@pytest.mark.parametrize(
    "kind",
    [pytest.param(x, marks=[pytest.mark.slow] * (x == "greedy")) for x in SEARCHES],
)
def test_a_search_repeats_nothing(name, kind):
    assert repeated(make(name), SEARCHES[kind]) == []


@models
def test_a_step_computes_vectors_at_most_of_its_memory(name):
    """Where sentences leave a search its memory changes, and nothing is hoisted."""
    allowed = OF_COPYING if name == "copy" else ()
    found = [
        (node.op, node.name)
        for node in of_memory(make(name), IDS)
        if node.op not in allowed and not is_view(node) and not is_vector(node)
    ]
    assert found == []


@pytest.mark.parametrize("kind", ["beam", "score"])
def test_in_mixed_precision(kind):
    assert repeated(make("tied", dtype="mixed_bfloat16"), SEARCHES[kind]) == []


def test_nor_with_a_prefix_and_a_coverage_penalty():
    search = dataclasses.replace(ONE, coverage_penalty=0.2)
    assert repeated(make("tied"), search) == []


@pytest.mark.slow
def test_nor_does_an_ensemble():
    ensemble = Ensemble([make("untied"), make("transformer")])
    assert repeated(ensemble, SEARCHES["beam, one"]) == []


def test_nor_a_model_of_ones_own():
    class Own:
        def __init__(self):
            self.matrix = tf.Variable(tf.random.normal([7, 5]))

        def encode(self, source):
            state = tf.zeros([tf.shape(source)[0], 1, 5])
            return tf.gather(self.matrix, source), state

        def step(self, tokens, state, memory):
            keys = tf.transpose(memory, [0, 2, 1])
            weights = tf.nn.softmax(state @ keys)
            state = weights @ memory + tf.gather(self.matrix, tokens)
            return state @ tf.transpose(self.matrix), state, weights

    assert repeated(Own(), SEARCHES["beam, one"]) == []


def test_the_walk_finds_what_is_repeated():
    matrix = tf.Variable(tf.ones([3, 3]))

    def loop(x, scale):
        def body(i, x):
            turned = tf.transpose(matrix) * tf.cast(scale, tf.float32)
            return i + tf.shape(matrix)[0], x @ turned

        return tf.while_loop(lambda i, _: i < 9, body, [0, x])

    scale = tf.TensorSpec([3], tf.int32)
    graphs = traced(loop, tf.TensorSpec([None, 3]), scale)
    (body,) = loop_bodies(graphs)
    assert [node.op for node in invariants(body)] == ["Transpose", "Cast", "Mul"]


@models
def test_training_repeats_vectors_at_most(name):
    """Not matrices, nor anything [B, S]; and the same memory may get other axes."""
    keras.utils.set_random_seed(0)
    model = make(name)
    model.compile("sgd", SequenceCrossentropy())

    def train(source, target, labels):
        inputs = {"source": source, "target": target}
        weights = tf.ones_like(labels, tf.float32)
        return model.train_step((inputs, labels, weights))

    found = [
        (body.signature.name, node.op, node.name)
        for body in loop_bodies(traced(train, IDS, IDS, IDS))
        for node in invariants(body)
        if not is_view(node) and not is_vector(node)
    ]
    assert found == []
