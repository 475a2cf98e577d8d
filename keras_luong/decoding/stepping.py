"""The interface between models and searches: `encode` once, then `step` by step.

Shapes: B batch, S source length, T target length, K beam, V vocabulary.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Protocol

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.special_ids import PAD_ID

LONGEST = 2**20  # tokens: far beyond any sentence, far from overflow

#: Settings of a search, checked by `keras_luong.config.fields.check_fields`.
Size = Annotated[int, partial(check_size, largest=LONGEST)]
SizeOrZero = Annotated[int, partial(check_size, smallest=0, largest=LONGEST)]
SizeOrNone = Annotated[int | None, partial(check_size, optional=True, largest=LONGEST)]


class StepModel(Protocol):
    """The interface of a model that a search needs.

    A nest is any `tf.nest` structure: a tuple, list, dict or named tuple of tensors.

    A model may also have two methods that searches use where they can:
    `cast_weights()` (see `keras_luong.decoding.cast_once`), and `restricted(ids,
    allowed)`, which returns a `StepModel` with a part of its vocabulary, for a
    `Shortlist`. If it has a `config` with `source_vocab_size` and `target_vocab_size`,
    these are checked.
    """

    def encode(self, source_ids: tf.Tensor) -> tuple[Any, Any]:
        """Reads the source.

        Args:
            source_ids: int32 [B, S], right-padded with `PAD_ID`.

        Returns:
            `(memory, state)`: nests of tensors. The memory, with leaves [B, ...], is
            passed to every step unchanged. The state, with leaves [B, 1, ...], is
            gathered as the beams change places.
        """

    def step(
        self, tokens: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """Reads one token per beam and scores the next.

        Args:
            tokens: int32 [B, K].
            state: A nest with leaves [B, K, ...], whose shapes stay the same.
            memory: The memory that `encode` returned.

        Returns:
            `(logits [B, K, V], state, weights [B, K, S])`.
        """


class Search(Protocol):
    """The interface of a search that a `Translator` needs."""

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Finds target sequences.

        Args:
            model: A `StepModel`.
            source_ids: int32 [B, S], right-padded with `PAD_ID`.

        Returns:
            `Hypotheses`.
        """


def check_step_model(name: str, model: Any) -> None:
    """Raises TypeError unless `model` has the methods of a `StepModel`."""
    if not all(callable(getattr(model, method, None)) for method in ("encode", "step")):
        raise TypeError(
            f"{name} must have methods `encode` and `step`, such as Seq2Seq. "
            f"Received: {model!r}"
        )


def vocab_size_of(model: Any, side: str) -> int | None:
    """Returns the size of a vocabulary by the model's config, or None if unknown.

    Args:
        model: A `StepModel`, with or without a `config`.
        side: "source" or "target".
    """
    return getattr(getattr(model, "config", None), f"{side}_vocab_size", None)


def restricted(model: Any, ids: tf.Tensor, allowed: tf.Tensor) -> StepModel:
    """Returns the model with a part of its target vocabulary.

    Args:
        model: A `StepModel` with a method `restricted`, as those of keras_luong have.
        ids: int32 [M], the ids of the words to score.
        allowed: bool [B, M], which of them each sentence may use.

    Raises:
        TypeError: If the model has no method `restricted`.
    """
    if not hasattr(model, "restricted"):
        raise TypeError(
            "A search with a shortlist needs a model with a method `restricted`, as "
            f"those of keras_luong have. Received: {model!r}"
        )
    return model.restricted(ids, allowed)


def check_source_ids(source_ids: tf.Tensor) -> tf.Tensor:
    """Returns the ids as int32 [B, S]; raises ValueError for another shape."""
    source_ids = tf.cast(tf.convert_to_tensor(source_ids), tf.int32)
    if source_ids.shape.rank not in (2, None) or source_ids.shape[1] == 0:
        raise ValueError(
            "source_ids must have a row for each sentence, shape [B, S], S at least 1. "
            f"Received: {source_ids.shape}"
        )
    return source_ids


def check_target_ids(name: str, ids: tf.Tensor, source_ids: tf.Tensor) -> tf.Tensor:
    """Returns ids of the target language as int32, a row for each source.

    Args:
        name: Name of the argument, such as "prefix_ids", for the error message.
        ids: Integers [B, any].
        source_ids: int32 [B, S].

    Raises:
        ValueError: If the ids are of another shape.
    """
    ids = tf.cast(tf.convert_to_tensor(ids), tf.int32)
    rows = source_ids.shape[:1]
    if ids.shape.rank != 2 or not rows.is_compatible_with(ids.shape[:1]):
        raise ValueError(
            f"{name} must have a row for each of the sentences, two axes. Received: "
            f"{ids.shape} for source_ids {source_ids.shape}"
        )
    return ids


def split_log_softmax(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits a log-softmax: the logits rank the tokens, the normaliser is the rest.

    A search needs the log-probabilities of a few tokens only, so it ranks the logits
    and subtracts the normaliser from the few that it keeps. Forbidden tokens keep their
    share of the probability, so scores are the model's own.

    Args:
        logits: float32 [..., V].

    Returns:
        The normalisers `log Σ exp(logits)`, float32 [..., 1], and whether they are
        finite, bool [..., 1]. They are not finite if all logits are -inf, or one of
        them is NaN or +inf; then no token is possible.
    """
    normalisers = tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
    return normalisers, tf.math.is_finite(normalisers)


def token_counts(ids: tf.Tensor) -> tf.Tensor:
    """Returns the number of tokens without padding in each row [B, T], int32 [B]."""
    return tf.reduce_sum(tf.cast(ids != PAD_ID, tf.int32), axis=1)


def length_limits(source_ids: tf.Tensor, max_length: int | None) -> tf.Tensor:
    """Returns the maximum length of each sentence's hypotheses, int32 [B].

    Args:
        source_ids: int32 [B, S], right-padded with `PAD_ID`.
        max_length: The maximum of all, or None for twice the sentence's own length
            (without padding, so it does not depend on other sentences) plus 10.
    """
    if max_length is not None:
        return tf.fill(tf.shape(source_ids)[:1], max_length)
    return 2 * token_counts(source_ids) + 10


def follow(nest: Any, parents: tf.Tensor) -> Any:
    """Gathers tensors by beams: `out[b, k] = x[b, parents[b, k]]`.

    Args:
        nest: Tensors [B, K, ...].
        parents: int32 [B, K'].

    Returns:
        The same nest of tensors [B, K', ...].
    """
    return tf.nest.map_structure(lambda x: tf.gather(x, parents, batch_dims=1), nest)


def keep_shapes(nest: Any, like: Any) -> Any:
    """Restores static shapes that a model's reshapes lost, as loops need them.

    Args:
        nest: Tensors.
        like: The same nest, of tensors with these static shapes.

    Returns:
        `nest`.
    """
    tf.nest.assert_same_structure(nest, like)
    return tf.nest.map_structure(lambda x, y: ensure_shape(x, y.shape), nest, like)


def ensure_shape(x: tf.Tensor, shape: Any) -> tf.Tensor:
    """Does the same as `tf.ensure_shape`, without an op if the shape is known.

    Args:
        x: A tensor.
        shape: Its shape, None where a size is not known.

    Returns:
        `x`.
    """
    known = x.shape.is_subtype_of(tf.TensorShape(shape))
    return x if known else tf.ensure_shape(x, shape)
