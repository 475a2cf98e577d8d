"""Which languages a corpus's sides look like, to find sides that were mixed up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from keras_luong.config.training import language_code
from keras_luong.text.corpus import Corpus
from keras_luong.text.languages import shortest

_LINES = 300
_LEAST_LETTERS = 1000  # of less text the language is guessed

#: Languages that are often written alike, and taken for each other.
_ALIKE = tuple(
    frozenset(codes.split())
    for codes in (
        "bs hr sr sh me",
        "nb nn no da sv",
        "id ms jv su",
        "cs sk",
        "es gl ca pt oc an",
        "hi mr ne",
        "fa ar ur ku ps",
        "nl af",
        "ru uk be bg mk",
        "xh zu",
    )
)


class Sides(NamedTuple):
    """The languages that the sides look like; None where that cannot be told."""

    source: str | None
    target: str | None


def look_of(corpus: Corpus, split: str = "train") -> Sides:
    """Tells what a corpus's sides look like, by their first lines.

    Args:
        corpus: The corpus.
        split: Which split.

    Returns:
        The codes of ISO 639-1 by py3langid; None for a side of little text, or whose
        language it does not know.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.language_guess import look_of
        >>> look_of(load_corpus("phrases", "en", "de"))
        Sides(source='en', target='de')
    """
    pairs = corpus.pairs(split).take(_LINES).as_numpy_iterator()
    lines = [(pair["source"], pair["target"]) for pair in pairs]
    declared = corpus.source_language, corpus.target_language
    return Sides(*map(_look, zip(*lines, strict=True), declared))


def _look(lines: Iterable[bytes], declared: str) -> str | None:
    from py3langid import rank  # which brings a model of 5 MB

    text = b"\n".join(lines).decode(errors="replace")
    ranked = [code for code, _ in rank(text)]
    few = sum(map(str.isalpha, text)) < _LEAST_LETTERS
    if few or _code(declared) not in ranked:
        return None
    return declared if alike(ranked[0], declared) else ranked[0]


def reads_like(lines: Iterable[bytes], language: str) -> bool:
    """Whether lines are surely in a language, or in one that is easily taken for it.

    Args:
        lines: UTF-8; of little text nothing is sure.
        language: The language's code.

    Example:
        >>> from keras_luong.text.language_guess import reads_like
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> few = lines[:9]
        >>> reads_like(lines, "en"), reads_like(lines, "de"), reads_like(few, "en")
        (True, False, False)
    """
    return _look(lines, language) == language


def alike(one: str, other: str) -> bool:
    """Whether two codes are of one language, or of two that are easily mixed up.

    Example:
        >>> from keras_luong.text.language_guess import alike
        >>> alike("pt", "pt-BR"), alike("hr", "sr_Latn"), alike("en", "de")
        (True, True, False)
        >>> alike("deu", "de-AT")
        True
    """
    codes = {_code(one), _code(other)}
    return len(codes) == 1 or any(codes <= group for group in _ALIKE)


def _code(language: str) -> str:
    """The code of a language alone, of two letters if there is one."""
    return language_code(shortest(language))
