"""Text to ids, ids to hypotheses, hypotheses to text.

Shapes: B sentences, S source tokens, T target tokens, ends counted.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.forced import force
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.stepping import (
    Search,
    StepModel,
    check_step_model,
    vocab_size_of,
)
from keras_luong.progress import Progress
from keras_luong.special_ids import PAD_ID
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.translation.graph import Source, answers, read_text
from keras_luong.translation.translation import Translation

TEXT = tf.TensorSpec([None], tf.string, name="text")
IDS = tf.TensorSpec([None, None], tf.int32, name="ids")
Texts: TypeAlias = Iterable[str | bytes]


class Translator:
    """A model, its tokenizers and a search: all that it takes to translate strings.

    Any string has an answer. The translation of an empty string, or of white space, is
    an empty string with score 0. Bytes that are not UTF-8 are read as U+FFFD. Of a text
    with more than `max_source_length` tokens the first ones are translated, and the
    answer says `truncated`.

    Args:
        model: A `StepModel`, such as `Seq2Seq`.
        tokenizers: A `TokenizerPair`, a `(source, target)` tuple, or one tokenizer for
            both languages.
        search: A `BeamSearch`, `GreedySearch`, `RandomSampling`, or anything else that
            maps `(model, source_ids)` to `Hypotheses`. Default: `BeamSearch()`.
        max_source_length: The tokens that are read of a text, without the end token
            (and at most 64 bytes for each, ASCII white space around the text not
            counted).

    Raises:
        TypeError: If an argument cannot do what it is needed for.
        ValueError: If `max_source_length` is below 1, or the model's vocabularies are
            not the tokenizers'.

    Example:
        >>> translator = Translator(model, tokenizers, BeamSearch(beam_width=5))
        >>> translator.translate(["A dog runs."])[0].text
        'Ein Hund läuft.'
    """

    def __init__(
        self,
        model: StepModel,
        tokenizers: Any,
        search: Search | None = None,
        max_source_length: int = 200,
    ):
        check_size("max_source_length", max_source_length)
        check_step_model("`model`", model)
        self.model = model
        self.tokenizers = tokenizers
        self.search = BeamSearch() if search is None else search
        self.max_source_length = max_source_length
        self.source_tokenizer, self.target_tokenizer = _sides(tokenizers)
        _check_vocabulary("source", self.source_tokenizer, model)
        _check_vocabulary("target", self.target_tokenizer, model)
        if not callable(self.search):
            raise TypeError(
                "`search` must be callable as search(model, source_ids), such as "
                f"BeamSearch(). Received: {search!r}"
            )

    @property
    def max_target_length(self) -> int:
        """The tokens that `score` reads of a target, without the end token."""
        return 2 * self.max_source_length + 10

    def with_search(
        self,
        search: Search | None = None,
        *,
        max_source_length: int | None = None,
        **changes: Any,
    ) -> Translator:
        """Returns a translator that searches in another way; this one stays as it is.

        Both share the model and the tokenizers.

        Args:
            search: Another search. Default: this translator's.
            max_source_length: Another limit. Default: this translator's.
            **changes: Fields of the search that differ, as for `dataclasses.replace`.

        Raises:
            TypeError: If the search is no dataclass, or has no such field.
            ValueError: If a field cannot have that value.

        Example:
            >>> wide = translator.with_search(beam_width=10, n_best=10)
            >>> random = translator.with_search(RandomSampling(top_p=0.9, seed=1))
            >>> short = translator.with_search(max_source_length=50)
        """
        other: Any = self.search if search is None else search
        if changes:
            other = dataclasses.replace(other, **changes)
        if max_source_length is None:
            max_source_length = self.max_source_length
        return Translator(self.model, self.tokenizers, other, max_source_length)

    @tf.function(input_signature=[TEXT], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph; an exported model computes just this.

        Args:
            text: tf.string [B].

        Returns:
            `{"translation": string [B], "score": float32 [B], "truncated": bool [B]}`.
        """
        source = self._read(text)
        hypotheses = self.find(source.ids)
        translation = self.target_tokenizer.decode(hypotheses.ids[:, 0])
        return {
            "translation": tf.where(source.empty, "", translation),
            "score": tf.where(source.empty, 0.0, hypotheses.scores[:, 0]),
            "truncated": source.truncated,
        }

    @tf.function(input_signature=[IDS], autograph=False)
    def find(self, ids: tf.Tensor) -> Hypotheses:
        """Searches, in a graph of its own that all methods share.

        Args:
            ids: int32 [B, S], each row with an end token and right-padded.
        """
        return self.search(self.model, ids)

    def translate(
        self,
        texts: Texts,
        batch_size: int = 32,
        progress: bool = False,
        n_best: bool = False,
        prefixes: Texts | None = None,
    ) -> list[Any]:
        """Translates texts, in batches of similar length.

        Args:
            texts: Strings, or bytes in UTF-8; a list, or any iterable of them.
            batch_size: How many are translated at once.
            progress: Whether to show a progress bar on standard error; where that is no
                terminal, a line now and then.
            n_best: Whether to return all hypotheses that the search found for a text,
                the best first, instead of the best one only.
            prefixes: How each translation must begin, "" where that is free; needs a
                search that takes prefixes, such as `BeamSearch`.

        Returns:
            One `Translation` per text, in the order of the texts; with `n_best`, one
            list of them. Warns once if some were truncated.

        Raises:
            TypeError: If `texts` is a single string, or holds something else.
            ValueError: If `batch_size` is below 1, or the prefixes are not as many as
                the texts.
        """
        sides, translate = {"texts": texts}, self.explain
        if prefixes is not None:
            sides, translate = {**sides, "prefixes": prefixes}, self._explain_prefixed
        found = self._in_batches(translate, sides, batch_size, progress)
        return found if n_best else [hypotheses[0] for hypotheses in found]

    def stream(
        self,
        texts: Texts,
        batch_size: int = 32,
        window: int = 1024,
        n_best: bool = False,
    ) -> Iterator[Any]:
        """Translates texts as they come, in bounded memory.

        Args:
            texts: Strings, or bytes in UTF-8; any iterable of them, however long.
            batch_size: How many are translated at once.
            window: How many are read ahead, to be sorted by length: the more, the
                faster, and the later the first answer comes.
            n_best: As for `translate`.

        Yields:
            What `translate` returns, one by one, in the order of the texts.

        Raises:
            TypeError: If `texts` is a single string, or holds something else.
            ValueError: If `batch_size` or `window` is below 1.

        Example:
            >>> with open("in.txt", "rb") as lines:
            ...     for translation in translator.stream(lines):
            ...         print(translation.text)
        """
        check_size("window", window)
        _check_iterable("texts", texts)
        texts = iter(texts)
        while some := list(itertools.islice(texts, window)):
            yield from self.translate(some, batch_size, n_best=n_best)

    def score(
        self,
        texts: Texts,
        targets: Texts,
        batch_size: int = 32,
        progress: bool = False,
    ) -> list[Translation]:
        """Computes how probable given translations are, and what they attend to.

        Args:
            texts: Source texts, as for `translate`.
            targets: A translation of each.
            batch_size: How many are read at once.
            progress: Whether to show a progress bar on standard error; where that is no
                terminal, a line now and then.

        Returns:
            One `Translation` per pair: `text` is the target as the tokenizer writes it,
            `score` its log-probability, the end token's included. An empty text has the
            empty translation, score 0, whatever its target. Of a target with more than
            `max_target_length` tokens the first ones are read, and the answer says
            `truncated`.

        Raises:
            TypeError: If either is a single string, or holds something else.
            ValueError: If they differ in number, or `batch_size` is below 1.
        """
        sides = {"texts": texts, "targets": targets}
        found = self._in_batches(self.forced, sides, batch_size, progress)
        return [hypotheses[0] for hypotheses in found]

    def _in_batches(
        self,
        translate: Callable[..., dict[str, tf.Tensor]],
        sides: Mapping[str, Texts],
        batch_size: int,
        progress: bool,
    ) -> list[list[Translation]]:
        """Translates in batches of similar length; answers in the order of the texts.

        Args:
            translate: Maps a batch of each side to `answers`.
            sides: Name → texts, as many of each side.
            batch_size: As for `translate`.
            progress: As for `translate`.
        """
        columns = _columns(sides)
        check_size("batch_size", batch_size)
        count = len(columns[0])
        order = sorted(range(count), key=lambda i: [len(x[i]) for x in columns])
        bar = Progress(count, "text") if progress else None
        found: dict[int, list[Translation]] = {}
        for start in range(0, count, batch_size):
            rows = order[start : start + batch_size]
            batch = translate(*(tf.constant([x[i] for i in rows]) for x in columns))
            found.update(zip(rows, _translations(batch), strict=True))
            if bar:
                bar.add(len(rows))
        if truncated := sum(hypotheses[0].truncated for hypotheses in found.values()):
            warnings.warn(
                f"{truncated} of {count} texts have more than max_source_length="
                f"{self.max_source_length} tokens: only their beginnings were read "
                "(those marked `truncated`).",
                stacklevel=3,
            )
        return [found[i] for i in range(count)]

    def _read(self, text: tf.Tensor) -> Source:
        return read_text(text, self.source_tokenizer, self.max_source_length)

    @tf.function(input_signature=[TEXT], autograph=False)
    def explain(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph; see `keras_luong.translation.graph.answers`.

        Args:
            text: tf.string [B].
        """
        source = self._read(text)
        return self._explained(source, self.find(source.ids))

    @tf.function(input_signature=[TEXT, TEXT], autograph=False)
    def _explain_prefixed(
        self, text: tf.Tensor, prefix: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Does the same with translations that begin in a given way."""
        source = self._read(text)
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        search: Any = self.search  # not all of them take prefixes
        return self._explained(source, search(self.model, source.ids, prefix))

    @tf.function(input_signature=[TEXT, TEXT], autograph=False)
    def forced(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Reads given translations of a batch in the graph, as `score` does.

        Args:
            text: tf.string [B].
            target: tf.string [B].
        """
        source = self._read(text)
        given = read_text(target, self.target_tokenizer, self.max_target_length)
        source = source._replace(truncated=source.truncated | given.truncated)
        return self._explained(source, force(self.model, source.ids, given.ids))

    def _explained(self, source, hypotheses):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return answers(source, hypotheses, *tokenizers)


def _columns(sides: Mapping[str, Texts]) -> list[list[bytes]]:
    """Encodes the texts of all sides; raises ValueError if they differ in number."""
    columns = {name: all_bytes(name, texts) for name, texts in sides.items()}
    count = len(columns["texts"])
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(
                f"There must be one of `{name}` for each text. Received: {count} "
                f"texts and {len(column)} {name}"
            )
    return list(columns.values())


def _translations(batch: dict[str, tf.Tensor]) -> Iterator[list[Translation]]:
    """Cuts the padding off a translated batch."""
    batch = {name: value.numpy() for name, value in batch.items()}
    for i, lengths in enumerate(batch["length"]):
        S = batch["source_length"][i]
        source_tokens = [_string(x) for x in batch["source_tokens"][i, :S]]
        yield [
            Translation(
                text=_string(batch["text"][i, n]),
                score=float(batch["score"][i, n]),
                tokens=[_string(x) for x in batch["tokens"][i, n, :T]],
                source_tokens=source_tokens,
                alignment=batch["alignment"][i, n, :T, :S].copy(),
                truncated=bool(batch["truncated"][i]),
                log_probs=batch["log_probs"][i, n, :T].copy(),
            )
            # Places that no hypothesis has taken are left out, but never all.
            for n, T in enumerate(lengths)
            if T or n == 0
        ]


def _string(piece: bytes) -> str:
    # A piece may be a single byte of a letter, which is not UTF-8 on its own.
    return piece.decode("utf-8", errors="replace")


def all_bytes(name: str, texts: Texts) -> list[bytes]:
    """Checks texts and encodes them; a lone surrogate becomes invalid UTF-8.

    Args:
        name: What the user calls them.
        texts: Strings, or bytes in UTF-8.

    Raises:
        TypeError: If it is a single string, or holds something else.
    """
    _check_iterable(name, texts)
    if isinstance(texts, tf.Tensor):
        texts = texts.numpy()
    result = []
    for i, text in enumerate(texts):
        if isinstance(text, str):
            text = text.encode("utf-8", "surrogatepass")
        if not isinstance(text, bytes):
            raise TypeError(
                f"`{name}` must hold str or bytes. Received: {type(text).__name__} "
                f"{text!r} at place {i}."
            )
        result.append(text)
    return result


def _check_iterable(name: str, texts: Any) -> None:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        one = "the single " if isinstance(texts, (str, bytes)) else ""
        raise TypeError(
            f"`{name}` must be a list of strings, or an iterable of them. Received: "
            f"{one}{texts!r:.60}" + ("; write [text]." if one else ".")
        )


def _sides(tokenizers: Any) -> tuple[Tokenizer, Tokenizer]:
    """Returns the source's and the target's tokenizer."""
    if isinstance(tokenizers, (tuple, list)) and len(tokenizers) == 2:
        sides = tuple(tokenizers)
    elif hasattr(tokenizers, "source") and hasattr(tokenizers, "target"):
        sides = tokenizers.source, tokenizers.target
    else:
        sides = tokenizers, tokenizers
    for tokenizer in sides:
        if not all(hasattr(tokenizer, x) for x in ("encode", "decode", "pieces")):
            raise TypeError(
                "`tokenizers` must be a TokenizerPair, a (source, target) tuple of "
                "tokenizers or one tokenizer, with methods `encode`, `decode` and "
                f"`pieces`. Received: {tokenizers!r}"
            )
    return sides


def _check_vocabulary(side: str, tokenizer: Tokenizer, model: StepModel) -> None:
    """Refuses ids that the model does not know: an error deep in the graph."""
    known = vocab_size_of(model, side)
    if known is not None and tokenizer.vocab_size > known:
        raise ValueError(
            f"The {side} tokenizer has {tokenizer.vocab_size} tokens, but the model's "
            f"{side}_vocab_size is {known}; they must have been made for each other."
        )
