"""Callbacks: translations and a log after every epoch, and the usual ones of Keras."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.evaluation.bleu import bleu
from keras_luong.training.averaging import EPOCH_WEIGHTS, epoch_weights
from keras_luong.training.metrics import TokenMean
from keras_luong.training.run_directory import (
    RunDirectory,
    read_history,
    saved_beside,
    write_text,
)

if TYPE_CHECKING:
    from keras_luong.serving.translator import Translation, Translator


class TranslationEvaluation(keras.callbacks.Callback):
    """Translates validation sentences after each epoch, and scores them by BLEU.

    Puts `val_bleu` into the logs, so that callbacks that come after it in the list
    (`EarlyStopping`, `ModelCheckpoint`, `TensorBoard`) can use it. Prints the first
    translations, and draws the attention of the first one, if the model has attention
    and matplotlib is installed.

    Args:
        translator: A translator that holds the very model that is trained.
        sources: Source sentences.
        references: Their translations.
        tokenize: sacrebleu's tokenisation, see `bleu`.
        samples: How many translations to print.
        log_dir: Where TensorBoard's events go; None for none.
        pictures: Directory of the pictures, `epoch-01.png` and so on; None for none.

    Raises:
        ValueError: If there are no sentences, or not as many sources as references.

    Example:
        >>> evaluation = TranslationEvaluation(translator, sources, references)
        >>> stop = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=3)
        >>> model.fit(batches, callbacks=[evaluation, stop])
    """

    def __init__(
        self,
        translator: Translator,
        sources: Sequence[str],
        references: Sequence[str],
        tokenize: str = "13a",
        samples: int = 2,
        log_dir: str | Path | None = None,
        pictures: str | Path | None = None,
    ):
        super().__init__()
        bleu(
            references, sources, tokenize
        )  # refuses now what would fail an epoch later
        self.translator = translator
        self.sources = list(sources)
        self.references = list(references)
        self.tokenize = tokenize
        self.samples = samples
        self.log_dir = log_dir
        self.pictures = pictures

    def on_epoch_end(self, epoch, logs=None):
        """Translates, scores, prints, draws."""
        translations = self.translator.translate(self.sources)
        score = bleu([t.text for t in translations], self.references, self.tokenize)
        if logs is not None:
            logs["val_bleu"] = score.score
        sample = self._sample(translations)
        print(f"\n{sample}", flush=True)  # the progress bar has not ended its line
        picture = self._draw(epoch, translations[0])
        self._to_tensorboard(epoch, sample, picture)

    def _sample(self, translations: list[Translation]) -> str:
        rows = zip(self.sources, translations, self.references, strict=True)
        return "\n".join(
            f"  source       {source}\n"
            f"  translation  {translation.text}\n"
            f"  reference    {reference}"
            for source, translation, reference in list(rows)[: self.samples]
        )

    def _draw(self, epoch: int, translation: Translation) -> Path | None:
        if self.pictures is None or not np.any(translation.alignment):
            return None  # no attention, or an empty sentence
        from keras_luong.evaluation.plots import save_attention

        path = Path(self.pictures) / f"epoch-{epoch + 1:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_attention(
                path,
                translation.alignment,
                translation.source_tokens,
                translation.tokens,
            )
        except ImportError:  # pictures are an extra; training goes on without it
            return None
        return path

    def _to_tensorboard(self, epoch: int, sample: str, picture: Path | None) -> None:
        if self.log_dir is None:
            return
        writer = tf.summary.create_file_writer(str(self.log_dir))
        with writer.as_default(step=epoch):
            tf.summary.text("translations", f"```\n{sample}\n```")
            if picture is not None:
                image = tf.io.decode_png(tf.io.read_file(str(picture)), channels=3)
                tf.summary.image("attention", image[None])
        writer.close()


class EpochLog(keras.callbacks.Callback):
    """Writes one line of JSON per epoch, and adds the training speed to the logs.

    A line has `epoch` (from 1), Keras's logs, `learning_rate`, `seconds` (all of the
    epoch) and `target_tokens_per_second` (of training alone, padding not counted). When
    training goes on after an interruption, the lines of epochs that are trained again
    are replaced.

    Args:
        run_dir: The run directory, whose `history.jsonl` is written.
        token_counter: A metric of the compiled model that counts target tokens, such
            as the `Perplexity` given to `compile`.

    Example:
        >>> perplexity = Perplexity()
        >>> model.compile("adam", SequenceCrossentropy(), metrics=[perplexity])
        >>> model.fit(batches, callbacks=[EpochLog("runs/m30k", perplexity)])
    """

    def __init__(self, run_dir: str | Path, token_counter: TokenMean):
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.token_counter = token_counter
        self._start = 0.0
        self._speed: float | None = None

    def on_epoch_begin(self, epoch, logs=None):
        """Starts the clock."""
        self._start = time.perf_counter()
        self._speed = None

    def on_test_begin(self, logs=None):
        """Training is over and the validation about to reset the metrics."""
        self._measure()

    def on_epoch_end(self, epoch, logs=None):
        """Writes the line."""
        logs = {} if logs is None else logs
        self._measure()  # where there is no validation
        logs["target_tokens_per_second"] = self._speed
        rate = logs.get("learning_rate", self.model.optimizer.learning_rate)
        line = {
            "epoch": epoch + 1,
            **{name: _json_number(value) for name, value in logs.items()},
            "learning_rate": float(keras.ops.convert_to_numpy(rate)),
            "seconds": round(time.perf_counter() - self._start, 3),
        }
        earlier = [e for e in read_history(self.run.path) if e["epoch"] <= epoch]
        self.run.path.mkdir(parents=True, exist_ok=True)
        write_text(
            self.run.history, "".join(json.dumps(e) + "\n" for e in [*earlier, line])
        )

    def _measure(self) -> None:
        if self._speed is None:
            tokens = keras.ops.convert_to_numpy(self.token_counter.count)
            self._speed = float(tokens) / (time.perf_counter() - self._start)


class StopOnNaN(keras.callbacks.Callback):
    """Stops training at the first batch after which the loss is not finite.

    It raises, unlike `keras.callbacks.TerminateOnNaN`, which ends the epoch as if it
    were whole, so that the ruined weights replace the last good checkpoint.

    Raises:
        FloatingPointError: From `fit`, naming the epoch and the batch.
    """

    def on_epoch_begin(self, epoch, logs=None):
        """Remembers the epoch for the message."""
        self._epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the loss."""
        loss = (logs or {}).get("loss", 0.0)
        if not math.isfinite(loss):
            raise FloatingPointError(
                f"The loss is {loss} after batch {batch + 1} of epoch "
                f"{self._epoch + 1}. The last checkpoint is kept. A "
                "lower learning rate or clip_norm usually helps"
            )


class SaveWeights(keras.callbacks.Callback):
    """Saves the weights after an epoch: the best ones, and those of the last epochs.

    Files are written beside and renamed.

    Args:
        run_dir: The run directory. The best weights go to `model.weights.h5`; better
            than all in `history.jsonl` is the best.
        monitor: What "best" is judged by.
        keep_epochs: How many epochs' weights stay in `epochs/`, to be averaged.

    Example:
        >>> model.fit(batches, callbacks=[SaveWeights("runs/m30k", keep_epochs=5)])
        >>> average_weights(epoch_weights("runs/m30k", last=5), "mean.weights.h5")
    """

    def __init__(self, run_dir: str | Path, monitor="val_perplexity", keep_epochs=0):
        super().__init__()
        self.run = RunDirectory(run_dir)
        self.monitor = monitor
        self.keep_epochs = check_size("keep_epochs", keep_epochs, smallest=0)

    def on_epoch_end(self, epoch, logs=None):
        """Writes what is to be written, and drops the oldest epoch's."""
        history = [e for e in read_history(self.run.path) if e["epoch"] <= epoch]
        best, _ = best_so_far(history, self.monitor)
        if is_better((logs or {}).get(self.monitor), best, self.monitor):
            self._save(self.run.best_weights)
        if self.keep_epochs:
            self._save(self.run.path / EPOCH_WEIGHTS.format(epoch=epoch + 1))
            for path in epoch_weights(self.run.path)[: -self.keep_epochs]:
                path.unlink()

    def _save(self, path: Path) -> None:
        with saved_beside(path) as beside:
            self.model.save_weights(beside)


class StopEarly(keras.callbacks.Callback):
    """Stops after some epochs without a better one, also if they were of several runs.

    `keras.callbacks.EarlyStopping` starts to count anew where a training goes on.

    Args:
        run_dir: The run directory, whose `history.jsonl` knows all epochs; this comes
            after `EpochLog`, which writes it.
        monitor: What "better" is judged by.
        patience: How many epochs.
    """

    def __init__(self, run_dir: str | Path, monitor: str, patience: int):
        super().__init__()
        self.run_dir, self.monitor = run_dir, monitor
        self.patience = check_size("early_stopping", patience)

    def on_epoch_end(self, epoch, logs=None):
        """Stops?"""
        best, stale = best_so_far(read_history(self.run_dir), self.monitor)
        if stale >= self.patience:
            print(f"Stopping early after epoch {epoch + 1}: {self.monitor} was {best}")
            self.model.stop_training = True


def direction(monitor: str) -> str:
    """Whether a monitored quantity should rise or fall.

    Args:
        monitor: Its name in the logs, such as `"val_bleu"`.

    Returns:
        Keras's `mode`: `"max"` for BLEU and accuracies, `"min"` for the rest.

    Example:
        >>> direction("val_bleu"), direction("val_loss")
        ('max', 'min')
    """
    return "max" if monitor.endswith(("bleu", "accuracy")) else "min"


def is_better(value: float | None, best: float | None, monitor: str) -> bool:
    """Whether a monitored value is better than the best so far.

    Args:
        value: The value; None, like NaN, is never better.
        best: The best so far, None if there is none.
        monitor: Name of the quantity.

    Example:
        >>> is_better(3.0, 2.0, "val_bleu"), is_better(3.0, 2.0, "val_perplexity")
        (True, False)
    """
    if value is None or math.isnan(value):
        return False
    if best is None:
        return True
    return value > best if direction(monitor) == "max" else value < best


def best_so_far(history: Sequence[dict], monitor: str) -> tuple[float | None, int]:
    """The best value in a history, and how many epochs ago it was reached.

    Args:
        history: What `read_history` returns.
        monitor: Name of the quantity.

    Returns:
        The value, None if it was never logged; and the number of epochs after it.

    Example:
        >>> best_so_far([{"val_bleu": 3.0}, {"val_bleu": 2.0}], "val_bleu")
        (3.0, 1)
    """
    sign = 1 if direction(monitor) == "max" else -1
    values = [epoch.get(monitor) for epoch in history]
    known = [i for i, value in enumerate(values) if value is not None]
    if not known:
        return None, len(values)
    best = max(known, key=lambda i: (sign * values[i], -i))
    return values[best], len(values) - 1 - best


def training_callbacks(
    run_dir: str | Path,
    token_counter: TokenMean,
    first: Sequence[keras.callbacks.Callback] = (),
    last: Sequence[keras.callbacks.Callback] = (),
    monitor: str = "val_perplexity",
    early_stopping: int | None = None,
    keep_epochs: int = 0,
) -> list[keras.callbacks.Callback]:
    """The callbacks of a training run, in the order in which they need each other.

    Args:
        run_dir: The run directory. What it already holds is gone on with.
        token_counter: See `EpochLog`.
        first: Callbacks that change the data, the learning rate or the logs.
        last: Callbacks that save where the training is, such as `Checkpoints`: whatever
            an epoch leaves is there before it counts as finished.
        monitor: What "best" is judged by.
        early_stopping: Stop after so many epochs without a better one; None or 0 never.
        keep_epochs: Keep the weights of the last so many epochs, to average them.

    Returns:
        Callbacks for `fit`.

    Example:
        >>> checkpoints = Checkpoints("runs/m30k")
        >>> callbacks = training_callbacks(
        ...     "runs/m30k", perplexity, last=[checkpoints], monitor="val_bleu")
        >>> model.fit(batches, validation_data=validation, callbacks=callbacks)
    """
    log = EpochLog(run_dir, token_counter)
    return [
        *first,
        StopOnNaN(),
        SaveWeights(run_dir, monitor, keep_epochs),
        log,
        *([StopEarly(run_dir, monitor, early_stopping)] if early_stopping else []),
        keras.callbacks.TensorBoard(str(log.run.logs), write_graph=False),
        *last,
    ]


def _json_number(value) -> float | None:
    """NaN and infinities have no JSON; None says that there is no such number."""
    value = float(value)
    return value if math.isfinite(value) else None
