"""The interface of a tokenizer, and what the library's own ones share.

Shapes: B sentences, T tokens.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import tensorflow as tf

from keras_luong.checks import check_file, check_size
from keras_luong.files import saved_beside
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")

_Loaded = TypeVar("_Loaded", bound="VocabularyTokenizer")


class Tokenizer(Protocol):
    """The interface of a tokenizer of one language.

    Your own object with these members can be used in a `TokenizerPair`. It must be a
    `tf.Module` to be exported. Add its class to `TOKENIZERS` to train and load it by
    name. With a further member `texts`, a list of what each token writes [V] (its space
    in front included, "" for nothing), phrases that translations must contain are met
    as whole words of the text; without it, where their tokens follow one another.

    Example:
        >>> class Characters(tf.Module):
        ...     suffix, vocab_size = ".chars", 4 + 128
        ...
        ...     def encode(self, texts):
        ...         codes = tf.strings.unicode_decode(texts, "UTF-8", "replace")
        ...         return tf.where(codes < 128, codes + 4, 1)
        ...
        ...     def pieces(self, ids):
        ...         return tf.strings.unicode_encode(ids[..., None] - 4, "UTF-8")
        ...
        ...     def decode(self, ids):
        ...         return tf.strings.reduce_join(self.pieces(ids), -1)
        ...
        ...     def save(self, path_prefix):
        ...         pass  # there is nothing to save
        >>> tokenizer = kl.TokenizerPair(Characters()).source
        >>> tokenizer.decode(tokenizer.encode(["a dog"])).numpy()
        array([b'a dog'], dtype=object)
    """

    suffix: str
    vocab_size: int

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into int32 ids [B, None], no BOS or EOS added."""

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns int32 ids [..., T] into strings [...], up to the first EOS."""

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns int32 ids of any shape into the readable tokens they stand for."""

    def save(self, path_prefix: str | Path) -> Path:
        """Writes the file `path_prefix + suffix` and returns its path."""


class VocabularyTokenizer(tf.Module, abc.ABC):
    """A tokenizer whose vocabulary is kept in one file: the base of the library's own.

    A subclass sets `kind`, `suffix` and `vocab_size`, and has `encode` and the abstract
    methods.
    """

    kind: str
    suffix: str
    vocab_size: int

    @property
    @abc.abstractmethod
    def texts(self) -> list[str]:
        """What each token writes [V], a space in front included; "" for nothing."""

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids [..., T] into strings [...].

        Args:
            ids: int32 [..., T], dense or ragged. Each row is read up to its first
                EOS, or whole if it has none; padding and BOS are dropped; an id outside
                the vocabulary counts as unknown.

        Returns:
            tf.string [...]. Unknown tokens become "⁇" (pieces) or "<unk>" (words).
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(PAD_ID)
        ids = tf.convert_to_tensor(ids, tf.int32)
        shape = tf.shape(ids)
        rows = tf.reshape(ids, [tf.reduce_prod(shape[:-1]), shape[-1]])
        is_open = tf.cumsum(tf.cast(rows == EOS_ID, tf.int32), axis=1) == 0
        visible = is_open & (rows != PAD_ID) & (rows != BOS_ID)
        known_ids = replace_foreign_ids(rows, self.vocab_size)
        texts = self._joined(tf.ragged.boolean_mask(known_ids, visible))
        return tf.ensure_shape(tf.reshape(texts, shape[:-1]), ids.shape[:-1])

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids into the pieces or words that they stand for.

        Args:
            ids: int32 of any shape.

        Returns:
            tf.string of the same shape. In pieces, "▁" marks the start of a word.
        """
        ids = tf.convert_to_tensor(ids, tf.int32)
        return self._looked_up(replace_foreign_ids(ids, self.vocab_size))

    def save(self, path_prefix: str | Path) -> Path:
        """Writes the file `path_prefix + suffix`.

        Args:
            path_prefix: Path without the suffix. The suffix is ".spm" for a
                SentencePiece model, and ".txt" for words, of which line n, counted from
                0, has id n.

        Returns:
            The path of the file.
        """
        path = Path(f"{path_prefix}{self.suffix}")
        with saved_beside(path) as beside:
            beside.write_bytes(self._to_bytes())
        return path

    @classmethod
    def load(cls: type[_Loaded], path: str | Path) -> _Loaded:
        """Reads a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged.
        """
        content = check_file("tokenizer file", path).read_bytes()
        try:
            return cls._from_bytes(content)
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error}") from error

    @abc.abstractmethod
    def _joined(self, rows: tf.RaggedTensor) -> tf.Tensor:
        """Joins the known ids of each row into a text."""

    @abc.abstractmethod
    def _looked_up(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the pieces or words of known ids."""

    @abc.abstractmethod
    def _to_bytes(self) -> bytes:
        """Returns the content of the tokenizer's file."""

    @classmethod
    @abc.abstractmethod
    def _from_bytes(cls: type[_Loaded], content: bytes) -> _Loaded:
        """Makes the tokenizer of a file's content, or raises ValueError."""


def nonblank(sentences: Iterable[str | bytes]) -> Iterator[str]:
    """Yields the sentences that are not blank as str; raises TypeError if not text."""
    if isinstance(sentences, (str, bytes)) or not isinstance(sentences, Iterable):
        raise TypeError(
            f"sentences must be an iterable of strings. Received: {sentences!r:.60}"
        )
    for sentence in sentences:
        if not isinstance(sentence, (str, bytes)):
            raise TypeError(f"A sentence must be a string. Received: {sentence!r:.60}")
        if (text := as_str(sentence)).strip():
            yield text


def as_str(text: str | bytes) -> str:
    """Returns a text with U+FFFD for what is no UTF-8, such as a lone surrogate."""
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "replace")


def valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces invalid UTF-8 by U+FFFD."""
    texts = tf.convert_to_tensor(texts, tf.string)
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def replace_foreign_ids(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Turns ids outside the vocabulary into UNK, as SentencePiece crashes on them."""
    return tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)


def check_vocab_size(vocab_size: int) -> None:
    """Raises an error unless there is room for more than the special tokens."""
    check_size("vocab_size", vocab_size, smallest=len(SPECIAL_PIECES) + 1)
