"""Tokenizers: strings to rows of ids and back, inside the TensorFlow graph.

A tokenizer is part of the model: it is a `tf.Module`, so it trains, saves and exports
with it. `SentencePieceTokenizer` splits words into pieces and never loses a letter that
it has seen; `WordTokenizer` keeps whole words, the paper's setting. `TokenizerPair`
holds the source side's and the target side's.

Shapes: `B` sentences, `T` tokens.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import random
import re
from collections import Counter
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


class SentencePieceTokenizer(tf.Module):
    """Splits text into the pieces of a SentencePiece unigram model.

    Args:
        model: The serialised SentencePiece model, with the library's special ids
            (padding 0, unknown 1, begin 2, end 3), as `train` makes it.

    Raises:
        ValueError: If `model` is no such model.

    Example:
        ```python
        tokenizer = SentencePieceTokenizer.train(["a dog runs", ...], vocab_size=8000)
        ids = tokenizer.encode(tf.constant(["a dog"]))  # RaggedTensor [1, None]
        tokenizer.decode(ids)                           # [b"a dog"]
        ```
    """

    kind = "sentencepiece"
    suffix = ".spm"

    def __init__(self, model: bytes):
        import sentencepiece

        super().__init__()
        try:
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise ValueError(
                f"Not a SentencePiece model, or a damaged one ({len(model)} bytes)."
            ) from error
        self.vocab_size = processor.get_piece_size()
        _check_special_ids(processor)
        self.model = model
        self._tokenizer = _durable_tokenizer(model)

    @classmethod
    def train(
        cls,
        sentences: Iterable[str | bytes],
        vocab_size: int = 8000,
        character_coverage: float = 0.9999,
        normalization: str = "nmt_nfkc",
        split_digits: bool = False,
    ) -> SentencePieceTokenizer:
        """Trains a unigram model; the same sentences always give the same model.

        Args:
            sentences: The text to learn from. SentencePiece keeps all of it in memory.
            vocab_size: Number of pieces wanted, the 4 special ones included. It is an
                upper limit: a small corpus may not have that many, and the tokenizer's
                own `vocab_size` tells how many it has.
            character_coverage: Share of the text's characters that must be covered by
                pieces; rarer ones become `<unk>`.
            normalization: SentencePiece's rule: "nmt_nfkc", "nfkc", "nmt_nfkc_cf"
                (lower-cases), "nfkc_cf" or "identity".
            split_digits: Whether every digit is a piece of its own, which makes numbers
                longer, and far easier to translate from little data.

        Returns:
            The trained tokenizer.

        Raises:
            ValueError: If there is no text, or `vocab_size` is below the number of
                single characters that must be covered.
        """
        import sentencepiece

        _check_vocab_size(vocab_size)
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_with_twins(_nonblank(sentences)),
                model_writer=model,
                model_type="unigram",
                vocab_size=vocab_size,
                hard_vocab_limit=False,
                character_coverage=character_coverage,
                normalization_rule_name=normalization,
                split_digits=split_digits,
                pad_id=PAD_ID,
                unk_id=UNK_ID,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                unk_surface="\u2047",  # no spaces around it: they would double
                minloglevel=2,
            )
        except RuntimeError as error:
            raise _training_error(error, vocab_size) from error
        return cls(model.getvalue())

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into int32 ids `[B, None]`.

        Args:
            texts: tf.string `[B]`. Invalid UTF-8 is replaced by U+FFFD first.

        Returns:
            Ragged int32 `[B, None]` without BOS or EOS; an empty row for a blank text.
        """
        return self._tokenizer.tokenize(_valid_utf8(texts))

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids `[..., T]` into strings `[...]`.

        Args:
            ids: int32 `[..., T]`, dense or ragged. Each row is read up to its first
                EOS, or whole if it has none; padding and BOS are dropped; an id outside
                the vocabulary counts as unknown.

        Returns:
            tf.string `[...]`, in which unknown pieces read "⁇".
        """
        return _decode(self._tokenizer.detokenize, ids, self.vocab_size)

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids into their pieces; "▁" marks the start of a word.

        Args:
            ids: int32 of any shape.

        Returns:
            tf.string of the same shape.
        """
        ids = _known(tf.convert_to_tensor(ids, tf.int32), self.vocab_size)
        return self._tokenizer.id_to_string(ids)

    def save(self, path_prefix: str | Path) -> Path:
        """Writes the model to `path_prefix + ".spm"`, readable by SentencePiece too.

        Args:
            path_prefix: Path without the suffix.

        Returns:
            The path of the file.
        """
        path = Path(f"{path_prefix}{self.suffix}")
        path.write_bytes(self.model)
        return path

    @classmethod
    def load(cls, path: str | Path) -> SentencePieceTokenizer:
        """Reads a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged.
        """
        return _named(path, lambda: cls(_read(path)))


class WordTokenizer(tf.Module):
    """Splits text on white space and looks whole words up; others are `<unk>`.

    Args:
        words: The vocabulary after the 4 special tokens, in the order of their ids.

    Raises:
        ValueError: If a word is repeated, is empty or holds white space.

    Example:
        ```python
        tokenizer = WordTokenizer(["a", "dog"])
        tokenizer.encode(tf.constant(["a brown dog"]))  # [[4, 1, 5]]
        ```
    """

    kind = "word"
    suffix = ".txt"

    def __init__(self, words: Iterable[str]):
        super().__init__()
        words = list(words)
        _check_words(words)
        vocabulary = [word.encode() for word in (*SPECIAL_PIECES, *words)]
        self.vocab_size = len(vocabulary)
        self._vocabulary = tf.constant(vocabulary)
        # The special tokens stay out of the table: "</s>" in a text is no end of it.
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
        """Keeps the most frequent words; ties go to the lower code points.

        Args:
            sentences: The text to learn from; only its distinct words stay in memory.
            vocab_size: Number of tokens wanted, the 4 special ones included; the
                tokenizer has fewer if the text has fewer distinct words.

        Returns:
            The trained tokenizer.

        Raises:
            ValueError: If there is no text.
        """
        _check_vocab_size(vocab_size)
        counts: Counter[bytes] = Counter()
        for sentence in _nonblank(sentences):
            counts.update(sentence.encode().split())
        for special in SPECIAL_PIECES:
            counts.pop(special.encode(), None)
        if not counts:
            raise ValueError("There is no text to train a tokenizer on.")
        ranked = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(word.decode() for word in ranked[: vocab_size - len(SPECIAL_PIECES)])

    @property
    def words(self) -> list[str]:
        """The vocabulary after the special tokens, in the order of the ids."""
        regular = self._vocabulary.numpy()[len(SPECIAL_PIECES) :]
        return [word.decode() for word in regular]

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Turns strings `[B]` into int32 ids `[B, None]`.

        Args:
            texts: tf.string `[B]`. Invalid UTF-8 is replaced by U+FFFD first; words are
                what ASCII white space separates.

        Returns:
            Ragged int32 `[B, None]` without BOS or EOS; an empty row for a blank text.
        """
        words = tf.strings.split(_valid_utf8(texts))
        return tf.ragged.map_flat_values(self._table.lookup, words)

    def decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids `[..., T]` into words joined by spaces, `[...]`.

        Args:
            ids: int32 `[..., T]`, dense or ragged. Each row is read up to its first
                EOS, or whole if it has none; padding and BOS are dropped; an id outside
                the vocabulary counts as unknown.

        Returns:
            tf.string `[...]`, in which unknown words read "<unk>".
        """

        def join(rows: tf.RaggedTensor) -> tf.Tensor:
            words = tf.gather(self._vocabulary, rows)
            return tf.strings.reduce_join(words, axis=-1, separator=" ")

        return _decode(join, ids, self.vocab_size)

    def pieces(self, ids: tf.Tensor) -> tf.Tensor:
        """Turns ids into their words.

        Args:
            ids: int32 of any shape.

        Returns:
            tf.string of the same shape.
        """
        ids = _known(tf.convert_to_tensor(ids, tf.int32), self.vocab_size)
        return tf.gather(self._vocabulary, ids)

    def save(self, path_prefix: str | Path) -> Path:
        r"""Writes `path_prefix + ".txt"`: one token a line, its id the line's number.

        Args:
            path_prefix: Path without the suffix.

        Returns:
            The path of the file.
        """
        path = Path(f"{path_prefix}{self.suffix}")
        path.write_bytes(b"".join(word + b"\n" for word in self._vocabulary.numpy()))
        return path

    @classmethod
    def load(cls, path: str | Path) -> WordTokenizer:
        """Reads a file that `save` wrote.

        Args:
            path: The file.

        Returns:
            The tokenizer.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If the file is damaged.
        """
        return _named(path, lambda: cls(_vocabulary_lines(_read(path))))


TOKENIZERS: dict[str, Any] = {
    cls.kind: cls for cls in (SentencePieceTokenizer, WordTokenizer)
}


def load(path: str | Path) -> Tokenizer:
    """Loads a tokenizer from the file that its `save` wrote; the suffix tells its kind.

    Args:
        path: The file.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the suffix is no tokenizer's, or the file is damaged.
    """
    for cls in TOKENIZERS.values():
        if str(path).endswith(cls.suffix):
            return cls.load(path)
    suffixes = ", ".join(cls.suffix for cls in TOKENIZERS.values())
    raise ValueError(f"No tokenizer file has the suffix of {path}; known: {suffixes}.")


class TokenizerPair(tf.Module):
    """The tokenizers of the source and of the target language.

    Args:
        source: The source language's tokenizer.
        target: The target language's; by default the same object, which makes the
            vocabulary `shared`.

    Example:
        ```python
        tokenizers = TokenizerPair.train(corpus.pairs("train"), vocab_size=8000)
        tokenizers.save("run/tokenizer")
        tokenizers = TokenizerPair.load("run/tokenizer")
        ```
    """

    manifest = "tokenizer.json"

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        super().__init__()
        self.source = source
        self.target = source if target is None else target

    @property
    def shared(self) -> bool:
        """Whether both sides use one vocabulary."""
        return self.source is self.target

    @classmethod
    def train(
        cls,
        pairs: tf.data.Dataset,
        kind: str = "sentencepiece",
        vocab_size: int = 8000,
        shared: bool = False,
        limit: int | None = 1_000_000,
        seed: int = 0,
        **options: Any,
    ) -> TokenizerPair:
        """Trains both tokenizers on a corpus.

        Args:
            pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
            kind: A name in `TOKENIZERS`: "sentencepiece" or "word".
            vocab_size: Size of each vocabulary, the 4 special tokens included; an
                upper limit, see the classes' `train`.
            shared: Whether one tokenizer, trained on both sides, serves both.
            limit: Train on this many pairs, sampled evenly from the whole corpus, so
                that a large one is never held in memory. None takes all.
            seed: Seed of that sampling.
            **options: More arguments for the class's `train`.

        Returns:
            The pair.

        Raises:
            ValueError: If `kind` is unknown, there is no text, or `vocab_size` is too
                small.
        """
        if kind not in TOKENIZERS:
            raise ValueError(f"Unknown kind {kind!r}; known: {sorted(TOKENIZERS)}.")
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be at least 1 or None, received {limit}.")
        source, target = _sample_sides(pairs, limit, seed)
        train = TOKENIZERS[kind].train
        if shared:
            both = itertools.chain(source, target)
            return cls(train(both, vocab_size=vocab_size, **options))
        return cls(
            train(source, vocab_size=vocab_size, **options),
            train(target, vocab_size=vocab_size, **options),
        )

    def save(self, directory: str | Path) -> None:
        """Writes the tokenizers, and a manifest that `load` checks them against.

        Args:
            directory: Made if it does not exist.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        sides = {"source": self.source}
        if not self.shared:
            sides["target"] = self.target
        manifest = {
            side: {
                "file": tokenizer.save(directory / side).name,
                "vocab_size": tokenizer.vocab_size,
            }
            for side, tokenizer in sides.items()
        }
        text = json.dumps({"shared": self.shared, **manifest}, indent=2)
        (directory / self.manifest).write_text(text + "\n")

    @classmethod
    def load(cls, directory: str | Path) -> TokenizerPair:
        """Reads a directory that `save` wrote.

        Args:
            directory: The directory.

        Returns:
            The pair; `shared` as it was.

        Raises:
            FileNotFoundError: If the manifest or a tokenizer's file is missing.
            ValueError: If one of them is damaged.
        """
        path = Path(directory) / cls.manifest
        try:
            manifest = json.loads(_read(path))
            sides = ["source"] if manifest["shared"] else ["source", "target"]
            entries = [
                (manifest[s]["file"], int(manifest[s]["vocab_size"])) for s in sides
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged: {error!r}.") from error
        return cls(*(_load_checked(path.parent / name, size) for name, size in entries))


def _load_checked(path: Path, vocab_size: int) -> Tokenizer:
    """Loads a tokenizer that must have `vocab_size` tokens."""
    tokenizer = load(path)
    if tokenizer.vocab_size != vocab_size:
        raise ValueError(
            f"{path} is damaged: it has {tokenizer.vocab_size} tokens, and the "
            f"manifest beside it says {vocab_size}."
        )
    return tokenizer


def _sample_sides(
    pairs: tf.data.Dataset, limit: int | None, seed: int
) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """Returns the two sides of an even sample; all of the corpus if no limit."""
    if limit is None:
        return (
            (pair[0] for pair in _stream(pairs)),
            (pair[1] for pair in _stream(pairs)),
        )
    rng = random.Random(seed)
    sample: list[tuple[bytes, bytes]] = []
    for index, pair in enumerate(_stream(pairs)):  # reservoir sampling
        if index < limit:
            sample.append(pair)
        elif (slot := rng.randrange(index + 1)) < limit:
            sample[slot] = pair
    return [pair[0] for pair in sample], [pair[1] for pair in sample]


def _stream(pairs: tf.data.Dataset) -> Iterator[tuple[bytes, bytes]]:
    for batch in pairs.batch(4096).prefetch(2).as_numpy_iterator():
        yield from zip(batch["source"], batch["target"], strict=True)


def _nonblank(sentences: Iterable[str | bytes]) -> Iterator[str]:
    for sentence in sentences:
        if isinstance(sentence, bytes):
            sentence = sentence.decode("utf-8", errors="replace")
        if sentence.strip():
            yield sentence


def _with_twins(sentences: Iterable[str]) -> Iterator[str]:
    """Yields the sentences, then every word that came twice or more with a full stop.

    SentencePiece's candidates for pieces are the strings that occur in two distinct
    words. A word such as "and" in a text whose punctuation stands apart may be in no
    other word, so it would be split up, however frequent: a quarter of the 300 most
    frequent words of the tokenised Multi30k are. Its twin makes it a candidate, and
    being there once does not count beside the word's own frequency.
    """
    counts: Counter[str] = Counter()
    for sentence in sentences:
        counts.update(sentence.split())
        yield sentence
    for word, count in counts.items():
        if count > 1 and word.isalpha():
            yield f"{word}."


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """A SentencePiece model that lives as long as the process.

    tensorflow_text's own resource belongs to an eager kernel, and kernels are dropped
    by `tf.random.set_seed`, `keras.utils.set_random_seed` and `clear_session`: from
    then on the tokenizer, and every dataset with it, would fail with "Resource ...
    SentencepieceResource does not exist" (tensorflow/text#570). A named resource stays;
    the name is the model's hash, so that equal models share one.
    """

    def __init__(self, create: Callable[..., tf.Tensor], model: bytes):
        super().__init__()
        self._create = create
        self._model = model
        self._name = "sentencepiece_" + hashlib.sha256(model).hexdigest()
        _ = self.resource_handle  # creates it

    def _create_resource(self) -> tf.Tensor:
        return self._create(model=self._model, shared_name=self._name)


def _durable_tokenizer(model: bytes) -> Any:
    """Makes tensorflow_text's tokenizer with a model that does not vanish."""
    import tensorflow_text
    from tensorflow_text.python.ops import sentencepiece_tokenizer

    tokenizer = tensorflow_text.SentencepieceTokenizer(model)
    create = sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op
    tokenizer._model_resource = _SharedModel(create, model)
    return tokenizer


def _valid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replaces what is not UTF-8 by U+FFFD."""
    texts = tf.convert_to_tensor(texts, tf.string)
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def _known(ids: tf.Tensor, vocab_size: int) -> tf.Tensor:
    """Turns ids outside the vocabulary into UNK: SentencePiece crashes on them."""
    return tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)


def _decode(
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
    texts = join(tf.ragged.boolean_mask(_known(rows, vocab_size), visible))
    return tf.ensure_shape(tf.reshape(texts, shape[:-1]), ids.shape[:-1])


def _check_vocab_size(vocab_size: int) -> None:
    is_integer = isinstance(vocab_size, (int, np.integer))
    if not is_integer or isinstance(vocab_size, bool):
        raise TypeError(f"vocab_size must be an integer, received {vocab_size!r}.")
    if vocab_size <= len(SPECIAL_PIECES):
        raise ValueError(
            f"vocab_size must be above {len(SPECIAL_PIECES)}, the number of special "
            f"tokens, received {vocab_size}."
        )


def _check_special_ids(processor: Any) -> None:
    ids = tuple(
        getattr(processor, f"{name}_id")() for name in ("pad", "unk", "bos", "eos")
    )
    if ids != (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
        raise ValueError(
            f"The SentencePiece model's ids of padding, unknown, begin and end are "
            f"{ids}; train it with (pad_id, unk_id, bos_id, eos_id) = (0, 1, 2, 3)."
        )


def _training_error(error: RuntimeError, vocab_size: int) -> ValueError:
    """Says in a user's words what SentencePiece's trainer complains about."""
    if "sentences_.empty()" in str(error):
        return ValueError("There is no text to train a tokenizer on.")
    needed = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
    if needed:
        return ValueError(
            f"vocab_size={vocab_size} is too small: the single characters of this text "
            f"alone need {needed[1]}. Raise it, or lower character_coverage."
        )
    return ValueError(f"SentencePiece could not train a model: {error}")


def _check_words(words: list[str]) -> None:
    repeated = [word for word, n in Counter((*SPECIAL_PIECES, *words)).items() if n > 1]
    if repeated:
        raise ValueError(f"Words must be distinct, received {repeated[:5]} twice.")
    for word in words:
        if len(word.encode().split()) != 1 or word.encode().split()[0] != word.encode():
            raise ValueError(
                f"A word must not be empty or hold white space, received {word!r}."
            )


def _vocabulary_lines(content: bytes) -> list[str]:
    if not content.endswith(b"\n"):
        raise ValueError("Its last line has no end: the file was cut off.")
    lines = content.decode("utf-8").split("\n")[:-1]
    if tuple(lines[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES:
        raise ValueError(f"It must begin with the lines {', '.join(SPECIAL_PIECES)}.")
    return lines[len(SPECIAL_PIECES) :]


def _read(path: str | Path) -> bytes:
    if not Path(path).is_file():
        raise FileNotFoundError(f"There is no tokenizer file {path}.")
    return Path(path).read_bytes()


def _named(path: str | Path, make: Callable[[], Any]) -> Any:
    """Calls `make`, adding the file's name to what it raises about the content."""
    try:
        return make()
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from error
