"""The coverage loss: attention that goes where it has been costs something.

Shapes: B batch, T target length, S source length.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_not_negative
from keras_luong.compat import get_keras_mask
from keras_luong.layers.checked_layer import UncastLayer
from keras_luong.types import Tensor


def coverage_loss(weights: Tensor) -> Tensor:
    """`Σ_s min(a_t(s), Σ_{t'<t} a_t'(s))`: attention to what had attention already.

    See, Liu & Manning 2017 (arXiv:1704.04368), Eq. 12.

    Args:
        weights: Attention weights [B, T, S].

    Returns:
        float32 [B, T].

    Example:
        >>> from keras_luong.layers.coverage_loss import coverage_loss
        >>> loss = coverage_loss(np.array([[[0.5, 0.5], [0.0, 1.0]]]))
        >>> keras.ops.convert_to_numpy(loss)
        array([[0. , 0.5]], dtype=float32)
    """
    weights = ops.cast(weights, "float32")
    before = ops.cumsum(weights, axis=1) - weights
    return ops.sum(ops.minimum(weights, before), axis=-1)


@keras.saving.register_keras_serializable(package="keras_luong")
class CoverageLoss(UncastLayer):
    """Adds the coverage loss of some attention weights to a model's loss.

    What goes through it comes out as it was. The loss that is added is `factor` times
    the mean of `coverage_loss` over the target words; on several replicas, the mean of
    the replicas' means.

    Args:
        factor: Its weight beside the cross-entropy; See et al. use 1 once training has
            converged.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

    Call arguments:
        outputs: Anything, such as contexts [B, T, Hv].
        weights: Attention weights [B, T, S].
        mask: bool [B, T], True at target words; by default the Keras mask of `outputs`
            or, where they have none, of `weights`; else all are.

    Returns:
        `outputs`, with their Keras mask.

    Raises:
        TypeError, ValueError: `factor` is no number, or negative or not finite.

    Example:
        >>> states, memory = np.random.rand(2, 4, 8), np.random.rand(2, 5, 8)
        >>> attention = kl.LuongAttention("general", coverage=True)
        >>> context, weights = attention(states, memory, return_attention_scores=True)
        >>> loss = kl.CoverageLoss(1.0)
        >>> context = loss(context, weights)  # what it is, and the loss beside it
        >>> len(loss.losses)
        1
    """

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.factor = check_not_negative("factor", factor)

    def call(self, outputs: Any, weights: Tensor, mask: Tensor | None = None) -> Any:
        """See the class."""
        _check(outputs, weights, mask)
        losses = coverage_loss(weights)
        if mask is None:  # Keras itself looks for masks of several tensors elsewhere
            mask = get_keras_mask(outputs)
        if mask is None:
            mask = get_keras_mask(weights)
        counted = ops.ones_like(losses) if mask is None else ops.cast(mask, "float32")
        words = ops.maximum(ops.sum(counted), 1.0)
        self.add_loss(self.factor * ops.sum(losses * counted) / words)
        return outputs

    def compute_mask(self, outputs: Any, previous_mask: Any = None) -> Any:
        """That of `outputs`, whatever words the loss counts."""
        return keras.tree.map_structure(get_keras_mask, outputs)

    def compute_output_spec(
        self, outputs: Any, weights: Tensor, mask: Any = None
    ) -> Any:
        """That of `outputs`."""
        _check(outputs, weights, mask)
        return keras.tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), outputs
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "factor": self.factor}


def _check(outputs, weights, mask):
    for x in keras.tree.flatten(outputs):
        if not hasattr(x, "shape"):
            raise TypeError(
                "outputs must be a tensor or an array, or a list or dict of them. "
                f"Received: {x!r} among them"
            )
    check_axes(
        weights=(weights, "batch size", "target length", None),
        mask=(mask, "batch size", "target length"),
    )
