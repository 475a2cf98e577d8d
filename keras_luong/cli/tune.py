"""`keras-luong tune`: the search that translates a run's validation data best.

It becomes the run's: `keras_luong.load`, the export and every command use it from then
on. (A training that goes on sets it back to what its options say.)
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

from keras_luong.cli.commands import TuneOptions
from keras_luong.cli.translators import bleu_tokenization, corpus_of
from keras_luong.evaluation.bleu import bleu
from keras_luong.evaluation.chrf import chrf
from keras_luong.files import write_json
from keras_luong.runs.directory import RunDirectory
from keras_luong.runs.loading import load
from keras_luong.runs.record import read_record
from keras_luong.text.corpus import sentences


class Trial(NamedTuple):
    """A search, and the scores that it reached."""

    beam_width: int
    length_penalty: float
    bleu: float
    chrf: float


def run(options: TuneOptions) -> Trial:
    """Tries every pair, keeps the best in run.json, and returns it."""
    record = read_record(options.run_dir)
    tokenize = bleu_tokenization(options)
    corpus = corpus_of(options, options.run_dir)
    sources, references = sentences(corpus, "validation")
    translator = load(options.run_dir)
    search: Any = translator.search
    widths = options.beam_widths or [search.beam_width]
    print(f"beam  penalty   BLEU   chrF   ({len(sources):,} sentences, {tokenize})")
    trials = []
    for width, penalty in itertools.product(widths, options.length_penalties):
        other = translator.with_search(
            beam_width=width, length_penalty=penalty, n_best=1
        )
        texts = [t.text for t in other.translate(sources, progress=True)]
        scores = bleu(texts, references, tokenize), chrf(texts, references)
        trials.append(Trial(width, penalty, *(score.score for score in scores)))
        print("{:4} {:8g} {:6.2f} {:6.2f}".format(*trials[-1]), flush=True)
    print(*(score.signature for score in scores), sep="\n")
    best = max(trials, key=lambda trial: (trial.bleu, -trial.beam_width))
    record["search"].update(
        beam_width=best.beam_width,
        length_penalty=best.length_penalty,
        n_best=min(search.n_best, best.beam_width),
    )
    write_json(RunDirectory(options.run_dir).record, record)
    print(f"{options.run_dir} translates with {best[0]}, {best[1]:g}")
    return best
