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
from keras_luong.decoding import (
    Ensemble,
    SummaryCoveragePenalty,
    force,
)


def nest(count=3):
    styles = np.arange(count * 2).reshape(count, 2) % 4
    return {"features": features(count), "style": styles}


SOURCES = {
    "images": (Captioner, images),
    "without attention": (lambda: Captioner(attend=False), images),
    "features": (Transcriber, features),
    "a nest": (Both, nest),
}
QUICK = ("a nest",)
every_source = pytest.mark.parametrize(
    ("make", "source"),
    [
        pytest.param(*case, id=name, marks=[pytest.mark.slow] * (name not in QUICK))
        for name, case in SOURCES.items()
    ],
)


def rows(source, at):
    return tf.nest.map_structure(lambda x: x[at], source)


@every_source
class TestEverySource:
    def test_a_wide_beam_is_exhaustive(self, make, source):
        model, source = make(), source(2)
        found = kl.BeamSearch(120, n_best=9, max_length=3, **IDS)(model, source)
        for row in range(2):
            one = rows(source, slice(row, row + 1))
            expected = exhaustive(
                model, tf.nest.map_structure(tf.constant, one), 3, **IDS
            )
            for n, (tokens, log_prob) in enumerate(expected[:9]):
                assert found.ids[row, n, : len(tokens)].numpy().tolist() == tokens
                np.testing.assert_allclose(found.scores[row, n], log_prob, atol=1e-4)

    def test_greedy_is_a_beam_of_one_and_the_best_sample_of_one_token(
        self, make, source
    ):
        model, source = make(), source()
        found = kl.GreedySearch(5, **IDS)(model, source)
        for search in (
            kl.BeamSearch(1, max_length=5, **IDS),
            kl.RandomSampling(top_k=1, max_length=5, **IDS),
        ):
            for a, b in zip(found, search(model, source), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)

    def test_neighbours_and_leaving_the_batch_do_not_matter(self, make, source):
        model, source = make(), source(6)
        ends = [
            kl.BeamSearch(3, 2, max_length=6, compact=compact, **IDS)(model, source)
            for compact in (True, False)
        ]
        for a, b in zip(*ends, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
        alone = kl.BeamSearch(3, 2, max_length=6, **IDS)(model, rows(source, slice(1)))
        T = alone.ids.shape[2]
        np.testing.assert_array_equal(alone.ids[0], ends[0].ids[0, :, :T])

    def test_eager_equals_graph(self, make, source):
        model, source = make(), source()
        for search in (
            kl.BeamSearch(3, 2, max_length=4, **IDS),
            kl.RandomSampling(num_samples=2, max_length=4, seed=3, **IDS),
        ):
            found = kl.generate(model, source, search)
            for a, b in zip(found, search(model, source), strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)

    def test_forced_decoding_agrees(self, make, source):
        model, source = make(), source()
        found = kl.BeamSearch(3, max_length=5, **IDS)(model, source)
        forced = force(model, source, found.ids[:, 0], **IDS)
        np.testing.assert_allclose(forced.log_probs, found.log_probs, atol=1e-5)
        np.testing.assert_allclose(forced.weights, found.weights, atol=1e-5)

    def test_an_ensemble_reads_it_too(self, make, source):
        model, source = make(), source()
        search = kl.BeamSearch(3, max_length=4, **IDS)
        one, two = search(model, source), search(Ensemble([model, model]), source)
        np.testing.assert_array_equal(one.ids, two.ids)
        np.testing.assert_allclose(one.weights, two.weights, atol=1e-5)

    def test_a_seed_depends_on_the_source(self, make, source):
        search = kl.RandomSampling(num_samples=40, max_length=4, seed=3, **IDS)
        source = source(1)
        twice = tf.nest.map_structure(lambda x: np.concatenate([x, x]), source)
        found = search(make(), twice)
        np.testing.assert_array_equal(found.ids[0], found.ids[1])
        other = tf.nest.map_structure(lambda x: x + (x != 0).astype(x.dtype), source)
        fingerprints = [
            generation_key(x, search) for x in (source, other, rows(twice, slice(1)))
        ]
        assert fingerprints[0] == fingerprints[2] != fingerprints[1]

    def test_a_length_is_needed(self, make, source):
        for search in (
            kl.GreedySearch(None),
            kl.BeamSearch(max_length=None, max_length_ratio=1.5),
            kl.BeamSearch(min_length_ratio=0.5),
            kl.RandomSampling(max_length=None),
        ):
            with pytest.raises(ValueError, match="needs a source of ids.*max_length"):
                search(make(), source())


def generation_key(source, search):
    from keras_luong.decoding.sampling import fingerprints
    from keras_luong.decoding.step_model import check_source

    return int(fingerprints(check_source(source), search.pad_id)[0])


class TestAttention:
    @pytest.mark.slow
    def test_without_any_the_weights_are_empty(self):
        found = kl.generate(Captioner(attend=False), images(), max_length=4, **IDS)
        B, N, T, S = found.weights.shape
        assert (B, N, T, S) == (*found.ids.shape, 0)

    def test_without_any_a_coverage_penalty_is_refused(self):
        search = kl.BeamSearch(3, coverage_penalty=0.2, **IDS)
        with pytest.raises(ValueError, match="attention weights. Received: None"):
            search(Captioner(attend=False), images())

    def test_an_ensemble_of_one_with_and_one_without(self):
        models = [Captioner(), Captioner(attend=False)]
        models[1].encode(images())
        search = kl.GreedySearch(4, **IDS)
        both = search(Ensemble(models), images())
        assert both.weights.shape[-1] == 25
        sums = tf.reduce_sum(both.weights, axis=-1)
        inside = tf.range(both.ids.shape[2]) < both.lengths[..., None]
        np.testing.assert_allclose(sums, np.where(inside, 0.5, 0.0), atol=1e-5)

    @pytest.mark.slow
    @pytest.mark.parametrize("penalty", [0.3, 0.0, SummaryCoveragePenalty(0.3)])
    def test_over_two_axes_it_is_that_over_one(self, penalty):
        class Map(Captioner):
            def step(self, tokens, state, memory):
                logits, state, weights = super().step(tokens, state, memory)
                shape = keras.ops.shape(weights)[:2]
                return logits, state, keras.ops.reshape(weights, (*shape, 5, 5))

        flat, square = Captioner(), Map()
        for model in (flat, square):
            kl.generate(model, images(), max_length=2, **IDS)
        square.set_weights(flat.get_weights())
        search = kl.BeamSearch(3, 2, max_length=5, coverage_penalty=penalty, **IDS)
        one, two = (kl.generate(x, images(), search) for x in (flat, square))
        np.testing.assert_array_equal(one.ids, two.ids)
        np.testing.assert_allclose(one.scores, two.scores, atol=1e-5)
        assert two.weights.shape[3:] == (5, 5)
        whole = tf.reshape(two.weights, [*two.ids.shape, 25])
        np.testing.assert_allclose(one.weights, whole, atol=1e-5)


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


class TestSources:
    def given(self, source):
        model = Echo()
        kl.GreedySearch(2)(model, source)
        return model.given

    @pytest.mark.parametrize("dtype", ["int64", "uint8", "int32"])
    def test_ids_are_int32(self, dtype):
        assert self.given(np.ones([2, 3], dtype)).dtype == tf.int32
        assert self.given([[1, 2], [3, 4]]).dtype == tf.int32
        assert self.given(((1, 2), (3, 4))).dtype == tf.int32

    @pytest.mark.parametrize(
        ("dtype", "shape"),
        [
            ("uint8", [2, 4, 4, 3]),
            ("float16", [2, 3]),
            ("bool", [2, 3]),
            ("int8", [1, 1, 1]),
        ],
    )
    def test_others_stay_what_they_are(self, dtype, shape):
        given = self.given(np.ones(shape, dtype))
        assert given.dtype == dtype and given.shape == shape

    def test_strings_can_be_read(self):
        given = self.given(tf.constant(["a", "b"]))
        assert given.dtype == tf.string
        search = kl.RandomSampling(seed=1, max_length=2)
        assert search(Echo(), tf.constant(["a", "b"])).ids.shape[:2] == (2, 1)

    def test_nests_keep_their_structure(self):
        given = self.given((np.ones([2, 3]), {"x": np.ones([2, 1], int)}))
        assert isinstance(given, tuple) and given[1]["x"].dtype == tf.int32

    def test_a_nest_may_have_a_number_for_each_sentence(self):
        given = self.given((np.ones([2, 3, 4]), np.array([3, 1])))
        assert given[1].shape == (2,) and given[1].dtype == tf.int32

    @pytest.mark.parametrize(
        ("source", "error", "message"),
        [
            (5, ValueError, r"a row for each sentence.*Received: \(\)"),
            ([1, 2], ValueError, r"shape \[B, S\] if it is ids.*Received: \(2,\)"),
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
    def test_what_is_none(self, source, error, message):
        for search in (kl.BeamSearch(2), kl.RandomSampling()):
            with pytest.raises(error, match=message):
                search(Echo(), source)
        with pytest.raises(error, match=message):
            kl.generate(Echo(), source)

    def test_a_shortlist_needs_ids(self):
        shortlist = kl.Shortlist([4], [[4]] * 5, 6)
        with pytest.raises(TypeError, match="shortlist needs a source of ids"):
            kl.BeamSearch(2, shortlist=shortlist)(Transcriber(), features())


class TestGenerate:
    @pytest.mark.slow
    def test_it_is_traced_once_for_each_search_and_kind_of_source(self):
        model = Echo()
        kl.generate(model, images(), max_length=3, **IDS)
        once = model.count
        kl.generate(model, images() + 1, max_length=3, **IDS)
        kl.generate(model, images(), kl.BeamSearch(max_length=3, **IDS))
        assert model.count == once
        kl.generate(model, images(), max_length=4, **IDS)
        assert model.count == once + 1
        for count in (2, 4, 5, 6, 7):
            kl.generate(model, images(count), max_length=4, **IDS)
        assert model.count == once + 2  # of any number of rows

    @pytest.mark.slow
    def test_new_weights_count(self):
        model = Captioner()
        before = kl.generate(model, images(1), max_length=5, **IDS)
        model.set_weights([-2 * x for x in model.get_weights()])
        after = kl.generate(model, images(1), max_length=5, **IDS)
        expected = kl.BeamSearch(max_length=5, **IDS)(model, images(1))
        np.testing.assert_allclose(after.scores, expected.scores, atol=1e-5)
        assert not np.allclose(before.scores, after.scores)

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:Layer .* does not have a .quantize")
    @pytest.mark.parametrize("together", [False, True])
    def test_replaced_weights_count(self, together):
        """As `quantize` replaces them; in an ensemble too, and with a generator."""
        model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        asked = Ensemble([model, model]) if together else model
        search, ids = kl.BeamSearch(max_length=3), [[4, 5, 3]]
        spec = tf.TensorSpec([None, None], tf.int32)
        generator = kl.SequenceGenerator(asked, spec, search)
        before = kl.generate(asked, ids, search)
        generator(ids)
        model.quantize("int8")
        for variable in model.output_layer.variables:
            variable.assign(keras.ops.ones_like(variable))
        expected = search(asked, tf.constant(ids))
        for found in (kl.generate(asked, ids, search), generator(ids)):
            np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
        assert not np.allclose(before.scores, expected.scores)

    def test_what_is_no_search(self):
        for search in ("beam", kl.BeamSearch):
            with pytest.raises(TypeError, match="`search` must be callable.*Received"):
                kl.generate(Echo(), images(), search, max_length=3)

    @pytest.mark.slow
    def test_it_does_not_keep_a_model_alive(self):
        model = Captioner()
        kl.generate(model, images(1), max_length=3, **IDS)
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None

    def test_a_model_that_has_no_hash(self):
        class Equal(Echo):
            __hash__ = None

        assert kl.generate(Equal(), images(), max_length=3).ids.shape[0] == 3

    @pytest.mark.slow
    def test_fields_change_any_search(self):
        search = kl.RandomSampling(num_samples=2, seed=1)
        found = kl.generate(Captioner(), images(), search, max_length=3, **IDS)
        assert found.ids.shape[:2] == (3, 2)
        with pytest.raises(TypeError, match="width"):
            kl.generate(Captioner(), images(), width=3)
        with pytest.raises(TypeError, match="`encode` and `step`.*Received: 5"):
            kl.generate(5, images())

    @pytest.mark.slow
    def test_this_librarys_models(self):
        model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        ids = [[4, 5, 3], [6, 3, 0]]
        found = kl.generate(model, ids, max_length=None)
        expected = kl.BeamSearch(max_length=None)(model, tf.constant(ids))
        np.testing.assert_array_equal(found.ids, expected.ids)


class TestSequenceGenerator:
    def test_it_says_what_its_search_says_and_is_traced_once(self):
        model, search = Echo(), kl.GreedySearch(4, **IDS)
        expected = search(model, images(5))
        before = model.count
        generator = kl.SequenceGenerator(model, tf.TensorSpec([None, 7, 7, 1]), search)
        for count in (1, 2, 5):
            found = generator(images(5)[:count].astype("float64"))
            T = found.ids.shape[2]
            np.testing.assert_array_equal(found.ids, expected.ids[:count, :, :T])
        assert model.count == before + 1

    def test_a_nest(self):
        spec = {
            "features": tf.TensorSpec([None, None, 3]),
            "style": tf.TensorSpec([None, 2], tf.int64),
        }
        model, search = Both(), kl.GreedySearch(4, **IDS)
        found = kl.SequenceGenerator(model, spec, search)(nest())
        np.testing.assert_array_equal(found.ids, search(model, nest()).ids)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ((5, tf.TensorSpec([None])), "`encode` and `step`.*Received: 5"),
            ((Both(), [None, 7]), r"must be a tf.TensorSpec.*Received: \[None, 7\]"),
            ((Both(), tf.TensorSpec([None]), 3), "`search` must be callable.*: 3"),
            ((Both(), tf.TensorSpec([None]), kl.BeamSearch), "must be callable.*class"),
        ],
    )
    def test_wrong_arguments(self, given, message):
        with pytest.raises(TypeError, match=message):
            kl.SequenceGenerator(*given)

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (
                {"features": features()},
                r"like \{.*style.*Received.*float32 \(3, 4, 3\)",
            ),
            ({**nest(), "more": 1}, "like.*Received: .*'more': '1'"),
            ({**nest(), "features": features()[0]}, r"Received: .*float32 \(4, 3\)"),
            ({**nest(), "style": features()[:, 0, :2]}, r"'float32 \(3, 2\)'"),
            (features(), r"Received: float32 \(3, 4, 3\)"),
        ],
    )
    def test_sources_of_another_kind(self, source, message):
        spec = {
            "features": tf.TensorSpec([None, None, 3]),
            "style": tf.TensorSpec([None, 2], tf.int64),
        }
        generator = kl.SequenceGenerator(Both(), spec, kl.GreedySearch(4, **IDS))
        with pytest.raises(ValueError, match=message):
            generator(source)
