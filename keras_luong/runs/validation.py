"""How good a run's translations are, after every epoch and at the end.

Validation sentences are translated after every epoch: scores, samples, a picture. At
the end the best weights translate all held-out splits by beam search.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import keras
import numpy as np
import tensorflow as tf

from keras_luong.config.training import TrainingConfig
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.evaluation.plots import save_attention
from keras_luong.evaluation.report import visible
from keras_luong.evaluation.scores import bleu, chrf
from keras_luong.files import json_number, write_json
from keras_luong.runs.load_save import load
from keras_luong.runs.opening import Run
from keras_luong.runs.run import RunDirectory
from keras_luong.text.batches import evaluation_batches
from keras_luong.text.corpus import sentences
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity
from keras_luong.translation.translator import Translator
from keras_luong.types import Logs

SAMPLES = 5  # translations to show at the end
BATCH = 128  # sentences that are translated at once, greedily


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
        # 1. Scores.
        translations = self.translator.translate(self.sources, BATCH)
        texts = [translation.text for translation in translations]
        if logs is not None:
            logs["val_bleu"] = bleu(texts, self.references, self.tokenize).score
            logs["val_chrf"] = chrf(texts, self.references).score
        # 2. Samples.
        shown = range(min(self.samples, len(texts)))
        sample = written_out(self.sources, texts, self.references, shown)
        print(f"\n{sample}", flush=True)  # the progress bar has not ended its line
        # 3. A picture of the first one's attention, if there is any.
        picture, first = None, translations[0]
        if self.pictures is not None and np.any(first.alignment):
            picture = Path(self.pictures) / f"epoch-{epoch + 1:02d}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            title = f"validation sentence 1 after epoch {epoch + 1}"
            words = first.source_tokens, first.tokens
            try:
                save_attention(picture, first.alignment, *words, title)
            except ImportError:  # pictures are an extra; training goes on without it
                picture = None
        # 4. For TensorBoard.
        if self.log_dir is not None:
            writer = tf.summary.create_file_writer(str(self.log_dir))
            with writer.as_default(step=epoch):
                tf.summary.text("translations", f"```\n{sample}\n```")
                if picture is not None:
                    png = tf.io.read_file(str(picture))
                    image = tf.io.decode_png(png, channels=3)
                    tf.summary.image("attention", image[None])
            writer.close()


def validation_callback(
    run: Run, tokenizers: TokenizerPair, model: keras.Model
) -> TranslationEvaluation:
    """The callback that translates a run's validation sentences after each epoch.

    Args:
        run: The run, whose record is written.
        tokenizers: Its tokenizers.
        model: The very model that is trained.
    """
    directory, longest = RunDirectory(run.path), run.read_record()["max_source_length"]
    greedy = Translator(model, tokenizers, GreedySearch(None), longest)
    return TranslationEvaluation(
        greedy,
        *sentences(run.corpus, "validation", run.config.eval_sentences),
        tokenize=run.config.bleu_tokenize,
        log_dir=directory.logs / "validation",
        pictures=directory.pictures,
    )


def final_search(
    config: TrainingConfig, early_stopping: bool | str = "first"
) -> BeamSearch:
    """The search of the final evaluation, by which a run translates.

    Args:
        config: The run's settings.
        early_stopping: When it ends; "first" is as good as exact, and faster: see
            docs/search.md.
    """
    return BeamSearch(
        config.beam_width,
        max_length=None,
        length_penalty=config.length_penalty,
        early_stopping=early_stopping,
    )


def evaluate(run: Run) -> dict[str, Any]:
    """Translates the held-out splits by beam search with the best weights.

    Args:
        run: A run that has been trained.

    Returns:
        Split → sentences, BLEU with its signature, perplexity, and the search; as it
        writes it to `results.json`.
    """
    translator = load(run.path)
    model: Any = translator.model
    model.compile(loss=SequenceCrossentropy(), metrics=[Perplexity()])
    splits = [split for split in run.corpus.splits if split != "train"]
    results = {split: _evaluate_split(run, translator, split) for split in splits}
    write_json(RunDirectory(run.path).results, results)
    return results


def _evaluate_split(run: Run, translator: Translator, split: str) -> dict[str, Any]:
    config, search = run.config, cast(BeamSearch, translator.search)
    # 1. Translations, and their scores.
    sources, references = sentences(run.corpus, split)
    translations = translator.translate(sources, progress=True)
    texts = [translation.text for translation in translations]
    score = bleu(texts, references, config.bleu_tokenize)
    by_letters = chrf(texts, references)
    # 2. The perplexity of the references.
    batch_tokens = run.read_record()["settings"]["chosen_batch_tokens"]
    pairs, tokenizers = run.corpus.pairs(split), translator.tokenizers
    batches = evaluation_batches(pairs, tokenizers, batch_tokens, config.max_length)
    model: Any = translator.model
    logs = model.evaluate(batches, verbose=0, return_dict=True)
    # 3. What people read, and what is written down.
    print(f"{split:12} {score}, perplexity {logs['perplexity']:.2f}")
    print(f"{'':12} {by_letters}", flush=True)
    if split == "validation":
        shown = range(0, len(texts), max(1, len(texts) // SAMPLES))[:SAMPLES]
        print(written_out(sources, texts, references, shown), flush=True)
    return {
        "sentences": len(sources),
        "bleu": score.score,
        "signature": score.signature,
        "chrf": by_letters.score,
        "chrf_signature": by_letters.signature,
        "perplexity": json_number(logs["perplexity"]),
        "beam_width": search.beam_width,
        "length_penalty": search.length_penalty,
        "early_stopping": search.early_stopping,
    }


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
