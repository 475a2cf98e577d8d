"""Local attention: each query looks at a window of the source (section 3.2).

Shapes: B batch, Q queries, S source positions, D half-window, W = 2D + 1 places of the
window, Hq/Hv query/value units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_choice, check_flag, check_size
from keras_luong.layers.attention import LuongAttention, attention_weights
from keras_luong.layers.base import Kernel
from keras_luong.layers.cells import dropped
from keras_luong.layers.memory import Memory, weights_dtype
from keras_luong.layers.normalizers import LOWEST, hardened, masked_logits
from keras_luong.layers.projection import own_products
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.layers.scores import Score
from keras_luong.types import Tensor

ALIGNMENTS = ("monotonic", "predictive")


@keras.saving.register_keras_serializable(package="keras_luong")
class LocalAttention(LuongAttention):
    """Local attention of Luong, Pham & Manning 2015, section 3.2, Eq. 9 and 10.

    Each query attends to the window `⌊p_t⌋ - D ... ⌊p_t⌋ + D` around an aligned
    position p_t; what lies outside the sentence is dropped, and the softmax runs over
    the rest. Work and memory per query are O(D), however long the source is. (Where a
    decoder's loop is trained, each step also adds up a gradient of the whole source.)

    * `alignment="monotonic"` (local-m): `p_t = t`, the query's own position, or the
      sentence's last if that is beyond it.
    * `alignment="predictive"` (local-p): `p_t = S sigmoid(v_pᵀ tanh(W_p h_t))` (Eq. 9),
      S the sentence's own length; then each weight is multiplied by `exp(-(s - p_t)² /
      2σ²)`, σ = D/2 (Eq. 10), so that p_t can be learned. As in the authors' code the
      products are not normalised again.

    Weights: the score's, and for local-p `position_kernel` [Hq, units] (W_p) and
    `position_scale` [units] (v_p).

    Args:
        window: D, half the width of the window; 10 in the paper.
        alignment: "predictive" or "monotonic".
        score_mode: As in `LuongAttention`, but not "location", which does not compare
            with the source.
        units: Width of W_p, and of the "concat" and "reduced_rank" scores; the query's
            size by default (half the smaller side for "reduced_rank").
        gaussian: Whether to multiply by Eq. 10; by default local-p does and local-m
            does not.
        renormalize: Whether the weights are made to sum to 1 again after it.
        **kwargs: `dropout`, `normalizer`, `hard`, `coverage`, `seed`,
            `kernel_initializer`, `kernel_regularizer`, `kernel_constraint` as in
            `LuongAttention`, `name`, `dtype`.

    Call arguments:
        Those of `LuongAttention`; local-m depends on `positions`. Sources are padded
        on one side, and have one axis of positions, [B, S, Hv].

    Returns:
        The context [B, Q, Hv]; with `return_attention_scores`, also the weights,
        float32 [B, Q, S], zeros outside the windows; with `return_logits`, then the
        scores, before Eq. 10, and float32's lowest, -3.4e38, outside the windows.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> states, memory = np.random.rand(2, 4, 8), np.random.rand(2, 30, 8)
        >>> attention = kl.LocalAttention(window=10, alignment="predictive")
        >>> tuple(attention(states, memory).shape)
        (2, 4, 8)
    """

    source_axes = 1  # a window is a stretch of a line
    _compares = True

    position_kernel = Kernel()

    def __init__(
        self,
        window: int = 10,
        alignment: str = "predictive",
        score_mode: str | Score = "general",
        units: int | None = None,
        gaussian: bool | None = None,
        renormalize: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(score_mode, units, **kwargs)
        self.window = check_size("window", window)
        self.alignment = check_choice("alignment", alignment, ALIGNMENTS)
        if gaussian is not None:
            check_flag("gaussian", gaussian)
        self.gaussian = gaussian
        self.renormalize = check_flag("renormalize", renormalize)

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Builds the score, and makes the weights of Eq. 9."""
        super().build(query_shape, value_shape, key_shape)
        if self.alignment == "predictive":
            query_units = self._sizes[0]
            units = self.units or query_units
            self.position_kernel = self.add_kernel(
                "position_kernel", query_units, units
            )
            self.position_scale = self.add_kernel("position_scale", units)

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
        """See `LuongAttention.attend`; `positions` are needed for local-m."""
        if memory.values.shape[1] == 0:
            raise ValueError(
                "Local attention needs a source of at least one position, padding or "
                f"not. Received: value.shape={tuple(memory.values.shape)}"
            )
        # 1. The window ⌊p_t⌋ - D ... ⌊p_t⌋ + D: where it starts, perhaps before the
        # sentence; its places, moved into the source; which of them are words.
        centres = self._centres(query, positions, memory, mode.project)
        source_length = ops.shape(memory.values)[1]
        start = ops.expand_dims(ops.cast(ops.floor(centres), "int32"), -1) - self.window
        place = start + ops.arange(2 * self.window + 1, dtype="int32")
        index = moved_into(place, source_length)  # [B, Q, W]
        inside = index == place
        if memory.mask is not None:
            word = gather(ops.expand_dims(memory.mask, -1), index)
            inside = ops.logical_and(inside, ops.squeeze(word, -1))
        if attention_mask is not None:
            shape = (*ops.shape(inside)[:2], source_length)
            allowed = ops.broadcast_to(attention_mask, shape)
            allowed = ops.take_along_axis(allowed, index, axis=-1)
            inside = ops.logical_and(inside, allowed)
        # 2. Eq. 7 over the window, then Eq. 10.
        keys = gather(memory.keys, index)  # [B, Q, W, Hk]
        if self.coverage:
            coverage = ops.take_along_axis(state[0], index, axis=-1)
            keys = self._with_coverage(keys, coverage)
        weights, scores = attention_weights(
            query, keys, inside, self.score, self.normalizer, mode.project
        )
        predictive = self.alignment == "predictive"
        if predictive if self.gaussian is None else self.gaussian:
            weights = weights * gaussian(index, centres, self.window)
        if self.renormalize:
            total = ops.sum(weights, axis=-1, keepdims=True)
            weights = weights / ops.where(total > 0, total, 1.0)
        if self.hard and not mode.training:
            weights = hardened(weights)
        # 3. The context, of the window alone; its dropout is [B, 1, S] for all queries.
        noise = mode.noise.attention
        if noise is not None:
            noise = ops.squeeze(gather(ops.swapaxes(noise, 1, 2), index), -1)
        values = gather(memory.values, index)  # [B, Q, W, Hv]
        kept = ops.expand_dims(ops.cast(dropped(weights, noise), values.dtype), 2)
        context = ops.squeeze(own_products(kept, values), 2)
        # 4. Weights at their places in the source: [B, Q, S].
        weights = scatter(weights, start, source_length)
        state = [past + ops.cast(weights, past.dtype) for past in state]
        if not return_logits:
            return context, weights, state
        logits = masked_logits(scores, inside)
        logits = scatter(logits, start, source_length, LOWEST)
        return context, weights, state, logits

    def _centres(self, query, positions, memory, project):
        """p_t of every query: Eq. 9, or t for local-m; `weights_dtype` [B, Q].

        Both count from the first word, wherever that is.
        """
        dtype = weights_dtype(query.dtype)
        lengths, first = (
            ops.expand_dims(ops.cast(x, dtype), 1)
            for x in (memory.lengths, memory.first)
        )
        if self.alignment == "monotonic":
            last = ops.maximum(lengths - 1, 0.0)
            return first + ops.minimum(ops.cast(positions, dtype), last)
        hidden = ops.tanh(project(self.position_kernel, query))
        scale = ops.cast(self.position_scale, dtype)
        logit = ops.sum(ops.cast(hidden, dtype) * scale, axis=-1)
        return first + lengths * ops.sigmoid(logit)

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """One row [B, 1, S] for all queries: a row each would cost O(S) per query."""
        return super().draw_noise((shape[0], 1, shape[2]), training)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "window": self.window,
            "alignment": self.alignment,
            "gaussian": self.gaussian,
            "renormalize": self.renormalize,
        }


def moved_into(place: Tensor, size: Any) -> Tensor:
    """The nearest of 0 ... size - 1: int, of the place's shape.

    Not `ops.clip`: from 0 to 6, LiteRT's converter takes it for Relu6, of floats.
    """
    return ops.where(place < 0, 0, ops.where(place < size, place, size - 1))


def gather(x: Tensor, index: Tensor) -> Tensor:
    """Rows of x [B, S, n] at index [B, Q, W]: -> [B, Q, W, n]."""
    batch_size, length = ops.shape(x)[:2]
    first = ops.reshape(ops.arange(batch_size, dtype="int32"), (-1, 1, 1)) * length
    flat = ops.reshape(x, (batch_size * length, x.shape[-1]))
    return ops.take(flat, index + first, axis=0)


def scatter(
    weights: Tensor, start: Tensor, source_length: Any, outside: float = 0.0
) -> Tensor:
    """Weights of windows [B, Q, W] at their places in the source: [B, Q, S].

    Reads, for every source position, its place in the window: nothing is added up.
    Where there is none, it is `outside`.
    """
    width = weights.shape[-1]
    place = ops.arange(source_length, dtype="int32") - start
    inside = (place >= 0) & (place < width)
    moved = ops.take_along_axis(weights, moved_into(place, width), axis=-1)
    return ops.where(inside, moved, outside)


def gaussian(positions: Tensor, centres: Tensor, half: int) -> Tensor:
    """`exp(-(s - p_t)² / 2σ²)` with σ = D/2 (Eq. 10), in the centres' dtype.

    Args:
        positions: s, int [B, Q, W].
        centres: p_t, float32 or float64 [B, Q].
        half: D, int.
    """
    distance = ops.cast(positions, centres.dtype) - ops.expand_dims(centres, -1)
    return ops.exp(-ops.square(distance) / (2 * (half / 2) ** 2))
