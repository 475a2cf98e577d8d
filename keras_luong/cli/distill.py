"""Writes a corpus that also has what runs make of its training sources."""

from __future__ import annotations

import dataclasses
from dataclasses import KW_ONLY
from functools import partial

from keras_luong.cli.options import CorpusOptions, EngineOptions, NewPlace, RunDir
from keras_luong.config.training import Precision


@dataclasses.dataclass(frozen=True)
class DistillOptions(EngineOptions, CorpusOptions):
    """Runs and distillation.

    Args:
        run_dirs: Run directories with the same tokenizers, used together as an
            ensemble with the first run's search.
        out: New directory for the text files.
        precision: Precision that the models compute in.
    """

    run_dirs: tuple[RunDir, ...]
    _: KW_ONLY
    out: NewPlace
    precision: Precision = "float32"


def run(options: DistillOptions) -> None:
    """Translates, and writes the directory of the corpus."""
    from keras_luong.cli.translators import corpus_of, engine, of_workers, tell_unmixed
    from keras_luong.runs.load_save import load_ensemble
    from keras_luong.runs.synthetic import write_distilled

    corpus = corpus_of(options, options.run_dirs[0])
    load = partial(load_ensemble, of_workers(options).run_dirs, options.precision)
    print(f"{len(options.run_dirs)} model(s) translate {corpus.name}", flush=True)
    tell_unmixed(options, options.run_dirs[0])
    runs, out = options.run_dirs, options.out
    with engine(options, load(), load, runs, out) as teacher:
        write_distilled(corpus, teacher, out, progress=True)
    print(f"{options.out}: every sentence with its reference and their translation")
