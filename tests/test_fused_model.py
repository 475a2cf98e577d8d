"""The output layer and its loss computed together, against NumPy and Keras."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from reference_models import crossentropy

import keras_luong as kl
from keras_luong.models import Seq2Seq, Seq2SeqConfig, build
from keras_luong.training.fused_model import linear_crossentropy
from keras_luong.training.optimizers import make_optimizer

V = 5


CHUNKS = [(7, 10, 0.0), (7, 1, 0.3), (1, 10**6, 0.3), (0, 10, 0.0), (8, 20, 0.3)]


@pytest.mark.parametrize("rows, chunk, smoothing", CHUNKS)
@pytest.mark.parametrize("transposed, biased", [(False, False), (True, True)])
def test_chunks_add_up(rows, chunk, smoothing, transposed, biased):
    rng = np.random.default_rng(rows)
    x, w, b = (rng.normal(size=size) for size in ((rows, 3), (3, V), V))
    b *= biased
    labels = rng.integers(0, V, rows, dtype="int32")
    weights = rng.random(rows) * (rng.random(rows) > 0.3)
    features = tf.constant(x, tf.float32)
    kernel = tf.constant(w.T if transposed else w, tf.float32)
    bias = tf.constant(b, tf.float32)
    sources = [features, kernel, bias][: 2 + biased]
    options = {"chunk": chunk, "bias": bias if biased else None}
    with tf.GradientTape() as tape:
        tape.watch(sources)
        given = features, kernel, labels, tf.constant(weights, tf.float32)
        total, scores = linear_crossentropy(*given, smoothing, transposed, **options)
        total = 3.0 * total
    logits = x @ w + b
    losses, slope = crossentropy(labels, logits, smoothing)
    slope *= 3.0 * weights[:, None]
    np.testing.assert_allclose(total, 3 * (losses * weights).sum(), rtol=1e-5)
    np.testing.assert_allclose(scores.loss, losses, atol=1e-5)
    np.testing.assert_allclose(scores.nll, crossentropy(labels, logits)[0], atol=1e-5)
    np.testing.assert_array_equal(scores.is_right, np.argmax(logits, -1) == labels)
    of_kernel = x.T @ slope
    expected = [slope @ w.T, of_kernel.T if transposed else of_kernel, slope.sum(0)]
    gradients = tape.gradient(total, sources)
    for found, right in zip(gradients, expected[: 2 + biased], strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5)


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


# Models that are trained with it.


class Masking(Seq2Seq):
    """Whose logits have a mask, of some words only."""

    @classmethod
    def teacher_forced(cls, layers, config, source, target):
        masked = keras.layers.Lambda(
            lambda x: x * 1.0, mask=lambda x, mask: keras.ops.sum(x, -1) > 0
        )
        return masked(super().teacher_forced(layers, config, source, target))


SMALL = {"units": 8, "embedding_dim": 8, "bidirectional": False}
HEADS = {"units": 8, "num_layers": 1, "num_heads": 2, "feedforward_units": 8}
MODELS = {
    "seq2seq": ("small", SMALL),
    "biased": ("small", {**SMALL, "output_bias": True}),
    "tied": ("small", {**SMALL, "tie_embeddings": "target"}),
    "half": ("small", {**SMALL, "tie_embeddings": "target"}),
    "maxout": ("bahdanau2015", {**SMALL, "encoder_units": 4, "bidirectional": True}),
    "transformer": ("vaswani2017-base", HEADS),
    "masking": (Masking, SMALL),
}


def make(name, dtype=None):
    keras.utils.set_random_seed(2)
    made, options = MODELS[name]
    options = {**options, "dropout": 0.0}
    if isinstance(made, str):
        return build(made, 11, 12, dtype=dtype, **options)
    return made(Seq2SeqConfig(11, 12, **options))


def batch(seed=0):
    rng = np.random.default_rng(seed)
    source = rng.integers(4, 11, (4, 2), dtype="int32")
    target, label = rng.integers(4, 12, (2, 4, 2), dtype="int32")
    label[np.arange(2) >= rng.integers(1, 3, 4)[:, None]] = 0
    weight = (label > 0).astype("float32") / (label > 0).sum()
    return {"source": source, "target": target}, label, weight


def trained(name, chunk):
    """The model after a step, and what `fit` and `evaluate` reported."""
    model = make(name, "mixed_float16" if name == "half" else None)
    optimizer = keras.optimizers.SGD(0.5, global_clipnorm=5.0)
    loss = kl.SequenceCrossentropy(0.1, chunk=chunk)
    metrics = [kl.Perplexity(), kl.TokenAccuracy()]
    model.compile(optimizer, loss, metrics=metrics, run_eagerly=True)
    assert model._fused == (chunk is not None)
    seen, unseen = ((batch(seed) for seed in seeds) for seeds in ((0,), (2, 3)))
    fit = model.fit(seen, verbose=0, steps_per_epoch=1).history
    logs = model.evaluate(unseen, verbose=0, return_dict=True, steps=2)
    return model, fit, logs


@pytest.mark.parametrize("name", slow_but(MODELS, "tied"))
def test_fitting_and_evaluating_are_what_keras_makes_of_it(name):
    one, other = trained(name, 40), trained(name, None)
    if scaled := name == "half":
        assert isinstance(one[0].optimizer, keras.optimizers.LossScaleOptimizer)
    for w, x in zip(one[0].trainable_weights, other[0].trainable_weights, strict=True):
        np.testing.assert_allclose(w, x, atol=2e-2 if scaled else 1e-6, err_msg=w.path)
    for logs, expected in zip(one[1:], other[1:], strict=True):
        assert logs.keys() == expected.keys()
        for key, value in logs.items():
            near = {"rtol": 2e-2 if scaled else 1e-5, "err_msg": key}
            np.testing.assert_allclose(value, expected[key], **near)


class Halved(kl.SequenceCrossentropy):
    def call(self, y_true, y_pred):
        return super().call(y_true, y_pred) / 2


class Counting(kl.TokenAccuracy):
    def update_state(self, y_true, y_pred, sample_weight=None):
        super().update_state(y_true, 0 * y_pred, sample_weight)


def test_other_losses_and_metrics_are_kerass_own():
    """What was compiled before has no part; another output layer is noticed."""
    model, loss = make("seq2seq"), kl.SequenceCrossentropy()
    for options, fused in (
        ({}, True),
        ({"loss": kl.SequenceCrossentropy(chunk=None)}, False),
        ({"loss": kl.SequenceCrossentropy(reduction="mean")}, False),
        ({"loss_weights": [2.0]}, False),
        ({"metrics": [kl.TokenAccuracy()]}, True),
        ({"metrics": ["accuracy"]}, False),
        ({"metrics": {"output": kl.TokenAccuracy()}}, False),
        ({"metrics": [Counting()]}, False),
        ({"weighted_metrics": ["accuracy"]}, False),
    ):
        model.compile("sgd", **{"loss": loss, **options})
        assert model._fused == fused, options
    model.compile("sgd", kl.SequenceCrossentropy(), metrics=["accuracy"])
    model.compile("sgd", kl.SequenceCrossentropy(), run_eagerly=True)
    assert [*model.evaluate(*batch()[:2], verbose=0, return_dict=True)] == ["loss"]
    for name in ("call", "compute_loss", "compute_metrics"):  # of a subclass's own
        own = type("Own", (Seq2Seq,), {name: lambda *args, **options: None})
        other = own(Seq2SeqConfig(11, 12, **SMALL))
        other.compile("sgd", loss)
        assert not other._fused, name
    model, (x, y, w) = make("seq2seq"), batch()
    expected = (crossentropy(y, model(x).numpy())[0] * w).sum()
    for loss, changed in ((Halved(), False), (kl.SequenceCrossentropy(), True)):
        if changed:
            model.output_layer = keras.layers.Dense(12, "tanh", use_bias=False)
            model.output_layer.build((None, 8))
        model.compile("sgd", loss, run_eagerly=True)
        assert not model._fused
        said = model.evaluate(x, y, sample_weight=w, verbose=0)
        assert said == pytest.approx(expected if changed else expected / 2, rel=1e-5)


@pytest.mark.parametrize("chunk", [40, None])
def test_weights_by_class_are_refused_and_weights_by_label_are_what_they_say(chunk):
    x, label, _ = batch()
    model = make("seq2seq")
    model.compile("sgd", kl.SequenceCrossentropy(0.1, chunk=chunk), run_eagerly=True)
    with pytest.raises(ValueError, match=r"sample_weight \[B, T\].*{5: 10.0}"):
        model.fit(x, label, class_weight={5: 10.0}, verbose=0)
    losses = crossentropy(label, model(x).numpy(), 0.1)[0]
    weight = np.where(label == 5, 10.0, 1.0).astype("float32") * (label > 0)
    # Of tokens; of sentences, which Keras's own have not.
    for given in (weight, np.arange(4.0)) if chunk else (weight,):
        said = model.evaluate(x, label, sample_weight=given, verbose=0)
        expected = np.sum(losses * given.reshape(4, -1))
        np.testing.assert_allclose(said, expected, rtol=1e-5)


@pytest.mark.slow
def test_logits_never_exist_as_a_whole():
    """The compiled step has tensors [..., V] in its loop over chunks only."""
    model = make("seq2seq")

    def logits(chunk):
        model.compile("sgd", kl.SequenceCrossentropy(chunk=chunk))
        step = tf.function(lambda: model.train_step(batch()))
        operations = step.get_concrete_function().graph.get_operations()
        shapes = (t.shape for op in operations for t in op.outputs)
        kernel = model.output_layer.kernel.shape
        return [s for s in shapes if s.rank and s[-1] == 12 and s != kernel]

    assert logits(None) and not logits(40)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"attention": "local-p", "window": 2}])
def test_xla_compiles_the_step(changes):
    """Of a fixed shape; the loss and what it leads to are the same."""
    histories = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(2)
        model = build("small", 11, 12, dropout=0.0, **{**SMALL, **changes})
        optimizer = make_optimizer("sgd", 0.5, clip_norm=0.3)
        model.compile(optimizer, kl.SequenceCrossentropy(), jit_compile=jit_compile)
        data = tf.data.Dataset.from_tensors(batch()).repeat(2)
        histories.append(model.fit(data, epochs=2, verbose=0).history["loss"])
    np.testing.assert_allclose(*histories, rtol=1e-5)
    assert histories[0][1] < histories[0][0]
