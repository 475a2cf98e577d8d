"""What the options of an engine say, and what its workers need of the others."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

import keras_luong
from keras_luong.cli.commands import EngineOptions
from keras_luong.runs.pooled_translator import pooled
from keras_luong.runs.ray_engine import Pool
from keras_luong.runs.shards import file_digest, run_digest
from keras_luong.translation.translator import Translator

_Options = TypeVar("_Options", bound=EngineOptions)
_NOT_OF_THE_WORK = {field.name for field in dataclasses.fields(EngineOptions)}


def pool_of(options: EngineOptions) -> Pool:
    """The pool that the options ask for."""
    return Pool(options.address, options.workers)


def parts_of(output: Path) -> Path:
    """The folder of the parts of a file or folder to be, beside it."""
    return output.with_name(f"{output.name}.parts")


def plan_of(options: EngineOptions, run_dirs: Sequence[Path]) -> dict[str, Any]:
    """All that translations depend on, beside their texts, as JSON can hold it.

    Args:
        options: The options; those that name files count by what is in the files.
        run_dirs: The runs.
    """
    plan = {name: value for name, value in vars(options).items() if not _paths(value)}
    for name in ("terms", "shortlist"):
        if (path := getattr(options, name, None)) is not None:
            plan[name] = file_digest(path)
    return {
        **{name: x for name, x in plan.items() if name not in _NOT_OF_THE_WORK},
        "run": [run_digest(run_dir) for run_dir in run_dirs],
        "keras_luong": keras_luong.__version__,
        "tensorflow": tf.__version__,
    }


def check_runs(run_dirs: Sequence[Path], digests: Sequence[str]) -> None:
    """Refuses runs that have changed, as of a training that goes on meanwhile.

    A worker may load them days after the first one has.

    Args:
        run_dirs: The runs.
        digests: Their digests when the work began.

    Raises:
        ValueError: One is another one now.
    """
    for run_dir, digest in zip(run_dirs, digests, strict=True):
        if run_digest(run_dir) != digest:
            raise ValueError(
                f"{run_dir} has changed since the work began, half of which would be "
                "of another model. Work with a copy of a run that is being trained"
            )


def _unchanged(
    load: Callable[[], Translator], run_dirs: Sequence[Path], digests: Sequence[str]
) -> Translator:
    """What a worker loads."""
    translator = load()
    check_runs(run_dirs, digests)
    return translator


def of_workers(options: _Options) -> _Options:
    """The options as workers have them, which run in other folders."""
    changes: dict[str, Any] = {}
    for name, value in vars(options).items():
        if paths := _paths(value):
            absolute = tuple(path.resolve() for path in paths)
            changes[name] = absolute if isinstance(value, tuple) else absolute[0]
    return dataclasses.replace(options, **changes)


def _paths(value: Any) -> tuple[Path, ...]:
    """The paths that a value is, if it is any."""
    several = value if isinstance(value, tuple) else (value,)
    return tuple(x for x in several if isinstance(x, Path))


@contextlib.contextmanager
def engine(
    options: EngineOptions,
    translator: Translator,
    load: Callable[[], Translator],
    run_dirs: Sequence[Path],
    output: Path,
) -> Iterator[Translator]:
    """Gives a translator whose streams are the work of the engine that is asked for.

    Args:
        options: The options.
        translator: The translator.
        load: Makes the same one in a worker's process.
        run_dirs: The runs that it is of.
        output: What is to be written; Ray's parts are beside it.
    """
    if options.engine == "local":
        yield translator
        return
    plan = plan_of(options, run_dirs)
    there = [path.resolve() for path in run_dirs]
    same = functools.partial(_unchanged, load, there, plan["run"])
    with pooled(translator, same, parts_of(output), plan, pool_of(options)) as many:
        yield many  # type: ignore[misc]  # has all that a translator has
