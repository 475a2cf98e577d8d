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
    plain_beam_search,
    prefixes,
    search_by,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.decoding import BeamSearch, Constraints, Shortlist
from keras_luong.decoding.lexical import Spelling, unmet_by
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


def occurrences(tokens, phrase, texts):
    """How often a phrase occurs: its tokens, or their text as whole words."""
    if texts is None:
        whole, part = tuple(tokens), tuple(phrase)
    else:
        whole = "".join(texts[token] for token in tokens)
        part = "".join(texts[token] for token in phrase).removeprefix(" ")
    joined = [
        texts is not None and whole[i - 1 : i + 1].isalpha() and 0 < i < len(whole)
        for i in range(len(whole) + 1)
    ]
    n = len(part)
    starts = (i for i in range(len(whole)) if whole[i : i + n] == part)
    return sum(not joined[i] and not joined[i + n] for i in starts)


def missing(tokens, phrases, texts=None):
    """How many phrases do not occur, by counting."""
    tokens = [token for token in tokens if token > EOS_ID or token == 1]
    counts = Counter(phrases).items()
    return sum(max(0, n - occurrences(tokens, x, texts)) for x, n in counts)


def spelling(texts):
    return None if texts is None else Spelling.of(texts, str.isalpha)


# What tokens write: words of their own, one that goes on, two ways to write "ab".
SPELLED = {
    "words": ["", " u", "", "", " a"],
    "inner": ["", "b", "", "", " a"],
    "same": ["", "a", "", "", " a"],
    "marks": ["", "-", "", "", " a-a"],
}
AMBIGUOUS = ["", "u", "", "", " a", " ab", " b", "b", "a-"]


def all_with(phrases, texts, ended, cut):
    """What a search may return: those with all phrases, or at the limit the nearest."""
    ended = [x for x in ended if missing(x[0], phrases, texts) == 0]
    lacks = [missing(tokens, phrases, texts) for tokens, _ in cut]
    fewest = 0 if ended else min(lacks, default=0)
    pairs = zip(cut, lacks, strict=True)
    return ended, [x for x, number in pairs if number == fewest]


@some
@given(
    seed=seeds,
    rules=all_rules(5),
    rows=st.lists(phrases_among([1, 4]), min_size=3, max_size=3),
    spelled=st.sampled_from([None, *SPELLED.values()]),
    early=st.booleans(),
    compact=st.booleans(),
    n_best=st.sampled_from([1, 2, 48]),
)
def test_as_wide_as_the_space_it_finds_the_best_of_all_that_have_the_phrases(
    seed, rules, rows, spelled, early, compact, n_best
):
    model = TableModel(seed, vocabulary=5)
    search = search_by(rules, 48, n_best, early_stopping=early, compact=compact)
    must = Constraints(padded(rows), spelling(spelled))
    hypotheses = search(model, SOURCES, prefixes(rules), must)
    for row, (source, phrases) in enumerate(zip(SOURCES, rows, strict=True)):
        ended, cut = all_sequences(model, source, rules)
        found = all_with(phrases, spelled, ended, cut)
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
        free = plain_beam_search(model, source, width, rules)
        first = rules.best(model, source, *free, 1)
        first = [x for x in first if missing(x[0], phrases) == 0]
        ended, cut = plain_search(model, source, width, rules, phrases)
        found = all_with(phrases, None, ended, cut)
        others = rules.best(model, source, *found, width)
        expected = [*first, *(x for x in others if x[0] not in [y[0] for y in first])]
        expected = expected[:width]
        assert_same(hypotheses, row, expected, model, source)


@pytest.mark.slow
@some
@given(
    seed=seeds,
    rows=st.lists(phrases_among([4, 5, 6], 3), min_size=3, max_size=3),
    texts=st.sampled_from([AMBIGUOUS, None, "| u||| a| b| c|d|e".split("|")]),
    more=st.lists(st.lists(st.sampled_from([4, 7, 8]), max_size=2), max_size=3),
    room=st.integers(0, 3),
    width=st.integers(1, 6),
)
def test_what_fits_occurs_in_every_hypothesis(seed, rows, texts, more, room, width):
    # Words that go on: (4, 7) is a longer word than (4,), which it begins with.
    rows = [
        [(*p, *(more[i] if i < len(more) else ())) for i, p in enumerate(row)]
        for row in rows
    ]
    limit = max(1, *(sum(map(len, row)) for row in rows)) + room
    model = TableModel(seed, vocabulary=9)
    search = BeamSearch(width, width, limit, 0.6)
    must = Constraints(padded(rows), spelling(texts))
    hypotheses = search(model, SOURCES, constraints=must)
    assert (hypotheses.lengths[:, 0].numpy() > 0).all()
    lacks = unmet_by(must, hypotheses.ids, PAD_ID).numpy()
    for row, ids in enumerate(hypotheses.ids.numpy()):
        for n, length in enumerate(hypotheses.lengths[row].numpy()):
            if length:
                assert missing(ids[n, :length].tolist(), rows[row], texts) == 0
                assert not lacks[row, n].any()
    must = Constraints(padded(rows[1:2]), must.spelling)
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
        must = Constraints(np.zeros(shape, "int32"), spelling(AMBIGUOUS))
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
    texts = [*("" for _ in range(4)), *"abcde", "f", " g", " h"]
    ids, must = tf.constant(SOURCES), padded(rows)
    specs = [tf.TensorSpec([None] * n, tf.int32) for n in (2, 3)]

    def find(ids, must):
        return search(model, ids, constraints=Constraints(must, spelling(texts)))

    found = tf.function(find, input_signature=specs, autograph=False)(ids, must)
    for x, y in zip(find(ids, must), found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
    for row, phrases in enumerate(rows):
        for n in range(2):
            length = int(found.lengths[row, n])
            tokens = found.ids[row, n, :length].numpy().tolist()
            assert missing(tokens, phrases, texts) == 0


@pytest.mark.parametrize("shape", [(3, 2), (2, 1, 1), (3, 1, 1, 1)])
def test_constraints_of_a_wrong_shape(shape):
    must = Constraints(np.ones(shape, "int32"))
    with pytest.raises(ValueError, match=r"row of phrases .*Received: \("):
        BeamSearch(2)(TableModel(0), SOURCES, constraints=must)


def test_a_constraint_that_the_free_hypothesis_meets_changes_nothing():
    for seed in range(4):
        model = TableModel(seed, vocabulary=9)
        for width, early in ((1, True), (2, "first"), (5, "first")):
            search = BeamSearch(width, 1, 7, 0.6, early_stopping=early)
            free = search(model, SOURCES)
            rows = free.ids.numpy()[:, 0]
            must = [[(int(row[0]),)] if row[0] != EOS_ID else [] for row in rows]
            found = search(model, SOURCES, constraints=Constraints(padded(must)))
            for x, y in zip(free, found, strict=True):
                np.testing.assert_array_equal(x, y)


def test_a_phrase_is_met_by_any_tokens_that_write_it():
    texts = ["", "u", "", "", " a", "b", " ab", "\u201eab\u201c", "ab"]
    must = Constraints(padded([[(6,)]]), spelling(texts))
    rows = [[6, 3], [4, 5, 3], [7, 3], [8, 3], [6, 5, 3], [4, 6, 3], [4, 8, 3], [4, 3]]
    ids = tf.ragged.constant([rows]).to_tensor(PAD_ID)
    lacks = unmet_by(must, ids, PAD_ID)[0, :, 0].numpy().tolist()
    assert lacks == [False, False, False, False, True, False, True, True]


@pytest.mark.parametrize(
    ("count", "n_best"),
    [(1, 1), *(pytest.param(*x, marks=pytest.mark.slow) for x in [(3, 1), (3, 3)])],
)
def test_a_graph_of_known_shape_and_phrases(count, n_best):
    """TensorFlow once inferred the shapes of such a loop without an end."""
    model, texts = TableModel(0, vocabulary=9), AMBIGUOUS
    must = padded([[(4, 5), (6,)], [(4, 5, 6)], [(8,)]][:count])
    must = Constraints(must, spelling(texts))
    search, sources = BeamSearch(4, n_best, 7, 0.6), SOURCES[:count]
    find = tf.function(
        lambda ids: search(model, ids, constraints=must), autograph=False
    )
    found = search(model, sources, constraints=must)
    for x, y in zip(find(tf.constant(sources)), found, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
