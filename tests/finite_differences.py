"""Gradients against the slope of the loss along random directions."""

import numpy as np
import tensorflow as tf


def check_gradients(loss, variables, absolute, relative, epsilon=1e-2):
    """`loss()` is a scalar that depends on `variables`, Keras's. -> What it is."""

    @tf.function(autograph=False)  # traced once, for the gradients and each value
    def of_variables():
        with tf.GradientTape() as tape:
            value = loss()
        return value, tape.gradient(value, [v.value for v in variables])

    first, gradients = of_variables()
    rng = np.random.default_rng(1)
    for variable, gradient in zip(variables, gradients, strict=True):
        direction = rng.normal(size=variable.shape).astype("float32")
        direction /= np.linalg.norm(direction)
        original, values = variable.numpy(), []
        for sign in (1, -1):
            variable.assign(original + sign * epsilon * direction)
            values.append(float(of_variables()[0]))
        variable.assign(original)
        slope = (values[0] - values[1]) / (2 * epsilon)
        dot = float(tf.reduce_sum(tf.convert_to_tensor(gradient) * direction))
        assert abs(slope - dot) < absolute + relative * abs(dot), variable
    return first
