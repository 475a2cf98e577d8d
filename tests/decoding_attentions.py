"""Attentions of every kind, and what decoders with them are called with."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

import keras_luong as kl
from keras_luong.layers.scores import SCORES

UNITS, WIDTH, STEPS, POSITIONS = 4, 3, 5, 6
rng = np.random.default_rng(0)
INPUTS = rng.normal(size=(2, STEPS, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(2, POSITIONS, UNITS)).astype("float32")
MASK = np.arange(POSITIONS) < np.array([[POSITIONS], [3]])
WORDS = np.arange(STEPS) < np.array([[2], [STEPS]])


def randomized(layer):
    """Weights that are none of them zeros."""
    random = np.random.default_rng(3)
    for weight in layer.trainable_weights:
        weight.assign(random.normal(size=weight.shape) * 0.7)
    return layer


#: Attentions of every kind; of Luong's, every score.
KINDS = {
    **{
        mode: lambda mode=mode: kl.LuongAttention(mode, units=3, max_source_length=4)
        for mode in SCORES
    },
    "coverage": lambda: kl.LuongAttention("concat", coverage=True),
    "sparsemax": lambda: kl.LuongAttention(normalizer="sparsemax"),
    "local-m": lambda: kl.LocalAttention(2, "monotonic"),
    "monotonic": lambda: kl.MonotonicAttention("general"),
    "chunkwise": lambda: kl.MonotonicChunkwiseAttention("concat", chunk_size=2),
    "location-aware": lambda: kl.LocationAwareAttention(filters=2, kernel_size=3),
    "multi-head": lambda: kl.MultiHeadLuongAttention(2, score_mode="general"),
}
#: How far XLA may be from what runs eagerly.
NEAR = {
    "float32": 1e-5,
    "float64": 1e-12,
    "mixed_float16": 0.02,
    "mixed_bfloat16": 0.15,
}


def check_xla(make, sources, memory_mask, mask, dtype):
    """Under XLA a decoder computes what it does eagerly, in either loop.

    Args:
        make: Makes the decoder.
        sources: One source [B, S, n] or a list of them.
        memory_mask: Masks bool [B, S] likewise, or None.
        mask: bool [B, T], or None.
        dtype: A policy.
    """
    keras.config.set_dtype_policy(dtype)
    try:
        decoder = make()
        sources = tf.nest.map_structure(tf.constant, sources)
        decoder(INPUTS, sources)
        randomized(decoder)
    finally:
        keras.config.set_dtype_policy("float32")

    def run(training):
        return decoder(
            INPUTS,
            sources,
            memory_mask=memory_mask,
            mask=mask,
            return_attention_scores=True,
            training=training,
        )

    expected = [np.asarray(x, "float64") for x in run(training=False)]
    for training in (False, True):
        function = tf.function(run, jit_compile=True)
        for x, y in zip(function(training), expected, strict=True):
            np.testing.assert_allclose(np.asarray(x, "float64"), y, atol=NEAR[dtype])
    words = np.ones(expected[1].shape, bool)
    if memory_mask is not None:
        several = isinstance(memory_mask, list)
        joined = np.concatenate(memory_mask, 1) if several else memory_mask
        words &= joined[:, None]
    if mask is not None:
        words &= mask[:, :, None]
    assert np.all(expected[1][~words] == 0)
