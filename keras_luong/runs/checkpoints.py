"""Checkpoints of a whole training: killed at any moment, it goes on as if it were not.

What a step does follows from the weights, the optimizer, the seeds and the batch. All
of these are saved, the last as epoch and step: the data of an epoch are the same each
time (`FollowEpoch`), so that going on is to pass over the batches that were trained on.
"""

from __future__ import annotations

import shutil
import signal
import threading
import warnings
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.files import write_text
from keras_luong.runs.directory import RunDirectory
from keras_luong.text.batches import PREFETCHED_BATCHES, dataset_options

_DRAWS_PER_EPOCH = 1 << 20  # more than an epoch has batches
_STEPS_PER_EPOCH = 1 << 40  # for a position as one number


class Checkpoints(keras.callbacks.Callback):
    """Saves the state of a training, and restores it.

    Every `steps` steps and after every epoch, the weights, the optimizer's state, the
    seeds' and the position in the data go to the run directory, by TensorFlow's own
    checkpoints: written beside, then renamed, with checksums that are verified on
    reading. One that is damaged is passed over for the one before. Several machines go
    on from the newest that all of them have.

    Ctrl-C and SIGTERM let the step end, save, and stop `fit` by a KeyboardInterrupt. A
    second one stops at once.

    Args:
        run_dir: The run directory. With several machines, each needs its own.
        steps: Save every so many steps.
        keep: How many checkpoints to keep, at least 2.

    Raises:
        OSError: From `restore`, if the disk cannot be written or has too little room
            for the checkpoints.
        FloatingPointError: From `fit`, if the weights to save are not finite; the last
            checkpoint is the one before.

    Example:
        >>> checkpoints = Checkpoints("runs/m30k", steps=500)
        >>> follow = FollowEpoch(checkpoints.restore(model))
        >>> batches = follow.batches(lambda seed: make_batches(seed))
        >>> fit(model, batches, 10, checkpoints, callbacks=[follow, checkpoints])

    Attributes:
        position: The epoch to go on with, counted from 0, and how many of its steps
            were done; what `restore` returned.
    """

    def __init__(self, run_dir: str | Path, steps: int = 500, keep: int = 2):
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.steps = check_size("steps", steps)
        self.keep = check_size("keep", keep, smallest=2)
        self._stop = threading.Event()
        self._handlers = {}

    def restore(self, model: keras.Model) -> tuple[int, int]:
        """Brings a compiled model to where its training was.

        Args:
            model: The compiled model that will be trained.

        Returns:
            The epoch to go on with, counted from 0, and how many of its steps were
            done.
        """
        with model.distribute_strategy.scope():
            if not model.optimizer.built:
                model.optimizer.build(model.trainable_variables)
            self._saved_position = tf.Variable([0, 0], dtype=tf.int64)
        self._state = tf.train.Checkpoint(
            position=self._saved_position,
            model=[variable.value for variable in _state_of(model)],
            optimizer=[variable.value for variable in model.optimizer.variables],
        )
        _list_anew(self.run.checkpoints)
        self._manager = tf.train.CheckpointManager(
            self._state, str(self.run.checkpoints), max_to_keep=self.keep
        )
        self._model = model
        self._read(model.distribute_strategy)
        _check_room(self.run, model, self.keep)
        if not self._manager.checkpoints:
            self._save(0, 0)  # now, rather than after hours, if it cannot be done
        epoch, step = self._saved_position.numpy()
        self.position = int(epoch), int(step)
        return self.position

    def _read(self, strategy) -> None:
        """Restores the newest checkpoint that can be read on every machine."""
        readable = self._readable()
        # Killed before it dropped the oldest, a machine has one more.
        newest = sorted(readable)[-self.keep :]
        common = newest_common(newest, self.keep, _gather_rows(strategy))
        if common in readable:
            self._state.restore(readable[common]).assert_consumed()
        elif self._manager.checkpoints or common is not None:
            raise OSError(
                f"None of the checkpoints in {self.run.checkpoints} can be read on "
                "every machine. Give another run directory to start anew, or give "
                "each machine the checkpoints of one that has some"
            )
        elif self.run.history.exists():
            raise OSError(
                f"{self.run.path} holds finished epochs, but {self.run.checkpoints} no "
                "checkpoint to go on from. Give another run directory to start anew"
            )

    def _readable(self) -> dict[int, str]:
        """The checkpoints without damage: position as one number → path."""
        paths = {}
        for path in self._manager.checkpoints:
            try:
                self._state.restore(path).assert_consumed()
            except (tf.errors.OpError, ValueError, AssertionError, IndexError) as error:
                warnings.warn(
                    f"The checkpoint {path} cannot be read, and is passed over. "
                    f"({str(error).splitlines()[0]})",
                    stacklevel=4,
                )
            else:
                epoch, step = self._saved_position.numpy()
                paths[int(epoch) * _STEPS_PER_EPOCH + int(step)] = path
        return paths

    def _save(self, epoch: int, step: int) -> None:
        for variable in self._model.weights:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise FloatingPointError(
                    f"{variable.path} is not finite after step {step} of epoch "
                    f"{epoch + 1}. The checkpoint before it is kept. A lower learning "
                    "rate or clip_norm usually helps"
                )
        self._saved_position.assign([epoch, step])
        self._manager.save()

    def on_train_begin(self, logs=None):
        """Listens to Ctrl-C."""
        self.on_train_end()
        if threading.current_thread() is threading.main_thread():
            self._handlers = {
                number: signal.signal(number, self._on_signal)
                for number in (signal.SIGINT, signal.SIGTERM)
            }

    def on_train_end(self, logs=None):
        """Listens no more."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _on_signal(self, number, frame):
        if self._stop.is_set():
            raise KeyboardInterrupt
        self._stop.set()

    def on_epoch_begin(self, epoch, logs=None):
        """Remembers where in the data this is."""
        self._epoch = epoch
        first_epoch, first_step = self.position
        self._before = first_step if epoch == first_epoch else 0

    def on_train_batch_end(self, batch, logs=None):
        """Saves now and then, and where one was asked to stop."""
        step = self._before + batch + 1
        stops = self._stop.is_set()
        if stops or step % self.steps == 0:
            self._save(self._epoch, step)
        if stops:
            self.on_train_end()
            raise KeyboardInterrupt

    def on_epoch_end(self, epoch, logs=None):
        """Saves, with the position before the next epoch's first step."""
        self._save(epoch + 1, 0)
        if self._stop.is_set():
            self.on_train_end()
            raise KeyboardInterrupt


class FollowEpoch(keras.callbacks.Callback):
    """Makes what is random in an epoch follow from its number: data order, dropout.

    So training that goes on in a new process does what it would have done in the old
    one. Keras iterates over a dataset once per epoch, and one that shuffles anew each
    time would start from its first order again; and Keras does not save the state of
    its seed generators with the weights.

    Args:
        started_at: The epoch and step that `Checkpoints.restore` returned.

    Example:
        >>> follow = FollowEpoch(checkpoints.restore(model))
        >>> batches = follow.batches(
        ...     lambda seed: training_batches(pairs, tokenizers, seed=seed), seed=1)
        >>> model.fit(batches, epochs=10, callbacks=[follow])
    """

    def __init__(self, started_at: tuple[int, int] = (0, 0)):
        super().__init__()
        self.started_at = started_at
        self.epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.done = tf.Variable(0, dtype=tf.int64, trainable=False)

    def on_train_batch_end(self, batch, logs=None):
        """Notices that there is one."""
        self._any = True

    def on_epoch_end(self, epoch, logs=None):
        """Refuses data that has no batch."""
        if not self._any and not int(self.done):
            raise ValueError(
                f"The data has no batch in epoch {epoch + 1}: the corpus is empty, or "
                "every pair is longer than max_length"
            )

    def on_epoch_begin(self, epoch, logs=None):
        """Keras makes the epoch's iterator right after this."""
        self._any = False
        first, done = self.started_at
        self.epoch.assign(epoch)
        self.done.assign(done if epoch == first else 0)
        if epoch == first and done:
            return  # the seeds are those of the checkpoint
        for variable in _seeds_of(self.model):
            seed, _ = keras.ops.convert_to_numpy(variable)
            variable.assign([seed, epoch * _DRAWS_PER_EPOCH])

    def batches(self, make, seed: int = 0) -> tf.data.Dataset:
        """Makes a dataset whose every iteration is the rest of the current epoch.

        Args:
            make: Takes the seed of an epoch, an int64 scalar, and makes its dataset.
            seed: Seed of the whole training.

        Returns:
            A dataset that is made anew, within the graph, each time it is iterated.
        """

        def of_epoch(epoch, done):
            # This graph's seed, not the global one: the order is the data's alone. And
            # not 0, which tf.data refuses to combine with a tensor.
            tf.compat.v1.set_random_seed(seed + 1)
            return make(epoch).skip(done)

        once = tf.data.Dataset.from_tensors(0)
        epochs = once.map(lambda _: (self.epoch.read_value(), self.done.read_value()))
        batches = epochs.flat_map(of_epoch).with_options(dataset_options())
        return batches.prefetch(PREFETCHED_BATCHES)


def fit(
    model: keras.Model,
    batches: tf.data.Dataset,
    epochs: int,
    checkpoints: Checkpoints,
    **more,
) -> None:
    """`model.fit` from the middle of an epoch.

    Keras takes the number of batches of the first epoch that it sees for that of every
    epoch, so the rest of an epoch that was begun has a `fit` of its own.

    Args:
        model: The compiled model.
        batches: From `FollowEpoch.batches`.
        epochs: How many epochs there shall be in all.
        checkpoints: What restored the model; it is one of the callbacks, too.
        **more: Arguments of `keras.Model.fit`.
    """
    epoch, step = checkpoints.position
    try:
        if step and epoch < epochs:
            model.fit(batches, initial_epoch=epoch, epochs=epoch + 1, **more)
            if model.stop_training:
                return
            # `fit` may have left an average in the place of the weights.
            epoch, _ = checkpoints.restore(model)
        if epoch < epochs:
            model.fit(batches, initial_epoch=epoch, epochs=epochs, **more)
    finally:
        checkpoints.on_train_end()  # Keras does not say so after an error


def newest_common(positions: list[int], most: int, gather) -> int | None:
    """The greatest position that each machine has.

    Args:
        positions: What this machine has, none of them negative.
        most: How many a machine may have.
        gather: Takes a machine's int64 row `[1, most]` and returns those of all.

    Returns:
        The position; None where no machine has any, and -1 where all do not have one
        in common.
    """
    mine = np.full([1, most], -1, np.int64)
    mine[0, : len(positions)] = positions
    rows = [set(row.tolist()) - {-1} for row in gather(mine)]
    if not any(rows):
        return None
    return max(set.intersection(*rows), default=-1)


def _gather_rows(strategy):
    """A function that gathers rows over the replicas, those of one machine equal."""

    def gather(mine):
        @tf.function
        def exchange():
            return strategy.run(
                lambda: tf.distribute.get_replica_context().all_gather(mine, axis=0)
            )

        return strategy.experimental_local_results(exchange())[0].numpy()

    return gather


def _state_of(model):
    return [*model.weights, *_seeds_of(model)]


def _seeds_of(model):
    return [
        variable
        for variable in model.non_trainable_variables
        if variable.path.endswith("seed_generator_state")
    ]


def _list_anew(directory: Path) -> None:
    """TensorFlow's list of checkpoints from what is there: with the power it may go."""
    paths = sorted(
        directory.glob("ckpt-*.index"),
        key=lambda path: int(path.stem.removeprefix("ckpt-")),
    )
    if paths:
        names = [path.stem for path in paths]
        times = [path.stat().st_mtime for path in paths]
        # Names count from the list's place; TensorFlow takes those of a relative
        # directory to count from the working directory, and turns them into others.
        state = tf.compat.v1.train.generate_checkpoint_state_proto(
            str(directory.resolve()),
            names[-1],
            names,
            all_model_checkpoint_timestamps=times,
        )
        write_text(directory / "checkpoint", str(state))


def _size(variables) -> int:
    """Bytes."""
    return sum(int(np.prod(v.shape)) * v.value.dtype.size for v in variables)


def _check_room(run: RunDirectory, model, keep: int) -> None:
    """That there is as much as the checkpoints, the best and the last weights need."""
    weights = _size(model.weights)
    state = weights + _size(model.optimizer.variables)
    directory = run.checkpoints
    directory.mkdir(parents=True, exist_ok=True)
    there = [*directory.glob("ckpt-*"), run.best_weights, run.last_weights]
    there = sum(path.stat().st_size for path in there if path.exists())
    # Of each kind, one more is there while it is being written.
    needed = max((keep + 1) * state + 3 * weights - there, state)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"Checkpoints of this training need about {needed / 1e6:,.0f} MB. "
            f"Received: {directory} with {free / 1e6:,.0f} MB free"
        )
