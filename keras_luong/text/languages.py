"""Codes of languages, as people write them in names of files and heads of columns."""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAMES = """
af afr afrikaans; sq sqi/alb albanian; am amh amharic; ar ara arabic; hy hye/arm
armenian; eu eus/baq basque; be bel belarusian; bn ben bengali; bs bos bosnian; bg bul
bulgarian; ca cat catalan; zh zho/chi/cmn chinese; hr hrv croatian; cs ces/cze czech; da
dan danish; nl nld/dut dutch; en eng english; eo epo esperanto; et est estonian; fi fin
finnish; fr fra/fre french; gl glg galician; ka kat/geo georgian; de deu/ger german; el
ell/gre greek; gu guj gujarati; ha hau hausa; he heb hebrew; hi hin hindi; hu hun
hungarian; is isl/ice icelandic; ig ibo igbo; id ind indonesian; ga gle irish; it ita
italian; ja jpn japanese; kn kan kannada; kk kaz kazakh; km khm khmer; ko kor korean; ku
kur kurdish; lo lao lao; la lat latin; lv lav latvian; lt lit lithuanian; mk mkd/mac
macedonian; ms msa/may malay; ml mal malayalam; mt mlt maltese; mr mar marathi; mn mon
mongolian; ne nep nepali; no nor norwegian; fa fas/per persian; pl pol polish; pt por
portuguese; pa pan punjabi; ro ron/rum romanian; ru rus russian; sr srp serbian; si sin
sinhala; sk slk/slo slovak; sl slv slovenian; so som somali; es spa spanish; sw swa
swahili; sv swe swedish; tl tgl tagalog; ta tam tamil; te tel telugu; th tha thai; tr
tur turkish; uk ukr ukrainian; ur urd urdu; uz uzb uzbek; vi vie vietnamese; cy cym/wel
welsh; xh xho xhosa; yo yor yoruba; zu zul zulu
"""
_ROWS = [row.split() for row in _NAMES.split(";")]
#: English names of languages, by their codes of two letters.
NAMES = {code: name for code, _, name in _ROWS}
#: Their codes of two letters, by those of three (ISO 639-2, of both its kinds).
_SHORTER = {longer: code for code, three, _ in _ROWS for longer in three.split("/")}
#: What files' names end in that looks like a code of three letters.
_OTHER_ENDINGS = frozenset(
    "bak bin bpe bz2 cfg csv doc ids idx ini log lst md npy npz old pdf png py rst sh "
    "sql svg tab tar tgz tmp tmx tsv txt vec xls xml yml zip".split()
)
_CODE = re.compile(r"[a-z]{2,3}(-[a-z0-9]{2,8})*")


def fold(code: str) -> str:
    """Returns a code as it is compared: `pt_BR`, `pt-br` and `PT-BR` are one.

    Args:
        code: A code of a language.
    """
    return code.lower().replace("_", "-")


def shortest(code: str) -> str:
    """Returns a folded code, with two letters for the language in place of three.

    Args:
        code: A code of a language.

    Example:
        >>> from keras_luong.text.languages import shortest
        >>> shortest("deu"), shortest("zho_Hans"), shortest("yue")
        ('de', 'zh-hans', 'yue')
    """
    language, *rest = fold(code).split("-")
    return "-".join([_SHORTER.get(language, language), *rest])


def looks_like_code(text: str) -> bool:
    """Whether the end of a file's name may be the code of a language."""
    return bool(_CODE.fullmatch(fold(text))) and text.lower() not in _OTHER_ENDINGS


def is_language(text: str) -> bool:
    """Whether a text is the code or the English name of a language that is listed."""
    text = shortest(text.strip())
    is_code = looks_like_code(text) and text.split("-")[0] in NAMES
    return is_code or text in NAMES.values()


def means(text: str, language: str) -> bool:
    """Whether a text is a language's code, or its English name.

    Args:
        text: Such as "EN" or "English".
        language: A code, such as "en".

    Example:
        >>> from keras_luong.text.languages import means
        >>> means("Portuguese", "pt-BR"), means("PT_br", "pt-BR"), means("pt", "pt-BR")
        (True, True, False)
        >>> means("deu", "de"), means("por-BR", "pt-BR")
        (True, True)
    """
    text, language = shortest(text.strip()), shortest(language)
    return text in (language, NAMES.get(language.split("-")[0]))


def settled(
    place: object, found: Iterable[str], source: str | None, target: str | None
) -> tuple[str, str]:
    """Returns the languages to translate from and into, where there is one reading.

    Args:
        place: The corpus, for the message.
        found: The languages that it has.
        source: The language to translate from, if it was given.
        target: The language to translate into, if it was given.

    Raises:
        ValueError: The two are the same, or one is missing and could be another.
    """
    found = list(dict.fromkeys(found))
    if source is None or target is None:
        given = [x for x in (source, target) if x is not None]
        rest = [x for x in found if fold(x) not in map(fold, given)]
        if not given or len(rest) != 1 or len(found) != 2:
            raise ValueError(_which(place, found, source, target))
        source, target = source or rest[0], target or rest[0]
    if fold(source) == fold(target):
        raise ValueError(f"The two languages are the same: {source!r}.")
    return source, target


def _which(
    place: object, found: list[str], source: str | None, target: str | None
) -> str:
    """A question for the languages, with the answers that can be given."""
    in_python = "(in Python: source_language and target_language)"
    if len(found) == 2 and source is target is None:
        return (
            f"{place} has {found[0]} and {found[1]}: which one is to be translated? "
            f"{both_ways(*found)} {in_python}."
        )
    has = f"{place} has {', '.join(found)}" if found else f"{place} names no languages"
    given = {"--source": source, "--target": target}
    received = ", ".join(f"{k} {v}" for k, v in given.items() if v) or "neither"
    return f"{has}: give both --source and --target {in_python}. Received: {received}."


def both_ways(one: str, other: str) -> str:
    """The two commands that two languages can mean."""
    return f"Give --source {one} --target {other}, or --source {other} --target {one}"
