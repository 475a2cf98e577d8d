"""Beam search: the K most probable open hypotheses, and a pool of finished ones.

Shapes: B sentences, A of them undecided, S source length, K beam width,
N hypotheses kept per sentence, V vocabulary, T longest hypothesis, P longest
prefix.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import tensorflow as tf

from keras_luong.config.fields import NotNegative
from keras_luong.decoding.cast_once import cast_once
from keras_luong.decoding.constraints import constrained, forced_tokens, listed, repeats
from keras_luong.decoding.history import History, record, trace_back
from keras_luong.decoding.hypotheses import IMPOSSIBLE, Hypotheses, Written
from keras_luong.decoding.penalties import (
    CoveragePenalty,
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
from keras_luong.decoding.settings import (
    CoveragePenaltyOf,
    EarlyStopping,
    Forbidden,
    LengthPenaltyOf,
    ShortlistOrNone,
    Size,
    SizeOrNone,
    SizeOrZero,
)
from keras_luong.decoding.sources import (
    Source,
    check_source,
    check_target_ids,
    count_of,
    known_count_of,
    length_limits,
    share_of_lengths,
    source_mask,
    token_counts,
)
from keras_luong.decoding.special_tokens import SpecialTokens
from keras_luong.decoding.stepping import (
    StepModel,
    attention,
    ensure_shape,
    flat_positions,
    follow,
    keep_shapes,
    split_log_softmax,
    vocab_size_in,
)
from keras_luong.decoding.top_k import top_k, up_to_k

FEW = 16  # if more ids are forbidden, the whole vocabulary is masked


@dataclasses.dataclass(frozen=True, repr=False)
class BeamSearch(SpecialTokens):
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
    ) -> Hypotheses:
        """Finds the `n_best` hypotheses of each sentence.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads: int32 [B, S] ids, right-padded with
                `pad_id`; or tensors [B, ...] of any dtype, or a tuple or dict of them.
            prefix_ids: int32 [B, P], how each sentence's hypotheses must begin,
                right-padded with `pad_id`; or None. A prefix may hold what is
                forbidden, and the maximum length is at least one token beyond it.

        Raises:
            TypeError: If there is a shortlist and the model can't be restricted to it.
            ValueError: If the source or the prefixes have the wrong shape; if the
                maximum length needs a source of ids, a coverage penalty attention, or
                the end token a larger vocabulary.
        """
        source = check_source(source)
        if self.compact and known_count_of(source) == 1:  # there is nothing to compact
            search = dataclasses.replace(self, compact=False)
            return search(model, source, prefix_ids)
        if prefix_ids is None:
            prefix_ids = tf.zeros([count_of(source), 0], tf.int32)
        prefix_ids = check_target_ids("prefix_ids", prefix_ids, source)
        with cast_once(model):
            return self._search(model, source, prefix_ids)

    def with_spares(self) -> BeamSearch:
        """Returns a search that keeps as many hypotheses as its beam has.

        Its first `n_best` are this one's. The others take the places of hypotheses that
        say the same in other pieces. A search for one hypothesis needs none; with
        `early_stopping="first"` more of them would let the search go on for longer.
        """
        if self.n_best == 1 or self.early_stopping == "first":
            return self
        return dataclasses.replace(self, n_best=self.beam_width)

    def _search(self, model, source, prefix_ids):
        ids = None
        if self.shortlist is not None:
            ids, model = self.shortlist.restrict(
                model, source, prefix_ids, self._proposals
            )
        memory, state = model.encode(source)
        sentences = self._sentences(source, prefix_ids, memory)

        def body(now):
            after = self._extend(now, self._ask(model, now), ids)
            beams = keep_shapes(after.beams, now.beams)
            pool = keep_shapes(after.pool, now.pool)
            return [self._without_decided(after._replace(beams=beams, pool=pool))]

        def any_open(now):
            return tf.reduce_any(now.beams.log_probs > IMPOSSIBLE)

        # The first step has one beam, so the memory and the state need no tiling.
        start = self._start(sentences, state)
        said = self._ask(model, start)
        start = self._recording(start, source, said)
        first = self._without_decided(self._extend(start, said, ids))
        shapes = [loop_shapes(first)] if self.compact else None
        (end,) = tf.while_loop(any_open, body, [first], shapes)
        pool = end.pool
        if self.compact:
            pool = scattered(end.decided, end.sentences.rows, pool)
        return trace_back(pool, end.history, end.time, self.pad_id)

    def _ask(self, model, now):
        """Takes the model's step: logits [A, K, V], state, attention."""
        beams = now.beams
        logits, state, weights = model.step(
            beams.tokens, beams.state, now.sentences.memory
        )
        # The graph of a loaded model may have lost the number of beams.
        count = beams.tokens.shape[1]
        logits = ensure_shape(tf.cast(logits, tf.float32), [None, count, None])
        state = keep_shapes(state, beams.state)
        return logits, state, attention(weights, count)

    def _extend(self, now, said, ids):
        """Extends every open hypothesis by one token, by what the model said."""
        logits, state, weights = said
        totals, tokens = self._propose(now, logits, ids)
        beams, parents = self._choose(now.beams, totals, tokens, state, now.time)
        weights = follow(weights, parents)
        pairs = zip(beams.coverage, weights, strict=False)
        beams = beams._replace(coverage=[c + flat_positions(w) for c, w in pairs])
        chosen = History(Written(beams.tokens, beams.log_probs, weights), parents)
        rows = now.sentences.rows if self.compact else None
        count = tf.shape(now.decided.scores)[0]
        history = record(now.history, now.time, chosen, rows, count)
        length = now.time + 1
        beams, pool = self._finish(beams, now.pool, length, now.sentences)
        return now._replace(time=length, beams=beams, pool=pool, history=history)

    def _without_decided(self, now):
        return compacted(now) if self.compact else now

    def _sentences(self, source, prefix_ids, memory):
        """Returns the limits, prefix and memory of each sentence."""
        if self.max_length_ratio is None:
            limits = length_limits(source, self.max_length, self.pad_id)
        else:
            limits = tf.maximum(1, self._relative("max_length_ratio", source))
            if self.max_length is not None:
                limits = tf.minimum(limits, self.max_length)
        prefix = token_counts(prefix_ids, self.pad_id)
        limits = tf.where(prefix > 0, tf.maximum(limits, prefix + 1), limits)
        least = tf.fill([count_of(source)], self.min_length)
        if self.min_length_ratio:
            least = tf.maximum(least, self._relative("min_length_ratio", source))
        least = tf.minimum(least, limits)
        rows = tf.range(count_of(source))
        return Sentences(rows, limits, least, prefix_ids, [], memory)

    def _relative(self, name, source):
        return share_of_lengths(source, self.pad_id, getattr(self, name), name)

    def _start(self, sentences, state):
        """Returns a state with one open hypothesis per sentence and empty pools."""
        count = tf.shape(sentences.rows)[0]
        tokens = tf.fill([count, 1], self.bos_id)
        beams = Beams(tokens, tf.zeros([count, 1]), state, coverage=[], written=[])
        nothing = tf.fill([count, self.n_best], IMPOSSIBLE)
        nowhere = tf.zeros([count, self.n_best], tf.int32)
        pool = Pool(nothing, nothing, nowhere, nowhere)
        return SearchState(tf.constant(0), sentences, beams, pool, pool, None)

    def _recording(self, now, source, said):
        """Returns the state with room for what the model's first step is like."""
        *_, weights = said
        sentences, beams = now.sentences, now.beams
        if self._coverage_penalty:
            if not weights:
                raise ValueError(
                    "A coverage penalty needs a model whose step returns attention "
                    f"weights. Received: None, for {self.coverage_penalty!r}"
                )
            beams = beams._replace(coverage=[tf.zeros_like(flat_positions(*weights))])
            mask = source_mask(source, self.pad_id, weights[0].shape[2:])
            sentences = sentences._replace(mask=[mask])
        size = tf.maximum(1, tf.reduce_max(sentences.limits))
        if self.no_repeat_ngram:
            written = tf.zeros([*tf.unstack(tf.shape(beams.tokens)), size], tf.int32)
            beams = beams._replace(written=[written])
        shape = [known_count_of(source), self.beam_width]
        history = History.empty(shape, [x.shape[2:] for x in weights], size)
        return now._replace(sentences=sentences, beams=beams, history=history)

    @property
    def _coverage_penalty(self) -> CoveragePenalty | None:
        return coverage_penalty_of(self.coverage_penalty)

    @property
    def _never(self) -> set[int]:
        """The forbidden ids that are looked for among the proposals only."""
        few = len(self.forbidden) <= FEW
        return self.never_generated | set(self.forbidden if few else ())

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
        if ids is None:
            self.check_logits(logits)
        normalisers, possible = split_log_softmax(logits)
        prefix, forced = now.sentences.prefix, None
        if prefix.shape[1] != 0:
            forced = forced_tokens(prefix, now.time, self.pad_id)[:, None, None]
        masks = self._masks(now, logits)
        allowed = constrained(logits, masks, forced, self.pad_id, ids)
        if ids is None:
            best, tokens = up_to_k(allowed, self._proposals, self.eos_id)
        else:
            best, tokens = top_k(allowed, self._proposals)
            tokens = tf.gather(ids, tokens)
        early = now.time + 1 < now.sentences.least
        bad = (tokens == self.eos_id) & early[:, None, None]
        for token in sorted(self._never):
            bad |= tokens == token
        if forced is not None:
            bad = tf.where(forced == self.pad_id, bad, tokens != forced)
        totals = now.beams.log_probs[..., None] + (best - normalisers)
        return tf.where(possible & ~bad, totals, IMPOSSIBLE), tokens

    def _masks(self, now, logits):
        """Returns which of all ids the constraints forbid, where these are many."""
        words, masks = self.shortlist, []
        size = vocab_size_in(logits) if words is None else words.vocab_size
        if len(self.forbidden) > FEW:
            masks.append(listed(self.forbidden, size))
        if self.no_repeat_ngram:
            (written,) = now.beams.written
            masks.append(repeats(written, now.time, self.no_repeat_ngram, size))
        return masks

    def _choose(self, beams, totals, tokens, state, time):
        """Returns the best `beam_width` proposals, and the beam that each extends."""
        old, proposals = totals.shape[1:3]
        # One beam may propose fewer than `beam_width`, if the vocabulary is small.
        missing = [[0, 0], [0, max(0, self.beam_width - old * proposals)]]
        flat = [-1, old * proposals]
        totals = tf.pad(tf.reshape(totals, flat), missing, constant_values=IMPOSSIBLE)
        tokens = tf.pad(tf.reshape(tokens, flat), missing, constant_values=self.eos_id)
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
        ended = beams.tokens == self.eos_id
        finished = tf.where(ended, beams.log_probs, IMPOSSIBLE)
        unfinished = tf.where(ended, IMPOSSIBLE, beams.log_probs)
        at_limit = length >= limits
        penalty: Any = self._coverage_penalty  # None if `coverage` is empty
        mask = [x[:, None] for x in sentences.mask]
        bonus = [penalty.score(c, *mask) for c in beams.coverage]
        pool = offer(pool, self._pool_of(finished, length, bonus))
        rest = tf.where(at_limit, unfinished, IMPOSSIBLE)
        pool = fill(pool, self._pool_of(rest, length, bonus))

        worst = pool.scores[:, -1:]
        if self.early_stopping is True:
            bounds = length_penalty_of(self.length_penalty).bound(unfinished, limits)
            for c in beams.coverage:
                bounds += penalty.bound(c, *mask, limits - length)
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
