"""Validation sentences, translated after every epoch: scores, samples, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_luong.evaluation.plots import save_attention
from keras_luong.evaluation.report import visible
from keras_luong.evaluation.scores import bleu, chrf
from keras_luong.translation.batching import Translation
from keras_luong.translation.translator import Translator
from keras_luong.types import Logs


class TranslationEvaluation(keras.callbacks.Callback):
    """Translates validation sentences after each epoch, and scores them.

    Puts `val_bleu` and `val_chrf` into the logs, for callbacks that come after it in
    the list (`EarlyStopping`, `ModelCheckpoint`, `TensorBoard`). Prints the first
    translations, and draws the attention of the first one, if the model has attention
    and matplotlib is installed.

    Args:
        translator: A translator that holds the very model that is trained.
        sources: Source sentences.
        references: Their translations.
        tokenize: sacrebleu's tokenisation, see `bleu`.
        samples: How many translations to print.
        log_dir: Directory of TensorBoard's events; None for none.
        pictures: Directory of the pictures, `epoch-01.png` and so on; None for none.

    Raises:
        ValueError: If there are no sentences, or not as many sources as references.

    Example:
        >>> from keras_luong.runs.validation import TranslationEvaluation
        >>> evaluation = TranslationEvaluation(
        ...     kl.load("runs/mine"), ["the dog"], ["der Hund"], samples=0
        ... )
        >>> logs = {}
        >>> evaluation.on_epoch_end(0, logs)  # in `fit` the callback does
        >>> sorted(logs)
        ['val_bleu', 'val_chrf']
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
    ) -> None:
        super().__init__()
        bleu(references, sources, tokenize)  # fails now rather than after an epoch
        self.translator = translator
        self.sources = list(sources)
        self.references = list(references)
        self.tokenize = tokenize
        self.samples = samples
        self.log_dir = log_dir
        self.pictures = pictures

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Translates, scores, prints, draws."""
        translations = self.translator.translate(self.sources)
        texts = [translation.text for translation in translations]
        if logs is not None:
            logs["val_bleu"] = bleu(texts, self.references, self.tokenize).score
            logs["val_chrf"] = chrf(texts, self.references).score
        sample = self._sample(translations)
        print(f"\n{sample}", flush=True)  # the progress bar has not ended its line
        picture = self._draw(epoch, translations[0])
        self._to_tensorboard(epoch, sample, picture)

    def _sample(self, translations: list[Translation]) -> str:
        texts = [translation.text for translation in translations]
        shown = range(min(self.samples, len(texts)))
        return written_out(self.sources, texts, self.references, shown)

    def _draw(self, epoch: int, translation: Translation) -> Path | None:
        if self.pictures is None or not np.any(translation.alignment):
            return None  # no attention, or an empty sentence
        path = Path(self.pictures) / f"epoch-{epoch + 1:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_attention(
                path,
                translation.alignment,
                translation.source_tokens,
                translation.tokens,
                f"validation sentence 1 after epoch {epoch + 1}",
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


def written_out(
    sources: Sequence[str],
    translations: Sequence[str],
    references: Sequence[str],
    shown: Sequence[int],
) -> str:
    """Returns some translations with their sources and references, to be read.

    Args:
        sources: The sources.
        translations: Their translations.
        references: What they should be.
        shown: The indices of those to write.
    """
    return "\n".join(
        f"  source       {visible(sources[index])}\n"
        f"  translation  {visible(translations[index])}\n"
        f"  reference    {visible(references[index])}"
        for index in shown
    )
