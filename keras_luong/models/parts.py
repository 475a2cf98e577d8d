"""The parts of a model by name, to be frozen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras

from keras_luong.checks import check_choice


def freeze(model: keras.Model, parts: Sequence[str]) -> None:
    """Freezes parts of a model: their weights no longer change when it is trained.

    Args:
        model: A model of `keras_luong.models`, not compiled yet.
        parts: Names in `PARTS`.

    Raises:
        ValueError: If there is no part of that name, the model has none, or nothing
            would be left to train.

    Example:
        >>> from keras_luong.models.parts import freeze
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> freeze(model, ["encoder", "embeddings"])
        >>> model.encoder.trainable, model.decoder.trainable
        (False, True)
    """
    for part in parts:
        check_choice("freeze", part, PARTS)
        layers = PARTS[part](model)
        found = [x for x in keras.tree.flatten(layers) if x is not None and x.weights]
        if not found:
            tied = getattr(getattr(model, "config", None), "tie_embeddings", None)
            hint = ": its output is its target_embedding" * bool(tied)
            hint = hint if part == "output" else ""
            raise ValueError(
                f"freeze names a part that {type(model).__name__} has not, as it is "
                f"configured{hint}. Received: {part!r}"
            )
        for layer in found:
            layer.trainable = False
    if parts and not model.trainable_weights:
        raise ValueError(
            f"freeze must leave something to train. Received: {', '.join(parts)}"
        )


def _named(*names: str) -> Callable[[Any], Any]:
    """The attributes of these names, as far as a model has them."""
    return lambda model: [getattr(model, name, None) for name in names]


def _attention(model: Any) -> Any:
    """What the decoder attends to the source with."""
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
