"""What is said of a training at its start, and what of its text is left out.

What the recipe "auto" chooses for a corpus, and how it says so.

What a training is told at its start that will probably not go well, and why.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.config.auto import REASONS, ROWS, AutoTraining, CorpusFacts
from keras_luong.config.training import (
    OWN_TOKENISATIONS,
    UNRECORDED,
    TrainingConfig,
)
from keras_luong.languages import language_code
from keras_luong.models.translation_model import TranslationModel
from keras_luong.progress import telling
from keras_luong.runs.run import RunDirectory, read_history, read_record
from keras_luong.runs.start import Run, learned_before, text_of
from keras_luong.text.batches import epoch_shape
from keras_luong.text.corpus import Corpus, count, notes, thin_out
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.survey import (
    LEFT_OUT,
    corpus_facts,
    count_pairs,
    language_doubts,
    overlaps,
)
from keras_luong.text.tags import count_tags, remove_tags, tags_of, token
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.batch_size import estimated_seconds, in_words
from keras_luong.training.schedules import halving

#: Recorded settings that are no options.
_NOT_OPTIONS = {"preset", "chosen_batch_tokens"}


def chosen_for(
    training: AutoTraining, run_dir: str | Path
) -> tuple[TrainingConfig, Corpus]:
    """Chooses what is not given, by the corpus; a run that goes on keeps its choice.

    Args:
        training: What is given.
        run_dir: The run directory.

    Returns:
        The configuration, and the corpus.

    Raises:
        ValueError: The corpus cannot be read, a given value cannot be, or the directory
            holds a run of another preset.
    """
    if RunDirectory(run_dir).record.exists():
        config = _as_chosen_before(training, run_dir)
        return config, load_corpus(config.data, config.source, config.target)
    corpus = load_corpus(training.data, training.source, training.target)
    given = training.given
    with telling("Measuring the corpus"):
        facts = corpus_facts(
            corpus,
            given.get("limit_examples"),
            given.get("character_coverage", UNRECORDED["character_coverage"]),
        )
    config = training.choose(facts, corpus.source_language, corpus.target_language)
    print(table(facts, config, given), flush=True)
    return config, corpus


def _as_chosen_before(training: AutoTraining, run_dir: str | Path) -> TrainingConfig:
    settings = read_record(run_dir)["settings"]
    if (preset := settings.get("preset")) != "auto":
        raise ValueError(
            f"{run_dir} holds a run of the preset {preset!r}. Give --preset {preset} "
            "to go on with it, or another run directory. Received: preset='auto'"
        )
    kept = {name: settings[name] for name in settings.keys() - _NOT_OPTIONS}
    source, target = kept.pop("source"), kept.pop("target")
    return training.config(kept, training.source or source, training.target or target)


def table(facts: CorpusFacts, config: TrainingConfig, given: Collection[str]) -> str:
    """Returns what was chosen and why, a line each.

    Args:
        facts: What is known of the corpus.
        config: The configuration.
        given: The settings that were not chosen.
    """
    settings = config.settings()
    size = f"{facts.content / 1e3:,.0f} kB of {config.target} when compressed"
    rows = [f"chosen for {facts.pairs:,} pairs, {size} (any option overrules it):"]
    for name, reason in REASONS.items():
        why = "as given" if name in given else reason
        rows.append(f"  {name:16} {settings[name]!s:>13}  {why}")
    return "\n".join(rows)


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
        text += f"; the end is {config.early_stopping} without a better "
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
        split: list(remove_tags(thin_out(some, _PAIRS)).as_numpy_iterator())
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
