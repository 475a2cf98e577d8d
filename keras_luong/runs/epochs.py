"""Epochs that can be begun in the middle, each the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from keras_luong.compat import with_epochs_of_any_length
from keras_luong.runs.checkpoints import Checkpoints, seeds_of
from keras_luong.signals import stopping
from keras_luong.text.batches import PREFETCHED_BATCHES, dataset_options
from keras_luong.types import Logs

_DRAWS_PER_EPOCH = 1 << 20  # more than an epoch has batches


class FollowEpoch(keras.callbacks.Callback):
    """Makes what is random in an epoch follow from its number: data order, dropout.

    So training that goes on in a new process does what it would have done in the old
    one. A dataset that shuffles anew each time would start from its first order again,
    and Keras does not save the state of its seed generators with the weights.

    Args:
        started_at: The epoch and step that `Checkpoints.restore` returned.

    Raises:
        ValueError: From `fit`, if the data has no batch.

    Example:
        >>> from keras_luong.runs.epochs import FollowEpoch
        >>> follow = FollowEpoch()
        >>> numbers = tf.data.Dataset.range(4)
        >>> batches = follow.batches(lambda epoch: numbers.skip(epoch))
        >>> _ = follow.epoch.assign(1)  # in `fit` the callback does
        >>> [int(x) for x in batches]
        [1, 2, 3]
    """

    def __init__(self, started_at: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.started_at = started_at
        self.epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.done = tf.Variable(0, dtype=tf.int64, trainable=False)

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Sets the seeds; Keras makes the epoch's iterator right after this."""
        self._has_batches = False
        first, done = self.started_at
        self.epoch.assign(epoch)
        self.done.assign(done if epoch == first else 0)
        if epoch == first and done:
            return  # the seeds are those of the checkpoint
        for variable in seeds_of(self.model):
            seed, _ = keras.ops.convert_to_numpy(variable)
            variable.assign([seed, epoch * _DRAWS_PER_EPOCH])

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Remembers that the data has a batch."""
        self._has_batches = True

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Refuses data without a batch."""
        if not self._has_batches and not int(self.done):
            raise ValueError(
                f"The data has no batch in epoch {epoch + 1}: the corpus is empty, or "
                "every pair is longer than max_length"
            )

    def batches(self, make: Callable[[tf.Tensor], tf.data.Dataset]) -> tf.data.Dataset:
        """Makes a dataset whose every iteration is the rest of the current epoch.

        Args:
            make: Takes the number of an epoch, an int64 scalar, and makes its dataset.

        Returns:
            A dataset that is made anew, within the graph, each time it is iterated.
        """

        def of_epoch(epoch: tf.Tensor, done: tf.Tensor) -> tf.data.Dataset:
            return make(epoch).skip(done)

        once = tf.data.Dataset.from_tensors(0)
        epochs = once.map(lambda _: (self.epoch.read_value(), self.done.read_value()))
        batches = epochs.flat_map(of_epoch).with_options(dataset_options())
        return with_epochs_of_any_length(batches.prefetch(PREFETCHED_BATCHES))


def fit(
    model: keras.Model,
    batches: tf.data.Dataset,
    epochs: int,
    checkpoints: Checkpoints,
    **more: Any,
) -> None:
    """Runs `model.fit` from where the checkpoints are, also in the middle of an epoch.

    Ctrl-C and SIGTERM let the step end, save, and stop by a KeyboardInterrupt. A second
    one stops at once.

    Args:
        model: The compiled model.
        batches: From `FollowEpoch.batches`.
        epochs: How many epochs there shall be in all.
        checkpoints: What restored the model; it is one of the callbacks, too.
        **more: Arguments of `keras.Model.fit`.
    """
    epoch, _ = checkpoints.position
    with stopping(checkpoints.stop):
        if epoch < epochs:
            model.fit(batches, initial_epoch=epoch, epochs=epochs, **more)
