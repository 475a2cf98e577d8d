"""Prints a table of runs: the flags in which they differ, and what they reached.

As Markdown, the best at the end; those that are not finished come first, those without
an epoch not at all. Perplexity and BLEU (by greedy search) are each the best after any
epoch; of an epoch that was stopped and went on, minutes count the last part only.
Nothing but validation data is looked at, so that the table may choose. Some commands:

    python examples/compare_runs.py runs/*
    python examples/compare_runs.py runs/* --flags dropout r_drop seed
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.cli.flags import config_flags
from keras_luong.runs.directory import (
    RunDirectory,
    read_history,
    read_record,
    read_results,
)

#: What says nothing of the model, or has a column of its own.
HIDDEN = set("epochs strategy save_steps keep_epochs chosen_batch_tokens".split())
HEADER = ("run", "flags", "epochs", "minutes", "perplexity", "BLEU", "beam BLEU")


class Run(NamedTuple):
    """What is known of a run."""

    name: str
    settings: dict[str, Any]
    epochs: int
    minutes: float
    perplexity: float
    bleu: float
    beam_bleu: float | None


def main(argv: list[str] | None = None) -> str:
    """Prints the table, and returns it."""
    args = parse(argv)
    runs = [run for path in args.run_dirs if (run := read(path))]
    known = {name for run in runs for name in run.settings}
    if not runs:
        raise SystemExit("No run has finished an epoch yet.")
    if strangers := sorted(set(args.flags or []) - known):
        raise SystemExit(f"No run has a flag {', '.join(strangers)}.")
    flags = args.flags or sorted(differing(runs) - HIDDEN)
    runs.sort(key=lambda run: (run.beam_bleu or 0.0, run.bleu))
    text = table([HEADER, *(row(run, flags) for run in runs)])
    print(text)
    return text


def read(path: Path) -> Run | None:
    """What a run directory says; None if it is none, or no epoch is finished."""
    if path.exists() and not RunDirectory(path).record.exists():
        return None  # something else, that a * has found
    record, history = read_record(path), read_history(path)
    if not history:
        return None
    found = read_results(path) or {}
    return Run(
        path.name,
        record["settings"],
        len(history),
        sum(epoch["seconds"] for epoch in history) / 60,
        min(epoch["val_perplexity"] or math.inf for epoch in history),
        max(epoch["val_bleu"] for epoch in history),
        found.get("validation", {}).get("bleu"),
    )


def differing(runs: Sequence[Run]) -> set[str]:
    """The flags that not all runs have the same of."""
    names = {name for run in runs for name in run.settings}
    return {name for name in names if len({given(run, name) for run in runs}) > 1}


def given(run: Run, name: str) -> str | None:
    """A flag's value as one would give it; None where there is nothing to give.

    A hyperparameter that a run does not have is its preset's.
    """
    value = run.settings.get(name)
    if value is None:
        is_none = name in run.settings and name in config_flags()
        return "none" if is_none else None
    return str(value)


def row(run: Run, flags: Sequence[str]) -> tuple[str, ...]:
    """A row of the table."""
    values = [(name, given(run, name)) for name in flags]
    shown = [f"{name} {value}" for name, value in values if value is not None]
    beam = "" if run.beam_bleu is None else f"{run.beam_bleu:.2f}"
    return (
        run.name,
        ", ".join(shown),
        str(run.epochs),
        f"{run.minutes:.0f}",
        f"{run.perplexity:.2f}",
        f"{run.bleu:.2f}",
        beam,
    )


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Markdown, in columns for who reads it as it is."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        for row in rows
    ]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in [lines[0], rule, *lines[1:]])


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run_dirs", type=Path, nargs="+", help="what train_wmt.py wrote")
    flag("--flags", nargs="+", help="those to show; default: those that differ")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
