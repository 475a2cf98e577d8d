"""A text, read as the model was taught to read."""

from __future__ import annotations

from typing import NamedTuple

from keras_luong_edge.archive import Contents


class Source(NamedTuple):
    """A text that was read.

    Attributes:
        ids: Ints `[S]`, the last one the end token's.
        truncated: Whether something was left out.
        empty: Whether there is nothing to translate.
    """

    ids: list[int]
    truncated: bool
    empty: bool


def read_text(text: str | bytes, contents: Contents) -> Source:
    """Reads a text: any text, whatever is in it.

    ASCII white space around it does not count. Of what is left so many bytes are read
    as the longest source may have; without a limit the tokenizer alone could take
    minutes. What is no UTF-8 becomes U+FFFD, so does a lone surrogate.

    Args:
        text: str, or bytes in UTF-8.
        contents: What the file says of tokens and limits.

    Returns:
        `Source`; whatever the text, it has at least the end token.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> from keras_luong_edge.archive import read_archive
        >>> from keras_luong_edge.source import read_text
        >>> read_text("the red dog", read_archive("mine.tflite"))
        Source(ids=[4, 5, 6, 3], truncated=False, empty=False)
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if not isinstance(text, bytes):
        raise TypeError(f"A text must be str or bytes. Received: {text!r:.60}")
    most = contents.max_source_length
    most_bytes = contents.bytes_per_token * most
    text = text.strip()
    cut = len(text) > most_bytes
    read = text[:most_bytes].decode("utf-8", "replace")
    ids = contents.source.encode(read)
    empty = not read.strip() or not ids
    truncated = cut or (len(ids) > most and not empty)
    return Source([*ids[:most], contents.special.eos], truncated, empty)
