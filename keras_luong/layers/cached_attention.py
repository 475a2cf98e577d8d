"""Multi-head attention to keys and values that were made before.

Shapes: B batch, Q queries, S positions, N heads, d units.

Keys and values are laid out as the products want them, so that a search, which attends
to the same ones at every step, need not transpose them.
"""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.layers.normalizers import masked_softmax
from keras_luong.types import Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class CachedMultiHeadAttention(keras.layers.MultiHeadAttention):
    """Keras's own layer, whose keys and values can be made before its queries.

    `attend(query, *keys_and_values(value), mask)` is what `call` computes outside of
    training, by the same sub-layers, whatever Keras has made of their kernels (LoRA or
    int8, say). It rests on four public properties, `query_dense` and so on, and on a
    method that Keras leaves to subclasses, `_masked_softmax`, whose name and arguments
    are the same from Keras 3.12 to 3.15. A query whose mask has no True gets weights of
    zero, and the softmax is computed in float32.

    Example:
        >>> from keras_luong.layers.cached_attention import CachedMultiHeadAttention
        >>> attention = CachedMultiHeadAttention(num_heads=2, key_dim=4)
        >>> query, value = keras.ops.ones((2, 1, 8)), keras.ops.ones((2, 5, 8))
        >>> output = attention(query, value)  # builds it
        >>> keys, values = attention.keys_and_values(value)
        >>> mask = keras.ops.ones((2, 1, 5), "bool")
        >>> output, weights = attention.attend(query, keys, values, mask)
        >>> tuple(output.shape), tuple(weights.shape)
        ((2, 1, 8), (2, 2, 1, 5))
    """

    def keys_and_values(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Projects [B, S, d] to keys [B, N, d/N, S] and values [B, N, S, d/N]."""
        keys = ops.transpose(self.key_dense(value), (0, 2, 3, 1))
        return keys, ops.transpose(self.value_dense(value), (0, 2, 1, 3))

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attends to prepared keys and values, without dropout.

        Args:
            query: [B, Q, d].
            keys: [B, N, d/N, S].
            values: [B, N, S, d/N].
            mask: Which positions there are: bool [B, Q or 1, S].

        Returns:
            The output [B, Q, d], and the weights [B, N, Q, S].
        """
        query = ops.transpose(self.query_dense(query), (0, 2, 1, 3))
        scores = ops.matmul(query * keys.shape[-2] ** -0.5, keys)
        weights = self._masked_softmax(scores, mask)
        context = ops.transpose(ops.matmul(weights, values), (0, 2, 1, 3))
        return self.output_dense(context), weights

    def _masked_softmax(self, attention_scores, attention_mask=None):
        # Keras's has the layer's dtype, half precision perhaps, and makes NaN of scores
        # that overflowed in it.
        mask = True if attention_mask is None else attention_mask[:, None]
        weights = masked_softmax(attention_scores, mask)
        return ops.cast(weights, attention_scores.dtype)
