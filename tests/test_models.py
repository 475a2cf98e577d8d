"""What all models keep to: `Seq2Seq` with its options, the papers' and the Transformer.

The equations of the Transformer are in test_transformer.py.
"""

import functools
import json
import operator

import keras
import numpy as np
import pytest
import reference_models
import tensorflow as tf
from finite_differences import check_gradients
from leave_slow import slow_but
from small_models import batch, stepped

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig, SequenceCrossentropy
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.scores import SCORES
from keras_luong.models import PRESETS, Transformer, build
from keras_luong.models.translation_model import model_class

V, UNITS = 11, 6
PAPERS = {
    "sutskever2014": {"num_layers": 3, "init_scale": 0.5},
    "cho2014": {"embedding_dim": 4, "num_layers": 2},
    "bahdanau2015": {"embedding_dim": 4, "encoder_units": 5, "num_layers": 2},
    "gnmt": {"num_layers": 3, "init_scale": 0.5},
}
TIED = {"embedding_dim": UNITS, "tie_embeddings": "target"}
OPTIONS = {
    **{mode: {"score_mode": mode} for mode in SCORES if mode != "location"},
    "location": {"score_mode": "location", "max_source_length": 9},
    "local-m": {"attention": "local-m", "window": 1},
    "local-p": {"attention": "local-p", "window": 2, "score_mode": "dot"},
    "local, no feeding": {"attention": "local-p", "input_feeding": False},
    "coverage": {"coverage": True, "score_mode": "concat"},
    "monotonic": {"attention": "monotonic", "input_feeding": False},
    **{"hard": {"hard_attention": True}, "no attention": {"attention": None}},
    **{"no feeding": {"input_feeding": False}, "two layers": {"num_layers": 2}},
    "gru": {"cell_type": "gru", "num_layers": 2},
    "deep residual": {"num_layers": 3, "residual": True},
    "reversed": {"bidirectional": False, "reverse_source": True, "num_layers": 2},
    **{f"tied {x}": {"tie_embeddings": x} for x in ("target", "all")},
    **{"copying": {"copy": True}, "output bias": {"output_bias": True}},
    "bridge": {"bridge": "dense", "encoder_units": 5},
    "narrow words": {"embedding_dim": 4},
}
HEADS = {"num_layers": 2, "num_heads": 2, "feedforward_units": 8, "cache_length": 9}
TRANSFORMERS = {
    "transformer": {"tie_embeddings": None},
    "transformer, odd size": {"num_heads": 1, "units": 5, "num_layers": 1},
    "transformer, tied all": {"tie_embeddings": "all"},
}
#: Name -> preset and what is changed of it.
MODELS = {
    **{name: ("small", fields) for name, fields in OPTIONS.items()},
    **{name: (name, fields) for name, fields in PAPERS.items()},
    **{f"{name}, tied": (name, {**x, **TIED}) for name, x in PAPERS.items()},
    **{
        f"{name}, {cell_type}": (name, {**PAPERS.get(name, {}), "cell_type": cell_type})
        for name in ("small", *PAPERS)
        for cell_type in CELL_TYPES
    },
    **{x: ("vaswani2017-base", {**HEADS, **y}) for x, y in TRANSFORMERS.items()},
}
#: Those whose weights are zero, or have a sum below one.
BLIND = ("no attention", "sutskever2014", "cho2014")
PARTIAL = ("local-p", "local, no feeding", "monotonic")


def make(name, seed=1, dtype=None, **changes):
    """A model none of whose weights is 0 or 1, so that every one of them counts."""
    preset, fields = MODELS[name]
    keras.utils.set_random_seed(seed)
    fields = {"units": UNITS, **fields, **changes}
    model = build(preset, V, V, dtype=dtype, **fields)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if len(weight.shape) == 1 and "float" in weight.dtype:
            weight.assign(weight + rng.normal(0, 0.3, weight.shape))
    return model


made = functools.cache(make)  # for those who change nothing


QUICK = "monotonic", "cho2014", "bahdanau2015", "gnmt", "transformer, odd size"


@pytest.mark.parametrize("name", slow_but(MODELS, *QUICK))
def test_steps_are_what_a_call_computes_and_what_a_sentence_gets_alone(name):
    model, inputs = made(name), batch()
    logits, weights = stepped(model, inputs)
    assert logits.dtype == weights.dtype == "float32"
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(model(inputs), logits, atol=1e-5)
    for i, length in {1: 4, 3: 2}.items():  # of the last all are padding
        source, target = inputs["source"][i, :length], inputs["target"][i]
        alone = model({"source": source[None], "target": target[None]})
        np.testing.assert_allclose(alone[0], logits[i], atol=1e-5)
    sums = weights.sum(-1)
    np.testing.assert_array_equal(weights[:, 0][inputs["source"] == 0], 0)
    np.testing.assert_array_equal(sums[3], 0)
    if name.split(", ")[0] in BLIND:
        np.testing.assert_array_equal(sums, 0)
    elif name not in PARTIAL:
        np.testing.assert_allclose(sums[:3], 1, atol=1e-6)


@pytest.mark.parametrize("name", slow_but(MODELS, "coverage", "gnmt", "transformer"))
def test_beams_share_one_memory_and_step_by_themselves(name):
    model = made(name)
    memory, first = model.encode(tf.constant(batch()["source"]))
    parts = tf.nest.flatten([memory, first])
    assert {x.shape[0] for x in parts if x is not None} == {4}
    words = tf.constant(np.random.default_rng(1).integers(4, V, (2, 4, 3)))
    state = [tf.repeat(x, 3, axis=1) for x in first]
    for tokens in words:  # so that the hypotheses' pasts differ too
        logits, state, weights = model.step(tokens, state, memory)
    assert logits.shape == (4, 3, V) and weights.shape == (4, 3, 6)
    together = tf.nest.flatten([logits, state, weights])
    for k in range(3):
        alone = first
        for tokens in words:
            own, alone, a = model.step(tokens[:, k : k + 1], alone, memory)
        for x, y in zip(together, tf.nest.flatten([own, alone, a]), strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x[:, k], y[:, 0], atol=1e-5)
    assert np.abs(logits[:, 0] - logits[:, 1]).max() > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two layers", *PAPERS, "transformer"])
def test_training_computes_the_same_and_gradients_are_finite_differences(name):
    model, inputs = make(name, dropout=0.0), batch(seed=2)
    labels, crossentropy = tf.constant(inputs["target"]), SequenceCrossentropy(0.1)
    expected = crossentropy(labels, stepped(model, inputs)[0])
    found = check_gradients(
        lambda: crossentropy(labels, model(inputs, training=True)),
        model.trainable_variables,
        **{"absolute": 1e-2, "relative": 2e-2, "epsilon": 3e-3},
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)


REFERENCES = [
    ("bahdanau2015", reference_models.bahdanau),
    ("cho2014", reference_models.cho),
    ("gnmt", reference_models.gnmt),
]


@pytest.mark.parametrize("cell_type", slow_but(["gru", "lstm"], "lstm"))
@pytest.mark.parametrize("num_layers", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("name, reference", REFERENCES)
def test_logits_are_the_papers(name, reference, num_layers, cell_type):
    sizes = {"num_layers": num_layers, "attention_units": 5}
    model, inputs = make(name, cell_type=cell_type, **sizes), batch()
    rng = np.random.default_rng(3)
    weights = {v.path: rng.normal(0, 0.7, v.shape) for v in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    logits = model(inputs)
    for i in range(3):  # the papers have no sources without words
        source = inputs["source"][i][inputs["source"][i] != 0]
        expected = reference(weights, source, inputs["target"][i])
        np.testing.assert_allclose(logits[i], expected, atol=1e-5)


def test_reversing_reads_each_sentence_backwards_but_keeps_the_memorys_order():
    model, plain = make("reversed"), make("reversed", reverse_source=False)
    plain.set_weights(model.get_weights())
    source = batch()["source"]
    memory, _ = model.encode(tf.constant(source))
    backwards, _ = plain.encode(tf.constant(source[1:2, :4][:, ::-1]))
    expected = backwards.values[0, ::-1]
    np.testing.assert_allclose(memory.values[1, :4], expected, atol=1e-6)


RATES = ("dropout", "word_dropout", "recurrent_dropout", "output_dropout")
OF_ATTENTION = ("memory_dropout", "attention_dropout")
DROPPED = [("small, lstm", rate) for rate in (*RATES, *OF_ATTENTION)] + [
    ("transformer", "attention_dropout"),
    *[("cho2014", rate) for rate in RATES],
    *[(name, x) for name in ("bahdanau2015", "gnmt") for x in (*RATES, *OF_ATTENTION)],
]
#: Words and the memory are dropped by the model itself, the rest by its layers.
DROPPED_QUICK = [("small, lstm", x) for x in ("word_dropout", "memory_dropout")]
DROPPED_QUICK += [("transformer", "attention_dropout")]


RATES_OF_MODELS = [
    pytest.param(*x, marks=[pytest.mark.slow] * (x not in DROPPED_QUICK))
    for x in DROPPED
]


@pytest.mark.parametrize("name, rate", RATES_OF_MODELS)
def test_dropout_is_for_training_alone(name, rate):
    off = ("dropout", "attention_dropout") if name == "transformer" else RATES
    changes = {**dict.fromkeys(off, 0.0), rate: 0.5}
    if name != "transformer":
        changes |= {"num_layers": 2, "init_scale": 0.5}
    model, inputs = make(name, **changes), batch(target_length=1)
    inputs["source"] = inputs["source"][:, :2]
    expected = np.asarray(model(inputs))
    np.testing.assert_allclose(stepped(model, inputs)[0], expected, atol=1e-5)
    trained, again = (np.asarray(model(inputs, training=True)) for _ in range(2))
    assert np.abs(trained - expected).max() > 1e-3
    assert np.abs(trained - again).max() > 1e-3


def test_words_and_units_of_the_memory_are_dropped_as_a_whole():
    model = make("general", word_dropout=0.5, memory_dropout=0.5, dropout=0.0)
    for layer, shape, axis in (
        ("source_word_dropout", (50, 40, 3), -1),
        ("target_word_dropout", (50, 40, 3), -1),
        ("memory_dropout", (50, 4, 30), 1),
    ):
        dropped = model.get_layer(layer)(tf.ones(shape), training=True).numpy()
        assert set(np.unique(dropped)) == {0, 2}
        np.testing.assert_array_equal(dropped.min(axis), dropped.max(axis))
        assert 0.4 < (dropped > 0).mean() < 0.6


def test_the_transformer_drops_embeddings_and_every_sub_layers_output(monkeypatch):
    model = make("transformer")
    drop, seen = model.dropout.call, []
    spy = lambda x, **kwargs: seen.append(x) or drop(x, **kwargs)  # noqa: E731
    monkeypatch.setattr(model.dropout, "call", spy)
    model(batch(), training=True)
    assert len(seen) == 2 + 2 * (2 + 3)


@pytest.mark.parametrize("name", ["general", "transformer"])
def test_tied_embeddings_are_one_weight(name):
    whole, target, both = (
        make(name, tie_embeddings=tie, num_layers=1).count_params()
        for tie in (None, "target", "all")
    )
    assert (whole - target, whole - both) == (V * UNITS, 2 * V * UNITS)


def test_initial_values():
    """With small ones in W_s, attention was hardly learned at all."""

    def largest(model):
        weights = (w for w in model.trainable_weights if w.path[-4:] != "bias")
        return {w.path: np.abs(w).max() for w in weights}

    scaled = build("small", V, V, units=UNITS, init_scale=0.1, num_layers=2)
    assert all(0.05 < x <= 0.1 for x in largest(scaled).values())
    usual = largest(build("small", 99, 99, units=16))
    for path in ("source_embedding/embeddings", "output/kernel"):
        assert 0.49 < usual[path] <= 0.5
    fields = {**HEADS, "units": 64, "num_heads": 8, "tie_embeddings": None}
    model = build("vaswani2017-base", 1000, 1000, **fields)
    kernels = [w.numpy() for w in model.encoder[0].self_attention.trainable_weights]
    for kernel in kernels:  # uniform within Glorot's limit for 64 x 64
        np.testing.assert_allclose(np.abs(kernel).max(), (3 / 64) ** 0.5, rtol=0.01)
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1
    for layer in (model.source_embedding, model.target_embedding):
        np.testing.assert_allclose(np.std(layer.embeddings), 1 / 8, rtol=0.05)


#: Model and which part of it is frozen.
SAVED = {
    **{"reversed": "", "tied all": "encoder", "copying": "pointer_generator"},
    **{"output bias": "encoder", "bridge": "decoder.cell.attention"},
    **{"bahdanau2015": "bridge", "gnmt": "output_layer", "cho2014": "encoder"},
    **{"transformer": "output_layer", "transformer, odd size": ""},
}


@pytest.mark.parametrize("name", slow_but(SAVED, "tied all"))
def test_saved_and_copied_models_compute_the_same_and_stay_frozen(name, tmp_path):
    model, inputs = make(name), batch()
    part = operator.attrgetter(SAVED[name])(model) if SAVED[name] else model
    for layer in part if isinstance(part, list) else [part]:
        layer.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    cloned = keras.models.clone_model(model)  # which cannot step
    copied = type(model).from_config(json.loads(json.dumps(model.get_config())))
    for other in (cloned, copied):
        other.set_weights(model.get_weights())
    for other in (loaded, cloned, copied):
        np.testing.assert_allclose(other(inputs), model(inputs), atol=1e-6)
    trainable, logits = [w.trainable for w in model.weights], stepped(model, inputs)[0]
    assert sum(trainable) < len(trainable)
    for other in (loaded, copied):
        assert type(other) is type(model) and other.config == model.config
        assert [weight.trainable for weight in other.weights] == trainable
        assert len(other.trainable_weights) == sum(trainable)
        np.testing.assert_allclose(stepped(other, inputs)[0], logits, atol=1e-6)


HALVES = slow_but(["mixed_float16", "mixed_bfloat16"], "mixed_float16")


@pytest.mark.parametrize("policy", HALVES)
@pytest.mark.parametrize("name", slow_but(["general", "transformer"], "general"))
def test_mixed_precision_trains_and_steps(name, policy, tmp_path):
    model, inputs = make(name, dtype=policy), batch(target_length=2)
    exact = make(name)
    exact.set_weights(model.get_weights())
    logits, weights = stepped(model, inputs)
    assert logits.dtype == weights.dtype == "float32"
    for other in (logits, np.asarray(model(inputs), "float32")):
        np.testing.assert_allclose(other, exact(inputs), atol=0.1)
    model.compile("adam", SequenceCrossentropy(), run_eagerly=True)
    is_scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    assert is_scaled == (policy == "mixed_float16")
    assert np.isfinite(model.train_on_batch(inputs, inputs["target"]))
    model.save(tmp_path / "half.keras")
    loaded = keras.models.load_model(tmp_path / "half.keras")
    assert loaded.target_embedding.dtype_policy.name == policy


REMEMBERED = [
    {"coverage": True, "input_feeding": False},
    {"coverage": True, "attention": "local-p", "window": 1},
    {"attention": "monotonic", "hard_attention": True},
]


@pytest.mark.parametrize(
    "dtype", slow_but(["mixed_bfloat16", "mixed_float16", "float64"], "mixed_float16")
)
@pytest.mark.parametrize("options", REMEMBERED, ids=str)
def test_what_attention_remembers_is_float32_at_least(dtype, options):
    model = make("general", dtype=dtype, **options)
    source = batch()["source"]
    memory, state = model.encode(source)
    _, new, _ = model.step(np.full((4, 1), 2), state, memory)
    assert [x.dtype for x in new] == [x.dtype for x in state]
    wide = "float64" if dtype == "float64" else "float32"
    assert state[-2].dtype == wide  # the attention's
    found = BeamSearch(2, max_length=3)(model, source)
    assert np.isfinite(found.scores[:3, 0]).all()


FEW = "auto", "luong2015-base", "luong2015-local-p-general", "bahdanau2015", "gnmt"


@pytest.mark.parametrize("name", slow_but(PRESETS, *FEW))
def test_every_preset_makes_a_model(name):
    config = model_class(name).config_class.preset(name, 12, 12)
    source = 12 if config.tie_embeddings == "all" else 10
    sizes = {"encoder_units": 16} if name == "bahdanau2015" else {}
    model = build(name, source, 12, units=16, **sizes)
    assert type(model).__name__ == PRESETS[name].model
    assert model.output_shape == (None, None, 12)


SIZES = [
    ("multi30k", 4000, 7_557_120),  # of the published results
    ("multi30k-small", 4000, 2_402_304),
    ("multi30k-student", 4000, 2_402_304),
    ("wu2021-tiny", 10_000, 2_599_424),
    # Table 3, trained with about 37,000 sub-words for both languages.
    ("vaswani2017-base", 37_000, pytest.approx(65e6, rel=0.04)),
    ("vaswani2017-big", 37_000, pytest.approx(213e6, rel=0.04)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, size, weights", SIZES)
def test_models_have_the_published_sizes(name, size, weights):
    with keras.StatelessScope():  # weights are counted without making them
        found = build(name, size, size, tie_embeddings="all").count_params()
    assert found == weights


def test_a_class_makes_its_own_presets_alone():
    with pytest.raises(ValueError, match="gnmt is a GNMT, and no Transformer"):
        Transformer.from_preset("gnmt", 11, 12)
    with pytest.raises(ValueError, match="vaswani2017-base is a Transformer"):
        Seq2Seq.from_preset("vaswani2017-base", 11, 12)
    with pytest.raises(ValueError, match="vaswani2017-base is no Seq2SeqConfig"):
        Seq2SeqConfig.preset("vaswani2017-base", 11, 12)

    class Mine(Seq2Seq):
        pass

    for cls, name in ((Seq2Seq, "gnmt"), (Mine, "small")):
        model = cls.from_preset(name, 8, 8, units=4)
        assert type(model).__name__ == {Seq2Seq: "GNMT", Mine: "Mine"}[cls]


LINEAR = {"attentional_activation": None}


IMPOSSIBLE = [
    ("bahdanau2015", {"input_feeding": True}, "feeding=False.*True"),
    ("cho2014", {"attention": "global"}, "attention=None.*'global'"),
    ("bahdanau2015", {"attention": None}, "needs attention.*None"),
    ("gnmt", {"attention": None}, "needs attention.*None"),
    ("gnmt", {"reverse_source": True}, "reverse_source=False.*True"),
    ("gnmt", LINEAR, "attentional_activation=None"),
    ("bahdanau2015", LINEAR, "attentional_activation=None"),
    ("cho2014", LINEAR, "attentional_activation=None"),
    ("cho2014", {"copy": True}, "copy=True needs an attention"),
    ("gpt", {}, "preset.*bahdanau2015.*'gpt'"),
]


@pytest.mark.parametrize("name, changes, message", IMPOSSIBLE)
def test_what_a_model_cannot_have_is_named(name, changes, message):
    with pytest.raises(ValueError, match=message):
        build(name, V, V, **{"units": UNITS, **PAPERS.get(name, {}), **changes})


@pytest.mark.parametrize("cls", [Seq2Seq, Transformer])
def test_other_configurations_are_refused(cls):
    with pytest.raises(TypeError, match=f"{cls.__name__}Config.*'units': 3"):
        cls({"units": 3})
