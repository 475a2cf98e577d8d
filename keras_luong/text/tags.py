"""Tags of domains: a token such as `<news>` in front of a source.

A model that was trained with them translates as the texts of a domain are translated
(Kobus, Crego & Senellart 2017, arXiv:1612.06140; of back-translated text, Caswell et
al. 2019, arXiv:1906.06442). A tag is a piece of the tokenizer, so whatever reads text
understands it.
"""

from __future__ import annotations

import re

import tensorflow as tf

from keras_luong.text.tokenizer import SPECIAL_PIECES, Tokenizer

_TAG = re.compile("▁?<([a-z0-9][a-z0-9_-]*)>")


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


def tagged(pairs: tf.data.Dataset, tag: str) -> tf.data.Dataset:
    """Puts a tag in front of every source that is not blank.

    Args:
        pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
        tag: The tag's name.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> from keras_luong.text.tags import tagged
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> next(tagged(pairs, "news").as_numpy_iterator())["source"]
        b'<news> the dog'
    """

    def change(pair: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        source = pair["source"]
        is_blank = tf.strings.regex_full_match(source, r"[\pZ\s]*")
        with_tag = tf.strings.join([token(tag), source], separator=" ")
        return {**pair, "source": tf.where(is_blank, source, with_tag)}

    return pairs.map(change)


def tagged_line(line: bytes, tag: str) -> bytes:
    """Puts a tag in front of a line that is not blank.

    Args:
        line: Text in UTF-8, or what may be none.
        tag: The tag's name.

    Example:
        >>> from keras_luong.text.tags import tagged_line
        >>> tagged_line(b"A dog", "news"), tagged_line(b" ", "news")
        (b'<news> A dog', b' ')
    """
    is_blank = not line.decode("utf-8", "replace").strip()
    return line if is_blank else token(tag).encode() + b" " + line


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
