"""A layer whose call gets its arguments in the dtypes that they have."""

from __future__ import annotations

import keras
import numpy as np
from keras import ops


class UncastLayer(keras.layers.Layer):
    """A layer that casts for itself what is to be cast.

    Keras casts every floating argument of a call to the layer's compute dtype. A
    decoder gets the sum of its past alignments among its states, which is float32
    under any policy: in bfloat16 it would soon stop growing.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._convert_input_args = False

    def __call__(self, *args, **kwargs):
        """Calls the layer; arrays become tensors of their own dtypes."""
        args, kwargs = keras.tree.map_structure(_tensor, (args, kwargs))
        return super().__call__(*args, **kwargs)


def _tensor(x):
    is_array = isinstance(x, np.ndarray) or hasattr(x, "assign")  # or a variable
    return ops.convert_to_tensor(x) if is_array else x
