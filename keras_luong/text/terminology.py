"""Terminology: the words of a source text that must be translated in a given way."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from keras_luong.files import read_lines
from keras_luong.text.sentencepiece import normalizer
from keras_luong.text.tags import remove_tag
from keras_luong.text.tokenizer import Tokenizer, as_str
from keras_luong.text.words import is_unspaced

#: Marks that are typed for one another, though no rule of Unicode makes them one.
_ALIKE = str.maketrans(
    dict.fromkeys("`´‘’‛′ʹʼ", "'")
    | dict.fromkeys("“”„‟″«»", '"')
    | dict.fromkeys("‐‑‒–—―−", "-")
)


def is_word_border(character: str) -> bool:
    """Tells whether a character ends a word: white space, a mark or a symbol.

    Letters, their accents, digits and what joins letters without being seen do not.

    Args:
        character: One character.

    Example:
        >>> from keras_luong.text.terminology import is_word_border
        >>> [is_word_border(x) for x in "é9 '-,„"]
        [False, False, True, True, True, True, True]
    """
    category = unicodedata.category(character)
    if category == "Cf":
        return character == "\u200b"  # a space without width, as Khmer has it
    return category[0] not in "LMN"


def words_and_marks(text: str) -> list[str]:
    """Splits a text into words, and each mark between them.

    In scripts without spaces each letter, with its signs, is a word.

    Args:
        text: The text.

    Example:
        >>> from keras_luong.text.terminology import words_and_marks
        >>> words_and_marks("a T-shirt.")
        ['a', 'T', '-', 'shirt', '.']
    """
    words, before = list[str](), " "
    for x in text:
        alone = is_word_border(x) or is_unspaced(x)
        is_sign = unicodedata.category(x)[0] == "M"
        if is_sign and not before.isspace():
            words[-1] += x
            continue  # what follows depends on the letter
        if not x.isspace():
            if alone or is_word_border(before) or is_unspaced(before):
                words.append(x)
            else:
                words[-1] += x
        before = x
    return words


class Terminology:
    """Source terms, and the target terms that must occur in translations of them.

    A term is found where a text has its words, one after another, as they are written
    or with a capital first letter; a tag in front is no word of it. Where two terms
    begin with the same word the longer one is found alone: with "fire truck" and
    "truck", a fire truck is no truck. However letters are encoded, and whichever
    apostrophe, quotation mark or dash is typed, they are the same, and what cannot be
    seen is nothing.

    Args:
        terms: Source term → target term.
        tokenizer: The tokenizer of the texts, if there is one. What it reads alike
            (capitals and small letters, if it has such a rule) is then the same too.

    Raises:
        TypeError: If the terms are no mapping of strings.
        ValueError: If a term is blank, or two that are the same have different targets.

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

    def __init__(self, terms: Mapping[str, str], tokenizer: Tokenizer | None = None):
        if not isinstance(terms, Mapping):
            raise TypeError(
                "terms must be a mapping of source terms to target terms. Received: "
                f"{terms!r:.60}"
            )
        self.terms = dict(terms)
        self._as_read: Callable[[str], str] = getattr(tokenizer, "normalize", str)
        sources: dict[tuple[str, ...], str] = {}
        for source, target in self.terms.items():
            _check_term(target)
            _check_term(source)
            for words in self._readings(source):
                other = sources.setdefault(words, source)
                if self.terms[other] != target:
                    raise ValueError(
                        f"The terms {other!r} and {source!r} are read alike and must "
                        f"have one target. Received: {self.terms[other]!r}, {target!r}"
                    )
        self._targets = {words: self.terms[x] for words, x in sources.items()}
        for (first, *rest), source in sources.items():
            # What is written with a capital itself comes before what only may be so.
            capital = (first[:1].upper() + first[1:], *rest)
            self._targets.setdefault(capital, self.terms[source])
        self._longest = max(map(len, self._targets), default=0)

    @classmethod
    def load(cls, path: str | Path, tokenizer: Tokenizer | None = None) -> Terminology:
        r"""Reads a file with lines "source term TAB target term".

        Args:
            path: A text file in UTF-8, plain or gzip. Empty lines are skipped.
            tokenizer: The tokenizer of the texts, if there is one.

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
        return cls(terms, tokenizer)

    def find(self, text: str | bytes) -> list[str]:
        """Returns the target terms of the source terms that a text has.

        Args:
            text: A source text.

        Returns:
            Each of them once, in the order of the text.
        """
        targets: dict[str, None] = {}
        for words in self._readings(remove_tag(as_str(text).lstrip("\ufeff"))):
            place = 0
            while place < len(words):
                place += self._take(words, place, targets)
        return list(targets)

    def _readings(self, text: str) -> list[tuple[str, ...]]:
        """Returns the words of a text, as they are seen and as a tokenizer reads them.

        They differ where a character without width stands within or between words.
        """
        texts = dict.fromkeys((_seen(text), text))
        normal = (self._as_read(_nfkc()(x.translate(_ALIKE))) for x in texts)
        words = (tuple(words_and_marks(x)) for x in normal)
        return [x for x in dict.fromkeys(words) if x]

    def _take(self, words: tuple[str, ...], place: int, found: dict[str, None]) -> int:
        """Finds the longest term at a place; returns how many words to go on by."""
        for length in range(min(self._longest, len(words) - place), 0, -1):
            term = words[place : place + length]
            if term in self._targets:
                found[self._targets[term]] = None
                return length
        return 1


def _seen(text: str) -> str:
    """Returns a text without its characters that have no width."""
    return "".join(x for x in text if unicodedata.category(x) != "Cf")


@functools.cache
def _nfkc() -> Callable[[str], str]:
    return normalizer("nmt_nfkc")


def _check_term(term: str) -> None:
    if not isinstance(term, str):
        raise TypeError(f"A term must be a str. Received: {term!r:.60}")
    if not _seen(term).strip():
        raise ValueError(f"A term must have a word. Received: {term!a}")


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
    return [" ".join(phrase.split()) for phrase in line.split("\t") if phrase.strip()]
