"""`keras-luong backtranslate`: see `keras_luong.runs.synthetic`."""

from __future__ import annotations

import itertools
from functools import partial

from keras_luong.checks import check_file
from keras_luong.cli.options import BacktranslateOptions
from keras_luong.cli.translators import engine, load_translator, of_workers
from keras_luong.decoding.sampling import RandomSampling
from keras_luong.files import read_raw_lines
from keras_luong.languages import standard_code
from keras_luong.runs.run import read_record
from keras_luong.runs.synthetic import check_reverse, write_backtranslated
from keras_luong.text.corpus import Corpus
from keras_luong.text.corpus_files import language_of
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.survey import reads_like
from keras_luong.translation.translator import Translator

_LINES = 300  # to tell their language


def run(options: BacktranslateOptions) -> None:
    """Translates, and writes the directory of the corpus."""
    corpus = _corpus(options)
    check_reverse(options.run_dir, corpus)
    _check_language(options, corpus)
    load = partial(_translator, of_workers(options))
    runs = [options.run_dir, *options.ensemble]
    with engine(options, load(), load, runs, options.out) as reverse:
        written = write_backtranslated(
            corpus,
            reverse,
            options.mono,
            options.out,
            tag=options.tag,
            limit=options.limit,
            repeat_real=options.repeat_real,
            monolingual_tag=read_record(options.run_dir)["settings"].get("tag"),
            progress=True,
        )
    if written.untranslated:
        print(f"{written.untranslated:,} lines have no translation, and are left out")
    print(
        f"{options.out}: {written.real:,} pairs of {corpus.name}, and "
        f"{written.synthetic:,} with <{options.tag}> and a source that was made, for "
        f"{corpus.source_language} into {corpus.target_language}"
    )


def _corpus(options: BacktranslateOptions) -> Corpus:
    """The corpus, in the other direction than the run's if none is given."""
    settings = read_record(options.run_dir)["settings"]
    source = options.source or settings.get("target")
    target = options.target or settings.get("source")
    if not (source and target):
        raise ValueError(
            f"{options.run_dir} does not name its languages: give --source and "
            "--target, those of the corpus to be"
        )
    return load_corpus(options.data, source, target)


def _check_language(options: BacktranslateOptions, corpus: Corpus) -> None:
    """Refuses text of the source language, by the file's name or its first lines."""
    mono = check_file("file of text", options.mono)
    named = standard_code(language_of(mono))
    source, target = corpus.source_language, corpus.target_language
    lines = list(itertools.islice(read_raw_lines(mono), _LINES))
    if named == standard_code(source):
        reason = f"whose name ends in {named}"
    elif named != standard_code(target) and _read_like(lines, source, target):
        reason = f"whose lines read like {source}"
    else:
        return
    raise ValueError(
        f"--mono must be text in {target}, which {options.run_dir} translates into "
        f"{source}. Received: {mono}, {reason}"
    )


def _read_like(lines: list[bytes], language: str, other: str) -> bool:
    """Whether lines are in one of two languages, which may be easily mixed up."""
    return reads_like(lines, language) and not reads_like(lines, other)


def _translator(options: BacktranslateOptions) -> Translator:
    translator = load_translator(options)
    if not options.sampling:
        return translator
    search = RandomSampling(
        temperature=options.temperature or 1.0,
        top_k=options.top_k,
        max_length=options.max_length,
        seed=1 if options.seed is None else options.seed,
    )
    return translator.with_search(search)
