"""The corpus that a run was trained on, for scripts that need it again."""

from __future__ import annotations

import argparse
from pathlib import Path

from keras_luong.runs.directory import read_record
from keras_luong.text import load_corpus
from keras_luong.text.corpus import Corpus

_FLAGS = {
    "data": "tfds name, folder, phrases",
    "source": "source language",
    "target": "target language",
}


def add_corpus_flags(parser: argparse.ArgumentParser) -> None:
    """Adds what names a corpus.

    Args:
        parser: The script's.
    """
    group = parser.add_argument_group("data (what is not given is the run's)")
    for name, text in _FLAGS.items():
        group.add_argument(f"--{name}", help=text)


def corpus_of(args: argparse.Namespace, run_dir: str | Path) -> Corpus:
    """Loads the corpus that the flags name, or else the run's.

    Args:
        args: With what `add_corpus_flags` added.
        run_dir: The run directory.

    Returns:
        The corpus.

    Raises:
        FileNotFoundError: If there is no such run, or a file of the corpus is missing.
        ValueError: If neither the flags nor the run name one, or there is none of that
            name; it says which.

    Example:
        >>> corpus_of(parser.parse_args(["--data", "my/corpus"]), "runs/mine").splits
        ('train', 'validation')
    """
    settings = read_record(run_dir)["settings"]
    found = {name: getattr(args, name) or settings.get(name) for name in _FLAGS}
    missing = [f"--{name}" for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f"{run_dir} does not name its data: give {', '.join(missing)}")
    return load_corpus(found["data"], found["source"], found["target"])
