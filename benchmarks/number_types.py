"""A product of matrices in float32, bfloat16 and int8, by TensorFlow's CPU kernels.

    python benchmarks/number_types.py --sizes 256,4000 512,2048 --rows 1 5 160

Microseconds, activations in float32 before and after, as a quantised layer of a float32
model would have it; int8 is without the scaling, which would come on top. Each
product is in a loop, as those of a search are.
"""

from __future__ import annotations

import argparse
import time

import tensorflow as tf

STEPS = 50  # of a loop


def main() -> None:
    """Measures and prints."""
    args = parse()
    print("| rows × matrix | float32 | bfloat16 | int8 |\n|---|---:|---:|---:|")
    for size in args.sizes:
        rows, columns = map(int, size.split(","))
        for batch in args.rows:
            x, w = tf.random.normal([batch, rows]), tf.random.normal([rows, columns])
            weights = w, tf.cast(w, tf.bfloat16), tf.cast(20 * w, tf.int8)
            times = [timed(x, w) for w in weights]
            cells = " | ".join(f"{1e6 * seconds:.0f}" for seconds in times)
            print(f"| {batch} × [{rows}, {columns}] | {cells} |", flush=True)


def timed(x: tf.Tensor, w: tf.Tensor) -> float:
    """Seconds of one product, the best of several loops."""

    @tf.function(autograph=False)
    def loop():
        def body(i, total, x):
            y = product(tf.cast(x, w.dtype), w)
            # What changes at every step cannot be computed once for all of them.
            return i + 1, total + tf.cast(tf.reshape(y, [-1])[0], x.dtype), x + 1e-6

        return tf.while_loop(lambda i, *_: i < STEPS, body, (0, 0.0, x))[1]

    loop()
    times = []
    for _ in range(10):
        start = time.perf_counter()
        loop().numpy()
        times.append(time.perf_counter() - start)
    return min(times) / STEPS


def product(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
    """In float32."""
    if w.dtype == tf.int8:
        x = tf.raw_ops.BatchMatMulV3(x=x, y=w, Tout=tf.int32)
        return tf.cast(x, tf.float32)
    return tf.cast(x @ w, tf.float32)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["256,4000", "512,2048"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 5, 160])
    return parser.parse_args()


if __name__ == "__main__":
    main()
