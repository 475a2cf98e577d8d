"""Greedy search: at every step the most probable token.

Shapes: `B` batch, `S` source length, `T'` length of the longest result.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.stepping import (
    IMPOSSIBLE,
    Hypotheses,
    StepModel,
    collect,
    keep_shapes,
    length_limits,
    next_token_log_probs,
    written,
)
from keras_luong.text.special_ids import BOS_ID, EOS_ID


class Path(NamedTuple):
    """The one hypothesis of each sentence."""

    tokens: tf.Tensor  # [B, 1] the last one
    log_probs: tf.Tensor  # [B, 1]
    lengths: tf.Tensor  # [B, 1]
    is_open: tf.Tensor  # [B, 1]
    state: Any  # nest of [B, 1, ...]


@dataclasses.dataclass(frozen=True)
class GreedySearch:
    """Takes the most probable token at every step, the lower id at a tie.

    The same as `BeamSearch(beam_width=1)`, without its options. A sentence ends with
    the end token, or at the maximum length as it is.

    Args:
        max_length: int, counting the end token; or None for twice the sentence's
            source length and 10.

    Raises:
        TypeError: if `max_length` is not an integer.
        ValueError: if `max_length` is below 1.

    Example:
        >>> hypotheses = GreedySearch(max_length=50)(model, source_ids)
        >>> hypotheses.ids[:, 0]
    """

    max_length: int | None = 100

    def __post_init__(self):
        """Refuse an impossible length."""
        check_size("max_length", self.max_length, optional=True)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Search.

        Args:
            model: a `StepModel`.
            source_ids: int32 `[B, S]`, right-padded with `PAD_ID`.

        Returns:
            `Hypotheses`, one per sentence; scores are log-probabilities.
        """
        source_ids = tf.cast(tf.convert_to_tensor(source_ids), tf.int32)
        memory, state = model.encode(source_ids)
        limits = length_limits(source_ids, self.max_length)[:, tf.newaxis]

        def advance(time, path, ids, weights, log_probs):
            logits, state, attention = model.step(path.tokens, path.state, memory)
            path = _extend(path, logits, keep_shapes(state, path.state), limits)
            ids = ids.write(time, path.tokens)
            weights = weights.write(time, tf.cast(attention, tf.float32))
            log_probs = log_probs.write(time, path.log_probs)
            return time + 1, path, ids, weights, log_probs

        def loop_body(time, path, *arrays):
            after = advance(time, path, *arrays)
            return *keep_shapes(after[:2], (time, path)), *after[2:]

        def any_open(time, path, *arrays):
            return tf.reduce_any(path.is_open)

        first = advance(tf.constant(0), *self._start(source_ids, state))
        steps, path, *arrays = tf.while_loop(any_open, loop_body, first)
        return collect(*written(arrays, steps), path.lengths, path.log_probs)

    def _start(self, source_ids, state):
        """Every sentence open, nothing written."""
        one = [tf.shape(source_ids)[0], 1]
        path = Path(
            tokens=tf.fill(one, BOS_ID),
            log_probs=tf.zeros(one),
            lengths=tf.zeros(one, tf.int32),
            is_open=tf.fill(one, True),
            state=state,
        )
        size = self.max_length or 2 * tf.shape(source_ids)[1] + 10
        shape = [source_ids.shape[0], 1]
        ids = tf.TensorArray(tf.int32, size, element_shape=shape)
        log_probs = tf.TensorArray(tf.float32, size, element_shape=shape)
        shape = [*shape, source_ids.shape[1]]
        weights = tf.TensorArray(tf.float32, size, element_shape=shape)
        return path, ids, weights, log_probs


def _extend(path, logits, state, limits):
    """Add the most probable token to the sentences that are still open."""
    ranked, normalisers = next_token_log_probs(logits)
    best, tokens = tf.math.top_k(ranked, 1)  # a tie: the lower id first
    gain = (best - normalisers)[..., 0]
    tokens = tokens[..., 0]
    log_probs = path.log_probs + tf.where(path.is_open, gain, 0.0)
    lengths = path.lengths + tf.cast(path.is_open, tf.int32)
    goes_on = (tokens != EOS_ID) & (lengths < limits) & (log_probs > IMPOSSIBLE)
    return Path(tokens, log_probs, lengths, path.is_open & goes_on, state)
