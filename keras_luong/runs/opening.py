"""What a training begins with: a directory of its own, its text, its tokenizers.

A directory is opened by one training at a time, for one text and one set of settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.config.training import (
    OF_PIECES,
    DataConfig,
    TrainingConfig,
    bleu_tokenization,
)
from keras_luong.evaluation.scores import check_tokenize
from keras_luong.languages import standard_code
from keras_luong.models.translation_model import model_class
from keras_luong.progress import telling
from keras_luong.runs.run import (
    RunDirectory,
    check_config,
    check_settings,
    lock_run,
    read_record,
)
from keras_luong.runs.start import (
    add_tag_tokens,
    check_same_start,
    inherit_tokenizers,
    training_corpus,
)
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import Corpus, check_split, fingerprint, first_source
from keras_luong.text.held_out import HeldOut
from keras_luong.text.survey import JUDGED, Survey, survey
from keras_luong.text.tags import frequent_tags, remove_tags
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.training.strategies import worker_index

#: What a run's record knows of its training text by `description.count_texts`.
COUNTED = (
    *("empty", "too_long", "unknown_source", "unknown_target", "source_tokens"),
    *("target_tokens", "steps", "passes", "parts", "batch_shapes", "in_splits"),
    *("start_compared", "unknown_tags", "unknown_characters", "ids", "splits"),
    *("mixed", "doubts", "faults"),
)


class OwnText(NamedTuple):
    """The corpus that a training names, before tags and mixing.

    Attributes:
        corpus: The corpus.
        survey: What reading it once has found; None if it was not read.
    """

    corpus: Corpus
    survey: Survey | None = None


class Run(NamedTuple):
    """A training that has its directory to itself.

    Attributes:
        config: What is trained, and how.
        path: The run directory.
        corpus: What it is trained on.
        own: The corpus that it names; of a run that goes on, mostly without a survey.
        texts: What its record knows of the corpus's text.
        resuming: Whether there was a run to go on with.
    """

    config: TrainingConfig
    path: Path
    corpus: Corpus
    own: OwnText
    texts: dict[str, dict[str, Any]]
    resuming: bool

    @property
    def training_pairs(self) -> tf.data.Dataset:
        """The pairs to learn from."""
        return self.corpus.pairs("train").take(self.config.limit_examples or -1)

    @property
    def own_pairs(self) -> tf.data.Dataset:
        """Those of its own corpus, without a tag, to learn tokens from."""
        return self.own.corpus.pairs("train").take(self.config.limit_examples or -1)

    @property
    def sample(self) -> str:
        """A source to validate by, for whoever tries an export out."""
        return first_source(self.corpus, "validation")

    def read_record(self) -> dict[str, Any]:
        """What its `run.json` says, once it is written."""
        return read_record(self.path)


def own_directory(run_dir: str | Path, strategy: tf.distribute.Strategy) -> Path:
    """The directory that this machine writes to: of several, each has its own."""
    worker = worker_index(strategy)
    return Path(run_dir) / "workers" / str(worker) if worker else Path(run_dir)


@contextlib.contextmanager
def open_run(
    config: TrainingConfig,
    path: Path,
    own: OwnText | None = None,
    texts: dict[str, dict[str, Any]] | None = None,
) -> Iterator[Run]:
    """Reads the corpus, and keeps other processes out of the run directory.

    Args:
        config: What is trained.
        path: The run directory.
        own: The corpus, if it is loaded already.
        texts: What another machine knows of the text, which is then not read.

    Yields:
        The `Run`.

    Raises:
        TypeError, ValueError: sacrebleu has no such tokenisation, the preset's model
            cannot be had so, the directory holds another run, or the corpus cannot be
            read or has nothing to validate by.
        OSError: Another process trains there, it cannot be written to, or the corpus
            changes meanwhile.
    """
    # 1. What would fail hours later.
    check_tokenize("bleu_tokenize", config.bleu_tokenize)
    model_config = config.model_config(*[config.vocab_size] * 2)
    model_class(config.preset).check(model_config)
    if config.init_from and Path(config.init_from).resolve() == path.resolve():
        raise ValueError(
            f"run_dir must be another directory than init_from, which does not change. "
            f"Received: {path} for both"
        )
    # 2. The text. One to validate by is held out where there is none.
    if own is None:
        own = OwnText(load_corpus(config.data, config.source, config.target))
    check_split(own.corpus, "train")
    corpus = training_corpus(config.settings(), own.corpus)
    with lock_run(path):
        # 3. The same run as before, if there was one. A corpus is its text, and a run
        # to start from its weights, wherever they are.
        if RunDirectory(path).record.exists():
            config = _as_begun(config, read_record(path)["settings"])
        free = config.free | {"data", "init_from"} | vars(model_config).keys()
        resuming = check_settings(path, config.settings(), free)
        if resuming:
            texts = _texts_of_unchanged(path, own.corpus)
        elif texts:
            texts["train"]["files"] = file_states(own.corpus)
            if isinstance(own.corpus, HeldOut):
                own.corpus.load(RunDirectory(path).held_out)
        if texts is None:
            states = file_states(own.corpus)  # before they are read
            judged = {} if resuming else JUDGED  # its record knows
            limit = config.limit_examples
            found = own.survey or read_corpus(own.corpus, limit, judged=judged)
            own, texts = OwnText(own.corpus, found), found.texts
            texts["train"]["files"] = states
        if resuming:
            check_config(path, model_config)
            check_same_start(path, config.init_from)
            check_corpus(path, config.data, texts, own.corpus)
            _check_counted(path)
            _tell_changes(config, path)
        elif config.batch_tokens == "auto" and config.strategy == "multiworker":
            raise ValueError(
                "Several machines must have batches of one size, which each would "
                "choose for itself; give a number. Received: batch_tokens='auto'"
            )
        # 4. The training.
        try:
            yield Run(config, path, corpus, own, texts, resuming)
        except KeyboardInterrupt:
            print("\nStopped. The same command again goes on from here.")
            raise
        except tf.errors.OpError as error:
            # What a corpus says of its files, which tf.data hands on within its own; or
            # what TensorFlow says of its files in the run directory.
            own_files = rf"(?<![\w./-])({re.escape(str(path))}/.+?)(?: \[Op:|$)"
            for words in (r"(?:OS|FileNotFound|Value)Error: (.+)", own_files):
                if told := re.search(words, str(error), re.MULTILINE):
                    raise OSError(told[1]) from error
            raise


def _as_begun(config: TrainingConfig, before: Mapping[str, Any]) -> TrainingConfig:
    """Spells a configuration's settings as the run did when it began.

    Languages are spelled as there: EN is its en. And BLEU that is tokenised as is usual
    for the language stays as it was usual when the run began, whatever has been
    installed since.
    """
    kept = {
        name: before[name]
        for name in ("source", "target")
        if standard_code(getattr(config, name)) == standard_code(before.get(name, ""))
    }
    if config.bleu_tokenize == bleu_tokenization(config.target):
        kept["bleu_tokenize"] = before.get("bleu_tokenize", config.bleu_tokenize)
    return dataclasses.replace(config, **kept)


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


@telling("Reading the corpus")
def read_corpus(
    corpus: Corpus,
    limit: int | None = None,
    coverage: float = DataConfig.character_coverage,
    judged: Mapping[str, int] = JUDGED,
) -> Survey:
    """Returns the survey of a corpus, see `keras_luong.text.survey.survey`."""
    return survey(corpus, limit, coverage, judged)


def _texts_of_unchanged(path: Path, corpus: Corpus) -> dict[str, Any] | None:
    """What a run's record knows of its text, if the files are those that were read.

    By their sizes and times; files of another time are read again. Held-out pairs are
    those of the run.
    """
    known, folder = read_record(path)["corpus"], RunDirectory(path).held_out
    is_held_out = isinstance(corpus, HeldOut)
    states = file_states(corpus)
    if not (known and states and known["train"].get("files") == states):
        return None
    if is_held_out != ("whole" in known["train"]) or is_held_out != folder.exists():
        return None
    if isinstance(corpus, HeldOut):
        corpus.load(folder)
    return known


def file_states(corpus: Corpus) -> dict[str, list[int]]:
    """Returns the size, and the time of writing, of each file of a corpus."""
    files = getattr(getattr(corpus, "whole", corpus), "files", {})
    names = (path.resolve() for split in files.values() for path in split.paths)
    return {str(x): [x.stat().st_size, x.stat().st_mtime_ns] for x in names}


def check_corpus(
    run_dir: str | Path,
    data: str,
    texts: Mapping[str, Mapping[str, Any]],
    corpus: Corpus,
) -> None:
    """Refuses to go on with another text than the run's.

    Args:
        run_dir: A run directory.
        data: The corpus's name or folder; the same text may have another one.
        texts: What `Survey.texts` says of it.
        corpus: The corpus.

    Raises:
        ValueError: If the text is another one; it says what differs and what to do.
    """
    record = read_record(run_dir)
    before, saved = record["settings"]["data"], record["corpus"]
    if saved is None:
        raise ValueError(
            f"{run_dir} holds a translator that was saved there and not trained there. "
            f"Give another run directory, where --init_from {run_dir} starts from it"
        )
    for split, now in texts.items():
        if now["digest"] != saved[split]["digest"]:
            of_before = f" of {before!r}" * (before != data)
            raise ValueError(
                f"{run_dir} holds a run on another text: its {split} split had "
                f"{saved[split]['pairs']:,} pairs{of_before}, and that of {data!r} has "
                f"{now['pairs']:,}{_changes(corpus, split, saved[split], now)}. Give "
                "another run directory to train on this text, where --init_from "
                f"{run_dir} starts from what this run has learned; or the former text "
                "to go on"
            )


def _check_counted(path: Path) -> None:
    """Refuses to go on with a record that lacks what was counted of the text."""
    record = read_record(path)
    if lacks := [name for name in COUNTED if name not in record["corpus"]["train"]]:
        raise ValueError(
            f"{RunDirectory(path).record} lacks {', '.join(lacks)} of the training "
            f"text, as it is damaged or of another version ({record.get('library')}). "
            f"Give another run directory, where --init_from {path} starts from what "
            "this run has learned"
        )


def _changes(
    corpus: Corpus, split: str, before: Mapping[str, Any], now: Mapping[str, Any]
) -> str:
    """What has become of a text, besides the number of its pairs."""
    if ("whole" in before) != ("whole" in now) and split == "train":
        was = "no longer" if "whole" in before else "now"
        return f": validation text {was} held out of it"
    if isinstance(corpus, HeldOut) and "whole" in before:
        # Of a text that has grown, other pairs are held out than before.
        corpus, before, now = corpus.whole, before["whole"], now["whole"]
    if before["pairs"] == now["pairs"]:
        return ", of which some differ"
    if before["pairs"] > now["pairs"]:
        return ""
    same = fingerprint(corpus, split, before["pairs"]).digest == before["digest"]
    return ": pairs were added at its end" if same else ""


def get_tokenizers(run: Run) -> TokenizerPair:
    """Loads the run's tokenizers, or trains and saves them, and what is held out."""
    config, directory = run.config, RunDirectory(run.path).tokenizer
    if run.resuming or run.own.survey is None:  # of another machine
        return TokenizerPair.load(directory, run.path)
    seen = run.own.survey.splits["train"]
    tags = frequent_tags(seen.tags, seen.fingerprint.pairs)
    text = remove_tags(run.own_pairs, tags)
    if config.init_from is not None:
        tokenizers = inherit_tokenizers(config, text)
    else:
        names = OF_PIECES if config.tokenizer == "sentencepiece" else ()
        options = {name: getattr(config, name) for name in names}
        with telling("Learning the vocabulary"):
            tokenizers = TokenizerPair.train(
                text, config.tokenizer, config.vocab_size, config.shared, **options
            )
    tokenizers = add_tag_tokens(tokenizers, config, tags)
    tokenizers.save(directory)
    if isinstance(run.own.corpus, HeldOut):
        run.own.corpus.save(RunDirectory(run.path).held_out)
    return tokenizers
