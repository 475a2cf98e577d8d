"""`keras-luong export`: a SavedModel, a `.tflite` file or a page, tried out."""

from __future__ import annotations

import importlib.util
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.cli.options import CorpusOptions, ExportOptions
from keras_luong.cli.translators import corpus_of, load_translator
from keras_luong.decoding.beam import BeamSearch
from keras_luong.export.saved_model import export_saved_model
from keras_luong.export.tflite import export_tflite
from keras_luong.export.web import MODEL, SOURCE_LENGTH, export_web
from keras_luong.runs.run import read_record, read_results
from keras_luong.text.corpus import first_source
from keras_luong.translation.translator import Translator

FIRST_REQUEST = """
In a process that has just loaded it, the first request to each signature
compiles it, which takes seconds. A short request is enough to have that done before:
  serve(text=tf.constant(["a"]))"""
OF_SAVED_MODELS = ("version", "max_batch_size", "warmup", "precision")
OF_TFLITE = ("quantize", "source_length", "n_best")


def run(options: ExportOptions) -> Path:
    """Exports, compares the export with the run on a text, says how to use it."""
    kind = _kind(options)
    is_served = kind is _to_saved_model
    what = "a .tflite file or a page" if is_served else "a SavedModel"
    for name in OF_TFLITE if is_served else OF_SAVED_MODELS:
        if (value := getattr(options, name)) is not None:
            out = options.out or f"--web {options.web}"
            raise ValueError(f"--{name} is for {what}. Received: {value}, {out}")
    # A graph that is traced where there is a GPU may hold what only GPUs run.
    tf.config.set_visible_devices([], "GPU")
    return kind(options)


def _kind(options: ExportOptions) -> Callable[[ExportOptions], Path]:
    if options.out is None:
        return _to_web
    return _to_tflite if options.out.suffix.lower() == ".tflite" else _to_saved_model


def _to_saved_model(options: ExportOptions) -> Path:
    assert options.out is not None
    translator = load_translator(options)
    text = check_text(options)
    version = 1 if options.version is None else options.version
    path = export_saved_model(
        translator,
        options.out,
        version=version,
        overwrite=options.overwrite,
        max_batch_size=options.max_batch_size or 256,
        warmup=_warmup(options, text),
        metadata=origin(options, options.precision),
    )
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    found = serve(text=tf.constant([text]))["translation"].numpy()[0].decode()
    _compare(path, translator, text, found)
    print(f"{path}: {text!r} -> {found!r}")
    print("\nTo use it, without keras_luong:")
    print("  import tensorflow as tf, tensorflow_text")
    print(f"  serve = tf.saved_model.load({str(path)!r}).signatures['serving_default']")
    print(f"  serve(text=tf.constant([{text!r}]))['translation']")
    print(FIRST_REQUEST)
    return path


def _to_tflite(options: ExportOptions) -> Path:
    assert options.out is not None
    translator, text = _for_litert(options)
    path = export_tflite(
        translator,
        options.out,
        quantize=options.quantize,
        source_length=options.source_length,
        metadata=origin(options, "float32"),
    )
    _try_out(path, translator, text, options)
    print("\nTo use it where keras-luong-edge is installed (export/edge):")
    print(f"  keras-luong-edge {shlex.quote(str(path))} < in.txt > out.txt")
    return path


def _to_web(options: ExportOptions) -> Path:
    assert options.web is not None
    translator, text = _for_litert(options)
    search = translator.search
    if isinstance(search, BeamSearch) and options.n_best is None:
        translator = translator.with_search(n_best=search.beam_width)
    print(
        "The model is exported, then npm builds the page. Packages that npm does not "
        "have yet come from its registry; if that cannot be reached, it says so after "
        "a minute or two."
    )
    path = export_web(
        translator,
        options.web,
        quantize=options.quantize,
        source_length=options.source_length or SOURCE_LENGTH,
        overwrite=options.overwrite,
        metadata=origin(options, "float32"),
    )
    _try_out(path / MODEL, translator, text, options)
    print("\nTo use it, from this machine or any server of files:")
    print(
        f"  python -m http.server --bind 127.0.0.1 --directory {shlex.quote(str(path))}"
    )
    print("and open http://127.0.0.1:8000 in a browser.")
    return path


def _for_litert(options: ExportOptions) -> tuple[Translator, str | None]:
    """The translator in the type that LiteRT computes in, and a text to try it on."""
    translator = load_translator(options, "float32")
    if options.n_best is not None:
        translator = translator.with_search(n_best=options.n_best)
    can_run = importlib.util.find_spec("keras_luong_edge") is not None
    return translator, check_text(options) if can_run else None


def _try_out(
    path: Path, translator: Translator, text: str | None, options: ExportOptions
) -> None:
    """Says how large the file is, and compares it with the run."""
    about = f"{path}, {path.stat().st_size / 1e6:.1f} MB"
    if text is None:
        print(f"{about}. It was not tried out, which needs keras-luong-edge.")
        return
    from keras_luong_edge import EdgeTranslator  # a distribution of its own

    found = EdgeTranslator(path).translate([text])[0].text
    _compare(path, translator, text, found, exact=options.quantize is None)
    print(f"{about}: {text!r} -> {found!r}")


def check_text(options: ExportOptions) -> str:
    """The text that is tried out: given, or of the run's own validation data."""
    if options.check is not None:
        return options.check
    if sample := read_record(options.run_dir).get("sample"):
        return str(sample)
    try:  # a run that was begun before samples were kept
        corpus = corpus_of(CorpusOptions(), options.run_dir)
        return first_source(corpus, "validation")
    except (ValueError, OSError) as error:
        raise ValueError(
            "The run's validation data, of which a sentence is tried out, cannot be "
            f"read: give --check TEXT. ({error})"
        ) from error


def _warmup(options: ExportOptions, text: str) -> tuple[str, ...]:
    """The warm-up texts; none if the file cannot be written and was not asked for."""
    if options.warmup is not None:
        return options.warmup
    if importlib.util.find_spec("tensorflow_serving") is None:
        print(
            "No warm-up requests are written, so TensorFlow Serving compiles each "
            "signature for its first user: pip install tensorflow-serving-api before "
            "exporting, to have them."
        )
        return ()
    return (text,)


def _compare(
    path: Path, translator: Translator, text: str, found: str, exact: bool = True
) -> None:
    expected = translator.translate([text])[0].text
    if found != expected:
        note = f"{path} translates {text!r} as {found!r}, the run as {expected!r}"
        if exact:
            raise RuntimeError(note)
        print(f"Note: {note}.")


def origin(options: ExportOptions, precision: str | None) -> dict[str, Any]:
    """What an export's metadata says of the run.

    Args:
        options: Which runs.
        precision: What the export computes in; by default what the run was trained in.

    Returns:
        `{"precision": ..., "run": ...}`: of the run how it was trained, how it is
        searched, and, if it has been evaluated, what BLEU it then had by which search,
        with sacrebleu's signature. (The export may search in another way.) Where there
        is an ensemble, also `"ensemble": [...]`, with the same of the other runs.

    Raises:
        ValueError: A file of a run is damaged.
    """
    run = _about(options.run_dir)
    about = {"precision": precision or run["model"]["config"].get("dtype"), "run": run}
    if options.ensemble:
        about["ensemble"] = [_about(other) for other in options.ensemble]
    return about


def _about(run_dir: Path) -> dict[str, Any]:
    record = read_record(run_dir)
    parts = {name: record[name] for name in ("model", "settings", "search")}
    return {**parts, "results": read_results(run_dir)}
