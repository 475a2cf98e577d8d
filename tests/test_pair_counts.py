"""How many batches a corpus makes, by the lengths of its pairs alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_luong.text.batches import EpochShape, bucket_lengths, epoch_shape
from keras_luong.text.survey import PairCounts

MOST = 60
BUCKETS = len(bucket_lengths(MOST))


def counts(buckets):
    lengths = {(n, n): x for n, x in zip(bucket_lengths(MOST), buckets, strict=True)}
    return PairCounts(0, 0, 0.0, 0.0, 0, 0, lengths, MOST)


@given(st.lists(st.integers(0, 200), min_size=BUCKETS, max_size=BUCKETS))
def test_only_the_last_batch_of_each_length_is_not_full(buckets):
    found = counts(buckets)
    full, batches = found.full_batches(1000), found.batches(1000)
    assert full <= batches < full + BUCKETS
    many = found.batches(1000, EpochShape(passes=1000))
    assert many / 1000 == pytest.approx(full, abs=BUCKETS / 1000)


@settings(max_examples=10)
@given(
    st.dictionaries(
        st.tuples(st.integers(2, MOST + 1), st.integers(2, MOST + 1)),
        st.integers(1, 500),
        min_size=1,
    )
)
def test_few_shapes_hold_all_pairs_in_full_batches(lengths):
    found = PairCounts(0, 0, 0.0, 0.0, 0, 0, lengths, MOST)
    shapes = found.batch_shapes(300)
    assert 1 <= len(shapes) <= 15
    assert all(1 <= x.rows * max(x.source, x.target) <= 300 for x in shapes)
    in_batches = found._in_batches(300, shapes)
    assert not any(in_batches[len(shapes) :])
    for shape, batches in zip(shapes, in_batches, strict=False):
        missing = (math.ceil(batches) - batches) * shape.rows
        assert 0 <= missing < math.ceil(batches)  # not a row a batch


@given(st.lists(st.integers(1, 40), min_size=BUCKETS, max_size=BUCKETS))
def test_a_small_corpus_has_the_steps_that_are_asked_for(buckets):
    """Of so few pairs each length makes a batch, and most of them are not full."""
    found = counts(buckets)
    shape = epoch_shape(found.full_batches(1000), 200)
    assert shape.passes > 1
    steps = found.batches(1000, shape)
    assert 150 < steps < 250 + BUCKETS
