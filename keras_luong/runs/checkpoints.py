"""Checkpoints of a whole training: killed at any moment, it goes on as if it were not.

What a step does follows from the weights, the optimizer, the seeds and the batch. All
of these are saved, the batch as epoch and step: the data of an epoch are the same each
time (`keras_luong.runs.epochs`), so that a training which goes on skips the batches
that it has seen.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
import shutil
import threading
import warnings
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.runs.run import RunDirectory, read_history, read_json
from keras_luong.training.strategies import gather_rows
from keras_luong.types import Logs

_STEPS_PER_EPOCH = 1 << 40  # for a position as one number


class Checkpoints(keras.callbacks.Callback):
    """Saves the state of a training, and restores it.

    Every `steps` steps and after every epoch, the weights, the optimizer's state, the
    seeds' and the position in the data go to the run directory, by TensorFlow's own
    checkpoints: written beside, then renamed, with checksums that are verified on
    reading. A damaged checkpoint is passed over for the one before. Several machines go
    on from the newest that all of them have. Nothing more is written where the
    directory is no longer the one that `restore` found, or its history has changed.

    Args:
        run_dir: The run directory. With several machines, each needs its own.
        steps: Save after every so many steps.
        keep: How many checkpoints to keep, at least 2.

    Raises:
        OSError: From `restore`, if the disk cannot be written to or has too little room
            for the checkpoints; and from `fit`, if the run directory was removed, moved
            or replaced.
        ValueError: From `fit`, if the history is not what `fit` wrote.
        FloatingPointError: From `fit`, if the weights to save are not finite; the last
            checkpoint is the one before.

    Example:
        >>> from keras_luong.runs.checkpoints import Checkpoints
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> checkpoints = Checkpoints("runs/new", steps=500)
        >>> checkpoints.restore(model)  # of a new training: to its beginning
        (0, 0)
        >>> data = np.ones([4, 2]), np.ones([4, 1])
        >>> history = model.fit(*data, epochs=2, callbacks=[checkpoints], verbose=0)
        >>> checkpoints.restore(model)
        (2, 0)

    Attributes:
        position: The epoch to go on with, counted from 0, and how many of its steps
            were done; what `restore` returned.
        stop: An event. Once it is set, the training saves after the current step, and
            stops by a KeyboardInterrupt.
    """

    def __init__(self, run_dir: str | Path, steps: int = 500, keep: int = 2) -> None:
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.steps = check_size("steps", steps)
        self.keep = check_size("keep", keep, smallest=2)
        self.stop = threading.Event()

    def exist(self) -> bool:
        """Tells whether there is a checkpoint, read or not."""
        return bool(self._paths())

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
            model=[v.value for v in (*model.weights, *seeds_of(model))],
            optimizer=[variable.value for variable in model.optimizer.variables],
        )
        self._model = model
        self._restore_newest(functools.partial(gather_rows, model.distribute_strategy))
        _check_room(self.run, model, self.keep)
        self._place = _place_of(self.run)
        self._known = _epochs_and_digest(self.run, self._restored_position()[0])
        if not self._paths():
            self._save(0, 0)  # now, rather than after hours, if it cannot be done
        self.position = self._restored_position()
        return self.position

    def _restore_newest(self, gather: Callable[[np.ndarray], np.ndarray]) -> None:
        """Restores the newest checkpoint that can be read on every machine."""
        readable: dict[int, str | None] = {**self._readable()}
        kept = self.run.history, self.run.last_weights, self.run.best_weights
        if not self._paths() and not any(path.exists() for path in kept):
            readable[0] = None  # the beginning, which all machines make alike
        # A machine that was killed before it dropped the oldest has one more.
        newest = sorted(readable)[-self.keep :]
        common = newest_common(newest, self.keep, gather)
        if common is not None and common in readable:
            if path := readable[common]:
                self._state.restore(path).assert_consumed()
        elif self._paths() or common is not None:
            raise OSError(
                f"None of the checkpoints in {self.run.checkpoints} can be read on "
                "every machine. Give another run directory to start anew, or give "
                "each machine a copy of the run directory of one that has some, "
                "without its workers/"
            )
        else:
            raise OSError(
                f"{self.run.path} holds finished epochs, but {self.run.checkpoints} no "
                "checkpoint to go on from. Give another run directory to start anew; "
                f"with --init_from {self.run.path}, from its best weights"
            )

    def _paths(self) -> list[str]:
        """The checkpoints that are there, the oldest first.

        TensorFlow's own list of them may be lost in a power cut, when they are not.
        """
        paths = self.run.checkpoints.glob("ckpt-*.index")
        names = [str(x.with_suffix("")) for x in paths if x.stem[5:].isdecimal()]
        return sorted(names, key=lambda name: int(name.rsplit("-", 1)[1]))

    def _readable(self) -> dict[int, str]:
        """The checkpoints without damage: position as one number → path."""
        paths: dict[int, str] = {}
        for path in self._paths():
            try:
                self._state.restore(path).assert_consumed()
            except (tf.errors.OpError, ValueError, AssertionError, IndexError) as error:
                warnings.warn(
                    f"The checkpoint {path} cannot be read, and is passed over. "
                    f"({str(error).splitlines()[0]})",
                    stacklevel=4,
                )
            else:
                epoch, step = self._restored_position()
                paths[epoch * _STEPS_PER_EPOCH + step] = path
        return paths

    def _restored_position(self) -> tuple[int, int]:
        epoch, step = self._saved_position.numpy().tolist()
        return epoch, step

    def check_place(self, logs: Logs = None) -> None:
        """Refuses to write to what is no longer the run directory that `restore` found.

        Args:
            logs: Not used: it is what callbacks are given.

        Raises:
            OSError: If the directory was removed, moved or replaced.
            ValueError: If its history is not what the training wrote.
        """
        if _place_of(self.run) != self._place:
            raise OSError(
                f"{self.run.path} was removed, moved or replaced while it was trained "
                "in, so the training ends: what it had saved went with the directory"
            )
        _check_history(self.run, *self._known)

    def _save(self, epoch: int, step: int) -> None:
        self.check_place()
        for variable in self._model.weights:
            if not np.isfinite(keras.ops.convert_to_numpy(variable)).all():
                raise FloatingPointError(
                    f"{variable.path} is not finite after step {step} of epoch "
                    f"{epoch + 1}. The checkpoint before it is kept. A lower learning "
                    "rate or clip_norm usually helps"
                )
        self._known = _epochs_and_digest(self.run, epoch)
        self._saved_position.assign([epoch, step])
        path = self._state.save(str(self.run.checkpoints / "ckpt"))
        Path(f"{path}.history").write_text(json.dumps(self._known))
        for old in map(Path, self._paths()[: -self.keep]):
            for part in sorted(old.parent.glob(f"{old.name}.*")):  # the index last
                part.unlink()

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the epoch, and how many of its steps were done before."""
        self._epoch = epoch
        first_epoch, first_step = self.position
        self._steps_before = first_step if epoch == first_epoch else 0

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Saves every `steps` steps, and before it stops."""
        step = self._steps_before + batch + 1
        if self.stop.is_set() or step % self.steps == 0:
            self._save(self._epoch, step)
        self._stop_if_asked()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves, with the position before the next epoch's first step."""
        self._save(epoch + 1, 0)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self.stop.is_set():
            raise KeyboardInterrupt


def check_history(run_dir: str | Path) -> None:
    """Refuses to go on with a run whose history is not as its checkpoints know it.

    Args:
        run_dir: The run directory.

    Raises:
        ValueError: If its history is damaged, or lacks epochs that the checkpoints are
            of, or has other values.
    """
    run = RunDirectory(run_dir)
    for path in run.checkpoints.glob("ckpt-*.history"):
        try:
            epoch, digest = read_json(path)
            epoch = int(epoch)
        except (ValueError, TypeError):
            continue  # it was killed while it wrote this
        _check_history(run, epoch, digest)


def _check_history(run: RunDirectory, epoch: int, digest: str) -> None:
    """Raises ValueError unless a run's history of so many epochs has a digest."""
    advice = (
        "Put the file back as it was; or start another run from the best weights of "
        f"this one: keras-luong train --init_from {shlex.quote(str(run.path))}"
    )
    try:
        history = read_history(run.path)
    except ValueError as error:
        raise ValueError(f"{error}. {advice}") from error
    if digest != _epochs_and_digest(run, epoch)[1]:
        done = sum(x["epoch"] <= epoch for x in history)
        has = f"{done} of" if done < epoch else "other values of"
        raise ValueError(
            f"{run.history} has {has} the {epoch} epochs that the checkpoints beside "
            f"it know. {advice}"
        )


def _epochs_and_digest(run: RunDirectory, epochs: int) -> tuple[int, str]:
    """What a checkpoint knows of the history: a number of epochs, and their digest."""
    history = read_history(run.path)
    lines = [json.dumps(line) for line in history if line["epoch"] <= epochs]
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=8)
    return epochs, digest.hexdigest()


def _place_of(run: RunDirectory) -> tuple[object, ...]:
    """An identity of a run directory: another once it is moved or replaced.

    No file can have the inode of the lock while its process holds it.
    """
    inodes = [x.stat().st_ino if x.exists() else None for x in (run.path, run.lock)]
    return *inodes, run.record.exists(), run.tokenizer.exists()


def newest_common(
    positions: list[int], most: int, gather: Callable[[np.ndarray], np.ndarray]
) -> int | None:
    """The greatest position that each machine has.

    Args:
        positions: What this machine has, none of them negative.
        most: How many a machine may have.
        gather: Takes a machine's int64 row `[1, most]` and returns those of all.

    Returns:
        The position; None if no machine has any, -1 if there is none that all have.
    """
    mine = np.full([1, most], -1, np.int64)
    mine[0, : len(positions)] = positions
    rows = [set(row.tolist()) - {-1} for row in gather(mine)]
    if not any(rows):
        return None
    return max(set.intersection(*rows), default=-1)


def seeds_of(model: keras.Model) -> list[keras.Variable]:
    """The states of a model's random generators, which are none of its weights."""
    return [
        variable
        for variable in model.non_trainable_variables
        if variable.path.endswith("seed_generator_state")
    ]


def _check_room(run: RunDirectory, model: keras.Model, keep: int) -> None:
    """Checks that there is room for the checkpoints, the best and the last weights."""
    weights, state = (
        sum(int(np.prod(v.shape)) * v.value.dtype.size for v in variables)
        for variables in (model.weights, model.optimizer.variables)
    )
    state += weights
    directory = run.checkpoints
    directory.mkdir(parents=True, exist_ok=True)
    paths = [*directory.glob("ckpt-*"), run.best_weights, run.last_weights]
    there = sum(path.stat().st_size for path in paths if path.exists())
    # Of each kind, one more is there while it is being written.
    needed = max((keep + 1) * state + 3 * weights - there, state)
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise OSError(
            f"Checkpoints of this training need about {max(1, needed / 1e6):,.0f} MB. "
            f"Received: {directory} with {free / 1e6:,.0f} MB free"
        )
