"""What private names of Keras and TensorFlow do where no layer or model shows it.

The others have their own tests where they are used: in layers, recurrences, migration
and exports.
"""

import keras
import pytest

from keras_luong import compat


def dtype_of(x):
    return keras.backend.standardize_dtype(keras.ops.convert_to_tensor(x).dtype)


POLICIES = ["mixed_float16", "mixed_bfloat16", "float32", "float64"]


@pytest.mark.parametrize("policy", POLICIES)
def test_weights_read_as_in_a_call_also_within_another_layers(policy):
    outer = keras.layers.Dense(2, dtype="mixed_float16")
    layer = keras.layers.Dense(2, dtype=policy)
    layer.build((None, 3))
    with compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype
    with compat.autocasting(outer), compat.autocasting(layer):
        assert dtype_of(layer.kernel) == layer.compute_dtype


def test_symbolic_outputs_are_of_each_call():
    layer = keras.layers.Dense(2)
    assert compat.outputs_of_calls(layer) == []
    first, second = layer(keras.Input((3,))), layer(keras.Input((3,)))
    (one,), (other,) = compat.outputs_of_calls(layer)
    assert one is first and other is second
    assert compat.made_by(first) is layer
