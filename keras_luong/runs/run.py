"""A run directory: the names of its files, its record, its text, and its lock.

```
run.json           what was trained and how: model, search, settings, versions
tokenizer/         the tokenizers
model.weights.h5   the best weights so far
last.weights.h5    those of the last epoch
checkpoints/       the last state, to go on from
epochs/            the weights of the last epochs, to average
history.jsonl      one line per epoch
results.json       the final evaluation
logs/              for TensorBoard
pictures/          attention after each epoch
```

A run is of one text, wherever that lies, and of one set of settings; one process at a
time writes to its directory, which begins by removing what killed ones had begun.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import fnmatch
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import filelock

from keras_luong.checks import check_path
from keras_luong.config.models import ModelConfig
from keras_luong.config.training import paths_from, with_found_paths
from keras_luong.files import TEMPORARY, naming, remove, write_json

if TYPE_CHECKING:  # a command line is read without TensorFlow
    import keras

    from keras_luong.decoding.beam import BeamSearch

FORMAT = 1  # of run.json
_PARTS = (
    *("format", "model", "search", "max_source_length", "settings", "paths"),
    *("corpus", "came_from"),
)


class RunDirectory:
    """The names in a run directory; touches no file.

    Args:
        path: The directory, which need not exist yet.

    Raises:
        TypeError: If `path` is no path.

    Example:
        >>> from keras_luong.runs.run import RunDirectory
        >>> RunDirectory("runs/mine").best_weights
        PosixPath('runs/mine/model.weights.h5')
    """

    def __init__(self, path: str | Path) -> None:
        self.path = check_path("run_dir", path)
        self.record = self.path / "run.json"
        self.tokenizer = self.path / "tokenizer"
        self.best_weights = self.path / "model.weights.h5"
        self.last_weights = self.path / "last.weights.h5"
        self.tokens = self.path / "tokens"  # while it is trained
        self.held_out = self.path / "held_out"
        self.checkpoints = self.path / "checkpoints"
        self.epochs = self.path / "epochs"
        self.history = self.path / "history.jsonl"
        self.results = self.path / "results.json"
        self.logs = self.path / "logs"
        self.pictures = self.path / "pictures"
        self.workers = self.path / "workers"  # run directories of further machines
        self.lock = self.path / ".lock"  # see `keras_luong.runs.run`
        self.owner = self.path / ".lock.owner"


def check_run(run_dir: str | Path) -> RunDirectory:
    """Returns a run's directory if there is one, with the record of a run.

    Raises:
        FileNotFoundError: If there is none; it names one that may have been meant.
    """
    run = RunDirectory(run_dir)
    if run.record.is_file():
        return run
    beside = [str(x.parent) for x in run.path.parent.glob("*/run.json")]
    close = difflib.get_close_matches(str(run.path), beside, 1)
    hint = f"Did you mean {close[0]}?" if close else "keras-luong train makes one."
    if run.path.exists():
        raise FileNotFoundError(
            f"{run.path} is no run directory, as it has no run.json. {hint}"
        )
    raise FileNotFoundError(f"There is no run directory at {run.path}. {hint}")


def read_history(run_dir: str | Path) -> list[dict[str, Any]]:
    """Reads `history.jsonl`.

    Args:
        run_dir: The run directory.

    Returns:
        One dict per finished epoch; none if no epoch was finished.

    Raises:
        ValueError: If a line is damaged; it names the line.
    """
    path = RunDirectory(run_dir).history
    if not path.exists():
        return []
    epochs = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            epochs.append(json.loads(line))
            if not isinstance(epochs[-1]["epoch"], int):
                raise TypeError
            float(sum(x or 0 for x in epochs[-1].values()))  # numbers and null
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}, line {number} is damaged: it must be an epoch as JSON. "
                f"Received: {line!r:.60}"
            ) from error
    return epochs


def read_results(run_dir: str | Path) -> dict[str, Any] | None:
    """Reads `results.json`.

    Args:
        run_dir: The run directory.

    Returns:
        Split → what the final evaluation found; None if there was none yet.

    Raises:
        ValueError: If the file is damaged.
    """
    path = RunDirectory(run_dir).results
    results = read_json(path) if path.exists() else None
    splits = results.values() if isinstance(results, dict) else [results]
    if results is not None and not all(isinstance(x, dict) for x in splits):
        raise ValueError(f"{path} is damaged: it must have an object for each split")
    return results


def read_json(path: Path) -> Any:
    """Reads a file of JSON.

    Raises:
        ValueError: If it holds something else.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error})") from error


def file_digest(path: str | Path) -> str:
    """Returns a file's digest in hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_record(
    run_dir: str | Path,
    model: keras.Model,
    search: BeamSearch,
    max_source_length: int,
    settings: Mapping[str, Any],
    sample: str | None = None,
    corpus: Mapping[str, Any] | None = None,
    came_from: Mapping[str, Any] | None = None,
) -> None:
    """Writes `run.json`: with the tokenizers and weights, all that `load` needs.

    Args:
        run_dir: The run directory; made if there is none.
        model: The model. Its class must be registered with Keras
            (`keras.saving.register_keras_serializable`).
        search: How the run translates; a shortlist has a file of its own.
        max_source_length: Longer source sentences are cut there.
        settings: Name → value, for `check_settings` and for people.
        sample: A sentence of the run's language, for whoever tries an export out.
        corpus: Split → what is known of its text, see `keras_luong.runs.run`.
        came_from: What is known of the run that it starts from, see
            `keras_luong.runs.start`.

    Raises:
        TypeError: If JSON cannot write a setting or a part of the search.
        ValueError: If the model's class is not registered.

    Example:
        >>> from keras_luong.runs.run import read_record, write_record
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> write_record("runs/new", model, kl.BeamSearch(5), 100, {"epochs": 20})
        >>> read_record("runs/new")["search"]["beam_width"]
        5
    """
    import keras

    class_name = keras.saving.get_registered_name(type(model))
    if keras.saving.get_registered_object(class_name) is None:
        raise ValueError(
            f"{type(model).__name__} can't be reloaded: decorate it with "
            "@keras.saving.register_keras_serializable(package=...)"
        )
    run = RunDirectory(run_dir)
    run.path.mkdir(parents=True, exist_ok=True)
    write_json(
        run.record,
        {
            "format": FORMAT,
            "library": f"keras_luong {metadata.version('keras_luong')}",
            "keras": keras.__version__,
            "model": {"class": class_name, "config": model.get_config()},
            "search": dataclasses.asdict(search),
            "max_source_length": max_source_length,
            "settings": dict(settings),
            "paths": paths_from(run_dir, settings),
            "sample": sample,
            "corpus": corpus,
            "came_from": came_from,
        },
    )


def read_record(run_dir: str | Path) -> dict[str, Any]:
    """Reads and checks `run.json`.

    Args:
        run_dir: The run directory.

    Returns:
        What `write_record` wrote; paths among the settings lead to where they did then,
        also from another working directory.

    Raises:
        FileNotFoundError: If there is no such directory, or no `run.json` in it.
        ValueError: If the file is damaged, or of a version that this one can't read.
    """
    run = check_run(run_dir)
    record = read_json(run.record)
    version = record.get("format") if isinstance(record, dict) else None
    if version is None:
        raise ValueError(f"{run.record} is damaged: it has no format version")
    if version != FORMAT:
        raise ValueError(
            f"{run.record} has format {version!r}, written by "
            f"{record.get('library', 'an unknown version')}. keras_luong "
            f"{metadata.version('keras_luong')} reads format {FORMAT}; load the run "
            "with the version that wrote it"
        )
    missing = [part for part in _PARTS if part not in record]
    if missing:
        raise ValueError(f"{run.record} is damaged: it lacks {', '.join(missing)}")
    for name in ("model", "search", "settings", "paths"):
        if not isinstance(record[name], dict):
            raise ValueError(
                f"{run.record} is damaged: {name} must be an object. "
                f"Received: {record[name]}"
            )
    settings = with_found_paths(run.path, record["settings"], record["paths"])
    return {**record, "settings": settings}


def check_settings(
    run_dir: str | Path, settings: Mapping[str, Any], free: Collection[str] = ()
) -> bool:
    """Tells whether there is a run to go on with, and refuses one of other settings.

    Args:
        run_dir: The run directory, which need not exist.
        settings: Name → value of everything that shapes the run.
        free: The names that may change when a run goes on, such as `"epochs"`.

    Returns:
        True if the directory holds a run of these settings, False if it holds none.

    Raises:
        ValueError: If it holds a run of other settings, or is not empty and no run.

    Example:
        >>> from keras_luong.runs.run import check_settings
        >>> check_settings("runs/mine", {"epochs": 20}, free=["epochs"])
        True
        >>> check_settings("runs/new", {"epochs": 20})
        False
    """
    run = RunDirectory(run_dir)
    if run.record.exists():
        before = read_record(run_dir)["settings"]
        _check_same(run, "settings", before, settings, {*before, *settings} - set(free))
        return True
    if run.path.is_dir():  # what a run that never began has left may be there
        names = {path.name for path in run.path.iterdir()}
        prepared = run.tokenizer, run.held_out, run.tokens
        own = {p.name for p in (*prepared, run.workers, run.lock, run.owner)}
        strangers = names - own - set(fnmatch.filter(names, TEMPORARY))
        if strangers:
            raise ValueError(
                f"{run.path} is no run directory (it has no run.json) and is not "
                f"empty: {sorted(strangers)[:5]}. Give a new or empty directory"
            )
    elif run.path.exists():
        raise ValueError(f"{run.path} is a file. Give a new or empty directory")
    return False


def check_config(run_dir: str | Path, config: ModelConfig) -> None:
    """Refuses to go on with a model of another configuration than the run's.

    Sizes of vocabularies, which follow from the text, may differ.

    Args:
        run_dir: A run directory.
        config: What the model is to be, such as a `Seq2SeqConfig`.

    Raises:
        ValueError: If a field differs; it says which.

    Example:
        >>> from keras_luong.runs.run import check_config
        >>> check_config("runs/mine", kl.load("runs/mine").model.config)
    """
    before = read_record(run_dir)["model"]["config"]["config"]
    now = dataclasses.asdict(config)
    names = now.keys() - {"source_vocab_size", "target_vocab_size"}
    _check_same(RunDirectory(run_dir), "options of the model", before, now, names)


def check_exists(path: Path, what: str, hint: str) -> None:
    """Raises FileNotFoundError if there is no such file or directory.

    Args:
        path: Where it should be.
        what: What it is.
        hint: What to do about it, or why it is missing.
    """
    if not path.exists():
        raise FileNotFoundError(f"There is no {what} at {path}; {hint}")


def _check_same(
    run: RunDirectory,
    what: str,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    names: Collection[str],
) -> None:
    now = json.loads(json.dumps(now))  # tuples become lists, as in the file
    changes = [
        f"{name}: {before.get(name)!r} there, {now.get(name)!r} now"
        for name in sorted(names)
        if before.get(name) != now.get(name)
    ]
    if changes:
        raise ValueError(
            f"{run.path} holds a run with other {what}; give another run directory, "
            f"or the same {what} to go on with it. They differ in {'; '.join(changes)}"
        )


@contextlib.contextmanager
def lock_run(run_dir: str | Path) -> Iterator[None]:
    """Makes the directory if there is none, and keeps other processes out of it.

    Files and directories that a killed process had begun to write there are removed.
    However the owner ends, the directory is free again.

    Args:
        run_dir: The run directory.

    Raises:
        OSError: If it cannot be written to, or another process owns it; or the disk is
            full meanwhile.

    Example:
        >>> from keras_luong.runs.run import lock_run
        >>> with lock_run("runs/mine"):
        ...     print("No other process writes there now.")
        No other process writes there now.
    """
    run = RunDirectory(run_dir)
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        # The operating system frees the lock when the process ends.
        lock = filelock.FileLock(run.lock).acquire(blocking=False)
    except filelock.Timeout:
        owner = run.owner.read_text() if run.owner.exists() else "that has just begun"
        raise OSError(
            f"Another process, {owner}, trains in {run.path}: wait for its end, or "
            "give another directory"
        ) from None
    except OSError as error:
        raise OSError(
            "run_dir must be a directory that can be written to. "
            f"Received: {run.path} ({error.strerror})"
        ) from error
    with lock, naming(run.path):
        try:
            run.owner.write_text(str(os.getpid()))
            for leftover in [*run.path.glob(TEMPORARY), *run.epochs.glob(TEMPORARY)]:
                remove(leftover)
            yield
        finally:
            run.owner.unlink(missing_ok=True)


def remove_half_written(path: str | Path) -> None:
    """Removes what was begun for a file or directory, by processes that were killed.

    What others write meanwhile beside it, under other names, stays.

    Args:
        path: The file or directory, which no process may be writing now.

    Example:
        >>> from keras_luong.runs.run import remove_half_written
        >>> remove_half_written("out.de")
    """
    path = Path(path)
    # As `keras_luong.files` names it; "*" would also match other names' ends.
    begun = re.compile(rf"\.\d+-[0-9a-f]{{8}}\.{re.escape(path.name)}")
    for beside in list(path.parent.iterdir()) if path.parent.is_dir() else []:
        if begun.fullmatch(beside.name):
            remove(beside)


@contextlib.contextmanager
def lock_output(path: str | Path) -> Iterator[None]:
    """Keeps other processes from writing a file or directory at the same time.

    What killed ones had begun is removed.

    Args:
        path: The file or directory.

    Raises:
        OSError: If another process writes it.

    Example:
        >>> from keras_luong.runs.run import lock_output
        >>> with lock_output("out.de"):
        ...     print("Nobody else writes out.de now.")
        Nobody else writes out.de now.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f".{path.name}.lock")
    try:
        held = filelock.FileLock(lock).acquire(blocking=False)
    except filelock.Timeout:
        raise OSError(
            f"Another process writes {path}: wait for its end, or give another name"
        ) from None
    with held:
        remove_half_written(path)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
