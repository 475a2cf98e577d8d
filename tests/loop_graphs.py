"""Graphs as TensorFlow traces them: their loops, their sizes, what loops repeat."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.step_model import repeated, take_step

#: Not operations: they compute nothing.
NOTHING = ("Const", "Identity", "Placeholder", "NoOp")
#: Give the same memory another shape.
VIEWS = ("ExpandDims", "Reshape", "Squeeze")


class Graphs(NamedTuple):
    """A traced function: its nodes, and the functions that these call, by name."""

    nodes: Any
    library: dict[str, Any]


def traced(function, *signature):
    concrete = tf.function(
        function, input_signature=signature, autograph=False
    ).get_concrete_function()
    definition = concrete.graph.as_graph_def(add_shapes=True)
    library = {f.signature.name: f for f in definition.library.function}
    return Graphs(definition.node, library)


def size(nodes):
    """The number of operations."""
    return sum(node.op not in NOTHING for node in nodes)


def total_size(graphs):
    """That of all functions together."""
    bodies = [f.node_def for f in graphs.library.values()]
    return size(graphs.nodes) + sum(map(size, bodies))


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
    return computed_from(_handed_on(body), body.node_def)


def of_memory(model, source, beams=3):
    """The nodes of a model's step that come of its memory, and of no token or state."""

    def first(source):
        memory, state = model.encode(source)
        return repeated(state, beams), memory

    given = tf.function(first, autograph=False).get_concrete_function(source)
    state, memory = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, *x.shape[1:]], x.dtype), given.structured_outputs
    )
    step = tf.function(lambda *given: take_step(model, *given), autograph=False)
    tokens = tf.TensorSpec([None, beams], tf.int32)
    graph = step.get_concrete_function(tokens, state, memory).graph
    nodes = graph.as_graph_def(add_shapes=True).node
    names = [x.op.name for x in graph.inputs]  # the weights come last
    start = len(tf.nest.flatten([tokens, state]))
    end = start + len(tf.nest.flatten(memory))
    of_weights = {node.name for node in computed_from(names[end:], nodes)}
    found = computed_from(names[start:], nodes)
    return [node for node in found if node.name not in of_weights]


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
            if of_sizes and _is_small(node):
                sizes.add(node.name)
                continue
            fixed.add(node.name)
            if node.op not in (*NOTHING, "ReadVariableOp"):
                found.append(node)
    return found


def _handed_on(body):
    """The names of the arguments that a body returns as they are."""
    nodes = {node.name: node for node in body.node_def}

    def origin(name):
        name = name.split(":")[0]
        while name in nodes and nodes[name].op == "Identity":
            name = nodes[name].input[0].split(":")[0]
        return name

    signature = body.signature
    pairs = zip(signature.input_arg, signature.output_arg, strict=True)
    return {x.name for x, y in pairs if origin(body.ret[y.name]) == x.name}


def shapes_of(node):
    return [tf.TensorShape(x) for x in node.attr["_output_shapes"].list.shape]


def _is_small(node):
    return all(shape.is_fully_defined() for shape in shapes_of(node))


def is_view(node):
    """Whether a node gives the same memory another shape, as `x[:, None]` does."""
    return node.op in VIEWS or node.attr["new_axis_mask"].i != 0


def is_row(node):
    """Whether a node gives a row of a matrix, or a part of a vector."""
    return node.op == "StridedSlice" and is_vector(node)


def is_vector(node):
    """Whether a node's results have at most one axis of more than one element."""
    return all(
        shape.rank is not None and sum(axis != 1 for axis in shape) <= 1
        for shape in shapes_of(node)
    )
