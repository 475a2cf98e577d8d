"""Multi-head attention with any of Luong's scores.

Shapes: B batch, Q queries, S source positions, N heads, Hq/Hv/Hk query/value/key units,
d units of a head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.attention import LuongAttention, attention_weights
from keras_luong.layers.base import Kernel
from keras_luong.layers.cells import dropped
from keras_luong.layers.inputs import pair_masks
from keras_luong.layers.memory import Memory
from keras_luong.layers.normalizers import hardened, masked_logits
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.layers.scores import (
    CosineScore,
    DotScore,
    ScaledDotScore,
    Score,
    another_score,
    prepare_keys,
)
from keras_luong.types import Shape, Tensor

#: Scores of which one serves all heads; a user's own may get weights later.
_WITHOUT_WEIGHTS = frozenset({DotScore, ScaledDotScore, CosineScore})


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

    #: Heads and sentences are one axis, where 1 does not fit any other size.
    _spreads_at_run_time = True
    _lacks = {"coverage": ""}

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
        self.num_heads = check_size("num_heads", num_heads)
        self.key_dim = check_size("key_dim", key_dim, optional=True)
        self.value_dim = check_size("value_dim", value_dim, optional=True)
        super().__init__(score_mode, units, **kwargs)

    def _make_score(self, score_mode):
        """All heads' scores: of the same kind, with weights of their own."""
        others = [another_score(score_mode, n) for n in range(1, self.num_heads)]
        make = super()._make_score
        scores = [make(mode) for mode in (score_mode, *others)]
        return HeadScores(scores, self.key_dim, **self._score_options())

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Builds the scores, and makes V and O."""
        super().build(query_shape, value_shape, key_shape)
        units = self._sizes[1]
        size = self.value_dim or math.ceil((units or 0) / self.num_heads)
        width = self.num_heads * size
        self.value_kernel = self.add_kernel("value_kernel", units, width)
        self.output_kernel = self.add_kernel("output_kernel", width, units)

    def prepare(
        self, value: Tensor, mask: Tensor | None = None, key: Tensor | None = None
    ) -> Memory:
        """See `LuongAttention.prepare`; keys and values are by head, [B, N, S, d]."""
        memory = super().prepare(value, mask, key)
        values = matmul(self.value_kernel, memory.values)
        return memory._replace(values=split_heads(values, self.num_heads))

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
        weights = self.head_weights(query, memory, mode, attention_mask)  # [B, N, Q, S]
        noise = mode.noise.attention  # [B, Q or 1, N, S]
        noise = None if noise is None else ops.swapaxes(noise, 1, 2)
        kept = ops.cast(dropped(weights, noise), memory.values.dtype)
        contexts = mode.project(in_one_batch(memory.values), in_one_batch(kept))
        contexts = merge_heads(in_heads(contexts, self.num_heads))  # [B, Q, N d]
        context = mode.project(self.output_kernel, contexts)
        weights = ops.mean(weights, axis=1)
        if not return_logits:
            return context, weights, []
        mask = pair_masks(memory, attention_mask)
        logits = masked_logits(ops.log(ops.maximum(weights, 1e-37)), mask)
        return context, weights, [], logits

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
        mask = pair_masks(memory, attention_mask)
        mask = None if mask is None else ops.expand_dims(mask, 1)
        weights, _ = attention_weights(
            query, memory.keys, mask, self.score, self.normalizer, mode.project
        )
        return hardened(weights) if self.hard and not mode.training else weights

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """Dropout multipliers [B, Q or 1, N, S], for each head its own."""
        return super().draw_noise((*shape[:2], self.num_heads, shape[2]), training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
        }


class HeadScores(Score):
    """`score_n(W_n h_t, U_n h̄_s)` of N heads, each with weights of its own.

    Weights: `query_kernel` [Hq, N d] and `key_kernel` [Hk, N d], the first head's
    columns first; and each score's.

    Args:
        scores: A `Score` for each head, of one kind.
        key_dim: d.
        **kwargs: As in `Score`; the kernel options are those of the two kernels.
    """

    _keeps_dtypes = True  # each score casts to its own

    query_kernel = Kernel()
    key_kernel = Kernel()

    def __init__(self, scores: list[Score], key_dim: int | None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scores, self.num_heads, self.key_dim = scores, len(scores), key_dim
        for score in scores:
            score.owners.add(self)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes the kernels, and each score's weights."""
        size = self.key_dim or math.ceil((query_shape[-1] or 0) / self.num_heads)
        width = self.num_heads * size
        self.query_kernel = self.add_kernel("query_kernel", query_shape[-1], width)
        self.key_kernel = self.add_kernel("key_kernel", key_shape[-1], width)
        for score in self.scores:
            if not score.built:  # a user's own may be, when it was loaded
                score.build((*query_shape[:-1], size), (*key_shape[:-1], size))

    def prepare(self, key: Tensor) -> Tensor:
        """The keys of each head: [B, N, S, k]."""
        heads = split_heads(matmul(self.key_kernel, key), self.num_heads)
        first = self.scores[0]
        if type(first) in _WITHOUT_WEIGHTS:  # one serves all heads
            return in_heads(prepare_keys(first, in_one_batch(heads)), self.num_heads)
        prepared = [prepare_keys(s, heads[:, n]) for n, s in enumerate(self.scores)]
        return ops.stack(prepared, axis=1)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Scores queries [B, Q, Hq] against keys [B, N, S, k]: [B, N, Q, S]."""
        query = split_heads(project(self.query_kernel, query), self.num_heads)
        first = self.scores[0]
        if type(first) in _WITHOUT_WEIGHTS or type(first).call is Score.call:
            flat = in_one_batch(query), in_one_batch(key)
            return in_heads(first(*flat, project=project), self.num_heads)
        scores = [
            score(query[:, n], key[:, n], project=project)
            for n, score in enumerate(self.scores)
        ]
        return ops.stack(scores, axis=1)

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        """[B, N, Q, S]."""
        return (query_shape[0], self.num_heads, query_shape[1], key_shape[-2])

    @property
    def _parts(self):
        return self.scores


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Heads that are side by side [B, n, N d] as [B, N, n, d]."""
    size = x.shape[-1] // num_heads
    return ops.swapaxes(ops.reshape(x, (*ops.shape(x)[:2], num_heads, size)), 1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """Inverse of `split_heads`."""
    x = ops.swapaxes(x, 1, 2)
    return ops.reshape(x, (*ops.shape(x)[:2], x.shape[2] * x.shape[3]))


def in_one_batch(x: Tensor) -> Tensor:
    """Heads as if they were sentences: [B, N, n, d] -> [B N, n, d]."""
    batch_size, num_heads, *rest = ops.shape(x)
    return ops.reshape(x, (batch_size * num_heads, *rest))


def in_heads(x: Tensor, num_heads: int) -> Tensor:
    """Inverse of `in_one_batch`."""
    size, *rest = ops.shape(x)
    return ops.reshape(x, (size // num_heads, num_heads, *rest))
