"""Writes a corpus that also has what trained models make of its training sources.

The models translate together, as an ensemble, and so must have the same tokenizers, as
runs have that differ in --seed alone. What is trained on the corpus learns from the
references and from them (Kim & Rush 2016). Some commands:

    python examples/distill_corpus.py runs/a runs/b runs/c --out distilled
    python examples/train_wmt.py --data distilled --run_dir runs/student ...
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from keras_luong.cli.flags import PRECISIONS
from keras_luong.runs.corpus import add_corpus_flags, corpus_of
from keras_luong.runs.distillation import write_distilled
from keras_luong.runs.ensemble import load_ensemble


def main(argv: list[str] | None = None) -> Path:
    """Translates, and returns the directory of the corpus."""
    args = parse(argv)
    corpus = corpus_of(args, args.run_dirs[0])
    teacher = load_ensemble(args.run_dirs, args.precision)
    print(f"{len(args.run_dirs)} model(s) translate {corpus.name}, train", flush=True)
    out = write_distilled(corpus, teacher, args.out, progress=sys.stdout.isatty())
    print(f"{out}: every sentence with its reference and with their translation")
    return out


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag(
        "run_dirs",
        type=Path,
        nargs="+",
        metavar="RUN_DIR",
        help="what train_wmt.py wrote; the first one's search translates",
    )
    flag("--out", type=Path, required=True, help="a new directory, for text files")
    flag(
        "--precision",
        choices=PRECISIONS,
        default="float32",
        help="what the models compute in; default: %(default)s",
    )
    add_corpus_flags(parser)
    args = parser.parse_args(argv)
    if args.out.exists():
        parser.error(f"--out must be a new directory. Received: {args.out}")
    return args


if __name__ == "__main__":
    main()
