"""Writes a corpus that also has target text alone, which a run translates back.

The run translates the other way: from the corpus's target language.
"""

from __future__ import annotations

import dataclasses
import itertools
from dataclasses import KW_ONLY
from functools import partial
from typing import TYPE_CHECKING

from keras_luong.cli.options import (
    EngineOptions,
    NewPlace,
    SearchOptions,
    Sentences,
)
from keras_luong.config.fields import Positive, Seed
from keras_luong.config.training import BACK_TRANSLATED, Tag
from keras_luong.languages import standard_code
from keras_luong.runs.run import read_record
from keras_luong.text.corpus_files import language_of
from keras_luong.text.pair_formats import read_sentences

if TYPE_CHECKING:
    from keras_luong.text.corpus import Corpus
    from keras_luong.translation.translator import Translator

_LINES = 300  # to tell their language


@dataclasses.dataclass(frozen=True)
class BacktranslateOptions(EngineOptions, SearchOptions):
    """Back-translation.

    Args:
        data: The corpus to learn from, as `train` takes it.
        mono: File of text in the language that the run translates from, which is the
            corpus's target language; a sentence a line, plain or gzip. Of .tsv, .csv,
            .jsonl, .parquet, .tmx, .xliff and .po the texts of that language.
        out: New directory for the text files.
        source: Language to translate from with the new corpus; by default what the run
            translates into.
        target: Language to translate into; by default what the run translates from.
        tag: Name of the tag in front of the sources that are made: bt becomes the
            token `<bt>`.
        limit: Most lines to translate, the first ones; by default all.
        repeat_real: How often each pair of the corpus is written.
        sampling: Draws the sources at random, by the probabilities of their words,
            instead of searching for the best.
        temperature: Below 1 such sources are more alike, above 1 more varied; by
            default 1.
        top_k: Number of most probable words to draw each from; by default all.
        seed: Seed of what is drawn; by default 1.
    """

    _: KW_ONLY
    data: str
    mono: Sentences
    out: NewPlace
    source: str | None = None
    target: str | None = None
    tag: Tag = BACK_TRANSLATED
    limit: int | None = None
    repeat_real: int = 1
    sampling: bool = False
    temperature: Positive | None = None
    top_k: int | None = None
    seed: Seed | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and that all are of one kind of search."""
        super().__post_init__()
        if not self.sampling:
            for name in ("temperature", "top_k", "seed"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} needs --sampling, which is missing.")
            return
        for name in SearchOptions.__annotations__:
            given = getattr(self, name) != getattr(SearchOptions, name)
            if given and name not in ("max_length", "max_source_length"):
                raise ValueError(
                    f"{name} is for a beam search, and --sampling draws at random: "
                    "leave one of them out."
                )


def run(options: BacktranslateOptions) -> None:
    """Translates, and writes the directory of the corpus."""
    from keras_luong.cli.translators import engine, of_workers
    from keras_luong.runs.synthetic import check_reverse, write_backtranslated
    from keras_luong.text.corpora import load_corpus

    settings = read_record(options.run_dir)["settings"]
    source = options.source or settings.get("target")  # the other direction
    target = options.target or settings.get("source")
    if not (source and target):
        raise ValueError(
            f"{options.run_dir} does not name its languages: give --source and "
            "--target, those of the corpus to be"
        )
    corpus = load_corpus(options.data, source, target)
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
            monolingual_tag=settings.get("tag"),
            progress=True,
        )
    if written.untranslated:
        print(f"{written.untranslated:,} lines have no translation, and are left out")
    print(
        f"{options.out}: {written.real:,} pairs of {corpus.name}, and "
        f"{written.synthetic:,} with <{options.tag}> and a source that was made, for "
        f"{corpus.source_language} into {corpus.target_language}"
    )


def _check_language(options: BacktranslateOptions, corpus: Corpus) -> None:
    """Refuses text of the source language, by the file's name or its first lines."""
    from keras_luong.text.language_guess import reads_like

    mono, named = options.mono, standard_code(language_of(options.mono))
    source, target = corpus.source_language, corpus.target_language
    if named == standard_code(target):
        return
    reason = f"whose name ends in {named}"
    if named != standard_code(source):
        some = itertools.islice(read_sentences(mono, target, "target"), _LINES)
        lines = [line.encode() for line in some]
        if not reads_like(lines, source) or reads_like(lines, target):
            return
        reason = f"whose lines read like {source}"
    raise ValueError(
        f"--mono must be text in {target}, which {options.run_dir} translates into "
        f"{source}. Received: {mono}, {reason}"
    )


def _translator(options: BacktranslateOptions) -> Translator:
    from keras_luong.cli.translators import load_translator
    from keras_luong.decoding.sampling import RandomSampling

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
