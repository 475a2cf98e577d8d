"""The largest batch that fits: tried out, not guessed."""

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

_SMALLEST = 512


def largest_batch_tokens(
    model: keras.Model,
    max_length: int = 50,
    most: int = 2**16,
    memory: int | None = None,
) -> int:
    """Doubles the tokens of a batch as long as a training step fits into the memory.

    Each size is trained on once, with the longest sentences, which take the most;
    then the weights, the optimizer and the seeds are what they were. On a GPU a step
    that does not fit fails. Without one the process would be killed, so the growth of
    its memory is measured, and the next size is tried only if there is room to grow
    twice as much. Call it at the beginning of a process: memory that was freed before
    is taken again without being seen.

    Args:
        model: A translation model, compiled; its first step compiles the graph that
            `fit` uses later.
        max_length: Most tokens of a sentence, BOS and EOS not counted.
        most: Most tokens to try; larger batches take longer to learn the same.
        memory: Bytes that training may take, for a machine without GPUs. By default
            80% of what is free now, the limit of a container included.

    Returns:
        Tokens of a batch, for `training_batches`.

    Raises:
        TypeError: If a size is no integer.
        ValueError: If a size is below 1, or not even the smallest batch fits.

    Example:
        >>> batch_tokens = largest_batch_tokens(model, max_length=50)
        >>> batches = training_batches(pairs, tokenizers, batch_tokens, max_length=50)
    """
    check_size("max_length", max_length)
    check_size("most", most)
    check_size("memory", memory, optional=True)
    on_gpu = bool(tf.config.list_logical_devices("GPU"))
    memory = memory or int(0.8 * _free_memory())
    state, before = _state(model), _memory_in_use()

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
        for variable, value in state:
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
    """Doubles the tokens; `try_step` returns the bytes that so many took at most."""
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
    """Trains a step on a batch of that shape, in a graph for batches of any shape."""
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


def _state(model: keras.Model) -> list[tuple[keras.Variable, np.ndarray]]:
    """What a step changes, and its value now."""
    if not model.optimizer.built:
        with model.distribute_strategy.scope():
            model.optimizer.build(model.trainable_variables)
    variables = [*model.variables, *model.optimizer.variables]
    return [(v, keras.ops.convert_to_numpy(v)) for v in variables]


def _free_memory() -> int:
    """Bytes that this process may still take."""
    free = psutil.virtual_memory().available
    group = Path("/sys/fs/cgroup")  # a container's limit, on Linux
    try:
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return free if limit == "max" else min(free, int(limit) - used)


def _memory_in_use() -> int:
    """Bytes now; on Linux the peak is measured anew from here, elsewhere from start."""
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
