"""Multi-head attention to keys and values that were made before.

Shapes: B batch, Q queries, S positions, N heads, d units.
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
    int8, say). It rests on four public properties, `query_dense` and so on, and on two
    methods that Keras leaves to subclasses, `_compute_attention` and `_masked_softmax`,
    whose names and leading arguments are the same from Keras 3.12 to 3.15. KerasHub's
    layer of this name is built on the first of them too. A query whose mask has no True
    gets weights of zero, and the softmax is computed in float32.

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
        """Projects [B, S, d] to keys and values, each [B, S, N, d/N]."""
        return self.key_dense(value), self.value_dense(value)

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attends to prepared keys and values, without dropout.

        Args:
            query: [B, Q, d].
            keys: [B, S, N, d/N].
            values: Likewise.
            mask: Which positions there are: bool [B, Q or 1, S].

        Returns:
            The output [B, Q, d], and the weights [B, N, Q, S].
        """
        context, weights = self._compute_attention(
            self.query_dense(query),
            keys,
            values,
            mask,
            training=False,
            return_attention_scores=True,
        )
        return self.output_dense(context), weights

    def _masked_softmax(self, attention_scores, attention_mask=None):
        # Keras's has the layer's dtype, half precision perhaps, and makes NaN of scores
        # that overflowed in it.
        mask = True if attention_mask is None else attention_mask[:, None]
        weights = masked_softmax(attention_scores, mask)
        return ops.cast(weights, attention_scores.dtype)
