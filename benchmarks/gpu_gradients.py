"""Are a GPU's loss and gradients those of the processor?

The first run computes them for some models and writes them to a file; the second run
starts from the same weights and compares. Sentences have different lengths, nothing is
dropped, and products are full float32, not TF32.

    python benchmarks/gpu_gradients.py gradients.npz
    CUDA_VISIBLE_DEVICES= python benchmarks/gpu_gradients.py gradients.npz

On TensorFlow. cuDNN computes what has no input feeding.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from gpu_step import MODELS

import keras_luong as kl
from keras_luong.models import build

MORE = {
    "bidirectional": {"input_feeding": False, "bidirectional": True},
    # Narrower than in gpu_step, so that words of these sentences lie outside.
    "local-p, input feeding": {"attention": "local-p", "window": 3},
    "local-m": {"attention": "local-m", "window": 3, "input_feeding": False},
}
WORDS = 1000


def main() -> None:
    """Computes, then writes or compares."""
    args = parse()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    print("GPUs:", len(tf.config.list_physical_devices("GPU")))
    old = dict(np.load(args.file)) if args.file.exists() else {}
    new = {}
    rng = np.random.default_rng(0)
    batch = {"source": sentences(rng, 20), "target": sentences(rng, 18)}
    label = sentences(rng, 18)
    for name, changes in (MODELS | MORE).items():
        model = build(
            "luong2015-base", WORDS, WORDS, units=args.units, dropout=0.0, **changes
        )
        for i, weight in enumerate(model.trainable_weights):
            key = f"{name}/weight/{i}"
            start = old[key] if old else rng.uniform(-0.08, 0.08, weight.shape)
            weight.assign(start)
            new[key] = weight.numpy()
        loss, gradients = step(model, batch, label)
        new[f"{name}/loss"] = loss.numpy()
        for i, gradient in enumerate(gradients):
            new[f"{name}/gradient/{i}"] = gradient.numpy()
        if old:
            compare(name, old, new)
    if not old:
        np.savez(args.file, **new)


def sentences(rng, length: int) -> np.ndarray:
    """32 random sentences, padded at their end."""
    words = rng.integers(4, WORDS, (32, length))
    lengths = rng.integers(length // 2, length + 1, (32, 1))
    return np.where(np.arange(length) < lengths, words, 0)


def step(model, batch, label):
    """Loss and gradients."""
    loss_of = kl.SequenceCrossentropy()

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            loss = loss_of(label, model(batch, training=True))
        gradients = tape.gradient(loss, [w.value for w in model.trainable_weights])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients]

    return run()


def compare(name, old, new) -> None:
    """Prints the largest difference, as a share of its gradient's largest number."""
    keys = [key for key in new if key.startswith(f"{name}/gradient/")]
    differ = max(np.abs(new[k] - old[k]).max() / np.abs(old[k]).max() for k in keys)
    losses = [float(values[f"{name}/loss"]) for values in (old, new)]
    print(f"{name}: losses {losses}, gradients differ by {differ:.1e}")


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, help="an .npz file; compared if it is there")
    parser.add_argument("--units", type=int, default=256)
    return parser.parse_args()


if __name__ == "__main__":
    main()
