"""Trains a translator: the parts in the order in which they come, and `train`.

`examples/train_wmt.py` composes the same parts one by one.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from keras_luong.config.training import UNRECORDED, WITHOUT_SPACES, TrainingConfig
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.evaluation.bleu import bleu, check_tokenize
from keras_luong.evaluation.chrf import chrf
from keras_luong.files import json_number, write_json
from keras_luong.models.translation_model import TranslationModel, model_class
from keras_luong.runs.callbacks import training_callbacks
from keras_luong.runs.checkpoints import Checkpoints
from keras_luong.runs.directory import RunDirectory, read_history
from keras_luong.runs.epochs import FollowEpoch, fit
from keras_luong.runs.loading import load
from keras_luong.runs.lock import owned
from keras_luong.runs.record import (
    check_config,
    check_settings,
    read_record,
    write_record,
)
from keras_luong.runs.same_corpus import check_corpus, describe_corpus
from keras_luong.runs.step_callbacks import EpochBar
from keras_luong.runs.validation import TranslationEvaluation
from keras_luong.text.batches import evaluation_batches, training_batches
from keras_luong.text.corpus import Corpus, count, first_source, sentences
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.pair_counts import count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.batch_size import largest_batch_tokens
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.monitors import best_so_far
from keras_luong.training.optimizers import make_optimizer
from keras_luong.training.schedules import Schedule, make_schedule
from keras_luong.training.strategies import make_strategy, worker_index
from keras_luong.translation.translator import Translator


class Run(NamedTuple):
    """A training that has its directory to itself.

    Attributes:
        config: What is trained, and how.
        path: The run directory.
        corpus: What it is trained on.
        texts: What its record knows of the corpus's text.
        resuming: Whether there was a run to go on with.
    """

    config: TrainingConfig
    path: Path
    corpus: Corpus
    texts: dict[str, dict[str, Any]]
    resuming: bool


def train(config: TrainingConfig, run_dir: str | Path) -> dict[str, Any]:
    """Trains a translator, or goes on where its training stopped.

    Args:
        config: What is trained, on what, and how.
        run_dir: The run directory, a new one or that of a run of the same settings.

    Returns:
        What it writes to `results.json`: BLEU and perplexity of the held-out splits.

    Raises:
        ValueError, TypeError: Settings that cannot be, a spoilt corpus, or a directory
            with another run.
        OSError: Another process trains there, or the disk is full.
        KeyboardInterrupt: It was stopped, and is saved.

    Example:
        >>> config = TrainingConfig.from_preset("small", data="my/corpus", units=384)
        >>> results = train(config, "runs/mine")
    """
    strategy = make_strategy(config.strategy)  # before anything else of TensorFlow
    set_up(config)
    with opened(config, own_directory(run_dir, strategy)) as run:
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


def own_directory(run_dir: str | Path, strategy: tf.distribute.Strategy) -> Path:
    """The directory that this machine writes to: of several, each has its own."""
    worker = worker_index(strategy)
    return Path(run_dir) / "workers" / str(worker) if worker else Path(run_dir)


@contextlib.contextmanager
def opened(config: TrainingConfig, path: Path) -> Iterator[Run]:
    """Loads the corpus, and keeps other processes out of the run directory.

    Args:
        config: What is trained.
        path: The run directory.

    Yields:
        The `Run`.

    Raises:
        ValueError: The directory holds another run, or the corpus cannot be read or has
            nothing to validate by.
        OSError: Another process trains there, or it cannot be written to.
    """
    corpus = load_corpus(config.data, config.source, config.target)
    if "validation" not in corpus.splits:
        raise ValueError(
            f"{corpus.name} has no validation split, which training needs to tell good "
            f"weights from bad. Received splits: {corpus.splits}"
        )
    with owned(path):
        if RunDirectory(path).record.exists():
            config = config.as_begun(read_record(path)["settings"])
        free = config.free | {"data"}  # a corpus is its text, and not its name
        resuming = check_settings(path, config.settings(), free, config.implied)
        texts = describe_corpus(corpus, config.limit_examples)
        if resuming:
            check_corpus(path, config.data, texts)
            _tell_changes(config, path)
        elif config.batch_tokens == "auto" and config.strategy == "multiworker":
            raise ValueError(
                "Several machines must have batches of one size, which each would "
                "choose for itself; give a number. Received: batch_tokens='auto'"
            )
        try:
            yield Run(config, path, corpus, texts, resuming)
        except KeyboardInterrupt:
            print("\nStopped. The same command again goes on from here.")
            raise


def _tell_changes(config: TrainingConfig, path: Path) -> None:
    """Prints what will be trained or translated otherwise than before."""
    record = read_record(path)
    before = {**record["settings"], **record["search"]}  # which may have been tuned
    names = ["learning_rate", "clip_norm", "beam_width", "length_penalty"]
    if config.schedule == "cosine":  # which ends where they do
        names.append("epochs")
    for name in names:
        if before.get(name) != (now := getattr(config, name)):
            print(f"{name} was {before.get(name)}, and is {now} from here on.")


def get_tokenizers(run: Run) -> TokenizerPair:
    """Loads the run's tokenizers, or trains and saves them."""
    config, directory = run.config, RunDirectory(run.path).tokenizer
    if run.resuming:
        return TokenizerPair.load(directory)
    pairs, kind = training_pairs(run), config.tokenizer
    options = (
        {name: getattr(config, name) for name in UNRECORDED}
        if kind == "sentencepiece"
        else {}
    )
    tokenizers = TokenizerPair.train(
        pairs, kind, config.vocab_size, config.shared, **options
    )
    tokenizers.save(directory)
    return tokenizers


def training_pairs(run: Run) -> tf.data.Dataset:
    """The pairs to learn from."""
    return run.corpus.pairs("train").take(run.config.limit_examples or -1)


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
        SequenceCrossentropy(config.label_smoothing, r_drop=config.r_drop or 0.0),
        metrics=[perplexity, TokenAccuracy()],
        jit_compile=config.jit_compile,
    )
    return model, perplexity


def record(run: Run, tokenizers: TokenizerPair, model: TranslationModel) -> int:
    """Writes down what the run is: -> the tokens of a batch.

    The largest batch that fits is looked for once a run, and the pairs that are left
    out are counted once.
    """
    config, batch_tokens = run.config, run.config.batch_tokens
    if run.resuming:
        check_config(run.path, model.config)
    if batch_tokens == "auto" and run.resuming:
        batch_tokens = read_record(run.path)["settings"]["chosen_batch_tokens"]
    elif batch_tokens == "auto":
        batch_tokens = largest_batch_tokens(model, config.max_length)
    search = BeamSearch(
        config.beam_width, max_length=None, length_penalty=config.length_penalty
    )
    settings = {**config.settings(), "chosen_batch_tokens": batch_tokens}
    longest = longest_source(config, model)
    sample = first_source(run.corpus, "validation")
    train = {**run.texts["train"], **_counts(run, tokenizers, int(batch_tokens))}
    corpus = {**run.texts, "train": train}
    write_record(run.path, model, search, longest, settings, sample, corpus)
    return int(batch_tokens)


def _counts(run: Run, tokenizers: TokenizerPair, batch_tokens: int) -> dict[str, int]:
    """How many pairs are left out, and how many steps an epoch has.

    Raises:
        ValueError: If no pair is left.
    """
    known = read_record(run.path).get("corpus", {}) if run.resuming else {}
    if known:
        return {name: known["train"][name] for name in ("empty", "too_long", "steps")}
    most = run.config.max_length
    counts = count_pairs(
        training_pairs(run), tokenizers, most, run.config.subword_sampling
    )
    steps = counts.batches(batch_tokens)
    if not steps:
        raise ValueError(
            f"No pair is left to train on: {counts.empty:,} have an empty side, and "
            f"{counts.too_long:,} have more tokens than max_length={most}"
        )
    return {"empty": counts.empty, "too_long": counts.too_long, "steps": steps}


def longest_source(config: TrainingConfig, model: TranslationModel) -> int:
    """Longest source to translate: beyond those trained on, if the model can."""
    positions = getattr(model.config, "max_source_length", None)
    return positions - 1 if positions else 2 * config.max_length


def describe(
    run: Run,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    strategy: tf.distribute.Strategy,
) -> None:
    """Prints what is about to be trained, on what."""
    config, corpus = run.config, run.corpus
    known = read_record(run.path)
    counted = {split: text["pairs"] for split, text in known["corpus"].items()}
    others = {x: count(corpus.pairs(x)) for x in corpus.splits if x not in counted}
    sizes = {**counted, **others}
    pairs = ", ".join(f"{split} {size:,}" for split, size in sizes.items())
    languages = f"{config.source} → {config.target}"
    epochs = len(read_history(run.path))
    batch_tokens = known["settings"]["chosen_batch_tokens"]
    print(
        f"corpus       {corpus.name}, {languages}: {pairs} pairs\n"
        f"left out     {_left_out(config, known['corpus']['train'])}\n"
        f"vocabulary   {_vocabulary(config, tokenizers)}\n"
        f"model        {config.preset}: {model.count_params():,} parameters\n"
        f"hardware     {strategy.num_replicas_in_sync} replica(s), {config.precision}\n"
        f"batches      {batch_tokens:,} tokens\n"
        f"BLEU         sacrebleu's tokenisation {config.bleu_tokenize}"
        f"{_better_tokenisation(config)}\n"
        f"run          {run.path}" + f", going on after epoch {epochs}" * bool(epochs),
        flush=True,
    )


def _left_out(config: TrainingConfig, train: dict[str, Any]) -> str:
    """The pairs that are not trained on, and why."""
    empty, too_long = train["empty"], train["too_long"]
    if not empty + too_long:
        return f"none of {train['pairs']:,} training pairs"
    about = "about " if config.subword_sampling else ""  # lengths are drawn
    return (
        f"{about}{empty + too_long:,} of {train['pairs']:,} training pairs: {empty:,} "
        f"with an empty side, {too_long:,} of over {config.max_length} tokens"
    )


def _vocabulary(config: TrainingConfig, tokenizers: TokenizerPair) -> str:
    """The sizes, and whether they are smaller than was asked for."""
    source, target = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    sizes = f"{source:,} {config.source}, {target:,} {config.target}"
    sizes += " (shared)" * tokenizers.shared + f", {config.tokenizer}"
    if min(source, target) < config.vocab_size:
        sizes += f"; the text is too small for all {config.vocab_size:,}"
    return sizes


def _better_tokenisation(config: TrainingConfig) -> str:
    """What to install for the language's own tokenisation, if it is not there."""
    code = config.target[:2].lower()
    own, _ = WITHOUT_SPACES.get(code, ("", None))
    if config.bleu_tokenize != "char" or own in ("", "zh"):
        return ""
    return f' ({own} after pip install "sacrebleu[{code}]")'


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
    history = read_history(run.path)
    if config.early_stopping and history:
        best, stale = best_so_far(history, config.monitor)
        if stale >= config.early_stopping:
            print(f"Training stopped early before, {config.monitor} {best:.4g}.")
            return
    checkpoints = Checkpoints(run.path, config.save_steps)
    started_at = checkpoints.restore(model)
    follow = FollowEpoch(started_at)
    validation = validation_callback(run, tokenizers, model)
    steps = read_record(run.path)["corpus"]["train"]["steps"]
    sizes = {"batch_tokens": batch_tokens, "max_length": config.max_length}
    pairs = training_pairs(run)
    if len(history) < config.epochs:  # what is known is of other weights
        RunDirectory(run.path).results.unlink(missing_ok=True)
    fit(
        model,
        follow.batches(
            lambda seed: training_batches(
                pairs,
                tokenizers,
                seed=seed,
                subword_sampling=config.subword_sampling,
                **sizes,
            ),
            seed=config.seed,
        ),
        config.epochs,
        checkpoints,
        validation_data=evaluation_batches(
            run.corpus.pairs("validation"), tokenizers, **sizes
        ),
        shuffle=False,  # the data shuffles itself
        callbacks=training_callbacks(
            run.path,
            perplexity,
            first=[follow, *schedule.callbacks, validation],
            moving_average=config.ema_momentum > 0,
            last=[checkpoints, EpochBar(steps, started_at)],
            monitor=config.monitor,
            early_stopping=config.early_stopping,
            keep_epochs=config.keep_epochs,
        ),
        verbose="auto" if sys.stdout.isatty() else 2,
    )


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
    score, by_letters = (
        bleu(texts, references, config.bleu_tokenize),
        chrf(texts, references),
    )
    pairs, tokenizers = run.corpus.pairs(split), translator.tokenizers
    batches = evaluation_batches(pairs, tokenizers, batch_tokens, config.max_length)
    model: Any = translator.model
    search: Any = translator.search
    logs = model.evaluate(batches, verbose=0, return_dict=True)
    print(f"{split:12} {score}, perplexity {logs['perplexity']:.2f}")
    print(f"{'':12} {by_letters}", flush=True)
    return {
        "sentences": len(sources),
        "bleu": score.score,
        "signature": score.signature,
        "chrf": by_letters.score,
        "chrf_signature": by_letters.signature,
        "perplexity": json_number(logs["perplexity"]),
        "beam_width": search.beam_width,
        "length_penalty": search.length_penalty,
    }
