"""The weights of a model in mixed precision, cast once for a whole search."""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.compat import flat_layers
from keras_luong.types import Tensor


def cast_weights(model: keras.Model) -> list[tuple[keras.Variable, Tensor]]:
    """Pairs of a weight and what to read in its place.

    Matrices are cast to the dtype in which their layer computes. Vectors are small, and
    some of them, such as those of layer normalisation, stay in float32.

    Args:
        model: The model, whose weights are float32.

    Returns:
        The pairs; none where nothing is to be cast.
    """
    dtypes = {}
    for layer in flat_layers(model):  # a layer comes after what it is a part of
        for weight in layer.weights:
            # An embedding casts the rows that it has looked up.
            casts = layer.autocast or isinstance(layer, keras.layers.Embedding)
            cast = casts and len(weight.shape) > 1
            dtypes[id(weight)] = layer.compute_dtype if cast else weight.dtype
    weights = [weight for weight in model.weights if "float" in weight.dtype]
    if all(weight.dtype == dtypes[id(weight)] for weight in weights):
        return []
    return [(weight, ops.cast(weight, dtypes[id(weight)])) for weight in weights]
