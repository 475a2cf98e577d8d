"""The run directory: all that a training run leaves, and how to load it again.

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
"""

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

from keras_luong.checks import check_path
from keras_luong.decoding.beam import BeamSearch
from keras_luong.files import TEMPORARY, write_json
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.translator import Translator

FORMAT = 1
LOCK = ".lock"  # see `keras_luong.runs.lock`
_PARTS = ("format", "model", "search", "max_source_length", "settings")


@dataclasses.dataclass(frozen=True)
class RunDirectory:
    """The names in a run directory; touches no file.

    Args:
        path: The directory, which need not exist yet.

    Example:
        >>> RunDirectory("runs/m30k").best_weights
        PosixPath('runs/m30k/model.weights.h5')
    """

    path: Path

    def __post_init__(self):
        """Takes strings too."""
        object.__setattr__(self, "path", check_path("run_dir", self.path))

    record = property(lambda self: self.path / "run.json")
    tokenizer = property(lambda self: self.path / "tokenizer")
    best_weights = property(lambda self: self.path / "model.weights.h5")
    checkpoints = property(lambda self: self.path / "checkpoints")
    last_weights = property(lambda self: self.path / "last.weights.h5")
    history = property(lambda self: self.path / "history.jsonl")
    results = property(lambda self: self.path / "results.json")
    logs = property(lambda self: self.path / "logs")
    pictures = property(lambda self: self.path / "pictures")


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
        implied: What a setting is that is not named.

    Returns:
        True if the directory holds a run of these settings, False if it holds none.

    Raises:
        ValueError: If it holds a run of other settings, is not empty and no run, or
            was written by a version that this one can't read.

    Example:
        >>> resuming = check_settings("runs/m30k", {"units": 512, "epochs": 20},
        ...                           free=["epochs"])
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

    Where a preset is another than it was, settings are the same and the model is not.

    Args:
        run_dir: A run directory.
        config: The dataclass that says what the model is, such as `Seq2SeqConfig`.

    Raises:
        ValueError: If a field that both have differs; it says which.

    Example:
        >>> check_config("runs/m30k", model.config)
    """
    before = read_record(run_dir)["model"]["config"]["config"]
    now = dataclasses.asdict(config)
    _check_same(
        RunDirectory(run_dir),
        "options of the model",
        before,
        now,
        before.keys() & now.keys(),
    )


def _check_same(run, what, before, now, names) -> None:
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


def write_record(
    run_dir: str | Path,
    model: keras.Model,
    search: BeamSearch,
    max_source_length: int,
    settings: Mapping[str, Any],
) -> None:
    """Writes `run.json`: with the tokenizers and weights, all that `load` needs.

    Args:
        run_dir: The run directory; made if there is none.
        model: The model. Its class must be registered with Keras
            (`keras.saving.register_keras_serializable`).
        search: How the run translates; a shortlist has a file of its own.
        max_source_length: Longer source sentences are cut there.
        settings: Name → value, for `check_settings` and for people.

    Raises:
        TypeError: If a setting or a part of the search is nothing that JSON can write.
        ValueError: If the model's class is not registered.

    Example:
        >>> write_record("runs/m30k", model, BeamSearch(5), 100, vars(args))
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
            "search": dataclasses.asdict(search),
            "max_source_length": max_source_length,
            "settings": dict(settings),
        },
    )


def read_record(run_dir: str | Path) -> dict[str, Any]:
    """Reads and checks `run.json`.

    Args:
        run_dir: The run directory.

    Returns:
        What `write_record` wrote.

    Raises:
        FileNotFoundError: If there is no such directory, or no `run.json` in it.
        ValueError: If the file is damaged or of a version that this one can't read.
    """
    run = RunDirectory(run_dir)
    _check_exists(run.path, "run directory", "train one with keras-luong train")
    _check_exists(run.record, "record of the run", f"{run.path} is no run directory")
    try:
        record = json.loads(run.record.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(
            f"{run.record} is damaged: it is not JSON ({error})"
        ) from error
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
    return record


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
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            epochs.append(json.loads(line))
        except ValueError as error:
            raise ValueError(f"{path}, line {number} is damaged: {error}") from error
    return epochs


def read_results(run_dir: str | Path) -> dict[str, Any] | None:
    """Reads `results.json`.

    Args:
        run_dir: The run directory.

    Returns:
        Split → what the final evaluation found; None where there was none yet.

    Raises:
        ValueError: If the file is damaged.
    """
    path = RunDirectory(run_dir).results
    if not path.exists():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error})") from error


def load(
    run_dir: str | Path,
    weights: str = "best",
    search: BeamSearch | None = None,
    dtype: str | keras.DTypePolicy | None = None,
) -> Translator:
    """Loads a trained translator.

    Args:
        run_dir: A directory that `keras-luong train` writes, also while it trains.
        weights: `"best"` for the best validated weights, `"last"` for the last ones.
        search: Another search than the run's own.
        dtype: Another precision to compute in than the run was trained in, such as
            `"float32"` for a CPU that is slow in half precision. The weights are
            float32 under mixed precision too.

    Returns:
        A translator with the run's model, tokenizers and search.

    Raises:
        FileNotFoundError: If a part is missing; it says which.
        ValueError: If a part is damaged, of another shape, or of a version that this
            one can't read; or if there is no such `dtype`.

    Example:
        >>> translator = keras_luong.load("runs/m30k")
        >>> translator.translate(["A dog runs."])[0].text
    """
    run = RunDirectory(run_dir)
    record = read_record(run_dir)
    weights_path = _weights_path(run, weights)
    _check_exists(run.tokenizer, "directory of tokenizers", "the run is incomplete")
    tokenizers = TokenizerPair.load(run.tokenizer)
    changes = {} if dtype is None else {"dtype": keras.dtype_policies.get(dtype).name}
    try:
        model = _make_model(record["model"], changes)
        search = search or BeamSearch(**record["search"])
        translator = Translator(model, tokenizers, search, record["max_source_length"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(
            f"{run.record} is damaged, or by another version "
            f"({record.get('library')}): {error}"
        ) from error
    _load_weights(model, weights_path)
    return translator


def _make_model(
    description: Mapping[str, Any], changes: Mapping[str, Any]
) -> keras.Model:
    cls = keras.saving.get_registered_object(description["class"])
    if cls is None:
        raise ValueError(
            f"no model class is registered as {description['class']!r}; import the "
            "module that defines it first"
        )
    return cls.from_config({**description["config"], **changes})


def _weights_path(run: RunDirectory, weights: str) -> Path:
    paths = {"best": run.best_weights, "last": run.last_weights}
    if weights not in paths:
        raise ValueError(f"weights must be 'best' or 'last'. Received: {weights!r}")
    others = [f"weights={w!r}" for w, path in paths.items() if path.exists()]
    hint = f"{others[0]} can be had" if others else "no epoch was finished yet"
    _check_exists(paths[weights], f"file of the {weights} weights", hint)
    return paths[weights]


def _load_weights(model: keras.Model, path: Path) -> None:
    from keras_luong.runs.averaging import weight_names

    try:
        # Of a larger model Keras would load a part, and say nothing.
        if (found := len(weight_names(path))) != (expected := len(model.weights)):
            raise ValueError(f"it has {found} weights, and the model {expected}")
        model.load_weights(path)
    except (ValueError, OSError, KeyError) as error:
        raise ValueError(
            f"{path} is damaged, or its weights belong to another model than the one "
            f"in run.json: {error}"
        ) from error


def _check_exists(path: Path, what: str, hint: str) -> None:
    if not path.exists():
        raise FileNotFoundError(f"There is no {what} at {path}; {hint}")


def _check_vacant(run: RunDirectory) -> None:
    """What a run that never began left there may be overwritten; nothing else."""
    if run.path.is_dir():
        names = {p.name for p in run.path.iterdir()}
        strangers = names - {run.tokenizer.name, LOCK, "workers"}
        strangers -= set(fnmatch.filter(names, TEMPORARY))
        if strangers:
            raise ValueError(
                f"{run.path} is no run directory (it has no run.json) and is not "
                f"empty: {sorted(strangers)[:5]}. Give a new or empty directory"
            )
    elif run.path.exists():
        raise ValueError(f"{run.path} is a file. Give a new or empty directory")
