"""Lexical constraints: phrases that must occur in a hypothesis.

The search shares its beam among hypotheses that have met more and fewer of them, which
is dynamic beam allocation (Post & Vilar 2018, arXiv:1804.06609): without it, those that
take up a phrase would at once lose their place to more probable ones. The phrases are
followed all at a time, by the shift-and method: for every beginning of every phrase a
hypothesis has a bit that says whether it ends with it.

Shapes: B sentences, A of them undecided, K beams, M candidates to be one, C phrases of
a sentence, L tokens of the longest of them, V vocabulary, N hypotheses, T their length.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from keras_luong.decoding.extensions import summed
from keras_luong.decoding.hypotheses import IMPOSSIBLE
from keras_luong.decoding.sources import Source, known_count_of
from keras_luong.decoding.stepping import follow

_LAST = 2**30  # behind all others


class Constraints(NamedTuple):
    """The phrases that the hypotheses of each sentence must contain.

    A phrase occurs where its tokens follow one another. Phrases may overlap; one that
    is given twice must occur twice.

    Attributes:
        ids: int32 [B, C, L], each phrase right-padded with the search's `pad_id`;
            padding alone is no phrase.
        inner: bool [V], the tokens that go on with a word: where one of them follows, a
            phrase has not occurred, as its last word is another. None if every token
            begins a word.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> must = kl.decoding.Constraints(np.array([[[5, 6], [8, 0]]]))
        >>> search = kl.BeamSearch(4, max_length=6)
        >>> found = search(model, np.array([[4, 5, 3]]), constraints=must)
        >>> {5, 6, 8} <= {*found.ids[0, 0].numpy()}
        True
    """

    ids: Any
    inner: Any = None


class Phrases(NamedTuple):
    """Constraints as a search follows them."""

    ids: tf.Tensor  # [A, C, L]
    lengths: tf.Tensor  # [A, C]
    earlier: tf.Tensor  # [A, C] how many equal ones come before; -1 if it is no phrase


class Progress(NamedTuple):
    """How far hypotheses have come with each phrase."""

    matching: tf.Tensor  # bool [A, K, C, L] the last j + 1 tokens are its first ones
    counts: tf.Tensor  # int32 [A, K, C] how often it has occurred before the last token


def phrases_of(
    constraints: Constraints | None, source: Source, pad_id: int
) -> tuple[list[Phrases], Any]:
    """Returns constraints as a search follows them.

    Args:
        constraints: Constraints, or None.
        source: The source that they are for.
        pad_id: The id of padding.

    Returns:
        Their phrases, in a list that is empty if there are no constraints; and `inner`.

    Raises:
        ValueError: If the constraints have another shape than they should.
    """
    if constraints is None:
        return [], None
    ids = tf.cast(tf.convert_to_tensor(constraints.ids), tf.int32)
    count = known_count_of(source)
    like = tf.TensorShape([count, None, None])
    if ids.shape.rank is None or not like.is_compatible_with(ids.shape):
        raise ValueError(
            "The constraints must have a row of phrases for each of the sentences, "
            f"[B, C, L] in all. Received: {ids.shape} for B={count}"
        )
    lengths = tf.math.count_nonzero(ids != pad_id, axis=2, dtype=tf.int32)
    same = tf.reduce_all(ids[:, :, None] == ids[:, None], axis=3)
    earlier = tf.where(lengths == 0, -1, _count_before(same))
    return [Phrases(ids, lengths, earlier)], constraints.inner


def tokens_of(phrases: Phrases) -> tf.Tensor:
    """Returns the tokens of each sentence's phrases, int32 [B, C * L]."""
    B, C, L = tf.unstack(tf.shape(phrases.ids))
    return tf.reshape(phrases.ids, [B, C * L])


def _count_before(same):
    """Counts in each row of [B, M, M] what is true before the diagonal."""
    return tf.reduce_sum(tf.linalg.band_part(tf.cast(same, tf.int32), -1, 0), 2) - 1


def start(phrases: Phrases, width: int | tf.Tensor) -> Progress:
    """Returns the progress of hypotheses without tokens, `width` of a sentence."""
    B, C, L = tf.unstack(tf.shape(phrases.ids))
    return Progress(tf.fill([B, width, C, L], False), tf.zeros([B, width, C], tf.int32))


def advance(
    phrases: Phrases, progress: Progress, tokens: tf.Tensor, inner: Any
) -> Progress:
    """Returns the progress after one more token of each hypothesis.

    Args:
        phrases: The phrases.
        progress: The progress before.
        tokens: int32 [A, K].
        inner: As of `Constraints`.
    """
    over = _at_end(phrases, progress)
    if inner is not None:
        over &= ~tf.gather(inner, tokens)[..., None]
    counts = progress.counts + tf.cast(over, tf.int32)
    matching = progress.matching
    before = tf.concat([tf.ones_like(matching[..., :1]), matching[..., :-1]], axis=3)
    return Progress(before & (phrases.ids[:, None] == tokens[..., None, None]), counts)


def _at_end(phrases, progress):
    """Tells whether each phrase's last token is the last token, bool [A, K, C]."""
    last = _positions(phrases) == phrases.lengths[..., None] - 1
    return tf.reduce_any(progress.matching & last[:, None], axis=3)


def _positions(phrases):
    return tf.range(tf.shape(phrases.ids)[2])


def unmet(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns which phrases a hypothesis would lack if it ended now, bool [A, K, C]."""
    counts = progress.counts + tf.cast(_at_end(phrases, progress), tf.int32)
    return counts <= phrases.earlier[:, None]


def unmet_by(constraints: Constraints, ids: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Returns which phrases whole hypotheses lack, bool [B, N, C].

    Args:
        constraints: The constraints.
        ids: int32 [B, N, T], padded behind the end.
        pad_id: The id of padding.
    """
    (phrases,), inner = phrases_of(constraints, ids, pad_id)
    end = tf.foldl(
        lambda now, tokens: advance(phrases, now, tokens, inner),
        tf.transpose(ids, [2, 0, 1]),
        start(phrases, tf.shape(ids)[1]),
    )
    return unmet(phrases, end)


def _plans(phrases, progress, inner):
    """Finds how each hypothesis comes nearer to what it lacks.

    Where it goes on with a phrase within a word, another one that seemed to be met may
    turn out to be the beginning of a longer word. If more is lost than won by that, the
    phrase is better begun anew.

    Returns:
        The next token of each phrase [A, K, C], of use where it is not met; and the
        bank of each hypothesis [A, K]: how many tokens of phrases it has met. A step
        with the best next token always leads to a higher one, until all are met.
    """
    lacks, places = unmet(phrases, progress), _positions(phrases)
    begun = progress.matching & (places < phrases.lengths[..., None] - 1)[:, None]
    reached = tf.reduce_max(tf.where(begun, places + 1, 0), axis=3)
    reached = tf.maximum(reached, 0)  # of no tokens at all the maximum is -2^31
    following = _token_at(phrases, reached)
    met = kept = _lengths_of(phrases, ~lacks)
    if inner is not None:
        sure = _lengths_of(phrases, progress.counts > phrases.earlier[:, None])
        kept = tf.where(tf.gather(inner, following), sure, met)
    going_on = kept + reached
    first = _token_at(phrases, tf.zeros_like(reached))
    banks = tf.concat([met, tf.where(lacks, going_on, 0)], axis=2)
    return tf.where(going_on < met, first, following), tf.reduce_max(banks, axis=2)


def _token_at(phrases, places):
    """Returns the tokens of phrases at places [A, K, C]."""
    here = _positions(phrases) == places[..., None]
    return tf.reduce_sum(tf.where(here, phrases.ids[:, None], 0), axis=3)


def _lengths_of(phrases, chosen):
    """Returns how many tokens the chosen phrases [A, K, C] have, [A, K, 1]."""
    lengths = tf.where(chosen, phrases.lengths[:, None], 0)
    return tf.reduce_sum(lengths, axis=2, keepdims=True)


def allocated(
    best: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    logits: tf.Tensor,
    offsets: tf.Tensor,
    phrases: Phrases,
    progress: Progress,
    inner: Any,
    ids: tf.Tensor | None = None,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Shares the beam among extensions that have met more and fewer of the phrases.

    The candidates are the best extensions of all, the best one of each hypothesis, and
    each hypothesis's next tokens of the phrases that it lacks. Those that have met as
    many tokens of phrases are a bank. The best of each bank come first, most tokens
    first, then the second best of each, and so on: so what a bank does not need is
    given to the others. One bank alone keeps the best extensions as they are.

    Args:
        best: Log-probabilities, beams before and last tokens [A, K] of the best.
        logits: float32 [A, K, V], or [A, K, M] of the shortlisted words; -inf for what
            is forbidden.
        offsets: float32 [A, K, 1], what to add to them.
        phrases: The phrases.
        progress: The hypotheses' progress before this step.
        inner: As of `Constraints`.
        ids: int32 [M], the shortlisted words in ascending order, or None.

    Returns:
        The same as `best`, of those that are kept.
    """
    more = _more(logits, offsets, phrases, progress, inner, ids)
    pairs = zip(best, more, strict=True)
    log_probs, parents, tokens = (tf.concat(pair, axis=1) for pair in pairs)
    log_probs = tf.where(_repeated(log_probs, parents, tokens), IMPOSSIBLE, log_probs)
    after = advance(phrases, follow(progress, parents), tokens, inner)
    _, banks = _plans(phrases, after, inner)
    chosen = _in_turns(log_probs, banks, best[0].shape[1])
    return follow((log_probs, parents, tokens), chosen)


def _more(logits, offsets, phrases, progress, inner, ids):
    """Returns the candidates of every single hypothesis, [A, K * (C + 1)]."""
    lacks = unmet(phrases, progress)
    tokens, _ = _plans(phrases, progress, inner)
    columns = tokens if ids is None else _columns(ids, tokens)
    own = _own_best(logits, lacks, phrases, progress, inner, ids)[..., None]
    gained = tf.gather(logits, tf.concat([columns, own], 2), batch_dims=2)
    log_probs = summed(gained, offsets)
    wanted = tf.concat([lacks, tf.ones_like(own, tf.bool)], axis=2)
    log_probs = tf.where(wanted, log_probs, IMPOSSIBLE)
    own = own if ids is None else tf.gather(ids, own)
    tokens = tf.concat([tokens, own], axis=2)
    parents = tf.range(tf.shape(tokens)[1])[:, None] + tf.zeros_like(tokens)
    rows = tf.shape(tokens)[0]
    return tuple(tf.reshape(x, [rows, -1]) for x in (log_probs, parents, tokens))


def _columns(ids, tokens):
    """Returns the places of tokens among the shortlisted words."""
    places = tf.searchsorted(ids, tf.reshape(tokens, [-1]))
    # What is on no list is padding.
    return tf.reshape(tf.minimum(places, tf.size(ids) - 1), tf.shape(tokens))


def _own_best(logits, lacks, phrases, progress, inner, ids):
    """Returns the best column of each hypothesis that loses nothing of what is met."""
    if inner is not None:
        sure = progress.counts > phrases.earlier[:, None]
        at_risk = tf.reduce_any(~lacks & ~sure, axis=2, keepdims=True)
        inner = inner if ids is None else tf.gather(inner, ids)
        logits = tf.where(at_risk & inner, IMPOSSIBLE, logits)
    return tf.argmax(logits, axis=2, output_type=tf.int32)


def _repeated(log_probs, parents, tokens):
    """Tells which candidates [A, M] are the same as an earlier possible one."""
    same = (log_probs > IMPOSSIBLE)[:, None]
    same &= parents[:, :, None] == parents[:, None, :]
    same &= tokens[:, :, None] == tokens[:, None, :]
    return _count_before(same) > 0


def _in_turns(log_probs, banks, width):
    """Returns the places [A, K] of the best of each bank, then the second best, ..."""
    # Of equal ones the earlier stays before the later.
    log_probs, order = tf.math.top_k(log_probs, tf.shape(log_probs)[1])
    banks = tf.gather(banks, order, batch_dims=1)
    turns = _count_before(banks[:, :, None] == banks[:, None, :])
    most = tf.reduce_max(banks) + 1
    places = turns * most - banks
    places = tf.where(log_probs > IMPOSSIBLE, places, _LAST)
    first = tf.math.top_k(-places, width).indices
    return tf.gather(order, first, batch_dims=1)


def nearest(log_probs: tf.Tensor, lacks: tf.Tensor, found: tf.Tensor) -> tf.Tensor:
    """Leaves the hypotheses that lack the fewest phrases.

    Args:
        log_probs: float32 [A, K], of hypotheses at the maximum length.
        lacks: bool [A, K, C], the phrases that they lack.
        found: bool [A, 1], whether a finished hypothesis has all.

    Returns:
        The log-probabilities, -inf for the others.
    """
    counts = tf.math.count_nonzero(lacks, axis=2, dtype=tf.int32)
    counts = tf.where(log_probs > IMPOSSIBLE, counts, _LAST)
    fewest = tf.reduce_min(counts, axis=1, keepdims=True)
    return tf.where(counts == tf.where(found, 0, fewest), log_probs, IMPOSSIBLE)
