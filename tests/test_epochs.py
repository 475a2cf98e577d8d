from __future__ import annotations

import keras
import pytest
import tensorflow as tf
from small_training import small_model

from keras_luong.runs.epochs import FollowEpoch

# Going on in the middle of an epoch, and stopping there, is in test_checkpoints.py.


def test_epochs_run_as_their_batches_do():
    """In order, and not tuned: see `batches.dataset_options`."""
    options = FollowEpoch().batches(lambda _: tf.data.Dataset.range(3)).options()
    assert options.deterministic is True
    assert options.autotune.enabled is False


def test_data_without_a_batch_is_an_error():
    follow = FollowEpoch()
    follow.set_model(small_model("adam"))
    follow.on_epoch_begin(0)
    with pytest.raises(ValueError, match="no batch in epoch 1"):
        follow.on_epoch_end(0)
    follow.on_train_batch_end(0)
    follow.on_epoch_end(0)


def test_epochs_of_any_length():
    """Keras alone cuts all to the length of the first."""
    sizes = tf.constant([3, 5, 13, 4, 13], tf.int64)
    follow = FollowEpoch((0, 1))
    batches = follow.batches(
        lambda epoch: tf.data.Dataset.range(sizes[epoch]).map(
            lambda _: (tf.ones([4, 2]), tf.ones([4, 1]))
        )
    )
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    seen = []
    count = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: seen.append(0),
        on_train_batch_end=lambda batch, logs: seen.append(seen.pop() + 1),
    )
    callbacks = [follow, count]
    model.fit(batches, epochs=5, callbacks=callbacks, verbose=0, shuffle=False)
    assert seen == [2, 5, 13, 4, 13]  # the first epoch is gone on with


def orders(seed, epochs, global_seed=0, started_at=(0, 0)):
    keras.utils.set_random_seed(global_seed)
    follow = FollowEpoch(started_at)
    data = follow.batches(
        lambda seed: tf.data.Dataset.range(30).shuffle(30, seed=seed), seed
    )
    result = []
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
