from __future__ import annotations

import json
import sys

import keras
import numpy as np
import pytest
import small_training
import tensorflow as tf

from keras_luong.serving.translator import Translation
from keras_luong.training import callbacks
from keras_luong.training.averaging import epoch_weights
from keras_luong.training.callbacks import (
    EpochLog,
    SaveWeights,
    StopOnNaN,
    TranslationEvaluation,
    best_so_far,
    direction,
    is_better,
    training_callbacks,
)
from keras_luong.training.metrics import Perplexity
from keras_luong.training.run_directory import RunDirectory, read_history

SOURCES = ["a b c d e", "f g h i j"]
REFERENCES = ["A B C D E", "F G H I J"]


class FakeTranslator:
    """Gets the first `known` sentences right."""

    def __init__(self, known=2, alignment=True):
        self.known, self.alignment = known, alignment

    def translate(self, texts):
        return [
            Translation(
                text=text.upper() if i < self.known else "",
                score=-1.0,
                tokens=text.upper().split(),
                source_tokens=text.split(),
                alignment=np.eye(5) * self.alignment,
                truncated=False,
                log_probs=np.zeros(len(text.split())),
            )
            for i, text in enumerate(texts)
        ]


def small_model(metrics=(), learning_rate=0.01):
    return small_training.small_model(keras.optimizers.Adam(learning_rate), metrics)


def small_data(batches=3, rows=2, width=4):
    labels = np.random.default_rng(0).integers(1, 9, (batches * rows, width))
    weights = np.full(labels.shape, 1 / (rows * width), "float32")
    data = tf.data.Dataset.from_tensor_slices((np.roll(labels, 1, 1), labels, weights))
    return data.batch(rows)


class TestTranslationEvaluation:
    def test_scores_prints_and_draws(self, tmp_path, capsys):
        pytest.importorskip("matplotlib")
        evaluation = TranslationEvaluation(
            FakeTranslator(), SOURCES, REFERENCES, samples=1, pictures=tmp_path / "p"
        )
        logs = {}
        evaluation.on_epoch_end(4, logs)
        assert logs == {"val_bleu": pytest.approx(100.0)}
        printed = capsys.readouterr().out
        assert "a b c d e" in printed and "A B C D E" in printed
        assert "f g h i j" not in printed
        assert [p.name for p in (tmp_path / "p").iterdir()] == ["epoch-05.png"]

    def test_callbacks_after_it_see_the_score(self):
        translator = FakeTranslator()
        evaluation = TranslationEvaluation(translator, SOURCES, REFERENCES)

        def worse_every_epoch(epoch, logs):
            translator.known = 2 - epoch

        model = small_model()
        history = model.fit(
            small_data(),
            epochs=5,
            verbose=0,
            callbacks=[
                keras.callbacks.LambdaCallback(on_epoch_begin=worse_every_epoch),
                evaluation,
                keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=1),
            ],
        ).history
        first, second = history["val_bleu"]  # and then it stopped
        assert first == pytest.approx(100) and second < 99

    @pytest.mark.parametrize("picture", [True, False])
    def test_tensorboard(self, tmp_path, picture):
        pytest.importorskip("matplotlib")
        accumulator = pytest.importorskip(
            "tensorboard.backend.event_processing.event_accumulator"
        )
        TranslationEvaluation(
            FakeTranslator(),
            SOURCES,
            REFERENCES,
            log_dir=tmp_path / "logs",
            pictures=tmp_path / "p" if picture else None,
        ).on_epoch_end(2, {})
        events = accumulator.EventAccumulator(str(tmp_path / "logs"))
        tags = events.Reload().Tags()["tensors"]
        assert tags == ["translations", "attention"][: 1 + picture]
        assert events.Tensors("translations")[0].step == 2

    @pytest.mark.parametrize("attention, matplotlib", [(True, False), (False, True)])
    def test_no_picture(self, tmp_path, monkeypatch, attention, matplotlib):
        if not matplotlib:
            monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        TranslationEvaluation(
            FakeTranslator(alignment=attention), SOURCES, REFERENCES, pictures=tmp_path
        ).on_epoch_end(0, {})
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        "sources, references, tokenize, message",
        [
            ([], [], "13a", "at least one"),
            (["a"], ["a", "b"], "13a", "2 hypotheses, 1 references"),
            (["a"], ["a"], "x", "tokenize"),
        ],
    )
    def test_refuses_at_once(self, sources, references, tokenize, message):
        with pytest.raises(ValueError, match=message):
            TranslationEvaluation(FakeTranslator(), sources, references, tokenize)


class TestEpochLog:
    def test_a_line_per_epoch(self, tmp_path):
        perplexity = Perplexity()
        model = small_model([perplexity])
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

    @pytest.mark.parametrize("validate", [True, False])
    def test_speed_is_of_training_alone(self, tmp_path, monkeypatch, validate):
        clock = iter([10.0, 12.0, 20.0])  # begin, end of training, end of the epoch
        monkeypatch.setattr(callbacks.time, "perf_counter", lambda: next(clock))
        perplexity = Perplexity()
        model = small_model([perplexity])
        validation = {"validation_data": small_data(7)} if validate else {}
        log = EpochLog(tmp_path, perplexity)
        model.fit(small_data(), verbose=0, callbacks=[log], **validation)
        (line,) = read_history(tmp_path)
        assert line["target_tokens_per_second"] == 24 / 2.0
        assert line["seconds"] == 10.0

    def test_replaces_epochs_that_are_trained_again(self, tmp_path):
        perplexity = Perplexity()
        for last in (3, 2):
            model = small_model([perplexity])
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
        log.set_model(small_model([perplexity]))
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
    model = small_model([perplexity], learning_rate)
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
            "model.weights.h5",
        }

    def test_better_weights_are_saved(self, tmp_path):
        model = fit(tmp_path, 3)
        values = [line["val_perplexity"] for line in read_history(tmp_path)]
        assert values == sorted(values, reverse=True)
        last = model.get_weights()
        model.load_weights(RunDirectory(tmp_path).best_weights)
        for a, b in zip(model.get_weights(), last, strict=True):
            np.testing.assert_array_equal(a, b)

    def test_early_stopping_counts_epochs_of_earlier_runs(self, tmp_path):
        fit(tmp_path, 1)
        awful = {"learning_rate": 1e4, "scale": 1e3, "early_stopping": 3}
        fit(tmp_path, 3, **awful)
        assert len(read_history(tmp_path)) == 3
        fit(tmp_path, 9, **awful)
        assert len(read_history(tmp_path)) == 4


@pytest.mark.parametrize(
    "monitor, expected",
    [
        ("val_bleu", "max"),
        ("val_token_accuracy", "max"),
        ("val_loss", "min"),
        ("val_perplexity", "min"),
    ],
)
def test_direction(monitor, expected):
    assert direction(monitor) == expected


@pytest.mark.parametrize(
    "monitor, values, expected",
    [
        ("val_bleu", [1.0, 3.0, 2.0], (3.0, 1)),
        ("val_loss", [1.0, 3.0, 2.0], (1.0, 2)),
        ("val_loss", [2.0, 2.0], (2.0, 1)),  # a tie is no improvement
        ("val_loss", [None, 2.0, None], (2.0, 1)),
        ("val_loss", [None], (None, 1)),
        ("val_loss", [], (None, 0)),
    ],
)
def test_best_so_far(monitor, values, expected):
    assert best_so_far([{monitor: value} for value in values], monitor) == expected


def test_the_last_epochs_weights_are_kept(tmp_path):
    model = small_model()
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


@pytest.mark.parametrize(
    "value, best, monitor, expected",
    [
        (1.0, None, "val_perplexity", True),
        (1.0, 2.0, "val_perplexity", True),
        (2.0, 2.0, "val_perplexity", False),
        (1.0, 2.0, "val_bleu", False),
        (float("nan"), None, "val_bleu", False),
        (None, None, "val_bleu", False),
    ],
)
def test_is_better(value, best, monitor, expected):
    assert is_better(value, best, monitor) is expected
