"""Beam search: the K most probable open hypotheses, and a pool of finished ones.

`BeamSearch` begins in `_search`, takes `_step`s in a loop, and ends in `_finish`.
`GreedySearch` takes the most probable token at every step: a beam of one.

Shapes: B sentences, A of them undecided, S source length, K beam width, N hypotheses
kept of a sentence, V vocabulary (or M shortlisted words), T longest hypothesis, P
longest prefix, C phrases that must occur.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.fields import NotNegative
from keras_luong.decoding import lexical
from keras_luong.decoding.constraints import (
    best_extensions,
    forced_tokens,
    is_among,
    max_lengths,
    min_lengths,
    repeats,
    token_ids,
)
from keras_luong.decoding.hoisting import begin, cast_once, hoisted
from keras_luong.decoding.penalties import (
    CoveragePenaltyOf,
    LengthPenaltyOf,
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
    Written,
    empty_arrays,
    ended_of_all,
    fill,
    loop_shapes,
    offer,
    remove_decided,
    trace_back,
    write,
)
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    Search,
    Size,
    SizeOrNone,
    SizeOrZero,
    Source,
    SpecialTokens,
    StepModel,
    check_source,
    check_target_ids,
    count_of,
    flat_positions,
    follow,
    keep_shapes,
    known_count_of,
    source_mask,
    split_log_softmax,
    vocab_size_in,
)


def _check_forbidden(name: str, ids: Any) -> tuple[int, ...]:
    if not isinstance(ids, Iterable):
        raise TypeError(f"{name} must be ids, such as (1,). Received: {ids!r}")
    # Files hold a list. A tuple makes the search hashable.
    return tuple(check_size(f"an id in {name}", x, smallest=0) for x in ids)


def _check_shortlist(name: str, shortlist: Any) -> Any:
    if shortlist is not None and not hasattr(shortlist, "restrict"):
        raise TypeError(f"{name} must be a Shortlist or None. Received: {shortlist!r}")
    return shortlist


def _check_early_stopping(name: str, value: Any) -> bool | str:
    if not isinstance(value, bool) and value != "first":
        raise ValueError(f'{name} must be True, False or "first". Received: {value!r}')
    return value


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
    forbidden: Annotated[tuple[int, ...], _check_forbidden] = ()
    shortlist: Annotated[Any, _check_shortlist] = None
    early_stopping: Annotated[bool | str, _check_early_stopping] = True
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

    def _search(self, model, source, prefix_ids, constraints=None, longest=None):
        """Encodes the source, takes steps while a hypothesis is open, and finishes.

        `longest` is the T of the result, at least all maximum lengths, where XLA must
        know it by shapes alone; None for that of the longest hypothesis.
        """
        phrases, spelling, listed = [], None, None
        if constraints is not None:
            phrases = [lexical.phrases_of(constraints, source, self.pad_id)]
            spelling = constraints.spelling
        if self.shortlist is not None:
            words = [prefix_ids, *map(lexical.tokens_of, phrases)]
            listed, model = self.shortlist.restrict(model, source, tf.concat(words, 1))
        memory, tokens, state, model_step, (logits, weights) = begin(
            model, source, self, self.beam_width, self.compact
        )
        if listed is None:
            self.check_logits(logits)
        limits = max_lengths(self, source, prefix_ids)
        rows, least = tf.range(count_of(source)), min_lengths(self, source, limits)
        sentences = Sentences(rows, limits, least, prefix_ids, phrases, [], memory)
        if longest is not None:  # the very attention: its shape may not change
            weights = model_step(tokens, state)[2]
        start = self._start(source, sentences, tokens, state, weights, longest)
        shapes = loop_shapes(start, self.compact)
        # What a step changes or, where sentences leave the batch, reads anew.
        parts: Any = "time", "beams", "ended", *["sentences"] * self.compact
        parts_of = operator.attrgetter(*parts)

        def extend(*changed):
            now = start._replace(**dict(zip(parts, changed, strict=True)))
            memory = [now.sentences.memory] if self.compact else []
            outputs = model_step(now.beams.tokens, now.beams.state, *memory)
            return self._step(now, outputs, listed, spelling)

        extend, _ = hoisted(extend, *parts_of(start), shapes=parts_of(shapes))

        def body(now):
            beams, ended, choices = extend(*parts_of(now))
            if self.compact:  # of the whole batch; of those that left it, anything
                choices = tf.nest.map_structure(
                    lambda x: tf.gather(x, now.places), choices
                )
            after = now._replace(
                time=now.time + 1,
                beams=keep_shapes(beams, now.beams),
                ended=keep_shapes(ended, now.ended),
                history=write(now.history, now.time, choices),
            )
            return [remove_decided(after) if self.compact else after]

        def any_open(now):
            return (now.time == 0) | tf.reduce_any(now.beams.log_probs > IMPOSSIBLE)

        (end,) = tf.while_loop(any_open, body, [start], [shapes])
        return self._finish(end, limits, longest)

    def _start(self, source, sentences, tokens, state, weights, longest=None):
        """Returns a state with one open hypothesis per sentence and empty pools.

        Args:
            source: The source.
            sentences: The `Sentences`.
            tokens: int32 [B, K], the begin id.
            state: The model's state, a nest of [B, K, ...].
            weights: A step's attention [B, K, S], for its shape; an empty list if the
                model has none.
            longest: At least all maximum lengths; None for the largest of them.
        """
        shape = tf.shape(tokens)
        nothing = tf.fill(shape, IMPOSSIBLE)
        log_probs = tf.where(np.arange(self.beam_width) == 0, 0.0, nothing)
        size = longest
        if longest is None:
            size = tf.maximum(1, tf.reduce_max(sentences.limits))
        coverage, bonus, past = [], [], []
        if coverage_penalty_of(self.coverage_penalty) is not None:
            if not weights:
                raise ValueError(
                    "A coverage penalty needs a model whose step returns attention "
                    f"weights. Received: None, for {self.coverage_penalty!r}"
                )
            attended = weights[0].shape[2:]
            # Where the number of positions is not known yet, one will grow to it.
            positions = attended.num_elements() or 1
            if longest is not None:
                positions = tf.shape(flat_positions(weights[0]))[2]
            coverage = [tf.zeros([*tf.unstack(shape), positions])]
            mask = source_mask(source, self.pad_id, attended)
            sentences = sentences._replace(mask=[mask[:, None]])
            bonus = [tf.zeros_like(nothing)]
        if self.no_repeat_ngram:
            past = [tf.zeros([*tf.unstack(shape), size], tf.int32)]
        progress = [lexical.start(x, self.beam_width) for x in sentences.phrases]
        beams = Beams(tokens, log_probs, state, coverage, past, progress)
        pool = Pool(nothing, tf.zeros_like(tokens)).first(self._pool_size)
        ended = Ended(pool, nothing, bonus)
        shape = [known_count_of(source), self.beam_width]
        history = History(
            empty_arrays(shape, [x.shape[2:] for x in weights], size),
            tf.TensorArray(tf.int32, size, element_shape=shape),
        )
        rows = sentences.rows
        return SearchState(
            tf.constant(0), sentences, beams, ended, ended, rows, history
        )

    @property
    def _pool_size(self) -> int:
        """How many finished hypotheses are kept of each sentence while it goes on."""
        return self.beam_width if self.early_stopping == "first" else self.n_best

    def _step(self, now, outputs, listed, spelling):
        """Extends every open hypothesis by one token.

        Args:
            now: The `SearchState` before the step.
            outputs: What the model's step returned.
            listed: int32 [M], the shortlisted ids; None if there is no shortlist.
            spelling: As of `Constraints`.

        Returns:
            The `Beams` and `Ended` after the step, and its choices as a `History`.
        """
        time, sentences, beams, ended = now[:4]

        # 1. A hypothesis's log-probability after a token: its offset plus the logit.
        logits, state, weights = outputs  # [A, K, V]
        normalisers, possible = split_log_softmax(logits)  # [A, K, 1]
        offsets = beams.log_probs[..., None] - normalisers
        offsets = tf.where(possible, offsets, IMPOSSIBLE)

        # 2. What is forbidden, [A or 1, K or 1, V]. A prefix may hold it.
        ids = token_ids(logits, listed)  # [V]
        never = is_among(ids, self.never_generated | {*self.forbidden})
        masks: list[Any] = []
        for least in sentences.least:
            masks.append((time + 1 < least)[..., None] & (ids == self.eos_id))
        if sentences.phrases:
            follows = sentences.phrases[0], beams.progress[0]
            lacks = tf.reduce_any(lexical.unmet(*follows), axis=2, keepdims=True)
            masks.append(lacks & (ids == self.eos_id))
        for tokens in beams.past:
            V = vocab_size_in(logits) if listed is None else self.shortlist.vocab_size
            again = repeats(tokens, time, self.no_repeat_ngram, V)
            masks.append(again if listed is None else tf.gather(again, listed, axis=-1))
        has_prefix = sentences.prefix.shape[1] != 0
        if has_prefix or sentences.phrases:
            masks, never = [*masks, never], None
        forbidden = functools.reduce(operator.or_, masks) if masks else None
        if has_prefix:
            forced = forced_tokens(sentences.prefix, time, self.pad_id)[:, None, None]
            forbidden = tf.where(forced == self.pad_id, forbidden, ids != forced)
        if forbidden is not None:
            logits = tf.where(forbidden, IMPOSSIBLE, logits)

        # 3. The best K of K * V, and their parents: the beams that they extend.
        best = best_extensions(logits, offsets, never)  # [A, K]
        if listed is not None:
            best = *best[:2], tf.gather(listed, best[2])
        progress = []
        if sentences.phrases:
            best, after = lexical.allocate(
                best, logits, offsets, *follows, spelling, listed
            )
            progress = [after]
        log_probs, parents, tokens = best

        # 4. What belongs to the parents follows them.
        state, coverage, weights, past = follow(
            (state, beams.coverage, weights, beams.past), parents
        )
        if coverage:
            coverage = [coverage[0] + flat_positions(weights[0])]
        past = [
            tf.where(tf.range(tf.shape(x)[2]) == time, tokens[..., None], x)
            for x in past
        ]
        choices = History(Written(tokens, log_probs, weights), parents)

        # 5. Hypotheses that ended move to the pool.
        length, limits = time + 1, sentences.limits
        is_end = tokens == self.eos_id
        finished = tf.where(is_end, log_probs, IMPOSSIBLE)
        log_probs = tf.where(is_end, IMPOSSIBLE, log_probs)
        penalty: Any = coverage_penalty_of(self.coverage_penalty)
        bonus = [penalty.score(coverage[0], sentences.mask[0])] if coverage else []
        beam = np.arange(self.beam_width)
        places = tf.where(is_end, time * self.beam_width + beam, 0)
        scores = self._scores(finished, length, bonus)
        pool = offer(ended.pool, Pool(scores, places))

        # 6. The maximum length cuts the others; of phrases they may lack the fewest.
        at_limit = length == limits  # [A, 1]
        last = log_probs
        if progress:
            has_finished = pool.score(1) > IMPOSSIBLE
            lacks = lexical.unmet(sentences.phrases[0], progress[0])
            last = lexical.keep_nearest(last, lacks, has_finished)
        cut, bonus = tf.nest.map_structure(
            lambda x, before: tf.where(at_limit, x, before),
            (last, bonus),
            (ended.cut, ended.bonus),
        )

        # 7. A sentence goes on while an open hypothesis can still enter its pool.
        goes_on = ~at_limit
        if self.early_stopping is not False:
            bounds = length_penalty_of(self.length_penalty).bound(log_probs, limits)
            if coverage:
                bounds += penalty.bound(coverage[0], sentences.mask[0], limits - length)
            can_enter = bounds > pool.score(self.n_best)
            goes_on &= tf.reduce_any(can_enter, axis=1, keepdims=True)
        if self.early_stopping == "first":
            goes_on &= pool.score(self._pool_size) == IMPOSSIBLE
        log_probs = tf.where(goes_on, log_probs, IMPOSSIBLE)
        beams = Beams(tokens, log_probs, state, coverage, past, progress)
        return beams, Ended(pool, cut, bonus), choices

    def _finish(self, end, limits, longest):
        """Fills empty places in the pool with what was cut, and reads the history."""
        ended = ended_of_all(end) if self.compact else end.ended
        beam = np.arange(self.beam_width)
        places = (limits - 1) * self.beam_width + beam
        scores = self._scores(ended.cut, limits, ended.bonus)
        pool = fill(ended.pool, Pool(scores, places)).first(self.n_best)
        return trace_back(pool, end.history, end.time, self.pad_id, longest)

    def _scores(self, log_probs, lengths, bonus):
        """Returns the scores of hypotheses [A, K] that ended."""
        scores = length_penalty_of(self.length_penalty).score(log_probs, lengths)
        if scores is log_probs and not bonus:  # there is no penalty
            return scores
        # In TFLite -inf becomes the lowest finite number, which a penalty may divide.
        return tf.where(log_probs > IMPOSSIBLE, sum(bonus, scores), IMPOSSIBLE)

    def _search_with(self, constraints, model, source, prefix_ids):
        """Searches freely, and again where the best hypothesis lacks a phrase."""
        constraints = constraints._replace(ids=tf.convert_to_tensor(constraints.ids))
        free = dataclasses.replace(self, n_best=1)._search(model, source, prefix_ids)
        lacks = lexical.unmet_by(constraints, free.ids, self.pad_id)[:, 0]
        has_all = ~tf.reduce_any(lacks, axis=1)  # [B]
        # Further hypotheses must have the phrases too.
        again = tf.ones_like(has_all) if self.n_best > 1 else ~has_all

        def search():
            rows = tf.where(again)[:, 0]
            some, begin, ids = tf.nest.map_structure(
                lambda x: tf.gather(x, rows), (source, prefix_ids, constraints.ids)
            )
            must = constraints._replace(ids=ids)
            constrained = self._search(model, some, begin, must)

            def spread(x):  # to their places in the batch, zeros elsewhere
                shape = tf.concat([tf.shape(again), tf.shape(x)[1:]], 0)
                return tf.scatter_nd(rows[:, None], x, tf.cast(shape, rows.dtype))

            others = tf.nest.map_structure(spread, constrained)
            return lexical.put_free_first(free, has_all, others, self.pad_id)

        if self.n_best > 1:
            return search()
        return tf.cond(tf.reduce_any(again), search, lambda: free)

    def with_spares(self) -> BeamSearch:
        """Returns a search that keeps as many hypotheses as its beam has.

        Its first `n_best` are this one's. The others take the places of hypotheses that
        say the same in other pieces. A search for one hypothesis needs none.
        """
        if self.n_best == 1:
            return self
        return dataclasses.replace(self, n_best=self.beam_width)


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


def compiled_search(
    search: Search, model: StepModel, ids: tf.Tensor, prefix_ids: Any = None
) -> Hypotheses:
    """Searches by XLA, which makes a few launches of a step's many small operations.

    Call it within a `tf.function`: alone, it would compile at every call. XLA compiles
    anew for each shape. So sentences and columns are filled up to a power of two, no
    sentence leaves the batch, and there is room for the longest hypothesis of a source
    of so many columns. What XLA cannot compile is as ever: the model's `encode`, which
    cuDNN may run; a shortlist, whose words are others in every batch; a search that is
    no `BeamSearch` or `GreedySearch`.

    Args:
        search: The search.
        model: A `StepModel`, whose `step` XLA can compile.
        ids: int32 [B, S], right-padded with 0, B at least 1.
        prefix_ids: int32 [B, P] likewise, as of `BeamSearch`; or None.

    Returns:
        The result of `search(model, ids, prefix_ids)`. In half precision XLA rounds at
        other places, so of hypotheses that score nearly alike another may be the best.
    """
    prefixes = [] if prefix_ids is None else [prefix_ids]
    if isinstance(search, GreedySearch):
        search = search.as_beam_search()
    if not isinstance(search, BeamSearch) or search.shortlist is not None:
        return search(model, ids, *prefixes)
    search = dataclasses.replace(search, compact=False)

    # 1. Few shapes. The last sentence is there again; then none goes on for longer.
    B, S = tf.unstack(tf.shape(ids))
    rows = tf.minimum(tf.range(_power_of_two(B)), B - 1)
    source, *prefixes = (_filled(tf.gather(x, rows)) for x in (ids, *prefixes))
    prefix = prefixes[0] if prefixes else tf.zeros([tf.size(rows), 0], tf.int32)

    # 2. All but the encoder is compiled.
    with cast_once(model):
        encoded = model.encode(source)
        config = getattr(model, "config", None)
        rest = SimpleNamespace(encode=lambda _: encoded, step=model.step, config=config)

        def find() -> Hypotheses:
            # Of shapes alone: XLA would compile anew for other ids.
            full = (tf.fill(tf.shape(x), 1) for x in (source, prefix))
            longest = tf.reduce_max(max_lengths(search, *full))
            return search._search(rest, source, prefix, longest=longest)

        hypotheses = tf.function(find, jit_compile=True, autograph=False)()

    # 3. What was filled up goes.
    hypotheses = Hypotheses(*(x[:B] for x in hypotheses))
    T = tf.maximum(1, tf.reduce_max(hypotheses.lengths))
    return hypotheses._replace(
        ids=hypotheses.ids[:, :, :T],
        weights=hypotheses.weights[:, :, :T, :S],
        token_log_probs=hypotheses.token_log_probs[:, :, :T],
    )


def _power_of_two(size):
    """Returns the smallest power of two that is a size or above it, at least 16."""
    powers = 2 ** np.arange(4, 31, dtype="int32")
    return tf.reduce_min(tf.boolean_mask(powers, powers >= size))


def _filled(ids):
    missing = _power_of_two(tf.shape(ids)[1]) - tf.shape(ids)[1]
    return tf.pad(ids, [[0, 0], [0, missing]])
