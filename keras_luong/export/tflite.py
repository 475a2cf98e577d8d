"""Export for LiteRT (TensorFlow Lite): one file with model, search and tokenizers.

The graph maps one source to hypotheses, with builtin operations only. Of a translator
the source is a sentence's ids; the distribution keras-luong-edge (`export/edge/`) uses
it for text, without TensorFlow. The file ends with an archive, which `unzip` can read
and the interpreter ignores:

```
keras_luong.json     settings for a runtime, and the model's origin
source.spm           a translator's tokenizers (.txt for words)
target.spm
```

Shapes: S source tokens, N hypotheses, T target tokens, end tokens included.
"""

from __future__ import annotations

import dataclasses
import math
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.checks import check_choice, check_path, check_size
from keras_luong.compat import frozen
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.generate import SequenceGenerator
from keras_luong.decoding.hoisting import cast_weights
from keras_luong.decoding.search_state import pad_to
from keras_luong.decoding.step_model import Hypotheses, StepModel
from keras_luong.export.saved_model import describe
from keras_luong.export.signatures import Exported, TextExport, exported, fields
from keras_luong.files import crc32, saved_beside
from keras_luong.models.translation_model import TranslationModel
from keras_luong.signals import ending_at_once
from keras_luong.special_ids import UNK_ID
from keras_luong.translation.graph import BYTES_PER_TOKEN, attention_to
from keras_luong.translation.translator import Translator

METADATA = "keras_luong.json"  # name in the archive
FORMAT = 1  # runtimes refuse other numbers
# As in keras_luong_edge, which reads no more.
MOST_METADATA = 1 << 20  # bytes
MOST_VOCABULARY = 16 << 20  # bytes
MOST_TOKENS = 1 << 16  # of a source, that a file may say it reads
QUANTIZE = (None, "float16", "int8")


def export_tflite(
    translator: Translator | SequenceGenerator,
    path: str | os.PathLike[str],
    quantize: str | None = None,
    source_length: int | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a `.tflite` file that translates or generates for one source at a time.

    Its signature `serving_default` maps `source: int32 [1, S]`, at most
    `max_source_length` ids and the end id, to `ids int32 [1, N, T]`, `lengths int32 [1,
    N]`, `scores` and `log_probs float32 [1, N]`, `weights float32 [1, N, T, S]` and
    `token_log_probs float32 [1, N, T]`, see `keras_luong.decoding.Hypotheses`; but -inf
    is replaced by float32's lowest number. If the search keeps several hypotheses, N is
    its beam's width, and a runtime keeps the best `n_best` whose texts differ.

    Of a `SequenceGenerator` the inputs are its sources, as in the SavedModel (see
    `keras_luong.export.signatures`), but with one row; N is the search's `n_best`. If
    the source's shape is fixed in its `tf.TensorSpec`, the outputs are padded to the
    longest possible hypothesis. If it is not, there are no `weights`, as LiteRT cannot
    record attention of an unknown length.

    A model of this library in mixed precision is exported in float32, the type of its
    weights.

    Your own runtime must resize `source` to another length and back before each
    sentence, unless its shape is fixed: otherwise LiteRT's XNNPACK may return wrong
    results for a second sentence of the same length. `EdgeTranslator` does so.

    Args:
        translator: A `Translator` with the library's tokenizers, or a
            `SequenceGenerator`; with a `BeamSearch` without a shortlist or a
            `GreedySearch`.
        path: The file, replaced if it exists.
        quantize: None for float32 weights; "float16" for half their size; "int8" for a
            quarter of it, with products of integers (dynamic range quantization).
        source_length: S, end token and padding included, for runtimes that need fixed
            shapes, such as LiteRT.js. The outputs are then padded to the longest
            possible hypothesis. None for sources of any length up to the translator's
            `max_source_length`, and for a `SequenceGenerator`.
        metadata: Anything that JSON can represent, to be kept in the file for people.

    Returns:
        The path.

    Raises:
        TypeError: If an argument has the wrong type, or the search or a tokenizer
            cannot be exported.
        IsADirectoryError: If `path` is a directory.
        ValueError: If `quantize` is unknown, `source_length` is below 2 or given for a
            `SequenceGenerator`, or the model has operations that LiteRT lacks.

    Example:
        >>> translator = kl.load("runs/mine")
        >>> path = kl.export_tflite(translator, "small.tflite", quantize="int8")
        >>> # Where there is keras-luong-edge and no TensorFlow:
        >>> from keras_luong_edge import EdgeTranslator
        >>> len(EdgeTranslator(path).translate(["the dog"]))
        1
    """
    export = exported(translator)
    target = check_path("path", path)
    if target.is_dir():
        raise IsADirectoryError(f"path must be a file. Received the directory {target}")
    check_choice("quantize", quantize, QUANTIZE)
    check_size(
        "source_length", source_length, optional=True, smallest=2, largest=MOST_TOKENS
    )
    search = _search(export.search)
    source = export.one_source(source_length)
    settings = {
        **_settings(export, search, source_length),
        "format": FORMAT,
        "source_length": source_length,
        "quantize": quantize,
        "n_best": search.n_best,
    }
    # What cannot be described is refused before minutes of converting.
    describe(export.search, metadata, **settings)
    if isinstance(export, TextExport):
        search = search.with_spares()
    model = _in_float32(export.model)
    content = _converted(_one_source(model, search, source, export.longest), quantize)
    with saved_beside(target) as beside:
        beside.write_bytes(content)
        settings["graph_crc32"] = crc32(beside)
        about = describe(export.search, metadata, **settings)
        _append(beside, about, export.tokenizers)
    return target


def _settings(export: Exported, search: BeamSearch, source_length: int | None) -> Any:
    """Returns what a runtime must know of the source and the tokens."""
    ids = {name.removesuffix("_id"): x for name, x in search.special_ids.items()}
    if not isinstance(export, TextExport):
        return {**export.about, "special_ids": ids}
    for side, tokenizer in export.tokenizers.items():
        if getattr(tokenizer, "kind", None) not in ("sentencepiece", "word"):
            raise TypeError(
                f"The {side} tokenizer must be a SentencePieceTokenizer or a Word"
                f"Tokenizer, which the edge runtime knows. Received: {tokenizer!r}"
            )
    most = min(export.about["max_source_length"], MOST_TOKENS)
    if source_length is not None:
        most = min(most, source_length - 1)
    return {
        "max_source_length": most,
        "special_ids": {**ids, "unk": UNK_ID},
        "bytes_per_token": BYTES_PER_TOKEN,
        "tokenizers": {
            side: {"kind": x.kind, "file": f"{side}{x.suffix}"}
            for side, x in export.tokenizers.items()
        },
    }


def _in_float32(model: StepModel) -> StepModel:
    """Returns the model, or a copy in float32 if it computes in another type."""
    if isinstance(model, Ensemble):
        return Ensemble([_in_float32(member) for member in model.models], model.mean)
    if not isinstance(model, TranslationModel):
        return model
    config = model.get_config()
    if config["dtype"] == "float32":
        return model
    other = type(model).from_config({**config, "dtype": "float32"})
    other.set_weights(model.get_weights())
    return other


def _search(search: Any) -> BeamSearch:
    """Returns the search for a single sentence, so without `compact`."""
    if isinstance(search, GreedySearch):
        search = search.as_beam_search()
    if not isinstance(search, BeamSearch):
        raise TypeError(
            "LiteRT runs a BeamSearch or a GreedySearch (it has no random operations "
            f"that repeat TensorFlow's). Received: {search!r}"
        )
    if search.shortlist is not None:
        raise TypeError(
            "LiteRT cannot run a search with a shortlist: its loops need a vocabulary "
            "of one size for all sentences. Export without it."
        )
    return dataclasses.replace(search, compact=False)


def _one_source(model, search, spec, longest):
    """Traces the search for one source.

    Args:
        model: The model.
        search: The search.
        spec: The named specs of a source, in its nest.
        longest: What the attention to a source of unknown length is padded to, or None
            if it is left out.
    """
    specs = tf.nest.flatten(spec)
    is_fixed = all(x.shape.is_fully_defined() for x in specs)

    @tf.function(input_signature=specs, autograph=False)
    def find(*inputs):
        source = tf.nest.pack_sequence_as(spec, inputs)
        if is_fixed:
            hypotheses, most = search(model, source), _longest(search, source)
            hypotheses = _of_known_shape(hypotheses, most, search.pad_id)
        else:
            read = source if longest is None else _pad_last_axis(source, longest)
            hypotheses = search(_OfAnyLength(model, source, longest), read)
        if longest is not None:  # a text
            hypotheses = _cut(hypotheses, source)
        return fields(hypotheses)

    return find.get_concrete_function()


class _OfAnyLength:
    """A model of sources of any length whose attention has a fixed length, or none.

    A search records the attention of each step, for which LiteRT's lists need a fixed
    size. Only the attention is padded: the model itself reads the source as it is.
    """

    def __init__(self, model: StepModel, source: Any, longest: int | None):
        self.model, self.source, self.longest = model, source, longest

    def encode(self, source):
        del source  # the same as `self.source`, padded
        return self.model.encode(self.source)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        if weights is not None:
            if self.longest is not None:
                weights = _pad_last_axis(weights, self.longest)
            elif weights.shape.rank is None or None in weights.shape[2:]:
                weights = None
        return logits, state, weights

    def cast_weights(self):
        return cast_weights(self.model)


def _pad_last_axis(x: tf.Tensor, length: int) -> tf.Tensor:
    missing = length - tf.shape(x)[-1]
    x_padded = tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]])
    x_padded.set_shape([*x.shape[:-1], length])
    return x_padded


def _cut(hypotheses: Hypotheses, source: tf.Tensor) -> Hypotheses:
    """Cuts attention to the source's length; that of a model without any is 0."""
    weights = attention_to(source, hypotheses)
    if weights.shape[-1] != source.shape[1]:
        # LiteRT has no `...` for rank 4.
        T, S = tf.shape(weights)[2], tf.shape(source)[1]
        size = tf.stack([1, weights.shape[1], T, S])
        weights = tf.slice(weights, [0, 0, 0, 0], size)
    return hypotheses._replace(weights=weights)


def _longest(search: BeamSearch, source: Any) -> int:
    """Returns the most tokens that a hypothesis can have; the source's shape is known.

    The search has checked that it is ids where the lengths depend on them.
    """
    limits = []
    source_length = source.shape[1] if tf.is_tensor(source) else 0
    if search.max_length is not None:
        limits.append(search.max_length)
    if search.max_length_ratio is not None:
        limits.append(max(1, math.ceil(search.max_length_ratio * source_length)))
    return min(limits, default=2 * source_length + 10)


def _of_known_shape(found: Hypotheses, longest: int, pad_id: int) -> Hypotheses:
    """Pads to the longest possible hypothesis, for runtimes that need shapes."""
    # LiteRT does not know the shape of a loop's direct output.
    found = found._replace(scores=tf.maximum(found.scores, tf.float32.min))

    def reshaped(x):  # LiteRT knows the shape after a reshape by constants
        return tf.reshape(x, [1, x.shape[1], longest, *x.shape[3:]])

    found = pad_to(found, longest, pad_id)
    return Hypotheses(*(x if x.shape.rank < 3 else reshaped(x) for x in found))


def _converted(find: Any, quantize: str | None) -> bytes:
    """Returns the file's content without the archive."""
    # The weights become constants, which loops can read.
    constant = frozen(_without_tables(find))
    names = sorted(find.structured_outputs)
    specs, _ = find.structured_input_signature

    @tf.function(input_signature=specs, autograph=False)
    def serve(*inputs):
        return dict(zip(names, constant(*inputs), strict=True))

    module = tf.Module()
    module.serve = serve
    function = _without_tables(serve.get_concrete_function())
    # The converter would write a SavedModel itself. On a full disk it would go on
    # without one, and fail for another reason.
    with tempfile.TemporaryDirectory() as folder:
        tf.saved_model.save(module, folder, signatures=function)
        converter = tf.lite.TFLiteConverter.from_saved_model(folder)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
        if quantize is not None:
            converter.optimizations = [tf.lite.Optimize.DEFAULT]
        if quantize == "float16":
            converter.target_spec.supported_types = [tf.float16]
        try:
            with ending_at_once():
                return converter.convert()
        except Exception as error:  # the converter's or TensorFlow's
            raise ValueError(_why_not(str(error))) from error


def _without_tables(function: Any) -> Any:
    """Removes tables of other functions, which the converter warns about."""
    function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    return function


def _why_not(message: str) -> str:
    """Returns a readable message for an error of the converter."""
    lacking = sorted(set(re.findall(r"TF Select ops: ([\w, ]+)", message)))
    if lacking:
        reason = f"LiteRT lacks the operations {', '.join(lacking)}"
        if re.search(r"\bb?f16\b", message):
            reason += " in half precision, so that a model must be in float32"
    else:
        lines = [line for line in message.splitlines() if "error:" in line]
        reason = (lines or message.splitlines() or ["unknown"])[0][-300:]
    return f"The model cannot be converted for LiteRT: {reason}"


def _append(path: Path, about: bytes, tokenizers: dict[str, Any]) -> None:
    """Appends the archive, as LiteRT's own tools append a model's files."""
    with (
        zipfile.ZipFile(path, "a") as archive,
        tempfile.TemporaryDirectory() as directory,
    ):
        Path(directory, METADATA).write_bytes(about)
        saved = [x.save(Path(directory, side)) for side, x in tokenizers.items()]
        for file in (Path(directory, METADATA), *saved):
            most = MOST_METADATA if file.name == METADATA else MOST_VOCABULARY
            if file.stat().st_size > most:
                raise ValueError(
                    f"{file.name} would have {file.stat().st_size} bytes, of which a "
                    f".tflite file may have {most}"
                )
            archive.write(file, file.name)
