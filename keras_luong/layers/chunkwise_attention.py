"""Monotonic chunkwise attention (MoChA): a soft look at the last few positions.

Shapes: B batch, Q queries, S source positions, w positions of a chunk.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.normalizers import masked_softmax
from keras_luong.layers.score_modes import another
from keras_luong.layers.scores import Score
from keras_luong.layers.shifted import shifted
from keras_luong.types import Tensor


def chunkwise_weights(
    stops: Tensor, scores: Tensor, mask: Tensor, chunk_size: int
) -> Tensor:
    """The expected weights of Chiu & Raffel 2018 (arXiv:1712.05382), section 2.3.

    Where the monotonic attention stops, a softmax runs over the chunk of the `w`
    positions that end there: `β_j = Σ_k α_k exp(u_j) / Σ_l exp(u_l)`, k over the w
    stops whose chunks have j, and l over the chunk of k.

    Args:
        stops: α, probabilities of stopping at each position, [..., S]. Where they are 0
            but for one 1, these are the hard weights of inference.
        scores: u, of the same shape.
        mask: Which positions there are: bool, broadcasts to the scores.
        chunk_size: w.

    Returns:
        [..., S]; they sum to as much as the stops.
    """
    offsets = range(chunk_size)  # how far before its stop a position is
    mask = ops.cast(mask, "int32")
    of_chunks = ops.stack([shifted(scores, i) for i in offsets], -1)
    there = ops.stack([shifted(mask, i) for i in offsets], -1) > 0
    shares = ops.expand_dims(stops, -1) * masked_softmax(of_chunks, there)
    return sum(shifted(shares[..., i], -i) for i in offsets)


@keras.saving.register_keras_serializable(package="keras_luong")
class MonotonicChunkwiseAttention(MonotonicAttention):
    """MoChA, monotonic chunkwise attention of Chiu & Raffel 2018 (arXiv:1712.05382).

    A monotonic attention finds where to stop, and a second score weighs the chunk of
    `chunk_size` positions that end there by a softmax, see `chunkwise_weights`.
    Training has the expected weights, of all positions in parallel. With `hard=True`
    inference stops at one position, or at none, and looks at its chunk only; it can run
    while the source is still coming in.

    Each query starts where the one before it stopped, so that queries must come one
    after the other, as in `MonotonicAttention`.

    Weights: those of `MonotonicAttention`, and the second score's, `chunk_score`.

    Args:
        score_mode: Score that finds where to stop, as in `LuongAttention`.
        units: As in `LuongAttention`, of both scores.
        chunk_size: Positions of a chunk, w; 1 makes it a `MonotonicAttention`.
        chunk_score_mode: Score that weighs the chunk; by default like `score_mode`,
            with weights of its own.
        mode: How the probabilities of stopping are computed where they are not hard,
            as in `MonotonicAttention`.
        **kwargs: `sigmoid_noise`, `score_bias_init` as in `MonotonicAttention`;
            `max_source_length`, `dropout`, `hard`, `seed`, `kernel_initializer`,
            `kernel_regularizer`, `kernel_constraint` as in `LuongAttention`; `name`,
            `dtype`.

    Call arguments, returns: As `MonotonicAttention`; logits are those of stopping.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> attention = kl.MonotonicChunkwiseAttention(
        ...     "general", chunk_size=4, sigmoid_noise=1.0, hard=True
        ... )
        >>> states, memory = np.random.rand(2, 3, 8), np.random.rand(2, 9, 8)
        >>> tuple(attention(states, memory).shape)
        (2, 3, 8)
    """

    _nested = (*MonotonicAttention._nested, "chunk_score_mode")

    def __init__(
        self,
        score_mode: str | Score = "general",
        units: int | None = None,
        chunk_size: int = 2,
        chunk_score_mode: str | Score | None = None,
        mode: str = "recursive",
        **kwargs: Any,
    ) -> None:
        super().__init__(score_mode, units, mode, **kwargs)
        self.chunk_size = check_size("chunk_size", chunk_size)
        self.chunk_score_mode = chunk_score_mode
        if chunk_score_mode is None:
            chunk_score_mode = another(score_mode, 1)
        self.chunk_score = self._make_score(chunk_score_mode)
        self.chunk_score.owners.add(self)

    def _build_more(self, query_shape, value_shape, key_shape):
        """Makes the weights of the second score too."""
        super()._build_more(query_shape, value_shape, key_shape)
        if not self.chunk_score.built:  # a user's own may be, when it was loaded
            self.chunk_score.build(query_shape, key_shape)

    def _prepare_keys(self, key):
        """A pair: each score's own."""
        return super()._prepare_keys(key), self.chunk_score.prepare(key)

    def _weigh(self, query, memory, mask, state, mode, return_logits):
        """See `LuongAttention`; the state is where the query before has stopped."""
        keys, chunk_keys = memory.keys
        stops, state, *logits = super()._weigh(
            query, memory._replace(keys=keys), mask, state, mode, return_logits
        )
        scores = self.chunk_score(query, chunk_keys, project=mode.project)
        weights = chunkwise_weights(stops, scores, mask, self.chunk_size)
        return weights, state, *logits

    @property
    def _scores(self):
        return [self.score, self.chunk_score]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        mode = self.chunk_score_mode
        given = serialize_shared(mode) if isinstance(mode, Score) else mode
        config = {"chunk_size": self.chunk_size, "chunk_score_mode": given}
        return {**super().get_config(), **config}
