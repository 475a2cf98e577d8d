"""Text to ids, and ids to text, as the tokenizers do that a model was trained with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class SpecialIds(NamedTuple):
    """The ids that are no words.

    Attributes:
        pad: Fills a source up to a fixed length.
        unk: Stands for whatever the vocabulary has not.
        bos: Begins a translation.
        eos: Ends a source or a translation.
    """

    pad: int = 0
    unk: int = 1
    bos: int = 2
    eos: int = 3

    def words(self, ids: Iterable[int]) -> list[int]:
        """Leaves out what cannot be read aloud.

        Args:
            ids: Ints `[T]`.

        Returns:
            The ids but padding, begin and end.
        """
        return [int(i) for i in ids if i not in (self.pad, self.bos, self.eos)]


class Tokenizer(Protocol):
    """What a translator needs of a tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Turns a text into ids, without begin or end."""

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into a text; padding, begin and end are left out."""

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Turns each id into its piece."""


class SentencePieceTokenizer:
    """Splits text into the pieces of a SentencePiece model.

    Args:
        model: The serialised model.
        special: The ids that are no words.

    Raises:
        ModuleNotFoundError: If sentencepiece is not installed.
        ValueError: If the model is empty, or has not even the special tokens.
        RuntimeError: If it is no SentencePiece model.

    Example:
        >>> from keras_luong_edge.tokenizers import SentencePieceTokenizer, SpecialIds
        >>> text = ["a dog runs", "a dog sleeps", "two dogs run", "a cat runs"]
        >>> model = kl.SentencePieceTokenizer.train(text, vocab_size=20).model
        >>> tokenizer = SentencePieceTokenizer(model, SpecialIds())
        >>> tokenizer.decode(tokenizer.encode("a dog"))
        'a dog'
    """

    def __init__(self, model: bytes, special: SpecialIds):
        try:
            import sentencepiece
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "The edge runtime needs sentencepiece: pip install sentencepiece"
            ) from error
        if not model:  # with which SentencePiece would crash later
            raise ValueError("its SentencePiece model is empty")
        self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        if self._model.get_piece_size() <= max(special):
            raise ValueError("its vocabulary lacks special tokens")
        self._special = special

    def encode(self, text: str) -> list[int]:
        """Turns a text into ids.

        Args:
            text: Any str without lone surrogates.

        Returns:
            Ints `[T]`, without begin or end.
        """
        ids: list[int] = self._model.encode(text)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into a text.

        Args:
            ids: Ints `[T]`; one outside of the vocabulary counts as unknown.

        Returns:
            A str. Padding, begin and end are left out.
        """
        text: str = self._model.decode(self._special.words(self._known(ids)))
        return text

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Turns each id into its piece.

        Args:
            ids: Ints `[T]`; one outside of the vocabulary counts as unknown.

        Returns:
            Strings `[T]`; "▁" marks the start of a word.
        """
        return [self._model.id_to_piece(i) for i in self._known(ids)]

    def _known(self, ids: Iterable[int]) -> list[int]:
        size = self._model.get_piece_size()
        return [int(i) if i < size else self._special.unk for i in ids]


class WordTokenizer:
    """Splits text on white space and looks whole words up.

    Args:
        vocabulary: UTF-8, one token a line; a line's number is its id.
        special: The ids that are no words, and that no text can have.

    Raises:
        UnicodeDecodeError: If the vocabulary is no UTF-8.
        ValueError: If it has not even the special tokens.

    Example:
        >>> from keras_luong_edge.tokenizers import SpecialIds, WordTokenizer
        >>> vocabulary = b"<pad>,<unk>,<s>,</s>,a,dog,".replace(b",", bytes([10]))
        >>> WordTokenizer(vocabulary, SpecialIds()).encode("a brown dog")
        [4, 1, 5]
    """

    def __init__(self, vocabulary: bytes, special: SpecialIds):
        self._words = vocabulary.decode().split("\n")[:-1]
        if len(self._words) <= max(special):
            raise ValueError("its vocabulary lacks special tokens")
        regular = ((i, x) for i, x in enumerate(self._words) if i not in special)
        self._ids = {word.encode(): i for i, word in regular}
        self._special = special

    def encode(self, text: str) -> list[int]:
        """Turns a text into ids.

        Args:
            text: Any str without lone surrogates. Words are what ASCII white space
                separates.

        Returns:
            Ints `[T]`, without begin or end.
        """
        unknown = self._special.unk
        return [self._ids.get(word, unknown) for word in text.encode().split()]

    def decode(self, ids: Iterable[int]) -> str:
        """Turns ids into words joined by spaces.

        Args:
            ids: Ints `[T]`; one outside of the vocabulary counts as unknown.

        Returns:
            A str. Padding, begin and end are left out.
        """
        return " ".join(self.pieces(self._special.words(ids)))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Turns each id into its word.

        Args:
            ids: Ints `[T]`; one outside of the vocabulary counts as unknown.

        Returns:
            Strings `[T]`.
        """
        size, unknown = len(self._words), self._special.unk
        return [self._words[i if i < size else unknown] for i in ids]


# By the name that a file gives to the kind of its tokenizer.
TOKENIZERS: dict[str, Callable[[bytes, SpecialIds], Tokenizer]] = {
    "sentencepiece": SentencePieceTokenizer,
    "word": WordTokenizer,
}
