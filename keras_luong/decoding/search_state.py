"""What a beam search keeps from step to step: open hypotheses, a pool, a history.

A loop of TensorFlow carries tensors alone, so what an option needs is a list: of one
tensor where the option is on, and empty where it is off.

Shapes: B sentences, A of them undecided, S source length, K beam width, N hypotheses
kept of a sentence, T longest hypothesis, P longest prefix.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    any_rows,
    follow,
    where,
)
from keras_luong.special_ids import PAD_ID

SHRINK_BELOW = 0.75  # decided sentences leave if the share of the others is below


class SearchState(NamedTuple):
    """The state of a search's loop."""

    time: tf.Tensor  # the number of steps taken
    sentences: Sentences
    beams: Beams
    ended: Ended
    decided: Ended  # [B, ...] of the sentences that left the batch
    places: tf.Tensor  # [B] of the batch's sentences among the undecided
    history: History


class Sentences(NamedTuple):
    """The undecided sentences: all that does not change from step to step."""

    rows: tf.Tensor  # [A] their places in the whole batch
    limits: tf.Tensor  # [A, 1] maximum lengths of their hypotheses
    least: list[tf.Tensor]  # [A, 1] minimum lengths
    prefix: tf.Tensor  # [A, P] their required first tokens
    phrases: list[Any]  # the `Phrases` that must occur in them
    mask: list[tf.Tensor]  # [A, 1, S] source words, for a coverage penalty
    memory: Any  # nest of [A, ...]


class Beams(NamedTuple):
    """The open hypotheses; one with a log-probability of -inf is an empty place."""

    tokens: tf.Tensor  # [A, K] the last one of each
    log_probs: tf.Tensor  # [A, K]
    state: Any  # nest of [A, K, ...], the model's
    coverage: list[tf.Tensor]  # [A, K, S] attention so far, for a coverage penalty
    past: list[tf.Tensor]  # [A, K, T] all tokens so far, for `no_repeat_ngram`
    progress: list[Any]  # the `Progress` [A, K, ...] with the phrases


class Ended(NamedTuple):
    """The hypotheses that are no longer open."""

    pool: Pool  # [A, N] those that finished
    cut: tf.Tensor  # [A, K] log-probabilities of those that the maximum length cut
    bonus: list[tf.Tensor]  # [A, K] what a coverage penalty adds to theirs


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


class Written(NamedTuple):
    """The tokens, log-probabilities and attention of each step, or of one step.

    They are arrays while a search writes, then tensors with all steps.
    """

    ids: Any  # T x [B, N]
    log_probs: Any  # T x [B, N] of the hypothesis so far
    weights: list[Any]  # T x [B, N, S], if the model has attention


class History(NamedTuple):
    """The choices of every step: a tree, in which a hypothesis is a path to the root.

    Tokens and attention are written once, and not moved when the beams change places.
    """

    written: Written  # of N = K
    parents: Any  # T x [B, K] the beam of the step before


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


def remove_decided(now: SearchState) -> SearchState:
    """Removes the decided sentences once there are enough of them."""
    is_open = tf.reduce_any(now.beams.log_probs > IMPOSSIBLE, axis=1)  # [A]

    def shrink():
        kept = tf.where(is_open)[:, 0]
        sentences, beams, ended = tf.nest.map_structure(
            lambda x: tf.gather(x, kept), (now.sentences, now.beams, now.ended)
        )
        rows = sentences.rows
        places = tf.scatter_nd(
            rows[:, None], tf.range(tf.size(rows)), tf.shape(now.places)
        )
        return sentences, beams, ended, ended_of_all(now), places

    def stay():
        return tf.nest.map_structure(tf.identity, now[1:-1])

    share = tf.reduce_mean(tf.cast(is_open, tf.float32))
    changed = tf.cond(share <= SHRINK_BELOW, shrink, stay)
    return SearchState._make([now.time, *changed, now.history])


def ended_of_all(now: SearchState) -> Ended:
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
    shape_of = any_rows if compact else operator.attrgetter("shape")
    sentences, beams, ended = tf.nest.map_structure(shape_of, now[1:4])
    # One position before the first step, if the source's length is not known.
    coverage = [x[:2].concatenate([None]) if x[2] == 1 else x for x in beams.coverage]
    beams = beams._replace(coverage=coverage)
    decided, places = tf.nest.map_structure(operator.attrgetter("shape"), now[4:6])
    history = tf.nest.map_structure(lambda _: None, now.history)
    return SearchState(
        now.time.shape, sentences, beams, ended, decided, places, history
    )


def empty_arrays(
    shape: list[int | None], attended: list[Any], steps: int | tf.Tensor
) -> Written:
    """Returns empty arrays.

    Args:
        shape: The sizes [B, N], None for an unknown one.
        attended: The shapes [S] of a step's attention, none or one.
        steps: int32, at least the number of steps that will be written.
    """

    def array(dtype: tf.DType, *rest: int | None) -> tf.TensorArray:
        return tf.TensorArray(dtype, steps, element_shape=[*shape, *rest])

    weights = [array(tf.float32, *axes) for axes in attended]
    return Written(array(tf.int32), array(tf.float32), weights)


def write(arrays: Any, time: tf.Tensor, step: Any) -> Any:
    """Returns a nest of arrays with one more step, a like nest of tensors."""
    return tf.nest.map_structure(lambda a, x: a.write(time, x), arrays, step)


def trace_back(
    pool: Pool,
    history: History,
    steps: tf.Tensor,
    pad_id: int = PAD_ID,
    length: tf.Tensor | None = None,
) -> Hypotheses:
    """Reads the pool's hypotheses from the history, from last token to first.

    Args:
        pool: The places of their last tokens.
        history: The choices of every step.
        steps: int32, the number of steps.
        pad_id: What fills the ids up.
        length: T, at least the number of steps; None for that of the longest.
    """
    shape = history.parents.element_shape
    lengths, slots = pool.places // shape[1] + 1, pool.places % shape[1]

    def read(time, slots, written):
        time -= 1
        chosen = tf.nest.map_structure(lambda a: a.read(time), history.written)
        written = write(written, time, follow(chosen, slots))
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        slots = tf.where(time < lengths, parents, slots)
        return time, slots, written

    attended = [x.element_shape[2:] for x in history.written.weights]
    size = steps if length is None else length
    written = empty_arrays([shape[0], slots.shape[1]], attended, size)
    start = steps, slots, written
    _, _, written = tf.while_loop(lambda time, *_: time > 0, read, start)
    written = tf.nest.map_structure(lambda a: a.stack(), written)
    return collect(written, lengths, pool.scores, pad_id, length)


def collect(
    written: Written,
    lengths: tf.Tensor,
    scores: tf.Tensor,
    pad_id: int = PAD_ID,
    length: tf.Tensor | None = None,
) -> Hypotheses:
    """Makes `Hypotheses` of the steps that a search recorded.

    Args:
        written: At least one step. What is after the end of a hypothesis is ignored,
            and so are hypotheses whose score is -inf.
        lengths: int32 [B, N].
        scores: float32 [B, N].
        pad_id: What fills the ids up.
        length: T, the number of steps written; None for the length of the longest
            hypothesis, at least 1.
    """
    there = scores > IMPOSSIBLE
    lengths = tf.where(there, lengths, 0)
    if length is None:
        length = tf.maximum(1, tf.reduce_max(lengths))
    steps = tf.range(length)
    inside = steps < lengths[..., tf.newaxis]  # [B, N, T]

    def by_hypothesis(x):  # [T, B, N, ...] -> [B, N, T, ...]
        x = tf.gather(x, steps)
        return tf.transpose(x, [1, 2, 0, *range(3, x.shape.rank)])

    ids, sums, weights = tf.nest.map_structure(by_hypothesis, written)
    sums = tf.where(inside, sums, 0.0)
    before = tf.pad(sums, [[0, 0], [0, 0], [1, 0]])[..., :-1]
    total = tf.gather(sums, tf.maximum(lengths - 1, 0), batch_dims=2)
    if weights:
        attention = where(inside, weights[0], 0.0)
    else:
        attention = tf.zeros([*tf.unstack(tf.shape(inside)), 0])
    return Hypotheses(
        ids=tf.where(inside, ids, pad_id),
        lengths=lengths,
        scores=scores,
        log_probs=tf.where(there, total, IMPOSSIBLE),
        weights=attention,
        token_log_probs=tf.where(inside, sums - before, 0.0),
    )


def pad_to(found: Hypotheses, length: int | tf.Tensor, pad_id: int) -> Hypotheses:
    """Returns the hypotheses padded to a length T."""

    def pad(x, value):
        rest = [[0, 0]] * x.shape.rank
        rest[2] = [0, length - tf.shape(x)[2]]
        return tf.pad(x, rest, constant_values=value)

    return found._replace(
        ids=pad(found.ids, pad_id),
        weights=pad(found.weights, 0.0),
        token_log_probs=pad(found.token_log_probs, 0.0),
    )
