"""`fit` of a model whose output layer is trained together with its loss.

The output layer and its cross-entropy in one, a few rows at a time (TensorFlow).

The logits of a batch are by far its largest tensor, and their gradient is as large
again. Neither needs to exist as a whole: the loss is a sum over rows, so what a chunk
of rows adds to it and to the gradients is known as soon as its logits are. The gradient
is made on the way forward, which needs no second pass over the output layer.

Shapes: N rows (target positions), H units, V vocabulary.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import ops

from keras_luong.compat import flat_layers, get_keras_mask, made_by
from keras_luong.layers.recurrence import forgo_cudnn
from keras_luong.training.losses import SequenceCrossentropy
from keras_luong.training.metrics import TokenMean
from keras_luong.training.optimizers import innermost
from keras_luong.types import Tensor


class TokenScores(NamedTuple):
    """What losses and metrics need of logits, once the labels are known.

    Attributes:
        loss: The cross-entropy with label smoothing, float32; with R-Drop, plus its
            part of the divergence.
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
    r_drop: float = 0.0,
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
        r_drop: α of R-Drop, see `keras_luong.training.losses.SequenceCrossentropy`. If
            not 0, rows 2i and 2i + 1 are the same position, with different dropout.
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
    if bias is not None:
        features, kernel = _with_bias(features, kernel, bias, transposed)
    weights = tf.convert_to_tensor(weights, tf.float32)
    # Half precision would lose gradients as small as the weights make them: inside, the
    # largest weight is 1, and its factor is multiplied in last.
    largest = tf.maximum(tf.reduce_max(tf.abs(weights)), 0.0)  # of no row: -inf
    relative = tf.math.divide_no_nan(weights, largest)

    @tf.custom_gradient
    def run(features, kernel):
        rows = _Rows(features, labels, relative)
        scores, gradients = _in_chunks(
            rows, kernel, label_smoothing, transposed, training, chunk, r_drop
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

    total, *scores = run(features, tf.convert_to_tensor(kernel))
    return total, TokenScores(*map(tf.stop_gradient, scores))


def _with_bias(features, kernel, bias, transposed):
    """Features and kernel with one unit more, which is 1 and has the bias's row."""
    ones = tf.ones([tf.shape(features)[0], 1], features.dtype)
    axis = 1 if transposed else 0
    row = tf.expand_dims(tf.convert_to_tensor(bias), axis)
    kernel = tf.concat([tf.convert_to_tensor(kernel), row], axis)
    return tf.concat([features, ones], -1), kernel


class _Rows(NamedTuple):
    """The rows of a batch, or of a chunk of it."""

    features: tf.Tensor
    labels: tf.Tensor
    weights: tf.Tensor


def _in_chunks(rows, kernel, label_smoothing, transposed, training, chunk, r_drop):
    """-> `TokenScores` of all rows; gradients of the weighted sum, float32."""
    kernel = tf.cast(kernel, rows.features.dtype)
    count = tf.shape(rows.labels)[0]
    size = kernel.shape[0 if transposed else 1]
    chunks = tf.maximum(1, -(-count // max(1, chunk // size)))
    height = -(-count // chunks)  # of all chunks about the same
    if r_drop:
        height += height % 2  # pairs stay together

    def body(i, kernel_gradient, *arrays):
        part = tf.nest.map_structure(lambda x: x[i * height : (i + 1) * height], rows)
        found, of_kernel = _of_chunk(
            part, kernel, label_smoothing, transposed, training, r_drop
        )
        written = [a.write(i, x) for a, x in zip(arrays, found, strict=True)]
        return i + 1, kernel_gradient + of_kernel, *written

    arrays = [tf.TensorArray(tf.float32, chunks, infer_shape=False) for _ in range(3)]
    if training:
        array = tf.TensorArray(rows.features.dtype, chunks, infer_shape=False)
        arrays.append(array)
    zero = tf.zeros_like(kernel, tf.float32) if training else tf.zeros([])
    _, kernel_gradient, *arrays = tf.while_loop(
        lambda i, *_: i < chunks, body, (0, zero, *arrays), parallel_iterations=1
    )
    made = [array.concat() for array in arrays]
    scores = TokenScores(*(tf.ensure_shape(x, rows.labels.shape) for x in made[:3]))
    if not training:
        return scores, ()
    features_gradient = tf.ensure_shape(made[3], rows.features.shape)
    return scores, (tf.cast(features_gradient, tf.float32), kernel_gradient)


def _of_chunk(rows, kernel, label_smoothing, transposed, training, r_drop):
    """-> [scores, and in training the features' gradient]; the kernel's gradient."""
    logits = tf.matmul(rows.features, kernel, transpose_b=transposed)
    scores, backprop = _of_logits(logits, rows.labels, label_smoothing, r_drop)
    if not training:
        return [*scores], 0.0
    dz = tf.cast(backprop * rows.weights[:, None], kernel.dtype)
    of_features = tf.matmul(dz, kernel, transpose_b=not transposed)
    pair = (dz, rows.features) if transposed else (rows.features, dz)
    of_kernel = tf.cast(tf.matmul(*pair, transpose_a=True), tf.float32)
    return [*scores, of_features], of_kernel


def _of_logits(logits, labels, label_smoothing, r_drop):
    """-> `TokenScores`, and the gradient of the losses with respect to the logits."""
    logits = tf.cast(logits, tf.float32)
    is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
    p = tf.nn.softmax(logits)  # several times as fast as TensorFlow's own loss
    # -log p is `z' - z - log p'` with the z' and p' of any word: here of the most
    # probable, whose p' is never tiny.
    highest = tf.reduce_max(logits, axis=-1)
    nll_of_highest = -tf.math.log(tf.reduce_max(p, axis=-1))
    nll = highest - tf.gather(logits, labels, batch_dims=1) + nll_of_highest
    loss = nll
    backprop = p
    if label_smoothing:
        to_uniform = highest - tf.reduce_mean(logits, axis=-1) + nll_of_highest
        loss = (1.0 - label_smoothing) * nll + label_smoothing * to_uniform
        backprop -= label_smoothing / logits.shape[-1]
    if r_drop:
        log_p = logits - (highest + nll_of_highest)[:, None]
        divergence, slope = _divergence(log_p, p)
        loss += 0.5 * r_drop * divergence
        backprop += 0.5 * r_drop * slope
    place = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)
    certain = tf.fill(tf.shape(labels), 1.0 - label_smoothing)
    backprop = tf.tensor_scatter_nd_sub(backprop, place, certain)
    return TokenScores(loss, nll, tf.cast(is_right, tf.float32)), backprop


def _divergence(log_p, p):
    """How far pairs of rows are apart, `½ (KL(p‖q) + KL(q‖p))`, and its slope.

    Args:
        log_p: [N, V].
        p: Its exponential.

    Returns:
        For each row that of its pair, [N]; and the gradient of its sum over all rows
        with respect to the logits [N, V].
    """
    pairs = [-1, 2, p.shape[-1]]
    first, second = tf.unstack(tf.reshape(p, pairs), axis=1)
    difference = tf.subtract(*tf.unstack(tf.reshape(log_p, pairs), axis=1))
    to_second = tf.reduce_sum(first * difference, axis=-1, keepdims=True)
    to_first = tf.reduce_sum(second * -difference, axis=-1, keepdims=True)
    slopes = [
        first * (difference + (1.0 - to_second)) - second,
        second * ((1.0 - to_first) - difference) - first,
    ]
    both = tf.repeat((to_second + to_first) / 2.0, 2)
    return both, tf.reshape(tf.stack(slopes, axis=1), tf.shape(p))


class FusedModel(keras.Model):
    """A functional model that never holds all logits of a batch while it trains.

    On TensorFlow, compiled with a `SequenceCrossentropy` and no metrics but this
    library's, `fit` and `evaluate` compute the output layer and the loss together, see
    `keras_luong.training.fused_model`. With any other loss, metric or backend,
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
            forgo_cudnn(flat_layers(self))
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
