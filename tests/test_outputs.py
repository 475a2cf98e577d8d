"""What `Seq2Seq` makes its words of: h̃'s options, a bias, words of the source."""

import numpy as np
import pytest
import tensorflow as tf
from commands import options
from leave_slow import slow_but
from opinionated import opinionated
from small_models import stepped

import keras_luong as kl
from keras_luong.decoding import force
from keras_luong.models import build
from keras_luong.models.seq2seq import CopyMemory

V = 9
SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = np.array([[2, 4, 5], [2, 6, 0]])
LABELS = np.array([[4, 5, 3], [6, 3, 0]])
INPUTS = {"source": SOURCE, "target": TARGET}


def make(dtype=None, **changes):
    config = kl.Seq2SeqConfig(V, V, **{"units": 6, "dropout": 0.0, **changes})
    return opinionated(kl.Seq2Seq(config, dtype=dtype), 2.0)


def copying(**changes):
    return make(copy=True, **changes)


def biased(**changes):
    model = make(output_bias=True, **changes)
    model.output_layer.bias.assign(np.linspace(-1.0, 1.0, V))
    return model


def check_steps(model):
    """Steps compute the whole sequence, which is returned."""
    whole = model(INPUTS).numpy()
    np.testing.assert_allclose(stepped(model, INPUTS)[0], whole, atol=1e-4)
    return whole


COPYING = {
    **{"plain": {}, "a bias": {"output_bias": True}},
    "all tied": {"tie_embeddings": "all"},
    "as See et al.": {"coverage": True, "coverage_loss": 1.0, "score_mode": "concat"},
    "local-p": {"attention": "local-p", "window": 2},
    "monotonic": {"attention": "monotonic"},
    "reversed": {"reverse_source": True, "bidirectional": False},
    "h": {"output_attention": False, "input_feeding": False},
}


@pytest.mark.parametrize("name", slow_but(COPYING, "as See et al.", "reversed"))
def test_what_is_copied_is_what_is_attended_to(name):
    """Equation 9, and without the vocabulary: by the alignment that steps return."""
    model = copying(**COPYING[name])
    np.testing.assert_allclose(np.exp(check_steps(model)).sum(-1), 1.0, rtol=1e-5)
    kernel, bias = model.pointer_generator.weights
    kernel.assign(np.zeros(kernel.shape))
    bias.assign([-40.0])  # so p_gen is next to nothing
    memory, state = model.encode(SOURCE)
    logits, _, weights = model.step(TARGET[:, :1], state, memory)
    expected = np.zeros((2, V))
    for b in range(2):
        for word, weight in zip(SOURCE[b], weights[b, 0].numpy(), strict=True):
            expected[b, word] += weight
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(logits[:, 0]), expected, atol=1e-5)


@pytest.mark.parametrize("preset", slow_but(["gnmt", "bahdanau2015"], "bahdanau2015"))
def test_other_papers_models_copy_too(preset):
    sizes = {"units": 6, "num_layers": 2, "encoder_units": 6}
    check_steps(opinionated(build(preset, V, V, copy=True, **sizes)))


def test_without_copying_nothing_is_there():
    config = make().get_config()
    del config["config"]["copy"]  # as of earlier versions
    model = kl.Seq2Seq.from_config(config)
    assert not model.copies and not hasattr(model, "pointer_generator")
    assert not isinstance(model.encode(SOURCE)[0], CopyMemory)
    for one, fused in ((model, True), (copying(), False)):
        one.compile("adam", kl.SequenceCrossentropy())
        assert one._fused == fused and one.output_bias() is None


HALVES = slow_but(["mixed_bfloat16", "mixed_float16"], "mixed_float16")


@pytest.mark.parametrize("dtype", HALVES)
def test_mixed_precision(dtype):
    exact, half = copying(), copying(dtype=dtype)
    half.set_weights(exact.get_weights())
    assert half(INPUTS).dtype == "float32"
    np.testing.assert_allclose(np.exp(half(INPUTS)), np.exp(exact(INPUTS)), atol=0.05)
    assert np.isfinite(force(half, SOURCE, LABELS).log_probs).all()


def test_scores_of_given_targets_by_models_of_which_one_copies():
    members = [copying(), make(units=4)]
    ensemble = kl.Ensemble(members, "arithmetic")
    assert ensemble.copies
    log_probs = np.log(np.mean([tf.nn.softmax(x(INPUTS)) for x in members], 0))
    each = np.take_along_axis(log_probs, LABELS[..., None], -1)[..., 0]
    found = force(ensemble, SOURCE, LABELS).log_probs[:, 0]
    np.testing.assert_allclose(found, np.sum(each * (LABELS != 0), 1), rtol=1e-4)


def test_what_can_be_copied_is_on_every_shortlist():
    """Equation 9 over the words of the list."""
    model, nothing = copying(), kl.Shortlist([8], np.zeros([V, 0], int), V)
    prefix = tf.zeros([2, 0], tf.int32)
    ids, few = nothing.restrict(model, tf.constant(SOURCE, tf.int32), prefix)
    memory, state = few.encode(SOURCE)
    logits, _, weights = few.step(TARGET[:, :1], state, memory)
    features, _, _ = model.step_features(TARGET[:, :1], state, memory[0])
    scores = model.output_layer(features).numpy()[:, 0]
    read = [features, model.target_embedding(TARGET[:, :1])]
    p_gen = model.pointer_generator.p_gen(read).numpy()
    for b in range(2):
        listed = sorted({0, 1, 2, 3, 8, *SOURCE[b]})
        expected = np.zeros(V)
        exp = np.exp(scores[b, listed])
        expected[listed] = p_gen[b, 0] * exp / exp.sum()
        for word, weight in zip(SOURCE[b], weights[b, 0].numpy(), strict=True):
            expected[word] += (1 - p_gen[b, 0]) * weight
        found = np.exp(tf.nn.log_softmax(logits[b, 0]).numpy())
        np.testing.assert_allclose(found, expected[ids], atol=1e-5)


@pytest.mark.slow
def test_keras_is_saved_model_is_litert_is_the_edge(tmp_path):
    exports = pytest.importorskip("test_exports")
    model = copying(output_bias=True)
    model.output_layer.bias.assign(np.linspace(1.0, -1.0, V))
    words = kl.WordTokenizer(["the", "red", "dog", "cat", "is"])
    translator = kl.Translator(model, words, kl.BeamSearch(3, 2, max_length=7), 14)
    exports.assert_a_saved_model_says_the_same(translator, tmp_path)
    for source_length in (exports.ANY, exports.KNOWN):
        exports.assert_litert_says_the_same(translator, tmp_path, source_length)


def test_tokenizers_must_share_a_vocabulary():
    one, other = kl.WordTokenizer([*"abcde"]), kl.WordTokenizer([*"vwxyz"])
    for model in (copying(), kl.Ensemble([copying()])):
        with pytest.raises(ValueError, match="copy=True.*share one vocabulary"):
            kl.Translator(model, kl.TokenizerPair(one, other))
    kl.Translator(copying(), kl.TokenizerPair(one, kl.WordTokenizer([*"abcde"])))


def test_the_command_copies_with_one_vocabulary_alone(capsys):
    words = "train", "--preset", "small", "--copy"
    assert options(*words, "--shared")[0].model["copy"] is True
    with pytest.raises(SystemExit):
        options(*words)
    assert "copy=True needs one vocabulary for both sides" in capsys.readouterr().err


# A bias of the output layer.


def test_a_bias_is_added_to_the_logits_whole_and_stepwise():
    model = biased()
    logits, bias = check_steps(model), np.linspace(-1.0, 1.0, V)
    np.testing.assert_allclose(model.output_bias(), bias, atol=1e-6)
    model.output_layer.bias.assign(np.zeros(V))
    np.testing.assert_allclose(logits - bias, model(INPUTS), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_part_of_the_vocabulary_has_its_part_of_the_bias(dtype):
    model, ids = biased(dtype=dtype), np.array([6, 1, 3])
    few = model.restricted(ids, np.ones((2, 3), bool))
    memory, state = few.encode(SOURCE)
    found, _, _ = few.step(TARGET[:, :1], state, memory)
    expected, _, _ = model.step(TARGET[:, :1], state, memory[0])
    expected = np.asarray(expected)[..., ids]
    tolerance = 1e-5 if dtype == "float32" else 0.05
    np.testing.assert_allclose(found, expected, atol=tolerance)


def test_a_search_follows_a_bias():
    model = biased(dtype="mixed_bfloat16")
    model.output_layer.bias.assign(99.0 * np.eye(V)[5])
    hypotheses = kl.GreedySearch(max_length=4)(model, SOURCE)
    np.testing.assert_array_equal(hypotheses.ids[:, 0, :4], np.full((2, 4), 5))


OPTIONS = [
    {"attentional_activation": None, "attentional_bias": True},
    {"use_attentional_vector": False},
    {"output_attention": False, "num_layers": 2},
]


@pytest.mark.parametrize("changes", OPTIONS)
def test_models_have_the_options_of_their_cell(changes):
    model = make(**changes)
    for name in ("attentional_bias", "use_attentional_vector", "output_attention"):
        assert getattr(model.decoder.cell, name) == getattr(model.config, name)
    check_steps(model)
