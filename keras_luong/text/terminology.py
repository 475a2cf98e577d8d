"""Terminology: the words of a source text that must be translated in a given way."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from keras_luong.files import read_lines
from keras_luong.text.tags import without_tag
from keras_luong.text.tokenizer import as_str

#: A word is of anything but white space and punctuation, so that it keeps its marks.
_PUNCTUATION = r"!-/:-@\[-`{-~\xa1-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf"
_WIDE = r"\u2010-\u2060\u2190-\u23ff\u3000-\u3004\u3008-\u3020\u0964\u0965\uff01-\uff0f"
_WORD = re.compile(rf"[^\s{_PUNCTUATION}{_WIDE}]+|\S")


class Terminology:
    """Source terms, and the target terms that must occur in translations of them.

    A term is found where a text has its words, one after another, as they are written
    or with a capital first letter; a tag in front is no word of it. Where two terms
    begin with the same word the longer one is found alone: with "fire truck" and
    "truck", a fire truck is no truck.

    Args:
        terms: Source term → target term.

    Raises:
        TypeError: If the terms are no mapping of strings.
        ValueError: If a term is blank.

    Example:
        >>> from keras_luong.text import Terminology
        >>> terms = Terminology({"dog": "Hund", "red jacket": "rote Jacke"})
        >>> terms.find("Dogs, a dog and a red jacket.")
        ['Hund', 'rote Jacke']
        >>> translator = kl.load("runs/mine")
        >>> texts = ["the dog", "the cat"]
        >>> constraints = [terms.find(text) for text in texts]
        >>> found = translator.translate(texts, constraints=constraints)
        >>> "Hund" in found[0].text.split()
        True
    """

    def __init__(self, terms: Mapping[str, str]):
        if not isinstance(terms, Mapping):
            raise TypeError(
                "terms must be a mapping of source terms to target terms. Received: "
                f"{terms!r:.60}"
            )
        self.terms = dict(terms)
        self._targets: dict[tuple[str, ...], str] = {}
        for source, target in self.terms.items():
            _check_term(source)
            _check_term(target)
            words = tuple(_WORD.findall(source))
            capital = (words[0][:1].upper() + words[0][1:], *words[1:])
            # What is written with a capital itself comes before what only may be so.
            self._targets.setdefault(capital, target)
            self._targets[words] = target
        self._longest = max(map(len, self._targets), default=0)

    @classmethod
    def load(cls, path: str | Path) -> Terminology:
        r"""Reads a file with lines "source term TAB target term".

        Args:
            path: A text file in UTF-8, plain or gzip. Empty lines are skipped.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If a line is not two terms, or a source term has two targets.

        Example:
            >>> from pathlib import Path
            >>> from keras_luong.text import Terminology
            >>> _ = Path("terms.tsv").write_text("dog\tHund\n")
            >>> Terminology.load("terms.tsv").terms
            {'dog': 'Hund'}
        """
        terms: dict[str, str] = {}
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                continue
            fields = [" ".join(field.split()) for field in line.split("\t")]
            if len(fields) != 2 or not all(fields):
                raise ValueError(
                    f"{path}, line {number}, must be a source term and a target term "
                    f"with a tab between them. Received: {line!r:.80}"
                )
            source, target = fields
            if terms.setdefault(source, target) != target:
                raise ValueError(
                    f"{path} has two target terms for {source!r}: {terms[source]!r}, "
                    f"and {target!r} on line {number}. A term must have one."
                )
        return cls(terms)

    def find(self, text: str | bytes) -> list[str]:
        """Returns the target terms of the source terms that a text has.

        Args:
            text: A source text.

        Returns:
            Each of them once, in the order of the text.
        """
        words = _WORD.findall(without_tag(as_str(text)))
        found: dict[str, None] = {}
        place = 0
        while place < len(words):
            place += self._take(words, place, found)
        return list(found)

    def _take(self, words: list[str], place: int, found: dict[str, None]) -> int:
        """Finds the longest term at a place; returns how many words to go on by."""
        for length in range(min(self._longest, len(words) - place), 0, -1):
            term = tuple(words[place : place + length])
            if term in self._targets:
                found[self._targets[term]] = None
                return length
        return 1


def _check_term(term: str) -> None:
    if not isinstance(term, str):
        raise TypeError(f"A term must be a str. Received: {term!r:.60}")
    if not term.strip():
        raise ValueError(f"A term must have a word. Received: {term!r}")


def constraint_lines(path: str | Path) -> Iterable[list[str]]:
    r"""Returns the phrases of each line of a file, which are separated by tabs.

    Args:
        path: A text file in UTF-8, plain or gzip. An empty line has no phrases.

    Raises:
        FileNotFoundError: If there is no such file.

    Example:
        >>> from pathlib import Path
        >>> from keras_luong.text.terminology import constraint_lines
        >>> _ = Path("phrases.tsv").write_text("Hund\trote Jacke\n\n")
        >>> list(constraint_lines("phrases.tsv"))
        [['Hund', 'rote Jacke'], []]
    """
    return map(phrases_of, read_lines(path))


def phrases_of(line: str) -> list[str]:
    """Returns the phrases of a line, which are separated by tabs.

    Args:
        line: A line of a file of constraints.
    """
    return [phrase for phrase in line.split("\t") if phrase.strip()]
