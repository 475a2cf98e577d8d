"""Optimizers, by name, with the paper's clipping of the global gradient norm.

Gradient accumulation and the moving average of the weights are Keras's own;
`MovingAverage` puts that average in the weights' place for validation. Under a
distribution strategy Keras clips each replica's gradient and then adds them up, so that
a norm of 5 means something else on two devices than on one. Here the replicas'
gradients are summed first, so the step does not depend on the number of replicas. The
optimizers here also record the norms.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_luong.checks import (
    check_choice,
    check_not_negative,
    check_rate,
    check_size,
)
from keras_luong.compat import (
    learning_rate_as_given,
    replicas_update_alone,
    variable_key,
)
from keras_luong.types import Logs, Tensor

if keras.backend.backend() == "tensorflow":
    import tensorflow as tf
else:  # the optimizers do without it
    tf = None


class _SumFirst(keras.optimizers.Optimizer):
    """An optimizer that sums gradients over the replicas before anything else.

    Attributes:
        sums: Whether it sums. False inside a `LossScaleOptimizer`, which sums itself.
        norms: float32 [2]: the sum of the gradients' global norms before clipping, and
            their number, both since they were last set to zero. Made by `build`.
    """

    sums = True

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Makes the optimizer's variables, outside of the step, where XLA cannot."""
        with contextlib.nullcontext() if tf is None else tf.init_scope():
            if not self.built:
                self.norms = self.add_variable(
                    (2,), name="norms", aggregation="only_first_replica"
                )
            vectors = filter(_is_vector, variables)
            self._vectors = {variable_key(self, v) for v in vectors}
            super().build(variables)

    def apply(
        self,
        grads: Iterable[Tensor | None],
        trainable_variables: Sequence[keras.Variable] | None = None,
    ) -> None:
        """Updates the variables; the gradients are those of one replica."""
        grads = summed_over_replicas(grads) if self.sums else list(grads)
        # At the end of an epoch a step starts and fails, as there is no more data.
        # Without waiting, the step counter, which needs no data, would count that step.
        there = [g for g in grads if g is not None]
        wait = (
            contextlib.nullcontext() if tf is None else tf.control_dependencies(there)
        )
        with wait:
            super().apply(grads, trainable_variables)

    def _backend_apply_gradients(
        self,
        grads: Sequence[Tensor | None],
        trainable_variables: Sequence[keras.Variable],
    ) -> None:
        steps = self.gradient_accumulation_steps
        if not steps or _is_only_replica() or replicas_update_alone():
            return super()._backend_apply_gradients(grads, trainable_variables)

        # Keras decides in each replica whether to step, and TensorFlow lets no replica
        # wait for the others within a branch. So all of them decide together.
        def decide(strategy, *arguments):
            each = strategy.extended.call_for_each_replica

            def step() -> None:
                each(self._step_with_accumulated, arguments)

            def wait() -> None:
                each(self._accumulate, arguments)

            ops.cond((self._iterations + 1) % steps == 0, step, wait)

        together = tf.distribute.get_replica_context().merge_call
        together(decide, args=(grads, trainable_variables))
        if self.use_ema:
            self._update_model_variables_moving_average(self._trainable_variables)

    def _accumulated(self, variables):
        indices = map(self._get_variable_index, variables)
        return [self._accumulated_gradients[index] for index in indices]

    def _accumulate(self, grads, variables):
        accumulated = self._accumulated(variables)
        self._backend_increment_gradient_accumulators(grads, accumulated)

    def _step_with_accumulated(self, grads, variables):
        steps = self.gradient_accumulation_steps
        pairs = zip(grads, self._accumulated(variables), strict=True)
        grads = self._clip_gradients([(g + more) / steps for g, more in pairs])
        self._apply_weight_decay(variables)
        self._backend_update_step(grads, variables, self.learning_rate)
        self._backend_reset_gradient_accumulators()

    def _get_current_learning_rate(self) -> Tensor:
        # Keras's own counts batches, of which several may make one update.
        schedule = learning_rate_as_given(self)
        if isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            return schedule(self.iterations)
        return super()._get_current_learning_rate()

    def _use_weight_decay(self, variable: keras.Variable) -> bool:
        # By key: names of a replica's variables differ from those in `build`.
        is_matrix = variable_key(self, variable) not in self._vectors
        return is_matrix and super()._use_weight_decay(variable)

    def _all_reduce_sum_gradients(self, grads_and_vars: Any) -> Any:
        return grads_and_vars  # summed already

    def _clip_gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        # Keras's own clipping would turn an embedding's sparse gradient into a tensor
        # of the whole vocabulary. Here even a NaN in the norm reaches only its rows.
        there = [g.values if _is_rows(g) else g for g in grads if g is not None]
        squares = [ops.sum(ops.square(values)) for values in there]
        norm = ops.cast(ops.sqrt(ops.sum(ops.stack(squares))), "float32")
        self.norms.assign_add(ops.stack([norm, 1.0]))
        limit = self.global_clipnorm
        if not limit:
            return super()._clip_gradients(grads)
        # A norm of NaN or infinity makes the scale NaN.
        scale = limit * ops.minimum(1.0 / norm, 1.0 / limit) + (norm - norm)
        return [
            None if g is None else ops.multiply(g, ops.cast(scale, g.dtype))
            for g in grads
        ]


def _is_vector(variable: keras.Variable) -> bool:
    """Tells whether it is a bias or gain; those of gates may have two axes."""
    return len(variable.shape) < 2 or variable.name in ("bias", "gamma")


def _is_rows(gradient: Tensor) -> bool:
    """Tells whether it is a sparse gradient: only some rows of an embedding's."""
    return tf is not None and isinstance(gradient, tf.IndexedSlices)


def summed_over_replicas(gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Sums gradients over a strategy's replicas.

    A word that occurs several times in a batch has one row per occurrence in a sparse
    gradient. These are summed too, so that clipping and Adam's squares use their sum.

    Args:
        gradients: The gradients of one replica; None for a variable without one.

    Returns:
        The sums, in the same order.

    Example:
        >>> from keras_luong.training.optimizers import summed_over_replicas
        >>> [total] = summed_over_replicas([tf.constant([1.0, 2.0])])  # of one replica
        >>> total.numpy()
        array([1., 2.], dtype=float32)
    """
    gradients = list(gradients)
    if tf is None:
        return gradients
    if _is_only_replica():
        return [x if not _is_rows(x) else _one_row_a_word(x) for x in gradients]
    context = tf.distribute.get_replica_context()
    there = [tf.convert_to_tensor(g) for g in gradients if g is not None]
    sums = iter(context.all_reduce(tf.distribute.ReduceOp.SUM, there))
    return [None if gradient is None else next(sums) for gradient in gradients]


def _one_row_a_word(gradient: Tensor) -> Tensor:
    words, place = tf.unique(gradient.indices)
    rows = tf.math.unsorted_segment_sum(gradient.values, place, tf.size(words))
    return tf.IndexedSlices(rows, words, gradient.dense_shape)


def _is_only_replica() -> bool:
    context = None if tf is None else tf.distribute.get_replica_context()
    return context is None or context.num_replicas_in_sync == 1


@keras.saving.register_keras_serializable(package="keras_luong")
class SGD(_SumFirst, keras.optimizers.SGD):
    """The optimizer `keras.optimizers.SGD`, clipping the whole batch's gradient.

    Args:
        **kwargs: As for `keras.optimizers.SGD`.

    Example:
        >>> from keras_luong.training.optimizers import SGD
        >>> optimizer = SGD(1.0, global_clipnorm=5.0)
    """


@keras.saving.register_keras_serializable(package="keras_luong")
class Adam(_SumFirst, keras.optimizers.Adam):
    """The optimizer `keras.optimizers.Adam`, clipping the whole batch's gradient.

    Args:
        **kwargs: As for `keras.optimizers.Adam`.

    Example:
        >>> from keras_luong.training.optimizers import Adam
        >>> optimizer = Adam(1e-3, beta_2=0.98, global_clipnorm=5.0)
    """


@keras.saving.register_keras_serializable(package="keras_luong")
class LossScaleOptimizer(_SumFirst, keras.optimizers.LossScaleOptimizer):
    """A `keras.optimizers.LossScaleOptimizer` that sees overflows in all replicas.

    Args:
        inner_optimizer: The optimizer that steps: an `SGD` or `Adam` of this module.
        **kwargs: `initial_scale` and other arguments of
            `keras.optimizers.LossScaleOptimizer`.

    Example:
        >>> from keras_luong.training.optimizers import Adam, LossScaleOptimizer
        >>> optimizer = LossScaleOptimizer(Adam(1e-3), initial_scale=1024.0)
    """

    def __init__(
        self, inner_optimizer: keras.optimizers.Optimizer, **kwargs: Any
    ) -> None:
        super().__init__(inner_optimizer, **kwargs)
        inner_optimizer.sums = False

    def _stateful_handle_non_finite_grads(self) -> None:
        super()._stateful_handle_non_finite_grads()
        if self.inner_optimizer.gradient_accumulation_steps:
            # The batch counts, or all later steps would be of other batches than those
            # that were weighed together. This step has the batches after it, if any.
            self.inner_optimizer._backend_reset_gradient_accumulators()
            self.inner_optimizer._iterations.assign_add(1)


OPTIMIZERS = {"sgd": SGD, "adam": Adam}


def make_optimizer(
    name: str,
    learning_rate: float | keras.optimizers.schedules.LearningRateSchedule,
    clip_norm: float | None = 5.0,
    loss_scaling: bool = False,
    gradient_accumulation_steps: int = 1,
    ema_momentum: float | None = None,
    weight_decay: float | None = None,
    beta_2: float | None = None,
) -> keras.optimizers.Optimizer:
    """Makes a Keras optimizer that rescales gradients above a global norm.

    Args:
        name: `"sgd"` (the paper's) or `"adam"`.
        learning_rate: A number, or a Keras schedule of steps (batches that are
            accumulated count as one step).
        clip_norm: The greatest global norm of the whole batch's gradient, 5 in the
            paper; None or 0 for no clipping.
        loss_scaling: Whether to scale the loss so that its gradient fits float16.
        gradient_accumulation_steps: Batches whose mean gradient makes one step. It is
            that of one large batch if their weights say so, as `training_batches` does.
        ema_momentum: Momentum of an exponential moving average of the weights: `ema ←
            momentum · ema + (1 - momentum) · weights` after every batch (after Polyak &
            Juditsky 1992), see `keras_luong.training.optimizers`; None or 0 for no
            average.
        weight_decay: At each step, matrices shrink by this share times the learning
            rate (Loshchilov & Hutter 2019, arXiv:1711.05101). Biases, gains of
            normalisations and other vectors do not. None or 0 for no decay.
        beta_2: Adam's second decay rate; Keras's, 0.999, by default.

    Returns:
        A new optimizer. Make it inside the strategy's scope.

    Raises:
        TypeError: If `gradient_accumulation_steps` is no integer.
        ValueError: If the name is unknown, `clip_norm` or `weight_decay` is negative,
            `gradient_accumulation_steps` below 1, `ema_momentum` or `beta_2` not in [0,
            1), or `beta_2` is given for SGD, which has none.

    Example:
        >>> from keras_luong.training.optimizers import make_optimizer
        >>> make_optimizer("sgd", 1.0, clip_norm=5.0).global_clipnorm
        5.0
    """
    check_choice("optimizer", name, OPTIMIZERS)
    steps = check_size("gradient_accumulation_steps", gradient_accumulation_steps)
    momentum = check_rate("ema_momentum", ema_momentum or 0.0)
    if beta_2 is not None and name != "adam":
        raise ValueError(f"beta_2 is Adam's. Received: {beta_2!r} for {name!r}")
    moments = {} if beta_2 is None else {"beta_2": check_rate("beta_2", beta_2)}
    optimizer = OPTIMIZERS[name](
        learning_rate,
        global_clipnorm=check_not_negative("clip_norm", clip_norm or 0.0) or None,
        gradient_accumulation_steps=steps if steps > 1 else None,
        use_ema=momentum > 0,
        ema_momentum=momentum or 0.99,
        weight_decay=check_not_negative("weight_decay", weight_decay or 0.0) or None,
        **moments,
    )
    return LossScaleOptimizer(optimizer) if loss_scaling else optimizer


def innermost(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Returns the optimizer that steps, without the loss scaling around it.

    Args:
        optimizer: Any Keras optimizer.

    Example:
        >>> from keras_luong.training.optimizers import innermost, make_optimizer
        >>> type(innermost(make_optimizer("adam", 1e-3, loss_scaling=True))).__name__
        'Adam'
    """
    return getattr(optimizer, "inner_optimizer", optimizer)


class MovingAverage(keras.callbacks.Callback):
    """Validates, translates and saves with the average that the optimizer keeps.

    The average takes the weights' place when a validation begins, and gives it back in
    this callback's `on_epoch_end`: callbacks before it in the list see the average,
    those after it the weights that training goes on with. (Keras's `SwapEMAWeights`
    swaps by adding and subtracting, which rounds the weights, and only after the
    callbacks of the epoch's end have run.) When `fit` ends, Keras leaves the average in
    the model.

    Raises:
        ValueError: From `fit`, if the optimizer keeps no average.

    Example:
        >>> from keras_luong.training.optimizers import MovingAverage
        >>> from keras_luong.training.optimizers import make_optimizer
        >>> model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
        >>> model.compile(make_optimizer("adam", 1e-3, ema_momentum=0.999), "mse")
        >>> x, y = np.ones([4, 2]), np.ones([4, 1])
        >>> history = model.fit(x, y, validation_data=(x, y), verbose=0,
        ...                     callbacks=[MovingAverage()])
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: list[np.ndarray] | None = None

    def on_train_begin(self, logs: Logs = None) -> None:
        """Checks that there is an average."""
        if not innermost(self.model.optimizer).use_ema:
            raise ValueError(
                "MovingAverage needs an optimizer that keeps the average of the "
                "weights: make_optimizer(..., ema_momentum=0.999). Received: "
                f"{self.model.optimizer.name} with use_ema=False"
            )
        self._weights = None

    def on_test_begin(self, logs: Logs = None) -> None:
        """Puts the average in the place of the weights."""
        variables = self.model.trainable_variables
        self._weights = [keras.ops.convert_to_numpy(v) for v in variables]
        self.model.optimizer.finalize_variable_values(variables)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        """Puts the weights back."""
        if self._weights is None:
            raise ValueError("MovingAverage needs validation_data, once every epoch")
        for variable, value in zip(
            self.model.trainable_variables, self._weights, strict=True
        ):
            variable.assign(value)
        self._weights = None
