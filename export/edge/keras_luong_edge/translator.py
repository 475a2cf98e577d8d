"""Text in, text out.

Shapes: `S` source tokens, `N` hypotheses, `T` target tokens, ends counted.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any, Literal, overload

import numpy as np

from keras_luong_edge.archive import read_archive
from keras_luong_edge.graph import Graph
from keras_luong_edge.source import Source, read_text
from keras_luong_edge.translation import Translation

MOST_THREADS = 1024  # with a hundred thousand LiteRT crashes


class EdgeTranslator:
    """Translates with a `.tflite` file, as the `Translator` that it was exported from.

    Any string has an answer. An empty one, or one of nothing but white space, is
    translated by an empty string with score 0. Bytes that are not UTF-8 are read as
    U+FFFD. Of a text that is too long the beginning is translated, and the answer says
    `truncated`.

    Threads may share one; they take turns.

    Args:
        path: What `keras_luong.export_tflite` wrote.
        num_threads: int, the cores that one sentence may use; default: LiteRT's choice,
            one.

    Attributes:
        metadata: dict, what the file says of itself.
        n_best: int, the hypotheses that the search returns for a text, at most.

    Raises:
        OSError: If there is no such file (FileNotFoundError), or it cannot be read.
        TypeError: If `num_threads` is no int.
        ValueError: If the file is damaged, or of a format that this version cannot
            read; if LiteRT cannot run it; or if `num_threads` is below 1, or above
            1024.
        ModuleNotFoundError: If ai-edge-litert or sentencepiece is not installed.

    Example:
        >>> from keras_luong_edge import EdgeTranslator
        >>> translator = EdgeTranslator("mine.tflite")
        >>> len(translator.translate(["the red dog", "the cat"]))
        2
    """

    metadata: dict[str, Any]
    n_best: int

    def __init__(self, path: str | os.PathLike[str], num_threads: int | None = None):
        _check_threads(num_threads)
        self._contents = read_archive(path)
        self._graph = Graph(path, num_threads)
        self.metadata = self._contents.metadata
        self.n_best = self._contents.n_best or self._graph.n_best
        says, takes = self._contents.source_length, self._graph.source_length
        if says != takes or self.n_best > self._graph.n_best:
            raise ValueError(
                f"{os.fspath(path)!r} is damaged: it says source_length {says} and "
                f"n_best {self.n_best}, and its graph has {takes} and "
                f"{self._graph.n_best}."
            )

    @overload
    def translate(
        self, texts: Iterable[str | bytes], n_best: Literal[False] = False
    ) -> list[Translation]: ...

    @overload
    def translate(
        self, texts: Iterable[str | bytes], n_best: Literal[True]
    ) -> list[list[Translation]]: ...

    @overload
    def translate(
        self, texts: Iterable[str | bytes], n_best: bool
    ) -> list[Translation] | list[list[Translation]]: ...

    def translate(
        self, texts: Iterable[str | bytes], n_best: bool = False
    ) -> list[Translation] | list[list[Translation]]:
        """Translates texts, one after the other.

        Args:
            texts: Strings, or bytes in UTF-8.
            n_best: Whether to return all hypotheses that the search found for a text,
                the best first, and not only that. Their texts differ.

        Returns:
            One `Translation` per text; with `n_best`, one list of them.

        Raises:
            TypeError: If `texts` is a single string, or holds something else.
            RuntimeError: If LiteRT fails, as where there is too little memory.

        Example:
            >>> from keras_luong_edge import EdgeTranslator
            >>> translator = EdgeTranslator("mine.tflite")
            >>> found = translator.translate(["the red dog"], n_best=True)
            >>> len(found), type(found[0][0].text)
            (1, <class 'str'>)
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise TypeError(
                f"`texts` must be a list of strings. Received: {texts!r:.60}"
            )
        found = [self._translate(text) for text in texts]
        return found if n_best else [hypotheses[0] for hypotheses in found]

    def _translate(self, text: str | bytes) -> list[Translation]:
        source = read_text(text, self._contents)
        return [_nothing(source)] if source.empty else self._search(source)

    def _search(self, source: Source) -> list[Translation]:
        """The best hypotheses whose texts differ: one text may have other pieces."""
        found = self._graph(self._padded(source.ids))
        hypotheses: dict[str, Translation] = {}
        for n, T in enumerate(found["lengths"][0]):
            if T or n == 0:  # places that no hypothesis has taken are left out
                hypothesis = self._hypothesis(source, found, n, T)
                hypotheses.setdefault(hypothesis.text, hypothesis)
        return [*hypotheses.values()][: self.n_best]

    def _hypothesis(self, source: Source, found: Any, n: int, T: int) -> Translation:
        S, of_target = len(source.ids), self._contents.target
        ids = found["ids"][0, n, :T].tolist()
        return Translation(
            text=of_target.decode(ids),
            score=float(found["scores"][0, n]) if T else -math.inf,
            tokens=of_target.pieces(ids),
            source_tokens=self._contents.source.pieces(source.ids),
            alignment=found["weights"][0, n, :T, :S].copy(),
            truncated=source.truncated,
            log_probs=found["token_log_probs"][0, n, :T].copy(),
        )

    def _padded(self, ids: list[int]) -> Any:
        length = self._contents.source_length or len(ids)
        source = np.full([1, length], self._contents.special.pad, np.int32)
        source[0, : len(ids)] = ids
        return source


def _check_threads(num_threads: Any) -> None:
    if num_threads is None:
        return
    if not isinstance(num_threads, int):
        raise TypeError(f"num_threads must be an int. Received: {num_threads!r}")
    if num_threads < 1:
        raise ValueError(f"num_threads must be at least 1. Received: {num_threads}")
    if num_threads > MOST_THREADS:
        raise ValueError(
            f"num_threads must be at most {MOST_THREADS}. Received: {num_threads}"
        )


def _nothing(source: Source) -> Translation:
    """The translation of an empty text."""
    return Translation(
        text="",
        score=0.0,
        tokens=[],
        source_tokens=[],
        alignment=np.zeros([0, 0], np.float32),
        truncated=source.truncated,
        log_probs=np.zeros([0], np.float32),
    )
