"""What commands have in common that translate: translators, corpora and engines."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import tensorflow as tf

from keras_luong.cli.options import (
    CorpusOptions,
    EngineOptions,
    RunOptions,
    SearchOptions,
)
from keras_luong.config.training import BACK_TRANSLATED
from keras_luong.config.training import bleu_tokenization as of_language
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.penalties import AverageLengthPenalty
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.evaluation.scores import check_tokenize
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.opening import file_states
from keras_luong.runs.ray_engine import Pool
from keras_luong.runs.run import RunDirectory, file_digest, read_record
from keras_luong.runs.shards import run_digest
from keras_luong.runs.start import training_corpus
from keras_luong.runs.synthetic import pooled
from keras_luong.special_ids import UNK_ID
from keras_luong.text.corpora import load_corpus
from keras_luong.text.corpus import Corpus, fingerprint
from keras_luong.text.held_out import HeldOut
from keras_luong.text.language_guess import language_doubts
from keras_luong.text.tags import tags_of
from keras_luong.text.tokenizer import as_str
from keras_luong.translation.translator import Translator
from keras_luong.version import __version__

_LINES = 1000  # to tell their language
_OF_THE_SEARCH = (
    "beam_width",
    "length_penalty",
    "coverage_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram",
)


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


def bleu_tokenization(asked: str, run_dir: Path | None, language: str = "") -> str:
    """The tokenisation that is asked for, or else the run's.

    Args:
        asked: That of --bleu_tokenize.
        run_dir: The run; None if there is none.
        language: Without a run it is that of this target language.

    Raises:
        ValueError: If sacrebleu has none of that name.
    """
    if asked != "auto":
        return check_tokenize("--bleu_tokenize", asked)
    tokenize = of_language(language)
    if run_dir is not None:
        tokenize = read_record(run_dir)["settings"].get("bleu_tokenize", "13a")
    return check_tokenize("bleu_tokenize", tokenize)


def with_options(translator: Translator, options: SearchOptions) -> Translator:
    """The translator with the search that the options ask for."""
    search: Any = translator.search
    if isinstance(search, GreedySearch):
        search = BeamSearch(beam_width=1, max_length=search.max_length)
    changes: dict[str, Any] = {
        name: value
        for name in _OF_THE_SEARCH
        if (value := getattr(options, name)) is not None
    }
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


def corpus_of(
    options: CorpusOptions | None, run_dir: Any, with_tag: bool = True
) -> Corpus:
    """The corpus that the options name, or else the run's.

    Args:
        options: What they name comes before what the run does; None of a command that
            has no such options.
        run_dir: The run.
        with_tag: Whether the run's own corpus has the run's tag, if it has one.

    Raises:
        ValueError: Neither names one, or it is not there; it says what is missing.
        OSError: There is no such run, or a file of the corpus is missing.

    Warns if the run's own corpus has other text to validate by than it had.
    """
    record = read_record(run_dir)
    settings, names = record["settings"], ("data", "source", "target")
    given = {name: getattr(options, name, None) for name in names}
    chosen = {name: given[name] or settings.get(name) for name in names}
    missing = [f"--{name}" for name, value in chosen.items() if value is None]
    if missing:
        todo = f": give {', '.join(missing)}" if options else "."
        raise ValueError(f"{run_dir} does not name its data{todo}")
    if given["data"] is not None:
        corpus = load_corpus(chosen["data"], chosen["source"], chosen["target"])
        whole: Any = getattr(
            corpus, "whole", corpus
        )  # of which nothing is held out yet
        pairs = list(whole.pairs(whole.splits[0]).take(_LINES).as_numpy_iterator())
        sides = {side: [pair[side] for pair in pairs] for side in ("source", "target")}
        tell_languages(run_dir, **sides)
        return corpus
    try:
        corpus = load_corpus(chosen["data"], chosen["source"], chosen["target"])
    except (ValueError, OSError) as error:
        if Path(chosen["data"]).exists():
            raise
        todo = ": give its new place by --data" if options else ""
        raise ValueError(
            f"{run_dir} names {chosen['data']!r} as its data, which is not there"
            f"{todo}. {error}"
        ) from error
    held_out = RunDirectory(run_dir).held_out
    known = record.get("corpus") or {}
    is_known = isinstance(corpus, HeldOut) and held_out.exists()
    is_known = is_known and known["train"].get("files") == file_states(corpus)
    if is_known:  # what the run was validated by, of the same text
        corpus.load(held_out)  # type: ignore[attr-defined]
    tagged = training_corpus({**chosen, "tag": settings.get("tag")}, corpus)
    # In the other direction it is another text, as it was asked for.
    is_same = all(chosen[name] == settings.get(name) for name in ("source", "target"))
    before = known.get("validation", {}).get("digest")
    if is_same and before and "validation" in corpus.splits and not is_known:
        if fingerprint(corpus, "validation").digest != before:
            warnings.warn(
                f"the validation text of {corpus.name} is another one than when "
                f"{run_dir} was trained, and it may have been trained on some of it: "
                "results may look better than they are.",
                stacklevel=2,
            )
    return tagged if with_tag else corpus


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


def tell_unmixed(options: CorpusOptions, run_dir: Any) -> None:
    """Says, to people, that a run's own corpus is without what it was mixed with."""
    if options.data is None and read_record(run_dir)["settings"].get("mix_old"):
        print(
            "note: without what --mix_old added; give a corpus of both by --data",
            file=sys.stderr,
        )


def telling_language(run_dir: Any, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yields lines to translate; says of the first ones what `tell_languages` does."""
    lines, seen = iter(lines), list[bytes]()
    for line in itertools.islice(lines, _LINES):
        seen.append(line)
        yield line
    tell_languages(run_dir, source=seen)
    yield from lines


def tell_tags(translator: Translator, tag: str | None) -> None:
    """Says, to people, that a run knows tags where none is given."""
    known = [x for x in tags_of(translator.source_tokenizer) if x != BACK_TRANSLATED]
    if known and tag is None:
        print(
            f"note: this run was trained with the tags {', '.join(known)}: lines that "
            f"are of one are translated better with it, as by --tag {known[0]}",
            file=sys.stderr,
        )


def tell_damaged(lines: int) -> None:
    """Says, to people, how many lines could not be read as they are."""
    if lines:
        print(
            f"note: lines that are not UTF-8: {lines:,}, read with U+FFFD",
            file=sys.stderr,
        )


_Options = TypeVar("_Options", bound=EngineOptions)
_NOT_OF_THE_WORK = {field.name for field in dataclasses.fields(EngineOptions)}


def parts_of(output: Path) -> Path:
    """The folder of the parts of a file or folder to be, beside it."""
    return output.with_name(f"{output.name}.parts")


def plan_of(options: EngineOptions, run_dirs: Sequence[Path]) -> dict[str, Any]:
    """Returns the settings that translations depend on, as a dict for JSON.

    Args:
        options: The options; those that name files count by what is in the files.
        run_dirs: The runs.
    """
    plan = {name: value for name, value in vars(options).items() if not _paths(value)}
    for name in ("terms", "shortlist"):
        if (path := getattr(options, name, None)) is not None:
            plan[name] = file_digest(path)
    return {
        **{name: x for name, x in plan.items() if name not in _NOT_OF_THE_WORK},
        "run": [run_digest(run_dir) for run_dir in run_dirs],
        "keras_luong": __version__,
        "tensorflow": tf.__version__,
    }


def check_runs(run_dirs: Sequence[Path], digests: Sequence[str]) -> None:
    """Refuses runs that have changed, as of a training that goes on meanwhile.

    A worker may load them days after the first one has.

    Args:
        run_dirs: The runs.
        digests: Their digests when the work began.

    Raises:
        ValueError: One is another one now.
    """
    for run_dir, digest in zip(run_dirs, digests, strict=True):
        if run_digest(run_dir) != digest:
            raise ValueError(
                f"{run_dir} has changed since the work began: the rest would come "
                "from another model. Work with a copy of a run that is being trained"
            )


def _unchanged(
    load: Callable[[], Translator], run_dirs: Sequence[Path], digests: Sequence[str]
) -> Translator:
    """Loads a worker's translator, and checks that its runs have not changed."""
    translator = load()
    check_runs(run_dirs, digests)
    return translator


def of_workers(options: _Options) -> _Options:
    """Makes the paths in options absolute: workers run in other folders."""
    changes: dict[str, Any] = {}
    for name, value in vars(options).items():
        if paths := _paths(value):
            absolute = tuple(path.resolve() for path in paths)
            changes[name] = absolute if isinstance(value, tuple) else absolute[0]
    return dataclasses.replace(options, **changes)


def _paths(value: Any) -> tuple[Path, ...]:
    """The paths that a value is, if it is any."""
    several = value if isinstance(value, tuple) else (value,)
    return tuple(x for x in several if isinstance(x, Path))


@contextlib.contextmanager
def engine(
    options: EngineOptions,
    translator: Translator,
    load: Callable[[], Translator],
    run_dirs: Sequence[Path],
    output: Path,
) -> Iterator[Translator]:
    """Gives a translator whose streams are the work of the engine that is asked for.

    Args:
        options: The options.
        translator: The translator.
        load: Makes the same one in a worker's process.
        run_dirs: The runs that it is of.
        output: What is to be written; Ray's parts are beside it.
    """
    if options.engine == "local":
        yield translator
        return
    plan = plan_of(options, run_dirs)
    there = [path.resolve() for path in run_dirs]
    same = functools.partial(_unchanged, load, there, plan["run"])
    pool = Pool(options.address, options.workers)
    with pooled(translator, same, parts_of(output), plan, pool) as many:
        yield many  # type: ignore[misc]  # has all that a translator has
