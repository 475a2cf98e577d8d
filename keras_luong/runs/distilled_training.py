"""A training that learns from other models too: teachers first, then their student."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import keras

from keras_luong.config.auto import AutoTraining
from keras_luong.config.training import TrainingConfig
from keras_luong.runs.choosing import chosen_for
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.distillation import write_distilled
from keras_luong.runs.ensemble import load_ensemble
from keras_luong.runs.opening import opened
from keras_luong.runs.record import read_record
from keras_luong.runs.train import train
from keras_luong.text.find_corpus import load_corpus

TEACHERS = 3


def train_distilled(
    training: TrainingConfig | AutoTraining,
    run_dir: str | Path,
    teachers: int = TEACHERS,
) -> dict[str, Any]:
    """Trains models that differ in their seed, and a student of their translations.

    Sequence-level knowledge distillation, see `keras_luong.runs.distillation`. The
    student learns from the references and from what the teachers, as an ensemble, make
    of the training sources. What is finished is not done again, but it must be of the
    same text and the same settings.

    Args:
        training: What is trained. The student of an `AutoTraining` is as large as its
            corpus, of twice the pairs, suggests.
        run_dir: The student's run directory. Beside it, in `<run_dir>-teachers`, are
            the teachers' and the corpus that the student learns from.
        teachers: How many teachers there are.

    Returns:
        The student's results, as `keras_luong.runs.train.train` returns them.

    Raises:
        ValueError: If only a part of the corpus is to be trained on, or a teacher that
            is trained is of another text or other settings; and as of
            `keras_luong.runs.train.train`.

    Example:
        >>> from keras_luong.config.auto import AutoTraining
        >>> from keras_luong.runs.distilled_training import train_distilled
        >>> tiny = {"units": 8, "epochs": 1, "tokenizer": "word"}
        >>> training = AutoTraining("my/corpus", "en", "de", given=tiny)
        >>> results = train_distilled(training, "runs/new", teachers=1)
        2 trainings: 1 teacher, then a student. Each tells how long it takes itself.
        <BLANKLINE>
        Teacher 1 of 1
        ...
        >>> sorted(results)
        ['test', 'validation']
    """
    _check_whole(training)
    beside = Path(f"{run_dir}-teachers")
    runs = [beside / str(seed) for seed in range(1, teachers + 1)]
    taught = beside / "corpus"
    every = f"{teachers} teacher{'s' * (teachers > 1)}, then a student"
    print(f"{teachers + 1} trainings: {every}. Each tells how long it takes itself.")
    for seed, run in enumerate(runs, 1):
        print(f"\nTeacher {seed} of {teachers}", flush=True)
        if taught.exists() and not RunDirectory(run).results.exists():
            raise ValueError(
                f"{taught} was written by other teachers: {run} is no finished run. "
                "Remove it, or give another run directory"
            )
        _train_once(_changed(training, seed=seed), run)
    settings = read_record(runs[0])["settings"]
    languages = settings["source"], settings["target"]
    if not taught.exists():
        corpus = load_corpus(training.data, *languages)
        print(f"\nThe teachers translate {corpus.name}", flush=True)
        # The student puts the tag in front of its sources itself.
        tag = settings.get("tag")
        write_distilled(corpus, load_ensemble(runs), taught, progress=True, tag=tag)
    print("\nStudent", flush=True)
    student = dataclasses.replace(training, data=str(taught))
    source, target = languages
    return train(dataclasses.replace(student, source=source, target=target), run_dir)


def _check_whole(training: TrainingConfig | AutoTraining) -> None:
    if isinstance(training, AutoTraining):
        limit = training.given.get("limit_examples")
    else:
        limit = training.limit_examples
    if limit:
        raise ValueError(
            "Distillation is of a whole corpus; leave limit_examples out. Received: "
            f"limit_examples={limit}"
        )


def _changed(
    training: TrainingConfig | AutoTraining, seed: int
) -> TrainingConfig | AutoTraining:
    """The same training with another seed."""
    if isinstance(training, AutoTraining):
        return dataclasses.replace(training, given={**training.given, "seed": seed})
    return dataclasses.replace(training, seed=seed)


def _train_once(training: TrainingConfig | AutoTraining, run: Path) -> None:
    """Trains, unless that is done."""
    if RunDirectory(run).results.exists():
        _check_same(training, run)
        print(f"is trained: {run}")
        return
    keras.backend.clear_session()  # the teacher before need not stay in memory
    train(training, run)


def _check_same(training: TrainingConfig | AutoTraining, run: Path) -> None:
    """Refuses a teacher of another text, or of other settings."""
    corpus = None
    if isinstance(training, AutoTraining):
        training, corpus = chosen_for(training, run)
    with opened(training, run, corpus):
        pass  # it is opened only for the same
