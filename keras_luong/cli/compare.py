"""`keras-luong compare`: a table of runs, what they differ in, and what they reached.

As Markdown, the best at the end; those that are not finished come first, those without
an epoch not at all. Perplexity and BLEU (by greedy search) are each the best after any
epoch; of an epoch that was stopped and went on, minutes count the last part only.
Nothing but validation data is looked at, so that the table may choose.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.cli.commands import CompareOptions
from keras_luong.config.presets import PRESETS
from keras_luong.config.training import model_config_class
from keras_luong.runs.directory import RunDirectory, read_history, read_results
from keras_luong.runs.record import read_record

#: What says nothing of the model, or has a column of its own.
HIDDEN = set("epochs strategy save_steps keep_epochs chosen_batch_tokens".split())
HEADER = ("run", "settings", "epochs", "minutes", "perplexity", "BLEU", "beam BLEU")
#: Hyperparameters of all models.
HYPERPARAMETERS = {
    field.name
    for preset in PRESETS
    for field in dataclasses.fields(model_config_class(preset))
}


class Run(NamedTuple):
    """What is known of a run."""

    name: str
    settings: dict[str, Any]
    epochs: int
    minutes: float
    perplexity: float
    bleu: float
    beam_bleu: float | None


def run(options: CompareOptions) -> str:
    """Prints the table, and returns it."""
    runs = [run for path in options.run_dirs if (run := read(path))]
    if not runs:
        raise ValueError("No run has finished an epoch yet")
    known = {name for run in runs for name in run.settings}
    if strangers := sorted(set(options.flags) - known):
        raise ValueError(f"No run has a setting {', '.join(strangers)}")
    flags = options.flags or sorted(differing(runs) - HIDDEN)
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
    """The settings that not all runs have the same of."""
    names = {name for run in runs for name in run.settings}
    return {name for name in names if len({given(run, name) for run in runs}) > 1}


def given(run: Run, name: str) -> str | None:
    """A setting's value as one would give it; None where there is nothing to give.

    A hyperparameter that a run does not have is its preset's.
    """
    value = run.settings.get(name)
    if value is None:
        is_none = name in run.settings and name in HYPERPARAMETERS
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
