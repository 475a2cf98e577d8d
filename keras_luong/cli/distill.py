"""`keras-luong distill`: see `keras_luong.runs.distillation`."""

from __future__ import annotations

from functools import partial

from keras_luong.cli.commands import DistillOptions
from keras_luong.cli.engines import engine, of_workers
from keras_luong.cli.translators import corpus_of
from keras_luong.runs.distillation import write_distilled
from keras_luong.runs.ensemble import load_ensemble


def run(options: DistillOptions) -> None:
    """Translates, and writes the directory of the corpus."""
    corpus = corpus_of(options, options.run_dirs[0])
    load = partial(load_ensemble, of_workers(options).run_dirs, options.precision)
    print(f"{len(options.run_dirs)} model(s) translate {corpus.name}", flush=True)
    runs, out = options.run_dirs, options.out
    with engine(options, load(), load, runs, out) as teacher:
        write_distilled(corpus, teacher, out, progress=True)
    print(f"{options.out}: every sentence with its reference and their translation")
