"""The signatures of an exported translator or generator, which limit a request's work.

Shapes: B sentences, N hypotheses of each, S source tokens, T target tokens,
end tokens included. B is the first axis of all tensors, so that a server can batch
requests. A sentence's results do not depend on the others, but the padding may.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from keras_luong.export.exported import exported


def signatures(translator: Any, max_batch_size: int) -> dict[str, Any]:
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
    search is a `BeamSearch`.

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
        translator: The `Translator` or `SequenceGenerator`.
        max_batch_size: Most sentences in one request; larger ones fail.

    Returns:
        Name → concrete function.
    """  # noqa: E501 (a table's row is one line)
    return {
        name: _bounded(answer, specs, max_batch_size)
        for name, (answer, *specs) in exported(translator).asked().items()
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
