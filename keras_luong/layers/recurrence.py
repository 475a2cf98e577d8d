"""The loop that runs a step over time, one meaning on every backend.

Shapes: T steps, B batch. Loops are time-major: [T, B, ...].

`step(x, states, constants, project) -> (outputs, states)` multiplies by weight matrices
only through the `project` that it is handed. The plain loop hands it a matmul; the one
for training on TensorFlow (`keras_luong.layers.fast_recurrence`) hands it one that
takes the weights' gradients out of the loop. Tests hold the two equal in outputs and
gradients.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.layers.scores import matmul


def scan(step, inputs, states, constants=(), mask=None, training=False):
    """Runs `step` over time.

    Args:
        step: `(x, states, constants, project) -> (outputs, states)`: x [B, n], states
            a list of [B, ...], outputs a tuple of [B, ...].
        inputs: [T, B, n].
        states: List of initial states [B, ...].
        constants: Nest of tensors that the step reads at every time.
        mask: bool [T, B] or None; where False, states are kept and outputs are zeros.
        training: Whether gradients will be wanted: then TensorFlow's graphs take the
            loop that is faster at them. The plain one has them too, exports without
            custom gradients, and can be looked into where it runs eagerly.

    Returns:
        Tuple of outputs [T, B, ...] and the list of final states.

    Raises:
        ValueError: There is no step, T is 0.
    """
    if inputs.shape[0] == 0:
        raise ValueError(
            "A recurrence needs a length of at least 1. Received: "
            f"time-major inputs.shape={tuple(inputs.shape)}"
        )
    if training and _in_graph():
        from keras_luong.layers.fast_recurrence import fast_scan

        return fast_scan(step, inputs, states, constants, mask)
    return plain_scan(step, inputs, states, constants, mask)


def _in_graph():
    """Whether TensorFlow is tracing."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


def masked_step(step):
    """A step whose input is (x, keep): [B, 1] bool `keep` says whether it counts."""

    def masked(x_and_keep, states, constants, project):
        x, keep = x_and_keep
        outputs, new_states = step(x, states, constants, project)
        outputs = tuple(ops.where(keep, y, ops.zeros_like(y)) for y in outputs)
        pairs = zip(new_states, states, strict=True)
        return outputs, [ops.where(keep, new, old) for new, old in pairs]

    return masked


class _Cell:
    """What `keras.layers.RNN` asks of a cell, around a step."""

    def __init__(self, step, states, constants):
        self.step, self.constants = step, constants
        self.state_size = [state.shape[-1] for state in states]

    def call(self, x, states):
        outputs, states = self.step(x, list(states), self.constants, matmul)
        # Keras stacks nested outputs silently: one tensor is the safe way through.
        self.sizes = [y.shape[-1] for y in outputs]
        self.dtypes = [y.dtype for y in outputs]
        wide = keras.backend.result_type(*self.dtypes)
        return ops.concatenate([ops.cast(y, wide) for y in outputs], -1), states

    __call__ = call


def plain_scan(step, inputs, states, constants=(), mask=None):
    """`scan` through Keras's own recurrent loop, on any backend."""
    cell = _Cell(step, states, constants)
    loop = keras.layers.RNN(cell, return_sequences=True, zero_output_for_mask=True)
    if mask is not None:
        mask = ops.transpose(mask)
    _, outputs, states = loop.inner_loop(ops.swapaxes(inputs, 0, 1), list(states), mask)
    outputs = ops.swapaxes(outputs, 0, 1)
    # The last output may be of dynamic size (alignments): it is what remains.
    starts = [sum(cell.sizes[:i]) for i in range(len(cell.sizes))]
    ends = [*starts[1:], None]
    parts = [outputs[..., a:b] for a, b in zip(starts, ends, strict=True)]
    return tuple(
        ops.cast(_sized(part, size), dtype)
        for part, size, dtype in zip(parts, cell.sizes, cell.dtypes, strict=True)
    ), list(states)


def _sized(x, size):
    """Tells a graph the size of the last axis, which a part's would not say."""
    return x if size is None else ops.reshape(x, (*ops.shape(x)[:-1], size))
