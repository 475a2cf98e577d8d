"""Shifts by numbers and by tensors, against NumPy."""

import numpy as np
import pytest
from keras import ops

from keras_luong.layers.monotonic_attention import shifted

X = np.arange(1, 9, dtype="float32").reshape(2, 4)


@pytest.mark.parametrize(
    "places, row",
    [
        (0, [1, 2, 3, 4]),
        (1, [0, 1, 2, 3]),
        (3, [0, 0, 0, 1]),
        (-1, [2, 3, 4, 0]),
        (-3, [4, 0, 0, 0]),
    ],
)
def test_zeros_come_in(places, row):
    found = ops.convert_to_numpy(shifted(ops.array(X), places))
    np.testing.assert_array_equal(found[0], row)
    np.testing.assert_array_equal(found[1], [x + 4 * (x > 0) for x in row])
    if places >= 0:  # as in a loop
        by_tensor = shifted(ops.array(X), ops.convert_to_tensor(places, "int32"))
        np.testing.assert_array_equal(ops.convert_to_numpy(by_tensor), found)
