"""Sinusoidal positions."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from keras_luong.models.transformer import SinusoidalPositions


@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("float64", 1e-12)])
def test_l8_positions_are_as_exact_as_the_policy(dtype, tolerance):
    if keras.backend.backend() == "jax":
        tolerance = 1e-5
    embedded = np.random.default_rng(0).normal(size=(2, 7, 6))
    result = SinusoidalPositions(dtype=dtype)(embedded.astype(dtype))
    expected = embedded * 6**0.5
    for p, i in np.ndindex(7, 3):
        angle = p / 10000 ** (2 * i / 6)
        expected[:, p, 2 * i] += np.sin(angle)
        expected[:, p, 2 * i + 1] += np.cos(angle)
    np.testing.assert_allclose(result, expected, atol=tolerance)
