"""Phrases that translations must contain: from strings to a search's constraints.

Shapes: B sentences, C phrases of a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from keras_luong.decoding.lexical import Constraints, Spelling
from keras_luong.special_ids import PAD_ID, UNK_ID
from keras_luong.text.terminology import is_word_border
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.words import is_unspaced

PhraseLists: TypeAlias = Iterable[Iterable[str]]  # those of each text
SEPARATOR = "\t"
#: Of a text: each is followed in each hypothesis, and may go on with each other.
MOST_PHRASES = 64
TOO_MANY = "There are too many phrases for a text: the most are"


def phrase_lines(constraints: PhraseLists) -> Iterator[str]:
    """Yields the phrases of each text as one line, separated by tabs.

    Args:
        constraints: For each text, the phrases that its translation must contain.

    Raises:
        TypeError: If something else than lists of strings is given.
        ValueError: If a phrase is blank, or a text has too many.
    """
    if isinstance(constraints, (str, bytes)) or not isinstance(constraints, Iterable):
        raise TypeError(
            "`constraints` must be a list of phrases for each text, such as "
            f'[["Hund"], []]. Received: {constraints!r:.60}'
        )
    for place, phrases in enumerate(constraints):
        if isinstance(phrases, (str, bytes)) or not isinstance(phrases, Iterable):
            raise TypeError(
                "`constraints` must hold a list of phrases for each text. Received: "
                f"{phrases!r:.60} at place {place}; write [phrase]."
            )
        cleaned = [*map(_clean, phrases)]
        if len(cleaned) > MOST_PHRASES:
            raise ValueError(
                f"{TOO_MANY} {MOST_PHRASES}. Received: {len(cleaned)} at place {place}"
            )
        yield SEPARATOR.join(cleaned)


def check_lines(lines: Iterable[bytes], tokenizer: Tokenizer) -> None:
    """Raises the errors of `check_phrases` for lines of `phrase_lines`."""
    phrases = {
        x
        for line in lines
        if line
        for x in line.decode("utf-8", "replace").split(SEPARATOR)
    }
    check_phrases(sorted(phrases), tokenizer)


def check_phrases(phrases: Sequence[str], tokenizer: Tokenizer) -> None:
    """Raises an error unless translations can contain all of the phrases.

    Args:
        phrases: Phrases of the target language.
        tokenizer: Its tokenizer.

    Raises:
        ValueError: If a phrase is blank, or the tokenizer does not know all of it.
    """
    if unknown := unwritable([*map(_clean, phrases)], tokenizer):
        raise ValueError(
            f"No translation can contain {listed(unknown)}: the target tokenizer does "
            "not know all of its words or letters."
        )


def check_prefixes(prefixes: Sequence[bytes], tokenizer: Tokenizer) -> None:
    """Raises ValueError unless the tokenizer knows all of each translation's prefix."""
    if unknown := unwritable(
        [x.decode("utf-8", "replace") for x in prefixes], tokenizer
    ):
        raise ValueError(
            f"No translation can begin with {listed(unknown)}: the target tokenizer "
            "does not know all of its words or letters."
        )


def unwritable(texts: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Returns the texts of which a tokenizer does not know all, each once.

    Args:
        texts: Phrases, or beginnings of translations.
        tokenizer: The target language's tokenizer.
    """
    if not (texts := [x for x in dict.fromkeys(texts) if x.strip()]):
        return []
    rows = tokenizer.encode(tf.constant(texts)).to_list()
    pairs = zip(texts, rows, strict=True)
    return [text for text, ids in pairs if not ids or UNK_ID in ids]


def listed(phrases: Sequence[str], most: int = 10) -> str:
    """Writes phrases for people, and how many more there are.

    Args:
        phrases: The phrases.
        most: How many are written.
    """
    rest = f" and {len(phrases) - most} more" if len(phrases) > most else ""
    return ", ".join(map(repr, phrases[:most])) + rest


def _clean(phrase: Any) -> str:
    if not isinstance(phrase, str):
        raise TypeError(f"A phrase must be a str. Received: {phrase!r:.60}")
    if not phrase.strip():
        raise ValueError(f"A phrase must have a word. Received: {phrase!r}")
    return " ".join(phrase.split())


def read_phrases(
    lines: tf.Tensor, tokenizer: Tokenizer
) -> tuple[tf.Tensor, Constraints]:
    """Reads in the graph what `phrase_lines` wrote.

    Args:
        lines: tf.string [B].
        tokenizer: The target language's tokenizer.

    Returns:
        The phrases, tf.string [B, C], padded with "", and the constraints. A phrase of
        which the tokenizer does not know all is none of them.
    """
    phrases = tf.strings.split(lines, SEPARATOR)
    most = tf.reduce_max(tf.concat([phrases.row_lengths(), [0]], 0))
    few = tf.debugging.assert_less_equal(
        most, tf.constant(MOST_PHRASES, tf.int64), f"{TOO_MANY} {MOST_PHRASES}"
    )
    with tf.control_dependencies([few] if few is not None else []):
        phrases = phrases.with_flat_values(tf.strings.strip(phrases.flat_values))
    ids = phrases.with_flat_values(tokenizer.encode(phrases.flat_values))
    ids = ids.to_tensor(PAD_ID)
    is_known = tf.reduce_all(ids != UNK_ID, axis=2, keepdims=True)
    ids = tf.where(is_known, ids, PAD_ID)
    return phrases.to_tensor(""), Constraints(ids, _spelling_of(tokenizer))


def _spelling_of(tokenizer: Tokenizer) -> Spelling | None:
    """Returns what tokens write; None for a tokenizer that does not say it."""
    if (texts := getattr(tokenizer, "texts", None)) is None:
        return None
    return Spelling.of([*texts, texts[UNK_ID]], _is_of_word)


def _is_of_word(character: str) -> bool:
    """Tells whether spaces are written between words of such characters."""
    return not is_word_border(character) and not is_unspaced(character)
