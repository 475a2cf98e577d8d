"""Callbacks of a training: its log, its weights, when it stops, how good it is."""

import json
import sys
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from small_training import small_data, small_model

import keras_luong as kl
from keras_luong.evaluation.scores import bleu, chrf
from keras_luong.runs import callbacks, validation
from keras_luong.runs.average import epoch_weights
from keras_luong.runs.load_save import load_weights
from keras_luong.runs.run import RunDirectory, read_history
from keras_luong.runs.validation import TranslationEvaluation
from keras_luong.training import metrics
from keras_luong.training.optimizers import innermost, make_optimizer


def fit(run_dir, optimizer, make, **options):
    """Fits a small model with some callbacks; returns it, and Keras's history."""
    perplexity = kl.Perplexity()
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
        make = lambda *args: [Spy(), callbacks.EpochLog(*args)]  # noqa: E731
        given = {"initial_epoch": first, "epochs": last}
        given |= {"validation_data": small_data(2)}
        _, history = fit(tmp_path, make_optimizer("adam", 0.01), make, **given)
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


def test_the_log_without_norms_speed_or_a_number_is_json(tmp_path):
    log = callbacks.EpochLog(tmp_path, kl.Perplexity())
    log.set_model(small_model("adam"))
    log.on_epoch_begin(0)
    log.on_epoch_end(0, {"val_loss": float("nan"), "val_bleu": 1.5})
    text = RunDirectory(tmp_path).history.read_text()
    line = json.loads(text, parse_constant=pytest.fail)
    assert (line["val_loss"], line["val_bleu"]) == (None, 1.5)
    assert "gradient_norm" not in line


def test_a_loss_that_is_no_number_stops_the_training_and_is_placed():
    callback = callbacks.StopOnNaN()
    callback.on_epoch_begin(1)
    callback.on_train_batch_end(0, {"loss": np.float32(1e30)})
    callback.on_train_batch_end(0)
    with pytest.raises(FloatingPointError, match="nan after batch 1 of epoch 2"):
        callback.on_train_batch_end(0, {"loss": np.float32(np.nan)})


def test_the_best_the_last_and_the_last_epochs_weights_are_kept(tmp_path):
    """Also where a training goes on."""
    run, model = RunDirectory(tmp_path), small_model("adam")
    reader = small_model("adam")

    def number_in(path):
        load_weights(reader, path)
        return reader.get_weights()[0][0, 0]

    values, best = [2.0, 3.0, 3.0, float("nan"), 1.0, 4.0], [1, 2, 2, 2, 2, 6]
    for epoch, value in enumerate(values):
        if epoch in (0, 4):
            save = callbacks.SaveWeights(tmp_path, "val_bleu", keep_epochs=2)
            save.set_model(model)
            save.on_train_begin()
        model.weights[0].assign(np.full(model.weights[0].shape, epoch + 1.0))
        save.on_epoch_end(epoch, {"val_bleu": value})
        assert number_in(run.last_weights) == epoch + 1
        assert number_in(run.best_weights) == best[epoch]
        numbers = [epoch, epoch + 1] if epoch else [1]
        names = [f"epoch-{number:04d}.weights.h5" for number in numbers]
        kept = epoch_weights(tmp_path)
        assert [path.name for path in kept] == names
    assert [*map(number_in, kept)] == numbers
    with pytest.raises(ValueError, match="keep_epochs.*-1"):
        callbacks.SaveWeights(tmp_path, keep_epochs=-1)


def test_stops_after_some_epochs_without_a_better_one(tmp_path, capsys):
    """Those before an interruption count."""
    history = [{"epoch": i + 1, "val_bleu": x} for i, x in enumerate([1, 3, 2, 3, 1])]
    stops, stop = [], callbacks.StopEarly(tmp_path, "val_bleu", patience=2)
    stop.set_model(small_model("adam"))
    for n in range(1, 6):
        lines = "".join(json.dumps(line) + "\n" for line in history[:n])
        RunDirectory(tmp_path).history.write_text(lines)
        stop.model.stop_training = False
        stop.on_epoch_end(n - 1)
        stops.append(stop.model.stop_training)
        assert callbacks.stopped_early(history[:n], "val_bleu", 2) == stops[-1]
    assert stops == [False, False, False, True, True]
    said = capsys.readouterr().out
    assert "after epoch 4: val_bleu was best after epoch 2, 3" in said
    assert "Training stopped early before, val_bleu 3." in said
    assert not callbacks.stopped_early([], "val_bleu", 2)
    assert not callbacks.stopped_early(history, "val_bleu", None)


def test_the_moving_average_is_validated_and_saved(tmp_path):
    """And the training goes on with the weights themselves."""
    average, raw = [], []

    class Average(keras.callbacks.Callback):
        """Averages in NumPy."""

        def on_train_batch_end(self, batch, logs=None):
            raw[:] = [w.numpy() for w in self.model.trainable_weights]
            pairs = zip(average or raw, raw, strict=True)
            average[:] = [0.5 * old + 0.5 * weight for old, weight in pairs]

        def on_epoch_begin(self, epoch, logs=None):
            for weight, value in zip(self.model.trainable_weights, raw, strict=False):
                np.testing.assert_array_equal(weight, value)

    def make(run_dir, perplexity):
        mine = [Average()], []
        options = {"moving_average": True}
        return callbacks.training_callbacks(run_dir, perplexity, *mine, **options)

    optimizer = make_optimizer("adam", 0.1, ema_momentum=0.5)
    model, _ = fit(tmp_path, optimizer, make, epochs=2, validation_data=small_data())
    run = RunDirectory(tmp_path)
    there = {"history.jsonl", "logs", run.last_weights.name, run.best_weights.name}
    assert {path.name for path in tmp_path.iterdir()} == there
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
    tell = callbacks.TellCompiling(shapes=2)
    for _ in steps:
        tell.on_train_batch_begin(0)
        tell.on_train_batch_end(0)
    tell.on_epoch_end(0)
    assert capsys.readouterr().out == "\n2 shapes of batches were compiled in 27 s.\n"
    tell.on_epoch_end(1)
    assert capsys.readouterr().out == ""


# Translations of validation sentences.

SOURCES = ["a b c d e", "f g h i j"]
REFERENCES = ["A B C D E", "F G H I J"]


SAID = ["A B C D E", ""]


def evaluation(attention=True, **options):
    """Of a translator that says this."""
    rest = np.eye(5) * attention, False, np.zeros(5)
    translations = [
        kl.Translation(text, -1.0, reference.split(), source.split(), *rest)
        for text, source, reference in zip(SAID, SOURCES, REFERENCES, strict=True)
    ]
    translator = SimpleNamespace(translate=lambda texts, batch_size: translations)
    return TranslationEvaluation(translator, SOURCES, REFERENCES, **options)


def test_scores_prints_and_draws(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    draw, drawn = validation.save_attention, []
    both = lambda *x: (drawn.append(x), draw(*x))  # noqa: E731
    monkeypatch.setattr(validation, "save_attention", both)
    logs, pictures = {}, tmp_path / "p"
    evaluation(samples=1, pictures=pictures).on_epoch_end(4, logs)
    scores = bleu(SAID, REFERENCES).score, chrf(SAID, REFERENCES).score
    assert logs == dict(zip(("val_bleu", "val_chrf"), scores, strict=True))
    printed = capsys.readouterr().out
    assert "a b c d e" in printed and "A B C D E" in printed
    assert "f g h i j" not in printed
    assert [*pictures.iterdir()] == [pictures / "epoch-05.png"] == [drawn[0][0]]
    assert drawn[0][-1] == "validation sentence 1 after epoch 5"


@pytest.mark.parametrize("picture", [True, False])
def test_tensorboard(tmp_path, picture):
    pytest.importorskip("matplotlib")
    backend = "tensorboard.backend.event_processing"
    accumulator = pytest.importorskip(f"{backend}.event_accumulator")
    pictures = tmp_path / "p" if picture else None
    evaluation(log_dir=tmp_path / "logs", pictures=pictures).on_epoch_end(2, {})
    events = accumulator.EventAccumulator(str(tmp_path / "logs"))
    tags = events.Reload().Tags()["tensors"]
    assert tags == ["translations", "attention"][: 1 + picture]
    assert events.Tensors("translations")[0].step == 2


@pytest.mark.parametrize("attention, matplotlib", [(True, False), (False, True)])
def test_no_picture(tmp_path, monkeypatch, attention, matplotlib):
    if not matplotlib:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    evaluation(attention, pictures=tmp_path).on_epoch_end(0, {})
    assert list(tmp_path.iterdir()) == []


def test_refuses_at_once():
    for texts, tokenize, message in (([], "13a", "at least one"), (["a"], "x", "toke")):
        with pytest.raises(ValueError, match=message):
            TranslationEvaluation(None, texts, texts, tokenize)


MONITORED = [
    ("val_token_accuracy", [1.0, 3.0, 2.0], (3.0, 1)),
    ("val_loss", [1.0, 3.0, 2.0], (1.0, 2)),
    ("val_perplexity", [2.0, 2.0], (2.0, 1)),  # a tie is no improvement
    ("val_loss", [None, 2.0, None], (2.0, 1)),
    ("val_bleu", [float("nan")], (None, 1)),
    ("val_loss", [None], (None, 1)),
    ("val_loss", [], (None, 0)),
]


@pytest.mark.parametrize("monitor, values, expected", MONITORED)
def test_the_best_epoch_so_far(monitor, values, expected):
    history = [{monitor: value} for value in values]
    without = metrics.epochs_without_progress(history, monitor)
    assert (metrics.best_so_far(history, monitor), without) == expected
    is_max = monitor in ("val_bleu", "val_token_accuracy")
    assert metrics.direction(monitor) == ("max" if is_max else "min")
    for value, best, better in (
        (1.0, 2.0, not is_max),
        (2.0, 2.0, False),
        (None, 2.0, False),
        (1.0, None, True),
    ):
        assert metrics.is_better(value, best, monitor) is better
