"""Forced decoding: how probable a model finds given targets.

Shapes: B batch, S source length, T target length, V vocabulary.
"""

from __future__ import annotations

import tensorflow as tf

from keras_luong.decoding.cast_once import cast_once
from keras_luong.decoding.hypotheses import Hypotheses, Written, collect
from keras_luong.decoding.stepping import (
    StepModel,
    check_source_ids,
    check_target_ids,
    keep_shapes,
    split_log_softmax,
    token_counts,
)
from keras_luong.special_ids import BOS_ID, PAD_ID


def force(model: StepModel, source_ids: tf.Tensor, target_ids: tf.Tensor) -> Hypotheses:
    """Scores a given target for each source, by the same `step` as every search.

    Args:
        model: A `StepModel`.
        source_ids: int32 [B, S], right-padded with `PAD_ID`.
        target_ids: int32 [B, T], `T >= 1`, without the begin token, usually up to and
            with the end token, right-padded with `PAD_ID`.

    Returns:
        `Hypotheses` with `N = 1`: the targets themselves, their log-probabilities
        (which are the scores too), and the attention at each of their tokens.

    Raises:
        ValueError: If the ids are not of these shapes.

    Example:
        >>> hypotheses = force(model, source_ids, target_ids)
        >>> hypotheses.log_probs[:, 0]
    """
    source_ids = check_source_ids(source_ids)
    target_ids = check_target_ids("target_ids", target_ids, source_ids)
    with cast_once(model):
        return _force(model, source_ids, target_ids)


def _force(model, source_ids, target_ids):
    memory, state = model.encode(source_ids)
    length = tf.shape(target_ids)[1]

    def read(time, state, total, written):
        before = target_ids[:, tf.maximum(time - 1, 0)]
        before = tf.where(time > 0, before, BOS_ID)
        logits, new_state, weights = model.step(before[:, None], state, memory)
        now = target_ids[:, time][:, None]
        gain = _log_prob(tf.cast(logits, tf.float32), now)
        total += tf.where(now != PAD_ID, gain, 0.0)
        written = written.write(time, now, tf.cast(weights, tf.float32), total)
        return time + 1, keep_shapes(new_state, state), total, written

    shape = [source_ids.shape[0], 1, source_ids.shape[1]]  # of unknown rank too
    total = tf.zeros([tf.shape(source_ids)[0], 1])
    start = tf.constant(0), state, total, Written.empty(shape, length)
    end = tf.while_loop(lambda time, *_: time < length, read, start)
    _, _, total, written = end
    lengths = token_counts(target_ids)[:, tf.newaxis]
    return collect(*written.first(length), lengths=lengths, scores=total)


def _log_prob(logits: tf.Tensor, tokens: tf.Tensor) -> tf.Tensor:
    """Returns the log-probability of tokens [B, 1] by logits [B, 1, V]."""
    normalisers, _ = split_log_softmax(logits)
    return tf.gather(logits, tokens, batch_dims=2) - tf.squeeze(normalisers, axis=-1)
