"""Stands in for the Python that has a peer: our half answers in Addons' place.

It is called as that is: with a peer's script and its arguments, or with -c CODE. In
CTranslate2's place it answers at once, as nothing of ours takes the same arguments.
"""

import json
import os
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def ours(script, *arguments):
    """What answers as a peer's script would."""
    if Path(script).name == "tfa_beam.py":
        return [BENCHMARKS / "compare_search.py", "--worker", *arguments]
    return [BENCHMARKS / "train_step.py", "--shape", *arguments, "--take_turns"]


def at_once(size, lengths, kind, threads, beam_width):
    """Answers as ct2_transformer.py does, if it was given what that takes."""
    assert len([int(x) for x in size.split(",")]) == 5
    assert kind in ("float32", "int8") and int(threads) > 0 and int(beam_width) > 0
    pairs = json.loads(Path(lengths).read_text())
    assert all(source > 0 and target > 0 for source, target in pairs)
    print(json.dumps({"ready": True}), flush=True)
    for question in map(json.loads, sys.stdin):
        assert 0 < question["sentences"] <= len(pairs) and question["batch_size"] > 0
        print(json.dumps({"seconds": 0.002 * question["sentences"]}), flush=True)


if __name__ == "__main__":
    if Path(sys.argv[1]).name == "ct2_transformer.py":
        sys.exit(at_once(*sys.argv[2:]))
    if sys.argv[1] == "-c":
        command = ["-c", sys.argv[2].replace("tensorflow_addons", "numpy")]
    else:
        command = ours(*sys.argv[1:])
    os.execv(sys.executable, [sys.executable, *map(str, command)])
