"""What is said of a training at its start, and what of its text is left out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from keras_luong.config.training import (
    WITHOUT_SPACES,
    TrainingConfig,
    language_code,
)
from keras_luong.models.translation_model import TranslationModel
from keras_luong.runs.directory import read_history
from keras_luong.runs.opening import Run
from keras_luong.text.corpus import count, notes
from keras_luong.text.pair_counts import LEFT_OUT, count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair


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
    if not (steps := train.batches(batch_tokens)):
        raise ValueError(
            f"No pair is left to train on: {train.empty:,} have an empty side, and "
            f"{train.too_long:,} have more tokens than max_length={most}"
        )
    return {
        "train": {**run.texts["train"], **train.left_out, "steps": steps},
        "validation": {**run.texts["validation"], **validation.left_out},
    }


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
    train = record["corpus"]["train"]
    batch_tokens = record["settings"]["chosen_batch_tokens"]
    epochs = len(read_history(run.path))
    said = {
        "corpus": _corpus(run, record["corpus"]),
        **notes(run.corpus),
        "left out": _left_out(config, train),
        "cut": _cut(config, record["corpus"]["validation"]),
        "vocabulary": _vocabulary(config, tokenizers),
        "unknown": _unknown(config, train),
        "model": f"{config.preset}: {model.count_params():,} parameters",
        "hardware": f"{strategy.num_replicas_in_sync} replica(s), {config.precision}",
        "batches": f"{batch_tokens:,} tokens",
        "BLEU": f"sacrebleu's tokenisation {config.bleu_tokenize}"
        f"{_better_tokenisation(config)}",
        "run": f"{run.path}" + f", going on after epoch {epochs}" * bool(epochs),
    }
    print("\n".join(f"{name:12} {text}" for name, text in said.items() if text))
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
    """The pairs that are validated by their beginnings."""
    if not (number := validation["too_long"]):
        return ""
    return (
        f"{number:,} of {validation['pairs']:,} validation pairs: val_loss is of their "
        f"first {config.max_length} tokens"
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
    own, _ = WITHOUT_SPACES.get(code, ("", ()))
    if config.bleu_tokenize != "char" or own in ("", "zh"):
        return ""
    return f' ({own} after pip install "sacrebleu[{code}]")'
