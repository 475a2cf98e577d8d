"""The state of a beam search between two steps, and how decided sentences leave it.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, T longest hypothesis, P longest prefix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.hypotheses import IMPOSSIBLE
from keras_luong.decoding.lexical import Phrases, Progress
from keras_luong.decoding.pool import Pool

SHRINK_BELOW = 0.75  # decided sentences leave if the share of the others is below


class Sentences(NamedTuple):
    """The undecided sentences: all that does not change from step to step."""

    rows: tf.Tensor  # [A] their places in the whole batch
    limits: tf.Tensor  # [A, 1] maximum lengths of their hypotheses
    least: list[tf.Tensor]  # [A, 1] minimum lengths, each of which applies
    prefix: tf.Tensor  # [A, P] their required first tokens
    phrases: list[Phrases]  # what must occur in them; [] if nothing must
    mask: list[tf.Tensor]  # [A, 1, S] source words; [] if no penalty needs it
    memory: Any  # nest of [A, ...]


class Beams(NamedTuple):
    """The open hypotheses; one with a log-probability of -inf is an empty place."""

    tokens: tf.Tensor  # [A, K] the last one of each
    log_probs: tf.Tensor  # [A, K]
    state: Any  # nest of [A, K, ...]
    coverage: list[tf.Tensor]  # [A, K, S] attention so far; [] if no penalty needs it
    written: list[tf.Tensor]  # [A, K, T] tokens so far; [] if no constraint needs them
    progress: list[Progress]  # [A, K, ...] with the phrases; [] if there are none


class Ended(NamedTuple):
    """The hypotheses that are no longer open."""

    pool: Pool  # [A, N] those that finished
    cut: tf.Tensor  # [A, K] log-probabilities of those that the maximum length cut
    bonus: list[tf.Tensor]  # [A, K] what a coverage penalty adds to theirs; or []


class SearchState(NamedTuple):
    """The whole state; `decided` has the `ended` [B, ...] of sentences that left."""

    time: tf.Tensor
    sentences: Sentences
    beams: Beams
    ended: Ended
    decided: Ended
    places: tf.Tensor  # [B] of the batch's sentences among the undecided; or anything
    history: Any  # a History; None before the search knows what attention is like


def compacted(now: SearchState) -> SearchState:
    """Removes the decided sentences once there are enough of them."""
    is_open = tf.reduce_any(now.beams.log_probs > IMPOSSIBLE, axis=1)
    follows = now.sentences, now.beams, now.ended
    whole = now.decided, now.places

    def shrink():
        kept = tf.where(is_open)[:, 0]
        rest = tf.nest.map_structure(lambda x: tf.gather(x, kept), follows)
        rows = rest[0].rows
        places = tf.scatter_nd(
            rows[:, None], tf.range(tf.size(rows)), tf.shape(now.places)
        )
        return *rest, all_ended(now), places

    def stay():
        return tf.nest.map_structure(tf.identity, (*follows, *whole))

    shrinks = tf.reduce_mean(tf.cast(is_open, tf.float32)) <= SHRINK_BELOW
    sentences, beams, ended, decided, places = tf.cond(shrinks, shrink, stay)
    return SearchState(now.time, sentences, beams, ended, decided, places, now.history)


def all_ended(now: SearchState) -> Ended:
    """Returns the ended hypotheses of the whole batch, decided or not, [B, ...]."""
    rows = now.sentences.rows[:, None]
    return tf.nest.map_structure(
        lambda x, y: tf.tensor_scatter_nd_update(x, rows, y), now.decided, now.ended
    )


def loop_shapes(now: SearchState, compact: bool) -> SearchState:
    """Returns the shapes of a search's loop.

    Args:
        now: The state before it.
        compact: Whether the number of sentences A changes.
    """

    def in_loop(x):
        return tf.TensorShape([None, *x.shape[1:]]) if compact else x.shape

    sentences, beams, ended = tf.nest.map_structure(
        in_loop, (now.sentences, now.beams, now.ended)
    )
    # One position before the first step, if the source's length is not known.
    coverage = [x[:2].concatenate([None]) if x[2] == 1 else x for x in beams.coverage]
    beams = beams._replace(coverage=coverage)
    decided = tf.nest.map_structure(lambda x: x.shape, now.decided)
    history = tf.nest.map_structure(lambda _: None, now.history)
    return SearchState(
        now.time.shape, sentences, beams, ended, decided, now.places.shape, history
    )
