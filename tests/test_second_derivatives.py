"""Gradient penalties, whose reference is the plain loop, which eager code takes."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but
from test_recurrence import MASK, problem

from keras_luong.layers import (
    InputFeedingDecoder,
    InputFeedingDecoderCell,
    LocalAttention,
    LuongAttention,
    MonotonicAttention,
    RecurrentEncoder,
    fast_recurrence,
)
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.layers.recurrence import plain_scan
from keras_luong.training.fused_model import linear_crossentropy
from keras_luong.training.losses import token_nll

pytestmark = pytest.mark.tensorflow  # whose loop it is
UNITS, WIDTH = 3, 2
UPSTREAM = pytest.mark.parametrize(
    "power", [1, pytest.param(2, marks=pytest.mark.slow)], ids=["constant", "varying"]
)


def penalty(outputs, sources, variables, power):
    """`Σ (d loss/d source)²` and its gradients: with a power of 1, the gradient that
    the outputs get is constant."""
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(sources)
            ys = (tf.cast(y, sources[0].dtype) for y in outputs())
            loss = sum(tf.reduce_sum(y**power) for y in ys)
        slopes = inner.gradient(loss, sources)
        value = sum(tf.reduce_sum(slope**2) for slope in slopes)
    return value, *outer.gradient(value, variables, unconnected_gradients="zero")


def in_a_graph(function, **options):
    return tf.function(function, autograph=False, **options)()


def check(found, expected, tolerance=1e-4):
    scale = max(np.abs(x).max() for x in expected[1:])
    assert scale > 1e-3
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    for one, other in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance * scale)


def tapes_outside(outputs, sources, power):
    """The loop is in a function of its own."""
    return penalty(lambda: in_a_graph(outputs), sources, sources, power)


def in_one(outputs, sources, power):
    return in_a_graph(lambda: penalty(outputs, sources, sources, power))


def in_two(outputs, sources, power):
    return in_a_graph(lambda: tapes_outside(outputs, sources, power))


def under_xla(outputs, sources, power):
    one = lambda: penalty(outputs, sources, sources, power)  # noqa: E731
    return in_a_graph(one, jit_compile=True)


def by_symbols(outputs, sources, power):
    """By `tf.gradients`."""

    def both():
        handles = [variable.handle for variable in sources]
        slopes = tf.gradients([y**power for y in outputs()], handles)
        value = sum(tf.reduce_sum(slope**2) for slope in slopes)
        return value, *tf.gradients(value, handles)

    return in_a_graph(both)


@pytest.mark.slow
@UPSTREAM
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("way", [in_one, tapes_outside, in_two, under_xla, by_symbols])
def test_l2_the_loops_agree(way, mask, power):
    """With respect to all that a step can be made of."""
    run, variables = problem()

    def outputs(scan):
        ys, (h, _) = run(scan, mask)
        return *ys, h

    expected = penalty(lambda: outputs(plain_scan), variables, variables, power)
    check(way(lambda: outputs(fast_scan), variables, power), expected)


@pytest.mark.slow
def test_l2_of_loops_that_xla_compiles(monkeypatch):
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", True)
    run, variables = problem()

    def outputs(scan):
        ys, (h, _) = run(scan, MASK)
        return *ys, h

    expected = penalty(lambda: outputs(plain_scan), variables, variables, 2)
    check(in_one(lambda: outputs(fast_scan), variables, 2), expected)


@pytest.mark.slow
def test_l2_third_derivatives_too():
    run, variables = problem()

    def third(scan):
        with tf.GradientTape() as tape:
            _, *slopes = penalty(lambda: run(scan)[0], variables, variables, 1)
            value = sum(tf.reduce_sum(slope**2) for slope in slopes)
        return value, *tape.gradient(value, variables)

    check(in_a_graph(lambda: third(fast_scan)), third(plain_scan))


def test_l2_nothing_more_runs_where_nobody_asks():
    run, variables = problem()

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(fast_scan)[0][0])
        return tape.gradient(loss, variables[:4])

    def loops(function):
        graph = tf.function(function, autograph=False).get_concrete_function().graph
        types = [operation.type for operation in graph.get_operations()]
        assert "PreventGradient" not in types
        return sum("While" in x for x in types)

    assert loops(gradients) == 2  # there and back


def sequences(dtype="float32"):
    """Inputs [B, T, E] and memory [B, S, H]; and their masks."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, n, w)) for n, w in ((4, WIDTH), (5, UNITS))]
    masks = [np.arange(n) < np.array([[n], [2], [1]]) for n in (4, 5)]
    return [tf.constant(x, dtype) for x in arrays], masks


def encoder(cell_type, masked, **options):
    """-> its outputs in training, its inputs, its weights."""
    layer = RecurrentEncoder(UNITS, bidirectional=True, cell_type=cell_type, **options)
    (x, _), (mask, _) = sequences(layer.variable_dtype)
    mask = mask if masked else None
    return layer, lambda: layer(x, mask=mask, training=True), [x]


def decoder(cell_type, masked, attention=None, input_feeding=True, **options):
    attention = attention or LuongAttention("general", dtype=options.get("dtype"))
    cell = InputFeedingDecoderCell(
        UNITS,
        attention,
        cell_type=cell_type,
        input_feeding=input_feeding,
        seed=1,
        **{"recurrent_dropout": 0.3, **options},
    )
    layer = InputFeedingDecoder(cell)
    sources, masks = sequences(layer.variable_dtype)
    mask, memory_mask = masks if masked else (None, None)

    def outputs():
        cell.seed_generator.state.assign([0, 1])  # the same units are dropped
        return [layer(*sources, memory_mask=memory_mask, mask=mask, training=True)]

    return layer, outputs, sources


def check_layer(layer, outputs, sources, power, tolerance=1e-4, **options):
    outputs()
    weights = [w.value for w in layer.trainable_weights]
    expected = penalty(outputs, sources, weights, power)
    found = in_a_graph(lambda: penalty(outputs, sources, weights, power), **options)
    check(found, expected, tolerance)


MASKED = pytest.mark.parametrize(
    "masked", [True, pytest.param(False, marks=pytest.mark.slow)]
)


@pytest.mark.slow
@UPSTREAM
@MASKED
@pytest.mark.parametrize("cell_type", slow_but(CELL_TYPES, "gru"))
def test_l2_a_gradient_penalty_of_an_encoder(cell_type, masked, power):
    check_layer(*encoder(cell_type, masked), power)


@pytest.mark.slow
@UPSTREAM
@MASKED
@pytest.mark.parametrize("cell_type", slow_but(CELL_TYPES, "lstm"))
def test_l2_a_gradient_penalty_of_a_decoder(cell_type, masked, power):
    check_layer(*decoder(cell_type, masked), power)


ATTENTIONS = {
    "concat": lambda: LuongAttention("concat"),
    "coverage": lambda: LuongAttention("general", coverage=True),
    "location": lambda: LuongAttention("location", max_source_length=9),
    "cosine": lambda: LuongAttention("cosine"),
    "local-p": lambda: LocalAttention(2),
    "local-m": lambda: LocalAttention(2, "monotonic"),
    "monotonic": lambda: MonotonicAttention("general"),
}


@pytest.mark.slow
@pytest.mark.parametrize("input_feeding", [True, False])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_l2_a_gradient_penalty_with_any_attention(attention, input_feeding):
    check_layer(*decoder("lstm", True, ATTENTIONS[attention](), input_feeding), 1)


@pytest.mark.slow
@pytest.mark.parametrize("make", [encoder, decoder])
@pytest.mark.parametrize("cell_type", ["lstm", "layer_norm_lstm"])
def test_l2_under_xla(cell_type, make):
    """Without dropout: XLA has random numbers of its own."""
    made = make(cell_type, True, recurrent_dropout=0.0)
    check_layer(*made, 1, jit_compile=True)


@pytest.mark.slow
@pytest.mark.parametrize("make", [encoder, decoder])
def test_l2_under_mixed_precision(make):
    """The step is computed again after the layer's call, which casts its weights."""
    made = make("layer_norm_lstm", True, dtype="mixed_float16")
    check_layer(*made, 1, tolerance=1e-2)


def train_critic(**options):
    """What a critic says after `fit` with the penalty of WGAN-GP, and how its weights
    have changed."""

    class Critic(keras.Model):
        def train_step(self, data):
            sequences = data[0]
            with tf.GradientTape() as tape:
                with tf.GradientTape() as inner:
                    inner.watch(sequences)
                    score = self(sequences, training=True)
                slopes = inner.gradient(score, sequences)
                norms = tf.sqrt(tf.reduce_sum(slopes**2, axis=(1, 2)))
                loss = tf.reduce_mean((norms - 1) ** 2)
            weights = self.trainable_weights
            self.optimizer.apply(tape.gradient(loss, weights), weights)
            return {"loss": loss}

    keras.utils.set_random_seed(1)
    (x, _), _ = sequences()
    inputs = keras.Input((None, WIDTH))
    memory, *_ = RecurrentEncoder(UNITS, cell_type="gru")(inputs)
    critic = Critic(inputs, keras.layers.Dense(1)(memory[:, -1]))
    critic.compile(keras.optimizers.SGD(0.5), **options)
    before = [w.numpy() for w in critic.trainable_weights]
    critic.fit(x, x, epochs=2, verbose=0)
    changes = [w - old for w, old in zip(critic.get_weights(), before, strict=True)]
    return critic(x), *changes


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_l2_fit_with_a_penalty(jit_compile):
    check(train_critic(jit_compile=jit_compile), train_critic(run_eagerly=True))


@pytest.mark.slow
@pytest.mark.parametrize("make", [encoder, decoder])
def test_l2_a_penalty_equals_finite_differences(make):
    layer, outputs, sources = make("gru", True, dtype="float64")
    outputs()
    weights, epsilon = [w.value for w in layer.trainable_weights], 1e-3
    run = tf.function(lambda: penalty(outputs, sources, weights, 1), autograph=False)
    gradients, rng = run()[1:], np.random.default_rng(1)
    for weight, gradient in zip(weights, gradients, strict=True):
        direction, original = rng.normal(size=weight.shape), weight.numpy()
        weight.assign(original + epsilon * direction)
        above = run()[0]
        weight.assign(original - epsilon * direction)
        slope = (above - run()[0]) / (2 * epsilon)
        weight.assign(original)
        expected = np.sum(gradient * direction)
        np.testing.assert_allclose(slope, expected, rtol=1e-3, atol=1e-3)


@UPSTREAM
@pytest.mark.parametrize(
    "run",
    [
        lambda function: function(),
        pytest.param(in_a_graph, marks=pytest.mark.slow),
    ],
)
def test_l2_a_penalty_on_the_fused_output_layer(run, power):
    rng = np.random.default_rng(0)
    x, kernel = (
        tf.Variable(rng.normal(size=n), dtype="float32") for n in ((6, 3), (3, 7))
    )
    labels, weights = tf.constant(rng.integers(0, 7, 6), tf.int32), rng.random(6)

    def fused():
        return [linear_crossentropy(x, kernel, labels, weights, 0.1, chunk=10)[0]]

    def plain():
        losses = token_nll(labels[None], tf.matmul(x, kernel)[None], 0.1)[0]
        return [tf.reduce_sum(losses * weights)]

    sources = [x, kernel]
    found = run(lambda: penalty(fused, sources, sources, power))
    check(found, penalty(plain, sources, sources, power))
