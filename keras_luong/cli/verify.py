"""`keras-luong verify`: does every export say what its run says?

Whatever computes in float32 must agree in every line, and what is quantized in BLEU, if
there is a reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.cli.options import VerifyOptions
from keras_luong.cli.translators import (
    bleu_tokenization,
    load_translator,
    tell_languages,
)
from keras_luong.evaluation.report import visible
from keras_luong.evaluation.scores import bleu, chrf
from keras_luong.export.saved_model import check_saved_model
from keras_luong.files import read_lines, read_pairs
from keras_luong.progress import Progress

TOLERANCE = 0.3  # BLEU that quantization may cost

#: What translates a file's lines.
Runtime = Callable[[list[str]], list[str]]


class Answers(NamedTuple):
    """What a runtime says of the file."""

    runtime: str
    translations: list[str]
    seconds: float
    exact: bool = True  # whether it computes in float32


def run(options: VerifyOptions, more: Mapping[str, Runtime] | None = None) -> None:
    """Translates, compares, and exits with 1 unless all agree.

    Args:
        options: What to compare.
        more: Other runtimes of the export, by name.

    Raises:
        SystemExit: They do not agree.
        ValueError: There is nothing to compare.
    """
    if not (options.saved_model or options.tflite or more):
        raise ValueError("Nothing to compare: give --saved_model, --tflite, or both")
    tf.config.set_visible_devices([], "GPU")  # exports are for CPUs
    texts, references = list(read_lines(options.source)), None
    if options.reference:
        texts, references = read_pairs(options.source, options.reference)
    if not texts:
        raise ValueError(f"{options.source} is empty: there is nothing to compare.")
    tokenize = bleu_tokenization(options)
    sides = {"source": texts, "target": references}
    tell_languages(options.run_dir, **{k: x for k, x in sides.items() if x})
    found = list(_answers(texts, options, more or {}))
    if not compare(found, references, tokenize, options.show):
        raise SystemExit(1)


def _answers(
    texts: list[str], options: VerifyOptions, more: Mapping[str, Runtime]
) -> Iterator[Answers]:
    """Those of everything that was asked for, Keras's first."""
    on_edge = [_by_tflite(path) for path in options.tflite]  # what is missing is told
    translator = load_translator(options)

    def by_keras(texts: list[str]) -> list[str]:
        found = translator.translate(texts, options.batch_size, progress=True)
        return [translation.text for translation in found]

    yield _timed("Keras", by_keras, texts)
    if options.saved_model:
        served = _by_saved_model(options.saved_model, options.batch_size)
        yield _timed("SavedModel, Python", served, texts)
    for name, runtime in more.items():
        yield _timed(name, runtime, texts)
    for path, (runtime, exact) in zip(options.tflite, on_edge, strict=True):
        yield _timed(f"{path.name}, LiteRT", runtime, texts)._replace(exact=exact)


def _by_saved_model(path: Path, batch_size: int) -> Runtime:
    """The SavedModel in Python, in batches as they come."""
    check_saved_model(path)
    model = tf.saved_model.load(str(path))  # kept: its signature holds no variables

    def translate(texts: list[str]) -> list[str]:
        progress, translations = Progress(len(texts)), []
        for start in range(0, len(texts), batch_size):
            some = texts[start : start + batch_size]
            said = model.signatures["serving_default"](text=tf.constant(some))
            translations += [text.decode() for text in said["translation"].numpy()]
            progress.add(len(some))
        return translations

    return translate


def _by_tflite(path: Path) -> tuple[Runtime, bool]:
    """A `.tflite` file, a text at a time; and whether it computes in float32."""
    try:
        from keras_luong_edge import EdgeTranslator  # a distribution of its own
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "--tflite needs keras-luong-edge: pip install ./export/edge"
        ) from error
    translator = EdgeTranslator(path)

    def translate(texts: list[str]) -> list[str]:
        progress, translations = Progress(len(texts)), []
        for text in texts:
            translations += [translator.translate([text])[0].text]
            progress.add()
        return translations

    return translate, translator.metadata["quantize"] is None


def _timed(runtime: str, translate: Runtime, texts: list[str]) -> Answers:
    print(runtime, flush=True)
    start = time.perf_counter()
    translations = translate(texts)
    return Answers(runtime, translations, time.perf_counter() - start)


def compare(
    found: list[Answers], references: list[str] | None, tokenize: str, show: int
) -> bool:
    """Prints the table, and what differs.

    Args:
        found: The runtimes' answers, Keras's first.
        references: The lines of the reference, or None.
        tokenize: sacrebleu's tokenisation.
        show: Differing lines to print for each runtime.

    Returns:
        Whether all agree.
    """
    expected = found[0].translations
    agree, lowest = True, 0.0
    scores: tuple[Any, ...] = ()
    if references:
        lowest = bleu(expected, references, tokenize).score - TOLERANCE
    print(f"\n{'runtime':40} {'differ':>7} {'BLEU':>7} {'chrF':>7} {'seconds':>8}")
    for runtime, translations, seconds, exact in found:
        pairs = zip(expected, translations, strict=True)
        differ = sum(a != b for a, b in pairs)
        columns = f"{'':>7} {'':>7}"
        if references:
            scores = (
                bleu(translations, references, tokenize),
                chrf(translations, references),
            )
            columns = " ".join(f"{score.score:7.2f}" for score in scores)
            agree &= exact or scores[0].score >= lowest
        agree &= differ == 0 or not exact
        print(f"{runtime:40} {differ:7} {columns} {seconds:8.1f}")
    for score in scores:
        print(score.signature)
    for runtime, translations, _, _ in found[1:]:
        _show(runtime, expected, translations, show)
    print("All agree." if agree else "THEY DO NOT AGREE.")
    return agree


def _show(
    runtime: str, expected: list[str], translations: list[str], most: int
) -> None:
    lines = enumerate(zip(expected, translations, strict=True), 1)
    differing = [(i, a, b) for i, (a, b) in lines if a != b]
    for i, a, b in differing[:most]:
        print(f"\nline {i}\n  Keras: {visible(a)}\n  {runtime}: {visible(b)}")
