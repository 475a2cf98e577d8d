"""The fast top-k against TensorFlow's, ties and infinities included."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.decoding.top_k import GROUP, LONG, top_k


@settings(max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 9),
    extra=st.integers(-2, 2 * GROUP),
    values=st.sampled_from([2, 10, 10**6]),
    impossible=st.sampled_from([0.0, 0.5, 0.999]),
)
def test_equals_tensorflows(seed, k, extra, values, impossible):
    random = np.random.default_rng(seed)
    shape = 2, 3, LONG * k * GROUP + extra
    x = random.integers(values, size=shape).astype("float32")  # few values: ties
    x[random.random(shape) < impossible] = -np.inf
    for got, expected in zip(
        top_k(tf.constant(x), k), tf.math.top_k(x, k), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("shape", [(1000,), (0, 3, 1000), (4, 1000)])
def test_any_rank_and_no_rows(shape):
    x = tf.random.stateless_normal(shape, [1, 2])
    for got, expected in zip(top_k(x, 2), tf.math.top_k(x, 2), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_in_a_graph_of_unknown_shape():
    signature = [tf.TensorSpec([None, None, 1000])]
    x = tf.random.stateless_normal([2, 5, 1000], [1, 2])
    got = tf.function(lambda x: top_k(x, 2), input_signature=signature)(x)
    np.testing.assert_array_equal(got[1], tf.math.top_k(x, 2).indices)
    unknown = tf.function(lambda x: top_k(x, 2), input_signature=[tf.TensorSpec(None)])
    np.testing.assert_array_equal(unknown(x)[1], tf.math.top_k(x, 2).indices)


def test_a_row_of_nan_keeps_its_indices_in_range():
    x = tf.fill([2, 1001], float("nan"))
    assert int(tf.reduce_max(top_k(x, 2)[1])) < 1001
