"""A run directory is opened by one training at a time, for one text and one setting."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.config.training import TrainingConfig
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.lock import owned
from keras_luong.runs.record import check_settings, read_record
from keras_luong.runs.same_corpus import check_corpus, describe_corpus
from keras_luong.runs.starting_point import (
    check_other_start,
    check_same_start,
    training_corpus,
)
from keras_luong.text.corpus import Corpus, check_split
from keras_luong.text.languages import fold
from keras_luong.training.strategies import worker_index


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

    @property
    def training_pairs(self) -> tf.data.Dataset:
        """The pairs to learn from."""
        return self.corpus.pairs("train").take(self.config.limit_examples or -1)

    def read_record(self) -> dict[str, Any]:
        """What its `run.json` says, once it is written."""
        return read_record(self.path)


def own_directory(run_dir: str | Path, strategy: tf.distribute.Strategy) -> Path:
    """The directory that this machine writes to: of several, each has its own."""
    worker = worker_index(strategy)
    return Path(run_dir) / "workers" / str(worker) if worker else Path(run_dir)


@contextlib.contextmanager
def opened(
    config: TrainingConfig, path: Path, corpus: Corpus | None = None
) -> Iterator[Run]:
    """Loads the corpus, and keeps other processes out of the run directory.

    Args:
        config: What is trained.
        path: The run directory.
        corpus: The corpus, if it is loaded already.

    Yields:
        The `Run`.

    Raises:
        ValueError: The directory holds another run, or the corpus cannot be read or has
            nothing to validate by.
        OSError: Another process trains there, it cannot be written to, or the corpus
            changes meanwhile.
    """
    check_other_start(path, config.init_from)
    corpus = training_corpus(config.settings(), corpus)
    check_split(corpus, "train")  # one to validate by is held out where there is none
    with owned(path):
        if RunDirectory(path).record.exists():
            before = read_record(path)["settings"]
            config = _as_spelled(before, config).as_begun(before)
        # A corpus is its text, and a run to start from its weights, wherever they are.
        free = config.free | {"data", "init_from"}
        resuming = check_settings(path, config.settings(), free, config.implied)
        texts = describe_corpus(corpus, config.limit_examples)
        if resuming:
            check_same_start(path, config.init_from)
            check_corpus(path, config.data, texts, corpus)
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
        except tf.errors.OpError as error:
            # What a corpus says of its files, which tf.data hands on within its own; or
            # what TensorFlow says of its files in the run directory.
            own = rf"(?<![\w./-])({re.escape(str(path))}/.+?)(?: \[Op:|$)"
            for words in (r"(?:OS|FileNotFound|Value)Error: (.+)", own):
                if told := re.search(words, str(error), re.MULTILINE):
                    raise OSError(told[1]) from error
            raise


def _as_spelled(before: Mapping[str, Any], config: TrainingConfig) -> TrainingConfig:
    """The configuration with the languages as the run spells them: EN is its en."""
    spelled = {
        name: before[name]
        for name in ("source", "target")
        if fold(getattr(config, name)) == fold(before.get(name, ""))
    }
    return dataclasses.replace(config, **spelled)


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
