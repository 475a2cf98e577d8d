"""Sentences a second of `keras-luong translate`, by one process and by Ray's workers.

Each row is one run of the command. The rate is taken between the first lines that every
worker could have written and the last ones, so that starting is not in it; "start" is
the time before. Memory is that of one worker, the largest, without what it shares.

    python benchmarks/ray_workers.py RUN --input in.en --workers 1 2
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from keras_luong.files import count_lines


class Row(NamedTuple):
    """What one run took."""

    rate: float
    start: float
    seconds: float
    megabytes: float


def main() -> None:
    """Prints a table."""
    args = parse()
    lines = count_lines(args.input)
    print(f"{lines:,} lines, beam {args.beam_width}")
    print("engine | sentences/s | start, s | whole, s | MB a worker")
    for workers in (0, *args.workers):
        row = measured(args, workers, lines)
        name = f"ray, {workers}" if workers else "local, 1 thread"
        numbers = f"{row.rate:.1f} | {row.start:.1f} | {row.seconds:.1f}"
        print(f"{name} | {numbers} | {row.megabytes:.0f}", flush=True)


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--input", type=Path, required=True, help="text")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--window", type=int, default=256, help="lines of a shard")
    parser.add_argument("--beam_width", type=int, default=5)
    return parser.parse_args()


def measured(args: argparse.Namespace, workers: int, lines: int) -> Row:
    """Runs the command, and looks at how far it is now and then."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        ray = ["--engine", "ray", "--workers", str(workers)] if workers else []
        sizes = ["--window", args.window, "--beam_width", args.beam_width]
        files = ["--input", args.input, "--output", out]
        words = ["translate", args.run, *files, *sizes, *ray]
        program = "import keras_luong_command as c; c.main()"
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, words)],
            env={**os.environ, "TF_NUM_INTRAOP_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        seen, memory = watched(process, out, args.window, workers)
        seconds = time.perf_counter() - begin
        if process.returncode:
            raise SystemExit(process.stderr.read().decode() if process.stderr else 1)
    (early, few), (late, many) = seen[0], seen[-1]
    shards = many - few
    rate = shards * args.window / (late - early) if late > early else float("nan")
    return Row(rate, early - begin, seconds, memory / 2**20)


def watched(
    process: subprocess.Popen[bytes], out: Path, window: int, workers: int
) -> tuple[list[tuple[float, int]], float]:
    """When more full shards were done, one by each worker at least; and memory."""
    seen: list[tuple[float, int]] = []
    memory, looks = 0.0, 0
    while process.poll() is None:
        done = shards_done(out, window, workers)
        if done >= max(1, workers) and (not seen or done > seen[-1][1]):
            seen.append((time.perf_counter(), done))
        if looks % 50 == 0:
            memory = max(memory, memory_of_worker(process.pid, workers))
        looks += 1
        time.sleep(0.05)
    if not seen:
        raise SystemExit("The input is too short: no shard was seen to be done.")
    return seen, memory


def shards_done(out: Path, window: int, workers: int) -> int:
    """Full windows that are written: in parts, or by the local engine."""
    if workers:
        return sum(1 for _ in out.with_name("out.parts").glob("0*.json"))
    return out.read_bytes().count(b"\n") // window if out.exists() else 0


def memory_of_worker(pid: int, workers: int) -> float:
    """Bytes that the largest worker has for itself; of the process if it has none."""
    most = 0.0
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in process.children(recursive=True) if workers else [process]:
            with contextlib.suppress(psutil.Error):
                if not workers or "MapWorker" in "".join(one.cmdline()):
                    most = max(most, one.memory_full_info().uss)
    return most


if __name__ == "__main__":
    main()
