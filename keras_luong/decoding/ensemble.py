"""Ensembles: several models that choose each token together.

Shapes: `B` batch, `S` source length, `K` beam, `V` target vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_luong.checks import check_choice, check_same
from keras_luong.decoding.stepping import StepModel


@dataclasses.dataclass(frozen=True)
class EnsembleConfig:
    """What all models of an ensemble share; None where none of them says.

    Args:
        source_vocab_size: Number of source ids.
        target_vocab_size: Number of target ids.
    """

    source_vocab_size: int | None
    target_vocab_size: int | None


class Ensemble:
    """Several models as one, whose next token has their mean probability.

    It is a `StepModel` itself, so that every search, `force`, a `Translator` and an
    export take it as they take a model. The models can be of any architectures, and
    ensembles too; they must have been trained with the same tokenizers.

    The geometric mean, renormalised (a product of experts, Hinton 2002), asks for
    tokens that no model finds improbable; the arithmetic one (a mixture) for tokens
    that some model finds probable. Sutskever et al. 2014 (arXiv:1409.3215) and Luong et
    al. 2015 (section 4.1) report what ensembles gain.

    Args:
        models: the `StepModel`s, at least one.
        mean: "geometric" or "arithmetic".

    Raises:
        TypeError: if a model has no `encode` and `step`, or `models` is no sequence.
        ValueError: if there is no model, the mean is unknown, or the models' configs
            have vocabularies of different sizes.

    Example:
        >>> models = [keras_luong.load(run).model for run in ("runs/a", "runs/b")]
        >>> hypotheses = BeamSearch()(Ensemble(models), source_ids)
        >>> translator = Translator(Ensemble(models), tokenizers)
    """

    def __init__(self, models: Sequence[StepModel], mean: str = "geometric"):
        self.models = _check_models(models)
        self.mean = check_choice("mean", mean, MEANS)
        self.config = EnsembleConfig(
            *(_common(self.models, f"{side}_vocab_size") for side in SIDES)
        )

    def encode(self, source_ids: tf.Tensor) -> tuple[Any, Any]:
        """Let every model read the source.

        Args:
            source_ids: int32 `[B, S]`, right-padded with `PAD_ID`.

        Returns:
            The models' memories, and their states.
        """
        encoded = (model.encode(source_ids) for model in self.models)
        memories, states = zip(*encoded, strict=True)
        return memories, states

    def step(
        self, tokens: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """Let every model read one token per beam, and average what they say.

        Args:
            tokens: int32 `[B, K]`.
            state: the models' states.
            memory: the models' memories.

        Returns:
            Log-probabilities of the next token, float32 `[B, K, V]`; the new states;
            and the mean of the models' attention, float32 `[B, K, S]`. A model without
            attention contributes the zeros that it returns.
        """
        steps = [
            model.step(tokens, own_state, own_memory)
            for model, own_state, own_memory in zip(
                self.models, state, memory, strict=True
            )
        ]
        logits, states, weights = zip(*steps, strict=True)
        log_probs = MEANS[self.mean](_stack(logits))
        return log_probs, states, tf.reduce_mean(_stack(weights), axis=0)

    def cast_weights(self) -> list[tuple[Any, tf.Tensor]]:
        """Those of its models; see `keras_luong.decoding.cast_once`."""
        models = (model for model in self.models if hasattr(model, "cast_weights"))
        return [pair for model in models for pair in model.cast_weights()]

    def restricted(self, ids: tf.Tensor, allowed: tf.Tensor) -> Ensemble:
        """The ensemble of its models, each restricted to a part of the vocabulary.

        Args:
            ids: int32 `[M]`, which words are scored.
            allowed: bool `[B, M]`, which of them each sentence may use.

        Returns:
            An `Ensemble`, whose `step` returns log-probabilities `[B, K, M]`. Each
            model's probabilities are those among the words that are left, and so is
            their mean: for the arithmetic one not quite what the whole ensemble says
            of these words.
        """
        for i, model in enumerate(self.models):
            if not hasattr(model, "restricted"):
                raise TypeError(
                    "A search with a shortlist needs models with a method `restricted`."
                    f" Received: {model!r} at place {i}"
                )
        models = [model.restricted(ids, allowed) for model in self.models]
        return Ensemble(models, self.mean)


def geometric_mean(logits: tf.Tensor) -> tf.Tensor:
    """The normalised geometric mean of several models' probabilities.

    A model's own normaliser is the same for all tokens, so it makes no difference: the
    mean of the logits is normalised once.

    Args:
        logits: float32 `[M, ..., V]` of `M` models.

    Returns:
        Log-probabilities, float32 `[..., V]`.
    """
    return tf.nn.log_softmax(tf.reduce_mean(logits, axis=0))


def arithmetic_mean(logits: tf.Tensor) -> tf.Tensor:
    """The arithmetic mean of several models' probabilities.

    Args:
        logits: float32 `[M, ..., V]` of `M` models.

    Returns:
        Log-probabilities, float32 `[..., V]`.
    """
    count = tf.cast(tf.shape(logits)[0], tf.float32)
    total = tf.reduce_logsumexp(tf.nn.log_softmax(logits), axis=0)
    return total - tf.math.log(count)


MEANS = {"geometric": geometric_mean, "arithmetic": arithmetic_mean}
SIDES = ("source", "target")


def _stack(tensors):
    return tf.stack([tf.cast(x, tf.float32) for x in tensors])


def _check_models(models):
    """The models as a tuple."""
    if not isinstance(models, Sequence):
        raise TypeError(f"models must be a list of models. Received: {models!r}")
    if not models:
        raise ValueError("models must hold at least one model. Received: []")
    for i, model in enumerate(models):
        if not all(callable(getattr(model, x, None)) for x in ("encode", "step")):
            raise TypeError(
                "models must have methods `encode` and `step`, such as Seq2Seq. "
                f"Received: {model!r} at place {i}"
            )
    return tuple(models)


def _common(models, name):
    """What all models that have a config say there."""
    sizes = {
        f"models[{i}]": getattr(getattr(model, "config", None), name, None)
        for i, model in enumerate(models)
    }
    check_same(f"{name} of models in an ensemble", **sizes)
    return next((size for size in sizes.values() if size is not None), None)
