"""A run directory has one process at a time, and no litter of those before it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import filelock

from keras_luong.files import TEMPORARY, naming, remove
from keras_luong.runs.directory import RunDirectory


@contextlib.contextmanager
def owned(run_dir: str | Path) -> Iterator[None]:
    """Makes the directory if there is none, and keeps other processes out of it.

    Files and directories that a killed process had begun to write there are removed.
    However the owner ends, the directory is free again.

    Args:
        run_dir: The run directory.

    Raises:
        OSError: If it cannot be written to, or another process owns it; or the disk is
            full meanwhile.

    Example:
        >>> from keras_luong.runs.lock import owned
        >>> with owned("runs/mine"):
        ...     print("No other process writes there now.")
        No other process writes there now.
    """
    run = RunDirectory(run_dir)
    with _locked(run), naming(run.path):
        try:
            run.owner.write_text(str(os.getpid()))
            for leftover in [*run.path.glob(TEMPORARY), *run.epochs.glob(TEMPORARY)]:
                remove(leftover)
            yield
        finally:
            run.owner.unlink(missing_ok=True)


def _locked(run: RunDirectory) -> contextlib.AbstractContextManager[object]:
    """Takes the lock, which the operating system frees when the process ends."""
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        return filelock.FileLock(run.lock).acquire(blocking=False)
    except filelock.Timeout:
        owner = run.owner.read_text() if run.owner.exists() else "that has just begun"
        raise OSError(
            f"Another process, {owner}, trains in {run.path}: wait for its end, or "
            "give another directory"
        ) from None
    except OSError as error:
        raise OSError(
            "run_dir must be a directory that can be written to. "
            f"Received: {run.path} ({error.strerror})"
        ) from error
