"""The phrases that a command's translations must contain."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence

from keras_luong.checks import check_file
from keras_luong.cli.commands import TranslateOptions
from keras_luong.files import count_lines
from keras_luong.runs.parquet import is_parquet
from keras_luong.text.terminology import Terminology, constraint_lines, phrases_of
from keras_luong.translation.constraints import check_phrases
from keras_luong.translation.translation import Translation
from keras_luong.translation.translator import Translator


class Required:
    """The phrases that the options require of each line's translation.

    They are read and checked before any work. It is true if the options require any.

    Args:
        options: The options.
        translator: The translator that is to write them.

    Raises:
        OSError: A file is missing.
        ValueError: A phrase cannot be written, a file of terms is not one, or a file of
            constraints has not as many lines as the input.
    """

    def __init__(self, options: TranslateOptions, translator: Translator):
        self._lines, self._terms = options.constraints, options.terms
        phrases: dict[str, None] = {}
        if self._lines is not None:
            check_file("file of constraints", self._lines)
            _check_length(options)
            for line in constraint_lines(self._lines):
                phrases.update(dict.fromkeys(line))
        if self._terms is not None:
            self._terminology = Terminology.load(
                check_file("file of terms", self._terms)
            )
            phrases.update(dict.fromkeys(self._terminology.terms.values()))
        check_phrases(list(phrases), translator.target_tokenizer)

    def __bool__(self) -> bool:
        """Tells whether anything is required."""
        return self._lines is not None or self._terms is not None

    def of(
        self, texts: Iterable[bytes], lines: Iterable[str] | None
    ) -> Iterator[list[str]]:
        """Yields the phrases of each text; what both files require is required once.

        Args:
            texts: The texts.
            lines: The line of the file of constraints for each, if there is one.
        """
        if lines is None:
            yield from map(self._terminology.find, texts)
            return
        # Where one of both ends first, the translator finds that they differ.
        for text, phrases in itertools.zip_longest(texts, map(phrases_of, lines)):
            if phrases is None:
                return
            found = self._terminology.find(text or b"") if self._terms else []
            yield [*phrases, *(x for x in found if x not in phrases)]


def _check_length(options: TranslateOptions) -> None:
    """Raises ValueError unless there is a line of constraints for each of the input."""
    if options.input is None or not options.input.is_file():
        return
    if not is_parquet(options.input):  # whose rows are counted as they are read
        given = count_lines(options.constraints or "")
        check_as_many(options, count_lines(options.input), given)


def check_as_many(options: TranslateOptions, lines: int, given: int) -> None:
    """Raises ValueError unless there is a line of constraints for each of the input.

    Args:
        options: The options, which name the files.
        lines: The number of lines of the input.
        given: That of the file of constraints.
    """
    if lines != given:
        raise ValueError(
            f"{options.constraints} must have a line for each line of {options.input}, "
            f"an empty one for no constraint. Received: {given} lines for {lines}"
        )


def tell_unmet(translation: Translation, number: int) -> None:
    """Says, to people, which phrases the translation of a line lacks."""
    tell_missing(translation.unmet, number)


def tell_missing(phrases: Sequence[str], number: int) -> None:
    """The same of phrases that are missing, if any are."""
    if phrases:
        text = ", ".join(map(repr, phrases))
        print(f"note: the translation of line {number} lacks {text}", file=sys.stderr)
