"""Translates lines of text, of a file or of standard input.

One line in is one line out, whatever the line, in constant memory; with --n_best N it
is up to N lines, as in Moses's lists: "number ||| translation ||| score".
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

from keras_luong.cli.options import TranslateOptions
from keras_luong.files import (
    count_lines,
    is_utf8,
    naming,
    read_lines,
    read_raw_lines,
    saved_stream,
)
from keras_luong.progress import Progress
from keras_luong.text.pair_formats import form_of


def run(options: TranslateOptions) -> None:
    """Translates what the command line says."""
    from keras_luong.cli import translate_ray, translators
    from keras_luong.cli.lines import LineTranslator, lines_of, tell_missing
    from keras_luong.evaluation.plots import check_matplotlib, save_attention

    text, must, begin = options.input, options.constraints, options.prefixes
    check_output(options.output, text, must, begin, options.terms)
    if options.engine == "ray":
        translate_ray.run(options)
        return
    translator = translators.load_translator(options).with_search(n_best=options.n_best)
    folder = options.pictures
    if folder is not None:
        check_matplotlib()
        config = getattr(translator.model, "config", None)
        if getattr(config, "attention", True) is None:
            raise ValueError(
                "--pictures needs a model with attention, which this is not"
            )
        folder.mkdir(parents=True, exist_ok=True)
    elif options.pieces:
        raise ValueError("--pieces is about pictures, and needs --pictures FOLDER")
    translate = LineTranslator(options, translator)
    translators.tell_tags(translator, options.tag)
    if text is None:
        source, total = read_raw_lines(_standard("input").buffer), None
    else:
        is_text = form_of(text) is None and text.is_file()  # no pipe
        source, total = lines_of(text, options), count_lines(text) if is_text else None
    progress, damaged = Progress(total, "line"), 0
    with opened_output(options.output) as out:
        lines = translators.telling_language(options.run_dir, source)
        phrases = None if must is None else read_lines(must)
        beginnings = None if begin is None else read_lines(begin)
        for number, done in enumerate(translate(lines, phrases, beginnings), 1):
            best = done.hypotheses[0]
            damaged += not is_utf8(done.line)
            tell_missing(best.unmet, number)
            out.writelines(line + b"\n" for line in done.output)
            if folder is not None and best.alignment.any():
                save_attention(
                    folder / f"{number}.png",
                    best.alignment,
                    best.source_tokens,
                    best.tokens,
                    f"line {number:,}",
                    options.pieces,
                )
            if number % options.window == 0:
                out.flush()  # somebody may wait for what is ready
            progress.add()
        out.flush()
        progress.close()
        translators.tell_damaged(damaged)


def check_output(output: Path | None, *inputs: Path | None) -> None:
    """Refuses, before any work, to overwrite inputs.

    Args:
        output: The file to write; None for standard output.
        *inputs: The files to read; None for standard input.

    Raises:
        ValueError: The output is an input, or is closed.
    """
    for path in filter(None, inputs):
        if output and output.exists() and output.samefile(path):
            raise ValueError(f"--output would overwrite the input, {path}")
    if output is None:
        _standard("output")


@contextlib.contextmanager
def opened_output(path: Path | None) -> Iterator[IO[bytes]]:
    """Opens the file to write; None is standard output, whose reader may stop early."""
    if path is not None:
        with saved_stream(path) as file:
            yield file
        return
    try:
        with naming("standard output"):
            yield _standard("output").buffer
    except BrokenPipeError:  # who reads has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _standard(name: str) -> TextIO:
    stream = sys.stdin if name == "input" else sys.stdout
    if stream is None:
        raise ValueError(f"Standard {name} is closed: give --{name} FILE")
    return stream
