"""Hoisting: what a search's loop need not repeat is computed once, before it.

A step of a search reads weights and a source that no step changes. What it computes of
these alone, such as the transpose of an embedding that is the output layer too, or the
casts of mixed precision, TensorFlow computes again at every step: it moves nothing out
of a loop. `hoisted` does; `cast_once` does it for a whole model in mixed precision,
whose encoder has a loop too.
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
from keras_luong.decoding.step_model import (
    Source,
    SpecialTokens,
    StepModel,
    any_rows,
    count_of,
    repeated,
    take_step,
    vocab_size_of,
)

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
        unused = [first]
        return lambda *args: unused.pop() if unused else function(*args), first

    # 1. The function is traced in a graph of its own.
    if shapes is None:
        shapes = tf.nest.map_structure(lambda x: x.shape, like)
    graph = scratch_graph()
    with graph.as_default():
        inputs = tf.nest.map_structure(
            lambda x, shape: tf.compat.v1.placeholder(x.dtype, shape), like, shapes
        )
        results = tf.nest.map_structure(_as_tensor, function(*inputs))
    operations = graph.get_operations()
    acts = any(op.op_def.is_stateful and op.type not in READS for op in operations)
    if acts or is_recorded():
        return function, results

    # 2. What depends on no argument is added to the current graph, if the rest reads
    # it. (What comes of constants alone stays where it is: TensorFlow folds it.)
    arguments = [x.name for x in tf.nest.flatten(inputs)]
    outputs = [x.name for x in tf.nest.flatten(results) if tf.is_tensor(x)]
    captured = {inner.name: x for x, inner in graph.captures}
    moving = _computed_from(arguments, operations)
    fixed = _computed_from(captured, operations) - moving
    read = set(outputs)
    for operation in operations:
        if not moving.isdisjoint(x.name for x in operation.outputs):
            read.update(x.name for x in operation.inputs)
    names = sorted(fixed & read)
    definition = graph.as_graph_def(add_shapes=True)
    moved = _copied(graph, definition, captured, names, "before")
    before = dict(zip(names, moved, strict=True))

    # 3. Calls add the rest to the graph in which they are.
    def call(*args):
        known = {**before, **dict(zip(arguments, tf.nest.flatten(args), strict=True))}
        copies = iter(_copied(graph, definition, known, outputs, "step"))
        return tf.nest.map_structure(
            lambda x: next(copies) if tf.is_tensor(x) else x, results
        )

    return call, results


def begin(
    model: StepModel,
    source: Source,
    special: SpecialTokens,
    beams: int,
    compact: bool = False,
) -> tuple[Any, tf.Tensor, Any, Callable[..., Any], tuple[tf.Tensor, list[tf.Tensor]]]:
    """Encodes a source, and hoists the model's step for a loop that begins now.

    Args:
        model: The model.
        source: The source.
        special: The ids, of which the model reads the first.
        beams: K, how many hypotheses of each sentence are followed.
        compact: Whether sentences may leave the loop: then the step reads the memory of
            those that are left, as a third argument.

    Returns:
        The tensors of the memory, a flat list; the first tokens [B, K] and the first
        state, nest of [B, K, ...]; the step, `take_step` of tokens and state; and
        logits and attention of such a step, of which only the shapes are of use.

    Raises:
        ValueError: If the model does not have the id to begin with.
    """
    size = vocab_size_of(model, "target")
    if size is not None and special.bos_id >= size:
        raise ValueError(
            f"bos_id must be one of the model's {size} tokens, which it reads first. "
            f"Received: bos_id={special.bos_id}"
        )
    encoded, state = model.encode(source)
    # A loop carries tensors alone: what is None, such as a mask, stays outside.
    memory = [x for x in tf.nest.flatten(encoded) if x is not None]
    tokens = tf.fill([count_of(source), beams], special.bos_id)
    state = repeated(state, beams)

    def step(tokens, state, memory=memory):
        parts = iter(memory)
        packed = tf.nest.map_structure(
            lambda x: x if x is None else next(parts), encoded
        )
        return take_step(model, tokens, state, packed)

    first = (tokens, state, memory) if compact else (tokens, state)
    shapes = tf.nest.map_structure(any_rows, first) if compact else None
    step, (logits, _, weights) = hoisted(step, *first, shapes=shapes)
    return memory, tokens, state, step, (logits, weights)


def _as_tensor(x):
    """A result as this graph's own tensor, where it may be another's or a variable."""
    return x if x is None else in_this_graph(tf.convert_to_tensor(x))


def _computed_from(names, operations):
    """The names of tensors and of all that is computed from them."""
    reached = set(names)
    for operation in operations:  # each after those that it depends on
        if not reached.isdisjoint(x.name for x in operation.inputs):
            reached.update(x.name for x in operation.outputs)
    return reached


def _copied(graph, definition, known, names, scope):
    """Adds tensors of another graph to the current one.

    Args:
        graph: The graph in which a function was traced.
        definition: Its `GraphDef`.
        known: Tensors of this graph by the names of those that they stand for.
        names: Names of the tensors that are wanted.
        scope: Before their names here. Not the same for those that a loop computes and
            those that it reads: TensorFlow gives one name twice where they meet.

    Returns:
        List of tensors.
    """
    share_functions(graph)
    nodes = {node.name: node for node in definition.node}
    missing = [name for name in names if name not in known]
    needed, inputs, rest = {}, {}, list(missing)
    while rest:
        operation = rest.pop().split(":")[0]
        if operation in needed:
            continue
        needed[operation] = node = type(nodes[operation])()
        node.CopyFrom(nodes[operation])
        # It waits for nothing but its inputs.
        names_read = [x for x in node.input if not x.startswith("^")]
        del node.input[:]
        node.input.extend(names_read)
        for name in names_read:
            name = name if ":" in name else f"{name}:0"
            if name in known:
                inputs[name] = in_this_graph(known[name])
            else:
                rest.append(name)
    # Without the library of functions: the current graph shares them.
    part = tf.compat.v1.GraphDef(node=needed.values(), versions=definition.versions)
    made = tf.graph_util.import_graph_def(part, inputs, missing, name=scope)
    made = dict(zip(missing, made, strict=True))
    return [made[x] if x in made else in_this_graph(known[x]) for x in names]


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
