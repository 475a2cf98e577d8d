from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.training.optimizers import innermost, make_optimizer
from keras_luong.training.schedules import InverseSquareRoot


@pytest.mark.parametrize("name, cls", [("sgd", "SGD"), ("adam", "Adam")])
def test_by_name(name, cls):
    optimizer = make_optimizer(name, 0.25, clip_norm=3.0)
    assert isinstance(optimizer, getattr(keras.optimizers, cls))
    assert float(optimizer.learning_rate) == 0.25
    assert optimizer.global_clipnorm == 3.0


@pytest.mark.parametrize(
    "clip_norm, expected",
    [(5.0, [3.0, 4.0]), (50.0, [30.0, 40.0]), (None, [30.0, 40.0])],
)
def test_clips_the_global_norm(clip_norm, expected):
    variables = [keras.Variable(0.0), keras.Variable(0.0)]
    optimizer = make_optimizer("sgd", 1.0, clip_norm)
    optimizer.apply([tf.constant(-30.0), tf.constant(-40.0)], variables)
    np.testing.assert_allclose([v.numpy() for v in variables], expected, 1e-6)


def test_zero_means_no_clipping():
    assert make_optimizer("sgd", 1.0, 0).global_clipnorm is None


@pytest.mark.parametrize(
    "args, message",
    [(("rmsprop", 1.0), "sgd.*'rmsprop'"), (("sgd", 1.0, -1.0), "-1.0")],
)
def test_refuses(args, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(*args)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("loss_scaling", [False, True])
def test_survives_a_round_trip(name, loss_scaling):
    optimizer = make_optimizer(name, 0.5, 2.0, loss_scaling)
    config = keras.saving.serialize_keras_object(optimizer)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()


def test_an_overflow_leaves_the_weights_alone():
    variable = keras.Variable(1.0)
    optimizer = make_optimizer("sgd", 1.0, 5.0, loss_scaling=True)
    scale = float(optimizer.scale_loss(1.0))
    optimizer.apply([tf.constant(float("inf"))], [variable])
    assert float(variable) == 1.0 and float(optimizer.scale_loss(1.0)) == scale / 2
    optimizer.apply([tf.constant(0.25 * scale / 2)], [variable])
    assert float(variable) == 0.75


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_words_gradients_count_as_one(name):
    """Twice (3, 0) and once (0, 8) is a norm of 10, not √82."""
    sparse, dense = (keras.Variable(np.ones((4, 2), "float32")) for _ in range(2))
    rows = tf.constant([[3.0, 0.0], [0.0, 8.0], [3.0, 0.0]])
    gradient = tf.IndexedSlices(rows, tf.constant([2, 1, 2]), tf.constant([4, 2]))
    same = tf.constant([[0.0, 0.0], [0.0, 8.0], [6.0, 0.0], [0.0, 0.0]])
    for variable, gradients in ((sparse, gradient), (dense, same)):
        optimizer = make_optimizer(name, 0.1, 5.0)
        for _ in range(3):
            optimizer.apply([gradients], [variable])
    np.testing.assert_allclose(sparse, dense, atol=1e-6)
    if name == "sgd":
        np.testing.assert_allclose(sparse[2, 0], 1 - 3 * 0.1 * 3, atol=1e-6)


def test_counts_the_steps_that_there_were():
    """Also where the data's end comes as a surprise, once an epoch."""
    data = tf.data.Dataset.from_generator(
        lambda: iter([([1.0], [2.0])] * 3),
        output_signature=(tf.TensorSpec([1]), tf.TensorSpec([1])),
    ).batch(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(make_optimizer("adam", 0.1), "mse")
    model.fit(data, epochs=4, verbose=0)
    assert int(model.optimizer.iterations) == 12


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("loss_scaling", [False, True])
def test_accumulated_batches_are_one_batch(name, loss_scaling):
    """The mean of their gradients is clipped, words' rows or not."""
    words, dense = (keras.Variable(np.ones((4, 2), "float32")) for _ in range(2))
    rows = tf.constant([[[3.0, 0.0], [0.0, 8.0]], [[0.0, 4.0], [60.0, 0.0]]])
    optimizer = make_optimizer(
        name, 0.1, 5.0, loss_scaling, gradient_accumulation_steps=2
    )
    scale = float(optimizer.scale_loss(1.0))
    seen = []
    for step in range(4):
        indices = tf.constant([[2, 1], [2, 2]])[step % 2]
        gradient = tf.IndexedSlices(
            scale * rows[step % 2], indices, tf.constant([4, 2])
        )
        optimizer.apply([gradient], [words])
        seen.append(words.numpy())
    np.testing.assert_array_equal(seen[0], np.ones((4, 2)))
    np.testing.assert_array_equal(seen[1], seen[2])
    one = make_optimizer(name, 0.1, 5.0)
    mean = np.zeros((4, 2), "float32")
    mean[1], mean[2] = [0.0, 4.0], [31.5, 2.0]
    for _ in range(2):
        one.apply([tf.constant(mean)], [dense])
    np.testing.assert_allclose(words, dense, atol=1e-6)
    assert int(optimizer.iterations) == 2
    total, steps = innermost(optimizer).norms.numpy()
    assert steps == 2
    np.testing.assert_allclose(total, 2 * np.linalg.norm(mean), 1e-6)


@pytest.mark.parametrize("loss_scaling", [False, True])
def test_schedules_go_by_updates_not_batches(loss_scaling):
    variable = keras.Variable(0.0)
    schedule = InverseSquareRoot(1.0, warmup_steps=4)
    optimizer = make_optimizer(
        "sgd", schedule, None, loss_scaling, gradient_accumulation_steps=3
    )
    gradient, seen = tf.constant(float(optimizer.scale_loss(-1.0))), [0.0]
    for _ in range(6):
        for _ in range(3):
            optimizer.apply([gradient], [variable])
        seen.append(float(variable.value))
    rates = [1 / 4, 2 / 4, 3 / 4, 1.0, (4 / 5) ** 0.5, (4 / 6) ** 0.5]
    np.testing.assert_allclose(np.diff(seen), rates, 1e-5)


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("loss_scaling", [False, True])
def test_weight_decay_shrinks_matrices(name, loss_scaling):
    names = ("kernel", "recurrent_kernel", "embeddings", "bias", "gamma")
    weights = [keras.Variable(np.ones((4, 2), "float32"), name=name) for name in names]
    weights.append(keras.Variable(np.ones((4,), "float32"), name="scale"))
    optimizer = make_optimizer(name, 0.5, loss_scaling=loss_scaling, weight_decay=0.1)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    weights.append(keras.Variable(np.ones((4, 2), "float32"), name="kernel"))
    for made in (optimizer, again):
        innermost(made).exclude_from_weight_decay([weights[-1]])  # the user's own
        made.apply([tf.zeros(w.shape) for w in weights], weights)
    shrunk = (1 - 0.5 * 0.1) ** 2
    for weight, expected in zip(weights, [shrunk] * 3 + [1] * 4, strict=True):
        np.testing.assert_allclose(weight, expected, rtol=1e-6, err_msg=weight.name)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"gradient_accumulation_steps": 0}, ValueError, "steps.*0"),
        ({"gradient_accumulation_steps": 1.5}, TypeError, "steps.*1.5"),
        ({"ema_momentum": 1.0}, ValueError, "ema_momentum.*1.0"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay.*-0.1"),
        ({"beta_2": 0.98}, ValueError, "beta_2 is Adam's.*0.98 for 'sgd'"),
    ],
)
def test_refuses_options(options, error, message):
    with pytest.raises(error, match=message):
        make_optimizer("sgd", 1.0, **options)
