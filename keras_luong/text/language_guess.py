"""Which language a text looks like, to find sides that were mixed up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from keras_luong.config.training import language_code
from keras_luong.text.languages import shortest

_LEAST_LETTERS = 1000  # of less text the language is guessed
#: By how much a letter a guess must score above the language that it should be. Names,
#: addresses and lists have up to 0.13, sentences in another language from 0.16.
_LEAST_LEAD = 0.14
_SAMPLE = 3000  # characters that it is guessed by

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


def look_of(lines: Iterable[bytes], declared: str) -> str | None:
    """Tells what language lines look like.

    Args:
        lines: UTF-8.
        declared: The code of the language that they should be in.

    Returns:
        That code if they look like it, or like a language that is easily taken for it;
        another one of ISO 639-1, by py3langid; None for little text, if it is not sure,
        or if it does not know the language that they should be in.

    Example:
        >>> from keras_luong.text.language_guess import look_of
        >>> lines = [b"A dog is running along the beach with a ball."] * 30
        >>> look_of(lines, "en"), look_of(lines, "de")
        ('en', 'en')
    """
    text = b"\n".join(lines).decode(errors="replace")
    if sum(map(str.isalpha, text)) < _LEAST_LETTERS:
        return None
    from py3langid import rank  # which brings a model of 5 MB

    # Of some lines: a lead grows by the logarithm of the text.
    some = text.split("\n")[:: 1 + len(text) // _SAMPLE]
    text = "\n".join(some)[:_SAMPLE]
    letters = sum(map(str.isalpha, text))
    scores = dict(rank(text))  # the first guess first
    look, code = next(iter(scores)), _code(declared)
    if code not in scores:
        return None
    if alike(look, declared):
        return declared
    is_sure = scores[look] - scores[code] > _LEAST_LEAD * letters
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
    looks = {side: look_of(lines, declared[side]) for side, lines in sides.items()}
    wrong = {
        side: look
        for side, look in looks.items()
        if look is not None and not alike(look, declared[side])
    }
    if len(looks) == 2:
        source, target = looks["source"], looks["target"]
        codes = declared["source"], declared["target"]
        if source and target and alike(source, codes[1]) and alike(target, codes[0]):
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
    return look_of(lines, language) == language


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
