"""The graph around a search: texts to ids before it, hypotheses to answers after it.

`TranslationGraph` has what a translator and its exports run.

Shapes: B sentences, N hypotheses of each, C phrases that must occur, S source tokens, T
target tokens, end tokens included.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.beam import BeamSearch, compiled_search
from keras_luong.decoding.generate import SequenceGenerator, force, retraced
from keras_luong.decoding.lexical import Constraints, Spelling, unmet_by
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    Search,
    StepModel,
    follow,
    token_counts,
)
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from keras_luong.text.batches import ended_rows
from keras_luong.text.terminology import is_word_border
from keras_luong.text.tokenizer import Tokenizer, replace_foreign_ids
from keras_luong.text.words import is_unspaced

IDS = tf.TensorSpec([None, None], tf.int32, name="ids")
TEXT = tf.TensorSpec([None], tf.string, name="text")

# SentencePiece's longest piece: 16 characters of 4 bytes. Texts are cut to the length
# that the tokens can have, as tokenizing alone could take minutes for one request.
BYTES_PER_TOKEN = 64
WHITE_SPACE = r"[\s\x0b\x1c-\x1f\x{85}\p{Z}]*"  # what Python's strip() removes
SEPARATOR = "\t"  # between the phrases of a text
#: Of a text: each is followed in each hypothesis, and may go on with each other.
MOST_PHRASES = 64
TOO_MANY = "There are too many phrases for a text: the most are"


class TranslationGraph:
    """A translator's graphs: strings in, tensors out. Each is traced once.

    Args:
        model: A `StepModel`.
        tokenizers: The tokenizer of the texts, and that of their translations.
        search: The search.
        max_source_length: Most tokens to read of a text, without the end token.
        jit_compile: Whether XLA compiles the search, which no export can have.
    """

    def __init__(
        self,
        model: StepModel,
        tokenizers: tuple[Tokenizer, Tokenizer],
        search: Search,
        max_source_length: int,
        jit_compile: bool = False,
    ):
        self.model = model
        self.source_tokenizer, self.target_tokenizer = tokenizers
        self.max_source_length = max_source_length
        self.max_target_length = 2 * max_source_length + 10
        self._n_best = None
        if isinstance(search, BeamSearch):  # some hypotheses may have the same text
            search, self._n_best = search.with_spares(), search.n_best
        if jit_compile:
            search = functools.partial(compiled_search, search)
        self._search: Any = search
        self._generator = SequenceGenerator(model, IDS, search)

    @retraced(TEXT)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch; see `Translator.serve`."""
        source = self.read(text)
        hypotheses = self.find(source.ids)
        translation = self.target_tokenizer.decode(hypotheses.ids[:, 0])
        return {
            "translation": tf.where(source.empty, "", translation),
            "score": tf.where(source.empty, 0.0, hypotheses.scores[:, 0]),
            "truncated": source.truncated,
        }

    @retraced(TEXT)
    def translate(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Translates a batch; returns what `answers` does.

        Args:
            text: tf.string [B].
        """
        source = self.read(text)
        return self._answers(source, self.find(source.ids), self._n_best)

    @retraced(TEXT, TEXT)
    def translate_from(
        self, text: tf.Tensor, prefix: tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Translates a batch, of which the beginnings of translations are given.

        Args:
            text: tf.string [B].
            prefix: tf.string [B], the beginning of each translation.
        """
        source = self.read(text)
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        hypotheses = self._search(self.model, source.ids, prefix)
        return self._answers(source, hypotheses, self._n_best)

    def translate_with(
        self, text: tf.Tensor, lines: tf.Tensor, prefix: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """Translates a batch, of which phrases are given that must occur.

        Args:
            text: tf.string [B].
            lines: tf.string [B], the phrases of each, with tabs between them.
            prefix: tf.string [B], the beginning of each translation; or None.
        """
        prefix = tf.fill(tf.shape(text), "") if prefix is None else prefix
        return self._translate_with(text, lines, prefix)

    @retraced(TEXT, TEXT, TEXT)
    def _translate_with(self, text, lines, prefix):
        as_many = tf.debugging.assert_equal(
            tf.size(text), tf.size(lines), "There must be one line of phrases a text"
        )
        with tf.control_dependencies([as_many] if as_many is not None else []):
            source = self.read(tf.identity(text))
        prefix = self.target_tokenizer.encode(prefix).to_tensor(PAD_ID)
        phrases, constraints = read_phrases(lines, self.target_tokenizer)
        hypotheses = self._search(self.model, source.ids, prefix, constraints)
        fields = self._answers(source, hypotheses, self._n_best, constraints)
        unknown = (phrases != "") & tf.reduce_all(constraints.ids == PAD_ID, axis=2)
        unmet = fields["unmet"] | unknown[:, None]
        return {**fields, "unmet": unmet, "phrases": phrases}

    @retraced(TEXT, TEXT)
    def score(self, text: tf.Tensor, target: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores given translations of a batch; returns what `answers` does.

        Args:
            text: tf.string [B].
            target: tf.string [B].
        """
        source = self.read(text)
        read = read_text(target, self.target_tokenizer, self.max_target_length)
        fields = self._answers(source, force(self.model, source.ids, read.ids))
        return {**fields, "target_truncated": read.truncated & ~source.empty}

    def read(self, text: tf.Tensor) -> Source:
        """Tokenizes texts, tf.string [B]."""
        return read_text(text, self.source_tokenizer, self.max_source_length)

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

    def _answers(self, source, hypotheses, n_best=None, constraints=None):
        tokenizers = self.source_tokenizer, self.target_tokenizer
        return answers(source, hypotheses, *tokenizers, n_best, constraints)


class Source(NamedTuple):
    """A batch of sentences, ready for a search."""

    ids: tf.Tensor  # int32 [B, S]
    truncated: tf.Tensor  # bool [B]
    empty: tf.Tensor  # bool [B]


def read_text(text: tf.Tensor, tokenizer: Tokenizer, most: int) -> Source:
    """Tokenizes texts; even for an empty one the row has the end token.

    Args:
        text: tf.string [B], any bytes.
        tokenizer: The tokenizer of their language.
        most: Most tokens to read of a text, without the end token.
    """
    text = tf.strings.strip(text)
    cut = tf.strings.length(text) > BYTES_PER_TOKEN * most
    text = tf.strings.substr(text, 0, BYTES_PER_TOKEN * most)
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    source = _source(tokenizer.encode(text), most)
    empty = source.empty | tf.strings.regex_full_match(text, WHITE_SPACE)
    return Source(source.ids, cut | (source.truncated & ~empty), empty)


def read_ids(ids: tf.Tensor, lengths: tf.Tensor, vocab_size: int, most: int) -> Source:
    """Makes a `Source` of ids that were tokenized elsewhere.

    Padding, begin and end ids are removed, an end id is added to each row, and ids
    outside the vocabulary become the unknown id.

    Args:
        ids: int32 [B, S].
        lengths: int32 [B], the number of valid ids in each row.
        vocab_size: The size of the source's vocabulary.
        most: Most tokens to read of a row, without the end token.
    """
    inside = tf.range(tf.shape(ids)[1]) < lengths[:, tf.newaxis]
    words = (ids != PAD_ID) & (ids != BOS_ID) & (ids != EOS_ID)
    rows = tf.ragged.boolean_mask(replace_foreign_ids(ids, vocab_size), inside & words)
    return _source(rows, most)


def _source(ids: tf.RaggedTensor, most: int) -> Source:
    rows, truncated = ended_rows(ids, most)
    # At least one column, as an encoder's loop must run to have known shapes.
    width = tf.maximum(1, tf.cast(rows.bounding_shape(axis=1), tf.int32))
    return Source(
        ids=rows.to_tensor(PAD_ID, shape=tf.stack([-1, width])),
        truncated=truncated,
        empty=rows.row_lengths() == 1,  # the end token alone
    )


def read_phrases(
    lines: tf.Tensor, tokenizer: Tokenizer
) -> tuple[tf.Tensor, Constraints]:
    """Reads the phrases that each text's translation must contain.

    Args:
        lines: tf.string [B], with tabs between the phrases.
        tokenizer: The target language's tokenizer.

    Returns:
        The phrases, tf.string [B, C], padded with "", and the constraints. A phrase of
        which the tokenizer does not know all is none of them.
    """
    phrases = tf.strings.split(lines, SEPARATOR)
    most = tf.reduce_max(tf.concat([phrases.row_lengths(), [0]], 0))
    few = tf.debugging.assert_less_equal(
        most, tf.constant(MOST_PHRASES, tf.int64), f"{TOO_MANY} {MOST_PHRASES}"
    )
    with tf.control_dependencies([few] if few is not None else []):
        phrases = phrases.with_flat_values(tf.strings.strip(phrases.flat_values))
    ids = phrases.with_flat_values(tokenizer.encode(phrases.flat_values))
    ids = ids.to_tensor(PAD_ID)
    is_known = tf.reduce_all(ids != UNK_ID, axis=2, keepdims=True)
    ids = tf.where(is_known, ids, PAD_ID)
    spelling = None
    if (texts := getattr(tokenizer, "texts", None)) is not None:
        spelling = Spelling.of([*texts, texts[UNK_ID]], _is_of_word)
    return phrases.to_tensor(""), Constraints(ids, spelling)


def _is_of_word(character: str) -> bool:
    """Tells whether spaces are written between words of such characters."""
    return not is_word_border(character) and not is_unspaced(character)


def answers(
    source: Source,
    hypotheses: Hypotheses,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    n_best: int | None = None,
    constraints: Constraints | None = None,
) -> dict[str, tf.Tensor]:
    """Returns the fields of a batch's `Translation`s as padded tensors.

    Args:
        source: The sentences that were read.
        hypotheses: The results of a search for them.
        source_tokenizer: The tokenizer that read them.
        target_tokenizer: The tokenizer of the hypotheses.
        n_best: How many of a sentence's hypotheses are kept, no two of them with the
            same text. None keeps all of them as they are.
        constraints: The phrases that they were to contain: "unmet" says which they do
            not. None for none.

    Returns:
        Name → tensor [B, N, ...], or [B, ...] for fields that all hypotheses share. An
        empty sentence has one hypothesis, "" with score 0. Places without a hypothesis
        have the text "", the length 0 and the score -inf.
    """
    empty = source.empty[:, None]
    text = target_tokenizer.decode(hypotheses.ids)
    if n_best is not None:
        hypotheses, text = _distinct(hypotheses, text, n_best)
    first = tf.range(tf.shape(text)[1]) == 0
    fields = {
        "text": tf.where(empty, "", text),
        "score": tf.where(empty, tf.where(first, 0.0, IMPOSSIBLE), hypotheses.scores),
        "tokens": target_tokenizer.pieces(hypotheses.ids),
        "length": tf.where(empty, 0, hypotheses.lengths),
        "source_tokens": source_tokenizer.pieces(source.ids),
        "source_length": tf.where(source.empty, 0, token_counts(source.ids)),
        "alignment": attention_to(source.ids, hypotheses),
        "truncated": source.truncated,
        "log_probs": hypotheses.token_log_probs,
    }
    if constraints is not None:
        ids = tf.where(source.empty[:, None, None], PAD_ID, hypotheses.ids)
        fields["unmet"] = unmet_by(constraints, ids, PAD_ID)
    return fields


def attention_to(source_ids: tf.Tensor, hypotheses: Hypotheses) -> tf.Tensor:
    """Returns the attention [B, N, T, S]; zeros for a model that has none."""
    weights = hypotheses.weights
    if weights.shape[-1] != 0:
        return weights
    size = tf.shape(source_ids)[1]
    return tf.zeros([*tf.unstack(tf.shape(hypotheses.ids)), size])


def _distinct(hypotheses, text, n_best):
    """Keeps the best hypothesis of each text: one text may be segmented in two ways."""
    there = hypotheses.lengths > 0
    same = (text[:, :, None] == text[:, None, :]) & there[:, None, :]
    places = tf.range(tf.shape(text)[1])
    kept = there & ~tf.reduce_any(same & (places[:, None] > places), axis=2)
    # A stable sort: the kept ones come first, in their order.
    places = tf.argsort(tf.cast(~kept, tf.int32), axis=1, stable=True)[:, :n_best]
    hypotheses, text, kept = follow((hypotheses, text, kept), places)
    hypotheses = hypotheses._replace(  # the rest are empty places
        ids=tf.where(kept[:, :, None], hypotheses.ids, PAD_ID),
        lengths=tf.where(kept, hypotheses.lengths, 0),
        scores=tf.where(kept, hypotheses.scores, IMPOSSIBLE),
    )
    return hypotheses, tf.where(kept, text, "")
