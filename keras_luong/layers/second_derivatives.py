"""Second derivatives of what finds its first ones in a way of its own (TensorFlow).

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
from typing import Any

import tensorflow as tf

from keras_luong.compat import autocast_as_now, in_this_graph

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
        first = _gradients(inner, results, upstream, [*arguments, *variables])
    first = [x for x, known in zip(first, is_found, strict=True) if known]
    sources = [*arguments, *variables, *upstream]
    return _gradients(outer, first, upstream_of_found, sources)


def _gradients(tape, targets, upstream, sources):
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
