"""Prints a table of runs: settings that differ, and results.

The table is in Markdown. Unfinished runs come first and the best run last. Perplexity
and BLEU (by greedy search) are each the best of all epochs; what a run does not know,
such as one of averaged weights, is blank. Minutes count only the last part of an epoch
that was interrupted. All results are of validation data, so the table may be used to
choose a model.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Any, NamedTuple

from keras_luong.cli.options import Options, RunOrOther
from keras_luong.config.models import model_config_class
from keras_luong.config.presets import PRESETS
from keras_luong.runs.run import RunDirectory, read_history, read_record, read_results

#: Settings that do not affect the model, or that have a column of their own.
HIDDEN = set(
    "epochs strategy save_steps keep_epochs chosen_batch_tokens average_of".split()
)
HEADER = tuple(
    "run,settings,epochs,minutes,perplexity,BLEU,beam BLEU,beam chrF".split(",")
)
#: Settings by which runs of one text have other vocabularies.
OF_VOCABULARY = set("tokenizer vocab_size shared grow_vocab tag old_tag".split())
#: Hyperparameters of all models.
HYPERPARAMETERS = {
    field.name
    for preset in PRESETS
    for field in dataclasses.fields(model_config_class(preset))
}


@dataclasses.dataclass(frozen=True)
class CompareOptions(Options):
    """Runs.

    Args:
        run_dirs: Run directories, one or more.
        flags: Settings to show; by default those that differ.
    """

    run_dirs: tuple[RunOrOther, ...]
    _: KW_ONLY
    flags: tuple[str, ...] = ()


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
    from keras_luong.evaluation.report import table

    is_run = {path: RunDirectory(path).record.exists() for path in options.run_dirs}
    if not any(is_run.values()):
        paths = ", ".join(map(str, options.run_dirs))
        raise ValueError(f"There is no run directory among {paths}.")
    for path in options.run_dirs:
        if not is_run[path]:
            print(f"note: {path} is no run directory.", file=sys.stderr)
    found = {path: read(path) for path in options.run_dirs if is_run[path]}
    if len({run.name for run in found.values()}) < len(found):
        found = {path: run._replace(name=str(path)) for path, run in found.items()}
    runs = sorted(found.values(), key=lambda x: (x.beam_bleu or 0.0, x.bleu or 0.0))
    names = {name for run in runs for name in run.settings}
    if strangers := sorted(set(options.flags) - names):
        raise ValueError(f"No run has a setting {', '.join(strangers)}")
    differing = {x for x in names if len({setting(run, x) for run in runs}) > 1}
    flags = options.flags or sorted(differing - HIDDEN)
    rows: list[tuple[str, ...]] = [HEADER]
    for one in runs:
        values = [(name, setting(one, name)) for name in flags]
        shown = [f"{name} {value}" for name, value in values if value is not None]
        if files := one.settings.get("average_of"):
            shown.append(f"average of {len(files)}")
        scores = ["" if score is None else f"{score:.2f}" for score in one[4:]]
        about = one.name, ", ".join(shown), str(one.epochs), f"{one.minutes:.0f}"
        rows.append((*about, *scores))
    print(text := table(rows))
    if differing & OF_VOCABULARY:
        print(
            "note: perplexity is of a token: between these runs, whose vocabularies "
            "differ, BLEU and chrF compare.",
            file=sys.stderr,
        )
    for one in runs:
        if one.bleu is None and one.beam_bleu is None:
            why = "an average is not evaluated by itself: keras-luong evaluate does it"
            if not one.settings.get("average_of"):
                why = "it has finished no epoch"
            print(
                f"note: of {one.name} nothing is known yet, as {why}.", file=sys.stderr
            )
    return text


def read(path: Path) -> Run:
    """Reads a run directory."""
    record, history = read_record(path), read_history(path)
    results = (read_results(path) or {}).get("validation", {})
    perplexities = [x for epoch in history if (x := epoch.get("val_perplexity"))]
    bleus = [x for epoch in history if (x := epoch.get("val_bleu")) is not None]
    return Run(
        path.resolve().name,
        record["settings"],
        len(history),
        sum(epoch.get("seconds") or 0 for epoch in history) / 60,
        min(perplexities, default=float("inf")) if history else None,
        max(bleus, default=None),
        results.get("bleu"),
        results.get("chrf"),
    )


def setting(run: Run, name: str) -> str | None:
    """Returns a setting's value as on the command line, or None if it has none.

    A hyperparameter that a run does not record has its preset's value.
    """
    if (value := run.settings.get(name)) is not None:
        return str(value)
    return "none" if name in run.settings and name in HYPERPARAMETERS else None
