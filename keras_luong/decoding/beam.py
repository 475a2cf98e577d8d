"""Beam search: the K most probable open hypotheses, and a pool of finished ones.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, V vocabulary, T longest hypothesis, P longest
prefix.
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.fields import NotNegative, check_fields
from keras_luong.decoding.cast_once import cast_once
from keras_luong.decoding.constraints import forced_tokens, repeats
from keras_luong.decoding.history import History, record, trace_back
from keras_luong.decoding.hypotheses import IMPOSSIBLE, Hypotheses
from keras_luong.decoding.penalties import (
    CoveragePenalty,
    LengthPenalty,
    coverage_penalty_of,
    length_penalty_of,
)
from keras_luong.decoding.pool import Pool, fill, offer, scattered
from keras_luong.decoding.search_state import (
    Beams,
    SearchState,
    Sentences,
    compacted,
    loop_shapes,
)
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.decoding.stepping import (
    LONGEST,
    Size,
    SizeOrNone,
    SizeOrZero,
    StepModel,
    check_source_ids,
    check_target_ids,
    ensure_shape,
    follow,
    keep_shapes,
    length_limits,
    split_log_softmax,
    token_counts,
)
from keras_luong.decoding.top_k import top_k
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

FEW = 16  # if more ids are forbidden, the whole vocabulary is masked


def _penalty(read: Callable[[Any], Any]) -> Callable[[str, Any], Any]:
    """Returns a check of a penalty that keeps numbers and makes objects of mappings."""

    def check(name: str, given: Any) -> Any:
        del name  # `read` has it
        penalty = read(given)
        return float(given) if isinstance(given, numbers.Real) else penalty

    return check


def _check_forbidden(name: str, given: Any) -> tuple[int, ...]:
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be ids, such as (1,). Received: {given!r}")
    # Files hold a list. A tuple makes the search hashable.
    ids = tuple(check_size(f"an id in {name}", x, smallest=0) for x in given)
    if EOS_ID in ids:
        raise ValueError(
            f"{name} must not hold the end id, without which nothing ends. "
            f"Received: {ids!r}"
        )
    return ids


def _check_shortlist(name: str, given: Any) -> Shortlist | None:
    if not isinstance(given, Shortlist | None):
        raise TypeError(f"{name} must be a Shortlist or None. Received: {given!r}")
    return given


def _check_early_stopping(name: str, given: Any) -> bool | str:
    if not isinstance(given, bool) and given != "first":
        raise ValueError(f'{name} must be True, False or "first". Received: {given!r}')
    return given


@dataclasses.dataclass(frozen=True)
class BeamSearch:
    """A search for the best target sequences, by a model's `step`.

    Each step extends every open hypothesis by every token and keeps the `beam_width`
    most probable results. Those that end with the end token are finished: they move to
    the sentence's pool, which keeps the `n_best` finished hypotheses by score. The
    others stay open. A beam of one is greedy search; a beam as wide as the search space
    is exhaustive search. The score is the log-probability after the length penalty (the
    length counts the end token), plus the coverage penalty.

    **When a sentence stops.** With `early_stopping=True` it stops exactly when no open
    hypothesis can still enter its pool. Write `L <= 0` for the log-probability of an
    open hypothesis. Every further token adds the logarithm of a probability, so no
    continuation exceeds `L`, and none scores above the penalties' `bound`s
    (`keras_luong.decoding.penalties` proves each of them). A full pool admits only
    scores above its worst (at a tie the earlier one stays). So once the pool is full
    and no bound is above its worst, nothing can change it. As long as one is above, or
    a place is empty, a continuation of probability one could still enter: no rule that
    knows only the model's outputs so far can stop earlier. (The bound of a coverage
    penalty assumes that every source word gets all of the remaining attention, which is
    impossible, so the search may go on longer than necessary.) With `False` a sentence
    goes on until all hypotheses have ended or are too long, with the same result; with
    "first" it stops when the pool is full, which is faster and may miss better
    hypotheses.

    **At the maximum length** the open hypotheses are closed as they are, without an end
    token. They only fill the places that are still empty in the sentence's pool, ranked
    by score behind all finished ones: they never displace a finished one.

    **Ties** go to the lower beam, then to the lower id. A sentence's result does not
    depend on the other sentences in the batch, except through rounding: a matrix
    product may differ in the last bit with another number of rows, which may decide a
    tie.

    Args:
        beam_width: K.
        n_best: N, at most `beam_width`.
        max_length: Longest hypothesis, the end token included. None for twice the
            sentence's source length plus 10, unless `max_length_ratio` is given.
        length_penalty: The alpha of GNMT's `((5 + length) / 6) ** alpha`, 0 for none;
            or `AverageLengthPenalty`, `WordReward` or your own `LengthPenalty`.
        coverage_penalty: The beta of GNMT's coverage penalty, 0 for none; or
            `SummaryCoveragePenalty` or your own `CoveragePenalty`.
        min_length: Shortest hypothesis, the end token included, but never above the
            longest.
        min_length_ratio: Shortest hypothesis relative to the source's length (its end
            token included), rounded up; the larger of the two minima applies.
        max_length_ratio: Longest hypothesis likewise, or None; the smaller of the two
            maxima applies.
        no_repeat_ngram: Size of the n-grams that must not occur twice in a hypothesis;
            0 allows all.
        forbidden: Ids that are never generated, such as `(1,)` for the unknown id.
            Padding and the begin id never are.
        shortlist: A `Shortlist`, or None for the whole vocabulary.
        early_stopping: True, False or "first", see above.
        compact: Whether sentences that stopped leave the batch, which makes the search
            faster and does not change its results.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a width or length is below 1, `n_best` above `beam_width`, or
            a penalty negative.

    Example:
        >>> search = BeamSearch(beam_width=5, length_penalty=0.6)
        >>> hypotheses = search(model, source_ids)
        >>> hypotheses.ids[:, 0]  # the best translation of each sentence
    """

    beam_width: Size = 5
    n_best: Size = 1
    max_length: SizeOrNone = 100
    length_penalty: Annotated[
        float | Mapping[str, Any] | LengthPenalty, _penalty(length_penalty_of)
    ] = 0.0
    coverage_penalty: Annotated[
        float | Mapping[str, Any] | CoveragePenalty, _penalty(coverage_penalty_of)
    ] = 0.0
    min_length: SizeOrZero = 0
    min_length_ratio: NotNegative = 0.0
    max_length_ratio: NotNegative | None = None
    no_repeat_ngram: SizeOrZero = 0
    forbidden: Annotated[tuple[int, ...], _check_forbidden] = ()
    shortlist: Annotated[Shortlist | None, _check_shortlist] = None
    early_stopping: Annotated[bool | str, _check_early_stopping] = True
    compact: bool = True

    def __post_init__(self) -> None:
        """Checks the settings, and converts NumPy numbers to Python's."""
        check_fields(self)
        if self.n_best > self.beam_width:
            raise ValueError(
                f"n_best must be at most beam_width. Received: n_best={self.n_best}, "
                f"beam_width={self.beam_width}"
            )

    def __call__(
        self,
        model: StepModel,
        source_ids: tf.Tensor,
        prefix_ids: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Finds the `n_best` hypotheses of each sentence.

        Args:
            model: A `StepModel`.
            source_ids: int32 [B, S], right-padded with `PAD_ID`.
            prefix_ids: int32 [B, P], how each sentence's hypotheses must begin,
                right-padded with `PAD_ID`; or None. A prefix may hold what is
                forbidden, and the maximum length is at least one token beyond it.

        Raises:
            TypeError: If there is a shortlist and the model can't be restricted to it.
            ValueError: If the ids are not of these shapes.
        """
        source_ids = check_source_ids(source_ids)
        if self.compact and source_ids.shape[0] == 1:  # there is nothing to compact
            search = dataclasses.replace(self, compact=False)
            return search(model, source_ids, prefix_ids)
        if prefix_ids is None:
            prefix_ids = tf.zeros([tf.shape(source_ids)[0], 0], tf.int32)
        prefix_ids = check_target_ids("prefix_ids", prefix_ids, source_ids)
        with cast_once(model):
            return self._search(model, source_ids, prefix_ids)

    def with_spares(self) -> BeamSearch:
        """Returns a search that keeps as many hypotheses as its beam has.

        Its first `n_best` are this one's. The others take the places of hypotheses that
        say the same in other pieces. A search for one hypothesis needs none; with
        `early_stopping="first"` more of them would let the search go on for longer.
        """
        if self.n_best == 1 or self.early_stopping == "first":
            return self
        return dataclasses.replace(self, n_best=self.beam_width)

    def _search(self, model, source_ids, prefix_ids):
        ids = None
        if self.shortlist is not None:
            ids, model = self.shortlist.restrict(
                model, source_ids, prefix_ids, self._proposals
            )
        memory, state = model.encode(source_ids)
        sentences = self._sentences(source_ids, prefix_ids, memory)

        def body(now):
            after = self._take_step(model, ids, now)
            beams = keep_shapes(after.beams, now.beams)
            pool = keep_shapes(after.pool, now.pool)
            return [self._without_decided(after._replace(beams=beams, pool=pool))]

        def any_open(now):
            return tf.reduce_any(now.beams.log_probs > IMPOSSIBLE)

        # The first step has one beam, so the memory and the state need no tiling.
        first = self._take_step(model, ids, self._start(source_ids, sentences, state))
        first = self._without_decided(first)
        shapes = [loop_shapes(first)] if self.compact else None
        (end,) = tf.while_loop(any_open, body, [first], shapes)
        pool = end.pool
        if self.compact:
            pool = scattered(end.decided, end.sentences.rows, pool)
        return trace_back(pool, end.history, end.time)

    def _take_step(self, model, ids, now):
        """Extends every open hypothesis by one token."""
        beams, sentences, time = now.beams, now.sentences, now.time
        logits, state, weights = model.step(beams.tokens, beams.state, sentences.memory)
        state = keep_shapes(state, beams.state)
        # The graph of a loaded model may have lost the number of beams.
        shape = [None, beams.tokens.shape[1], None]
        logits = ensure_shape(tf.cast(logits, tf.float32), shape)
        weights = ensure_shape(tf.cast(weights, tf.float32), shape)
        totals, tokens = self._propose(now, logits, ids)
        beams, parents = self._choose(beams, totals, tokens, state, time)
        weights = follow(weights, parents)
        beams = beams._replace(coverage=[c + weights for c in beams.coverage])
        chosen = beams.tokens, weights, beams.log_probs, parents
        rows = sentences.rows if self.compact else None
        count = tf.shape(now.decided.scores)[0]
        history = record(now.history, time, chosen, rows, count)
        beams, pool = self._finish(beams, now.pool, time + 1, sentences)
        return now._replace(time=time + 1, beams=beams, pool=pool, history=history)

    def _without_decided(self, now):
        return compacted(now) if self.compact else now

    def _sentences(self, source_ids, prefix_ids, memory):
        """Returns the limits, prefix, mask and memory of each sentence."""
        lengths = token_counts(source_ids)
        limits = length_limits(source_ids, self.max_length)
        if self.max_length_ratio is not None:
            relative = tf.maximum(1, _share_of(lengths, self.max_length_ratio))
            absolute = self.max_length is not None
            limits = tf.minimum(limits, relative) if absolute else relative
        prefix = token_counts(prefix_ids)
        limits = tf.where(prefix > 0, tf.maximum(limits, prefix + 1), limits)
        least = tf.maximum(self.min_length, _share_of(lengths, self.min_length_ratio))
        least = tf.minimum(least, limits)
        rows = tf.range(tf.shape(source_ids)[0])
        mask = source_ids != PAD_ID
        return Sentences(rows, limits, least, prefix_ids, mask, memory)

    def _start(self, source_ids, sentences, state):
        """Returns a state with one open hypothesis per sentence and empty pools."""
        one = [tf.shape(source_ids)[0], 1]
        size = tf.maximum(1, tf.reduce_max(sentences.limits))
        zeros = tf.zeros([*one, tf.shape(source_ids)[1]])
        beams = Beams(
            tokens=tf.fill(one, BOS_ID),
            log_probs=tf.zeros(one),
            state=state,
            coverage=[zeros] if self._coverage_penalty else [],
            written=[tf.zeros([*one, size], tf.int32)] if self.no_repeat_ngram else [],
        )
        nothing = tf.fill([one[0], self.n_best], IMPOSSIBLE)
        nowhere = tf.zeros([one[0], self.n_best], tf.int32)
        pool = Pool(nothing, nothing, nowhere, nowhere)
        shape = [source_ids.shape[0], self.beam_width, source_ids.shape[1]]
        history = History.empty(shape, size)
        return SearchState(tf.constant(0), sentences, beams, pool, pool, history)

    @property
    def _coverage_penalty(self) -> CoveragePenalty | None:
        return coverage_penalty_of(self.coverage_penalty)

    @property
    def _never(self) -> set[int]:
        """The forbidden ids that are looked for among the proposals only."""
        few = len(self.forbidden) <= FEW
        return {PAD_ID, BOS_ID, *(self.forbidden if few else ())}

    @property
    def _proposals(self) -> int:
        """The number of tokens that each beam proposes.

        Even without those in `_never` and the end token, `beam_width` remain.
        """
        return self.beam_width + len(self._never) + 1

    def _propose(self, now, logits, ids):
        """Finds the best tokens of each beam, of which `_choose` takes the best.

        Args:
            now: The state before this step.
            logits: [A, K, V], or [A, K, M] of the shortlisted words.
            ids: int32 [M], these words, or None.

        Returns:
            Log-probabilities of the extended hypotheses [A, K, n], -inf for impossible
            ones, and their last tokens.
        """
        normalisers, possible = split_log_softmax(logits)
        forced = None
        if now.sentences.prefix.shape[1] != 0:
            forced = forced_tokens(now.sentences.prefix, now.time)[:, None, None]
        count = self._proposals
        if logits.shape[-1] is not None:
            count = min(count, logits.shape[-1])
        best, tokens = top_k(self._constrained(now, logits, forced, ids), count)
        if ids is not None:
            tokens = tf.gather(ids, tokens)
        early = now.time + 1 < now.sentences.least
        bad = (tokens == EOS_ID) & early[:, None, None]
        for token in sorted(self._never):
            bad |= tokens == token
        if forced is not None:
            bad = tf.where(forced == PAD_ID, bad, tokens != forced)
        totals = now.beams.log_probs[..., None] + (best - normalisers)
        return tf.where(possible & ~bad, totals, IMPOSSIBLE), tokens

    def _constrained(self, now, logits, forced, ids):
        """Returns the logits, with -inf where constraints forbid many ids."""
        masks: list[Any] = []
        size = logits.shape[-1] if self.shortlist is None else self.shortlist.vocab_size
        if len(self.forbidden) > FEW:
            masks.append(np.isin(np.arange(size), self.forbidden))
        if self.no_repeat_ngram:
            (written,) = now.beams.written
            masks.append(repeats(written, now.time, self.no_repeat_ngram, size))
        if ids is not None:
            masks = [tf.gather(mask, ids, axis=-1) for mask in masks]
        banned = functools.reduce(operator.or_, masks) if masks else False
        if forced is not None:
            others = (tf.range(size) if ids is None else ids) != forced
            banned = tf.where(forced == PAD_ID, banned, others)
        return logits if banned is False else tf.where(banned, IMPOSSIBLE, logits)

    def _choose(self, beams, totals, tokens, state, time):
        """Returns the best `beam_width` proposals, and the beam that each extends."""
        old, proposals = totals.shape[1:3]
        # One beam may propose fewer than `beam_width`, if the vocabulary is small.
        missing = [[0, 0], [0, max(0, self.beam_width - old * proposals)]]
        flat = [-1, old * proposals]
        totals = tf.pad(tf.reshape(totals, flat), missing, constant_values=IMPOSSIBLE)
        tokens = tf.pad(tf.reshape(tokens, flat), missing, constant_values=EOS_ID)
        # At a tie the lower index comes first.
        totals, chosen = tf.math.top_k(totals, self.beam_width)
        parents = tf.minimum(chosen // proposals, old - 1)
        tokens = follow(tokens, chosen)
        written = [
            tf.where(tf.range(tf.shape(x)[2]) == time, tokens[..., None], x)
            for x in follow(beams.written, parents)
        ]
        state, coverage = follow((state, beams.coverage), parents)
        return Beams(tokens, totals, state, coverage, written), parents

    def _finish(self, beams, pool, length, sentences):
        """Moves finished hypotheses to the pool, and stops decided sentences.

        Hypotheses at the maximum length are closed. A sentence stops when it has no
        open hypotheses left.
        """
        limits = sentences.limits[:, None]
        ended = beams.tokens == EOS_ID
        finished = tf.where(ended, beams.log_probs, IMPOSSIBLE)
        unfinished = tf.where(ended, IMPOSSIBLE, beams.log_probs)
        at_limit = length >= limits
        penalty: Any = self._coverage_penalty  # None if `coverage` is empty
        mask = sentences.mask[:, None]
        bonus = [penalty.score(c, mask) for c in beams.coverage]
        pool = offer(pool, self._pool_of(finished, length, bonus))
        rest = tf.where(at_limit, unfinished, IMPOSSIBLE)
        pool = fill(pool, self._pool_of(rest, length, bonus))

        worst = pool.scores[:, -1:]
        if self.early_stopping is True:
            bounds = length_penalty_of(self.length_penalty).bound(unfinished, limits)
            for c in beams.coverage:
                bounds += penalty.bound(c, mask, limits - length)
            promising = tf.reduce_any(bounds > worst, axis=1, keepdims=True)
        else:
            promising = (worst == IMPOSSIBLE) | (self.early_stopping is False)
        log_probs = tf.where(promising & ~at_limit, unfinished, IMPOSSIBLE)
        return beams._replace(log_probs=log_probs), pool

    def _pool_of(self, log_probs, length, bonus):
        """Returns the beams [A, K] as pool entries of one length."""
        scores = length_penalty_of(self.length_penalty).score(log_probs, length)
        # In TFLite -inf becomes the lowest finite number, which a penalty may divide.
        scores = tf.where(log_probs > IMPOSSIBLE, sum(bonus, scores), IMPOSSIBLE)
        return Pool(
            scores=scores,
            log_probs=log_probs,
            lengths=tf.fill(tf.shape(log_probs), length),
            slots=tf.zeros_like(log_probs, tf.int32) + tf.range(log_probs.shape[1]),
        )


def _share_of(lengths: tf.Tensor, ratio: float) -> tf.Tensor:
    """Returns the lengths times the ratio, rounded up, as int32."""
    product = tf.minimum(tf.cast(lengths, tf.float32) * ratio, float(LONGEST))
    # 0.1 * 30 is a little above 3 in floating point.
    return tf.cast(tf.math.ceil(product - 1e-4), tf.int32)
