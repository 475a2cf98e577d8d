from __future__ import annotations

import functools
import itertools
import json

import keras
import numpy as np
import pytest
from small_training import small_data, small_model

from keras_luong.runs import callbacks
from keras_luong.runs.average import epoch_weights
from keras_luong.runs.callbacks import (
    EpochLog,
    SaveWeights,
    StopEarly,
    StopOnNaN,
    TellCompiling,
    stopped_early,
    training_callbacks,
)
from keras_luong.runs.load_save import load_weights
from keras_luong.runs.run import RunDirectory, read_history
from keras_luong.training.metrics import Perplexity
from keras_luong.training.optimizers import innermost, make_optimizer


def fit(run_dir, optimizer, make, **options):
    """Fits a small model with some callbacks; returns it, and Keras's history."""
    perplexity = Perplexity()
    model = small_model(optimizer, [perplexity])
    model.run_eagerly = True
    options = {"verbose": 0, **options, "callbacks": make(run_dir, perplexity)}
    return model, model.fit(small_data(), **options).history


def test_the_log_has_a_line_per_epoch(tmp_path, monkeypatch):
    """And epochs that are trained again have their line once."""
    norms = []

    class Spy(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            norms.append(innermost(self.model.optimizer).norms.numpy()[0])

    # When an epoch begins, when its training ends, and when its validation does.
    clock = iter([10.0, 12.0, 20.0, 30.0, 34.0, 50.0, 60.0, 63.0, 90.0])
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
    for first, last in ((0, 2), (1, 2)):
        _, history = fit(
            tmp_path,
            make_optimizer("adam", 0.01),
            lambda *args: [Spy(), EpochLog(*args)],
            validation_data=small_data(batches=7),
            initial_epoch=first,
            epochs=last,
        )
        lines = read_history(tmp_path)
        assert [line["epoch"] for line in lines] == [1, 2]
        for name in ("loss", "perplexity", "val_loss", "val_perplexity"):
            assert [x[name] for x in lines[first:]] == pytest.approx(history[name])
        assert lines[1]["learning_rate"] == pytest.approx(0.01)
        norm = norms[-1] / 3  # of three batches
        assert lines[1]["gradient_norm"] == pytest.approx(norm) and norm > 0
    assert [line["seconds"] for line in lines] == [10.0, 30.0]
    # Of training alone: 24 tokens.
    speeds = [line["target_tokens_per_second"] for line in lines]
    assert speeds == [24 / 2, 24 / 3]


def test_the_log_of_an_optimizer_without_norms_and_of_no_validation(
    tmp_path, monkeypatch
):
    clock = itertools.count()
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
    fit(tmp_path, "adam", lambda *args: [EpochLog(*args)])
    (line,) = read_history(tmp_path)
    assert "gradient_norm" not in line
    assert (line["target_tokens_per_second"], line["seconds"]) == (24.0, 2)


def test_not_a_number_is_still_json(tmp_path):
    log = EpochLog(tmp_path, Perplexity())
    log.set_model(small_model(make_optimizer("adam", 0.01)))
    log.on_epoch_begin(0)
    log.on_epoch_end(0, {"val_loss": float("nan"), "val_bleu": 1.5})
    text = RunDirectory(tmp_path).history.read_text()
    line = json.loads(text, parse_constant=pytest.fail)
    assert (line["val_loss"], line["val_bleu"]) == (None, 1.5)


def test_a_loss_that_is_no_number_stops_the_training_and_is_placed():
    callback = StopOnNaN()
    callback.on_epoch_begin(1)
    callback.on_train_batch_end(0, {"loss": np.float32(1e30)})
    callback.on_train_batch_end(0)
    with pytest.raises(FloatingPointError, match="nan after batch 1 of epoch 2"):
        callback.on_train_batch_end(0, {"loss": np.float32(np.nan)})


@functools.cache
def reader():
    return small_model("adam")


def first_weight(path):
    load_weights(reader(), path)
    return reader().get_weights()[0][0, 0]


@pytest.mark.parametrize("monitor, sign", [("val_perplexity", 1), ("val_bleu", -1)])
def test_the_best_the_last_and_the_last_epochs_weights_are_kept(
    monitor, sign, tmp_path
):
    """Also where a training goes on."""
    run, model = RunDirectory(tmp_path), small_model("adam")
    values, best = [5.0, 4.0, 4.0, float("nan"), 6.0, 3.0], [1, 2, 2, 2, 2, 6]
    for epoch, value in enumerate(values):
        if epoch in (0, 4):
            save = SaveWeights(tmp_path, monitor, keep_epochs=2)
            save.set_model(model)
            save.on_train_begin()
        model.weights[0].assign(np.full(model.weights[0].shape, epoch + 1.0))
        save.on_epoch_end(epoch, {monitor: sign * value})
        assert first_weight(run.last_weights) == epoch + 1
        assert first_weight(run.best_weights) == best[epoch]
        kept = epoch_weights(tmp_path)
        numbers = [epoch, epoch + 1] if epoch else [1]
        assert [path.name for path in kept] == [
            f"epoch-{number:04d}.weights.h5" for number in numbers
        ]
        assert [first_weight(path) for path in kept] == numbers
    with pytest.raises(ValueError, match="keep_epochs.*-1"):
        SaveWeights(tmp_path, keep_epochs=-1)


def test_stops_after_some_epochs_without_a_better_one(tmp_path, capsys):
    """Those before an interruption count."""
    history = [{"epoch": i + 1, "val_bleu": x} for i, x in enumerate([1, 3, 2, 3, 1])]
    stops, stop = [], StopEarly(tmp_path, "val_bleu", patience=2)
    stop.set_model(small_model("adam"))
    for n in range(1, 6):
        lines = "".join(json.dumps(line) + "\n" for line in history[:n])
        RunDirectory(tmp_path).history.write_text(lines)
        stop.model.stop_training = False
        stop.on_epoch_end(n - 1)
        stops.append(stop.model.stop_training)
        assert stopped_early(history[:n], "val_bleu", 2) == stops[-1]
    assert stops == [False, False, False, True, True]
    said = capsys.readouterr().out
    assert "Stopping early after epoch 4: val_bleu was 3" in said
    assert "Training stopped early before, val_bleu 3." in said
    assert not stopped_early([], "val_bleu", 2)
    assert not stopped_early(history, "val_bleu", None)


def test_the_moving_average_is_validated_and_saved(tmp_path):
    """And the training goes on with the weights themselves."""
    average, raw = [], []

    class Average(keras.callbacks.Callback):
        """Averages in NumPy."""

        def on_train_batch_end(self, batch, logs=None):
            raw[:] = [w.numpy() for w in self.model.trainable_weights]
            pairs = zip(average or raw, raw, strict=True)
            average[:] = [0.5 * old + 0.5 * weight for old, weight in pairs]

    def same(epoch, logs):
        for w, r in zip(model.trainable_weights, raw, strict=True):
            np.testing.assert_array_equal(w, r)

    perplexity = Perplexity()
    optimizer = make_optimizer("adam", 0.1, ema_momentum=0.5)
    model = small_model(optimizer, [perplexity])
    model.run_eagerly = True
    after = keras.callbacks.LambdaCallback(on_epoch_end=same)
    made = training_callbacks(
        tmp_path, perplexity, [Average()], [after], moving_average=True
    )
    data = {"x": small_data(), "validation_data": small_data()}
    model.fit(**data, epochs=2, verbose=0, callbacks=made)
    run = RunDirectory(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("history.jsonl", "logs", run.last_weights.name, run.best_weights.name)
    }
    for path in (run.best_weights, run.last_weights):
        load_weights(model, path)
        for weight, mean in zip(model.trainable_weights, average, strict=True):
            np.testing.assert_allclose(weight, mean, atol=1e-6)
    loss = model.evaluate(small_data(), verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, read_history(tmp_path)[-1]["val_loss"], 1e-6)


def test_says_once_how_long_shapes_took_to_be_compiled(monkeypatch, capsys):
    steps = [20, 1, 1, 9, 2, 1, 1]  # seconds
    clock = iter(np.repeat(np.cumsum([0, *steps]), 2)[1:])
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
    tell = TellCompiling(shapes=2)
    for _ in steps:
        tell.on_train_batch_begin(0)
        tell.on_train_batch_end(0)
    tell.on_epoch_end(0)
    assert capsys.readouterr().out == "\n2 shapes of batches were compiled in 27 s.\n"
    tell.on_epoch_end(1)
    assert capsys.readouterr().out == ""
