"""Optimizers, by name, with the paper's clipping of the global gradient norm."""

from __future__ import annotations

import keras

OPTIMIZERS = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}


def make_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    clip_norm: float | None = 5.0,
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer that rescales gradients above a global norm.

    Args:
        name: `"sgd"` (the paper's) or `"adam"`.
        learning_rate: A number, or a Keras schedule that goes by steps.
        clip_norm: The greatest global norm of the gradient, 5 in the paper; None or
            0 for no clipping.

    Returns:
        A new optimizer. Make it inside the strategy's scope.

    Raises:
        ValueError: If the name is unknown or `clip_norm` is negative.

    Example:
        >>> model.compile(make_optimizer("sgd", 1.0, clip_norm=5.0), loss)
    """
    if name not in OPTIMIZERS:
        raise ValueError(
            f"Unknown optimizer. Received: {name!r}, expected one of {list(OPTIMIZERS)}"
        )
    if clip_norm is not None and not clip_norm >= 0:
        raise ValueError(
            "clip_norm must be above 0, or None or 0 for no clipping. "
            f"Received: {clip_norm!r}"
        )
    return OPTIMIZERS[name](learning_rate, global_clipnorm=clip_norm or None)
