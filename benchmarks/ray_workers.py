"""Sentences a second of `keras-luong translate`, by one process and by Ray's workers.

Each row is one run of the command. The rate is taken between the first lines that every
worker could have written and the last ones, so that starting is not in it; "start" is
the time before. Memory is that of one worker, the largest, without what it shares.
Processor time is that of the same lines as the rate: of the workers, and of the rest,
which is the command and Ray's own processes.

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
    of_workers: float
    of_rest: float


class Look(NamedTuple):
    """How far a run is, and the processor seconds of the workers and of the rest."""

    time: float
    shards: int
    of_workers: float
    of_rest: float


def main() -> None:
    """Prints a table."""
    args = parse()
    lines = count_lines(args.input)
    print(f"{lines:,} lines, beam {args.beam_width}")
    print("engine | sentences/s | start, s | whole, s | MB a worker", end="")
    print(" | processor s/1,000 lines, workers | the rest")
    for workers in (0, *args.workers):
        row = measured(args, workers, lines)
        name = f"ray, {workers}" if workers else "local, 1 thread"
        numbers = f"{row.rate:.1f} | {row.start:.1f} | {row.seconds:.1f}"
        spent = f"{row.of_workers:.2f} | {row.of_rest:.2f}"
        print(f"{name} | {numbers} | {row.megabytes:.0f} | {spent}", flush=True)


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
        program = "from keras_luong.cli.main import main; main()"
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
    if len(seen) < 2:
        raise SystemExit("The input is too short: shards were not seen to be done.")
    first, last = seen[0], seen[-1]
    some = (last.shards - first.shards) * args.window
    return Row(
        some / (last.time - first.time),
        first.time - begin,
        seconds,
        memory / 2**20,
        1000 * (last.of_workers - first.of_workers) / some,
        1000 * (last.of_rest - first.of_rest) / some,
    )


def watched(
    process: subprocess.Popen[bytes], out: Path, window: int, workers: int
) -> tuple[list[Look], float]:
    """When more full shards were done, one by each worker at least; and memory."""
    seen: list[Look] = []
    spent: dict[psutil.Process, tuple[bool, float]] = {}
    memory, looks = 0.0, 0
    while process.poll() is None:
        done = shards_done(out, window, workers)
        if done >= max(1, workers) and (not seen or done > seen[-1].shards):
            now = time.perf_counter()
            seen.append(Look(now, done, *processor_time(process.pid, workers, spent)))
        if looks % 50 == 0:
            memory = max(memory, memory_of_worker(process.pid, workers))
        looks += 1
        time.sleep(0.05)
    return seen, memory


def shards_done(out: Path, window: int, workers: int) -> int:
    """Full windows that are written: in parts, or by the local engine."""
    if workers:
        return sum(1 for _ in out.with_name("out.parts").glob("0*.json"))
    return out.read_bytes().count(b"\n") // window if out.exists() else 0


def memory_of_worker(pid: int, workers: int) -> float:
    """Bytes that the largest worker has for itself; of the process if it has none."""
    most = 0.0
    for one in processes(pid):
        with contextlib.suppress(psutil.Error):
            if is_worker(one, workers):
                most = max(most, one.memory_full_info().uss)
    return most


def processor_time(
    pid: int, workers: int, spent: dict[psutil.Process, tuple[bool, float]]
) -> tuple[float, float]:
    """Seconds of the workers and of the rest.

    Args:
        pid: Of the command.
        workers: How many it was told to have.
        spent: For each process, whether it is a worker and its seconds. It is brought
            up to date, so that what has ended since still counts.
    """
    for one in processes(pid):
        with contextlib.suppress(psutil.Error):
            times = one.cpu_times()
            spent[one] = is_worker(one, workers), times.user + times.system
    of_workers = sum(seconds for at_work, seconds in spent.values() if at_work)
    return of_workers, sum(seconds for _, seconds in spent.values()) - of_workers


def processes(pid: int) -> list[psutil.Process]:
    """The command and all that it has started."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def is_worker(process: psutil.Process, workers: int) -> bool:
    """The command itself is, where it has no others."""
    return not workers or "MapWorker" in "".join(process.cmdline())


if __name__ == "__main__":
    main()
