"""What every tokenizer has, and what the library's own share.

Shapes: `B` sentences, `T` tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from keras_luong.text.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")


class Tokenizer(Protocol):
    """What the library needs from a tokenizer of one language.

    An object of your own with these members (a `tf.Module`, so that it exports) can go
    into a `TokenizerPair`; add its class to `TOKENIZERS` to train and load it by name.
    """

    suffix: str
    vocab_size: int

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into int32 ids `[B, None]`, no BOS or EOS added."""

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns int32 ids `[..., T]` into strings `[...]`, up to the first EOS."""

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns int32 ids of any shape into the readable tokens they stand for."""

    def save(self, path_prefix: str | Path) -> Path:
        """Writes the file `path_prefix + suffix` and returns its path."""


def nonblank(sentences: Iterable[str | bytes]) -> Iterator[str]:
    """Yields the sentences that have text, as str."""
    for sentence in sentences:
        if isinstance(sentence, bytes):
            sentence = sentence.decode("utf-8", errors="replace")
        if sentence.strip():
            yield sentence


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces what is not UTF-8 by U+FFFD."""
    texts = tf.convert_to_tensor(texts, tf.string)
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def known(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Turns ids outside the vocabulary into UNK: SentencePiece crashes on them."""
    return tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)


def decode_rows(
    join: Callable[[tf.RaggedTensor], tf.Tensor], ids: tf.Tensor, vocab_size: int
) -> tf.Tensor:
    """Joins every row of `ids [..., T]`, up to its first EOS, into a string `[...]`."""
    if isinstance(ids, tf.RaggedTensor):
        ids = ids.to_tensor(PAD_ID)
    ids = tf.convert_to_tensor(ids, tf.int32)
    shape = tf.shape(ids)
    rows = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
    is_open = tf.cumsum(tf.cast(rows == EOS_ID, tf.int32), axis=1) == 0
    visible = is_open & (rows != PAD_ID) & (rows != BOS_ID)
    texts = join(tf.ragged.boolean_mask(known(rows, vocab_size), visible))
    return tf.ensure_shape(tf.reshape(texts, shape[:-1]), ids.shape[:-1])


def check_vocab_size(vocab_size: int) -> None:
    """Raises unless there is room for more than the special tokens."""
    is_integer = isinstance(vocab_size, (int, np.integer))
    if not is_integer or isinstance(vocab_size, bool):
        raise TypeError(f"vocab_size must be an integer, received {vocab_size!r}.")
    if vocab_size <= len(SPECIAL_PIECES):
        raise ValueError(
            f"vocab_size must be above {len(SPECIAL_PIECES)}, the number of special "
            f"tokens, received {vocab_size}."
        )


def read(path: str | Path) -> bytes:
    """Reads a tokenizer's file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no tokenizer file {path}.")
    return Path(path).read_bytes()


def naming(path: str | Path, make: Callable[[], Any]) -> Any:
    """Calls `make`, adding the file's name to what it raises about the content."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
