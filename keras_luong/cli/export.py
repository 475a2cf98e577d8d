"""Writes a SavedModel, a .tflite file or a web page of a run."""

from __future__ import annotations

import dataclasses
import importlib.util
import shlex
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from keras_luong.cli.options import SearchOptions, check_writable
from keras_luong.config.training import without_folders
from keras_luong.runs.run import read_record, read_results

if TYPE_CHECKING:
    from keras_luong.translation.translator import Translator

FIRST_REQUEST = """
In a process that has just loaded it, the first request to each signature
compiles it, which takes seconds. A short request is enough to have that done before:
  serve(text=tf.constant(["a"]))"""
OF_SAVED_MODELS = "version max_batch_size warmup precision no_constrain".split()
OF_TFLITE = "quantize source_length n_best".split()


@dataclasses.dataclass(frozen=True)
class ExportOptions(SearchOptions):
    """Export.

    Args:
        out: The model's directory, in which the SavedModel is written to VERSION/; or a
            file whose name ends in .tflite.
        web: Folder for a page that translates in the browser, instead of OUT; npm
            builds it.
        check: Text to translate with the run and the export, to compare them; by
            default a sentence of the run's validation data.
        version: Version of the SavedModel, by default 1; servers load the highest.
        overwrite: Whether to replace an existing version, or the page in its folder.
        max_batch_size: Most texts in one request, by default 256; larger ones fail
            (SavedModel).
        warmup: Texts that a server translates before it takes requests; by default the
            check text, if tensorflow-serving-api is installed (SavedModel).
        no_constrain: Leaves out the signature `constrain`, a request to which may take
            minutes (SavedModel).
        quantize: Stores weights in 16 or 8 bits: half or a quarter of their size
            (.tflite, page).
        source_length: Fixed number of source tokens, for runtimes that need fixed
            shapes, such as LiteRT.js; by default any length (.tflite), or 64 (page).
        n_best: Translations to return for each text; by default as in the run
            (.tflite), or as many as the beam has (page).
    """

    out: Path | None = None
    _: KW_ONLY
    web: Path | None = None
    check: str | None = None
    version: int | None = None
    overwrite: bool = False
    max_batch_size: int | None = None
    warmup: tuple[str, ...] | None = None
    no_constrain: bool = False
    quantize: Literal["float16", "int8"] | None = None
    source_length: int | None = None
    n_best: int | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that there is one place to write to."""
        super().__post_init__()
        if (self.out is None) == (self.web is None):
            raise ValueError(
                "Give one of OUT, a directory or a file whose name ends in .tflite, "
                "and --web FOLDER."
            )

    def check_places(self) -> None:
        """Checks the paths, and that the version is a new one or may be replaced."""
        super().check_places()
        if self.out is None:
            return
        check_writable(self.out)
        if self.out.suffix.lower() == ".tflite":
            if self.out.is_dir():
                raise IsADirectoryError(f"OUT must be a file. Received: {self.out}/")
            return
        if self.out.is_file():
            raise NotADirectoryError(
                "OUT must be a directory, or a file whose name ends in .tflite. "
                f"Received: {self.out}"
            )
        version = 1 if self.version is None else self.version
        if (self.out / str(version)).exists() and not self.overwrite:
            names = [x.name for x in self.out.iterdir() if x.name.isdecimal()]
            raise FileExistsError(
                f"{self.out / str(version)} exists: give --overwrite to replace it, or "
                f"--version {max(map(int, names)) + 1} for a new one beside it."
            )


def run(options: ExportOptions) -> Path:
    """Exports, compares the export with the run on a text, says how to use it."""
    import tensorflow as tf

    is_litert = options.out is None or options.out.suffix.lower() == ".tflite"
    what = "a SavedModel" if is_litert else "a .tflite file or a page"
    for name in OF_SAVED_MODELS if is_litert else OF_TFLITE:
        value = getattr(options, name)
        if value is not None and value is not False:
            out = options.out or f"--web {options.web}"
            raise ValueError(f"--{name} is for {what}. Received: {value}, {out}")
    # A graph that is traced where there is a GPU may hold what only GPUs run.
    tf.config.set_visible_devices([], "GPU")
    return _to_litert(options) if is_litert else _to_saved_model(options)


def _to_saved_model(options: ExportOptions) -> Path:
    import tensorflow as tf

    from keras_luong.cli.translators import load_translator
    from keras_luong.export.saved_model import export_saved_model

    assert options.out is not None
    translator = load_translator(options)
    text = check_text(options)
    warmup = options.warmup
    if warmup is None and importlib.util.find_spec("tensorflow_serving") is None:
        warmup = ()
        print(
            "No warm-up requests are written, so TensorFlow Serving compiles each "
            "signature for its first user: pip install tensorflow-serving-api before "
            "exporting, to have them."
        )
    path = export_saved_model(
        translator,
        options.out,
        version=1 if options.version is None else options.version,
        overwrite=options.overwrite,
        max_batch_size=options.max_batch_size or 256,
        warmup=(text,) if warmup is None else warmup,
        constrain=not options.no_constrain,
        metadata=origin(options, options.precision),
    )
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    translation = serve(text=tf.constant([text]))["translation"].numpy()[0].decode()
    _compare(path, translator, text, translation)
    print(f"{path}: {text!r} -> {translation!r}")
    print("\nTo use it, without keras_luong:")
    print("  import tensorflow as tf, tensorflow_text")
    print(f"  serve = tf.saved_model.load({str(path)!r}).signatures['serving_default']")
    print(f"  serve(text=tf.constant([{text!r}]))['translation']")
    print(FIRST_REQUEST)
    return path


def _to_litert(options: ExportOptions) -> Path:
    """A .tflite file, or a page around one."""
    from keras_luong.cli.translators import load_translator
    from keras_luong.decoding.beam import BeamSearch
    from keras_luong.export.tflite import export_tflite
    from keras_luong.export.web import MODEL, SOURCE_LENGTH, export_web

    translator = load_translator(options, "float32")  # which LiteRT computes in
    n_best = options.n_best
    if options.web is not None and isinstance(translator.search, BeamSearch):
        n_best = n_best or translator.search.beam_width
    if n_best is not None:
        translator = translator.with_search(n_best=n_best)
    has_edge = importlib.util.find_spec("keras_luong_edge") is not None
    text = check_text(options) if has_edge else None
    about: Any = {"quantize": options.quantize, "metadata": origin(options, "float32")}
    if options.web is None:
        assert options.out is not None
        length = options.source_length
        path = export_tflite(translator, options.out, source_length=length, **about)
        model = path
    else:
        print(
            "The model is exported, then npm builds the page. Packages that npm does "
            "not have yet come from its registry; if that cannot be reached, it says "
            "so after a minute or two."
        )
        about["source_length"] = options.source_length or SOURCE_LENGTH
        about["overwrite"] = options.overwrite
        path = export_web(translator, options.web, **about)
        model = path / MODEL
    size = f"{model}, {model.stat().st_size / 1e6:.1f} MB"
    if text is None:
        print(f"{size}. It was not tried out, which needs keras-luong-edge.")
    else:
        from keras_luong_edge import EdgeTranslator  # a distribution of its own

        translation = EdgeTranslator(model).translate([text])[0].text
        _compare(model, translator, text, translation, exact=options.quantize is None)
        print(f"{size}: {text!r} -> {translation!r}")
    place = shlex.quote(str(path))
    if options.web is None:
        print("\nTo use it where keras-luong-edge is installed (export/edge):")
        print(f"  keras-luong-edge {place} < in.txt > out.txt")
    else:
        print("\nTo use it, from this machine or any server of files:")
        print(f"  python -m http.server --bind 127.0.0.1 --directory {place}")
        print("and open http://127.0.0.1:8000 in a browser.")
    return path


def check_text(options: ExportOptions) -> str:
    """The text that is tried out: given, or of the run's own validation data."""
    if options.check is not None:
        return options.check
    if sample := read_record(options.run_dir).get("sample"):
        return str(sample)
    from keras_luong.cli.translators import corpus_of
    from keras_luong.text.corpus import first_source

    try:  # a run that was begun before samples were kept
        corpus = corpus_of(None, options.run_dir)
        return first_source(corpus, "validation")
    except (ValueError, OSError) as error:
        raise ValueError(
            "The run's validation data, of which a sentence is tried out, cannot be "
            f"read: give --check TEXT. ({error})"
        ) from error


def _compare(
    path: Path, translator: Translator, text: str, translation: str, exact: bool = True
) -> None:
    expected = translator.translate([text])[0].text
    if translation != expected:
        note = f"{path} translates {text!r} as {translation!r}, the run as {expected!r}"
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
        is an ensemble, also `"ensemble": [...]`, with the same of the other runs. Of
        paths only the last name, as others will read it.

    Raises:
        ValueError: A file of a run is damaged.
    """
    runs = []
    for run_dir in (options.run_dir, *options.ensemble):
        record = read_record(run_dir)
        about = {name: record[name] for name in ("model", "search")}
        about |= {"settings": without_folders(record["settings"])}
        runs.append({**about, "results": read_results(run_dir)})
    precision = precision or runs[0]["model"]["config"].get("dtype")
    alone = {"precision": precision, "run": runs[0]}
    return {**alone, "ensemble": runs[1:]} if options.ensemble else alone
