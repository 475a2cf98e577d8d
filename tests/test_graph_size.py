"""The graphs of searches and of training: how many operations, in which loops.

Sizes are exact, and much of a sentence's time. No loop computes again what is the same
at all of its steps: `hoisted` moves it out, `cast_once` casts weights before.
"""

import dataclasses
import re
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf
from copy_translator import CopyModel
from decoding_attentions import ATTENTIONS
from leave_slow import slow_but
from small_models import MODELS as OTHERS

import keras_luong as kl
from keras_luong.decoding import Ensemble, RandomSampling, force
from keras_luong.decoding.hoisting import cast_once, hoisted
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.models import build

pytestmark = pytest.mark.tensorflow

#: Not operations: they compute nothing.
NOTHING = ("Const", "Identity", "Placeholder", "NoOp")
#: Give the same memory another shape.
VIEWS = ("ExpandDims", "Reshape", "Squeeze")
IDS = tf.TensorSpec([None, None], tf.int32)
ONE = tf.TensorSpec([1, None], tf.int32)


class Graphs(NamedTuple):
    """A traced function: its nodes, and the functions that these call, by name."""

    nodes: Any
    library: dict[str, Any]


def traced(function, *signature):
    graph = tf.function(function, input_signature=signature, autograph=False)
    concrete = graph.get_concrete_function()
    definition = concrete.graph.as_graph_def(add_shapes=True)
    library = {f.signature.name: f for f in definition.library.function}
    return Graphs(definition.node, library)


def all_nodes(graphs):
    return [*graphs.nodes, *(x for f in graphs.library.values() for x in f.node_def)]


def size(nodes):
    """The number of operations."""
    return sum(node.op not in NOTHING for node in nodes)


def loop_bodies(graphs, nodes=None):
    """The bodies of all loops, those in other functions included."""
    for node in graphs.nodes if nodes is None else nodes:
        for name, attribute in node.attr.items():
            for called in [attribute.func, *attribute.list.func]:
                if called.name in graphs.library:
                    function = graphs.library[called.name]
                    if node.op.endswith("While") and name == "body":
                        yield function
                    yield from loop_bodies(graphs, function.node_def)


def invariants(body):
    """The nodes of a loop's body that give the same at every step.

    They are computed from what the loop hands on unchanged: weights, memory.
    """
    nodes = {node.name: node for node in body.node_def}

    def origin(name):
        name = name.split(":")[0]
        while name in nodes and nodes[name].op == "Identity":
            name = nodes[name].input[0].split(":")[0]
        return name

    signature = body.signature
    pairs = zip(signature.input_arg, signature.output_arg, strict=True)
    handed_on = {x.name for x, y in pairs if origin(body.ret[y.name]) == x.name}
    return computed_from(handed_on, body.node_def)


def computed_from(fixed, nodes):
    """The nodes that are computed from those of some names alone.

    Left out are reads of variables, which copy nothing; what comes of constants alone,
    which TensorFlow computes once; and sizes: integers made of shapes and constants
    alone, whose number the graph knows.
    """
    constant, sizes, fixed, found = set(), set(), set(fixed), []
    for node in nodes:  # each after its inputs
        inputs = {name.split(":")[0] for name in node.input if name[0] != "^"}
        if node.op == "Const" or (inputs and inputs <= constant):
            constant.add(node.name)
        elif inputs and inputs <= constant | sizes | fixed:
            of_sizes = inputs <= constant | sizes or node.op in ("Shape", "Size")
            if of_sizes and all(x.is_fully_defined() for x in shapes_of(node)):
                sizes.add(node.name)
                continue
            fixed.add(node.name)
            if node.op not in (*NOTHING, "ReadVariableOp"):
                found.append(node)
    return found


def shapes_of(node):
    return [tf.TensorShape(x) for x in node.attr["_output_shapes"].list.shape]


def is_view(node):
    """Whether a node gives the same memory another shape, as `x[:, None]` does."""
    return node.op in VIEWS or node.attr["new_axis_mask"].i != 0


def is_vector(node):
    """Whether a node's results have at most one axis of more than one element."""
    return all(
        shape.rank is not None and sum(axis != 1 for axis in shape) <= 1
        for shape in shapes_of(node)
    )


def repeated(graphs):
    """What loops compute again; one over a source may see a weight's rows, or axes."""
    return [
        (body.signature.name, node.op, node.name)
        for body in loop_bodies(graphs)
        for node in invariants(body)
        if "encoder" not in body.signature.name
        or not (is_view(node) or (node.op == "StridedSlice" and is_vector(node)))
    ]


#: As trained runs search: it computes all that the default search does, and more.
OF_RUNS = {"max_length": None, "length_penalty": 1.2, "early_stopping": "first"}
BEAM = kl.BeamSearch(5, **OF_RUNS)
UNCOMPACT = dataclasses.replace(BEAM, compact=False)
SIZES = {
    "beam": (kl.BeamSearch(), [IDS], {}, 119, 463),
    # A tied output layer adds one transpose.
    "tied": (kl.BeamSearch(), [IDS], {"tie_embeddings": "target"}, 119, 464),
    "one sentence": (kl.BeamSearch(), [ONE], {}, 108, 394),
    "greedy": (kl.GreedySearch(), [IDS], {}, 121, 459),
    "of runs": (BEAM, [IDS], {}, 135, 487),
    "of runs, one sentence": (BEAM, [ONE], {}, 120, 418),
    "of runs, greedy": (kl.BeamSearch(1, **OF_RUNS), [IDS], {}, 135, 481),
    "given targets": (force, [IDS, IDS], {}, 70, 322),
}


@pytest.mark.parametrize("name", slow_but(SIZES, "of runs", "given targets"))
def test_searches_are_of_so_many_operations_and_repeat_none(name):
    """Of the search's loop, the largest one; and of all functions together."""
    find, signature, config, of_loop, of_all = SIZES[name]
    model = kl.Seq2Seq(kl.Seq2SeqConfig(4000, 4000, units=8, **config))
    graphs = traced(lambda *ids: find(model, *ids), *signature)
    assert max(size(x.node_def) for x in loop_bodies(graphs)) == of_loop
    assert size(all_nodes(graphs)) == of_all
    assert repeated(graphs) == []


SCORES = ("dot", "scaled_dot", "scaled_general", "normed_concat", "reduced_rank")
MODELS = {
    "tied": ("small", {"tie_embeddings": "target"}),
    "one way": ("small", {"tie_embeddings": "target", "bidirectional": False}),
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
#: Functions of a model and a source; batches of one keep their memory as it is.
SEARCHES = {
    "beam": lambda model, ids, _: BEAM(model, ids),
    "beam, one": lambda model, ids, _: UNCOMPACT(model, ids),
    "prefix": dataclasses.replace(UNCOMPACT, coverage_penalty=0.2),
    "greedy": lambda model, ids, _: kl.GreedySearch()(model, ids),
    "sampling": lambda model, ids, _: RandomSampling(num_samples=2)(model, ids),
    "score": force,
}


def make(name, **options):
    preset, changes = MODELS[name]
    sizes = {"units": 8}
    if preset.startswith("vaswani"):
        sizes["feedforward_units"] = 16
    else:
        sizes["embedding_dim"] = 8
    vocabulary = 11 if changes.get("tie_embeddings") == "all" else 12
    return build(preset, 11, vocabulary, **{**sizes, **changes, **options})


HALF = {"dtype": "mixed_bfloat16"}
HALVED = "cho", "bahdanau", "gnmt", "untied"
KINDS = "beam", "score", "sampling"
LATER = [
    *((name, kind, {}) for name in MODELS for kind in ("beam, one", "score")),
    *(("tied", kind, {}) for kind in ("beam", "greedy", "sampling")),
    *((name, kind, HALF) for name in HALVED for kind in KINDS),
    ("ensemble", "beam, one", {}),
]
# Weights are cast before a search of the second.
REPEAT_NOTHING = [("tied", "prefix", {}), ("tied", "beam", HALF)]
REPEAT_NOTHING += [pytest.param(*case, marks=pytest.mark.slow) for case in LATER]


@pytest.mark.parametrize("name, kind, options", REPEAT_NOTHING)
def test_a_search_repeats_nothing(name, kind, options):
    names = ["untied", "transformer"] if name == "ensemble" else [name]
    models = [make(one, **options) for one in names]
    model = Ensemble(models) if len(models) > 1 else models[0]
    graphs = traced(lambda *ids: SEARCHES[kind](model, *ids), IDS, IDS)
    assert repeated(graphs) == []


def test_the_walk_finds_what_is_repeated():
    matrix = tf.Variable(tf.ones([3, 3]))

    def loop(x, scale):
        def body(i, x):
            turned = tf.transpose(matrix) * tf.cast(scale, tf.float32)
            return i + tf.shape(matrix)[0], x @ turned

        return tf.while_loop(lambda i, _: i < 9, body, [0, x])

    scale = tf.TensorSpec([3], tf.int32)
    (body,) = loop_bodies(traced(loop, tf.TensorSpec([None, 3]), scale))
    assert [node.op for node in invariants(body)] == ["Transpose", "Cast", "Mul"]


@pytest.mark.parametrize("name", slow_but(MODELS, "one way"))
def test_training_repeats_vectors_at_most(name):
    """Not matrices, nor anything [B, S]; and the same memory may get other axes."""
    model = make(name)
    model.compile("sgd", kl.SequenceCrossentropy())

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


@pytest.mark.parametrize("name", slow_but(ATTENTIONS, "local-p"))
def test_no_product_has_four_axes(name):
    """With these, TensorFlow 2.21 may write beyond its memory on a CPU, and crash."""
    attention = ATTENTIONS[name]()

    def gradients(query, value):
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            result = attention(query, value)
        return tape.gradient(result, [query, value])

    nodes = all_nodes(traced(gradients, *[tf.TensorSpec([None, None, 4])] * 2))
    shapes = [shape for x in nodes if "MatMul" in x.op for shape in shapes_of(x)]
    assert shapes and all(shape.rank in (2, 3) for shape in shapes)


def test_a_products_gradient_takes_its_place_but_in_xla():
    """Which would copy the products of all steps in every round."""

    def gradients(x, kernel):
        def step(x, states, _, project):
            return [h := tf.tanh(x + project(kernel, states[0]))], [h]

        with tf.GradientTape() as tape:
            tape.watch([x, kernel])
            outputs, _ = fast_scan(step, x, [x[0]])
        return tape.gradient(outputs, [x, kernel])

    compiled = tf.function(gradients, jit_compile=True)
    specs = tf.TensorSpec([5, 2, 3]), tf.TensorSpec([3, 3])
    graphs = [all_nodes(traced(x, *specs)) for x in (gradients, compiled)]
    lists = [[x.op for x in nodes].count("TensorListReserve") for nodes in graphs]
    assert lists[0] + 1 == lists[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "option",
    [{}, {"score_mode": "concat"}, {"attention": "local-p"}, {"cell_type": "gru"}],
    ids=str,
)
def test_xla_knows_how_many_rounds_each_loop_of_a_training_step_makes(option):
    """Else it asks the host in every round on a GPU; and each copy is a launch."""
    model = kl.Seq2Seq(kl.Seq2SeqConfig(20, 20, units=8, num_layers=2, **option))
    model.compile(keras.optimizers.SGD(1.0, clipnorm=5.0), kl.SequenceCrossentropy())
    source, target, labels = tf.ones([3, 7], tf.int32), *tf.ones([2, 3, 5], tf.int32)
    model({"source": source, "target": target})
    model.optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True, autograph=False)
    def step(source, target, labels):
        inputs = {"source": source, "target": target}
        return model.train_step((inputs, labels, tf.ones([3, 5])))

    compiled = step.experimental_get_compiler_ir(source, target, labels)
    hlo = compiled("optimized_hlo")
    loops = re.findall(r" while\(.*body=%?([\w.\-]+)(.*)", hlo)
    assert len(loops) == 10  # there and back: four of the encoder, one of the decoder
    for body, rest in loops:
        assert "known_trip_count" in rest, body
        operations = re.search(rf"^%?{re.escape(body)} .*?^}}", hlo, re.M | re.S)[0]
        assert 1 <= len(re.findall(r" copy\(", operations)) <= 7, body


# What `hoisted` does to a function.

X = tf.random.stateless_normal([3, 5], [1, 2])


@pytest.fixture
def kernel():
    return tf.Variable(tf.random.stateless_normal([5, 4], [3, 4]))


def twice(function, x):
    """A loop of two steps of `function`, which returns a tensor first."""
    step, like = hoisted(function, x)
    assert like[0].shape[1:] == x.shape[1:]

    def body(i, x):
        return i + 1, step(x)[0]

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


def steps(kernel, scale):
    """What steps may be like, by name."""

    def product(x):
        square = tf.matmul(kernel, kernel, transpose_b=True)
        return tf.tanh(x @ tf.transpose(square)) * scale, None, {"k": kernel * 2.0}

    def with_a_loop(x):
        turned = tf.transpose(kernel)
        grown = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y + y @ kernel @ turned), [0, x]
        )
        return grown[1] * scale, None, {}

    def handed_on(x):
        return x, kernel, {"scale": scale}

    return {"product": product, "a loop": with_a_loop, "handed on": handed_on}


@pytest.mark.parametrize("name", steps(None, None))
def test_what_is_hoisted_computes_the_same(name, kernel):
    """Of a variable that changed, too."""
    function = tf.function(
        lambda x, scale: twice(steps(kernel, scale)[name], x), autograph=False
    )
    scale = tf.constant(0.5)
    for _ in range(2):
        x = X
        for _ in range(2):
            x, *_ = steps(kernel, scale)[name](x)
        for found in (function(X, scale), twice(steps(kernel, scale)[name], X)):
            np.testing.assert_allclose(found, x, rtol=1e-5)
        kernel.assign(0.5 * kernel)


def test_only_what_depends_on_its_arguments_is_in_the_loop(kernel):
    function = steps(kernel, tf.constant(0.5))["product"]
    one = tf.TensorSpec([None, 5])
    (body,) = loop_bodies(traced(lambda x: twice(function, x), one))
    assert not invariants(body)
    assert size(body.node_def) == 5  # product, tanh, times scale; two counters


def test_random_numbers_are_drawn_at_every_step():
    @tf.function(autograph=False)
    def draw():
        step, _ = hoisted(lambda x: (x + tf.random.uniform([100]),), tf.zeros([100]))
        return step(tf.zeros([100]))[0], step(tf.zeros([100]))[0]

    assert len(np.unique(draw())) > 150


def test_gradients_go_through_what_is_hoisted(kernel):
    function = steps(kernel, tf.constant(0.5))["product"]

    def gradient(run):
        with tf.GradientTape() as tape:
            y = run(X)
        return tape.gradient(y, kernel)

    def run(x):
        return twice(function, x)

    expected = gradient(lambda x: function(function(x)[0])[0])
    inside = tf.function(lambda: gradient(run), autograph=False)()
    outside = gradient(tf.function(run, autograph=False))
    for found in (inside, outside):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_what_a_loop_computes_and_what_it_reads_have_names_of_their_own():
    # "sub" is the source's last place, before the loop, and a log-probability in it.
    search = kl.BeamSearch(2, max_length=7, compact=False)
    find = tf.function(lambda ids: search(CopyModel(), ids), autograph=False)
    assert find(tf.constant([[4, 5, 3]])).ids.numpy().tolist() == [[[4, 5, 3]]]


# Weights in half precision are cast once for a search.

SOURCE = tf.constant([[5, 7, 3], [8, 3, 0]])
SEARCH = kl.BeamSearch(2, max_length=3)


def mixed(name="untied", **options):
    keras.utils.set_random_seed(1)
    return make(name, **{"dtype": "mixed_bfloat16", **options})


@pytest.mark.slow
def test_ensembles_are_cast_and_full_precision_is_not():
    models = [mixed(), mixed("gnmt"), mixed(dtype="float32")]
    pairs = Ensemble(models).cast_weights()
    cast = [w for w, value in pairs if value.dtype != w.dtype]
    assert len(cast) == sum(len(w.shape) > 1 for m in models[:2] for w in m.weights)
    assert models[2].cast_weights() == []
    weight = models[0].trainable_variables[0]
    with cast_once(models[0]):
        assert weight.value.dtype == tf.bfloat16
    assert weight.value.dtype == tf.float32


def test_what_a_layer_reads_in_float32_is_not_cast():
    model = mixed(cell_type="layer_norm_lstm")
    read = {weight.path: value.dtype for weight, value in model.cast_weights()}
    gammas = [path for path in read if path.endswith("/gamma")]
    assert gammas and {read[path] for path in gammas} == {tf.float32}
    assert tf.bfloat16 in read.values()


def test_a_layer_computes_in_its_own_dtype(monkeypatch):
    model = mixed(num_layers=1)
    model.output_layer.dtype_policy = keras.DTypePolicy("float32")
    said = SEARCH(model, SOURCE)
    monkeypatch.setattr(type(model), "cast_weights", lambda self: [])
    for one, other in zip(said, SEARCH(model, SOURCE), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_of_a_scope_around_it_are_read():
    model = mixed(num_layers=1)
    other = [3.0 * weight.value for weight in model.weights]
    with keras.StatelessScope(list(zip(model.weights, other, strict=True))):
        within = SEARCH(model, SOURCE)
    for weight, value in zip(model.weights, other, strict=True):
        weight.assign(value)
    for one, expected in zip(within, SEARCH(model, SOURCE), strict=True):
        np.testing.assert_array_equal(one, expected)
