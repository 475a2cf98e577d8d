"""A run directory has one process at a time, and no litter of those before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from keras_luong.files import TEMPORARY
from keras_luong.runs.directory import LOCK, RunDirectory

try:
    import fcntl
except ImportError:  # not a Unix: then nobody is kept out
    fcntl = None


@contextlib.contextmanager
def owned(run_dir: str | Path) -> Iterator[None]:
    """Makes the directory if there is none, and keeps other processes out of it.

    What a killed process had begun to write there is removed. However the owner ends,
    the directory is free again.

    Args:
        run_dir: The run directory.

    Raises:
        OSError: It cannot be written to, or another process owns it.

    Example:
        >>> with owned("runs/m30k"):
        ...     train()
    """
    run = RunDirectory(run_dir)
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        lock = (run.path / LOCK).open("a+")
    except OSError as error:
        raise OSError(
            "run_dir must be a directory that can be written to. "
            f"Received: {run.path} ({error.strerror})"
        ) from error
    with lock:
        _lock(lock, run.path)
        for leftover in _leftovers(run.path):
            leftover.unlink(missing_ok=True)
        yield


def _lock(lock, path: Path) -> None:
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise OSError(
                f"Another process, {lock.read() or 'that has just begun'}, trains in "
                f"{path}: wait for its end, or give another directory"
            ) from None
    lock.truncate(0)
    lock.write(str(os.getpid()))
    lock.flush()  # a full disk is known here


def _leftovers(path: Path) -> list[Path]:
    return [*path.glob(TEMPORARY), *path.glob(f"epochs/{TEMPORARY}")]
