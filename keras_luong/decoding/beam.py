"""Beam search: the K most probable open hypotheses, and a pool of finished ones.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, V vocabulary, T longest hypothesis, P longest
prefix.

Greedy search: at every step the most probable token.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_luong.config.fields import NotNegative
from keras_luong.decoding import lexical
from keras_luong.decoding.constraints import (
    CoveragePenaltyOf,
    EarlyStopping,
    Forbidden,
    LengthPenaltyOf,
    ShortlistOrNone,
    Size,
    SizeOrNone,
    SizeOrZero,
    best_extensions,
    constrained,
    forced_tokens,
    longest,
    repeats,
    shortest,
    words_of,
)
from keras_luong.decoding.hoisting import cast_once, hoisted
from keras_luong.decoding.penalties import (
    CoveragePenalty,
    coverage_penalty_of,
    length_penalty_of,
)
from keras_luong.decoding.search_state import (
    Beams,
    Ended,
    History,
    Pool,
    SearchState,
    Sentences,
    all_ended,
    compacted,
    fill,
    loop_shapes,
    offer,
    record,
    trace_back,
)
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    Source,
    SpecialTokens,
    StepModel,
    Written,
    check_source,
    check_target_ids,
    count_of,
    flat_positions,
    follow,
    keep_shapes,
    known_count_of,
    repeated,
    source_mask,
    split_log_softmax,
    take_step,
    vocab_size_of,
)

#: What a step changes of a search's state, whether or not sentences leave it.
CHANGING = ("time", "beams", "ended")


@dataclasses.dataclass(frozen=True, repr=False)
class BeamSearch(SpecialTokens):
    """A search for the best target sequences, by a model's `step`.

    Each step extends every open hypothesis by every token and keeps the `beam_width`
    most probable results. Those that end with the end token are finished: they move to
    the sentence's pool, which keeps the best finished hypotheses by score. The
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
    goes on until all hypotheses have ended or are too long, with the same result. With
    "first" it also stops, as most decoders do, once `beam_width` hypotheses have ended.
    That is faster where a length penalty's bound is far away, and may miss a better
    hypothesis.

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
            sentence's source length plus 10, unless `max_length_ratio` is given. None
            and the ratios need a source of ids, whose lengths are known.
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
        shortlist: A `Shortlist` with the same ids, or None for the whole vocabulary.
        early_stopping: True, False or "first", see above.
        compact: Whether sentences that stopped leave the batch, which makes the search
            faster and does not change its results.
        bos_id: The token that the model reads first; see `SpecialTokens`.
        eos_id: The token that ends a hypothesis.
        pad_id: The id of padding, in sources of ids, prefixes and results.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a width or length is below 1, `n_best` above `beam_width`, a
            penalty or an id negative, or the end token forbidden.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> search = kl.BeamSearch(beam_width=3, length_penalty=0.6, max_length=4)
        >>> hypotheses = search(model, np.array([[4, 5, 3], [6, 3, 0]]))
        >>> hypotheses.ids[:, 0].shape[0]  # the best translation of each sentence
        2
    """

    beam_width: Size = 5
    n_best: Size = 1
    max_length: SizeOrNone = 100
    length_penalty: LengthPenaltyOf = 0.0
    coverage_penalty: CoveragePenaltyOf = 0.0
    min_length: SizeOrZero = 0
    min_length_ratio: NotNegative = 0.0
    max_length_ratio: NotNegative | None = None
    no_repeat_ngram: SizeOrZero = 0
    forbidden: Forbidden = ()
    shortlist: ShortlistOrNone = None
    early_stopping: EarlyStopping = True
    compact: bool = True

    def __post_init__(self) -> None:
        """Checks the settings, and converts NumPy numbers to Python's."""
        super().__post_init__()
        if self.n_best > self.beam_width:
            raise ValueError(
                f"n_best must be at most beam_width. Received: n_best={self.n_best}, "
                f"beam_width={self.beam_width}"
            )
        if self.eos_id in self.forbidden:
            raise ValueError(
                "forbidden must not hold the end id, without which nothing ends. "
                f"Received: {self.forbidden!r}"
            )
        if self.shortlist is not None:
            self.shortlist.check_ids(**self.special_ids)

    def __call__(
        self,
        model: StepModel,
        source: Source,
        prefix_ids: tf.Tensor | None = None,
        constraints: lexical.Constraints | None = None,
    ) -> Hypotheses:
        """Finds the `n_best` hypotheses of each sentence.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads: int32 [B, S] ids, right-padded with
                `pad_id`; or tensors [B, ...] of any dtype, or a tuple or dict of them.
            prefix_ids: int32 [B, P], how each sentence's hypotheses must begin,
                right-padded with `pad_id`; or None. A prefix may hold what is
                forbidden, and the maximum length is at least one token beyond it.
            constraints: `Constraints`, the phrases that each sentence's hypotheses must
                contain; or None. A hypothesis ends only when it has all of them; see
                `keras_luong.decoding.lexical`. If none has them at the maximum length,
                those that lack the fewest are returned. What is forbidden stays so.

        Raises:
            TypeError: If there is a shortlist and the model can't be restricted to it.
            ValueError: If the source, the prefixes or the constraints have the wrong
                shape; if the maximum length needs a source of ids, a coverage penalty
                attention, or the end token a larger vocabulary.
        """
        source = check_source(source)
        if self.compact and known_count_of(source) == 1:  # there is nothing to compact
            search = dataclasses.replace(self, compact=False)
            return search(model, source, prefix_ids, constraints)
        if prefix_ids is None:
            prefix_ids = tf.zeros([count_of(source), 0], tf.int32)
        prefix_ids = check_target_ids("prefix_ids", prefix_ids, source)
        with cast_once(model):
            if constraints is None:
                return self._search(model, source, prefix_ids)
            return self._search_with(constraints, model, source, prefix_ids)

    def with_spares(self) -> BeamSearch:
        """Returns a search that keeps as many hypotheses as its beam has.

        Its first `n_best` are this one's. The others take the places of hypotheses that
        say the same in other pieces. A search for one hypothesis needs none.
        """
        if self.n_best == 1:
            return self
        return dataclasses.replace(self, n_best=self.beam_width)

    def _search_with(self, constraints, model, source, prefix_ids):
        """Searches freely, and again where the best hypothesis lacks a phrase."""
        constraints = constraints._replace(ids=tf.convert_to_tensor(constraints.ids))
        free = dataclasses.replace(self, n_best=1)._search(model, source, prefix_ids)
        lacks = lexical.unmet_by(constraints, free.ids, self.pad_id)[:, 0]
        has_all = ~tf.reduce_any(lacks, axis=1)
        # Further hypotheses must have the phrases too.
        again = tf.ones_like(has_all) if self.n_best > 1 else ~has_all

        def search():
            rows = tf.where(again)[:, 0]
            some, begin, ids = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (source, prefix_ids, constraints.ids)
            )
            must = constraints._replace(ids=ids)
            found = self._search(model, some, begin, must)
            return lexical.preferred(
                free, has_all, _spread(found, rows, again), self.pad_id
            )

        if self.n_best > 1:
            return search()
        return tf.cond(tf.reduce_any(again), search, lambda: free)

    def _search(self, model, source, prefix_ids, constraints=None):
        self.check_begin(vocab_size_of(model, "target"))
        phrases, spelling = [], None
        if constraints is not None:
            phrases = [lexical.phrases_of(constraints, source, self.pad_id)]
            spelling = constraints.spelling
        ids = None
        if self.shortlist is not None:
            given = [prefix_ids, *map(lexical.tokens_of, phrases)]
            ids, model = self.shortlist.restrict(model, source, tf.concat(given, 1))
        memory, state = model.encode(source)
        limits = longest(self, source, prefix_ids)
        least = shortest(self, source, limits)
        rows = tf.range(count_of(source))
        sentences = Sentences(rows, limits, least, prefix_ids, phrases, [], memory)
        start = self._start(sentences, state)
        step, (logits, _, weights) = self._stepping(model, start)
        if ids is None:
            self.check_logits(logits)
        start = self._recording(start, source, weights)
        words = words_of(logits, self._never, ids)
        extend = self._extending(start, step, words, spelling)

        def body(now):
            beams, ended, chosen = extend(now)
            places = now.places if self.compact else None
            after = now._replace(
                time=now.time + 1,
                beams=keep_shapes(beams, now.beams),
                ended=keep_shapes(ended, now.ended),
                history=record(now.history, now.time, chosen, places),
            )
            return [compacted(after) if self.compact else after]

        def any_open(now):
            return (now.time == 0) | tf.reduce_any(now.beams.log_probs > IMPOSSIBLE)

        shapes = loop_shapes(start, self.compact)
        (end,) = tf.while_loop(any_open, body, [start], [shapes])
        ended = all_ended(end) if self.compact else end.ended
        pool = self._closed(ended, limits)
        return trace_back(pool, end.history, end.time, self.pad_id)

    def _stepping(self, model, start):
        """Returns the model's step, as a function of the search's state; a result."""

        def parts(now):
            memory = [now.sentences.memory] if self.compact else []  # rows leave it
            return now.beams.tokens, now.beams.state, *memory

        def step(tokens, state, memory=start.sentences.memory):
            return take_step(model, tokens, state, memory)

        shapes = parts(loop_shapes(start, self.compact))
        step, like = hoisted(step, *parts(start), shapes=shapes)
        return lambda now: step(*parts(now)), like

    def _extending(self, start, step, words, spelling):
        """Returns `_extend` after the model's step, of the search's state."""

        def extend(now):
            return self._extend(now, step(now), words, spelling)

        if self.compact:  # no sentence's limits and source stay in place
            return extend
        parts = operator.attrgetter(*CHANGING)

        def extend_parts(*changed):
            return extend(start._replace(**dict(zip(CHANGING, changed, strict=True))))

        shapes = parts(loop_shapes(start, self.compact))
        of_parts, _ = hoisted(extend_parts, *parts(start), shapes=shapes)
        return lambda now: of_parts(*parts(now))

    def _extend(self, now, said, words, spelling):
        """Extends every open hypothesis by one token, by what the model said.

        Returns:
            The `beams` and `ended` after it, and the choices for the history.
        """
        logits, state, weights = said
        best, progress = self._choose(now, logits, words, spelling)
        log_probs, parents, tokens = best
        written = [
            tf.where(tf.range(tf.shape(x)[2]) == now.time, tokens[..., None], x)
            for x in follow(now.beams.written, parents)
        ]
        state, coverage, weights = follow((state, now.beams.coverage, weights), parents)
        pairs = zip(coverage, weights, strict=False)
        coverage = [c + flat_positions(w) for c, w in pairs]
        beams = Beams(tokens, log_probs, state, coverage, written, progress)
        chosen = History(Written(tokens, log_probs, weights), parents)
        return *self._finish(now, beams), chosen

    def _start(self, sentences, state):
        """Returns a state with one open hypothesis per sentence and empty pools."""
        count = tf.shape(sentences.rows)[0]
        tokens = tf.fill([count, self.beam_width], self.bos_id)
        nothing = tf.fill([count, self.beam_width], IMPOSSIBLE)
        log_probs = tf.concat([tf.zeros([count, 1]), nothing[:, 1:]], axis=1)
        state = repeated(state, self.beam_width)
        progress = [lexical.start(x, self.beam_width) for x in sentences.phrases]
        beams = Beams(tokens, log_probs, state, [], [], progress)
        pool = Pool(nothing, tf.zeros_like(tokens)).first(self._kept)
        ended = Ended(pool, nothing, [])
        rows = sentences.rows
        return SearchState(tf.constant(0), sentences, beams, ended, ended, rows, None)

    def _recording(self, now, source, weights):
        """Returns the state with room for attention such as `weights`."""
        sentences, beams = now.sentences, now.beams
        if self._coverage_penalty:
            if not weights:
                raise ValueError(
                    "A coverage penalty needs a model whose step returns attention "
                    f"weights. Received: None, for {self.coverage_penalty!r}"
                )
            # Where the number of positions is not known yet, one will grow to it.
            positions = weights[0].shape[2:].num_elements() or 1
            shape = [*tf.unstack(tf.shape(beams.tokens)), positions]
            beams = beams._replace(coverage=[tf.zeros(shape)])
            mask = source_mask(source, self.pad_id, weights[0].shape[2:])
            sentences = sentences._replace(mask=[mask[:, None]])
            ended = now.ended._replace(bonus=[tf.zeros_like(now.ended.cut)])
            now = now._replace(ended=ended, decided=ended)
        size = tf.maximum(1, tf.reduce_max(sentences.limits))
        if self.no_repeat_ngram:
            written = tf.zeros([*tf.unstack(tf.shape(beams.tokens)), size], tf.int32)
            beams = beams._replace(written=[written])
        shape = [known_count_of(source), self.beam_width]
        history = History.empty(shape, [x.shape[2:] for x in weights], size)
        return now._replace(sentences=sentences, beams=beams, history=history)

    @property
    def _kept(self) -> int:
        """How many finished hypotheses are kept of each sentence while it goes on."""
        return self.beam_width if self.early_stopping == "first" else self.n_best

    @property
    def _coverage_penalty(self) -> CoveragePenalty | None:
        return coverage_penalty_of(self.coverage_penalty)

    def _choose(self, now, logits, words, spelling):
        """Finds the best extensions of a sentence's hypotheses.

        Args:
            now: The state before this step.
            logits: [A, K, V], or [A, K, M] of the shortlisted words.
            words: What `words_of` returned.
            spelling: As of `Constraints`.

        Returns:
            The extended hypotheses' log-probabilities [A, K], -inf for impossible ones,
            their beams before, and their last tokens; and their progress.
        """
        if words is None:
            words = words_of(logits, self._never, tf.range(tf.shape(logits)[2]))
        ids, banned = words
        normalisers, possible = split_log_softmax(logits)
        offsets = now.beams.log_probs[..., None] - normalisers
        offsets = tf.where(possible, offsets, IMPOSSIBLE)
        masks, forced = self._masks(now, logits, ids), None
        if now.sentences.prefix.shape[1] != 0:  # it may hold what is banned
            forced = forced_tokens(now.sentences.prefix, now.time, self.pad_id)
        if forced is not None or now.sentences.phrases:
            masks, banned = [*masks, banned], None
        allowed = constrained(logits, masks, forced, self.pad_id, ids)
        best = best_extensions(allowed, offsets, banned)
        if self.shortlist is not None:
            best = *best[:2], tf.gather(ids, best[2])
        listed, progress = None if self.shortlist is None else ids, []
        for phrases, before in _followed(now.sentences, now.beams):
            best, after = lexical.allocated(
                best, allowed, offsets, phrases, before, spelling, listed
            )
            progress.append(after)
        return best, progress

    @property
    def _never(self) -> set[int]:
        return self.never_generated | set(self.forbidden)

    def _masks(self, now, logits, ids):
        """Returns which tokens, bool [A, K or 1, V or M], are forbidden by now."""
        masks: list[Any] = []
        for least in now.sentences.least:
            early = now.time + 1 < least
            masks.append(early[..., None] & (ids == self.eos_id))
        for follows in _followed(now.sentences, now.beams):
            lacking = tf.reduce_any(lexical.unmet(*follows), axis=2, keepdims=True)
            masks.append(lacking & (ids == self.eos_id))
        for written in now.beams.written:
            size = logits.shape[2] or tf.shape(logits)[2]
            if self.shortlist is not None:
                size = self.shortlist.vocab_size
            again = repeats(written, now.time, self.no_repeat_ngram, size)
            if self.shortlist is not None:
                again = tf.gather(again, ids, axis=-1)
            masks.append(again)
        return masks

    def _finish(self, now, beams):
        """Moves ended hypotheses out of the beams, and stops decided sentences.

        Hypotheses at the maximum length are cut. A sentence stops when it has no open
        hypotheses left.
        """
        length, limits = now.time + 1, now.sentences.limits
        is_end = beams.tokens == self.eos_id
        finished = tf.where(is_end, beams.log_probs, IMPOSSIBLE)
        unfinished = tf.where(is_end, IMPOSSIBLE, beams.log_probs)
        penalty: Any = self._coverage_penalty  # None if `coverage` is empty
        covered = zip(beams.coverage, now.sentences.mask, strict=True)
        bonus = [penalty.score(*x) for x in covered]
        beam = np.arange(self.beam_width)
        places = tf.where(is_end, now.time * self.beam_width + beam, 0)
        others = Pool(self._scores(finished, length, bonus), places)
        pool = offer(now.ended.pool, others)
        at_limit = length == limits
        last = unfinished
        for follows in _followed(now.sentences, beams):
            found = pool.score(1) > IMPOSSIBLE
            last = lexical.nearest(last, lexical.unmet(*follows), found)
        cut, bonus = tf.nest.map_structure(
            lambda x, before: tf.where(at_limit, x, before),
            (last, bonus),
            (now.ended.cut, now.ended.bonus),
        )
        beams = beams._replace(log_probs=unfinished)
        goes_on = self._is_promising(beams, pool, length, now.sentences) & ~at_limit
        log_probs = tf.where(goes_on, unfinished, IMPOSSIBLE)
        return beams._replace(log_probs=log_probs), Ended(pool, cut, bonus)

    def _is_promising(self, beams, pool, length, sentences):
        """Returns whether an open hypothesis may still be one of the best, bool [A, 1].

        With `early_stopping=False` it always may, with "first" only until enough ended.
        """
        worst = pool.score(self.n_best)
        if self.early_stopping is False:
            return tf.ones_like(worst, tf.bool)
        penalty: Any = self._coverage_penalty  # None if `coverage` is empty
        limits = sentences.limits
        bounds = length_penalty_of(self.length_penalty).bound(beams.log_probs, limits)
        for coverage, mask in zip(beams.coverage, sentences.mask, strict=True):
            bounds += penalty.bound(coverage, mask, limits - length)
        promising = tf.reduce_any(bounds > worst, axis=1, keepdims=True)
        if self.early_stopping == "first":
            promising &= pool.score(self._kept) == IMPOSSIBLE
        return promising

    def _closed(self, ended, limits):
        """Returns the pool, its empty places filled with hypotheses that were cut."""
        beam = np.arange(self.beam_width)
        places = (limits - 1) * self.beam_width + beam
        scores = self._scores(ended.cut, limits, ended.bonus)
        return fill(ended.pool, Pool(scores, places)).first(self.n_best)

    def _scores(self, log_probs, lengths, bonus):
        """Returns the scores of hypotheses [A, K] that ended."""
        scores = length_penalty_of(self.length_penalty).score(log_probs, lengths)
        if scores is log_probs and not bonus:  # there is no penalty
            return scores
        # In TFLite -inf becomes the lowest finite number, which a penalty may divide.
        return tf.where(log_probs > IMPOSSIBLE, sum(bonus, scores), IMPOSSIBLE)


def _followed(sentences, beams):
    """Pairs of the phrases that must occur and the hypotheses' progress; or nothing."""
    return zip(sentences.phrases, beams.progress, strict=True)


def _spread(found, rows, chosen):
    """Puts hypotheses of some sentences in their places among all, zeros elsewhere."""

    def spread(x):
        shape = tf.concat([tf.shape(chosen), tf.shape(x)[1:]], 0)
        return tf.scatter_nd(rows[:, None], x, tf.cast(shape, rows.dtype))

    return tf.nest.map_structure(spread, found)


@dataclasses.dataclass(frozen=True, repr=False)
class GreedySearch(SpecialTokens):
    """A search that takes the most probable token at every step.

    At a tie it takes the lower id. It is a `BeamSearch(beam_width=1)` with no other
    options. A hypothesis ends with the end token, or is cut off at the maximum length.

    Args:
        max_length: Longest hypothesis, the end token included; None for twice the
            sentence's source length plus 10, if the source is ids.
        bos_id: The token that the model reads first; see `SpecialTokens`.
        eos_id: The token that ends a hypothesis.
        pad_id: The id of padding, in sources of ids and results.

    Raises:
        TypeError: If `max_length` or an id is not an integer.
        ValueError: If `max_length` is below 1, or an id negative.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> hypotheses = kl.GreedySearch(max_length=4)(model, np.array([[4, 5, 3]]))
        >>> tuple(hypotheses.lengths.shape)
        (1, 1)
    """

    max_length: SizeOrNone = 100

    def as_beam_search(self) -> BeamSearch:
        """Returns the equivalent beam search."""
        return BeamSearch(1, max_length=self.max_length, **self.special_ids)

    def __call__(self, model: StepModel, source: Source) -> Hypotheses:
        """Finds one hypothesis per sentence, scored by its log-probability.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads: int32 [B, S] ids, right-padded with
                `pad_id`; or tensors [B, ...] of any dtype, or a tuple or dict of them.
        """
        return self.as_beam_search()(model, source)
