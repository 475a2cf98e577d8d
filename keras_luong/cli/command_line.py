"""What the export scripts have in common: which run, which search, where it is from."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.cli.flags import PRECISIONS
from keras_luong.decoding import BeamSearch, GreedySearch, Shortlist
from keras_luong.runs.directory import read_record, read_results
from keras_luong.runs.ensemble import load_ensemble
from keras_luong.translation.translator import Translator


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the run, and the options of its search.

    Args:
        parser: the script's.
    """
    run = "default: the run's"
    parser.add_argument("run_dir", type=Path, help="what training wrote")
    parser.add_argument(
        "--ensemble",
        type=Path,
        action="append",
        default=[],
        metavar="RUN_DIR",
        help="another run with the same tokenizers, to translate together with; may be "
        "given several times",
    )
    parser.add_argument("--beam_width", type=int, help=f"1 is greedy; {run}")
    parser.add_argument("--length_penalty", type=float, help=f"GNMT's alpha; {run}")
    parser.add_argument("--max_length", type=int, help=f"in target tokens; {run}")
    parser.add_argument(
        "--shortlist",
        type=Path,
        help="what make_shortlist.py wrote: faster; not in .tflite files",
    )
    parser.add_argument(
        "--max_source_length", type=int, help="longer texts are cut; default: the run's"
    )


def add_check(parser: argparse.ArgumentParser) -> None:
    """Add the text that tries an export out.

    Args:
        parser: the script's.
    """
    parser.add_argument(
        "--check",
        default="A dog runs.",
        metavar="TEXT",
        help="translated by both, and compared; default: %(default)r",
    )


def add_precision(parser: argparse.ArgumentParser) -> None:
    """Add what the model computes in.

    Args:
        parser: the script's.
    """
    parser.add_argument(
        "--precision",
        choices=PRECISIONS,
        help="what the model computes in; default: as it was trained",
    )


def translator_of(args: argparse.Namespace, precision: str | None = None) -> Translator:
    """Load the run, on the CPU, whatever it was trained on.

    Args:
        args: with what `add_options` added.
        precision: what the model computes in, by default what it was trained in.

    Returns:
        A translator of the run's model, or of an ensemble, with the search that is
        asked for.

    Raises:
        ValueError: if the runs of an ensemble have different tokenizers.
    """
    # A graph that is traced where there is a GPU may hold what only GPUs run.
    tf.config.set_visible_devices([], "GPU")
    translator = load_ensemble([args.run_dir, *args.ensemble], precision)
    search = translator.search
    options = {
        name: getattr(args, name)
        for name in ("beam_width", "length_penalty", "max_length")
        if getattr(args, name) is not None
    }
    if args.shortlist is not None:
        options["shortlist"] = Shortlist.load(args.shortlist)
    if isinstance(search, GreedySearch):
        search = BeamSearch(beam_width=1, max_length=search.max_length)
    if "beam_width" in options:
        options["n_best"] = min(search.n_best, options["beam_width"])
    most = args.max_source_length
    return Translator(
        translator.model,
        translator.tokenizers,
        dataclasses.replace(search, **options),
        translator.max_source_length if most is None else most,
    )


def origin(args: argparse.Namespace, precision: str | None = None) -> dict[str, Any]:
    """What an export's metadata says of the run.

    Args:
        args: with what `add_options` added.
        precision: as in `translator_of`.

    Returns:
        `{"precision": ..., "run": ...}`: what the export computes in, and of the run
        how it was trained, how it is searched, and, if it has been evaluated, what BLEU
        it then had by which search, with sacrebleu's signature. (The export may search
        in another way.) Where there is an ensemble, also `"ensemble": [...]`, with the
        same of the other runs.

    Raises:
        ValueError: if a file of a run is damaged.
    """
    run = _about(args.run_dir)
    about = {"precision": precision or run["model"]["config"].get("dtype"), "run": run}
    if args.ensemble:
        about["ensemble"] = [_about(other) for other in args.ensemble]
    return about


def _about(run_dir: Path) -> dict[str, Any]:
    record = read_record(run_dir)
    return {
        **{name: record[name] for name in ("model", "settings", "search")},
        "results": read_results(run_dir),
    }
