"""A model with a larger vocabulary, which otherwise is the one that it comes from.

The parts of a model by name, to be frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.models.translation_model import TranslationModel
from keras_luong.special_ids import EOS_ID
from keras_luong.text.growing import origins
from keras_luong.text.tokenizer_pair import TokenizerPair


def freeze(model: keras.Model, parts: Sequence[str]) -> None:
    """Freezes parts of a model: their weights no longer change when it is trained.

    Args:
        model: A model of `keras_luong.models`, not compiled yet.
        parts: Names in `PARTS`.

    Raises:
        ValueError: If there is no part of that name, the model has none, or nothing
            would be left to train.

    Example:
        >>> from keras_luong.models.growing import freeze
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> freeze(model, ["encoder", "embeddings"])
        >>> model.encoder.trainable, model.decoder.trainable
        (False, True)
    """
    for part in parts:
        check_choice("freeze", part, PARTS)
        layers = PARTS[part](model)
        frozen = [x for x in keras.tree.flatten(layers) if x is not None and x.weights]
        if not frozen:
            tied = getattr(getattr(model, "config", None), "tie_embeddings", None)
            hint = ": its output is its target_embedding" * bool(tied)
            hint = hint if part == "output" else ""
            raise ValueError(
                f"freeze names a part that {type(model).__name__} has not, as it is "
                f"configured{hint}. Received: {part!r}"
            )
        for layer in frozen:
            layer.trainable = False
    if parts and not model.trainable_weights:
        raise ValueError(
            f"freeze must leave something to train. Received: {', '.join(parts)}"
        )


def _named(*names: str) -> Callable[[Any], Any]:
    """The attributes of these names, as far as a model has them."""
    return lambda model: [getattr(model, name, None) for name in names]


def _attention(model: Any) -> Any:
    """The layers by which the decoder attends to the source."""
    decoder = getattr(model, "decoder", None)
    if isinstance(decoder, list):  # of a Transformer
        return [block.cross_attention for block in decoder]
    return getattr(getattr(decoder, "cell", None), "attention", None)


#: Name → the layers of a model that are that part: a nest, where None is none.
PARTS: dict[str, Callable[[Any], Any]] = {
    "embeddings": _named("source_embedding", "target_embedding"),
    "source_embedding": _named("source_embedding"),
    "target_embedding": _named("target_embedding"),
    "encoder": _named("encoder", "encoder_norm"),
    "bridge": _named("bridge"),
    "decoder": _named("decoder", "decoder_norm", "pointer_generator"),
    "attention": _attention,
    "output": _named("output_layer"),
}


_NOISE = 0.1  # of what words differ by: enough to tell new tokens apart


def grow_into(
    model: TranslationModel,
    old: Any,
    old_tokenizers: TokenizerPair,
    tokenizers: TokenizerPair,
    seed: int = 0,
) -> None:
    """Gives a model the weights of one that may have a smaller vocabulary.

    What the old model knows stays as it is, to the bit. A new token gets the mean of
    the vectors of the pieces that its text was before, or of all, where it was unknown;
    and a little noise, so that no two are equal.

    Args:
        model: The model.
        old: One of the same configuration but for the sizes of its vocabularies.
        old_tokenizers: The old model's.
        tokenizers: The new model's: `keras_luong.text.growing` made them, or they are
            the same.
        seed: Seed of the noise.

    Raises:
        ValueError: If a vocabulary grows whose vectors are frozen.
    """
    rng = np.random.default_rng(seed)
    pairs = zip(model.weights, old.weights, strict=True)
    source = model.source_embedding.embeddings
    for weight, before in pairs:
        side = "source" if weight is source else "target"
        value = ops.convert_to_numpy(before)
        if tuple(weight.shape) != value.shape:
            one, other = getattr(old_tokenizers, side), getattr(tokenizers, side)
            _check_learns(weight, one.vocab_size, other.vocab_size)
            axis = [a != b for a, b in zip(weight.shape, value.shape, strict=True)]
            known = one.vocab_size
            value = _grown(value, known, origins(one, other), axis.index(True), rng)
        weight.assign(value)


def _grown(
    matrix: np.ndarray,
    known: int,
    origins: Sequence[Sequence[int]],
    axis: int,
    rng: np.random.Generator,
) -> np.ndarray:
    rows = np.moveaxis(matrix, axis, 0)[:known]
    words = range(EOS_ID + 1, len(rows))
    means = np.array([rows[list(ids or words)].mean(axis=0) for ids in origins])
    noise = _NOISE * rows.std() * rng.standard_normal(means.shape)
    both = np.concatenate([rows, (means + noise).astype(rows.dtype)])
    return np.moveaxis(both, 0, axis)


def _check_learns(weight: Any, before: int, now: int) -> None:
    if not weight.trainable and now > before:
        raise ValueError(
            f"freeze must leave {weight.path} out: its vocabulary grows from "
            f"{before:,} to {now:,} tokens, and the new ones have to be learned"
        )
