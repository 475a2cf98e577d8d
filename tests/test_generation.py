"""Sequences of anybody's model, whatever it reads: searched, generated, scored, drawn.

What is drawn is compared with known distributions, NumPy, and greedy search.
"""

import gc
import itertools
import math
import weakref

import numpy as np
import own_models as own
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
from leave_slow import slow_but
from own_models import IDS, features, images
from small_translator import word_translator

import keras_luong as kl
from keras_luong.decoding import Ensemble, RandomSampling, force, sampling
from keras_luong.decoding.sampling import draw, fingerprints
from keras_luong.decoding.step_model import check_source
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID


def nest(count=3):
    styles = np.arange(count * 2).reshape(count, 2) % 4
    return {"features": features(count), "style": styles}


KINDS = {
    "images": (own.Captioner, images),
    "without attention": (lambda: own.Captioner(attend=False), images),
    "features": (own.Transcriber, features),
    "a nest": (own.Both, nest),
}
every_source = pytest.mark.parametrize("name", slow_but(KINDS, "a nest"))


def made(name, count):
    make, source = KINDS[name]
    return make(), source(count)


def rows(source, at):
    return tf.nest.map_structure(lambda x: x[at], source)


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@every_source
def test_a_wide_beam_is_exhaustive_whatever_is_read(name):
    model, source = made(name, 2)
    found = kl.BeamSearch(40, n_best=9, max_length=2, **IDS)(model, source)
    for row in range(2):
        one = tf.nest.map_structure(tf.constant, rows(source, slice(row, row + 1)))
        expected = own.exhaustive(model, one, 2, **IDS)[:9]
        for n, (tokens, log_prob) in enumerate(expected):
            assert found.ids[row, n, : len(tokens)].numpy().tolist() == tokens
            np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)


@every_source
def test_all_ways_to_find_a_sequence_agree(name):
    model, source = made(name, 3)
    greedy = kl.GreedySearch(4, **IDS)(model, source)
    assert_equal(kl.BeamSearch(1, max_length=4, **IDS)(model, source), greedy)
    top = RandomSampling(top_k=1, max_length=4, **IDS)
    assert_equal(top(model, source), greedy)

    search = kl.BeamSearch(3, 2, max_length=4, **IDS)
    found = search(model, source)
    whole = kl.BeamSearch(3, 2, max_length=4, compact=False, **IDS)
    assert_equal(whole(model, source), found)
    alone = search(model, rows(source, slice(1)))
    np.testing.assert_array_equal(alone.ids[0], found.ids[0, :, : alone.ids.shape[2]])
    two = search(Ensemble([Ensemble([model]), model]), source)
    np.testing.assert_array_equal(two.ids, found.ids)
    np.testing.assert_allclose(two.weights, found.weights, atol=1e-5)
    for n in range(2):
        forced = force(model, source, found.ids[:, n], **IDS)
        T = forced.weights.shape[2]
        np.testing.assert_array_equal(forced.lengths[:, 0], found.lengths[:, n])
        for one, other in (
            (forced.log_probs, found.log_probs[:, n]),
            (forced.weights, found.weights[:, n, :T]),
            (forced.token_log_probs, found.token_log_probs[:, n, :T]),
        ):
            np.testing.assert_allclose(one[:, 0], other, atol=1e-5)


@every_source
def test_a_seed_depends_on_the_source(name):
    search = RandomSampling(num_samples=40, max_length=4, seed=3, **IDS)
    model, source = made(name, 1)
    twice = tf.nest.map_structure(lambda x: np.concatenate([x, x]), source)
    found = search(model, twice)
    np.testing.assert_array_equal(found.ids[0], found.ids[1])
    other = tf.nest.map_structure(lambda x: x + (x != 0).astype(x.dtype), source)
    one, two, three = (
        int(fingerprints(check_source(x), search.pad_id)[0])
        for x in (source, other, rows(twice, slice(1)))
    )
    assert one == three != two


def test_a_length_is_needed():
    for search in (
        kl.GreedySearch(None),
        kl.BeamSearch(max_length=None, max_length_ratio=1.5),
        kl.BeamSearch(min_length_ratio=0.5),
        RandomSampling(max_length=None),
    ):
        with pytest.raises(ValueError, match="needs a source of ids.*max_length"):
            search(Echo(), images())


def test_forced_targets_have_the_teacher_forced_models_probabilities():
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=6, init_scale=0.8))
    source = np.array([[4, 5, 6, 3], [7, 3, 0, 0], [0, 0, 0, 0]], "int32")
    target = np.array([[5, 6, 3], [4, 3, 0], [3, 0, 0]], "int32")
    found = force(model, source, target)
    read = np.concatenate([[[2]] * 3, target[:, :-1]], 1)
    log_probs = tf.nn.log_softmax(model({"source": source, "target": read})).numpy()
    chosen = np.take_along_axis(log_probs, target[..., None], -1)[..., 0]
    chosen *= target != 0
    for sums in (found.log_probs, found.scores):
        np.testing.assert_allclose(sums[:, 0], chosen.sum(1), atol=1e-5)
    np.testing.assert_allclose(found.token_log_probs[:, 0], chosen, atol=1e-5)
    np.testing.assert_array_equal(found.ids[:, 0], target)
    np.testing.assert_array_equal(found.lengths[:, 0], [3, 2, 1])
    table = TableModel(0, vocabulary=9)
    graph = tf.function(force, autograph=False)
    assert_equal(graph(table, source, target), force(table, source, target))
    for shape in ([2], [4, 4]):
        with pytest.raises(ValueError, match="target_ids must have a row for each"):
            force(None, source, tf.ones(shape, tf.int32))


def test_without_attention_weights_are_empty_and_no_coverage_is_known():
    model = own.Captioner(attend=False)
    found = kl.GreedySearch(4, **IDS)(model, images())
    assert found.weights.shape == (*found.ids.shape, 0)
    search = kl.BeamSearch(3, coverage_penalty=0.2, **IDS)
    with pytest.raises(ValueError, match="attention weights. Received: None"):
        search(model, images())
    # In an ensemble it counts as attention to nothing.
    both = kl.GreedySearch(4, **IDS)(Ensemble([own.Captioner(), model]), images())
    assert both.weights.shape[-1] == 25
    inside = tf.range(both.ids.shape[2]) < both.lengths[..., None]
    sums = tf.reduce_sum(both.weights, axis=-1)
    np.testing.assert_allclose(sums, np.where(inside, 0.5, 0.0), atol=1e-5)


class Echo:
    """Tells what it was given, and how often."""

    count = 0

    def encode(self, source):
        self.given = source
        self.count += 1
        leaf = tf.nest.flatten(source)[0]
        return source, tf.zeros([tf.shape(leaf)[0], 1])

    def step(self, tokens, state, memory):
        return tf.one_hot(tokens, own.VOCABULARY), state, None


GIVEN = [
    # Ids are int32.
    *((np.ones([2, 3], x), ["int32"]) for x in ("int64", "uint8", "int32")),
    ([[1, 2], [3, 4]], ["int32"]),
    (((1, 2), (3, 4)), ["int32"]),
    # Others stay what they are, and nests keep their structure.
    (np.ones([2, 4, 4, 3], "uint8"), ["uint8"]),
    (np.ones([2, 3], "bool"), ["bool"]),
    (np.ones([1, 1, 1], "int8"), ["int8"]),
    (tf.constant(["a", "b"]), ["string"]),
    ((np.ones([2, 3]), {"x": np.ones([2, 1], int)}), ["float64", "int32"]),
    # In a nest there may be a number for each sentence.
    ((np.ones([2, 3, 4]), np.array([3, 1])), ["float64", "int32"]),
]


@pytest.mark.parametrize("source, dtypes", GIVEN, ids=str)
def test_what_models_are_given(source, dtypes):
    model = Echo()
    for search in (kl.GreedySearch(2), RandomSampling(seed=1, max_length=2)):
        search(model, source)
        leaves = tf.nest.flatten(model.given)
        assert [x.dtype.name for x in leaves] == dtypes
        if len(dtypes) > 1:
            tf.nest.assert_same_structure(model.given, source)
        if hasattr(source, "shape"):
            assert leaves[0].shape == source.shape


UNEVEN = np.ones([2, 3]), np.ones([3, 3])


NO_SOURCES = [
    (5, ValueError, r"a row for each sentence.*Received: \(\)"),
    ([1, 2], ValueError, r"shape \[B, S\] if it is ids.*Received: \(2,\)"),
    (np.ones([2, 0, 3]), ValueError, r"Received: \(2, 0, 3\)"),
    ({}, ValueError, "must hold a tensor. Received: {}"),
    (tf.ragged.constant([[1], [2, 3]]), TypeError, r"to_tensor\(\)"),
    ({"a": object()}, TypeError, "a tuple or dict of tensors"),
    (UNEVEN, ValueError, "number of sentences in.* the same.*0: 2, tensor 1: 3"),
]


@pytest.mark.parametrize("source, error, message", NO_SOURCES)
def test_what_is_no_source(source, error, message):
    for search in (kl.BeamSearch(2), RandomSampling()):
        with pytest.raises(error, match=message):
            search(Echo(), source)
    with pytest.raises(error, match=message):
        kl.generate(Echo(), source)


def test_generate_is_traced_once_for_each_search_and_kind_of_source():
    model, search = Echo(), kl.BeamSearch(max_length=3)
    expected = search(model, images())
    assert_equal(kl.generate(model, images(), max_length=3), expected)
    once = model.count
    kl.generate(model, images() + 1, max_length=3)
    kl.generate(model, images(), search)
    assert model.count == once
    greedy = kl.GreedySearch()
    kl.generate(model, images(), greedy, max_length=2)
    assert model.count == once + 1
    for count in (2, 4, 5):
        kl.generate(model, images(count), greedy, max_length=2)
    assert model.count == once + 2  # of any number of rows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
def test_new_and_replaced_weights_count():
    """As `quantize` replaces them; in an ensemble, and with a generator."""
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    both = Ensemble([model, model])
    search, ids = kl.BeamSearch(max_length=3), [[4, 5, 3]]
    spec = tf.TensorSpec([None, None], tf.int32)
    generator = kl.SequenceGenerator(both, spec, search)
    seen = [generator(ids).scores, kl.generate(both, ids, search).scores]
    for quantized in (False, True):
        model.set_weights([-2 * x for x in model.get_weights()])
        if quantized:
            model.quantize("int8")
        expected = search(both, tf.constant(ids)).scores
        for found in (generator(ids), kl.generate(both, ids, search)):
            np.testing.assert_allclose(found.scores, expected, atol=1e-5)
        assert not any(np.allclose(x, expected) for x in seen)
        seen.append(expected)


def test_generate_does_not_keep_a_model_alive_nor_needs_a_hash():
    model = Echo()
    search = kl.GreedySearch(3)
    kl.generate(model, images(1), search)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None

    class Equal(Echo):
        __hash__ = None

    assert kl.generate(Equal(), images(), search).ids.shape[0] == 3


def test_fields_change_any_search():
    search = RandomSampling(num_samples=2, seed=1)
    found = kl.generate(Echo(), images(), search, max_length=3)
    assert found.ids.shape[:2] == (3, 2) and found.ids.shape[2] <= 3
    with pytest.raises(TypeError, match="width"):
        kl.generate(Echo(), images(), width=3)
    spec = tf.TensorSpec([None, None, 3])
    for make, source in ((kl.generate, images()), (kl.SequenceGenerator, spec)):
        with pytest.raises(TypeError, match="`encode` and `step`.*Received: 5"):
            make(5, source)
        for search in ("beam", kl.BeamSearch):
            with pytest.raises(TypeError, match="`search` must be callable.*Received"):
                make(Echo(), source, search)
    with pytest.raises(TypeError, match=r"a tf.TensorSpec.*Received: \[None, 7\]"):
        kl.SequenceGenerator(Echo(), [None, 7])


STYLE = tf.TensorSpec([None, 2], tf.int64)
SPEC = {"features": tf.TensorSpec([None, None, 3]), "style": STYLE}


def test_a_generator_says_what_its_search_says_and_is_traced_once():
    model, search = Echo(), kl.GreedySearch(4, **IDS)
    expected = search(model, images(5))
    before = model.count
    generator = kl.SequenceGenerator(model, tf.TensorSpec([None, 7, 7, 1]), search)
    for count in (1, 2, 5):
        found = generator(images(5)[:count].astype("float64"))
        T = found.ids.shape[2]
        np.testing.assert_array_equal(found.ids, expected.ids[:count, :, :T])
    assert model.count == before + 1
    kl.SequenceGenerator(model, SPEC, search)(nest())
    assert [x.dtype.name for x in model.given.values()] == ["float32", "int32"]


OTHER_KINDS = [
    ({"features": features()}, r"like \{.*style.*Received.*float32 \(3, 4, 3\)"),
    ({**nest(), "more": 1}, "like.*Received: .*'more': '1'"),
    ({**nest(), "features": features()[0]}, r"Received: .*float32 \(4, 3\)"),
    ({**nest(), "style": features()[:, 0, :2]}, r"'float32 \(3, 2\)'"),
    (features(), r"Received: float32 \(3, 4, 3\)"),
]


@pytest.mark.parametrize("source, message", OTHER_KINDS)
def test_sources_of_another_kind_than_a_generators(source, message):
    generator = kl.SequenceGenerator(Echo(), SPEC, kl.GreedySearch(4, **IDS))
    with pytest.raises(ValueError, match=message):
        generator(source)


# Random sampling.

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


DRAWN = [
    ({3: 0.5, 4: 0.25, 5: 0.2, 6: 0.05, 7: 0}, {}, [0.5, 0.25, 0.2, 0.05, 0]),
    # What is forbidden leaves its share to the others.
    ({PAD_ID: 0.3, BOS_ID: 0.3, 3: 0.1, 4: 0.3}, {}, [0.25, 0.75]),
    ({3: 8 / 13, 4: 4 / 13, 5: 1 / 13}, {"temperature": 0.5}, [64, 16, 1]),
    # Those that are left keep their proportions.
    ({3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}, {"top_k": 2}, [4, 3]),
    ({3: 0.4, 4: 0.3, 5: 0.2, 6: 0.1}, {"top_p": 0.75}, [4, 3, 2]),
]


@pytest.mark.parametrize("model, options, expected", DRAWN)
def test_tokens_are_as_frequent_as_probable(model, options, expected):
    expected = {3 + i: x / sum(expected) for i, x in enumerate(expected)}
    assert_frequencies(draws(same(model), **options), expected)


def test_samples_and_sentences_are_independent():
    p = {4: 0.5, 5: 0.3, 6: 0.2}
    sources = tf.constant([[i + 4, 3] for i in range(400)])
    for seed in (3, None):
        search = RandomSampling(num_samples=2, max_length=1, seed=seed)
        graph = tf.function(search, autograph=False)
        ids = graph(same(p), sources).ids.numpy()[..., 0]
        # Two of a sentence, the more probable one first.
        pairs = {44: 0.25, 45: 0.3, 46: 0.2, 55: 0.09, 56: 0.12, 66: 0.04}
        assert_frequencies(ids @ [10, 1], pairs, 400)
        # The first ones of two neighbours.
        first = {4: 0.75, 5: 0.21, 6: 0.04}
        pairs = {10 * i + j: first[i] * first[j] for i in p for j in p}
        assert_frequencies(10 * ids[::2, 0] + ids[1::2, 0], pairs, 200)


def test_whole_sequences_are_as_frequent_as_probable():
    """Through the state: a model that depends on all that was said. UNK is a word."""
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


KEPT = [
    (RISING, {"top_k": 9}, {0, 1, 2, 3}),
    (RISING, {"top_p": 1.0}, {0, 1, 2, 3}),
    (EVEN, {"top_k": 2}, {0, 1}),  # ties: lower ids
    (EVEN, {"top_p": 0.5}, {0, 1}),  # just reached
    (EVEN, {"top_p": 0.51}, {0, 1, 2}),
    # Of the two that are left, .3 and .4, the second makes up 4/7.
    (RISING, {"top_k": 2, "top_p": 0.57}, {3}),
    (RISING, {"top_k": 2, "top_p": 0.58}, {2, 3}),
    (TWO, {"top_k": 3}, {1, 3}),
    (TWO, {"top_p": 1.0}, {1, 3}),
    ([0.0, 0.0, 1.0, 0.0], {"temperature": 1e3, "top_p": 1.0}, {2}),
]


@pytest.mark.parametrize("probabilities, options, kept", KEPT)
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
    if (top_p, scales) == (0.999, (9, 0.1)):
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


@pytest.mark.parametrize("seed", range(4))
def test_samples_are_what_the_model_says_of_them(seed):
    """Padded as documented, the most probable first, whatever its neighbours are."""
    model, limit = TableModel(seed, vocabulary=6 + seed), 2 + 2 * seed
    top_p = [None, 0.8][seed % 2]
    search = RandomSampling(1.5, None, top_p, 4, limit, seed)
    found = search(model, SOURCES)
    for row, source in enumerate(SOURCES):
        alone = search(model, [[x for x in source if x != PAD_ID]]).ids
        np.testing.assert_array_equal(alone[0], found.ids[row, :, : alone.shape[2]])
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


def test_stops_as_soon_as_all_have_ended_or_none_can_go_on():
    model = same({EOS_ID: 1.0})
    hypotheses = RandomSampling(num_samples=3, max_length=50)(model, SOURCES)
    assert len(model.seen) == 1 and hypotheses.ids.numpy().tolist() == [[[3]] * 3] * 3
    endless = same({4: 1.0})
    hypotheses = RandomSampling(num_samples=2, max_length=6)(endless, SOURCES)
    assert len(endless.seen) == 6 and (hypotheses.ids.numpy() == 4).all()
    relative = RandomSampling(max_length=None)(endless, SOURCES)
    assert relative.lengths.numpy().tolist() == [[16], [14], [12]]
    nothing = RandomSampling(num_samples=2, max_length=5)(same({}), [[5, 3]])
    assert nothing.lengths.numpy().tolist() == [[0, 0]]
    assert (nothing.scores.numpy() == -INF).all() and not nothing.ids.numpy().any()


def test_seeds_and_orders_of_words_differ():
    sources = tf.constant([[4, 5, 3], [5, 4, 3], [45, 3, 0], [4, 53, 0]])
    assert len({*fingerprints(sources, PAD_ID).numpy()}) == 4
    model = same({4: 0.5, 5: 0.5})
    drawn = [draws(model, max_length=9, seed=x)[:3].ravel() for x in (0, 1, 2**32)]
    assert len(np.unique(drawn, axis=0)) == 3


@pytest.mark.slow
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
    path = str(kl.export_saved_model(translator, tmp_path))
    texts = ["the red", "dog", "cat cat cat the", "is is red"] * 4
    answers = {tuple(t.text.encode() for t in translator.translate(texts))}
    for _ in range(2):  # as two processes would
        serve = tf.saved_model.load(path).signatures["serving_default"]
        for _ in range(2):
            answers.add(tuple(serve(text=tf.constant(texts))["translation"].numpy()))
    assert len(answers) == (1 if seed else 5)


WRONG = [
    ({"temperature": 0}, ValueError, "temperature must be positive.*: 0"),
    ({"temperature": INF}, ValueError, "temperature must be positive and finite"),
    ({"top_k": 0}, ValueError, "top_k must be at least 1. Received: 0"),
    ({"top_k": 2.0}, TypeError, "top_k must be an integer or None"),
    ({"top_p": 0.0}, ValueError, r"top_p must be in \(0, 1\]. Received: 0.0"),
    ({"num_samples": None}, TypeError, "num_samples"),
    ({"seed": 1.0}, TypeError, "seed must be an integer or None"),
    ({"seed": -1}, ValueError, "seed must be at least 0. Received: -1"),
    ({"seed": 2**63}, ValueError, "seed must be at most 9223372036854775807"),
]


@pytest.mark.parametrize("options, error, message", WRONG)
def test_refuses_what_cannot_be(options, error, message):
    with pytest.raises(error, match=message):
        RandomSampling(**options)


def test_numpys_numbers_are_numbers():
    one = RandomSampling(np.float32(0.5), np.int64(3), num_samples=np.int32(2), seed=5)
    assert one == RandomSampling(0.5, top_k=3, num_samples=2, seed=np.int64(5))
    kinds = [type(x) for x in (one.temperature, one.top_k, one.num_samples)]
    assert kinds == [float, int, int]
