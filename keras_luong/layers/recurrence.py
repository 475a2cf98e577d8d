"""Recurrences: a step, or a recurrent layer, run over time; the same on every backend.

Shapes: T steps, B batch, n inputs, H units, Q queries, S source positions. Sequences
are time-major: [T, B, ...].

A step multiplies by weight matrices only through the `project` that the loop gives it.
In the plain loop that is a matmul. In the loop for training on TensorFlow
(`keras_luong.layers.fast_recurrence`) it takes the weights' gradients out of the loop.
Tests hold the two equal in outputs and gradients. On a GPU, TensorFlow has cuDNN run a
recurrent layer alone, through Keras's own, in place of a loop.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import keras
from keras import ops

from keras_luong.checks import check_flag, check_rate, check_size
from keras_luong.compat import in_xla
from keras_luong.layers import cells
from keras_luong.layers.base import BaseLayer
from keras_luong.layers.projection import Project, matmul
from keras_luong.types import Tensor

CUDNN_LAYERS = keras.layers.LSTM, keras.layers.GRU


def runs_on_cudnn(layer: Any) -> bool:
    """Whether Keras has cuDNN run this layer: an LSTM or a GRU on TensorFlow's GPU.

    But not within what XLA compiles, which cannot compile cuDNN's kernels.
    """
    if keras.backend.backend() != "tensorflow":
        return False
    if not isinstance(layer, CUDNN_LAYERS) or not layer.use_cudnn:
        return False
    import tensorflow as tf

    return bool(tf.config.list_logical_devices("GPU")) and not in_xla()


def forgo_cudnn(layers: Iterable[Any]) -> Callable[[], None]:
    """Makes Keras's layers run without cuDNN, for XLA; returns what undoes it."""
    layers = [layer for layer in layers if isinstance(layer, CUDNN_LAYERS)]
    before = [(layer.use_cudnn, layer.supports_jit) for layer in layers]

    def undo() -> None:
        for layer, (use_cudnn, supports_jit) in zip(layers, before, strict=True):
            layer.use_cudnn, layer.supports_jit = use_cudnn, supports_jit

    for layer in layers:
        layer.use_cudnn, layer.supports_jit = False, True
    return undo


def scan_on_cudnn(
    layer: Any, x: Tensor, states: Any, mask: Any, backwards: bool, otherwise: Any
) -> tuple[Tensor, Any]:
    """`keras_luong.layers.recurrence.RecurrentLayers.scan_layer` by cuDNN.

    Args:
        layer: A built layer for which `runs_on_cudnn` is true.
        x: [T, B, n].
        states: Initial states [B, H].
        mask: bool [T, B], or None.
        backwards: Whether to read from the end.
        otherwise: What runs the layer under a mask that cuDNN does not take.

    Returns:
        Outputs [T, B, H] and the final states.
    """

    def through_keras():
        return _through_keras(layer, x, states, mask, backwards)

    if mask is None:
        return through_keras()
    return ops.cond(_padded_on_the_right(mask), through_keras, otherwise)


def _padded_on_the_right(mask):
    """Whether cuDNN takes the mask [T, B]: a word at least, and words come first."""
    words = ops.cast(mask, "int32")
    return ops.logical_and(ops.all(mask[0]), ops.all(words[1:] <= words[:-1]))


def _through_keras(layer, x, states, mask, backwards):
    """The layer's own loop, batch-major; the mask is padded on the right or None."""
    import tensorflow as tf

    x = ops.swapaxes(x, 0, 1)
    mask = None if mask is None else ops.transpose(mask)

    def turned(sequence):
        if not backwards:
            return sequence
        if mask is None:
            return ops.flip(sequence, 1)
        lengths = ops.sum(ops.cast(mask, "int32"), 1)
        return tf.reverse_sequence(sequence, lengths, seq_axis=1)

    _, outputs, states = layer.inner_loop(turned(x), list(states), mask, training=True)
    outputs = turned(outputs)
    if mask is not None:
        outputs = ops.where(mask[..., None], outputs, ops.zeros((), outputs.dtype))
    return ops.swapaxes(outputs, 0, 1), list(states)


class Noise(NamedTuple):
    """Dropout multipliers of a sequence, the same at all its steps.

    They are None, or not there, where nothing is dropped.

    Attributes:
        below: By a layer's index, those of what enters it from below: [B, H].
        recurrent: By a layer's index, those of its recurrent h: [B, H].
        attention: Those of the attention's weights: [B, Q or 1, S].
    """

    below: Mapping[int, Tensor] = {}
    recurrent: Mapping[int, Tensor] = {}
    attention: Tensor | None = None


class Mode(NamedTuple):
    """How to compute a step: what a loop hands to each of its steps.

    Attributes:
        training: Whether this is training, and gradients will be wanted.
        noise: The dropout multipliers of the sequence.
        project: How to multiply by matrices that no step changes, see
            `keras_luong.layers.projection.matmul`.
        own_inputs: Whether inputs may be made of the outputs before, so that nothing of
            them can be computed before the loop.

    Example:
        >>> kl.layers.INFERENCE.training
        False
        >>> weights, x = np.ones([3, 8], "float32"), np.ones([2, 3], "float32")
        >>> tuple(kl.layers.INFERENCE.project(weights, x).shape)
        (2, 8)
    """

    training: bool = False
    noise: Noise = Noise()
    project: Project = matmul
    own_inputs: bool = False


INFERENCE = Mode()

#: `(x, states, constants, mode) -> (outputs, states)`, see `scan`.
Step: TypeAlias = Callable[[Tensor, Any, Any, Mode], tuple[tuple[Tensor, ...], Any]]


def scan(
    step: Step,
    inputs: Tensor,
    states: Any,
    constants: Any = (),
    mask: Tensor | None = None,
    mode: Mode = INFERENCE,
) -> tuple[tuple[Tensor, ...], Any]:
    """Runs a step over time.

    In training, TensorFlow's graphs take the loop that is faster at gradients. The
    plain one has gradients too, can be exported (it has no custom gradients), and can
    be looked into where it runs eagerly.

    Args:
        step: `(x, states, constants, mode) -> (outputs, states)`: x [B, n], outputs a
            tuple of [B, ...].
        inputs: [T, B, n].
        states: Nest of initial states [B, ...].
        constants: Nest of tensors that the step reads at every time.
        mask: bool [T, B] or None; where False, states are kept and outputs are zeros.
        mode: How to compute the steps. The loop puts a `project` of its own in it.

    Returns:
        The outputs [T, B, ...] and the nest of final states.

    Raises:
        ValueError: There is no step, T is 0.
    """
    if inputs.shape[0] == 0:
        raise ValueError(
            "A recurrence needs a length of at least 1. Received: "
            f"time-major inputs.shape={tuple(inputs.shape)}"
        )

    def flat_step(x, flat_states, constants, project):
        nest = keras.tree.pack_sequence_as(states, flat_states)
        outputs, nest = step(x, nest, constants, mode._replace(project=project))
        return outputs, keras.tree.flatten(nest)

    arguments = flat_step, inputs, keras.tree.flatten(states), constants, mask
    results = None
    if mode.training and _in_graph():
        from keras_luong.layers.fast_recurrence import fast_scan

        results = fast_scan(*arguments)  # None: its steps cannot be computed again
    outputs, finals = plain_scan(*arguments) if results is None else results
    return outputs, keras.tree.pack_sequence_as(states, finals)


def _in_graph():
    """Whether TensorFlow is tracing."""
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.executing_eagerly()


class _Cell:
    """A step as a cell for `keras.layers.RNN`."""

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


def plain_scan(
    step: Callable[..., Any],
    inputs: Tensor,
    states: list[Tensor],
    constants: Any = (),
    mask: Tensor | None = None,
) -> tuple[tuple[Tensor, ...], list[Tensor]]:
    """`scan` of `(x, flat states, constants, project)` through Keras's own loop."""
    cell = _Cell(step, states, constants)
    loop = keras.layers.RNN(cell, return_sequences=True, zero_output_for_mask=True)
    if mask is not None:
        mask = ops.transpose(mask)
    _, outputs, states = loop.inner_loop(ops.swapaxes(inputs, 0, 1), list(states), mask)
    outputs = ops.swapaxes(outputs, 0, 1)
    # The last output's size may be dynamic (alignments): it takes what remains.
    starts = [*itertools.accumulate(cell.sizes[:-1], initial=0)]
    ends = [*starts[1:], None]
    parts = [outputs[..., a:b] for a, b in zip(starts, ends, strict=True)]
    return tuple(
        ops.cast(_sized(part, size), dtype)
        for part, size, dtype in zip(parts, cell.sizes, cell.dtypes, strict=True)
    ), list(states)


def _sized(x, size):
    """Tells a graph the size of the last axis, which it does not know of a part."""
    return x if size is None else ops.reshape(x, (*ops.shape(x)[:-1], size))


def _scan_backwards(step, inputs, states, constants, mask, mode):
    """`scan` from the last step to the first."""
    mask = None if mask is None else ops.flip(mask, 0)
    outputs, finals = scan(step, ops.flip(inputs, 0), states, constants, mask, mode)
    return tuple(ops.flip(y, 0) for y in outputs), finals


class RecurrentLayers(BaseLayer):
    """Base of what is made of recurrent layers: their options, weights and dropout.

    Args:
        units: Size H of every layer.
        num_layers: How many layers.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        dropout: Rate on what enters each layer from below (not on what recurs), as in
            Zaremba et al. 2015.
        recurrent_dropout: Rate on the recurrent h of each layer (Gal & Ghahramani
            2016). All dropout masks are drawn once per sequence, as in Keras's own
            layers.
        residual: Whether layers after the first add their input to their output (Wu et
            al. 2016).
        kernel_initializer, recurrent_initializer, bias_initializer: As in
            `keras.layers.LSTM`.
        seed: Seed of the dropout.
        seed_generator: Somebody else's generator of its random numbers, instead.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        units: int,
        num_layers: int = 1,
        cell_type: str = "lstm",
        dropout: float = 0.0,
        recurrent_dropout: float = 0.0,
        residual: bool = False,
        kernel_initializer: Any = "glorot_uniform",
        recurrent_initializer: Any = "orthogonal",
        bias_initializer: Any = "zeros",
        seed: int | None = None,
        seed_generator: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = seed_generator or keras.random.SeedGenerator(seed)
        self.dropout = check_rate("dropout", dropout)
        self.units = check_size("units", units)
        self.num_layers = check_size("num_layers", num_layers)
        self.cell_type = cell_type
        self.kind = cells.get_cell_type(cell_type)
        self.recurrent_dropout = check_rate("recurrent_dropout", recurrent_dropout)
        self.residual = check_flag("residual", residual)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.recurrent_initializer = keras.initializers.get(recurrent_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def draw_noise(self, shape: Any, rate: float, training: Any) -> Tensor | None:
        """Dropout multipliers of a shape; None where nothing is dropped."""
        seed, dtype = self.seed_generator, self.compute_dtype
        return cells.draw_noise(shape, rate, training, seed, dtype)

    def make_layers(self, count: int, name: str) -> list[Any]:
        """Keras's layers `{name}_0`, `{name}_1`, ..., which have the weights."""
        return [
            self.kind.layer(
                self.units,
                kernel_initializer=self.kernel_initializer.clone(),
                recurrent_initializer=self.recurrent_initializer.clone(),
                bias_initializer=self.bias_initializer,
                return_sequences=True,
                dtype=self.dtype_policy,
                name=f"{name}_{i}",
            )
            for i in range(count)
        ]

    def scan_layer(
        self,
        layer: Any,
        x: Tensor,
        states: cells.States,
        mask: Tensor | None = None,
        noise: Tensor | None = None,
        training: Any = False,
        backwards: bool = False,
    ) -> tuple[Tensor, cells.States]:
        """Runs one recurrent layer over a sequence: in a loop, or by cuDNN on a GPU.

        Its input projection is one product for all steps.

        Args:
            layer: One of `make_layers`.
            x: [T, B, n].
            states: Initial states [B, H].
            mask: bool [T, B], or None; where False, states are kept and outputs are
                zeros.
            noise: Dropout multipliers [B, H] of the recurrent h, or None.
            training: Whether gradients will be wanted.
            backwards: Whether to read from the end. Outputs are in the order of x.

        Returns:
            Outputs [T, B, H] and the final states.
        """

        def step(z, states, constants, mode):
            inputs = cells.CellInput(z, noise=noise)
            states = self.kind.equations(layer.cell, inputs, states, mode.project)
            return (states[0],), states

        def loop():
            z = self.kind.project_input(layer.cell, x)
            run = _scan_backwards if backwards else scan
            (h,), finals = run(step, z, list(states), (), mask, Mode(bool(training)))
            return h, finals

        if training and noise is None and runs_on_cudnn(layer):
            return scan_on_cudnn(layer, x, states, mask, backwards, otherwise=loop)
        return loop()

    def options(self) -> dict[str, Any]:
        """The arguments that say what the layers are like."""
        return {
            "units": self.units,
            "num_layers": self.num_layers,
            "cell_type": self.cell_type,
            "dropout": self.dropout,
            "recurrent_dropout": self.recurrent_dropout,
            "residual": self.residual,
            **cells.serialized_initializers(self),
        }
