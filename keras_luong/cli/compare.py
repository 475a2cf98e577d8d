"""`keras-luong compare`: a table of runs, what they differ in, and what they reached.

The table is in Markdown. Unfinished runs come first and the best run last. Perplexity
and BLEU (by greedy search) are each the best of all epochs; what a run does not know,
such as one of averaged weights, is blank. Minutes count only the last part of an epoch
that was interrupted. All results are of validation data, so the table may be used to
choose a model.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.cli.options import CompareOptions
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import model_config_class
from keras_luong.evaluation.report import table
from keras_luong.runs.run import RunDirectory, read_history, read_record, read_results

#: Settings that do not affect the model, or that have a column of their own.
HIDDEN = set(
    "epochs strategy save_steps keep_epochs chosen_batch_tokens average_of".split()
)
HEADER = (
    "run",
    "settings",
    "epochs",
    "minutes",
    "perplexity",
    "BLEU",
    "beam BLEU",
    "beam chrF",
)
#: Hyperparameters of all models.
HYPERPARAMETERS = {
    field.name
    for preset in PRESETS
    for field in dataclasses.fields(model_config_class(preset))
}


class Run(NamedTuple):
    """A run, as the table shows it; None is not known."""

    name: str
    settings: dict[str, Any]
    epochs: int
    minutes: float
    perplexity: float | None
    bleu: float | None
    beam_bleu: float | None
    beam_chrf: float | None


def run(options: CompareOptions) -> str:
    """Prints the table, and returns it; says of what is no run that it is none."""
    is_run = {path: RunDirectory(path).record.exists() for path in options.run_dirs}
    for path in options.run_dirs:
        if not is_run[path] and any(is_run.values()):
            print(f"note: {path} is no run directory.", file=sys.stderr)
    runs = [read(path) for path in options.run_dirs if is_run[path]]
    if not runs:
        paths = ", ".join(map(str, options.run_dirs))
        raise ValueError(f"There is no run directory among {paths}.")
    known = {name for run in runs for name in run.settings}
    if strangers := sorted(set(options.flags) - known):
        raise ValueError(f"No run has a setting {', '.join(strangers)}")
    flags = options.flags or sorted(differing(runs) - HIDDEN)
    runs.sort(key=lambda run: (run.beam_bleu or 0.0, run.bleu or 0.0))
    text = table([HEADER, *(row(run, flags) for run in runs)])
    print(text)
    for run in runs:
        if run.bleu is None and run.beam_bleu is None:
            why = "an average is not evaluated by itself: keras-luong evaluate does it"
            if not run.settings.get("average_of"):
                why = "it has finished no epoch"
            print(
                f"note: of {run.name} nothing is known yet, as {why}.", file=sys.stderr
            )
    return text


def read(path: Path) -> Run:
    """Reads a run directory."""
    record, history = read_record(path), read_history(path)
    found = read_results(path) or {}
    perplexities = [x for epoch in history if (x := epoch.get("val_perplexity"))]
    bleus = [x for epoch in history if (x := epoch.get("val_bleu")) is not None]
    return Run(
        path.resolve().name,
        record["settings"],
        len(history),
        sum(epoch.get("seconds") or 0 for epoch in history) / 60,
        min(perplexities, default=math.inf) if history else None,
        max(bleus, default=None),
        *(found.get("validation", {}).get(name) for name in ("bleu", "chrf")),
    )


def differing(runs: Sequence[Run]) -> set[str]:
    """Returns the names of the settings whose values differ between the runs."""
    names = {name for run in runs for name in run.settings}
    return {name for name in names if len({given(run, name) for run in runs}) > 1}


def given(run: Run, name: str) -> str | None:
    """Returns a setting's value as on the command line, or None if it has none.

    A hyperparameter that a run does not record has its preset's value.
    """
    value = run.settings.get(name)
    if value is None:
        is_none = name in run.settings and name in HYPERPARAMETERS
        return "none" if is_none else None
    return str(value)


def row(run: Run, flags: Sequence[str]) -> tuple[str, ...]:
    """Returns a run's row of the table."""
    values = [(name, given(run, name)) for name in flags]
    shown = [f"{name} {value}" for name, value in values if value is not None]
    if files := run.settings.get("average_of"):
        shown.append(f"average of {len(files)}")
    scores = (run.perplexity, run.bleu, run.beam_bleu, run.beam_chrf)
    return (
        run.name,
        ", ".join(shown),
        str(run.epochs),
        f"{run.minutes:.0f}",
        *("" if score is None else f"{score:.2f}" for score in scores),
    )
