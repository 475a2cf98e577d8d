"""Asks a SavedModel in several versions of TensorFlow whether it answers the same.

Makes an environment for each version, which takes minutes and 2 GB for one at a time.

python export/serving/versions.py models/mine/1 in.txt --versions 2.17 2.18 2.19
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from saved_models import find_version

VERSIONS = ("2.17", "2.18", "2.19", "2.20", "2.21")
BROKEN = "!=2.21.0"  # of tensorflow-text: it cannot be imported
TOLERANCE = 1e-4
Answers = dict[str, dict[str, Any]]


def answer(version_dir: str, lines: Path) -> dict[str, Any]:
    """Asks every signature, in this process; needs TensorFlow and tensorflow-text.

    Args:
        version_dir: The SavedModel.
        lines: A file of sentences, one a line.

    Returns:
        The versions here, and what each signature answers: signature → output → values.
    """
    import tensorflow as tf
    import tensorflow_text

    texts = tf.constant(lines.read_bytes().splitlines())
    count = len(texts)
    ids = tf.constant([[4 + (7 * i + j) % 90 for j in range(9)] for i in range(count)])
    given = {
        "text": texts,
        "target": texts,
        "ids": ids,
        "length": 1 + tf.range(count) % 9,
        "phrases": tf.fill([count], ""),
    }
    said: Answers = {}
    signatures = tf.saved_model.load(version_dir).signatures
    for name, function in sorted(signatures.items()):
        _, specs = function.structured_input_signature
        found = function(**{key: given[key] for key in specs})
        said[name] = {key: _plain(x.numpy().tolist()) for key, x in found.items()}
    versions = [tf.__version__, tensorflow_text.__version__]
    return {"versions": versions, "said": said}


def _plain(value: Any) -> Any:
    """What JSON has: text for bytes."""
    if isinstance(value, list):
        return [_plain(x) for x in value]
    return value.decode() if isinstance(value, bytes) else value


def ask(python: str | Path, version_dir: Path, lines: Path) -> dict[str, Any]:
    """Runs `answer` in another environment.

    Args:
        python: Its Python.
        version_dir: The SavedModel.
        lines: A file of sentences, one a line.

    Returns:
        What `answer` does.

    Raises:
        subprocess.CalledProcessError: If the model cannot be loaded or asked there.
    """
    command = [python, __file__, version_dir, lines, "--answer"]
    # In a file's own folder modules might be found that are not the environment's.
    done = subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, cwd="/"
    )
    return json.loads(done.stdout.splitlines()[-1])


def compare(one: Answers, other: Answers) -> tuple[int, int, float]:
    """Compares what was said.

    Args:
        one: What `answer` has under "said".
        other: The same of another version.

    Returns:
        How many values there are that are no scores: texts, tokens, ids, lengths and
        flags; how many of them are the same; the largest difference of a score, which
        is infinite if one is NaN.

    Raises:
        ValueError: If they have other signatures, outputs or shapes.
    """
    pairs = [*_pairs(one, other)]
    exact = [a == b for a, b in pairs if not isinstance(a, float)]
    apart = [_difference(a, b) for a, b in pairs if isinstance(a, float)]
    return len(exact), sum(exact), max(apart, default=0.0)


def _difference(a: float, b: float) -> float:
    # Python's `max` may pass over NaN.
    return math.inf if math.isnan(a) or math.isnan(b) else abs(a - b)


def _pairs(one: Any, other: Any) -> Any:
    if isinstance(one, dict | list):
        if type(one) is not type(other) or _places(one) != _places(other):
            raise ValueError("the answers differ in names or shape")
        for place in _places(one):
            yield from _pairs(one[place], other[place])
    else:
        yield one, other


def _places(value: Any) -> Any:
    return value.keys() if isinstance(value, dict) else range(len(value))


def try_version(version: str, given: argparse.Namespace, expected: Answers) -> str:
    """Makes an environment, asks there, and deletes it.

    Args:
        version: TensorFlow's, such as "2.17".
        given: The command line.
        expected: What this process's TensorFlow says.

    Returns:
        A row of the table; it says "no" where the version fails.
    """
    with tempfile.TemporaryDirectory(dir=given.work) as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python").absolute()
        # It brings the TensorFlow that it was built for.
        text = f"tensorflow-text=={version}.*,{BROKEN}"
        install = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", text]
        try:
            subprocess.run(list(map(str, install)), check=True, stdout=sys.stderr)
            found = ask(python, given.version_dir, given.lines)
            count, same, apart = compare(expected, found["said"])
        except (subprocess.CalledProcessError, OSError, ValueError) as error:
            print(f"{version}: {error}", file=sys.stderr)
            return f"| {version} | | no | |"
    agrees = same == count and apart <= TOLERANCE
    versions = " | ".join(found["versions"])
    verdict = "yes" if agrees else f"no: {same} of {count}"
    return f"| {versions} | {verdict} | {apart:.1g} |"


def main(args: list[str] | None = None) -> None:
    """Prints a table, a row for each version."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version_dir", type=Path, help="such as models/mine/1")
    parser.add_argument("lines", type=Path, help="sentences, one a line")
    parser.add_argument("--versions", nargs="+", default=VERSIONS)
    parser.add_argument("--work", type=Path, help="where environments are made")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(args)
    given.version_dir, given.lines = (
        find_version(given.version_dir),
        given.lines.resolve(),
    )
    if given.answer:
        print(json.dumps(answer(str(given.version_dir), given.lines)))
        return
    here = ask(sys.executable, given.version_dir, given.lines)
    print(
        "| TensorFlow | tensorflow-text | the same answers | scores differ by at most |"
    )
    print("|---|---|---|---:|")
    print(f"| {' | '.join(here['versions'])} | (compared with) | |", flush=True)
    rows = []
    for version in given.versions:
        rows.append(try_version(version, given, here["said"]))
        print(rows[-1], flush=True)
    sys.exit(not all("| yes |" in row for row in rows))


if __name__ == "__main__":
    main()
