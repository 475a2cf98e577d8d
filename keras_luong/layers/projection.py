"""Products with what is the same at every step of a recurrence: weights and keys.

Shapes: B batch, Q queries, S source positions, W window, H units.

Whoever multiplies by such matrices does it only through the `project(weights, inputs)`
that it is handed, so that a recurrence can take their gradients out of its loop
(`keras_luong.layers.recurrence`). Outside of loops that is `matmul`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from keras import ops

from keras_luong.types import Tensor

#: A function like `matmul`.
Project: TypeAlias = Callable[..., Tensor]


def matmul(
    weights: Any,
    inputs: Any,
    transposed: bool = False,
    bias: Any = None,
    plus: Tensor | None = None,
) -> Tensor:
    """`inputs @ weights + bias + plus`: what a `project` does.

    Args:
        weights: A matrix [n, m]; a tuple of them, whose products are summed; or one
            for each sentence, [B, n, m]. They must be the same at every step of a
            recurrence.
        inputs: [..., n], a tuple of them, or [B, Q, n].
        transposed: Whether each sentence's matrix is given as [B, m, n].
        bias: [m], or None; or a function that returns it, so that a part of a variable
            is read only where it is added, and not in a loop that has it already.
        plus: A tensor that is added to the product, or None. `project(w, x) + plus` is
            the same, but a loop that is trained then keeps two arrays. In such a loop a
            size that is not known must be the product's own.

    Returns:
        [..., m] or [B, Q, m].

    Example:
        >>> weights, inputs = np.ones([3, 2], "float32"), np.ones([5, 4, 3], "float32")
        >>> tuple(kl.layers.matmul(weights, inputs).shape)
        (5, 4, 2)
        >>> tuple(kl.layers.matmul((weights, weights), (inputs, inputs)).shape)
        (5, 4, 2)
    """
    if isinstance(weights, tuple):
        products = [_flat_matmul(x, w) for w, x in zip(weights, inputs, strict=True)]
        product = functools.reduce(operator.add, products)
    elif len(weights.shape) == 2:
        product = _flat_matmul(inputs, weights)
    elif not transposed:
        product = ops.matmul(inputs, weights)
    elif inputs.shape[1] != 1:  # the dots let one sentence serve a whole batch
        product = ops.einsum("...qn,...mn->...qm", inputs, weights)
    else:  # of a step: turning one query and its product is cheaper than all keys
        turned = ops.matmul(weights, ops.transpose(inputs, (0, 2, 1)))
        product = ops.transpose(turned, (0, 2, 1))
    bias = bias() if callable(bias) else bias
    if bias is not None:
        product = product + ops.cast(bias, product.dtype)
    return product if plus is None else product + plus


def dot(query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
    """`hᵀ h̄` of queries [B, Q, H] with shared [B, S, H] or own [B, Q, W, H] keys.

    Args:
        query: [B, Q, H].
        key: The keys of all queries, [B, S, H], or each query's own, [B, Q, W, H].
        project: How to multiply by keys that no step changes, see `matmul`.

    Returns:
        [B, Q, S], or [B, Q, W] for keys of its own.

    Example:
        >>> query, key = np.ones([2, 4, 8], "float32"), np.ones([2, 5, 8], "float32")
        >>> tuple(kl.layers.dot(query, key).shape)
        (2, 4, 5)
    """
    if len(key.shape) == 3:
        return project(key, query, transposed=True)
    return ops.squeeze(own_products(key, ops.expand_dims(query, -1)), -1)


def own_products(x: Tensor, y: Tensor) -> Tensor:
    """Products [B, Q, n, k] of matrices [B, Q, n, m] and [B, Q, m, k], query by query.

    The first two axes are one in between: on a CPU, TensorFlow 2.21 may write beyond
    its memory in a product of four axes, and crash (tensorflow/tensorflow#117700).

    Args:
        x: [B, Q, n, m].
        y: [B, Q, m, k].
    """
    first, second = (ops.reshape(z, (-1, *ops.shape(z)[2:])) for z in (x, y))
    product = ops.matmul(first, second)
    return ops.reshape(product, (*ops.shape(x)[:2], *ops.shape(product)[1:]))


def _flat_matmul(x, weight):
    # Leading axes are flattened first: TensorFlow would otherwise broadcast the weights
    # over the batch, and so would their gradient.
    weight = ops.cast(weight, x.dtype)  # of mixed precision
    if len(x.shape) == 2:
        return ops.matmul(x, weight)
    product = ops.matmul(rows(x), weight)
    return ops.reshape(product, (*leading_axes(x), ops.shape(weight)[-1]))


def rows(x: Tensor) -> Tensor:
    """A tensor [..., n] with its leading axes as one: [rows, n]."""
    return ops.reshape(x, (-1, x.shape[-1]))


def leading_axes(x: Tensor) -> tuple[Any, ...]:
    """The sizes of all axes but the last, for a reshape back to them.

    One that is not known is -1, which takes less to compute than the size itself.
    """
    sizes = tuple(x.shape[:-1])
    if sizes.count(None) == 1 and 0 not in sizes:
        return tuple(-1 if size is None else size for size in sizes)
    return tuple(ops.shape(x)[:-1])
