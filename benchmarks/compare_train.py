"""Training steps against TensorFlow Addons', taking turns: ratios of time and memory.

Each turn is a process of its own. What is printed last are ratios of the medians over
the turns, and what memory a process has taken beyond importing its libraries.

    python benchmarks/compare_train.py --peer PEER/bin/python
    python benchmarks/compare_train.py --peer PEER/bin/python \
        --shape 128,50,50,50000,512,512,2 --steps 2 --rounds 1

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


def main() -> None:
    """Measures and prints."""
    args = parse()
    ours = [sys.executable, str(HERE / "train_step.py"), "--shape", args.shape]
    commands = {
        "keras_luong": [*ours, "--steps", str(args.steps)],
        "tensorflow_addons": [
            args.peer,
            str(HERE / "peers" / "tfa_train.py"),
            args.shape,
            str(args.steps),
        ],
    }
    idle = {
        "keras_luong": memory_of(sys.executable, "keras_luong"),
        "tensorflow_addons": memory_of(args.peer, "tensorflow_addons"),
    }
    turns = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, command in commands.items():
            turns[name].append(run(command))
            print(json.dumps(turns[name][-1]), flush=True)
    seconds, memory = (
        {
            name: statistics.median(turn[key] for turn in taken)
            for name, taken in turns.items()
        }
        for key in ("median_s", "peak_mb")
    )
    ours, peers = (memory[name] - idle[name] for name in commands)
    shares = [turn["share_of_gemm_floor"] for turn in turns["keras_luong"]]
    print(
        f"\n{args.shape}: {seconds['tensorflow_addons'] / seconds['keras_luong']:.2f} "
        f"times Addons' speed, {statistics.median(shares):.0%} of the product floor; "
        f"memory {ours:,.0f} against {peers:,.0f} MB, {ours / peers:.2f} times"
    )


def run(command) -> dict:
    """The line of JSON that a command prints last."""
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True)
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
    flag("--steps", type=int, default=8, help="of each process")
    flag("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
