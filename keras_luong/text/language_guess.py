"""What language text looks like, and whether that is the one it should be in.

`guess_language` judges a whole text, `language_doubts` the two sides of a corpus, and
`stray_language` a single line. py3langid guesses; what is added here is when a guess
is sure enough to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from keras_luong.languages import language_code

_LEAST_LETTERS = 1000  # of less text the language is guessed
#: By how much a letter a guess must score above the language that it should be. Names,
#: addresses and lists have up to 0.13, sentences in another language from 0.16.
_LEAST_LEAD = 0.14
_SAMPLE = 3000  # characters that it is guessed by
#: A line is judged from so many letters on, by a lead of so much in all, or of
#: `_LEAST_LEAD` a letter: of 58,000 clean lines 5 would be doubted, of those in another
#: language nearly all are found.
_LINE_LETTERS, _LINE_LEAD = 20, 10
_MOST_NAMES = 0.7  # of a line's words; of a German one more than half may be nouns
_NO_WORD = re.compile(r"\w[@/\\]|\w[.:]\w")  # addresses, paths and times

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


def guess_language(lines: Iterable[bytes], declared: str) -> str | None:
    """Tells what language lines look like.

    Args:
        lines: UTF-8.
        declared: The code of the language that they should be in.

    Returns:
        That code if they look like it, or like a language that is easily taken for it;
        another one of ISO 639-1, by py3langid; None for little text, if it is not sure,
        or if it does not know the language that they should be in.

    Example:
        >>> from keras_luong.text.language_guess import guess_language
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> guess_language(lines, "en"), guess_language(lines, "de")
        ('en', 'en')
    """
    text = b"\n".join(lines).decode(errors="replace")
    if sum(map(str.isalpha, text)) < _LEAST_LETTERS:
        return None
    # Of some lines: a lead grows by the logarithm of the text.
    some = text.split("\n")[:: 1 + len(text) // _SAMPLE]
    text = "\n".join(some)[:_SAMPLE]
    letters = sum(map(str.isalpha, text))
    return _sure_guess(text, declared, _LEAST_LEAD * letters)


def stray_language(line: str, declared: str) -> str | None:
    """Tells whether a single line is surely in another language than it should be.

    Args:
        line: A line of text.
        declared: The code of the language that it should be in.

    Returns:
        The other language's code, of ISO 639-1; None if the line looks right, and of
        lines that cannot be judged: those of less than 20 letters, addresses aside,
        and those that may be names, as most of their words have a capital.

    Example:
        >>> from keras_luong.text.language_guess import stray_language
        >>> line = "A dog is running along the beach with a ball."
        >>> stray_language(line, "de"), stray_language(line, "en")
        ('en', None)
        >>> stray_language("James Ivanov and Maria Garcia, New York City", "de")
    """
    from py3langid import classify  # which brings a model of 5 MB

    words = plain_words(line)
    text = " ".join(words)
    letters = sum(map(str.isalpha, text))
    names = 0 if line.isupper() else sum(word[0].isupper() for word in words)
    if letters < _LINE_LETTERS or names > _MOST_NAMES * len(words):
        return None
    text, lead = text.lower(), max(_LINE_LEAD, _LEAST_LEAD * letters)
    if are_alike(classify(text)[0], declared):  # as most are, in half of the time
        return None
    look = _sure_guess(text, declared, lead)
    return None if look == declared else look


def plain_words(line: str) -> list[str]:
    """Returns what white space separates in a line, without addresses and times.

    Example:
        >>> from keras_luong.text.language_guess import plain_words
        >>> plain_words("a dog, see www.example.com")
        ['a', 'dog,', 'see']
    """
    return [word for word in line.split() if not _NO_WORD.search(word)]


def _sure_guess(text: str, declared: str, lead: float) -> str | None:
    """`declared`, or a language that scores more than `lead` above it, or None."""
    from py3langid import rank

    scores = dict(rank(text))  # the first guess first
    look, code = next(iter(scores)), language_code(declared)
    if code not in scores:
        return None
    if are_alike(look, declared):
        return declared
    is_sure = scores[look] - scores[code] > lead
    return look if is_sure and len(look) == 2 else None  # zxx is none


def language_doubts(
    sides: Mapping[str, Sequence[bytes]], declared: Mapping[str, str]
) -> Iterator[str]:
    """Yields sentences on sides that do not look like what they should be.

    Args:
        sides: "source", "target" or both → lines in UTF-8.
        declared: The same names → the code of the language that it should be in.

    Example:
        >>> from keras_luong.text.language_guess import language_doubts
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> list(language_doubts({"source": lines}, {"source": "fr"}))
        ['the source should be fr, and reads like en']
    """
    looks = {
        side: guess_language(lines, declared[side]) for side, lines in sides.items()
    }
    wrong = {
        side: look
        for side, look in looks.items()
        if look is not None and not are_alike(look, declared[side])
    }
    if len(looks) == 2:
        source, target = looks["source"], looks["target"]
        codes = declared["source"], declared["target"]
        if (
            source
            and target
            and are_alike(source, codes[1])
            and are_alike(target, codes[0])
        ):
            yield (
                f"the sides look swapped: the source should be {codes[0]} and reads "
                f"like {source}, the target {codes[1]} and like {target}"
            )
            return
        if source == target and source not in codes:
            return  # names, numbers and code look like a language by chance
    for side, look in wrong.items():
        yield f"the {side} should be {declared[side]}, and reads like {look}"


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
    return guess_language(lines, language) == language


def are_alike(one: str, other: str) -> bool:
    """Whether two codes are of one language, or of two that are easily mixed up.

    Example:
        >>> from keras_luong.text.language_guess import are_alike
        >>> are_alike("pt", "pt-BR"), are_alike("hr", "sr_Latn"), are_alike("en", "de")
        (True, True, False)
        >>> are_alike("deu", "de-AT")
        True
    """
    codes = {language_code(one), language_code(other)}
    return len(codes) == 1 or any(codes <= group for group in _ALIKE)
