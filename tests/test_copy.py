"""`Seq2Seq` with `copy=True`: source words in its translations, however it runs."""

import dataclasses
import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from commands import options, run
from leave_slow import slow_but
from opinionated import opinionated
from own_models import exhaustive
from small_training import train_words

import keras_luong as kl
from keras_luong.config.training import TrainingConfig
from keras_luong.decoding import force
from keras_luong.models import build
from keras_luong.models.seq2seq import CopyMemory
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

V = 9
SOURCE = np.array([[4, 5, 6, 3], [7, 3, 0, 0]])
TARGET = np.array([[2, 4, 5], [2, 6, 0]])
LABELS = np.array([[4, 5, 3], [6, 3, 0]])
INPUTS = {"source": SOURCE, "target": TARGET}
WEIGHTS = (LABELS != 0) / 5.0


def copying(vocab_size=V, dtype=None, **changes):
    config = kl.Seq2SeqConfig(
        vocab_size, vocab_size, **{"units": 6, "copy": True, **changes}
    )
    return opinionated(kl.Seq2Seq(config, dtype=dtype), 2.0)


def always_copying(**changes):
    """A model whose p_gen is next to nothing."""
    model = copying(**changes)
    kernel, bias = model.pointer_generator.weights
    kernel.assign(np.zeros(kernel.shape))
    bias.assign([-40.0])
    return model


def shared_translator(search=None, model=None):
    words = ["a", "b", "c", "d", "e"]
    search = search or kl.BeamSearch(3, 2, max_length=7)
    return kl.Translator(model or copying(), kl.WordTokenizer(words), search, 10)


CASES = {
    "plain": {},
    "all tied": {"tie_embeddings": "all"},
    "a bias": {"output_bias": True},
    "as See et al.": {"coverage": True, "coverage_loss": 1.0, "score_mode": "concat"},
    "local-p": {"attention": "local-p", "window": 2},
    "monotonic": {"attention": "monotonic"},
    "reversed": {"reverse_source": True, "bidirectional": False},
    "h": {"output_attention": False, "input_feeding": False},
}
every_case = pytest.mark.parametrize("changes", CASES.values(), ids=CASES)


@pytest.mark.parametrize("name", slow_but(CASES, "as See et al.", "monotonic", "h"))
def test_steps_are_the_whole_sequence(name):
    model = copying(**CASES[name])
    whole = model(INPUTS).numpy()
    np.testing.assert_allclose(np.exp(whole).sum(-1), 1.0, rtol=1e-5)
    memory, state = model.encode(SOURCE)
    for t in range(TARGET.shape[1]):
        logits, state, _ = model.step(TARGET[:, t : t + 1], state, memory)
        np.testing.assert_allclose(logits[:, 0], whole[:, t], atol=1e-4)


@pytest.mark.parametrize(
    "preset, fields",
    [("gnmt", {"num_layers": 2}), ("bahdanau2015", {"encoder_units": 6})],
)
def test_other_papers_models_copy_too(preset, fields):
    model = opinionated(build(preset, V, V, units=6, copy=True, **fields))
    whole = model(INPUTS).numpy()
    memory, state = model.encode(SOURCE)
    logits, _, _ = model.step(TARGET[:, :1], state, memory)
    np.testing.assert_allclose(logits[:, 0], whole[:, 0], atol=1e-4)
    with pytest.raises(ValueError, match="copy=True needs an attention"):
        build("cho2014", V, V, copy=True)


@every_case
def test_what_is_copied_is_what_is_attended_to(changes):
    """Equation 9 without the vocabulary, by the alignment that the step returns."""
    model = always_copying(**changes)
    memory, state = model.encode(SOURCE)
    logits, _, weights = model.step(TARGET[:, :1], state, memory)
    expected = np.zeros((2, V))
    for b in range(2):
        for word, weight in zip(SOURCE[b], weights[b, 0].numpy(), strict=True):
            expected[b, word] += weight
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(np.exp(logits[:, 0]), expected, atol=1e-5)


def test_without_copying_nothing_is_there():
    model = kl.Seq2Seq(kl.Seq2SeqConfig(V, V, units=6))
    assert not model.copies and not hasattr(model, "pointer_generator")
    assert not isinstance(model.encode(SOURCE)[0], CopyMemory)
    model.compile("adam", kl.SequenceCrossentropy())
    assert model._fused


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_fit_by_the_plain_way(jit_compile):
    model = copying(dropout=0.0)
    loss = kl.SequenceCrossentropy(0.1)
    model.compile("adam", loss, metrics=[kl.Perplexity()], jit_compile=jit_compile)
    assert not model._fused
    log_probs = model(INPUTS).numpy()
    smooth = 0.9 * np.eye(V)[LABELS] + 0.1 / V
    expected = -np.sum(WEIGHTS[..., None] * smooth * log_probs)
    options = {"sample_weight": WEIGHTS, "verbose": 0}
    history = model.fit(INPUTS, LABELS, epochs=3, **options).history
    np.testing.assert_allclose(history["loss"][0], expected, rtol=1e-4)
    assert history["loss"][-1] < history["loss"][0]


@pytest.mark.parametrize(
    "dtype", slow_but(["mixed_bfloat16", "mixed_float16"], "mixed_float16")
)
def test_mixed_precision(dtype):
    exact, half = copying(), copying(dtype=dtype)
    half.set_weights(exact.get_weights())
    assert half(INPUTS).dtype == "float32"
    np.testing.assert_allclose(np.exp(half(INPUTS)), np.exp(exact(INPUTS)), atol=0.05)
    found = kl.generate(half, SOURCE, beam_width=3, max_length=5)
    assert np.isfinite(found.log_probs).all()


def test_is_saved(tmp_path):
    model = copying()
    model.save(tmp_path / "m.keras")
    again = keras.saving.load_model(tmp_path / "m.keras")
    assert again.config.copy
    np.testing.assert_allclose(again(INPUTS), model(INPUTS), atol=1e-6)


def test_a_configuration_from_before_there_was_copying():
    config = kl.Seq2Seq(kl.Seq2SeqConfig(V, V, units=6)).get_config()
    del config["config"]["copy"]
    assert not kl.Seq2Seq.from_config(config).copies


IDS = {"bos_id": BOS_ID, "eos_id": EOS_ID, "pad_id": PAD_ID}


@pytest.mark.slow
def test_beam_search_as_wide_as_the_space_is_exhaustive():
    model, source = copying(6), np.array([[4, 5, 3]])
    best = exhaustive(model, source, 3, **IDS)[:4]
    found = kl.generate(model, source, beam_width=64, n_best=4, max_length=3)
    for n, (ids, log_prob) in enumerate(best):
        length = int(found.lengths[0, n])
        assert found.ids[0, n, :length].numpy().tolist() == ids
        np.testing.assert_allclose(found.log_probs[0, n], log_prob, atol=1e-4)


def test_scores_of_given_targets():
    model = copying()
    log_probs = model(INPUTS).numpy()
    expected = np.take_along_axis(log_probs, LABELS[..., None], -1)[..., 0]
    found = force(model, SOURCE, LABELS)
    np.testing.assert_allclose(
        found.log_probs[:, 0], np.sum(expected * (LABELS != 0), 1), rtol=1e-4
    )


@pytest.mark.slow
def test_samples():
    search = kl.RandomSampling(num_samples=20, max_length=5, seed=1)
    found = kl.generate(always_copying(), SOURCE, search)
    for row, source in zip(found.ids.numpy(), SOURCE, strict=True):
        assert set(row.ravel()) <= {*source, PAD_ID}


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
def test_an_ensemble_with_a_model_that_does_not_copy(mean):
    members = [copying(), opinionated(kl.Seq2Seq(kl.Seq2SeqConfig(V, V, units=4)))]
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


@pytest.mark.parametrize(
    "ensemble", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_a_shortlist_of_all_words_changes_nothing(ensemble):
    model = kl.Ensemble([copying(), copying(units=4)]) if ensemble else copying()
    everything = kl.Shortlist(range(V), np.zeros([V, 0], int), V)
    search = kl.BeamSearch(3, 2, max_length=5)
    whole = kl.generate(model, SOURCE, search)
    few = kl.generate(model, SOURCE, dataclasses.replace(search, shortlist=everything))
    np.testing.assert_array_equal(few.ids, whole.ids)
    np.testing.assert_allclose(few.scores, whole.scores, atol=1e-4)


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
    translator = shared_translator()
    texts = ["a b c", "e", "d d a unheard b", ""]
    expected = translator.translate(texts)
    path = kl.export_saved_model(translator, tmp_path / "saved")
    served = tf.saved_model.load(path).signatures["serving_default"]
    said = served(tf.constant(texts))["translation"].numpy()
    assert [x.decode() for x in said] == [x.text for x in expected]
    path = kl.export_tflite(
        translator, tmp_path / "x.tflite", source_length=source_length
    )
    names = {
        x["op_name"] for x in interpreter.Interpreter(str(path))._get_ops_details()
    }
    assert not any(name.startswith(("Flex", "CUSTOM")) for name in names)
    for x, y in zip(edge.EdgeTranslator(path).translate(texts), expected, strict=True):
        assert x.text == y.text
        np.testing.assert_allclose(x.score, y.score, atol=1e-4)
        np.testing.assert_allclose(x.alignment, y.alignment, atol=1e-4)


def test_tokenizers_must_share_a_vocabulary():
    one, other = kl.WordTokenizer([*"abcde"]), kl.WordTokenizer([*"vwxyz"])
    with pytest.raises(ValueError, match="copy=True.*share one vocabulary"):
        kl.Translator(copying(), kl.TokenizerPair(one, other))
    with pytest.raises(ValueError, match="copy=True.*share one vocabulary"):
        kl.Translator(kl.Ensemble([copying()]), (one, other))
    kl.Translator(copying(), kl.TokenizerPair(one, kl.WordTokenizer([*"abcde"])))


def test_configurations_that_cannot_be():
    with pytest.raises(ValueError, match="copy=True.*source_vocab_size=9.*=8"):
        kl.Seq2SeqConfig(9, 8, copy=True)
    with pytest.raises(ValueError, match="copy=True needs an attention"):
        kl.Seq2SeqConfig(9, 9, copy=True, attention=None)
    with pytest.raises(ValueError, match="copy=True.*shared=True"):
        TrainingConfig.from_preset("small", copy=True)
    with pytest.raises(ValueError, match="no copy|A setting"):
        TrainingConfig.from_preset("vaswani2017-base", copy=True, shared=True)


def test_the_command_line_says_so_too(capsys):
    config, *_ = options("train", "--preset", "small", "--copy", "--shared")
    assert config.model["copy"] is True
    with pytest.raises(SystemExit):
        options("train", "--preset", "small", "--copy")
    assert "copy=True needs one vocabulary for both sides" in capsys.readouterr().err


SEEN = [f"name{i}" for i in range(40)]  # in sources and in targets
ONLY_SOURCE = [f"other{i}" for i in range(10)]  # never in a target
GREETINGS = [f"my name is {name} now" for name in ONLY_SOURCE]


def write_names(directory):
    """Pairs whose names are copied; those of others are not translated."""
    rng = random.Random(0)
    pairs = [
        (f"my name is {name} now", f"ich bin {name}")
        for name in rng.choices(SEEN, k=400)
    ]
    pairs += [
        (f"forget {name} please", "gut") for name in rng.choices(ONLY_SOURCE, k=100)
    ]
    rng.shuffle(pairs)
    for split, some in {"train": pairs, "validation": pairs[:20]}.items():
        for suffix, side in zip(("xx", "yy"), zip(*some, strict=True), strict=True):
            (directory / f"{split}.{suffix}").write_text("\n".join(side) + "\n")


def trained(directory, **changes):
    write_names(directory)
    settings = {"units": 24, "dropout": 0.1, "batch_tokens": 200, "keep_epochs": 0}
    settings |= {"shared": True, "eval_sentences": 1, "epochs": 4, **changes}
    run("train", *train_words(directory, directory / "run", **settings))
    return directory / "run"


@pytest.mark.slow
def test_names_that_no_target_had_are_copied(tmp_path, capsys):
    path = trained(tmp_path, copy=True)
    translator = kl.load(path)
    said = translator.translate(GREETINGS)
    assert [x.text for x in said] == [f"ich bin {name}" for name in ONLY_SOURCE]
    for x in said:  # the alignment says which word it was
        assert x.source_tokens[int(np.argmax(x.alignment[2]))] == x.tokens[2]
    # A name that nobody has heard of is copied as the unknown word that it is.
    (stranger,) = translator.translate(["my name is Zoe now"])
    assert stranger.tokens[:3] == ["ich", "bin", "<unk>"]
    assert stranger.source_tokens[int(np.argmax(stranger.alignment[2]))] == "<unk>"
    # It goes on where it was, with the settings that it had.
    again = train_words(tmp_path, path, units=24, dropout=0.1, batch_tokens=200)
    capsys.readouterr()
    with pytest.raises(ValueError, match="copy"):
        run("train", *again, "--shared", "--keep_epochs", "0")


@pytest.mark.slow
def test_without_copying_such_names_are_never_written(tmp_path):
    translator = kl.load(trained(tmp_path, copy=False))
    for x in translator.translate(GREETINGS):
        assert not set(x.text.split()) & set(ONLY_SOURCE)
