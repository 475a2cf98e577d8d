"""Training steps against TensorFlow Addons', taking turns: ratios of time and memory.

Two processes take one step each, in turns: a machine that is uneven is so to both.
Printed are the medians, the median of the pairs' ratios, and what memory a process has
taken beyond importing its libraries.

    python benchmarks/compare_train.py --peer PEER/bin/python
    python benchmarks/compare_train.py --peer PEER/bin/python \
        --shape 128,50,50,50000,512,512,2 --steps 6

The peer's environment: tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0
typing_extensions==4.5.0.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from workers import Worker, memory

HERE = Path(__file__).parent


def main() -> None:
    """Measures and prints."""
    args = parse()
    idle = [
        held(Worker(python, "-c", f"import {module}; print(1); input()"))
        for python, module in (
            (sys.executable, "keras_luong"),
            (args.peer, "tensorflow_addons"),
        )
    ]
    ours = sys.executable, HERE / "train_step.py", "--shape", args.shape
    peer = args.peer, HERE / "peers" / "tfa_train.py", args.shape
    workers = [Worker(*ours, "--take_turns"), Worker(*peer)]
    pairs = [[x.ask("step")["seconds"] for x in workers] for _ in range(args.steps)]
    medians = [statistics.median(times) for times in zip(*pairs, strict=True)]
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    peaks = [held(x) - mb for x, mb in zip(workers, idle, strict=True)]
    print(
        f"{args.shape}: a step takes {medians[0]:.4g} s and Addons' {medians[1]:.4g}, "
        f"{ratio:.2f} times Addons' speed; memory {peaks[0]:,} against {peaks[1]:,} MB"
    )


def held(worker: Worker) -> int:
    """MB that a process held at most; it is ended."""
    most = memory("VmHWM", worker.process.pid)
    worker.process.terminate()
    return most


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("--peer", required=True, help="the Python that has TensorFlow Addons")
    flag("--shape", default="64,30,30,8000,512,512,2", help="B,S,T,V,E,H,L")
    flag("--steps", type=int, default=24, help="of each process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
