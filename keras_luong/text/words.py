"""The word tokenizer: whole words or `<unk>`, as in the paper.

Also which scripts put no spaces between words: Chinese, Japanese, Thai and others.

Shapes: B sentences, T tokens.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter
from collections.abc import Iterable

import tensorflow as tf

from keras_luong.special_ids import UNK_ID
from keras_luong.text.tokenizer import (
    SPECIAL_PIECES,
    VocabularyTokenizer,
    as_str,
    check_vocab_size,
    nonblank,
    valid_utf8,
)

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
        >>> from keras_luong.text.words import is_unspaced
        >>> [is_unspaced(letter) for letter in "aあ。"]
        [False, True, False]
    """
    is_letter = unicodedata.category(letter).startswith("L")
    return is_letter and unicodedata.name(letter, "").startswith(SCRIPTS)


class WordTokenizer(VocabularyTokenizer):
    """A tokenizer of whole words; those outside its vocabulary become `<unk>`.

    Args:
        words: The vocabulary after the 4 special tokens, in the order of their ids.

    Raises:
        TypeError: If `words` are not strings.
        ValueError: If there are none, or one is repeated, empty or holds white space.

    Example:
        >>> tokenizer = kl.WordTokenizer(["a", "dog"])
        >>> tokenizer.encode(tf.constant(["a brown dog"])).to_list()
        [[4, 1, 5]]
    """

    kind = "word"
    suffix = ".txt"

    def __init__(self, words: Iterable[str]):
        super().__init__()
        words = _checked(words)
        vocabulary = [word.encode() for word in (*SPECIAL_PIECES, *words)]
        self.vocab_size = len(vocabulary)
        self._vocabulary = tf.constant(vocabulary)
        # Without the special tokens, so that "</s>" in a text cannot end it.
        regular = tf.range(len(SPECIAL_PIECES), self.vocab_size)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                tf.gather(self._vocabulary, regular), regular
            ),
            default_value=UNK_ID,
        )

    @classmethod
    def train(
        cls, sentences: Iterable[str | bytes], vocab_size: int = 50_000
    ) -> WordTokenizer:
        """Makes a tokenizer of a text's most frequent words.

        Of equally frequent words, those with lower code points come first.

        Args:
            sentences: The text to learn from; only its distinct words stay in memory.
            vocab_size: Largest number of tokens, the 4 special ones included; there are
                fewer if the text has fewer distinct words.

        Returns:
            The trained tokenizer.

        Raises:
            ValueError: If there is no text.
        """
        check_vocab_size(vocab_size)
        counts: Counter[bytes] = Counter()
        for sentence in nonblank(sentences):
            counts.update(sentence.encode().split())
        for special in SPECIAL_PIECES:
            counts.pop(special.encode(), None)
        if not counts:
            raise ValueError("There is no text to train a tokenizer on.")
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(word.decode() for word in ranked[: vocab_size - len(SPECIAL_PIECES)])

    @property
    def vocabulary(self) -> list[str]:
        """All tokens, in the order of their ids."""
        return [*SPECIAL_PIECES, *self.words]

    @property
    def words(self) -> list[str]:
        """The vocabulary after the special tokens, in the order of the ids."""
        regular = self._vocabulary.numpy()[len(SPECIAL_PIECES) :]
        return [word.decode() for word in regular]

    @property
    def texts(self) -> list[str]:
        """What each token writes [V]: a space and its word, and padding nothing."""
        return ["", " <unk>", "", "", *(f" {word}" for word in self.words)]

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings [B] into int32 ids [B, None].

        Args:
            texts: tf.string [B]. Invalid UTF-8 is replaced by U+FFFD first; words are
                separated by ASCII white space.

        Returns:
            Ragged int32 [B, None] without BOS or EOS; an empty row for a blank text.
        """
        words = tf.strings.split(valid_utf8(texts))
        return tf.ragged.map_flat_values(self._table.lookup, words)

    def word_ids(self, text: str | bytes) -> list[int]:
        """Returns the word that each token of a text is, counted from 0.

        Args:
            text: One text. Its words are what ASCII white space separates.
        """
        return list(range(len(as_str(text).encode().split())))

    def _joined(self, rows: tf.RaggedTensor) -> tf.Tensor:
        return tf.strings.reduce_join(self._looked_up(rows), axis=-1, separator=" ")

    def _looked_up(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.gather(self._vocabulary, ids)

    def _to_bytes(self) -> bytes:
        return b"".join(word + b"\n" for word in self._vocabulary.numpy())

    @classmethod
    def _from_bytes(cls, content: bytes) -> WordTokenizer:
        if not content.endswith(b"\n"):
            raise ValueError("Its last line has no end: the file was cut off.")
        lines = content.decode("utf-8").split("\n")[:-1]
        begin = len(SPECIAL_PIECES)
        if tuple(lines[:begin]) != SPECIAL_PIECES:
            begins = ", ".join(SPECIAL_PIECES)
            raise ValueError(f"It must begin with the lines {begins}.")
        return cls(lines[begin:])


def _checked(words: Iterable[str]) -> list[str]:
    if isinstance(words, (str, bytes)) or not isinstance(words, Iterable):
        raise TypeError(f"words must be a list of words. Received: {words!r:.60}")
    words = list(words)
    if not words:
        raise ValueError("words must hold at least one word. Received: none")
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"A word must be a str. Received: {word!r}")
        if word != as_str(word):
            raise ValueError(
                "A word must be valid Unicode, without lone surrogates. "
                f"Received: {word!r}"
            )
        if word.encode().split() != [word.encode()]:
            raise ValueError(
                f"A word must not be empty or hold white space. Received: {word!r}"
            )
    repeated = [word for word, n in Counter((*SPECIAL_PIECES, *words)).items() if n > 1]
    if repeated:
        raise ValueError(f"Words must be distinct. Received twice: {repeated[:5]}")
    return words
