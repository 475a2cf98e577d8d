"""The runtimes that decode.py compares: each a process that loads a model and answers.

A process of its own has its own memory, and what one loads cannot slow another.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Keras:
    """`Translator.translate`, of the run itself."""

    def __init__(self, run: str, options: dict):
        import keras_luong as kl

        translator = kl.load(run, dtype=options["precision"])
        search = {x: options[x] for x in ("beam_width", "max_length_ratio")}
        self.translator = translator.with_search(**search)

    def translate(self, lines: list[str], batch_size: int) -> list[str]:
        """All of them."""
        found = self.translator.translate(lines, batch_size)
        return [translation.text for translation in found]

    def lengths(self, lines: list[str], batch_size: int) -> list[tuple[int, int]]:
        """Tokens of every source and of its translation, end tokens included."""
        found = self.translator.translate(lines, batch_size)
        return [(len(t.source_tokens), len(t.tokens)) for t in found]


class SavedModel:
    """`serving_default` of an exported version."""

    def __init__(self, version: str, options: dict):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (its operations)

        self.tensor, self.loaded = tf.constant, tf.saved_model.load(version)
        self.serve = self.loaded.signatures["serving_default"]

    def translate(self, lines: list[str], batch_size: int) -> list[str]:
        """All of them, those of a length together, as `Translator.translate` does."""
        order = sorted(range(len(lines)), key=lambda i: len(lines[i]))
        texts = {}
        for i in range(0, len(lines), batch_size):
            some = order[i : i + batch_size]
            found = self.serve(text=self.tensor([lines[j] for j in some]))
            texts |= dict(zip(some, found["translation"].numpy(), strict=True))
        return [texts[i].decode() for i in range(len(lines))]


class LiteRT:
    """`keras-luong-edge`, which takes sentences in turn."""

    def __init__(self, path: str, options: dict):
        from keras_luong_edge import EdgeTranslator

        self.translator = EdgeTranslator(path, num_threads=options["threads"])

    def translate(self, lines: list[str], batch_size: int) -> list[str]:
        """All of them, whatever the batch."""
        return [translation.text for translation in self.translator.translate(lines)]


RUNTIMES: dict[str, Callable] = {
    "Keras": Keras,
    "SavedModel": SavedModel,
    "LiteRT": LiteRT,
}


def work(kind: str, path: str, sources: str, options: str) -> None:
    """Answers until standard input ends."""
    lines = Path(sources).read_text().splitlines()
    runtime = RUNTIMES[kind](path, json.loads(options))
    runtime.translate(lines[:1], 1)
    print(json.dumps({"ready": True}), flush=True)
    for question in map(json.loads, sys.stdin):
        some, batch_size = lines[: question["sentences"]], question["batch_size"]
        start = time.perf_counter()
        found = getattr(runtime, question["what"])(some, batch_size)
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "found": found}), flush=True)


if __name__ == "__main__":
    work(*sys.argv[1:])
