"""Trains a translator: the parts in the order in which they come, and `train`.

`examples/train_wmt.py` composes the same parts one by one.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import UNRECORDED, TrainingConfig
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.evaluation.scores import bleu, check_tokenize, chrf
from keras_luong.files import json_number, write_json
from keras_luong.models.growing import freeze
from keras_luong.models.translation_model import TranslationModel, model_class
from keras_luong.progress import telling
from keras_luong.runs.callbacks import EpochBar, training_callbacks
from keras_luong.runs.checkpoints import Checkpoints, check_history
from keras_luong.runs.description import chosen_for, count_texts, describe
from keras_luong.runs.epochs import FollowEpoch, fit
from keras_luong.runs.load_save import load
from keras_luong.runs.run import (
    RunDirectory,
    check_config,
    read_history,
    write_record,
)
from keras_luong.runs.start import (
    Run,
    describe_start,
    give_weights,
    opened,
    own_directory,
    taken_tokenizers,
    text_of,
    with_tags,
)
from keras_luong.runs.validation import TranslationEvaluation, written_out
from keras_luong.text.batches import EpochShape, evaluation_batches, training_batches
from keras_luong.text.corpus import first_source, sentences
from keras_luong.text.tags import remove_tags, tags_in
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import (
    Perplexity,
    TokenAccuracy,
    best_so_far,
    epochs_without_progress,
)
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.schedules import Schedule, make_schedule
from keras_luong.training.strategies import make_strategy, together
from keras_luong.translation.translator import Translator

SAMPLES = 5  # translations to show at the end


def train(config: TrainingConfig | AutoTraining, run_dir: str | Path) -> dict[str, Any]:
    """Trains a translator, or goes on where its training stopped.

    Args:
        config: What is trained, on what, and how; of an `AutoTraining` the corpus
            decides what is not given.
        run_dir: The run directory, a new one or that of a run of the same settings.

    Returns:
        What it writes to `results.json`: BLEU and perplexity of the held-out splits.

    Raises:
        ValueError, TypeError: Settings that cannot be, a spoilt corpus, or a directory
            with another run.
        OSError: Another process trains there, or the disk is full.
        RuntimeError: Another of several machines was lost.
        KeyboardInterrupt: It was stopped, and is saved.

    Example:
        >>> from keras_luong.config.training import TrainingConfig
        >>> from keras_luong.runs.train import train
        >>> config = TrainingConfig.from_preset(
        ...     "small", data="my/corpus", tokenizer="word", units=8, epochs=1
        ... )
        >>> results = train(config, "runs/new")
        corpus       corpus, en → de: train 3, validation 2, test 1 pairs
        ...
        >>> sorted(results)
        ['test', 'validation']
    """
    strategy = make_strategy(config.strategy)  # before anything else of TensorFlow
    path, corpus = own_directory(run_dir, strategy), None
    if isinstance(config, AutoTraining):
        config, corpus = chosen_for(config, path)
    set_up(config)
    with opened(config, path, corpus) as run, together(strategy):
        tokenizers = get_tokenizers(run)
        schedule = schedule_of(run)
        with strategy.scope():
            model, perplexity = compiled_model(config, tokenizers, schedule)
        batch_tokens = record(run, tokenizers, model)
        describe(run, tokenizers, model, strategy)
        fit_model(run, tokenizers, model, perplexity, schedule, batch_tokens)
        return evaluate(run, batch_tokens)


def set_up(config: TrainingConfig) -> None:
    """Checks what would fail hours later; sets the process's seed and precision.

    Args:
        config: What is trained.

    Raises:
        TypeError, ValueError: sacrebleu has no such tokenisation, or the preset's model
            cannot be had so.
    """
    check_tokenize("bleu_tokenize", config.bleu_tokenize)
    model_class(config.preset).check(config.model_config(*[config.vocab_size] * 2))
    # Epochs end when their data does; Keras would rather know beforehand.
    warnings.filterwarnings("ignore", message="Your input ran out of data")
    keras.utils.set_random_seed(config.seed)
    keras.config.set_dtype_policy(config.precision)


def get_tokenizers(run: Run) -> TokenizerPair:
    """Loads the run's tokenizers, or trains and saves them."""
    config, directory = run.config, RunDirectory(run.path).tokenizer
    if run.resuming:
        return TokenizerPair.load(directory, run.path)
    pairs = text_of(config, run.training_pairs)
    tags = tags_in(pairs)
    text = remove_tags(pairs, tags)
    if config.init_from is not None:
        tokenizers = taken_tokenizers(config, text)
    else:
        tokenizers = train_tokenizers(config, text)
    tokenizers = with_tags(tokenizers, config, tags)
    tokenizers.save(directory)
    return tokenizers


@telling("Learning the vocabulary")
def train_tokenizers(config: TrainingConfig, text: tf.data.Dataset) -> TokenizerPair:
    """Trains the tokenizers on the run's text, which is without tags here."""
    kind = config.tokenizer
    options = (
        {name: getattr(config, name) for name in UNRECORDED}
        if kind == "sentencepiece"
        else {}
    )
    return TokenizerPair.train(text, kind, config.vocab_size, config.shared, **options)


def schedule_of(run: Run) -> Schedule:
    """What becomes of the learning rate."""
    config = run.config
    return make_schedule(
        config.schedule,
        float(config.learning_rate or 0),  # TrainingConfig has filled it in
        epochs=config.epochs,
        constant_epochs=config.constant_epochs,
        warmup_steps=config.warmup_steps,
        patience=config.patience,
        monitor=config.monitor,
        history=lambda: read_history(run.path),
    )


def compiled_model(
    config: TrainingConfig, tokenizers: TokenizerPair, schedule: Schedule
) -> tuple[TranslationModel, Perplexity]:
    """The model, ready to be trained, and its metric that counts tokens."""
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    model = model_class(config.preset)(config.model_config(*sizes))
    freeze(model, config.freeze or ())
    perplexity = Perplexity()
    optimizer = make_optimizer(
        config.optimizer,
        schedule.learning_rate,
        config.clip_norm,
        loss_scaling=config.precision == "mixed_float16",
        gradient_accumulation_steps=config.gradient_accumulation_steps,
        ema_momentum=config.ema_momentum,
        weight_decay=config.weight_decay,
        beta_2=config.beta_2,
    )
    model.compile(
        optimizer,
        SequenceCrossentropy(config.label_smoothing),
        metrics=[perplexity, TokenAccuracy()],
        jit_compile=config.jit_compile,
    )
    return model, perplexity


def record(run: Run, tokenizers: TokenizerPair, model: TranslationModel) -> int:
    """Writes down what the run is: -> the tokens of a batch.

    A new run has by then what it starts from, and whatever refuses it has come before.
    The largest batch that fits is looked for once a run, and the pairs that are left
    out are counted once.
    """
    config, batch_tokens = run.config, run.config.batch_tokens
    early_stopping: Any = "first"  # as good as exact, and faster: see docs/search.md
    if run.resuming:
        check_config(run.path, model.config)
        check_history(run.path)
        before = run.read_record()
        early_stopping = before["search"].get("early_stopping", True)
        if batch_tokens == "auto":
            batch_tokens = before["settings"]["chosen_batch_tokens"]
    elif batch_tokens == "auto":
        batch_tokens = largest_batch_tokens(model, config.max_length)
    search = BeamSearch(
        config.beam_width,
        max_length=None,
        length_penalty=config.length_penalty,
        early_stopping=early_stopping,
    )
    settings = {**config.settings(), "chosen_batch_tokens": batch_tokens}
    longest = longest_source(config, model)
    sample = first_source(run.corpus, "validation")
    corpus = count_texts(run, tokenizers, int(batch_tokens))
    start = start_of(run)
    if start and not run.resuming:
        give_weights(model, tokenizers, str(config.init_from), start)
    write_record(run.path, model, search, longest, settings, sample, corpus, start)
    return int(batch_tokens)


def start_of(run: Run) -> dict[str, Any] | None:
    """What is known of the run that this one starts from, or started from."""
    if run.resuming:
        return run.read_record().get("came_from")
    start = run.config.init_from
    return None if start is None else describe_start(start)


def longest_source(config: TrainingConfig, model: TranslationModel) -> int:
    """Longest source to translate: beyond those trained on, if the model can."""
    positions = getattr(model.config, "max_source_length", None)
    return positions - 1 if positions else 2 * config.max_length


def fit_model(
    run: Run,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    perplexity: Perplexity,
    schedule: Schedule,
    batch_tokens: int,
) -> None:
    """Runs `model.fit`, from where the run directory says that it was."""
    config = run.config
    checkpoints = Checkpoints(run.path, config.save_steps)
    start = run.read_record().get("came_from")
    if start and run.resuming and not checkpoints.exist():
        give_weights(model, tokenizers, str(config.init_from), start)
    started_at = checkpoints.restore(model)
    # What is known of later epochs is of weights that are trained again. All machines
    # have this checkpoint, so that all stop here or none.
    history = [x for x in read_history(run.path) if x["epoch"] <= started_at[0]]
    if stopped_early(config, history):
        return
    if run.resuming:
        _tell_position(*started_at)
    if len(history) < config.epochs:  # what is known is of other weights
        RunDirectory(run.path).results.unlink(missing_ok=True)
    batches = _counted(run)["steps"] * config.gradient_accumulation_steps
    follow = FollowEpoch(started_at)
    sizes = {"batch_tokens": batch_tokens, "max_length": config.max_length}
    fit(
        model,
        _batches(run, tokenizers, follow, sizes),
        config.epochs,
        checkpoints,
        validation_data=evaluation_batches(
            run.corpus.pairs("validation"), tokenizers, **sizes
        ),
        shuffle=False,  # the data shuffles itself
        callbacks=training_callbacks(
            run.path,
            perplexity,
            first=[
                # At an epoch's end, before anything else is written.
                keras.callbacks.LambdaCallback(on_test_begin=checkpoints.check_place),
                follow,
                *schedule.callbacks,
                validation_callback(run, tokenizers, model),
            ],
            moving_average=config.ema_momentum > 0,
            last=[checkpoints, EpochBar(batches, started_at)],
            monitor=config.monitor,
            early_stopping=config.early_stopping,
            keep_epochs=config.keep_epochs,
        ),
        verbose="auto" if sys.stdout.isatty() else 2,
    )


def _batches(
    run: Run, tokenizers: TokenizerPair, follow: FollowEpoch, sizes: dict[str, int]
) -> tf.data.Dataset:
    """What is trained on in the epoch that `follow` is at."""
    counted = _counted(run)
    shape = EpochShape(counted.get("passes", 1), counted.get("parts", 1))
    pairs = run.training_pairs

    def of_epoch(epoch: tf.Tensor) -> tf.data.Dataset:
        return training_batches(
            shape.of_epoch(pairs, epoch),
            tokenizers,
            seed=epoch,
            subword_sampling=run.config.subword_sampling,
            gradient_accumulation_steps=run.config.gradient_accumulation_steps,
            **sizes,
        )

    return follow.batches(of_epoch, seed=run.config.seed)


def _counted(run: Run) -> dict[str, Any]:
    """What was counted of the texts to train on."""
    return run.read_record()["corpus"]["train"]


def _tell_position(epoch: int, step: int) -> None:
    """Says where a training goes on that was begun before."""
    if step:
        print(f"Going on from step {step:,} of epoch {epoch + 1}.")
    elif epoch:
        print(f"Going on after epoch {epoch}.")
    else:
        print("Going on from the beginning: nothing was saved yet.")


def stopped_early(config: TrainingConfig, history: Any) -> bool:
    """Whether the run was over already by its `early_stopping`; says so."""
    if not (config.early_stopping and history):
        return False
    stale = epochs_without_progress(history, config.monitor)
    over = stale >= config.early_stopping
    if over:
        best = best_so_far(history, config.monitor)
        print(f"Training stopped early before, {config.monitor} {best:.4g}.")
    return over


def validation_callback(
    run: Run, tokenizers: TokenizerPair, model: TranslationModel
) -> TranslationEvaluation:
    """The callback that translates validation sentences after each epoch."""
    config, directory = run.config, RunDirectory(run.path)
    greedy = Translator(
        model,
        tokenizers,
        GreedySearch(None),
        max_source_length=longest_source(config, model),
    )
    return TranslationEvaluation(
        greedy,
        *sentences(run.corpus, "validation", config.eval_sentences),
        tokenize=config.bleu_tokenize,
        log_dir=directory.logs / "validation",
        pictures=directory.pictures,
    )


def evaluate(run: Run, batch_tokens: int) -> dict[str, Any]:
    """Translates the held-out splits by beam search with the best weights.

    Args:
        run: A run that has been trained.
        batch_tokens: Tokens of a batch.

    Returns:
        Split → sentences, BLEU with its signature, perplexity, and the search; as it
        writes it to `results.json`.
    """
    translator = load(run.path)
    model: Any = translator.model
    model.compile(loss=SequenceCrossentropy(), metrics=[Perplexity()])
    splits = [split for split in run.corpus.splits if split != "train"]
    results = {
        split: _evaluate_split(run, translator, split, batch_tokens) for split in splits
    }
    write_json(RunDirectory(run.path).results, results)
    return results


def _evaluate_split(
    run: Run, translator: Translator, split: str, batch_tokens: int
) -> dict[str, Any]:
    config = run.config
    sources, references = sentences(run.corpus, split)
    translations = translator.translate(sources, progress=True)
    texts = [translation.text for translation in translations]
    score = bleu(texts, references, config.bleu_tokenize)
    by_letters = chrf(texts, references)
    pairs, tokenizers = run.corpus.pairs(split), translator.tokenizers
    batches = evaluation_batches(pairs, tokenizers, batch_tokens, config.max_length)
    model: Any = translator.model
    search: Any = translator.search
    logs = model.evaluate(batches, verbose=0, return_dict=True)
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
