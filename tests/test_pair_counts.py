"""How many batches a corpus makes, by the lengths of its pairs alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_luong.text.batches import EpochShape, bucket_lengths, epoch_shape
from keras_luong.text.survey import PairCounts

MOST = 60
BUCKETS = len(bucket_lengths(MOST))


def counts(buckets):
    return PairCounts(0, 0, 0.0, 0.0, 0, 0, tuple(buckets), MOST)


@given(st.lists(st.integers(0, 200), min_size=BUCKETS, max_size=BUCKETS))
def test_only_the_last_batch_of_each_length_is_not_full(buckets):
    found = counts(buckets)
    full, batches = found.full_batches(1000), found.batches(1000)
    assert full <= batches < full + BUCKETS
    many = found.batches(1000, EpochShape(passes=1000))
    assert many / 1000 == pytest.approx(full, abs=BUCKETS / 1000)


@given(st.lists(st.integers(1, 40), min_size=BUCKETS, max_size=BUCKETS))
def test_a_small_corpus_has_the_steps_that_are_asked_for(buckets):
    """Of so few pairs each length makes a batch, and most of them are not full."""
    found = counts(buckets)
    shape = epoch_shape(found.full_batches(1000), 200)
    assert shape.passes > 1
    steps = found.batches(1000, shape)
    assert 150 < steps < 250 + BUCKETS
