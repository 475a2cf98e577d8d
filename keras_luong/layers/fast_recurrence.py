"""The TensorFlow loop: everything that does not recur is done outside of it.

Differentiating a loop naively costs, at every step and for every weight, a product with
a transposed matrix and a thin one that is added to the weight's gradient. Here

1. the gradients of all matrices that the step multiplies by, weights or a sentence's
   keys and values, are one product after the loop, over all steps at once: an empty
   list goes through each product untouched, and its gradient is the list of the dZ of
   dW = Xᵀ dZ, which the product's own gradient puts there; biases are sums over it;
2. the transposes that the backward pass needs are made once;
3. inputs are read from a TensorArray (a slice of a tensor would cost a full-size
   gradient at every step), and their gradients come in a list in the same way.

Nothing here knows what the step computes: TensorFlow differentiates the rest of it.

Second derivatives of what finds its first ones in a way of its own (TensorFlow).

A gradient found by a `tf.custom_gradient` is made of tensors in which TensorFlow cannot
see all that they depend on. Here such a gradient is tied to all of it. Where it is
differentiated, as for a gradient penalty (Gulrajani et al. 2017, arXiv:1704.00028), the
values are computed once more in the plain way, whose derivatives of any order are
TensorFlow's own. Where nobody differentiates it, it costs nothing.

TensorFlow refuses them, with errors of its own, for a loop in a branch of a `tf.cond`,
for one with dropout in a `tf.function` that both tapes are outside of, and for cuDNN's
kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.compat import autocast_as_now, gradients_across_graphs, in_this_graph
from keras_luong.layers.projection import matmul

#: Operations with a state that running them again does not change.
_HARMLESS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "Assert", "Placeholder"}
)


def differentiable(
    found: Sequence[tf.Tensor | None],
    again: Callable[[list[tf.Tensor]], Sequence[tf.Tensor]],
    arguments: Sequence[tf.Tensor],
    upstream: Sequence[tf.Tensor],
    variables: Sequence[tf.Variable] = (),
    handles: Sequence[tf.Tensor] = (),
) -> list[tf.Tensor | None]:
    """Gradients that were found somehow, with derivatives of their own.

    Args:
        found: The gradients of the arguments, then of the variables; None for those of
            no floating type.
        again: Computes the results from the arguments, with TensorFlow's operations.
        arguments: What the results were computed from.
        upstream: The gradients of the results.
        variables: That `again` reads.
        handles: What each of them is read by where the results were computed. A branch
            of a `tf.cond` has a gradient only if it goes by the branch's own tensors.

    Returns:
        `found`.
    """
    count = len(arguments)
    arguments = [in_this_graph(x) for x in arguments]
    read = [
        tf.raw_ops.ReadVariableOp(resource=handle, dtype=variable.dtype)
        for variable, handle in zip(variables, handles, strict=True)
    ]
    is_found = [gradient is not None for gradient in found]
    again = autocast_as_now(again)

    @tf.custom_gradient
    def tied(*given):
        def gradient(*upstream_of_found):
            arguments, upstream = list(given[:count]), given[count + len(read) :]
            return _of_gradients(
                again, arguments, upstream, variables, is_found, upstream_of_found
            )

        gradients = (x for x in found if x is not None)
        return [tf.stop_gradient(x) for x in gradients], gradient

    gradients = iter(tied(*arguments, *read, *upstream))
    return [next(gradients) if known else None for known in is_found]


def _of_gradients(again, arguments, upstream, variables, is_found, upstream_of_found):
    """The gradients of gradients: -> of arguments, variables and upstream, flat."""
    # One tensor may stand for two arguments: here each is one of its own.
    arguments, upstream = ([tf.identity(x) for x in xs] for xs in (arguments, upstream))
    with tf.GradientTape() as outer:
        outer.watch([*upstream, *(x for x in arguments if x.dtype.is_floating)])
        with tf.GradientTape() as inner:
            inner.watch([x for x in arguments if x.dtype.is_floating])
            results = again(arguments)
        first = _first_gradients(inner, results, upstream, [*arguments, *variables])
    first = [x for x, known in zip(first, is_found, strict=True) if known]
    sources = [*arguments, *variables, *upstream]
    return _first_gradients(outer, first, upstream_of_found, sources)


def _first_gradients(tape, targets, upstream, sources):
    """The tape's gradients, zeros where there are none; None of no floating type."""
    floating = [x for x in sources if x.dtype.is_floating]
    found = tape.gradient(
        list(targets), floating, list(upstream), tf.UnconnectedGradients.ZERO
    )
    found = iter(found)
    return [
        tf.convert_to_tensor(next(found)) if x.dtype.is_floating else None
        for x in sources
    ]


def plain_loop(
    step: Callable[..., Any],
    inputs: Any,
    states: list[tf.Tensor],
    likes: Sequence[tf.Tensor],
) -> list[tf.Tensor]:
    """A recurrence whose derivatives of any order are TensorFlow's.

    Args:
        step: `(x, states) -> (outputs, states)`.
        inputs: Nest of what x is at all steps [T, B, ...].
        states: Initial states [B, ...].
        likes: Tensors with the outputs' dtypes and static shapes.

    Returns:
        All outputs [T, B, ...], then the final states.

    Raises:
        ValueError: The step draws random numbers or changes variables.
    """
    length = tf.shape(tf.nest.flatten(inputs)[0])[0]
    reads = tf.nest.map_structure(_unstacked, inputs)

    def body(t, arrays, states):
        x = tf.nest.map_structure(lambda array: array.read(t), reads)
        outputs, new_states = step(x, states)
        _check_repeatable()
        for new, old in zip(new_states, states, strict=True):
            new.set_shape(old.shape)
        written = [a.write(t, y) for a, y in zip(arrays, outputs, strict=True)]
        return t + 1, written, new_states

    arrays = [tf.TensorArray(y.dtype, length, element_shape=y.shape) for y in likes]
    _, arrays, states = tf.while_loop(
        lambda t, *_: t < length, body, (0, arrays, states), maximum_iterations=length
    )
    return [*(array.stack() for array in arrays), *states]


def _unstacked(x):
    array = tf.TensorArray(x.dtype, tf.shape(x)[0], element_shape=x.shape[1:])
    return array.unstack(x)


def _check_repeatable():
    """Raises where the current graph, a loop's body, would differ if run again."""
    for op in tf.compat.v1.get_default_graph().get_operations():
        if op.op_def.is_stateful and op.type not in _HARMLESS:
            raise ValueError(
                "Second derivatives need a step that can be computed again, and not "
                "one that draws random numbers or changes variables: draw them before "
                "the loop, or call the layer with training=False. Received: a step "
                f"with {op.type} ({op.name})"
            )


class _Trace(NamedTuple):
    """What one step does, learned by tracing it: its products and its outputs."""

    weights: list[tf.Tensor]  # one matrix a product: [n, m], or [B, n, m]
    biases: list[tf.Tensor | None]  # [m]
    transposed: list[bool]  # whether the matrix is given as [B, m, n]
    shapes: list[_Shape]  # of the input and of each product
    outputs: tuple[tf.Tensor, ...]
    variables: tuple[tf.Variable, ...]  # that have gradients


class _Shape(NamedTuple):
    """The shape of a product, or of the loop's inputs, at one step."""

    actual: tf.Tensor
    known: tf.TensorShape  # beforehand


class _Given(NamedTuple):
    """All that the loop is computed from."""

    inputs: tf.Tensor
    states: list[tf.Tensor]
    constants: Any
    masks: list[tf.Tensor]  # the mask [T, B, 1], or nothing
    weights: list[tf.Tensor]
    biases: list[tf.Tensor]  # without None

    @property
    def sunk(self) -> list[tf.Tensor]:
        """What has its gradient in a list: the inputs, and each product's dZ."""
        return [self.inputs, *self.weights]

    @property
    def flowing(self) -> list[tf.Tensor]:
        """What has its gradient through the loop itself."""
        return tf.nest.flatten([self.states, self.constants, self.masks])


class _Run(NamedTuple):
    """A loop that has run, and what its gradient needs."""

    given: _Given
    trace: _Trace
    results: tuple[tf.Tensor, ...]  # all outputs and final states
    saved: list[tf.Tensor]  # each product's inputs, of all steps
    sinks: list[tf.Tensor]
    handles: dict[Any, tf.Tensor]  # of the step's variables, in the loop's graph


def fast_scan(
    step: Callable[..., Any],
    inputs: tf.Tensor,
    states: list[tf.Tensor],
    constants: Any = (),
    mask: tf.Tensor | None = None,
) -> tuple[tuple[tf.Tensor, ...], list[tf.Tensor]]:
    """`keras_luong.layers.recurrence.plain_scan` in a TensorFlow graph; see there."""
    inputs = tf.convert_to_tensor(inputs)
    states = [tf.convert_to_tensor(state) for state in states]
    constants = tf.nest.map_structure(tf.convert_to_tensor, constants)
    trace = _trace(step, inputs[0], states, constants)
    masks = [] if mask is None else [tf.cast(mask, tf.bool)[..., None]]
    step = _masked(step)
    biases = [bias for bias in trace.biases if bias is not None]
    given = _Given(inputs, states, constants, masks, trace.weights, biases)

    def again(flat):
        return _again(step, trace, tf.nest.pack_sequence_as(given, flat))

    @tf.custom_gradient
    def run(*flat):
        # Tapes around this one need not look into the loop: for more than one of them
        # TensorFlow would keep what second derivatives need. And one tensor may stand
        # for two arguments (values that are their own keys).
        stopped = [tf.stop_gradient(x) for x in flat]
        made = _run(step, trace, tf.nest.pack_sequence_as(given, stopped))

        def gradient(*upstream, variables=None):
            variables = variables or []
            upstream = _of_floating(made.results, upstream)
            handles = [made.handles[variable.ref()] for variable in variables]
            found = _gradients(made, upstream, handles)
            found = differentiable(found, again, flat, upstream, variables, handles)
            of_given, of_variables = found[: len(flat)], found[len(flat) :]
            return (of_given, of_variables) if variables else of_given

        return made.results, gradient

    results = run(*tf.nest.flatten(given))
    return tuple(results[: -len(states)]), list(results[-len(states) :])


def _masked(step):
    """A step whose input is [x, keep]: [B, 1] bool `keep` says whether it counts."""

    def masked(x_and_keep, states, constants, project):
        x, *mask = x_and_keep
        outputs, new_states = step(x, states, constants, project)
        if not mask:
            return outputs, new_states
        (keep,) = mask
        outputs = tuple(tf.where(keep, y, tf.zeros_like(y)) for y in outputs)
        pairs = zip(new_states, states, strict=True)
        return outputs, [tf.where(keep, new, old) for new, old in pairs]

    return masked


def _run(step, trace, given):
    sinks = _sinks(trace.shapes, given.sunk, tf.shape(given.inputs)[0])
    outputs, finals, saved = _loop(step, trace, given, sinks)
    handles = {v.ref(): in_this_graph(v.handle) for v in trace.variables}
    return _Run(given, trace, (*outputs, *finals), saved, sinks, handles)


def _gradients(run, upstream, handles):
    """The gradients of a run: -> of all that was given, flat, then of variables."""
    given, trace = run.given, run.trace
    lists, of_flowing, of_variables = _differentiate(run, upstream, handles)
    of_inputs, *dzs = map(_stacked, lists, trace.shapes, given.sunk)
    of_weights = map(_of_matrix, run.saved, dzs, trace.transposed)
    of_biases = [
        _of_bias(dz)
        for dz, bias in zip(dzs, trace.biases, strict=True)
        if bias is not None
    ]
    return [of_inputs, *of_flowing, *of_weights, *of_biases, *of_variables]


def _again(step, trace, given):
    """A run's floating results, by a loop that has second derivatives."""
    inputs = [given.inputs, *given.masks]
    matrices, likes = _matrices(trace, given), trace.outputs

    def same_step(x, states):
        return step(x, states, given.constants, _Projector(matrices))

    return _floating(plain_loop(same_step, inputs, given.states, likes))


def _sinks(shapes, likes, length):
    """Lists for tensors of these shapes, one a step; none is there yet."""
    lists = [
        tf.raw_ops.TensorListReserve(
            element_shape=shape.actual, num_elements=length, element_dtype=like.dtype
        )
        for shape, like in zip(shapes, likes, strict=True)
    ]
    # Shapes may have been learned through variables: gradients are to end here.
    return [tf.stop_gradient(x) for x in lists]


def _stacked(sink, shape, like):
    """The tensors of a list, one above the other."""
    stacked = tf.raw_ops.TensorListStack(
        input_handle=sink, element_shape=shape.actual, element_dtype=like.dtype
    )
    stacked.set_shape([None, *shape.known])
    return stacked


def _put(sink, time, item):
    return tf.raw_ops.TensorListSetItem(input_handle=sink, index=time, item=item)


def _read(array, sink, time):
    """The array's tensor of that step, and the sink as it was, for its gradient."""

    @tf.custom_gradient
    def run(sink):
        def gradient(dx, of_sink):
            return _put(of_sink, time, dx)

        return (array.read(time), tf.identity(sink)), gradient

    return run(sink)


def _trace(step, x, states, constants):
    """Runs the step once, for its side effect on `project`; a graph drops the rest."""
    weights, biases, turned = [], [], []
    shapes = [_Shape(tf.shape(x), x.shape)]

    def project(matrices, inputs, transposed=False, bias=None):
        weight, x = _as_one(matrices, inputs)
        bias = bias() if callable(bias) else bias
        weights.append(weight)
        biases.append(None if bias is None else tf.cast(bias, weight.dtype))
        turned.append(transposed)
        product = matmul(matrices, inputs, transposed, bias)
        width = product.shape[-1] or tf.shape(product)[-1]
        rows = [None] * (len(x.shape) - 1)
        known = tf.TensorShape([*rows, product.shape[-1]])
        shapes.append(_Shape(tf.concat([tf.shape(x)[:-1], [width]], 0), known))
        return product

    changing = _floating([x, *states])
    with tf.GradientTape() as tape:
        tape.watch(changing)
        outputs, _ = step(x, states, constants, project)
    found = tape.gradient(weights, changing) if weights else []
    if any(gradient is not None for gradient in found):
        raise ValueError(
            "project multiplies by matrices that are the same at every step. Received "
            "one that the step computed from its inputs or states: use ops.matmul"
        )
    return _Trace(weights, biases, turned, shapes, outputs, tape.watched_variables())


def _as_one(weights, inputs):
    """A sum of products as one: weights [n, m] stacked, inputs [rows, n] abreast."""
    if isinstance(weights, tuple):
        weights = tf.concat([tf.convert_to_tensor(w) for w in weights], 0)
        inputs = tf.concat(inputs, -1)
    weights = tf.cast(weights, inputs.dtype)
    return weights, inputs if len(weights.shape) == 3 else _rows(inputs)


def _rows(x):
    return tf.reshape(x, [-1, x.shape[-1]])


def _of_matrix(x, dz, turned):
    """The gradient of a matrix from all steps' inputs and products' gradients.

    Args:
        x: [T, rows, n], or [T, B, Q, n] where each sentence has a matrix.
        dz: [T, rows, m], or [T, B, Q, m].
        turned: Whether the matrix is given as [B, m, n].
    """
    if len(x.shape) == 3:
        return tf.matmul(_rows(x), _rows(dz), transpose_a=True)
    first, second = (dz, x) if turned else (x, dz)
    return tf.einsum("tbqn,tbqm->bnm", first, second)


def _floating(tensors):
    return _of_floating(tensors, tensors)


def _of_floating(tensors, theirs):
    """What belongs to the tensors that have gradients."""
    pairs = zip(tensors, theirs, strict=True)
    return [their for x, their in pairs if x.dtype.is_floating]


def _product(x, matrix):
    z = tf.matmul(x, matrix.weight, transpose_b=matrix.transposed)
    return z if matrix.bias is None else tf.nn.bias_add(z, matrix.bias)


def _sunk_product(x, matrix, sink, time):
    """`x @ weight + bias`, and the sink as it was.

    The gradients of weight and bias come after the loop: dZ goes into the sink's.
    """

    @tf.custom_gradient
    def run(x, sink):
        def gradient(dz, of_sink):
            return tf.matmul(dz, matrix.back), _put(of_sink, time, dz)

        return (_product(x, matrix), tf.identity(sink)), gradient

    return run(x, sink)


class _Matrix(NamedTuple):
    """What one product multiplies by, and its gradient too."""

    weight: tf.Tensor
    bias: tf.Tensor | None
    transposed: bool
    back: tf.Tensor  # what dZ is multiplied by: the transpose, made once


def _matrices(trace, given):
    """A `_Matrix` for each product."""
    biases = iter(given.biases)
    return [
        _Matrix(
            weight,
            None if bias is None else next(biases),
            transposed,
            weight if transposed else tf.linalg.matrix_transpose(weight),
        )
        for weight, bias, transposed in zip(
            given.weights, trace.biases, trace.transposed, strict=True
        )
    ]


class _Projector:
    """The `project` of one time step."""

    def __init__(self, matrices):
        self.matrices, self.inputs = matrices, []

    def __call__(self, weights, inputs, transposed=False, bias=None):
        del transposed, bias  # as they were when the step was traced
        first = inputs[0] if isinstance(weights, tuple) else inputs
        x = tf.concat(inputs, -1) if isinstance(weights, tuple) else inputs
        matrix = self.matrices[len(self.inputs)]
        if len(matrix.weight.shape) == 2:
            x = _rows(x)
        z = self.product(x, matrix)
        self.inputs.append(x)
        if len(x.shape) == len(first.shape):
            return z
        return tf.reshape(z, tf.concat([tf.shape(first)[:-1], [z.shape[-1]]], 0))

    def product(self, x, matrix):
        return _product(x, matrix)


class _SinkingProjector(_Projector):
    """One that leaves the matrices' gradients to what comes after the loop."""

    def __init__(self, matrices, sinks, time):
        super().__init__(matrices)
        self.sinks, self.time = list(sinks), time

    def product(self, x, matrix):
        i = len(self.inputs)
        z, self.sinks[i] = _sunk_product(x, matrix, self.sinks[i], self.time)
        return z


def _array(length, like, values=None):
    shape = like.shape if values is None else like.shape[1:]
    array = tf.TensorArray(like.dtype, length, element_shape=shape)
    return array if values is None else array.unstack(values)


def _loop(step, trace, given, sinks):
    """The loop itself: -> stacked outputs, final states, each product's inputs."""
    length, matrices = tf.shape(given.inputs)[0], _matrices(trace, given)
    inputs = _array(length, given.inputs, tf.stop_gradient(given.inputs))
    masks = [_array(length, mask, mask) for mask in given.masks]

    def body(t, outputs, saved, states, sinks):
        x, of_inputs = _read(inputs, sinks[0], t)
        x = [x, *(mask.read(t) for mask in masks)]
        project = _SinkingProjector(matrices, sinks[1:], t)
        y, new_states = step(x, states, given.constants, project)
        for new, old in zip(new_states, states, strict=True):
            new.set_shape(old.shape)
        outputs = [a.write(t, v) for a, v in zip(outputs, y, strict=True)]
        saved = [a.write(t, v) for a, v in zip(saved, project.inputs, strict=True)]
        return t + 1, outputs, saved, new_states, [of_inputs, *project.sinks]

    outputs = [_array(length, y) for y in trace.outputs]
    saved = [_array_of_inputs(length, matrix) for matrix in matrices]
    _, outputs, saved, states, _ = tf.while_loop(
        lambda t, *_: t < length,
        body,
        (0, outputs, saved, given.states, sinks),
        maximum_iterations=length,
    )
    saved = [tf.stop_gradient(array.stack()) for array in saved]
    return [array.stack() for array in outputs], states, saved


def _array_of_inputs(length, matrix):
    """For what one product multiplies by its matrix."""
    weight = matrix.weight
    width = weight.shape[-1 if matrix.transposed else -2]
    rows = [None] * (len(weight.shape) - 1)
    return tf.TensorArray(weight.dtype, length, element_shape=[*rows, width])


def _of_bias(dz):
    """The sum over all steps and rows, [m]: a product, which adds up in float32."""
    rows = _rows(dz)
    return tf.matmul(tf.ones([1, tf.shape(rows)[0]], rows.dtype), rows)[0]


def _differentiate(run, upstream, handles):
    """The gradients that the loop itself has.

    Args:
        run: A `_Run`.
        upstream: The gradient of each result of a floating type.
        handles: Of the variables that the step reads other than through `project`.

    Returns:
        Of the sinks; of what flows, None where it is of no floating type; of variables.
    """
    flowing = run.given.flowing
    sources = [*run.sinks, *_floating(flowing), *handles]
    found = gradients_across_graphs(_floating(run.results), sources, upstream)
    lists, rest = found[: len(run.sinks)], iter(found[len(run.sinks) :])
    of_flowing = [next(rest) if x.dtype.is_floating else None for x in flowing]
    return lists, of_flowing, list(rest)
