from __future__ import annotations

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.training.schedules import (
    SCHEDULES,
    InverseSquareRoot,
    cosine,
    halving,
    make_schedule,
    plateau,
)


@pytest.mark.parametrize(
    "constant_epochs, epochs, expected",
    [
        (5, 10, [1.0] * 5 + [0.5, 0.25, 0.125, 0.0625, 0.03125]),  # the paper's
        (8, 12, [1.0] * 8 + [0.5, 0.25, 0.125, 0.0625]),  # with dropout
        (0, 2, [0.5, 0.25]),
    ],
)
def test_halving(constant_epochs, epochs, expected):
    rate = halving(1.0, constant_epochs)
    assert [rate(epoch) for epoch in range(epochs)] == expected
    assert rate(6, 123.0) == rate(6)  # as Keras calls it


def test_cosine():
    rate = cosine(2.0, 6)
    expected = [2.0, 1 + 0.75**0.5, 1.5, 1.0, 0.5, 1 - 0.75**0.5, 0.0, 0.0]
    np.testing.assert_allclose([rate(epoch) for epoch in range(8)], expected, atol=1e-9)


def small_model(learning_rate):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(learning_rate), "mse")
    return model


def test_halving_in_fit_and_after_a_restart():
    x, y = np.ones((4, 2)), np.ones((4, 1))
    seen = []
    for first, last in ((0, 4), (4, 5)):
        schedule = make_schedule("halving", 0.1, constant_epochs=2)
        model = small_model(schedule.learning_rate)
        history = model.fit(
            x, y, 4, last, 0, schedule.callbacks, initial_epoch=first
        ).history
        seen += history["learning_rate"]
    np.testing.assert_allclose(seen, [0.1, 0.1, 0.05, 0.025, 0.0125], 1e-6)


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([1.0, 2.0, 3.0, 4.0]), max_size=12),
    st.integers(1, 3),
    st.sampled_from(["val_bleu", "val_loss"]),
)
def test_plateau_is_that_of_keras(values, patience, monitor):
    mode = "max" if monitor == "val_bleu" else "min"
    callback = keras.callbacks.ReduceLROnPlateau(
        monitor, 0.5, patience, mode=mode, min_delta=0.0
    )
    callback.set_model(model := small_model(1.0))
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {monitor: value})
    rate = plateau(1.0, values, patience, monitor)
    assert rate == float(model.optimizer.learning_rate)


@pytest.mark.slow
def test_plateau_in_fit_and_after_a_restart():
    x, y = np.ones((4, 2)), np.ones((4, 1))
    values, history, seen = [9.0, 9.0, 8.0, 8.5, 8.2, 8.1, 9.0], [], []

    def finish(epoch, logs):
        history.append({"val_bleu": -values[epoch]})

    for first, last in ((0, 3), (3, 7)):
        schedule = make_schedule(
            "plateau", 0.4, patience=2, monitor="val_bleu", history=lambda: history
        )
        model = small_model(schedule.learning_rate)
        after = keras.callbacks.LambdaCallback(on_epoch_end=finish)
        seen += model.fit(
            x,
            y,
            initial_epoch=first,
            epochs=last,
            verbose=0,
            callbacks=[*schedule.callbacks, after],
        ).history["learning_rate"]
    np.testing.assert_allclose(seen, [0.4] * 5 + [0.2] * 2, 1e-6)


@pytest.mark.parametrize(
    "step, expected", [(0, 0.25), (1, 0.5), (3, 1.0), (15, 0.5), (63, 0.25)]
)
def test_inverse_square_root(step, expected):
    assert float(InverseSquareRoot(1.0, 4)(step)) == pytest.approx(expected)


def test_inverse_square_root_serialises():
    optimizer = keras.optimizers.SGD(InverseSquareRoot(0.5, 10))
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(again.learning_rate) == pytest.approx(0.05)


@pytest.mark.parametrize("name", SCHEDULES)
def test_by_name(name):
    schedule = make_schedule(name, 0.1, constant_epochs=1, warmup_steps=1)
    model = small_model(schedule.learning_rate)
    model.fit(np.ones((2, 2)), np.ones((2, 1)), verbose=0, callbacks=schedule.callbacks)
    assert float(model.optimizer.learning_rate) > 0


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: make_schedule("linear", 1.0), "halving.*'linear'"),
        (lambda: make_schedule("constant", 0.0), "learning_rate.*0.0"),
        (lambda: make_schedule("halving", 1.0, constant_epochs=-1), "-1"),
        (lambda: make_schedule("cosine", 1.0, epochs=0), "epochs.*0"),
        (lambda: make_schedule("inverse_sqrt", 1.0, warmup_steps=0), "warmup_steps"),
        (lambda: make_schedule("plateau", 1.0, patience=0), "patience.*0"),
        (lambda: halving(-1.0, 5), "initial"),
    ],
)
def test_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()
