"""The translator that a command's options ask for."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from keras_luong.cli.commands import (
    CorpusOptions,
    EvaluateOptions,
    RunOptions,
    SearchOptions,
    TuneOptions,
    VerifyOptions,
)
from keras_luong.config.training import bleu_tokenization as of_language
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.greedy import GreedySearch
from keras_luong.decoding.penalties import AverageLengthPenalty
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.evaluation.bleu import check_tokenize
from keras_luong.runs.ensemble import load_ensemble
from keras_luong.runs.record import read_record
from keras_luong.runs.starting_point import training_corpus
from keras_luong.special_ids import UNK_ID
from keras_luong.text.corpus import Corpus, fingerprint
from keras_luong.text.file_names import language_of
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.language_guess import language_doubts
from keras_luong.text.tokenizer import as_str
from keras_luong.translation.translator import Translator

_LINES = 1000  # to tell their language
_BEFORE = "13a"  # what runs were scored by that do not say
_OF_THE_SEARCH = (
    "beam_width length_penalty coverage_penalty max_length min_length no_repeat_ngram"
).split()


def load_translator(options: RunOptions, precision: str | None = None) -> Translator:
    """Loads the run, or the runs as an ensemble.

    Args:
        options: Which runs, and what else is asked of the search, if anything.
        precision: What the models compute in, before `options.precision`.

    Raises:
        ValueError, OSError: As of `keras_luong.load`; or a search that cannot be.
    """
    runs = [options.run_dir, *options.ensemble]
    translator = load_ensemble(runs, precision or options.precision)
    if isinstance(options, SearchOptions):
        return with_options(translator, options)
    return translator


def bleu_tokenization(options: EvaluateOptions | VerifyOptions | TuneOptions) -> str:
    """The tokenisation that the options ask for, or else the run's.

    Without a run it is that of the target language, which is said by --target or by how
    the reference's name ends.

    Raises:
        ValueError: If sacrebleu has none of that name.
    """
    if (asked := options.bleu_tokenize) != "auto":
        return check_tokenize("--bleu_tokenize", asked)
    run_dir = options.run_dir
    if run_dir is None:
        return check_tokenize("bleu_tokenize", of_language(_target_language(options)))
    settings = read_record(run_dir)["settings"]
    return check_tokenize("bleu_tokenize", settings.get("bleu_tokenize", _BEFORE))


def _target_language(options: EvaluateOptions | VerifyOptions | TuneOptions) -> str:
    """The language to translate into, or what the reference's name says: test.de."""
    if not isinstance(options, EvaluateOptions) or options.test is None:
        return ""
    return options.target or language_of(options.test[1])


def with_options(translator: Translator, options: SearchOptions) -> Translator:
    """The translator with the search that the options ask for."""
    search: Any = translator.search
    if isinstance(search, GreedySearch):
        search = BeamSearch(beam_width=1, max_length=search.max_length)
    values = {name: getattr(options, name) for name in _OF_THE_SEARCH}
    changes: dict[str, Any] = {k: v for k, v in values.items() if v is not None}
    if options.average is not None:
        changes["length_penalty"] = AverageLengthPenalty(options.average)
    if options.shortlist is not None:
        changes["shortlist"] = Shortlist.load(options.shortlist)
    if options.no_unknown:
        changes["forbidden"] = (*search.forbidden, UNK_ID)
    if options.beam_width is not None:
        changes["n_best"] = min(search.n_best, options.beam_width)
    return translator.with_search(
        search, max_source_length=options.max_source_length, **changes
    )


def corpus_of(options: CorpusOptions, run_dir: Any, with_tag: bool = True) -> Corpus:
    """The corpus that the options name, or else the run's.

    Args:
        options: What they name comes before what the run does.
        run_dir: The run.
        with_tag: Whether the run's own corpus has the run's tag, if it has one.

    Raises:
        ValueError: Neither names one, or it is not there; it says what is missing.
        OSError: There is no such run, or a file of the corpus is missing.

    Warns if the run's own corpus has other text to validate by than it had.
    """
    settings = read_record(run_dir)["settings"]
    names = ("data", "source", "target")
    found = {name: getattr(options, name) or settings.get(name) for name in names}
    missing = [f"--{name}" for name, value in found.items() if value is None]
    if missing:
        raise ValueError(f"{run_dir} does not name its data: give {', '.join(missing)}")
    if options.data is not None:
        corpus = load_corpus(found["data"], found["source"], found["target"])
        pairs = list(corpus.pairs(corpus.splits[0]).take(_LINES).as_numpy_iterator())
        sides = {side: [pair[side] for pair in pairs] for side in ("source", "target")}
        tell_languages(run_dir, **sides)
        return corpus
    corpus = _own_corpus(run_dir, found)
    with_its_tag = training_corpus({**found, "tag": settings.get("tag")}, corpus)
    _tell_changed_text(run_dir, with_its_tag)
    return with_its_tag if with_tag else corpus


def tell_languages(run_dir: Any, **sides: Iterable[str | bytes]) -> None:
    """Says, to people, if text is not in the languages of a run, as a training does.

    Args:
        run_dir: The run; of one that names no languages nothing is said.
        **sides: Lines of the `source`, the `target` or both, of which some are read.
    """
    settings = read_record(run_dir)["settings"]
    some = {
        side: [as_str(line).encode() for line in itertools.islice(lines, _LINES)]
        for side, lines in sides.items()
        if settings.get(side)
    }
    for doubt in language_doubts(some, settings):
        print(f"note: {doubt}.", file=sys.stderr)


def telling_language(run_dir: Any, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines to translate; says of the first ones what `tell_languages` does."""
    lines, seen = iter(lines), list[bytes]()
    for line in itertools.islice(lines, _LINES):
        seen.append(line)
        yield line
    tell_languages(run_dir, source=seen)
    yield from lines


def _own_corpus(run_dir: Any, found: Mapping[str, Any]) -> Corpus:
    """The corpus that a run names, which may lie elsewhere by now."""
    try:
        return load_corpus(found["data"], found["source"], found["target"])
    except (ValueError, OSError) as error:
        if Path(found["data"]).exists():
            raise
        raise ValueError(
            f"{run_dir} names {found['data']!r} as its data, which is not there; a "
            f"command that has --data takes its new place. {error}"
        ) from error


def _tell_changed_text(run_dir: Any, corpus: Corpus) -> None:
    """Warns if a run was not validated by this text, but maybe trained on it."""
    record = read_record(run_dir)
    languages = [record["settings"].get(side) for side in ("source", "target")]
    if languages != [corpus.source_language, corpus.target_language]:
        return  # the other direction is another text, as it was asked for
    known = record.get("corpus", {}).get("validation", {}).get("digest")
    if not known or "validation" not in corpus.splits:
        return
    if fingerprint(corpus, "validation").digest != known:
        warnings.warn(
            f"the validation text of {corpus.name} is another one than when {run_dir} "
            "was trained, and it may have been trained on some of it: results may look "
            "better than they are.",
            stacklevel=3,
        )
