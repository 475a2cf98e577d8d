"""What a training is told at its start that will probably not go well, and why."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from keras_luong.config.auto import ROWS
from keras_luong.config.training import TrainingConfig
from keras_luong.progress import telling
from keras_luong.runs.opening import Run
from keras_luong.runs.starting_point import text_of
from keras_luong.text.corpus import Corpus, spread
from keras_luong.text.language_guess import language_doubts
from keras_luong.text.tags import token, untagged
from keras_luong.training.schedules import halving
from keras_luong.training.step_time import in_words

#: Fewer steps than this teach a new model next to nothing.
FEWEST_STEPS = 1000
#: A piece that is seen less often than this, on average, is hardly learnt.
FEWEST_TOKENS_A_PIECE = 10
#: More of the targets than this are their sources in no corpus of translations.
MOST_COPIES = 0.2
#: How many epochs most trainings take that end where they make no more progress:
#: docs/what_train_chooses.md.
USUAL_EPOCHS = 15, 40
#: Whoever waits longer than this for a training should know it before.
LONGEST_HOURS = 48
#: A text that is seen more often than this is learned by heart. With `auto`, whose
#: epochs have 150 steps or more, it is a text of three small batches or less.
MOST_PASSES = 2000
#: Short sentences are in any text; more than this share of a split are no chance.
MOST_KNOWN_SOURCES = 0.5
_AT_FULL_RATE = " at the full rate (constant_epochs)"
_PAIRS = 1000  # to look at, of a split
_MOST_TAGS = 3  # to name

_Pairs = Sequence[Mapping[str, bytes]]


@telling("Looking at the text")
def doubts(
    run: Run,
    vocab_sizes: tuple[int, int],
    train: Mapping[str, Any],
    seconds: float = 0.0,
) -> list[str]:
    """Returns sentences on what looks wrong in a corpus, or in how it is trained on.

    Args:
        run: The run.
        vocab_sizes: Sizes of the source's and the target's vocabulary.
        train: What is known of the training text, as the run's record has it.
        seconds: About how long the training may take; 0 if that is not known.

    Returns:
        The sentences; none where nothing looks wrong.
    """
    new = run.config.init_from is None
    samples = {} if run.resuming else _samples(run)
    return [
        # A run that starts from another one has learned, and has its vocabulary.
        *(_of_steps(run.config, train) if new else ()),
        *(_of_vocabulary(run.config, vocab_sizes, train) if new else ()),
        *_of_time(seconds),
        *_of_passes(run.config, train),
        *_of_overlap(run.config.init_from, train),
        *_of_languages(run.corpus, samples),
        *_of_copies(samples.get("train", [])),
        *_of_tags(train),
    ]


def _of_steps(config: TrainingConfig, train: Mapping[str, Any]) -> Iterator[str]:
    epochs, steps = config.epochs, train["steps"] * config.epochs
    worth, halved = steps, ""
    if config.schedule == "halving" and epochs > config.constant_epochs:
        # A step at half the rate moves the weights half as far.
        rate = halving(1.0, config.constant_epochs)
        worth = round(train["steps"] * sum(map(rate, range(epochs))))
        halved = (
            f", worth {worth:,}, as the learning rate is halved each epoch after the "
            f"first {config.constant_epochs}"
        )
    if worth < FEWEST_STEPS:
        auto = ", and --preset auto chooses both" if config.preset != "auto" else ""
        yield (
            f"{epochs} epoch{'s' * (epochs > 1)} of {train['steps']:,} steps: a model "
            f"needs thousands of steps in all, and this is {steps:,}{halved}. More "
            f"epochs{_AT_FULL_RATE if halved else ''} make more, smaller batches too "
            f"(batch_tokens is {config.batch_tokens}){auto}"
        )


def _of_time(seconds: float) -> Iterator[str]:
    if seconds > LONGEST_HOURS * 3600:
        faster = "more GPUs" if tf.config.list_physical_devices("GPU") else "a GPU"
        yield (
            f"this may take {in_words(seconds)} on this machine. A smaller model (half "
            "the units take about a quarter of it), a part of the text "
            f"(limit_examples), fewer epochs or {faster} would make it shorter"
        )


def _of_passes(config: TrainingConfig, train: Mapping[str, Any]) -> Iterator[str]:
    most = USUAL_EPOCHS[1] if config.early_stopping else config.epochs
    epochs, passes = min(most, config.epochs), train.get("passes", 1)
    if (total := epochs * passes / train.get("parts", 1)) > MOST_PASSES:
        each = f", {passes:,} in each epoch," if passes > 1 else ""
        shorter = " or a lower steps_per_epoch" if config.steps_per_epoch else ""
        yield (
            f"{epochs:,} epochs go {total:,.0f} times{each} over a text of "
            f"{train['pairs']:,} pairs: a model then knows it by heart and has learned "
            "no language from it. More text helps, thousands of pairs; fewer epochs"
            f"{shorter} at least save the time"
        )


def _of_vocabulary(
    config: TrainingConfig, sizes: tuple[int, int], train: Mapping[str, Any]
) -> Iterator[str]:
    tokens = train.get("source_tokens", 0) + train.get("target_tokens", 0)
    pieces = sizes[0] if config.shared else sum(sizes)
    fewest = ROWS[0].vocab_size  # with less, 300 pairs were learned worse
    if config.vocab_size > fewest and 0 < tokens < FEWEST_TOKENS_A_PIECE * pieces:
        yield (
            f"the text has {tokens:,} tokens for a vocabulary of {pieces:,}: "
            f"{tokens / pieces:.1f} for each on average, too few to learn them from. "
            f"More text helps, or a smaller vocab_size (it is {config.vocab_size:,}) "
            "that still has room for all characters"
        )


def _of_overlap(start: str | None, train: Mapping[str, Any]) -> Iterator[str]:
    better = "results will look better than they are"
    text = f"training text, or that of {start}," if start else "training text"
    # A run that was begun before did not count all of it.
    for split, (shared, size, *more) in train.get("in_splits", {}).items():
        sources, validated = (*more, 0, 0)[:2]
        if shared:
            known = f"{shared:,} of {size:,} {split} pairs"
            yield f"{known} are in the {text} too: {better}"
        if sources - shared > MOST_KNOWN_SOURCES * size:
            yield (
                f"{sources - shared:,} of {size:,} {split} sources are in the {text} "
                f"with another translation: {better}"
            )
        if validated:
            yield (
                f"{validated:,} of {size:,} {split} pairs are in the validation text, "
                f"which chooses the weights: {better}"
            )
    if not train.get("start_compared", True):
        yield (
            f"what {start} was trained on is not there as it was: whether this run is "
            "judged by pairs that it has learned from is not known"
        )


def _samples(run: Run) -> dict[str, _Pairs]:
    """Pairs from all over each split, without the tags in front of their sources.

    To train on, of the run's own text: another one may be in other languages. They are
    looked at once a run.
    """
    pairs = {split: run.corpus.pairs(split) for split in run.corpus.splits}
    pairs["train"] = text_of(run.config, run.training_pairs)
    return {
        split: list(untagged(spread(some, _PAIRS)).as_numpy_iterator())
        for split, some in pairs.items()
    }


def _of_languages(corpus: Corpus, samples: Mapping[str, _Pairs]) -> Iterator[str]:
    """Of all splits: whose validation text is swapped, its BLEU stays at nothing."""
    declared = corpus.source_language, corpus.target_language
    found: dict[str, list[str]] = {}
    for split, pairs in samples.items():
        for doubt, some in _of_quarters(pairs, declared).items():
            found.setdefault(doubt, []).append(some + split)
    for doubt, places in found.items():
        yield doubt if "train" in places else f"{doubt}: in {' and '.join(places)}"


def _of_quarters(pairs: _Pairs, declared: tuple[str, str]) -> dict[str, str]:
    """Doubt → "2 quarters of ", or "" for all: a split may be of several corpora."""
    cuts = [len(pairs) * number // 4 for number in range(5)]
    quarters = [pairs[start:end] for start, end in itertools.pairwise(cuts)]
    found = Counter(doubt for some in quarters for doubt in _of_sides(some, declared))
    if not found:  # or they are too short to tell
        found = Counter(dict.fromkeys(_of_sides(pairs, declared), 4))
    return {
        doubt: f"{number} quarter{'s' * (number > 1)} of " * (number < 4)
        for doubt, number in found.items()
    }


def _of_sides(pairs: _Pairs, declared: tuple[str, str]) -> Iterator[str]:
    sides = {name: [pair[name] for pair in pairs] for name in ("source", "target")}
    return language_doubts(sides, dict(zip(sides, declared, strict=True)))


def _of_copies(pairs: _Pairs) -> Iterator[str]:
    written = [pair for pair in pairs if pair["source"].strip()]
    copies = sum(pair["source"] == pair["target"] for pair in written)
    if copies > MOST_COPIES * len(written):
        yield (
            f"{copies:,} of {len(written):,} pairs from all over the training text "
            "have the same text on both sides, which is no translation"
        )


def _of_tags(train: Mapping[str, Any]) -> Iterator[str]:
    tags: Mapping[str, int] = train.get("unknown_tags", {})
    names = sorted(tags, key=lambda tag: -tags[tag])
    if names:
        number, rest = sum(tags.values()), len(names) - _MOST_TAGS
        more = f" and {rest:,} more" if rest > 0 else ""
        yield (
            f"{number:,} of {train['pairs']:,} sources begin with "
            f"{', '.join(map(token, names[:_MOST_TAGS]))}{more}, which are plain text "
            "here: a tag of a domain becomes a piece of the vocabulary if one of 1,000 "
            "sources begins with it"
        )
