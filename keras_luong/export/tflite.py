"""Export for LiteRT (TensorFlow Lite): one file with model, search and tokenizers.

The graph maps the ids of one sentence to hypotheses, by builtin operations alone;
the distribution keras-luong-edge (`export/edge/`) runs it on text, without TensorFlow.
The file ends with an archive, which `unzip` reads and the interpreter ignores:

```
keras_luong.json     what a runtime must know, and where the model comes from
source.spm           the tokenizers (.txt if they are of words)
target.spm
```

Shapes: S source tokens, N hypotheses, T target tokens, ends counted.
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
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.cast_once import cast_weights
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.stepping import StepModel
from keras_luong.export.saved_model import describe
from keras_luong.files import saved_beside
from keras_luong.models.translation_model import TranslationModel
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.translation.graph import BYTES_PER_TOKEN
from keras_luong.translation.translator import Translator

METADATA = "keras_luong.json"  # its name in the archive
FORMAT = 1  # runtimes refuse others
QUANTIZE = (None, "float16", "int8")


def export_tflite(
    translator: Translator,
    path: str | os.PathLike[str],
    quantize: str | None = None,
    source_length: int | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Path:
    """Writes a `.tflite` file that translates a sentence at a time, search included.

    Its signature `serving_default` maps `source: int32 [1, S]`, at most
    `max_source_length` ids and the end's, to `ids int32 [1, N, T]`, `lengths int32 [1,
    N]`, `scores` and `log_probs float32 [1, N]`, `weights float32 [1, N, T, S]` and
    `token_log_probs float32 [1, N, T]`, as `keras_luong.decoding.Hypotheses` says; but
    what is -inf there is float32's lowest number here.

    A model in mixed precision is exported in float32, in which its weights are kept.

    A runtime of your own must resize `source` to another length and back before each
    sentence, if the file takes any length: otherwise LiteRT's XNNPACK may answer a
    second sentence of the same length with nonsense. `EdgeTranslator` does so.

    Args:
        translator: A `Translator` with the library's tokenizers, and a `BeamSearch`
            without a shortlist or a `GreedySearch`.
        path: The file; replaced if it exists.
        quantize: None for float32; "float16" for weights of half the size; "int8" for
            weights of a quarter of it, multiplied as integers (dynamic range).
        source_length: S, end and padding counted, for runtimes that need to know
            every shape, such as LiteRT.js: the outputs too are padded, to the longest
            hypothesis that can be. None for sources of any length up to the
            translator's `max_source_length`.
        metadata: What JSON can write, kept in the file for people.

    Returns:
        The path.

    Raises:
        TypeError: If an argument has the wrong type, or the file can't hold the search
            or a tokenizer.
        IsADirectoryError: If `path` is a directory.
        ValueError: If `quantize` is something else, `source_length` below 2, or the
            model has operations that LiteRT lacks.

    Example:
        >>> export_tflite(translator, "m30k.tflite", quantize="int8")
        >>> # Where there is keras-luong-edge and no TensorFlow:
        >>> from keras_luong_edge import EdgeTranslator
        >>> EdgeTranslator("m30k.tflite").translate(["A dog runs."])[0].text
    """
    if not isinstance(translator, Translator):
        raise TypeError(f"`translator` must be a Translator. Received: {translator!r}")
    target = check_path("path", path)
    if target.is_dir():
        raise IsADirectoryError(f"path must be a file. Received the directory {target}")
    check_choice("quantize", quantize, QUANTIZE)
    check_size("source_length", source_length, optional=True, smallest=2)
    search = _search(translator.search)
    about = _describe(translator, metadata, quantize, source_length)
    model, longest = _in_float32(translator.model), translator.max_source_length + 1
    content = _converted(_one_sentence(model, search, longest, source_length), quantize)
    with saved_beside(target) as beside:
        beside.write_bytes(content)
        _append(beside, about, _tokenizers(translator))
    return target


def _describe(translator, metadata, quantize, source_length):
    """Returns what the edge runtime reads; it knows nothing else of this library."""
    most = translator.max_source_length
    if source_length is not None:
        most = min(most, source_length - 1)
    return describe(
        translator,
        metadata,
        format=FORMAT,
        max_source_length=most,
        source_length=source_length,
        quantize=quantize,
        special_ids={"pad": PAD_ID, "unk": UNK_ID, "bos": BOS_ID, "eos": EOS_ID},
        bytes_per_token=BYTES_PER_TOKEN,
        tokenizers={
            side: {"kind": x.kind, "file": f"{side}{x.suffix}"}
            for side, x in _tokenizers(translator).items()
        },
    )


def _in_float32(model: StepModel) -> StepModel:
    """Returns the model if it computes in float32, or another with its weights."""
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
    """Returns the same search for one sentence, which has no batch to leave."""
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


def _tokenizers(translator: Translator) -> dict[str, Any]:
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    sides = dict(zip(("source", "target"), tokenizers, strict=True))
    for side, tokenizer in sides.items():
        if getattr(tokenizer, "kind", None) not in ("sentencepiece", "word"):
            raise TypeError(
                f"The {side} tokenizer must be a SentencePieceTokenizer or a Word"
                f"Tokenizer, which the edge runtime knows. Received: {tokenizer!r}"
            )
    return sides


def _one_sentence(
    model: StepModel, search: BeamSearch, longest: int, source_length: int | None
) -> tf.types.experimental.ConcreteFunction:
    """Traces the search for one source."""
    source = tf.TensorSpec([1, source_length], tf.int32, name="source")

    @tf.function(input_signature=[source], autograph=False)
    def translate(source):
        if source_length is not None:
            found = search(model, source)
            return _of_known_shape(found, _longest(search, source_length))._asdict()
        some = _AtMost(model, source, longest)
        found = search(some, _padded(source, longest))
        return _cut(found, tf.shape(source)[1])._asdict()

    return translate.get_concrete_function()


class _AtMost:
    """A model that reads a source of any length, but seems to read one of a known one.

    A search writes down the attention of each step, and LiteRT's lists need to know
    how much that is. The model itself computes no more than the source has.
    """

    def __init__(self, model: StepModel, source: tf.Tensor, longest: int):
        self.model, self.source, self.longest = model, source, longest

    def encode(self, source_ids):
        del source_ids  # the same, padded
        return self.model.encode(self.source)

    def step(self, tokens, state, memory):
        logits, state, weights = self.model.step(tokens, state, memory)
        return logits, state, _padded(weights, self.longest)

    def cast_weights(self):
        return cast_weights(self.model)


def _padded(x: tf.Tensor, length: int) -> tf.Tensor:
    """Fills the last axis up with zeros."""
    missing = length - tf.shape(x)[-1]
    padded = tf.pad(x, [[0, 0]] * (x.shape.rank - 1) + [[0, missing]])
    padded.set_shape([*x.shape[:-1], length])
    return padded


def _cut(found: Hypotheses, length: tf.Tensor) -> Hypotheses:
    """Cuts attention to the source; LiteRT has no `...` in slices of rank 4."""
    weights = found.weights
    size = tf.stack([1, weights.shape[1], tf.shape(weights)[2], length])
    return found._replace(weights=tf.slice(weights, [0, 0, 0, 0], size))


def _longest(search: BeamSearch, source_length: int) -> int:
    """Returns the most tokens that a hypothesis can have."""
    limits = []
    if search.max_length is not None:
        limits.append(search.max_length)
    if search.max_length_ratio is not None:
        limits.append(max(1, math.ceil(search.max_length_ratio * source_length)))
    return min(limits, default=2 * source_length + 10)


def _of_known_shape(found: Hypotheses, longest: int) -> Hypotheses:
    """Pads to the longest hypothesis, for runtimes that ask for shapes first."""

    def known(x: tf.Tensor) -> tf.Tensor:
        if x.shape.rank < 3:
            return x
        missing = [[0, 0]] * x.shape.rank
        missing[2] = [0, longest - tf.shape(x)[2]]
        # LiteRT knows what a reshape with constants makes.
        shape = [1, x.shape[1], longest, *x.shape[3:]]
        return tf.reshape(tf.pad(x, missing), shape)

    # LiteRT does not know the shape of what comes right out of a loop.
    scores = tf.maximum(found.scores, tf.float32.min)
    return Hypotheses(*map(known, found._replace(scores=scores)))


def _converted(translate: Any, quantize: str | None) -> bytes:
    """Returns the file's content, before tokenizers are appended to it."""
    module = tf.Module()
    module.serve = _frozen(translate)
    function = _without_tables(module.serve.get_concrete_function())
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], module)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        return converter.convert()
    except Exception as error:  # of the converter's own, or TensorFlow's
        raise ValueError(_why_not(str(error))) from error


def _frozen(translate: Any) -> Any:
    """Returns the function with its weights as constants, which loops can read."""
    constant = frozen(_without_tables(translate))
    names = sorted(translate.structured_outputs)
    (spec,) = translate.structured_input_signature[0]

    @tf.function(input_signature=[spec], autograph=False)
    def serve(source):
        return dict(zip(names, constant(source), strict=True))

    return serve


def _without_tables(function: Any) -> Any:
    """Removes tables that were made elsewhere, which the converter warns about."""
    function.graph.clear_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS)
    return function


def _why_not(message: str) -> str:
    """Returns the part of a converter's error that helps a person."""
    lacking = sorted(set(re.findall(r"TF Select ops: ([\w, ]+)", message)))
    if lacking:
        reason = f"LiteRT lacks the operations {', '.join(lacking)}"
    else:
        lines = [line for line in message.splitlines() if "error:" in line]
        reason = (lines or message.splitlines() or ["unknown"])[0][-300:]
    return f"The model cannot be converted for LiteRT: {reason}"


def _append(path: Path, about: bytes, tokenizers: dict[str, Any]) -> None:
    """Adds the archive, as LiteRT's own tools add what belongs to a model."""
    with (
        zipfile.ZipFile(path, "a") as archive,
        tempfile.TemporaryDirectory() as directory,
    ):
        archive.writestr(METADATA, about)
        for side, tokenizer in tokenizers.items():
            file = tokenizer.save(Path(directory, side))
            archive.write(file, file.name)
