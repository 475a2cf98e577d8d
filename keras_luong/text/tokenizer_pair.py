"""The tokenizers of a translation model: one for each language.

They are trained, saved and loaded together. A tokenizer is a `tf.Module`, so it can be
exported with the model. `SentencePieceTokenizer` splits words into pieces, and can
write every letter that it was trained on; `WordTokenizer` keeps whole words, as in the
paper.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import tensorflow as tf

from keras_luong.checks import check_choice, check_file, check_size
from keras_luong.files import crc32, write_json
from keras_luong.text.sentencepiece import SentencePieceTokenizer, normalizer
from keras_luong.text.tokenizer import Tokenizer, nonblank
from keras_luong.text.words import WordTokenizer

TOKENIZERS: dict[str, Any] = {
    cls.kind: cls for cls in (SentencePieceTokenizer, WordTokenizer)
}


def load(path: str | Path) -> Tokenizer:
    """Loads a tokenizer from a file that its `save` wrote; the suffix tells its kind.

    Args:
        path: The file.

    Returns:
        The tokenizer.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the suffix is unknown, or the file is damaged.
    """
    for cls in TOKENIZERS.values():
        if str(path).endswith(cls.suffix):
            return cls.load(path)
    suffixes = ", ".join(cls.suffix for cls in TOKENIZERS.values())
    raise ValueError(f"No tokenizer file has the suffix of {path}; known: {suffixes}.")


_SIDES = ("source", "target")
_EXTREMES = (OverflowError, RecursionError)  # of numbers and of nesting


class TokenizerPair(tf.Module):
    """The tokenizers of the source and of the target language.

    Args:
        source: The source language's tokenizer.
        target: The target language's tokenizer; by default the source's.

    Example:
        >>> from keras_luong.text import load_corpus
        >>> pairs = load_corpus("my/corpus", "en", "de").pairs("train")
        >>> tokenizers = kl.TokenizerPair.train(pairs, kind="word")
        >>> tokenizers.save("tokenizer")
        >>> kl.TokenizerPair.load("tokenizer").target.words
        ['der', 'Hund']
    """

    manifest = "tokenizer.json"

    def __init__(self, source: Tokenizer, target: Tokenizer | None = None):
        super().__init__()
        self.source = _checked("source", source)
        self.target = source if target is None else _checked("target", target)

    @property
    def shared(self) -> bool:
        """Whether both sides use one vocabulary: an id is the same token for both."""
        vocabularies = [getattr(x, "vocabulary", x) for x in (self.source, self.target)]
        return bool(vocabularies[0] == vocabularies[1])

    @classmethod
    def train(
        cls,
        pairs: tf.data.Dataset,
        kind: str = "sentencepiece",
        vocab_size: int = 8000,
        shared: bool = False,
        limit: int | None = 500_000,
        seed: int = 0,
        source_normalization: str = "nmt_nfkc",
        target_normalization: str = "identity",
        **options: Any,
    ) -> TokenizerPair:
        """Trains both tokenizers on a corpus.

        Args:
            pairs: Dataset of `{"source": tf.string [], "target": tf.string []}`.
            kind: A name in `TOKENIZERS`: "sentencepiece" or "word".
            vocab_size: Largest size of each vocabulary, the 4 special tokens included.
            shared: Whether one vocabulary is trained on and used for both languages.
            limit: Number of pairs to train on, sampled evenly from the whole corpus, so
                that a large one need not fit in memory. None takes all.
            seed: Seed of that sampling.
            source_normalization: What changes in a source before SentencePiece splits
                it; see `SentencePieceTokenizer.train`. Whatever it is, a shared
                vocabulary has the same pieces for both sides.
            target_normalization: The same for a target. By default nothing but white
                space changes, so that a translation may be written as the references
                are.
            **options: More arguments for the class's `train`.

        Returns:
            The pair.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If `kind` is unknown, there is no text, or `vocab_size` is too
                small.
        """
        check_choice("kind", kind, TOKENIZERS)
        check_size("limit", limit, optional=True)
        if not isinstance(pairs, tf.data.Dataset):
            raise TypeError(
                'pairs must be a tf.data.Dataset of {"source": ..., "target": ...}, '
                f"such as corpus.pairs('train'). Received: {pairs!r:.60}"
            )
        sides = sample_sides(pairs, limit, seed)
        train = partial(TOKENIZERS[kind].train, vocab_size=vocab_size, **options)
        if kind != SentencePieceTokenizer.kind:
            both = (train(itertools.chain(*sides)),) if shared else map(train, sides)
            return cls(*both)
        rules = (source_normalization, target_normalization)
        if not shared:
            trained = []
            for name, texts, rule in zip(_SIDES, sides, rules, strict=True):
                try:
                    trained.append(train(texts, normalization=rule))
                except ValueError as error:
                    raise ValueError(f"The {name} side: {error}") from error
            return cls(*trained)
        if source_normalization == target_normalization:
            return cls(train(itertools.chain(*sides), normalization=rules[1]))
        as_read: Any = map(normalizer(source_normalization), nonblank(sides[0]))
        both = train(itertools.chain(as_read, sides[1]), normalization=rules[1])
        return cls(both.with_normalization(source_normalization), both)

    def save(self, directory: str | Path) -> None:
        """Writes the tokenizers, and a manifest with which `load` checks them.

        Args:
            directory: The directory, made if it does not exist.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        sides = {"source": self.source}
        if self.target is not self.source:
            sides["target"] = self.target
        manifest: dict[str, Any] = {"shared": self.shared}
        for side, tokenizer in sides.items():
            path = tokenizer.save(directory / side)
            manifest[side] = {
                "file": path.name,
                "vocab_size": tokenizer.vocab_size,
                "crc32": crc32(path),
            }
        write_json(directory / self.manifest, manifest)

    @classmethod
    def load(
        cls, directory: str | Path, within: str | Path | None = None
    ) -> TokenizerPair:
        """Reads a directory that `save` wrote, and no file outside of it.

        Args:
            directory: The directory.
            within: Where its files may lie if they are links; by default in itself.

        Returns:
            The pair, shared or not as it was.

        Raises:
            FileNotFoundError: If the manifest or a tokenizer's file is missing.
            ValueError: If one of them is damaged, or a link that leads out.
        """
        path = check_file("tokenizer file", Path(directory) / cls.manifest)
        content = path.read_bytes()
        try:
            manifest = json.loads(content)
            only_one = manifest["shared"] and "target" not in manifest
            sides = ["source"] if only_one else ["source", "target"]
            about = [manifest[side] for side in sides]
            entries = [(x["file"], int(x["vocab_size"]), x.get("crc32")) for x in about]
            for name, *_ in entries:
                if (path.parent / name).parent != path.parent:
                    raise ValueError(f"{name!r} is no name of a file in {path.parent}")
        except (ValueError, KeyError, TypeError, AttributeError, *_EXTREMES) as error:
            why = error if isinstance(error, ValueError) else repr(error)
            raise ValueError(f"{path} is damaged: {why}.") from error
        homes = {Path(within or path.parent).resolve(), path.parent.resolve()}
        tokenizers = []
        for name, vocab_size, checksum in entries:
            file = path.parent / name
            # A file of elsewhere would become a part of the model.
            if not homes & {*file.resolve().parents}:
                raise ValueError(
                    f"{file} is a link that leads out of {within or path.parent}: put "
                    "a copy in its place."
                )
            tokenizer = load(file)
            if tokenizer.vocab_size != vocab_size:
                raise ValueError(
                    f"{file} is damaged: it has {tokenizer.vocab_size} tokens, and the "
                    f"manifest beside it says {vocab_size}."
                )
            if checksum is not None and crc32(file) != checksum:
                raise ValueError(f"{file} is damaged: it is not what was written.")
            tokenizers.append(tokenizer)
        return cls(*tokenizers)


def _checked(side: str, tokenizer: Tokenizer) -> Tokenizer:
    if not all(hasattr(tokenizer, name) for name in ("encode", "decode", "vocab_size")):
        raise TypeError(
            f"{side} must be a tokenizer, such as a SentencePieceTokenizer. "
            f"Received: {tokenizer!r}"
        )
    return tokenizer


def sample_sides(
    pairs: tf.data.Dataset, limit: int | None, seed: int
) -> tuple[Iterable[bytes], Iterable[bytes]]:
    """Returns the sources and targets of a random sample, or of all pairs."""
    if limit is None:
        return map(itemgetter(0), _stream(pairs)), map(itemgetter(1), _stream(pairs))
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
