"""`keras-luong translate`: a file or standard input, a line at a time.

One line in is one line out, whatever the line, in constant memory; with --n_best N it
is up to N lines, as in Moses's lists: "number ||| translation ||| score".
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TextIO

import numpy as np

from keras_luong.checks import check_file
from keras_luong.cli.alignments import word_links
from keras_luong.cli.commands import TranslateOptions
from keras_luong.cli.constraints import Required, tell_unmet
from keras_luong.cli.translators import load_translator
from keras_luong.evaluation.plots import check_matplotlib, save_attention
from keras_luong.files import (
    count_lines,
    is_utf8,
    one_line,
    opened_to_write,
    read_raw_lines,
)
from keras_luong.progress import Progress
from keras_luong.text.tags import check_tag, tagged_line
from keras_luong.translation.translation import Translation
from keras_luong.translation.translator import Translator


def run(options: TranslateOptions) -> None:
    """Translates what the command line says."""
    source = options.input or _standard("input").buffer
    check_output(options.output, options.input, options.constraints, options.terms)
    translator = load_translator(options).with_search(n_best=options.n_best)
    if options.pictures is not None:
        _check_pictures(translator, options.pictures)
    elif options.pieces:
        raise ValueError("--pieces is about pictures, and needs --pictures FOLDER")
    required = Required(options, translator)
    with opened_output(options.output) as out:
        lines = read_raw_lines(source)
        if (tag := options.tag) is not None:
            check_tag(translator.source_tokenizer, tag)
            lines = (tagged_line(line, tag) for line in lines)
        _write(translator, lines, required, out, options)


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
        with opened_to_write(path) as file:
            yield file
        return
    try:
        yield _standard("output").buffer
    except BrokenPipeError:  # who reads has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _standard(name: str) -> TextIO:
    stream = sys.stdin if name == "input" else sys.stdout
    if stream is None:
        raise ValueError(f"--{name} is needed where standard {name} is closed")
    return stream


def _write(
    translator: Translator,
    lines: Iterator[bytes],
    required: Required,
    out: IO[bytes],
    options: TranslateOptions,
) -> None:
    """Translates line after line."""
    sizes = options.batch_size, options.window
    lines, again = itertools.tee(lines)  # which are as far apart as the window
    constraints = None
    if required:
        lines, texts = itertools.tee(lines)
        constraints = required.of(texts)
    translations = translator.stream(
        lines, *sizes, n_best=True, constraints=constraints
    )
    total = None
    if options.input is not None and options.input.is_file():  # no pipe
        total = count_lines(options.input)
    progress = Progress(total, "line")
    pairs = zip(translations, again, strict=True)
    damaged = 0
    for number, (hypotheses, line) in enumerate(pairs):
        damaged += not is_utf8(line)
        tell_unmet(hypotheses[0], number + 1)
        for hypothesis in hypotheses:
            fields = list(columns(hypothesis, options))
            if options.alignments:
                tags = int(options.tag is not None)
                links = word_links(translator, hypothesis, line, tags=tags)
                fields.append(links)
            if options.n_best > 1:
                fields = [str(number), *fields]
            out.write(" ||| ".join(fields).encode() + b"\n")
        if options.pictures is not None and np.any(hypotheses[0].alignment):
            _draw(hypotheses[0], number + 1, options.pictures, options.pieces)
        if (number + 1) % options.window == 0:
            out.flush()  # somebody may wait for what is ready
        progress.add()
    out.flush()
    progress.close()
    tell_damaged(damaged)


def tell_damaged(lines: int) -> None:
    """Says, to people, how many lines could not be read as they are."""
    if lines:
        print(
            f"note: lines that are not UTF-8: {lines:,}, read with U+FFFD",
            file=sys.stderr,
        )


def columns(t: Translation, options: TranslateOptions) -> Iterator[str]:
    """What is written of a translation; never a line end."""
    yield one_line(t.text)
    if options.scores or options.n_best > 1:
        yield f"{t.score:.4f}"


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
