"""Codes of languages, whichever way they are written: `pt-BR`, `pt_br`, `por-BR`."""

from __future__ import annotations

import re

import langcodes


def standard_code(code: str) -> str:
    """Returns the one way to write a language's code, to compare codes.

    Args:
        code: A code, such as "EN", "deu" or "zh_Hans". Other text comes back in lower
            case.

    Example:
        >>> from keras_luong.languages import standard_code
        >>> standard_code("por_br"), standard_code("deu"), standard_code("Go.")
        ('pt-BR', 'de', 'go.')
    """
    try:
        tag = langcodes.standardize_tag(code)
    except langcodes.LanguageTagError:
        return code.lower()
    return re.sub("^fil(?=-|$)", "tl", tag)  # which is how Tagalog's files are called


def language_code(code: str) -> str:
    """Returns the code of the language alone, without script and region.

    Args:
        code: A code. All languages that are written in Chinese are "zh", since they
            are split into words and told apart alike.

    Example:
        >>> from keras_luong.languages import language_code
        >>> language_code("jpn_Jpan"), language_code("pt-BR"), language_code("yue")
        ('ja', 'pt', 'zh')
    """
    code = standard_code(code)
    try:
        script = langcodes.Language.get(code).maximize().script
    except langcodes.LanguageTagError:
        script = None
    return "zh" if script in ("Hans", "Hant") else re.split("[-_]", code)[0]
