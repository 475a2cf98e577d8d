"""What is seen of an epoch while it lasts: a bar or lines, and TensorBoard's curves."""

from __future__ import annotations

import sys
from pathlib import Path

import keras
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.progress import Progress
from keras_luong.training.optimizers import innermost
from keras_luong.types import Logs


class EpochBar(keras.callbacks.ProgbarLogger):
    """Keras's bar, which knows about how many steps there are before the first epoch.

    Where there is no terminal, a line now and then takes its place. It must be the last
    of the callbacks, to show what the others put into the logs.

    Args:
        steps: The number of steps of an epoch, exact or not.
        started_at: The epoch and step at which the training goes on.

    Example:
        >>> from keras_luong.runs.step_callbacks import EpochBar
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> x, y = np.ones([4, 2]), np.ones([4, 1])
        >>> history = model.fit(x, y, verbose=0, callbacks=[EpochBar(steps=1)])
    """

    def __init__(self, steps: int, started_at: tuple[int, int] = (0, 0)) -> None:
        super().__init__()
        self.steps = check_size("steps", steps)
        self.started_at = started_at
        self.target: int | None = None
        self._lines: Progress | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Begins a bar."""
        first, done = self.started_at
        self.target = max(1, self.steps - done * (epoch == first))
        super().on_epoch_begin(epoch, logs)
        if self.verbose == 2:
            self._lines = Progress(self.target, "step", sys.stdout)

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Moves the bar."""
        if self.target is not None and batch >= self.target:  # more than was thought
            self.target = self.progbar.target = None
        super().on_train_batch_end(batch, logs)
        if self._lines is not None:
            self._lines.add()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Ends the bar, with the number of steps that there were."""
        if self._lines is not None:
            self._lines.close()
        self.target = self.progbar.target = self.seen
        super().on_epoch_end(epoch, logs)


class StepCurves(keras.callbacks.Callback):
    """Writes the training's logs for TensorBoard every few steps.

    What Keras calls `epoch_loss` after an epoch is `batch_loss` here: the mean since
    the epoch began. Keras's callback can write them too, but counts the steps anew when
    a training goes on.

    Args:
        log_dir: Directory of the training's events.
        every: Number of steps between two points of a curve.

    Example:
        >>> from keras_luong.runs.step_callbacks import StepCurves
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> curves = StepCurves("runs/new/logs/train", every=1)
        >>> x, y = np.ones([4, 2]), np.ones([4, 1])
        >>> history = model.fit(x, y, verbose=0, callbacks=[curves])
    """

    def __init__(self, log_dir: str | Path, every: int = 20) -> None:
        super().__init__()
        self.log_dir = Path(log_dir)
        self.every = check_size("every", every)
        self._step = 0

    def on_train_begin(self, logs: Logs = None) -> None:
        """Opens the file."""
        self._writer = tf.summary.create_file_writer(
            str(self.log_dir), flush_millis=10_000
        )

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Finds out where the training is."""
        iterations = self.model.optimizer.iterations  # those of a step count once
        together = innermost(self.model.optimizer).gradient_accumulation_steps or 1
        self._step = int(keras.ops.convert_to_numpy(iterations)) * together

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Writes a point of each curve."""
        self._step += 1
        if self._step % self.every == 0:
            with self._writer.as_default(step=self._step):
                for name, value in (logs or {}).items():
                    tf.summary.scalar(f"batch_{name}", value)

    def on_train_end(self, logs: Logs = None) -> None:
        """Closes the file."""
        self._writer.close()
