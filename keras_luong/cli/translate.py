"""`keras-luong translate`: a file or standard input, a line at a time.

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

import numpy as np

from keras_luong.checks import check_file
from keras_luong.cli import translate_ray
from keras_luong.cli.options import TranslateOptions
from keras_luong.cli.translators import (
    LineTranslator,
    load_translator,
    tell_damaged,
    tell_tags,
    tell_unmet,
    telling_language,
)
from keras_luong.evaluation.plots import check_matplotlib, save_attention
from keras_luong.files import (
    count_lines,
    is_utf8,
    naming,
    read_lines,
    read_raw_lines,
    saved_stream,
)
from keras_luong.progress import Progress
from keras_luong.runs.shards import is_parquet
from keras_luong.translation.batching import Translation
from keras_luong.translation.translator import Translator


def run(options: TranslateOptions) -> None:
    """Translates what the command line says."""
    inputs = [options.constraints, options.prefixes, options.terms]
    text = options.input
    if not (options.engine == "ray" and text and text.is_dir() and is_parquet(text)):
        inputs.append(text)
    check_output(options.output, *inputs)
    if options.engine == "ray":
        translate_ray.run(options)
        return
    source = options.input or _standard("input").buffer
    translator = load_translator(options).with_search(n_best=options.n_best)
    if options.pictures is not None:
        _check_pictures(translator, options.pictures)
    elif options.pieces:
        raise ValueError("--pieces is about pictures, and needs --pictures FOLDER")
    translate = LineTranslator(options, translator)
    tell_tags(translator, options.tag)
    with opened_output(options.output) as out:
        lines = telling_language(options.run_dir, read_raw_lines(source))
        _write(translate, lines, out, options)


def check_output(output: Path | None, *inputs: Path | None) -> None:
    """Refuses, before any work, inputs that are missing or would be overwritten.

    Args:
        output: The file to write; None for standard output.
        *inputs: The files to read; None for standard input.

    Raises:
        OSError: An input is no file.
        ValueError: The output is an input, or is closed.
    """
    for path in filter(None, inputs):
        if not path.exists() or path.is_dir():
            check_file("file", path)
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
        raise ValueError(f"--{name} is needed where standard {name} is closed")
    return stream


def _write(
    translate: LineTranslator,
    lines: Iterator[bytes],
    out: IO[bytes],
    options: TranslateOptions,
) -> None:
    """Translates line after line."""
    must, begin = (
        None if path is None else read_lines(path)
        for path in (options.constraints, options.prefixes)
    )
    total = None
    if options.input is not None and options.input.is_file():  # no pipe
        total = count_lines(options.input)
    progress = Progress(total, "line")
    damaged = 0
    for number, done in enumerate(translate(lines, must, begin), 1):
        damaged += not is_utf8(done.line)
        tell_unmet(done.hypotheses[0], number)
        out.writelines(line + b"\n" for line in done.output)
        if options.pictures is not None and np.any(done.hypotheses[0].alignment):
            _draw(done.hypotheses[0], number, options.pictures, options.pieces)
        if number % options.window == 0:
            out.flush()  # somebody may wait for what is ready
        progress.add()
    out.flush()
    progress.close()
    tell_damaged(damaged)


def _check_pictures(translator: Translator, folder: Path) -> None:
    """Refuses, before any work, what cannot be drawn."""
    check_matplotlib()
    config = getattr(translator.model, "config", None)
    if getattr(config, "attention", True) is None:
        raise ValueError("--pictures needs a model with attention, which this is not")
    if folder.is_file():
        raise ValueError(f"--pictures must be a folder. Received a file: {folder}")
    folder.mkdir(parents=True, exist_ok=True)


def _draw(t: Translation, number: int, folder: Path, pieces: bool) -> None:
    path, title = folder / f"{number}.png", f"line {number:,}"
    save_attention(path, t.alignment, t.source_tokens, t.tokens, title, pieces)
