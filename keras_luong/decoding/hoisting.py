"""What a loop need not repeat is computed once, before it.

A step of a search reads weights and a source that no step changes. What it computes of
these alone, such as the transpose of an embedding that is the output layer too, or the
casts of mixed precision, TensorFlow computes again at every step: it moves nothing out
of a loop.

Mixed precision in a search: weights are cast before the loop, not in every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_luong.compat import (
    in_this_graph,
    is_recorded,
    scratch_graph,
    share_functions,
)
from keras_luong.decoding.step_model import StepModel

#: Operations that are stateful, and yet give the same at every step.
READS = ("ReadVariableOp", "ResourceGather")


def hoisted(
    function: Callable[..., Any], *like: Any, shapes: Any = None
) -> tuple[Callable[..., Any], Any]:
    """Returns the same function, for a loop that begins after this call.

    The function is traced now. Its operations that depend on none of its arguments
    are added to the current graph, and calls of what is returned add the others.

    Args:
        function: A function of nests of tensors, with a nest of tensors and None as its
            result. It is returned as it is where there is nothing to gain or something
            to lose: where TensorFlow runs eagerly, or records gradients; and if the
            function draws random numbers, prints or assigns.
        *like: Arguments of the first call; those of the others have the same structure
            and dtypes.
        shapes: What all calls' arguments have in common, a nest of `tf.TensorShape`s
            for each; those of the first by default.

    Returns:
        The function, and a result of it, of which only the structure and the known
        shapes are of use: it may be in a graph of its own.

    Example:
        >>> from keras_luong.decoding.hoisting import hoisted
        >>> def power(kernel):  # of the transposed, which is computed once
        ...     step, _ = hoisted(lambda x: x @ tf.transpose(kernel), tf.eye(2))
        ...     return tf.while_loop(
        ...         lambda x: True, step, [tf.eye(2)], maximum_iterations=10
        ...     )
        >>> kernel = tf.constant([[1.0, 0], [1, 1]])
        >>> tf.function(power, autograph=False)(kernel)[0].numpy()
        array([[ 1., 10.],
               [ 0.,  1.]], dtype=float32)
    """
    if tf.executing_eagerly():
        first = function(*like)
        return _after(first, function), first
    if shapes is None:
        shapes = tf.nest.map_structure(lambda x: x.shape, like)
    graph = scratch_graph()
    with graph.as_default():
        given = tf.nest.map_structure(_placeholder, like, shapes)
        results = tf.nest.map_structure(_in_this_graph, function(*given))
    operations = graph.get_operations()
    acts = any(op.op_def.is_stateful and op.type not in READS for op in operations)
    if acts or is_recorded():
        return function, results
    return _Split(graph, given, results), results


def _in_this_graph(x):
    """A result as this graph's own tensor, where it may be another's or a variable."""
    return x if x is None else in_this_graph(tf.convert_to_tensor(x))


def _after(result, function):
    """A function that returns `result` of its first call, and computes the others."""
    results = [result]
    return lambda *arguments: results.pop() if results else function(*arguments)


def _placeholder(x, shape):
    return tf.compat.v1.placeholder(x.dtype, shape)


class _Split:
    """A traced function: what depends on its arguments, beside what does not.

    Tensors are known by their names in the graph in which it was traced.
    """

    def __init__(self, graph, given, results):
        self.given = [x.name for x in tf.nest.flatten(given)]
        self.results = results
        self.graph = graph
        self.definition = graph.as_graph_def(add_shapes=True)
        captured = {inner.name: x for x, inner in graph.captures}
        moving = _computed_from(self.given, graph)
        # What comes of constants alone stays where it is: TensorFlow folds it.
        fixed = _computed_from(captured, graph) - moving
        used = [x.name for x in tf.nest.flatten(results) if tf.is_tensor(x)]
        for operation in graph.get_operations():
            if moving.intersection(x.name for x in operation.outputs):
                used += [x.name for x in operation.inputs]
        self.names = sorted(fixed.intersection(used))
        self.values = self._copied(captured, self.names)

    def __call__(self, *arguments):
        """Adds what depends on the arguments to the current graph."""
        given = zip(self.given, tf.nest.flatten(arguments), strict=True)
        known = {**dict(zip(self.names, self.values, strict=True)), **dict(given)}
        results = [x for x in tf.nest.flatten(self.results) if tf.is_tensor(x)]
        found = iter(self._copied(known, [x.name for x in results]))
        return tf.nest.map_structure(
            lambda x: next(found) if tf.is_tensor(x) else x, self.results
        )

    def _copied(self, known, names):
        share_functions(self.graph)
        return _copied(self.definition, known, names)


def _computed_from(names, graph):
    """The names of tensors and of all that is computed from them."""
    reached = set(names)
    for operation in graph.get_operations():  # each after those that it depends on
        if not reached.isdisjoint(x.name for x in operation.inputs):
            reached.update(x.name for x in operation.outputs)
    return reached


def _copied(definition, known, names):
    """Adds tensors of a `tf.Graph`'s definition to the current graph.

    Args:
        definition: The `GraphDef`.
        known: Tensors of this graph by the names of those that they stand for.
        names: Names of the tensors that are wanted.

    Returns:
        List of tensors.
    """
    nodes = {node.name: node for node in definition.node}
    missing = [name for name in names if name not in known]
    needed, inputs, rest = {}, {}, list(missing)
    while rest:
        operation = rest.pop().split(":")[0]
        if operation in needed:
            continue
        needed[operation] = _without_control(nodes[operation])
        for name in needed[operation].input:
            name = name if ":" in name else f"{name}:0"
            if name in known:
                inputs[name] = in_this_graph(known[name])
            else:
                rest.append(name)
    # Without the library of functions: the current graph shares them.
    part = tf.compat.v1.GraphDef(node=needed.values(), versions=definition.versions)
    made = tf.graph_util.import_graph_def(part, inputs, missing, name="step")
    made = dict(zip(missing, made, strict=True))
    return [made[x] if x in made else in_this_graph(known[x]) for x in names]


def _without_control(node):
    """A copy of a node that waits for nothing but its inputs."""
    copy = type(node)()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend(x for x in node.input if not x.startswith("^"))
    return copy


@contextlib.contextmanager
def cast_once(model: StepModel) -> Iterator[None]:
    """Makes a model read weights that are already cast to its compute dtype.

    Under mixed precision Keras casts a weight wherever it is read, in a loop's body
    too, and TensorFlow does not move the cast out of the loop. So an encoder would cast
    its weights at every word. (A search's own steps are relieved of that by
    `keras_luong.decoding.hoisting`.)

    Args:
        model: A `StepModel`. Its method `cast_weights`, if it has one, returns a pair
            of a Keras variable and the tensor to read in its place, for every variable
                that the model reads. It ignores a `keras.StatelessScope` around it.

    Example:
        >>> from keras_luong.decoding.hoisting import cast_once
        >>> config = kl.Seq2SeqConfig(9, 9, units=4)
        >>> model = kl.Seq2Seq(config, dtype="mixed_bfloat16")
        >>> with cast_once(model):  # a whole search
        ...     memory, state = model.encode(np.array([[4, 5, 3]]))
        ...     logits, state, weights = model.step(np.array([[2]]), state, memory)
    """
    pairs = cast_weights(model)
    if not pairs:
        yield
        return
    scope = keras.StatelessScope()
    for pair in pairs:  # given to the constructor, they would be cast back
        scope.add_update(pair)
    with scope:
        yield


def cast_weights(model: Any) -> list[tuple[keras.Variable, tf.Tensor]]:
    """Returns the model's pairs of a variable and its cast, or an empty list."""
    return model.cast_weights() if hasattr(model, "cast_weights") else []
