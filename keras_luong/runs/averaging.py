"""Checkpoint averaging: one model whose weights are the mean of several.

The weights of the last epochs of one training lie around the same optimum; their mean
is usually a better model than each of them (Polyak & Juditsky 1992; Vaswani et al.
2017, section 6.1, average the last 5 or 20 checkpoints), at the price of one.

A training that is to be averaged keeps the weights of its last epochs, any number of
them, in its run directory:

```
epochs/epoch-0007.weights.h5   after epoch 7, counted from 1
```
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import h5py
import ml_dtypes
import numpy as np

from keras_luong.checks import check_path, check_size
from keras_luong.files import saved_beside
from keras_luong.runs.directory import RunDirectory

#: Where in its run directory a training keeps an epoch's weights: a file name as
#: `keras.callbacks.ModelCheckpoint` takes it.
EPOCH_WEIGHTS = "epochs/epoch-{epoch:04d}.weights.h5"
_EPOCH_NAME = re.compile(r"epoch-(\d+)\.weights\.h5")
_OPTIMIZER = "optimizer"  # where Keras keeps an optimizer's variables


def epoch_weights(run_dir: str | Path, last: int | None = None) -> list[Path]:
    """The weights of a run's epochs, those that it has kept.

    Args:
        run_dir: The run directory.
        last: How many, from the end; all by default.

    Returns:
        Files named as in `EPOCH_WEIGHTS`, the earliest epoch first.

    Raises:
        FileNotFoundError: If there are none, or fewer than `last`.

    Example:
        >>> epoch_weights("runs/m30k", last=2)
        [PosixPath('runs/m30k/epochs/epoch-0009.weights.h5'),
         PosixPath('runs/m30k/epochs/epoch-0010.weights.h5')]
    """
    check_size("last", last, optional=True)
    directory = (RunDirectory(run_dir).path / EPOCH_WEIGHTS).parent
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


def average_weights(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Writes the mean of several files of one model's weights.

    The mean is of float64 sums, and has the dtype of the last file. What is no floating
    point number, such as a counter or the state of a random generator, is the last
    file's. An optimizer's state is left out: a mean has none. The files are read one
    weight at a time, so memory is that of the largest weight, however many they are.

    Args:
        paths: Files that `keras.Model.save_weights` wrote, at least one; of one
            training, since only then weights mean the same in each.
        out: The file to write, `*.weights.h5`. It appears once it is whole, so it may
            exist, and be one of `paths`.

    Returns:
        `out` as a path.

    Raises:
        TypeError: If a path is none.
        FileNotFoundError: If a file does not exist.
        ValueError: If there is no file, one is damaged, the files are not of the same
            structure (it names the weights that differ), weights are quantised or not
            finite, or `out` has another ending.

    Example:
        >>> average_weights(epoch_weights("runs/m30k", last=5), "mean.weights.h5")
        >>> model.load_weights("mean.weights.h5")
    """
    paths = _check_paths(paths)
    out = check_path("out", out)
    if not out.name.endswith(".weights.h5"):
        raise ValueError(f"out must end in .weights.h5. Received: {str(out)!r}")
    with saved_beside(out) as beside, contextlib.ExitStack() as stack:
        files = [stack.enter_context(_open(path)) for path in paths]
        names = _common_names(paths, files)
        with h5py.File(beside, "w") as mean:
            _copy_model(files[-1], mean)
            for name in names:
                _average(name, files, mean)
    return out


def weight_names(path: str | Path) -> list[str]:
    """The names of the weights in a file, as Keras lays it out; the optimizer's not.

    Args:
        path: A file that `keras.Model.save_weights` wrote.

    Returns:
        Names like `"layers/dense/vars/0"`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged.

    Example:
        >>> weight_names("runs/m30k/model.weights.h5")[0]
        'layers/attention/vars/0'
    """
    with _open(*_check_paths([path])) as file:
        return list(_weights(file))


def _average(name, files, mean):
    """Writes the mean of one weight, if it can have one."""
    dtype = _dtype(mean[name])
    if dtype.itemsize == 1 and dtype.kind in "iu":
        raise ValueError(
            f"{name} is quantised ({dtype}), which has no mean; average the weights "
            "before they are quantised"
        )
    if not _is_float(dtype):
        return
    total = np.zeros(mean[name].shape, np.float64)
    for file in files:
        total += np.asarray(file[name]).view(_dtype(file[name]))
    value = np.asarray(total / len(files), dtype)
    if not np.all(np.isfinite(value)):
        raise ValueError(f"The mean of {name} is not finite: a training has diverged")
    mean[name][()] = value.view(mean[name].dtype)


def _copy_model(source, target):
    """Copies all but the optimizer."""
    for name in source:
        if name != _OPTIMIZER:
            source.copy(name, target)
    target.attrs.update(source.attrs)


def _common_names(paths, files) -> list[str]:
    """The names of the weights, which must be the same with the same shapes."""
    expected, *others = map(_weights, reversed(files))
    for path, weights in zip(reversed(paths[:-1]), others, strict=True):
        differences = [
            f"{name}: {weights.get(name, 'missing')} there, "
            f"{expected.get(name, 'missing')} in {paths[-1]}"
            for name in sorted({*expected, *weights})
            if weights.get(name) != expected.get(name)
        ]
        if differences:
            raise ValueError(
                f"{path} holds the weights of another model than {paths[-1]}: "
                f"{'; '.join(differences[:5])}"
                + f" and {len(differences) - 5} more"
                * (len(differences) > 5)
            )
    return list(expected)


def _weights(file) -> dict[str, str]:
    """The weights' names, and what of them must be the same in all files."""
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith(f"{_OPTIMIZER}/"):
            kind = "float" if _is_float(_dtype(item)) else item.dtype.name
            found[name] = f"{kind} {item.shape}"

    file.visititems(visit)
    return found


def _dtype(dataset) -> np.dtype:
    """A dataset's dtype; HDF5 has no bfloat16, Keras writes it as an attribute."""
    if dataset.attrs.get("dtype") == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    return dataset.dtype


def _is_float(dtype) -> bool:
    return dtype.kind == "f" or dtype == ml_dtypes.bfloat16


def _check_paths(paths) -> list[Path]:
    if isinstance(paths, (str, os.PathLike)):
        raise TypeError(f"paths must be a list of paths. Received: {paths!r}")
    paths = [check_path("paths", path) for path in paths]
    if not paths:
        raise ValueError("paths must name at least one file of weights. Received: []")
    for path in paths:
        if not path.is_file():
            raise FileNotFoundError(f"There is no file of weights at {path}")
    return paths


def _open(path):
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is damaged, or no .weights.h5: {error}") from error
