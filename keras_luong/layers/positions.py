"""Sinusoidal positions (Vaswani et al. 2017, section 3.5)."""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class SinusoidalPositions(keras.layers.Layer):
    """Scales embeddings by √d_model and adds where they stand (sections 3.4 and 3.5).

    `PE(p, 2i) = sin(p / 10000^(2i/d))` and `PE(p, 2i+1) = cos(p / 10000^(2i/d))`.

    Call arguments:
        embedded: Embeddings [..., d].
        positions: int [...]; by default 0, 1, 2, ... along the last axis but one.

    Returns:
        Like `embedded`.
    """

    def call(self, embedded: Tensor, positions: Tensor | None = None) -> Tensor:
        """See the class."""
        units = embedded.shape[-1]
        if positions is None:
            positions = ops.arange(ops.shape(embedded)[-2])
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        dimension = ops.arange(units, dtype=dtype)
        parity = dimension % 2
        wavelength = 10000.0 ** ((dimension - parity) / units)
        angle = ops.expand_dims(ops.cast(positions, dtype), -1) / wavelength
        encoding = ops.where(parity == 0, ops.sin(angle), ops.cos(angle))
        return embedded * units**0.5 + ops.cast(encoding, embedded.dtype)

    def compute_output_shape(
        self, embedded_shape: Shape, positions_shape: Shape | None = None
    ) -> Shape:
        """That of the embeddings."""
        return embedded_shape
