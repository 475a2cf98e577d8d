"""Compares what exports say with what their run says.

Whatever computes in float32 must agree in every line. What is quantized may lose 0.3
BLEU, if there is a reference; without one it is only shown. The exit code is 1 if they
do not agree.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.cli.options import AnyFile, OldFolder, SearchOptions, TextOrPipe
from keras_luong.config.fields import Count
from keras_luong.files import read_lines, read_pairs
from keras_luong.progress import Progress

TOLERANCE = 0.3  # BLEU that quantization may cost

#: What translates a file's lines.
Runtime = Callable[[list[str]], list[str]]


@dataclasses.dataclass(frozen=True)
class VerifyOptions(SearchOptions):
    """Verification.

    Args:
        source: File of source sentences, one a line.
        reference: File of their reference translations, for BLEU.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's.
        saved_model: Directory of an exported version, such as MODEL/1.
        tflite: Exported .tflite files; needs keras-luong-edge.
        batch_size: Sentences to translate at once (.tflite files take one).
        show: Differing lines to print for each export.
    """

    source: TextOrPipe
    _: KW_ONLY
    reference: TextOrPipe | None = None
    bleu_tokenize: str = "auto"
    saved_model: OldFolder | None = None
    tflite: tuple[AnyFile, ...] = ()
    batch_size: int = 32
    show: Count = 3


class Answers(NamedTuple):
    """A runtime's translations of the file, and the time that they took."""

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
    import tensorflow as tf

    from keras_luong.cli import translators

    if not (options.saved_model or options.tflite or more):
        raise ValueError("Nothing to compare: give --saved_model, --tflite, or both")
    tf.config.set_visible_devices([], "GPU")  # exports are for CPUs
    if options.reference:
        texts, references = read_pairs(options.source, options.reference)
    else:
        texts, references = list(read_lines(options.source)), None
    if not texts:
        raise ValueError(f"{options.source} is empty: there is nothing to compare.")
    tokenize = translators.bleu_tokenization(options.bleu_tokenize, options.run_dir)
    translators.tell_languages(options.run_dir, source=texts, target=references or ())
    on_edge = [_by_tflite(path) for path in options.tflite]  # what is missing is told
    translator = translators.load_translator(options)

    def by_keras(texts: list[str]) -> list[str]:
        translations = translator.translate(texts, options.batch_size, progress=True)
        return [translation.text for translation in translations]

    answers = [_timed("Keras", by_keras, texts)]
    if options.saved_model:
        served = _by_saved_model(options.saved_model, options.batch_size)
        answers.append(_timed("SavedModel, Python", served, texts))
    for name, runtime in (more or {}).items():
        answers.append(_timed(name, runtime, texts))
    for path, (runtime, exact) in zip(options.tflite, on_edge, strict=True):
        answer = _timed(f"{path.name}, LiteRT", runtime, texts)
        answers.append(answer._replace(exact=exact))
    if not compare(answers, references, tokenize, options.show):
        raise SystemExit(1)


def _by_saved_model(path: Path, batch_size: int) -> Runtime:
    """The SavedModel in Python, in batches as they come."""
    import tensorflow as tf

    from keras_luong.export.saved_model import METADATA, check_saved_model
    from keras_luong.runs.run import read_json

    check_saved_model(path)
    about = read_json(path / METADATA) if (path / METADATA).exists() else {}
    batch_size = min(batch_size, about.get("max_batch_size", batch_size))
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
    answers: list[Answers], references: list[str] | None, tokenize: str, show: int
) -> bool:
    """Prints the table, and what differs.

    Args:
        answers: The runtimes' answers, Keras's first.
        references: The lines of the reference, or None.
        tokenize: sacrebleu's tokenisation.
        show: Differing lines to print for each runtime.

    Returns:
        Whether all agree.
    """
    from keras_luong.evaluation.report import visible
    from keras_luong.evaluation.scores import bleu, chrf

    expected = answers[0].translations
    agree, lost, lowest = True, list[str](), 0.0
    scores: tuple[Any, ...] = ()
    if references:
        lowest = bleu(expected, references, tokenize).score - TOLERANCE
    print(f"\n{'runtime':40} {'differ':>7} {'BLEU':>7} {'chrF':>7} {'seconds':>8}")
    for runtime, translations, seconds, exact in answers:
        pairs = zip(expected, translations, strict=True)
        differ = sum(a != b for a, b in pairs)
        columns = f"{'':>7} {'':>7}"
        if references:
            scores = (
                bleu(translations, references, tokenize),
                chrf(translations, references),
            )
            columns = " ".join(f"{score.score:7.2f}" for score in scores)
            if not exact and scores[0].score < lowest:
                lost.append(runtime)
        agree &= differ == 0 or not exact
        print(f"{runtime:40} {differ:7} {columns} {seconds:8.1f}")
    for score in scores:
        print(score.signature)
    for runtime, translations, _, _ in answers[1:]:
        rows = enumerate(zip(expected, translations, strict=True), 1)
        differing = [(i, a, b) for i, (a, b) in rows if a != b]
        for i, a, b in differing[:show]:
            print(f"\nline {i}\n  Keras: {visible(a)}\n  {runtime}: {visible(b)}")
    given = "An export's own search options must be given here."
    if not agree:
        print(f"THEY DO NOT AGREE. ({given})")
    elif lost:
        print(
            f"THEY DO NOT AGREE: more than {TOLERANCE} BLEU are lost by "
            f"{', '.join(lost)}. (Of less than 1,000 sentences that may be chance. "
            f"{given})"
        )
    elif any(answer.translations != expected for answer in answers):
        print("All agree, but for what quantization may change.")
    else:
        print("All agree.")
    return agree and not lost
