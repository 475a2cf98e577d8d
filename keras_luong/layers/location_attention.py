"""Location-aware attention: each query sees where the one before it looked.

Shapes: B batch, Q queries, S source positions, Hk units in which the score compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_flag, check_size
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.base import Kernel
from keras_luong.layers.recurrence import Mode
from keras_luong.layers.scores import Score
from keras_luong.types import Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class LocationAwareAttention(LuongAttention):
    """Location-aware attention of Chorowski et al. 2015 (arXiv:1506.07503).

    The weights of the query before are convolved along the source, `f_t = F * a_{t-1}`,
    and what comes out is added to the keys: `score(h_t, k_s + U f_{t,s} + b)`. With the
    "concat" score that is the paper's `vᵀ tanh(W h_t + V h̄_s + U f_{t,s} + b)`, Eq. 8
    and 9. Before the first query the weights are zeros.

    Queries must come one after the other: a call with Q of them is a loop, and one
    inside a decoder makes its attention a part of the recurrence, with or without input
    feeding. (`score_mode="location"` is another thing: Luong's score from the query
    alone.)

    Weights: the score's; `filter_kernel` [kernel_size, filters] (F), `location_kernel`
    [filters, Hk] (U) and `location_bias` [Hk] (b).

    Args:
        score_mode: As in `LuongAttention`, but not "location".
        units: As in `LuongAttention`.
        filters: Number of filters; 32, as in Tacotron 2. The paper has 10.
        kernel_size: Source positions that a filter covers, the one in question in their
            middle: an odd number. Tacotron 2 has 31, the paper 201.
        cumulative: Whether the sum of all earlier weights is convolved rather than the
            last ones, as in Tacotron 2 (Shen et al. 2018, arXiv:1712.05884).
        **kwargs: `dropout`, `normalizer`, `hard`, `seed`, `kernel_initializer`,
            `kernel_regularizer`, `kernel_constraint` as in `LuongAttention`; `name`,
            `dtype`. The paper's sharpening and smoothing are normalizers.

    Call arguments, returns: As `LuongAttention`, for sources of one axis of positions.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> phones, frames = np.random.rand(2, 4, 6), np.random.rand(2, 50, 8)
        >>> attention = kl.LocationAwareAttention("concat", units=16, kernel_size=11)
        >>> cell = kl.InputFeedingDecoderCell(8, attention)
        >>> tuple(kl.InputFeedingDecoder(cell)(phones, frames).shape)
        (2, 4, 8)
    """

    source_axes = 1  # which positions are beside each other
    has_state = True  # each query sees the weights of the one before it
    _compares = True
    _lacks = {"coverage": ": cumulative=True has the sum of earlier weights"}
    filter_kernel = Kernel()
    location_kernel = Kernel()

    def __init__(
        self,
        score_mode: str | Score = "concat",
        units: int | None = None,
        filters: int = 32,
        kernel_size: int = 31,
        cumulative: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(score_mode, units, **kwargs)
        self.filters = check_size("filters", filters)
        self.kernel_size = check_size("kernel_size", kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(
                "kernel_size must be odd, for a position to be in the middle. "
                f"Received: {kernel_size}"
            )
        self.cumulative = check_flag("cumulative", cumulative)

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Builds the score, and makes F, U and b."""
        super().build(query_shape, value_shape, key_shape)
        query_units, _, key_units = self._sizes
        shapes = (None, None, query_units), (None, None, key_units)
        units = self.score.key_units(*shapes)
        kernel = self.kernel_size, self.filters
        self.filter_kernel = self.add_kernel("filter_kernel", *kernel)
        self.location_kernel = self.add_kernel("location_kernel", self.filters, units)
        self.location_bias = self.add_weight((units,), "zeros", name="location_bias")

    def weigh(
        self, query: Tensor, keys: Any, mask: Any, state: Sequence[Tensor], mode: Mode
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """See `LuongAttention.weigh`; the state is the weights before, or their sum."""
        # k_s + U f_{t,s} + b, with f_t = F * a_{t-1}
        keys = ops.expand_dims(keys, 1)  # [B, 1, S, Hk]
        before = ops.cast(state[0], keys.dtype)  # [B, Q, S]
        batch_size, queries, length = ops.shape(before)
        rows = ops.reshape(before, (batch_size * queries, length, 1))
        kernel = ops.expand_dims(ops.cast(self.filter_kernel, rows.dtype), 1)
        f = ops.conv(rows, kernel, padding="same", data_format="channels_last")
        f = ops.reshape(f, (batch_size, queries, length, self.filters))
        keys = keys + mode.project(self.location_kernel, f, bias=self.location_bias)
        weights, scores, _ = super().weigh(query, keys, mask, (), mode)
        seen = ops.cast(weights, state[0].dtype)
        return weights, scores, [state[0] + seen if self.cumulative else seen]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "cumulative": self.cumulative,
        }
