"""`keras-luong distill`: see `keras_luong.runs.synthetic`."""

from __future__ import annotations

from functools import partial

from keras_luong.cli.options import DistillOptions
from keras_luong.cli.translators import corpus_of, engine, of_workers
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.synthetic import write_distilled


def run(options: DistillOptions) -> None:
    """Translates, and writes the directory of the corpus."""
    corpus = corpus_of(options, options.run_dirs[0])
    load = partial(load_ensemble, of_workers(options).run_dirs, options.precision)
    print(f"{len(options.run_dirs)} model(s) translate {corpus.name}", flush=True)
    runs, out = options.run_dirs, options.out
    with engine(options, load(), load, runs, out) as teacher:
        write_distilled(corpus, teacher, out, progress=True)
    print(f"{options.out}: every sentence with its reference and their translation")
