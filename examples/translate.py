"""Translates a file or standard input, a line at a time, in constant memory.

One line in is one line out, whatever the line; with --n_best N it is up to N lines, as
in Moses's lists: "number ||| translation ||| score". Some commands:

    python examples/translate.py runs/mine < in.en > out.de
    python examples/translate.py runs/mine --input in.en.gz --output out.de --scores
    python examples/translate.py runs/mine --n_best 5 --alignments < in.en
    python examples/translate.py runs/mine --pictures pictures < in.en
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import keras
import numpy as np

from keras_luong.decoding.penalties import AverageLengthPenalty
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.evaluation import alignment
from keras_luong.evaluation.plots import check_matplotlib, save_attention
from keras_luong.runs import directory as run_directory
from keras_luong.translation.translator import Translation, Translator


def main(argv: list[str] | None = None) -> None:
    """Translates what the command line says."""
    args = parse(argv)
    translator = make_translator(args)
    if args.pictures is not None:
        check_pictures(translator)
        args.pictures.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        lines = files.enter_context(opened(args.input, "rb"))
        out = files.enter_context(opened(args.output, "wb"))
        try:
            write(translator, lines, out, args)
        except BrokenPipeError:  # who reads has read enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_translator(args) -> Translator:
    """The run's translator, with the search that the flags ask for."""
    translator = run_directory.load(args.run_dir)
    changes = {
        name: getattr(args, name)
        for name in ("beam_width", "max_length", "min_length", "no_repeat_ngram")
        if getattr(args, name) is not None
    }
    if args.average is not None:
        changes["length_penalty"] = AverageLengthPenalty(args.average)
    elif args.length_penalty is not None:
        changes["length_penalty"] = args.length_penalty
    if args.coverage_penalty is not None:
        changes["coverage_penalty"] = args.coverage_penalty
    if args.shortlist is not None:
        changes["shortlist"] = Shortlist.load(args.shortlist)
    if args.no_unknown:
        unknown = translator.model.config.unk_id
        changes["forbidden"] = (*translator.search.forbidden, unknown)
    try:
        search = dataclasses.replace(translator.search, n_best=args.n_best, **changes)
    except ValueError as error:
        raise SystemExit(f"translate.py: error: {error}") from error
    longest = args.max_source_length or translator.max_source_length
    return Translator(translator.model, translator.tokenizers, search, longest)


def write(translator: Translator, lines: BinaryIO, out: BinaryIO, args) -> None:
    """Translates line after line."""
    read = (line.rstrip(b"\r\n") for line in lines)
    translations = translator.stream(read, args.batch_size, args.window, n_best=True)
    shown = Progress(args)
    done = 0
    for done, hypotheses in enumerate(translations, 1):
        for hypothesis in hypotheses:
            fields = list(columns(hypothesis, args))
            if args.n_best > 1:
                fields = [str(done - 1), *fields]
            out.write(" ||| ".join(fields).encode() + b"\n")
        if args.pictures is not None and np.any(hypotheses[0].alignment):
            draw(hypotheses[0], args.pictures / f"{done}.png")
        if done % args.window == 0:
            out.flush()  # somebody may wait for what is ready
        if done % args.batch_size == 0:
            shown.update(done)
    out.flush()
    shown.update(done, finalize=True)


def columns(t: Translation, args) -> Iterator[str]:
    """What is written of a translation; never a line end."""
    yield " ".join(t.text.splitlines())
    if args.scores or args.n_best > 1:
        yield f"{t.score:.4f}"
    if args.alignments:
        ended = t.tokens[-1:] == ["</s>"]  # or cut at the maximum length
        links = alignment.hard_alignment(t.alignment, source_end=True, target_end=ended)
        links = alignment.merge_links(links, t.source_tokens, t.tokens)
        yield alignment.format_pharaoh(links)


def check_pictures(translator: Translator) -> None:
    """Refuses, before any work, what cannot be drawn."""
    check_matplotlib()
    if getattr(translator.model.config, "attention", True) is None:
        raise SystemExit("--pictures needs a model with attention, which this is not.")


def draw(t: Translation, path: Path) -> None:
    """Draws what each word of a translation attended to."""
    save_attention(path, t.alignment, t.source_tokens, t.tokens)


class Progress:
    """Keras's progress bar, on standard error, if somebody can see it."""

    def __init__(self, args):
        self.bar = None
        if args.progress or sys.stderr.isatty():
            total = None
            if args.input is not None and args.input.is_file():  # no pipe
                with opened(args.input, "rb") as lines:
                    total = sum(1 for _ in lines)
            self.bar = keras.utils.Progbar(total, unit_name="line")

    def update(self, done: int, finalize: bool = False) -> None:
        """So many lines are translated."""
        if self.bar is not None:
            with contextlib.redirect_stdout(sys.stderr):  # it knows no other place
                self.bar.update(done, finalize=finalize)


@contextlib.contextmanager
def opened(path: Path | None, mode: str) -> Iterator[BinaryIO]:
    """The file, plain or gzip; standard input or output if there is no path."""
    if path is None:
        yield (sys.stdin if mode == "rb" else sys.stdout).buffer
        return
    with gzip.open(path, mode) if path.suffix == ".gz" else path.open(mode) as file:
        yield file


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flag = parser.add_argument
    flag("run_dir", type=Path, help="what train_wmt.py wrote")
    flag("--input", type=Path, help="file to translate; standard input if none")
    flag("--output", type=Path, help="file to write; standard output if none")
    flag("--n_best", type=int, default=1, help="hypotheses for each line")
    flag("--scores", action="store_true", help="write scores too")
    flag("--alignments", action="store_true", help="write word alignments too")
    flag("--pictures", type=Path, help="folder for a picture of each line's attention")
    flag("--progress", action="store_true", help="a bar even where none can be seen")
    flag("--batch_size", type=int, default=32, help="lines translated at once")
    flag("--window", type=int, default=1024, help="lines read ahead and sorted")
    flag("--max_source_length", type=int, help="tokens read of a line")
    group = parser.add_argument_group("search (what is not given is the run's)")
    flag = group.add_argument
    flag("--beam_width", type=int)
    flag("--max_length", type=int, help="longest translation, in tokens")
    flag("--min_length", type=int, help="shortest translation, in tokens")
    either = group.add_mutually_exclusive_group().add_argument
    either("--length_penalty", type=float, help="alpha of GNMT's")
    either(
        "--average", type=float, metavar="ALPHA", help="or divide by length ** ALPHA"
    )
    flag("--coverage_penalty", type=float, help="beta of GNMT's")
    flag("--no_repeat_ngram", type=int, help="no n-gram of this size twice")
    flag("--shortlist", type=Path, help="what make_shortlist.py wrote: faster")
    flag("--no_unknown", action="store_true", help="never say <unk>")
    args = parser.parse_args(argv)
    for path in (args.input, args.shortlist):
        if path is not None and (not path.exists() or path.is_dir()):
            parser.error(f"there is no file {path}")
    if args.pictures is not None and args.pictures.is_file():
        parser.error(f"--pictures must be a folder. Received a file: {args.pictures}")
    for name in ("n_best", "batch_size", "window", "max_source_length"):
        size = getattr(args, name)
        if size is not None and size < 1:
            parser.error(f"--{name} must be at least 1. Received: {size}")
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if getattr(args, name) is None and stream is None:
            parser.error(f"--{name} is needed where standard {name} is closed")
    if args.input and args.output and args.output.exists():
        if args.output.samefile(args.input):
            parser.error(f"--output would overwrite the input, {args.input}")
    return args


if __name__ == "__main__":
    main()
