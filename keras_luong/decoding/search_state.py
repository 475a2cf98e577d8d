"""The state of a beam search between two steps, and how decided sentences leave it.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, T longest hypothesis, P longest prefix.

The choices of a beam search at each step, and the hypotheses that follow from them.

Shapes: B sentences, A of them undecided, K beam width, N hypotheses kept
per sentence, S source length, T steps taken.

The pool of a search's best finished hypotheses.

Shapes: B sentences, A of them undecided, K beam width, N hypotheses kept
per sentence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.lexical import Phrases, Progress
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    Written,
    collect,
    follow,
)
from keras_luong.special_ids import PAD_ID


class History(NamedTuple):
    """The choices of every step: a tree, in which a hypothesis is a path to the root.

    Tokens and attention are written once, and not moved when the beams change places.
    """

    written: Written  # of N = K
    parents: Any  # T x [B, K] the beam of the step before

    @classmethod
    def empty(
        cls, shape: list[int | None], attended: list[Any], steps: tf.Tensor
    ) -> History:
        """Returns a history without steps; see `Written.empty`."""
        parents = tf.TensorArray(tf.int32, steps, element_shape=shape)
        return cls(Written.empty(shape, attended, steps), parents)


def record(
    history: History, time: tf.Tensor, chosen: History, places: tf.Tensor | None
) -> History:
    """Returns the history with one more step.

    Args:
        history: The choices so far.
        time: int32, the number of the step.
        chosen: This step's choices, tensors [A, K, ...].
        places: int32 [B], which of them are the whole batch's sentences'; None if no
            sentence has left it. What is recorded of a sentence that has left is never
            read.
    """
    if places is not None:
        chosen = tf.nest.map_structure(lambda x: tf.gather(x, places), chosen)
    written = history.written.write(time, chosen.written)
    return History(written, history.parents.write(time, chosen.parents))


def trace_back(
    pool: Pool, history: History, steps: tf.Tensor, pad_id: int = PAD_ID
) -> Hypotheses:
    """Reads the pool's hypotheses from the history, from last token to first.

    Args:
        pool: The places of their last tokens.
        history: The choices of every step.
        steps: int32, the number of steps.
        pad_id: What fills the ids up.
    """
    shape = history.parents.element_shape
    lengths, slots = pool.places // shape[1] + 1, pool.places % shape[1]

    def read(time, slots, written):
        time -= 1
        chosen = tf.nest.map_structure(lambda a: a.read(time), history.written)
        written = written.write(time, follow(chosen, slots))
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        slots = tf.where(time < lengths, parents, slots)
        return time, slots, written

    attended = [x.element_shape[2:] for x in history.written.weights]
    written = Written.empty([shape[0], slots.shape[1]], attended, steps)
    start = steps, slots, written
    _, _, written = tf.while_loop(lambda time, *_: time > 0, read, start)
    return collect(written.stack(), lengths, pool.scores, pad_id)


class Pool(NamedTuple):
    """A sentence's N best finished hypotheses, best first; empty places score -inf.

    The pool only has the place of a hypothesis's last token; the history has the rest.
    """

    scores: tf.Tensor  # [A, N]
    places: tf.Tensor  # int32 [A, N], K times the last token's step, plus its beam

    def first(self, number: int) -> Pool:
        """Returns a pool of no more than its first hypotheses."""
        if self.scores.shape[1] == number:
            return self
        return Pool(self.scores[:, :number], self.places[:, :number])

    def score(self, number: int) -> tf.Tensor:
        """Returns the score of a hypothesis, the best of which is number 1: [A, 1]."""
        if self.scores.shape[1] == 1:
            return self.scores
        return self.scores[:, number - 1 : number]


def offer(pool: Pool, others: Pool) -> Pool:
    """Returns the best of both by score; at a tie, the pool's own.

    Args:
        pool: N hypotheses per sentence.
        others: K other hypotheses per sentence, in any order.
    """
    both = _joined(pool, others)
    scores, best = tf.math.top_k(both.scores, pool.scores.shape[1])
    return Pool(scores, follow(both.places, best))


def fill(pool: Pool, others: Pool) -> Pool:
    """Fills the pool's empty places with the best of the others, behind its own."""
    size = pool.scores.shape[1]
    others = follow(others, tf.math.top_k(others.scores, size).indices)
    taken = tf.math.count_nonzero(
        pool.scores > IMPOSSIBLE, axis=1, keepdims=True, dtype=tf.int32
    )
    place = tf.range(size)
    chosen = tf.where(place < taken, place, size + place - taken)
    return follow(_joined(pool, others), chosen)


def _joined(pool, others):
    return tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)


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
