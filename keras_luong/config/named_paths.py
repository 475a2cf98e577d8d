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
        Path as it was given → the way there, for each one that leads somewhere.

    Example:
        >>> from keras_luong.config.named_paths import paths_from
        >>> paths_from("runs/mine", {"data": "my/corpus", "epochs": 20})
        {'my/corpus': '../../my/corpus'}
    """
    here = Path(run_dir).resolve()
    given = (settings.get(name) for name in _NAMES)
    return {
        path: os.path.relpath(os.path.abspath(path), here)
        for path in given
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
        The settings. A path stays as it was given if it leads to the same place, if it
        is a whole path (`/data/corpus`) that still exists, or if nothing is where the
        run knows it to be, as of a run that was moved alone.

    Example:
        >>> from keras_luong.config.named_paths import with_found_paths
        >>> paths = {"corpus": "../../my/corpus"}
        >>> with_found_paths("runs/mine", {"data": "corpus"}, paths)
        {'data': 'my/corpus'}
    """
    here, found = Path(run_dir).resolve(), dict(settings)
    for name in _NAMES:
        given = settings.get(name)
        if isinstance(given, str) and given in paths:
            found[name] = _from_here(here / paths[given], given)
    return found


def _from_here(place: Path, given: str) -> str:
    """The way to a place; as it was given if that leads there, or nothing is there.

    A whole path that is there means itself: of a run that was moved alone, the way
    from the run directory may lead to something else.
    """
    if not os.path.exists(place):
        return given
    if os.path.exists(given) and (
        os.path.isabs(given) or os.path.samefile(place, given)
    ):
        return given
    return os.path.relpath(place)
