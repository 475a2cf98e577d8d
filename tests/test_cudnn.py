"""cuDNN itself needs a GPU. What is tested here is the way to Keras's own layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from leave_slow import slow_but

from keras_luong import InputFeedingDecoder, InputFeedingDecoderCell, LuongAttention
from keras_luong.layers import RecurrentEncoder, recurrence
from keras_luong.layers.recurrence import RecurrentLayers
from keras_luong.models import build

pytestmark = pytest.mark.tensorflow
STEPS, BATCH, WIDTH, UNITS = 5, 3, 4, 6
RIGHT = np.arange(STEPS)[:, None] < [5, 3, 1]
EMPTY = np.arange(STEPS)[:, None] < [5, 3, 0]


def make(cell_type):
    base = RecurrentLayers(UNITS, cell_type=cell_type)
    (layer,) = base.make_layers(1, "layer")
    layer.build((None, None, WIDTH))
    for variable in layer.weights:
        variable.assign(np.random.default_rng(1).normal(size=variable.shape))
    return base, layer


def both_ways(monkeypatch, compute):
    """What is computed by the loop; what where there is a GPU; how often Keras ran."""
    results, calls = [], []
    for has_gpu in (False, True):
        for layer in (keras.layers.LSTM, keras.layers.GRU):
            inner = layer.inner_loop

            def counted(self, *args, inner=inner, **kwargs):
                calls.append(self)
                return inner(self, *args, **kwargs)

            monkeypatch.setattr(layer, "inner_loop", counted)
        monkeypatch.setattr(
            recurrence,
            "runs_on_cudnn",
            lambda layer, has_gpu=has_gpu: has_gpu and hasattr(layer, "use_cudnn"),
        )
        results.append(tf.function(compute, autograph=False)())
        assert has_gpu or not calls
        monkeypatch.undo()
    return *results, len(calls)


@pytest.mark.parametrize(
    "mask",
    [
        pytest.param(None, marks=pytest.mark.slow),
        RIGHT,
        *(pytest.param(x, marks=pytest.mark.slow) for x in (RIGHT[::-1], EMPTY)),
    ],
)
@pytest.mark.parametrize(
    "backwards", [pytest.param(False, marks=pytest.mark.slow), True]
)
@pytest.mark.parametrize("cell_type", slow_but(["lstm", "gru"], "lstm"))
def test_keras_computes_what_the_loop_does(cell_type, backwards, mask, monkeypatch):
    base, layer = make(cell_type)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(STEPS, BATCH, WIDTH)), tf.float32)
    starts = rng.normal(size=(base.kind.num_states, BATCH, UNITS))
    starts = [tf.constant(state, tf.float32) for state in starts]
    scale = tf.constant(rng.normal(size=(STEPS, BATCH, UNITS)), tf.float32)

    keep = None if mask is None else tf.Variable(mask)  # not known to the graph

    def compute():
        # TensorFlow has no gradient of an eager tensor that goes straight into a cond.
        inputs, firsts = tf.identity(x), [tf.identity(state) for state in starts]
        with tf.GradientTape() as tape:
            tape.watch([inputs, *firsts])
            y, states = base.scan_layer(
                layer, inputs, firsts, keep, training=True, backwards=backwards
            )
            loss = tf.reduce_sum(y * scale) + sum(tf.reduce_sum(h**2) for h in states)
        return y, *states, *tape.gradient(loss, [inputs, *firsts, *layer.weights])

    loop, through_keras, calls = both_ways(monkeypatch, compute)
    assert calls
    for one, other in zip(loop, through_keras, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(one), tf.convert_to_tensor(other), atol=1e-4
        )


@pytest.mark.parametrize("changes", [{}, {"residual": True, "dropout": 0.3}])
def test_a_model_without_input_feeding_is_all_kerass(changes, monkeypatch):
    encoder = RecurrentEncoder(UNITS, 2, bidirectional="first", residual=True)
    cell = InputFeedingDecoderCell(
        UNITS, LuongAttention(), 2, input_feeding=False, **changes
    )
    decoder = InputFeedingDecoder(cell)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(BATCH, STEPS, UNITS)).astype("float32")
    mask = RIGHT.T
    encoder(x), decoder(x, x)

    def compute():
        keras.utils.set_random_seed(1)
        for seeds in (encoder.seed_generator, cell.seed_generator):
            seeds.state.assign([1, 2])
        memory, *states = encoder(x, mask=mask, training=True)
        options = {"mask": mask, "initial_state": states, "return_state": True}
        return decoder(x, memory, mask, **options, training=True)

    loop, through_keras, calls = both_ways(monkeypatch, compute)
    assert calls == 5  # 3 of the encoder's and 2 of the decoder's
    for one, other in zip(loop, through_keras, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_who_may_not(monkeypatch):
    """Inference, which is exported; recurrent dropout; simple RNNs."""
    (base, lstm), (_, simple) = make("lstm"), make("simple_rnn")
    assert not recurrence.runs_on_cudnn(lstm)  # no test has a GPU
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert recurrence.runs_on_cudnn(lstm) and not recurrence.runs_on_cudnn(simple)
    ran = []
    inner = keras.layers.LSTM.inner_loop
    monkeypatch.setattr(
        keras.layers.LSTM,
        "inner_loop",
        lambda *args, **options: ran.append(args) or inner(*args, **options),
    )
    x = tf.ones([STEPS, BATCH, WIDTH])
    states = [tf.ones([BATCH, UNITS])] * 2
    base.scan_layer(lstm, x, states)
    base.scan_layer(lstm, x, states, noise=tf.ones([BATCH, UNITS]), training=True)
    lstm.use_cudnn = False
    base.scan_layer(lstm, x, states, training=True)
    assert not ran
    lstm.use_cudnn = "auto"
    base.scan_layer(lstm, x, states, training=True)
    assert ran


@pytest.mark.parametrize("input_feeding", [True, False])
def test_xla_is_taken_where_one_says_so(input_feeding, monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    model = build("small", 9, 9, units=6, input_feeding=input_feeding)
    held = model.encoder.forward_layers[0]
    model.compile("sgd")
    assert not model.jit_compile and recurrence.runs_on_cudnn(held)
    model.compile("sgd", jit_compile=True)
    assert model.jit_compile and not recurrence.runs_on_cudnn(held)


def test_l2_cudnn_refuses_second_derivatives():
    """TensorFlow does, whatever the gradient that comes from above."""

    def twice():
        x, state = tf.ones([STEPS, BATCH, WIDTH]), tf.zeros([1, BATCH, UNITS])
        options = {"rnn_mode": "lstm", "is_training": True}
        lengths = tf.fill([BATCH], STEPS)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y, *_ = tf.raw_ops.CudnnRNNV3(
                    input=x,
                    input_h=state,
                    input_c=state,
                    params=tf.ones([999]),
                    sequence_lengths=lengths,
                    **options,
                )
                loss = tf.reduce_sum(y)
            slope = inner.gradient(loss, x)
        return outer.gradient(slope, x)

    with pytest.raises(LookupError, match="CudnnRNNBackpropV3"):
        tf.function(twice, autograph=False).get_concrete_function()
