"""The signatures of an exported translator or generator, which limit a request's work.

`exported` says what there is to export: of a `Translator` a `TextExport`, of a
`SequenceGenerator` a `SequenceExport`. Writers of files ask both the same.

Shapes: B sentences, N hypotheses of each, S source tokens, T target tokens, end tokens
included. B is the first axis of all tensors, so that a server can batch requests. A
sentence's results do not depend on the others, but the padding may.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from keras_luong.checks import check_tensorflow
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.generate import SequenceGenerator
from keras_luong.decoding.step_model import Hypotheses
from keras_luong.export.warmup import TOO_MANY
from keras_luong.translation.batching import all_bytes
from keras_luong.translation.graph import IDS, SEPARATOR, TEXT, read_ids
from keras_luong.translation.translator import Translator

TARGET = tf.TensorSpec([None], tf.string, name="target")
LENGTH = tf.TensorSpec([None], tf.int32, name="length")
PHRASES = tf.TensorSpec([None], tf.string, name="phrases")  # with tabs between them


def exported(
    translator: Translator | SequenceGenerator, constrain: bool = True
) -> Exported:
    """Returns the `TextExport` or `SequenceExport` of a translator or generator.

    Args:
        translator: Either.
        constrain: Whether a translator's signature `constrain` is one of them.

    Raises:
        TypeError: If it is neither.
    """
    check_tensorflow()
    if isinstance(translator, Translator):
        return TextExport(translator, constrain)
    if isinstance(translator, SequenceGenerator):
        return SequenceExport(translator)
    raise TypeError(
        "`translator` must be a Translator or a SequenceGenerator. Received: "
        f"{translator!r}"
    )


def signatures(export: Exported, max_batch_size: int) -> dict[str, Any]:
    """Traces a function for each signature.

    | name | input | output |
    |---|---|---|
    | `serving_default` | `text` | `translation`, `score`, `truncated` |
    | `n_best` | `text` | `translation` [B, N], `score` [B, N], `truncated` |
    | `align` | `text` | those of `serving_default`, `tokens` [B, T], `length`, `log_probs` [B, T], `source_tokens` [B, S], `source_length`, `alignment` [B, T, S] |
    | `score` | `text`, `target` | `log_prob`, `tokens` [B, T], `length`, `log_probs` [B, T], `truncated` |
    | `ids` | `ids` [B, S], `length` | `ids` [B, T], `length`, `score`, `truncated` |
    | `constrain` | `text`, `phrases` | those of `serving_default`, `unmet` |

    The translations of `constrain` contain the phrases of each text, which are written
    with tabs between them; `unmet` has likewise those that one lacks. It is there if the
    search is a `BeamSearch`, unless it was left out.

    Where no shape is given it is [B]. Rows along T and S are valid up to their lengths;
    the rest is arbitrary. N is the beam's width, or the number of samples; the first
    hypothesis is that of `serving_default`. Those that the maximum length cut come
    behind the finished ones. The hypotheses of a beam have different texts. An empty
    place has the translation "" and the lowest score; an empty text has the translation
    "" with score 0, and empty places. As JSON has no infinity, -inf is replaced by
    float32's lowest number. Inputs of another shape are refused.

    A `SequenceGenerator` has one signature, `serving_default`, from its source to
    `ids` int32 [B, N, T], `lengths` int32 [B, N], `scores` and `log_probs` [B, N],
    `token_log_probs` [B, N, T] and, if its model has attention, `weights` [B, N, T, S];
    see `keras_luong.decoding.Hypotheses`. The source's name is that of its
    `tf.TensorSpec`, or "source"; of several it is their key, or "source_0" and so on.

    Args:
        export: Of the `Translator` or `SequenceGenerator`.
        max_batch_size: Most sentences in one request; larger ones fail.

    Returns:
        Name → concrete function.
    """  # noqa: E501 (a table's row is one line)
    return {
        name: _bounded(answer, specs, max_batch_size)
        for name, (answer, *specs) in export.signatures().items()
    }


def _bounded(answer, specs, max_batch_size):
    """Traces a function that fails for wrong shapes and too many sentences."""

    def checked(*inputs):
        # TensorFlow does not look whether what a signature is given has its shape.
        pairs = zip(inputs, specs, strict=True)
        arguments = [tf.ensure_shape(x, spec.shape, spec.name) for x, spec in pairs]
        size, *others = (tf.shape(x)[0] for x in arguments)
        checks = [tf.debugging.assert_less_equal(size, max_batch_size, TOO_MANY)]
        for other in others:
            message = "The inputs differ in number"
            checks.append(tf.debugging.assert_equal(size, other, message))
        with tf.control_dependencies(checks):
            said = answer(*map(tf.identity, arguments))
        return {
            name: tf.maximum(x, x.dtype.min) if x.dtype.is_floating else x
            for name, x in said.items()
        }

    function = tf.function(checked, input_signature=specs, autograph=False)
    return function.get_concrete_function()


class TextExport:
    """The signatures of a translator, and requests to try them with.

    Attributes:
        model: The model, of sequences of ids.
        search: The search.
        tokenizers: The tokenizer of each side.
        longest: What sources are padded to, where a file needs it.
        about: What describes the source, in JSON's types.
    """

    def __init__(self, translator: Translator, constrain: bool = True):
        self.constrain = constrain
        self.translator, self.graph = translator, translator.graph
        self.model, self.search = translator.model, translator.search
        self.tokenizers: dict[str, Any] = {
            "source": translator.source_tokenizer,
            "target": translator.target_tokenizer,
        }
        self.longest: int | None = translator.max_source_length + 1
        self.about: dict[str, Any] = {"max_source_length": translator.max_source_length}

    def signatures(self) -> dict[str, Any]:
        """Returns each signature's function and the specs of its arguments."""
        signatures = {
            "serving_default": (self.graph.serve, TEXT),
            "n_best": (self._n_best(), TEXT),
            "align": (self._align, TEXT),
            "score": (self._score, TEXT, TARGET),
            "ids": (self._ids, IDS, LENGTH),
        }
        if self.constrain and isinstance(self.search, BeamSearch):  # no other can
            signatures["constrain"] = (self._constrain, TEXT, PHRASES)
        return signatures

    def _n_best(self):
        """Returns a function that finds all hypotheses that its search keeps."""
        wide, search = self.translator, self.search
        if isinstance(search, BeamSearch) and search.n_best < search.beam_width:
            wide = wide.with_search(n_best=search.beam_width)

        def n_best(text):
            fields = wide.graph.translate(text)
            return {
                "translation": fields["text"],
                "score": fields["score"],
                "truncated": fields["truncated"],
            }

        return n_best

    def _align(self, text):
        fields = self.graph.translate(text)
        best = ("score", "tokens", "length", "log_probs", "alignment")
        shared = ("source_tokens", "source_length", "truncated")
        return {
            "translation": fields["text"][:, 0],
            **{name: fields[name][:, 0] for name in best},
            **{name: fields[name] for name in shared},
        }

    def _score(self, text, target):
        fields = self.graph.score(text, target)
        best = ("tokens", "length", "log_probs")
        return {
            "log_prob": fields["score"][:, 0],
            **{name: fields[name][:, 0] for name in best},
            "truncated": fields["truncated"] | fields["target_truncated"],
        }

    def _constrain(self, text, phrases):
        fields = self.graph.translate_with(text, phrases)
        there = (fields["phrases"] != "") & fields["unmet"][:, 0]
        unmet = tf.ragged.boolean_mask(fields["phrases"], there)
        return {
            "translation": fields["text"][:, 0],
            "score": fields["score"][:, 0],
            "unmet": tf.strings.reduce_join(unmet, axis=1, separator=SEPARATOR),
            "truncated": fields["truncated"],
        }

    def _ids(self, ids, length):
        vocab_size = self.graph.source_tokenizer.vocab_size
        source = read_ids(ids, length, vocab_size, self.graph.max_source_length)
        hypotheses = self.graph.find(source.ids)
        return {
            "ids": tf.where(source.empty[:, tf.newaxis], 0, hypotheses.ids[:, 0]),
            "length": tf.where(source.empty, 0, hypotheses.lengths[:, 0]),
            "score": tf.where(source.empty, 0.0, hypotheses.scores[:, 0]),
            "truncated": source.truncated,
        }

    def samples(self, warmup: Iterable[str | bytes]) -> list[bytes]:
        """Returns the texts in UTF-8; raises TypeError for anything else."""
        return all_bytes("warmup", warmup)

    def requests(self, texts: list[bytes]) -> dict[str, dict[str, Any]]:
        """Returns the inputs of each signature."""
        ids = self.graph.source_tokenizer.encode(tf.constant(texts))
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        inputs = {
            "text": texts,
            "target": texts,
            "phrases": [b""] * len(texts),
            "ids": ids.to_tensor().numpy(),
            "length": lengths.numpy(),
        }
        return {
            name: {spec.name: inputs[spec.name] for spec in specs}
            for name, (_, *specs) in self.signatures().items()
        }

    def one_source(self, source_length: int | None) -> tf.TensorSpec:
        """Returns the spec of one sentence's ids."""
        return tf.TensorSpec([1, source_length], tf.int32, name="source")


class SequenceExport:
    """What an export has of a generator of sequences; see `TextExport`."""

    longest: int | None = None

    def __init__(self, generator: SequenceGenerator):
        self.generator = generator
        self.model, self.search = generator.model, generator.search
        self.tokenizers: dict[str, Any] = {}
        self.specs = named_specs(generator.source)
        inputs = {
            x.name: {"shape": [*x.shape], "dtype": x.dtype.name} for x in self.specs
        }
        self.about: dict[str, Any] = {"source": inputs}

    def signatures(self) -> dict[str, Any]:
        """Returns each signature's function and the specs of its arguments."""

        def serving_default(*inputs):
            source = tf.nest.pack_sequence_as(self.generator.source, inputs)
            return fields(self.generator(source))

        return {"serving_default": (serving_default, *self.specs)}

    def samples(self, warmup: Any) -> list[Any]:
        """Returns the sources of each row, of which there may be none."""
        if isinstance(warmup, tuple | list) and not warmup:
            return []
        arrays = [np.asarray(x) for x in tf.nest.flatten(warmup)]
        return list(zip(*arrays, strict=True))

    def requests(self, rows: list[Any]) -> dict[str, dict[str, Any]]:
        """Returns the inputs of each signature."""
        pairs = zip(self.specs, zip(*rows, strict=True), strict=True)
        inputs = {x.name: np.stack(y).astype(x.dtype.as_numpy_dtype) for x, y in pairs}
        return {"serving_default": inputs}

    def one_source(self, source_length: int | None) -> Any:
        """Returns the specs of one source."""
        if source_length is not None:
            raise ValueError(
                "source_length is for a Translator: the source of a SequenceGenerator "
                f"has its shape in a tf.TensorSpec. Received: {source_length}"
            )
        specs = [tf.TensorSpec([1, *x.shape[1:]], x.dtype, x.name) for x in self.specs]
        return tf.nest.pack_sequence_as(self.generator.source, specs)


#: Both say the same to whoever writes a file.
Exported: TypeAlias = TextExport | SequenceExport


def named_specs(source: Any) -> list[tf.TensorSpec]:
    """Returns the specs of a nest, each with a name.

    Args:
        source: A `tf.TensorSpec`, or a tuple or dict of them.

    Example:
        >>> from keras_luong.export.signatures import named_specs
        >>> ids = tf.TensorSpec([None, None], tf.int32)
        >>> [spec.name for spec in named_specs({"ids": ids, "lengths": (ids, ids)})]
        ['ids', 'lengths_0', 'lengths_1']
    """
    specs = []
    for path, spec in keras.tree.flatten_with_path(source):
        name = "_".join(map(str, path))
        if not path or not isinstance(path[0], str):
            name = f"source_{name}".rstrip("_")
        specs.append(tf.TensorSpec(spec.shape, spec.dtype, spec.name or name))
    return specs


def fields(hypotheses: Hypotheses) -> dict[str, tf.Tensor]:
    """Returns hypotheses by name, without the weights of a model without attention."""
    fields = hypotheses._asdict()
    if hypotheses.weights.shape[-1] == 0:
        del fields["weights"]
    return fields
