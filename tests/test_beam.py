"""Beam and greedy search against brute force, plain Python and models that spell."""

import dataclasses
import json
from fractions import Fraction

import numpy as np
import pytest
import tensorflow as tf
from brute_force import (
    INF,
    SOURCES,
    ScriptModel,
    TableModel,
    assert_same,
    log_of,
    random_search,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from leave_slow import slow_but

from keras_luong.decoding import BeamSearch, GreedySearch, RandomSampling, penalties
from keras_luong.decoding.beam import compiled_search
from keras_luong.decoding.constraints import GROUP, LONG, best_extensions, is_among
from keras_luong.special_ids import EOS_ID

SEEDS = [pytest.param(i, marks=[pytest.mark.slow] * (i > 7)) for i in range(90)]


@pytest.mark.parametrize("wide", [True, False], ids=["exhaustive", "narrow"])
@pytest.mark.parametrize("seed", SEEDS)
def test_finds_what_plain_python_finds(seed, wide):
    """Any search: its scores, lengths, limits, constraints, prefixes, phrases."""
    model, search, given, best = random_search(seed, wide)
    hypotheses = search(model, *given)
    for row, source in enumerate(SOURCES):
        assert_same(hypotheses, row, best(row), model, source)


@pytest.mark.parametrize("seed", range(4))
def test_greedy_is_a_beam_of_one_scored_by_its_probability(seed):
    model, limit = TableModel(seed, vocabulary=7), [1, 3, 8, None][seed]
    beam = BeamSearch(1, 1, limit, alpha := 2.0)(model, SOURCES)
    greedy = GreedySearch(limit)(model, SOURCES)
    for name, value in greedy._asdict().items():
        other = "log_probs" if name == "scores" else name
        np.testing.assert_array_equal(value, getattr(beam, other), err_msg=name)
    growth = ((5.0 + beam.lengths.numpy()) / 6) ** alpha
    np.testing.assert_allclose(beam.scores, beam.log_probs / growth, rtol=1e-6)


SEARCHES = {
    "greedy": GreedySearch(8),
    "relative beam": BeamSearch(3, 1, None, 0.6),
    "coverage": BeamSearch(
        4, 2, 8, penalties.WordReward(0.5), penalties.GNMTCoveragePenalty(0.4)
    ),
    "constrained": BeamSearch(3, 2, 9, min_length=4, no_repeat_ngram=2, forbidden=(1,)),
    "never smaller": BeamSearch(4, 2, 9, 0.6, compact=False),
    "samples": RandomSampling(num_samples=4, max_length=12, seed=3),
    "relative samples": RandomSampling(1.3, 5, 0.95, 3, None, 2**63 - 1),
}


def assert_equal(found, expected, tolerance):
    for name, value in found._asdict().items():
        other = getattr(expected, name)
        np.testing.assert_allclose(value, other, tolerance, tolerance, err_msg=name)


@pytest.mark.parametrize("name", slow_but(SEARCHES, "greedy"))
def test_eager_equals_graph_of_unknown_shape(name, run=lambda f, *args: f(*args)):
    model, search = TableModel(5, vocabulary=8), SEARCHES[name]
    random = np.random.default_rng(0)
    graph = tf.function(
        lambda ids: run(search, model, ids),
        input_signature=[tf.TensorSpec([None, None], tf.int32)],
        autograph=name != "greedy",  # it reads all of the search first, for seconds
    )
    for shape in ((5, 7), (17, 3), (1, 1)) + ((0, 3),) * (run is not compiled_search):
        lengths = random.integers(1, shape[1] + 1, shape[0])[:, None]
        sources = random.integers(4, 9, shape) * (np.arange(shape[1]) < lengths)
        found = graph(sources.astype("int32"))
        assert_equal(found, search(model, sources.astype("int32")), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", [x for x in SEARCHES if "samples" not in x])
def test_compiled_by_xla_it_finds_the_same(name):
    test_eager_equals_graph_of_unknown_shape(name, compiled_search)


def test_compiled_by_xla_a_source_may_be_of_any_length():
    search, model = BeamSearch(2, 1, 3, coverage_penalty=0.4), TableModel(5)
    find = lambda ids: compiled_search(search, model, ids)  # noqa: E731
    graph = tf.function(find, [tf.TensorSpec([1, None], tf.int32)], autograph=False)
    assert_equal(graph(SOURCES[:1]), search(model, SOURCES[:1]), 1e-5)


def ends_often(source, spoken):
    return log_of({EOS_ID: 0.6, 4: 0.3, 5: 0.1})


def never_ends(source, spoken):
    return log_of({4: 0.9, 5: 0.1})


def reluctant(source, spoken):
    return log_of({4: 0.8, EOS_ID: 0.15, 5: 0.05})


def short_or_long(source, spoken):
    """Ends at once with 0.55; or says 4 (0.45) and then surely ends after three 5s."""
    if not spoken:
        return log_of({EOS_ID: 0.55, 4: 0.45})
    return log_of({5: 1.0} if len(spoken) < 4 else {EOS_ID: 1.0})


def level(source, spoken):
    return log_of({EOS_ID: 0.5, 4: 0.5})


def one_way(source, spoken):
    return log_of({EOS_ID: 1.0} if spoken else {4: 1.0})


FILLED = [
    (GreedySearch(5), ScriptModel(short_or_long), []),  # ends at once
    (SEARCHES["coverage"], TableModel(5, vocabulary=8), [[[4]]]),
]


@pytest.mark.parametrize("search, model, prefix", FILLED)
def test_filled_up_for_xla_it_finds_the_same(search, model, prefix, monkeypatch):
    monkeypatch.setattr(tf, "function", lambda function, **_: function)
    given = model, *map(tf.constant, [[[7, 9, 3]], *prefix])
    assert_equal(compiled_search(search, *given), search(*given), 1e-5)


LONG_ONE = [4, 5, 5, 5, 3]


STOPS = [
    # It stops when, and only when, nothing can enter the pool.
    (short_or_long, (2, 1, 20), [[3]], 1),  # log .45 < log .55
    (short_or_long, (2, 1, 20, 1.0), [LONG_ONE], 5),  # log .45 / (10/6) > log .55
    (short_or_long, (2, 1, 5, 1.0), [LONG_ONE], 5),
    (short_or_long, (2, 1, 2, 1.0), [[3]], 1),  # log .45 / (7/6) < log .55
    (short_or_long, (2, 2, 20), [[3], LONG_ONE], 5),  # there is room
    (level, (2, 1, 20), [[3]], 1),  # who can only draw level cannot enter
    # What the limit cuts only fills the room that is left.
    (reluctant, (3, 3, 2), [[3], [4, 3], [4, 4]], 2),
    (reluctant, (3, 1, 2), [[3]], 2),
    (never_ends, (1, 1, 3), [[4, 4, 4]], 3),
    (one_way, (3, 3, 5), [[4, 3], [], []], 2),  # fewer than asked for
    # At a tie the lower beam (of 1) comes first, and within it the lower id.
    (lambda *_: np.zeros(6), (4, 4, 2), [[3], [1, 3], [1, 1], [1, 4]], 2),
]


@pytest.mark.parametrize("says, options, found, steps", STOPS)
def test_what_is_found_and_when_it_stops(says, options, found, steps):
    model = ScriptModel(says)
    hypotheses = BeamSearch(*options)(model, [[7]])
    ids = zip(hypotheses.ids[0].numpy(), hypotheses.lengths[0], strict=True)
    assert [row[:length].tolist() for row, length in ids] == found
    assert len(model.sizes) == steps
    if options[:2] == (1, 1):
        alike = GreedySearch(options[2])(model, [[7]])
        np.testing.assert_array_equal(alike.ids, hypotheses.ids)


def test_first_stops_once_as_many_have_ended_as_the_beam_is_wide():
    steps = {}
    for early in ("first", True, False):
        model = ScriptModel(ends_often)
        BeamSearch(3, 1, 20, 9.0, early_stopping=early)(model, [[3]])
        steps[early] = len(model.sizes)
    assert steps["first"] == 2 < steps[True] <= steps[False]


LIMITS = [
    (GreedySearch(None), [18, 12]),
    (BeamSearch(2, 1, None), [18, 12]),
    (BeamSearch(1, 1, None, max_length_ratio=3.0), [12, 3]),
    (BeamSearch(1, 1, None, max_length_ratio=0.3), [2, 1]),  # rounded up
    (BeamSearch(1, 1, None, max_length_ratio=0.2500001), [1, 1]),  # of 1.0000004
]


@pytest.mark.parametrize("search, lengths", LIMITS)
def test_limits_may_be_relative_to_each_source_alone(search, lengths):
    found = search(ScriptModel(never_ends), [[5, 6, 7, 3], [3, 0, 0, 0]])
    assert found.lengths[:, 0].numpy().tolist() == lengths


def test_a_prefix_of_one_token_leaves_room_for_another():
    found = BeamSearch(1, 1, 1)(ScriptModel(one_way), [[7]], tf.constant([[4]]))
    assert found.ids.numpy().tolist() == [[[4, 3]]]


def long_or_short(source, spoken):
    return log_of({EOS_ID: 1.0} if len(spoken) >= source else {4: 1.0})


def test_stopped_sentences_leave_the_batch():
    sources = [[9], [0], [1], [5], [0], [2], [0], [1]]
    models = ScriptModel(long_or_short), ScriptModel(long_or_short)
    results = [
        BeamSearch(2, 1, 12, compact=compact)(model, sources)
        for model, compact in zip(models, (True, False), strict=True)
    ]
    # Once three quarters or fewer are left.
    assert models[0].sizes == [8, 5, 3, 2, 2, 2, 1, 1, 1, 1]
    assert models[1].sizes == [8] * 10
    assert_equal(*results, 0)


def test_the_memory_is_never_tiled():
    model = TableModel(0, scale=0.1)
    BeamSearch(4, 4, 3)(model, SOURCES)
    assert model.seen == [(3, 4, 3)] * 3


class Square(TableModel):
    """Attends to positions of two axes."""

    def step(self, *args):
        logits, state, weights = super().step(*args)
        return logits, state, weights[:, :, None]


@pytest.mark.parametrize("penalty", [0.3, penalties.SummaryCoveragePenalty(0.3)])
def test_attention_over_two_axes_is_that_over_one(penalty):
    search, source = BeamSearch(3, 2, 5, coverage_penalty=penalty), [[7, 9, 3]]
    one, two = (search(model(1, 6), source) for model in (TableModel, Square))
    assert two.weights.shape[3:] == (1, 3)
    assert_equal(one, two._replace(weights=two.weights[:, :, :, 0]), 1e-6)


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 2])
@pytest.mark.parametrize("search", [GreedySearch(5), BeamSearch(3, 2, 5, 0.6)])
def test_impossible_sentences_say_nothing_and_spoil_nothing(search, at, value):
    word = [4, 5, 6, 4, 3]

    def broken(source, spoken):
        if source == 3 and len(spoken) == at:
            return np.full(7, value)
        return log_of({word[min(len(spoken), 4)]: 1.0}, 7)

    hypotheses = search(ScriptModel(broken, 7), [[3], [10]])
    assert not any(np.isnan(x).any() for x in hypotheses)
    assert hypotheses.lengths[0, 0] == 0 and hypotheses.scores[0, 0] == -INF
    assert not hypotheses.ids[0].numpy().any()
    assert hypotheses.ids[1, 0].numpy().tolist() == word


class Shapeless(TableModel):
    """As a model that was loaded, or computes in Python."""

    def step(self, *args):
        logits, state, weights = super().step(*args)
        unknown = lambda x: tf.numpy_function(lambda y: y, [x], x.dtype)  # noqa: E731
        return unknown(logits), state, unknown(weights)


@pytest.mark.slow
def test_a_model_whose_shapes_are_unknown():
    search, source = BeamSearch(3, 3, max_length=5), tf.constant(SOURCES)
    found = tf.function(lambda ids: search(Shapeless(3), ids))(source)
    assert_equal(found, search(TableModel(3), source), 1e-5)


class ShortIsGood:
    """Whatever the probability, were it 0."""

    def score(self, log_probs, lengths):
        return tf.zeros_like(log_probs) - tf.cast(lengths, tf.float32)

    def bound(self, log_probs, limits):
        return tf.zeros_like(log_probs) - 1.0


def test_a_penalty_may_be_ones_own_an_object_or_a_number():
    model = TableModel(11, vocabulary=6)
    found = BeamSearch(6, 1, 6, ShortIsGood())(model, SOURCES)
    assert found.ids[:, 0, 0].numpy().tolist() == [EOS_ID] * 3
    np.testing.assert_array_equal(found.scores, [[-1.0]] * 3)
    assert np.isfinite(found.log_probs).all()
    object_of = penalties.length_penalty_of
    assert object_of(np.float32(0.5)) == penalties.GNMTLengthPenalty(0.5)
    assert object_of(own := ShortIsGood()) is own
    assert penalties.coverage_penalty_of(0) is None
    assert penalties.AverageLengthPenalty().alpha == 1


KINDS = [*penalties._LENGTH.values(), *penalties._COVERAGE.values()]


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_weights(kind):
    for value in (-0.1, np.nan, np.inf, "1"):
        error = TypeError if value == "1" else ValueError
        with pytest.raises(error, match="(alpha|beta|reward) must be"):
            kind(value)
    with pytest.raises(TypeError, match="positional argument"):
        kind(0.5, "x")


@settings(max_examples=30, derandomize=True)
@given(
    weight=st.floats(0, 5),
    log_prob=st.floats(-100, 0, width=32),
    loss=st.floats(0, 10, width=32),
    lengths=st.lists(st.integers(1, 300), min_size=2, max_size=2).map(sorted),
)
def test_no_continuation_exceeds_the_bound(weight, log_prob, loss, lengths):
    log_prob, (length, limit) = np.float32(log_prob), lengths
    for kind in penalties._LENGTH.values():
        penalty = kind(weight)
        later = penalty.score(log_prob - np.float32(loss), tf.constant(length))
        assert later <= penalty.bound(log_prob, tf.constant(limit))


COVERED = [
    ("gnmt", 0, np.log([0.25, 1]), np.log([0.25, 1])),
    ("gnmt", 1, np.log([0.25, 1]), [0, 0]),
    ("gnmt", 2, np.log([0.25, 1]), [0, 0]),
    ("summary", 2, [0, -3], [0, -3]),
]


@pytest.mark.parametrize("kind, steps, score, bound", COVERED)
def test_coverage_by_hand(kind, steps, score, bound):
    penalty, mask = penalties._COVERAGE[kind](2.0), np.array([True, False])
    coverage = np.float32([[0.25, 9.0], [4.0, 9.0]])
    np.testing.assert_allclose(penalty.score(coverage, mask), 2 * np.array(score))
    bounds = penalty.bound(coverage, mask, tf.constant([steps] * 2))
    np.testing.assert_allclose(bounds, 2 * np.array(bound))


WRONG = [
    ({"beam_width": 0}, ValueError, "beam_width must be at least 1. Received: 0"),
    ({"beam_width": 2, "n_best": 3}, ValueError, "n_best=3, beam_width=2"),
    ({"max_length": 0}, ValueError, "max_length must be at least 1"),
    ({"max_length": 2**21}, ValueError, "max_length.*at most"),
    ({"length_penalty": "gnmt"}, TypeError, "length_penalty.* number.*: 'gnmt'"),
    ({"length_penalty": ShortIsGood}, TypeError, "length_penalty must be a number"),
    ({"length_penalty": {"kind": "x"}}, ValueError, "gnmt.*average.*reward"),
    ({"coverage_penalty": -1.0}, ValueError, "beta.*-1.0"),
    ({"coverage_penalty": "gnmt"}, TypeError, "coverage_penalty.*'gnmt'"),
    ({"min_length": -1}, ValueError, "min_length must be at least 0"),
    ({"min_length_ratio": -0.5}, ValueError, "min_length_ratio.*-0.5"),
    ({"no_repeat_ngram": 1.5}, TypeError, "no_repeat_ngram must be an integer"),
    ({"forbidden": (3,)}, ValueError, r"end id.*\(3,\)"),
    ({"forbidden": ("a",)}, TypeError, "forbidden.*'a'"),
    ({"forbidden": 5}, TypeError, "forbidden.*5"),
    ({"shortlist": "list.npz"}, TypeError, "shortlist must be a Shortlist"),
    ({"early_stopping": "never"}, ValueError, "early_stopping.*'never'"),
    ({"compact": 1}, TypeError, "compact.*1"),
]


@pytest.mark.parametrize("arguments, error, message", WRONG)
def test_wrong_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        BeamSearch(**arguments)
    if [*arguments] == ["max_length"]:
        with pytest.raises(error, match=message):
            GreedySearch(**arguments)


def test_a_search_survives_a_file_with_numbers_of_any_type():
    numbers = {"max_length_ratio": Fraction(3, 2), "min_length_ratio": np.float32(0.5)}
    length = penalties.AverageLengthPenalty(0.7)
    coverage = penalties.SummaryCoveragePenalty(2.0)
    search = BeamSearch(np.int64(4), 2, None, length, coverage, forbidden=[1])
    search = dataclasses.replace(search, early_stopping="first", **numbers)
    again = BeamSearch(**json.loads(json.dumps(dataclasses.asdict(search))))
    assert again == search and hash(again) == hash(search)
    assert (again.max_length_ratio, again.min_length_ratio) == (1.5, 0.5)
    first = "beam_width=5, n_best=1, max_length=100, length_penalty=0.0, "
    first += "coverage_penalty=0.0, min_length=0, "
    assert repr(BeamSearch(bos_id=7)).startswith(f"BeamSearch({first}")
    assert repr(BeamSearch(bos_id=7)).endswith("compact=True, bos_id=7)")


def sorted_sums(logits, offsets, banned):
    """The best by sorting; a beam whose offset is -inf has nothing to offer."""
    sums = np.where(offsets > -INF, logits + offsets, -INF)
    sums = np.where(banned, -INF, sums)
    width, vocab_size = sums.shape[1:]
    flat = sums.reshape(-1, width * vocab_size)
    order = np.argsort(-flat, axis=1, kind="stable")[:, :width]
    best = np.take_along_axis(flat, order, axis=1)
    return best, order // vocab_size, order % vocab_size


def assert_best(found, expected):
    np.testing.assert_array_equal(found[0], expected[0])
    there = expected[0] > -INF  # which tokens are impossible does not matter
    for got, right in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(got.numpy()[there], right[there])


@settings(max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    width=st.integers(1, 6),
    extra=st.integers(-2, 2 * GROUP),
    values=st.sampled_from([2, 10, 10**6]),
    impossible=st.sampled_from([0.0, 0.5, 0.999]),
    banned=st.integers(0, 3),
)
def test_the_best_are_those_of_sorting(seed, width, extra, values, impossible, banned):
    random = np.random.default_rng(seed)
    shape = 2, width, LONG * (1 + banned) * GROUP + extra
    logits = random.integers(values, size=shape).astype("float32")  # few values: ties
    logits[random.random(shape) < impossible] = -np.inf
    offsets = random.integers(3, size=(2, width, 1)).astype("float32")
    offsets[random.random(offsets.shape) < 0.2] = -np.inf
    logits[np.isinf(offsets)[..., 0]] = np.nan
    mask = np.zeros(shape[2], bool)
    mask[random.integers(shape[2], size=banned)] = True
    if seed % 2:  # what is banned would be the best
        logits[..., mask] = 1e7
    expected = sorted_sums(logits, offsets, mask)
    assert_best(best_extensions(logits, offsets, mask), expected)
    assert_best(best_extensions(logits, offsets, tf.constant(mask)), expected)


@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.parametrize("size", [1000, None])
def test_the_best_extensions_in_a_graph_of_unknown_sizes(rows, size):
    logits = np.random.default_rng(0).normal(size=(rows, 3, 1000)).astype("float32")
    offsets, banned = np.zeros([rows, 3, 1], "float32"), np.arange(1000) < 4
    signature = [tf.TensorSpec([None, 3, size]), tf.TensorSpec([None, 3, 1])]

    @tf.function(input_signature=signature)
    def find(*x):
        ids = np.arange(1000) if size else tf.range(1000)
        return best_extensions(*x, is_among(ids, range(4)))

    assert_best(find(logits, offsets), sorted_sums(logits, offsets, banned))


def test_the_best_extensions_in_int8():
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    logits = np.random.default_rng(0).normal(size=(1, 2, 2000)).astype("float32")
    offsets, banned = np.zeros([1, 2, 1], "float32"), np.arange(2000) < 4

    @tf.function(input_signature=[tf.TensorSpec([1, 2, 2000])])
    def find(logits):
        return best_extensions(logits, tf.constant(offsets), banned)[0]

    function = find.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], find)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    runtime = interpreter.Interpreter(model_content=converter.convert())
    runtime.allocate_tensors()
    runtime.set_tensor(runtime.get_input_details()[0]["index"], logits)
    runtime.invoke()
    best = runtime.get_tensor(runtime.get_output_details()[0]["index"])
    np.testing.assert_array_equal(best, sorted_sums(logits, offsets, banned)[0])
