"""Text to ids, ids to hypotheses, hypotheses to text.

Shapes: B sentences, S source tokens, T target tokens, end tokens included.
"""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.beam import BeamSearch
from keras_luong.decoding.forced import force
from keras_luong.decoding.generation import SequenceGenerator
from keras_luong.decoding.hypotheses import Hypotheses
from keras_luong.decoding.retraced import retraced
from keras_luong.decoding.special_tokens import SpecialTokens
from keras_luong.decoding.stepping import (
    Search,
    StepModel,
    copies,
    vocab_size_of,
)
from keras_luong.progress import Progress
from keras_luong.special_ids import PAD_ID
from keras_luong.text.tokenizer import Tokenizer
from keras_luong.text.tokenizer_pair import TokenizerPair
from keras_luong.translation.constraints import (
    PhraseLists,
    check_lines,
    phrase_lines,
    read_phrases,
)
from keras_luong.translation.graph import Source, answers, read_text
from keras_luong.translation.translation import Translation

# Of each side that has a limit: the field that says whether it was cut, and the limit.
_CUT = {"texts": "truncated", "targets": "target_truncated"}
_LIMITS = {"texts": "max_source_length", "targets": "max_target_length"}
TEXT = tf.TensorSpec([None], tf.string, name="text")
IDS = tf.TensorSpec([None, None], tf.int32, name="ids")
Texts: TypeAlias = Iterable[str | bytes]


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
    ):
        check_size("max_source_length", max_source_length)
        self.model = model
        self.tokenizers = tokenizers
        self.search = BeamSearch() if search is None else search
        searched, self._n_best = self.search, None
        if isinstance(self.search, BeamSearch):
            searched, self._n_best = self.search.with_spares(), self.search.n_best
        self._generator = SequenceGenerator(model, IDS, searched)
        self.max_source_length = max_source_length
        self.source_tokenizer, self.target_tokenizer = _sides(tokenizers)
        _check_vocabulary("source", self.source_tokenizer, model)
        _check_vocabulary("target", self.target_tokenizer, model)
        _check_ids(self.search)
        if copies(model):
            _check_shared(self.source_tokenizer, self.target_tokenizer)

    @property
    def max_target_length(self) -> int:
        """The most tokens that `score` reads of a target, without the end token."""
        return 2 * self.max_source_length + 10

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
        return Translator(self.model, self.tokenizers, other, max_source_length)

    @retraced(TEXT)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph, as an exported model does.

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

    def find(self, ids: tf.Tensor) -> Hypotheses:
        """Runs the search, in a graph of its own that all methods share.

        Args:
            ids: int32 [B, S], each row ending with an end token, right-padded with
                `PAD_ID`.

        Returns:
            `Hypotheses`; if a `BeamSearch` looks for several, all that its beam has, as
            some of them may have the same text.
        """
        return self._generator(ids)

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
                list of strings; needs a `BeamSearch`. A phrase's words must follow one
                another as they are; one that is given twice must occur twice.

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
                cannot write a phrase.

        Example:
            >>> translator = kl.load("runs/mine")
            >>> found = translator.translate(["the dog"], constraints=[["Hund"]])
            >>> "Hund" in found[0].text.split()
            True
        """
        sides, translate = self._sides_of(texts, prefixes, constraints)
        cut: Counter[str] = Counter()
        found = self._in_batches(translate, sides, batch_size, progress, cut)
        self._warn(cut, len(found))
        return found if n_best else [hypotheses[0] for hypotheses in found]

    def stream(
        self,
        texts: Texts,
        batch_size: int = 32,
        window: int = 1024,
        n_best: bool = False,
        constraints: PhraseLists | None = None,
    ) -> Iterator[Any]:
        """Translates texts as they come, in bounded memory.

        Args:
            texts: Strings, or bytes in UTF-8; any iterable of them, however long.
            batch_size: How many are translated at once.
            window: How many are read ahead and sorted by length. A larger window is
                faster, but the first result comes later.
            n_best: As for `translate`.
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
        sides, translate = self._sides_of(texts, None, constraints)
        found = self._in_windows(translate, sides, batch_size, window)
        yield from found if n_best else (hypotheses[0] for hypotheses in found)

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
        sides, cut = {"texts": texts, "targets": targets}, Counter[str]()
        found = self._in_batches(self.forced, sides, batch_size, progress, cut)
        self._warn(cut, len(found))
        return [hypotheses[0] for hypotheses in found]

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
        sides = {"texts": texts, "targets": targets}
        for hypotheses in self._in_windows(self.forced, sides, batch_size, window):
            yield hypotheses[0]

    def _sides_of(
        self, texts: Texts, prefixes: Texts | None, constraints: PhraseLists | None
    ) -> tuple[dict[str, Texts], Callable[..., dict[str, tf.Tensor]]]:
        """Returns what there is of each text, and what translates batches of it."""
        given = {"prefixes": prefixes} if prefixes is not None else {}
        if constraints is None:
            translate = self._explain_prefixed if given else self.explain
            return {"texts": texts, **given}, translate
        if not isinstance(self.search, BeamSearch):
            raise TypeError(
                "Only a BeamSearch takes constraints: with_search(kl.BeamSearch()) "
                f"returns a translator with one. Received: {self.search!r}"
            )
        lines = phrase_lines(constraints)
        sides = {"texts": texts, "constraints": lines, **given}
        return sides, self._explain_constrained if given else self._explain_unprefixed

    def _in_windows(
        self,
        translate: Callable[..., dict[str, tf.Tensor]],
        sides: Mapping[str, Texts],
        batch_size: int,
        window: int,
    ) -> Iterator[list[Translation]]:
        """Translates so many texts of each side at a time; see `_in_batches`."""
        check_size("window", window)
        for name, texts in sides.items():
            _check_iterable(name, texts)
        rest = {name: iter(texts) for name, texts in sides.items()}
        count, cut = 0, Counter[str]()
        while True:
            some = {name: list(itertools.islice(x, window)) for name, x in rest.items()}
            if not any(some.values()):
                break
            found = self._in_batches(translate, some, batch_size, False, cut)
            count += len(found)
            yield from found
        self._warn(cut, count)

    def _warn(self, cut: Counter[str], count: int) -> None:
        """Warns if texts were cut, naming their limit, or phrases found no room."""
        if unmet := cut.pop("constraints", 0):
            warnings.warn(
                f"{unmet:,} of {count:,} translations lack a phrase of their "
                "constraints, which their `unmet` names: none that has all was found "
                "within the search's maximum length.",
                stacklevel=3,
            )
        for side, number in cut.items():
            limit = _LIMITS[side]
            warnings.warn(
                f"{number:,} of {count:,} {side} have more than {limit}="
                f"{getattr(self, limit)} tokens: only their beginnings were read.",
                stacklevel=3,
            )

    def _in_batches(
        self,
        translate: Callable[..., dict[str, tf.Tensor]],
        sides: Mapping[str, Texts],
        batch_size: int,
        progress: bool,
        cut: Counter[str],
    ) -> list[list[Translation]]:
        """Translates in batches of similar length; keeps the order of the texts.

        Args:
            translate: Maps a batch of each side to `answers`.
            sides: Name → texts, the same number for each name.
            batch_size: As for `translate`.
            progress: As for `translate`.
            cut: Counts the texts of each side that were truncated.
        """
        columns = _columns(sides)
        for name, column in zip(sides, columns, strict=True):
            if name == "constraints":
                check_lines(column, self.target_tokenizer)
        check_size("batch_size", batch_size)
        count = len(columns[0])
        order = sorted(range(count), key=lambda i: [len(x[i]) for x in columns])
        bar = Progress(count, "text") if progress else None
        found: dict[int, list[Translation]] = {}
        for start in range(0, count, batch_size):
            rows = order[start : start + batch_size]
            batch = translate(*(tf.constant([x[i] for i in rows]) for x in columns))
            found.update(zip(rows, _translations(batch), strict=True))
            for side in sides.keys() & _CUT.keys():
                if number := int(tf.math.count_nonzero(batch[_CUT[side]])):
                    cut[side] += number
            cut["constraints"] += sum(bool(found[i][0].unmet) for i in rows)
            if bar:
                bar.add(len(rows))
        return [found[i] for i in range(count)]

    def _read(self, text: tf.Tensor) -> Source:
        return read_text(text, self.source_tokenizer, self.max_source_length)

    @retraced(TEXT)
    def explain(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph; see `keras_luong.translation.graph.answers`.

        Args:
            text: tf.string [B].
        """
        source = self._read(text)
        return self._explained(source, self.find(source.ids), self._n_best)

    @retraced(TEXT, TEXT)
    def _explain_prefixed(
        self, text: tf.Tensor, prefix: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph, with given beginnings of translations."""
        source = self._read(text)
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        search: Any = self._generator.search  # not every search takes prefixes
        found = search(self.model, source.ids, prefix)
        return self._explained(source, found, self._n_best)

    @retraced(TEXT, TEXT, TEXT)
    def _explain_constrained(
        self, text: tf.Tensor, lines: tf.Tensor, prefix: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Translates a batch in the graph, with phrases that it must contain."""
        source = self._read(text)
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        phrases, constraints = read_phrases(lines, self.target_tokenizer)
        search: Any = self._generator.search
        found = search(self.model, source.ids, prefix, constraints)
        fields = self._explained(source, found, self._n_best, constraints)
        return {**fields, "phrases": phrases}

    def _explain_unprefixed(self, text, lines):
        return self._explain_constrained(text, lines, tf.fill(tf.shape(text), ""))

    @retraced(TEXT, TEXT)
    def forced(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores given translations of a batch in the graph, as `score` does.

        Args:
            text: tf.string [B].
            target: tf.string [B].
        """
        source = self._read(text)
        given = read_text(target, self.target_tokenizer, self.max_target_length)
        found = self._explained(source, force(self.model, source.ids, given.ids))
        return {**found, "target_truncated": given.truncated & ~source.empty}

    def _explained(self, source, hypotheses, n_best=None, constraints=None):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return answers(source, hypotheses, *tokenizers, n_best, constraints)


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
    """Yields the hypotheses of each sentence, without padding."""
    batch = {name: value.numpy() for name, value in batch.items()}
    truncated = batch.keys() & {*_CUT.values()}
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
                truncated=any(bool(batch[x][i]) for x in truncated),
                log_probs=batch["log_probs"][i, n, :T].copy(),
                unmet=_unmet(batch, i, n),
            )
            # Empty places are left out, except for the first one.
            for n, T in enumerate(lengths)
            if T or n == 0
        ]


def _unmet(batch: Mapping[str, np.ndarray], i: int, n: int) -> tuple[str, ...]:
    if "unmet" not in batch:
        return ()
    pairs = zip(batch["phrases"][i], batch["unmet"][i, n], strict=True)
    return tuple(_string(phrase) for phrase, lacks in pairs if lacks)


def _string(piece: bytes) -> str:
    # A piece may be one byte of a letter, which is not valid UTF-8.
    return piece.decode("utf-8", errors="replace")


def all_bytes(name: str, texts: Texts) -> list[bytes]:
    """Encodes texts in UTF-8; a lone surrogate becomes invalid UTF-8.

    Args:
        name: Name of the argument, for the error message.
        texts: Strings, or bytes in UTF-8.

    Raises:
        TypeError: If it is a single string, or holds anything but strings.
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


def _check_ids(search: Any) -> None:
    """Raises ValueError if a search has other special ids than the tokenizers."""
    usual = SpecialTokens().special_ids
    if isinstance(search, SpecialTokens) and search.special_ids != usual:
        raise ValueError(
            f"The search must have the tokenizers' ids, {usual}; a model with other "
            f"ids needs kl.generate or kl.SequenceGenerator. Received: {search!r}"
        )


def _check_vocabulary(side: str, tokenizer: Tokenizer, model: StepModel) -> None:
    """Raises ValueError if a tokenizer has ids that the model does not know."""
    known = vocab_size_of(model, side)
    if known is not None and tokenizer.vocab_size > known:
        raise ValueError(
            f"The {side} tokenizer has {tokenizer.vocab_size} tokens, but the model's "
            f"{side}_vocab_size is {known}; they must have been made for each other."
        )


def _check_shared(source: Tokenizer, target: Tokenizer) -> None:
    """Raises ValueError unless an id is the same token in both languages."""
    if not TokenizerPair(source, target).shared:
        raise ValueError(
            "A model with copy=True copies source words by their ids, and needs "
            "tokenizers that share one vocabulary, as of TokenizerPair.train(..., "
            f"shared=True). Received: {source!r} and {target!r}"
        )
