"""The record of a run, `run.json`: what was trained, and how."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from collections.abc import Collection, Mapping
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

import keras

from keras_luong.config.named_paths import paths_from, with_found_paths
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.special_tokens import SpecialTokens
from keras_luong.files import TEMPORARY, write_json
from keras_luong.runs.directory import RunDirectory, check_run, read_json

FORMAT = 1
_PARTS = ("format", "model", "search", "max_source_length", "settings")


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
        corpus: Split → what is known of its text, see `keras_luong.runs.same_corpus`.
        came_from: What is known of the run that it starts from, see
            `keras_luong.runs.starting_point`.

    Raises:
        TypeError: If JSON cannot write a setting or a part of the search.
        ValueError: If the model's class is not registered.

    Example:
        >>> from keras_luong.runs.record import read_record, write_record
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> write_record("runs/new", model, kl.BeamSearch(5), 100, {"epochs": 20})
        >>> read_record("runs/new")["search"]["beam_width"]
        5
    """
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
            "search": _search_fields(search),
            "max_source_length": max_source_length,
            "settings": dict(settings),
            "paths": paths_from(run_dir, settings),
            "sample": sample,
            **({} if corpus is None else {"corpus": dict(corpus)}),
            **({} if came_from is None else {"came_from": dict(came_from)}),
        },
    )


def _search_fields(search: BeamSearch) -> dict[str, Any]:
    """Returns the fields; special ids only where they are not the library's.

    Versions that know no others can read the file then.
    """
    fields = dataclasses.asdict(search)
    usual = dataclasses.asdict(SpecialTokens()).items()
    return {name: x for name, x in fields.items() if (name, x) not in usual}


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
    settings, paths = record["settings"], record.get("paths", {})
    objects = {
        "paths": paths,
        **{x: record[x] for x in ("model", "search", "settings")},
    }
    for name, value in objects.items():
        if not isinstance(value, dict):
            raise ValueError(
                f"{run.record} is damaged: {name} must be an object. Received: {value}"
            )
    return {**record, "settings": with_found_paths(run.path, settings, paths)}


def check_settings(
    run_dir: str | Path,
    settings: Mapping[str, Any],
    free: Collection[str] = (),
    implied: Mapping[str, Any] = MappingProxyType({}),
) -> bool:
    """Tells whether there is a run to go on with, and refuses one of other settings.

    Args:
        run_dir: The run directory, which need not exist.
        settings: Name → value of everything that shapes the run.
        free: The names that may change when a run goes on, such as `"epochs"`.
        implied: Name → value of settings that need not be named.

    Returns:
        True if the directory holds a run of these settings, False if it holds none.

    Raises:
        ValueError: If it holds a run of other settings, is not empty and no run, or
            was written by a version that this one can't read.

    Example:
        >>> from keras_luong.runs.record import check_settings
        >>> check_settings("runs/mine", {"epochs": 20}, free=["epochs"])
        True
        >>> check_settings("runs/new", {"epochs": 20})
        False
    """
    run = RunDirectory(run_dir)
    if not run.record.exists():
        _check_vacant(run)
        return False
    before = {**implied, **read_record(run_dir)["settings"]}
    now = {**implied, **settings}
    _check_same(run, "settings", before, now, {*before, *now} - set(free))
    return True


def check_config(run_dir: str | Path, config: Any) -> None:
    """Refuses to go on with a model of another configuration than the run's.

    Even with the same settings the model may differ, where its preset has changed.

    Args:
        run_dir: A run directory.
        config: The dataclass that says what the model is, such as `Seq2SeqConfig`.

    Raises:
        ValueError: If a field that both have differs; it says which.

    Example:
        >>> from keras_luong.runs.record import check_config
        >>> check_config("runs/mine", kl.load("runs/mine").model.config)
    """
    before = read_record(run_dir)["model"]["config"]["config"]
    now = dataclasses.asdict(config)
    names = before.keys() & now.keys()
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


def _check_vacant(run: RunDirectory) -> None:
    """Allows what a run that never began has left there, and nothing else."""
    if run.path.is_dir():
        names = {path.name for path in run.path.iterdir()}
        own = {p.name for p in (run.tokenizer, run.workers, run.lock, run.owner)}
        strangers = names - own - set(fnmatch.filter(names, TEMPORARY))
        if strangers:
            raise ValueError(
                f"{run.path} is no run directory (it has no run.json) and is not "
                f"empty: {sorted(strangers)[:5]}. Give a new or empty directory"
            )
    elif run.path.exists():
        raise ValueError(f"{run.path} is a file. Give a new or empty directory")
