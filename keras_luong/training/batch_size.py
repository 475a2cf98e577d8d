"""The largest batch that fits into the memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import psutil
import tensorflow as tf

from keras_luong.checks import check_size

_SMALLEST = 512  # tokens of a batch


def largest_batch_tokens(
    model: keras.Model,
    max_length: int = 50,
    most: int = 2**16,
    memory: int | None = None,
) -> int:
    """Finds the largest batch whose training step fits into the memory.

    The size is doubled as long as one training step with the longest sentences, which
    take the most memory, succeeds. Afterwards the weights, the optimizer and the seeds
    are restored. On a GPU a step that does not fit fails. On a CPU the process would be
    killed, so the growth of its memory is measured, and the next size is tried only if
    there is room for twice that growth. Call it at the beginning of a process: memory
    that was used and freed before is not measured when it is used again.

    Args:
        model: A translation model, compiled; its first step compiles the graph that
            `fit` uses later.
        max_length: Most tokens in a sentence, BOS and EOS not counted.
        most: Most tokens to try; very large batches slow down learning.
        memory: Bytes that training may use on a machine without GPUs. By default 80%
            of the free memory, within a container's limit.

    Returns:
        The number of tokens in a batch, for `training_batches`.

    Raises:
        TypeError: If a size is no integer.
        ValueError: If a size is below 1, or not even the smallest batch fits.

    Example:
        >>> from keras_luong.training.batch_size import largest_batch_tokens
        >>> inputs = {x: keras.Input([None], name=x) for x in ("source", "target")}
        >>> model = keras.Model(inputs, keras.layers.Embedding(9, 9)(inputs["target"]))
        >>> model.compile("sgd", kl.SequenceCrossentropy())
        >>> largest_batch_tokens(model, max_length=5, most=600)
        512
    """
    check_size("max_length", max_length)
    check_size("most", most)
    check_size("memory", memory, optional=True)
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    memory = memory or int(0.8 * _free_memory())
    if not model.optimizer.built:
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    values = [keras.ops.convert_to_numpy(variable) for variable in variables]
    before = _memory_in_use()

    def try_step(tokens: int) -> int:
        _train(model, tokens // (max_length + 1), max_length + 1)
        return _peak_memory() - before

    try:
        fitting = _largest(
            try_step,
            smallest=max(_SMALLEST, max_length + 1),
            most=most,
            memory=None if on_gpu else memory,
        )
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
    if fitting is None:
        raise ValueError(
            "Not even the smallest batch fits into the memory; a smaller model or "
            f"max_length may. Received: max_length={max_length}, {memory:,} bytes"
        )
    return fitting


def _largest(
    try_step: Callable[[int], int], smallest: int, most: int, memory: int | None
) -> int | None:
    """Doubles the tokens while they fit; `try_step` returns the bytes a step used."""
    fitting, tokens = None, smallest
    while fitting is None or tokens <= most:
        try:
            taken = try_step(tokens)
        except tf.errors.ResourceExhaustedError:
            return fitting
        if memory is not None and taken > memory:
            return fitting
        fitting = tokens
        if memory is not None and 2 * taken > memory:
            return fitting
        tokens *= 2
    return fitting


def _train(model: keras.Model, rows: int, length: int) -> None:
    """Trains one step on a batch of this shape, in a graph for any shape."""
    ids = np.ones([rows, length], np.int32)
    weights = np.full(ids.shape, 1 / ids.size, np.float32)
    unknown = [None, None]
    batch = tf.data.Dataset.from_generator(
        lambda: iter([({"source": ids, "target": ids}, ids, weights)]),
        output_signature=(
            {side: tf.TensorSpec(unknown, tf.int32) for side in ("source", "target")},
            tf.TensorSpec(unknown, tf.int32),
            tf.TensorSpec(unknown, tf.float32),
        ),
    )
    model.fit(batch, steps_per_epoch=1, shuffle=False, verbose=0)


def _free_memory() -> int:
    """Returns how many bytes this process may still use."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")  # a container's limit, on Linux
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else min(free, int(limit) - used)


def _memory_in_use() -> int:
    """Returns the bytes in use; on Linux it also resets the measured peak to them."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return psutil.Process().memory_info().rss


def _peak_memory() -> int:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
    return 1024 * int(status.split("VmHWM:")[1].split()[0])
