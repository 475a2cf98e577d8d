"""The interface between models and searches: `encode` once, then `step` by step.

Shapes: B batch, S source length, T target length, K beam, V vocabulary.
"""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from keras_luong.checks import check_tensorflow
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.sources import Source


class StepModel(Protocol):
    """The interface of a model that a search needs: your own needs nothing else.

    A nest is any `tf.nest` structure: a tuple, list, dict or named tuple of tensors.

    In a graph `step` is traced once, before a search's loop. What it computes of
    weights and memory alone is computed once too, see `keras_luong.decoding.hoisting`.

    A model may also have two methods that searches use where they can:
    `cast_weights()` (see `keras_luong.decoding.cast_once`), and `restricted(ids,
    allowed)`, which returns a `StepModel` with a part of its vocabulary, for a
    `Shortlist`. If it writes source words, as their ids are target ids, it has an
    attribute `copies` that is True. If it has a `config` with `source_vocab_size` and
    `target_vocab_size`, these are checked.

    Example: a model that reads images and writes tokens. Its tokens begin with 1, end
    with 2 and are padded with 0.

        >>> class Captioner(keras.Model):
        ...     def __init__(self, vocab_size, units):
        ...         super().__init__()
        ...         self.see = keras.layers.Conv2D(units, 3, activation="relu")
        ...         self.positions = keras.layers.Reshape((-1, units))
        ...         self.embed = keras.layers.Embedding(vocab_size, units)
        ...         self.cell = keras.layers.GRUCell(units)
        ...         self.attention = kl.LuongAttention()
        ...         self.score = keras.layers.Dense(vocab_size)
        ...
        ...     def encode(self, images):
        ...         memory = self.positions(self.see(images))
        ...         return memory, keras.ops.mean(memory, axis=1, keepdims=True)
        ...
        ...     def step(self, tokens, state, memory):
        ...         shape = keras.ops.shape(state)  # [B, K, units]
        ...         rows = lambda x: keras.ops.reshape(x, (-1, shape[-1]))
        ...         h, _ = self.cell(rows(self.embed(tokens)), rows(state))
        ...         h = keras.ops.reshape(h, shape)
        ...         context, weights = self.attention(
        ...             h, memory, return_attention_scores=True
        ...         )
        ...         return self.score(context + h), h, weights
        >>> model = Captioner(vocab_size=10, units=8)
        >>> images = np.random.default_rng(0).random((3, 9, 9, 1), "float32")
        >>> search = kl.BeamSearch(4, max_length=6, bos_id=1, eos_id=2)
        >>> kl.generate(model, images, search).ids.shape[:2]
        TensorShape([3, 1])
    """

    def encode(self, source: Source) -> tuple[Any, Any]:
        """Reads the source.

        Args:
            source: What the search was given: int32 [B, S] ids, right-padded with the
                search's `pad_id`; or features [B, S, F], images [B, h, w, C] or other
                tensors of any dtype, or a tuple or dict of them.

        Returns:
            `(memory, state)`: nests of tensors. The memory, with leaves [B, ...], is
            passed to every step unchanged. The state, with leaves [B, 1, ...], is
            gathered as the beams change places.
        """

    def step(
        self, tokens: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor | None]:
        """Reads one token per beam and scores the next.

        Args:
            tokens: int32 [B, K], at first the search's `bos_id`.
            state: A nest with leaves [B, K, ...], whose shapes stay the same.
            memory: The memory that `encode` returned.

        Returns:
            `(logits [B, K, V], state, weights)`, where the weights are the attention
            [B, K, S] (or [B, K, h, w] and the like), or None if there is none.
        """


class Search(Protocol):
    """The interface of a search that a `Translator` needs.

    Example:
        >>> from keras_luong.decoding import force
        >>> class Copy:  # a "search" that answers with the source itself
        ...     def __call__(self, model, source):
        ...         return force(model, source, source)
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> Copy()(model, np.array([[4, 5, 3]])).ids.numpy()
        array([[[4, 5, 3]]], dtype=int32)
    """

    def __call__(self, model: StepModel, source: Source, /) -> Hypotheses:
        """Finds target sequences.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads.

        Returns:
            `Hypotheses`.
        """


def check_step_model(name: str, model: Any) -> None:
    """Raises TypeError unless `model` has the methods of a `StepModel`.

    And ValueError where Keras does not compute with TensorFlow.
    """
    check_tensorflow()
    if not all(callable(getattr(model, method, None)) for method in ("encode", "step")):
        raise TypeError(
            f"{name} must have methods `encode` and `step`, such as Seq2Seq. "
            f"Received: {model!r}"
        )


def copies(model: Any) -> bool:
    """Returns whether a model writes source words, as their ids are target ids."""
    return getattr(model, "copies", False)


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


def vocab_size_in(logits: tf.Tensor) -> Any:
    """Returns V of logits [..., V]: an int, or a tensor if the graph doesn't know it.

    It does not where the tokens are positions of the source, as in a pointer network.
    """
    size = logits.shape[-1]
    return tf.shape(logits)[-1] if size is None else size


def take_step(
    model: StepModel, tokens: tf.Tensor, state: Any, memory: Any
) -> tuple[tf.Tensor, Any, list[tf.Tensor]]:
    """Takes a model's step, and knows shapes that its graph may have lost.

    Args:
        model: A `StepModel`.
        tokens: int32 [B, K].
        state: Its state.
        memory: Its memory.

    Returns:
        Logits, float32 [B, K, V]; the new state; the attention as float32 [B, K, ...],
        or nothing if there is none.
    """
    logits, new_state, weights = model.step(tokens, state, memory)
    count = tokens.shape[1]
    logits = ensure_shape(tf.cast(logits, tf.float32), [None, count, None])
    return logits, keep_shapes(new_state, state), attention(weights, count)


def repeated(state: Any, count: int) -> Any:
    """Returns a first state, a nest with leaves [B, 1, ...], for several beams."""
    if count == 1:
        return state
    return tf.nest.map_structure(
        lambda x: tf.tile(x, [1, count, *[1] * (x.shape.rank - 2)]), state
    )


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
    # Not tf.reduce_logsumexp, which takes care of rows that are not possible anyway.
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    total = tf.reduce_sum(tf.exp(logits - peak), axis=-1, keepdims=True)
    normalisers = tf.math.log(total) + peak
    return normalisers, tf.math.is_finite(normalisers)


def attention(weights: tf.Tensor | None, beams: int) -> list[tf.Tensor]:
    """Returns a step's attention as float32 [B, K, ...], or nothing if it has none.

    Args:
        weights: What a step returned, [B, K, ...] or None.
        beams: K. The graph of a loaded model may have lost it.
    """
    if weights is None:
        return []
    rank = 3 if weights.shape.rank is None else weights.shape.rank
    shape = [None, beams, *[None] * (rank - 2)]
    return [ensure_shape(tf.cast(weights, tf.float32), shape)]


def flat_positions(weights: tf.Tensor) -> tf.Tensor:
    """Returns attention with one axis of positions: [A, K, ...] -> [A, K, S]."""
    if weights.shape.rank == 3:
        return weights
    size = weights.shape[2:].num_elements()
    rows = tf.shape(weights)[0] if size is None else -1
    return tf.reshape(weights, [rows, weights.shape[1], -1 if size is None else size])


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
