"""Sequences of anybody's model, whatever it reads: searched, generated, scored."""

from __future__ import annotations

import gc
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf
from own_models import (
    IDS,
    VOCABULARY,
    Both,
    Captioner,
    Transcriber,
    exhaustive,
    features,
    images,
)

import keras_luong as kl
from keras_luong.decoding import Ensemble, force
from keras_luong.decoding.sampling import fingerprints
from keras_luong.decoding.step_model import check_source


def nest(count=3):
    styles = np.arange(count * 2).reshape(count, 2) % 4
    return {"features": features(count), "style": styles}


SOURCES = {
    "images": (Captioner, images),
    "without attention": (lambda: Captioner(attend=False), images),
    "features": (Transcriber, features),
    "a nest": (Both, nest),
}
KEPT = ("a nest",)
every_source = pytest.mark.parametrize(
    ("make", "source"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name not in KEPT))
        for name, case in SOURCES.items()
    ],
)


def rows(source, at):
    return tf.nest.map_structure(lambda x: x[at], source)


def assert_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@every_source
def test_a_wide_beam_is_exhaustive_whatever_is_read(make, source):
    model, source = make(), source(2)
    found = kl.BeamSearch(40, n_best=9, max_length=2, **IDS)(model, source)
    for row in range(2):
        one = tf.nest.map_structure(tf.constant, rows(source, slice(row, row + 1)))
        expected = exhaustive(model, one, 2, **IDS)[:9]
        for n, (tokens, log_prob) in enumerate(expected):
            assert found.ids[row, n, : len(tokens)].numpy().tolist() == tokens
            np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)


@every_source
def test_all_ways_to_find_a_sequence_agree(make, source):
    model, source = make(), source(4)
    greedy = kl.GreedySearch(5, **IDS)(model, source)
    assert_equal(kl.BeamSearch(1, max_length=5, **IDS)(model, source), greedy)
    top = kl.RandomSampling(top_k=1, max_length=5, **IDS)
    assert_equal(top(model, source), greedy)

    search = kl.BeamSearch(3, 2, max_length=5, **IDS)
    found = search(model, source)
    whole = kl.BeamSearch(3, 2, max_length=5, compact=False, **IDS)
    assert_equal(whole(model, source), found)
    assert_equal(kl.generate(model, source, search), found)
    alone = search(model, rows(source, slice(1)))
    np.testing.assert_array_equal(alone.ids[0], found.ids[0, :, : alone.ids.shape[2]])
    two = search(Ensemble([Ensemble([model]), model]), source)
    np.testing.assert_array_equal(two.ids, found.ids)
    np.testing.assert_allclose(two.weights, found.weights, atol=1e-5)
    for n in range(2):
        forced = force(model, source, found.ids[:, n], **IDS)
        T = forced.weights.shape[2]
        np.testing.assert_array_equal(forced.lengths[:, 0], found.lengths[:, n])
        for name in ("log_probs", "weights", "token_log_probs"):
            value = getattr(found, name)[:, n]
            value = value if name == "log_probs" else value[:, :T]
            other = getattr(forced, name)[:, 0]
            np.testing.assert_allclose(other, value, atol=1e-5, err_msg=name)


@every_source
def test_a_seed_depends_on_the_source(make, source):
    search = kl.RandomSampling(num_samples=40, max_length=4, seed=3, **IDS)
    source = source(1)
    twice = tf.nest.map_structure(lambda x: np.concatenate([x, x]), source)
    found = search(make(), twice)
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
        kl.RandomSampling(max_length=None),
    ):
        with pytest.raises(ValueError, match="needs a source of ids.*max_length"):
            search(Echo(), images())


def test_forced_targets_have_the_teacher_forced_models_probabilities():
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=6, init_scale=0.8))
    source = np.array([[4, 5, 6, 3], [7, 3, 0, 0], [0, 0, 0, 0]], "int32")
    target = np.array([[5, 6, 3], [4, 3, 0], [3, 0, 0]], "int32")
    hypotheses = force(model, source, target)
    read = np.concatenate([[[2]] * 3, target[:, :-1]], 1)
    logits = np.asarray(model({"source": source, "target": read}))
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    chosen = np.take_along_axis(log_probs, target[..., None], -1)[..., 0]
    chosen *= target != 0
    np.testing.assert_allclose(hypotheses.log_probs[:, 0], chosen.sum(1), atol=1e-5)
    np.testing.assert_allclose(hypotheses.token_log_probs[:, 0], chosen, atol=1e-5)
    np.testing.assert_array_equal(hypotheses.scores, hypotheses.log_probs)
    np.testing.assert_array_equal(hypotheses.ids[:, 0], target)
    np.testing.assert_array_equal(hypotheses.lengths[:, 0], [3, 2, 1])
    assert_equal(tf.function(force)(model, source, target), hypotheses)


@pytest.mark.parametrize("shape", [[2], [3, 4]])
def test_forced_targets_of_a_wrong_shape(shape):
    with pytest.raises(ValueError, match="target_ids must have a row for each"):
        force(None, tf.ones([2, 3], tf.int32), tf.ones(shape, tf.int32))


def test_without_attention_weights_are_empty_and_no_coverage_is_known():
    model = Captioner(attend=False)
    found = kl.GreedySearch(4, **IDS)(model, images())
    assert found.weights.shape == (*found.ids.shape, 0)
    search = kl.BeamSearch(3, coverage_penalty=0.2, **IDS)
    with pytest.raises(ValueError, match="attention weights. Received: None"):
        search(model, images())
    # In an ensemble it counts as attention to nothing.
    both = kl.GreedySearch(4, **IDS)(Ensemble([Captioner(), model]), images())
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
        return tf.one_hot(tokens, VOCABULARY), state, None


@pytest.mark.parametrize(
    ("source", "dtypes"),
    [
        # Ids are int32.
        *((np.ones([2, 3], x), ["int32"]) for x in ("int64", "uint8", "int32")),
        ([[1, 2], [3, 4]], ["int32"]),
        (((1, 2), (3, 4)), ["int32"]),
        # Others stay what they are, and nests keep their structure.
        (np.ones([2, 4, 4, 3], "uint8"), ["uint8"]),
        (np.ones([2, 3], "float16"), ["float16"]),
        (np.ones([2, 3], "bool"), ["bool"]),
        (np.ones([1, 1, 1], "int8"), ["int8"]),
        (tf.constant(["a", "b"]), ["string"]),
        (
            (np.ones([2, 3], "float32"), {"x": np.ones([2, 1], int)}),
            ["float32", "int32"],
        ),
        # In a nest there may be a number for each sentence.
        ((np.ones([2, 3, 4]), np.array([3, 1])), ["float64", "int32"]),
    ],
    ids=str,
)
def test_what_models_are_given(source, dtypes):
    model = Echo()
    for search in (kl.GreedySearch(2), kl.RandomSampling(seed=1, max_length=2)):
        search(model, source)
        leaves = tf.nest.flatten(model.given)
        assert [x.dtype.name for x in leaves] == dtypes
        if isinstance(source, tuple) and len(leaves) > 1:
            tf.nest.assert_same_structure(model.given, source)
        if hasattr(source, "shape"):
            assert leaves[0].shape == source.shape


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        (5, ValueError, r"a row for each sentence.*Received: \(\)"),
        ([1, 2], ValueError, r"shape \[B, S\] if it is ids.*Received: \(2,\)"),
        (tf.zeros([2, 0], tf.int32), ValueError, "a row for each"),
        (np.ones([2, 0, 3]), ValueError, r"Received: \(2, 0, 3\)"),
        ({}, ValueError, "must hold a tensor. Received: {}"),
        (tf.ragged.constant([[1], [2, 3]]), TypeError, r"to_tensor\(\)"),
        ({"a": object()}, TypeError, "a tuple or dict of tensors"),
        (
            (np.ones([2, 3]), np.ones([3, 3])),
            ValueError,
            "number of sentences in the source must be the same.*0: 2, tensor 1: 3",
        ),
    ],
)
def test_what_is_no_source(source, error, message):
    for search in (kl.BeamSearch(2), kl.RandomSampling()):
        with pytest.raises(error, match=message):
            search(Echo(), source)
    with pytest.raises(error, match=message):
        kl.generate(Echo(), source)


def test_generate_is_traced_once_for_each_search_and_kind_of_source():
    model = Echo()
    kl.generate(model, images(), max_length=3)
    once = model.count
    kl.generate(model, images() + 1, max_length=3)
    kl.generate(model, images(), kl.BeamSearch(max_length=3))
    assert model.count == once
    kl.generate(model, images(), max_length=2)
    assert model.count == once + 1
    for count in (2, 4, 5):
        kl.generate(model, images(count), max_length=2)
    assert model.count == once + 2  # of any number of rows


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
@pytest.mark.parametrize("together", [False, True])
def test_new_and_replaced_weights_count(together):
    """As `quantize` replaces them; in an ensemble too, and with a generator."""
    model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
    asked = Ensemble([model, model]) if together else model
    search, ids = kl.BeamSearch(max_length=3), [[4, 5, 3]]
    spec = tf.TensorSpec([None, None], tf.int32)
    generator = kl.SequenceGenerator(asked, spec, search)
    before = kl.generate(asked, ids, search), generator(ids)
    model.set_weights([-2 * x for x in model.get_weights()])
    for quantized in (False, True):
        if quantized:
            model.quantize("int8")
            for variable in model.output_layer.variables:
                variable.assign(keras.ops.ones_like(variable))
        expected = search(asked, tf.constant(ids))
        after = kl.generate(asked, ids, search), generator(ids)
        for found, old in zip(after, before, strict=True):
            np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
            assert not np.allclose(old.scores, expected.scores)
        before = after


def test_generate_does_not_keep_a_model_alive_nor_needs_a_hash():
    model = Echo()
    kl.generate(model, images(1), max_length=3)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None

    class Equal(Echo):
        __hash__ = None

    assert kl.generate(Equal(), images(), max_length=3).ids.shape[0] == 3


def test_fields_change_any_search():
    search = kl.RandomSampling(num_samples=2, seed=1)
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


SPEC = {
    "features": tf.TensorSpec([None, None, 3]),
    "style": tf.TensorSpec([None, 2], tf.int64),
}


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


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"features": features()}, r"like \{.*style.*Received.*float32 \(3, 4, 3\)"),
        ({**nest(), "more": 1}, "like.*Received: .*'more': '1'"),
        ({**nest(), "features": features()[0]}, r"Received: .*float32 \(4, 3\)"),
        ({**nest(), "style": features()[:, 0, :2]}, r"'float32 \(3, 2\)'"),
        (features(), r"Received: float32 \(3, 4, 3\)"),
    ],
)
def test_sources_of_another_kind_than_a_generators(source, message):
    generator = kl.SequenceGenerator(Echo(), SPEC, kl.GreedySearch(4, **IDS))
    with pytest.raises(ValueError, match=message):
        generator(source)
