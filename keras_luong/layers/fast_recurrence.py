"""The TensorFlow loop: everything that does not recur is done outside of it.

Differentiating a loop naively costs, at every step and for every weight, a product with
a transposed matrix and a thin one that is added to the weight's gradient. Here

1. the gradients of all matrices that the step multiplies by, weights or a sentence's
   keys and values, are one product after the loop, over all steps at once: an empty
   list goes through each product untouched, and its gradient is the list of the dZ of
   dW = Xᵀ dZ, which the product's own gradient puts there;
2. the transposes that the backward pass needs are made once;
3. inputs are read from a TensorArray (a slice of a tensor would cost a full-size
   gradient at every step), and their gradients come in a list in the same way.

Nothing here knows what the step computes: a tape differentiates the rest of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.layers.recurrence import masked_step
from keras_luong.layers.scores import matmul


class _Trace(NamedTuple):
    """What one step does, learned by tracing it: its products and its outputs."""

    weights: list  # one matrix a product: [n, m], or [B, n, m]
    transposed: list  # whether it is given as [B, m, n]
    shapes: list  # of each product
    outputs: tuple


class _Loop(NamedTuple):
    """The parts of `scan` that its loop reads."""

    step: Any
    inputs: tf.Tensor
    mask: tf.Tensor | None
    trace: _Trace


def fast_scan(step, inputs, states, constants=(), mask=None):
    """`keras_luong.layers.recurrence.scan` for TensorFlow; see there."""
    inputs = tf.convert_to_tensor(inputs)
    states = [tf.convert_to_tensor(state) for state in states]
    trace = _trace(step, inputs[0], states, constants)
    if mask is not None:
        step, mask = masked_step(step), tf.cast(mask, tf.bool)[..., None]
    flat = [tf.convert_to_tensor(x) for x in tf.nest.flatten(constants)]
    sizes = len(states), len(flat)

    @tf.custom_gradient
    def run(*arguments):
        # One tensor may stand for two arguments (values that are their own keys);
        # the tape tells only tensors apart.
        arguments = [tf.identity(x) for x in arguments]
        inputs, states, flat, weights = _unflatten(arguments, *sizes)
        shapes = [tf.shape(inputs)[1:], *trace.shapes]
        sinks = _sinks(shapes, [inputs, *weights], tf.shape(inputs)[0])
        sources = [*sinks, *_floating([*states, *flat])]
        loop = _Loop(step, inputs, mask, trace._replace(weights=weights))
        with tf.GradientTape(persistent=True) as tape:  # as the caller's may be
            tape.watch(sources)
            packed = tf.nest.pack_sequence_as(constants, flat)
            outputs, finals, saved = _run(loop, states, packed, sinks)
        results = (*outputs, *finals)

        def gradient(*upstream, variables=None):
            found = _differentiate(tape, results, upstream, sources, variables or [])
            of_sinks, of_floats = found[: len(sinks)], iter(found[len(sinks) :])
            of_inputs, *dzs = map(_stacked, of_sinks, shapes, [inputs, *weights])
            of_arguments = [
                next(of_floats) if x.dtype.is_floating else None
                for x in (*states, *flat)
            ]
            products = zip(saved, dzs, trace.transposed, strict=True)
            of_weights = [_of_matrix(*product) for product in products]
            of_arguments = map(_once, [of_inputs, *of_arguments, *of_weights])
            of_arguments, of_variables = list(of_arguments), list(map(_once, of_floats))
            return (of_arguments, of_variables) if variables else of_arguments

        return results, gradient

    results = run(inputs, *states, *flat, *trace.weights)
    return tuple(results[: -sizes[0]]), list(results[-sizes[0] :])


def _sinks(shapes, likes, length):
    """Lists for tensors of these shapes, one a step; none is there yet."""
    return [
        tf.raw_ops.TensorListReserve(
            element_shape=shape, num_elements=length, element_dtype=like.dtype
        )
        for shape, like in zip(shapes, likes, strict=True)
    ]


def _stacked(sink, shape, like):
    """The tensors of a list, one above the other."""
    return tf.raw_ops.TensorListStack(
        input_handle=sink, element_shape=shape, element_dtype=like.dtype
    )


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


def _once(gradient):
    """A gradient that says so where it cannot be differentiated again."""
    if gradient is None:
        return None
    return tf.raw_ops.PreventGradient(
        input=gradient,
        message="The training loop has first derivatives only; for second ones call "
        "the layer with training=False.",
    )


def _trace(step, x, states, constants) -> _Trace:
    """Runs the step once, for its side effect on `project`; a graph drops the rest."""
    weights, turned, shapes = [], [], []

    def project(matrices, inputs, transposed=False):
        weight, x = _as_one(matrices, inputs)
        weights.append(weight)
        turned.append(transposed)
        product = matmul(matrices, inputs, transposed)
        width = [product.shape[-1] or tf.shape(product)[-1]]
        shapes.append(tf.concat([tf.shape(x)[:-1], width], 0))
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
    return _Trace(weights, turned, shapes, outputs)


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


def _unflatten(arguments, num_states, num_constants):
    states_end = 1 + num_states
    constants_end = states_end + num_constants
    return (
        arguments[0],
        list(arguments[1:states_end]),
        list(arguments[states_end:constants_end]),
        list(arguments[constants_end:]),
    )


def _floating(tensors):
    return [x for x in tensors if x.dtype.is_floating]


def _product(x, weight, back, sink, time, turned):
    """`x @ weight`, or its transpose, and the sink as it was.

    The weight's own gradient comes after the loop: dZ goes into the sink's gradient.
    `back` is what dZ is multiplied by: the transpose, made once.
    """

    @tf.custom_gradient
    def run(x, weight, back, sink):
        def gradient(dz, of_sink):
            return tf.matmul(dz, back), None, None, _put(of_sink, time, dz)

        return (tf.matmul(x, weight, transpose_b=turned), tf.identity(sink)), gradient

    return run(x, weight, back, sink)


class _Projector:
    """The `project` of one time step."""

    def __init__(self, trace, backs, sinks, time):
        self.trace, self.backs, self.sinks, self.time = trace, backs, list(sinks), time
        self.inputs = []

    def __call__(self, weights, inputs, transposed=False):
        i = len(self.inputs)
        first = inputs[0] if isinstance(weights, tuple) else inputs
        x = tf.concat(inputs, -1) if isinstance(weights, tuple) else inputs
        weight = self.trace.weights[i]
        if len(weight.shape) == 2:
            x = _rows(x)
        self.inputs.append(x)
        z, self.sinks[i] = _product(
            x, weight, self.backs[i], self.sinks[i], self.time, transposed
        )
        if len(x.shape) == len(first.shape):
            return z
        return tf.reshape(z, tf.concat([tf.shape(first)[:-1], [z.shape[-1]]], 0))


def _array(length, like, values=None):
    shape = like.shape if values is None else like.shape[1:]
    array = tf.TensorArray(like.dtype, length, element_shape=shape)
    return array if values is None else array.unstack(values)


def _run(loop, states, constants, sinks):
    """The loop itself: -> stacked outputs, final states, each product's inputs."""
    length = tf.shape(loop.inputs)[0]
    trace = loop.trace
    backs = [
        weight if turned else tf.linalg.matrix_transpose(weight)
        for weight, turned in zip(trace.weights, trace.transposed, strict=True)
    ]
    inputs = _array(length, loop.inputs, tf.stop_gradient(loop.inputs))
    masks = None if loop.mask is None else _array(length, loop.mask, loop.mask)

    def body(t, outputs, saved, states, sinks):
        x, of_inputs = _read(inputs, sinks[0], t)
        x = x if masks is None else (x, masks.read(t))
        project = _Projector(trace, backs, sinks[1:], t)
        y, new_states = loop.step(x, states, constants, project)
        for new, old in zip(new_states, states, strict=True):
            new.set_shape(old.shape)
        outputs = [a.write(t, v) for a, v in zip(outputs, y, strict=True)]
        saved = [a.write(t, v) for a, v in zip(saved, project.inputs, strict=True)]
        return t + 1, outputs, saved, new_states, [of_inputs, *project.sinks]

    outputs = [_array(length, y) for y in trace.outputs]
    saved = [
        tf.TensorArray(
            w.dtype,
            length,
            element_shape=[None] * (len(w.shape) - 1) + [w.shape[-1 if turned else -2]],
        )
        for w, turned in zip(trace.weights, trace.transposed, strict=True)
    ]
    _, outputs, saved, states, _ = tf.while_loop(
        lambda t, *_: t < length,
        body,
        (0, outputs, saved, states, sinks),
        maximum_iterations=length,
    )
    saved = [tf.stop_gradient(array.stack()) for array in saved]
    return [array.stack() for array in outputs], states, saved


def _differentiate(tape, results, upstream, sources, variables):
    pairs = zip(results, upstream, strict=True)
    targets, gradients = zip(*[p for p in pairs if p[0].dtype.is_floating], strict=True)
    return tape.gradient(
        list(targets),
        [*sources, *variables],
        output_gradients=list(gradients),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
