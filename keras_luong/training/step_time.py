"""How long training takes on this machine, about, before there was any."""

from __future__ import annotations

import functools
import math
import time

import tensorflow as tf

#: Part of the time that a training step spends in matrix products, as measured by
#: `benchmarks/train_step.py` on models of 256 to 512 units.
_SHARE_OF_PRODUCTS = 0.4
_SIZE = 1024


def estimated_seconds(parameters: int, tokens: int) -> float:
    """Estimates how long it takes to learn from some text once.

    Training multiplies every weight with every token about three times, once forward
    and twice backward; how fast this machine multiplies is measured, which takes less
    than a second.

    Args:
        parameters: Number of the model's weights.
        tokens: Tokens on one side of the text.

    Returns:
        Seconds.

    Example:
        >>> from keras_luong.training.step_time import estimated_seconds
        >>> estimated_seconds(2_000_000, 1500) > 0
        True
    """
    products = 3 * 2 * parameters * tokens
    return products / _products_a_second() / _SHARE_OF_PRODUCTS


def in_words(seconds: float) -> str:
    """Returns a duration as one says it.

    Args:
        seconds: The duration.

    Example:
        >>> from keras_luong.training.step_time import in_words
        >>> in_words(2.4), in_words(200), in_words(9000), in_words(4e6)
        ('3 s', '4 min', '2.5 hours', '46 days')
    """
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    hours = seconds / 3600
    if hours >= 100:
        return f"{hours / 24:,.0f} days"
    return f"{minutes} min" if minutes < 90 else f"{hours:.1f} hours"


@functools.cache
def _products_a_second() -> float:
    """Floating point operations a second in one large product."""
    matrix = tf.random.stateless_uniform([_SIZE, _SIZE], seed=(0, 0))
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        tf.matmul(matrix, matrix)[0, 0].numpy()
        seconds.append(time.perf_counter() - start)
    return 2 * _SIZE**3 / min(seconds)
