"""Callbacks of a training run: its log, its weights, and when to stop.

What is seen of an epoch while it lasts: a bar or lines, and TensorBoard's curves.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.files import json_number, write_lines
from keras_luong.progress import Progress, in_words
from keras_luong.runs.average import EPOCH_WEIGHTS, epoch_weights
from keras_luong.runs.load_save import read_logs, save_weights
from keras_luong.runs.run import RunDirectory, read_history
from keras_luong.training.metrics import (
    TokenMean,
    best_so_far,
    epochs_without_progress,
    is_better,
)
from keras_luong.training.optimizers import MovingAverage, innermost
from keras_luong.types import Logs


class EpochLog(keras.callbacks.Callback):
    """Writes one line of JSON per epoch, and adds the training speed to the logs.

    A line has `epoch` (from 1), Keras's logs, `learning_rate`, `seconds` (of the epoch,
    or of its part after an interruption, as the loss is), `target_tokens_per_second`
    (of training alone, padding not counted) and, with this library's optimizers,
    `gradient_norm`: the mean over the epoch's steps of the norm before clipping. When
    training goes on after an interruption, the lines of epochs that are trained again
    are replaced.

    Args:
        run_dir: The run directory, whose `history.jsonl` is written.
        token_counter: A metric of the compiled model that counts target tokens, such
            as the `Perplexity` given to `compile`.

    Example:
        >>> from keras_luong.runs.callbacks import EpochLog
        >>> from keras_luong.runs.run import read_history
        >>> tokens = kl.TokenAccuracy()
        >>> model = keras.Sequential([keras.layers.Embedding(9, 9)])
        >>> model.compile("adam", kl.SequenceCrossentropy(), metrics=[tokens])
        >>> ids, log = np.array([[1, 2]]), EpochLog("runs/new", tokens)
        >>> history = model.fit(ids, ids, callbacks=[log], verbose=0)
        >>> [line["epoch"] for line in read_history("runs/new")]
        [1]
    """

    def __init__(self, run_dir: str | Path, token_counter: TokenMean) -> None:
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.token_counter = token_counter
        self._start = 0.0
        self._speed: float | None = None

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()
        self._speed = None

    def on_test_begin(self, logs: Logs = None) -> None:
        """Measures the speed, before the validation resets the metrics."""
        self._measure()

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Writes the line."""
        logs = {} if logs is None else logs
        self._measure()  # where there is no validation
        logs["target_tokens_per_second"] = self._speed
        norms = getattr(innermost(self.model.optimizer), "norms", None)
        if norms is not None:  # of the epoch, also of its part before an interruption
            total, steps = keras.ops.convert_to_numpy(norms)
            norms.assign([0.0, 0.0])
            logs["gradient_norm"] = float(total / max(steps, 1))
        rate = logs.get("learning_rate", self.model.optimizer.learning_rate)
        line = {
            "epoch": epoch + 1,
            **_numbers(logs),
            "learning_rate": float(keras.ops.convert_to_numpy(rate)),
            "seconds": round(time.perf_counter() - self._start, 3),
        }
        earlier = [e for e in read_history(self.run.path) if e["epoch"] <= epoch]
        write_lines(self.run.history, map(json.dumps, [*earlier, line]))

    def _measure(self) -> None:
        if self._speed is None:
            tokens = keras.ops.convert_to_numpy(self.token_counter.count)
            self._speed = float(tokens) / (time.perf_counter() - self._start)


def _numbers(logs: Logs) -> dict[str, float | None]:
    """The logs as JSON has them."""
    return {name: json_number(value) for name, value in (logs or {}).items()}


class StopOnNaN(keras.callbacks.Callback):
    """Stops training at the first batch after which the loss is not finite.

    It raises an error. `keras.callbacks.TerminateOnNaN` ends the epoch as if it were
    whole, so that the ruined weights replace the last good checkpoint.

    Raises:
        FloatingPointError: From `fit`, naming the epoch and the batch.
    """

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Remembers the epoch for the message."""
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Checks the loss."""
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss is {loss} after batch {batch + 1} of epoch "
                f"{self._epoch + 1}. The last checkpoint is kept. A lower learning "
                "rate or clip_norm usually helps, from there or from the start"
            )


class SaveWeights(keras.callbacks.Callback):
    """Saves the weights after an epoch: the last, the best, those of the last epochs.

    Args:
        run_dir: The run directory. The last weights go to `last.weights.h5`, with how
            good they are; those that are better than `model.weights.h5` replace it.
        monitor: What "best" is judged by.
        keep_epochs: How many epochs' weights to keep in `epochs/`, to be averaged.

    Example:
        >>> from keras_luong.runs.average import epoch_weights
        >>> from keras_luong.runs.callbacks import SaveWeights
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile("adam", "mse")
        >>> save = SaveWeights("runs/new", monitor="loss", keep_epochs=2)
        >>> history = model.fit(
        ...     np.ones([1, 2]), np.ones([1, 1]), epochs=3, callbacks=[save], verbose=0
        ... )
        >>> [path.name for path in epoch_weights("runs/new")]
        ['epoch-0002.weights.h5', 'epoch-0003.weights.h5']
    """

    def __init__(
        self,
        run_dir: str | Path,
        monitor: str = "val_perplexity",
        keep_epochs: int = 0,
    ) -> None:
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.monitor = monitor
        self.keep_epochs = check_size("keep_epochs", keep_epochs, smallest=0)

    def on_train_begin(self, logs: Logs = None) -> None:
        """Refuses to replace weights of which nobody knows how good they are."""
        best, monitor = self.run.best_weights, self.monitor
        if best.exists():
            if monitor not in read_logs(best):
                raise ValueError(
                    f"{best} does not say its {monitor}, so that no epoch can be said "
                    "to be better: this training did not write it. Put the run's own "
                    "file back"
                )
            return
        history = read_history(self.run.path)
        if (value := best_so_far(history, monitor)) is None:
            return
        epoch = next(x["epoch"] for x in history if x.get(monitor) == value)
        kept = self.run.path / EPOCH_WEIGHTS.format(epoch=epoch)
        copy = next((x for x in (kept, self.run.last_weights) if x.exists()), None)
        raise FileNotFoundError(
            f"{best}, the best weights (epoch {epoch}, {monitor} {value:.4g}), is "
            "missing: put it back" + (f", or copy {copy} to that name" if copy else "")
        )

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Saves the weights, and removes those of epochs that are no longer kept."""
        logs = {"epoch": epoch + 1, **_numbers(logs)}
        save_weights(self.model, self.run.last_weights, logs)
        best = read_logs(self.run.best_weights).get(self.monitor)
        if is_better(logs.get(self.monitor), best, self.monitor):
            save_weights(self.model, self.run.best_weights, logs)
        if self.keep_epochs:
            saved = self.run.path / EPOCH_WEIGHTS.format(epoch=epoch + 1)
            save_weights(self.model, saved, logs)
            paths = epoch_weights(self.run.path)
            end = paths.index(saved) + 1  # later epochs are trained again
            for path in (*paths[end:], *paths[: max(0, end - self.keep_epochs)]):
                path.unlink()


class StopEarly(keras.callbacks.Callback):
    """Stops after some epochs without a better one, before an interruption or after.

    `keras.callbacks.EarlyStopping` counts anew whenever a training goes on.

    Args:
        run_dir: The run directory, whose `history.jsonl` has all epochs. It is written
            by `EpochLog`, which must come before this in the list of callbacks.
        monitor: What "better" is judged by.
        patience: After how many epochs without a better one to stop.
    """

    def __init__(self, run_dir: str | Path, monitor: str, patience: int) -> None:
        super().__init__()
        self.run_dir, self.monitor = run_dir, monitor
        self.patience = check_size("early_stopping", patience)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Stops if the last better epoch is too long ago."""
        history = read_history(self.run_dir)
        stale = epochs_without_progress(history, self.monitor)
        if stale >= self.patience:
            best = best_so_far(history, self.monitor)
            print(
                f"Stopping early after epoch {epoch + 1}: {self.monitor} was best "
                f"after epoch {epoch + 1 - stale}, {best:.4g}"
            )
            self.model.stop_training = True


def stopped_early(
    history: Sequence[Mapping[str, Any]], monitor: str, patience: int | None
) -> bool:
    """Tells whether a training was over already by its `early_stopping`; says so.

    Args:
        history: The epochs so far.
        monitor: What "better" is judged by.
        patience: After how many epochs without a better one to stop; None or 0 for
            never.
    """
    if not (history and patience):
        return False
    over = epochs_without_progress(history, monitor) >= patience
    if over:
        best = best_so_far(history, monitor)
        print(f"Training stopped early before, {monitor} {best:.4g}.")
    return over


def training_callbacks(
    run_dir: str | Path,
    token_counter: TokenMean,
    first: Sequence[keras.callbacks.Callback] = (),
    last: Sequence[keras.callbacks.Callback] = (),
    monitor: str = "val_perplexity",
    early_stopping: int | None = None,
    keep_epochs: int = 0,
    moving_average: bool = False,
) -> list[keras.callbacks.Callback]:
    """Makes the callbacks of a training run, in the order in which they must come.

    Args:
        run_dir: The run directory, a new one or one to go on with.
        token_counter: See `EpochLog`.
        first: Callbacks that change the data, the learning rate or the logs.
        last: Callbacks that save where the training is, such as `Checkpoints`: an epoch
            counts as finished only once everything else of it is saved.
        monitor: What "best" is judged by.
        early_stopping: After how many epochs without a better one to stop; None or 0
            for never.
        keep_epochs: How many of the last epochs' weights to keep, to average them.
        moving_average: Whether to validate and save the average of the weights that
            the optimizer keeps, see `MovingAverage`.

    Returns:
        Callbacks for `fit`.

    Example:
        >>> from keras_luong.runs.callbacks import training_callbacks
        >>> from keras_luong.runs.checkpoints import Checkpoints
        >>> checkpoints = Checkpoints("runs/new")
        >>> callbacks = training_callbacks(
        ...     "runs/new", kl.Perplexity(), last=[checkpoints], monitor="val_bleu"
        ... )
        >>> type(callbacks[-1]).__name__  # for model.fit(callbacks=...)
        'Checkpoints'
    """
    log = EpochLog(run_dir, token_counter)
    stop = [StopEarly(run_dir, monitor, early_stopping)] if early_stopping else []
    return [
        *first,
        StopOnNaN(),
        SaveWeights(run_dir, monitor, keep_epochs),
        log,
        *stop,
        StepCurves(log.run.logs / "train"),
        keras.callbacks.TensorBoard(str(log.run.logs), write_graph=False),
        *([MovingAverage()] if moving_average else []),
        *last,
    ]


class EpochBar(keras.callbacks.ProgbarLogger):
    """Keras's bar, which knows about how many steps there are before the first epoch.

    Where there is no terminal, a line now and then takes its place. It must be the last
    of the callbacks, to show what the others put into the logs.

    Args:
        steps: The number of steps of an epoch, exact or not.
        started_at: The epoch and step at which the training goes on.

    Example:
        >>> from keras_luong.runs.callbacks import EpochBar
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


class TellCompiling(keras.callbacks.Callback):
    """Says once, after an epoch, how long its first steps took to be compiled.

    Args:
        shapes: How many shapes batches have: the first step of each is compiled.
    """

    def __init__(self, shapes: int) -> None:
        super().__init__()
        self.shapes = check_size("shapes", shapes)
        self._seconds: list[float] | None = []

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:
        """Starts the clock."""
        self._start = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Stops the clock."""
        if self._seconds is not None:
            self._seconds.append(time.perf_counter() - self._start)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Says by how much the slowest steps took longer than is usual."""
        if self._seconds:
            usual = statistics.median(self._seconds)
            slowest = sorted(self._seconds)[-self.shapes :]
            took = in_words(sum(seconds - usual for seconds in slowest))
            print(f"\n{self.shapes} shapes of batches were compiled in {took}.")
        self._seconds = None


class StepCurves(keras.callbacks.Callback):
    """Writes the training's logs for TensorBoard every few steps.

    What Keras calls `epoch_loss` after an epoch is `batch_loss` here: the mean since
    the epoch began. Keras's callback can write them too, but counts the steps anew when
    a training goes on.

    Args:
        log_dir: Directory of the training's events.
        every: Number of steps between two points of a curve.

    Example:
        >>> from keras_luong.runs.callbacks import StepCurves
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
