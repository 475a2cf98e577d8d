"""What the first of several machines tells the others before they train.

It alone reads the corpus, learns the vocabulary and counts; the others wait meanwhile.
They get its settings, its tokenizers, its held-out pairs and what it knows of the text.
Ids they read from its disk if they see it; a machine with a disk of its own makes them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.compat import with_epochs_of_any_length
from keras_luong.config.training import TrainingConfig
from keras_luong.files import crc32
from keras_luong.runs.opening import Run
from keras_luong.runs.run import RunDirectory
from keras_luong.text.token_store import LENGTHS
from keras_luong.training.strategies import (
    gather_rows,
    number_of_workers,
    worker_index,
)

#: Errors that say what to mend: the other machines end with them too.
_MISTAKES = (ValueError, TypeError, OSError, ImportError)


class Told(NamedTuple):
    """What a machine knows from the first one.

    Attributes:
        settings: Of the training, chosen by the corpus where nothing was given.
        texts: What the record knows of the corpus's text.
    """

    settings: dict[str, Any]
    texts: dict[str, dict[str, Any]]


class Machines:
    """The machines that train together; a context in which the first one prepares.

    A mistake that the first one finds within is told to the others, which raise it too.

    Args:
        strategy: From `make_strategy`.
        path: This machine's run directory.
    """

    def __init__(self, strategy: tf.distribute.Strategy, path: Path) -> None:
        self.strategy = strategy
        self.number = number_of_workers(strategy)
        self.index = worker_index(strategy)
        self.run = RunDirectory(path)
        self._waiting = self.number > 1 and self.index == 0

    def __enter__(self) -> Machines:
        """Begins the preparation."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Tells what has failed, if the others still wait."""
        if self._waiting and isinstance(error, _MISTAKES):
            self._waiting = False
            self._send({"error": str(error)})

    def wait(self) -> Told | None:
        """Waits until the first machine has prepared; None on the first one.

        Its tokenizers and held-out pairs are put into this machine's run directory,
        unless there is a run already.

        Raises:
            ValueError: The first machine has found a mistake.
        """
        if self.number == 1 or self.index == 0:
            return None
        told = Told(**self._receive())
        # Of a run that goes on, a machine has its own record.
        return None if self.run.record.exists() else told

    def check(self, config: TrainingConfig, told: Told | None) -> None:
        """Raises ValueError if this machine would train otherwise than the first one.

        Args:
            config: This machine's settings.
            told: What `wait` returned.
        """
        if told is None:
            return
        mine, theirs = json.loads(json.dumps(config.settings())), told.settings
        names = sorted({*mine, *theirs} - {"data", "init_from"})
        differing = [
            f"{name}: {theirs.get(name)!r} there, {mine.get(name)!r} here"
            for name in names
            if mine.get(name) != theirs.get(name)
        ]
        if differing:
            raise ValueError(
                "All machines must have the same settings as the first one. They "
                f"differ in {'; '.join(differing)}"
            )

    def tell(self, run: Run) -> None:
        """Tells the others that this machine, the first one, has prepared."""
        if self._waiting:
            self._waiting = False
            settings = run.config.settings()
            folders = [self.run.tokenizer, self.run.held_out]
            self._send({"settings": settings, "texts": run.texts}, folders)

    def share(self, count: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns what the first machine counts, on every machine.

        Args:
            count: What it counts with.

        Raises:
            ValueError: The first machine has found a mistake.
        """
        if self.number == 1:
            return count()
        if self.index:
            return self._receive()["counted"]
        try:
            counted = count()
        except _MISTAKES as error:
            self._send({"error": str(error)})
            raise
        self._send({"counted": counted})
        return counted

    def tokens(self, checksum: int | None) -> Path:
        """Returns the folder of ids to read: the first machine's, if this one sees it.

        Args:
            checksum: What the ids have in its record.
        """
        first = self.run.path.parent.parent / self.run.tokens.name
        if self.index and (first / LENGTHS).is_file():
            if crc32(first / LENGTHS) == checksum:
                return first
        return self.run.tokens

    @property
    def part(self) -> tuple[int, int]:
        """Which rows of each batch this machine reads, as of `stored_batches`.

        All, where it has several devices, between which TensorFlow divides them.
        """
        is_alone = self.strategy.num_replicas_in_sync != self.number
        return (0, 1) if is_alone else (self.index, self.number)

    def distributed(self, batches: tf.data.Dataset) -> Any:
        """Returns batches that are this machine's part, for `fit`."""
        if self.part[1] == 1:
            return batches
        make = self.strategy.distribute_datasets_from_function
        return with_epochs_of_any_length(make(lambda _: batches))

    def _send(self, known: dict[str, Any], folders: list[Path] | None = None) -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("known.json", json.dumps(known))
            for folder in folders or []:
                for path in sorted(folder.glob("*")):
                    file.write(path, path.relative_to(self.run.path))
        _from_first(self.strategy, packed.getvalue())

    def _receive(self) -> dict[str, Any]:
        content = _from_first(self.strategy, b"")
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            known = dict(json.loads(file.read("known.json")))
            if "error" in known:
                raise ValueError(known["error"])
            if not self.run.record.exists():
                names = [name for name in file.namelist() if name != "known.json"]
                file.extractall(self.run.path, names)
        return known


def _from_first(strategy: tf.distribute.Strategy, content: bytes) -> bytes:
    """Returns the first machine's bytes, on every machine."""
    size = int(gather_rows(strategy, np.array([[len(content)]], np.int64))[0, 0])
    padded = content[:size].ljust(8 * -(-size // 8), b"\0")
    row = np.frombuffer(padded, np.int64)[None]
    return gather_rows(strategy, row)[0].tobytes()[:size]
