"""The output layer and its cross-entropy in one, a few rows at a time (TensorFlow).

The logits of a batch are by far its largest tensor, and their gradient is as large
again. Neither needs to exist as a whole: the loss is a sum over rows, so what a chunk
of rows adds to it and to the gradients is known as soon as its logits are. The gradient
is made on the way forward, which needs no second pass over the output layer.

Shapes: N rows (target positions), H units, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf


class TokenScores(NamedTuple):
    """What losses and metrics need of logits, once the labels are known.

    Attributes:
        loss: The cross-entropy with label smoothing, float32; with R-Drop, plus its
            part of the divergence.
        nll: Negative log-likelihood, float32.
        is_right: 1 where the label has the highest logit, else 0, float32.

    Example:
        >>> from keras_luong.training.linear_crossentropy import linear_crossentropy
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
        >>> from keras_luong.training.linear_crossentropy import linear_crossentropy
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
