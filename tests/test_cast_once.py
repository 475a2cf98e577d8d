import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong import BeamSearch
from keras_luong.decoding import Ensemble, RandomSampling, force
from keras_luong.decoding.hoisting import cast_once
from keras_luong.models import build

SOURCE = tf.constant([[5, 7, 9, 3], [8, 3, 0, 0]])
SEARCHES = {
    "beam": BeamSearch(3, max_length=6),
    "sampling": RandomSampling(max_length=6, seed=1),
    "force": lambda model, source: force(model, source, tf.constant([[4, 3], [6, 3]])),
}
SMALL = ("cho2014", "bahdanau2015", "gnmt", "vaswani2017-base")


def make(name="small", dtype="mixed_bfloat16", **changes):
    keras.utils.set_random_seed(1)
    changes = {"num_layers": 2, **changes}
    if name == "vaswani2017-base":
        changes.update(units=8, num_heads=2, feedforward_units=16)
    else:
        changes.update(units=6, embedding_dim=6)
    return build(name, 11, 12, dtype=dtype, **changes)


PRODUCTS = ("MatMul", "BatchMatMulV2", "Einsum", "GatherV2")


def casts_in_loops(search, model):
    """How many products in the bodies of a search's loops are with a weight cast."""
    graph = tf.function(lambda ids: search(model, ids)).get_concrete_function(SOURCE)
    count = 0
    for function in graph.graph.as_graph_def().library.function:
        nodes = {node.name: node for node in function.node_def}

        def made_by(node, op, nodes=nodes):
            sources = (nodes.get(name.split(":")[0]) for name in node.input)
            return [x for x in sources if x is not None and x.op == op]

        if "while_body" in function.signature.name:
            products = [x for x in function.node_def if x.op in PRODUCTS]
            casts = [cast for x in products for cast in made_by(x, "Cast")]
            count += sum(bool(made_by(x, "ReadVariableOp")) for x in casts)
    return count


@pytest.mark.slow  # quick: test_loop_invariants.py, in mixed precision
@pytest.mark.parametrize(
    "name, kind",
    [
        *((name, "beam") for name in SMALL),
        *(("small", kind) for kind in SEARCHES),
    ],
)
def test_no_step_casts_weights(name, kind, monkeypatch):
    model, search = make(name), SEARCHES[kind]
    assert casts_in_loops(search, model) == 0
    said = search(model, SOURCE)
    monkeypatch.setattr(type(model), "cast_weights", lambda self: [])
    if name != "vaswani2017-base":  # whose loop is the search alone, see hoisting
        assert casts_in_loops(search, model) > 0
    for one, other in zip(said, search(model, SOURCE), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_ensembles_are_cast_and_full_precision_is_not():
    models = [make(), make("gnmt"), make(dtype="float32")]
    pairs = Ensemble(models).cast_weights()
    cast = [w for w, value in pairs if value.dtype != w.dtype]
    assert len(cast) == sum(len(w.shape) > 1 for m in models[:2] for w in m.weights)
    assert models[2].cast_weights() == []
    weight = models[0].trainable_variables[0]
    with cast_once(models[0]):
        assert weight.value.dtype == tf.bfloat16
    assert weight.value.dtype == tf.float32
    assert casts_in_loops(SEARCHES["beam"], Ensemble(models[:2])) == 0


def test_what_a_layer_reads_in_float32_is_not_cast():
    model = make(cell_type="layer_norm_lstm")
    read = {weight.path: value.dtype for weight, value in model.cast_weights()}
    gammas = [path for path in read if path.endswith("/gamma")]
    assert gammas and {read[path] for path in gammas} == {tf.float32}
    assert tf.bfloat16 in read.values()


@pytest.mark.parametrize("part", ["output_layer", "target_embedding"])
def test_a_layer_computes_in_its_own_dtype(part, monkeypatch):
    model, search = make(tie_embeddings=None), SEARCHES["beam"]
    getattr(model, part).dtype_policy = keras.DTypePolicy("float32")
    said = search(model, SOURCE)
    monkeypatch.setattr(type(model), "cast_weights", lambda self: [])
    for one, other in zip(said, search(model, SOURCE), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_of_a_scope_around_it_are_read():
    model, search = make(), SEARCHES["beam"]
    other = [3.0 * weight.value for weight in model.weights]
    with keras.StatelessScope(list(zip(model.weights, other, strict=True))):
        within = search(model, SOURCE)
    for weight, value in zip(model.weights, other, strict=True):
        weight.assign(value)
    for one, expected in zip(within, search(model, SOURCE), strict=True):
        np.testing.assert_array_equal(one, expected)
