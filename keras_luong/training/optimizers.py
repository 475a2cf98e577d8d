"""Optimizers, by name, with the paper's clipping of the global gradient norm.

Under a distribution strategy Keras clips each replica's gradient and adds them up then,
so that a norm of 5 means something else on two devices than on one. Here the replicas'
gradients are summed first: any number of them takes the same step.
"""

from __future__ import annotations

import contextlib

import keras


class _SumFirst:
    """Sums the gradients over replicas before anything else is done with them.

    Attributes:
        sums: False inside of a `LossScaleOptimizer`, which has done it already.
    """

    sums = True

    def apply(self, grads, trainable_variables=None):
        """As in Keras; the gradients are those of one replica."""
        if self.sums:
            grads = summed_over_replicas(grads)
        with _after(grads):
            super().apply(grads, trainable_variables)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars  # they are sums by now


def _after(gradients):
    """Holds back what does not wait for gradients by itself: the count of steps.

    Where data end, the step that finds none fails; but what needs no data may have run
    by then, and Keras's optimizers count one step too many an epoch.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.control_dependencies([g for g in gradients if g is not None])


def summed_over_replicas(gradients):
    """Gradients, some of which may be None, summed over a strategy's replicas.

    A word that occurs several times in a batch has several gradients, one row each.
    They become one: the norm that is clipped and the squares that Adam keeps are those
    of their sum.
    """
    gradients = list(gradients)
    if keras.backend.backend() != "tensorflow":
        return gradients
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return [_one_row_a_word(gradient) for gradient in gradients]
    there = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
    return [None if gradient is None else next(sums) for gradient in gradients]


def _one_row_a_word(gradient):
    import tensorflow as tf

    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    words, place = tf.unique(gradient.indices)
    count = tf.size(words)
    rows = tf.math.unsorted_segment_sum(gradient.values, place, count)
    return tf.IndexedSlices(rows, words, gradient.dense_shape)


@keras.saving.register_keras_serializable(package="keras_luong")
class SGD(_SumFirst, keras.optimizers.SGD):
    """`keras.optimizers.SGD` that clips the whole batch's gradient."""


@keras.saving.register_keras_serializable(package="keras_luong")
class Adam(_SumFirst, keras.optimizers.Adam):
    """`keras.optimizers.Adam` that clips the whole batch's gradient."""


@keras.saving.register_keras_serializable(package="keras_luong")
class LossScaleOptimizer(_SumFirst, keras.optimizers.LossScaleOptimizer):
    """`keras.optimizers.LossScaleOptimizer` that sees an overflow of any replica."""

    def __init__(self, inner_optimizer, **kwargs):
        super().__init__(inner_optimizer, **kwargs)
        inner_optimizer.sums = False


OPTIMIZERS = {"sgd": SGD, "adam": Adam}


def make_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    clip_norm: float | None = 5.0,
    loss_scaling: bool = False,
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer that rescales gradients above a global norm.

    Args:
        name: `"sgd"` (the paper's) or `"adam"`.
        learning_rate: A number, or a Keras schedule that goes by steps.
        clip_norm: The greatest global norm of the whole batch's gradient, 5 in the
            paper; None or 0 for no clipping.
        loss_scaling: Whether the loss is scaled such that its gradient fits float16.

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
    optimizer = OPTIMIZERS[name](learning_rate, global_clipnorm=clip_norm or None)
    return LossScaleOptimizer(optimizer) if loss_scaling else optimizer
