"""Beam search: the `K` most probable open hypotheses, and a pool of finished ones.

Shapes: `B` batch, `S` source length, `K` beam width, `N` hypotheses kept per sentence,
`V` vocabulary, `T` steps taken.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.penalties import LengthPenalty, length_penalty_of
from keras_luong.decoding.stepping import (
    IMPOSSIBLE,
    Hypotheses,
    StepModel,
    collect,
    follow,
    keep_shapes,
    length_limits,
    next_token_log_probs,
)
from keras_luong.text.special_ids import BOS_ID, EOS_ID


class Beams(NamedTuple):
    """The open hypotheses. A log-probability of -inf marks one that is not there."""

    tokens: tf.Tensor  # [B, K] the last one of each
    log_probs: tf.Tensor  # [B, K]
    state: Any  # nest of [B, K, ...]


class Pool(NamedTuple):
    """A sentence's `N` best finished hypotheses, best first; empty places score -inf.

    A hypothesis is where to find its last token, the history knows the rest.
    """

    scores: tf.Tensor  # [B, N]
    log_probs: tf.Tensor  # [B, N]
    lengths: tf.Tensor  # [B, N]
    slots: tf.Tensor  # [B, N] the beam that held the last token


class History(NamedTuple):
    """What every step chose: a tree, of which a hypothesis is a path to the root.

    Tokens and attention are written once and never moved as the beams change places.
    """

    tokens: tf.TensorArray  # T x [B, K]
    parents: tf.TensorArray  # T x [B, K] the beam of the step before
    weights: tf.TensorArray  # T x [B, K, S]


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """Searches for the best target sequences with a model's `step`.

    Each step extends every open hypothesis by every token and keeps the `beam_width`
    most probable results. Those of them that end with the end token leave the beam for
    the sentence's pool of its `n_best` finished hypotheses, where they compete by score
    (log-probability over length penalty; the length counts the end token) and never
    change again; the others stay open. So a beam of one is greedy search, and a beam
    as wide as the space is exhaustive search.

    **When a sentence stops.** Exactly when no open hypothesis can still enter its pool.
    Write `L <= 0` for an open hypothesis's log-probability. Every further token adds
    the logarithm of a probability, so no continuation exceeds `L`, and none scores
    above the penalty's `bound(L, limit)`: without a length penalty `L` itself; with
    GNMT's, `L / lp(limit)`, since `lp` grows with the length and dividing a number that
    is not positive by more brings it nearer to zero. A full pool admits only scores
    above its worst (at a tie, who came first stays). So once the pool is full and
    `bound(L, limit) <= worst` for every open hypothesis, nothing can change it; and
    while one bound is above, or a place empty, a continuation of probability one
    could enter: no rule that knows only what the model said so far can stop earlier.

    **At the maximum length** the open hypotheses are closed as they are, without an end
    token. They only fill the places that the sentence's pool has left, ranked by score
    after every finished one: half a sentence never displaces a whole one.

    **Ties** go to the lower beam, then to the lower id. A sentence's result does not
    depend on its neighbours in the batch.

    Args:
        beam_width: int, `K`.
        n_best: int, `N`, at most `beam_width`.
        max_length: int, counting the end token; or None for twice the sentence's
            source length and 10.
        length_penalty: float, the alpha of GNMT's `((5 + length) / 6) ** alpha`, 0 for
            none; or a `LengthPenalty`.

    Raises:
        TypeError: if an argument has the wrong type.
        ValueError: if a width or length is below 1, `n_best` above `beam_width`, or
            the penalty negative.

    Example:
        >>> search = BeamSearch(beam_width=5, length_penalty=0.6)
        >>> hypotheses = search(model, source_ids)
        >>> hypotheses.ids[:, 0]  # the best translation of each sentence
    """

    beam_width: int = 5
    n_best: int = 1
    max_length: int | None = 100
    length_penalty: float | LengthPenalty = 0.0

    def __post_init__(self):
        """Refuse impossible settings."""
        check_size("beam_width", self.beam_width)
        check_size("n_best", self.n_best)
        if self.n_best > self.beam_width:
            raise ValueError(
                f"n_best must be at most beam_width. Received: n_best={self.n_best}, "
                f"beam_width={self.beam_width}"
            )
        check_size("max_length", self.max_length, optional=True)
        length_penalty_of(self.length_penalty)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Search.

        Args:
            model: a `StepModel`.
            source_ids: int32 `[B, S]`, right-padded with `PAD_ID`.

        Returns:
            `Hypotheses`, `n_best` per sentence.
        """
        source_ids = tf.cast(tf.convert_to_tensor(source_ids), tf.int32)
        memory, state = model.encode(source_ids)
        limits = length_limits(source_ids, self.max_length)

        def advance(time, beams, pool, history):
            logits, state, weights = model.step(beams.tokens, beams.state, memory)
            state = keep_shapes(state, beams.state)
            beams, parents = _extend(beams.log_probs, logits, state, self.beam_width)
            history = _record(history, time, beams.tokens, parents, weights)
            beams, pool = self._finish(beams, pool, time + 1, limits)
            return time + 1, beams, pool, history

        def loop_body(time, beams, pool, history):
            *_, history = after = advance(time, beams, pool, history)
            return *keep_shapes(after[:3], (time, beams, pool)), history

        def any_open(time, beams, pool, history):
            return tf.reduce_any(beams.log_probs > IMPOSSIBLE)

        # The first step has one beam: the memory and the state are not tiled for it.
        first = advance(*self._start(source_ids, state))
        steps, _, pool, history = tf.while_loop(any_open, loop_body, first)
        return _trace_back(pool, history, steps)

    def _start(self, source_ids, state):
        """One open hypothesis per sentence, an empty pool, no history."""
        batch = tf.shape(source_ids)[0]
        beams = Beams(
            tokens=tf.fill([batch, 1], BOS_ID),
            log_probs=tf.zeros([batch, 1]),
            state=state,
        )
        nothing = tf.fill([batch, self.n_best], IMPOSSIBLE)
        nowhere = tf.zeros([batch, self.n_best], tf.int32)
        size = self.max_length or 2 * tf.shape(source_ids)[1] + 10
        arrays = {"size": size, "dynamic_size": False}
        shape = [source_ids.shape[0], self.beam_width]
        history = History(
            tokens=tf.TensorArray(tf.int32, element_shape=shape, **arrays),
            parents=tf.TensorArray(tf.int32, element_shape=shape, **arrays),
            weights=tf.TensorArray(
                tf.float32, element_shape=[*shape, source_ids.shape[1]], **arrays
            ),
        )
        return tf.constant(0), beams, Pool(nothing, nothing, nowhere, nowhere), history

    def _finish(self, beams, pool, length, limits):
        """Move what ended to the pool, close what grew too long, stop what is decided.

        A sentence stops by losing its open hypotheses.
        """
        penalty = length_penalty_of(self.length_penalty)
        ended = beams.tokens == EOS_ID
        finished = tf.where(ended, beams.log_probs, IMPOSSIBLE)
        unfinished = tf.where(ended, IMPOSSIBLE, beams.log_probs)
        at_limit = (length >= limits)[:, tf.newaxis]

        pool = _offer(pool, _pool_of(finished, length, penalty))
        rest = tf.where(at_limit, unfinished, IMPOSSIBLE)
        pool = _fill(pool, _pool_of(rest, length, penalty))

        bounds = penalty.bound(unfinished, limits[:, tf.newaxis])
        promising = tf.reduce_any(bounds > pool.scores[:, -1:], axis=1, keepdims=True)
        log_probs = tf.where(promising & ~at_limit, unfinished, IMPOSSIBLE)
        return beams._replace(log_probs=log_probs), pool


def _extend(log_probs, logits, state, beam_width):
    """Choose the best `beam_width` of all hypotheses that are one token longer.

    Each beam proposes its own best tokens, so that the merge is over at most K * K.

    Returns:
        The new `Beams`, and which of the old ones each comes from, int32 `[B, K]`.
    """
    ranked, normalisers = next_token_log_probs(logits)
    proposals = min(beam_width, logits.shape[-1])
    best, tokens = tf.math.top_k(ranked, proposals)  # [B, K, proposals]
    totals = log_probs[..., tf.newaxis] + (best - normalisers)

    # One beam alone proposes less than `beam_width` if the vocabulary is smaller.
    beams = log_probs.shape[1]
    missing = [[0, 0], [0, max(0, beam_width - beams * proposals)]]
    flat = [-1, beams * proposals]
    totals = tf.pad(tf.reshape(totals, flat), missing, constant_values=IMPOSSIBLE)
    tokens = tf.pad(tf.reshape(tokens, flat), missing, constant_values=EOS_ID)

    totals, chosen = tf.math.top_k(totals, beam_width)  # a tie: the lower index first
    parents = tf.minimum(chosen // proposals, beams - 1)
    return Beams(follow(tokens, chosen), totals, follow(state, parents)), parents


def _record(history, time, tokens, parents, weights):
    """Write down a step: what was chosen and where it looked."""
    weights = tf.cast(follow(weights, parents), tf.float32)
    return History(
        tokens=history.tokens.write(time, tokens),
        parents=history.parents.write(time, parents),
        weights=history.weights.write(time, weights),
    )


def _pool_of(log_probs, length, penalty):
    """The beams `[B, K]` as pool entries of one length."""
    return Pool(
        scores=penalty.score(log_probs, length),
        log_probs=log_probs,
        lengths=tf.fill(tf.shape(log_probs), length),
        slots=tf.zeros_like(log_probs, tf.int32) + tf.range(log_probs.shape[1]),
    )


def _offer(pool, others):
    """Keep the best of both by score; at a tie, the pool's own."""
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)
    return follow(both, tf.math.top_k(both.scores, pool.scores.shape[1]).indices)


def _fill(pool, others):
    """Fill the pool's empty places with the best of the others, behind its own."""
    size = pool.scores.shape[1]
    others = follow(others, tf.math.top_k(others.scores, size).indices)
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), pool, others)
    taken = tf.math.count_nonzero(
        pool.scores > IMPOSSIBLE, axis=1, keepdims=True, dtype=tf.int32
    )
    place = tf.range(size)
    return follow(both, tf.where(place < taken, place, size + place - taken))


def _trace_back(pool, history, steps):
    """Read the pool's hypotheses off the history, from last token to first."""

    def read(time, slots, ids, weights):
        time -= 1
        ids = ids.write(time, follow(history.tokens.read(time), slots))
        weights = weights.write(time, follow(history.weights.read(time), slots))
        parents = follow(history.parents.read(time), slots)
        # Until its last token is reached, a path waits where it ends.
        return time, tf.where(time < pool.lengths, parents, slots), ids, weights

    ids, weights = (tf.TensorArray(x, steps) for x in (tf.int32, tf.float32))
    *_, ids, weights = tf.while_loop(
        lambda time, *_: time > 0, read, (steps, pool.slots, ids, weights)
    )
    return collect(ids, weights, pool.lengths, pool.scores, pool.log_probs)
