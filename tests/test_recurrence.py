import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_luong.layers import fast_recurrence
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.layers.recurrence import Mode, plain_scan, scan

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
        loss = sum(
            tf.reduce_sum(
                x
                * tf.reshape(
                    tf.sin(tf.range(tf.cast(tf.size(x), tf.float32))), tf.shape(x)
                )
            )
            for x in (y, z, h)
        )
    return tape.gradient(loss, variables)


def in_one(run, variables, mask):
    """The tape is where the loop is."""
    return tf.function(lambda: gradients_of(run, variables, fast_scan, mask))()


def in_another(run, variables, mask):
    """The loop is in a function, the tape around it."""

    def inner(scan, mask):
        return tf.function(lambda: run(scan, mask))()

    return gradients_of(inner, variables, fast_scan, mask)


def in_two(run, variables, mask):
    return tf.function(lambda: in_another(run, variables, mask))()


def in_a_branch(run, variables, mask, around=lambda loop: loop):
    always = tf.Variable(True)

    def inner(scan, mask):
        loop = around(lambda: run(scan, mask))
        return tf.cond(always, loop, loop)

    def in_training(step, *args):
        def with_mode(x, states, constants, mode):
            return step(x, states, constants, mode.project)

        return scan(with_mode, *args, mode=Mode(training=True))

    return tf.function(lambda: gradients_of(inner, variables, in_training, mask))()


def in_a_function_in_a_branch(run, variables, mask):
    return in_a_branch(run, variables, mask, tf.function)


@pytest.mark.parametrize(
    "gradients",
    [
        in_one,
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in (in_a_branch, in_a_function_in_a_branch, in_another, in_two)
        ),
    ],
)
@pytest.mark.parametrize("mask", [pytest.param(None, marks=pytest.mark.slow), MASK])
def test_both_loops_have_the_same_gradients(mask, gradients):
    run, variables = problem()
    expected = gradients_of(run, variables, plain_scan, mask)
    for plain, fast in zip(expected, gradients(run, variables, mask), strict=True):
        assert np.abs(plain).max() > 1e-3
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "gradients", [in_one, pytest.param(in_another, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("mask", [pytest.param(None, marks=pytest.mark.slow), MASK])
def test_loops_that_xla_compiles_have_them_too(mask, gradients, monkeypatch):
    """As by itself on a GPU; what is around them is not compiled."""
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", True)
    run, variables = problem()
    expected = gradients_of(run, variables, plain_scan, mask)
    for plain, fast in zip(expected, gradients(run, variables, mask), strict=True):
        np.testing.assert_allclose(fast, plain, rtol=1e-4, atol=1e-5)


def test_ids_as_inputs_and_a_part_of_the_final_states():
    """There is no gradient of the one; that of the other is not whole."""
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
        tf.function(gradients)(fast_scan), gradients(plain_scan), strict=True
    ):
        assert np.abs(other).min() > 1e-6
        np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.mark.slow
def test_only_a_graph_takes_the_fast_loop(monkeypatch):
    """Eagerly, what one prints and steps through is what is computed."""
    run, _ = problem()
    taken = []
    monkeypatch.setattr(
        "keras_luong.layers.fast_recurrence.fast_scan",
        lambda *args: taken.append(args) or fast_scan(*args),
    )

    def training(step, *args):
        def with_mode(x, states, constants, mode):
            return step(x, states, constants, mode.project)

        return scan(with_mode, *args, mode=Mode(training=True))

    eager = run(training)
    assert not taken
    for one, other in zip(
        tf.nest.flatten(eager),
        tf.nest.flatten(tf.function(lambda: run(training))()),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert len(taken) == 1


def test_random_numbers_are_never_drawn_again():
    seeds = keras.random.SeedGenerator(1)

    def step(x, states, constants, project):
        del constants, project
        return (x * keras.random.normal((BATCH, WIDTH), seed=seeds),), states

    def with_mode(x, states, constants, mode):
        return step(x, states, constants, mode.project)

    x, start = tf.ones([STEPS, BATCH, WIDTH]), tf.ones([BATCH, 1])

    def loss():
        mode = Mode(training=True)
        return tf.reduce_sum(scan(with_mode, x, [start], mode=mode)[0][0])

    @tf.function
    def inside():
        with tf.GradientTape() as tape:
            tape.watch(x)
            drawn = loss()
        return drawn, tape.gradient(drawn, x)

    def outside():
        with tf.GradientTape() as tape:
            tape.watch(x)
            drawn = tf.function(loss)()
        return drawn, tape.gradient(drawn, x)

    for drawn, gradient in (inside(), outside()):
        np.testing.assert_allclose(tf.reduce_sum(gradient), drawn, rtol=1e-5)


@pytest.mark.slow
def test_the_fast_loop_works_under_xla():
    run, variables = problem()
    expected = gradients_of(run, variables, plain_scan, None)
    compiled = tf.function(
        lambda: gradients_of(run, variables, fast_scan, None), jit_compile=True
    )()
    for x, y in zip(compiled, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_gradients_equal_finite_differences():
    run, variables = problem()

    @tf.function
    def loss():
        (y, z), (h, _) = run(fast_scan, MASK)
        return tf.reduce_sum(tf.square(y)) + tf.reduce_sum(z) + tf.reduce_sum(h)

    @tf.function
    def slopes():
        with tf.GradientTape() as tape:
            value = loss.python_function()
        return tape.gradient(value, variables)

    gradients = [gradient.numpy() for gradient in slopes()]
    rng = np.random.default_rng(1)
    for variable, gradient in zip(variables, gradients, strict=True):
        direction = rng.normal(size=variable.shape).astype("float32")
        direction /= np.linalg.norm(direction)
        values, epsilon = [], 1e-2
        original = variable.numpy()
        for sign in (1, -1):
            variable.assign(original + sign * epsilon * direction)
            values.append(float(loss()))
        variable.assign(original)
        slope = (values[0] - values[1]) / (2 * epsilon)
        np.testing.assert_allclose(
            slope, np.sum(gradient * direction), rtol=2e-2, atol=2e-2
        )


def test_shapes_may_be_dynamic():

    def step(x, states, constants, project):
        return (project(constants, x),), states

    weight = keras.ops.ones((WIDTH, 2))

    @tf.function(input_signature=[tf.TensorSpec([None, None, WIDTH])])
    def dynamic(inputs):
        start = tf.zeros([tf.shape(inputs)[1], 1])
        (y,), _ = fast_scan(step, inputs, [start], weight)
        return y

    for shape in ((3, 2, WIDTH), (5, 1, WIDTH)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        expected = np.repeat(x.sum(-1, keepdims=True), 2, -1)
        np.testing.assert_allclose(dynamic(x), expected, atol=1e-5)


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

    @tf.function
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
