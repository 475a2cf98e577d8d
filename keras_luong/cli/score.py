"""`keras-luong score`: how probable given translations are."""

from __future__ import annotations

import math
import sys
from pathlib import Path

from keras_luong.checks import check_file
from keras_luong.cli.options import ScoreOptions
from keras_luong.cli.translate import check_output, opened_output
from keras_luong.cli.translators import (
    load_translator,
    tell_damaged,
    tell_languages,
    word_links,
)
from keras_luong.files import check_as_many_lines, count_lines, is_utf8, read_raw_lines
from keras_luong.progress import Progress


def run(options: ScoreOptions) -> None:
    """Writes the log-probability of each pair; at the end the perplexity, for people.

    A line is "-12.3456", and with --alignments "-12.3456 ||| 0-0 1-1".
    """
    files = [check_file("file", path) for path in (options.source, options.target)]
    check_output(options.output, *files)
    total, others = map(count_lines, files)
    check_as_many_lines(files[0], total, files[1], others)
    source, target = map(read_raw_lines, files)
    tell_languages(options.run_dir, source=source, target=target)
    translator = load_translator(options)
    progress = Progress(total, "line")
    pairs = zip(*map(read_raw_lines, files), strict=True)
    log_prob, tokens, damaged = 0.0, 0, 0
    sources, targets = map(read_raw_lines, files)
    sizes = options.batch_size, options.window
    scored = translator.score_stream(sources, targets, *sizes)
    with opened_output(options.output) as out:
        for number, (t, pair) in enumerate(zip(scored, pairs, strict=True), 1):
            links = ""
            if options.alignments:
                links = f" ||| {word_links(translator, t, *pair)}"
            out.write(f"{t.score:.4f}{links}\n".encode())
            log_prob, tokens = log_prob + t.score, tokens + len(t.tokens)
            damaged += not all(map(is_utf8, pair))
            if number % options.window == 0:
                out.flush()  # somebody may wait for what is ready
            progress.add()
    progress.close()
    tell_damaged(damaged)
    print(_perplexity(log_prob, tokens, files[0], total), file=sys.stderr)


def _perplexity(log_prob: float, tokens: int, source: Path, lines: int) -> str:
    """What is said of it, to people; of no tokens there is none."""
    if not lines:
        return f"note: {source} is empty: there is nothing to score"
    if not tokens:
        return f"note: all lines of {source} are blank: there is no perplexity"
    return f"perplexity {math.exp(-log_prob / tokens):.2f} of {tokens:,} tokens"
