"""The TensorFlow loop for training: whatever does not recur is done outside of it.

TensorFlow differentiates a loop by recording all that it computes, step by step; and at
every step and for every weight it multiplies by a transposed matrix, and adds a thin
product to the weight's gradient. Here

1. the forward loop saves the states before each step, and each product with a matrix;
2. the backward loop goes from the last step to the first. It computes each step again
   from what was saved, so that no product is, and differentiates that; a product's
   gradient dZ is multiplied by the transpose, which is made once, and saved;
3. the gradients of all matrices, weights or a sentence's keys and values, are one
   product after the loops, over all steps at once: dW = Xᵀ dZ.

So XLA knows how many rounds both loops make, and neither copies what the other keeps.
Nothing here knows what the step computes.

Shapes: T steps, B batch, n inputs and m outputs of a product. Sequences are time-major.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.compat import (
    autocast_as_now,
    in_a_branch,
    in_this_graph,
    in_xla,
    may_have_gradient,
    unrecorded,
)
from keras_luong.layers.projection import matmul

#: Whether XLA compiles the two loops, and nothing else; None: where there is a GPU. A
#: round is then a few launches there, and cuDNN still runs what it can. False is for
#: steps of an operation that XLA lacks, and for second derivatives by tapes that are
#: outside of the `tf.function`.
COMPILE_LOOPS: bool | None = None

#: Operations with a state that computing a step again does not change.
_HARMLESS = frozenset(
    {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "Assert", "Placeholder"}
)


class _Matrix(NamedTuple):
    """A matrix that the step multiplies by, with its bias."""

    weight: tf.Tensor  # [n, m], or a sentence's own, [B, n, m]
    bias: tf.Tensor | None  # [m]
    transposed: bool  # whether the weight is given as [B, m, n]
    product: tf.TensorSpec  # of the product at one step
    adds: bool  # whether what is added is a part of it: it has the product's shape


class _Inputs(NamedTuple):
    """The tensors that both loops read."""

    inputs: tf.Tensor  # [T, B, n]
    mask: list[tf.Tensor]  # [T, B, 1], or nothing
    states: list[tf.Tensor]
    constants: list[tf.Tensor]
    weights: list[tf.Tensor]
    biases: list[tf.Tensor]  # of the products that have one
    closed: list[tf.Tensor]  # those that the step closes over


def fast_scan(
    step: Callable[..., Any],
    inputs: tf.Tensor,
    states: list[tf.Tensor],
    constants: Any = (),
    mask: tf.Tensor | None = None,
) -> tuple[tuple[tf.Tensor, ...], list[tf.Tensor]] | None:
    """`keras_luong.layers.recurrence.plain_scan` in a TensorFlow graph; see there.

    Returns:
        The same; or None for a step that cannot be computed again: one that draws
        random numbers or changes variables, calls `project` in a branch, a loop or a
        function of its own, or has complex numbers; or one that is in a branch of a
        `tf.cond`, whose gradient reads no variables.

    Raises:
        ValueError: The step multiplies through `project` by a matrix that is not the
            same at every step.
    """
    if not tf.executing_eagerly() and in_a_branch():
        return None
    inputs = tf.convert_to_tensor(inputs)
    states = [tf.convert_to_tensor(state) for state in states]
    nest = tf.nest.map_structure(
        lambda x: x if x is None else tf.convert_to_tensor(x), constants
    )
    masks = [] if mask is None else [tf.cast(mask, tf.bool)[..., None]]
    traced = _trace(step, inputs[0], states, nest)
    if traced is None:
        return None
    matrices, likes, closed = traced
    given = _Inputs(
        inputs,
        masks,
        states,
        [x for x in tf.nest.flatten(nest) if x is not None],
        [matrix.weight for matrix in matrices],
        [matrix.bias for matrix in matrices if matrix.bias is not None],
        closed,
    )
    step = autocast_as_now(_masked(step, nest))

    def again(flat):
        now = tf.nest.pack_sequence_as(given, flat)
        outputs, finals, _ = _forward(step, matrices, likes, now, bounded=True)
        return [y for y in (*outputs, *finals) if _floats(y)]

    @tf.custom_gradient
    def run(*flat):
        # One tensor may stand for two arguments: values that are their own keys.
        now = tf.nest.pack_sequence_as(given, [tf.stop_gradient(x) for x in flat])
        forward = _compiled(functools.partial(_forward, step, matrices, likes))
        with unrecorded():  # or TensorFlow would keep what second derivatives need
            outputs, finals, saved = forward(now)
        results = [*outputs, *finals]

        def gradient(*upstream, variables=None):
            variables = variables or []
            above = [tf.convert_to_tensor(dy) for dy in upstream if _floats(dy)]
            backward = _compiled(
                functools.partial(_backward, step, matrices, likes, variables, closed)
            )
            first = backward(now, saved, above)
            sources = flat, len(closed), variables, above
            first = iter(_differentiable(first, again, *sources))
            of_flat = [next(first) if _floats(x) else None for x in flat]
            return (of_flat, list(first)) if variables else of_flat

        return results, gradient

    results = run(*tf.nest.flatten(given))
    return tuple(results[: len(likes)]), list(results[len(likes) :])


def _compiled(function):
    """Compiles a function by XLA as `COMPILE_LOOPS` says: by default on a GPU."""
    compiles = COMPILE_LOOPS
    if compiles is None:
        compiles = bool(tf.config.list_logical_devices("GPU"))
    if not compiles:
        return function

    @tf.function(autograph=False, jit_compile=True)
    def compiled(*args):  # a TensorArray cannot leave what XLA compiles
        return tf.nest.map_structure(_stack, function(*args))

    def run(*args):
        compiled.get_concrete_function(*args)  # traced with tapes, for its own
        with unrecorded():
            return compiled(*args)

    return run


def _trace(step, x, states, constants):
    """Runs the step once, to learn its products and outputs; a graph drops the rest.

    Returns:
        A `_Matrix` for each product, a `tf.TensorSpec` for each output, and the tensors
        that the step closes over; or None where it cannot be computed again.
    """
    matrices, nested, graph = [], [], tf.compat.v1.get_default_graph()

    def project(weights, inputs, transposed=False, bias=None, plus=None):
        if tf.compat.v1.get_default_graph() is not graph:  # of a `tf.cond`, say
            nested.append(True)
            return matmul(weights, inputs, transposed, bias, plus)
        weight, rows = weights, inputs
        if isinstance(weights, tuple):  # a sum of products is one
            weight = tf.concat([tf.convert_to_tensor(w) for w in weights], 0)
            rows = tf.concat(inputs, -1)
        weight = tf.cast(weight, rows.dtype)
        bias = bias() if callable(bias) else bias
        bias = None if bias is None else tf.cast(bias, weight.dtype)
        product = matmul(weights, inputs, transposed, bias)
        shape = [None] * (len(weight.shape) - 1) + [product.shape[-1]]
        spec = tf.TensorSpec(shape, product.dtype)
        adds = plus is not None and tuple(plus.shape) == tuple(product.shape)
        matrices.append(_Matrix(weight, bias, transposed, spec, adds))
        return product if plus is None else product + plus

    # Tensors of their own: the step may close over the same ones, too.
    x, states, constants = tf.nest.map_structure(
        lambda x: x if x is None else tf.identity(x), (x, states, constants)
    )
    before = _operations()
    changing = [y for y in (x, *states) if y.dtype.is_floating]
    with tf.GradientTape() as tape:
        tape.watch(changing)
        outputs, _ = step(x, states, constants, project)
    made = _operations()[len(before) :]
    outer = _captured(graph)
    own = {id(y) for op in made for y in op.outputs}.difference(outer)
    if nested or not all(_can_be_repeated(op, own) for op in made):
        return None
    weights = [matrix.weight for matrix in matrices]
    gradients = tape.gradient(weights, changing) if weights else []
    if any(gradient is not None for gradient in gradients):
        raise ValueError(
            "project multiplies by matrices that are the same at every step. Received "
            "one that the step computed from its inputs or states: use ops.matmul"
        )
    likes = [tf.TensorSpec(y.shape, y.dtype) for y in outputs]
    own.update(map(id, [x, *states, *tf.nest.flatten(constants)]))
    read = [y for op in made for y in op.inputs if _floats(y) and id(y) not in own]
    each = {id(y): y for y in (outer.get(id(y), y) for y in read)}
    closed = [y for y in each.values() if may_have_gradient(y)]
    if closed:  # but for those that are a part of the matrices alone
        with tf.GradientTape() as tape:
            tape.watch(closed)
            outputs, new = step(x, states, constants, _with_constant_matrices)
        slopes = tape.gradient([*filter(_floats, (*outputs, *new))], closed)
        pairs = zip(closed, slopes, strict=True)
        closed = [tensor for tensor, slope in pairs if slope is not None]
    return matrices, likes, closed


def _with_constant_matrices(weights, inputs, transposed=False, bias=None, plus=None):
    """A `project` without gradients of the matrices."""
    bias = bias() if callable(bias) else bias
    bias = None if bias is None else tf.stop_gradient(bias)
    weights = tf.nest.map_structure(tf.stop_gradient, weights)
    return matmul(weights, inputs, transposed, bias, plus)


def _can_be_repeated(op, own):
    """Whether an operation does the same once more, with numbers that are real.

    Of a list that is not its `own` (ids of tensors) a step's gradients would be lost.
    """
    if op.op_def.is_stateful and op.type not in _HARMLESS:
        return False
    if any(x.dtype == tf.variant and id(x) not in own for x in op.inputs):
        return False
    return not any(y.dtype.is_complex for y in (*op.inputs, *op.outputs))


def _captured(graph):
    """The tensors of outer graphs, by the ids of those that stand for them in this."""
    return {id(inner): outer for outer, inner in getattr(graph, "captures", ())}


def _operations():
    """The operations of the current graph; none in eager mode."""
    if tf.executing_eagerly():
        return []
    return tf.compat.v1.get_default_graph().get_operations()


def _masked(step, nest):
    """The step, over flat constants; where its mask is False, states are kept."""

    def masked(x, mask, states, constants, project):
        given = iter(constants)
        constants = tf.nest.map_structure(
            lambda x: x if x is None else next(given), nest
        )
        outputs, new_states = step(x, states, constants, project)
        for keep in mask:  # [B, 1]
            outputs = [tf.where(keep, y, tf.zeros((), y.dtype)) for y in outputs]
            pairs = zip(new_states, states, strict=True)
            new_states = [tf.where(keep, new, old) for new, old in pairs]
        return list(outputs), new_states

    return masked


class _Projector:
    """The `project` of one step, which keeps its products and what they are made of.

    Args:
        matrices: A `_Matrix` for each product.
        saved: The products, where the step is computed again; else None.
        transposes: Of the weights, what dZ is multiplied by then.
    """

    def __init__(self, matrices, saved=None, transposes=()):
        self.matrices, self.saved, self.transposes = matrices, saved, transposes
        self.inputs, self.products, self.gradients = [], [], {}

    def __call__(self, weights, inputs, transposed=False, bias=None, plus=None):
        del transposed, bias  # as they were when the step was traced
        first = inputs[0] if isinstance(weights, tuple) else inputs
        x = tf.concat(inputs, -1) if isinstance(weights, tuple) else inputs
        i = len(self.inputs)
        adds = self.matrices[i].adds
        added = [plus] if adds else []
        if len(self.matrices[i].weight.shape) == 2:
            x, *added = map(_rows, (x, *added))
        z = (self._multiply if self.saved is None else self._read)(i, x, *added)
        self.inputs.append(x)
        self.products.append(z)
        if len(x.shape) != len(first.shape):
            z = tf.reshape(z, tf.concat([tf.shape(first)[:-1], [z.shape[-1]]], 0))
        return z if plus is None or adds else z + plus

    def _multiply(self, i, x, *added):
        matrix = self.matrices[i]
        z = tf.matmul(x, matrix.weight, transpose_b=matrix.transposed)
        z = z if matrix.bias is None else tf.nn.bias_add(z, matrix.bias)
        return sum(added, start=z)

    def _read(self, i, *inputs):
        """The product that was saved, and its gradients: dZ is kept, dX = dZ Wᵀ."""

        @tf.custom_gradient
        def run(z, x, *added):  # z is watched: x may depend on nothing that is
            def gradient(dz):
                self.gradients[i] = dz
                return [None, tf.matmul(dz, self.transposes[i]), *(dz for _ in added)]

            return tf.identity(z), gradient

        return run(self.saved[i], *inputs)


def _forward(step, matrices, likes, given, bounded=False):
    """The loop: -> stacked outputs, final states, and what the backward loop needs.

    That is, arrays of the states before each step and of each product. A loop that is
    `bounded` is one whose gradient XLA compiles, but it no longer sees how many rounds
    it makes.
    """
    length = _length(given.inputs)
    matrices = _with(matrices, given)
    sequences = [_unstack(x) for x in (given.inputs, *given.mask)]
    kept = [*given.states, *(matrix.product for matrix in matrices)]

    def body(t, outputs, saved, states):
        x, *mask = (sequence.read(t) for sequence in sequences)
        project = _Projector(matrices)
        y, new = step(x, mask, states, given.constants, project)
        for one, old in zip(new, states, strict=True):
            one.set_shape(old.shape)
        outputs = [a.write(t, v) for a, v in zip(outputs, y, strict=True)]
        now = [*states, *project.products]
        saved = [a.write(t, v) for a, v in zip(saved, now, strict=True)]
        return t + 1, outputs, saved, new

    start = [_array(length, x) for x in likes], [_array(length, x) for x in kept]
    _, outputs, saved, finals = tf.while_loop(
        lambda t, *_: t < length,
        body,
        (0, *start, given.states),
        maximum_iterations=tf.shape(given.inputs)[0] if bounded else None,
    )
    count = len(given.states)
    return [array.stack() for array in outputs], finals, (saved[:count], saved[count:])


def _backward(step, matrices, likes, variables, closed, given, saved, upstream):
    """Runs the loop backwards: -> gradients of floating inputs, then of variables.

    Args:
        step: The step, as `_masked` makes it.
        matrices: A `_Matrix` for each product.
        likes: A `tf.TensorSpec` for each output.
        variables: Those that the step reads other than through `project`.
        closed: The tensors that it closes over.
        given: An `_Inputs`.
        saved: The states before each step, and each product, of all steps: tensors, or
            arrays.
        upstream: The gradients of the outputs and final states that are floating.
    """
    length = _length(given.inputs)
    matrices = _with(matrices, given)
    transposes = [  # a product with `transpose_b` would make it at each step
        m.weight if m.transposed else tf.linalg.matrix_transpose(m.weight)
        for m in matrices
    ]
    sequences = [_unstack(x) for x in (given.inputs, *given.mask)]
    old_states, products = ([_unstack(x) for x in xs] for xs in saved)
    # A product is read once, and its gradient takes its place. XLA would copy all of
    # them in every round.
    in_place = not in_xla()
    count = sum(map(_floats, likes))
    of_outputs = [_unstack(dy) for dy in upstream[:count]]
    of_states = upstream[count:]
    constants = [*filter(_floats, given.constants), *closed]
    inputs = [given.inputs] if _floats(given.inputs) else []  # or ids, say

    def body(i, of_inputs, rows, of_products, of_states, of_constants, of_variables):
        t = length - 1 - i
        x, *mask = (sequence.read(t) for sequence in sequences)
        states = [array.read(t) for array in old_states]
        floating = [s for s in states if s.dtype.is_floating]
        # 1. The step once more, with the products that it had.
        had = [array.read(t) for array in (of_products if in_place else products)]
        project = _Projector(matrices, had, transposes)
        with tf.GradientTape() as tape:
            xs = [x for _ in inputs]
            tape.watch([*had, *xs, *floating, *constants])
            y, new = step(x, mask, states, given.constants, project)
        # 2. The gradients of what it reads.
        targets = [v for v in (*y, *new) if v.dtype.is_floating]
        above = [dy.read(t) for dy in of_outputs]
        sources = [*xs, *floating, *constants, *variables]
        gradients = iter(tape.gradient(targets, sources, [*above, *of_states]))
        of_inputs = [a.write(t, _or_zeros(next(gradients), x)) for a in of_inputs]
        new_of_states = [_or_zeros(next(gradients), s) for s in floating]
        for one, old in zip(new_of_states, of_states, strict=True):
            one.set_shape(old.shape)
        # 3. Of what is the same at every step, they are summed up.
        of_constants = [_plus(total, next(gradients)) for total in of_constants]
        of_variables = [_plus(total, next(gradients)) for total in of_variables]
        # 4. Of its products, they are written for what comes after the loop.
        rows = [a.write(t, v) for a, v in zip(rows, project.inputs, strict=True)]
        dzs = [
            _or_zeros(project.gradients.get(j), z)
            for j, z in enumerate(project.products)
        ]
        of_products = [a.write(t, v) for a, v in zip(of_products, dzs, strict=True)]
        return (
            i + 1,
            of_inputs,
            rows,
            of_products,
            new_of_states,
            of_constants,
            of_variables,
        )

    start = (
        0,
        [_array(length, tf.TensorSpec(x.shape[1:], x.dtype)) for x in inputs],
        [_array(length, _input_spec(matrix)) for matrix in matrices],
        products if in_place else [_array(length, m.product) for m in matrices],
        of_states,
        [tf.zeros_like(c) for c in constants],
        [tf.zeros_like(v) for v in variables],
    )
    _, of_inputs, rows, of_products, of_states, of_constants, of_variables = (
        tf.while_loop(lambda i, *_: i < length, body, start)
    )
    # 5. The gradients of weights and biases, over all steps at once.
    of_weights, of_biases = [], []
    for matrix, x, dz in zip(matrices, rows, of_products, strict=True):
        x, dz = x.stack(), dz.stack()
        of_weights.append(_of_weight(x, dz, matrix.transposed))
        if matrix.bias is not None:
            of_biases.append(_of_bias(dz))
    of_inputs = [array.stack() for array in of_inputs]
    count = len(of_constants) - len(closed)
    of_constants, of_closed = of_constants[:count], of_constants[count:]
    of_given = [*of_inputs, *of_states, *of_constants, *of_weights, *of_biases]
    return [*of_given, *of_closed, *of_variables]


def _of_weight(x, dz, transposed):
    """DW of all steps' x [T, rows, n] and dz [T, rows, m]; or of a sentence's own.

    Of those, x is [T, B, Q, n], dz [T, B, Q, m], and `transposed` says that the weight
    is [B, m, n].
    """
    if len(x.shape) == 3:
        return tf.matmul(_rows(x), _rows(dz), transpose_a=True)
    first, second = (dz, x) if transposed else (x, dz)
    return tf.einsum("tbqn,tbqm->bnm", first, second)


def _of_bias(dz):
    """The sum over all steps and rows, [m]: a product, which adds up in float32."""
    rows = _rows(dz)
    return tf.matmul(tf.ones([1, tf.shape(rows)[0]], rows.dtype), rows)[0]


def _differentiable(first, again, flat, closed, variables, upstream):
    """The same gradients, which can be differentiated themselves.

    They were made by a loop that TensorFlow does not look into. Where somebody asks for
    their gradients, as a gradient penalty does (Gulrajani et al. 2017,
    arXiv:1704.00028), the results are computed once more by one that it does.

    Args:
        first: The gradients of what is floating in `flat`, then of the variables.
        again: `flat -> results`, by operations that TensorFlow differentiates.
        flat: What the results are computed from.
        closed: How many of those, the last, the step closes over.
        variables: Those that are read besides.
        upstream: The gradients of the results.
    """
    count = len(flat) - closed
    flat = [in_this_graph(x) for x in flat]
    read = [tf.convert_to_tensor(variable) for variable in variables]

    @tf.custom_gradient
    def tied(*args):
        def gradient(*above):
            # One tensor may stand for two arguments: here each is one of its own.
            given = [*map(tf.identity, args[:count]), *flat[count:]]
            upstream = [tf.identity(dy) for dy in args[len(flat) + len(read) :]]
            sources = [*(x for x in given if x.dtype.is_floating), *variables]
            zeros = tf.UnconnectedGradients.ZERO
            with tf.GradientTape() as outer:
                outer.watch([*sources, *upstream])
                with tf.GradientTape() as inner:
                    inner.watch(sources)
                    results = again(given)
                slopes = inner.gradient(results, sources, upstream, zeros)
            second = outer.gradient(slopes, [*sources, *upstream], above, zeros)
            second = iter([tf.convert_to_tensor(x) for x in second])
            return [next(second) if x.dtype.is_floating else None for x in args]

        return [tf.stop_gradient(x) for x in first], gradient

    return tied(*flat, *read, *upstream)


def _with(matrices, given):
    """The matrices, with the weights and biases of these inputs."""
    biases = iter(given.biases)
    return [
        matrix._replace(weight=w, bias=None if matrix.bias is None else next(biases))
        for matrix, w in zip(matrices, given.weights, strict=True)
    ]


def _input_spec(matrix):
    """The spec of what a matrix is multiplied with at one step."""
    weight = matrix.weight
    width = weight.shape[-1 if matrix.transposed else -2]
    shape = [None] * (len(weight.shape) - 1) + [width]
    return tf.TensorSpec(shape, weight.dtype)


def _length(x):
    """The length T; a number where it is known, by which XLA knows it too."""
    return tf.shape(x)[0] if x.shape[0] is None else x.shape[0]


def _array(length, like):
    return tf.TensorArray(like.dtype, length, element_shape=like.shape)


def _stack(x):
    return x.stack() if isinstance(x, tf.TensorArray) else x


def _unstack(x):
    if isinstance(x, tf.TensorArray):
        return x
    return _array(_length(x), tf.TensorSpec(x.shape[1:], x.dtype)).unstack(x)


def _rows(x):
    return tf.reshape(x, [-1, x.shape[-1]])


def _floats(x):
    return x is not None and x.dtype.is_floating


def _or_zeros(gradient, like):
    return tf.zeros_like(like) if gradient is None else gradient


def _plus(total, gradient):
    return total if gradient is None else total + tf.convert_to_tensor(gradient)
