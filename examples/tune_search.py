"""Chooses a run's beam width and length penalty by BLEU on its validation data.

The best pair becomes the run's search: keras_luong.load, the export and every other
script use it from then on. (Training that goes on sets it back to what its flags say.)
Some commands:

    python examples/tune_search.py runs/m30k
    python examples/tune_search.py runs/m30k --beam_widths 5 10 --length_penalties 1
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

from keras_luong.checks import check_not_negative, check_size
from keras_luong.evaluation.bleu import bleu, check_tokenize
from keras_luong.files import write_json
from keras_luong.runs.corpus import add_corpus_flags, corpus_of
from keras_luong.runs.directory import RunDirectory, load, read_record
from keras_luong.text.corpus import sentences
from keras_luong.translation.translator import Translator


class Trial(NamedTuple):
    """A search, and the BLEU that it reached."""

    beam_width: int
    length_penalty: float
    bleu: float


def main(argv: list[str] | None = None) -> Trial:
    """Tries every pair, keeps the best in run.json, and returns it."""
    args = parse(argv)
    record = read_record(args.run_dir)
    sources, references = sentences(corpus_of(args, args.run_dir), "validation")
    tokenize = args.bleu_tokenize or record["settings"].get("bleu_tokenize", "13a")
    translator = load(args.run_dir)
    widths = args.beam_widths or [translator.search.beam_width]
    print(f"beam  penalty   BLEU   ({len(sources):,} sentences, {tokenize})")
    trials = []
    for width, penalty in itertools.product(widths, args.length_penalties):
        texts = translate(translator, sources, width, penalty)
        score = bleu(texts, references, tokenize).score
        trials.append(Trial(width, penalty, score))
        print(f"{width:4} {penalty:8g} {score:6.2f}", flush=True)
    best = max(trials, key=lambda trial: (trial.bleu, -trial.beam_width))
    record["search"].update(
        beam_width=best.beam_width,
        length_penalty=best.length_penalty,
        n_best=min(translator.search.n_best, best.beam_width),
    )
    write_json(RunDirectory(args.run_dir).record, record)
    print(f"{args.run_dir} translates with {best.beam_width}, {best.length_penalty:g}")
    return best


def translate(
    translator: Translator, sources: list[str], width: int, penalty: float
) -> list[str]:
    """Translates by another search than the translator's own."""
    search = dataclasses.replace(
        translator.search, beam_width=width, length_penalty=penalty, n_best=1
    )
    other = Translator(
        translator.model, translator.tokenizers, search, translator.max_source_length
    )
    translations = other.translate(sources, progress=sys.stdout.isatty())
    return [translation.text for translation in translations]


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run_dir", type=Path, help="what train_wmt.py wrote")
    flag(
        "--beam_widths",
        type=int,
        nargs="+",
        default=[],
        metavar="K",
        help="default: the run's",
    )
    flag(
        "--length_penalties",
        type=float,
        nargs="+",
        default=[0.0, 0.4, 0.8, 1.0, 1.2, 1.4, 1.6],
        metavar="ALPHA",
        help="exponents of the penalty of Wu et al. 2016",
    )
    flag("--bleu_tokenize", help="sacrebleu's; default: the run's")
    add_corpus_flags(parser)
    args = parser.parse_args(argv)
    try:
        for width in args.beam_widths:
            check_size("--beam_widths", width)
        for penalty in args.length_penalties:
            check_not_negative("--length_penalties", penalty)
        if args.bleu_tokenize is not None:
            check_tokenize("--bleu_tokenize", args.bleu_tokenize)
    except ValueError as error:
        parser.error(str(error))
    return args


if __name__ == "__main__":
    main()
