"""The scores of several heads: each compares in a space of its own.

Shapes: B batch, Q queries, S source positions, N heads, Hq/Hk query/key units, d units
of a head.
"""

from __future__ import annotations

from typing import Any

from keras import ops

from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.quantization import Kernel, quantize_parts
from keras_luong.layers.scores import Score
from keras_luong.types import Shape, Tensor


def head_size(units: Any, num_heads: int) -> int:
    """Units divided among heads, rounded up."""
    return -(-units // num_heads)


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Heads that are side by side [B, n, N d] as [B, N, n, d]."""
    size = x.shape[-1] // num_heads
    return ops.swapaxes(ops.reshape(x, (*ops.shape(x)[:2], num_heads, size)), 1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """What `split_heads` was given, of what it returned."""
    x = ops.swapaxes(x, 1, 2)
    return ops.reshape(x, (*ops.shape(x)[:2], x.shape[2] * x.shape[3]))


def in_one_batch(x: Tensor) -> Tensor:
    """Heads as if they were sentences: [B, N, n, d] -> [B N, n, d]."""
    batch_size, num_heads, *rest = ops.shape(x)
    return ops.reshape(x, (batch_size * num_heads, *rest))


def in_heads(x: Tensor, num_heads: int) -> Tensor:
    """What `in_one_batch` was given, of what it returned."""
    return ops.reshape(x, (-1, num_heads, *ops.shape(x)[1:]))


class HeadScores(Score):
    """`score_n(W_n h_t, U_n h̄_s)` of N heads, each with weights of its own.

    Weights: `query_kernel` [Hq, N d] and `key_kernel` [Hk, N d], the first head's
    columns first; and each score's.

    Args:
        scores: A `Score` for each head, of one kind.
        key_dim: d.
        kernel_initializer, kernel_regularizer, kernel_constraint: Of the two kernels.
        **kwargs: As in `Score`.
    """

    query_kernel = Kernel()
    key_kernel = Kernel()

    def __init__(
        self,
        scores: list[Score],
        key_dim: int | None,
        kernel_initializer: Any,
        kernel_regularizer: Any,
        kernel_constraint: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.scores, self.key_dim = scores, key_dim
        self.kernel_initializer = kernel_initializer
        self.kernel_regularizer = kernel_regularizer
        self.kernel_constraint = kernel_constraint
        for score in scores:
            score.owners.add(self)

    @property
    def num_heads(self) -> int:
        """N."""
        return len(self.scores)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes the kernels, and each score's weights."""
        size = self.key_dim or head_size(query_shape[-1], self.num_heads)
        width = self.num_heads * size
        self.query_kernel = self.add_kernel("query_kernel", query_shape[-1], width)
        self.key_kernel = self.add_kernel("key_kernel", key_shape[-1], width)
        for score in self.scores:
            if not score.built:  # a user's own may be, when it was loaded
                score.build((*query_shape[:-1], size), (*key_shape[:-1], size))

    def prepare(self, key: Tensor) -> Tensor:
        """What each head compares with, side by side: [B, S, N k]."""
        heads = split_heads(matmul(self.key_kernel, key), self.num_heads)
        prepared = [s.prepare(heads[:, n]) for n, s in enumerate(self.scores)]
        return ops.concatenate(prepared, -1)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Scores queries [B, Q, Hq] against keys [B, N, S, k]: [B, N, Q, S]."""
        query = split_heads(project(self.query_kernel, query), self.num_heads)
        if type(self.scores[0]).call is Score.call:  # once for all, without weights
            flat = in_one_batch(query), in_one_batch(key)
            return in_heads(self.scores[0](*flat, project=project), self.num_heads)
        pairs = [(query[:, n], key[:, n]) for n in range(self.num_heads)]
        scores = [
            score(*pair, project=project)
            for score, pair in zip(self.scores, pairs, strict=True)
        ]
        return ops.stack(scores, axis=1)

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        """[B, N, Q, S]."""
        return (query_shape[0], self.num_heads, query_shape[1], key_shape[-2])

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """See `Score.quantize`; with each head's score."""
        if not quantize_parts(self.scores, mode):
            super().quantize(mode, type_check, config)
