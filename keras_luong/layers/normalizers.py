"""Normalizers: what makes attention weights of scores.

A normalizer is a function of scores [..., N] and a mask that broadcasts to them. Its
weights are at least float32, exactly 0 where the mask is False, and sum to 1 where the
mask is True of any finite score.

Shapes: N source positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import keras
from keras import ops

from keras_luong.checks import check_choice
from keras_luong.layers.inputs import combined_masks
from keras_luong.layers.memory import weights_dtype
from keras_luong.types import Tensor

#: What half precision may have overflowed to is brought back between these.
LOWEST, HIGHEST = -3.4e38, 3.4e38

#: A function like `masked_softmax`.
Normalizer: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def masked_logits(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores, finite, and at least float32: the lowest where `mask` is False."""
    scores = ops.minimum(ops.cast(scores, weights_dtype(scores.dtype)), HIGHEST)
    return scores if mask is None else ops.where(mask, scores, LOWEST)


def masked_softmax(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax over the last axis; exactly 0 where `mask` is False.

    A row without any True is all zeros (`keras.layers.Attention` makes it uniform).

    Args:
        scores: [..., N] of any floating dtype; -inf for a weight of 0 too, but not in
            all of a row. What overflows in half precision is the highest number; +inf
            in float32 makes NaN, as in Keras.
        mask: bool, broadcasts to the scores; True everywhere by default.

    Returns:
        float32 [..., N]; float64 where the scores are.

    Example:
        >>> scores, mask = np.zeros([3], "float32"), np.array([True, True, False])
        >>> keras.ops.convert_to_numpy(kl.masked_softmax(scores, mask))
        array([0.5, 0.5, 0. ], dtype=float32)
    """
    dtype = weights_dtype(scores.dtype)
    if keras.backend.standardize_dtype(scores.dtype) != dtype:
        # What overflowed half precision upwards wins; downwards, it is as if masked.
        scores = ops.minimum(ops.cast(scores, dtype), HIGHEST)
        mask = combined_masks(scores > LOWEST, mask)
    if mask is None:
        return _softmax(scores)
    # The lowest number, as -inf would make NaN of a row without any True. There the
    # softmax is uniform, and the second `where` makes zeros of it.
    weights = _softmax(ops.where(mask, scores, LOWEST))
    return ops.where(mask, weights, 0.0)


def _softmax(scores):
    if scores.shape[-1] == 1:  # a source of one token, where Keras's softmax warns
        return ops.exp(scores - scores)
    return ops.softmax(scores, axis=-1)


def sparsemax(scores: Tensor, mask: Tensor) -> Tensor:
    """The nearest point of the simplex: many weights are exactly 0.

    Martins & Astudillo 2016 (arXiv:1602.02068), Eq. 1 and Algorithm 1: `p_s = max(z_s -
    τ, 0)`, with τ so that the weights sum to 1.

    Args:
        scores: [..., N] of any floating dtype.
        mask: bool, broadcasts to the scores.

    Returns:
        float32 [..., N]; float64 where the scores are.

    Example:
        >>> scores, mask = np.array([0.5, 0.0, -2.0], "float32"), np.ones([3], bool)
        >>> keras.ops.convert_to_numpy(kl.sparsemax(scores, mask))
        array([0.75, 0.25, 0.  ], dtype=float32)
        >>> attention = kl.LuongAttention("general", normalizer="sparsemax")
    """
    z = _below_the_highest(scores, mask)
    ordered, rank = _ordered(z)
    supported = 1 + rank * ordered > ops.cumsum(ordered, axis=-1)
    inside = z >= _smallest(ordered, supported)
    size = _count(inside, z.dtype)
    threshold = (_sum(ops.where(inside, z, 0.0)) - 1) / size
    return ops.where(mask, ops.relu(z - threshold), 0.0)


def entmax15(scores: Tensor, mask: Tensor) -> Tensor:
    """Entmax with α = 1.5, between softmax and sparsemax.

    Peters, Niculae & Martins 2019 (arXiv:1905.05702), Algorithm 2: `p_s = max(z_s/2 -
    τ, 0)²`, with τ so that the weights sum to 1.

    Args:
        scores: [..., N] of any floating dtype.
        mask: bool, broadcasts to the scores.

    Returns:
        float32 [..., N]; float64 where the scores are.

    Example:
        >>> scores, mask = np.array([0.0, 0.0, -3.0], "float32"), np.ones([3], bool)
        >>> keras.ops.convert_to_numpy(kl.entmax15(scores, mask)).round(2)
        array([0.5, 0.5, 0. ], dtype=float32)
        >>> attention = kl.LuongAttention("general", normalizer="entmax15")
    """
    z = _below_the_highest(scores, mask, scale=0.5)
    ordered, rank = _ordered(z)
    mean = ops.cumsum(ordered, axis=-1) / rank
    squares = ops.cumsum(ops.square(ordered), axis=-1)
    spread = squares - rank * ops.square(mean)
    supported = ordered >= mean - ops.sqrt(ops.relu((1 - spread) / rank))
    inside = z >= _smallest(ordered, supported)
    # The threshold once more, of those inside alone, as gradients are to see it.
    size = _count(inside, z.dtype)
    mean = _sum(ops.where(inside, z, 0.0)) / size
    spread = _sum(ops.where(inside, ops.square(z - mean), 0.0))
    threshold = mean - ops.sqrt(ops.maximum((1 - spread) / size, 1e-12))
    return ops.where(mask, ops.square(ops.relu(z - threshold)), 0.0)


def _below_the_highest(scores, mask, scale=1.0):
    """Scores minus their maximum, clipped at -2: weights are 0 from -1 down."""
    scores = masked_logits(scores, mask)
    peak = ops.max(scores, axis=-1, keepdims=True, initial=LOWEST)
    below = scale * (scores - ops.stop_gradient(peak))
    return ops.where(mask, ops.maximum(below, -2.0), -2.0)


def _ordered(z):
    """The scores from the highest on, without a gradient; 1, 2, 3, ... beside them."""
    ordered = -ops.sort(-ops.stop_gradient(z), axis=-1)
    return ordered, ops.cast(ops.arange(ops.shape(z)[-1]) + 1, z.dtype)


def _smallest(ordered, supported):
    """The lowest score that has a weight."""
    lowest = ops.where(supported, ordered, 0.0)
    return ops.min(lowest, axis=-1, keepdims=True, initial=0.0)


def _sum(x):
    return ops.sum(x, axis=-1, keepdims=True)


def _count(inside, dtype):
    return ops.maximum(_sum(ops.cast(inside, dtype)), 1.0)


def hardened(weights: Tensor) -> Tensor:
    """All of the weight [..., N] at the highest, the first of several; zeros stay."""
    highest = ops.max(weights, axis=-1, keepdims=True, initial=0.0)
    # Not argmax, for which Keras has operations on bits that LiteRT lacks.
    winners = ops.logical_and(weights == highest, highest > 0)
    places = ops.cumsum(ops.cast(winners, "int32"), axis=-1)
    return ops.cast(ops.logical_and(winners, places == 1), weights.dtype)


NORMALIZERS: dict[str, Normalizer] = {
    "softmax": masked_softmax,
    "sparsemax": sparsemax,
    "entmax15": entmax15,
}


def get_normalizer(normalizer: str | Normalizer | None) -> Normalizer:
    """The function of that name, or `normalizer` itself; softmax for None.

    Raises:
        ValueError: There is none of that name.
        TypeError: It is neither a name nor a function.
    """
    if normalizer is None:
        return masked_softmax
    if isinstance(normalizer, str):
        return NORMALIZERS[check_choice("normalizer", normalizer, NORMALIZERS)]
    if callable(normalizer):
        return normalizer
    raise TypeError(
        f"normalizer must be one of {list(NORMALIZERS)} or a function of scores and "
        f"mask. Received: {normalizer!r}"
    )
