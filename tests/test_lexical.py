"""Constrained search against brute force and plain Python."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from brute_force import (
    SOURCES,
    Rules,
    TableModel,
    all_rules,
    all_sequences,
    assert_same,
    extended,
    prefixes,
    search_by,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.decoding import BeamSearch, Constraints, Shortlist
from keras_luong.decoding.lexical import unmet_by
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.special_ids import EOS_ID, PAD_ID

some = settings(max_examples=10, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


def phrases_among(tokens, longest=2):
    phrase = st.lists(st.sampled_from(tokens), min_size=1, max_size=longest)
    return st.lists(phrase.map(tuple), max_size=3)


def padded(rows):
    """Rows of phrases as ids [B, C, L]."""
    ragged = tf.ragged.constant([[*map(list, row)] for row in rows], tf.int32, 2)
    return ragged.to_tensor(PAD_ID)


def missing(tokens, phrases, inner=()):
    """How many phrases do not occur, by counting."""
    lacks = 0
    for phrase, times in Counter(phrases).items():
        n = len(phrase)
        there = [
            tuple(tokens[i : i + n]) == phrase
            and not (i + n < len(tokens) and tokens[i + n] in inner)
            for i in range(len(tokens))
        ]
        lacks += max(0, times - sum(there))
    return lacks


def table(inner, size):
    return None if inner is None else np.isin(np.arange(size), sorted(inner))


def all_with(phrases, inner, ended, cut):
    """What a search may return: those with all phrases, or at the limit the nearest."""
    ended = [x for x in ended if missing(x[0], phrases, inner) == 0]
    lacks = [missing(tokens, phrases, inner) for tokens, _ in cut]
    fewest = 0 if ended else min(lacks, default=0)
    pairs = zip(cut, lacks, strict=True)
    return ended, [x for x, number in pairs if number == fewest]


inners = st.sampled_from([None, {1}, {4}])


@some
@given(
    seed=seeds,
    rules=all_rules(5),
    rows=st.lists(phrases_among([1, 4]), min_size=3, max_size=3),
    inner=inners,
    early=st.booleans(),
    compact=st.booleans(),
    n_best=st.sampled_from([1, 2, 48]),
)
def test_as_wide_as_the_space_it_finds_the_best_of_all_that_have_the_phrases(
    seed, rules, rows, inner, early, compact, n_best
):
    model = TableModel(seed, vocabulary=5)
    search = search_by(rules, 48, n_best, early_stopping=early, compact=compact)
    must = Constraints(padded(rows), table(inner, 5))
    hypotheses = search(model, SOURCES, prefixes(rules), must)
    for row, (source, phrases) in enumerate(zip(SOURCES, rows, strict=True)):
        ended, cut = all_sequences(model, source, rules)
        found = all_with(phrases, inner or (), ended, cut)
        expected = rules.best(model, source, *found, n_best)
        assert_same(hypotheses, row, expected, model, source)


def bank(tokens, phrases):
    """How many tokens of the phrases are met, those of a begun one included."""
    met, begun, counts = 0, 0, Counter()
    for phrase in phrases:
        counts[phrase] += 1
        n = len(phrase)
        if missing(tokens, [phrase] * counts[phrase]) == 0:
            met += n
        else:
            ends = (j for j in range(n) if tokens[len(tokens) - j :] == phrase[:j])
            begun = max(begun, *ends)
    return met + begun


def next_tokens(tokens, phrases):
    """The token of each unmet phrase that follows on the longest beginning."""
    for phrase in phrases:
        if missing(tokens, [phrase] * phrases.count(phrase)):
            n = len(phrase)
            ends = (j for j in range(n) if tokens[len(tokens) - j :] == phrase[:j])
            yield phrase[max(ends)]


def plain_search(model, source, width, rules, phrases):
    """Dynamic beam allocation in plain Python."""
    beams, ended = [((), 0.0)], []
    for _ in range(rules.longest()):
        chosen = []
        for hypothesis in beams:
            longer = extended(model, source, [hypothesis], rules)
            longer = [
                x for x in longer if x[0][-1] != EOS_ID or missing(x[0], phrases) == 0
            ]
            longer.sort(key=lambda x: -x[1])
            wanted = {*next_tokens(hypothesis[0], phrases)}
            own = [k == 0 or x[0][-1] in wanted for k, x in enumerate(longer)]
            chosen += zip(longer, own, strict=True)
        chosen.sort(key=lambda x: -x[0][1])
        candidates = [x for k, (x, own) in enumerate(chosen) if k < width or own]
        turns, keyed = Counter(), []
        for x in candidates:
            number = bank(x[0], phrases)
            keyed.append((turns[number], -number, x))
            turns[number] += 1
        kept = [x for *_, x in sorted(keyed, key=lambda x: x[:2])][:width]
        ended += [x for x in kept if x[0][-1] == EOS_ID]
        beams = [x for x in kept if x[0][-1] != EOS_ID]
    return ended, beams


@some
@given(
    seed=seeds,
    limit=st.integers(1, 9),
    rows=st.lists(phrases_among([4, 5, 6], 3), min_size=3, max_size=3),
    width=st.integers(1, 6),
    compact=st.booleans(),
)
def test_narrow_equals_plain_python(seed, limit, rows, width, compact):
    rules = Rules(limit)
    model = TableModel(seed, vocabulary=9)
    search = search_by(rules, width, width, early_stopping=False, compact=compact)
    hypotheses = search(model, SOURCES, constraints=Constraints(padded(rows)))
    for row, (source, phrases) in enumerate(zip(SOURCES, rows, strict=True)):
        ended, cut = plain_search(model, source, width, rules, phrases)
        found = all_with(phrases, (), ended, cut)
        expected = rules.best(model, source, *found, width)
        assert_same(hypotheses, row, expected, model, source)


@pytest.mark.slow
@some
@given(
    seed=seeds,
    rows=st.lists(phrases_among([4, 5, 6], 3), min_size=3, max_size=3),
    inner=st.sets(st.sampled_from([7, 8])),
    more=st.lists(st.lists(st.sampled_from([4, 7, 8]), max_size=2), max_size=3),
    room=st.integers(0, 3),
    width=st.integers(1, 6),
)
def test_what_fits_occurs_in_every_hypothesis(seed, rows, inner, more, room, width):
    # Words that go on: (4, 7) is a longer word than (4,), which it begins with.
    rows = [
        [(*p, *(more[i] if i < len(more) else ())) for i, p in enumerate(row)]
        for row in rows
    ]
    limit = max(1, *(sum(map(len, row)) for row in rows)) + room
    model = TableModel(seed, vocabulary=9)
    search = BeamSearch(width, width, limit, 0.6)
    must = Constraints(padded(rows), table(inner, 9))
    hypotheses = search(model, SOURCES, constraints=must)
    assert (hypotheses.lengths[:, 0].numpy() > 0).all()
    lacks = unmet_by(must, hypotheses.ids, PAD_ID).numpy()
    for row, ids in enumerate(hypotheses.ids.numpy()):
        for n, length in enumerate(hypotheses.lengths[row].numpy()):
            if length:
                assert missing(ids[n, :length].tolist(), rows[row], inner) == 0
                assert not lacks[row, n].any()
    must = Constraints(padded(rows[1:2]), must.inner)
    alone = search(model, SOURCES[1:2], constraints=must)
    ids = hypotheses.ids[1].numpy()[:, : alone.ids.shape[2]]
    np.testing.assert_array_equal(ids, alone.ids[0].numpy())
    # Sums may differ in the last bit with another number of rows.
    np.testing.assert_allclose(hypotheses.scores[1], alone.scores[0], atol=1e-5)


@pytest.mark.parametrize(
    "shape",
    [
        (3, 0, 0),
        *(pytest.param(x, marks=pytest.mark.slow) for x in [(3, 1, 0), (3, 2, 2)]),
    ],
)
def test_without_phrases_it_is_the_ordinary_search(shape, width=5):
    for seed in range(2):
        model = TableModel(seed, vocabulary=9)
        search = BeamSearch(width, width, 7, 0.6)
        must = Constraints(np.zeros(shape, "int32"), table({5}, 9))
        found = search(model, SOURCES, constraints=must)
        for x, y in zip(search(model, SOURCES), found, strict=True):
            np.testing.assert_array_equal(x, y)


def test_where_there_is_no_room_the_fewest_are_missing():
    model, rows = TableModel(4, vocabulary=9), [[(4,), (5,), (6, 7, 8)]] * 3
    hypotheses = BeamSearch(6, 6, 3)(
        model, SOURCES, constraints=Constraints(padded(rows))
    )
    for row in range(3):
        tokens = hypotheses.ids[row, 0].numpy().tolist()
        assert 1 <= missing(tokens, rows[row]) <= 2


def test_what_is_forbidden_stays_so():
    model, rows = TableModel(4, vocabulary=9), [[(4,), (5,)]] * 3
    search = BeamSearch(3, 1, 6, forbidden=(4,))
    hypotheses = search(model, SOURCES, constraints=Constraints(padded(rows)))
    for tokens in hypotheses.ids[:, 0].numpy().tolist():
        assert 5 in tokens and 4 not in tokens


@pytest.mark.slow
@pytest.mark.parametrize("listed", [False, True])
def test_a_graph_of_unknown_shape_and_a_shortlist(listed):
    model = Seq2Seq(Seq2SeqConfig(12, 12, units=8))
    shortlist = None
    if listed:
        lexicon = np.arange(12)[:, None] % 8
        shortlist = Shortlist([4], lexicon, 12)
    search = BeamSearch(4, 2, 8, shortlist=shortlist)
    rows = [[(10, 9), (11,)], [], [(11,), (11,)]]
    ids, must = tf.constant(SOURCES), padded(rows)
    specs = [tf.TensorSpec([None] * n, tf.int32) for n in (2, 3)]

    def find(ids, must):
        inner = tf.constant(table({9}, 12))
        return search(model, ids, constraints=Constraints(must, inner))

    found = tf.function(find, input_signature=specs, autograph=False)(ids, must)
    for x, y in zip(find(ids, must), found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    for row, phrases in enumerate(rows):
        for n in range(2):
            length = int(found.lengths[row, n])
            tokens = found.ids[row, n, :length].numpy().tolist()
            assert missing(tokens, phrases, {9}) == 0


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1), (3, 1, 1, 1)])
def test_constraints_of_a_wrong_shape(shape):
    must = Constraints(np.ones(shape, "int32"))
    with pytest.raises(ValueError, match=r"row of phrases .*Received: \("):
        BeamSearch(2)(TableModel(0), SOURCES, constraints=must)
