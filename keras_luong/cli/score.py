"""Tells how probable given translations are, a line each."""

from __future__ import annotations

import dataclasses
import math
import sys
from dataclasses import KW_ONLY

from keras_luong.cli.options import NewFile, RunOptions, TextFile
from keras_luong.cli.translate import check_output, opened_output
from keras_luong.files import check_as_many_lines, count_lines, is_utf8, read_raw_lines
from keras_luong.progress import Progress


@dataclasses.dataclass(frozen=True)
class ScoreOptions(RunOptions):
    """Files and output.

    Args:
        source: File of source sentences, plain or gzip.
        target: File of their translations.
        output: File to write; standard output by default.
        alignments: Whether word alignments are written too.
        batch_size: Pairs to score at once.
        window: Lines to read ahead and sort by length.
    """

    source: TextFile
    target: TextFile
    _: KW_ONLY
    output: NewFile | None = None
    alignments: bool = False
    batch_size: int = 32
    window: int = 1024


def run(options: ScoreOptions) -> None:
    """Writes the log-probability of each pair; at the end the perplexity, for people.

    A line is "-12.3456", and with --alignments "-12.3456 ||| 0-0 1-1".
    """
    from keras_luong.cli import translators
    from keras_luong.cli.lines import word_links

    files = options.source, options.target
    check_output(options.output, *files)
    total, others = map(count_lines, files)
    check_as_many_lines(files[0], total, files[1], others)
    source, target = map(read_raw_lines, files)
    translators.tell_languages(options.run_dir, source=source, target=target)
    translator = translators.load_translator(options)
    progress = Progress(total, "line")
    log_prob, tokens, damaged = 0.0, 0, 0
    sources, targets = map(read_raw_lines, files)
    sizes = options.batch_size, options.window
    scored = translator.score_stream(sources, targets, *sizes)
    pairs = zip(*map(read_raw_lines, files), strict=True)
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
    translators.tell_damaged(damaged)
    said = f"note: all lines of {files[0]} are blank: there is no perplexity"
    if not total:
        said = f"note: {files[0]} is empty: there is nothing to score"
    elif tokens:
        perplexity = math.exp(-log_prob / tokens)
        said = f"perplexity {perplexity:.2f} of {tokens:,} tokens"
    print(said, file=sys.stderr)
