"""BLEU by the size of the corpus: the recipe "auto" beside presets of a fixed size.

    python benchmarks/corpus_sizes.py my/corpus --source de --target en
        --pairs 1000 3000 10000 --presets auto multi30k-small --seeds 1 2

trains on the first pairs of a corpus, with nothing but the preset, in both directions,
and judges by the validation text alone; no test text is read. Every training is a run
in `--out`: what is finished there is not done again, and what was interrupted goes on.
Ends with a table in Markdown and, if matplotlib is installed, a picture. `--show`
trains nothing; other options, such as `--precision`, go to every training.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from keras_luong.evaluation.plots import COLORS, MARKERS
from keras_luong.runs.run import RunDirectory, read_history

TRAIN = (sys.executable, "-m", "keras_luong.cli", "train")


class Case(NamedTuple):
    """What a line of the table is of."""

    source: str
    target: str
    pairs: int
    preset: str

    @property
    def name(self) -> str:
        """That of its runs, but for the seed."""
        return f"{self.source}-{self.target}-{self.pairs}-{self.preset}"


class Result(NamedTuple):
    """What is kept of a run."""

    bleu: float
    epochs: int
    minutes: float  # of training, without validation and the vocabulary


def main() -> None:
    """Trains what is missing; prints and draws what is there."""
    args = parse()
    directions = [(args.source, args.target), (args.target, args.source)]
    cases = [
        Case(*direction, pairs, preset)
        for direction, pairs, preset in itertools.product(
            directions, args.pairs, args.presets
        )
    ]
    if not args.show:
        for seed, case in itertools.product(args.seeds, cases):
            train(case, seed, args)
    results = {case: found(case, args) for case in cases}
    results = {case: of_seeds for case, of_seeds in results.items() if of_seeds}
    print_table(results)
    if results:
        draw(results, args.out / "corpus_sizes.png")


def train(case: Case, seed: int, args: argparse.Namespace) -> None:
    """One training, unless it is finished."""
    run = RunDirectory(args.out / f"{case.name}-{seed}")
    if run.results.exists():
        return
    options = {
        "--source": case.source,
        "--target": case.target,
        "--limit_examples": case.pairs,
        "--preset": case.preset,
        "--seed": seed,
        "--run_dir": run.path,
    }
    words = [str(word) for option in options.items() for word in option]
    words += args.others
    print(f"{case.name}, seed {seed}", flush=True)
    with open(args.out / f"{run.path.name}.log", "a") as log:
        subprocess.run([*TRAIN, args.data, *words], check=True, stdout=log)


def found(case: Case, args: argparse.Namespace) -> list[Result]:
    """The results of those seeds whose runs are finished."""
    runs = [RunDirectory(args.out / f"{case.name}-{seed}") for seed in args.seeds]
    return [result(run) for run in runs if run.results.exists()]


def result(run: RunDirectory) -> Result:
    """What a finished run's files say."""
    history = read_history(run.path)
    return Result(
        json.loads(run.results.read_text())["validation"]["bleu"],
        len(history),
        sum(epoch["seconds"] for epoch in history) / 60,
    )


def mean(results: list[Result]) -> float:
    """The mean BLEU of all seeds."""
    return statistics.mean(result.bleu for result in results)


def print_table(results: dict[Case, list[Result]]) -> None:
    """A row for each case, with its seeds beside each other."""
    print("| direction | pairs | preset | BLEU by seed | mean | epochs | minutes |")
    print("|---|---:|---|---|---:|---:|---:|")
    for case, runs in results.items():
        by_seed = ", ".join(f"{run.bleu:.1f}" for run in runs)
        epochs = ", ".join(str(run.epochs) for run in runs)
        minutes = ", ".join(f"{run.minutes:.0f}" for run in runs)
        print(
            f"| {case.source} → {case.target} | {case.pairs:,} | {case.preset} "
            f"| {by_seed} | {mean(runs):.1f} | {epochs} | {minutes} |"
        )


def draw(results: dict[Case, list[Result]], path: Path) -> None:
    """A panel for each direction, a line for each preset."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return
    directions = list(dict.fromkeys((case.source, case.target) for case in results))
    presets = list(dict.fromkeys(case.preset for case in results))
    figure, panels = plt.subplots(
        1, len(directions), figsize=(9, 3.6), sharex=True, sharey=True, squeeze=False
    )
    sizes = sorted({case.pairs for case in results})
    for axes, direction in zip(panels[0], directions, strict=True):
        for i, preset in enumerate(presets):
            points = sorted(
                (case.pairs, mean(runs))
                for case, runs in results.items()
                if (case.source, case.target, case.preset) == (*direction, preset)
            )
            if points:
                axes.plot(*zip(*points, strict=True), color=COLORS[i], label=preset)
                axes.plot(*zip(*points, strict=True), MARKERS[i], color=COLORS[i])
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_title(" → ".join(direction))
        axes.set_xlabel("training pairs")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("validation BLEU, mean of the seeds")
    panels[0][0].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data", help="a corpus, as keras-luong train reads it")
    parser.add_argument("--source", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[1000, 3000, 10_000])
    parser.add_argument("--presets", nargs="+", default=["auto", "multi30k-small"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path, default=Path("runs/sizes"))
    parser.add_argument("--show", action="store_true", help="only what is finished")
    args, others = parser.parse_known_args()
    args.others = others
    args.out.mkdir(parents=True, exist_ok=True)
    return args


if __name__ == "__main__":
    main()
