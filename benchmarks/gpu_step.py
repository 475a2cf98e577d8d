"""Training steps on a GPU, one table: TensorFlow, JAX, and cuDNN's LSTM as the floor.

    pip install "tensorflow[and-cuda]" "jax[cuda13]" torch keras_luong
    python benchmarks/gpu_step.py
    python benchmarks/gpu_step.py --train "m30k --source de --target en"
    python benchmarks/gpu_step.py --rehearse     # small, on any machine: does it run?

The model has the general score and input feeding; TensorFlow trains it with its loops
compiled, with the whole step compiled, and with neither. The floor is `torch.nn.LSTM`,
which is cuDNN's, in an encoder and a decoder of the same shape, with the same output
layer, loss, clipping and SGD, but without attention. float32 products are rounded to
TF32 where the GPU does that. Each row is a process of its own: one that fails says so
in its place, and the others go on. `--jax` and `--torch` name the Python that has
them, if this one has not.

ms: of a step within `fit`, the median of three epochs of about a second each.
first step: seconds, until it is done; tracing, and all that XLA compiles.
GPU: nvidia-smi's utilisation meanwhile, the part of the time in which it computed.

With `--train`, `keras-luong train` of that corpus: target tokens a second of its third
epoch, validation and all.

What is aimed at, on one H100 (the last lines say how far it is):
* two layers of 512: at most 12 ms on TensorFlow (61 before), and 1.1 times JAX's time;
* the paper's four layers of 1000: at most 95 ms (JAX 88, cuDNN alone 35);
* `keras-luong train` on Multi30k's 29,000 pairs: 120,000 target tokens a second.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# TensorFlow, which JAX's rows import too, takes only the memory that it needs.
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")

#: B, S, T, V, E, H, L: batch, source, target, words, embedding, units, layers.
SHAPES = {
    "2 x 512": (64, 30, 30, 8000, 512, 512, 2),
    "4 x 1000": (128, 50, 50, 50000, 1000, 1000, 4),
}
SMALL = {"2 x 512": (2, 3, 4, 20, 8, 8, 2), "4 x 1000": (2, 4, 5, 20, 8, 8, 4)}
DTYPES = "float32", "mixed_bfloat16"
#: The backend; of TensorFlow's, whether its loops are compiled, and the whole step.
SYSTEMS = {
    "JAX": ("jax", None, "auto"),
    "TensorFlow, loops compiled": ("tensorflow", True, False),
    "cuDNN's LSTM (PyTorch)": ("torch", None, False),
    "TensorFlow, step compiled": ("tensorflow", False, True),
    "TensorFlow, neither": ("tensorflow", False, False),
}
TRAIN = "keras-luong train"
LONGEST_ROW = 150  # seconds


def main() -> None:
    """Measures and prints."""
    args = parse()
    if args.row:  # this is the process of a row
        try:
            found = measure(*args.row, args)
        except ModuleNotFoundError as error:
            found = {"failed": f"{error.name} is not installed"}
        print(json.dumps(found), flush=True)
        return
    rows = [("", "", TRAIN)] * bool(args.train)
    rows += [(shape, x, name) for x in DTYPES for shape in SHAPES for name in SYSTEMS]
    rows = [row for row in rows if any(x in " ".join(row) for x in args.only)]
    print("| layers | numbers | | ms | of JAX's | target tokens/s | first step | GPU |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    start, results, versions = time.monotonic(), {}, {}
    for row in rows:
        left = 60 * args.minutes - (time.monotonic() - start)
        found = results[row] = in_process(row, min(left, LONGEST_ROW), args)
        versions |= found.pop("versions", {})
        print(line(row, found, results.get((*row[:2], "JAX"), {})), flush=True)
    said = [device(), str(datetime.date.today())]
    said += [f"{name} {version}" for name, version in versions.items()]
    print(f"\n{', '.join(said)}", end="\n\n")
    for goal in ["a rehearsal, of small shapes"] if args.rehearse else goals(results):
        print(f"* {goal}")


def in_process(row: tuple[str, ...], seconds: float, args) -> dict:
    """What a process finds of a row, in at most so many seconds."""
    backend = SYSTEMS[row[2]][0] if row[2] in SYSTEMS else "tensorflow"
    python = getattr(args, backend, None) or sys.executable
    command = [python, __file__, *sys.argv[1:], "--row", *row]
    if seconds <= 0:
        return {"failed": f"not reached in {args.minutes:g} minutes"}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "KERAS_BACKEND": backend},
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        return json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {seconds:.0f} s"}
    except (IndexError, ValueError):
        said = done.stderr.strip().splitlines() or ["nothing"]
        return {"failed": f"ended with {done.returncode}: {said[-1][:200]}"}


def line(row: tuple[str, ...], found: dict, jax: dict) -> str:
    """A row of the table."""
    shape, dtype, name = row
    cells = [shape, dtype, name, *[""] * 5]
    if "failed" in found:
        cells[3] = found["failed"]
    if "ms" in found:
        cells[3] = f"{found['ms']:.1f}"
        cells[4] = f"{found['ms'] / jax['ms']:.2f}" if "ms" in jax else "-"
        cells[6] = f"{found['first_s']:.1f} s"
        cells[7] = "-" if found["gpu"] is None else f"{found['gpu']:.0f}%"
    if "tokens" in found:
        cells[5] = f"{found['tokens']:,.0f}"
    return f"| {' | '.join(cells)} |"


def goals(results: dict) -> list[str]:
    """What is aimed at, and what was reached, where it was measured."""
    small, large = (
        {name: results.get((shape, "float32", name), {}).get("ms") for name in SYSTEMS}
        for shape in SHAPES
    )
    ours, jax = small["TensorFlow, loops compiled"], small["JAX"]
    wanted = [
        ("2 x 512, loops compiled, ms", ours, "at most", 12),
        ("... of JAX's time", ours and jax and ours / jax, "at most", 1.1),
        ("4 x 1000, ms", large["TensorFlow, loops compiled"], "at most", 95),
        (
            "keras-luong train, target tokens/s",
            results.get(("", "", TRAIN), {}).get("tokens"),
            "at least",
            120_000,
        ),
    ]
    said = []
    for name, value, limit, goal in wanted:
        if value is not None:
            reached = value <= goal if limit == "at most" else value >= goal
            word = "reached" if reached else "not reached"
            said.append(f"{name}: {value:,.4g}, {limit} {goal:,}: {word}")
    return said


def measure(shape_name: str, dtype: str, name: str, args) -> dict:
    """A row's numbers: in a process of its own."""
    if name == TRAIN:
        return trained(args.train.split())
    shape = (SMALL if args.rehearse else SHAPES)[shape_name]
    backend, loops, step = SYSTEMS[name]
    if backend == "torch":
        run = cudnn(shape, dtype)
    else:
        run = fitting(shape, dtype, loops, step)
    first = timed(run, 1)
    steps = 5
    usual = timed(run, steps) / steps
    if not args.rehearse:
        steps = max(steps, round(1 / usual))
    with utilisation() as samples:
        seconds = statistics.median(timed(run, steps) / steps for _ in range(3))
    B, _, T, *_ = shape
    return {
        "ms": 1000 * seconds,
        "tokens": B * T / seconds,
        "first_s": first,
        "gpu": statistics.mean(samples) if samples else None,
        "versions": {x: importlib.metadata.version(x) for x in packages(backend)},
    }


def packages(backend: str) -> list[str]:
    """Those whose versions a row depends on."""
    return ["torch"] if backend == "torch" else [backend, "keras"]


def timed(run, steps: int) -> float:
    """Seconds of so many steps."""
    start = time.perf_counter()
    run(steps)
    return time.perf_counter() - start


def fitting(shape, dtype, loops, jit_compile):
    """A function of a number of steps that trains by `fit`."""
    import keras

    if keras.backend.backend() == "jax":
        keras.distribution.list_devices()  # see docs/troubleshooting.md, "JAX"
    from train_step import batch_of, compiled  # imports TensorFlow: after JAX has begun

    from keras_luong.layers import fast_recurrence

    fast_recurrence.COMPILE_LOOPS = loops
    keras.config.set_dtype_policy(dtype)
    model, data = compiled(shape, {}, jit_compile), batch_of(shape).repeat()
    return lambda steps: model.fit(data, steps_per_epoch=steps, verbose=0)


def cudnn(shape, dtype):
    """A function of a number of steps that trains cuDNN's LSTM."""
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
        device, dtype=torch.bfloat16, enabled=dtype == "mixed_bfloat16"
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

    def run(steps):
        for _ in range(steps):
            loss = step()
        loss.item()  # waits for the GPU

    return run


def trained(words: list[str]) -> dict:
    """Target tokens a second of `keras-luong train`."""
    from keras_luong.cli.main import main as keras_luong
    from keras_luong.runs.run import read_history, read_record

    with tempfile.TemporaryDirectory() as path:
        run_dir = Path(path) / "run"
        own = ["--run_dir", str(run_dir), "--epochs", "3"]
        keras_luong(["train", *words, *own])
        text, last = read_record(run_dir)["corpus"]["train"], read_history(run_dir)[-1]
    pairs = text["pairs"] - text["empty"] - text["too_long"]  # each has an EOS
    tokens = (text["target_tokens"] + pairs) * text["passes"] / text["parts"]
    return {"tokens": tokens / last["seconds"]}


@contextlib.contextmanager
def utilisation():
    """A list that has the GPU's utilisation, in percent, every 0.1 s of the block."""
    samples: list[float] = []
    if shutil.which("nvidia-smi") is None:
        yield samples
        return
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--id=0"]
    command = ["nvidia-smi", *query, "--loop-ms=100"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield samples
    finally:
        process.terminate()
        words = process.communicate()[0].split()
        samples += [float(x) for x in words if x.isdecimal()]


def device() -> str:
    """The GPU's name, or that there is none."""
    if shutil.which("nvidia-smi") is None:
        return f"no GPU, {os.cpu_count()} CPU cores"
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader", "--id=0"]
    return subprocess.run(query, capture_output=True, text=True).stdout.strip()


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("--rehearse", action="store_true", help="small shapes, and few steps")
    flag("--only", nargs="+", default=[""], help="rows that have one of these words")
    flag("--minutes", type=float, default=9, help="rows that would begin later do not")
    flag("--train", default="", help="the corpus, and options of keras-luong train")
    flag("--jax", help="the Python that has JAX")
    flag("--torch", help="the Python that has PyTorch")
    flag("--row", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
