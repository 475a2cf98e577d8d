"""Times a step as it is in a loop of a graph, where nothing of Python is left."""

from __future__ import annotations

import time
from collections.abc import Callable

import tensorflow as tf

STEPS = 50  # of a loop


def seconds(step: Callable, changing: list[tf.Tensor], loops: int = 10) -> float:
    """Of one step, in the fastest of several loops.

    Args:
        step: from the tensors that change, float32, to a list of results.
        changing: their first values. They grow by next to nothing at every step: what
            is the same at all steps would be computed once for all of them.
        loops: how many are timed.

    Returns:
        Seconds.
    """

    @tf.function(autograph=False)
    def loop():
        def body(i, total, changing):
            used = sum(tf.reshape(x, [-1])[0] for x in step(*changing))
            return i + 1, total + used, [x + 1e-6 for x in changing]

        return tf.while_loop(lambda i, *_: i < STEPS, body, (0, 0.0, changing))[1]

    loop()
    times = []
    for _ in range(loops):
        start = time.perf_counter()
        loop().numpy()
        times.append(time.perf_counter() - start)
    return min(times) / STEPS
