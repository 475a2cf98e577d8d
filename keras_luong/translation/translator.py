"""Text to ids, ids to hypotheses, hypotheses to text.

Shapes: `B` sentences, `S` source tokens, `T` target tokens, ends counted.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.forced import force
from keras_luong.decoding.stepping import Hypotheses, StepModel
from keras_luong.special_ids import PAD_ID
from keras_luong.translation.graph import Source, answers, read_text
from keras_luong.translation.translation import Translation, string

TEXT_SIGNATURE = tf.TensorSpec([None], tf.string, name="text")
IDS_SIGNATURE = tf.TensorSpec([None, None], tf.int32, name="ids")


class Translator:
    """A model, its tokenizers and a search: all that it takes to translate strings.

    Any string has an answer. An empty one, or one of nothing but white space, is
    translated by an empty string with score 0. Bytes that are not UTF-8 are read as
    U+FFFD. Of a text with more than `max_source_length` tokens the first so many are
    translated, and the answer says `truncated`.

    Args:
        model: a `StepModel`, such as `Seq2Seq`.
        tokenizers: a `TokenizerPair`, a `(source, target)` tuple, or one tokenizer for
            both languages.
        search: a `BeamSearch`, `GreedySearch`, or whatever maps `(model, source_ids)`
            to `Hypotheses`. Default: `BeamSearch()`.
        max_source_length: int, the tokens that are read of a text, without the end
            token (and at most 64 bytes for each, ASCII white space around the text not
            counted).

    Raises:
        TypeError: if an argument cannot do what it is needed for.
        ValueError: if `max_source_length` is below 1, or the model's vocabularies are
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
        search: Any = None,
        max_source_length: int = 200,
    ):
        check_size("max_source_length", max_source_length)
        self.model = model
        self.tokenizers = tokenizers
        self.search = BeamSearch() if search is None else search
        self.max_source_length = max_source_length
        self.source_tokenizer, self.target_tokenizer = _sides(tokenizers)
        _check_model(model)
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

    @tf.function(input_signature=[TEXT_SIGNATURE], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translate a batch in the graph; an exported model computes just this.

        Args:
            text: tf.string `[B]`.

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

    @tf.function(input_signature=[IDS_SIGNATURE], autograph=False)
    def find(self, ids: tf.Tensor) -> Hypotheses:
        """Search, in a graph of its own, which all that translate have in common.

        Args:
            ids: int32 `[B, S]`, each row with an end and right-padded.

        Returns:
            `Hypotheses`.
        """
        return self.search(self.model, ids)

    def translate(
        self,
        texts: Iterable[str | bytes],
        batch_size: int = 32,
        progress: bool = False,
        n_best: bool = False,
        prefixes: Iterable[str | bytes] | None = None,
    ) -> list[Translation] | list[list[Translation]]:
        """Translate texts, in batches of similar length.

        Args:
            texts: strings, or bytes in UTF-8; a list, or any iterable of them.
            batch_size: int, how many are translated at once.
            progress: whether to show Keras's progress bar.
            n_best: whether to return all hypotheses that the search found for a text,
                the best first, and not only that.
            prefixes: how each translation must begin, "" where that is free; needs a
                search that takes prefixes, such as `BeamSearch`.

        Returns:
            One `Translation` per text, in the order of the texts; with `n_best`, one
            list of them. Warns once if some were truncated.

        Raises:
            TypeError: if `texts` is a single string, or holds something else.
            ValueError: if `batch_size` is below 1, or the prefixes are not as many as
                the texts.
        """
        sides, translate = [all_bytes("texts", texts)], self.explain
        if prefixes is not None:
            sides.append(all_bytes("prefixes", prefixes))
            _check_as_many("prefix", sides)
            translate = self._explain_prefixed
        found = _in_batches(translate, sides, batch_size, progress)
        _warn_of_truncated(found, self.max_source_length)
        return found if n_best else [hypotheses[0] for hypotheses in found]

    def stream(
        self,
        texts: Iterable[str | bytes],
        batch_size: int = 32,
        window: int = 1024,
        n_best: bool = False,
    ) -> Iterator[Translation] | Iterator[list[Translation]]:
        """Translate texts as they come, in bounded memory.

        Args:
            texts: strings, or bytes in UTF-8; any iterable of them, however long.
            batch_size: int, how many are translated at once.
            window: int, how many are read ahead, to be sorted by length: the more, the
                faster, and the later the first answer comes.
            n_best: as for `translate`.

        Yields:
            What `translate` returns, one by one, in the order of the texts.

        Raises:
            TypeError: if `texts` is a single string, or holds something else.
            ValueError: if `batch_size` or `window` is below 1.

        Example:
            >>> with open("in.txt", "rb") as lines:
            ...     for translation in translator.stream(lines):
            ...         print(translation.text)
        """
        check_size("window", window)
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            all_bytes("texts", texts)  # says what is wrong
        texts = iter(texts)
        while some := list(itertools.islice(texts, window)):
            yield from self.translate(some, batch_size, n_best=n_best)

    def score(
        self,
        texts: Iterable[str | bytes],
        targets: Iterable[str | bytes],
        batch_size: int = 32,
        progress: bool = False,
    ) -> list[Translation]:
        """Say how probable given translations are, and which words they attend to.

        Args:
            texts: source texts, as for `translate`.
            targets: a translation of each.
            batch_size: int, how many are read at once.
            progress: whether to show Keras's progress bar.

        Returns:
            One `Translation` per pair: `text` is the target as the tokenizer writes it,
            `score` its log-probability, the end token's included. An empty text has the
            empty translation, score 0, whatever its target. Of a target with more than
            `max_target_length` tokens the first so many are read, and the answer says
            `truncated`.

        Raises:
            TypeError: if either is a single string, or holds something else.
            ValueError: if they differ in number, or `batch_size` is below 1.
        """
        sides = [all_bytes("texts", texts), all_bytes("targets", targets)]
        _check_as_many("target", sides)
        found = _in_batches(self.forced, sides, batch_size, progress)
        _warn_of_truncated(found, self.max_source_length)
        return [hypotheses[0] for hypotheses in found]

    def _read(self, text: tf.Tensor) -> Source:
        return read_text(text, self.source_tokenizer, self.max_source_length)

    @tf.function(input_signature=[TEXT_SIGNATURE], autograph=False)
    def explain(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """What `serve` says, and how the model came to it."""
        source = self._read(text)
        return self._explained(source, self.find(source.ids))

    @tf.function(input_signature=[TEXT_SIGNATURE, TEXT_SIGNATURE], autograph=False)
    def _explain_prefixed(
        self, text: tf.Tensor, prefix: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """The same of translations that begin in a given way."""
        source = self._read(text)
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        return self._explained(source, self.search(self.model, source.ids, prefix))

    @tf.function(input_signature=[TEXT_SIGNATURE, TEXT_SIGNATURE], autograph=False)
    def forced(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """What `score` says of a batch, in the graph."""
        source = self._read(text)
        given = read_text(target, self.target_tokenizer, self.max_target_length)
        source = source._replace(truncated=source.truncated | given.truncated)
        return self._explained(source, force(self.model, source.ids, given.ids))

    def _explained(self, source, hypotheses):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return answers(source, hypotheses, tokenizers)


def _in_batches(
    translate: Callable[..., dict[str, tf.Tensor]],
    sides: list[list[bytes]],
    batch_size: int,
    progress: bool,
) -> list[list[Translation]]:
    """Translates in batches of similar length; the answers in the texts' order."""
    check_size("batch_size", batch_size)
    count = len(sides[0])
    order = sorted(range(count), key=lambda i: [len(side[i]) for side in sides])
    bar = keras.utils.Progbar(count, unit_name="text") if progress else None
    translations = {}
    for start in range(0, count, batch_size):
        rows = order[start : start + batch_size]
        batch = translate(*(tf.constant([side[i] for i in rows]) for side in sides))
        translations.update(zip(rows, _translations(batch), strict=True))
        if bar:
            bar.add(len(rows))
    return [translations[i] for i in range(count)]


def _translations(batch: dict[str, tf.Tensor]) -> Iterator[list[Translation]]:
    """Cut the padding off a translated batch."""
    batch = {name: value.numpy() for name, value in batch.items()}
    for i, lengths in enumerate(batch["length"]):
        S = batch["source_length"][i]
        source_tokens = [string(x) for x in batch["source_tokens"][i, :S]]
        yield [
            Translation(
                text=string(batch["text"][i, n]),
                score=float(batch["score"][i, n]),
                tokens=[string(x) for x in batch["tokens"][i, n, :T]],
                source_tokens=source_tokens,
                alignment=batch["alignment"][i, n, :T, :S].copy(),
                truncated=bool(batch["truncated"][i]),
                log_probs=batch["log_probs"][i, n, :T].copy(),
            )
            # Places that no hypothesis has taken are left out, but never all.
            for n, T in enumerate(lengths)
            if T or n == 0
        ]


def all_bytes(name: str, texts: Iterable[str | bytes]) -> list[bytes]:
    """Check the texts and encode them; a lone surrogate becomes invalid UTF-8.

    Args:
        name: what the user calls them.
        texts: the texts.

    Returns:
        A list of bytes.

    Raises:
        TypeError: if it is a single string, or holds something else.
    """
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        one = "the single " if isinstance(texts, (str, bytes)) else ""
        raise TypeError(
            f"`{name}` must be a list of strings, or an iterable of them. Received: "
            f"{one}{texts!r:.60}" + ("; write [text]." if one else ".")
        )
    if isinstance(texts, tf.Tensor):
        texts = texts.numpy()
    result = []
    for i, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            raise TypeError(
                f"`{name}` must hold str or bytes. Received: {type(text).__name__} "
                f"{text!r} at place {i}."
            )
        is_str = isinstance(text, str)
        result.append(text.encode("utf-8", "surrogatepass") if is_str else text)
    return result


def _check_as_many(what: str, sides: list[list[bytes]]) -> None:
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"There must be a {what} for each text. Received: {len(sides[0])} texts "
            f"and {len(sides[1])} of the other"
        )


def _warn_of_truncated(found: list[list[Translation]], max_source_length: int) -> None:
    count = sum(hypotheses[0].truncated for hypotheses in found)
    if count:
        warnings.warn(
            f"{count} of {len(found)} texts have more than "
            f"max_source_length={max_source_length} tokens: only their beginnings "
            "were read (those marked `truncated`).",
            stacklevel=3,
        )


def _sides(tokenizers: Any) -> tuple[Any, Any]:
    """The source's and the target's tokenizer."""
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


def _check_model(model: Any) -> None:
    if not all(callable(getattr(model, name, None)) for name in ("encode", "step")):
        raise TypeError(
            "`model` must have methods `encode` and `step`, such as Seq2Seq. Received: "
            f"{model!r}."
        )


def _check_vocabulary(side: str, tokenizer: Any, model: Any) -> None:
    """An id that the other side does not know would be an error deep in the graph."""
    known = getattr(getattr(model, "config", None), f"{side}_vocab_size", None)
    if known is not None and tokenizer.vocab_size > known:
        raise ValueError(
            f"The {side} tokenizer has {tokenizer.vocab_size} tokens, but the model's "
            f"{side}_vocab_size is {known}; they must have been made for each other."
        )
