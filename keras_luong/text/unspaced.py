"""Scripts that put no spaces between words: Chinese, Japanese, Thai and others."""

from __future__ import annotations

import functools
import unicodedata

#: How Unicode's names of their letters begin. Korean has spaces.
SCRIPTS = (
    *("CJK", "IDEOGRAPHIC", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA"),
    *("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"),
)


@functools.lru_cache(maxsize=1 << 16)
def is_unspaced(letter: str) -> bool:
    """Tells whether a character is a letter of a script without spaces.

    Args:
        letter: One character.

    Example:
        >>> from keras_luong.text.unspaced import is_unspaced
        >>> [is_unspaced(letter) for letter in "aあ。"]
        [False, True, False]
    """
    is_letter = unicodedata.category(letter).startswith("L")
    return is_letter and unicodedata.name(letter, "").startswith(SCRIPTS)
