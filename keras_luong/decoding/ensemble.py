"""Ensembles: several models that choose each token together.

Shapes: B batch, S source length, K beam, V target vocabulary, M models or, in a
restricted ensemble, words.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from keras_luong.checks import check_choice, check_same
from keras_luong.decoding.hoisting import cast_weights
from keras_luong.decoding.step_model import (
    Source,
    StepModel,
    check_step_model,
    copies,
    restricted,
    vocab_size_of,
)


class Ensemble:
    """Several models as one, which gives each token their mean probability.

    It is a `StepModel`, so every search, `force`, `Translator` and export takes it like
    a model. The models can have any architectures, or be ensembles themselves; they
    must have been trained with the same tokenizers.

    The geometric mean, renormalised (a product of experts, Hinton 2002), prefers
    tokens that no model finds improbable; the arithmetic mean (a mixture) tokens that
    some model finds probable. Sutskever et al. 2014 (arXiv:1409.3215) and Luong et al.
    2015 (section 4.1) report what ensembles gain.

    Args:
        models: `StepModel`s, at least one.
        mean: "geometric" or "arithmetic".

    Attributes:
        config: The `source_vocab_size` and `target_vocab_size` that the models have in
            common, None where no model tells its own.

    Raises:
        TypeError: If a model has no `encode` and `step`, or `models` is no sequence.
        ValueError: If there is no model, the mean is unknown, or the models' configs
            have vocabularies of different sizes.

    Example:
        >>> config = kl.Seq2SeqConfig(9, 9, units=4)
        >>> ensemble = kl.Ensemble([kl.Seq2Seq(config), kl.Seq2Seq(config)])
        >>> memory, state = ensemble.encode(np.array([[4, 5, 3]]))
        >>> logits, state, weights = ensemble.step(np.array([[2]]), state, memory)
        >>> tuple(logits.shape), tuple(weights.shape)
        ((1, 1, 9), (1, 1, 3))
    """

    def __init__(self, models: Sequence[StepModel], mean: str = "geometric"):
        if not isinstance(models, Sequence):
            raise TypeError(f"models must be a list of models. Received: {models!r}")
        if not models:
            raise ValueError("models must hold at least one model. Received: []")
        for i, model in enumerate(models):
            check_step_model(f"models[{i}]", model)
        self.models = tuple(models)
        self.mean = check_choice("mean", mean, MEANS)
        self.config = SimpleNamespace(
            source_vocab_size=_common_vocab_size(models, "source"),
            target_vocab_size=_common_vocab_size(models, "target"),
        )

    def encode(self, source: Source) -> tuple[Any, Any]:
        """Encodes the source with every model.

        Args:
            source: What each of the models' `encode` reads.

        Returns:
            The models' memories, and their states.
        """
        encoded = (model.encode(source) for model in self.models)
        memories, states = zip(*encoded, strict=True)
        return memories, states

    def step(
        self, tokens: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor | None]:
        """Takes a step with every model, and averages their probabilities.

        Args:
            tokens: int32 [B, K].
            state: The models' states.
            memory: The models' memories.

        Returns:
            Log-probabilities of the next token, float32 [B, K, V]; the new states;
            and the mean of the models' attention, float32 [B, K, S]. A model without
            attention contributes zeros, whether it returns these or None; if all of
            them return None, so does the ensemble.
        """
        members = zip(self.models, state, memory, strict=True)
        steps = [model.step(tokens, *own) for model, *own in members]
        logits, states, weights = zip(*steps, strict=True)
        log_probs = MEANS[self.mean](_stack(logits))
        return log_probs, states, _mean(weights)

    @property
    def variables(self) -> list[Any]:
        """The models' variables, of those that say what theirs are."""
        return [x for model in self.models for x in getattr(model, "variables", ())]

    @property
    def copies(self) -> bool:
        """Whether one of the models writes source words."""
        return any(map(copies, self.models))

    def cast_weights(self) -> list[tuple[keras.Variable, tf.Tensor]]:
        """Returns the models' cast weights, see `keras_luong.decoding.hoisting`."""
        return [pair for model in self.models for pair in cast_weights(model)]

    def restricted(self, ids: tf.Tensor, allowed: tf.Tensor) -> Ensemble:
        """Returns the ensemble with a part of its vocabulary.

        Args:
            ids: int32 [M], the words that are scored.
            allowed: bool [B, M], which of them each sentence may use.

        Returns:
            An `Ensemble` whose `step` returns log-probabilities [B, K, M]. Each model's
            probabilities are normalised over the remaining words, and so is their mean.
            Therefore the arithmetic mean differs a little from that of the whole
            vocabulary.

        Raises:
            TypeError: If a model has no method `restricted`.
        """
        models = [restricted(model, ids, allowed) for model in self.models]
        return Ensemble(models, self.mean)


def geometric_mean(logits: tf.Tensor) -> tf.Tensor:
    """Returns the normalised geometric mean of several models' probabilities.

    A model's normaliser is the same for all tokens, so it suffices to normalise the
    mean of the logits once.

    Args:
        logits: float32 [M, ..., V] of M models.

    Returns:
        Log-probabilities, float32 [..., V].
    """
    return tf.nn.log_softmax(tf.reduce_mean(logits, axis=0))


def arithmetic_mean(logits: tf.Tensor) -> tf.Tensor:
    """Returns the arithmetic mean of several models' probabilities.

    Args:
        logits: float32 [M, ..., V] of M models.

    Returns:
        Log-probabilities, float32 [..., V].
    """
    count = tf.cast(tf.shape(logits)[0], tf.float32)
    total = tf.reduce_logsumexp(tf.nn.log_softmax(logits), axis=0)
    return total - tf.math.log(count)


MEANS = {"geometric": geometric_mean, "arithmetic": arithmetic_mean}


def _stack(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.stack([tf.cast(x, tf.float32) for x in tensors])


def _mean(weights: Sequence[tf.Tensor | None]) -> tf.Tensor | None:
    """Returns the mean of several models' attention, or None if none has any."""
    like = next((x for x in weights if x is not None), None)
    if like is None:
        return None
    some = [tf.zeros_like(like) if x is None else x for x in weights]
    return tf.reduce_mean(_stack(some), axis=0)


def _common_vocab_size(models: Sequence[StepModel], side: str) -> int | None:
    """Returns a vocabulary's size in the models' configs, or None without any."""
    sizes = {f"models[{i}]": vocab_size_of(x, side) for i, x in enumerate(models)}
    check_same(f"{side}_vocab_size of models in an ensemble", **sizes)
    return next((size for size in sizes.values() if size is not None), None)
