"""What an exported translator can be asked, with bounds on the work of a request.

Shapes: `B` sentences, `N` hypotheses of each, `S` source tokens, `T` target tokens,
ends counted. `B` comes first everywhere, so that a server may join requests; whoever
asks alone or with others gets the same rows, with more or less padding.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch
from keras_luong.translation.graph import read_ids
from keras_luong.translation.translator import Translator

TEXT = tf.TensorSpec([None], tf.string, name="text")
TARGET = tf.TensorSpec([None], tf.string, name="target")
IDS = tf.TensorSpec([None, None], tf.int32, name="ids")
LENGTH = tf.TensorSpec([None], tf.int32, name="length")


def signatures(translator: Translator, max_batch_size: int) -> dict[str, Any]:
    """Trace everything that a server answers.

    | name | input | output |
    |---|---|---|
    | `serving_default` | `text` | `translation`, `score`, `truncated` |
    | `n_best` | `text` | `translation [B, N]`, `score [B, N]`, `truncated` |
    | `align` | `text` | those of `serving_default`, `tokens [B, T]`, `length`, `log_probs [B, T]`, `source_tokens [B, S]`, `source_length`, `alignment [B, T, S]` |
    | `score` | `text`, `target` | `log_prob`, `tokens [B, T]`, `length`, `log_probs [B, T]`, `truncated` |
    | `ids` | `ids [B, S]`, `length` | `ids [B, T]`, `length`, `score`, `truncated` |

    Where no shape is given it is `[B]`. Of `T` and `S` as many count as the lengths
    say; what stands behind is of no meaning. `N` is the beam's width, or the number of
    samples; the first hypothesis is `serving_default`'s (but with
    `early_stopping="first"`, which stops later where more are wanted). A place that no
    hypothesis takes has the translation "" and the lowest score. JSON has no infinity:
    what is -inf in Python is float32's lowest number here.

    Args:
        translator: the `Translator`.
        max_batch_size: int, more sentences in one request are refused.

    Returns:
        Name → concrete function.
    """  # noqa: E501 (a table's row is one line)
    wide = _wide(translator)
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
        most = translator.max_source_length
        source = read_ids(ids, length, vocab_size, most)
        found = translator.find(source.ids)
        empty = source.empty
        return {
            "ids": tf.where(empty[:, tf.newaxis], 0, found.ids[:, 0]),
            "length": tf.where(empty, 0, found.lengths[:, 0]),
            "score": tf.where(empty, 0.0, found.scores[:, 0]),
            "truncated": source.truncated,
        }

    asked = {
        serving_default: (TEXT,),
        n_best: (TEXT,),
        align: (TEXT,),
        score: (TEXT, TARGET),
        ids: (IDS, LENGTH),
    }
    return {
        answer.__name__: _bounded(answer, specs, max_batch_size)
        for answer, specs in asked.items()
    }


def _wide(translator: Translator) -> Translator:
    """The same, with all hypotheses that its search holds."""
    search = translator.search
    if not isinstance(search, BeamSearch) or search.n_best == search.beam_width:
        return translator
    return Translator(
        translator.model,
        translator.tokenizers,
        dataclasses.replace(search, n_best=search.beam_width),
        translator.max_source_length,
    )


def _bounded(answer: Callable, specs: tuple, max_batch_size: int) -> Any:
    """Trace a function that refuses too many sentences, and too few of one input."""

    def checked(*inputs):
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
