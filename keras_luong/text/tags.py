"""Tags of domains: a token such as `<news>` in front of a source.

A model that was trained with them translates as the texts of a domain are translated
(Kobus, Crego & Senellart 2017, arXiv:1612.06140; of back-translated text, Caswell et
al. 2019, arXiv:1906.06442). A tag is a piece of the tokenizer, so whatever reads text
understands it. A training puts tags in front of its sources; or the text has them
already.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import tensorflow as tf

from keras_luong.config.training import BACK_TRANSLATED
from keras_luong.text.tokenizer import SPECIAL_PIECES, Tokenizer

_NAME = "[a-z0-9][a-z0-9_-]*"
_BEGIN = re.compile(f"^<{_NAME}> ")
_TAG = re.compile(f"▁?<({_NAME})>")
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


def tag_of(source: str) -> str | None:
    """Returns the name of the tag that a source begins with; None if there is none.

    Example:
        >>> from keras_luong.text.tags import tag_of
        >>> tag_of("<news> a dog"), tag_of("a <news> dog"), tag_of("<s> a dog")
        ('news', None, None)
    """
    found = re.match(f"<({_NAME})> ", source)
    return found[1] if found and token(found[1]) not in SPECIAL_PIECES else None


def frequent_tags(tags: Mapping[str, int], pairs: int) -> list[str]:
    """Returns the names of the tags that a text has already, sorted.

    These are what at least one of 1,000 sources begins with, and the tag of
    back-translated text, however rare it is. A text with other marks, such as `<i>`,
    has them as tags too; what is rarer would only fill the vocabulary.

    Args:
        tags: What the sources begin with: the number of each.
        pairs: The number of all sources.

    Example:
        >>> from keras_luong.text.tags import frequent_tags
        >>> frequent_tags({"news": 20, "i": 3, "bt": 1}, pairs=5000)
        ['bt', 'news']
    """
    chosen = (x for x, n in tags.items() if x == BACK_TRANSLATED or n * _RARE >= pairs)
    return sorted(chosen)


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
    return _BEGIN.sub("", text) if text[:1] == "<" else text


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
