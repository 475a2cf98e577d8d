"""The training loss: cross-entropy summed over the target tokens of a batch.

Shapes: B batch, T target length, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_rate, check_size
from keras_luong.types import Tensor


def token_nll(labels: Tensor, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Negative log-likelihood of every label, in float32 whatever the logits are.

    With smoothing ε it is `logsumexp(z) - (1-ε)·z_y - ε·mean(z)`, the
    cross-entropy against `(1-ε)·onehot(y) + ε·uniform` (Szegedy et al. 2016,
    arXiv:1512.00567), without ever making that dense distribution.

    Args:
        labels: Integer ids `[B, T]` (float32 whole numbers are taken too, as Keras
            casts labels to the loss's dtype).
        logits: Unnormalised scores `[B, T, V]`, any float dtype.
        label_smoothing: ε, at least 0 and below 1.

    Returns:
        float32 `[B, T]`.

    Example:
        >>> from keras_luong.training.losses import token_nll
        >>> nll = token_nll(np.array([[1]]), np.array([[[0.0, 0.0]]]))
        >>> round(float(nll[0, 0]), 4)  # log 2
        0.6931
    """
    logits = ops.cast(logits, "float32")
    # By way of float32, as Keras hands labels to a loss: the metrics then make the
    # very same graph nodes as the loss, and TensorFlow computes them once.
    labels = ops.cast(ops.cast(labels, "float32"), "int32")
    nll = ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    if not label_smoothing:
        return nll
    uniform = ops.logsumexp(logits, axis=-1) - ops.mean(logits, axis=-1)
    return (1.0 - label_smoothing) * nll + label_smoothing * uniform


@keras.saving.register_keras_serializable(package="keras_luong")
class SequenceCrossentropy(keras.losses.Loss):
    """The sum over tokens of `weight · nll`, from logits.

    The weights come in `sample_weight`, already divided by the number of target
    tokens in the whole global batch (see `text/batches.py`). The sum is then the
    mean per token, whatever the number of replicas and however unevenly the tokens
    fall on them. Without weights every label counts, padding too.

    The library's models, trained on TensorFlow, compute it together with their output
    layer, about `chunk` logits at a time, so that its memory does not grow with the
    batch (`keras_luong.training.fused_model`).

    Args:
        label_smoothing: ε of `token_nll`, at least 0 and below 1.
        chunk: Most logits at once. None for all of them, in the plain way.
        reduction: One of Keras's. `"sum"` is for weights that are divided by the number
            of words already, as those of `training_batches`;
            `"sum_over_batch_size"` is for `fit` on arrays.
        name: Name of the loss.

    Raises:
        TypeError, ValueError: If `label_smoothing` is no number in `[0, 1)`, or `chunk`
            no positive integer or None.

    Example:
        >>> loss = kl.SequenceCrossentropy(label_smoothing=0.1)
        >>> labels, logits = np.array([[6, 3]]), np.zeros([1, 2, 9])
        >>> total = loss(labels, logits, sample_weight=np.array([[0.5, 0.5]]))
        >>> round(float(total), 4)  # log 9
        2.1972
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        *,
        chunk: int | None = 2**24,
        reduction: str = "sum",
        name: str = "sequence_crossentropy",
    ) -> None:
        # float32 even where floatx is float16: ids up to 2**24 stay exact in it.
        super().__init__(name=name, reduction=reduction, dtype="float32")
        self.label_smoothing = check_rate("label_smoothing", label_smoothing)
        self.chunk = check_size("chunk", chunk, optional=True)

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        """Losses `[B, T]` from labels `[B, T]` and logits `[B, T, V]`."""
        return token_nll(y_true, y_pred, self.label_smoothing)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "label_smoothing": self.label_smoothing,
            "chunk": self.chunk,
        }
