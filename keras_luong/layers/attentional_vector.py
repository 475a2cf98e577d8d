"""The attentional vector (Eq. 5)."""

from __future__ import annotations

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.layers.scores import matmul


@keras.saving.register_keras_serializable(package="keras_luong")
class AttentionalVector(keras.layers.Layer):
    """`h̃_t = tanh(W_c [c_t; h_t])` (Luong et al. 2015, Eq. 5), without a bias.

    Weight: `kernel` [Hv + Hq, units], the context's rows first.

    Args:
        units: Size of h̃.
        kernel_initializer: Initializer of `kernel`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        context: [..., Hv].
        query: [..., Hq].

    Returns:
        h̃: [..., units].

    Example:
        >>> h_tilde = kl.AttentionalVector(512)(context, decoder_states)
    """

    def __init__(self, units, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_size("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, context_shape, query_shape):
        """Makes `kernel` [Hv + Hq, units]."""
        self.kernel = self.add_weight(
            shape=(context_shape[-1] + query_shape[-1], self.units),
            name="kernel",
            initializer=self.kernel_initializer,
        )

    def call(self, context, query, project=matmul):
        """See the class."""
        return ops.tanh(project(self.kernel, ops.concatenate([context, query], -1)))

    def compute_output_shape(self, context_shape, query_shape):
        """[..., units]."""
        del query_shape
        return (*context_shape[:-1], self.units)

    def get_config(self):
        """The constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        config = {"units": self.units, "kernel_initializer": initializer}
        return {**super().get_config(), **config}
