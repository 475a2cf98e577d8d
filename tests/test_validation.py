from __future__ import annotations

import sys

import keras
import numpy as np
import pytest
from small_training import small_data, small_model

from keras_luong.runs import validation
from keras_luong.runs.validation import TranslationEvaluation
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


class TestTranslationEvaluation:
    def test_scores_prints_and_draws(self, tmp_path, capsys):
        pytest.importorskip("matplotlib")
        evaluation = TranslationEvaluation(
            FakeTranslator(), SOURCES, REFERENCES, samples=1, pictures=tmp_path / "p"
        )
        logs = {}
        evaluation.on_epoch_end(4, logs)
        assert logs == {name: pytest.approx(100.0) for name in ("val_bleu", "val_chrf")}
        printed = capsys.readouterr().out
        assert "a b c d e" in printed and "A B C D E" in printed
        assert "f g h i j" not in printed
        assert [p.name for p in (tmp_path / "p").iterdir()] == ["epoch-05.png"]

    def test_callbacks_after_it_see_the_score(self):
        translator = FakeTranslator()
        evaluation = TranslationEvaluation(translator, SOURCES, REFERENCES)

        def worse_every_epoch(epoch, logs):
            translator.known = 2 - epoch

        model = small_model("sgd")
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

    def test_the_picture_says_what_it_is_of(self, tmp_path, monkeypatch):
        drawn = []
        monkeypatch.setattr(validation, "save_attention", lambda *x: drawn.append(x))
        TranslationEvaluation(
            FakeTranslator(), SOURCES, REFERENCES, pictures=tmp_path
        ).on_epoch_end(2, {})
        [(path, *_, title)] = drawn
        assert path == tmp_path / "epoch-03.png"
        assert title == "validation sentence 1 after epoch 3"

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
