"""What killed processes had begun to write, and nobody will finish."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import filelock

from keras_luong.files import remove


def remove_half_written(path: str | Path) -> None:
    """Removes what was begun for a file or directory, by processes that were killed.

    What others write meanwhile beside it, under other names, stays.

    Args:
        path: The file or directory, which no process may be writing now.

    Example:
        >>> from keras_luong.runs.half_written import remove_half_written
        >>> remove_half_written("out.de")
    """
    path = Path(path)
    # As `keras_luong.files` names it; "*" would also match other names' ends.
    begun = re.compile(rf"\.\d+-[0-9a-f]{{8}}\.{re.escape(path.name)}")
    for beside in list(path.parent.iterdir()) if path.parent.is_dir() else []:
        if begun.fullmatch(beside.name):
            remove(beside)


@contextlib.contextmanager
def written_alone(path: str | Path) -> Iterator[None]:
    """Keeps other processes from writing a file or directory at the same time.

    What killed ones had begun is removed.

    Args:
        path: The file or directory.

    Raises:
        OSError: If another process writes it.

    Example:
        >>> from keras_luong.runs.half_written import written_alone
        >>> with written_alone("out.de"):
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
