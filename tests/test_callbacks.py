from __future__ import annotations

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
    StopOnNaN,
    TellCompiling,
    training_callbacks,
)
from keras_luong.runs.run import RunDirectory, read_history
from keras_luong.training.metrics import Perplexity
from keras_luong.training.optimizers import innermost, make_optimizer


def adam_model(metrics=(), learning_rate=0.01):
    return small_model(make_optimizer("adam", learning_rate), metrics)


class TestEpochLog:
    @pytest.mark.slow
    def test_a_line_per_epoch(self, tmp_path):
        perplexity = Perplexity()
        model = adam_model([perplexity])
        history = model.fit(
            small_data(),
            validation_data=small_data(batches=7),
            epochs=2,
            verbose=0,
            callbacks=[EpochLog(tmp_path, perplexity)],
        ).history
        lines = read_history(tmp_path)
        assert [line["epoch"] for line in lines] == [1, 2]
        for name in ("loss", "perplexity", "val_loss", "val_perplexity"):
            assert [line[name] for line in lines] == pytest.approx(history[name])
        assert all(line["learning_rate"] == pytest.approx(0.01) for line in lines)
        assert all(line["seconds"] > 0 for line in lines)

    def test_the_mean_gradient_norm(self, tmp_path):
        perplexity = Perplexity()
        model = adam_model([perplexity])
        gradients = []

        class Spy(keras.callbacks.Callback):
            """Takes note of the sums of norms."""

            def on_train_batch_end(self, batch, logs=None):
                gradients.append(innermost(model.optimizer).norms.numpy()[0])

        model.fit(
            small_data(),
            epochs=2,
            verbose=0,
            callbacks=[Spy(), EpochLog(tmp_path, perplexity)],
        )
        logged = [line["gradient_norm"] for line in read_history(tmp_path)]
        expected = [gradients[2] / 3, gradients[5] / 3]  # three batches each
        np.testing.assert_allclose(logged, expected, 1e-6)
        assert logged[0] > 0

    def test_an_optimizer_without_norms(self, tmp_path):
        perplexity = Perplexity()
        model = small_model("adam", [perplexity])
        model.fit(small_data(), verbose=0, callbacks=[EpochLog(tmp_path, perplexity)])
        assert "gradient_norm" not in read_history(tmp_path)[0]

    @pytest.mark.parametrize(
        "validate", [pytest.param(True, marks=pytest.mark.slow), False]
    )
    def test_speed_is_of_training_alone(self, tmp_path, monkeypatch, validate):
        clock = iter([10.0, 12.0, 20.0])  # begin, end of training, end of the epoch
        monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
        perplexity = Perplexity()
        model = adam_model([perplexity])
        validation = {"validation_data": small_data(7)} if validate else {}
        log = EpochLog(tmp_path, perplexity)
        model.fit(small_data(), verbose=0, callbacks=[log], **validation)
        (line,) = read_history(tmp_path)
        assert line["target_tokens_per_second"] == 24 / 2.0
        assert line["seconds"] == 10.0

    @pytest.mark.slow
    def test_replaces_epochs_that_are_trained_again(self, tmp_path):
        perplexity = Perplexity()
        for last in (3, 2):
            model = adam_model([perplexity])
            model.fit(
                small_data(),
                epochs=last,
                initial_epoch=last - 2,
                verbose=0,
                callbacks=[EpochLog(tmp_path, perplexity)],
            )
        assert [line["epoch"] for line in read_history(tmp_path)] == [1, 2]

    def test_not_a_number_is_still_json(self, tmp_path):
        perplexity = Perplexity()
        log = EpochLog(tmp_path, perplexity)
        log.set_model(adam_model([perplexity]))
        log.on_epoch_begin(0)
        log.on_epoch_end(0, {"val_loss": float("nan"), "val_bleu": 1.5})
        text = RunDirectory(tmp_path).history.read_text()
        line = json.loads(text, parse_constant=pytest.fail)
        assert (line["val_loss"], line["val_bleu"]) == (None, 1.5)


class TestStopOnNaN:
    def test_names_the_place(self):
        callback = StopOnNaN()
        callback.on_epoch_begin(1)
        with pytest.raises(FloatingPointError, match="nan after batch 1 of epoch 2"):
            callback.on_train_batch_end(0, {"loss": np.float32(np.nan)})

    def test_lets_numbers_pass(self):
        callback = StopOnNaN()
        callback.on_epoch_begin(0)
        callback.on_train_batch_end(0, {"loss": np.float32(1e30)})
        callback.on_train_batch_end(0)


def fit(run_dir, epochs, learning_rate=0.01, scale=1.0, **options):
    """Trains up to an epoch, after those that are there; returns the model."""
    perplexity = Perplexity()
    model = adam_model([perplexity], learning_rate)
    model.fit(
        small_data().map(lambda x, y, w: (x, y, w * scale)),
        validation_data=small_data(),
        initial_epoch=len(read_history(run_dir)),
        epochs=epochs,
        verbose=0,
        callbacks=training_callbacks(run_dir, perplexity, **options),
    )
    return model


class TestTrainingCallbacks:
    @pytest.mark.slow
    def test_best_weights_survive_going_on(self, tmp_path):
        best = RunDirectory(tmp_path).best_weights
        fit(tmp_path, 1)
        before = best.read_bytes()
        fit(tmp_path, 2, learning_rate=1e4, scale=1e3)  # the second epoch is awful
        first, second = read_history(tmp_path)
        assert second["val_loss"] > first["val_loss"]
        assert best.read_bytes() == before
        assert {path.name for path in tmp_path.iterdir()} == {
            "history.jsonl",
            "logs",
            "last.weights.h5",
            "model.weights.h5",
        }

    @pytest.mark.slow
    def test_better_weights_are_saved(self, tmp_path):
        model = fit(tmp_path, 3)
        values = [line["val_perplexity"] for line in read_history(tmp_path)]
        assert values == sorted(values, reverse=True)
        last = model.get_weights()
        model.load_weights(RunDirectory(tmp_path).best_weights)
        for a, b in zip(model.get_weights(), last, strict=True):
            np.testing.assert_array_equal(a, b)

    @pytest.mark.slow
    def test_early_stopping_counts_epochs_of_earlier_runs(self, tmp_path):
        fit(tmp_path, 1)
        awful = {"learning_rate": 1e4, "scale": 1e3, "early_stopping": 3}
        fit(tmp_path, 3, **awful)
        assert len(read_history(tmp_path)) == 3
        fit(tmp_path, 9, **awful)
        assert len(read_history(tmp_path)) == 4


@pytest.mark.slow
def test_the_moving_average_is_validated_and_saved(tmp_path):
    perplexity = Perplexity()
    optimizer = make_optimizer("adam", 0.1, ema_momentum=0.5)
    model = small_model(optimizer, [perplexity])
    average = [w.numpy() for w in model.trainable_weights]
    raw = []

    class Average(keras.callbacks.Callback):
        """Averages in NumPy."""

        def on_train_batch_end(self, batch, logs=None):
            weights = [w.numpy() for w in model.trainable_weights]
            for i, weight in enumerate(weights):
                old = average[i] if int(optimizer.iterations) > 1 else weight
                average[i] = 0.5 * old + 0.5 * weight
            raw[:] = weights

    after = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: [
            np.testing.assert_array_equal(w, r)
            for w, r in zip(model.trainable_weights, raw, strict=True)
        ]
    )
    model.fit(
        small_data(),
        validation_data=small_data(),
        epochs=2,
        verbose=0,
        callbacks=training_callbacks(
            tmp_path, perplexity, [Average()], [after], moving_average=True
        ),
    )
    run = RunDirectory(tmp_path)
    for path in (run.best_weights, run.last_weights):
        model.load_weights(path)
        for weight, mean in zip(model.trainable_weights, average, strict=True):
            np.testing.assert_allclose(weight, mean, atol=1e-6)
    loss = model.evaluate(small_data(), verbose=0, return_dict=True)["loss"]
    np.testing.assert_allclose(loss, read_history(tmp_path)[-1]["val_loss"], 1e-6)


def test_the_last_epochs_weights_are_kept(tmp_path):
    model = adam_model()
    keep = SaveWeights(tmp_path, keep_epochs=2)
    keep.set_model(model)
    for epoch in range(4):
        model.weights[0].assign(model.weights[0] + 1.0)
        keep.on_epoch_end(epoch, {})
    kept = epoch_weights(tmp_path)
    assert [path.name for path in kept] == [
        "epoch-0003.weights.h5",
        "epoch-0004.weights.h5",
    ]
    last = model.get_weights()[0]
    model.load_weights(kept[0])
    np.testing.assert_allclose(model.get_weights()[0], last - 1.0, rtol=1e-6)


def test_a_negative_number_of_epochs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="keep_epochs.*-1"):
        SaveWeights(tmp_path, keep_epochs=-1)


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
