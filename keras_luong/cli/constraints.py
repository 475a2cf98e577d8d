"""What a command's translations must contain, and how they must begin."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from keras_luong.cli.commands import TranslateOptions
from keras_luong.files import count_lines, read_lines, read_raw_lines
from keras_luong.runs.parquet import is_parquet
from keras_luong.text.terminology import Terminology, constraint_lines, phrases_of
from keras_luong.translation.constraints import unwritable
from keras_luong.translation.translation import Translation
from keras_luong.translation.translator import Translator


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
