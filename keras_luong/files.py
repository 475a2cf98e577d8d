"""The one way to write a file: beside its target, then renamed."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TEMPORARY = ".[0-9]*.*"  # what `saved_beside` writes to


def write_json(path: str | Path, content: Any) -> None:
    """Writes JSON so that a reader sees all of it or the file as it was before.

    Args:
        path: The file; its directory must exist.
        content: What `json` can write; NaN and infinities are refused.

    Raises:
        ValueError: If `content` holds NaN or an infinity.
        TypeError: If it holds what JSON can't.
    """
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def json_number(value: float) -> float | None:
    """NaN and infinities have no JSON: None says that there is no such number."""
    value = float(value)
    return value if math.isfinite(value) else None


def write_text(path: str | Path, text: str) -> None:
    """Writes text beside its target and renames it, which can't be seen half done.

    Args:
        path: The file; its directory must exist.
        text: All of the file, written as UTF-8.
    """
    with saved_beside(path) as beside:
        beside.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def saved_beside(path: str | Path) -> Iterator[Path]:
    """Gives a path to write to, and renames it to `path` once it is written.

    Args:
        path: The file; its directory is made if there is none.

    Example:
        >>> with saved_beside("runs/m30k/model.weights.h5") as beside:
        ...     model.save_weights(beside)
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{os.getpid()}.{path.name}")  # of the same suffix
    try:
        yield beside
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def saved_directory_beside(path: str | Path) -> Iterator[Path]:
    """Gives a new directory to write to, renamed to `path` once it is complete.

    Args:
        path: The directory; its parent is made if there is none.

    Raises:
        FileExistsError: If there is something of that name.

    Example:
        >>> with saved_directory_beside("runs/m30k-average") as beside:
        ...     model.save_weights(beside / "model.weights.h5")
    """
    path = Path(path)
    if path.exists() or path.is_symlink():
        raise FileExistsError(f"{path} exists; give the name of a new directory")
    beside = path.with_name(f".{os.getpid()}.{path.name}")
    shutil.rmtree(beside, ignore_errors=True)  # of a killed process of that number
    beside.mkdir(parents=True)
    try:
        yield beside
        beside.rename(path)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
