"""What is said of a training at its start, and what of its text is left out."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_luong.config.training import (
    OWN_TOKENISATIONS,
    TrainingConfig,
    language_code,
)
from keras_luong.models.translation_model import TranslationModel
from keras_luong.progress import telling
from keras_luong.runs.directory import read_history
from keras_luong.runs.doubts import USUAL_EPOCHS, doubts
from keras_luong.runs.opening import Run
from keras_luong.runs.starting_point import learned_before, text_of
from keras_luong.text.corpus import count, notes
from keras_luong.text.epoch_shape import epoch_shape
from keras_luong.text.overlap import overlaps
from keras_luong.text.pair_counts import LEFT_OUT, count_pairs
from keras_luong.text.tags import count_tags, tags_of, token
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.step_time import estimated_seconds, in_words


@telling("Counting tokens and repeated pairs")
def count_texts(
    run: Run, tokenizers: TokenizerPair, batch_tokens: int
) -> dict[str, dict[str, Any]]:
    """Counts what of the run's text is left out; once a run, for its record.

    Args:
        run: The run.
        tokenizers: Its tokenizers.
        batch_tokens: Tokens of a batch.

    Returns:
        Split → what `run.texts` says of it, and what was counted.

    Raises:
        ValueError: If no pair is left to train on.
    """
    known = run.read_record().get("corpus") if run.resuming else None
    if known and all(known[split].keys() > set(LEFT_OUT) for split in run.texts):
        return known
    most, sampling = run.config.max_length, run.config.subword_sampling
    train = count_pairs(run.training_pairs, tokenizers, most, sampling)
    validation = count_pairs(run.corpus.pairs("validation"), tokenizers, most)
    if not (batches := train.full_batches(batch_tokens)):
        raise ValueError(
            f"No pair is left to train on: {train.empty:,} have an empty side, and "
            f"{train.too_long:,} have more tokens than max_length={most}"
        )
    together = run.config.gradient_accumulation_steps
    shape = epoch_shape(batches / together, run.config.steps_per_epoch)
    steps = math.ceil(train.batches(batch_tokens, shape) / together)
    counted = {
        **train.left_out,
        **train.tokens,
        "steps": steps,
        **shape._asdict(),
        **_known(run),
        "unknown_tags": _unknown_tags(run, tokenizers),
    }
    return {
        "train": {**run.texts["train"], **counted},
        "validation": {**run.texts["validation"], **validation.left_out},
    }


def _known(run: Run) -> dict[str, Any]:
    """What of the other splits is known: counts by split; and if all was compared."""
    try:
        learned, compared = learned_before(run.config), True
    except (OSError, ValueError):
        learned, compared = [], False
    found = overlaps(run.corpus, run.config.limit_examples, learned).items()
    counts = {
        split: (x.pairs, x.size, x.sources, x.validated)
        for split, x in found
        if x.sources or x.validated
    }
    return {"in_splits": counts, "start_compared": compared}


def _unknown_tags(run: Run, tokenizers: TokenizerPair) -> dict[str, int]:
    """What looks like a tag in front of some sources and is no token: how many."""
    tags, _ = count_tags(text_of(run.config, run.training_pairs))
    known = tags_of(tokenizers.source)
    return {tag: number for tag, number in tags.items() if tag not in known}


def describe(
    run: Run,
    tokenizers: TokenizerPair,
    model: TranslationModel,
    strategy: tf.distribute.Strategy,
) -> None:
    """Prints what is about to be trained, on what.

    Args:
        run: The run, whose record is written.
        tokenizers: Its tokenizers.
        model: Its model.
        strategy: What it is trained with.
    """
    config, record = run.config, run.read_record()
    done = len(read_history(run.path)) if run.resuming else 0
    train = record["corpus"]["train"]
    batch_tokens = record["settings"]["chosen_batch_tokens"]
    said = {
        "corpus": _corpus(run, record["corpus"]),
        **notes(run.corpus),
        "left out": _left_out(config, train),
        "cut": _cut(config, record["corpus"]["validation"]),
        "vocabulary": _vocabulary(config, tokenizers),
        "tags": ", ".join(map(token, tags_of(tokenizers.source))),
        "unknown": _unknown(config, train),
        "start": _start(record),
        "model": f"{config.preset}: {model.count_params():,} parameters"
        f"{_frozen(config, model)}",
        "hardware": f"{strategy.num_replicas_in_sync} replica(s), {config.precision}",
        "batches": f"{batch_tokens:,} tokens",
        "epochs": _epochs(config, train),
        "time": _time(config, train, model, strategy.num_replicas_in_sync, done),
        "BLEU": f"sacrebleu's tokenisation {config.bleu_tokenize}"
        f"{_better_tokenisation(config)}",
        "run": f"{run.path}",
    }
    print("\n".join(f"{name:12} {text}" for name, text in said.items() if text))
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size
    *_, epochs = _epochs_left(config, done)
    replicas = strategy.num_replicas_in_sync
    seconds = epochs * (_seconds(train, model, replicas) or 0)
    for doubt in doubts(run, sizes, train, seconds):
        print(f"note: {doubt}.")
    sys.stdout.flush()


def _corpus(run: Run, counted: Mapping[str, Mapping[str, Any]]) -> str:
    """Its name, its languages, and how large its splits are."""
    corpus = run.corpus
    sizes = {
        split: counted[split]["pairs"]
        if split in counted
        else count(corpus.pairs(split))
        for split in corpus.splits
    }
    pairs = ", ".join(f"{split} {size:,}" for split, size in sizes.items())
    return f"{corpus.name}, {run.config.source} → {run.config.target}: {pairs} pairs"


def _epochs(config: TrainingConfig, train: Mapping[str, Any]) -> str:
    """How long an epoch is, and what ends the training."""
    passes, parts = train.get("passes", 1), train.get("parts", 1)
    of_data = f"{passes} passes over the data"
    if passes == 1:
        of_data = "a pass over the data" if parts == 1 else f"1/{parts} of the data"
    end = f"at most {config.epochs}" if config.early_stopping else f"{config.epochs}"
    text = f"{end}, each {of_data}, {train['steps']:,} steps"
    if (together := config.gradient_accumulation_steps) > 1:
        text += f" of {together} batches"
    if config.early_stopping:
        better = f"{config.min_delta:g} more of" if config.min_delta else "a better"
        text += f"; the end is {config.early_stopping} without {better} "
        text += config.monitor
    return text


def _time(
    config: TrainingConfig,
    train: Mapping[str, Any],
    model: TranslationModel,
    replicas: int,
    done: int,
) -> str:
    """How long it will take, by the sizes alone; an epoch's bar knows better soon.

    Of a run that goes on after `done` epochs, what is left of it.
    """
    seconds = _seconds(train, model, replicas)
    if seconds is None:
        return ""  # of a run that was begun before tokens were counted
    few, many = _epochs_left(config, done)
    text = f"about {in_words(seconds)} an epoch on this machine, and the validation"
    more = " more" if done else ""
    if not config.early_stopping:
        every = f"{many} more" if done else f"all {many}"
        return f"{text}; {in_words(many * seconds)} for {every}"
    if not many:
        return text  # it takes longer than is usual
    if few in (0, many):
        to = "up to " if few != many else ""
        return f"{text}; {to}{in_words(many * seconds)} for {many}{more}"
    hours = f"{in_words(few * seconds)} to {in_words(many * seconds)}"
    return f"{text}; {hours} for {few} to {many}{more}, which is usual"


def _seconds(
    train: Mapping[str, Any], model: TranslationModel, replicas: int
) -> float | None:
    """How long an epoch takes, about; None if its tokens were not counted."""
    a_pass = max(train.get("source_tokens", 0), train.get("target_tokens", 0))
    tokens = a_pass * train.get("passes", 1) / train.get("parts", 1)
    if not tokens:
        return None
    return estimated_seconds(model.count_params(), int(tokens)) / replicas


def _epochs_left(config: TrainingConfig, done: int) -> tuple[int, int]:
    """How many more epochs there are at least and at most, of what is usual."""
    usual = USUAL_EPOCHS if config.early_stopping else (config.epochs, config.epochs)
    few, many = (max(0, min(x, config.epochs) - done) for x in usual)
    return few, many


def _start(record: Mapping[str, Any]) -> str:
    """The run that this one starts from."""
    if not (start := record.get("came_from")):
        return ""
    epochs = start["epochs"]
    after = f" after {epochs} epoch(s)" if epochs else ""
    text = start["corpus"]
    pairs = f", {text['train']['pairs']:,} pairs" if text else ""
    languages = " → ".join(filter(None, start.get("languages", ())))
    of = f", {languages}" if languages else ""
    on = f" on {start['data']}" if start["data"] else ""
    return f"best weights of {start['run']}{after}{on}{of}{pairs}"


def _frozen(config: TrainingConfig, model: TranslationModel) -> str:
    """How many of its parameters do not change."""
    if not config.freeze:
        return ""
    frozen = sum(math.prod(weight.shape) for weight in model.non_trainable_weights)
    return f", of which {frozen:,} are frozen ({', '.join(config.freeze)})"


def _left_out(config: TrainingConfig, train: Mapping[str, Any]) -> str:
    """The pairs that are not trained on, and why."""
    empty, too_long = train["empty"], train["too_long"]
    if not empty + too_long:
        return f"none of {train['pairs']:,} training pairs"
    about = "about " if config.subword_sampling else ""  # lengths are drawn
    return (
        f"{about}{empty + too_long:,} of {train['pairs']:,} training pairs: {empty:,} "
        f"with an empty side, {too_long:,} of over {config.max_length} tokens"
    )


def _cut(config: TrainingConfig, validation: Mapping[str, Any]) -> str:
    """The pairs of which val_loss sees the beginnings alone."""
    if not (number := validation["too_long"]):
        return ""
    return (
        f"{number:,} of {validation['pairs']:,} validation pairs: val_loss is of their "
        f"first {config.max_length} tokens, BLEU of whole references"
    )


def _unknown(config: TrainingConfig, train: Mapping[str, Any]) -> str:
    """How much of the text the vocabularies lack."""
    source, target = train["unknown_source"], train["unknown_target"]
    if not source + target:
        return ""
    return (
        f"{source:.2%} of the {config.source} tokens are <unk>, {target:.2%} of the "
        f"{config.target} ones"
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
    code = language_code(config.target)
    own, _ = OWN_TOKENISATIONS.get(code, ("", ()))
    if config.bleu_tokenize != "char" or own in ("", "zh"):
        return ""
    return f' ({own} after pip install "sacrebleu[{code}]")'
