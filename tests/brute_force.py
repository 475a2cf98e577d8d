"""A model that is looked up, and in plain Python all that a search may find by it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

from keras_luong.decoding import BeamSearch
from keras_luong.decoding.penalties import (
    AverageLengthPenalty,
    GNMTCoveragePenalty,
    GNMTLengthPenalty,
    SummaryCoveragePenalty,
    WordReward,
)
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

INF = float("inf")
TABLE_ROWS = 101


class TableState(NamedTuple):
    history: dict
    constant: tuple


class TableModel:
    """Logits and attention looked up by a hash of the sentence and all tokens so far.

    The state is a nest of every kind, so that a beam that follows the wrong parent
    reads another row.
    """

    def __init__(self, seed, vocabulary=5, scale=2.0):
        random = np.random.default_rng(seed)
        shape = TABLE_ROWS, vocabulary
        self.table = random.normal(0, scale, shape).astype("float32")
        self.steps = 0

    def encode(self, source_ids):
        start = tf.reduce_sum(source_ids, axis=1, keepdims=True)
        state = TableState({"hash": start}, (tf.zeros_like(start), [tf.zeros([1])][1:]))
        return {
            "positions": tf.zeros_like(source_ids)[:, None]
            + tf.range(tf.shape(source_ids)[1]),
            "ids": source_ids,
        }, state

    def step(self, tokens, state, memory):
        self.steps += 1
        code = (state.history["hash"] * 7 + tokens) % TABLE_ROWS
        code3 = code[..., None] * 3
        weights = tf.cast((code3 + memory["positions"] * 5) % 11, tf.float32) / 11
        state = TableState({"hash": code}, state.constant)
        return tf.gather(self.table, code), state, weights

    def read(self, source, tokens):
        """In plain Python: the log-probabilities and attention after some tokens."""
        code = int(sum(source))
        for token in [BOS_ID, *tokens]:
            code = (code * 7 + token) % TABLE_ROWS
        logits = self.table[code]
        log_probs = logits - np.logaddexp.reduce(logits)
        weights = (code * 3 + np.arange(len(source)) * 5) % 11 / np.float32(11)
        return log_probs, weights


def gnmt(log_prob, length, alpha):
    return log_prob / ((5 + length) / 6) ** alpha


class Rules(NamedTuple):
    """A search's semantics, for the plain Python below."""

    limit: int
    length: object = GNMTLengthPenalty(0.0)
    coverage: object = None
    least: int = 0
    ngram: int = 0
    forbidden: tuple = ()
    prefix: tuple = ()

    def longest(self):
        return max(self.limit, len(self.prefix) + 1) if self.prefix else self.limit

    def allows(self, tokens, token):
        """Whether `token` may follow `tokens`."""
        place = len(tokens)
        if place < len(self.prefix):
            return token == self.prefix[place]
        if token in (PAD_ID, BOS_ID, *self.forbidden):
            return False
        if token == EOS_ID and place + 1 < min(self.least, self.longest()):
            return False
        longer = (*tokens, token)
        if not self.ngram or len(longer) < self.ngram:
            return True
        earlier = [tokens[i : i + self.ngram] for i in range(len(tokens))]
        return longer[-self.ngram :] not in earlier

    def score(self, model, source, tokens, log_prob):
        score = score_of_length(self.length, log_prob, len(tokens))
        if self.coverage is not None:
            seen = [model.read(source, tokens[:i])[1] for i in range(len(tokens))]
            mask = np.array(source) != PAD_ID
            score += score_of_coverage(self.coverage, np.sum(seen, 0)[mask])
        return score

    def best(self, model, source, ended, cut, n_best):
        """(tokens, log p, score) of the best: those that ended, then those cut."""

        def ranked(group):
            scored = [
                (list(t), lp, self.score(model, source, t, lp)) for t, lp in group
            ]
            return sorted(scored, key=lambda x: -x[2])

        return (ranked(ended) + ranked(cut))[:n_best]


def score_of_length(penalty, log_prob, length):
    if isinstance(penalty, WordReward):
        return log_prob + penalty.reward * length
    if isinstance(penalty, AverageLengthPenalty):
        return log_prob / length**penalty.alpha
    return gnmt(log_prob, length, penalty.alpha)


def score_of_coverage(penalty, coverage):
    if isinstance(penalty, SummaryCoveragePenalty):
        return -penalty.beta * sum(max(c - 1, 0) for c in coverage)
    return penalty.beta * sum(np.log(min(max(c, 1e-6), 1)) for c in coverage)


def all_sequences(model, source, rules):
    """Every sequence that ends, and every one that the limit cuts, with its log p."""
    open_ones, ended = [((), 0.0)], []
    for _ in range(rules.longest()):
        longer = extended(model, source, open_ones, rules)
        ended += [x for x in longer if x[0][-1] == EOS_ID]
        open_ones = [x for x in longer if x[0][-1] != EOS_ID]
    return ended, open_ones


def extended(model, source, hypotheses, rules):
    longer = []
    for tokens, log_prob in hypotheses:
        following = model.read(source, tokens)[0]
        for token in range(len(following)):
            if rules.allows(tokens, token):
                longer.append(((*tokens, token), log_prob + following[token]))
    return longer


def plain_beam_search(model, source, beam_width, rules, first=False):
    """The same semantics in plain Python; it stops early only as "first" does."""
    beams, ended = [((), 0.0)], []
    for _ in range(rules.longest()):
        longer = extended(model, source, beams, rules)
        longer = sorted(longer, key=lambda x: -x[1])[:beam_width]
        ended += [x for x in longer if x[0][-1] == EOS_ID]
        beams = [x for x in longer if x[0][-1] != EOS_ID]
        if first and len(ended) >= beam_width:
            return ended, []
    return ended, beams


def assert_same(hypotheses, row, expected, model=None, source=None):
    """A sentence's hypotheses are these, in this order, padded as documented."""
    for n in range(hypotheses.ids.shape[1]):
        ids = hypotheses.ids[row, n].numpy()
        length = int(hypotheses.lengths[row, n])
        weights = hypotheses.weights[row, n].numpy()
        assert (ids[length:] == PAD_ID).all() and (weights[length:] == 0).all()
        if n >= len(expected):
            assert length == 0
            assert hypotheses.scores[row, n] == hypotheses.log_probs[row, n] == -INF
            continue
        tokens, log_prob, score = expected[n]
        assert ids[:length].tolist() == tokens
        np.testing.assert_allclose(hypotheses.log_probs[row, n], log_prob, atol=1e-4)
        np.testing.assert_allclose(hypotheses.scores[row, n], score, atol=1e-4)
        if model is not None:
            seen = [model.read(source, tokens[:i])[1] for i in range(length)]
            np.testing.assert_allclose(weights[:length, : len(source)], seen, 1e-6)
            steps = [model.read(source, tokens[:i])[0] for i in range(length)]
            wanted = [x[t] for x, t in zip(steps, tokens, strict=True)]
            said = hypotheses.token_log_probs[row, n].numpy()
            np.testing.assert_allclose(said[:length], wanted, atol=1e-4)
            assert (said[length:] == 0).all()


SOURCES = [[7, 9, 3], [4, 3, 0], [3, 0, 0]]


LENGTH_PENALTIES = [
    *(GNMTLengthPenalty(alpha) for alpha in (0.0, 0.6, 3.0)),
    *(AverageLengthPenalty(alpha) for alpha in (0.5, 1.0)),
    *(WordReward(reward) for reward in (0.3, 2.0)),
]
COVERAGE_PENALTIES = [
    None,
    GNMTCoveragePenalty(0.2),
    GNMTCoveragePenalty(2.0),
    SummaryCoveragePenalty(1.0),
]


@st.composite
def all_rules(draw, limit):
    """Rules, as constrained as they come."""
    return Rules(
        draw(st.integers(1, limit)),
        draw(st.sampled_from(LENGTH_PENALTIES)),
        draw(st.sampled_from(COVERAGE_PENALTIES)),
        draw(st.sampled_from([0, 0, 2, 3, 9])),
        draw(st.sampled_from([0, 0, 1, 2, 3])),
        draw(st.sampled_from([(), (), (1,), (4, 1)])),
        tuple(draw(st.lists(st.sampled_from([1, 4]), max_size=2))),
    )


def search_by(rules, beam_width, n_best, **options):
    return BeamSearch(
        beam_width,
        n_best,
        rules.limit,
        rules.length,
        rules.coverage or 0.0,
        min_length=rules.least,
        no_repeat_ngram=rules.ngram,
        forbidden=rules.forbidden,
        **options,
    )


def prefixes(rules):
    return [rules.prefix] * len(SOURCES) if rules.prefix else None
