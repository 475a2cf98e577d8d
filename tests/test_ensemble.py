"""Ensembles against NumPy, against their members alone; and several runs as one."""

from __future__ import annotations

import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from brute_force import log_of
from leave_slow import slow_but
from opinionated import opinionated
from small_translator import sentencepiece_translator, word_translator, written_run

from keras_luong import Translator
from keras_luong.decoding import BeamSearch, GreedySearch
from keras_luong.decoding.ensemble import Ensemble
from keras_luong.decoding.generate import force
from keras_luong.models import Seq2Seq, Seq2SeqConfig
from keras_luong.models.transformer import Transformer, TransformerConfig
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.run import RunDirectory
from keras_luong.special_ids import BOS_ID, EOS_ID
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer

SIZES = 8, 11
SOURCES = tf.constant([[4, 6, 7, 5, 3], [5, 3, 0, 0, 0], [7, 7, 4, 3, 0]])
TARGETS = tf.constant([[4, 9, 5, 3], [10, 3, 0, 0], [6, 6, 6, 3]])


@pytest.fixture(scope="module")
def models():
    """Three architectures of one vocabulary, of opinions that differ."""
    keras.utils.set_random_seed(3)
    local = {"attention": "local-p", "window": 1}
    small = TransformerConfig(*SIZES, units=4, num_layers=1, num_heads=2)
    return [
        opinionated(Seq2Seq(Seq2SeqConfig(*SIZES, units=4)), 6.0),
        opinionated(Seq2Seq(Seq2SeqConfig(*SIZES, units=6, **local)), 6.0),
        opinionated(Transformer(small)),
    ]


def averaged(models, mean):
    """Log-probabilities [B, T, V] in NumPy, of models that know nothing of `step`."""
    begin = tf.fill([TARGETS.shape[0], 1], BOS_ID)
    read = tf.concat([begin, TARGETS[:, :-1]], axis=1)
    said = [model({"source": SOURCES, "target": read}).numpy() for model in models]
    p = [np.exp(x.astype("float64")) for x in said]
    p = [x / x.sum(-1, keepdims=True) for x in p]
    if mean == "arithmetic":
        return np.log(np.mean(p, axis=0))
    product = np.prod(p, axis=0) ** (1 / len(p))
    return np.log(product / product.sum(-1, keepdims=True))


class Fixed:
    """Says the same at every step, and attends to the same places."""

    def __init__(self, probabilities, weights=(1.0, 0.0), dtype="float32"):
        self.logits = log_of(dict(enumerate(probabilities)), len(probabilities))
        self.logits = self.logits.astype(dtype)
        self.weights = np.array(weights, dtype)

    def encode(self, source_ids):
        return source_ids, tf.zeros([tf.shape(source_ids)[0], 1])

    def step(self, tokens, state, memory):
        places = tf.zeros_like(tokens, self.logits.dtype)[..., None]
        return places + self.logits, state, places + self.weights


EVEN, SURE = Fixed([0.5, 0.5]), Fixed([0.1, 0.9], [0.4, 0.6])
SOME, OTHERS = Fixed([0.5, 0.5, 0.0]), Fixed([0.0, 0.2, 0.8])
THREE = [Fixed([0.7, 0.3]), Fixed([0.7, 0.3]), Fixed([0.1, 0.9])]


@pytest.mark.parametrize(
    ("members", "arithmetic", "geometric"),
    [
        ([EVEN, SURE], [0.3, 0.7], [1, 3]),  # √(.5 x .1) : √(.5 x .9)
        ([EVEN, Fixed([0.01, 0.09])], [0.3, 0.7], [1, 3]),  # scaled, it is the same
        ([Fixed([0.5, 0.5], dtype="float16"), SURE], [0.3, 0.7], [1, 3]),
        ([SOME, OTHERS], [0.25, 0.35, 0.4], [0, 1, 0]),  # impossible for one of them
        (THREE, [0.5, 0.5], [49 ** (1 / 3), 81 ** (1 / 3)]),
        # Each member's own favourite is another one's horror.
        ([Fixed([0.4, 0.6, 0]), Fixed([0.4, 0, 0.6])], [0.4, 0.3, 0.3], [1, 0, 0]),
    ],
)
def test_means_by_hand(members, arithmetic, geometric):
    geometric = np.array(geometric) / sum(geometric)
    for mean, expected in (("arithmetic", arithmetic), ("geometric", geometric)):
        ensemble = Ensemble(members, mean)
        memory, state = ensemble.encode(tf.constant([[3]]))
        logits, _, weights = ensemble.step(tf.constant([[BOS_ID]]), state, memory)
        assert logits.dtype == weights.dtype == tf.float32
        np.testing.assert_allclose(np.exp(logits[0, 0]), expected, rtol=1e-3)
        if members[0] is EVEN and members[1] is SURE:
            np.testing.assert_allclose(weights[0, 0], [0.7, 0.3], rtol=1e-6)
            np.testing.assert_allclose(np.exp(logits[0, 0]), expected, rtol=1e-6)


def test_nothing_in_common_is_no_hypothesis():
    members = [Fixed([0, 0, 0, 0, 1, 0]), Fixed([0, 0, 0, 0, 0, 1])]
    for search in (GreedySearch(4), BeamSearch(2, max_length=4)):
        nothing = search(Ensemble(members), [[3]])
        assert nothing.lengths.numpy().tolist() == [[0]]
        assert nothing.scores.numpy().tolist() == [[-np.inf]]
        something = search(Ensemble(members, "arithmetic"), [[3]])
        assert something.lengths.numpy().tolist() == [[4]]
    # The end needs no agreement: the mean says so.
    ending, going_on = Fixed([0, 0, 0, 0.9, 0.1]), Fixed([0, 0, 0, 0.2, 0.8])
    said = GreedySearch(5)(Ensemble([ending, going_on], "arithmetic"), [[3]])
    assert said.ids.numpy().tolist() == [[[EOS_ID]]]


@pytest.mark.parametrize("mean", slow_but(["geometric", "arithmetic"], "arithmetic"))
def test_forced_targets_have_the_mean_of_teacher_forced_models(models, mean):
    expected, targets = averaged(models, mean), TARGETS.numpy()
    chosen = np.take_along_axis(expected, targets[..., None], 2)[..., 0]
    forced = force(Ensemble(models, mean), SOURCES, TARGETS)
    gains = chosen * (targets != 0)
    np.testing.assert_allclose(forced.token_log_probs[:, 0], gains, atol=1e-5)
    assert forced.weights.shape == (3, 1, *TARGETS.shape[1:], *SOURCES.shape[1:])


def test_beams_are_followed_in_every_model(models):
    """A score that a search reports is that of its words, read anew."""
    ensemble = Ensemble(models)
    found = BeamSearch(4, 2, min_length=4, max_length=5)(ensemble, SOURCES)
    for n in range(2):
        read = force(ensemble, SOURCES, found.ids[:, n])
        T = read.weights.shape[2]  # these hypotheses may be the shorter ones
        log_probs, weights = found.log_probs[:, n], found.weights[:, n, :T]
        np.testing.assert_allclose(log_probs, read.log_probs[:, 0], atol=1e-4)
        np.testing.assert_allclose(weights, read.weights[:, 0], atol=1e-4)
    assert len(np.unique(found.ids[:, 0], axis=0)) > 1


@pytest.mark.parametrize("side", [0, 1])
def test_members_share_the_sizes_of_their_vocabularies(models, side):
    assert vars(Ensemble([Fixed([1.0])]).config) == dict.fromkeys(
        ("source_vocab_size", "target_vocab_size")
    )
    config = Ensemble([Fixed([1.0]), *models]).config
    assert (config.source_vocab_size, config.target_vocab_size) == SIZES
    sizes = list(SIZES)
    sizes[side] += 1
    other = Seq2Seq(Seq2SeqConfig(*sizes, units=4))
    name = ("source", "target")[side]
    message = rf"{name}_vocab_size.*same.*\[0\]: {SIZES[side]}, .*\[2\]: {sizes[side]}"
    with pytest.raises(ValueError, match=message):
        Ensemble([*models[:2], other])
    with pytest.raises(ValueError, match=name):
        Ensemble([Ensemble(models), other])
    with pytest.raises(ValueError, match="source tokenizer has 34.*size is 8"):
        Translator(Ensemble(models), WordTokenizer([str(i) for i in range(30)]))


@pytest.mark.parametrize(
    ("models", "options", "error", "message"),
    [
        ([], {}, ValueError, "at least one model"),
        (Fixed([1.0]), {}, TypeError, "models must be a list.*Fixed"),
        (["en-de"], {}, TypeError, r"models\[0\].*`encode` and `step`.*'en-de'"),
        ([Fixed([1.0]), None], {}, TypeError, r"models\[1\].*None"),
        ([Fixed([1.0])], {"mean": "harmonic"}, ValueError, "geometric.*'harmonic'"),
    ],
)
def test_refuses_what_is_no_ensemble(models, options, error, message):
    with pytest.raises(error, match=message):
        Ensemble(models, **options)


@pytest.fixture
def runs(tmp_path):
    """Two translators with different weights, and their run directories."""
    rng, translators = np.random.default_rng(0), []
    for width in (3, 2):
        translator = word_translator(BeamSearch(width, max_length=6))
        translator.max_source_length = 5 + width
        for weight in translator.model.trainable_weights:
            weight.assign(rng.normal(size=weight.shape))
        translators.append(translator)
    pairs = enumerate(translators)
    return translators, [written_run(tmp_path / str(i), x).path for i, x in pairs]


def test_runs_translate_together(runs):
    (first, second), paths = runs
    found = load_ensemble(paths, "float32")
    assert isinstance(found.model, Ensemble) and found.model.mean == "geometric"
    for model, own in zip(found.model.models, (first.model, second.model), strict=True):
        for x, y in zip(model.get_weights(), own.get_weights(), strict=True):
            np.testing.assert_array_equal(x, y)
    assert found.search.beam_width == 3  # the first one's
    assert found.max_source_length == 7  # the least


def test_runs_compute_in_another_precision_and_one_is_itself(runs):
    (_, second), paths = runs
    models = load_ensemble(paths, "mixed_bfloat16").model.models
    assert [model.dtype_policy.name for model in models] == ["mixed_bfloat16"] * 2
    alone = load_ensemble(paths[1:], "mixed_bfloat16")
    assert alone.search == second.search and not isinstance(alone.model, Ensemble)
    assert alone.model.dtype_policy.name == "mixed_bfloat16"


@pytest.mark.parametrize("side", ["source", "target"])
def test_t1_another_normalization_is_named(tmp_path, side):
    """The pieces are the same, and the runs' options look alike."""
    translator = sentencepiece_translator()
    first, second = (written_run(tmp_path / x, translator) for x in "ab")
    sides = {x: translator.tokenizers for x in ("source", "target")}
    sides[side] = sides[side].with_normalization("nmt_nfkc")
    TokenizerPair(**sides).save(second.tokenizer)
    message = f"Received: .*a, .*b, which differ in {side}_normalization 'identity' and"
    with pytest.raises(ValueError, match=f"{message} 'nmt_nfkc'$"):
        load_ensemble([first.path, second.path])


def test_runs_that_are_refused(runs):
    _, (first, second) = runs
    for no_list in ([], "runs/a"):
        with pytest.raises(ValueError, match=f"Received: {re.escape(repr(no_list))}"):
            load_ensemble(no_list)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_ensemble([first, "nowhere"])
    tokenizers = RunDirectory(second).tokenizer
    words = WordTokenizer(["the", "red", "dog", "is", "cat"])  # in another order
    TokenizerPair(words, WordTokenizer(["der", "Hund", "ist"])).save(tokenizers)
    with pytest.raises(ValueError, match=f"same tokenizers.*{first}, {second}"):
        load_ensemble([first, second])
    shutil.rmtree(tokenizers)
    with pytest.raises(FileNotFoundError, match="the run is incomplete"):
        load_ensemble([first, second])
