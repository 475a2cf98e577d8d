"""What a training says at its start: what it chose, what it trains, and warnings.

`choose_by_corpus` chooses the settings of `--preset auto`, `count_texts` counts
what of the text is left out, `describe` prints a line for each thing that is trained,
and `find_problems` finds what will probably not go well. `TimeEstimate` says how long
it will take, once it has seen some steps.
"""

from __future__ import annotations

import itertools
import math
import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import keras
import tensorflow as tf

from keras_luong.config.auto import REASONS, ROWS, AutoTraining, CorpusFacts
from keras_luong.config.training import (
    OWN_TOKENISATIONS,
    DataConfig,
    TrainingConfig,
)
from keras_luong.files import crc32
from keras_luong.languages import language_code
from keras_luong.models.translation_model import TranslationModel
from keras_luong.progress import in_words, telling
from keras_luong.runs.opening import OwnText, Run, read_corpus
from keras_luong.runs.run import RunDirectory, read_record
from keras_luong.runs.start import pairs_of_start
from keras_luong.text.batches import epoch_shape
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import Corpus, check_split, notes, read_blocks
from keras_luong.text.corpus_files import unit_of
from keras_luong.text.faults import FaultCount, fault_notes
from keras_luong.text.growing import missing_characters
from keras_luong.text.hashes import Sample
from keras_luong.text.language_guess import language_doubts
from keras_luong.text.survey import Survey
from keras_luong.text.tags import remove_tag, tags_of, token
from keras_luong.text.token_store import LENGTHS, PairCounts, count_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.schedules import halving
from keras_luong.types import Logs

#: How many epochs most trainings take that end where they make no more progress:
#: docs/what_train_chooses.md.
USUAL_EPOCHS = 15, 40
#: Fewer steps than this teach a new model next to nothing.
FEWEST_STEPS = 1000
#: A piece that is seen less often than this, on average, is hardly learnt.
FEWEST_TOKENS_A_PIECE = 10
#: BLEU of fewer validation pairs than this chooses weights by chance.
FEWEST_FOR_BLEU = 100
#: Share of tokens that are `<unk>` from which translations are seen to suffer.
LEAST_UNKNOWN = 0.01
#: How many of the characters that a vocabulary lacks are named.
MOST_CHARACTERS = 10
#: More notes than these nobody reads; `keras-luong check` has all that is wrong.
MOST_NOTES = 10
#: Whoever waits longer than this for a training should know it early.
LONGEST_HOURS = 48
#: How many steps are measured to say how long a training takes.
MEASURED_STEPS = 20
#: A text that is seen more often than this is learned by heart. With `auto`, whose
#: epochs have 150 steps or more, it is a text of three small batches or less.
MOST_PASSES = 2000
#: Short sentences are in any text; more than this share of a split are no chance.
MOST_KNOWN_SOURCES = 0.5
_PAIRS = 1000  # to look at, of a split
_MOST_TAGS = 3  # to name


def choose_by_corpus(
    training: TrainingConfig | AutoTraining,
    run_dir: str | Path,
    chosen: Mapping[str, Any] | None = None,
) -> tuple[TrainingConfig, OwnText | None]:
    """Chooses the settings that are not given, by the corpus.

    A run that goes on keeps its choice.

    Args:
        training: What is given; of a `TrainingConfig` nothing is to be chosen.
        run_dir: The run directory.
        chosen: The settings of the first of several machines, if this is another one.

    Returns:
        The configuration; and the corpus, if it had to be read.

    Raises:
        ValueError: The corpus cannot be read, a given value cannot be, or the directory
            holds a run of another preset.
    """
    if isinstance(training, TrainingConfig):
        return training, None
    if chosen is not None or RunDirectory(run_dir).record.exists():
        settings = chosen or read_record(run_dir)["settings"]
        if (preset := settings.get("preset")) != "auto":
            raise ValueError(
                f"{run_dir} holds a run of the preset {preset!r}. Give --preset "
                f"{preset} to go on with it, or another run directory. Received: "
                "preset='auto'"
            )
        no_options = {"preset", "chosen_batch_tokens", "source", "target"}
        kept = {name: settings[name] for name in settings.keys() - no_options}
        sides = [getattr(training, x) or settings[x] for x in ("source", "target")]
        config = training.config(kept, *sides)
        corpus = load_corpus(config.data, config.source, config.target)
        return config, OwnText(corpus)
    corpus = load_corpus(training.data, training.source, training.target)
    given = training.given
    check_split(corpus, "train")
    found = read_corpus(
        corpus,
        given.get("limit_examples"),
        given.get("character_coverage", DataConfig.character_coverage),
    )
    facts = cast(CorpusFacts, found.splits["train"].facts)
    config = training.choose(facts, corpus.source_language, corpus.target_language)
    settings = config.settings()
    size = f"{facts.content / 1e3:,.0f} kB of {config.target} when compressed"
    print(
        f"chosen for {facts.pairs:,} different pairs, {size} (any option overrules it):"
    )
    for name, reason in REASONS.items():
        why = "as given" if name in given else reason
        why = why.format(monitor=config.monitor)
        print(f"  {name:16} {settings[name]!s:>13}  {why}")
    sys.stdout.flush()
    return config, OwnText(corpus, found)


def on_gpu() -> bool:
    """Whether TensorFlow trains on a GPU: by XLA there, for each shape of a batch."""
    return bool(tf.config.list_logical_devices("GPU"))


def store_tokens(run: Run, tokenizers: TokenizerPair) -> PairCounts:
    """Counts what is trained on, and writes its ids into the run directory.

    Or its text, if that is split anew in each epoch (`subword_sampling`).

    Args:
        run: The run.
        tokenizers: Its tokenizers.
    """
    config, folder = run.config, RunDirectory(run.path).tokens
    is_plain = not (config.tag or config.mix_old or config.limit_examples)
    pairs = read_blocks(run.corpus, "train") if is_plain else run.training_pairs
    most, alpha = config.max_length, config.subword_sampling
    return count_pairs(pairs, tokenizers, most, alpha, folder)


@telling("Tokenizing the corpus")
def count_texts(
    run: Run, tokenizers: TokenizerPair, batch_tokens: int
) -> dict[str, dict[str, Any]]:
    """Tokenizes the run's text, and counts what is left out; once, for its record.

    Args:
        run: The run.
        tokenizers: Its tokenizers.
        batch_tokens: Tokens of a batch.

    Returns:
        Split → what `run.texts` says of it, and what was counted.

    Raises:
        ValueError: If no pair is left to train on.
    """
    # 1. The pairs that are left out, and the steps of an epoch of the others.
    most = run.config.max_length
    train = store_tokens(run, tokenizers)
    tokens = RunDirectory(run.path).tokens / LENGTHS
    validation = count_pairs(run.corpus.pairs("validation"), tokenizers, most)
    if not (batches := train.full_batches(batch_tokens)):
        raise ValueError(
            f"No pair is left to train on: {train.empty:,} have an empty side, and "
            f"{train.too_long:,} have more tokens than max_length={most}"
        )
    together = run.config.gradient_accumulation_steps
    shape = epoch_shape(batches / together, run.config.steps_per_epoch)
    fixed = train.batch_shapes(batch_tokens, shape) if on_gpu() else None
    steps = math.ceil(train.batches(batch_tokens, shape, fixed) / together)
    # 2. What of the other splits is trained on.
    try:
        learned, compared = pairs_of_start(run.config), True
    except (OSError, ValueError):
        learned, compared = [], False
    seen = cast(Survey, run.own.survey)
    in_splits = {
        split: (x.pairs, x.size, x.sources, x.validated)
        for split, x in seen.overlaps(learned).items()
        if x.sources or x.validated
    }
    # 3. What looks like a tag in front of some sources, and what else is no token.
    known = tags_of(tokenizers.source)
    tags, sample = seen.splits["train"].tags, seen.splits["train"].sample
    missing = missing_characters(tokenizers, sample, run.config.character_coverage)
    mixed = int(run.training_pairs.cardinality()) if run.config.mix_old else None
    counted = {
        **train.left_out,
        **train.tokens,
        "steps": steps,
        **shape._asdict(),
        "batch_shapes": fixed,
        "in_splits": in_splits,
        "start_compared": compared,
        "unknown_tags": {tag: tags[tag] for tag in sorted(tags) if tag not in known},
        "unknown_characters": "".join(missing),
        "ids": crc32(tokens),
        "splits": {name: x.fingerprint.pairs for name, x in seen.splits.items()},
        "mixed": mixed and mixed - run.texts["train"]["pairs"],
        **doubts_and_faults(run.own.corpus, seen),
    }
    return {
        "train": {**run.texts["train"], **counted},
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
    counted, replicas = record["corpus"], strategy.num_replicas_in_sync
    train, validation = counted["train"], counted["validation"]
    sizes = tokenizers.source.vocab_size, tokenizers.target.vocab_size

    # 1. The corpus, and what is not learned from.
    of_train = train["pairs"] + (train["mixed"] or 0)
    pairs = {**train["splits"], "train": of_train}
    listed = ", ".join(f"{split} {size:,}" for split, size in pairs.items())
    said = {
        "corpus": f"{run.corpus.name}, {config.source} → {config.target}: {listed} "
        "pairs",
        **notes(run.corpus),
        "left out": f"none of {of_train:,} training pairs",
    }
    if left_out := train["empty"] + train["too_long"]:
        said["left out"] = (
            f"{left_out:,} of {of_train:,} training pairs: "
            f"{train['empty']:,} with an empty side, {train['too_long']:,} of over "
            f"{config.max_length} tokens"
        )
    if validation["too_long"]:
        said["cut"] = (
            f"{validation['too_long']:,} of {validation['pairs']:,} validation pairs: "
            f"val_loss is of their first {config.max_length} tokens, BLEU of whole "
            "references"
        )

    # 2. The vocabulary, and what it lacks.
    said["vocabulary"] = f"{sizes[0]:,} {config.source}, {sizes[1]:,} {config.target}"
    said["vocabulary"] += " (shared)" * tokenizers.shared + f", {config.tokenizer}"
    if min(sizes) < config.vocab_size:
        said["vocabulary"] += f"; the text is too small for all {config.vocab_size:,}"
    said["tags"] = ", ".join(map(token, tags_of(tokenizers.source)))
    if train["unknown_source"] + train["unknown_target"]:
        said["unknown"] = (
            f"{train['unknown_source']:.2%} of the {config.source} tokens are <unk>, "
            f"{train['unknown_target']:.2%} of the {config.target} ones"
        )

    # 3. The model, and how it is trained.
    said["start"] = _start(record)
    said["model"] = f"{config.preset}: {model.count_params():,} parameters"
    if config.freeze:
        frozen = sum(math.prod(x.shape) for x in model.non_trainable_weights)
        parts = ", ".join(config.freeze)
        said["model"] += f", of which {frozen:,} are frozen ({parts})"
    said["hardware"] = f"{replicas} replica(s), {config.precision}"
    said["batches"] = f"{record['settings']['chosen_batch_tokens']:,} tokens"
    if fixed := train.get("batch_shapes"):
        said["batches"] += f", of {len(fixed)} shapes"
    said["epochs"] = _epochs(config, train)
    said["BLEU"] = f"sacrebleu's tokenisation {config.bleu_tokenize}"
    said["BLEU"] += _better_tokenisation(config)
    said["run"] = f"{run.path}"
    print("\n".join(f"{name:12} {text}" for name, text in said.items() if text))

    # 4. Warnings.
    units = {split: unit_of(run.own.corpus, split) for split in run.own.corpus.splits}
    for doubt in find_problems(config, sizes, train, units):
        print(f"note: {doubt}.")
    sys.stdout.flush()


def _start(record: Mapping[str, Any]) -> str:
    """The run that this one starts from."""
    if not (start := record["came_from"]):
        return ""
    text = f"best weights of {start['run']}"
    if epochs := start["epochs"]:
        text += f" after {epochs} epoch(s)"
    if start["data"]:
        text += f" on {start['data']}"
    if languages := " → ".join(filter(None, start["languages"])):
        text += f", {languages}"
    if start["corpus"]:
        text += f", {start['corpus']['train']['pairs']:,} pairs"
    return text


def _epochs(config: TrainingConfig, train: Mapping[str, Any]) -> str:
    """How long an epoch is, and what ends the training."""
    passes, parts = train["passes"], train["parts"]
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


class TimeEstimate(keras.callbacks.Callback):
    """Says how long a training will take, when its first steps are done.

    These are measured, and so are right for any device and model. An epoch's first step
    does not count, nor does what takes ten times as long as the fastest: TensorFlow
    traces the model in the one, and XLA compiles it for a new shape in the others.

    Args:
        config: How the run is trained.
        steps: The steps of an epoch, about.
    """

    def __init__(self, config: TrainingConfig, steps: int) -> None:
        super().__init__()
        self.config, self.steps, self.done = config, steps, 0
        self._seconds: list[float] = []
        self._last = math.inf
        self._said = False

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        """Stops the clock until the epoch's first step is done."""
        self._last, self.done = math.inf, epoch

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Measures the step, which has ended: its loss is in the logs."""
        if self._said:
            return
        now = time.perf_counter()
        if self._last < now:
            self._seconds.append(now - self._last)
        self._last = now
        usual = [x for x in self._seconds if x < 10 * min(self._seconds)]
        if len(usual) == MEASURED_STEPS:
            self._said = True
            self._say(self.steps * sum(usual) / len(usual))

    def _say(self, seconds: float) -> None:
        """Prints it, below the bar if there is one; an epoch takes so many seconds."""
        if sys.stdout.isatty():
            print()
        print(f"{'time':12} {_time(self.config, seconds, self.done)}")
        _, epochs = _epochs_left(self.config, self.done)
        for doubt in _long_time(epochs * seconds):
            print(f"note: {doubt}.")
        sys.stdout.flush()


def _time(config: TrainingConfig, seconds: float, done: int) -> str:
    """How long it will take, if an epoch takes so many seconds.

    Of a run that goes on after `done` epochs, what is left of it.
    """
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


def _epochs_left(config: TrainingConfig, done: int) -> tuple[int, int]:
    """How many more epochs there are at least and at most, of what is usual."""
    usual = USUAL_EPOCHS if config.early_stopping else (config.epochs, config.epochs)
    few, many = (max(0, min(x, config.epochs) - done) for x in usual)
    return few, many


def _better_tokenisation(config: TrainingConfig) -> str:
    """What to install for the language's own tokenisation, if it is not there."""
    code = language_code(config.target)
    own, _ = OWN_TOKENISATIONS.get(code, ("", ()))
    if config.bleu_tokenize != "char" or own in ("", "zh"):
        return ""
    return f' ({own} after pip install "sacrebleu[{code}]")'


@telling("Looking at the text")
def doubts_and_faults(corpus: Corpus, seen: Survey) -> dict[str, Any]:
    """Returns what a run's record has to say of what is wrong with its own text.

    Text that is mixed in may be in other languages.

    Args:
        corpus: The corpus.
        seen: Its survey.

    Returns:
        Sentences on whole splits in other languages (`doubts`), and split → fault → its
        `FaultCount` as a dict (`faults`).
    """
    splits = seen.splits.items()
    samples = {split: x.sample.thinned(_PAIRS) for split, x in splits}
    faults = {
        split: {name: count._asdict() for name, count in x.faults.items()}
        for split, x in splits
        if x.faults
    }
    return {"doubts": [*_other_languages(corpus, samples)], "faults": faults}


def find_problems(
    config: TrainingConfig,
    vocab_sizes: tuple[int, int],
    train: Mapping[str, Any],
    units: Mapping[str, str],
) -> list[str]:
    """Warnings before a training starts: what looks wrong in its text or settings.

    Args:
        config: What is trained, and how.
        vocab_sizes: Sizes of the source's and the target's vocabulary.
        train: What is known of the training text, as the run's record has it.
        units: Split → "line" or "pair", see `unit_of`.

    Returns:
        At most `MOST_NOTES` sentences without a full stop, the worst first; none where
        nothing looks wrong.
    """
    # 1. Text that teaches something else, or results that say nothing.
    problems: list[str] = [*train["doubts"]]
    problems += _known_pairs(config.init_from, train)
    judged = train["splits"].get("validation", 0)
    if config.monitor == "val_bleu" and judged < FEWEST_FOR_BLEU:
        problems.append(
            f"the best weights are chosen by BLEU of {judged} validation pairs, which "
            "is mostly chance: more pairs help, or val_perplexity as monitor"
        )
    # 2. A training that gets nowhere.
    problems += _unknown_to_the_start(config, train)
    if config.init_from is None:  # another run has learned, and has its vocabulary
        problems += _few_steps(config, train)
        problems += _large_vocabulary(config, vocab_sizes, train)
    problems += _many_passes(config, train)
    # 3. Pairs with faults.
    for split, faults in train["faults"].items():
        counts = {name: FaultCount(**count) for name, count in faults.items()}
        if split == "train":
            counts.pop("empty")  # told as what is left out
        if train["doubts"]:
            counts.pop("language")
        said = fault_notes(counts, split, units[split])
        problems += said if split == "train" else (f"{split}: {x}" for x in said)
    problems += _unknown_tags(train)
    if len(problems) > MOST_NOTES:
        rest = len(problems) - MOST_NOTES + 1
        more = (
            f"and {rest} more; keras-luong check tells all that is wrong with the text"
        )
        problems[MOST_NOTES - 1 :] = [more]
    return problems


def _unknown_to_the_start(
    config: TrainingConfig, train: Mapping[str, Any]
) -> Iterator[str]:
    """What the vocabulary of the run that this one starts from lacks."""
    if config.init_from is None or config.grow_vocab:
        return
    # Of the pairs that are mixed in next to nothing is unknown.
    new = 1 - (config.mix_old or 0)
    most = max(train["unknown_source"], train["unknown_target"]) / new
    if most >= LEAST_UNKNOWN:
        lacking = train["unknown_characters"]
        named = " ".join(map(_visible, lacking[:MOST_CHARACTERS]))
        more, them = len(lacking) - MOST_CHARACTERS, "grow_vocab 500 adds them"
        if lacking:
            them = f"grow_vocab {len(lacking)} adds them; 500 add longer pieces, too, "
            them += "which want thousands of pairs"
        yield (
            f"up to {min(most, 1):.1%} of the new text's tokens are <unk>, as the "
            f"vocabulary of {config.init_from} lacks {named or 'its words'}"
            f"{f' and {more} more characters' * (more > 0)}: {them}"
        )


def _visible(character: str) -> str:
    """A character that can be seen, or its number."""
    seen = character.isprintable() and not unicodedata.combining(character)
    return character if seen else f"U+{ord(character):04X}"


def _few_steps(config: TrainingConfig, train: Mapping[str, Any]) -> Iterator[str]:
    epochs, steps = config.epochs, train["steps"] * config.epochs
    worth, halved, at_full_rate = steps, "", ""
    if config.schedule == "halving" and epochs > config.constant_epochs:
        # A step at half the rate moves the weights half as far.
        rate = halving(1.0, config.constant_epochs)
        worth = round(train["steps"] * sum(map(rate, range(epochs))))
        at_full_rate = " at the full rate (constant_epochs)"
        halved = (
            f", worth {worth:,}, as the learning rate is halved each epoch after the "
            f"first {config.constant_epochs}"
        )
    if worth < FEWEST_STEPS:
        auto = ", and --preset auto chooses both" if config.preset != "auto" else ""
        yield (
            f"{epochs} epoch{'s' * (epochs > 1)} of {train['steps']:,} steps: a model "
            f"needs thousands of steps in all, and this is {steps:,}{halved}. More "
            f"epochs{at_full_rate} make more, smaller batches too "
            f"(batch_tokens is {config.batch_tokens}){auto}"
        )


def _large_vocabulary(
    config: TrainingConfig, sizes: tuple[int, int], train: Mapping[str, Any]
) -> Iterator[str]:
    tokens = train["source_tokens"] + train["target_tokens"]
    pieces = sizes[0] if config.shared else sum(sizes)
    fewest = ROWS[0].vocab_size  # with less, 300 pairs were learned worse
    if config.vocab_size > fewest and tokens < FEWEST_TOKENS_A_PIECE * pieces:
        yield (
            f"the text has {tokens:,} tokens for a vocabulary of {pieces:,}: "
            f"{tokens / pieces:.1f} for each on average, too few to learn them from. "
            f"More text helps, or a smaller vocab_size (it is {config.vocab_size:,}) "
            "that still has room for all characters"
        )


def _long_time(seconds: float) -> Iterator[str]:
    if seconds > LONGEST_HOURS * 3600:
        faster = "more GPUs" if tf.config.list_physical_devices("GPU") else "a GPU"
        yield (
            f"this may take {in_words(seconds)} on this machine. A smaller model (half "
            "the units take about a quarter of it), a part of the text "
            f"(limit_examples), fewer epochs or {faster} would make it shorter"
        )


def _many_passes(config: TrainingConfig, train: Mapping[str, Any]) -> Iterator[str]:
    most = USUAL_EPOCHS[1] if config.early_stopping else config.epochs
    epochs, passes = min(most, config.epochs), train["passes"]
    if (total := epochs * passes / train["parts"]) > MOST_PASSES:
        each = f", {passes:,} in each epoch," if passes > 1 else ""
        shorter = " or a lower steps_per_epoch" if config.steps_per_epoch else ""
        yield (
            f"{epochs:,} epochs go {total:,.0f} times{each} over a text of "
            f"{train['pairs']:,} pairs: a model then knows it by heart and has learned "
            "no language from it. More text helps, thousands of pairs; fewer epochs"
            f"{shorter} at least save the time"
        )


def _known_pairs(start: str | None, train: Mapping[str, Any]) -> Iterator[str]:
    better = "results will look better than they are"
    text = f"training text, or that of {start}," if start else "training text"
    for split, (shared, size, sources, validated) in train["in_splits"].items():
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
    if not train["start_compared"]:
        yield (
            f"what {start} was trained on is not there as it was: whether this run is "
            "judged by pairs that it has learned from is not known"
        )


def _other_languages(corpus: Corpus, samples: Mapping[str, Sample]) -> Iterator[str]:
    """Of all splits: whose validation text is swapped, its BLEU stays at nothing."""
    declared = {"source": corpus.source_language, "target": corpus.target_language}

    def doubts_of(pairs: Sample) -> Iterator[str]:
        texts = [map(remove_tag, pairs.sources), pairs.targets]
        both = ([text.encode() for text in side] for side in texts)
        return language_doubts(dict(zip(declared, both, strict=True)), declared)

    places_of: dict[str, list[str]] = {}  # doubt → where
    for split, pairs in samples.items():
        # By quarters, as a split may be of several corpora; or as a whole, if they are
        # too short to tell.
        cuts = [len(pairs.places) * number // 4 for number in range(5)]
        quarters = Counter(
            doubt
            for start, end in itertools.pairwise(cuts)
            for doubt in doubts_of(pairs.of(range(start, end)))
        ) or Counter(dict.fromkeys(doubts_of(pairs), 4))
        for doubt, number in quarters.items():
            some = f"{number} quarter{'s' * (number > 1)} of " * (number < 4)
            places_of.setdefault(doubt, []).append(some + split)
    for doubt, places in places_of.items():
        yield doubt if "train" in places else f"{doubt}: in {' and '.join(places)}"


def _unknown_tags(train: Mapping[str, Any]) -> Iterator[str]:
    tags: Mapping[str, int] = train["unknown_tags"]
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
