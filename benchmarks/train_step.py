"""One training step of Seq2Seq: seconds, and the share of what its products must take.

The library's own train step, as `fit` runs it: forward, backward, clipping at norm 5,
SGD. Every position counts, and nothing is dropped, so that all systems do the same
work. Prints one JSON line.

    python benchmarks/train_step.py --shape 64,30,30,8000,512,512,2
    python benchmarks/train_step.py --changes '{"attention": "local-m", "window": 10}'

The share of the floor is that of the general score's products, whatever the changes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from workers import memory

import keras_luong as kl
from keras_luong.training.optimizers import make_optimizer


def main() -> None:
    """Measures and prints."""
    args = parse()
    shape = B, _, T, V, *_ = tuple(map(int, args.shape.split(",")))
    train = make_train(shape, args)
    for _ in range(2):
        train()
    if args.take_turns:
        print(json.dumps({"ready": True}), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"seconds": timed(train)}), flush=True)
        return
    seconds = [timed(train) for _ in range(args.steps)]
    median, peak = statistics.median(seconds), matmul_peak()
    line = {
        "system": "keras_luong",
        "shape": args.shape,
        "changes": json.loads(args.changes),
        "median_s": median,
        "min_s": min(seconds),
        "target_tokens_per_s": B * T / median,
        "gemm_peak_gflops": peak / 1e9,
        "share_of_gemm_floor": products(*shape) / peak / median,
        "peak_mb": memory("VmHWM"),
    }
    print(json.dumps(line), flush=True)


def make_train(shape, args):
    """A function that trains on one batch and waits for the loss."""
    model = compiled(shape, json.loads(args.changes), args.jit_compile)
    batches = iter(batch_of(shape).repeat())
    model.make_train_function()
    return lambda: float(model.train_function(batches)["loss"])


def compiled(shape, changes, jit_compile=False):
    """The model of a shape, ready to be trained."""
    _, _, _, V, E, H, L = shape
    sizes = {"units": H, "embedding_dim": E, "num_layers": L}
    same_work = {"bidirectional": False, "dropout": 0.0}
    config = kl.Seq2SeqConfig(V, V, **{**sizes, **same_work, **changes})
    model = kl.Seq2Seq(config)
    model.compile(
        make_optimizer("sgd", 0.1, clip_norm=5.0),
        kl.SequenceCrossentropy(),
        jit_compile=jit_compile,
    )
    return model


def batch_of(shape):
    """A dataset of one batch, of random words."""
    B, S, T, V, *_ = shape
    rng = np.random.default_rng(0)
    source, target, label = (
        rng.integers(4, V, size).astype("int32") for size in ((B, S), (B, T), (B, T))
    )
    weight = np.full((B, T), 1 / (B * T), "float32")
    return tf.data.Dataset.from_tensors(
        ({"source": source, "target": target}, label, weight)
    )


def timed(run) -> float:
    """Seconds."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def products(B, S, T, V, E, H, L) -> float:
    """Floating point operations of the matrix products, forward and backward."""
    encoder = E * 4 * H + H * 4 * H + (L - 1) * 2 * H * 4 * H + H * H
    decoder = E * 4 * H + L * 2 * H * 4 * H + 2 * S * H + 2 * H * H + H * V
    return 3 * 2 * (B * S * encoder + B * T * decoder)


def matmul_peak() -> float:
    """Floating point operations a second of one large product."""
    x = tf.random.normal([2048, 2048])
    product = tf.function(lambda: tf.matmul(x, x)[0, 0])
    product()
    return 2 * 2048**3 / min(timed(lambda: float(product())) for _ in range(8))


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--shape", default="64,30,30,8000,512,512,2", help="B,S,T,V,E,H,L"
    )
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--changes", default="{}", help="of the configuration, JSON")
    parser.add_argument("--jit_compile", action="store_true")
    parser.add_argument(
        "--take_turns",
        action="store_true",
        help="a step for each line on standard input, see workers.py",
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
