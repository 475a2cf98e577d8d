"""Export for TensorFlow Serving: translates or generates without this library.

A loading process needs TensorFlow and, for SentencePiece, `import tensorflow_text`.

```
1/saved_model.pb, variables/                   the graph and weights
1/assets.extra/tf_serving_warmup_requests      requests for warming up
1/assets.extra/keras_luong.json                the model's origin
1/assets.extra/crc32.json                      what tells if a file is damaged
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_path, check_size
from keras_luong.decoding.generate import SequenceGenerator
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.export.signatures import Exported, TextExport, exported, signatures
from keras_luong.export.warmup import replay_warmup, serving_apis, write_warmup
from keras_luong.files import crc32, saved_directory_beside, write_json
from keras_luong.runs.run import read_json
from keras_luong.translation.translator import Translator
from keras_luong.version import __version__

METADATA = Path("assets.extra", "keras_luong.json")
SUMS = Path("assets.extra", "crc32.json")  # of every other file of the version
# Operations that no server has, or only some machines.
UNSERVABLE = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "Cudnn")


def export_saved_model(
    translator: Translator | SequenceGenerator,
    directory: str | os.PathLike[str],
    version: int = 1,
    overwrite: bool = False,
    max_batch_size: int = 256,
    warmup: Any = (),
    metadata: Mapping[str, Any] | None = None,
    constrain: bool = True,
) -> Path:
    """Writes `directory/version/`, a SavedModel for TensorFlow Serving.

    Its signature `serving_default` maps `text: string [B]` to `translation: string
    [B]`, `score: float32 [B]` and `truncated: bool [B]`, as `translator.serve` does,
    for any B. The signatures `n_best`, `align`, `score` and `ids` are described in
    `keras_luong.export.signatures`. The work of a request is limited to
    `max_batch_size` texts, the first `max_source_length` tokens of each, and the
    search's longest hypotheses.

    Of a `SequenceGenerator` the signature `serving_default` maps the source, any number
    of rows of it, to `ids: int32 [B, N, T]`, `lengths: int32 [B, N]`, `scores: float32
    [B, N]` and the other fields of `keras_luong.decoding.Hypotheses`.

    The first request to each signature takes seconds in a process that has just loaded
    the model, as TensorFlow compiles its graph. A server that finds `warmup` requests
    has that done before; elsewhere `keras_luong.export.warm_up` does it, or a short
    request to each signature.

    It is written under another name and then renamed, so a server that watches the
    directory never sees an incomplete version. (To update a server, write a new
    version: while one is replaced it is missing for a moment, and servers keep the one
    that they have loaded.)

    Args:
        translator: A `Translator`, or a `SequenceGenerator` where there is no text.
        directory: The model's directory, which has the model's name; made if it does
            not exist.
        version: Version number; servers load the highest.
        overwrite: Whether to replace the version if it exists; not for directories
            that a server watches.
        max_batch_size: Most texts in one request; larger ones fail.
        warmup: Texts (of a generator: a batch of its sources) that a server translates
            before it takes requests, as one batch for each signature. The export is
            tested with them first: its answers must equal the translator's. Needs
            tensorflow-serving-api (`pip install keras_luong[serving]`).
        metadata: Anything that JSON can represent, to be kept for people in
            `assets.extra/keras_luong.json`, beside the search and the limits.
        constrain: Whether the signature `constrain` is there, a request to which may
            take minutes (docs/security.md).

    Returns:
        The path of the version's directory.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is below 1, there are more warm-up texts than
            `max_batch_size`, or the graph holds operations that no server runs.
        FileExistsError: If the version exists, unless `overwrite`.
        NotADirectoryError: If `directory` is a file.
        ModuleNotFoundError: If there are warm-up texts and no tensorflow-serving-api.
        RuntimeError: If the export translates them differently from the translator.

    Example:
        >>> translator = kl.load("runs/mine")
        >>> path = kl.export_saved_model(translator, "models/mine", version=1)
        >>> # Elsewhere; for SentencePiece's tokens with `import tensorflow_text`:
        >>> serve = tf.saved_model.load(path).signatures["serving_default"]
        >>> serve(text=tf.constant(["the dog"]))["translation"].shape
        TensorShape([1])
    """
    export = exported(translator, constrain)
    check_size("version", version, largest=2**63 - 1)
    check_size("max_batch_size", max_batch_size, largest=2**31 - 1)
    samples = export.samples(warmup)
    if len(samples) > max_batch_size:
        raise ValueError(
            f"warmup must be at most max_batch_size={max_batch_size} texts. Received: "
            f"{len(samples)}"
        )
    if samples:
        serving_apis()  # refuses what is not installed, before minutes of tracing
    limits = {**export.about, "max_batch_size": max_batch_size}
    about = describe(export.search, metadata, **limits)
    target = check_path("directory", directory) / str(version)
    if target.parent.exists() and not target.parent.is_dir():
        raise NotADirectoryError(f"`directory` is a file: {target.parent}.")
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{target} exists; choose another `version`, or pass overwrite=True."
        )
    functions = signatures(export, max_batch_size)
    for name, function in functions.items():
        _check_servable(name, function)
    module = tf.Module()
    # Not the model itself, which would also save its Keras metadata.
    module.weights = [x for f in functions.values() for x in f.graph.variables]
    module.tokenizers = [*export.tokenizers.values()]
    with saved_directory_beside(target, overwrite) as beside:
        tf.saved_model.save(
            module,
            str(beside),
            signatures=functions,
            # Serving needs no gradients, and custom ones cannot be saved.
            options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
        )
        (beside / METADATA).parent.mkdir()
        (beside / METADATA).write_bytes(about)
        if samples:
            write_warmup(beside, target.parent.resolve().name, export.requests(samples))
            _compare(export, replay_warmup(beside)["serving_default"], samples)
        files = filter(Path.is_file, sorted(beside.rglob("*")))
        sums = {x.relative_to(beside).as_posix(): crc32(x) for x in files}
        write_json(beside / SUMS, sums)
    return target


def check_saved_model(version: str | os.PathLike[str]) -> None:
    """Reads an export once, which tells if it is whole.

    Args:
        version: The version's directory, as `export_saved_model` returned it.

    Raises:
        ValueError: If a file of it is damaged or missing.

    Example:
        >>> from keras_luong.export.saved_model import check_saved_model
        >>> path = kl.export_saved_model(kl.load("runs/mine"), "models/mine", version=3)
        >>> check_saved_model(path)
    """
    path = Path(version) / SUMS
    sums = read_json(path) if path.exists() else {}
    if not isinstance(sums, dict):
        raise ValueError(f"{path} is damaged: it holds no names, but {sums!r:.60}")
    for name, number in sums.items():
        path = Path(version) / name
        if not path.is_file() or crc32(path) != number:
            raise ValueError(f"{path} is damaged: it is not what was written.")


def describe(search: Any, metadata: Mapping[str, Any] | None, **entries: Any) -> bytes:
    """Describes an export and its origin.

    Args:
        search: Its search.
        metadata: The user's own entries, or None.
        **entries: More entries.

    Returns:
        JSON in UTF-8.

    Raises:
        TypeError: If `metadata` is not a mapping, or JSON cannot represent it.
        ValueError: If `metadata` holds NaN or infinity.
    """
    if not isinstance(metadata, Mapping | None):
        raise TypeError(f"metadata must be a dict or None. Received: {metadata!r:.60}")
    about = {
        **(metadata or {}),
        "library": f"keras_luong {__version__}",
        "tensorflow": tf.__version__,
        "search": repr(search),
        **entries,
    }
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _check_servable(name: str, function: Any) -> None:
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(x for f in graph.library.function for x in f.node_def)]
    if ops := sorted({x.op for x in nodes if x.op.startswith(UNSERVABLE)}):
        raise ValueError(
            f"The signature {name!r} cannot be served: its graph has the operations "
            f"{', '.join(ops)}, which run in Python or on a GPU alone. (If it is the "
            "GPU: export where tf.config.set_visible_devices([], 'GPU') hides it.)"
        )


def _compare(export: Exported, said: Mapping[str, Any], samples: list[Any]) -> None:
    """Raises RuntimeError if an export answers otherwise than the library.

    Args:
        export: What was exported.
        said: The answer of the export's `serving_default`.
        samples: What it was asked for.
    """
    if isinstance(export.search, RandomSampling) and export.search.seed is None:
        return  # it never says the same
    answer, *_ = export.signatures()["serving_default"]
    inputs = export.requests(samples)["serving_default"].values()
    expected = answer(*map(tf.constant, inputs))
    name = "translation" if isinstance(export, TextExport) else "ids"
    pairs = zip(samples, said[name].numpy(), expected[name].numpy(), strict=True)
    for i, (sample, a, b) in enumerate(pairs):
        if not np.array_equal(a, b):
            raise RuntimeError(
                f"The export's {name} for source {i}, {sample!r:.60}, is {a!r}, the "
                f"library's {b!r}."
            )
