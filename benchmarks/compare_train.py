"""Training steps against TensorFlow Addons', taking turns: ratios of time and memory.

Two processes take one step each, in turns: a machine that is uneven is so to both.
Printed last are the median of the pairs' ratios, and what memory a process has taken
beyond importing its libraries.

    python benchmarks/compare_train.py --peer PEER/bin/python
    python benchmarks/compare_train.py --peer PEER/bin/python \
        --shape 128,50,50,50000,512,512,2 --steps 6

The peer's environment: tensorflow-cpu==2.15.1 tensorflow-addons==0.23.0
typing_extensions==4.5.0.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
QUIET = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}


def main() -> None:
    """Measures and prints."""
    args = parse()
    steps = ["--steps", str(args.steps), "--take_turns"]
    ours = [sys.executable, str(HERE / "train_step.py"), "--shape", args.shape, *steps]
    peer = [args.peer, str(HERE / "peers" / "tfa_train.py"), args.shape, steps[1]]
    idle = [
        memory_of(sys.executable, "keras_luong"),
        memory_of(args.peer, "tensorflow_addons"),
    ]
    processes = [start(command) for command in (ours, peer)]
    pairs = [
        [float(answer(process)) for process in processes] for _ in range(args.steps)
    ]
    lines = [json.loads(answer(process)) for process in processes]
    for line in lines:
        print(json.dumps(line), flush=True)
    ratio = statistics.median(theirs / ours for ours, theirs in pairs)
    memory = [line["peak_mb"] - mb for line, mb in zip(lines, idle, strict=True)]
    print(
        f"\n{args.shape}: {ratio:.2f} times Addons' speed, "
        f"{lines[0]['share_of_gemm_floor']:.0%} of the product floor; memory "
        f"{memory[0]:,} against {memory[1]:,} MB, {memory[0] / memory[1]:.2f} times"
    )


def start(command) -> subprocess.Popen:
    """A process that is ready to take turns."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, env=QUIET, text=True, **pipes)
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"{' '.join(command)} failed")
    return process


def answer(process: subprocess.Popen) -> str:
    """A line of its own for a line of ours."""
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def run(command) -> dict:
    """The line of JSON that a command prints last."""
    done = subprocess.run(command, env=QUIET, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def memory_of(python: str, module: str) -> int:
    """MB of a process that has imported a library."""
    code = (
        f"import {module}, resource\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    return run([python, "-c", code])


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    flag = parser.add_argument
    flag("--peer", required=True, help="the Python that has TensorFlow Addons")
    flag("--shape", default="64,30,30,8000,512,512,2", help="B,S,T,V,E,H,L")
    flag("--steps", type=int, default=24, help="of each process")
    return parser.parse_args()


if __name__ == "__main__":
    main()
