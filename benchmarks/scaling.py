"""How a training step's time and memory grow as each size doubles.

A process a shape, by benchmarks/train_step.py. Beside what was measured stands by how
much the matrix products grow, and the order that the memory should have. Prints a
table in Markdown.

    python benchmarks/scaling.py --shape 32,20,20,8000,256,256,2
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from compare_train import memory_of, run
from train_step import products

NAMES = "BSTVEHL"


def main() -> None:
    """Measures and prints."""
    args = parse()
    shape = [int(size) for size in args.shape.split(",")]
    idle = memory_of(sys.executable, "keras_luong")
    base = measure(shape, args.steps)
    print(
        f"| doubled | seconds ({base['median_s']:.3f}) | grows | products grow | ",
        end="",
    )
    print(f"MB ({base['peak_mb'] - idle:,}) | grows | weights and states grow |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in args.doubled:
        larger = doubled(shape, name)
        line = measure(larger, args.steps)
        row = [
            name,
            f"{line['median_s']:.3f}",
            f"{line['median_s'] / base['median_s']:.2f}",
            f"{products(*larger) / products(*shape):.2f}",
            f"{line['peak_mb'] - idle:,}",
            f"{(line['peak_mb'] - idle) / (base['peak_mb'] - idle):.2f}",
            f"{numbers(*larger) / numbers(*shape):.2f}",
        ]
        print(f"| {' | '.join(row)} |", flush=True)


def doubled(shape: list[int], name: str) -> list[int]:
    """The shape with one size doubled."""
    return [
        2 * size if n == name else size for n, size in zip(NAMES, shape, strict=True)
    ]


def numbers(B, S, T, V, E, H, L) -> int:
    """How many numbers there must be: weights with gradients, and what is kept a step.

    A step of a recurrent layer keeps its input's product, the gates, the cell and the
    output: 10 H. The decoder keeps attention and contexts too, and their gradients.
    """
    weights = 2 * V * E + V * H + 2 * L * 8 * H * H + 5 * H * H
    encoder = B * S * (E + L * 10 * H + 2 * H)
    decoder = B * T * (E + L * 10 * H + 6 * H + 3 * S)
    chunk = min(B * T * V, 2**24)
    return 2 * weights + 2 * (encoder + decoder) + 2 * chunk


def measure(shape: list[int], steps: int) -> dict:
    """One process of benchmarks/train_step.py."""
    script = Path(__file__).with_name("train_step.py")
    sizes = ",".join(map(str, shape))
    return run([sys.executable, str(script), "--shape", sizes, "--steps", str(steps)])


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--shape", default="32,20,20,8000,256,256,2", help="B,S,T,V,E,H,L"
    )
    parser.add_argument("--doubled", default="BTSVH", help="which of the sizes")
    parser.add_argument("--steps", type=int, default=8)
    args = parser.parse_args()
    if strange := set(args.doubled) - set(NAMES):
        parser.error(f"--doubled must be of {NAMES}. Received: {', '.join(strange)}")
    return args


if __name__ == "__main__":
    main()
