"""A product of matrices in float32, bfloat16 and int8, by TensorFlow's CPU kernels.

    python benchmarks/number_types.py --sizes 256,4000 512,2048 --rows 1 5 160

Microseconds, activations in float32 before and after, as a quantised layer of a float32
model would have it; int8 is without the scaling, which would come on top. Each
product is in a loop, as those of a search are.
"""

from __future__ import annotations

import argparse
import functools

import tensorflow as tf
from timed_loops import seconds


def main() -> None:
    """Measures and prints."""
    args = parse()
    print("| rows × matrix | float32 | bfloat16 | int8 |\n|---|---:|---:|---:|")
    for size in args.sizes:
        rows, columns = map(int, size.split(","))
        for batch in args.rows:
            x, w = tf.random.normal([batch, rows]), tf.random.normal([rows, columns])
            weights = w, tf.cast(w, tf.bfloat16), tf.cast(20 * w, tf.int8)
            times = [seconds(functools.partial(product, w), [x]) for w in weights]
            cells = " | ".join(f"{1e6 * time:.0f}" for time in times)
            print(f"| {batch} × [{rows}, {columns}] | {cells} |", flush=True)


def product(w: tf.Tensor, x: tf.Tensor) -> list[tf.Tensor]:
    """In float32, whatever the type of w."""
    x = tf.cast(x, w.dtype)
    if w.dtype == tf.int8:
        x = tf.raw_ops.BatchMatMulV3(x=x, y=w, Tout=tf.int32)
    else:
        x = x @ w
    return [tf.cast(x, tf.float32)]


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=["256,4000", "512,2048"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 5, 160])
    return parser.parse_args()


if __name__ == "__main__":
    main()
