"""Mutation testing: the code is changed here and there, and a test ought to fail.

    make mutants                                        # a sample of the core
    make mutants FILE=keras_luong/layers/scores.py      # of one file
    make mutants FILE=keras_luong/layers/scores.py MUTANTS=100 SEED=1

The changes are those of cosmic-ray (`pip install cosmic-ray`): another operator or
comparison, a number one up or down, a negated condition, a loop that makes no round.
Each place is drawn once at most, and one of its changes. The tests are those that
`mutants.toml` names for a file, without the slow ones. It names changes too that make
no difference; those are not counted.

A mutant is killed if a test fails, or takes four times as long as all of them do.
"""

import argparse
import ast
import concurrent.futures
import difflib
import glob
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
#: What would only be caught by reading: a decorator, another exception.
LEFT_OUT = ("RemoveDecorator", "ExceptionReplacer", "VariableReplacer")


class Mutant(NamedTuple):
    """One change of one file."""

    file: str
    code: str  # of the whole file, changed
    line: int
    old: str  # the line
    new: str


def main() -> None:
    """Draws mutants, tests them, and prints what survived."""
    args = parse()
    table = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text("utf-8"))
    files = [args.file] if args.file else list(table["tests"])
    equivalent = {(x["file"], x["old"], x["new"]) for x in table.get("equivalent", [])}
    mutants = draw(files, args.mutants, args.seed, equivalent)
    print(f"{len(mutants)} mutants of {len(files)} files", flush=True)
    folders = [copy_of_the_tree() for _ in range(args.workers)]
    free, killed = list(folders), {file: [] for file in files}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["keras", "tensorflow", "pytest", "hypothesis"])

    def run(file: str, mutant: Mutant | None, patience: float) -> tuple[bool, float]:
        folder, start = free.pop(), time.monotonic()
        try:
            failed = fails(context, folder, mutant, table["tests"][file], patience)
            return failed, time.monotonic() - start
        finally:
            free.append(folder)

    with concurrent.futures.ThreadPoolExecutor(args.workers) as pool:
        # 1. Without a change they pass, after so many seconds.
        unchanged = {file: pool.submit(run, file, None, 900.0) for file in files}
        patience = {}
        for file, job in unchanged.items():
            failed, seconds = job.result()
            if failed:
                sys.exit(f"the tests of {file} fail without any change")
            patience[file] = 20 + 4 * seconds
        # 2. With each of the changes they ought to fail. Results that are there already
        # are not found again.
        before = read_results(args.results)
        new = [m for m in mutants if m._replace(code="") not in before]
        jobs = {pool.submit(run, m.file, m, patience[m.file]): m for m in new}
        for mutant in mutants:
            if (known := before.get(mutant._replace(code=""))) is not None:
                killed[mutant.file].append(known)
        for job in concurrent.futures.as_completed(jobs):
            mutant, (failed, _) = jobs[job], job.result()
            killed[mutant.file].append(failed)
            if args.results:
                line = {**mutant._asdict(), "code": "", "killed": failed}
                with open(args.results, "a") as results:
                    results.write(json.dumps(line) + "\n")
            if not failed:
                print(f"\n{mutant.file}:{mutant.line}\n- {mutant.old}\n+ {mutant.new}")
    print("\n| file | mutants | killed |\n|---|---:|---:|")
    for file, results in killed.items():
        print(f"| {file} | {len(results)} | {sum(results)} |")
    results = [result for one in killed.values() for result in one]
    part = sum(results) / max(1, len(results))
    print(f"| all | {len(results)} | {sum(results)} ({100 * part:.0f}%) |")
    for folder in folders:
        shutil.rmtree(folder)


def read_results(path):
    """What `--results` has already: `Mutant` without code → whether it was killed."""
    if path is None or not Path(path).exists():
        return {}
    lines = map(json.loads, Path(path).read_text("utf-8").splitlines())
    results = ((line.pop("killed"), Mutant(**line)) for line in lines)
    return {mutant: killed for killed, mutant in results}


def draw(files, count, seed, equivalent):
    """A sample of all files' changes, each place once at most."""
    from cosmic_ray.mutating import mutate_code

    places = [(file, place) for file in files for place in places_of(file)]
    rng = random.Random(seed)
    rng.shuffle(places)
    mutants = []
    for file, changes in places:
        code = (ROOT / file).read_text("utf-8")
        operator, occurrence = rng.choice(changes)
        changed = mutate_code(code, operator, occurrence)
        mutant = difference(file, code, changed)
        if mutant and (file, mutant.old, mutant.new) not in equivalent:
            mutants.append(mutant)
        if len(mutants) == count:
            break
    return sorted(mutants)


def places_of(file):
    """For each place of a file that can be changed, all of its changes."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    code = (ROOT / file).read_text("utf-8")
    types, tree, places = annotations(code), get_ast(code), {}
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or name.split("/")[1] in LEFT_OUT:
            continue
        occurrence = 0
        for node in ast_nodes(tree):
            for start, _ in operator().mutation_positions(node):
                if not any(first <= start < last for first, last in types):
                    places.setdefault(start, []).append((operator(), occurrence))
                occurrence += 1
    return [places[start] for start in sorted(places)]


def annotations(code):
    """Where types stand, which nothing computes: [(start, end)], as (line, column)."""
    found = []
    for node in ast.walk(ast.parse(code)):
        for name in ("annotation", "returns"):
            if (x := getattr(node, name, None)) is not None:
                start, end = (x.lineno, x.col_offset), (x.end_lineno, x.end_col_offset)
                found.append((start, end))
    return found


def difference(file, code, changed):
    """The `Mutant`, by the first line that differs; None if it is no Python."""
    try:
        if changed is None or ast.dump(ast.parse(code)) == ast.dump(ast.parse(changed)):
            return None
    except SyntaxError:
        return None
    lines, others = code.splitlines(), changed.splitlines()
    matcher = difflib.SequenceMatcher(None, lines, others, autojunk=False)
    _, i, _, j, _ = next(op for op in matcher.get_opcodes() if op[0] != "equal")
    return Mutant(file, changed, i + 1, lines[i].strip(), others[j].strip())


def copy_of_the_tree():
    """A folder with all that git knows or would."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-"))
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def fails(context, folder, mutant, tests, patience):
    """Whether a test fails in a folder in which the file is the mutant."""
    if mutant:
        (folder / mutant.file).write_text(mutant.code, "utf-8")
    process = context.Process(target=run_tests, args=(str(folder), tests))
    process.start()
    process.join(patience)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    if mutant:
        shutil.copy(ROOT / mutant.file, folder / mutant.file)
    return process.exitcode != 0


def run_tests(folder, tests):
    """Runs the tests of a folder in this process, until the first failure."""
    import pytest

    os.setpgrp()
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.path[:0] = [folder, f"{folder}/export/edge"]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    paths = [path for name in tests for path in sorted(glob.glob(f"tests/{name}.py"))]
    # What has failed for another mutant comes first.
    options = ["-x", "-q", "--failed-first", "-o", f"cache_dir={folder}/.cache"]
    options.append("--no-budget")
    os._exit(pytest.main([*options, *paths]))


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--file", help="one file; by default all of mutants.toml")
    parser.add_argument("--mutants", type=int, default=400, help="how many at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", help="a file of JSON lines, which grows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
