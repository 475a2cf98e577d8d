"""Epochs of several passes, and of a part of one."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.text.batches import A_PASS, EpochShape, epoch_shape
from keras_luong.text.corpus import mix_pairs

sizes = st.integers(1, 100_000)
passes = st.floats(0.01, 100_000)  # in full batches


@given(passes, sizes)
def test_an_epoch_is_about_as_long_as_it_should_be(a_pass, wanted):
    shape = epoch_shape(a_pass, wanted)
    assert 1 in shape
    steps = a_pass * shape.passes / shape.parts
    assert 0.6 < steps / wanted < 1.51 or shape == A_PASS


def test_a_pass_is_the_default():
    assert epoch_shape(7, None) == A_PASS == EpochShape(1, 1)


def numbers(shape, epoch):
    # The epoch's number is a tensor where batches are made.
    number = tf.constant(epoch, tf.int64)
    return [int(x) for x in shape.of_epoch(tf.data.Dataset.range(7), number)]


def test_parts_are_a_pass_together():
    shape = EpochShape(parts=3)
    parts = [numbers(shape, epoch) for epoch in range(6)]
    assert sorted(sum(parts[:3], [])) == list(range(7))
    assert parts[:3] == parts[3:] and all(len(part) in (2, 3) for part in parts)


@pytest.mark.parametrize(
    ("share", "parts"), [(0.5, 2), (0.5, 4), (0.25, 4), (1 / 3, 3)]
)
def test_parts_have_their_share_of_mixed_text(share, parts):
    """Which is spread as evenly as the parts are."""
    old = tf.data.Dataset.range(1000, 2000)
    pairs = mix_pairs(tf.data.Dataset.range(600), old, share)
    shape, seen = EpochShape(parts=parts), []
    for epoch in range(parts):
        part = [int(x) for x in shape.of_epoch(pairs, epoch)]
        assert share - 0.1 < sum(x >= 1000 for x in part) / len(part) < share + 0.1
        seen += part
    assert sorted(seen) == sorted(int(x) for x in pairs)


def test_passes_have_all():
    assert numbers(EpochShape(passes=2), 5) == [*range(7)] * 2
    assert numbers(A_PASS, 5) == [*range(7)]
