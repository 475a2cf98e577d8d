"""The signatures of an exported translator, which limit the work of a request.

Shapes: B sentences, N hypotheses of each, S source tokens, T target tokens,
end tokens included. B is the first axis of all tensors, so that a server can batch
requests. A sentence's results do not depend on the others, but the padding may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.translation.graph import read_ids
from keras_luong.translation.translator import IDS, TEXT, Translator

TARGET = tf.TensorSpec([None], tf.string, name="target")
LENGTH = tf.TensorSpec([None], tf.int32, name="length")


def signatures(translator: Translator, max_batch_size: int) -> dict[str, Any]:
    """Traces a function for each signature.

    | name | input | output |
    |---|---|---|
    | `serving_default` | `text` | `translation`, `score`, `truncated` |
    | `n_best` | `text` | `translation` [B, N], `score` [B, N], `truncated` |
    | `align` | `text` | those of `serving_default`, `tokens` [B, T], `length`, `log_probs` [B, T], `source_tokens` [B, S], `source_length`, `alignment` [B, T, S] |
    | `score` | `text`, `target` | `log_prob`, `tokens` [B, T], `length`, `log_probs` [B, T], `truncated` |
    | `ids` | `ids` [B, S], `length` | `ids` [B, T], `length`, `score`, `truncated` |

    Where no shape is given it is [B]. Rows along T and S are valid up to their lengths;
    the rest is arbitrary. N is the beam's width, or the number of samples; the first
    hypothesis is that of `serving_default` (except with `early_stopping="first"`, which
    stops later if more hypotheses are wanted). The hypotheses of a beam have different
    texts. An empty place has the translation "" and the lowest score; an empty text has
    the translation "" with score 0, and empty places. As JSON has no infinity, -inf is
    replaced by float32's lowest number. Inputs of another shape are refused.

    Args:
        translator: The `Translator`.
        max_batch_size: Most sentences in one request; larger ones fail.

    Returns:
        Name → concrete function.
    """  # noqa: E501 (a table's row is one line)
    search = translator.search
    wide = translator  # returns all hypotheses that its search keeps
    if isinstance(search, BeamSearch) and search.n_best < search.beam_width:
        wide = translator.with_search(n_best=search.beam_width)
    vocab_size = translator.source_tokenizer.vocab_size

    def serving_default(text):
        return translator.serve(text)

    def n_best(text):
        found = wide.explain(text)
        kept = {name: found[name] for name in ("score", "truncated")}
        return {"translation": found["text"], **kept}

    def align(text):
        found = translator.explain(text)
        best = ("score", "tokens", "length", "log_probs", "alignment")
        shared = ("source_tokens", "source_length", "truncated")
        return {
            "translation": found["text"][:, 0],
            **{name: found[name][:, 0] for name in best},
            **{name: found[name] for name in shared},
        }

    def score(text, target):
        found = translator.forced(text, target)
        best = {name: found[name][:, 0] for name in ("tokens", "length", "log_probs")}
        log_prob = found["score"][:, 0]
        return {"log_prob": log_prob, **best, "truncated": found["truncated"]}

    def ids(ids, length):
        source = read_ids(ids, length, vocab_size, translator.max_source_length)
        found = translator.find(source.ids)
        empty = source.empty
        return {
            "ids": tf.where(empty[:, tf.newaxis], 0, found.ids[:, 0]),
            "length": tf.where(empty, 0, found.lengths[:, 0]),
            "score": tf.where(empty, 0.0, found.scores[:, 0]),
            "truncated": source.truncated,
        }

    asked = {
        "serving_default": (serving_default, TEXT),
        "n_best": (n_best, TEXT),
        "align": (align, TEXT),
        "score": (score, TEXT, TARGET),
        "ids": (ids, IDS, LENGTH),
    }
    return {
        name: _bounded(answer, specs, max_batch_size)
        for name, (answer, *specs) in asked.items()
    }


def _bounded(
    answer: Callable[..., dict[str, tf.Tensor]],
    specs: list[tf.TensorSpec],
    max_batch_size: int,
) -> tf.types.experimental.ConcreteFunction:
    """Traces a function that fails for wrong shapes and too many sentences."""

    def checked(*inputs):
        # TensorFlow does not look whether what a signature is given has its shape.
        pairs = zip(inputs, specs, strict=True)
        inputs = tuple(tf.ensure_shape(x, spec.shape, spec.name) for x, spec in pairs)
        sizes = [tf.shape(x)[0] for x in inputs]
        checks = [
            tf.debugging.assert_less_equal(
                sizes[0], max_batch_size, "There are too many sentences at once"
            ),
            *(
                tf.debugging.assert_equal(sizes[0], size, "The inputs differ in number")
                for size in sizes[1:]
            ),
        ]
        with tf.control_dependencies(checks):
            said = answer(*map(tf.identity, inputs))
        return {name: _finite(x) for name, x in said.items()}

    function = tf.function(checked, input_signature=specs, autograph=False)
    return function.get_concrete_function()


def _finite(x: tf.Tensor) -> tf.Tensor:
    return tf.maximum(x, x.dtype.min) if x.dtype.is_floating else x
