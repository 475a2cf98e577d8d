"""What a translator and its exports compute in the graph, before and after a search.

Shapes: `B` sentences, `N` hypotheses of each, `S` source tokens, `T` target tokens,
ends counted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.stepping import Hypotheses
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID
from keras_luong.text.batches import ended_rows
from keras_luong.text.tokenizer import Tokenizer, known
from keras_luong.translation.translation import most_bytes

WHITE_SPACE = r"[\s\x0b\x1c-\x1f\x{85}\p{Z}]*"  # what Python's strip() takes away


class Source(NamedTuple):
    """A batch of sentences, ready to be searched."""

    ids: tf.Tensor  # int32 [B, S]
    truncated: tf.Tensor  # bool [B]
    empty: tf.Tensor  # bool [B]


def read_text(text: tf.Tensor, tokenizer: Tokenizer, most: int) -> Source:
    """Tokenize; whatever the text, each row has at least the end token.

    Args:
        text: tf.string `[B]`, of any bytes.
        tokenizer: of its language.
        most: int, the tokens that are read of a text, without the end token.

    Returns:
        `Source`.
    """
    text = tf.strings.strip(text)
    cut = tf.strings.length(text) > most_bytes(most)
    text = tf.strings.substr(text, 0, most_bytes(most))
    text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
    source = _source(tokenizer.encode(text), most)
    empty = source.empty | tf.strings.regex_full_match(text, WHITE_SPACE)
    return Source(source.ids, cut | (source.truncated & ~empty), empty)


def read_ids(ids: tf.Tensor, lengths: tf.Tensor, vocab_size: int, most: int) -> Source:
    """Read what was tokenized elsewhere; whatever it is, it becomes rows as of a text.

    Padding, begin and end ids are left out, one end added, and ids outside of the
    vocabulary become unknown ones.

    Args:
        ids: int32 `[B, S]`.
        lengths: int32 `[B]`, the ids of each row that count.
        vocab_size: int.
        most: int, the tokens that are read of a row, without the end token.

    Returns:
        `Source`.
    """
    inside = tf.range(tf.shape(ids)[1]) < lengths[:, tf.newaxis]
    words = (ids != PAD_ID) & (ids != BOS_ID) & (ids != EOS_ID)
    rows = tf.ragged.boolean_mask(known(ids, vocab_size), inside & words)
    return _source(rows, most)


def _source(ids: tf.RaggedTensor, most: int) -> Source:
    rows, truncated = ended_rows(ids, most)
    # One column even without a row: an encoder's loop must run to know its shapes.
    width = tf.maximum(1, tf.cast(rows.bounding_shape(axis=1), tf.int32))
    return Source(
        ids=rows.to_tensor(PAD_ID, shape=tf.stack([-1, width])),
        truncated=truncated,
        empty=rows.row_lengths() == 1,  # the end token alone
    )


def answers(
    source: Source, hypotheses: Hypotheses, tokenizers: tuple[Any, Any]
) -> dict[str, tf.Tensor]:
    """All of a batch's `Translation`s, still padded.

    Args:
        source: `Source`.
        hypotheses: what a search found for it.
        tokenizers: the source's and the target's.

    Returns:
        Name → tensor `[B, N, ...]`, or `[B, ...]` of what all hypotheses share.
    """
    of_source, of_target = tokenizers
    read = tf.math.count_nonzero(source.ids != PAD_ID, axis=1, dtype=tf.int32)
    empty = source.empty[:, None]
    text = of_target.decode(hypotheses.ids)
    return {
        "text": tf.where(empty, "", text),
        "score": tf.where(empty, 0.0, hypotheses.scores),
        "tokens": of_target.pieces(hypotheses.ids),
        "length": tf.where(empty, 0, hypotheses.lengths),
        "source_tokens": of_source.pieces(source.ids),
        "source_length": tf.where(source.empty, 0, read),
        "alignment": hypotheses.weights,
        "truncated": source.truncated,
        "log_probs": hypotheses.token_log_probs,
    }
