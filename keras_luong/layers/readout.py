"""Deep output (Pascanu et al. 2014): a maxout layer between a decoder and the softmax.

Shapes: O maxout units.
"""

from __future__ import annotations

from keras import ops


def maxout(x):
    """The larger of each pair: [..., 2 O] -> [..., O] (Goodfellow et al. 2013)."""
    pairs = ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // 2, 2))
    return ops.maximum(pairs[..., 0], pairs[..., 1])  # of no row too
