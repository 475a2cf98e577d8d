"""A model that scores a part of its vocabulary only, and computes no more than that.

Shapes: B batch, K beam, V target vocabulary, M words of it, H units.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_luong.layers.projection import matmul
from keras_luong.types import Tensor


class Restricted:
    """A model that scores a part of its target vocabulary, for one batch.

    Args:
        model: A `TranslationModel`.
        ids: int [M], the words that are scored, in the order of the logits.
        allowed: bool [B, M], which of them each sentence may use; the logits of others
            are -inf.

    Example:
        >>> from keras_luong.models.restricted import Restricted
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> few = Restricted(model, np.array([3, 6, 8]), np.ones([1, 3], bool))
        >>> memory, state = few.encode(np.array([[4, 5, 3]]))
        >>> logits, state, weights = few.step(np.array([[2]]), state, memory)
        >>> logits.shape[-1]
        3
    """

    def __init__(self, model: Any, ids: Tensor, allowed: Tensor) -> None:
        self.model, self.ids, self.allowed = model, ids, allowed
        # Gathered here and not in `step`, which runs in a loop.
        matrix, is_embedding = model.output_weights()
        kernel = ops.take(matrix, ids, axis=0 if is_embedding else 1)
        kernel = ops.transpose(kernel) if is_embedding else kernel
        layer = model.target_embedding if is_embedding else model.output_layer
        self.kernel = ops.cast(kernel, layer.compute_dtype)
        bias = model.output_bias()
        self.bias = None if bias is None else ops.take(bias, ids, axis=0)

    def encode(self, source: Tensor) -> tuple[Any, Any]:
        """As the model; a sentence's words are part of its memory."""
        memory, state = self.model.encode(source)
        places = [_places(source, self.ids)] if self.model.copies else []
        return (memory, self.allowed, *places), state

    def step(
        self, tokens: Tensor, state: Any, memory: Any
    ) -> tuple[Tensor, Any, Tensor]:
        """As the model, with logits [B, K, M]. The tokens are ids of all words."""
        memory, allowed, *places = memory
        features, state, weights = self.model.step_features(tokens, state, memory)
        features = ops.cast(features, self.kernel.dtype)
        scores = matmul(self.kernel, features, bias=self.bias)
        scores = _only(allowed, ops.cast(scores, "float32"))
        if self.model.copies:
            scores = self.model.with_copies(scores, features, tokens, weights, *places)
            scores = _only(allowed, scores)  # a copy too
        return scores, state, weights


def _only(allowed, scores):
    return ops.where(ops.expand_dims(allowed, 1), scores, float("-inf"))


def _places(source, ids):
    """Where among some ids [M] each source word [B, S] is: int [B, S], or -1."""
    same = ops.equal(ops.expand_dims(source, -1), ids)
    return ops.where(ops.any(same, -1), ops.argmax(same, -1), -1)
