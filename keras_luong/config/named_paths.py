"""The paths that a run's settings name, found again from another working directory.

A record keeps a path as it was given, such as `my/corpus`, and beside it the way there
from the run directory. So a command finds the corpus from wherever it is called, also
once the folder that holds both has been moved.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: The name of the embedded corpus, whatever files there are.
EMBEDDED = "phrases"
#: The settings that may name a path; `data` may also be the name of a dataset.
_NAMES = ("data", "init_from")


def paths_from(run_dir: str | Path, settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns how what the settings name is reached from a run directory.

    Args:
        run_dir: The run directory.
        settings: The run's settings.

    Returns:
        Name of a setting → relative path, for each one that names what exists.

    Example:
        >>> from keras_luong.config.named_paths import paths_from
        >>> paths_from("runs/mine", {"data": "my/corpus", "epochs": 20})
        {'data': '../../my/corpus'}
    """
    here = Path(run_dir).resolve()
    given = {name: settings.get(name) for name in _NAMES}
    return {
        name: os.path.relpath(os.path.abspath(path), here)
        for name, path in given.items()
        if isinstance(path, str) and path != EMBEDDED and os.path.exists(path)
    }


def with_found_paths(
    run_dir: str | Path, settings: Mapping[str, Any], paths: Mapping[str, str]
) -> dict[str, Any]:
    """Returns the settings with paths that lead there from the working directory.

    Args:
        run_dir: The run directory.
        settings: The run's settings, with paths as they were given.
        paths: What `paths_from` returned when they were.

    Returns:
        The settings. A path stays as it was given if it leads to the same place, or if
        nothing is where the run knows it to be, as of a run that was moved alone.

    Example:
        >>> from keras_luong.config.named_paths import with_found_paths
        >>> paths = {"data": "../../my/corpus"}
        >>> with_found_paths("runs/mine", {"data": "corpus"}, paths)
        {'data': 'my/corpus'}
    """
    here = Path(run_dir).resolve()
    found = {
        name: os.path.relpath(here / path)
        for name, path in paths.items()
        if os.path.exists(here / path) and not _are_one(here / path, settings[name])
    }
    return {**settings, **found}


def _are_one(one: Path, other: str) -> bool:
    return os.path.exists(other) and os.path.samefile(one, other)
