r"""Translates a file with Keras and with every export, and compares line by line.

The SavedModel runs twice: in Python, and in a C program on TensorFlow's C API, which
loads it as TensorFlow Serving does. The exit code is 0 if all agree: whatever computes
in float32 in every line, and what is quantized in BLEU, if there is a reference.

Example:
    python export/verify.py runs/m30k test.en --reference test.de --tokenize none \
        --saved_model models/m30k/1 --tflite m30k.tflite m30k.int8.tflite
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import keras
import sacrebleu
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).parent))

from lines import read_lines, read_pairs  # noqa: E402
from serving import c_client  # noqa: E402

from keras_luong.cli.command_line import (  # noqa: E402
    add_options,
    add_precision,
    translator_of,
)
from keras_luong.export.edge import EdgeTranslator  # noqa: E402

TOLERANCE = 0.3  # BLEU that quantization may cost


class Answers(NamedTuple):
    """What a runtime says of the file."""

    runtime: str
    translations: list[str]
    seconds: float
    exact: bool = True  # whether it computes in float32


def by_keras(texts: list[str], args: argparse.Namespace) -> list[str]:
    """The run itself."""
    translator = translator_of(args, args.precision)
    found = translator.translate(texts, args.batch_size, progress=True)
    return [translation.text for translation in found]


def by_saved_model(texts: list[str], args: argparse.Namespace) -> list[str]:
    """The SavedModel in Python, in batches as they come."""
    serve = tf.saved_model.load(str(args.saved_model)).signatures["serving_default"]
    bar = keras.utils.Progbar(len(texts), unit_name="text")
    translations = []
    for start in range(0, len(texts), args.batch_size):
        some = texts[start : start + args.batch_size]
        said = serve(text=tf.constant(some))["translation"]
        translations += [text.decode() for text in said.numpy()]
        bar.add(len(some))
    return translations


def by_c(texts: list[str], version: Path) -> list[str]:
    """The SavedModel in a C program, a text at a time from as many threads as cores."""
    with tempfile.TemporaryDirectory() as directory:
        program = c_client.build(directory)
        said, report = c_client.translate(
            program, version, [text.encode() for text in texts], os.cpu_count()
        )
    print(report)
    return [text.decode() for text in said]


def by_tflite(texts: list[str], translator: EdgeTranslator) -> list[str]:
    """A `.tflite` file, a text at a time."""
    bar = keras.utils.Progbar(len(texts), unit_name="text")
    translations = []
    for text in texts:
        translations += [translator.translate([text])[0].text]
        bar.add(1)
    return translations


def answers(texts: list[str], args: argparse.Namespace) -> list[Answers]:
    """Everything that was asked for, Keras first.

    Args:
        texts: the file's lines.
        args: the command line.

    Returns:
        The runtimes' translations.
    """
    found = [_timed("Keras", by_keras, texts, args)]
    if args.saved_model:
        name = "SavedModel, Python"
        found.append(_timed(name, by_saved_model, texts, args))
        if not args.without_c:
            found.append(_timed("SavedModel, C", by_c, texts, args.saved_model))
    for path in args.tflite:
        translator = EdgeTranslator(path)
        quantize = translator.metadata["quantize"]
        said = _timed(f"{path.name}, LiteRT", by_tflite, texts, translator)
        found.append(said._replace(exact=quantize is None))
    return found


def _timed(runtime: str, translate: Callable, texts: list[str], how) -> Answers:
    print(runtime)
    start = time.perf_counter()
    translations = translate(texts, how)
    return Answers(runtime, translations, time.perf_counter() - start)


def compare(found: list[Answers], references: list[str] | None, args) -> bool:
    """Prints the table, and what differs.

    Args:
        found: from `answers`.
        references: the lines of the reference, or None.
        args: the command line.

    Returns:
        Whether all agree.
    """
    metric = sacrebleu.BLEU(tokenize=args.tokenize, force=args.tokenize == "none")
    expected = found[0].translations
    bleu = {}
    agree = True
    print(f"\n{'runtime':40} {'differ':>7} {'BLEU':>7} {'seconds':>8}")
    for runtime, translations, seconds, exact in found:
        pairs = zip(expected, translations, strict=True)
        differ = sum(a != b for a, b in pairs)
        score = ""
        if references:
            score = metric.corpus_score(translations, [references]).score
            bleu[runtime] = score
            lost = bleu["Keras"] - score
            agree &= exact or lost <= TOLERANCE
            score = f"{score:.2f}"
        agree &= differ == 0 or not exact
        print(f"{runtime:40} {differ:7} {score:>7} {seconds:8.1f}")
    if references:
        print(metric.get_signature())
    for runtime, translations, _, _ in found[1:]:
        _show(runtime, expected, translations, args.show)
    print("All agree." if agree else "THEY DO NOT AGREE.")
    return agree


def _show(runtime: str, expected: list[str], translations: list[str], most: int):
    lines = enumerate(zip(expected, translations, strict=True), 1)
    differing = [(i, a, b) for i, (a, b) in lines if a != b]
    for i, a, b in differing[:most]:
        print(f"\nline {i}\n  Keras: {a}\n  {runtime}: {b}")


def parse_args(args: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    add_precision(parser)
    parser.add_argument("source", type=Path, help="sentences, one a line")
    parser.add_argument("--reference", type=Path, help="their translations, for BLEU")
    parser.add_argument(
        "--tokenize", default="13a", help="sacrebleu's; none if text is tokenised"
    )
    parser.add_argument("--saved_model", type=Path, help="the version's directory")
    parser.add_argument("--tflite", type=Path, nargs="+", default=[], help="files")
    parser.add_argument(
        "--without_c", action="store_true", help="where there is no C compiler"
    )
    parser.add_argument(
        "--batch_size", type=int, default=32, help="where there are any"
    )
    parser.add_argument("--show", type=int, default=3, help="so many differing lines")
    args = parser.parse_args(args)
    if args.batch_size < 1:
        parser.error(f"--batch_size must be at least 1. Received: {args.batch_size}")
    return args


def main() -> None:
    """Translates, compares, and says by its exit code whether all agree."""
    args = parse_args()
    texts, references = read_lines(args.source), None
    if args.reference:
        texts, references = read_pairs(args.source, args.reference)
    if not (args.saved_model or args.tflite):
        sys.exit("Nothing to compare: give --saved_model, --tflite, or both.")
    sys.exit(not compare(answers(texts, args), references, args))


if __name__ == "__main__":
    main()
