"""What `keras-luong translate` makes of lines, wherever it does so."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from keras_luong.cli.alignments import word_links
from keras_luong.cli.commands import TranslateOptions
from keras_luong.cli.constraints import Required
from keras_luong.config.going_on import BACK_TRANSLATED
from keras_luong.files import one_line
from keras_luong.text.tags import check_tag, tagged_line, tags_of
from keras_luong.translation.translation import Translation
from keras_luong.translation.translator import Translator


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
