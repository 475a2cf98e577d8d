"""Epochs: which pairs they have, of one corpus or of two; in which order and steps."""

from __future__ import annotations

import random
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from small_training import small_model

from keras_luong.runs.epochs import FollowEpoch
from keras_luong.text.batches import A_PASS, EpochShape, epoch_shape, training_batches
from keras_luong.text.corpus import mix_pairs, sample_pairs
from keras_luong.text.tokenizer_pair import TokenizerPair, WordTokenizer
from keras_luong.training.optimizers import make_optimizer

# Going on in the middle of an epoch, and stopping there, is in test_checkpoints.py.


def numbers(dataset):
    return [int(x) for x in dataset]


def part_of(dataset, shape, epoch):
    # The epoch's number is a tensor where batches are made.
    return numbers(shape.of_epoch(dataset, tf.constant(epoch, tf.int64)))


@given(st.floats(0.01, 100_000), st.integers(1, 100_000))
def test_an_epoch_is_about_as_long_as_it_should_be(a_pass, wanted):
    shape = epoch_shape(a_pass, wanted)  # of a pass in full batches
    assert 1 in shape
    steps = a_pass * shape.passes / shape.parts
    assert 0.6 < steps / wanted < 1.51 or shape == A_PASS


def test_a_pass_is_the_default():
    assert epoch_shape(7, None) == A_PASS == EpochShape(1, 1)
    seven = tf.data.Dataset.range(7)
    assert part_of(seven, A_PASS, 5) == [*range(7)]
    assert part_of(seven, EpochShape(passes=2), 5) == [*range(7)] * 2


def test_parts_are_a_pass_together():
    seven = tf.data.Dataset.range(7)
    parts = [part_of(seven, EpochShape(parts=3), epoch) for epoch in range(6)]
    assert sorted(sum(parts[:3], [])) == list(range(7))
    assert parts[:3] == parts[3:] and all(len(part) in (2, 3) for part in parts)


@pytest.mark.parametrize("share, parts", [(0.5, 2), (0.25, 4), (1 / 3, 3)])
def test_parts_have_their_share_of_mixed_text(share, parts):
    """Which is spread as evenly as the parts are."""
    old, new = tf.data.Dataset.range(1000, 2000), tf.data.Dataset.range(600)
    pairs, seen = mix_pairs(new, old, share), []
    for epoch in range(parts):
        part = part_of(pairs, EpochShape(parts=parts), epoch)
        assert abs(sum(x >= 1000 for x in part) / len(part) - share) < 0.1
        seen += part
    assert sorted(seen) == sorted(numbers(pairs))


@pytest.mark.parametrize("share, others", [(0.5, 30), (0.25, 10), (0.75, 90), (0, 0)])
def test_k2_the_share_is_exact_whatever_the_sizes(share, others):
    both = mix_pairs(tf.data.Dataset.range(30), tf.data.Dataset.range(100, 120), share)
    made = numbers(both)
    assert int(both.cardinality()) == len(made) == 30 + others
    assert [x for x in made if x < 100] == list(range(30))  # each once, in their order
    first = sum(x >= 100 for x in made[: len(made) // 2])
    assert abs(first - others / 2) <= 1  # and the others evenly between them


def test_k2_others_are_drawn_by_the_seed_and_each_equally_often():
    total = 3000  # more than are looked at at once
    many = tf.data.Dataset.range(total)
    some, again, other = (numbers(sample_pairs(many, 40, seed=x)) for x in (1, 1, 2))
    assert some == again == sorted(some) != other
    assert len(set(some)) == 40 and max(some) > 2048
    counts = Counter(numbers(sample_pairs(many.take(30), 67)))
    assert Counter(counts.values()) == {2: 23, 3: 7}


@pytest.mark.parametrize(
    "others, share, message", [(0, 0.5, "no p"), (3, 1.0, "share")]
)
def test_k2_what_cannot_be_mixed(others, share, message):
    with pytest.raises(ValueError, match=message):
        mix_pairs(tf.data.Dataset.range(3), tf.data.Dataset.range(others), share)


def test_data_without_a_batch_is_an_error():
    follow = FollowEpoch()
    follow.set_model(small_model("adam"))
    follow.on_epoch_begin(0)
    with pytest.raises(ValueError, match="no batch in epoch 1"):
        follow.on_epoch_end(0)
    follow.on_train_batch_end(0)
    follow.on_epoch_end(0)


def test_epochs_of_any_length():
    """Keras alone cuts all to the length of the first. They run in order, untuned."""
    sizes = tf.constant([3, 5, 13, 4, 13], tf.int64)
    follow = FollowEpoch((0, 1))
    row = tf.ones([4, 2]), tf.ones([4, 1])
    batches = follow.batches(
        lambda epoch: tf.data.Dataset.range(sizes[epoch]).map(lambda _: row)
    )
    options = batches.options()
    assert (options.deterministic, options.autotune.enabled) == (True, False)
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(0),
        on_train_batch_end=lambda batch, logs: seen.append(seen.pop() + 1),
    )
    model.fit(batches, epochs=5, callbacks=[follow, count], verbose=0, shuffle=False)
    assert seen == [2, 5, 13, 4, 13]  # the first epoch is gone on with


def orders(seed, epochs, global_seed=0, started_at=(0, 0)):
    keras.utils.set_random_seed(global_seed)
    follow, result = FollowEpoch(started_at), []
    data = follow.batches(
        lambda seed: tf.data.Dataset.range(30).shuffle(30, seed=seed), seed
    )
    follow.set_model(small_model("adam"))
    for epoch in epochs:
        follow.on_epoch_begin(epoch)
        result.append(list(data.as_numpy_iterator()))
    return result


def test_order_follows_the_epoch_alone():
    first, second, again = orders(1, [0, 1, 0])
    assert first == again != second
    assert sorted(first) == sorted(second) == list(range(30))
    assert orders(1, [1], global_seed=7) == [second]
    assert orders(1, [0, 1], started_at=(0, 12)) == [first[12:], second]
    assert orders(2, [0]) != [first]


VOCABULARY = [f"w{i}" for i in range(20)]
TOGETHER = 4  # batches of a step


def batches_of_all_sizes(together):
    """Batches with unlike numbers of labels, the last of which are no whole group."""
    rng = random.Random(0)
    sides = {
        side: [
            " ".join(rng.choices(VOCABULARY, k=rng.randint(1, 9))) for _ in range(40)
        ]
        for side in ("source", "target")
    }
    return training_batches(
        tf.data.Dataset.from_tensor_slices(sides),
        TokenizerPair(WordTokenizer(VOCABULARY)),
        batch_tokens=40,
        gradient_accumulation_steps=together,
    )


def test_w9_the_batches_are_the_same_in_whole_groups():
    """Each label weighs as much as all others of its step."""
    single, together = (list(batches_of_all_sizes(n)) for n in (1, TOGETHER))
    assert len(single) % TOGETHER  # the last group is filled up
    assert len(together) == -(-len(single) // TOGETHER) * TOGETHER
    for one, other in zip(single, together, strict=False):
        tf.nest.map_structure(np.testing.assert_array_equal, one[:2], other[:2])
    for inputs, labels, weights in together[len(single) :]:
        assert inputs["source"].shape == (1, 1)
        assert not np.any(labels) and not np.any(weights)
    for start in range(0, len(together), TOGETHER):
        group = together[start : start + TOGETHER]
        number = sum(np.count_nonzero(labels) for _, labels, _ in group)
        for _, labels, weights in group:
            expected = (np.asarray(labels) != 0) * TOGETHER / number
            np.testing.assert_allclose(weights, expected, 1e-6)


def test_w9_an_overflow_moves_no_batch_to_another_step():
    """float16: the batch that overflows is counted, and its step has what follows."""
    weight = keras.Variable(0.0)
    optimizer = make_optimizer(
        "sgd", 1.0, None, loss_scaling=True, gradient_accumulation_steps=2
    )
    seen = []
    for gradient in (np.inf, 2.0, 4.0, np.inf, 6.0, 8.0):
        scale = float(optimizer.scale_loss(1.0))
        optimizer.apply([tf.constant(-gradient * scale)], [weight])
        seen.append(float(weight.value))
    assert seen == [0.0, 1.0, 1.0, 1.0, 1.0, 8.0]
