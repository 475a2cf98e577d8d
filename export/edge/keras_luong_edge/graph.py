"""The file's graph, which LiteRT runs: it maps a source to hypotheses.

Shapes: `S` source tokens, `N` hypotheses, `T` target tokens, ends counted.
"""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

OUTPUTS = {"ids", "lengths", "scores", "weights", "token_log_probs"}


class Graph:
    """Runs a `.tflite` file; threads may share one, they take turns.

    Args:
        path: The file.
        num_threads: int, the cores that one sentence may use, or None for LiteRT's
            choice.

    Attributes:
        n_best: int, `N`.
        source_length: int, `S`, or None if it takes any.

    Raises:
        ModuleNotFoundError: If ai-edge-litert is not installed.
        ValueError: If LiteRT refuses the file, with LiteRT's reason.

    Example:
        >>> from keras_luong_edge.graph import Graph
        >>> hypotheses = Graph("mine.tflite")(np.array([[4, 5, 3]], "int32"))
        >>> hypotheses["weights"].shape == (*hypotheses["ids"].shape, 3)
        True
    """

    n_best: int
    source_length: int | None

    def __init__(self, path: str | os.PathLike[str], num_threads: int | None = None):
        try:
            import ai_edge_litert
            from ai_edge_litert.interpreter import Interpreter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "The edge runtime needs ai-edge-litert: pip install ai-edge-litert"
            ) from error
        name = os.fsencode(path)  # LiteRT takes no str that is no Unicode
        try:
            self._interpreter = Interpreter(name, num_threads=num_threads)
            self._read_signature()
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ValueError(
                f"LiteRT {ai_edge_litert.__version__} cannot run the graph of "
                f"{os.fspath(path)!r}: {reason}"
            ) from error
        self._lock = threading.Lock()  # an interpreter does one thing at a time

    def _read_signature(self) -> None:
        signature = self._interpreter.get_signature_runner()
        inputs, outputs = signature.get_input_details(), signature.get_output_details()
        if inputs.keys() != {"source"} or OUTPUTS - outputs.keys():
            raise ValueError(f"It maps {[*inputs]} to {[*outputs]}.")
        self._source = inputs["source"]["index"]
        length = int(inputs["source"]["shape_signature"][1])
        self.source_length = None if length == -1 else length
        self._outputs = {name: outputs[name]["index"] for name in OUTPUTS}
        self.n_best = int(outputs["lengths"]["shape"][1])

    def __call__(self, source: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        """Searches.

        Args:
            source: int32 `[1, S]`.

        Returns:
            `ids`: int32 `[1, N, T]`; `lengths`: int32 `[1, N]`; `scores`: float32
            `[1, N]`; `weights`: float32 `[1, N, T, S]`; `token_log_probs`: float32
            `[1, N, T]`.
        """
        with self._lock:
            return self._run(source)

    def _run(self, source: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        interpreter = self._interpreter
        if self.source_length is None:
            # XNNPACK may answer a second source of the same length with nonsense, from
            # memory that is no longer its own. Another length between them, which is
            # never computed, makes LiteRT allocate anew, as for any other length.
            longer = [1, source.shape[1] + 1]
            interpreter.resize_tensor_input(self._source, longer)
            interpreter.resize_tensor_input(self._source, source.shape)
        interpreter.allocate_tensors()
        interpreter.set_tensor(self._source, source)
        interpreter.invoke()
        return {
            name: interpreter.get_tensor(index) for name, index in self._outputs.items()
        }
