"""The loops, which are held equal; and the way to cuDNN."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_luong import InputFeedingDecoder, InputFeedingDecoderCell, LuongAttention
from keras_luong.layers import RecurrentEncoder, fast_recurrence, recurrence
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.layers.recurrence import Mode, RecurrentLayers, plain_scan, scan
from keras_luong.models import build

pytestmark = pytest.mark.tensorflow  # whose loop it is
STEPS, BATCH, WIDTH, UNITS = 6, 3, 4, 5


def problem(seed=0):
    """A step with every kind of ingredient: products of one and of two, a shared
    weight, a rank-3 product, what is added to products, products with each sentence's
    own matrix, a variable outside `project`, constants, an int state."""
    rng = np.random.default_rng(seed)

    def make(*shape):
        return tf.Variable(rng.normal(size=shape, scale=0.5).astype("float32"))

    w, u, v, scale = make(WIDTH, UNITS), make(UNITS, UNITS), make(UNITS, 2), make(2)
    inputs, memory = make(STEPS, BATCH, WIDTH), make(BATCH, 7, UNITS)
    start = make(BATCH, UNITS)

    def step(x, states, constants, project):
        h, position = states
        h = ops.tanh(project((w, u), (x, h), plus=project(u, h)))
        memory = constants["memory"]
        own = project(memory, project(memory, h[:, None], transposed=True))
        h = h + ops.sum(memory, axis=1) + 0.1 * own[:, 0]
        y = project(v, h[:, None], plus=ops.sin(x)[:, None, :2])[:, 0] * scale
        return (y, ops.sin(h)), [h, position + 1]

    variables = [w, u, v, scale, inputs, memory, start]

    def run(scan, mask=None):
        states = [tf.convert_to_tensor(start), tf.zeros([BATCH, 1], tf.int32)]
        constants = {"memory": tf.convert_to_tensor(memory)}
        return scan(step, tf.convert_to_tensor(inputs), states, constants, mask)

    return run, variables


def numpy_run(run_variables, mask=None):
    w, u, v, scale, inputs, memory, h = (x.numpy() for x in run_variables)
    position, ys, zs = np.zeros((BATCH, 1), "int32"), [], []
    for t in range(STEPS):
        new = np.tanh(inputs[t] @ w + h @ u + h @ u)
        own = np.einsum("bn,bsn,bsm->bm", new, memory, memory)
        new = new + memory.sum(1) + 0.1 * own
        keep = np.ones((BATCH, 1), bool) if mask is None else mask[t][:, None]
        ys.append(np.where(keep, (new @ v + np.sin(inputs[t][:, :2])) * scale, 0))
        zs.append(np.where(keep, np.sin(new), 0))
        h, position = np.where(keep, new, h), position + keep
    return np.stack(ys), np.stack(zs), h, position


MASK = np.arange(STEPS)[:, None] < [6, 4, 0]


@pytest.mark.parametrize("scan", [plain_scan, fast_scan])
@pytest.mark.parametrize("mask", [None, MASK, MASK[::-1]])
def test_scan_equals_numpy(scan, mask):
    run, variables = problem()
    (y, z), (h, position) = run(scan, mask)
    for result, expected in zip(
        (y, z, h, position), numpy_run(variables, mask), strict=True
    ):
        np.testing.assert_allclose(result, expected, atol=1e-5)


def gradients_of(run, variables, scan, mask):
    with tf.GradientTape() as tape:
        (y, z), (h, _) = run(scan, mask)
        # Weights that differ everywhere, so that no error can cancel.
        flat = tf.concat([tf.reshape(x, [-1]) for x in (y, z, h)], 0)
        loss = tf.reduce_sum(flat * tf.sin(tf.range(float(flat.shape[0]))))
    return tape.gradient(loss, variables)


def in_one(run, variables, mask):
    """The tape is where the loop is."""
    one = lambda: gradients_of(run, variables, fast_scan, mask)  # noqa: E731
    return tf.function(one, autograph=False)()


def under_xla(run, variables, mask):
    one = lambda: gradients_of(run, variables, fast_scan, mask)  # noqa: E731
    return tf.function(one, jit_compile=True)()


def in_another(run, variables, mask):
    """The loop is in a function, the tape around it."""

    def inner(scan, mask):
        return tf.function(lambda: run(scan, mask))()

    return gradients_of(inner, variables, fast_scan, mask)


def in_two(run, variables, mask):
    return tf.function(lambda: in_another(run, variables, mask))()


def in_training(step, *args):
    """`scan`, which chooses a loop, of a step that takes no mode."""

    def with_mode(x, states, constants, mode):
        return step(x, states, constants, mode.project)

    return scan(with_mode, *args, mode=Mode(training=True))


def in_a_branch(run, variables, mask, around=lambda loop: loop):
    always = tf.Variable(True)

    def inner(scan, mask):
        loop = around(lambda: run(scan, mask))
        return tf.cond(always, loop, loop)

    return tf.function(lambda: gradients_of(inner, variables, in_training, mask))()


def in_a_function_in_a_branch(run, variables, mask):
    return in_a_branch(run, variables, mask, tf.function)


WAYS = {
    way.__name__: way
    for way in (
        in_one,
        under_xla,
        in_another,
        in_two,
        in_a_branch,
        in_a_function_in_a_branch,
    )
}


@pytest.mark.parametrize(
    "way, compiled, mask",
    [
        ("in_one", False, MASK),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *((way, False, None) for way in WAYS),
                *((way, False, MASK) for way in WAYS if way != "in_one"),
                # As by itself on a GPU; what is around the loops is not compiled.
                *((way, True, MASK) for way in ("in_one", "in_another")),
                ("in_one", True, None),
            )
        ),
    ],
)
def test_both_loops_have_the_same_gradients(way, compiled, mask, monkeypatch):
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", compiled)
    run, variables = problem()
    expected = gradients_of(run, variables, plain_scan, mask)
    for plain, fast in zip(expected, WAYS[way](run, variables, mask), strict=True):
        assert np.abs(plain).max() > 1e-3
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_ids_as_inputs_and_a_part_of_the_final_states(compiled, monkeypatch):
    """There is no gradient of the one; that of the other is not whole."""
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", compiled)
    rng = np.random.default_rng(0)
    u, scale, start, bias = (
        tf.Variable(rng.normal(size=shape).astype("float32"))
        for shape in ((3, 3), (3,), (2, 3), (3,))
    )
    ids = tf.constant([[[1], [2]], [[0], [3]]])  # [T, B, 1]

    def step(x, states, constants, project):
        h = project(u, states[0]) + scale * ops.cast(x, "float32") + constants
        return (ops.tanh(h),), [ops.tanh(h)]

    def gradients(scan):
        with tf.GradientTape() as tape:
            first = [tf.convert_to_tensor(start)]
            (y,), (h,) = scan(step, ids, first, tf.convert_to_tensor(bias))
            loss = tf.reduce_sum(y**2) + tf.reduce_sum(tf.gather(h, [1]) ** 3)
        return tape.gradient(loss, [u, scale, start, bias])

    for one, other in zip(
        tf.function(gradients, autograph=False)(fast_scan),
        gradients(plain_scan),
        strict=True,
    ):
        assert np.abs(other).min() > 1e-6
        np.testing.assert_allclose(one, other, rtol=1e-4)


def test_only_training_in_a_graph_takes_the_fast_loop(monkeypatch):
    """Eagerly, what one prints and steps through is what is computed."""
    taken = []  # None is returned: then the plain loop is taken after all
    monkeypatch.setattr(fast_recurrence, "fast_scan", lambda *x: taken.append(x))

    def step(x, states, constants, mode):
        return (x + states[0],), [x + states[0]]

    def run(training):
        x, first = tf.ones([3, 2, 1]), [tf.ones([2, 1])]
        return scan(step, x, first, mode=Mode(training))[0][0]

    for training, graph in ((False, False), (True, False), (False, True), (True, True)):
        outputs = tf.function(run)(training) if graph else run(training)
        np.testing.assert_array_equal(outputs[:, 0, 0], [2, 3, 4])
        assert len(taken) == (training and graph)


def test_random_numbers_are_never_drawn_again():
    seeds = keras.random.SeedGenerator(1)

    def step(x, states, constants, project):
        del constants, project
        return (x * keras.random.normal((BATCH, WIDTH), seed=seeds),), states

    x, start = tf.ones([STEPS, BATCH, WIDTH]), tf.ones([BATCH, 1])

    def loss():
        return tf.reduce_sum(in_training(step, x, [start])[0][0])

    def gradients(loss):
        with tf.GradientTape() as tape:
            tape.watch(x)
            drawn = loss()
        return drawn, tape.gradient(drawn, x)

    inside, outside = (
        tf.function(x, autograph=False) for x in (lambda: gradients(loss), loss)
    )
    for drawn, gradient in (inside(), gradients(outside)):
        np.testing.assert_allclose(tf.reduce_sum(gradient), drawn, rtol=1e-5)


def test_shapes_may_be_dynamic():

    def step(x, states, constants, project):
        return (project(constants, x),), states

    weight = keras.ops.ones((WIDTH, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, None, WIDTH])], autograph=False)
    def dynamic(inputs):
        start = tf.zeros([tf.shape(inputs)[1], 1])
        (y,), _ = fast_scan(step, inputs, [start], weight)
        return y

    for shape in ((3, 2, WIDTH), (5, 1, WIDTH)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        expected = np.repeat(x.sum(-1, keepdims=True), 2, -1)
        np.testing.assert_allclose(dynamic(x), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_over_many_rows_lose_nothing_in_half(dtype):
    bias = tf.Variable(tf.zeros([2]))

    def step(x, states, constants, project):
        del constants
        return (project(tf.eye(2, dtype=dtype), x, bias=bias),), states

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            start = tf.zeros([100, 1], dtype)
            (y,), _ = fast_scan(step, tf.ones([50, 100, 2], dtype), [start])
            loss = tf.reduce_sum(tf.cast(y, tf.float32))
        return tape.gradient(loss, bias)

    np.testing.assert_allclose(gradient(), [5000.0] * 2, rtol=1e-2)


@pytest.mark.parametrize("shape", [(UNITS,), (1, UNITS), (BATCH, 1), (BATCH, UNITS)])
def test_what_is_added_to_a_product_may_be_broadcast(shape):
    weight, plus = tf.Variable(tf.eye(UNITS)), tf.Variable(tf.fill(shape, 0.3))
    x = tf.random.normal([STEPS, BATCH, UNITS])

    def step(x, states, constants, project):
        new = ops.tanh(project(weight, states[0], plus=constants[0] * x[0, 0]))
        return (ops.sin(new + x),), [new]

    @tf.function(autograph=False)
    def gradients(scan):
        with tf.GradientTape() as tape:
            start = tf.zeros([BATCH, UNITS])
            (y,), _ = scan(step, x, [start], [tf.convert_to_tensor(plus)])
            loss = tf.reduce_sum(y**2)
        return tape.gradient(loss, [weight, plus])

    for ours, expected in zip(gradients(fast_scan), gradients(plain_scan), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def test_a_matrix_that_changes_is_refused():
    """Its gradient could not be taken after the loop."""

    def step(x, states, constants, project):
        del constants
        (h,) = states
        own = h[:, :, None] * x[:, None]
        return (project(own, x[:, None], transposed=True)[:, 0],), [h]

    x, h = tf.ones([STEPS, BATCH, WIDTH]), tf.ones([BATCH, UNITS])
    with pytest.raises(ValueError, match="the same at every step"):
        fast_scan(step, x, [h])


# cuDNN itself needs a GPU. What is tested here is the way to Keras's own layers.

RIGHT = np.arange(5)[:, None] < [5, 3, 1]
EMPTY = np.arange(5)[:, None] < [5, 3, 0]


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
    "cell_type, backwards, mask",
    [
        ("lstm", True, RIGHT),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("gru", True, RIGHT),
                ("gru", False, None),
                ("lstm", False, RIGHT),
                ("lstm", True, None),
                ("lstm", True, RIGHT[::-1]),
                ("lstm", False, EMPTY),
            )
        ),
    ],
)
def test_keras_computes_what_the_loop_does(cell_type, backwards, mask, monkeypatch):
    base, layer = make(cell_type)
    rng = np.random.default_rng(0)
    x = tf.constant(rng.normal(size=(5, BATCH, WIDTH)), tf.float32)
    starts = rng.normal(size=(base.kind.num_states, BATCH, UNITS))
    starts = [tf.constant(state, tf.float32) for state in starts]
    scale = tf.constant(rng.normal(size=(5, BATCH, UNITS)), tf.float32)

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


def test_a_model_without_input_feeding_is_all_kerass(monkeypatch):
    encoder = RecurrentEncoder(UNITS, bidirectional="first")
    cell = InputFeedingDecoderCell(
        UNITS, LuongAttention(), 2, input_feeding=False, residual=True, dropout=0.3
    )
    decoder = InputFeedingDecoder(cell)
    x = np.random.default_rng(0).normal(size=(3, 5, UNITS)).astype("float32")
    decoder(x, encoder(x)[0])

    def compute():
        keras.utils.set_random_seed(1)
        for seeds in (encoder.seed_generator, cell.seed_generator):
            seeds.state.assign([1, 2])
        mask = RIGHT.T
        memory, *states = encoder(x, mask=mask, training=True)
        options = {"mask": mask, "initial_state": states * 2, "return_state": True}
        return decoder(x, memory, mask, **options, training=True)

    loop, through_keras, calls = both_ways(monkeypatch, compute)
    assert calls == 4  # 2 of the encoder's and 2 of the decoder's
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
    x = tf.ones([5, BATCH, WIDTH])
    states = [tf.ones([BATCH, UNITS])] * 2
    base.scan_layer(lstm, x, states)
    base.scan_layer(lstm, x, states, noise=tf.ones([BATCH, UNITS]), training=True)
    lstm.use_cudnn = False
    base.scan_layer(lstm, x, states, training=True)
    assert not ran
    lstm.use_cudnn = "auto"
    base.scan_layer(lstm, x, states, training=True)
    assert ran


def test_xla_is_taken_where_one_says_so(monkeypatch):
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    model = build("small", 9, 9, units=6)
    held = model.encoder.forward_layers[0]
    model.compile("sgd")
    assert not model.jit_compile and recurrence.runs_on_cudnn(held)
    model.compile("sgd", jit_compile=True)
    assert model.jit_compile and not recurrence.runs_on_cudnn(held)


@pytest.mark.slow
@pytest.mark.parametrize("scan", [plain_scan, fast_scan])
def test_a_persistent_tape_may_ask_twice(scan):
    run, variables = problem()

    @tf.function
    def both():
        with tf.GradientTape(persistent=True) as tape:
            (y, z), _ = run(scan)
            losses = tf.reduce_sum(y), tf.reduce_sum(z)
        return [
            tape.gradient(loss, variables, unconnected_gradients="zero")
            for loss in losses
        ]

    @tf.function
    def alone(i):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(plain_scan)[0][i])
        return tape.gradient(loss, variables, unconnected_gradients="zero")

    for i, gradients in enumerate(both()):
        for one, other in zip(gradients, alone(i), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("plus", [None, (1, UNITS), (BATCH, UNITS)])
def test_a_product_of_what_has_no_gradient_has_one_itself(plus):
    """Of ids, say, or behind a `stop_gradient`; and what is added may be the larger."""
    weight = tf.Variable(tf.random.normal([WIDTH, UNITS], seed=0))
    added = None if plus is None else tf.Variable(tf.fill(plus, 0.1))
    ids = tf.constant([[[1], [0], [3]], [[2], [2], [1]]])

    def step(x, states, constants, project):
        rows = tf.one_hot(x[:1, 0] if plus == (BATCH, UNITS) else x[:, 0], WIDTH)
        extra = None if added is None else tf.convert_to_tensor(added)
        h = ops.tanh(project(weight, rows, plus=extra) + states[0])
        return (h,), [h]

    @tf.function
    def gradient(scan):
        with tf.GradientTape() as tape:
            (y,), _ = scan(step, ids, [tf.zeros([BATCH, UNITS])])
            loss = tf.reduce_sum(ops.sin(y))
        return tape.gradient(loss, weight)

    np.testing.assert_allclose(gradient(fast_scan), gradient(plain_scan), atol=1e-5)
    assert np.abs(gradient(fast_scan)).max() > 0.1
