"""What an exported translator costs where one sentence comes at a time.

Every candidate is a command of its own that reads sentences and writes translations:
`keras-luong-edge` for `.tflite` files, and a loop over `serving_default` for
a SavedModel. They take turns; figures are medians of the rounds.

    python benchmarks/edge.py in.txt models/m30k/1 m30k.tflite m30k.int8.tflite
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

SAVED_MODEL = """
import sys
import tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
for line in sys.stdin.buffer:
    said = serve(text=tf.constant([line.removesuffix(b"\\n")]))["translation"].numpy()
    print(said[0].decode(), flush=True)
"""


class Run(NamedTuple):
    """What a process took."""

    seconds: float
    megabytes: float  # the most that it held
    lines: list[bytes]


def run(command: list[str], texts: list[bytes]) -> Run:
    """Translates texts in a new process.

    Args:
        command: reads lines, writes lines.
        texts: the lines.

    Returns:
        `Run`.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
        source.write(b"".join(text + b"\n" for text in texts))
        source.seek(0)
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=source, stdout=target, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            sys.exit(f"{' '.join(map(str, command))} failed.")
        target.seek(0)
        return Run(seconds, usage.ru_maxrss / 1e3, target.read().splitlines())


def command(path: Path) -> list[str]:
    """How an export is run."""
    if path.is_dir():
        return [sys.executable, "-c", SAVED_MODEL, str(path)]
    return [sys.executable, "-m", "keras_luong_edge", str(path)]


def size(path: Path) -> float:
    """Megabytes on disk."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file()) / 1e6


def parse_args() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", type=Path, help="sentences, one a line")
    parser.add_argument("exports", type=Path, nargs="+", help="versions and files")
    parser.add_argument("--sentences", type=int, default=500, help="of a round")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    """Runs and prints the table."""
    args = parse_args()
    texts = args.texts.read_bytes().removesuffix(b"\n").split(b"\n")
    texts = texts[: args.sentences]
    if len(texts) < 2:
        sys.exit(f"There must be at least 2 sentences. Received: {len(texts)}")
    rounds: dict[Path, list] = {path: [] for path in args.exports}
    for _ in range(args.rounds):
        for path, found in rounds.items():
            one, all_ = (run(command(path), x) for x in (texts[:1], texts))
            each = 1e3 * (all_.seconds - one.seconds) / (len(texts) - 1)
            found.append((one.seconds, each, all_.megabytes))
            print(f"{path}: {found[-1]}", file=sys.stderr)
    print("| export | size, MB | start-up, s | ms per sentence | peak memory, MB |")
    print("|---|---:|---:|---:|---:|")
    for path, found in rounds.items():
        start, each, megabytes = map(statistics.median, zip(*found, strict=True))
        row = f"{size(path):.1f} | {start:.2f} | {each:.1f} | {megabytes:.0f}"
        print(f"| {path} | {row} |")


if __name__ == "__main__":
    main()
