"""Random sampling against known distributions, NumPy, greedy search and itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from brute_force import (
    INF,
    SOURCES,
    Rules,
    TableModel,
    all_sequences,
    assert_same,
    log_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from small_translator import word_translator

from keras_luong import export_saved_model
from keras_luong.decoding import sampling
from keras_luong.decoding.beam import GreedySearch
from keras_luong.decoding.sampling import RandomSampling, draw
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

TOTAL = 20_000


def same(probabilities):
    """A model with the same probabilities at every step."""
    model = TableModel(0, 8)
    model.table[:] = log_of(probabilities, 8)
    return model


def assert_frequencies(rows, probabilities, total=TOTAL):
    """Within five standard deviations: by chance once in a million."""
    counts = dict(zip(*np.unique(rows, return_counts=True), strict=True))
    for key, p in probabilities.items():
        bound = 5 * math.sqrt(total * p * (1 - p)) + 1
        assert abs(counts.get(key, 0) - total * p) < bound, (key, counts.get(key), p)
    assert set(counts) <= {key for key, p in probabilities.items() if p > 0}


def draws(model, source=(5, 3), **options):
    options = {"max_length": 1, "seed": 7, **options}
    return RandomSampling(num_samples=TOTAL, **options)(model, [source]).ids[0].numpy()


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        ({3: 0.5, 4: 0.25, 5: 0.2, 6: 0.05, 7: 0}, {}, [0.5, 0.25, 0.2, 0.05, 0]),
        # What is forbidden leaves its share to the others.
        ({PAD_ID: 0.3, BOS_ID: 0.3, 3: 0.1, 4: 0.3}, {}, [0.25, 0.75]),
        # 8² : 4² : 1 and the roots of 64, 16 and 1.
        ({3: 8 / 13, 4: 4 / 13, 5: 1 / 13}, {"temperature": 0.5}, [64, 16, 1]),
        ({3: 64 / 81, 4: 16 / 81, 5: 1 / 81}, {"temperature": 2.0}, [8, 4, 1]),
        # Those that are left keep their proportions.
        ({3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}, {"top_k": 2}, [4, 3]),
        ({3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}, {"top_p": 0.75}, [4, 3, 2]),
    ],
)
def test_tokens_are_as_frequent_as_probable(model, options, expected):
    expected = {3 + i: x / sum(expected) for i, x in enumerate(expected)}
    assert_frequencies(draws(same(model), **options), expected)


def test_the_unknown_word_is_drawn_and_steps_are_independent():
    p = {UNK_ID: 0.5, 5: 0.3, 6: 0.2}
    first, second, third = draws(same(p), max_length=3).T
    for a, b in ((first, second), (second, third), (first, third)):
        pairs = {10 * i + j: p[i] * p[j] for i in p for j in p}
        assert_frequencies(10 * a + b, pairs)


def test_samples_and_sentences_are_independent():
    p = {4: 0.5, 5: 0.3, 6: 0.2}
    sources = tf.constant([[i + 4, 3] for i in range(400)])
    for seed in (3, None):
        search = RandomSampling(num_samples=2, max_length=1, seed=seed)
        ids = search(same(p), sources).ids.numpy()[..., 0]
        # Two of a sentence, the more probable one first.
        pairs = {44: 0.25, 45: 0.3, 46: 0.2, 55: 0.09, 56: 0.12, 66: 0.04}
        assert_frequencies(ids @ [10, 1], pairs, 400)
        # The first ones of two neighbours.
        first = {4: 0.75, 5: 0.21, 6: 0.04}
        pairs = {10 * i + j: first[i] * first[j] for i in p for j in p}
        assert_frequencies(10 * ids[::2, 0] + ids[1::2, 0], pairs, 200)


def test_whole_sequences_are_as_frequent_as_probable():
    """Through the state: a model that depends on all that was said."""
    model, source = TableModel(11, vocabulary=5, scale=1.0), [7, 9, 3]
    model.table[:, [PAD_ID, BOS_ID]] = -INF
    expected = {}
    for sequence, log_prob in itertools.chain(*all_sequences(model, source, Rules(3))):
        code = "".join(map(str, sequence)).ljust(3, str(PAD_ID))
        expected[int(code)] = np.exp(log_prob)
    assert sum(expected.values()) == pytest.approx(1)
    ids = draws(model, source, max_length=3, seed=5)
    assert_frequencies(ids @ [100, 10, 1], expected)


def grid(logits, **options):
    """How often each token is drawn by evenly spread numbers."""
    uniforms = (np.arange(10_000) + 0.5) / 10_000
    logits = tf.tile(tf.constant(logits, tf.float32)[None, None], [1, 10_000, 1])
    drawn = draw(logits, tf.constant(uniforms)[None], **options)[0].numpy()
    return np.bincount(drawn, minlength=logits.shape[-1]) / len(drawn)


RISING, EVEN, TWO = [0.1, 0.2, 0.3, 0.4], [0.25] * 4, [0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("probabilities", "options", "kept"),
    [
        (RISING, {"top_k": 1}, {3}),
        (RISING, {"top_k": 3}, {1, 2, 3}),
        (RISING, {"top_k": 9}, {0, 1, 2, 3}),
        (RISING, {"top_p": 0.39}, {3}),
        (RISING, {"top_p": 0.41}, {2, 3}),  # it crosses: it is in
        (RISING, {"top_p": 1.0}, {0, 1, 2, 3}),
        (EVEN, {"top_k": 2}, {0, 1}),  # ties: lower ids
        (EVEN, {"top_p": 0.5}, {0, 1}),  # just reached
        (EVEN, {"top_p": 0.51}, {0, 1, 2}),
        # Of the two that are left, .3 and .4, the second makes up 4/7.
        (RISING, {"top_k": 2, "top_p": 0.57}, {3}),
        (RISING, {"top_k": 2, "top_p": 0.58}, {2, 3}),
        # At temperature 1/2: 1, 4, 9, 16 of 30.
        (RISING, {"temperature": 0.5, "top_p": 0.53}, {3}),
        (RISING, {"temperature": 0.5, "top_p": 0.54}, {2, 3}),
        (TWO, {"top_k": 3}, {1, 3}),
        (TWO, {"top_p": 1.0}, {1, 3}),
        ([0.0, 0.0, 1.0, 0.0], {"temperature": 1e3, "top_p": 1.0}, {2}),
    ],
)
def test_what_may_be_drawn(probabilities, options, kept):
    with np.errstate(divide="ignore"):
        shares = grid(np.log(probabilities), **options)
    assert set(np.flatnonzero(shares)) == kept


@settings(max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    temperature=st.floats(0.1, 10),
    top_k=st.none() | st.integers(1, 12),
    top_p=st.none() | st.floats(0.01, 1),
)
def test_draws_as_numpy_does(seed, temperature, top_k, top_p):
    logits = np.random.default_rng(seed).normal(0, 2, 10).astype("float32")
    logits[seed % 10] = -INF
    scaled = np.exp((logits.astype("float64") - logits.max()) / temperature)
    kept = np.argsort(-scaled, kind="stable")[:top_k]
    if top_p:
        shares = np.cumsum(scaled[kept]) / scaled[kept].sum()
        kept = kept[: np.searchsorted(shares, top_p) + 1]
    kept = kept[scaled[kept] > 0]
    expected = np.zeros(10)
    expected[kept] = scaled[kept] / scaled[kept].sum()
    shares = grid(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    np.testing.assert_allclose(shares, expected, atol=1.01e-4)
    assert np.all(shares[expected == 0] == 0)


@pytest.mark.parametrize("top_p", [0.1, 0.999, 1.0])
@pytest.mark.parametrize("scales", [(9, 9), (9, 0.1), (0.1, 0.1)])
def test_sorting_a_few_first_changes_nothing(top_p, scales, monkeypatch):
    """They are enough for both sentences, for one, for none."""
    random = np.random.default_rng(0)
    logits = random.normal(size=[2, 9, 500]) * np.reshape(scales, [2, 1, 1])
    logits, uniforms = tf.constant(logits, tf.float32), random.random([2, 9])
    monkeypatch.setattr(sampling, "FEW", 1000)
    expected = draw(logits, uniforms, top_p=top_p)
    assert len(np.unique(expected)) > 3
    for limit in (256, 20):
        monkeypatch.setattr(sampling, "FEW", limit)
        np.testing.assert_array_equal(draw(logits, uniforms, top_p=top_p), expected)
    if top_p == 0.999:
        graph = tf.function(draw)(logits, uniforms, top_p=top_p)
        np.testing.assert_array_equal(graph, expected)


def test_improbable_tokens_of_a_large_vocabulary_do_not_vanish():
    """Half of the mass lies in 2**20 equal tokens behind the first one."""
    size = 2**20
    logits = np.full(size + 1, -np.log(2 * size), "float32")
    logits[0] = np.log(0.5)
    uniforms = tf.constant([[0.25, 0.49, 0.75, 0.999999]], tf.float64)
    drawn = draw(tf.tile(logits[None, None], [1, 4, 1]), uniforms)[0]
    expected = [0, 0, size / 2, size * (1 - 2e-6)]
    np.testing.assert_allclose(drawn, expected, atol=size * 1e-6)


@pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.999}])
def test_the_ends_of_the_interval_draw_what_is_possible(options):
    logits = tf.math.log([[[0.0, 0.3, 0.0, 0.7, 0.0]] * 2])
    uniforms = tf.constant([[0.0, np.nextafter(1, 0)]], tf.float64)
    drawn = draw(logits, uniforms, **options)[0].numpy().tolist()
    assert drawn == ([3, 1] if options else [1, 3])


@pytest.mark.parametrize("options", [{"top_k": 1}, {"temperature": 1e-6, "top_p": 0.5}])
@pytest.mark.parametrize("max_length", [1, 8, None])
def test_the_best_token_only_is_greedy_search(options, max_length):
    model = TableModel(4, vocabulary=6)
    greedy = GreedySearch(max_length)(model, SOURCES)
    search = RandomSampling(num_samples=3, max_length=max_length, **options)
    for name, value in search(model, SOURCES)._asdict().items():
        for n in range(3):
            expected = getattr(greedy, name)[:, 0]
            np.testing.assert_allclose(value[:, n], expected, 1e-6, 1e-6, err_msg=name)


@pytest.mark.parametrize("seed", range(4))
def test_samples_are_what_the_model_says_of_them(seed):
    """Padded as documented, the most probable first."""
    model, limit = TableModel(seed, vocabulary=6 + seed), 2 + 2 * seed
    top_p = [None, 0.8][seed % 2]
    found = RandomSampling(1.5, None, top_p, 4, limit, seed)(model, SOURCES)
    for row, source in enumerate(SOURCES):
        expected = []
        for ids, length in zip(found.ids[row].numpy(), found.lengths[row], strict=True):
            tokens = ids[:length].tolist()
            assert EOS_ID not in tokens[:-1] and not {PAD_ID, BOS_ID} & {*tokens}
            assert tokens[-1] == EOS_ID or length == limit
            said = [model.read(source, tokens[:i])[0] for i in range(length)]
            total = sum(x[token] for x, token in zip(said, tokens, strict=True))
            expected.append((tokens, total, total))
        assert_same(found, row, expected, model, source)
        assert np.all(np.diff(found.scores[row]) <= 0)


def test_stops_as_soon_as_all_have_ended():
    model = same({EOS_ID: 1.0})
    hypotheses = RandomSampling(num_samples=3, max_length=50)(model, SOURCES)
    assert len(model.seen) == 1 and hypotheses.ids.numpy().tolist() == [[[3]] * 3] * 3
    endless = same({4: 1.0})
    hypotheses = RandomSampling(num_samples=2, max_length=6)(endless, SOURCES)
    assert len(endless.seen) == 6 and (hypotheses.ids.numpy() == 4).all()
    relative = RandomSampling(max_length=None)(endless, SOURCES)
    assert relative.lengths.numpy().tolist() == [[16], [14], [12]]


def test_a_model_without_any_possible_token_has_no_sample():
    hypotheses = RandomSampling(num_samples=2, max_length=5)(same({}), [[5, 3]])
    assert hypotheses.lengths.numpy().tolist() == [[0, 0]]
    assert (hypotheses.scores.numpy() == -INF).all()
    assert not hypotheses.ids.numpy().any()


def test_seeds_sentences_samples_and_orders_of_words_differ():
    model = same({token: 0.2 for token in range(3, 8)})
    sources = [[4, 5, 3], [5, 4, 3], [45, 3, 0], [4, 53, 0]]
    ids = [
        RandomSampling(num_samples=3, max_length=8, seed=seed)(model, sources).ids
        for seed in (0, 1, 2**32)
    ]
    ids = [np.pad(x, [(0, 0), (0, 0), (0, 8 - x.shape[2])]) for x in ids]
    samples = np.reshape(ids, [-1, 8])
    # The shortest, "3" alone, comes up one time in five; of the others no two.
    longer = samples[samples[:, 4] != PAD_ID]
    assert len(longer) > 9 and len(np.unique(longer, axis=0)) == len(longer)


def test_without_a_seed_every_call_and_every_row_draws_anew():
    model = same({token: 0.25 for token in range(4, 8)})
    search = RandomSampling(num_samples=2, max_length=12)
    sources = tf.constant([[5, 3], [5, 3]])
    graph = tf.function(lambda ids: search(model, ids))
    drawn = []
    for call in (lambda: search(model, sources), lambda: graph(sources)):
        for _ in range(2):
            tf.random.set_seed(1)
            drawn += list(call().ids.numpy().reshape(-1, 12))
    assert len(np.unique(drawn, axis=0)) == len(drawn) == 16


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, None])
def test_a_saved_model_draws_the_same_with_a_seed_only(seed, tmp_path):
    search = RandomSampling(num_samples=3, max_length=9, seed=seed)
    translator = word_translator(search)
    path = str(export_saved_model(translator, tmp_path))
    texts = ["the red", "dog", "cat cat cat the", "is is red"] * 4
    answers = [tuple(t.text for t in translator.translate(texts))]
    for _ in range(2):  # as two processes would
        serve = tf.saved_model.load(path).signatures["serving_default"]
        for _ in range(2):
            said = serve(text=tf.constant(texts))["translation"].numpy()
            answers.append(tuple(text.decode() for text in said))
    assert len({*answers[0]}) > 2
    assert len({*answers}) == (1 if seed else len(answers))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": 0}, ValueError, "temperature must be positive.*: 0"),
        ({"temperature": INF}, ValueError, "temperature must be positive and finite"),
        ({"temperature": float("nan")}, ValueError, "temperature.*nan"),
        ({"temperature": True}, TypeError, "temperature"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1. Received: 0"),
        ({"top_k": 2.0}, TypeError, "top_k must be an integer or None"),
        ({"top_p": 0.0}, ValueError, r"top_p must be in \(0, 1\]. Received: 0.0"),
        ({"top_p": 1.001}, ValueError, "top_p"),
        ({"num_samples": None}, TypeError, "num_samples"),
        ({"seed": 1.0}, TypeError, "seed must be an integer or None"),
        ({"seed": -1}, ValueError, "seed must be at least 0. Received: -1"),
        ({"seed": 2**63}, ValueError, "seed must be at most 9223372036854775807"),
    ],
)
def test_refuses_what_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        RandomSampling(**options)


def test_numpys_numbers_are_numbers():
    one = RandomSampling(np.float32(0.5), np.int64(3), num_samples=np.int32(2), seed=5)
    assert one == RandomSampling(0.5, top_k=3, num_samples=2, seed=np.int64(5))
    kinds = [type(x) for x in (one.temperature, one.top_k, one.num_samples)]
    assert kinds == [float, int, int]
