"""The weights of a model in mixed precision, cast once for a whole search."""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.compat import autocasting, flat_layers
from keras_luong.types import Tensor


def cast_weights(model: keras.Model) -> list[tuple[keras.Variable, Tensor]]:
    """Pairs of a weight and what to read in its place.

    Matrices are cast to the dtype in which their layer reads them. Vectors are small,
    and stay as they are.

    Args:
        model: The model, whose weights are float32.

    Returns:
        The pairs; none where nothing is to be cast.
    """
    dtypes = {
        id(weight): _read_as(layer, weight)
        for layer in flat_layers(model)  # a layer comes after what it is a part of
        for weight in layer.weights
    }
    weights = [weight for weight in model.weights if "float" in weight.dtype]
    if all(weight.dtype == dtypes[id(weight)] for weight in weights):
        return []
    return [(weight, ops.cast(weight, dtypes[id(weight)])) for weight in weights]


def _read_as(layer, weight):
    """The dtype in which a layer reads a weight."""
    if len(weight.shape) < 2:
        return weight.dtype
    if isinstance(layer, keras.layers.Embedding):  # it casts the rows it has looked up
        return layer.compute_dtype
    with autocasting(layer):  # some weights, as a layer normalisation's, stay float32
        return weight.dtype
