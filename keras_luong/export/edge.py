"""Runs an exported `.tflite` file; needs ai-edge-litert, SentencePiece and NumPy alone.

    keras-luong-edge model.tflite < in.txt > out.txt

Shapes: `S` source tokens, `N` hypotheses, `T` target tokens, ends counted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.translation.translation import Translation

METADATA = "keras_luong.json"
FORMAT = 1


class EdgeTranslator:
    """Translates with a `.tflite` file, as the `Translator` that it was exported from.

    Threads may share one; they take turns. It does not warn of texts that are too long:
    their answers say `truncated`.

    Args:
        path: what `keras_luong.export_tflite` wrote.
        num_threads: int, the cores that one sentence may use; default: LiteRT's choice.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or of a version that this one cannot read; or
            `num_threads` is below 1.
        ModuleNotFoundError: if ai-edge-litert or sentencepiece is not installed.

    Example:
        >>> translator = EdgeTranslator("m30k.tflite")
        >>> translator.translate(["A dog runs."])[0].text
    """

    def __init__(self, path: str | os.PathLike, num_threads: int | None = None):
        if num_threads is not None and num_threads < 1:
            raise ValueError(f"num_threads must be at least 1. Received: {num_threads}")
        os.stat(path)  # a file that is not there is no damaged one
        try:
            self.metadata, self._source, self._target = _read_archive(path)
            self._search = _Graph(path, num_threads)
        except ModuleNotFoundError:
            raise
        except Exception as error:  # there are many ways of being damaged
            raise ValueError(
                f"{os.fspath(path)!r} is damaged, or no file of "
                f"keras_luong.export_tflite: {error}"
            ) from error
        self._lock = threading.Lock()  # an interpreter does one thing at a time

    def translate(
        self, texts: Iterable[str | bytes], n_best: bool = False
    ) -> list[Translation] | list[list[Translation]]:
        """Translate texts, one after the other.

        Args:
            texts: strings, or bytes in UTF-8.
            n_best: whether to return all hypotheses that the search found for a text,
                the best first, and not only that.

        Returns:
            One `Translation` per text; with `n_best`, one list of them.

        Raises:
            TypeError: if `texts` is a single string, or holds something else.
        """
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise TypeError(
                f"`texts` must be a list of strings. Received: {texts!r:.60}"
            )
        found = [self._translate(text) for text in texts]
        return found if n_best else [hypotheses[0] for hypotheses in found]

    def _translate(self, text: str | bytes) -> list[Translation]:
        ids, truncated, empty = self._read(text)
        if empty:
            nothing = np.zeros([0, 0], np.float32)
            no_log_probs = np.zeros([0], np.float32)
            return [Translation("", 0.0, [], [], nothing, truncated, no_log_probs)]
        found = self._run(ids)
        source_tokens = self._source.pieces(ids)
        hypotheses = []
        for n, T in enumerate(found["lengths"][0]):
            if T or n == 0:  # places that no hypothesis has taken are left out
                target = found["ids"][0, n, :T]
                hypotheses.append(
                    Translation(
                        text=self._target.decode(target),
                        score=float(found["scores"][0, n]) if T else -math.inf,
                        tokens=self._target.pieces(target),
                        source_tokens=source_tokens,
                        alignment=found["weights"][0, n, :T, : len(ids)],
                        truncated=truncated,
                        log_probs=found["token_log_probs"][0, n, :T],
                    )
                )
        return hypotheses

    def _read(self, text: str | bytes) -> tuple[list[int], bool, bool]:
        """The ids with the end's, whether something was left out, and whether nothing.

        Step by step what `keras_luong.translation.graph.read_text` does.
        """
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogatepass")
        if not isinstance(text, bytes):
            raise TypeError(f"A text must be str or bytes. Received: {text!r:.60}")
        most = self.metadata["max_source_length"]
        text = text.strip()
        most_bytes = 64 * most  # as keras_luong.translation.graph has it
        cut = len(text) > most_bytes
        text = text[:most_bytes].decode("utf-8", "replace")
        ids = self._source.encode(text)
        empty = not text.strip() or not ids
        truncated = cut or (len(ids) > most and not empty)
        return [*ids[:most], EOS_ID], truncated, empty

    def _run(self, ids: list[int]) -> dict[str, np.ndarray]:
        length = self.metadata["source_length"] or len(ids)
        source = np.full([1, length], PAD_ID, np.int32)
        source[0, : len(ids)] = ids
        with self._lock:
            return self._search(source)


class _Graph:
    """What maps a source to hypotheses."""

    def __init__(self, path: str | os.PathLike, num_threads: int | None):
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "The edge runtime needs ai-edge-litert: pip install ai-edge-litert"
            ) from error
        self._interpreter = Interpreter(os.fspath(path), num_threads=num_threads)
        signature = self._interpreter.get_signature_runner()
        source = signature.get_input_details()["source"]
        outputs = signature.get_output_details()
        self._source = source["index"]
        self._any_length = -1 in source["shape_signature"]
        self._outputs = {name: about["index"] for name, about in outputs.items()}

    def __call__(self, source: np.ndarray) -> dict[str, np.ndarray]:
        interpreter = self._interpreter
        if self._any_length:
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


class _SentencePiece:
    """The unigram model of `keras_luong.SentencePieceTokenizer`."""

    def __init__(self, model: bytes):
        import sentencepiece

        if not model:  # with which SentencePiece would crash later
            raise ValueError("its SentencePiece model is empty")
        self._model = sentencepiece.SentencePieceProcessor(model_proto=model)

    def encode(self, text: str) -> list[int]:
        return self._model.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        return self._model.decode(_words(self._known(ids)))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._model.id_to_piece(i) for i in self._known(ids)]

    def _known(self, ids: Iterable[int]) -> list[int]:
        size = self._model.get_piece_size()
        return [int(i) if i < size else UNK_ID for i in ids]


class _Words:
    """The vocabulary of `keras_luong.WordTokenizer`."""

    def __init__(self, vocabulary: bytes):
        self._words = vocabulary.decode().split("\n")[:-1]
        regular = list(enumerate(self._words))[EOS_ID + 1 :]
        self._ids = {word.encode(): i for i, word in regular}

    def encode(self, text: str) -> list[int]:
        return [self._ids.get(word, UNK_ID) for word in text.encode().split()]

    def decode(self, ids: Iterable[int]) -> str:
        return " ".join(self.pieces(_words(ids)))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        return [self._words[i if i < len(self._words) else UNK_ID] for i in ids]


TOKENIZERS = {"sentencepiece": _SentencePiece, "word": _Words}


def _words(ids: Iterable[int]) -> list[int]:
    """What can be read aloud."""
    return [int(i) for i in ids if i not in (PAD_ID, BOS_ID, EOS_ID)]


def _read_archive(path: str | os.PathLike) -> tuple[dict[str, Any], Any, Any]:
    """The metadata and both tokenizers, from the archive at the file's end."""
    with zipfile.ZipFile(path) as archive:
        metadata = json.loads(archive.read(METADATA))
        if metadata["format"] != FORMAT:
            raise ValueError(
                f"it has format {metadata['format']!r}, written by "
                f"{metadata.get('library')}; this version reads {FORMAT}"
            )
        needed = {"max_source_length", "source_length", "quantize"}
        if missing := needed - metadata.keys():
            raise ValueError(f"it does not say {', '.join(sorted(missing))}")
        of_source, of_target = (
            TOKENIZERS[x["kind"]](archive.read(x["file"]))
            for x in (metadata["tokenizers"][side] for side in ("source", "target"))
        )
    return metadata, of_source, of_target


def main(argv: list[str] | None = None) -> None:
    """Translate standard input, line by line.

    Args:
        argv: the arguments, by default the process's.
    """
    parser = argparse.ArgumentParser(
        prog="keras-luong-edge",
        description="Translates standard input, one sentence a line.",
    )
    parser.add_argument("model", help="a .tflite file of keras_luong.export_tflite")
    parser.add_argument("--threads", type=int, help="cores; default: LiteRT's choice")
    parser.add_argument(
        "--scores", action="store_true", help="score and a tab before each line"
    )
    args = parser.parse_args(argv)
    try:
        translator = EdgeTranslator(args.model, args.threads)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        sys.exit(f"{parser.prog}: {error}")
    try:
        for line in sys.stdin.buffer:
            (found,) = translator.translate([line.removesuffix(b"\n")])
            score = f"{found.score:.4f}\t" if args.scores else ""
            sys.stdout.buffer.write(f"{score}{found.text}\n".encode())
            sys.stdout.buffer.flush()
    except OSError as error:
        # Python would complain once more as it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # as of `head`, which has enough
            sys.exit(f"{parser.prog}: {error}")
