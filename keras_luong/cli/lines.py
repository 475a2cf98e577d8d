"""Turns lines of text into lines of output, as `keras-luong translate` does."""

from __future__ import annotations

import bisect
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_luong.cli.options import TranslateOptions
from keras_luong.evaluation.alignment import (
    CONTROLS,
    WORD_START,
    format_pharaoh,
    hard_alignment,
    word_indices,
)
from keras_luong.files import count_lines, one_line, read_lines, read_raw_lines
from keras_luong.runs.run import read_record
from keras_luong.text.pair_formats import form_of, read_sentences
from keras_luong.text.tags import add_tag, check_tag
from keras_luong.text.terminology import Terminology, constraint_lines, phrases_of
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.words import WordTokenizer
from keras_luong.translation.batching import Translation, unwritable
from keras_luong.translation.graph import BYTES_PER_TOKEN
from keras_luong.translation.translator import Translator

_UNKNOWN = "phrases with words or letters unknown to the target tokenizer:"


class Translated(NamedTuple):
    """A line of input, its translations, and the lines to write.

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

    The files of what is required of each translation are checked before any work.

    Args:
        options: The options.
        translator: What translates.

    Raises:
        OSError: A file is missing.
        ValueError: A phrase or beginning cannot be written, a file of terms is not one,
            another file has not as many lines as the input, or there is no such tag.
    """

    def __init__(self, options: TranslateOptions, translator: Translator):
        self.options, self.translator = options, translator
        self.terms: Terminology | None = None
        for path, read in (
            (options.constraints, constraint_lines),
            (options.prefixes, lambda path: ([line] for line in read_lines(path))),
        ):
            if path is None:
                continue
            text = options.input
            if text is not None and text.is_file() and form_of(text) is None:
                # Other forms are counted as they are read.
                check_as_many(text, count_lines(text), path, count_lines(path))
            if said := self._unwritable(read(path)):
                raise ValueError(f"{path} asks for {_UNKNOWN} {said}")
        if options.terms is not None:
            self.terms = Terminology.load(options.terms, translator.source_tokenizer)
            self._check_terms(options.terms, self.terms)
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
        wanted = self._required(texts, constraints)
        if (tag := self.options.tag) is not None:  # in which no term is looked for
            lines = (add_tag(line, tag) for line in lines)
        lines, again = itertools.tee(lines)
        sizes = self.options.batch_size, self.options.window
        results = self.translator.stream(
            lines, *sizes, n_best=True, prefixes=prefixes, constraints=wanted
        )
        for number, (hypotheses, line) in enumerate(zip(results, again, strict=True)):
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

    def _required(
        self, texts: Iterable[bytes], lines: Iterable[str] | None
    ) -> Iterator[list[str]] | None:
        """The phrases that each translation must contain, of constraints and terms."""
        if self.terms is None:
            return None if lines is None else map(phrases_of, lines)
        terms = map(self.terms.find, texts)
        return terms if lines is None else _joined(map(phrases_of, lines), terms)

    def _unwritable(self, rows: Iterable[Sequence[str]]) -> str:
        """Lists the phrases that cannot be written, each with its first line."""
        first: dict[str, int] = {}
        for number, phrases in enumerate(rows, 1):
            for phrase in phrases:
                first.setdefault(phrase, number)
        unknown = unwritable([*first], self.translator.target_tokenizer)
        return ", ".join(f"{x!r} (line {first[x]:,})" for x in unknown)

    def _check_terms(self, path: Path, terms: Terminology) -> None:
        """Tells of terms that cannot be written; refuses lines that need one."""
        rows = (line.split("\t")[1:] for line in read_lines(path))
        said = self._unwritable([" ".join(x.split()) for x in row] for row in rows)
        if not said:
            return
        targets, source = [*terms.terms.values()], self.options.input
        unknown = {*unwritable(targets, self.translator.target_tokenizer)}
        if source is not None and source.is_file() and form_of(source) is None:
            # Before any work; without a file, where the line comes.
            for number, line in enumerate(read_raw_lines(source), 1):
                if needed := sorted(unknown.intersection(terms.find(line))):
                    raise ValueError(
                        f"{source}, line {number:,}, needs "
                        f"{', '.join(map(repr, needed))}. {path} has {_UNKNOWN} {said}"
                    )
        print(f"note: {path} has {_UNKNOWN} {said}", file=sys.stderr)


def lines_of(path: Path, options: TranslateOptions) -> Iterator[bytes]:
    """Yields the lines of a file to translate: of text all, else those of one side.

    Args:
        path: The file, of any form; or a folder of Parquet.
        options: The options, of which the run tells the language.

    Raises:
        ImportError, ValueError: As of `read_sentences` and `read_raw_lines`.
    """
    if form_of(path) is None:
        return read_raw_lines(path)  # whatever bytes they are
    language = read_record(options.run_dir)["settings"].get("source")
    return map(str.encode, read_sentences(path, language, "source", options.column))


def columns(t: Translation, options: TranslateOptions) -> Iterator[str]:
    """What is written of a translation; never a line end."""
    yield one_line(t.text)
    if options.scores or options.n_best > 1:
        yield f"{t.score:.4f}"


def _joined(
    given: Iterable[list[str]], found: Iterable[list[str]]
) -> Iterator[list[str]]:
    """Merges each line's phrases of --constraints and --terms, without repeats."""
    # Where one of both ends first, the translator finds that they differ.
    for phrases, terms in itertools.zip_longest(given, found):
        if phrases is None:
            return
        yield [*phrases, *(x for x in terms or [] if x not in phrases)]


def check_as_many(text: Path | None, lines: int, path: Path, given: int) -> None:
    """Raises ValueError unless a file has a line for each line of the input.

    Args:
        text: The input.
        lines: The number of its lines.
        path: The file.
        given: The number of its lines.
    """
    if lines != given:
        raise ValueError(
            f"{path} must have a line for each line of {text}, an empty one "
            f"where nothing is required. Received: {given} lines for {lines}"
        )


def tell_missing(phrases: Sequence[str], number: int) -> None:
    """Says, to people, which required phrases the translation of a line lacks."""
    if phrases:
        text = ", ".join(map(repr, phrases))
        print(f"note: the translation of line {number} lacks {text}", file=sys.stderr)


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
    one, other = translator.source_tokenizer, translator.target_tokenizer
    sources = _words(one, source, translator.max_source_length, t.source_tokens)
    targets = _words(other, target, translator.max_target_length, t.tokens)
    words = {(sources[i] - tags, targets[j]) for i, j in links}
    return format_pharaoh(x for x in words if min(x) >= 0)


def _words(
    tokenizer: Tokenizer, line: bytes | None, most: int, tokens: Sequence[str]
) -> Sequence[int]:
    """The index of each token's word in the line, or in the text of the tokens.

    It is -1 in a text of blanks alone.
    """
    if not hasattr(tokenizer, "word_ids"):
        return word_indices(tokens)
    if line is None and isinstance(tokenizer, WordTokenizer):
        return range(len(tokens))  # whatever signs are in them
    if line is None:  # SentencePiece's: a token belongs to the word that it ends in
        parts = ["" if x in CONTROLS else x.replace(WORD_START, " ") for x in tokens]
        ends = [match.end() for match in re.finditer(r"\S+", "".join(parts))]
        written = itertools.accumulate(map(len, parts))
        return [min(bisect.bisect_left(ends, n), len(ends) - 1) for n in written]
    ids: list[int] = tokenizer.word_ids(line.strip()[: BYTES_PER_TOKEN * most])
    # Of a line that was cut the last token may be another one.
    return ids + [max(ids, default=0)] * (len(tokens) - len(ids))
