"""Checkpoint averaging: one model whose weights are the mean of several.

The weights of the last epochs of one training lie around the same optimum; their mean
is usually a better model than each of them (Polyak & Juditsky 1992; Vaswani et al.
2017, section 6.1, average the last 5 or 20 checkpoints), and as fast as one.

A training that is to be averaged keeps the weights of its last epochs, as many as it is
told to, in its run directory:

```
epochs/epoch-0007.weights.h5   after epoch 7, counted from 1
```
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_luong.checks import check_file, check_path, check_size
from keras_luong.config.training import paths_from
from keras_luong.files import saved_directory_beside, write_json
from keras_luong.runs.load_save import load, load_weights, save_weights
from keras_luong.runs.run import RunDirectory, read_record

#: Where in its run directory a training keeps an epoch's weights: a file name as
#: `keras.callbacks.ModelCheckpoint` takes it.
EPOCH_WEIGHTS = "epochs/epoch-{epoch:04d}.weights.h5"
_EPOCH_NAME = re.compile(r"epoch-(\d+)\.weights\.h5")


def epoch_weights(run_dir: str | Path, last: int | None = None) -> list[Path]:
    """Lists the weights that a run has kept of its epochs.

    Args:
        run_dir: The run directory.
        last: How many, from the end; all by default.

    Returns:
        Files named as in `EPOCH_WEIGHTS`, the earliest epoch first.

    Raises:
        FileNotFoundError: If there are none, or fewer than `last`.

    Example:
        >>> from keras_luong.runs.average import epoch_weights
        >>> [path.name for path in epoch_weights("runs/mine", last=2)]
        ['epoch-0001.weights.h5', 'epoch-0002.weights.h5']
    """
    check_size("last", last, optional=True)
    directory = RunDirectory(run_dir).epochs
    names = os.listdir(directory) if directory.is_dir() else []
    matches = filter(None, map(_EPOCH_NAME.fullmatch, names))
    epochs = {int(match[1]): directory / match[0] for match in matches}
    if not epochs:
        example = Path(EPOCH_WEIGHTS.format(epoch=1)).name
        raise FileNotFoundError(
            f"There are no weights of single epochs in {directory}, like {example}; "
            "let the training keep them, or name the files to average"
        )
    if last and len(epochs) < last:
        raise FileNotFoundError(
            f"{directory} has the weights of {len(epochs)} epochs "
            f"({', '.join(map(str, sorted(epochs)))}), fewer than the last {last}"
        )
    return [epochs[number] for number in sorted(epochs)[-(last or 0) :]]


def load_average(model: keras.Model, paths: Sequence[str | Path]) -> None:
    """Gives a model the mean of several files of its weights.

    The mean is of float64 sums, rounded to the model's dtype. Weights that are no
    floating point numbers, such as counters, are those of the last file.

    Args:
        model: A built model, best one that is not compiled: the state of an optimizer
            has no mean, and would be the last file's.
        paths: Files that `keras.Model.save_weights` wrote, at least one; of one
            training, since only then weights mean the same in each.

    Raises:
        TypeError: If `paths` is not a list of paths.
        FileNotFoundError: If a file does not exist.
        ValueError: If there is no file, one is damaged or of another model (it says
            which), or weights are quantised or not finite.

    Example:
        >>> from keras_luong.runs.average import epoch_weights, load_average
        >>> model = kl.load("runs/mine").model
        >>> load_average(model, epoch_weights("runs/mine", last=2))
    """
    _check_paths(paths)
    for weight in model.weights:
        if weight.dtype in ("int8", "uint8"):
            raise ValueError(
                f"{weight.path} is quantised ({weight.dtype}), which has no mean; "
                "average the weights before they are quantised"
            )
    totals = [np.zeros(weight.shape, np.float64) for weight in model.weights]
    for path in paths:
        load_weights(model, path)
        values = model.get_weights()
        for total, value in zip(totals, values, strict=True):
            total += value.astype(np.float64)
    for weight, total, value in zip(model.weights, totals, values, strict=True):
        if keras.backend.is_float_dtype(weight.dtype):
            mean = (total / len(paths)).astype(value.dtype)
            if not np.isfinite(mean).all():
                raise ValueError(
                    f"The mean of {weight.path} is not finite: a training has diverged"
                )
            weight.assign(mean)


def average_run(
    run_dir: str | Path, out: str | Path, paths: Sequence[str | Path]
) -> Path:
    """Writes a run directory with averaged weights, whole or not at all.

    `keras_luong.load` reads it like any other. No training goes on in it, for what was
    averaged is one of its settings.

    Args:
        run_dir: The run that has been trained.
        out: The new run directory, which must not exist, or be empty.
        paths: Files of weights of the run's model, such as `epoch_weights` lists.

    Returns:
        `out` as a path.

    Raises:
        FileExistsError: If `out` is a file, or a directory that is not empty.
        TypeError, FileNotFoundError, ValueError: As of `load_average`; or if
            `run_dir` is no run.

    Example:
        >>> from keras_luong.runs.average import average_run, epoch_weights
        >>> average_run("runs/mine", "runs/mean", epoch_weights("runs/mine", last=2))
        PosixPath('runs/mean')
    """
    record, target = read_record(run_dir), check_path("out", out)
    record["settings"]["average_of"] = [str(path) for path in _check_paths(paths)]
    record["paths"] = paths_from(target, record["settings"])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{target} exists and is not empty; give another name")
    with saved_directory_beside(target) as beside:
        old, new = RunDirectory(run_dir), RunDirectory(beside)
        shutil.copytree(old.tokenizer, new.tokenizer)
        write_json(new.record, record)
        model: keras.Model = load(new.path, weights=None).model
        load_average(model, paths)
        save_weights(model, new.best_weights)
    return target


def _check_paths(paths: Sequence[str | Path]) -> Sequence[str | Path]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"paths must be a list of paths. Received: {paths!r}")
    if not paths:
        raise ValueError("paths must name at least one file of weights. Received: []")
    for path in paths:
        check_file("file of weights", path)
    return paths
