"""The run directory: the names of all that a training leaves.

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

import difflib
import json
from pathlib import Path
from typing import Any

from keras_luong.checks import check_path


class RunDirectory:
    """The names in a run directory; touches no file.

    Args:
        path: The directory, which need not exist yet.

    Raises:
        TypeError: If `path` is no path.

    Example:
        >>> from keras_luong.runs.directory import RunDirectory
        >>> RunDirectory("runs/mine").best_weights
        PosixPath('runs/mine/model.weights.h5')
    """

    def __init__(self, path: str | Path) -> None:
        self.path = check_path("run_dir", path)
        self.record = self.path / "run.json"
        self.tokenizer = self.path / "tokenizer"
        self.best_weights = self.path / "model.weights.h5"
        self.last_weights = self.path / "last.weights.h5"
        self.checkpoints = self.path / "checkpoints"
        self.epochs = self.path / "epochs"
        self.history = self.path / "history.jsonl"
        self.results = self.path / "results.json"
        self.logs = self.path / "logs"
        self.pictures = self.path / "pictures"
        self.workers = self.path / "workers"  # run directories of further machines
        self.lock = self.path / ".lock"  # see `keras_luong.runs.lock`
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
    found = read_json(path) if path.exists() else None
    splits = found.values() if isinstance(found, dict) else [found]
    if found is not None and not all(isinstance(x, dict) for x in splits):
        raise ValueError(f"{path} is damaged: it must have an object for each split")
    return found


def read_json(path: Path) -> Any:
    """Reads a file of JSON.

    Raises:
        ValueError: If it holds something else.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is not JSON ({error})") from error
