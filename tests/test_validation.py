"""How good a training is after each epoch, and which of its epochs was the best."""

from __future__ import annotations

import sys

import keras
import numpy as np
import pytest

from keras_luong.runs import validation
from keras_luong.runs.validation import TranslationEvaluation
from keras_luong.training import metrics
from keras_luong.translation.batching import Translation

SOURCES = ["a b c d e", "f g h i j"]
REFERENCES = ["A B C D E", "F G H I J"]


class FakeTranslator:
    """Gets the first `known` sentences right."""

    def __init__(self, known=2, alignment=True):
        self.known, self.alignment = known, alignment

    def translate(self, texts, batch_size):
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


def evaluation(translator=None, **options):
    translator = translator or FakeTranslator()
    return TranslationEvaluation(translator, SOURCES, REFERENCES, **options)


def test_scores_prints_and_draws(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    draw, drawn = validation.save_attention, []
    monkeypatch.setattr(
        validation, "save_attention", lambda *x: (drawn.append(x), draw(*x))
    )
    logs, pictures = {}, tmp_path / "p"
    evaluation(samples=1, pictures=pictures).on_epoch_end(4, logs)
    assert logs == {name: pytest.approx(100.0) for name in ("val_bleu", "val_chrf")}
    printed = capsys.readouterr().out
    assert "a b c d e" in printed and "A B C D E" in printed
    assert "f g h i j" not in printed
    assert [*pictures.iterdir()] == [pictures / "epoch-05.png"] == [drawn[0][0]]
    assert drawn[0][-1] == "validation sentence 1 after epoch 5"


def test_callbacks_after_it_see_the_score():
    model = keras.Sequential([keras.Input([1]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    worse = FakeTranslator()
    callbacks = [
        keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: setattr(worse, "known", 2 - epoch)
        ),
        evaluation(worse),
        keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=1),
    ]
    data = np.ones([2, 1])
    history = model.fit(data, data, epochs=5, verbose=0, callbacks=callbacks).history
    first, second = history["val_bleu"]  # and then it stopped
    assert first == pytest.approx(100) and second < 99


@pytest.mark.parametrize("picture", [True, False])
def test_tensorboard(tmp_path, picture):
    pytest.importorskip("matplotlib")
    accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator"
    )
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
    translator = FakeTranslator(alignment=attention)
    evaluation(translator, pictures=tmp_path).on_epoch_end(0, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sources, references, tokenize, message",
    [
        ([], [], "13a", "at least one"),
        (["a"], ["a", "b"], "13a", "2 hypotheses, 1 references"),
        (["a"], ["a"], "x", "tokenize"),
    ],
)
def test_refuses_at_once(sources, references, tokenize, message):
    with pytest.raises(ValueError, match=message):
        TranslationEvaluation(FakeTranslator(), sources, references, tokenize)


@pytest.mark.parametrize(
    "monitor, values, expected",
    [
        ("val_bleu", [1.0, 3.0, 2.0], (3.0, 1)),
        ("val_token_accuracy", [1.0, 3.0, 2.0], (3.0, 1)),
        ("val_loss", [1.0, 3.0, 2.0], (1.0, 2)),
        ("val_perplexity", [2.0, 2.0], (2.0, 1)),  # a tie is no improvement
        ("val_loss", [None, 2.0, None], (2.0, 1)),
        ("val_bleu", [float("nan")], (None, 1)),
        ("val_loss", [None], (None, 1)),
        ("val_loss", [], (None, 0)),
    ],
)
def test_the_best_epoch_so_far(monitor, values, expected):
    history = [{monitor: value} for value in values]
    found = (
        metrics.best_so_far(history, monitor),
        metrics.epochs_without_progress(history, monitor),
    )
    assert found == expected
    is_max = monitor in ("val_bleu", "val_token_accuracy")
    assert metrics.direction(monitor) == ("max" if is_max else "min")
    assert metrics.is_better(1.0, 2.0, monitor) is not is_max
    assert (
        metrics.is_better(2.0, 2.0, monitor)
        is metrics.is_better(None, 2.0, monitor)
        is False
    )
    assert metrics.is_better(1.0, None, monitor) is True
