"""Random sampling against known distributions, NumPy, greedy search and itself."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong import Translator, export_saved_model
from keras_luong.decoding import sampling
from keras_luong.decoding.beam import GreedySearch
from keras_luong.decoding.sampling import RandomSampling, draw
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

INF = float("inf")
TABLE_ROWS = 101
SOURCES = [[7, 9, 3], [4, 3, 0], [3, 0, 0]]
quick = settings(max_examples=25, derandomize=True)
seeds = st.integers(0, 2**32 - 1)


class TableModel:
    """Logits and attention looked up by a hash of the sentence and all tokens so far.

    Samples that follow another one's state read another row.
    """

    def __init__(self, seed=1, vocabulary=6, scale=2.0):
        shape = TABLE_ROWS, vocabulary
        random = np.random.default_rng(seed)
        self.table = random.normal(0, scale, shape).astype("float32")
        self.beams = []

    def encode(self, source_ids):
        start = tf.reduce_sum(source_ids, axis=1, keepdims=True)
        positions = tf.zeros_like(source_ids) + tf.range(tf.shape(source_ids)[1])
        return positions, {"hash": [start]}

    def step(self, tokens, state, positions):
        self.beams.append(tokens.shape[1])
        code = (state["hash"][0] * 7 + tokens) % TABLE_ROWS
        weights = tf.cast(code[..., None] + positions[:, None], tf.float32)
        return tf.gather(self.table, code), {"hash": [code]}, weights

    def read(self, source, tokens):
        """In plain Python: the log-probabilities and attention after some tokens."""
        code = int(sum(source))
        for token in [BOS_ID, *tokens]:
            code = (code * 7 + token) % TABLE_ROWS
        logits = self.table[code]
        return logits - np.logaddexp.reduce(logits), code + np.arange(len(source))


class SameModel:
    """The same probabilities at every step; counts the steps."""

    def __init__(self, probabilities, vocabulary=8):
        self.logits = np.full(vocabulary, -np.inf, "float32")
        for token, probability in probabilities.items():
            self.logits[token] = np.log(probability) if probability else -np.inf
        self.steps = 0

    def encode(self, source_ids):
        return source_ids, tf.zeros([tf.shape(source_ids)[0], 1, 1])

    def step(self, tokens, state, source_ids):
        self.steps += 1
        logits = tf.zeros_like(tokens, tf.float32)[..., None] + self.logits
        weights = tf.zeros_like(logits[..., :1]) + tf.ones_like(
            source_ids[0], tf.float32
        )
        return logits, state, weights


def renormalised(log_probs):
    """Probabilities once padding and the begin token are out."""
    probabilities = np.exp(log_probs.astype("float64"))
    probabilities[[PAD_ID, BOS_ID]] = 0
    return probabilities / probabilities.sum()


def assert_frequencies(counts, probabilities, total):
    """Within five standard deviations: by chance once in a million."""
    for key, p in probabilities.items():
        bound = 5 * math.sqrt(total * p * (1 - p)) + 1
        assert abs(counts.get(key, 0) - total * p) < bound, (key, counts.get(key), p)
    assert set(counts) <= {key for key, p in probabilities.items() if p > 0}


def count(rows):
    return dict(zip(*np.unique(rows, return_counts=True), strict=True))


def assert_equal(one, other, rtol=0.0):
    for name, value in one._asdict().items():
        np.testing.assert_allclose(
            value, getattr(other, name), rtol=rtol, atol=rtol, err_msg=name
        )


class TestDistribution:
    TOTAL = 20_000

    def draws(self, model, **options):
        options = {"max_length": 1, "seed": 7, **options}
        search = RandomSampling(num_samples=self.TOTAL, **options)
        return search(model, [[5, 3]]).ids[0].numpy()

    def test_tokens_are_as_frequent_as_probable(self):
        p = {3: 0.5, 4: 0.25, 5: 0.2, 6: 0.05, 7: 0.0}
        assert_frequencies(count(self.draws(SameModel(p))), p, self.TOTAL)

    def test_forbidden_tokens_leave_their_share_to_the_others(self):
        p = {PAD_ID: 0.2, UNK_ID: 0.1, BOS_ID: 0.3, EOS_ID: 0.1, 4: 0.3}
        expected = {UNK_ID: 0.2, EOS_ID: 0.2, 4: 0.6}
        assert_frequencies(count(self.draws(SameModel(p))), expected, self.TOTAL)

    @pytest.mark.parametrize("temperature", [0.5, 2.0])
    def test_temperature(self, temperature):
        p = {3: 0.64, 4: 0.32, 5: 0.04}
        powers = {token: x ** (1 / temperature) for token, x in p.items()}
        expected = {t: x / sum(powers.values()) for t, x in powers.items()}
        draws = self.draws(SameModel(p), temperature=temperature)
        assert_frequencies(count(draws), expected, self.TOTAL)

    def test_cut_off_distributions_keep_their_proportions(self):
        p = {3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}
        draws = self.draws(SameModel(p), top_k=2)
        assert_frequencies(count(draws), {3: 4 / 7, 4: 3 / 7}, self.TOTAL)
        draws = self.draws(SameModel(p), top_p=0.75)
        assert_frequencies(count(draws), {3: 4 / 9, 4: 3 / 9, 5: 2 / 9}, self.TOTAL)

    def test_steps_are_independent(self):
        p = {4: 0.5, 5: 0.3, 6: 0.2}
        draws = self.draws(SameModel(p), max_length=3)
        first, second, third = draws.T
        for a, b in ((first, second), (second, third), (first, third)):
            pairs = {10 * i + j: p[i] * p[j] for i in p for j in p}
            assert_frequencies(count(10 * a + b), pairs, self.TOTAL)

    @pytest.mark.slow
    def test_samples_and_sentences_are_independent(self):
        p = {4: 0.5, 5: 0.3, 6: 0.2}
        sources = tf.constant([[i + 4, 3] for i in range(3000)])
        for seed in (3, None):
            search = RandomSampling(num_samples=2, max_length=1, seed=seed)
            graph = tf.function(lambda ids, s=search: s(SameModel(p), ids).ids)
            ids = graph(sources).numpy()[..., 0]
            # Two of a sentence, the more probable one first.
            pairs = {44: 0.25, 45: 0.3, 46: 0.2, 55: 0.09, 56: 0.12, 66: 0.04}
            assert_frequencies(count(ids @ [10, 1]), pairs, 3000)
            # The first ones of two neighbours.
            first = {4: 0.75, 5: 0.21, 6: 0.04}
            pairs = {10 * i + j: first[i] * first[j] for i in p for j in p}
            assert_frequencies(count(10 * ids[::2, 0] + ids[1::2, 0]), pairs, 1500)

    def test_whole_sequences_are_as_frequent_as_probable(self):
        """Through the state: a model that depends on all that was said."""
        model, source, limit = TableModel(11, vocabulary=5, scale=1.0), [7, 9, 3], 3
        expected = {}
        for length in range(1, limit + 1):
            for sequence in itertools.product((1, 3, 4), repeat=length):
                if EOS_ID in sequence[:-1] or not (
                    sequence[-1] == EOS_ID or length == limit
                ):
                    continue
                steps = [
                    renormalised(model.read(source, sequence[:i])[0])[sequence[i]]
                    for i in range(length)
                ]
                padded = [*sequence, *[PAD_ID] * (limit - length)]
                expected[int("".join(map(str, padded)))] = np.prod(steps)
        assert sum(expected.values()) == pytest.approx(1)
        search = RandomSampling(num_samples=self.TOTAL, max_length=limit, seed=5)
        ids = search(model, [source]).ids[0].numpy()
        counts = count(ids @ 10 ** np.arange(limit)[::-1])
        assert_frequencies(counts, expected, self.TOTAL)


class TestDraw:
    def grid(self, logits, **options):
        """The tokens that evenly spread numbers draw."""
        uniforms = (np.arange(10_000) + 0.5) / 10_000
        logits = tf.tile(tf.constant(logits, tf.float32)[None, None], [1, 10_000, 1])
        return draw(logits, tf.constant(uniforms)[None], **options)[0].numpy()

    @pytest.mark.parametrize(
        ("probabilities", "options", "kept"),
        [
            ([0.1, 0.2, 0.3, 0.4], {}, {0, 1, 2, 3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_k": 1}, {3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_k": 3}, {1, 2, 3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_k": 9}, {0, 1, 2, 3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_p": 1e-9}, {3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_p": 0.39}, {3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_p": 0.41}, {2, 3}),  # it crosses: it is in
            ([0.1, 0.2, 0.3, 0.4], {"top_p": 0.95}, {0, 1, 2, 3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_p": 1.0}, {0, 1, 2, 3}),
            ([0.25, 0.25, 0.25, 0.25], {"top_k": 2}, {0, 1}),  # ties: lower ids
            ([0.25, 0.25, 0.25, 0.25], {"top_p": 0.5}, {0, 1}),  # just reached
            ([0.25, 0.25, 0.25, 0.25], {"top_p": 0.51}, {0, 1, 2}),
            # Of the two that are left, .3 and .4, the second makes up 4/7.
            ([0.1, 0.2, 0.3, 0.4], {"top_k": 2, "top_p": 0.57}, {3}),
            ([0.1, 0.2, 0.3, 0.4], {"top_k": 2, "top_p": 0.58}, {2, 3}),
            # At temperature 1/2: 1, 4, 9, 16 of 30.
            ([0.1, 0.2, 0.3, 0.4], {"temperature": 0.5, "top_p": 0.53}, {3}),
            ([0.1, 0.2, 0.3, 0.4], {"temperature": 0.5, "top_p": 0.54}, {2, 3}),
            ([0.0, 0.5, 0.0, 0.5], {}, {1, 3}),
            ([0.0, 0.5, 0.0, 0.5], {"top_k": 3}, {1, 3}),
            ([0.0, 0.5, 0.0, 0.5], {"top_p": 1.0}, {1, 3}),
            ([0.0, 0.0, 1.0, 0.0], {"temperature": 1e3, "top_p": 1.0}, {2}),
        ],
    )
    def test_support(self, probabilities, options, kept):
        with np.errstate(divide="ignore"):
            logits = np.log(probabilities)
        assert set(self.grid(logits, **options)) == kept

    @quick
    @given(
        seed=seeds,
        temperature=st.floats(0.1, 10),
        top_k=st.none() | st.integers(1, 12),
        top_p=st.none() | st.floats(0.01, 1),
    )
    def test_equals_numpy(self, seed, temperature, top_k, top_p):
        logits = np.random.default_rng(seed).normal(0, 2, 10).astype("float32")
        logits[seed % 10] = -INF
        scaled = np.exp((logits.astype("float64") - logits.max()) / temperature)
        order = np.argsort(-scaled, kind="stable")
        kept = order[:top_k]
        if top_p:
            shares = np.cumsum(scaled[kept]) / scaled[kept].sum()
            kept = kept[: np.searchsorted(shares, top_p) + 1]
        kept = kept[scaled[kept] > 0]
        expected = np.zeros(10)
        expected[kept] = scaled[kept] / scaled[kept].sum()
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        drawn = self.grid(logits, **options)
        shares = np.bincount(drawn, minlength=10) / len(drawn)
        np.testing.assert_allclose(shares, expected, atol=1.01e-4)
        assert np.all(shares[expected == 0] == 0)

    @pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999, 1.0])
    @pytest.mark.parametrize(
        "scales",
        [
            pytest.param((9, 9), marks=pytest.mark.slow),
            (9, 0.1),
            pytest.param((0.1, 0.1), marks=pytest.mark.slow),
        ],
    )
    def test_sorting_a_few_first_changes_nothing(self, top_p, scales, monkeypatch):
        """They are enough for both sentences, for one, for none."""
        random = np.random.default_rng(0)
        logits = random.normal(size=[2, 9, 500]) * np.reshape(scales, [2, 1, 1])
        logits, uniforms = tf.constant(logits, tf.float32), random.random([2, 9])
        for limit in (sampling.FEW, 20):
            monkeypatch.setattr(sampling, "FEW", limit)
            drawn = draw(logits, uniforms, top_p=top_p)
            graph = tf.function(draw)(logits, uniforms, top_p=top_p)
            np.testing.assert_array_equal(drawn, graph)
            monkeypatch.setattr(sampling, "FEW", 1000)
            np.testing.assert_array_equal(drawn, draw(logits, uniforms, top_p=top_p))
        assert len(np.unique(drawn)) > 3

    def test_improbable_tokens_of_a_large_vocabulary_do_not_vanish(self):
        """Half of the mass lies in 2**20 equal tokens behind the first one."""
        size = 2**20
        logits = np.full(size + 1, -np.log(2 * size), "float32")
        logits[0] = np.log(0.5)
        uniforms = tf.constant([[0.25, 0.49, 0.75, 0.999999]], tf.float64)
        drawn = draw(tf.tile(logits[None, None], [1, 4, 1]), uniforms)[0]
        expected = [0, 0, size / 2, size * (1 - 2e-6)]
        np.testing.assert_allclose(drawn, expected, atol=size * 1e-6)

    @pytest.mark.parametrize("options", [{}, {"top_k": 3}, {"top_p": 0.999}])
    def test_the_ends_of_the_interval_draw_what_is_possible(self, options):
        logits = tf.math.log([[[0.0, 0.3, 0.0, 0.7, 0.0]] * 2])
        uniforms = tf.constant([[0.0, np.nextafter(1, 0)]], tf.float64)
        drawn = draw(logits, uniforms, **options)[0].numpy().tolist()
        assert drawn == ([3, 1] if options else [1, 3])


@pytest.mark.parametrize(
    "options", [{"top_k": 1}, {"temperature": 1e-6}, {"top_p": 1e-6}]
)
@pytest.mark.parametrize("max_length", [1, 8, None])
def test_the_best_token_only_is_greedy_search(options, max_length):
    model = TableModel(4)
    greedy = GreedySearch(max_length)(model, SOURCES)
    options = {"max_length": max_length, **options}
    assert_equal(RandomSampling(**options)(model, SOURCES), greedy, 1e-6)
    several = RandomSampling(num_samples=3, **options)(model, SOURCES)
    for n in range(3):
        np.testing.assert_array_equal(several.ids[:, n], greedy.ids[:, 0])
        np.testing.assert_allclose(several.scores[:, n], greedy.scores[:, 0], 1e-6)


@pytest.mark.slow
@quick
@given(seed=seeds, data=st.data())
def test_samples_are_what_the_model_says_of_them(seed, data):
    model = TableModel(seed, vocabulary=data.draw(st.integers(5, 9)))
    limit = data.draw(st.integers(1, 9))
    top_p = data.draw(st.sampled_from([None, 0.8]))
    search = RandomSampling(1.5, None, top_p, 4, limit, seed)
    hypotheses = search(model, SOURCES)
    assert hypotheses.ids.dtype == hypotheses.lengths.dtype == tf.int32
    T = int(tf.reduce_max(hypotheses.lengths))
    assert hypotheses.ids.shape == (3, 4, T) and T <= limit
    assert hypotheses.weights.shape == (3, 4, T, 3)
    assert np.all(np.diff(hypotheses.scores) <= 0)
    np.testing.assert_array_equal(hypotheses.scores, hypotheses.log_probs)
    for row, source in enumerate(SOURCES):
        for n in range(4):
            length = int(hypotheses.lengths[row, n])
            ids = hypotheses.ids[row, n].numpy()
            tokens, rest = ids[:length].tolist(), ids[length:]
            assert (rest == PAD_ID).all() and EOS_ID not in tokens[:-1]
            assert tokens[-1] == EOS_ID or length == limit
            assert not {PAD_ID, BOS_ID} & set(tokens)
            said = [model.read(source, tokens[:i]) for i in range(length)]
            log_prob = sum(said[i][0][token] for i, token in enumerate(tokens))
            np.testing.assert_allclose(
                hypotheses.log_probs[row, n], log_prob, atol=1e-4
            )
            weights = hypotheses.weights[row, n].numpy()
            np.testing.assert_array_equal(weights[:length], [w for _, w in said])
            assert (weights[length:] == 0).all()


def test_stops_as_soon_as_all_have_ended():
    model = SameModel({EOS_ID: 1.0})
    hypotheses = RandomSampling(num_samples=3, max_length=50)(model, SOURCES)
    assert model.steps == 1 and hypotheses.ids.numpy().tolist() == [[[3]] * 3] * 3
    endless = SameModel({4: 1.0})
    hypotheses = RandomSampling(num_samples=2, max_length=6)(endless, SOURCES)
    assert endless.steps == 6 and (hypotheses.ids.numpy() == 4).all()
    relative = RandomSampling(max_length=None)(endless, SOURCES)
    assert relative.lengths.numpy().tolist() == [[16], [14], [12]]


def test_a_model_without_any_possible_token_has_no_sample():
    hypotheses = RandomSampling(num_samples=2, max_length=5)(SameModel({}), [[5, 3]])
    assert hypotheses.lengths.numpy().tolist() == [[0, 0]]
    assert (hypotheses.scores.numpy() == -INF).all()
    assert not hypotheses.ids.numpy().any()


class TestSeeds:
    SEARCHES = {
        "several": RandomSampling(num_samples=4, max_length=12, seed=3),
        "relative": pytest.param(
            RandomSampling(1.3, 5, 0.95, 3, None, 2**63 - 1), marks=pytest.mark.slow
        ),
    }

    @pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
    def test_eager_equals_graph_of_unknown_shape(self, search):
        model = TableModel(5, vocabulary=8)
        signature = [tf.TensorSpec([None, None], tf.int32)]
        graph = tf.function(lambda ids: search(model, ids), input_signature=signature)
        for sources in (SOURCES, [[3]], np.zeros([2, 4], int), np.zeros([0, 3], int)):
            sources = tf.constant(sources, tf.int32)
            assert_equal(search(model, sources), graph(sources), 1e-6)
            assert_equal(graph(sources), graph(sources))

    @pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)
    def test_neighbours_padding_and_order_do_not_matter(self, search):
        model = TableModel(3, vocabulary=8, scale=1.0)
        sources = [[5, 3], [9, 9, 9, 3], [3], [8, 4, 3], [6, 3], [5, 3]]
        batch = tf.ragged.constant(sources).to_tensor(shape=[None, 7])
        together, backwards = search(model, batch), search(model, batch[::-1])
        for row, source in enumerate(sources):
            alone = search(model, [source])
            length = alone.ids.shape[2]
            for other, r in ((together, row), (backwards, len(sources) - 1 - row)):
                np.testing.assert_array_equal(other.ids[r, :, :length], alone.ids[0])
                np.testing.assert_allclose(other.scores[r], alone.scores[0], 1e-6)
        assert len(np.unique(together.ids[:, 0], axis=0)) > 3

    def test_seeds_sentences_samples_and_orders_of_words_differ(self):
        model = SameModel({token: 0.2 for token in range(3, 8)})
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

    @pytest.mark.slow
    def test_without_a_seed_every_call_and_every_row_draws_anew(self):
        model = SameModel({token: 0.25 for token in range(4, 8)})
        search = RandomSampling(num_samples=2, max_length=20)
        sources = tf.constant([[5, 3], [5, 3]])
        graph = tf.function(lambda ids: search(model, ids))
        drawn = []
        for call in (lambda: search(model, sources), lambda: graph(sources)):
            for _ in range(3):
                tf.random.set_seed(1)
                drawn += list(call().ids.numpy().reshape(-1, 20))
        assert len(np.unique(drawn, axis=0)) == len(drawn) == 24


def exported(search, path):
    """A translator, and what a SavedModel of it answers."""
    source, target = WordTokenizer(list("abcd")), WordTokenizer(list("ABCDEFG"))
    model = Seq2Seq(Seq2SeqConfig(8, 11, units=4))
    translator = Translator(model, TokenizerPair(source, target), search)
    path = str(export_saved_model(translator, path))

    def load():
        served = tf.saved_model.load(path).signatures["serving_default"]
        return lambda texts: served(text=tf.constant(texts))["translation"].numpy()

    return translator, load


@pytest.mark.slow
def test_a_saved_model_draws_the_same_with_a_seed(tmp_path):
    search = RandomSampling(num_samples=3, max_length=9, seed=4)
    translator, load = exported(search, tmp_path)
    texts = ["a b", "c", "d d d a", "b", "b a"]
    said = [translation.text for translation in translator.translate(texts)]
    for _ in range(2):
        assert [text.decode() for text in load()(texts)] == said
    ids = translator.source_tokenizer.encode(tf.constant(["a b"]))
    ids = tf.concat([ids.to_tensor(), [[EOS_ID]]], axis=1)
    eager = search(translator.model, ids).ids[:, 0]
    assert translator.target_tokenizer.decode(eager).numpy()[0].decode() == said[0]
    assert len(set(said)) > 2


@pytest.mark.slow
def test_a_saved_model_draws_anew_without_a_seed(tmp_path):
    translator, load = exported(RandomSampling(max_length=15), tmp_path)
    texts = ["a b c"] * 3
    serve, other = load(), load()  # as two processes would
    answers = [serve(texts), serve(texts), other(texts), other(texts)]
    answers += [np.array([t.text.encode() for t in translator.translate(texts)])]
    assert len(np.unique(np.concatenate(answers))) > 10  # of 15; the empty one repeats


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": 0}, ValueError, "temperature must be positive.*: 0"),
        ({"temperature": -1.0}, ValueError, "temperature"),
        ({"temperature": INF}, ValueError, "temperature must be positive and finite"),
        ({"temperature": float("nan")}, ValueError, "temperature.*nan"),
        ({"temperature": "hot"}, TypeError, "temperature must be a number.*'hot'"),
        ({"temperature": True}, TypeError, "temperature"),
        ({"top_k": 0}, ValueError, "top_k must be at least 1. Received: 0"),
        ({"top_k": 2.0}, TypeError, "top_k must be an integer or None"),
        ({"top_p": 0.0}, ValueError, r"top_p must be in \(0, 1\]. Received: 0.0"),
        ({"top_p": 1.001}, ValueError, "top_p"),
        ({"top_p": "0.9"}, TypeError, "top_p"),
        ({"num_samples": 0}, ValueError, "num_samples"),
        ({"num_samples": None}, TypeError, "num_samples"),
        ({"max_length": 0}, ValueError, "max_length"),
        ({"max_length": 2**31}, ValueError, "max_length must be at most"),
        ({"seed": 1.0}, TypeError, "seed must be an integer or None"),
        ({"seed": -1}, ValueError, "seed must be at least 0. Received: -1"),
        ({"seed": 2**63}, ValueError, "seed must be at most 9223372036854775807"),
    ],
)
def test_refuses_what_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        RandomSampling(**options)


def test_numpys_numbers_are_numbers():
    one = RandomSampling(top_k=np.int64(3), num_samples=np.int32(2), seed=np.int64(5))
    assert type(RandomSampling(temperature=np.float32(0.5)).temperature) is float
    assert one == RandomSampling(top_k=3, num_samples=2, seed=5)
    assert all(type(x) is int for x in (one.top_k, one.num_samples, one.seed))
