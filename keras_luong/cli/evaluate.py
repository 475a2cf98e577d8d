"""Scores translations by BLEU, chrF and TER, and compares those of two runs.

The first system is judged, and the others are compared with it: the run, the one that
it is held against, then the files of translations.
"""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from keras_luong.cli.options import (
    CorpusOptions,
    NewFile,
    NewFolder,
    RunDir,
    SearchOptions,
    TextOrPipe,
    refuse_both,
)
from keras_luong.config.fields import Count
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
from keras_luong.progress import telling
from keras_luong.runs.run import read_record
from keras_luong.text.corpus_files import language_of

if TYPE_CHECKING:
    from keras_luong.translation.batching import Translation
    from keras_luong.translation.translator import Translator

DPI = 100  # of the report's pictures


@dataclasses.dataclass(frozen=True)
class EvaluateOptions(CorpusOptions, SearchOptions):
    """Evaluation.

    Args:
        run_dir: A run directory, as `keras-luong train` writes it; not needed with
            --hypotheses.
        test: A source file and its reference, plain or gzip; by default the held-out
            splits of the run's data, or those of --data; of a single file all pairs,
            unless the run was trained on that file.
        tag: Name of a tag that the run was trained with, put in front of each source;
            by default the run's own one in front of its own data.
        against: Another run to compare the run with, by paired bootstrap.
        hypotheses: Files of translations of --test, to score without a run; or to
            compare with the run or with the first of them.
        bleu_tokenize: sacrebleu's tokenisation; auto is the run's, or without a run
            that of the language that the reference's name ends in.
        worst: Number of worst translations to print, by the chrF of the sentence.
        report: HTML file to write, with all figures, and the worst and the best
            translations with their attention.
        json: JSON file to write the same to.
        output: Folder to write the translations to.
        show: Number of translations to print, the first ones.
        batch_size: Sentences to translate at once.
    """

    ELSEWHERE: ClassVar[dict[str, str]] = {
        "": "--test",
        **dict.fromkeys(
            ("val", "valid", "validation", "dev"),
            "without --test, the run's own text to validate and to test by is scored",
        ),
    }

    run_dir: RunDir | None = None  # type: ignore[assignment]  # hypotheses need none
    _: KW_ONLY
    test: tuple[TextOrPipe, TextOrPipe] | None = None
    tag: str | None = None
    against: RunDir | None = None
    hypotheses: tuple[TextOrPipe, ...] = ()
    bleu_tokenize: str = "auto"
    worst: Count = 3
    report: NewFile | None = None
    json: NewFile | None = None
    output: NewFolder | None = None
    show: Count = 0
    batch_size: int = 32

    def __post_init__(self) -> None:
        """Checks all fields, and that there is something to score."""
        super().__post_init__()
        if self.hypotheses and not self.test:
            raise ValueError(
                "hypotheses needs --test SOURCE REFERENCE, two text files with the "
                "lines that they translate. docs/evaluation.md makes such files of a "
                "TMX or a table."
            )
        refuse_both(self, "test", "data")
        if self.run_dir is not None:
            return
        if not self.hypotheses:
            raise ValueError(
                "RUN_DIR is missing: give a run, or --hypotheses FILE to score a "
                "file of translations."
            )
        of_runs = {field.name for field in dataclasses.fields(SearchOptions)}
        of_runs |= {"against", "output", "data", "tag"}
        for field in dataclasses.fields(self):
            if field.name in of_runs and getattr(self, field.name) != field.default:
                raise ValueError(f"{field.name} needs RUN_DIR, which is missing.")

    def check_places(self) -> None:
        """Checks the paths, the report's kind, and that runs translate alike."""
        super().check_places()
        if self.report and self.report.suffix.lower() not in (".html", ".htm"):
            raise ValueError(
                f"--report is a file whose name ends in .html. Received: {self.report}"
            )
        runs = [_languages(x) for x in (self.run_dir, self.against) if x is not None]
        if len(runs) == 2 and all(runs) and runs[0] != runs[1]:
            raise ValueError(
                f"--against must be a run of the same languages, as {self.run_dir} "
                f"translates {' into '.join(runs[0])}. Received: {self.against}, which "
                f"translates {' into '.join(runs[1])}"
            )


def _languages(run_dir: Path) -> tuple[str, ...]:
    """The languages that a run names, as they are compared; none if it does not."""
    settings = read_record(run_dir)["settings"]
    languages = [settings.get(side) for side in ("source", "target")]
    return tuple(map(standard_code, languages)) if all(languages) else ()


class TestSet(NamedTuple):
    """Sentences to translate, and what they should become."""

    name: str
    sources: list[str]
    references: list[str]


def run(options: EvaluateOptions) -> None:
    """Translates each test set, and tells how well, in the forms that are asked for."""
    from keras_luong.cli.translators import bleu_tokenization
    from keras_luong.evaluation.judgement import judge
    from keras_luong.evaluation.report import html_report, text_report, visible
    from keras_luong.text.tags import add_tag

    language = options.target or ""
    if options.test and not language:
        language = language_of(options.test[1])  # test.de is German
    tokenize = bleu_tokenization(options.bleu_tokenize, options.run_dir, language)
    tests = list(_test_sets(options))
    _tell_learned(options, tests)
    hypotheses = list(map(list, map(read_lines, options.hypotheses)))
    if options.test:  # hypotheses have no other
        for path, lines in zip(options.hypotheses, hypotheses, strict=True):
            sources = len(tests[0].sources)
            check_as_many_lines(options.test[0], sources, path, len(lines))
    names = _names(options)
    systems = list(_systems(options))
    judged, pictures = [], []
    for test in tests:
        translations = []
        for translator, tag in systems:
            texts: list[Any] = test.sources
            if tag is not None:
                texts = [add_tag(text.encode(), tag) for text in texts]
            size = options.batch_size
            translations.append(translator.translate(texts, size, progress=True))
        texts = [*([t.text for t in system] for system in translations), *hypotheses]
        result = judge(*test, dict(zip(names, texts, strict=True)), tokenize)
        rows = zip(test.sources, test.references, texts[0], strict=True)
        for row in list(rows)[: options.show]:
            shown = map(visible, row)
            print("source       {}\nreference    {}\ntranslation  {}\n".format(*shown))
        print(f"{text_report(result, options.worst)}\n", flush=True)
        if options.output is not None:
            path = options.output / f"{test.name}.translated"
            write_lines(path, map(one_line, texts[0]))
        judged.append(result)
        extreme = {*result.worst(options.worst), *result.best(options.worst)}
        drawn = options.report is not None and translations
        pictures.append(_pictures(translations[0], extreme) if drawn else {})
    if options.report is not None:
        write_text(options.report, html_report(judged, options.worst, pictures))
    if options.json is not None:
        write_json(options.json, {"tests": [x.as_json(options.worst) for x in judged]})


def _test_sets(options: EvaluateOptions) -> Iterator[TestSet]:
    from keras_luong.cli.translators import corpus_of, tell_languages
    from keras_luong.runs.start import with_starts
    from keras_luong.text.corpus import fingerprint, notes, sentences
    from keras_luong.text.held_out import HeldOut

    if options.test:
        source, reference = options.test
        sources, references = read_pairs(source, reference)
        if not sources:
            raise ValueError(f"{source} is empty: there is nothing to evaluate.")
        if options.run_dir is not None:
            tell_languages(options.run_dir, source=sources, target=references)
        yield TestSet(source.name, sources, references)
        return
    run_dir: Any = options.run_dir
    corpus: Any = corpus_of(options, run_dir, with_tag=False)
    splits = [split for split in corpus.splits if split != "train"]
    left_out = notes(getattr(corpus, "whole", corpus)).get("left out")
    if options.data and left_out:
        print(f"note: left out: {left_out}", file=sys.stderr)
    if options.data is not None and isinstance(corpus, HeldOut):
        # Of text that neither the run nor one that it starts from was trained on,
        # nothing need be held out.
        records = [read_record(run)["corpus"] or {} for run in with_starts(run_dir)]
        known = [record.get("train", {}) for record in records]
        learned = [x.get("digest") for y in known for x in (y, y.get("whole", {}))]
        if fingerprint(corpus.whole, "train").digest not in learned:
            corpus = corpus.whole
            splits = [split for split in corpus.splits if split != "train"] or ["train"]
    for split in splits:
        name = corpus.name if split == "train" else split
        yield TestSet(name, *sentences(corpus, split))


def _tell_learned(options: EvaluateOptions, tests: Iterable[TestSet]) -> None:
    """Says, to people, how many of the pairs that are given a run was trained on.

    Of its own splits its training has said so.
    """
    if not (options.test or options.data):
        return
    import numpy as np

    from keras_luong.runs.start import hashes_of_learned
    from keras_luong.text.hashes import HashReader

    for run_dir in filter(None, (options.run_dir, options.against)):
        with telling(f"Reading what {run_dir} was trained on"):
            learned = hashes_of_learned(run_dir)
        for name, *sides in tests:
            hashes = HashReader(kept=1).read(*sides)
            if known := np.isin(hashes.pairs[hashes.full], learned).sum():
                print(
                    f"note: {known:,} of {len(hashes.full):,} pairs of {name} are in "
                    f"the training text of {run_dir} too: results look better than "
                    "they are",
                    file=sys.stderr,
                )


def _names(options: EvaluateOptions) -> list[str]:
    """The systems' names: short ones, if they differ."""
    runs = [path for path in (options.run_dir, options.against) if path is not None]
    paths = [*runs, *options.hypotheses]
    short, long = [path.resolve().name for path in paths], list(map(str, paths))
    for names in (short, long):
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"Two of {', '.join(long)} are the same.")


def _systems(options: EvaluateOptions) -> Iterator[tuple[Translator, str | None]]:
    """The run and the one that it is held against, with the same search options.

    Each with the tag that it reads in front of the sources, if any.
    """
    if options.run_dir is None:
        return
    from keras_luong.cli.translators import load_translator
    from keras_luong.text.tags import check_tag, tags_of, token

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
        if usual and run not in knowing:
            hint = "" if tag else f": --tag {usual} puts it there"
            print(f"note: {run} reads the sources without {token(usual)}{hint}.")
        yield translator, tag if run in knowing else None


def _pictures(translations: list[Translation], rows: set[int]) -> dict[int, bytes]:
    """The attention of the sentences in the report, if the run has any."""
    from keras_luong.evaluation.plots import attention_figure, check_matplotlib

    try:
        check_matplotlib()
    except ImportError as error:
        print(f"note: the report has no pictures. {error}", file=sys.stderr)
        return {}
    pictures = {}
    for row in rows:
        t = translations[row]
        if t.alignment.any():
            file = io.BytesIO()
            figure = attention_figure(t.alignment, t.source_tokens, t.tokens)
            figure.savefig(file, format="png", dpi=DPI)
            pictures[row] = file.getvalue()
    return pictures
