"""Distribution strategies, by name: the devices that train the model."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_choice, check_tensorflow


class _ReduceForKeras(tf.distribute.Strategy):
    """A strategy that reduces all that Keras 3's `fit` asks it to reduce.

    TensorFlow's own strategies fail on some of it: tuples and dicts of per-replica
    values, scalars with `axis=0` (keras-team/keras#20585), and the first batch, which
    Keras reduces before training to know its shape, although its parts on the replicas
    may differ in their number of rows.
    """

    def reduce(self, reduce_op: Any, value: Any, axis: int | None = None) -> Any:
        """Reduces as TensorFlow does, except for batches and counts outside a graph.

        For these it returns the first replica's value, as there is nothing to add up.
        """
        if tf.nest.is_nested(value):
            return tf.nest.map_structure(
                lambda part: self.reduce(reduce_op, part, axis), value
            )
        local = tf.convert_to_tensor(self.experimental_local_results(value)[0])
        is_batch = local.shape.rank != 0 or not local.dtype.is_floating
        if axis is None and tf.executing_eagerly() and is_batch:
            return local
        if axis == 0 and local.shape.rank == 0:
            axis = None
        return super().reduce(reduce_op, value, axis=axis)


class Mirrored(_ReduceForKeras, tf.distribute.MirroredStrategy):
    """A `MirroredStrategy` that takes batches of any number of rows.

    Example:
        >>> from keras_luong.training.strategies import Mirrored
        >>> with Mirrored(["GPU:0", "GPU:1"]).scope():
        ...     model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    """


class MultiWorker(_ReduceForKeras, tf.distribute.MultiWorkerMirroredStrategy):
    """A `MultiWorkerMirroredStrategy` that works with Keras 3's `fit`.

    The cluster is read from `TF_CONFIG`. Make the strategy before any other TensorFlow
    operation.

    Example:
        >>> from keras_luong.training.strategies import MultiWorker
        >>> with MultiWorker().scope():
        ...     model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    """


def _auto() -> tf.distribute.Strategy:
    several = len(tf.config.list_logical_devices("GPU")) > 1
    return Mirrored() if several else tf.distribute.get_strategy()


def _mirrored() -> tf.distribute.Strategy:
    # Without GPUs it takes all logical CPUs, so that it can be tested.
    gpus = tf.config.list_logical_devices("GPU")
    devices = gpus or tf.config.list_logical_devices("CPU")
    return Mirrored([device.name for device in devices])


STRATEGIES = {
    "auto": _auto,
    "one": tf.distribute.get_strategy,
    "mirrored": _mirrored,
    "multiworker": MultiWorker,
}


def make_strategy(name: str = "auto") -> tf.distribute.Strategy:
    """Makes a distribution strategy.

    Args:
        name: `"one"` (the default device), `"mirrored"` (all GPUs of this machine,
            or all logical CPUs where it has none), `"multiworker"` (the machines of
            `TF_CONFIG`), or `"auto"`: mirrored if there are several GPUs, else one.

    Returns:
        A strategy. Build and compile the model inside `strategy.scope()`.

    Raises:
        ValueError: If the name is unknown, or Keras does not compute with TensorFlow.

    Example:
        >>> from keras_luong.training.strategies import make_strategy
        >>> with make_strategy("auto").scope():
        ...     model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    """
    check_tensorflow()
    return STRATEGIES[check_choice("strategy", name, STRATEGIES)]()


def number_of_workers(strategy: tf.distribute.Strategy) -> int:
    """Returns how many machines train.

    Args:
        strategy: From `make_strategy`.

    Example:
        >>> from keras_luong.training.strategies import (
        ...     make_strategy, number_of_workers
        ... )
        >>> number_of_workers(make_strategy("one"))
        1
    """
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict() if resolver else {}
    return max(1, sum(map(len, cluster.values())))


def worker_index(strategy: tf.distribute.Strategy) -> int:
    """Returns the index of this machine among those that train.

    Args:
        strategy: From `make_strategy`.

    Returns:
        0 on the chief or a single machine; 1, 2, ... on the others.

    Example:
        >>> from keras_luong.training.strategies import make_strategy, worker_index
        >>> worker_index(make_strategy("one"))
        0
    """
    resolver = strategy.cluster_resolver
    if resolver is None or not resolver.cluster_spec():
        return 0
    chiefs = len(resolver.cluster_spec().as_dict().get("chief", []))
    return resolver.task_id + (chiefs if resolver.task_type != "chief" else 0)


#: How TensorFlow tells that another worker was lost.
LOSSES = (
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.FailedPreconditionError,  # it is another process than before
    tf.errors.UnavailableError,
)


@contextlib.contextmanager
def together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Work that all machines begin and end together.

    A strategy cannot go on without a machine that it has lost: every process must be
    started again. So none leaves before all are done, as it would be missed by one that
    was killed in its last minute and is started again.

    Args:
        strategy: From `make_strategy`.

    Raises:
        RuntimeError: Another machine was lost. TensorFlow notices it after some
            seconds, by the connection or by the heartbeats that it misses.

    Example:
        >>> from keras_luong.training.strategies import make_strategy, together
        >>> with together(make_strategy("one")):
        ...     print("Training.")
        Training.
    """
    resolver = strategy.cluster_resolver
    if number_of_workers(strategy) == 1:
        yield
        return
    try:
        yield
        gather_rows(strategy, np.zeros([1, 1], np.int64))
    except LOSSES as error:
        mine = f"{resolver.task_type} {resolver.task_id}"
        raise RuntimeError(
            f"{_lost(str(error), mine)} was lost: it was stopped or started again, or "
            "cannot be reached. Start the same command again wherever it has ended: "
            "training goes on from the last checkpoint that all machines have"
        ) from error


def _lost(message: str, mine: str) -> str:
    """Which worker was lost, as far as TensorFlow's message tells."""
    named = re.findall(r"/job:(\w+)/(?:replica:0/)?task:(\d+)", message)
    others = {f"{job} {number}" for job, number in named} - {mine}
    return f"A machine ({others.pop()})" if len(others) == 1 else "A machine"


def gather_rows(strategy: tf.distribute.Strategy, row: np.ndarray) -> np.ndarray:
    """Gathers a row of numbers from every machine, on every machine.

    Args:
        strategy: From `make_strategy`.
        row: This machine's row, [1, N]; N must be the same on all machines.

    Returns:
        [R, N], a row for each of R replicas; those of one machine have the same row.

    Example:
        >>> from keras_luong.training.strategies import gather_rows, make_strategy
        >>> gather_rows(make_strategy("one"), np.array([[3, 4]]))
        array([[3, 4]])
    """
    gathered = _exchange(strategy)(tf.constant(row, tf.int64))
    return strategy.experimental_local_results(gathered)[0].numpy()


@functools.lru_cache(maxsize=1)
def _exchange(strategy: tf.distribute.Strategy) -> Any:
    """A function that gathers rows of any length, traced once."""

    def gather(row: tf.Tensor) -> tf.Tensor:
        row = tf.identity(row)  # on this replica's device
        return tf.distribute.get_replica_context().all_gather(row, axis=0)

    @tf.function(input_signature=[tf.TensorSpec([1, None], tf.int64)])
    def exchange(row: tf.Tensor) -> Any:
        return strategy.run(gather, [row])

    return exchange
