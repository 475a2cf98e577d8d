from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong.training.optimizers import make_optimizer


@pytest.mark.parametrize("name, cls", [("sgd", "SGD"), ("adam", "Adam")])
def test_by_name(name, cls):
    optimizer = make_optimizer(name, 0.25, clip_norm=3.0)
    assert type(optimizer) is getattr(keras.optimizers, cls)
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
    "args, message", [(("rmsprop", 1.0), "rmsprop.*sgd"), (("sgd", 1.0, -1.0), "-1.0")]
)
def test_refuses(args, message):
    with pytest.raises(ValueError, match=message):
        make_optimizer(*args)
