"""One attention layer beside Keras's own: how many times its time, in turns.

Forward, and forward with backward, in a compiled function, without a mask and with one
of random lengths; each ratio is of medians over rounds in which both take turns. On JAX
also of the memory that XLA takes for forward and backward. It runs on the backend of
Keras, so run it for each:

    python benchmarks/one_layer.py
    KERAS_BACKEND=jax python benchmarks/one_layer.py

Shapes: B batch, Q queries, S source positions, H units.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
from keras import ops

import keras_luong as kl

SHAPES = ["8,64,64,64", "64,30,30,512", "8,256,256,256", "8,1024,1024,64"]


def main() -> None:
    """Measures, and prints a table."""
    args = parse()
    backend = keras.backend.backend()
    print(
        f"{backend}, Keras {keras.version()}; time in Keras's, {args.rounds} rounds\n"
    )
    print("| layer | B, Q, S, H | mask | forward | with backward | memory |")
    print("|---|---|---|---:|---:|---:|")
    for shape in args.shapes:
        batch, queries, length, units = map(int, shape.split(","))
        rng = np.random.default_rng(0)
        query, value = (
            ops.convert_to_tensor(rng.normal(size=(batch, n, units)).astype("float32"))
            for n in (queries, length)
        )
        lengths = rng.integers(length // 2, length + 1, (batch, 1))
        mask = ops.convert_to_tensor(np.arange(length) < lengths)
        for name in args.layers:
            for with_mask in (False, True):
                inputs = (query, value, mask) if with_mask else (query, value)
                forward, _ = ratios(name, units, inputs, False, args.rounds)
                both, memory = ratios(name, units, inputs, True, args.rounds)
                cells = f"{forward:.2f} | {both:.2f} | {memory}"
                masked = "yes" if with_mask else "no"
                print(f"| {name} | {shape} | {masked} | {cells} |", flush=True)


def make_pair(name: str, units: int):
    """Our layer, Keras's, and how a mask is given to both."""

    def as_list(layer, query, value, mask=None):
        return layer([query, value], mask=None if mask is None else [None, mask])

    def by_name(layer, query, value, mask=None):
        pairs = None if mask is None else mask[:, None]
        return layer(query, value, attention_mask=pairs)

    if name == "dot":
        return kl.LuongAttention("dot"), keras.layers.Attention(), as_list
    if name == "concat":
        return (
            kl.LuongAttention(AddedScore()),
            keras.layers.AdditiveAttention(),
            as_list,
        )
    heads, size = 8, units // 8
    ours = kl.MultiHeadLuongAttention(heads, size)
    theirs = keras.layers.MultiHeadAttention(heads, size, use_bias=False)
    return ours, theirs, by_name


class AddedScore(kl.Score):
    """`vᵀ tanh(h_t + h̄_s)`, as `keras.layers.AdditiveAttention` has it."""

    def build(self, query_shape, key_shape):
        """Makes v."""
        self.scale = self.add_weight((query_shape[-1],), name="scale")

    def call(self, query, key, project=kl.layers.matmul):
        """[B, Q, S]."""
        added = ops.tanh(query[:, :, None] + key[:, None])
        return ops.squeeze(kl.layers.matmul(self.scale[:, None], added), -1)


def ratios(name, units, inputs, backward, rounds):
    """Our median time divided by Keras's, and our memory where it is known."""
    ours, theirs, call = make_pair(name, units)
    both = [compiled(layer, call, inputs, backward) for layer in (ours, theirs)]
    runs, sizes = zip(*both, strict=True)
    for run in runs:
        run(), run()  # compiles
    times = [[], []]
    for _ in range(rounds):
        for run, seconds in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    memory = f"{sizes[0] / sizes[1]:.2f}" if all(sizes) else "-"
    return statistics.median(times[0]) / statistics.median(times[1]), memory


def compiled(layer, call, inputs, backward):
    """A function of nothing that runs a layer to its end; and its memory, in bytes."""
    call(layer, *inputs)  # makes the weights
    query, value, *mask = inputs
    if keras.backend.backend() == "jax":
        import jax

        weights = [v.value for v in layer.trainable_variables]
        others = [v.value for v in layer.non_trainable_variables]

        def forward(weights, query, value):
            with keras.StatelessScope(
                zip(layer.variables, ordered(layer, weights, others), strict=True)
            ):
                return call(layer, query, value, *mask)

        def loss(*args):
            return ops.sum(forward(*args) ** 2)

        run = jax.jit(jax.grad(loss, (0, 1, 2)) if backward else forward)
        run = run.lower(weights, query, value).compile()
        size = run.memory_analysis().temp_size_in_bytes
        return lambda: jax.block_until_ready(run(weights, query, value)), size

    import tensorflow as tf

    @tf.function
    def run(query, value):
        if not backward:
            return call(layer, query, value, *mask)
        with tf.GradientTape() as tape:
            tape.watch([query, value])
            loss = ops.sum(call(layer, query, value, *mask) ** 2)
        return tape.gradient(loss, [query, value, *layer.trainable_variables])

    return lambda: tf.nest.map_structure(lambda x: x.numpy(), run(query, value)), None


def ordered(layer, weights, others):
    """The values of all variables, in the layer's order."""
    trainable = iter(weights)
    rest = iter(others)
    return [next(trainable if v.trainable else rest) for v in layer.variables]


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", default=SHAPES, help="B,Q,S,H")
    names = ["dot", "concat", "multi-head"]
    parser.add_argument("--layers", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    main()
