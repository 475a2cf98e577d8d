"""`Translator`: text in, text out, in batches of any number of texts.

What it runs in a graph is its `TranslationGraph`.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.step_model import (
    Search,
    SpecialTokens,
    StepModel,
    copies,
    vocab_size_of,
)
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.batching import (
    PhraseLists,
    Texts,
    Translation,
    in_batches,
    phrase_lines,
)
from keras_luong.translation.graph import TranslationGraph


class Translator:
    """A model with tokenizers and a search, which translates strings.

    Any string can be translated. The translation of an empty string, or of white space,
    is an empty string with score 0. Bytes that are not UTF-8 are read as U+FFFD. Of a
    text with more than `max_source_length` tokens only the first ones are translated,
    and the result is marked `truncated`.

    Args:
        model: A `StepModel`, such as `Seq2Seq`.
        tokenizers: A `TokenizerPair`, a `(source, target)` tuple, or one tokenizer for
            both languages.
        search: A `BeamSearch`, `GreedySearch`, `RandomSampling`, or anything else that
            maps `(model, source)` to `Hypotheses`. Default: `BeamSearch()`.
        max_source_length: Most tokens to read of a text, without the end token. (At
            most 64 bytes are read for each token; ASCII white space around the text
            does not count.)
        jit_compile: Whether XLA compiles the search, which takes seconds for each of a
            few shapes of batches. (It compiles no `RandomSampling`, shortlist or
            constraints.) None for on a GPU, after the first 1,000 texts, and only
            where XLA can.

    Raises:
        TypeError: If an argument lacks the methods that are needed.
        ValueError: If `max_source_length` is below 1, or a tokenizer's vocabulary is
            larger than the model's, or the search has other special ids; or the model
            copies source words, and the tokenizers do not share one vocabulary.

    Example:
        >>> english, german = kl.WordTokenizer(["dog"]), kl.WordTokenizer(["Hund"])
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(5, 5, units=4))
        >>> search = kl.BeamSearch(2, max_length=4)
        >>> translator = kl.Translator(model, (english, german), search)
        >>> len(translator.translate(["dog", "dog dog"]))
        2
    """

    def __init__(
        self,
        model: StepModel,
        tokenizers: Any,
        search: Search | None = None,
        max_source_length: int = 200,
        jit_compile: bool | None = None,
    ):
        check_size("max_source_length", max_source_length)
        self.jit_compile = jit_compile
        self._translated = 0  # texts
        self.model = model
        self.tokenizers = tokenizers
        self.search: Any = BeamSearch() if search is None else search
        self.max_source_length = max_source_length
        pair = self.source_tokenizer, self.target_tokenizer = _sides(tokenizers)
        self.graph = TranslationGraph(model, pair, self.search, max_source_length)
        sides = {"source": self.source_tokenizer, "target": self.target_tokenizer}
        for side, tokenizer in sides.items():
            size = vocab_size_of(model, side)
            if size is not None and tokenizer.vocab_size > size:
                raise ValueError(
                    f"The {side} tokenizer has {tokenizer.vocab_size} tokens, but the "
                    f"model's {side}_vocab_size is {size}; they must have been made "
                    "for each other."
                )
        usual = SpecialTokens().special_ids
        if getattr(self.search, "special_ids", usual) != usual:
            raise ValueError(
                f"The search must have the tokenizers' ids, {usual}; a model with "
                "other ids needs kl.generate or kl.SequenceGenerator. Received: "
                f"{self.search!r}"
            )
        if copies(model) and not TokenizerPair(*sides.values()).shared:
            raise ValueError(
                "A model with copy=True copies source words by their ids, and needs "
                "tokenizers that share one vocabulary, as of TokenizerPair.train(..., "
                "shared=True). Received: {source!r} and {target!r}".format(**sides)
            )

    def with_search(
        self,
        search: Search | None = None,
        *,
        max_source_length: int | None = None,
        **changes: Any,
    ) -> Translator:
        """Returns a translator with another search; this one does not change.

        Both share the model and the tokenizers.

        Args:
            search: Another search. Default: this translator's.
            max_source_length: Another limit. Default: this translator's.
            **changes: Fields of the search that differ, as for `dataclasses.replace`.

        Raises:
            TypeError: If the search is not a dataclass, or has no such field.
            ValueError: If a field cannot have that value.

        Example:
            >>> translator = kl.load("runs/mine")
            >>> wide = translator.with_search(beam_width=10, n_best=10)
            >>> random = translator.with_search(kl.RandomSampling(top_p=0.9, seed=1))
            >>> short = translator.with_search(max_source_length=50)
            >>> wide.search.n_best, short.max_source_length
            (10, 50)
        """
        other: Any = self.search if search is None else search
        if changes:
            other = dataclasses.replace(other, **changes)
        if max_source_length is None:
            max_source_length = self.max_source_length
        rest = max_source_length, self.jit_compile
        return Translator(self.model, self.tokenizers, other, *rest)

    def translate(
        self,
        texts: Texts,
        batch_size: int = 32,
        progress: bool = False,
        n_best: bool = False,
        prefixes: Texts | None = None,
        constraints: PhraseLists | None = None,
    ) -> list[Any]:
        """Translates texts, in batches of similar length.

        Args:
            texts: Strings, or bytes in UTF-8; a list, or any iterable of them.
            batch_size: How many are translated at once.
            progress: Whether to show a progress bar on standard error; if that is not
                a terminal, a line now and then.
            n_best: Whether to return all hypotheses that the search found for a text,
                the best first, instead of the best one only. Those of a `BeamSearch`
                have different texts.
            prefixes: The beginning of each translation, "" for any; needs a search that
                takes prefixes, such as `BeamSearch`.
            constraints: For each text, the phrases that its translation must contain, a
                list of strings; needs a `BeamSearch`. The translation's text must have
                a phrase as whole words; one that is given twice must be there twice.

        Returns:
            One `Translation` per text, in the order of the texts; with `n_best`, one
            list of them per text. Warns once if some texts were truncated, or phrases
            found no room within the maximum length: the translation's `unmet` names
            them.

        Raises:
            TypeError: If `texts` is a single string, or holds anything but strings, or
                the search takes no constraints.
            ValueError: If `batch_size` is below 1, or the number of prefixes or of
                lists of phrases is not that of the texts; or if the target tokenizer
                cannot write a phrase or a prefix.

        Example:
            >>> translator = kl.load("runs/mine")
            >>> found = translator.translate(["the dog"], constraints=[["Hund"]])
            >>> "Hund" in found[0].text.split()
            True
        """
        answer, sides = self._sides_of(texts, prefixes, constraints)
        results = [*in_batches(self, answer, sides, batch_size, progress=progress)]
        return results if n_best else [hypotheses[0] for hypotheses in results]

    def stream(
        self,
        texts: Texts,
        batch_size: int = 32,
        window: int = 1024,
        n_best: bool = False,
        prefixes: Texts | None = None,
        constraints: PhraseLists | None = None,
    ) -> Iterator[Any]:
        """Translates texts as they come, in bounded memory.

        Args:
            texts: Strings, or bytes in UTF-8; any iterable of them, however long.
            batch_size: How many are translated at once.
            window: How many are read ahead and sorted by length. A larger window is
                faster, but the first result comes later.
            n_best: As for `translate`.
            prefixes: As for `translate`; any iterable of them, however long.
            constraints: As for `translate`; any iterable of lists, however long.

        Yields:
            The results of `translate`, one by one, in the order of the texts. Warns at
            the end, once, if some texts were truncated.

        Raises:
            TypeError: If `texts` is a single string, or holds anything but strings, or
                the search takes no constraints.
            ValueError: If `batch_size` or `window` is below 1, or the constraints are
                not as `translate` needs them.

        Example:
            >>> translator = kl.load("runs/mine")
            >>> with open("my/corpus/test.en", "rb") as lines:
            ...     for translation in translator.stream(lines):
            ...         print(type(translation.text))
            <class 'str'>
        """
        check_size("window", window)
        answer, sides = self._sides_of(texts, prefixes, constraints)
        for hypotheses in in_batches(self, answer, sides, batch_size, window):
            yield hypotheses if n_best else hypotheses[0]

    @property
    def max_target_length(self) -> int:
        """The most tokens that `score` reads of a target, without the end token."""
        return self.graph.max_target_length

    def score(
        self,
        texts: Texts,
        targets: Texts,
        batch_size: int = 32,
        progress: bool = False,
    ) -> list[Translation]:
        """Computes how probable given translations are, and their alignments.

        Args:
            texts: Source texts, as for `translate`.
            targets: A translation of each text.
            batch_size: How many pairs are scored at once.
            progress: Whether to show a progress bar on standard error; if that is not
                a terminal, a line now and then.

        Returns:
            One `Translation` per pair: `text` is the target as the tokenizer decodes
            it, `score` its log-probability, that of the end token included. For an
            empty text it is the empty translation with score 0, whatever the target. Of
            a target with more than `max_target_length` tokens only the first ones are
            read, and the result is marked `truncated`.

        Raises:
            TypeError: If either is a single string, or holds anything but strings.
            ValueError: If they differ in number, or `batch_size` is below 1.
        """
        sides = {"texts": texts, "targets": targets}
        score = self.graph.score
        found = in_batches(self, score, sides, batch_size, progress=progress)
        return [hypotheses[0] for hypotheses in list(found)]

    def score_stream(
        self, texts: Texts, targets: Texts, batch_size: int = 32, window: int = 1024
    ) -> Iterator[Translation]:
        """Scores translations as they come, in bounded memory.

        Args:
            texts: Source texts, in any number.
            targets: A translation of each text.
            batch_size: How many pairs are scored at once.
            window: As for `stream`.

        Yields:
            The results of `score`, one by one, in the order of the texts. Warns at the
            end, once, if some texts were truncated.

        Raises:
            TypeError: If either is a single string, or holds anything but strings.
            ValueError: If they differ in number, or a size is below 1.
        """
        check_size("window", window)
        sides = {"texts": texts, "targets": targets}
        for hypotheses in in_batches(self, self.graph.score, sides, batch_size, window):
            yield hypotheses[0]

    def _sides_of(
        self, texts: Texts, prefixes: Texts | None, constraints: PhraseLists | None
    ) -> tuple[Callable[..., dict[str, tf.Tensor]], dict[str, Texts]]:
        """Returns the function that translates a batch, and its inputs, by text."""
        sides: dict[str, Texts] = {"texts": texts}
        if constraints is not None:
            if not isinstance(self.search, BeamSearch):
                raise TypeError(
                    "Only a BeamSearch takes constraints: with_search(kl.BeamSearch()) "
                    f"returns a translator with one. Received: {self.search!r}"
                )
            sides["constraints"] = phrase_lines(constraints)
        if prefixes is not None:
            sides["prefixes"] = prefixes
        answers: dict[str, Any] = {
            "texts": functools.partial(self._answer, "translate"),
            "texts, prefixes": functools.partial(self._answer, "translate_from"),
            "texts, constraints": self.graph.translate_with,
            "texts, constraints, prefixes": self.graph.translate_with,
        }
        return answers[", ".join(sides)], sides

    def _answer(self, method: str, *batch: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch by a method of the graph, compiled or as it is."""
        compiles = self.jit_compile
        if compiles is None:
            compiles = pays_to_compile(self._translated)
        self._translated += len(batch[0])
        if compiles:
            try:
                return getattr(self._compiled_graph, method)(*batch)
            except (tf.errors.OpError, TypeError, ValueError) as error:
                if self.jit_compile:
                    raise
                self.jit_compile = False  # XLA lacks an operation, or memory
                warnings.warn(f"Searching without XLA: {error}"[:200], stacklevel=2)
        return getattr(self.graph, method)(*batch)

    @functools.cached_property
    def _compiled_graph(self) -> TranslationGraph:
        """As `graph`, which exports have, but compiled by XLA."""
        pair = self.source_tokenizer, self.target_tokenizer
        options = self.search, self.max_source_length, True
        return TranslationGraph(self.model, pair, *options)

    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch in a graph, as an exported model does.

        Args:
            text: tf.string [B].

        Returns:
            `{"translation": string [B], "score": float32 [B], "truncated": bool [B]}`.
        """
        return self.graph.serve(text)


def pays_to_compile(translated: int) -> bool:
    """Whether XLA compiles a search by default: on a GPU, after 1,000 texts.

    Args:
        translated: How many texts were translated without it: a few more would not
            make up for the time that XLA takes.
    """
    return translated >= 1000 and bool(tf.config.list_logical_devices("GPU"))


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
