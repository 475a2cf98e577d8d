from __future__ import annotations

import json
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.serving.translator import Translation
from keras_luong.training import callbacks
from keras_luong.training.averaging import epoch_weights
from keras_luong.training.callbacks import (
    EpochLog,
    FollowEpoch,
    KeepLastEpochs,
    StopOnNaN,
    TranslationEvaluation,
    best_so_far,
    direction,
    training_callbacks,
)
from keras_luong.training.losses import SequenceCrossentropy
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
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(9, 4),
            keras.layers.Dropout(0.3),
            keras.layers.Dense(9),
        ]
    )
    optimizer = keras.optimizers.Adam(learning_rate)
    model.compile(optimizer, SequenceCrossentropy(), metrics=list(metrics))
    return model


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
    def test_names_the_place_and_keeps_the_checkpoint(self, tmp_path):
        perplexity = Perplexity()
        model = small_model([perplexity])
        poison = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: (
                epoch == 1
                and model.layers[-1].kernel.assign(model.layers[-1].kernel * np.nan)
            )
        )
        run = training_callbacks(tmp_path, perplexity, [poison])
        with pytest.raises(FloatingPointError, match="nan after batch 1 of epoch 2"):
            model.fit(
                small_data(), validation_data=small_data(), epochs=3, callbacks=run
            )
        model.load_weights(RunDirectory(tmp_path).last_weights)
        assert all(np.isfinite(w).all() for w in model.get_weights())

    def test_lets_numbers_pass(self):
        callback = StopOnNaN()
        callback.on_epoch_begin(0)
        callback.on_train_batch_end(0, {"loss": np.float32(1e30)})
        callback.on_train_batch_end(0)


def orders(seed, epochs, global_seed=0):
    keras.utils.set_random_seed(global_seed)
    follow = FollowEpoch()
    data = follow.batches(
        lambda seed: tf.data.Dataset.range(30).shuffle(30, seed=seed), seed
    )
    result = []
    follow.set_model(small_model())
    for epoch in epochs:
        follow.on_epoch_begin(epoch)
        result.append(list(data.as_numpy_iterator()))
    return result


class TestFollowEpoch:
    def test_order_follows_the_epoch_alone(self):
        first, second, again = orders(1, [0, 1, 0])
        assert first == again != second
        assert sorted(first) == sorted(second) == list(range(30))
        assert orders(1, [1], global_seed=7) == [second]
        assert orders(2, [0]) != [first]

    def test_going_on_equals_never_stopping(self, tmp_path):
        def train(run_dir, *stops):
            for stop in stops:
                perplexity = Perplexity()
                model = small_model([perplexity])
                follow = FollowEpoch()
                data = follow.batches(
                    lambda seed: small_data().unbatch().shuffle(9, seed=seed).batch(2)
                )
                run = training_callbacks(run_dir, perplexity, [follow])
                model.fit(
                    data,
                    validation_data=small_data(),
                    epochs=stop,
                    verbose=0,
                    callbacks=run,
                )
            return model.get_weights()

        whole = train(tmp_path / "whole", 4)
        parts = train(tmp_path / "parts", 2, 4)
        for a, b in zip(whole, parts, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6)
        whole, parts = (read_history(tmp_path / name) for name in ("whole", "parts"))
        assert [line["epoch"] for line in parts] == [1, 2, 3, 4]
        for a, b in zip(whole, parts, strict=True):
            assert a["val_loss"] == pytest.approx(b["val_loss"], rel=1e-5)


class TestTrainingCallbacks:
    def test_best_weights_survive_going_on(self, tmp_path):
        best = RunDirectory(tmp_path).best_weights
        for stop, learning_rate in ((1, 0.01), (2, 1e4)):  # the second epoch is awful
            perplexity = Perplexity()
            model = small_model([perplexity], learning_rate)
            run = training_callbacks(tmp_path, perplexity)
            if stop == 2:
                before = best.read_bytes()
                model.fit(
                    small_data().map(lambda x, y, w: (x, y, w * 1e3)),
                    validation_data=small_data(),
                    epochs=stop,
                    initial_epoch=1,
                    verbose=0,
                    callbacks=run[:-1],  # a new optimizer, so no backup
                )
            else:
                model.fit(
                    small_data(),
                    validation_data=small_data(),
                    epochs=stop,
                    verbose=0,
                    callbacks=run,
                )
        first, second = read_history(tmp_path)
        assert second["val_loss"] > first["val_loss"]
        assert best.read_bytes() == before

    @pytest.mark.parametrize("patience, expected", [(2, True), (None, False)])
    def test_early_stopping(self, tmp_path, patience, expected):
        found = training_callbacks(tmp_path, Perplexity(), early_stopping=patience)
        kinds = [type(callback).__name__ for callback in found]
        assert ("EarlyStopping" in kinds) is expected
        assert kinds[-1] == "BackupAndRestore"


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
    keep = KeepLastEpochs(tmp_path, 2)
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
    with pytest.raises(ValueError, match="count.*0"):
        KeepLastEpochs(tmp_path, 0)
