"""Ensembles against NumPy, against their members alone, in searches and exports."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from opinionated import opinionated

from keras_luong import Translator, export_saved_model
from keras_luong.decoding import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.generate import force
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.models.transformer import Transformer, TransformerConfig
from keras_luong.special_ids import BOS_ID, EOS_ID
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

SIZES = 8, 11
SOURCES = tf.constant([[4, 6, 7, 5, 3], [5, 3, 0, 0, 0], [7, 7, 4, 3, 0]])
TARGETS = tf.constant([[4, 9, 5, 3], [10, 3, 0, 0], [6, 6, 6, 3]])


@pytest.fixture(scope="module")
def models():
    """Three architectures of one vocabulary, of opinions that differ."""
    keras.utils.set_random_seed(3)
    small = TransformerConfig(*SIZES, units=4, num_layers=2, num_heads=2)
    return [
        opinionated(Seq2Seq(Seq2SeqConfig(*SIZES, units=4)), 6.0),
        opinionated(
            Seq2Seq(Seq2SeqConfig(*SIZES, units=6, attention="local-p", window=1)), 6.0
        ),
        opinionated(Transformer(small)),
    ]


def teacher_forced(model, targets=TARGETS):
    """Logits [B, T, V] from the functional model, which knows nothing of `step`."""
    begin = tf.fill([targets.shape[0], 1], BOS_ID)
    read = tf.concat([begin, targets[:, :-1]], axis=1)
    return model({"source": SOURCES, "target": read}).numpy().astype("float64")


def averaged(models, mean):
    """Log-probabilities [B, T, V] of the ensemble in NumPy."""
    p = [np.exp(teacher_forced(model)) for model in models]
    p = [x / x.sum(-1, keepdims=True) for x in p]
    if mean == "arithmetic":
        return np.log(np.mean(p, axis=0))
    product = np.prod(p, axis=0) ** (1 / len(p))
    return np.log(product / product.sum(-1, keepdims=True))


class Fixed:
    """Says the same at every step, and attends to the same places."""

    def __init__(self, probabilities, weights=(1.0,)):
        with np.errstate(divide="ignore"):
            self.logits = np.log(np.array(probabilities, "float32"))
        self.weights = np.array(weights, "float32")

    def encode(self, source_ids):
        return source_ids, tf.zeros([tf.shape(source_ids)[0], 1])

    def step(self, tokens, state, memory):
        places = tf.zeros_like(tokens, tf.float32)[..., None]
        return places + self.logits, state, places + self.weights


def one_step(ensemble):
    memory, state = ensemble.encode(tf.constant([[3]]))
    logits, _, weights = ensemble.step(tf.constant([[BOS_ID]]), state, memory)
    return np.exp(logits[0, 0]), weights[0, 0].numpy()


class TestByHand:
    EVEN, SURE = [0.5, 0.5], [0.1, 0.9]

    def test_arithmetic(self):
        probabilities, _ = one_step(
            Ensemble([Fixed(self.EVEN), Fixed(self.SURE)], "arithmetic")
        )
        np.testing.assert_allclose(probabilities, [0.3, 0.7], rtol=1e-6)

    def test_geometric(self):
        """√(.5 x .1) : √(.5 x .9) = 1 : 3."""
        probabilities, _ = one_step(Ensemble([Fixed(self.EVEN), Fixed(self.SURE)]))
        np.testing.assert_allclose(probabilities, [0.25, 0.75], rtol=1e-6)

    def test_scaled_logits_are_the_same_model(self):
        """Logits are probabilities up to a factor."""
        for mean in ("arithmetic", "geometric"):
            plain, other = Fixed(self.EVEN), Fixed([0.01, 0.09])
            expected, _ = one_step(Ensemble([Fixed(self.EVEN), Fixed(self.SURE)], mean))
            said, _ = one_step(Ensemble([plain, other], mean))
            np.testing.assert_allclose(said, expected, rtol=1e-6)

    def test_what_one_model_finds_impossible(self):
        members = [Fixed([0.5, 0.5, 0.0]), Fixed([0.0, 0.2, 0.8])]
        probabilities, _ = one_step(Ensemble(members, "arithmetic"))
        np.testing.assert_allclose(probabilities, [0.25, 0.35, 0.4], rtol=1e-6)
        probabilities, _ = one_step(Ensemble(members, "geometric"))
        np.testing.assert_allclose(probabilities, [0, 1, 0], rtol=1e-6)

    def test_nothing_in_common_is_no_hypothesis(self):
        members = [Fixed([0, 0, 0, 0, 1, 0]), Fixed([0, 0, 0, 0, 0, 1])]
        for search in (GreedySearch(4), BeamSearch(2, max_length=4)):
            nothing = search(Ensemble(members), [[3]])
            assert nothing.lengths.numpy().tolist() == [[0]]
            assert nothing.scores.numpy().tolist() == [[-np.inf]]
            something = search(Ensemble(members, "arithmetic"), [[3]])
            assert something.lengths.numpy().tolist() == [[4]]

    def test_three_of_which_two_agree(self):
        members = [Fixed([0.7, 0.3]), Fixed([0.7, 0.3]), Fixed([0.1, 0.9])]
        probabilities, _ = one_step(Ensemble(members, "arithmetic"))
        np.testing.assert_allclose(probabilities, [0.5, 0.5], rtol=1e-6)
        odds = (49 / 9 / 9) ** (1 / 3)
        probabilities, _ = one_step(Ensemble(members))
        np.testing.assert_allclose(probabilities[0] / probabilities[1], odds, 1e-6)

    def test_attention_is_averaged(self):
        members = [Fixed(self.EVEN, [1.0, 0.0]), Fixed(self.SURE, [0.4, 0.6])]
        for mean in ("arithmetic", "geometric"):
            _, weights = one_step(Ensemble(members, mean))
            np.testing.assert_allclose(weights, [0.7, 0.3], rtol=1e-6)


@pytest.mark.parametrize("mean", slow_but(["geometric", "arithmetic"], "arithmetic"))
class TestModels:
    def test_step_equals_the_mean_of_teacher_forced_models(self, models, mean):
        ensemble = Ensemble(models, mean)
        expected = averaged(models, mean)
        memory, state = ensemble.encode(SOURCES)
        tokens = tf.fill([3, 1], BOS_ID)
        for t in range(TARGETS.shape[1]):
            log_probs, state, weights = ensemble.step(tokens, state, memory)
            assert log_probs.dtype == weights.dtype == tf.float32
            assert weights.shape == (3, 1, SOURCES.shape[1])
            np.testing.assert_allclose(log_probs[:, 0], expected[:, t], atol=1e-5)
            tokens = TARGETS[:, t : t + 1]

    def test_forced_decoding_scores_by_the_mean(self, models, mean):
        expected = averaged(models, mean)
        chosen = np.take_along_axis(expected, TARGETS.numpy()[..., None], 2)[..., 0]
        total = np.sum(chosen * (TARGETS.numpy() != 0), axis=1)
        forced = force(Ensemble(models, mean), SOURCES, TARGETS)
        np.testing.assert_allclose(forced.log_probs[:, 0], total, atol=1e-4)

    @pytest.mark.parametrize(
        "search",
        [
            BeamSearch(4, 2, min_length=4, max_length=5),
            pytest.param(
                RandomSampling(num_samples=2, max_length=5, seed=1),
                marks=pytest.mark.slow,
            ),
        ],
    )
    def test_beams_are_followed_in_every_model(self, models, mean, search):
        """A score that a search reports is that of its words, read anew."""
        ensemble = Ensemble(models, mean)
        found = search(ensemble, SOURCES)
        for n in range(2):
            read = force(ensemble, SOURCES, found.ids[:, n])
            np.testing.assert_allclose(
                found.log_probs[:, n], read.log_probs[:, 0], atol=1e-4
            )
            T = read.weights.shape[2]  # these hypotheses may be the shorter ones
            np.testing.assert_allclose(
                found.weights[:, n, :T], read.weights[:, 0], atol=1e-4
            )
        assert len(np.unique(found.ids[:, 0], axis=0)) > 1

    @pytest.mark.parametrize(
        "place", [pytest.param(i, marks=[pytest.mark.slow] * (i < 2)) for i in range(3)]
    )
    def test_one_model_alone_and_twice_is_that_model(self, models, mean, place):
        search = BeamSearch(3, 2, max_length=3)
        model = models[place]
        alone = search(model, SOURCES)
        for members in ([model], (Ensemble([model], mean), model)):
            same = search(Ensemble(members, mean), SOURCES)
            np.testing.assert_array_equal(same.ids, alone.ids)
            np.testing.assert_allclose(same.scores, alone.scores, atol=1e-5)
            np.testing.assert_allclose(same.weights, alone.weights, atol=1e-6)


@pytest.mark.slow
def test_eager_equals_graph_of_unknown_shape(models):
    """Of the arithmetic mean; the geometric one is exported below."""
    ensemble = Ensemble(models, "arithmetic")
    search = BeamSearch(3, 2, 5, 0.6)
    signature = [tf.TensorSpec([None, None], tf.int32)]
    graph = tf.function(lambda x: search(ensemble, x), input_signature=signature)
    eager = search(ensemble, SOURCES)
    for name, value in graph(SOURCES)._asdict().items():
        np.testing.assert_allclose(value, getattr(eager, name), atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_an_export_says_what_a_translator_says(models, tmp_path):
    pair = TokenizerPair(WordTokenizer(list("abcd")), WordTokenizer(list("ABCDEFG")))
    search = BeamSearch(3, max_length=8, length_penalty=0.6)
    translator = Translator(Ensemble(models), pair, search)
    texts = ["a b c", "", "d", "b b a d c a", "x y"]
    said = translator.translate(texts, batch_size=2)
    path = export_saved_model(translator, tmp_path)
    serve = tf.saved_model.load(str(path)).signatures["serving_default"]
    answer = serve(text=tf.constant(texts))
    texts = [text.decode() for text in answer["translation"].numpy()]
    assert texts == [x.text for x in said] and len(set(texts)) > 2
    np.testing.assert_allclose(answer["score"], [x.score for x in said], atol=1e-4)


def test_nobody_alone_finds_what_they_find_together():
    """Each member's own favourite is another one's horror; 4 is everybody's second."""
    members = [
        Fixed([0, 0, 0, 0, 0.4, 0.59, 0.01]),
        Fixed([0, 0, 0, 0, 0.4, 0.01, 0.59]),
    ]
    for member, own in zip(members, (5, 6), strict=True):
        assert GreedySearch(1)(member, [[3]]).ids.numpy().tolist() == [[[own]]]
    together = GreedySearch(1)(Ensemble(members), [[3]])
    assert together.ids.numpy().tolist() == [[[4]]]


def test_half_precision_members_are_averaged_in_float32():
    class Half(Fixed):
        def step(self, *args):
            logits, state, weights = super().step(*args)
            return tf.cast(logits, tf.float16), state, tf.cast(weights, tf.float16)

    logits, _ = one_step(Ensemble([Half([0.5, 0.5]), Fixed([0.1, 0.9])], "arithmetic"))
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, [0.3, 0.7], rtol=1e-3)


def test_config_is_what_the_members_share(models):
    config = Ensemble(models).config
    assert (config.source_vocab_size, config.target_vocab_size) == SIZES
    assert Ensemble([Fixed([1.0]), models[0]]).config == config
    unknown = Ensemble([Fixed([1.0])]).config
    assert unknown.source_vocab_size is unknown.target_vocab_size is None
    words = WordTokenizer([str(i) for i in range(30)])
    with pytest.raises(ValueError, match="source tokenizer has 34.*size is 8"):
        Translator(Ensemble(models), words)


@pytest.mark.parametrize("side", [0, 1])
def test_refuses_other_vocabularies(models, side):
    sizes = list(SIZES)
    sizes[side] += 1
    other = Seq2Seq(Seq2SeqConfig(*sizes, units=4))
    name = ("source", "target")[side]
    message = rf"{name}_vocab_size.*same.*\[0\]: {SIZES[side]}, .*\[2\]: {sizes[side]}"
    with pytest.raises(ValueError, match=message):
        Ensemble([*models[:2], other])
    with pytest.raises(ValueError, match=name):
        Ensemble([Ensemble(models), other])


@pytest.mark.parametrize(
    ("models", "options", "error", "message"),
    [
        ([], {}, ValueError, "at least one model"),
        (Fixed([1.0]), {}, TypeError, "models must be a list.*Fixed"),
        (["en-de"], {}, TypeError, r"models\[0\].*`encode` and `step`.*'en-de'"),
        ([Fixed([1.0]), None], {}, TypeError, r"models\[1\].*None"),
        ([Fixed([1.0])], {"mean": "harmonic"}, ValueError, "geometric.*'harmonic'"),
        ([Fixed([1.0])], {"mean": None}, ValueError, "mean must be one of"),
    ],
)
def test_refuses_what_is_no_ensemble(models, options, error, message):
    with pytest.raises(error, match=message):
        Ensemble(models, **options)


def test_the_end_needs_no_agreement():
    """A search through an ensemble ends where the mean says so."""
    ending = Fixed([0, 0, 0, 0.9, 0.1])
    going_on = Fixed([0, 0, 0, 0.2, 0.8])
    said = GreedySearch(5)(Ensemble([ending, going_on], "arithmetic"), [[3]])
    assert said.ids.numpy().tolist() == [[[EOS_ID]]]
