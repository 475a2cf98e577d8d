"""Gradient penalties, whose reference is the plain loop, which eager code takes."""

import numpy as np
import pytest
import tensorflow as tf
from test_recurrence import MASK, problem

import keras_luong as kl
from keras_luong.layers import fast_recurrence
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.layers.recurrence import plain_scan
from keras_luong.training.fused_model import linear_crossentropy
from keras_luong.training.losses import token_nll

pytestmark = pytest.mark.tensorflow  # whose loop it is
UNITS, WIDTH = 3, 2
UPSTREAM = pytest.mark.parametrize("power", [1, 2], ids=["constant", "varying"])


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
@pytest.mark.parametrize(
    "way, compiled",
    [
        *(
            (way, False)
            for way in (in_one, tapes_outside, in_two, under_xla, by_symbols)
        ),
        (in_one, True),
    ],
)
def test_l2_the_loops_agree(way, compiled, power, monkeypatch):
    """With respect to all that a step can be made of."""
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", compiled)
    run, variables = problem()

    def outputs(scan):
        ys, (h, _) = run(scan, MASK)
        return *ys, h

    expected = penalty(lambda: outputs(plain_scan), variables, variables, power)
    check(way(lambda: outputs(fast_scan), variables, power), expected)


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


def encoder(cell_type, **options):
    """-> its outputs in training, its inputs, its weights."""
    layer = kl.RecurrentEncoder(
        UNITS, bidirectional=True, cell_type=cell_type, **options
    )
    (x, _), (mask, _) = sequences(layer.variable_dtype)
    return layer, lambda: layer(x, mask=mask, training=True), [x]


def decoder(cell_type, attention=None, recurrent_dropout=0.3, **options):
    attention = attention or kl.LuongAttention("general", dtype=options.get("dtype"))
    options |= {"cell_type": cell_type, "recurrent_dropout": recurrent_dropout}
    cell = kl.InputFeedingDecoderCell(UNITS, attention, seed=1, **options)
    layer = kl.InputFeedingDecoder(cell)
    sources, (mask, memory_mask) = sequences(layer.variable_dtype)

    def outputs():
        cell.seed_generator.state.assign([0, 1])  # the same units are dropped
        return [layer(*sources, memory_mask=memory_mask, mask=mask, training=True)]

    return layer, outputs, sources


ATTENTIONS = {
    "coverage": lambda: kl.LuongAttention("concat", coverage=True),
    "location": lambda: kl.LuongAttention("location", max_source_length=9),
    "cosine": lambda: kl.LuongAttention("cosine"),
    "local-p": lambda: kl.LocalAttention(2),
    "local-m": lambda: kl.LocalAttention(2, "monotonic"),
    "monotonic": lambda: kl.MonotonicAttention("general"),
}
LAYERS = {
    **{f"encoder {kind}": lambda kind=kind: encoder(kind) for kind in CELL_TYPES},
    **{f"decoder {kind}": lambda kind=kind: decoder(kind) for kind in CELL_TYPES},
    "not fed": lambda: decoder("lstm", input_feeding=False),
    # The step is computed again after the layer's call, which casts its weights.
    "mixed": lambda: decoder("layer_norm_lstm", dtype="mixed_float16"),
    **{name: lambda x=make: decoder("lstm", x()) for name, make in ATTENTIONS.items()},
}


@pytest.mark.slow
@UPSTREAM
@pytest.mark.parametrize("name", LAYERS)
def test_l2_a_gradient_penalty_of_any_layer(name, power):
    layer, outputs, sources = LAYERS[name]()
    outputs()
    weights = [w.value for w in layer.trainable_weights]
    expected = penalty(outputs, sources, weights, power)
    found = in_a_graph(lambda: penalty(outputs, sources, weights, power))
    check(found, expected, 1e-2 if name == "mixed" else 1e-4)


@UPSTREAM
@pytest.mark.parametrize(
    "run",
    [lambda function: function(), pytest.param(in_a_graph, marks=pytest.mark.slow)],
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
