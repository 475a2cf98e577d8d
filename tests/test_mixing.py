"""Corpora of which a share is another one's."""

from __future__ import annotations

from collections import Counter

import pytest
import tensorflow as tf

from keras_luong.text.corpus import mix_pairs, sample_pairs


def numbers(dataset):
    return [int(x) for x in dataset]


@pytest.mark.parametrize("share, others", [(0.5, 30), (0.25, 10), (0.75, 90), (0, 0)])
def test_k2_the_share_is_exact_whatever_the_sizes(share, others):
    both = mix_pairs(tf.data.Dataset.range(30), tf.data.Dataset.range(100, 120), share)
    made = numbers(both)
    assert int(both.cardinality()) == len(made) == 30 + others
    assert [x for x in made if x < 100] == list(range(30))  # each once, in their order
    first = sum(x >= 100 for x in made[: len(made) // 2])
    assert abs(first - others / 2) <= 1  # and the others evenly between them


@pytest.mark.slow
def test_k2_others_are_drawn_by_the_seed_and_each_equally_often():
    total = 3000  # more than are looked at at once
    many = tf.data.Dataset.range(total)
    some = numbers(sample_pairs(many, 40, seed=1))
    assert len(set(some)) == 40 and some == sorted(some) and max(some) > 2048
    assert some == numbers(sample_pairs(many, 40, seed=1))
    assert some != numbers(sample_pairs(many, 40, seed=2))
    counts = Counter(numbers(sample_pairs(many, 2 * total + 7)))
    assert Counter(counts.values()) == {2: total - 7, 3: 7}


def test_k2_without_others_there_is_no_share():
    with pytest.raises(ValueError, match="no pairs"):
        mix_pairs(tf.data.Dataset.range(3), tf.data.Dataset.range(0), 0.5)
    with pytest.raises(ValueError, match="share"):
        mix_pairs(tf.data.Dataset.range(3), tf.data.Dataset.range(3), 1.0)
