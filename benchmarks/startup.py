r"""What the start of a SavedModel costs: imports, loading, the first requests.

Each round is a new process; of each part the least of all rounds is shown, in seconds
of wall-clock and of processor time. The second hardly changes beside other work.

python benchmarks/startup.py models/m30k/1 in.txt --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

Seconds = tuple[float, float]  # wall-clock, processor


def start(version_dir: str, lines: Path, lean: bool) -> Iterator[tuple[str, Seconds]]:
    """Starts in this process, which must not have imported anything before.

    Args:
        version_dir: The SavedModel.
        lines: A file of sentences, one a line; the first is asked for, then others.
        lean: Whether tensorflow_text's kernels are loaded without its Python.

    Yields:
        What was done, and what it took.
    """
    yield "import numpy", timed(lambda: __import__("numpy"))
    yield "import tensorflow", timed(lambda: __import__("tensorflow"))
    import tensorflow as tf

    yield "tensorflow_text", timed(lambda: load_text(lean))
    loaded = []
    path = str(version_dir)
    yield "load", timed(lambda: loaded.append(tf.saved_model.load(path)))
    texts = [tf.constant([x]) for x in lines.read_bytes().splitlines()[:10]]
    serve = loaded[0].signatures["serving_default"]
    for number, text in enumerate(texts, 1):
        what = f"request {number}"
        yield what, timed(lambda text=text: serve(text=text)["translation"].numpy())


def load_text(lean: bool) -> None:
    """Loads SentencePiece's ops."""
    if not lean:
        import tensorflow_text  # noqa: F401

        return
    from importlib.metadata import files

    import tensorflow as tf

    found = files("tensorflow-text") or []
    (library,) = [x for x in found if x.name == "_sentencepiece_tokenizer.so"]
    tf.load_op_library(str(library.locate()))


def timed(do: Callable[[], object]) -> Seconds:
    """Does something, and says what it took; processor time counts all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    do()
    return time.perf_counter() - wall, time.process_time() - cpu


def measure(args: argparse.Namespace, lean: bool) -> dict[str, Seconds]:
    """The least of each part over all rounds, each in a process of its own."""
    command = [sys.executable, __file__, args.version_dir, args.lines, "--child"]
    command += ["--lean"] * lean
    env = dict(os.environ)
    if lean:  # `import tensorflow` then leaves Keras alone
        env["TF_USE_LEGACY_KERAS"] = "1"
    rounds = []
    for _ in range(args.rounds):
        done = subprocess.run(
            list(map(str, command)), env=env, check=True, stdout=subprocess.PIPE
        )
        rounds.append(json.loads(done.stdout.splitlines()[-1]))
    return {
        what: (min(x[what][0] for x in rounds), min(x[what][1] for x in rounds))
        for what in rounds[0]
    }


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version_dir", type=Path, help="such as models/m30k/1")
    parser.add_argument("lines", type=Path, help="ten sentences, one a line")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--lean", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(dict(start(args.version_dir, args.lines, args.lean))))
        return
    found = {False: measure(args, False), True: measure(args, True)}
    print("| part | s | processor s | s without Keras | processor s |")
    print("|---|---:|---:|---:|---:|")
    for what in found[False]:
        cells = [f"{x:.3f}" for lean in found for x in found[lean][what]]
        print(f"| {what} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
