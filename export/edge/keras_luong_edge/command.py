"""The command `keras-luong-edge`: translates standard input, a line at a time.

Its exit code is 0 if all went well, 1 if reading, translating or writing failed, 2 if
something is wrong with what the user gave it, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Iterator
from typing import BinaryIO, NoReturn

import keras_luong_edge
from keras_luong_edge.lines import read_lines
from keras_luong_edge.translation import Translation
from keras_luong_edge.translator import EdgeTranslator

NAME = "keras-luong-edge"
FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


def main(argv: list[str] | None = None) -> int:
    """Translates standard input.

    Args:
        argv: The arguments, by default the process's.

    Returns:
        The exit code.

    Raises:
        SystemExit: If the command line is wrong, or asks for help.
    """
    args = _parse(argv)
    try:
        return _run(args)
    except KeyboardInterrupt:
        _forget_output()
        return INTERRUPTED


def _run(args: argparse.Namespace) -> int:
    try:
        translator = EdgeTranslator(args.model, args.threads)
    except (OSError, ValueError, ImportError) as error:
        return _say_why(error, MISTAKE, args.debug)
    if args.n_best > translator.n_best:
        _say(f"note: {args.model} finds at most {translator.n_best} for each line")
    try:
        _translate(translator, sys.stdin.buffer, sys.stdout.buffer, args)
    except BrokenPipeError:  # who reads has read enough, as `head` does
        _forget_output()
    except (OSError, RuntimeError, ValueError) as error:
        _forget_output()
        code = MISTAKE if isinstance(error, ValueError) else FAILED
        return _say_why(error, code, args.debug)
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Says what is wrong, and not all that could have been right."""
        self.exit(MISTAKE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def _parse(argv: list[str] | None) -> argparse.Namespace:
    """Reads the command line."""
    parser = _Parser(
        prog=NAME,
        description="Translates standard input, one sentence a line.",
        epilog=f"Example: {NAME} mine.tflite < in.txt > out.txt",
    )
    flag = parser.add_argument
    flag("model", help="a .tflite file that keras_luong exported")
    flag("--threads", type=int, help="cores for one sentence; default: one")
    flag(
        "--n_best",
        type=int,
        default=1,
        metavar="N",
        help='if above 1: a list "number ||| translation ||| score" of up to N '
        "translations for each line, as far as the file holds so many",
    )
    flag("--scores", action="store_true", help='lines are "translation ||| score"')
    flag("--debug", action="store_true", help="show where in the program an error is")
    flag("--version", action="version", version=keras_luong_edge.__version__)
    args = parser.parse_args(argv)
    for name in ("threads", "n_best"):
        number = getattr(args, name)
        if number is not None and number < 1:
            parser.error(f"--{name} must be at least 1. Received: {number}")
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None:
            parser.error(f"standard {name} is closed")
    return args


def _translate(
    translator: EdgeTranslator,
    lines: BinaryIO,
    out: BinaryIO,
    args: argparse.Namespace,
) -> None:
    """Translates line after line; whoever waits for an answer gets it at once."""
    number = truncated = damaged = 0
    for number, line in enumerate(read_lines(lines), 1):
        (hypotheses,) = translator.translate([line], n_best=True)
        truncated += hypotheses[0].truncated
        damaged += line.decode("utf-8", "ignore").encode() != line
        for hypothesis in hypotheses[: args.n_best]:
            fields = [*_columns(hypothesis, args)]
            if args.n_best > 1:
                fields = [str(number - 1), *fields]
            out.write(" ||| ".join(fields).encode() + b"\n")
        out.flush()
    if damaged:
        _say(f"note: lines that are not UTF-8: {damaged}, read with U+FFFD")
    if truncated:
        _say(
            f"note: {truncated} of {number} lines are longer than the model reads; "
            "only their beginnings were translated"
        )


def _columns(translation: Translation, args: argparse.Namespace) -> Iterator[str]:
    """What is written of a translation; never a line end."""
    yield " ".join(translation.text.splitlines())
    if args.scores or args.n_best > 1:
        yield f"{translation.score:.4f}"


def _say_why(error: Exception, code: int, debug: bool) -> int:
    """Says what went wrong, and returns the exit code."""
    if debug:
        traceback.print_exception(error)
    reason = " ".join(str(error).split())
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror
        if error.filename is not None:
            reason += f": {error.filename}"
    _say(reason)
    return code


def _say(message: str) -> None:
    print(f"{NAME}: {message}", file=sys.stderr)


def _forget_output() -> None:
    """What cannot be written, Python would try to write once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
