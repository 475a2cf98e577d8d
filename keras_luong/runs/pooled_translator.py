"""A translator whose streams are the work of a pool, for what writes corpora."""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.runs.ray_engine import Pool, Work, check_ray, work_on
from keras_luong.runs.shards import Shards, shard_size
from keras_luong.runs.survey import survey, unchanged
from keras_luong.translation.batching import warn_of_cut
from keras_luong.translation.translator import Translator


class Said(NamedTuple):
    """A translation that only says its text.

    Attributes:
        text: The text.
    """

    text: str


@contextlib.contextmanager
def pooled(
    translator: Translator,
    load: Callable[[], Translator],
    folder: str | Path,
    plan: Mapping[str, Any],
    pool: Pool,
) -> Iterator[PooledTranslator]:
    """Lets a pool of workers do what a translator's `stream` does.

    What they have done outlives a killed process: the same again goes on. Where the
    body ends without an error the folder is removed.

    Args:
        translator: A translator.
        load: Makes the same one in a worker's process.
        folder: The folder of the parts, which all workers can see.
        plan: All that the translations depend on beside their texts, as JSON can hold
            it.
        pool: Where the workers are.

    Yields:
        A translator of which `stream` can be called once.

    Raises:
        ImportError, OSError: If Ray or its cluster is missing.
    """
    check_ray(pool)
    with contextlib.ExitStack() as stack:
        yield PooledTranslator(translator, load, Path(folder), plan, pool, stack)
        Shards(folder, 0, 1).remove()


class PooledTranslator:
    """See `pooled`: all but `stream` is the translator's own."""

    def __init__(
        self,
        translator: Translator,
        load: Callable[[], Translator],
        folder: Path,
        plan: Mapping[str, Any],
        pool: Pool,
        stack: contextlib.ExitStack,
    ):
        self._translator, self._load, self._folder = translator, load, folder
        self._plan, self._pool, self._stack = plan, pool, stack

    def __getattr__(self, name: str) -> Any:
        """Returns what the translator has of that name."""
        return getattr(self._translator, name)

    def stream(
        self, texts: Iterable[str], batch_size: int = 32, window: int = 1024
    ) -> Iterator[Said]:
        """Yields the translation of each text, once all are done.

        Args:
            texts: The texts, which are read up to three times.
            batch_size: How many are translated at once.
            window: How many are sorted by length.

        Raises:
            OSError: If they are other texts when they are read again.
        """
        found = survey(map(_line, texts))
        shards = Shards(self._folder, found.lines, shard_size(found.lines, window))
        sizes = {"batch_size": batch_size, "window": window}
        plan = {**self._plan, "texts": found._asdict(), **sizes}
        todo = self._stack.enter_context(shards.begun(plan))
        shards.cut(todo, **{"in": unchanged(map(_line, texts), found.digest)})
        make = functools.partial(_make, self._load, batch_size, window)
        work_on(shards, todo, make, self._pool)
        for line in shards.results():
            yield Said(line.decode())
        cut = sum(told["truncated"] for told in shards.told())
        limits = {"texts": ("max_source_length", self._translator.max_source_length)}
        warn_of_cut(limits, Counter(texts=cut) if cut else Counter(), found.lines)


def _line(text: str) -> bytes:
    return re.sub(r"[\r\n]+", " ", text).encode("utf-8", "surrogatepass")


def _make(load: Callable[[], Translator], batch_size: int, window: int) -> Work:
    return _Work(load(), batch_size, window)


class _Work:
    """What a worker does: see `keras_luong.runs.ray_engine.Work`."""

    def __init__(self, translator: Translator, batch_size: int, window: int):
        self.translator, self.sizes = translator, (batch_size, window)

    def __call__(
        self, shards: Shards, number: int, told: dict[str, Any]
    ) -> Iterator[bytes]:
        told["truncated"] = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # as the driver tells it
            for said in self.translator.stream(shards.read(number, "in"), *self.sizes):
                told["truncated"] += said.truncated
                yield _line(said.text)
