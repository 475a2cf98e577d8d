"""The output layer and its loss computed together, so that no step holds all logits.

The logits of a batch are by far its largest tensor, and their gradient is as large
again. Neither needs to exist as a whole: the loss is a sum over rows, so what a chunk
of rows adds to it and to the gradients is known as soon as its logits are. The gradient
is made on the way forward, which needs no second pass over the output layer.

`linear_crossentropy` is that loss (TensorFlow), `FusedModel` a functional model whose
`fit` and `evaluate` use it.

Shapes: B batch, T target length, N rows (target positions, B·T), H units, V vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_luong.compat import flat_layers, get_keras_mask, made_by, taping
from keras_luong.layers.recurrence import forgo_cudnn
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import TokenMean
from keras_luong.training.optimizers import innermost
from keras_luong.types import Tensor


class TokenScores(NamedTuple):
    """What losses and metrics need of logits, once the labels are known.

    Attributes:
        loss: The cross-entropy with label smoothing, float32.
        nll: Negative log-likelihood, float32.
        is_right: 1 where the label has the highest logit, else 0, float32.

    Example:
        >>> from keras_luong.training.fused_model import linear_crossentropy
        >>> features, kernel = tf.ones([1, 2]), tf.constant([[0.0, 1.0], [0.0, 1.0]])
        >>> labels, weights = tf.constant([1]), tf.constant([1.0])
        >>> _, scores = linear_crossentropy(features, kernel, labels, weights)
        >>> scores.is_right.numpy()
        array([1.], dtype=float32)
    """

    loss: tf.Tensor
    nll: tf.Tensor
    is_right: tf.Tensor


def linear_crossentropy(
    features: tf.Tensor,
    kernel: tf.Tensor | tf.Variable,
    labels: tf.Tensor,
    weights: tf.Tensor,
    label_smoothing: float = 0.0,
    transposed: bool = False,
    training: bool = True,
    chunk: int = 2**24,
    bias: tf.Tensor | tf.Variable | None = None,
) -> tuple[tf.Tensor, TokenScores]:
    """Cross-entropy of `softmax(features @ kernel)`, without ever holding all logits.

    Args:
        features: [N, H].
        kernel: [H, V]; or [V, H], an embedding, where `transposed`.
        labels: int32 [N].
        weights: Of the rows in the sum, float32 [N]; they have no gradient.
        label_smoothing: ε of `keras_luong.training.losses.token_nll`.
        transposed: Whether the kernel is an embedding.
        training: Whether gradients of the sum will be asked for.
        chunk: About how many logits are computed at once.
        bias: Of the logits, [V], or None.

    Returns:
        The weighted sum of the losses, float32, differentiable in features, kernel
        and bias if `training`; and the `TokenScores` of each row [N], which are not.

    Example:
        >>> from keras_luong.training.fused_model import linear_crossentropy
        >>> features, kernel = tf.ones([2, 4]), tf.zeros([4, 8])
        >>> labels, weights = tf.constant([1, 2]), tf.constant([0.5, 0.5])
        >>> total, scores = linear_crossentropy(features, kernel, labels, weights)
        >>> round(float(tf.exp(total)), 3)  # the perplexity
        8.0
    """
    kernel = tf.convert_to_tensor(kernel)
    if bias is not None:  # one unit more, which is always 1: the bias is its row
        axis = 1 if transposed else 0
        row = tf.expand_dims(tf.convert_to_tensor(bias), axis)
        kernel = tf.concat([kernel, row], axis)
        ones = tf.ones([tf.shape(features)[0], 1], features.dtype)
        features = tf.concat([features, ones], -1)
    weights = tf.convert_to_tensor(weights, tf.float32)
    # Half precision would lose gradients as small as the weights make them: inside, the
    # largest weight is 1, and its factor is multiplied in last.
    largest = tf.maximum(tf.reduce_max(tf.abs(weights)), 0.0)  # of no row: -inf
    relative = tf.math.divide_no_nan(weights, largest)

    @tf.custom_gradient
    def run(features, kernel):
        scores, gradients = _loss_in_chunks(
            (features, labels, relative),
            tf.cast(kernel, features.dtype),
            label_smoothing,
            transposed,
            training,
            chunk,
        )
        total = tf.reduce_sum(tf.where(weights != 0, weights * scores.loss, 0.0))

        def gradient(upstream, *_):
            factor = upstream * largest
            like = features, kernel
            return [
                tf.cast(factor * g, x.dtype)
                for g, x in zip(gradients, like, strict=True)
            ]

        return (total, *scores), gradient

    total, *scores = run(features, kernel)
    return total, TokenScores(*map(tf.stop_gradient, scores))


def _loss_in_chunks(rows, kernel, label_smoothing, transposed, training, chunk):
    """Scores of all rows, and gradients of their weighted sum, a chunk at a time.

    Args:
        rows: Features [N, H], labels [N], and the weights of their losses [N].
        kernel: [H, V], or [V, H] where `transposed`, in the features' dtype.
        label_smoothing: As of `linear_crossentropy`, like those that follow.
        transposed: Whether the kernel is an embedding.
        training: Whether to compute gradients.
        chunk: About how many logits are computed at once.

    Returns:
        `TokenScores`, each [N]; and in training the gradients of features and kernel,
        float32.
    """
    features, labels, _ = rows
    count = tf.shape(labels)[0]
    vocabulary = kernel.shape[0 if transposed else 1]
    chunks = tf.maximum(1, -(-count // max(1, chunk // vocabulary)))
    height = -(-count // chunks)  # rows of a chunk: of all chunks about the same

    def compute_chunk(i, kernel_gradient, *arrays):
        # 1. The logits of its rows, and what they mean for the labels.
        x, y, w = (part[i * height : (i + 1) * height] for part in rows)
        logits = tf.matmul(x, kernel, transpose_b=transposed)  # [n, V]
        scores, slope = _score_logits(logits, y, label_smoothing)
        made = [*scores]
        if training:
            # 2. The gradients with respect to the logits, features and kernel.
            dz = tf.cast(slope * w[:, None], kernel.dtype)  # [n, V]
            made.append(tf.matmul(dz, kernel, transpose_b=not transposed))  # [n, H]
            pair = (dz, x) if transposed else (x, dz)
            of_kernel = tf.matmul(*pair, transpose_a=True)  # like the kernel
            kernel_gradient += tf.cast(of_kernel, tf.float32)
        written = [a.write(i, x) for a, x in zip(arrays, made, strict=True)]
        return i + 1, kernel_gradient, *written

    dtypes = [tf.float32] * 3 + [features.dtype] * training
    arrays = [tf.TensorArray(dtype, chunks, infer_shape=False) for dtype in dtypes]
    zero = tf.zeros_like(kernel, tf.float32) if training else tf.zeros([])
    _, kernel_gradient, *arrays = tf.while_loop(
        lambda i, *_: i < chunks,
        compute_chunk,
        (0, zero, *arrays),
        parallel_iterations=1,
    )
    made = [array.concat() for array in arrays]
    scores = TokenScores(*(tf.ensure_shape(x, labels.shape) for x in made[:3]))
    if not training:
        return scores, ()
    features_gradient = tf.ensure_shape(made[3], features.shape)
    return scores, (tf.cast(features_gradient, tf.float32), kernel_gradient)


def _score_logits(logits, labels, label_smoothing):
    """`TokenScores`, and the gradient of the losses with respect to logits [N, V]."""
    logits = tf.cast(logits, tf.float32)
    is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    p = tf.nn.softmax(logits)  # several times as fast as TensorFlow's own loss
    # -log p is `z' - z - log p'` with the z' and p' of any word: here of the most
    # probable, whose p' is never tiny.
    highest = tf.reduce_max(logits, axis=-1)
    nll_of_highest = -tf.math.log(tf.reduce_max(p, axis=-1))
    nll = highest - tf.gather(logits, labels, batch_dims=1) + nll_of_highest
    loss, slope = nll, p
    if label_smoothing:
        to_uniform = highest - tf.reduce_mean(logits, axis=-1) + nll_of_highest
        loss = (1.0 - label_smoothing) * nll + label_smoothing * to_uniform
        slope -= label_smoothing / logits.shape[-1]
    place = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)
    certain = tf.fill(tf.shape(labels), 1.0 - label_smoothing)
    slope = tf.tensor_scatter_nd_sub(slope, place, certain)
    return TokenScores(loss, nll, tf.cast(is_right, tf.float32)), slope


class FusedModel(keras.Model):
    """A functional model that never holds all logits of a batch while it trains.

    On TensorFlow, compiled with a `SequenceCrossentropy` and no metrics but this
    library's, `fit` and `evaluate` compute the output layer and the loss together, see
    `linear_crossentropy`. With any other loss, metric or backend, where XLA compiles
    the step (it would have to know how many chunks there are), and in a subclass with a
    `call`, `compute_loss` or output layer of its own, they are Keras's own, with the
    same results.

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
        self._with_cudnn_again = lambda: None

    def output_weights(self) -> tuple[Tensor, bool]:
        """The output layer's matrix, and whether it is an embedding [V, H]."""
        raise TypeError(f"{type(self).__name__} must define the method output_weights")

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
        """
        if keras.backend.backend() == "tensorflow" and jit_compile == "auto":
            jit_compile = False
        undo, self._with_cudnn_again = self._with_cudnn_again, lambda: None
        undo()
        if jit_compile is True:
            self._with_cudnn_again = forgo_cudnn(flat_layers(self))
        metrics = [] if metrics is None else metrics  # None keeps former ones
        fused = _can_be_fused(self, loss, metrics, kwargs)
        options = {"metrics": metrics, "jit_compile": jit_compile, **kwargs}
        super().compile(optimizer=optimizer, loss=loss, **options)
        self._fused = fused

    def compile_from_config(self, config: dict[str, Any]) -> None:
        """Compiles a loaded model as it was: Keras leaves out one with a `compile`."""
        self.compile(**keras.saving.deserialize_keras_object(config))
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
        with taping():
            if not self._fused or self.jit_compile:
                return super().train_step(*args)
            return self._fused_train_step(*args)

    def _fused_train_step(self, *args):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(*args)
        with tf.GradientTape() as tape:
            loss, scores = self._fused_loss(x, y, sample_weight, training=True)
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
        loss, scores = self._fused_loss(x, y, sample_weight, training=False)
        return self._report(loss, scores, y)

    def _fused_loss(self, x, y, sample_weight, training):
        """The batch's loss, and the `TokenScores` of its words [N]."""
        # 1. All but the output layer.
        features = self._compute_features(x, training=training)  # [B, T, H]
        # 2. The weight of each word, as Keras has it: none where a mask is.
        weights = ops.ones_like(y) if sample_weight is None else sample_weight
        if len(weights.shape) < len(y.shape):
            weights = ops.broadcast_to(weights[:, None], ops.shape(y))
        weights, mask = ops.cast(weights, "float32"), get_keras_mask(features)
        if mask is not None:
            weights *= ops.cast(mask, "float32")  # [B, T]
        # 3. The output layer and the loss.
        kernel, transposed = self.output_weights()
        loss, scores = linear_crossentropy(
            ops.reshape(features, (-1, features.shape[-1])),
            kernel,
            ops.reshape(ops.cast(y, "int32"), (-1,)),
            ops.reshape(weights, (-1,)),
            self.loss.label_smoothing,
            transposed,
            training,
            self.loss.chunk,
            self.output_bias(),
        )
        # Replicas are summed, and each has all of the losses that layers add.
        return loss + sum(self.losses) / _replicas(), scores

    def _report(self, loss, scores, y, accumulated=None):
        """Adds a batch to what `fit` reports, and returns the figures by name."""
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


def _replicas():
    return tf.distribute.get_strategy().num_replicas_in_sync


def _can_be_fused(model, loss, metrics, options):
    """Whether the output layer and the loss can be computed together."""
    if keras.backend.backend() != "tensorflow":
        return False
    # 1. The loss is a `SequenceCrossentropy`, and not computed in its own way.
    if (
        not isinstance(loss, SequenceCrossentropy)
        or type(loss).call is not SequenceCrossentropy.call
        or type(loss).__call__ is not keras.losses.Loss.__call__
        or loss.chunk is None
        or loss.reduction != "sum"
        or options.get("loss_weights")
    ):
        return False
    # 2. The metrics are computed from `TokenScores`, and not in a way of their own.
    if (
        not isinstance(metrics, (list, tuple))
        or not all(isinstance(metric, TokenMean) for metric in metrics)
        or any(type(x).update_state is not TokenMean.update_state for x in metrics)
        or options.get("weighted_metrics")
    ):
        return False
    # 3. The model computes what its graph does.
    for name in ("__call__", "call", "compute_loss", "compute_metrics"):
        method = getattr(getattr(model, name), "__func__", None)
        if method is not getattr(model._graph_class, name):
            return False
    # 4. Logits are features times `output_weights`, plus `output_bias`, no more.
    layer, (kernel, transposed) = made_by(model.outputs[0]), model.output_weights()
    bias = model.output_bias()
    if transposed:
        plain = isinstance(layer, keras.layers.ReversibleEmbedding) and bias is None
        plain = plain and layer.tie_weights and layer.logit_soft_cap is None
        return plain and layer.embeddings is kernel
    plain = isinstance(layer, keras.layers.Dense) and layer.bias is bias
    plain = plain and layer.activation is keras.activations.linear
    return plain and layer.kernel is kernel
