"""What private names of Keras and TensorFlow do where no layer or model shows it.

The others have their own tests where they are used: in layers, recurrences, migration
and exports.
"""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_luong import compat


def dtype_of(x):
    return keras.backend.standardize_dtype(keras.ops.convert_to_tensor(x).dtype)


@pytest.mark.parametrize(
    "policy", ["mixed_float16", "mixed_bfloat16", "float32", "float64"]
)
def test_weights_read_as_in_a_call_also_within_another_layers(policy):
    outer = keras.layers.Dense(2, dtype="mixed_float16")
    layer = keras.layers.Dense(2, dtype=policy)
    layer.build((None, 3))
    with compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype
    with compat.autocasting(outer), compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype


def test_a_call_gets_arguments_in_their_own_dtypes():
    layer = keras.layers.Lambda(lambda x: x, dtype="float16")
    x = keras.ops.ones([1], "float32")
    assert dtype_of(layer(x)) == "float16"
    compat.keep_dtypes(layer)
    assert dtype_of(layer(x)) == "float32"


def test_symbolic_outputs_are_of_each_call():
    layer = keras.layers.Dense(2)
    assert compat.outputs_of_calls(layer) == []
    first, second = layer(keras.Input((3,))), layer(keras.Input((3,)))
    (one,), (other,) = compat.outputs_of_calls(layer)
    assert one is first and other is second
    assert compat.made_by(first) is layer


def test_which_layers_know_of_training():
    assert compat.takes_training(keras.layers.LSTMCell(2))
    assert not compat.takes_training(keras.layers.Embedding(2, 2))
    assert not compat.takes_training(object())


@pytest.mark.tensorflow
def test_variables_become_tensors():
    for kind in (tf.Variable, keras.Variable, np.asarray):
        assert compat.as_tensor(kind([1.0])).ndim == 1


@pytest.mark.tensorflow
def test_replicas_update_alone():
    found = []
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    strategy.run(lambda: found.append(compat.replicas_update_alone()))
    assert found == [False]  # without XLA they meet
