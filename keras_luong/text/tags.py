"""Tags of domains: a token such as `<news>` in front of a source.

A model that was trained with them translates as the texts of a domain are translated
(Kobus, Crego & Senellart 2017, arXiv:1612.06140; of back-translated text, Caswell et
al. 2019, arXiv:1906.06442). A tag is a piece of the tokenizer, so whatever reads text
understands it. A training puts tags in front of its sources; or the text has them
already.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import tensorflow as tf

from keras_luong.config.training import BACK_TRANSLATED
from keras_luong.text.tokenizer import SPECIAL_PIECES, Tokenizer

_NAME = "[a-z0-9][a-z0-9_-]*"
_TAG = re.compile(f"▁?<({_NAME})>")
_TEXTS_AT_ONCE = 8192
_RARE = 1000  # of so many sources, one at least begins with each of a text's tags


def token(tag: str) -> str:
    """Returns what a tag looks like in a text.

    Args:
        tag: Its name.

    Example:
        >>> from keras_luong.text.tags import token
        >>> token("news")
        '<news>'
    """
    return f"<{tag}>"


def add_tags(pairs: tf.data.Dataset, tag: str) -> tf.data.Dataset:
    """Puts a tag in front of every source that is not blank.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tag: The tag's name.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.tags import add_tags
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> next(add_tags(pairs, "news").as_numpy_iterator())["source"]
        b'<news> the dog'
    """

    def change(pair: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        source = pair["source"]
        is_blank = tf.strings.regex_full_match(source, r"[\pZ\s]*")
        with_tag = tf.strings.join([token(tag), source], separator=" ")
        return {**pair, "source": tf.where(is_blank, source, with_tag)}

    return pairs.map(change)


def add_tag(line: bytes, tag: str) -> bytes:
    """Puts a tag in front of a line that is not blank.

    Args:
        line: Text in UTF-8, or what may be none.
        tag: The tag's name.

    Example:
        >>> from keras_luong.text.tags import add_tag
        >>> add_tag(b"A dog", "news"), add_tag(b" ", "news")
        (b'<news> A dog', b' ')
    """
    is_blank = not line.decode("utf-8", "replace").strip()
    return line if is_blank else token(tag).encode() + b" " + line


def count_tags(pairs: tf.data.Dataset) -> tuple[dict[str, int], int]:
    """Counts the tags that a text has already: what its sources begin with.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.

    Returns:
        Each tag's name with its number of sources, sorted by name; and the number of
        all sources.

    Example:
        >>> from keras_luong.text.tags import count_tags
        >>> sides = {"source": ["<bt> the dog", "the cat"], "target": ["Hund", "Katze"]}
        >>> count_tags(tf.data.Dataset.from_tensor_slices(sides))
        ({'bt': 1}, 2)
    """

    def begins(block: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
        sources = block["source"]
        has = tf.strings.regex_full_match(sources, f"(?s)<{_NAME}> .*")
        some = tf.boolean_mask(sources, has)
        names = tf.strings.regex_replace(some, f"(?s)^<({_NAME})> .*", r"\1")
        return names, tf.size(sources)

    total, occurrences = 0, Counter[bytes]()
    for names, size in pairs.batch(_TEXTS_AT_ONCE).map(begins).as_numpy_iterator():
        total += int(size)
        occurrences.update(names.tolist())
    counts = {name.decode(): occurrences[name] for name in sorted(occurrences)}
    tags = {tag: n for tag, n in counts.items() if token(tag) not in SPECIAL_PIECES}
    return tags, total


def tags_in(pairs: tf.data.Dataset) -> list[str]:
    """Returns the names of the tags that a text has already, sorted.

    These are what at least one of 1,000 sources begins with, and the tag of
    back-translated text, however rare it is. A text with other marks, such as `<i>`,
    has them as tags too; what is rarer would only fill the vocabulary.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.

    Example:
        >>> from keras_luong.text.tags import tags_in
        >>> sides = {"source": ["<bt> the dog", "the cat"], "target": ["Hund", "Katze"]}
        >>> tags_in(tf.data.Dataset.from_tensor_slices(sides))
        ['bt']
    """
    tags, total = count_tags(pairs)
    return [x for x, n in tags.items() if x == BACK_TRANSLATED or n * _RARE >= total]


def remove_tags(
    pairs: tf.data.Dataset, tags: Sequence[str] | None = None
) -> tf.data.Dataset:
    """Removes tags in front of sources, for a text to learn other tokens from.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tags: Names of the tags to remove; all by default.

    Example:
        >>> from keras_luong.text.tags import remove_tags
        >>> pairs = {"source": ["<bt> the dog", "the cat"], "target": ["Hund", "Katze"]}
        >>> pairs = remove_tags(tf.data.Dataset.from_tensor_slices(pairs), ["bt"])
        >>> next(pairs.as_numpy_iterator())["source"]
        b'the dog'
    """
    if tags is not None and not tags:
        return pairs
    begin = f"^<({_NAME if tags is None else '|'.join(tags)})> "

    def change(pair: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return {**pair, "source": tf.strings.regex_replace(pair["source"], begin, "")}

    return pairs.map(change)


def remove_tag(text: str) -> str:
    """Returns a text without the tag in front of it.

    Args:
        text: The text.

    Example:
        >>> from keras_luong.text.tags import remove_tag
        >>> remove_tag("<news> the dog"), remove_tag("the <dog>")
        ('the dog', 'the <dog>')
    """
    return re.sub(f"^<{_NAME}> ", "", text)


def tags_of(tokenizer: Tokenizer) -> list[str]:
    """Returns the names of the tags that a tokenizer knows.

    Args:
        tokenizer: The tokenizer of the sources.

    Example:
        >>> from keras_luong.text.tags import tags_of
        >>> tags_of(kl.WordTokenizer(["a", "<news>"]))
        ['news']
    """
    vocabulary = getattr(tokenizer, "vocabulary", [])[len(SPECIAL_PIECES) :]
    return [match[1] for x in vocabulary if (match := _TAG.fullmatch(x))]


def check_tag(tokenizer: Tokenizer, tag: str) -> str:
    """Returns a tag that a tokenizer knows, and raises ValueError for another one."""
    if tag not in (known := tags_of(tokenizer)):
        names = ", ".join(known) or "none"
        raise ValueError(
            f"tag must be one that the run was trained with: {names}. Received: {tag}"
        )
    return tag
