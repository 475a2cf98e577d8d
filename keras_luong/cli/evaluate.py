"""`keras-luong evaluate`: how good translations are, of runs or in files.

The first system is judged, and the others are compared with it: the run, the one that
it is held against, then the files of translations.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_luong.cli.options import EvaluateOptions
from keras_luong.cli.translators import (
    bleu_tokenization,
    corpus_of,
    load_translator,
    tell_languages,
)
from keras_luong.evaluation.judgement import Judgement, judge
from keras_luong.evaluation.plots import attention_figure, check_matplotlib
from keras_luong.evaluation.report import Pictures, html_report, text_report, visible
from keras_luong.files import (
    check_as_many_lines,
    one_line,
    read_lines,
    read_pairs,
    write_json,
    write_lines,
    write_text,
)
from keras_luong.languages import standard_code
from keras_luong.runs.run import read_record
from keras_luong.text.corpus import sentences
from keras_luong.text.tags import check_tag, tagged_line, tags_of, token
from keras_luong.translation.batching import Translation
from keras_luong.translation.translator import Translator

DPI = 100  # of the report's pictures


class System(NamedTuple):
    """A run that translates, and the tag in front of what it reads, if any."""

    translator: Translator
    tag: str | None


class TestSet(NamedTuple):
    """Sentences to translate, and what they should become."""

    name: str
    sources: list[str]
    references: list[str]


def run(options: EvaluateOptions) -> None:
    """Translates each test set, and tells how well, in the forms that are asked for."""
    _check_places(options)
    tokenize = bleu_tokenization(options)
    tests = list(_test_sets(options))
    files = list(_hypotheses(options, tests))
    names = _names(options)
    runs = list(_systems(options))
    judged, pictures = [], []
    for test in tests:
        found = [_translated(system, test, options) for system in runs]
        texts = [*([t.text for t in one] for one in found), *files]
        systems = dict(zip(names, texts, strict=True))
        judged.append(judge(*test, systems, tokenize))
        _tell(judged[-1], options)
        pictures.append(_pictures(judged[-1], found, options))
    if options.report is not None:
        write_text(options.report, html_report(judged, options.worst, pictures))
    if options.json is not None:
        write_json(options.json, {"tests": [x.as_json(options.worst) for x in judged]})


def _check_places(options: EvaluateOptions) -> None:
    """Refuses, before any work, a report of another kind, and runs that differ."""
    report = options.report
    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise ValueError(
            f"--report is a file whose name ends in .html. Received: {report}"
        )
    runs = filter(None, (options.run_dir, options.against))
    one, *other = [_languages(path) for path in runs] or [()]
    if one and any(other) and other != [one]:
        raise ValueError(
            f"--against must be a run of the same languages, as {options.run_dir} "
            f"translates {' into '.join(one)}. Received: {options.against}, which "
            f"translates {' into '.join(*other)}"
        )


def _languages(run_dir: Path) -> tuple[str, ...]:
    """The languages that a run names, as they are compared; none if it does not."""
    settings = read_record(run_dir)["settings"]
    languages = [settings.get(side) for side in ("source", "target")]
    return tuple(map(standard_code, languages)) if all(languages) else ()


def _names(options: EvaluateOptions) -> list[str]:
    """The systems' names: short ones, if they differ."""
    runs = [path for path in (options.run_dir, options.against) if path is not None]
    paths = [*runs, *options.hypotheses]
    for names in (
        [path.resolve().name for path in paths],
        [str(path) for path in paths],
    ):
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"Two of {', '.join(map(str, paths))} are the same.")


def _test_sets(options: EvaluateOptions) -> Iterator[TestSet]:
    if options.test:
        source, reference = options.test
        sources, references = read_pairs(source, reference)
        if not sources:
            raise ValueError(f"{source} is empty: there is nothing to evaluate.")
        if options.run_dir is not None:
            tell_languages(options.run_dir, source=sources, target=references)
        yield TestSet(source.name, sources, references)
        return
    corpus = corpus_of(options, options.run_dir, with_tag=False)
    for split in corpus.splits:
        if split != "train":
            yield TestSet(split, *sentences(corpus, split))


def _hypotheses(
    options: EvaluateOptions, tests: Sequence[TestSet]
) -> Iterator[list[str]]:
    """The translations that were made elsewhere, as many as there are sources."""
    if options.test:
        for path in options.hypotheses:
            found = list(read_lines(path))
            sources = len(tests[0].sources)
            check_as_many_lines(options.test[0], sources, path, len(found))
            yield found


def _systems(options: EvaluateOptions) -> Iterator[System]:
    """The run and the one that it is held against, with the same search options."""
    if options.run_dir is None:
        return
    runs = {options.run_dir: load_translator(options)}
    if (other := options.against) is not None:
        of_other = dataclasses.replace(options, run_dir=other, ensemble=())
        runs[other] = load_translator(of_other)
    tag = options.tag
    if tag is None and options.test is None and options.data is None:
        tag = read_record(options.run_dir)["settings"].get("tag")
    knowing = [run for run, x in runs.items() if tag in tags_of(x.source_tokenizer)]
    if tag is not None and not knowing:
        check_tag(runs[options.run_dir].source_tokenizer, tag)
    for run, translator in runs.items():
        usual = tag or read_record(run)["settings"].get("tag")
        if usual and run not in knowing and len(runs) > 1:
            print(f"note: {run} reads the sources without {token(usual)}.")
        yield System(translator, tag if run in knowing else None)


def _translated(
    system: System, test: TestSet, options: EvaluateOptions
) -> list[Translation]:
    """The translations of a test set."""
    texts: Sequence[str | bytes] = test.sources
    if system.tag is not None:
        texts = [tagged_line(text.encode(), system.tag) for text in test.sources]
    return system.translator.translate(texts, options.batch_size, progress=True)


def _tell(judged: Judgement, options: EvaluateOptions) -> None:
    """Prints what was found, and writes the run's translations where asked for."""
    texts = next(iter(judged.systems.values()))
    rows = zip(judged.sources, judged.references, texts, strict=True)
    for row in list(rows)[: options.show]:
        shown = map(visible, row)
        print("source       {}\nreference    {}\ntranslation  {}\n".format(*shown))
    print(f"{text_report(judged, options.worst)}\n", flush=True)
    if options.output is not None:
        path = options.output / f"{judged.name}.translated"
        write_lines(path, map(one_line, texts))


def _pictures(
    judged: Judgement, found: Sequence[list[Translation]], options: EvaluateOptions
) -> Pictures:
    """The attention of the sentences in the report, if a run has any."""
    if options.report is None or not found:
        return {}
    try:
        check_matplotlib()
    except ImportError as error:
        print(f"note: the report has no pictures. {error}", file=sys.stderr)
        return {}
    rows = {*judged.worst(options.worst), *judged.best(options.worst)}
    return {row: _png(found[0][row]) for row in rows if np.any(found[0][row].alignment)}


def _png(t: Translation) -> bytes:
    picture = io.BytesIO()
    figure = attention_figure(t.alignment, t.source_tokens, t.tokens)
    figure.savefig(picture, format="png", dpi=DPI)
    return picture.getvalue()
