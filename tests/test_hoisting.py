import gc

import numpy as np
import pytest
import tensorflow as tf
from copy_translator import CopyModel
from loop_graphs import invariants, loop_bodies, size, traced

from keras_luong.decoding import BeamSearch
from keras_luong.decoding.hoisting import hoisted

X = tf.random.stateless_normal([3, 5], [1, 2])


@pytest.fixture
def kernel():
    return tf.Variable(tf.random.stateless_normal([5, 4], [3, 4]))


def twice(function, x):
    """A loop of two steps of `function`, which returns a tensor first."""
    step, like = hoisted(function, x)
    assert like[0].shape[1:] == x.shape[1:]

    def body(i, x):
        return i + 1, step(x)[0]

    return tf.while_loop(lambda i, _: i < 2, body, [0, x])[1]


def steps(kernel, scale):
    """What steps may be like, by name."""

    def product(x):
        square = tf.matmul(kernel, kernel, transpose_b=True)
        return tf.tanh(x @ tf.transpose(square)) * scale, None, {"k": kernel * 2.0}

    def with_a_loop(x):
        turned = tf.transpose(kernel)
        grown = tf.while_loop(
            lambda i, _: i < 3, lambda i, y: (i + 1, y + y @ kernel @ turned), [0, x]
        )
        return grown[1] * scale, None, {}

    def handed_on(x):
        return x, kernel, {"scale": scale}

    return {"product": product, "a loop": with_a_loop, "handed on": handed_on}


@pytest.mark.parametrize("name", steps(None, None))
def test_computes_the_same(name, kernel):
    function = tf.function(
        lambda x, scale: twice(steps(kernel, scale)[name], x), autograph=False
    )
    x, scale = X, tf.constant(0.5)
    found = function(x, scale)
    for _ in range(2):
        x, *_ = steps(kernel, scale)[name](x)
    np.testing.assert_allclose(found, x, rtol=1e-5)
    np.testing.assert_allclose(twice(steps(kernel, scale)[name], X), x, rtol=1e-5)


def test_only_what_depends_on_its_arguments_is_in_the_loop(kernel):
    function = steps(kernel, tf.constant(0.5))["product"]
    (body,) = loop_bodies(
        traced(lambda x: twice(function, x), tf.TensorSpec([None, 5]))
    )
    assert not invariants(body)
    assert size(body.node_def) == 5  # product, tanh, times scale; two counters


def test_a_variable_that_changed_is_read_again(kernel):
    function = tf.function(
        lambda x: twice(lambda x: (x * tf.reduce_sum(kernel),), x), autograph=False
    )
    for value in (1.0, 2.0):
        kernel.assign(tf.fill([5, 4], value))
        np.testing.assert_allclose(function(X), X * (20 * value) ** 2, rtol=1e-5)


@pytest.mark.slow
def test_a_loop_within_the_step_outlives_the_graph_that_it_was_traced_in():
    matrix = tf.constant([[1.0, 0], [1, 1]])

    def step(x):
        def body(i, y):
            return i + 1, y @ tf.transpose(matrix)

        return tf.while_loop(lambda i, y: i < 2, body, (0, x))[1]

    def power():
        again, _ = hoisted(step, tf.eye(2))
        return tf.while_loop(lambda x: True, again, [tf.eye(2)], maximum_iterations=3)

    found = tf.function(power, autograph=False).get_concrete_function()
    gc.collect()
    np.testing.assert_array_equal(found()[0], [[1, 6], [0, 1]])


def test_random_numbers_are_drawn_at_every_step():
    @tf.function(autograph=False)
    def draw():
        step, _ = hoisted(lambda x: (x + tf.random.uniform([100]),), tf.zeros([100]))
        return step(tf.zeros([100]))[0], step(tf.zeros([100]))[0]

    one, other = draw()
    assert len(np.unique([one, other])) > 150


@pytest.mark.parametrize("inside", [True, False])
def test_gradients_go_through_it(inside, kernel):
    function = steps(kernel, tf.constant(0.5))["product"]

    def gradient():
        with tf.GradientTape() as tape:
            y = run(X)
        return tape.gradient(y, kernel)

    run = lambda x: twice(function, x)  # noqa: E731
    if inside:
        found = tf.function(gradient, autograph=False)()
    else:
        run = tf.function(run, autograph=False)
        found = gradient()
    with tf.GradientTape() as tape:
        y = function(function(X)[0])[0]
    np.testing.assert_allclose(found, tape.gradient(y, kernel), rtol=1e-4, atol=1e-6)


def test_what_a_loop_computes_and_what_it_reads_have_names_of_their_own():
    # "sub" is the source's last place, before the loop, and a log-probability in it.
    search = BeamSearch(2, max_length=7, compact=False)
    find = tf.function(lambda ids: search(CopyModel(), ids), autograph=False)
    assert find(tf.constant([[4, 5, 3]])).ids.numpy().tolist() == [[[4, 5, 3]]]
