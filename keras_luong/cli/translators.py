"""The translator that a command's options ask for.

The links between the words of a line and of its translation, as Pharaoh has them.

What a command's translations must contain, and how they must begin.

What the options of an engine say, and what its workers need of the others.

What `keras-luong translate` makes of lines, wherever it does so.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from keras_luong.cli.options import (
    CorpusOptions,
    EngineOptions,
    EvaluateOptions,
    RunOptions,
    SearchOptions,
    TranslateOptions,
    TuneOptions,
    VerifyOptions,
)
from keras_luong.config.training import BACK_TRANSLATED
from keras_luong.config.training import bleu_tokenization as of_language
from keras_luong.decoding.beam import BeamSearch, GreedySearch
from keras_luong.decoding.penalties import AverageLengthPenalty
from keras_luong.decoding.shortlist import Shortlist
from keras_luong.evaluation.alignment import (
    format_pharaoh,
    hard_alignment,
    word_indices,
)
from keras_luong.evaluation.scores import check_tokenize
from keras_luong.files import count_lines, one_line, read_lines, read_raw_lines
from keras_luong.runs.load_save import load_ensemble
from keras_luong.runs.ray_engine import Pool
from keras_luong.runs.run import read_record
from keras_luong.runs.shards import file_digest, is_parquet, run_digest
from keras_luong.runs.start import training_corpus
from keras_luong.runs.synthetic import pooled
from keras_luong.special_ids import UNK_ID
from keras_luong.text.corpus import Corpus, fingerprint
from keras_luong.text.corpus_files import language_of
from keras_luong.text.find_corpus import load_corpus
from keras_luong.text.survey import language_doubts
from keras_luong.text.tags import check_tag, tagged_line, tags_of
from keras_luong.text.terminology import Terminology, constraint_lines, phrases_of
from keras_luong.text.tokenizer import Tokenizer, as_str
from keras_luong.text.words import WordTokenizer
from keras_luong.translation.batching import Translation, unwritable
from keras_luong.translation.graph import BYTES_PER_TOKEN
from keras_luong.translation.translator import Translator
from keras_luong.version import __version__


def word_links(
    translator: Translator,
    translation: Translation,
    source: bytes,
    target: bytes | None = None,
    tags: int = 0,
) -> str:
    """Returns the alignment of words as Pharaoh writes it: "0-0 1-2".

    Words are what white space separates in the lines themselves, whatever a tokenizer
    made of them.

    Args:
        translator: What translated or scored the line.
        translation: What it said.
        source: The line.
        target: The line that was scored; None if the translation is the model's own.
        tags: Number of words at the beginning of the line that do not count, tags.
    """
    t = translation
    ended = t.tokens[-1:] == ["</s>"]  # or cut at the maximum length
    links = hard_alignment(t.alignment, source_end=True, target_end=ended)
    sources = _words(
        translator.source_tokenizer,
        _as_far_as_read(source, translator.max_source_length),
        t.source_tokens,
    )
    if target is not None:
        target = _as_far_as_read(target, translator.max_target_length)
    targets = _words(translator.target_tokenizer, target, t.tokens)
    words = {(sources[i] - tags, targets[j]) for i, j in links if sources[i] >= tags}
    return format_pharaoh(words)


def _as_far_as_read(line: bytes, most: int) -> bytes:
    """The beginning of a line that is split into tokens, as the translator cuts it."""
    return line.strip()[: BYTES_PER_TOKEN * most]


def _words(
    tokenizer: Tokenizer, line: bytes | None, tokens: Sequence[str]
) -> Sequence[int]:
    """The index of each token's word in the line, or in the text of the tokens."""
    if line is None and isinstance(tokenizer, WordTokenizer):
        return range(len(tokens))  # whatever signs are in them
    if line is None or not hasattr(tokenizer, "word_ids"):
        return word_indices(tokens)
    ids: list[int] = tokenizer.word_ids(line)
    # Of a line that was cut the last token may be another one.
    return ids + [max(ids, default=0)] * (len(tokens) - len(ids))


class Required:
    """What the options require of each line's translation.

    It is read and checked before any work.

    Args:
        options: The options.
        translator: The translator that is to write it.

    Raises:
        OSError: A file is missing.
        ValueError: A phrase or beginning cannot be written, a file of terms is not one,
            or another file has not as many lines as the input.
    """

    def __init__(self, options: TranslateOptions, translator: Translator):
        self._terms: Terminology | None = None
        for path, read in (
            (options.constraints, constraint_lines),
            (options.prefixes, lambda path: ([line] for line in read_lines(path))),
        ):
            if path is not None:
                _check_length(options, path)
                if said := _unwritable(read(path), translator):
                    raise ValueError(f"{path} asks for {_UNKNOWN} {said}")
        if options.terms is not None:
            self._terms = Terminology.load(options.terms, translator.source_tokenizer)
            _check_terms(options, self._terms, translator)

    def of(
        self, texts: Iterable[bytes], lines: Iterable[str] | None
    ) -> Iterator[list[str]] | None:
        """Returns the phrases of each text; what both files require is required once.

        Args:
            texts: The texts.
            lines: The line of the file of constraints for each, if there is one.

        Returns:
            None if nothing is required.
        """
        if self._terms is None:
            return None if lines is None else map(phrases_of, lines)
        found = map(self._terms.find, texts)
        return found if lines is None else _joined(map(phrases_of, lines), found)


_UNKNOWN = "what the target tokenizer does not know all letters or words of:"


def _joined(
    given: Iterable[list[str]], found: Iterable[list[str]]
) -> Iterator[list[str]]:
    # Where one of both ends first, the translator finds that they differ.
    for phrases, terms in itertools.zip_longest(given, found):
        if phrases is None:
            return
        yield [*phrases, *(x for x in terms or [] if x not in phrases)]


def _unwritable(rows: Iterable[Sequence[str]], translator: Translator) -> str:
    """Lists the phrases that cannot be written, each with its first line."""
    first: dict[str, int] = {}
    for number, phrases in enumerate(rows, 1):
        for phrase in phrases:
            first.setdefault(phrase, number)
    unknown = unwritable([*first], translator.target_tokenizer)
    return ", ".join(f"{x!r} (line {first[x]:,})" for x in unknown)


def _check_terms(
    options: TranslateOptions, terms: Terminology, translator: Translator
) -> None:
    """Tells of terms that cannot be written; refuses them where a line needs one."""
    path, source = options.terms, options.input
    assert path is not None
    rows = (line.split("\t")[1:] for line in read_lines(path))
    said = _unwritable(([" ".join(x.split()) for x in row] for row in rows), translator)
    if not said:
        return
    unknown = {*unwritable([*terms.terms.values()], translator.target_tokenizer)}
    if source is not None and source.is_file() and not is_parquet(source):
        # Before any work; without a file, where the line comes.
        for number, line in enumerate(read_raw_lines(source), 1):
            if needed := sorted(unknown.intersection(terms.find(line))):
                raise ValueError(
                    f"{source}, line {number:,}, needs {', '.join(map(repr, needed))}. "
                    f"{path} has {_UNKNOWN} {said}"
                )
    print(f"note: {path} has {_UNKNOWN} {said}", file=sys.stderr)


def _check_length(options: TranslateOptions, path: Path) -> None:
    """Raises ValueError unless a file has as many lines as the input."""
    if options.input is None or not options.input.is_file():
        return
    if not is_parquet(options.input):  # whose rows are counted as they are read
        check_as_many(options, path, count_lines(options.input), count_lines(path))


def check_as_many(
    options: TranslateOptions, path: Path, lines: int, given: int
) -> None:
    """Raises ValueError unless a file has a line for each line of the input.

    Args:
        options: The options, which name the input.
        path: The file.
        lines: The number of lines of the input.
        given: That of the file.
    """
    if lines != given:
        raise ValueError(
            f"{path} must have a line for each line of {options.input}, an empty one "
            f"where nothing is required. Received: {given} lines for {lines}"
        )


def tell_unmet(translation: Translation, number: int) -> None:
    """Says, to people, which phrases the translation of a line lacks."""
    tell_missing(translation.unmet, number)


def tell_missing(phrases: Sequence[str], number: int) -> None:
    """The same of phrases that are missing, if any are."""
    if phrases:
        text = ", ".join(map(repr, phrases))
        print(f"note: the translation of line {number} lacks {text}", file=sys.stderr)


_Options = TypeVar("_Options", bound=EngineOptions)
_NOT_OF_THE_WORK = {field.name for field in dataclasses.fields(EngineOptions)}


def pool_of(options: EngineOptions) -> Pool:
    """The pool that the options ask for."""
    return Pool(options.address, options.workers)


def parts_of(output: Path) -> Path:
    """The folder of the parts of a file or folder to be, beside it."""
    return output.with_name(f"{output.name}.parts")


def plan_of(options: EngineOptions, run_dirs: Sequence[Path]) -> dict[str, Any]:
    """All that translations depend on, beside their texts, as JSON can hold it.

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
                f"{run_dir} has changed since the work began, half of which would be "
                "of another model. Work with a copy of a run that is being trained"
            )


def _unchanged(
    load: Callable[[], Translator], run_dirs: Sequence[Path], digests: Sequence[str]
) -> Translator:
    """What a worker loads."""
    translator = load()
    check_runs(run_dirs, digests)
    return translator


def of_workers(options: _Options) -> _Options:
    """The options as workers have them, which run in other folders."""
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
    with pooled(translator, same, parts_of(output), plan, pool_of(options)) as many:
        yield many  # type: ignore[misc]  # has all that a translator has


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


class Translated(NamedTuple):
    """A line, and what became of it.

    Attributes:
        line: The line, with its tag.
        hypotheses: Its translations, the best one first.
        output: What is written of them, one line each.
    """

    line: bytes
    hypotheses: list[Translation]
    output: list[bytes]


class LineTranslator:
    """Turns lines into lines of output, as the options say.

    Args:
        options: The options.
        translator: What translates.

    Raises:
        OSError, ValueError: The options ask for what cannot be.
    """

    def __init__(self, options: TranslateOptions, translator: Translator):
        self.options, self.translator = options, translator
        self.required = Required(options, translator)
        if options.tag is not None:
            check_tag(translator.source_tokenizer, options.tag)

    def __call__(
        self,
        lines: Iterable[bytes],
        constraints: Iterable[str] | None = None,
        prefixes: Iterable[str] | None = None,
        first: int = 0,
    ) -> Iterator[Translated]:
        """Translates lines, in bounded memory.

        Args:
            lines: The lines, however many.
            constraints: The line of constraints of each, if there are any.
            prefixes: The beginning of each translation, if there are any.
            first: The number of lines before them.
        """
        lines, texts = itertools.tee(lines)  # as far apart as the window
        wanted = self.required.of(texts, constraints)
        if (tag := self.options.tag) is not None:  # in which no term is looked for
            lines = (tagged_line(line, tag) for line in lines)
        lines, again = itertools.tee(lines)
        sizes = self.options.batch_size, self.options.window
        found = self.translator.stream(
            lines, *sizes, n_best=True, prefixes=prefixes, constraints=wanted
        )
        for number, (hypotheses, line) in enumerate(zip(found, again, strict=True)):
            output = [self._output(x, line, first + number) for x in hypotheses]
            yield Translated(line, hypotheses, output)

    def _output(self, translation: Translation, line: bytes, number: int) -> bytes:
        fields = list(columns(translation, self.options))
        if self.options.alignments:
            tags = int(self.options.tag is not None)
            fields.append(word_links(self.translator, translation, line, tags=tags))
        if self.options.n_best > 1:
            fields = [str(number), *fields]
        return " ||| ".join(fields).encode()


def columns(t: Translation, options: TranslateOptions) -> Iterator[str]:
    """What is written of a translation; never a line end."""
    yield one_line(t.text)
    if options.scores or options.n_best > 1:
        yield f"{t.score:.4f}"


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
