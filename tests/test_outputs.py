"""What `Seq2Seq` makes its words of: h̃'s options, a bias, words of the source."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import options, run
from leave_slow import slow_but
from opinionated import opinionated
from small_training import train_words

import keras_luong as kl
from keras_luong.config.training import TrainingConfig
from keras_luong.decoding import force
from keras_luong.models import build
from keras_luong.models.seq2seq import CopyMemory
from keras_luong.training.fused_model import linear_crossentropy

V = 9
SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = np.array([[2, 4, 5], [2, 6, 0]])
LABELS = np.array([[4, 5, 3], [6, 3, 0]])
INPUTS = {"source": SOURCE, "target": TARGET}
WEIGHTS = (LABELS != 0) / 5.0


def make(vocab_size=V, dtype=None, **changes):
    changes = {"units": 6, "dropout": 0.0, **changes}
    config = kl.Seq2SeqConfig(vocab_size, vocab_size, **changes)
    return opinionated(kl.Seq2Seq(config, dtype=dtype), 2.0)


def copying(*args, **changes):
    return make(*args, copy=True, **changes)


def biased(**changes):
    model = make(output_bias=True, **changes)
    model.output_layer.bias.assign(np.linspace(-1.0, 1.0, V))
    return model


def check_steps(model):
    """Steps compute the whole sequence, which is returned."""
    whole = model(INPUTS).numpy()
    memory, state = model.encode(SOURCE)
    for t in range(3):
        logits, state, _ = model.step(TARGET[:, t : t + 1], state, memory)
        np.testing.assert_allclose(logits[:, 0], whole[:, t], atol=1e-4)
    return whole


COPYING = {
    "plain": {},
    "all tied": {"tie_embeddings": "all"},
    "a bias": {"output_bias": True},
    "as See et al.": {"coverage": True, "coverage_loss": 1.0, "score_mode": "concat"},
    "local-p": {"attention": "local-p", "window": 2},
    "monotonic": {"attention": "monotonic"},
    "reversed": {"reverse_source": True, "bidirectional": False},
    "h": {"output_attention": False, "input_feeding": False},
}


@pytest.mark.parametrize("name", slow_but(COPYING, "as See et al.", "reversed", "h"))
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


@pytest.mark.parametrize(
    "preset, fields",
    [("gnmt", {"num_layers": 2}), ("bahdanau2015", {"encoder_units": 6})],
)
def test_other_papers_models_copy_too(preset, fields):
    check_steps(opinionated(build(preset, V, V, units=6, copy=True, **fields)))
    with pytest.raises(ValueError, match="copy=True needs an attention"):
        build("cho2014", V, V, copy=True)


def test_without_copying_nothing_is_there(tmp_path):
    model = make()
    assert not model.copies and not hasattr(model, "pointer_generator")
    assert not isinstance(model.encode(SOURCE)[0], CopyMemory)
    model.compile("adam", kl.SequenceCrossentropy())
    assert model._fused and model.output_bias() is None
    model = copying()
    model.compile("adam", kl.SequenceCrossentropy())
    assert not model._fused
    model = make()
    config = model.get_config()
    del config["config"]["copy"]  # as of earlier versions
    assert not kl.Seq2Seq.from_config(config).copies


@pytest.mark.parametrize("model", [{"copy": True}, {"output_bias": True}])
def test_models_are_saved(model, tmp_path):
    model = make(**model)
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert again.config == model.config
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-6)


@pytest.mark.parametrize(
    "dtype", slow_but(["mixed_bfloat16", "mixed_float16"], "mixed_float16")
)
def test_mixed_precision(dtype):
    exact, half = copying(), copying(dtype=dtype)
    half.set_weights(exact.get_weights())
    assert half(INPUTS).dtype == "float32"
    np.testing.assert_allclose(np.exp(half(INPUTS)), np.exp(exact(INPUTS)), atol=0.05)
    assert np.isfinite(force(half, SOURCE, LABELS).log_probs).all()


def test_scores_of_given_targets():
    model = copying()
    log_probs = model(INPUTS).numpy()
    each = np.take_along_axis(log_probs, LABELS[..., None], -1)[..., 0]
    found = force(model, SOURCE, LABELS).log_probs[:, 0]
    np.testing.assert_allclose(found, np.sum(each * (LABELS != 0), 1), rtol=1e-4)


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble_with_a_model_that_does_not_copy(mean):
    members = [copying(), make(units=4)]
    ensemble = kl.Ensemble(members, mean)
    assert ensemble.copies
    each = [tf.nn.log_softmax(model(INPUTS))[:, :1].numpy() for model in members]
    memory, state = ensemble.encode(SOURCE)
    found = np.exp(ensemble.step(TARGET[:, :1], state, memory)[0])
    if mean == "arithmetic":
        expected = np.mean(np.exp(each), 0)
    else:
        expected = np.exp(np.mean(each, 0))
        expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)


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
@pytest.mark.parametrize("source_length", [None, 12])
def test_keras_is_saved_model_is_litert_is_the_edge(source_length, tmp_path):
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    edge = pytest.importorskip("keras_luong_edge")
    search = kl.BeamSearch(3, 2, max_length=7)
    model = copying(output_bias=True)
    model.output_layer.bias.assign(np.linspace(1.0, -1.0, V))
    translator = kl.Translator(model, kl.WordTokenizer([*"abcde"]), search, 10)
    texts = ["a b c", "e", "d d a unheard b", ""]
    expected = translator.translate(texts)
    path = kl.export_saved_model(translator, tmp_path / "saved")
    served = tf.saved_model.load(path).signatures["serving_default"]
    said = served(tf.constant(texts))["translation"].numpy()
    assert [x.decode() for x in said] == [x.text for x in expected]
    path = kl.export_tflite(
        translator, tmp_path / "x.tflite", source_length=source_length
    )
    operations = interpreter.Interpreter(str(path))._get_ops_details()
    names = {x["op_name"] for x in operations}
    assert not any(name.startswith(("Flex", "CUSTOM")) for name in names)
    for x, y in zip(edge.EdgeTranslator(path).translate(texts), expected, strict=True):
        assert x.text == y.text
        np.testing.assert_allclose(x.score, y.score, atol=1e-4)
        np.testing.assert_allclose(x.alignment, y.alignment, atol=1e-4)


def test_tokenizers_must_share_a_vocabulary():
    one, other = kl.WordTokenizer([*"abcde"]), kl.WordTokenizer([*"vwxyz"])
    for model in (copying(), kl.Ensemble([copying()])):
        with pytest.raises(ValueError, match="copy=True.*share one vocabulary"):
            kl.Translator(model, kl.TokenizerPair(one, other))
    kl.Translator(copying(), kl.TokenizerPair(one, kl.WordTokenizer([*"abcde"])))


def test_configurations_that_cannot_be(capsys):
    make, preset = kl.Seq2SeqConfig, TrainingConfig.from_preset
    for refused, message in (
        (lambda: make(9, 8, copy=True), "copy=True.*source_vocab_size=9.*=8"),
        (lambda: make(9, 9, copy=True, attention=None), "copy=True needs an attention"),
        (lambda: preset("small", copy=True), "copy=True.*shared=True"),
        (
            lambda: preset("vaswani2017-base", copy=True, shared=True),
            "no copy|A setting",
        ),
        (
            lambda: make(9, 9, tie_embeddings="all", output_bias=True),
            "output_bias=True needs tie_embeddings=None",
        ),
        (
            lambda: make(9, 9, attention=None, attentional_bias=True),
            "Without attention.*attentional_bias=True",
        ),
        *(
            (
                lambda name=name: build(name, 9, 9, attentional_activation=None),
                "attentional_activation=None|attention=None",
            )
            for name in ("gnmt", "bahdanau2015", "cho2014")
        ),
    ):
        with pytest.raises(ValueError, match=message):
            refused()
    config, *_ = options("train", "--preset", "small", "--copy", "--shared")
    assert config.model["copy"] is True
    with pytest.raises(SystemExit):
        options("train", "--preset", "small", "--copy")
    assert "copy=True needs one vocabulary for both sides" in capsys.readouterr().err


@pytest.mark.slow
def test_names_that_no_target_had_are_copied(tmp_path, capsys):
    rng, unseen = random.Random(0), [f"other{i}" for i in range(10)]
    seen = rng.choices([f"name{i}" for i in range(40)], k=400)
    pairs = [(f"my name is {name} now", f"ich bin {name}") for name in seen]
    pairs += [(f"forget {name} please", "gut") for name in rng.choices(unseen, k=100)]
    rng.shuffle(pairs)
    for split, some in {"train": pairs, "validation": pairs[:20]}.items():
        for suffix, side in zip(("xx", "yy"), zip(*some, strict=True), strict=True):
            (tmp_path / f"{split}.{suffix}").write_text("\n".join(side) + "\n")
    settings = {"units": 24, "dropout": 0.1, "batch_tokens": 200, "keep_epochs": 0}
    path = tmp_path / "run"
    more = {"shared": True, "eval_sentences": 1, "epochs": 4, "copy": True}
    run("train", *train_words(tmp_path, path, **settings, **more))
    translator = kl.load(path)
    said = translator.translate([f"my name is {name} now" for name in unseen])
    assert [x.text for x in said] == [f"ich bin {name}" for name in unseen]
    for x in said:  # the alignment says which word it was
        assert x.source_tokens[int(np.argmax(x.alignment[2]))] == x.tokens[2]
    # A name that nobody has heard of is copied as the unknown word that it is.
    (stranger,) = translator.translate(["my name is Zoe now"])
    assert stranger.tokens[:3] == ["ich", "bin", "<unk>"]
    assert stranger.source_tokens[int(np.argmax(stranger.alignment[2]))] == "<unk>"
    # It goes on where it was, with the settings that it had.
    capsys.readouterr()
    with pytest.raises(ValueError, match="copy"):
        run("train", *train_words(tmp_path, path, **settings), "--shared")


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


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("chunk", [1, 2**20])
def test_the_fused_loss_has_it_and_its_gradient(transposed, chunk):
    rng = np.random.default_rng(0)
    x, kernel, bias = [
        tf.constant(rng.normal(size=shape), tf.float32) for shape in ((5, 3), (3, V), V)
    ]
    labels, weights = tf.constant([0, 6, 2, 2, 5]), tf.constant([1, 2, 0, 1, 0.5])
    given = tf.transpose(kernel) if transposed else kernel
    sources = [x, given, bias]
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(sources)
        total, scores = linear_crossentropy(
            x, given, labels, weights, 0.1, transposed, chunk=chunk, bias=bias
        )
        logits = tf.matmul(x, given, transpose_b=transposed) + bias
        smooth = 0.9 * tf.one_hot(labels, V) + 0.1 / V
        losses = tf.nn.softmax_cross_entropy_with_logits(smooth, logits)
        expected = tf.reduce_sum(losses * weights)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(scores.loss, losses, rtol=1e-5)
    for found, right in zip(
        tape.gradient(total, sources), tape.gradient(expected, sources), strict=True
    ):
        np.testing.assert_allclose(found, right, atol=1e-5)


def test_a_search_follows_a_bias():
    model = biased(dtype="mixed_bfloat16")
    model.output_layer.bias.assign(99.0 * np.eye(V)[5])
    hypotheses = kl.GreedySearch(max_length=4)(model, SOURCE)
    np.testing.assert_array_equal(hypotheses.ids[:, 0, :4], np.full((2, 4), 5))


@pytest.mark.parametrize(
    "changes",
    [
        {"attentional_activation": None, "attentional_bias": True},
        {"use_attentional_vector": False},
        {"output_attention": False, "input_feeding": True},
        {"output_attention": False, "input_feeding": False, "num_layers": 2},
    ],
)
def test_models_have_the_options_of_their_cell(changes):
    model = make(**changes)
    cell = model.decoder.cell
    for name in ("attentional_bias", "use_attentional_vector", "output_attention"):
        assert getattr(cell, name) == getattr(model.config, name)
    check_steps(model)
    assert kl.Seq2Seq.from_config(model.get_config()).config == model.config
