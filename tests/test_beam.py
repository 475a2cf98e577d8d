"""Beam and greedy search against brute force, plain Python and models that spell."""

from __future__ import annotations

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from brute_force import (
    INF,
    SOURCES,
    Rules,
    TableModel,
    all_rules,
    all_sequences,
    assert_same,
    gnmt,
    plain_beam_search,
    prefixes,
    search_by,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.decoding import BeamSearch, GreedySearch, RandomSampling
from keras_luong.decoding.beam import compiled_search
from keras_luong.decoding.penalties import (
    AverageLengthPenalty,
    GNMTCoveragePenalty,
    GNMTLengthPenalty,
    SummaryCoveragePenalty,
    WordReward,
)
from keras_luong.models import build
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

quick = settings(max_examples=15, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


class ScriptModel:
    """Says what a function of the source and the tokens so far says."""

    def __init__(self, logits_of, vocabulary, length=16):
        self.logits_of, self.vocabulary, self.length = logits_of, vocabulary, length
        self.steps = 0

    def encode(self, source_ids):
        batch = source_ids.shape[0]
        said = tf.fill([batch, 1, self.length], -1)
        return source_ids, (said, tf.reshape(source_ids[:, 0], [batch, 1]))

    def step(self, tokens, state, memory):
        self.steps += 1
        said, source = state
        said = tf.concat([said[..., 1:], tokens[..., None]], axis=-1)
        logits = np.zeros([*tokens.shape, self.vocabulary], "float32")
        for place in np.ndindex(*tokens.shape):
            words = said[place].numpy()
            spoken = tuple(int(w) for w in words[words >= 0][1:])
            logits[place] = self.logits_of(int(source[place]), spoken)
        weights = tf.ones([*tokens.shape, memory.shape[1]])
        return tf.constant(logits), (said, source), weights


def log_of(probabilities, vocabulary=6):
    """Logits with these probabilities and nothing else."""
    logits = np.full(vocabulary, -np.inf, "float32")
    for token, probability in probabilities.items():
        logits[token] = np.log(probability)
    return logits


many = settings(max_examples=15, derandomize=True)
stops = st.sampled_from([True, False])


@many
@given(seed=seeds, rules=all_rules(5), early=stops, compact=stops, data=st.data())
def test_as_wide_as_the_space_it_is_exhaustive(seed, rules, early, compact, data):
    vocabulary = data.draw(st.integers(4, 5))
    n_best = data.draw(st.sampled_from([1, 2, 48]))
    model = TableModel(seed, vocabulary)
    search = search_by(rules, 48, n_best, early_stopping=early, compact=compact)
    hypotheses = search(model, SOURCES, prefixes(rules))
    for row, source in enumerate(SOURCES):
        found = all_sequences(model, source, rules)
        expected = rules.best(model, source, *found, n_best)
        assert_same(hypotheses, row, expected, model, source)


@many
@given(
    seed=seeds,
    rules=all_rules(9),
    early=st.sampled_from([True, False, "first"]),
    compact=stops,
    data=st.data(),
)
def test_narrow_equals_plain_python(seed, rules, early, compact, data):
    beam_width = data.draw(st.integers(1, 6))
    n_best = data.draw(st.integers(1, beam_width))
    model = TableModel(seed, vocabulary=9)
    search = search_by(rules, beam_width, n_best, early_stopping=early, compact=compact)
    hypotheses = search(model, SOURCES, prefixes(rules))
    for row, source in enumerate(SOURCES):
        found = plain_beam_search(model, source, beam_width, rules, early == "first")
        expected = rules.best(model, source, *found, n_best)
        assert_same(hypotheses, row, expected, model, source)


def test_each_sentence_may_have_a_prefix_of_its_own():
    model, forced = TableModel(8, vocabulary=7), [[5, 6], [6, PAD_ID], [PAD_ID] * 2]
    together = BeamSearch(3, 2, 6)(model, SOURCES, forced)
    assert (together.ids[0, :, :2].numpy() == [5, 6]).all()
    assert (together.ids[1, :, 0].numpy() == 6).all()
    free = BeamSearch(3, 2, 6)(model, SOURCES)
    length = min(free.ids.shape[2], together.ids.shape[2])
    np.testing.assert_array_equal(together.ids[2, :, :length], free.ids[2, :, :length])


def test_lengths_may_be_relative_to_the_source():
    model = ScriptModel(lambda *_: np.zeros(7), 7)
    sources = [[5, 6, 7, 3], [5, 3, 0, 0]]
    search = BeamSearch(4, 4, 5, max_length_ratio=1.5, min_length_ratio=0.6)
    lengths = search(model, sources).lengths.numpy()
    assert (lengths[0] >= 3).all() and (lengths[0] <= 5).all()  # of 2.4 and 6
    assert (lengths[1] >= 2).all() and (lengths[1] <= 3).all()  # of 1.2 and 3
    unlimited = BeamSearch(1, 1, None, max_length_ratio=3.0)
    never = ScriptModel(never_ends, 6, length=30)
    assert unlimited(never, sources).lengths[:, 0].numpy().tolist() == [12, 6]


@pytest.mark.parametrize("compact", [True, False])
@quick
@given(seed=seeds)
@pytest.mark.slow
def test_limits_of_their_own_do_not_make_neighbours_matter(compact, seed):
    """A short sentence waits for long ones, its pool full of what was cut at its limit.

    There are too few short ones for them to leave the batch.
    """
    search = BeamSearch(4, 4, None, 0.6, compact=compact)
    model = TableModel(seed, vocabulary=6)
    sources = np.array([[9, 0, 0, 0, 0], *[[9, 8, 7, 6, i] for i in range(4, 11)]])
    together = search(model, sources)
    alone = search(model, sources[:1, :1])
    np.testing.assert_allclose(together.scores[:1], alone.scores, rtol=1e-5)
    T = alone.ids.shape[2]
    np.testing.assert_array_equal(together.ids[:1, :, :T], alone.ids)


@pytest.mark.parametrize("prefix", [None, [[4, 7], [19, 0], [0, 0]]])
def test_many_forbidden_ids_are_as_forbidden_as_few(prefix):
    model, rules = TableModel(3, vocabulary=30), Rules(5, forbidden=tuple(range(5, 28)))
    hypotheses = search_by(rules, 4, 3)(model, SOURCES, prefix)
    for row, source in enumerate(SOURCES):
        own = () if prefix is None else tuple(x for x in prefix[row] if x)
        own_rules = rules._replace(prefix=own)
        found = plain_beam_search(model, source, 4, own_rules)
        expected = own_rules.best(model, source, *found, 3)
        assert_same(hypotheses, row, expected, model, source)


def ends_often(source, spoken):
    """May end after each token."""
    return log_of({EOS_ID: 0.6, 4: 0.3, 5: 0.1})


@pytest.mark.parametrize("n_best", [1, 2, 3])
def test_first_stops_once_as_many_have_ended_as_the_beam_is_wide(n_best):
    steps = {}
    for early in ("first", True, False):
        model = ScriptModel(ends_often, 6)
        search = BeamSearch(3, n_best, 20, 9.0, early_stopping=early)
        found = search(model, [[3]])
        assert found.ids.shape[:2] == (1, n_best)
        steps[early] = model.steps
    assert steps["first"] == 2 < steps[True] <= steps[False]


def test_stopped_sentences_leave_the_batch():
    sizes = []

    class Watching(ScriptModel):
        def step(self, tokens, state, memory):
            sizes.append((tokens.shape[0], memory.shape[0]))
            return super().step(tokens, state, memory)

    def long_or_short(source, spoken):
        return log_of({EOS_ID: 1.0} if len(spoken) >= source else {4: 1.0})

    sources = [[9], [0], [1], [5], [0], [2], [0], [1]]
    compact = BeamSearch(2, 1, 12)(Watching(long_or_short, 6), sources)
    left = [a for a, _ in sizes]
    assert left[:3] == [8, 5, 3] and left[-1] == 1 and len(left) == 10
    assert all(a == b for a, b in sizes)
    whole = BeamSearch(2, 1, 12, compact=False)(Watching(long_or_short, 6), sources)
    for one, other in zip(compact, whole, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_search_survives_a_file():
    search = BeamSearch(
        4,
        2,
        None,
        AverageLengthPenalty(0.7),
        SummaryCoveragePenalty(2.0),
        forbidden=[1],
    )
    text = json.dumps(dataclasses.asdict(search))
    assert BeamSearch(**json.loads(text)) == search
    assert hash(search) == hash(BeamSearch(**json.loads(text)))


@quick
@given(seed=seeds, alpha=st.sampled_from([0.0, 2.0]), limit=st.integers(1, 12))
def test_beam_of_one_is_greedy(seed, alpha, limit):
    model = TableModel(seed, vocabulary=7)
    beam = BeamSearch(1, 1, limit, alpha)(model, SOURCES)
    greedy = GreedySearch(limit)(model, SOURCES)
    for name in ("ids", "lengths", "log_probs", "weights"):
        one, other = getattr(beam, name), getattr(greedy, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
    np.testing.assert_array_equal(greedy.scores, greedy.log_probs)
    for row, source in enumerate(SOURCES):
        tokens = []
        while len(tokens) < limit and EOS_ID not in tokens:
            log_probs = model.read(source, tokens)[0]
            log_probs[[PAD_ID, BOS_ID]] = -INF
            tokens.append(int(log_probs.argmax()))
        assert greedy.ids[row, 0, : len(tokens)].numpy().tolist() == tokens
        assert greedy.lengths[row, 0] == len(tokens)


SEARCHES = {
    "greedy": GreedySearch(8),
    "relative greedy": GreedySearch(None),
    "beam": BeamSearch(4, 3, 8),
    "penalty": BeamSearch(4, 2, 8, 1.0),
    "relative beam": BeamSearch(3, 1, None, 0.6),
    "coverage": BeamSearch(4, 2, 8, WordReward(0.5), GNMTCoveragePenalty(0.4)),
    "constrained": BeamSearch(3, 2, 9, min_length=4, no_repeat_ngram=2, forbidden=(1,)),
    "never smaller": BeamSearch(4, 2, 9, 0.6, compact=False),
}


@pytest.mark.parametrize(
    "name", slow_but(SEARCHES, "relative greedy", "relative beam", "coverage")
)
def test_neighbours_padding_and_order_do_not_matter(name):
    model, search = TableModel(3, vocabulary=8), SEARCHES[name]
    sources = [[5, 3], [9, 9, 9, 3], [3], [8, 4, 3], [6, 3]]
    batch = tf.ragged.constant(sources).to_tensor(shape=[None, 7])
    together = search(model, batch)
    backwards = search(model, batch[::-1])
    for row, source in enumerate(sources):
        alone = search(model, [source])
        length = alone.ids.shape[2]
        for other, r in ((together, row), (backwards, len(sources) - 1 - row)):
            np.testing.assert_array_equal(other.ids[r, :, :length], alone.ids[0])
            assert not other.ids[r, :, length:].numpy().any()
            np.testing.assert_array_equal(other.lengths[r], alone.lengths[0])
            # Sums over the source are rounded by its length.
            np.testing.assert_allclose(other.scores[r], alone.scores[0], 1e-6)
            weights = other.weights[r, :, :length, : len(source)]
            np.testing.assert_array_equal(weights, alone.weights[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_eager_equals_graph_of_unknown_shape(name):
    model, search = TableModel(5, vocabulary=8), SEARCHES[name]
    signature = [tf.TensorSpec([None, None], tf.int32)]
    graph = tf.function(lambda ids: search(model, ids), input_signature=signature)
    for sources in (SOURCES, [[3]], np.zeros([2, 4], int), np.zeros([0, 3], int)):
        sources = tf.constant(sources, tf.int32)
        eager = search(model, sources)
        for name, value in graph(sources)._asdict().items():
            np.testing.assert_allclose(value, getattr(eager, name), 1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
def test_compiled_by_xla_it_finds_the_same(name):
    model, search = TableModel(3, vocabulary=8), SEARCHES[name]
    signature = [tf.TensorSpec([None, None], tf.int32)]
    plain, compiled = (
        tf.function(lambda ids, f=f: f(search, model, ids), input_signature=signature)
        for f in (lambda search, model, ids: search(model, ids), compiled_search)
    )
    random = np.random.default_rng(0)
    for shape in ((5, 7), (17, 3), (2, 18)):
        lengths = random.integers(1, shape[1], shape[0])[:, None]
        sources = random.integers(4, 9, shape) * (np.arange(shape[1]) < lengths)
        for field, value in compiled(sources.astype("int32"))._asdict().items():
            other = getattr(plain(sources.astype("int32")), field)
            np.testing.assert_allclose(value, other, 1e-5, 1e-5, err_msg=field)


def test_shapes_and_dtypes():
    hypotheses = BeamSearch(4, 3, 6)(TableModel(1), SOURCES)
    T = int(tf.reduce_max(hypotheses.lengths))
    assert hypotheses.ids.shape == (3, 3, T) and hypotheses.ids.dtype == tf.int32
    assert hypotheses.weights.shape == (3, 3, T, 3)
    assert hypotheses.lengths.shape == (3, 3)
    assert hypotheses.lengths.dtype == tf.int32
    for x in (hypotheses.scores, hypotheses.log_probs):
        assert x.shape == (3, 3) and x.dtype == tf.float32


def test_half_precision_logits_are_scored_in_float32():
    class Half(TableModel):
        def step(self, *args):
            logits, state, weights = super().step(*args)
            return tf.cast(logits, tf.float16), state, tf.cast(weights, tf.float16)

    model = Half(1)
    model.table = model.table.astype("float16").astype("float32")
    half = BeamSearch(3, 1, 8)(model, SOURCES)
    full_model = TableModel(1)
    full_model.table = model.table
    full = BeamSearch(3, 1, 8)(full_model, SOURCES)
    assert half.scores.dtype == half.weights.dtype == tf.float32
    np.testing.assert_array_equal(half.ids, full.ids)
    np.testing.assert_allclose(half.scores, full.scores, 1e-6)


def spell(source, spoken):
    word = {10: [4, 5, 6, 4], 11: [6], 12: []}[source]
    wanted = [*word, EOS_ID]
    logits = np.zeros(7, "float32")
    logits[wanted[min(len(spoken), len(wanted) - 1)]] = 20.0
    return logits


@pytest.mark.parametrize("search", [GreedySearch(9), BeamSearch(4, 2, 9, 0.6)])
def test_a_model_that_spells_is_heard(search):
    hypotheses = search(ScriptModel(spell, 7), [[10], [11], [12]])
    best = [[4, 5, 6, 4, 3], [6, 3, 0, 0, 0], [3, 0, 0, 0, 0]]
    assert hypotheses.ids[:, 0, :5].numpy().tolist() == best
    assert hypotheses.lengths[:, 0].numpy().tolist() == [5, 2, 1]
    np.testing.assert_allclose(hypotheses.scores[:, 0], 0.0, atol=1e-5)


def test_beam_finds_what_greedy_misses():
    def garden_path(source, spoken):
        if not spoken:
            return log_of({4: 0.6, 5: 0.4})
        if spoken == (4,):
            return log_of({4: 0.5, 5: 0.5})
        return log_of({EOS_ID: 1.0})

    model = ScriptModel(garden_path, 6)
    greedy = GreedySearch(9)(model, [[3]])
    beam = BeamSearch(2, 2, 9)(model, [[3]])
    assert greedy.ids[0, 0].numpy().tolist() == [4, 4, EOS_ID]
    assert beam.ids[0].numpy().tolist() == [[5, EOS_ID, 0], [4, 4, EOS_ID]]
    np.testing.assert_allclose(np.exp(beam.log_probs[0]), [0.4, 0.3], rtol=1e-5)


def short_or_long(source, spoken):
    """Ends at once with 0.5; or says 4 (0.5) and then surely ends after three more."""
    if not spoken:
        return log_of({EOS_ID: 0.55, 4: 0.45})
    return log_of({5: 1.0} if len(spoken) < 4 else {EOS_ID: 1.0})


@pytest.mark.parametrize(
    ("alpha", "max_length", "best", "steps"),
    [
        (0.0, 20, [3], 1),  # log .45 < log .55: stops at once
        (1.0, 20, [4, 5, 5, 5, 3], 5),  # log .45 / (10/6) > log .55: worth waiting
        (1.0, 5, [4, 5, 5, 5, 3], 5),
        (1.0, 6, [4, 5, 5, 5, 3], 5),
        (1.0, 2, [3], 2),  # log .45 / (7/6) = -.684 < log .55 = -.598: hopeless at once
    ],
)
def test_stops_when_and_only_when_nothing_can_enter_the_pool(
    alpha, max_length, best, steps
):
    model = ScriptModel(short_or_long, 6)
    hypotheses = BeamSearch(2, 1, max_length, alpha)(model, [[3]])
    assert hypotheses.ids[0, 0].numpy().tolist() == best
    assert model.steps == (1 if best == [3] else steps)


def test_who_can_only_draw_level_cannot_enter():
    model = ScriptModel(lambda *_: log_of({EOS_ID: 0.5, 4: 0.5}), 6)
    hypotheses = BeamSearch(2, 1, 20)(model, [[3]])
    assert hypotheses.ids[0].numpy().tolist() == [[3]] and model.steps == 1


def test_a_pool_with_room_keeps_the_sentence_going():
    model = ScriptModel(short_or_long, 6)
    hypotheses = BeamSearch(2, 2, 20)(model, [[3]])
    assert hypotheses.lengths.numpy().tolist() == [[1, 5]]
    assert model.steps == 5


def test_finished_scores_never_change():
    def early_then_noise(source, spoken):
        return log_of({EOS_ID: 0.4, 4: 0.35, 5: 0.25})

    model = ScriptModel(early_then_noise, 6)
    hypotheses = BeamSearch(3, 3, 12, 5.0)(model, [[3]])
    for n in range(3):
        length = int(hypotheses.lengths[0, n])
        log_prob = float(hypotheses.log_probs[0, n])
        expected = gnmt(log_prob, length, 5.0)
        np.testing.assert_allclose(hypotheses.scores[0, n], expected, rtol=1e-5)
    assert np.all(np.diff(hypotheses.scores[0]) <= 0)


def test_unfinished_hypotheses_only_fill_the_room_that_is_left():
    def reluctant(source, spoken):
        return log_of({4: 0.8, EOS_ID: 0.15, 5: 0.05})

    hypotheses = BeamSearch(3, 3, 2)(ScriptModel(reluctant, 6), [[3]])
    # [4, 4] is the likeliest by far, yet half a sentence.
    assert hypotheses.ids[0].numpy().tolist() == [[3, 0], [4, 3], [4, 4]]
    np.testing.assert_allclose(
        np.exp(hypotheses.log_probs[0]), [0.15, 0.12, 0.64], rtol=1e-5
    )
    best = BeamSearch(3, 1, 2)(ScriptModel(reluctant, 6), [[3]])
    assert best.ids[0].numpy().tolist() == [[3]]


def never_ends(source, spoken):
    return log_of({4: 0.9, 5: 0.1})


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_maximum_length_closes_a_hypothesis_as_it_is(search):
    model = ScriptModel(never_ends, 6)
    hypotheses = search(max_length=3)(model, [[3], [4]])
    assert hypotheses.ids[:, 0].numpy().tolist() == [[4, 4, 4]] * 2
    assert hypotheses.lengths[:, 0].numpy().tolist() == [3, 3]
    np.testing.assert_allclose(hypotheses.log_probs[:, 0], 3 * np.log(0.9), rtol=1e-5)
    assert model.steps == 3


@pytest.mark.parametrize("search", [GreedySearch, BeamSearch])
def test_no_maximum_length_means_relative_to_each_source(search):
    model = ScriptModel(never_ends, 6, length=30)
    hypotheses = search(max_length=None)(model, [[5, 6, 7, 3], [3, 0, 0, 0]])
    assert hypotheses.lengths[:, 0].numpy().tolist() == [18, 12]


def test_ties_go_to_the_lower_id():
    hypotheses = BeamSearch(4, 4, 2)(ScriptModel(lambda *_: np.zeros(6), 6), [[3]])
    # Two tokens each: 1 and 3 to 5 may follow; 3 ends. At a tie the lower beam (1)
    # comes first, and within it the lower id.
    assert hypotheses.ids[0].numpy().tolist() == [[3, 0], [1, 3], [1, 1], [1, 4]]
    greedy = GreedySearch(2)(ScriptModel(lambda *_: np.zeros(6), 6), [[3]])
    assert greedy.ids[0].numpy().tolist() == [[1, 1]]


def test_padding_and_begin_are_never_generated():
    def likes_specials(source, spoken):
        logits = np.zeros(6, "float32")
        logits[[PAD_ID, BOS_ID]] = 50.0
        return logits

    for search in (GreedySearch(5), BeamSearch(4, 4, 5)):
        hypotheses = search(ScriptModel(likes_specials, 6), [[3]])
        for ids, length in zip(hypotheses.ids[0], hypotheses.lengths[0], strict=True):
            assert length and not np.isin(ids[:length], [PAD_ID, BOS_ID]).any()


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("search", [GreedySearch(5), BeamSearch(3, 2, 5, 0.6)])
def test_impossible_sentences_say_nothing_and_spoil_nothing(search, at, value):
    def broken(source, spoken):
        if source == 3 and len(spoken) == at:
            return np.full(7, value)
        return np.where(spell(10, spoken) > 0, 0.0, -np.inf)

    hypotheses = search(ScriptModel(broken, 7), [[3], [10]])
    assert not any(np.isnan(x).any() for x in hypotheses)
    assert hypotheses.lengths[0, 0] == 0 and hypotheses.scores[0, 0] == -INF
    assert not hypotheses.ids[0].numpy().any()
    assert hypotheses.ids[1, 0].numpy().tolist() == [4, 5, 6, 4, 3]


def test_fewer_sequences_than_asked_for():
    def one_way(source, spoken):
        return log_of({EOS_ID: 1.0} if spoken else {4: 1.0})

    hypotheses = BeamSearch(3, 3, 5)(ScriptModel(one_way, 6), [[3]])
    assert hypotheses.ids[0].numpy().tolist() == [[4, 3], [0, 0], [0, 0]]
    assert hypotheses.lengths[0].numpy().tolist() == [2, 0, 0]
    assert hypotheses.scores[0].numpy().tolist() == [0, -INF, -INF]


def test_the_memory_is_never_tiled():
    seen = []

    class Watching(TableModel):
        def step(self, tokens, state, memory):
            seen.append((tokens.shape[1], memory["ids"].shape))
            return super().step(tokens, state, memory)

    BeamSearch(4, 4, 3)(Watching(0, scale=0.1), SOURCES)
    assert seen == [(4, (3, 3))] * 3


def test_a_penalty_of_ones_own():
    class ShortIsGood:
        def score(self, log_probs, lengths):
            return log_probs - 100.0 * tf.cast(lengths, tf.float32)

        def bound(self, log_probs, limits):
            return log_probs - 100.0

    model = TableModel(11, vocabulary=6)
    hypotheses = BeamSearch(6, 1, 6, ShortIsGood())(model, SOURCES)
    assert hypotheses.ids[:, 0, 0].numpy().tolist() == [EOS_ID] * 3
    np.testing.assert_allclose(hypotheses.scores, hypotheses.log_probs - 100, 1e-6)


def test_the_result_is_scored_by_the_penalty_given_as_object_or_number():
    by_number = BeamSearch(3, 1, 6, 0.7)(TableModel(2), SOURCES)
    by_object = BeamSearch(3, 1, 6, GNMTLengthPenalty(0.7))(TableModel(2), SOURCES)
    np.testing.assert_array_equal(by_number.scores, by_object.scores)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"beam_width": 0}, ValueError, "beam_width must be at least 1. Received: 0"),
        ({"beam_width": 2.0}, TypeError, "beam_width must be an integer"),
        ({"beam_width": True}, TypeError, "Received: True"),
        ({"n_best": -1}, ValueError, "n_best must be at least 1. Received: -1"),
        ({"beam_width": 2, "n_best": 3}, ValueError, "n_best=3, beam_width=2"),
        ({"max_length": 0}, ValueError, "max_length must be at least 1"),
        ({"max_length": "9"}, TypeError, "max_length must be an integer"),
        ({"length_penalty": -0.1}, ValueError, "not negative. Received: -0.1"),
        ({"length_penalty": "gnmt"}, TypeError, "Received: 'gnmt'"),
        ({"length_penalty": None}, TypeError, "length_penalty must be a number"),
        ({"length_penalty": {"kind": "x"}}, ValueError, "gnmt.*average.*reward"),
        ({"coverage_penalty": -1.0}, ValueError, "beta.*-1.0"),
        ({"coverage_penalty": "gnmt"}, TypeError, "coverage_penalty.*'gnmt'"),
        ({"min_length": -1}, ValueError, "min_length must be at least 0"),
        ({"max_length_ratio": "2"}, TypeError, "max_length_ratio must be a number"),
        ({"min_length_ratio": -0.5}, ValueError, "min_length_ratio.*-0.5"),
        ({"no_repeat_ngram": 1.5}, TypeError, "no_repeat_ngram must be an integer"),
        ({"forbidden": (3,)}, ValueError, r"end id.*\(3,\)"),
        ({"forbidden": ("a",)}, TypeError, "forbidden.*'a'"),
        ({"early_stopping": "never"}, ValueError, "early_stopping.*'never'"),
        ({"early_stopping": 1}, ValueError, "early_stopping.*1"),
        ({"max_length": 2**31}, ValueError, "max_length.*at most"),
        ({"min_length": 2**31}, ValueError, "min_length.*at most"),
        ({"forbidden": 5}, TypeError, "forbidden.*5"),
        ({"compact": 1}, TypeError, "compact.*1"),
    ],
)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        BeamSearch(**arguments)


def test_numbers_of_any_type_can_be_written_to_a_file():
    given = {"length_penalty": np.float32(0.5), "max_length_ratio": Fraction(3, 2)}
    search = BeamSearch(np.int64(2), **given)
    assert json.loads(json.dumps(dataclasses.asdict(search)))["length_penalty"] == 0.5
    assert search.max_length_ratio == 1.5


class LooseModel(TableModel):
    """Does not tell how many beams there are, like a model that was loaded."""

    def step(self, tokens, state, memory):
        logits, state, weights = super().step(tokens, state, memory)
        loose = tf.compat.v1.placeholder_with_default
        shape = [None, None, logits.shape[-1]]
        return loose(logits, shape), state, loose(weights, [None] * 3)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 3])
def test_a_model_whose_shapes_are_unknown(width):
    search, source = BeamSearch(width, max_length=5), tf.constant([[4, 3], [5, 3]])
    found = tf.function(lambda ids: search(LooseModel(3), ids))(source)
    for one, other in zip(found, search(TableModel(3), source), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("shape", [[2], [2, 0], []])
def test_sources_of_a_wrong_shape(shape):
    for search in (BeamSearch(2), RandomSampling()):
        with pytest.raises(ValueError, match="source must have a row for each"):
            search(TableModel(3), tf.zeros(shape, tf.int32))


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (1.5, TypeError), (2**21, ValueError)]
)
def test_wrong_arguments_of_greedy(value, error):
    with pytest.raises(error, match="max_length"):
        GreedySearch(value)


@pytest.mark.slow
def test_a_model_that_says_nothing_of_its_shapes():
    """As one that was loaded, or that computes in Python."""

    class Shapeless:
        def __init__(self):
            self.model = build("small", 12, 15, units=8, embedding_dim=6)

        def encode(self, source_ids):
            return self.model.encode(source_ids)

        def step(self, tokens, state, memory):
            logits, state, weights = self.model.step(tokens, state, memory)
            return tf.numpy_function(lambda x: x, [logits], tf.float32), state, weights

    model, source = Shapeless(), tf.constant([[4, 5, 3], [6, 3, 0]])
    search = BeamSearch(3, 2, max_length=5)
    found = tf.function(lambda ids: search(model, ids))(source)
    expected = search(model.model, source)
    np.testing.assert_array_equal(found.ids, expected.ids)
