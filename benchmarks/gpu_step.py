"""Training steps on a GPU, by Keras's backend; cuDNN's LSTM without attention as floor.

Prints a JSON line for each model: milliseconds of a step within `fit`. The floor is
`torch.nn.LSTM`, which is cuDNN's, in an encoder and a decoder of the same shape with
the same output layer, loss, clipping and SGD, but no attention; it needs PyTorch.

    KERAS_BACKEND=jax python benchmarks/gpu_step.py
    KERAS_BACKEND=tensorflow python benchmarks/gpu_step.py --jit_compile
    python benchmarks/gpu_step.py --floor
    KERAS_BACKEND=jax python benchmarks/gpu_step.py \
        --shape 128,50,50,50000,1000,1000,4 --dtype mixed_bfloat16

Both round the operands of float32 products to TF32 where the GPU does.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# JAX, TensorFlow and PyTorch may share the GPU's memory.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

MODELS = {
    "no attention": {"attention": None, "input_feeding": False},
    "general": {"input_feeding": False},
    "general, input feeding": {},
    "concat, input feeding": {"score_mode": "concat"},
    "local-p, input feeding": {"attention": "local-p", "window": 10},
}


def main() -> None:
    """Measures and prints."""
    args = parse()
    shape = tuple(map(int, args.shape.split(",")))
    if args.floor:
        show(args, shape, "cuDNN's LSTM", "torch", floor(shape, args))
        return
    import keras

    if keras.backend.backend() == "jax":
        keras.distribution.list_devices()  # see docs/troubleshooting.md, "JAX"
    for name in args.models or MODELS:
        seconds = seconds_of_fit(shape, MODELS[name], args)
        show(args, shape, name, keras.backend.backend(), seconds)


def show(args, shape, model, backend, seconds) -> None:
    """Prints a JSON line."""
    B, _, T, *_ = shape
    line = {
        "model": model,
        "backend": backend,
        "shape": args.shape,
        "dtype": args.dtype,
        "jit_compile": args.jit_compile,
        "ms": round(1000 * seconds, 3),
        "target_tokens_per_s": round(B * T / seconds),
    }
    print(json.dumps(line), flush=True)


def seconds_of_fit(shape, changes, args) -> float:
    """Seconds of a step: the median of the epochs of `fit` after the first."""
    import keras
    from train_step import batch_of, compiled  # imports TensorFlow: after JAX has begun

    keras.config.set_dtype_policy(args.dtype)
    model = compiled(shape, changes, args.jit_compile or "auto")
    times = []
    clock = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda *_: times.append(-time.perf_counter()),
        on_epoch_end=lambda *_: times.append(times.pop() + time.perf_counter()),
    )
    options = {"epochs": 4, "steps_per_epoch": args.steps, "verbose": 0}
    model.fit(batch_of(shape).repeat(), callbacks=[clock], **options)
    return statistics.median(times[1:]) / args.steps


def floor(shape, args) -> float:
    """Seconds of a step of cuDNN's LSTM."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    B, S, T, V, E, H, L = shape
    source, target, labels = (
        torch.randint(4, V, size, device=device) for size in ((B, S), (B, T), (B, T))
    )
    parts = torch.nn.ModuleDict(
        {
            "source": torch.nn.Embedding(V, E),
            "target": torch.nn.Embedding(V, E),
            "encoder": torch.nn.LSTM(E, H, L, batch_first=True),
            "decoder": torch.nn.LSTM(E, H, L, batch_first=True),
            "output": torch.nn.Linear(H, V, bias=False),
        }
    ).to(device)
    optimizer = torch.optim.SGD(parts.parameters(), 0.1)
    bfloat16 = torch.autocast(
        device, dtype=torch.bfloat16, enabled=args.dtype == "mixed_bfloat16"
    )

    def step():
        with bfloat16:
            _, state = parts["encoder"](parts["source"](source))
            x, _ = parts["decoder"](parts["target"](target), state)
            logits = parts["output"](x)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1).float(), labels.flatten()
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parts.parameters(), 5.0)
        optimizer.step()
        return loss

    times = []
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(args.steps):
            loss = step()
        loss.item()  # waits for the GPU
        times.append((time.perf_counter() - start) / args.steps)
    return statistics.median(times[1:])


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--shape", default="64,30,30,8000,512,512,2", help="B,S,T,V,E,H,L"
    )
    parser.add_argument("--steps", type=int, default=20, help="in an epoch")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "mixed_bfloat16"]
    )
    parser.add_argument("--models", nargs="*", choices=list(MODELS))
    parser.add_argument("--jit_compile", action="store_true", help="TensorFlow by XLA")
    parser.add_argument("--floor", action="store_true", help="cuDNN's LSTM alone")
    return parser.parse_args()


if __name__ == "__main__":
    main()
