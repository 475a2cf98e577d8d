"""The links between the words of a line and of its translation, as Pharaoh has them."""

from __future__ import annotations

from collections.abc import Sequence

from keras_luong.evaluation.alignment import (
    format_pharaoh,
    hard_alignment,
    word_indices,
)
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.word_tokenizer import WordTokenizer
from keras_luong.translation.graph import BYTES_PER_TOKEN
from keras_luong.translation.translation import Translation
from keras_luong.translation.translator import Translator


def word_links(
    translator: Translator,
    translation: Translation,
    source: bytes,
    target: bytes | None = None,
    tags: int = 0,
) -> str:
    """Returns the alignment of words as Pharaoh writes it: "0-0 1-2".

    Words are what white space separates in the lines themselves, whatever a tokenizer
    made of them.

    Args:
        translator: What translated or scored the line.
        translation: What it said.
        source: The line.
        target: The line that was scored; None if the translation is the model's own.
        tags: Number of words at the beginning of the line that do not count, tags.
    """
    t = translation
    ended = t.tokens[-1:] == ["</s>"]  # or cut at the maximum length
    links = hard_alignment(t.alignment, source_end=True, target_end=ended)
    sources = _words(
        translator.source_tokenizer,
        _as_far_as_read(source, translator.max_source_length),
        t.source_tokens,
    )
    if target is not None:
        target = _as_far_as_read(target, translator.max_target_length)
    targets = _words(translator.target_tokenizer, target, t.tokens)
    words = {(sources[i] - tags, targets[j]) for i, j in links if sources[i] >= tags}
    return format_pharaoh(words)


def _as_far_as_read(line: bytes, most: int) -> bytes:
    """The beginning of a line that is split into tokens, as the translator cuts it."""
    return line.strip()[: BYTES_PER_TOKEN * most]


def _words(
    tokenizer: Tokenizer, line: bytes | None, tokens: Sequence[str]
) -> Sequence[int]:
    """The index of each token's word in the line, or in the text of the tokens."""
    if line is None and isinstance(tokenizer, WordTokenizer):
        return range(len(tokens))  # whatever signs are in them
    if line is None or not hasattr(tokenizer, "word_ids"):
        return word_indices(tokens)
    ids: list[int] = tokenizer.word_ids(line)
    # Of a line that was cut the last token may be another one.
    return ids + [max(ids, default=0)] * (len(tokens) - len(ids))
