"""`fit` of a model whose output layer is trained together with its loss."""

from __future__ import annotations

import warnings
from typing import Any

import keras
from keras import ops

from keras_luong.compat import flat_layers, get_keras_mask, made_by
from keras_luong.layers import cudnn
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import TokenMean
from keras_luong.training.optimizers import innermost
from keras_luong.types import Tensor


class FusedModel(keras.Model):
    """A functional model that never holds all logits of a batch while it trains.

    On TensorFlow, compiled with a `SequenceCrossentropy` and no metrics but this
    library's, `fit` and `evaluate` compute the output layer and the loss together, see
    `keras_luong.training.linear_crossentropy`. With any other loss, metric or backend,
    where XLA compiles the step (it would have to know how many chunks there are), and
    in a subclass with a `call`, `compute_loss` or output layer of its own, they are
    Keras's own, with the same results; but R-Drop is refused there.

    Args:
        inputs: Inputs of a functional model.
        features: What the output layer reads, [B, T, H].
        outputs: Logits [B, T, V].
        **kwargs: `name` and other arguments of `keras.Model`.

    A subclass has `output_weights`, and maybe an `output_bias`.

    Example:
        >>> from keras_luong.training.fused_model import FusedModel
        >>> class Tagger(FusedModel):
        ...     def output_weights(self):
        ...         return self.layers[-1].kernel, False
        >>> words = keras.Input([None], dtype="int32")
        >>> features = keras.layers.Embedding(9, 4)(words)
        >>> tags = keras.layers.Dense(5, use_bias=False)(features)
        >>> model = Tagger(words, features, tags)
        >>> model.compile("adam", kl.SequenceCrossentropy())
    """

    def __init__(self, inputs: Any, features: Any, outputs: Any, **kwargs: Any) -> None:
        super().__init__(inputs=inputs, outputs=outputs, **kwargs)
        # The model without its output layer. A method, so that Keras does not track its
        # layers a second time.
        graph = keras.Model(inputs, features)
        self._compute_features = graph.__call__
        self._graph_class = type(graph)  # of Keras

    def output_weights(self) -> tuple[Tensor, bool]:
        """The output layer's matrix, and whether it is an embedding [V, H]."""
        raise TypeError(f"{type(self).__name__} must say: def output_weights")

    def output_bias(self) -> Tensor | None:
        """The output layer's bias [V], if it has one."""
        return None

    def compile(
        self,
        optimizer: Any = "rmsprop",
        loss: Any = None,
        *,
        metrics: Any = None,
        jit_compile: bool | str = "auto",
        **kwargs: Any,
    ) -> None:
        """As `keras.Model.compile`, but TensorFlow uses XLA only if it is told to.

        XLA would compile a step for every length that a batch has.

        Raises:
            ValueError: The loss has an `r_drop`, and would be computed by Keras.
        """
        if keras.backend.backend() == "tensorflow" and jit_compile == "auto":
            jit_compile = False
        if jit_compile is True:
            cudnn.renounce(flat_layers(self))
        fused = _is_fused(loss, metrics or [], kwargs)
        own = _own_parts(self) if fused else []
        fused = fused and not own
        if jit_compile or not fused:
            received = f"jit_compile={jit_compile}, metrics={metrics}, overridden={own}"
            _refuse_r_drop(loss, received)
        options = {"metrics": metrics, "jit_compile": jit_compile, **kwargs}
        super().compile(optimizer=optimizer, loss=loss, **options)
        self._fused = fused

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was.

        Where a loss with R-Drop cannot be computed, the model stays uncompiled, with a
        warning: it needs no loss to translate.
        """
        options = keras.saving.deserialize_keras_object(config)
        try:
            self.compile(**options)
        except ValueError as error:
            warnings.warn(f"The model is not compiled. {error}", stacklevel=2)
            return
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    def make_train_function(self, force: bool = False) -> Any:
        """As in Keras; but makes the optimizer's variables first.

        TensorFlow would trace the function a second time after it has made them.
        """
        optimizer = self.optimizer
        is_tensorflow = keras.backend.backend() == "tensorflow"
        if is_tensorflow and optimizer is not None and not optimizer.built:
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def fit(self, *args: Any, class_weight: Any = None, **kwargs: Any) -> Any:
        """As `keras.Model.fit`, without `class_weight`.

        Raises:
            ValueError: `class_weight` is given. Keras looks for one class in each row
                of labels, and takes the place of the highest id of a sentence for it.
        """
        if class_weight is not None:
            raise ValueError(
                "class_weight is for one label in a row, and here each has a sentence "
                "of them. Give sample_weight [B, T], for instance the weight of each "
                f"label. Received: class_weight={class_weight!r:.200}"
            )
        return super().fit(*args, **kwargs)

    def train_step(self, *args: Any) -> dict[str, Tensor]:
        """One step of `fit`."""
        if not self._fused or self.jit_compile:
            return super().train_step(*args)
        import tensorflow as tf

        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        compute = self._loss_of_two if self.loss.r_drop else self._loss_of_one
        with tf.GradientTape() as tape:
            loss, scores = compute(x, y, sample_weight)
            scaled = self.optimizer.scale_loss(loss)
        weights = self.trainable_weights
        gradients = tape.gradient(scaled, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        accumulated = innermost(self.optimizer).gradient_accumulation_steps
        return self._report(loss, scores, y, accumulated)

    def test_step(self, *args: Any) -> dict[str, Tensor]:
        """One step of `evaluate`."""
        if not self._fused or self.jit_compile:
            return super().test_step(*args)
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        features = self._compute_features(x, training=False)
        weights = _per_token(sample_weight, y, features)
        loss, scores = self._loss_of(features, y, weights)
        return self._report(loss, scores, y)

    def _loss_of_one(self, x, y, sample_weight):
        features = self._compute_features(x, training=True)
        weights = _per_token(sample_weight, y, features)
        return self._loss_of(features, y, weights, training=True)

    def _loss_of_two(self, x, y, sample_weight):
        """R-Drop: each sentence twice, both predictions of a word in adjacent rows."""
        import tensorflow as tf

        twice = tf.nest.map_structure(lambda ids: ops.repeat(ids, 2, axis=0), x)
        features = self._compute_features(twice, training=True)
        weights = _per_token(sample_weight, y, features)
        batch_size, length = ops.shape(y)
        units = features.shape[-1]
        features = ops.reshape(features, (batch_size, 2, length, units))
        features = ops.swapaxes(features, 1, 2)
        pair = [ops.repeat(z, 2, axis=1) for z in (y, weights)]
        loss, scores = self._loss_of(features, pair[0], pair[1] / 2, training=True)
        return loss, tf.nest.map_structure(lambda score: score[::2], scores)

    def _loss_of(self, features, y, weights, training=False):
        from keras_luong.training.linear_crossentropy import linear_crossentropy

        kernel, transposed = self.output_weights()
        labels = ops.reshape(ops.cast(y, "int32"), (-1,))
        loss, scores = linear_crossentropy(
            ops.reshape(features, (-1, features.shape[-1])),
            kernel,
            labels,
            ops.reshape(weights, (-1,)),
            self.loss.label_smoothing,
            transposed,
            training,
            self.loss.chunk,
            self.loss.r_drop if training else 0.0,
            self.output_bias(),
        )
        # Replicas are summed, and each has all of the losses that layers add.
        return loss + sum(self.losses) / _replicas(), scores

    def _report(self, loss, scores, y, accumulated=None):
        """Adds a batch to what `fit` reports: -> figures by name."""
        import tensorflow as tf

        # A replica's loss is its part of the batch's, so its weight is the rows of the
        # whole batch. With Keras's weight, the replica's own rows, two replicas would
        # report another loss than one. Batches that are accumulated are weighed so that
        # the plain mean of their losses is the whole step's.
        rows = tf.cast(tf.shape(y)[0], tf.float32)
        replicas = _replicas()
        if replicas > 1:
            context = tf.distribute.get_replica_context()
            rows = context.all_reduce(tf.distribute.ReduceOp.SUM, rows)
        if accumulated:
            rows = tf.minimum(rows, 1.0)
        tracker, *groups = self.metrics
        tracker.update_state(loss * replicas, sample_weight=rows / replicas)
        for group in groups:  # at most one: the metrics that `compile` was given
            if not group.built:
                group.build(y, y)
            for metric in group.metrics:
                values = ops.reshape(getattr(scores, metric.score), ops.shape(y))
                metric.add(values, y)
        return self.get_metrics_result()


def _own_parts(model):
    """What a model computes otherwise than by its graph: names of attributes."""
    names = "__call__", "call", "compute_loss", "compute_metrics"
    own = [name for name in names if not _is_kerass(model, name)]
    return own if _has_plain_output(model) else [*own, "output_layer"]


def _is_kerass(model, name):
    method = getattr(getattr(model, name), "__func__", None)
    return method is getattr(model._graph_class, name)


def _has_plain_output(model):
    """Whether logits are features times `output_weights` and `output_bias`, no more."""
    layer, (kernel, transposed) = made_by(model.outputs[0]), model.output_weights()
    bias = model.output_bias()
    if transposed:
        plain = isinstance(layer, keras.layers.ReversibleEmbedding) and bias is None
        plain = plain and layer.tie_weights and layer.logit_soft_cap is None
        return plain and layer.embeddings is kernel
    plain = isinstance(layer, keras.layers.Dense) and layer.bias is bias
    plain = plain and layer.activation is keras.activations.linear
    return plain and layer.kernel is kernel


def _is_fused(loss, metrics, options):
    """Whether the output layer and the loss can be computed together."""
    return (
        keras.backend.backend() == "tensorflow"
        and _is_plain_loss(loss)
        and loss.chunk is not None
        and loss.reduction == "sum"
        and isinstance(metrics, (list, tuple))
        and all(map(_takes_scores, metrics))
        and not options.get("weighted_metrics")
        and not options.get("loss_weights")
    )


def _is_plain_loss(loss):
    """Whether a loss is a `SequenceCrossentropy`, and not computed in its own way."""
    kinds = SequenceCrossentropy, keras.losses.Loss
    return isinstance(loss, SequenceCrossentropy) and all(
        getattr(type(loss), name) is getattr(kind, name)
        for kind, name in zip(kinds, ("call", "__call__"), strict=True)
    )


def _refuse_r_drop(losses, options):
    for loss in keras.tree.flatten(losses):
        if getattr(loss, "r_drop", 0):
            raise ValueError(
                'r_drop needs one loss, with a chunk and reduction="sum", no metrics '
                "but this library's, TensorFlow without XLA, and a model that does not "
                "override how its loss is computed. Received: loss="
                f"{losses}, {loss.get_config()}, {options}, backend "
                f"{keras.backend.backend()}"
            )


def _per_token(weights, labels, features):
    """Weights as Keras takes them, float32 [B, T]: none where the features' mask is."""
    if weights is None:
        weights = ops.ones_like(labels)
    if len(weights.shape) < len(labels.shape):
        weights = ops.broadcast_to(weights[:, None], ops.shape(labels))
    weights, mask = ops.cast(weights, "float32"), get_keras_mask(features)
    if mask is None:
        return weights
    copies = ops.shape(mask)[0] // ops.shape(labels)[0]  # two, in R-Drop
    return weights * ops.cast(mask[::copies], "float32")


def _takes_scores(metric):
    """Whether a metric is computed from `TokenScores`, and not in a way of its own."""
    own = type(metric).update_state if isinstance(metric, TokenMean) else None
    return own is TokenMean.update_state


def _replicas():
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync
