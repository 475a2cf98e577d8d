import operator

import keras
import numpy as np
import pytest
import tensorflow as tf
from finite_differences import check_gradients
from leave_slow import slow_but

from keras_luong import BeamSearch, Seq2Seq, Seq2SeqConfig, SequenceCrossentropy
from keras_luong.layers.scores import SCORES

VOCABULARY, UNITS = 11, 6
OPTIONS = {
    **{mode: {"score_mode": mode} for mode in SCORES if mode != "location"},
    "location": {"score_mode": "location", "max_source_length": 9},
    "local-m": {"attention": "local-m", "window": 1},
    "local-p": {"attention": "local-p", "window": 2, "score_mode": "dot"},
    "local, no feeding": {"attention": "local-p", "input_feeding": False},
    "coverage": {"coverage": True, "score_mode": "concat"},
    "hard": {"hard_attention": True},
    "monotonic": {"attention": "monotonic", "input_feeding": False},
    "no attention": {"attention": None},
    "no feeding": {"input_feeding": False},
    "gru": {"cell_type": "gru", "num_layers": 2},
    "simple rnn": {"cell_type": "simple_rnn"},
    "layer norm": {"cell_type": "layer_norm_lstm", "num_layers": 2},
    "deep residual": {"num_layers": 3, "residual": True},
    "reversed": {"bidirectional": False, "reverse_source": True, "num_layers": 2},
    "tied target": {"tie_embeddings": "target"},
    "tied all": {"tie_embeddings": "all"},
    "bridge": {"bridge": "dense", "encoder_units": 5},
    "paper's init": {"init_scale": 0.1, "embedding_dim": 4},
}


def make(**fields):
    return Seq2Seq(Seq2SeqConfig(VOCABULARY, VOCABULARY, units=UNITS, **fields))


def batch(target_length=5):
    rng = np.random.default_rng(0)
    source = rng.integers(4, VOCABULARY, (4, 6), dtype="int32")
    source[1, 4:] = source[2, 1:] = source[3] = 0  # the last is all padding
    target = rng.integers(4, VOCABULARY, (4, target_length), dtype="int32")
    return {"source": source, "target": target}


def stepped(model, inputs):
    memory, state = model.encode(tf.constant(inputs["source"]))
    logits, weights = [], []
    for t in range(inputs["target"].shape[1]):
        tokens = tf.constant(inputs["target"][:, t : t + 1])
        step, state, a = model.step(tokens, state, memory)
        logits.append(step[:, 0])
        weights.append(a[:, 0])
    return np.stack(logits, 1), np.stack(weights, 1)


@pytest.mark.parametrize("name", slow_but(OPTIONS, "coverage", "monotonic", "gru"))
def test_stepping_equals_teacher_forcing(name):
    model, inputs = make(**OPTIONS[name]), batch()
    logits, weights = stepped(model, inputs)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(model(inputs), logits, atol=1e-5)
    padding = np.broadcast_to(inputs["source"][:, None] == 0, weights.shape)
    np.testing.assert_array_equal(weights[padding], 0)


@pytest.mark.parametrize(
    "name", slow_but(OPTIONS, "local-p", "no attention", "reversed")
)
def test_a_sentence_does_not_see_its_neighbours_or_padding(name):
    model, inputs = make(**OPTIONS[name]), batch()
    together = np.asarray(model(inputs))
    for i, length in enumerate([6, 4, 1]):
        alone = {
            "source": inputs["source"][i : i + 1, :length],
            "target": inputs["target"][i : i + 1],
        }
        np.testing.assert_allclose(model(alone), together[i : i + 1], atol=1e-5)


def test_later_targets_do_not_change_earlier_logits():
    model, inputs = make(), batch()
    changed = {**inputs, "target": np.where(np.arange(5) < 3, inputs["target"], 7)}
    np.testing.assert_allclose(model(changed)[:, :3], model(inputs)[:, :3], atol=1e-6)


def test_beams_share_one_memory():
    model, inputs = make(num_layers=2), batch()
    memory, state = model.encode(tf.constant(inputs["source"]))
    tiled = [tf.repeat(s, 3, axis=1) for s in state]
    tokens = tf.constant(np.random.default_rng(1).integers(4, VOCABULARY, (4, 3)))
    logits, new_state, weights = model.step(tokens, tiled, memory)
    assert logits.shape == (4, 3, VOCABULARY) and weights.shape == (4, 3, 6)
    for k in range(3):
        alone, alone_state, _ = model.step(tokens[:, k : k + 1], state, memory)
        np.testing.assert_allclose(logits[:, k], alone[:, 0], atol=1e-6)
        for s, a in zip(new_state, alone_state, strict=True):
            np.testing.assert_allclose(s[:, k], a[:, 0], atol=1e-6)


def test_reversing_reads_each_sentence_backwards_but_keeps_the_memorys_order():
    model = make(bidirectional=False, reverse_source=True)
    inputs = batch()
    memory, _ = model.encode(tf.constant(inputs["source"]))
    plain = make(bidirectional=False)
    plain.set_weights(model.get_weights())
    turned = inputs["source"][1:2, :4][:, ::-1]
    expected, _ = plain.encode(tf.constant(turned))
    np.testing.assert_allclose(
        memory.values[1, :4], expected.values[0, ::-1], atol=1e-6
    )


def test_tied_embeddings_are_one_weight():
    def count(**options):
        return make(**options).count_params()

    table = VOCABULARY * UNITS
    assert count() - count(tie_embeddings="target") == table
    assert count() - count(tie_embeddings="all") == 2 * table


RATES = ("dropout", "word_dropout", "recurrent_dropout", "memory_dropout")
RATES = (*RATES, "attention_dropout", "output_dropout")


@pytest.mark.parametrize("rate", slow_but(RATES, "dropout", "attention_dropout"))
@pytest.mark.parametrize(
    "preset",
    [
        "small",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("bahdanau2015", "gnmt", "cho2014")
        ),
    ],
)
def test_dropout_is_for_training(preset, rate):
    rates = {**dict.fromkeys(RATES, 0.0), rate: 0.5}
    if preset == "cho2014" and rate in ("memory_dropout", "attention_dropout"):
        pytest.skip("it has no attention")
    model = Seq2Seq.from_preset(
        preset,
        VOCABULARY,
        VOCABULARY,
        **{
            "units": UNITS,
            "num_layers": 2,
            "init_scale": 0.5,
            **rates,
            **({"encoder_units": 3} if preset == "bahdanau2015" else {}),
        },
    )
    inputs = batch()
    expected = np.asarray(model(inputs))
    np.testing.assert_array_equal(model(inputs, training=False), expected)
    np.testing.assert_allclose(stepped(model, inputs)[0], expected, atol=1e-5)
    trained = np.asarray(model(inputs, training=True))
    assert np.abs(trained - expected).max() > 1e-3


def test_word_dropout_drops_whole_words():
    model = make(word_dropout=0.5, dropout=0.0)
    for side in ("source", "target"):
        layer = model.get_layer(f"{side}_word_dropout")
        dropped = layer(tf.ones((50, 40, 3)), training=True).numpy()
        assert set(np.unique(dropped)) == {0, 2}
        np.testing.assert_array_equal(dropped.min(-1), dropped.max(-1))
        assert 0.4 < (dropped > 0).mean() < 0.6
    layer = make(memory_dropout=0.5).get_layer("memory_dropout")
    dropped = layer(tf.ones((50, 4, 30)), training=True).numpy()
    np.testing.assert_array_equal(dropped.min(1), dropped.max(1))
    assert 0.4 < (dropped > 0).mean() < 0.6


def test_init_scale_bounds_every_matrix():
    model = make(init_scale=0.1, num_layers=2)
    matrices = [w.numpy() for w in model.trainable_weights if len(w.shape) > 1]
    assert max(np.abs(w).max() for w in matrices) <= 0.1
    assert all(np.abs(w).max() > 0.05 for w in matrices)


@pytest.mark.slow
def test_logits_start_as_large_where_the_softmax_weights_are_not_the_embedding():
    # With small ones the attention of an untied model was hardly learned at all.
    ids = np.random.default_rng(0).integers(4, 1000, (4, 9))
    spread = {}
    for tie in (None, "target", "all"):
        keras.utils.set_random_seed(1)
        model = Seq2Seq(Seq2SeqConfig(1000, 1000, units=64, tie_embeddings=tie))
        spread[tie] = np.std(model({"source": ids, "target": ids}))
    assert spread[None] == pytest.approx(spread["all"], rel=0.2)
    assert spread["target"] == pytest.approx(spread["all"], rel=0.2)


@pytest.mark.slow
def test_fit_learns_to_copy():
    keras.utils.set_random_seed(1)
    rng = np.random.default_rng(0)
    words = rng.integers(4, VOCABULARY, (256, 4), dtype="int32")
    source = np.pad(words, ((0, 0), (0, 1)), constant_values=3)
    target = np.pad(words, ((0, 0), (1, 0)), constant_values=2)
    model = Seq2Seq(Seq2SeqConfig(VOCABULARY, VOCABULARY, units=32, dropout=0.0))
    model.compile(
        keras.optimizers.Adam(0.01),
        SequenceCrossentropy(),
        weighted_metrics=["accuracy"],
        jit_compile=False,
    )
    weights = np.full(source.shape, 1 / source.size * len(source) / 32)
    history = model.fit(
        {"source": source, "target": target},
        source,
        sample_weight=weights,
        epochs=12,
        verbose=0,
    )
    assert history.history["accuracy"][-1] > 0.95


@pytest.mark.parametrize(
    "name", slow_but(["general", "reversed", "tied all", "bridge"], "tied all")
)
def test_saved_and_cloned_models_compute_the_same(name, tmp_path):
    model, inputs = make(**OPTIONS[name]), batch()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(loaded, Seq2Seq) and loaded.config == model.config
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for other in (loaded, cloned):
        np.testing.assert_allclose(other(inputs), model(inputs), atol=1e-6)
    np.testing.assert_allclose(
        stepped(loaded, inputs)[0], stepped(model, inputs)[0], atol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision_trains_and_steps(policy, tmp_path):
    config = Seq2SeqConfig(VOCABULARY, VOCABULARY, units=UNITS, cell_type="gru")
    model, inputs = Seq2Seq(config, dtype=policy), batch()
    logits, weights = stepped(model, inputs)
    assert logits.dtype == weights.dtype == "float32"
    np.testing.assert_allclose(np.asarray(model(inputs), "float32"), logits, atol=0.05)
    model.compile("adam", SequenceCrossentropy(), jit_compile=False)
    loss = model.train_on_batch(inputs, inputs["target"])
    assert np.isfinite(loss)
    model.save(tmp_path / "half.keras")
    loaded = keras.models.load_model(tmp_path / "half.keras")
    assert loaded.decoder.dtype_policy.name == policy


def test_gradients_equal_finite_differences():
    model, inputs = make(num_layers=2, dropout=0.0), batch()
    labels = tf.constant(inputs["target"])

    def loss():
        logits = model(inputs, training=True)
        return SequenceCrossentropy(label_smoothing=0.1)(labels, logits)

    check_gradients(loss, model.trainable_variables, absolute=2e-2, relative=2e-2)


def test_other_configurations_are_refused():
    with pytest.raises(TypeError, match="Seq2SeqConfig.*'units': 3"):
        Seq2Seq({"units": 3})


def test_float16_of_the_layers_brings_loss_scaling():
    model = Seq2Seq(Seq2SeqConfig(VOCABULARY, VOCABULARY), dtype="mixed_float16")
    model.compile("adam", SequenceCrossentropy())
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


@pytest.mark.parametrize("part", ["", "encoder", "decoder.cell.attention"])
def test_frozen_layers_stay_frozen(part, tmp_path):
    model = Seq2Seq(Seq2SeqConfig(9, 9, units=8))
    layer = operator.attrgetter(part)(model) if part else model
    layer.trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    expected = [weight.trainable for weight in model.weights]
    assert [weight.trainable for weight in loaded.weights] == expected
    assert len(loaded.trainable_weights) == sum(expected) < len(expected)


@pytest.mark.parametrize(
    "dtype", slow_but(["mixed_bfloat16", "mixed_float16", "float64"], "mixed_float16")
)
@pytest.mark.parametrize(
    "options",
    [
        {"coverage": True},
        {"coverage": True, "input_feeding": False},
        {"coverage": True, "attention": "local-p", "window": 1},
        {"attention": "monotonic"},
        {"attention": "monotonic", "hard_attention": True},
    ],
    ids=str,
)
def test_what_attention_remembers_is_float32_at_least(dtype, options):
    config = Seq2SeqConfig(9, 9, units=8, **options)
    model = Seq2Seq(config, dtype=dtype)
    source = np.array([[4, 5, 6, 3], [7, 3, 0, 0]], "int32")
    memory, state = model.encode(source)
    step = model.step(np.array([[2], [2]]), state, memory)
    assert [x.dtype for x in step[1]] == [x.dtype for x in state]
    wide = "float64" if dtype == "float64" else "float32"
    assert state[-2].dtype == wide  # the attention's
    found = BeamSearch(2, max_length=5)(model, source)
    assert np.isfinite(found.scores[:, 0]).all()
