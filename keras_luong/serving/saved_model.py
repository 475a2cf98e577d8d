"""Export for TensorFlow Serving: strings in, strings out, none of this library's code.

A loading process needs TensorFlow and, for SentencePiece, `import tensorflow_text`.
"""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import tensorflow as tf

from keras_luong.checks import check_path, check_size
from keras_luong.serving.translator import Translator


def export_saved_model(
    translator: Translator,
    directory: str | os.PathLike,
    version: int = 1,
    overwrite: bool = False,
) -> Path:
    """Write `directory/version/`, a SavedModel as TensorFlow Serving wants it.

    Its signature `serving_default` maps `text: string [B]` to `translation: string
    [B]`, `score: float32 [B]` and `truncated: bool [B]`, just as `translator.serve`
    does, for any `B`. It is written elsewhere in `directory` and then renamed, so that
    a server that watches the directory never sees half a version.

    Args:
        translator: the `Translator`.
        directory: the model's directory; made if need be.
        version: positive int. Servers load the highest.
        overwrite: whether to replace the version if it exists.

    Returns:
        The path of the version's directory.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if `version` is below 1.
        FileExistsError: if the version exists, unless `overwrite`.
        NotADirectoryError: if `directory` is a file.

    Example:
        >>> path = export_saved_model(translator, "models/m30k", version=1)
        >>> # Elsewhere:
        >>> import tensorflow_text  # SentencePiece's ops
        >>> serve = tf.saved_model.load(path).signatures["serving_default"]
        >>> serve(text=tf.constant(["A dog runs."]))["translation"]
    """
    if not isinstance(translator, Translator):
        raise TypeError(f"`translator` must be a Translator. Received: {translator!r}")
    check_size("version", version)
    target = check_path("directory", directory) / str(version)
    if target.parent.exists() and not target.parent.is_dir():
        raise NotADirectoryError(f"`directory` is a file: {target.parent}.")
    if target.exists() and not overwrite:
        raise FileExistsError(
            f"{target} exists; choose another `version`, or pass overwrite=True."
        )
    module = _servable(translator)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = _hidden_beside(target)
    try:
        tf.saved_model.save(
            module,
            str(unfinished),
            signatures={"serving_default": module.serve},
            # Serving needs no gradients, and layers' own ones cannot be saved.
            options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
        )
        _publish(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _servable(translator: Translator) -> tf.Module:
    """A module that holds all that the serving function touches, and nothing else."""
    module = tf.Module()
    # Concrete: saving the function itself would trace and write it a second time.
    module.serve = translator.serve.get_concrete_function()
    # The variables and not the model, whose own saving would add its Keras metadata.
    module.weights = list(module.serve.graph.variables)
    module.tokenizers = [translator.source_tokenizer, translator.target_tokenizer]
    return module


def _hidden_beside(target: Path) -> Path:
    """A new name on the same disk. Servers look for numbers: they do not see it."""
    return target.with_name(f".{target.name}-{uuid.uuid4().hex}")


def _publish(unfinished: Path, target: Path) -> None:
    """Rename into place; what was there before is lost only once that has worked."""
    replaced = _hidden_beside(target)
    if target.exists():
        target.rename(replaced)
    try:
        unfinished.rename(target)
    except OSError:
        if replaced.exists():
            replaced.rename(target)
        raise
    shutil.rmtree(replaced, ignore_errors=True)
