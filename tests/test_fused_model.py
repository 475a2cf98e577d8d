import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.models import Seq2Seq, Seq2SeqConfig, build
from keras_luong.training.fused_model import linear_crossentropy
from keras_luong.training.losses import SequenceCrossentropy, token_nll
from keras_luong.training.metrics import Perplexity, TokenAccuracy
from keras_luong.training.optimizers import make_optimizer

B, S, T, V = 4, 6, 5, 12
SMALL = {"units": 8, "embedding_dim": 8}
MODELS = {
    "seq2seq": ("small", SMALL),
    "tied": ("small", {**SMALL, "tie_embeddings": "target"}),
    "maxout": ("bahdanau2015", {**SMALL, "encoder_units": 4}),
    "transformer": (
        "vaswani2017-base",
        {"units": 8, "num_layers": 1, "num_heads": 2, "feedforward_units": 8},
    ),
}


def batches(seed=0, count=3):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        source = rng.integers(4, 11, (B, S), dtype="int32")
        target, label = rng.integers(4, V, (2, B, T), dtype="int32")
        lengths = rng.integers(1, T + 1, B)
        label[np.arange(T) >= lengths[:, None]] = 0
        weight = (label > 0).astype("float32") / (label > 0).sum()
        yield {"source": source, "target": target}, label, weight


def make(name, fused=True, dtype="float32"):
    """A model that is trained in chunks, or as Keras does it."""
    keras.utils.set_random_seed(2)
    preset, options = MODELS[name]
    model = build(preset, 11, V, dtype=dtype, dropout=0.0, **options)
    model.compile(
        keras.optimizers.SGD(0.5, global_clipnorm=5.0),
        SequenceCrossentropy(0.1, chunk=40 if fused else None),
        metrics=[Perplexity(), TokenAccuracy()],
    )
    return model


def trained(name, fused, dtype="float32"):
    """The model after some steps, and what `fit` and `evaluate` reported."""
    model = make(name, fused, dtype)
    history = model.fit(batches(), epochs=1, verbose=0, steps_per_epoch=3).history
    tested = model.evaluate(batches(1), verbose=0, return_dict=True, steps=3)
    return model, history, tested


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_is_what_keras_computes(name):
    one, other = (trained(name, fused) for fused in (True, False))
    for w, x in zip(one[0].weights, other[0].weights, strict=True):
        np.testing.assert_allclose(w, x, atol=1e-6, err_msg=w.path)
    for logs, expected in zip(one[1:], other[1:], strict=True):
        assert logs.keys() == expected.keys()
        for key, value in logs.items():
            np.testing.assert_allclose(value, expected[key], rtol=1e-5, err_msg=key)


@pytest.mark.slow
def test_mixed_precision():
    one, other = (trained("tied", fused, "mixed_float16") for fused in (True, False))
    assert isinstance(one[0].optimizer, keras.optimizers.LossScaleOptimizer)
    for w, x in zip(one[0].trainable_weights, other[0].trainable_weights, strict=True):
        np.testing.assert_allclose(w, x, atol=2e-2, err_msg=w.path)
    np.testing.assert_allclose(one[1]["loss"], other[1]["loss"], rtol=2e-2)


@pytest.mark.slow
def test_other_losses_and_metrics_are_kerass_own():
    model = make("seq2seq")
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    logs = model.fit(batches(), verbose=0, steps_per_epoch=3).history
    assert np.isfinite(logs["loss"]).all() and "accuracy" in logs


@pytest.mark.slow
def test_a_saved_model_is_compiled_as_it_was(tmp_path):
    model = build("small", 11, V, dropout=0.0, **SMALL)
    optimizer = make_optimizer("adam", 0.01, 0.5, weight_decay=0.1, beta_2=0.9)
    metrics = [Perplexity(), TokenAccuracy()]
    model.compile(optimizer, SequenceCrossentropy(0.1), metrics=metrics)
    model.fit(batches(), verbose=0, steps_per_epoch=3)
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    assert again.loss.get_config() == model.loss.get_config()
    assert again.optimizer.get_config() == optimizer.get_config()
    logs = [
        x.fit(batches(1), verbose=0, steps_per_epoch=3).history for x in (model, again)
    ]
    for name, value in logs[0].items():
        np.testing.assert_allclose(logs[1][name], value, rtol=1e-5, err_msg=name)


class Doubled(Seq2Seq):
    """What a call computes is not what its graph does."""

    def call(self, inputs, training=None, mask=None):
        return 2.0 * super().call(inputs, training=training, mask=mask)


class Penalized(Seq2Seq):
    def compute_loss(self, x, y, y_pred, sample_weight, training=True):
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        return loss + 0.1 * keras.ops.sum(y_pred**2)


class Reporting(Seq2Seq):
    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        logs = super().compute_metrics(x, y, y_pred, sample_weight)
        return {**logs, "highest": keras.ops.max(y_pred)}


class Squashed(Seq2Seq):
    @classmethod
    def make_layers(cls, config, dtype):
        layers = super().make_layers(config, dtype)
        options = {"activation": "tanh", "use_bias": False}
        layers.output_layer = keras.layers.Dense(V, **options, name="output")
        return layers


class WithBias(Seq2Seq):
    """Which a loss in chunks has too."""

    @classmethod
    def make_layers(cls, config, dtype):
        layers = super().make_layers(config, dtype)
        options = {"bias_initializer": "random_normal", "name": "output"}
        layers.output_layer = keras.layers.Dense(V, **options)
        return layers


class Masking(Seq2Seq):
    """Whose logits have a mask, of some words only."""

    @classmethod
    def teacher_forced(cls, layers, config, source, target):
        features = super().teacher_forced(layers, config, source, target)
        return Masked()(features)


class Masked(keras.layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, features):
        return features * 1.0

    def compute_mask(self, features, mask=None):
        return keras.ops.sum(features, -1) > 0


SUBCLASSES = [Doubled, Penalized, Reporting, Squashed, WithBias, Masking]


@pytest.mark.slow
@pytest.mark.parametrize("cls", SUBCLASSES)
def test_l3_what_a_subclass_overrides_is_trained(cls):
    """Value for value what Keras's own steps make of it."""
    made = []
    for chunk in (40, None):
        keras.utils.set_random_seed(2)
        config = Seq2SeqConfig(11, V, dropout=0.0, **SMALL)
        model = cls(config)
        loss = SequenceCrossentropy(0.1, chunk=chunk)
        metrics = [Perplexity(), TokenAccuracy()]
        model.compile(keras.optimizers.SGD(0.5), loss, metrics=metrics)
        assert model._fused == (cls in (WithBias, Masking) and chunk == 40)
        fit = model.fit(batches(), epochs=1, verbose=0, steps_per_epoch=3).history
        tested = model.evaluate(batches(1), verbose=0, return_dict=True, steps=3)
        made.append((model, fit, tested))
    for w, x in zip(made[0][0].weights, made[1][0].weights, strict=True):
        np.testing.assert_allclose(w, x, atol=1e-6, err_msg=w.path)
    for logs, expected in zip(made[0][1:], made[1][1:], strict=True):
        assert logs.keys() == expected.keys()
        for key, value in logs.items():
            np.testing.assert_allclose(value, expected[key], rtol=1e-5, err_msg=key)


@pytest.mark.slow
def test_l3_by_hand():
    """The loss that is reported is that of the overridden call."""
    ((x, y, w),) = batches(count=1)
    keras.utils.set_random_seed(2)
    model = Doubled(Seq2SeqConfig(11, V, **SMALL))
    model.compile("sgd", SequenceCrossentropy())
    reported = model.evaluate(x, y, sample_weight=w, verbose=0)
    once = model._compute_features(x, training=False) @ model.output_weights()[0]
    expected = np.sum(token_nll(y, 2.0 * once) * w)
    assert abs(expected - np.sum(token_nll(y, once) * w)) > 0.001
    np.testing.assert_allclose(reported, expected, rtol=1e-6)


@pytest.mark.slow
def test_l3_a_losss_own_call_is_trained():
    class Halved(SequenceCrossentropy):
        def call(self, y_true, y_pred):
            return super().call(y_true, y_pred) / 2

    ((x, y, w),) = batches(count=1)
    model, reported = build("small", 11, V, **SMALL), []
    for loss in (SequenceCrossentropy(), Halved()):
        model.compile("sgd", loss)
        reported.append(model.evaluate(x, y, sample_weight=w, verbose=0))
    np.testing.assert_allclose(reported[1], reported[0] / 2, rtol=1e-5)


def test_l3_another_output_layer_is_noticed():
    """The model's graph keeps the one that it was made with."""
    ((x, y, w),) = batches(count=1)
    model = build("small", 11, V, **SMALL)
    expected = np.sum(token_nll(y, model(x)) * w)
    model.output_layer = keras.layers.Dense(V, use_bias=False)
    model.output_layer.build((None, SMALL["units"]))
    model.compile("sgd", SequenceCrossentropy())
    reported = model.evaluate(x, y, sample_weight=w, verbose=0)
    np.testing.assert_allclose(reported, expected, rtol=1e-5)


def test_l3_the_librarys_models_are_fused():
    with_bias = ("small", {**SMALL, "output_bias": True})
    for preset, options in (*MODELS.values(), with_bias):
        model = build(preset, 11, V, **options)
        model.compile("sgd", SequenceCrossentropy())
        assert model._fused


@pytest.mark.parametrize("rows, chunk", [(7, 24), (7, 1), (1, 10**6), (0, 24), (8, 48)])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_chunks_add_up(rows, chunk, transposed, label_smoothing):
    rng = np.random.default_rng(rows)
    x = tf.constant(rng.normal(size=(rows, 3)), tf.float32)
    w = rng.normal(size=(3, V)).astype("float32")
    labels = tf.constant(rng.integers(0, V, rows), tf.int32)
    weights = tf.constant(rng.random(rows) * (rng.random(rows) > 0.3), tf.float32)
    kernel = tf.constant(w.T if transposed else w)
    with tf.GradientTape() as tape:
        tape.watch([x, kernel])
        total, scores = linear_crossentropy(
            x, kernel, labels, weights, label_smoothing, transposed, chunk=chunk
        )
        total = 3.0 * total
    gradients = tape.gradient(total, [x, kernel])
    with tf.GradientTape() as tape:
        tape.watch([x, kernel])
        logits = tf.matmul(x, kernel, transpose_b=transposed)
        losses = token_nll(labels[None], logits[None], label_smoothing)[0]
        expected = 3.0 * tf.reduce_sum(losses * weights)
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    np.testing.assert_allclose(scores.loss, losses, atol=1e-5)
    nll = token_nll(labels[None], logits[None])[0]
    np.testing.assert_allclose(scores.nll, nll, atol=1e-5)
    right = np.argmax(logits, -1) == labels if rows else []
    np.testing.assert_array_equal(scores.is_right, right)
    for one, other in zip(gradients, tape.gradient(expected, [x, kernel]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_large_logits_lose_nothing():
    x = tf.constant([[3800.0], [-3800.0]])
    kernel = tf.constant([[1.0, 1.0 + 2.0**-12, -1.0]])
    labels = tf.constant([0, 2])
    _, scores = linear_crossentropy(x, kernel, labels, tf.ones(2))
    logits = np.float64(x) @ np.float64(kernel)
    top = logits.max(-1, keepdims=True)
    nll = np.log(np.exp(logits - top).sum(-1)) + top[:, 0] - logits[[0, 1], labels]
    np.testing.assert_allclose(scores.nll, nll, rtol=1e-6)


def test_labels_of_weight_zero_may_be_impossible():
    """A loss of infinity at a padded position is no part of the sum."""
    features = tf.constant([[1.0, 0.0], [0.0, 1e30]])
    kernel = tf.constant([[0.0, 0.0], [0.0, -1e30]])
    labels = tf.constant([1, 1])
    with tf.GradientTape() as tape:
        tape.watch([features, kernel])
        total, scores = linear_crossentropy(features, kernel, labels, [1.0, 0.0])
    np.testing.assert_allclose(scores.nll, [np.log(2), np.inf], rtol=1e-6)
    np.testing.assert_allclose(total, np.log(2), rtol=1e-6)
    gradients = tape.gradient(total, [features, kernel])
    np.testing.assert_allclose(gradients[0], [[0.0, 5e29], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], [[0.5, -0.5], [0.0, 0.0]], atol=1e-6)


@pytest.mark.slow
def test_logits_never_exist_as_a_whole():
    """The compiled step has tensors [..., V] in its loop over chunks only."""
    model = make("seq2seq")
    x, y, w = next(batches())

    def logits(chunk):
        model.compile("sgd", SequenceCrossentropy(chunk=chunk))
        step = tf.function(lambda: model.train_step((x, y, w)))
        operations = step.get_concrete_function().graph.get_operations()
        shapes = (t.shape for op in operations for t in op.outputs)
        kernel = model.output_layer.kernel.shape
        return [s for s in shapes if s.rank and s[-1] == V and s != kernel]

    assert logits(None) and not logits(40)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, marks=pytest.mark.slow),
        pytest.param({"attention": "local-p", "window": 2}, marks=pytest.mark.slow),
    ],
)
def test_xla_compiles_the_step(changes):
    """Of a fixed shape; the loss and what it leads to are the same."""
    histories = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(2)
        model = build("small", 11, V, dropout=0.0, **{**SMALL, **changes})
        optimizer = make_optimizer("sgd", 0.5, clip_norm=0.3)
        model.compile(optimizer, SequenceCrossentropy(), jit_compile=jit_compile)
        data = tf.data.Dataset.from_generator(
            lambda: batches(count=2),
            output_signature=(
                {
                    "source": tf.TensorSpec([B, S], tf.int32),
                    "target": tf.TensorSpec([B, T], tf.int32),
                },
                tf.TensorSpec([B, T], tf.int32),
                tf.TensorSpec([B, T], tf.float32),
            ),
        ).repeat()
        history = model.fit(data, epochs=2, steps_per_epoch=2, verbose=0).history
        histories.append(history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-5)
    assert histories[0][1] < histories[0][0]


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
def test_weights_by_class_are_refused_and_weights_by_label_are_what_they_say(fused):
    x, label, _ = next(batches())
    with pytest.raises(ValueError, match=r"sample_weight \[B, T\].*{5: 10.0}"):
        make("seq2seq", fused).fit(x, label, class_weight={5: 10.0}, verbose=0)
    weight = np.where(label == 5, 10.0, 1.0).astype("float32") * (label > 0)
    model = make("seq2seq", fused)
    expected = np.sum(weight * token_nll(label, model(x), 0.1))
    history = model.fit(x, label, sample_weight=weight, verbose=0, shuffle=False)
    np.testing.assert_allclose(history.history["loss"], expected, rtol=1e-5)
