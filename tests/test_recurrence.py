"""The loops, which are held equal in values and derivatives; and the way to cuDNN."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from decoding_attentions import ATTENTIONS
from keras import ops

import keras_luong as kl
from keras_luong.layers import fast_recurrence, recurrence
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.fast_recurrence import fast_scan
from keras_luong.layers.recurrence import Mode, RecurrentLayers, plain_scan, scan
from keras_luong.models import build
from keras_luong.training.fused_model import linear_crossentropy
from keras_luong.training.losses import token_nll

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
        x = tf.convert_to_tensor(inputs)
        (y, z), (h, position) = scan(step, x, states, constants, mask)
        return y, z, h, position

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


def close(found, expected, **near):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, **near)


MASK = np.arange(STEPS)[:, None] < [6, 4, 0]


@pytest.mark.parametrize("scan", [plain_scan, fast_scan])
@pytest.mark.parametrize("mask", [None, MASK, MASK[::-1]])
def test_scan_equals_numpy(scan, mask):
    run, variables = problem()
    close(run(scan, mask), numpy_run(variables, mask), atol=1e-5)


# Derivatives: of `outputs()`, with respect to all that a step can be made of.


def first(outputs, variables):
    """Of a loss in which no error can cancel: its weights differ everywhere."""
    with tf.GradientTape() as tape:
        flat = tf.concat([tf.reshape(x, [-1]) for x in outputs()], 0)
        loss = tf.reduce_sum(flat * tf.sin(tf.range(float(flat.shape[0]))))
    return loss, *tape.gradient(loss, variables)


def penalty(outputs, variables, sources=None, power=1):
    """`Σ (d loss/d source)²` and its gradients: with a power of 1, the gradient that
    the outputs get is constant."""
    sources = variables if sources is None else sources
    with tf.GradientTape() as outer:
        with tf.GradientTape() as inner:
            inner.watch(sources)
            ys = (tf.cast(y, sources[0].dtype) for y in outputs())
            loss = sum(tf.reduce_sum(y**power) for y in ys)
        slopes = inner.gradient(loss, sources)
        value = sum(tf.reduce_sum(slope**2) for slope in slopes)
    return value, *outer.gradient(value, variables, unconnected_gradients="zero")


def by_symbols(outputs, variables):
    """By `tf.gradients`, which only graphs have."""
    if tf.executing_eagerly():
        return penalty(outputs, variables)
    handles = [variable.handle for variable in variables]
    slopes = tf.gradients(list(outputs()), handles)
    value = sum(tf.reduce_sum(slope**2) for slope in slopes)
    return value, *tf.gradients(value, handles)


ORDERS = {
    "first": first,
    "second": penalty,
    "second, of squares": functools.partial(penalty, power=2),
    "second, by symbols": by_symbols,
}


def check(found, expected, order="second", tolerance=1e-4):
    scale = max(np.abs(x).max() for x in expected[1:])
    assert scale > 1e-3
    near = {"atol": tolerance * scale}
    if order == "first":
        near = {"rtol": 1e-4, "atol": 2e-5}
        assert all(np.abs(x).max() > 1e-3 for x in expected[1:])
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance)
    close(found[1:], expected[1:], **near)


def in_a_graph(function, **options):
    return tf.function(function, autograph=False, **options)()


def in_one(derive, outputs):
    """The tape is where the loop is."""
    return in_a_graph(lambda: derive(outputs))


def under_xla(derive, outputs):
    return in_a_graph(lambda: derive(outputs), jit_compile=True)


def in_another(derive, outputs):
    """The loop is in a function, the tape around it."""
    return derive(lambda: in_a_graph(outputs))


def in_two(derive, outputs):
    return in_a_graph(lambda: in_another(derive, outputs))


def in_training(step, *args):
    """`scan`, which chooses a loop, of a step that takes no mode."""

    def with_mode(x, states, constants, mode):
        return step(x, states, constants, mode.project)

    return scan(with_mode, *args, mode=Mode(training=True))


def in_a_branch(derive, outputs, around=lambda function: function()):
    """Which may be a call of a function."""
    always, branch = tf.Variable(True), lambda: around(outputs)
    return in_one(derive, lambda: tf.cond(always, branch, branch))


WAYS = [in_one, under_xla, in_another, in_two]
BRANCHES = [in_a_branch, lambda *x: in_a_branch(*x, around=in_a_graph)]


LOOPS = [
    *(("first", way, False, MASK) for way in (in_one, in_a_branch)),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            *(("first", way, False, None) for way in (*WAYS, *BRANCHES)),
            *(("first", way, False, MASK) for way in (*WAYS[1:], BRANCHES[1])),
            # As by itself on a GPU; what is around the loops is not compiled.
            *(("first", way, True, MASK) for way in (in_one, in_another)),
            ("first", in_one, True, None),
            *((order, way, False, MASK) for order in list(ORDERS)[1:3] for way in WAYS),
            *((order, in_one, True, MASK) for order in list(ORDERS)[1:3]),
            ("second, by symbols", in_one, False, MASK),
        )
    ),
]


@pytest.mark.parametrize("order, way, compiled, mask", LOOPS)
def test_l2_loops_have_the_same_derivatives(order, way, compiled, mask, monkeypatch):
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", compiled)
    run, variables = problem()

    def derive(outputs):
        return ORDERS[order](outputs, variables)

    loop = in_training if way in BRANCHES else fast_scan
    expected = derive(lambda: run(plain_scan, mask)[:3])
    check(way(derive, lambda: run(loop, mask)[:3]), expected, order)


CLOSING = {
    "a tensor": lambda x, h, k, w, project: project(w, h) * k + x,
    "a branch": lambda x, h, k, w, project: tf.cond(
        tf.reduce_sum(x) > 0, lambda: project(w, h), lambda: k + h
    ),
    "complex": lambda x, h, k, w, project: project(w, h) + x * tf.math.real(k),
    "a list": lambda x, h, k, w, project: project(w, h) + x * k.read(1),
}
LIST = functools.partial(tf.TensorArray, "float32", 2, clear_after_read=False)
MAKING = {
    "complex": lambda gain: tf.complex(gain, tf.cos(gain)),
    "a list": lambda gain: LIST().unstack([gain, gain]),
}


@pytest.mark.parametrize("around", [None, "function", "cond"])
@pytest.mark.parametrize("kind", CLOSING)
def test_l2_whatever_a_step_is_made_of(kind, around):
    """It may close over what has a gradient; or the plain loop is taken."""
    weight, gain, x = variable(3, 3), variable(2, 3), variable(4, 2, 3).value()

    def derive(order, loop=in_training, around=None):
        def run():
            gained = tf.sin(gain)
            closed = MAKING.get(kind, tf.identity)(gained)

            def step(x, states, constants, project):
                h = CLOSING[kind](x, states[0], closed, weight, project)
                return (h := ops.tanh(h + constants + gained),), [h]

            return loop(step, x, [x[0]], gained)[0][0]

        def outputs():
            if around == "function":
                return [in_a_graph(run)]
            return [tf.cond(tf.size(x) > 0, run, run) if around else run()]

        return ORDERS[order](outputs, [gain, weight])

    for order in ("first", "second") if around is None else ("first",):
        found = in_a_graph(lambda order=order: derive(order, around=around))
        check(found, derive(order, plain_scan), order)


def test_l2_nothing_more_runs_where_nobody_asks():
    run, variables = problem()

    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(run(fast_scan)[0])
        return tape.gradient(loss, variables[:4])

    graph = tf.function(gradients, autograph=False).get_concrete_function().graph
    types = [operation.type for operation in graph.get_operations()]
    assert "PreventGradient" not in types
    assert sum("While" in x for x in types) == 2  # there and back


@pytest.mark.slow
@pytest.mark.parametrize("scan", [plain_scan, fast_scan])
def test_a_persistent_tape_may_ask_twice(scan):
    run, variables = problem()

    def both(scan=scan):
        with tf.GradientTape(persistent=True) as tape:
            losses = [tf.reduce_sum(y) for y in run(scan)[:2]]
        zero = {"unconnected_gradients": "zero"}
        return [tape.gradient(loss, variables, **zero) for loss in losses]

    for gradients, expected in zip(in_a_graph(both), both(plain_scan), strict=True):
        close(gradients, expected, rtol=1e-4, atol=1e-5)


def agree(step, inputs, start, constants, variables, near=1e-5):
    """Gradients of both loops, also of a part of the final states."""

    def gradients(scan):
        with tf.GradientTape() as tape:
            first = [tf.convert_to_tensor(start)]
            (y,), (h,) = scan(step, inputs, first, constants())
            loss = tf.reduce_sum(tf.sin(y)) + tf.reduce_sum(tf.gather(h, [1]) ** 3)
        return tape.gradient(loss, variables)

    found, expected = in_a_graph(lambda: gradients(fast_scan)), gradients(plain_scan)
    assert all(np.abs(x).max() > 1e-2 for x in expected)
    close(found, expected, rtol=1e-4, atol=near)


def variable(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return tf.Variable(rng.normal(size=shape), dtype="float32")


@pytest.mark.parametrize("compiled", [False, True])
def test_ids_as_inputs_have_no_gradient(compiled, monkeypatch):
    monkeypatch.setattr(fast_recurrence, "COMPILE_LOOPS", compiled)
    u, scale, bias = (variable(*shape) for shape in ((3, 3), (3,), (3,)))
    start = variable(2, 3, seed=1)
    ids = tf.constant([[[1], [2]], [[0], [3]]])  # [T, B, 1]

    def step(x, states, constants, project):
        h = project(u, states[0]) + scale * ops.cast(x, "float32") + constants
        return (ops.tanh(h),), [ops.tanh(h)]

    agree(step, ids, start, lambda: tf.convert_to_tensor(bias), [u, scale, start, bias])


@pytest.mark.parametrize("shape", [(UNITS,), (1, UNITS), (BATCH, 1), (BATCH, UNITS)])
def test_what_is_added_to_a_product_may_be_broadcast(shape):
    weight, plus = tf.Variable(tf.eye(UNITS)), tf.Variable(tf.fill(shape, 0.3))
    x = variable(STEPS, BATCH, UNITS).value()

    def step(x, states, constants, project):
        new = ops.tanh(project(weight, states[0], plus=constants[0] * x[0, 0]))
        return (ops.sin(new + x),), [new]

    start = tf.zeros([BATCH, UNITS])
    agree(step, x, start, lambda: [tf.convert_to_tensor(plus)], [weight, plus])


@pytest.mark.parametrize("plus", [None, (1, UNITS), (BATCH, UNITS)])
def test_a_product_of_what_has_no_gradient_has_one_itself(plus):
    """Of ids, say, or behind a `stop_gradient`; and what is added may be the larger."""
    weight, added = variable(WIDTH, UNITS), tf.fill(plus or (), 0.1)
    ids = tf.constant([[[1], [0], [3]], [[2], [2], [1]]])

    def step(x, states, constants, project):
        rows = tf.one_hot(x[:1, 0] if plus == (BATCH, UNITS) else x[:, 0], WIDTH)
        h = project(weight, rows, plus=constants if plus else None)
        return (ops.tanh(h + states[0]),), [ops.tanh(h + states[0])]

    start, added = tf.zeros([BATCH, UNITS]), tf.Variable(added)
    variables = [weight, added] if plus else [weight]
    agree(step, ids, start, lambda: tf.convert_to_tensor(added), variables)


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


def test_several_steps_an_execution_take_it_too(monkeypatch):
    """Keras puts each of them into a `tf.cond`, but its tape as well."""
    taken, fast = [], fast_recurrence.fast_scan
    spied = lambda *x: taken.append(found := fast(*x)) or found  # noqa: E731
    monkeypatch.setattr(fast_recurrence, "fast_scan", spied)
    model, ids = build("small", 9, 9, units=2), np.ones([4, 3], "int32")
    model.compile("sgd", kl.SequenceCrossentropy(), steps_per_execution=2)
    model.fit({"source": ids, "target": ids}, ids, batch_size=2, verbose=0)
    assert taken and None not in taken


def test_random_numbers_are_never_drawn_again():
    seeds = keras.random.SeedGenerator(1)

    def step(x, states, constants, project):
        return (x * keras.random.normal((BATCH, WIDTH), seed=seeds),), states

    x, start = tf.ones([STEPS, BATCH, WIDTH]), tf.ones([BATCH, 1])

    def loss():
        return tf.reduce_sum(in_training(step, x, [start])[0][0])

    def gradients(loss):
        with tf.GradientTape() as tape:
            tape.watch(x)
            drawn = loss()
        return drawn, tape.gradient(drawn, x)

    both = (lambda: gradients(loss)), loss
    inside, outside = (tf.function(x, autograph=False) for x in both)
    for drawn, gradient in (inside(), gradients(outside)):
        np.testing.assert_allclose(tf.reduce_sum(gradient), drawn, rtol=1e-5)


@pytest.mark.parametrize("scan", [plain_scan, fast_scan])
def test_shapes_may_be_dynamic(scan):
    """Of the last output, too."""

    def step(x, states, constants, project):
        weight, source, _ = constants
        return (project(weight, x), x[:, :1] * source), states

    specs = [tf.TensorSpec(shape) for shape in ([None, None, WIDTH], [None])]

    @tf.function(input_signature=specs, autograph=False)
    def dynamic(inputs, source):
        start = tf.zeros([tf.shape(inputs)[1], 1])
        return scan(step, inputs, [start], (ops.ones((WIDTH, 2)), source, None))[0]

    for shape in ((3, 2, WIDTH), (5, 1, WIDTH)):
        x = np.random.default_rng(0).normal(size=shape).astype("float32")
        expected = np.repeat(x.sum(-1, keepdims=True), 2, -1), x[..., :1] * [1, 2, 3]
        close(dynamic(x, [1.0, 2.0, 3.0]), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sums_over_many_rows_lose_nothing_in_half(dtype):
    bias = tf.Variable(tf.zeros([2]))

    def step(x, states, constants, project):
        return (project(tf.eye(2, dtype=dtype), x, bias=bias),), states

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            start = tf.zeros([100, 1], dtype)
            (y,), _ = fast_scan(step, tf.ones([50, 100, 2], dtype), [start])
            loss = tf.reduce_sum(tf.cast(y, tf.float32))
        return tape.gradient(loss, bias)

    np.testing.assert_allclose(gradient(), [5000.0] * 2, rtol=1e-2)


def test_a_matrix_that_changes_is_refused():
    """Its gradient could not be taken after the loop."""

    def step(x, states, constants, project):
        own = states[0][:, :, None] * x[:, None]
        return (project(own, x[:, None], transposed=True)[:, 0],), states

    x, h = tf.ones([STEPS, BATCH, WIDTH]), tf.ones([BATCH, UNITS])
    with pytest.raises(ValueError, match="the same at every step"):
        fast_scan(step, x, [h])


# Gradient penalties of layers: the reference is the plain loop, which eager code takes.

SIZE = 3


def sequences(dtype="float32"):
    """Inputs [B, T, E] and memory [B, S, H]; and their masks."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(3, n, w)) for n, w in ((4, 2), (5, SIZE))]
    masks = [np.arange(n) < np.array([[n], [2], [1]]) for n in (4, 5)]
    return [tf.constant(x, dtype) for x in arrays], masks


def encoder(cell_type):
    """-> a layer, what makes its outputs in training, its inputs."""
    layer = kl.RecurrentEncoder(SIZE, bidirectional=True, cell_type=cell_type)
    (x, _), (mask, _) = sequences()
    return layer, lambda: layer(x, mask=mask, training=True), [x]


def decoder(cell_type, attention=None, recurrent_dropout=0.3, **options):
    attention = attention or kl.LuongAttention("general", dtype=options.get("dtype"))
    options |= {"cell_type": cell_type, "recurrent_dropout": recurrent_dropout}
    cell = kl.InputFeedingDecoderCell(SIZE, attention, seed=1, **options)
    layer = kl.InputFeedingDecoder(cell)
    sources, (mask, memory_mask) = sequences(layer.variable_dtype)

    def outputs():
        cell.seed_generator.state.assign([0, 1])  # the same units are dropped
        return [layer(*sources, memory_mask=memory_mask, mask=mask, training=True)]

    return layer, outputs, sources


OTHERS = {
    **{
        name: ATTENTIONS[name]
        for name in ("coverage", "local-m", "local-p", "monotonic")
    },
    "location": lambda: kl.LuongAttention("location", max_source_length=9),
    "cosine": lambda: kl.LuongAttention("cosine"),
}
LAYERS = {
    **{f"encoder {kind}": lambda kind=kind: encoder(kind) for kind in CELL_TYPES},
    **{f"decoder {kind}": lambda kind=kind: decoder(kind) for kind in CELL_TYPES},
    "not fed": lambda: decoder("lstm", input_feeding=False),
    # The step is computed again after the layer's call, which casts its weights.
    "mixed": lambda: decoder("layer_norm_lstm", dtype="mixed_float16"),
    **{name: lambda x=make: decoder("lstm", x()) for name, make in OTHERS.items()},
}


@pytest.mark.slow
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("name", LAYERS)
def test_l2_a_gradient_penalty_of_any_layer(name, power):
    layer, outputs, sources = LAYERS[name]()
    outputs()
    weights = [w.value for w in layer.trainable_weights]
    expected = penalty(outputs, weights, sources, power)
    found = in_a_graph(lambda: penalty(outputs, weights, sources, power))
    check(found, expected, tolerance=1e-2 if name == "mixed" else 1e-4)


RUNS = [lambda function: function(), pytest.param(in_a_graph, marks=pytest.mark.slow)]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("run", RUNS)
def test_l2_a_penalty_on_the_fused_output_layer(run, power):
    rng = np.random.default_rng(0)
    sizes = (6, 3), (3, 7)
    x, kernel = (tf.Variable(rng.normal(size=n), dtype="float32") for n in sizes)
    labels, weights = tf.constant(rng.integers(0, 7, 6), tf.int32), rng.random(6)

    def fused():
        return [linear_crossentropy(x, kernel, labels, weights, 0.1, chunk=10)[0]]

    def plain():
        losses = token_nll(labels[None], tf.matmul(x, kernel)[None], 0.1)[0]
        return [tf.reduce_sum(losses * weights)]

    found = run(lambda: penalty(fused, [x, kernel], power=power))
    check(found, penalty(plain, [x, kernel], power=power))


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
    """What the loop computes; what a graph does on a GPU; how often Keras ran."""
    results, calls = [], []
    for has_gpu in (False, True):
        for layer in (keras.layers.LSTM, keras.layers.GRU):
            inner = layer.inner_loop

            def counted(self, *args, inner=inner, **kwargs):
                calls.append(self)
                return inner(self, *args, **kwargs)

            monkeypatch.setattr(layer, "inner_loop", counted)
        runs = lambda x, gpu=has_gpu: gpu and hasattr(x, "use_cudnn")  # noqa: E731
        monkeypatch.setattr(recurrence, "runs_on_cudnn", runs)
        results.append(in_a_graph(compute) if has_gpu else compute())
        assert has_gpu or not calls
        monkeypatch.undo()
    return *results, len(calls)


LATER = [("gru", True, RIGHT), ("gru", False, None), ("lstm", False, RIGHT)]
LATER += [("lstm", True, None), ("lstm", True, RIGHT[::-1]), ("lstm", False, EMPTY)]
LATER = [pytest.param(*case, marks=pytest.mark.slow) for case in LATER]


@pytest.mark.parametrize("cell_type, backwards, mask", [("lstm", True, RIGHT), *LATER])
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
            how = {"training": True, "backwards": backwards}
            y, states = base.scan_layer(layer, inputs, firsts, keep, **how)
            loss = tf.reduce_sum(y * scale) + sum(tf.reduce_sum(h**2) for h in states)
        found = tape.gradient(loss, [inputs, *firsts, *layer.weights])
        return y, *states, *map(tf.convert_to_tensor, found)

    loop, through_keras, calls = both_ways(monkeypatch, compute)
    assert calls
    close(loop, through_keras, atol=1e-4)


def test_a_model_without_input_feeding_is_all_kerass(monkeypatch):
    encoder = kl.RecurrentEncoder(UNITS, bidirectional="first")
    options = {"input_feeding": False, "residual": True, "dropout": 0.3}
    cell = kl.InputFeedingDecoderCell(UNITS, kl.LuongAttention(), 2, **options)
    decoder = kl.InputFeedingDecoder(cell)
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
    close(loop, through_keras, atol=1e-5)


def test_who_may_not(monkeypatch):
    """Inference, which is exported; recurrent dropout; simple RNNs."""
    (base, lstm), (_, simple) = make("lstm"), make("simple_rnn")
    assert not recurrence.runs_on_cudnn(lstm)  # no test has a GPU
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    assert recurrence.runs_on_cudnn(lstm) and not recurrence.runs_on_cudnn(simple)
    ran, inner = [], keras.layers.LSTM.inner_loop
    counted = lambda *x, **options: ran.append(x) or inner(*x, **options)  # noqa: E731
    monkeypatch.setattr(keras.layers.LSTM, "inner_loop", counted)
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
    model.compile("sgd")
    assert recurrence.runs_on_cudnn(held)
    in_xla = lambda runs: tf.constant(runs(held))  # noqa: E731
    assert not under_xla(in_xla, recurrence.runs_on_cudnn)
