"""Length penalties: worked numbers, and the bound that the stop rule rests on."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.decoding.penalties import (
    GNMTLengthPenalty,
    LengthPenalty,
    length_penalty_of,
)


@pytest.mark.parametrize(
    ("alpha", "log_prob", "length", "score"),
    [
        (0.0, -3.0, 50, -3.0),
        (1.0, -3.0, 1, -3.0),  # (5 + 1) / 6 = 1
        (1.0, -3.0, 7, -1.5),  # (5 + 7) / 6 = 2
        (2.0, -3.0, 7, -0.75),
        (0.5, -3.0, 19, -1.5),  # sqrt(24 / 6) = 2
        (0.6, 0.0, 9, 0.0),
        (0.6, -np.inf, 9, -np.inf),
    ],
)
def test_scores(alpha, log_prob, length, score):
    penalty = GNMTLengthPenalty(alpha)
    result = penalty.score(tf.constant(log_prob), tf.constant(length))
    assert result.dtype == tf.float32
    np.testing.assert_allclose(result, score, rtol=1e-6)


@settings(max_examples=100, derandomize=True)
@given(
    alpha=st.floats(0, 5),
    log_prob=st.floats(-100, 0, width=32),
    loss=st.floats(0, 10, width=32),
    lengths=st.lists(st.integers(1, 300), min_size=2, max_size=2).map(sorted),
)
def test_no_continuation_exceeds_the_bound(alpha, log_prob, loss, lengths):
    length, limit = lengths
    penalty = GNMTLengthPenalty(alpha)
    bound = penalty.bound(tf.constant(log_prob), tf.constant(limit))
    later = tf.constant(log_prob) - tf.constant(loss)
    assert penalty.score(later, tf.constant(length)) <= bound


@pytest.mark.parametrize("alpha", [0, 0.0, 1, np.float32(0.5)])
def test_a_number_is_gnmts_alpha(alpha):
    penalty = length_penalty_of(alpha)
    assert penalty == GNMTLengthPenalty(alpha) and type(penalty.alpha) is float


def test_an_object_with_the_two_methods_is_itself():
    penalty = GNMTLengthPenalty(0.3)
    assert isinstance(penalty, LengthPenalty)
    assert length_penalty_of(penalty) is penalty


@pytest.mark.parametrize("value", ["gnmt", None, True, GNMTLengthPenalty, [0.6]])
def test_anything_else_is_refused(value):
    with pytest.raises(TypeError, match="length_penalty must be a number"):
        length_penalty_of(value)


@pytest.mark.parametrize(
    ("alpha", "error"),
    [(-1, ValueError), (np.nan, ValueError), (np.inf, ValueError), ("1", TypeError)],
)
def test_wrong_alpha(alpha, error):
    with pytest.raises(error, match="alpha must be"):
        GNMTLengthPenalty(alpha)
