"""Multi-head attention with any of Luong's scores.

Shapes: B batch, Q queries, S source positions, N heads, Hq/Hv query/value units, d
units of a head's values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.attention_inputs import combined_masks
from keras_luong.layers.cells import dropped
from keras_luong.layers.head_scores import (
    HeadScores,
    head_size,
    in_heads,
    in_one_batch,
    merge_heads,
    split_heads,
)
from keras_luong.layers.memory import Memory
from keras_luong.layers.normalizers import masked_logits
from keras_luong.layers.projection import matmul
from keras_luong.layers.quantization import Kernel
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.layers.score_modes import another
from keras_luong.layers.scores import Score
from keras_luong.types import Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class MultiHeadLuongAttention(LuongAttention):
    """Multi-head attention (Vaswani et al. 2017, section 3.2.2) with any score.

    Each of N heads attends in a space of its own: `a_n = softmax score_n(W_n h_t, U_n
    h̄_s)` and `c_n = Σ_s a_n(s) V_n h̄_s`; the context is `O [c_1; ...; c_N]`. With
    "scaled_dot" that is `keras.layers.MultiHeadAttention` without biases.

    Weights: of the layer `score`, `query_kernel` [Hq, N key_dim] and `key_kernel` [Hk,
    N key_dim] (W and U, the first head's columns first), and those of its N `scores`;
    `value_kernel` [Hv, N value_dim] (V) and `output_kernel` [N value_dim, Hv] (O).

    For heads with scores of different kinds, or heads that are local or monotonic, see
    `MultiSourceAttention`.

    Args:
        num_heads: N.
        key_dim: Size in which a head compares; by default the query's, divided by N and
            rounded up.
        value_dim: Size of a head's values; by default the value's, likewise.
        score_mode: As in `LuongAttention`; each head has weights of its own, also of a
            `Score` layer of your own, which is copied by its configuration.
        units: As in `LuongAttention`, of each head.
        **kwargs: `max_source_length`, `dropout`, `normalizer`, `hard`, `seed`,
            `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` as in
            `LuongAttention`, of each head; `name`, `dtype`.

    Call arguments, returns: As `LuongAttention`. The weights are the mean of all
    heads', and logits are their logarithms; `head_weights` gives each head's.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> states, memory = np.random.rand(2, 3, 8), np.random.rand(2, 5, 8)
        >>> attention = kl.MultiHeadLuongAttention(4, score_mode="concat")
        >>> tuple(attention(states, memory).shape)
        (2, 3, 8)
    """

    value_kernel = Kernel()
    output_kernel = Kernel()

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        score_mode: str | Score = "scaled_dot",
        units: int | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("coverage"):
            raise ValueError(
                f"Multi-head attention has no coverage. Received: {kwargs['coverage']}"
            )
        self.num_heads = check_size("num_heads", num_heads)
        self.key_dim = check_size("key_dim", key_dim, optional=True)
        self.value_dim = check_size("value_dim", value_dim, optional=True)
        super().__init__(score_mode, units, **kwargs)

    def _make_score(self, score_mode):
        """All heads' scores: of the same kind, with weights of their own."""
        make = super()._make_score
        first = make(score_mode)
        others = [make(another(score_mode, n)) for n in range(1, self.num_heads)]
        return HeadScores(
            [first, *others],
            self.key_dim,
            self.kernel_initializer,
            self.kernel_regularizer,
            self.kernel_constraint,
            dtype=self.dtype_policy,
        )

    def _build_more(self, query_shape, value_shape, key_shape):
        """Makes V and O."""
        units = value_shape[-1]
        size = self.value_dim or head_size(units, self.num_heads)
        width = self.num_heads * size
        self.value_kernel = self.add_kernel("value_kernel", units, width)
        self.output_kernel = self.add_kernel("output_kernel", width, units)

    def prepare(
        self, value: Tensor, mask: Tensor | None = None, key: Tensor | None = None
    ) -> Memory:
        """See `LuongAttention.prepare`; keys and values are by head, [B, N, S, d]."""
        memory = super().prepare(value, mask, key)
        values = matmul(self.value_kernel, memory.values)
        keys, values = [split_heads(x, self.num_heads) for x in (memory.keys, values)]
        return memory._replace(values=values, keys=keys)

    def _read(self, inputs):
        """As for one head; what has a batch of 1 is repeated, also in the graph."""
        inputs, memory = super()._read(inputs)
        if None not in (inputs.query.shape[0], memory.mask.shape[0]):
            return inputs, memory
        # Heads and sentences are one axis, where 1 does not fit any other size.
        sizes = ops.shape(inputs.query)[0], ops.shape(memory.mask)[0]
        size = ops.maximum(*sizes)

        def spread(x):
            return ops.broadcast_to(x, (size, *ops.shape(x)[1:]))

        memory = keras.tree.map_structure(spread, memory)
        return inputs._replace(query=spread(inputs.query)), memory

    def attend(
        self,
        query: Tensor,
        memory: Memory,
        positions: Tensor | None = None,
        state: Sequence[Tensor] = (),
        mode: Mode = INFERENCE,
        attention_mask: Tensor | None = None,
        return_logits: bool = False,
    ) -> tuple[Any, ...]:
        """See `LuongAttention.attend`; the weights are the mean of all heads'."""
        weights = self.head_weights(query, memory, mode, attention_mask)
        context = self._average(memory.values, weights, mode)
        weights = ops.mean(weights, axis=1)
        if not return_logits:
            return context, weights, []
        mask = combined_masks(ops.expand_dims(memory.mask, 1), attention_mask)
        logits = masked_logits(ops.log(ops.maximum(weights, 1e-37)), mask)
        return context, weights, [], logits

    def _average(self, values, weights, mode):
        """The context [B, Q, Hv] by each head's values and weights."""
        noise = mode.noise.attention
        noise = None if noise is None else ops.swapaxes(noise, 1, 2)
        kept = ops.cast(dropped(weights, noise), values.dtype)
        contexts = mode.project(in_one_batch(values), in_one_batch(kept))
        context = merge_heads(in_heads(contexts, self.num_heads))
        return mode.project(self.output_kernel, context)

    def head_weights(
        self,
        query: Tensor,
        memory: Memory,
        mode: Mode = INFERENCE,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Each head's weights; arguments as of `attend`.

        Returns:
            `weights_dtype` [B, N, Q, S].

        Example:
            >>> states, source = np.ones((2, 3, 8), "f"), np.ones((2, 5, 8), "f")
            >>> attention = kl.MultiHeadLuongAttention(4)
            >>> context = attention(states, source)  # which makes its weights
            >>> weights = attention.head_weights(states, attention.prepare(source))
            >>> tuple(weights.shape)
            (2, 4, 3, 5)
        """
        mask = combined_masks(ops.expand_dims(memory.mask, 1), attention_mask)
        mask = ops.expand_dims(mask, 1)
        weights = self.align(query, memory.keys, mask, None, mode.project)
        return self.choose(weights, mode.training)

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """Dropout multipliers [B, Q or 1, N, S], for each head its own."""
        return super().draw_noise((*shape[:2], self.num_heads, shape[2]), training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config = {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
        }
        return {**super().get_config(), **config}
