"""Optimizers, and the schedules of their learning rates."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from small_training import small_data, small_model

from keras_luong.training.optimizers import MovingAverage, innermost, make_optimizer
from keras_luong.training.schedules import (
    InverseSquareRoot,
    cosine,
    halving,
    make_schedule,
    plateau,
)

PAIRS = [*itertools.product(["sgd", "adam"], [False, True])]
BOTH = pytest.mark.parametrize("name, loss_scaling", PAIRS)


@pytest.mark.parametrize("name, cls", [("sgd", "SGD"), ("adam", "Adam")])
def test_by_name(name, cls):
    optimizer = make_optimizer(name, 0.25, clip_norm=3.0)
    assert isinstance(optimizer, getattr(keras.optimizers, cls))
    assert float(optimizer.learning_rate) == 0.25 and not optimizer.use_ema
    norms = (make_optimizer(name, 1.0, *x).global_clipnorm for x in ((3,), (), (0,)))
    assert [*norms] == [3.0, 5.0, None]
    average = make_optimizer(name, 1.0, ema_momentum=0.9)
    assert (average.use_ema, average.ema_momentum) == (True, 0.9)
    assert make_optimizer("adam", 1.0, beta_2=0.98).beta_2 == 0.98


CLIPPED = [(5.0, [3.0, 4.0]), (50.0, [30.0, 40.0]), (None, [30.0, 40.0])]


@pytest.mark.parametrize("clip_norm, expected", CLIPPED)
def test_clips_the_global_norm_and_adds_norms_up(clip_norm, expected):
    variables = [keras.Variable(0.0), keras.Variable(0.0), keras.Variable(7.0)]
    optimizer = make_optimizer("sgd", 1.0, clip_norm)
    optimizer.apply([tf.constant(-30.0), tf.constant(-40.0), None], variables)
    np.testing.assert_allclose([v.numpy() for v in variables], [*expected, 7.0], 1e-6)
    np.testing.assert_allclose(optimizer.norms, [50.0, 1.0], 1e-6)


@BOTH
def test_survives_a_round_trip(name, loss_scaling):
    optimizer = make_optimizer(name, 0.5, 2.0, loss_scaling)
    config = keras.saving.serialize_keras_object(optimizer)
    again = keras.saving.deserialize_keras_object(config)
    assert type(again) is type(optimizer)
    assert again.get_config() == optimizer.get_config()


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
    model = small_model(make_optimizer("adam", 0.1))
    model.fit(small_data().filter(lambda *_: True), epochs=4, verbose=0)
    assert int(model.optimizer.iterations) == 12


@BOTH
def test_accumulated_batches_are_one_batch(name, loss_scaling):
    """The mean of their gradients is clipped, words' rows or not."""
    words, dense = (keras.Variable(np.ones((4, 2), "float32")) for _ in range(2))
    rows = tf.constant([[[3.0, 0.0], [0.0, 8.0]], [[0.0, 4.0], [60.0, 0.0]]])
    options = {"gradient_accumulation_steps": 2}
    optimizer = make_optimizer(name, 0.1, 5.0, loss_scaling, **options)
    scale, seen = float(optimizer.scale_loss(1.0)), []
    for step in range(4):
        places = tf.constant([[2, 1], [2, 2]])[step % 2]
        slices = tf.IndexedSlices(scale * rows[step % 2], places, tf.constant([4, 2]))
        optimizer.apply([slices], [words])
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
    norms = 2 * np.linalg.norm(mean), 2
    np.testing.assert_allclose(innermost(optimizer).norms, norms, 1e-6)


@pytest.mark.parametrize("loss_scaling", [False, True])
def test_schedules_go_by_updates_not_batches(loss_scaling):
    variable, schedule = keras.Variable(0.0), InverseSquareRoot(1.0, warmup_steps=4)
    options = {"loss_scaling": loss_scaling, "gradient_accumulation_steps": 3}
    optimizer = make_optimizer("sgd", schedule, None, **options)
    gradient, seen = tf.constant(float(optimizer.scale_loss(-1.0))), [0.0]
    for _ in range(6):
        for _ in range(3):
            optimizer.apply([gradient], [variable])
        seen.append(float(variable.value))
    rates = [1 / 4, 2 / 4, 3 / 4, 1.0, (4 / 5) ** 0.5, (4 / 6) ** 0.5]
    np.testing.assert_allclose(np.diff(seen), rates, 1e-5)


@BOTH
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


@pytest.mark.parametrize("momentum, missing", [(None, "use_ema=False"), (0.9, "data")])
def test_an_average_is_needed_and_a_validation(momentum, missing):
    """What it does to the weights is in test_callbacks.py."""
    options = {"loss_scaling": momentum is None, "ema_momentum": momentum}
    model = small_model(make_optimizer("adam", 0.1, **options))
    model.run_eagerly = True
    with pytest.raises(ValueError, match=f"MovingAverage needs .*{missing}"):
        model.fit(small_data(1), verbose=0, callbacks=[MovingAverage()])


# Schedules.


RATES = [
    # The paper's, and its own with dropout.
    (halving(1.0, 5), [1.0] * 5 + [0.5, 0.25, 0.125, 0.0625, 0.03125]),
    (halving(1.0, 8), [1.0] * 8 + [0.5, 0.25, 0.125, 0.0625]),
    (halving(3.0, 0), [1.5, 0.75]),
    (cosine(2.0, 6), [2, 1 + 0.75**0.5, 1.5, 1, 0.5, 1 - 0.75**0.5, 0, 0]),
    (InverseSquareRoot(1.0, 4), [0.25, 0.5, 0.75, 1.0] + [(4 / 5) ** 0.5]),
    (lambda i: InverseSquareRoot(1.0, 4)((15, 63)[i]), [0.5, 0.25]),
]


@pytest.mark.parametrize("rate, expected", RATES)
def test_rates_by_hand(rate, expected):
    found = [float(rate(i)) for i in range(len(expected))]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def compiled(learning_rate):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    return model


BLEU = [9.0, 9.0, 8.0, 8.5, 8.2, 8.1, 9.0]


RESTARTED = [
    ("constant", [0.4] * 7),
    ("halving", [0.4] * 2 + [0.2, 0.1, 0.05, 0.025, 0.0125]),
    ("cosine", [0.4, 0.3, 0.1, 0, 0, 0, 0]),
    ("plateau", [0.4] * 3 + [0.2] * 2 + [0.1] * 2),
]


@pytest.mark.parametrize("name, expected", RESTARTED)
def test_a_restart_goes_on_with_the_rates(name, expected):
    history, seen = [], []
    options = {"epochs": 3, "constant_epochs": 2, "patience": 2, "monitor": "val_bleu"}
    for epochs in (range(3), range(3, 7)):
        schedule = make_schedule(name, 0.4, **options, history=lambda: history)
        model = compiled(schedule.learning_rate)
        callbacks = keras.callbacks.CallbackList(schedule.callbacks, model=model)
        for epoch in epochs:
            callbacks.on_epoch_begin(epoch)
            seen.append(float(model.optimizer.learning_rate))
            history.append({"val_bleu": BLEU[epoch]})
    np.testing.assert_allclose(seen, expected, rtol=1e-6, atol=1e-9)


@pytest.fixture(scope="module")
def model():
    return compiled(1.0)


VALUES = st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0]), max_size=12)


@given(VALUES, st.integers(1, 3), st.sampled_from(["val_bleu", "val_loss"]))
def test_plateau_is_that_of_keras(model, values, patience, monitor):
    model.optimizer.learning_rate = 1.0
    mode = "max" if monitor == "val_bleu" else "min"
    options = {"mode": mode, "min_delta": 0.0}
    callback = keras.callbacks.ReduceLROnPlateau(monitor, 0.5, patience, **options)
    callback.set_model(model)
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {monitor: value})
    rate = plateau(1.0, values, patience, monitor)
    assert rate == float(model.optimizer.learning_rate)


def test_a_rate_of_the_step_is_the_optimizers():
    schedule = make_schedule("inverse_sqrt", 0.5, warmup_steps=10)
    assert schedule.callbacks == []
    optimizer = keras.optimizers.SGD(schedule.learning_rate)
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(again.learning_rate) == pytest.approx(0.05)


STEPS = {"gradient_accumulation_steps": 0}


IMPOSSIBLE = [
    (make_optimizer, ("rmsprop", 1.0), {}, "sgd.*'rmsprop'"),
    (make_optimizer, ("sgd", 1.0, -1.0), {}, "-1.0"),
    (make_optimizer, ("sgd", 1.0), STEPS, "steps must be at least 1.*0"),
    (make_optimizer, ("sgd", 1.0), {"ema_momentum": 1.0}, "ema_momentum.*1.0"),
    (make_optimizer, ("sgd", 1.0), {"weight_decay": -0.1}, "weight_decay.*-0.1"),
    (make_optimizer, ("sgd", 1.0), {"beta_2": 0.98}, "beta_2 is Adam's.*0.98"),
    (make_schedule, ("linear", 1.0), {}, "halving.*'linear'"),
    (make_schedule, ("constant", 0.0), {}, "learning_rate.*0.0"),
    (make_schedule, ("halving", 1.0), {"constant_epochs": -1}, "-1"),
    (make_schedule, ("cosine", 1.0), {"epochs": 0}, "epochs.*0"),
    (make_schedule, ("inverse_sqrt", 1.0), {"warmup_steps": 0}, "warmup_steps"),
    (make_schedule, ("plateau", 1.0), {"patience": 0}, "patience.*0"),
    (halving, (-1.0, 5), {}, "initial"),
]


@pytest.mark.parametrize("make, arguments, options, message", IMPOSSIBLE)
def test_what_cannot_be_is_named(make, arguments, options, message):
    with pytest.raises(ValueError, match=message):
        make(*arguments, **options)
