"""Export for TensorFlow Serving: strings in, strings out, none of this library's code.

A loading process needs TensorFlow and, for SentencePiece, `import tensorflow_text`.

```
1/saved_model.pb, variables/                   what is computed
1/assets.extra/tf_serving_warmup_requests      what a server asks first
1/assets.extra/keras_luong.json                where it comes from
```
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

import keras_luong
from keras_luong.checks import check_path, check_size
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.export.signatures import signatures
from keras_luong.export.warmup import replay_warmup, serving_apis, write_warmup
from keras_luong.files import saved_directory_beside
from keras_luong.translation.translator import Translator, all_bytes

METADATA = Path("assets.extra", "keras_luong.json")
# Operations that servers lack, or have on some machines only.
UNSERVABLE = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "Cudnn")


def export_saved_model(
    translator: Translator,
    directory: str | os.PathLike[str],
    version: int = 1,
    overwrite: bool = False,
    max_batch_size: int = 256,
    warmup: Iterable[str | bytes] = (),
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes `directory/version/`, a SavedModel as TensorFlow Serving wants it.

    Its signature `serving_default` maps `text: string [B]` to `translation: string
    [B]`, `score: float32 [B]` and `truncated: bool [B]`, just as `translator.serve`
    does, for any B. The others, `n_best`, `align`, `score` and `ids`, are described
    in `keras_luong.export.signatures`. The work of a request is limited: at most
    `max_batch_size` texts, of each at most the translator's `max_source_length` tokens,
    and hypotheses no longer than the search allows.

    It is written elsewhere in `directory` and then renamed, so a server that watches
    the directory never sees half a version. (When a version is replaced there is a
    moment without it, and servers keep the one that they have loaded: give them a new
    one.)

    Args:
        translator: The `Translator`.
        directory: The model's directory, whose name is the model's; made if there is
            none.
        version: Servers load the highest.
        overwrite: Whether to replace the version if it exists; not for directories
            that a server watches.
        max_batch_size: More texts in one request are an error.
        warmup: Texts that a server translates before it takes requests, all of them at
            once, through each signature. They are tried out first, and compared with
            what the translator says. Needs tensorflow-serving-api (`pip install
            keras_luong[serving]`).
        metadata: What JSON can write, kept in `assets.extra/keras_luong.json` for
            people, beside the search and the limits.

    Returns:
        The path of the version's directory.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a number is below 1, there are more warm-up texts than
            `max_batch_size`, or the graph holds operations that no server runs.
        FileExistsError: If the version exists, unless `overwrite`.
        NotADirectoryError: If `directory` is a file.
        ModuleNotFoundError: If there are warm-up texts and no tensorflow-serving-api.
        RuntimeError: If the export translates them otherwise than the translator.

    Example:
        >>> path = export_saved_model(translator, "models/m30k", version=1)
        >>> # Elsewhere:
        >>> import tensorflow_text  # SentencePiece's ops
        >>> serve = tf.saved_model.load(path).signatures["serving_default"]
        >>> serve(text=tf.constant(["A dog runs."]))["translation"]
    """
    if not isinstance(translator, Translator):
        raise TypeError(f"`translator` must be a Translator. Received: {translator!r}")
    check_size("version", version, largest=2**63 - 1)
    check_size("max_batch_size", max_batch_size, largest=2**31 - 1)
    warmup = _check_warmup(warmup, max_batch_size)
    about = describe(translator, metadata, max_batch_size=max_batch_size)
    target = check_path("directory", directory) / str(version)
    if target.parent.exists() and not target.parent.is_dir():
        raise NotADirectoryError(f"`directory` is a file: {target.parent}.")
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{target} exists; choose another `version`, or pass overwrite=True."
        )
    functions = signatures(translator, max_batch_size)
    for name, function in functions.items():
        _check_servable(name, function)
    with saved_directory_beside(target, overwrite) as beside:
        tf.saved_model.save(
            _resources(translator, functions.values()),
            str(beside),
            signatures=functions,
            # Serving needs no gradients, and layers' own ones cannot be saved.
            options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
        )
        (beside / METADATA).parent.mkdir()
        (beside / METADATA).write_bytes(about)
        if warmup:
            requests = _requests(translator, warmup)
            write_warmup(beside, target.parent.resolve().name, requests)
            _compare(replay_warmup(beside), translator, warmup)
    return target


def describe(
    translator: Translator, metadata: Mapping[str, Any] | None, **limits: Any
) -> bytes:
    """Describes an export and its origin.

    Args:
        translator: The `Translator`.
        metadata: What the user wants to keep, or None.
        **limits: What else is to be known of the export.

    Returns:
        JSON in UTF-8.

    Raises:
        TypeError: If `metadata` is no mapping, or JSON can't write it.
        ValueError: If `metadata` holds NaN or infinity.
    """
    if not isinstance(metadata, Mapping | None):
        raise TypeError(f"metadata must be a dict or None. Received: {metadata!r:.60}")
    about = {
        **(metadata or {}),
        "library": f"keras_luong {keras_luong.__version__}",
        "tensorflow": tf.__version__,
        "search": repr(translator.search),
        "max_source_length": translator.max_source_length,
        **limits,
    }
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()


def _resources(translator: Translator, functions: Iterable[Any]) -> tf.Module:
    """Returns a module that holds all that the signatures use, and nothing else."""
    module = tf.Module()
    # The variables and not the model, whose own saving would add its Keras metadata.
    module.weights = [weight for f in functions for weight in f.graph.variables]
    module.tokenizers = [translator.source_tokenizer, translator.target_tokenizer]
    return module


def _check_servable(name: str, function: Any) -> None:
    graph = function.graph.as_graph_def()
    nodes = [*graph.node, *(x for f in graph.library.function for x in f.node_def)]
    if found := sorted({x.op for x in nodes if x.op.startswith(UNSERVABLE)}):
        raise ValueError(
            f"The signature {name!r} cannot be served: its graph has the operations "
            f"{', '.join(found)}, which run in Python or on a GPU alone. (If it is the "
            "GPU: export where tf.config.set_visible_devices([], 'GPU') hides it.)"
        )


def _check_warmup(warmup: Iterable[str | bytes], max_batch_size: int) -> list[bytes]:
    warmup = all_bytes("warmup", warmup)
    if len(warmup) > max_batch_size:
        raise ValueError(
            f"warmup must be at most max_batch_size={max_batch_size} texts. Received: "
            f"{len(warmup)}"
        )
    if warmup:
        serving_apis()
    return warmup


def _compare(
    answers: Mapping[str, Any], translator: Translator, texts: list[bytes]
) -> None:
    """Checks that the export says what the translator says, unless that's random."""
    if isinstance(translator.search, RandomSampling) and translator.search.seed is None:
        return
    said = answers["serving_default"]["translation"].numpy()
    expected = translator.serve(tf.constant(texts))["translation"].numpy()
    for text, a, b in zip(texts, said, expected, strict=True):
        if a != b:
            raise RuntimeError(
                f"The export translates {text!r} as {a.decode()!r}, the translator as "
                f"{b.decode()!r}."
            )


def _requests(translator: Translator, texts: list[bytes]) -> dict[str, dict[str, Any]]:
    """Returns the inputs of each signature."""
    ids = translator.source_tokenizer.encode(tf.constant(texts))
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    return {
        "serving_default": {"text": texts},
        "n_best": {"text": texts},
        "align": {"text": texts},
        "score": {"text": texts, "target": texts},
        "ids": {"ids": ids.to_tensor().numpy(), "length": lengths.numpy()},
    }
