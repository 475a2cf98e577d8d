"""The state of a beam search between two steps, and how decided sentences leave it.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, T longest hypothesis, P longest prefix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE
from keras_luong.decoding.pool import Pool, scattered

SHRINK_BELOW = 0.75  # decided sentences leave if the share of the others is below


class Sentences(NamedTuple):
    """The undecided sentences: all that does not change from step to step."""

    rows: tf.Tensor  # [A] their places in the whole batch
    limits: tf.Tensor  # [A] maximum lengths of their hypotheses
    least: tf.Tensor  # [A] minimum lengths
    prefix: tf.Tensor  # [A, P] their required first tokens
    mask: list[tf.Tensor]  # [A, S] source words; [] if no penalty needs it
    memory: Any  # nest of [A, ...]


class Beams(NamedTuple):
    """The open hypotheses; one with a log-probability of -inf is an empty place."""

    tokens: tf.Tensor  # [A, K] the last one of each
    log_probs: tf.Tensor  # [A, K]
    state: Any  # nest of [A, K, ...]
    coverage: list[tf.Tensor]  # [A, K, S] attention so far; [] if no penalty needs it
    written: list[tf.Tensor]  # [A, K, T] tokens so far; [] if no constraint needs them


class SearchState(NamedTuple):
    """The whole state; `decided` has the pools [B, N] of sentences that left."""

    time: tf.Tensor
    sentences: Sentences
    beams: Beams
    pool: Pool
    decided: Pool
    history: Any  # a History; None before the model's first step


def compacted(now: SearchState) -> SearchState:
    """Removes the decided sentences once there are enough of them."""
    is_open = tf.reduce_any(now.beams.log_probs > IMPOSSIBLE, axis=1)
    open_count = tf.math.count_nonzero(is_open, dtype=tf.int32)
    enough = tf.cast(tf.size(is_open), tf.float32) * SHRINK_BELOW
    follows = now.sentences, now.beams, now.pool

    def shrink():
        kept = tf.where(is_open)[:, 0]
        decided = scattered(now.decided, now.sentences.rows, now.pool)
        rest = tf.nest.map_structure(lambda x: tf.gather(x, kept), follows)
        return *rest, decided

    def stay():
        return tf.nest.map_structure(tf.identity, (*follows, now.decided))

    shrinks = (open_count > 0) & (tf.cast(open_count, tf.float32) <= enough)
    sentences, beams, pool, decided = tf.cond(shrinks, shrink, stay)
    return SearchState(now.time, sentences, beams, pool, decided, now.history)


def loop_shapes(now: SearchState) -> SearchState:
    """Returns the shapes of a loop whose number of sentences A changes."""

    def any_rows(x):
        return tf.TensorShape([None, *x.shape[1:]])

    sentences, beams, pool = tf.nest.map_structure(
        any_rows, (now.sentences, now.beams, now.pool)
    )
    decided = tf.nest.map_structure(lambda x: x.shape, now.decided)
    history = tf.nest.map_structure(lambda _: None, now.history)
    return SearchState(now.time.shape, sentences, beams, pool, decided, history)
