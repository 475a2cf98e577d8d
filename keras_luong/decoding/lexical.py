"""Lexical constraints: phrases that must occur in a hypothesis.

A phrase is met where the text of the hypothesis has it as whole words, whatever tokens
wrote it. Without constraints the search may find just that, and then nothing is to be
done: `BeamSearch` looks for phrases only where its free result lacks one. There it
shares its beam among hypotheses that have met more and fewer of them, which is dynamic
beam allocation (Post & Vilar 2018, arXiv:1804.06609): without it, those that take up a
phrase would at once lose their place to more probable ones.

The text of a hypothesis is followed as codes, one for each character: four times its
code point, plus 1 if it is a letter or digit, of which words are made, plus 2 if it is
an accent or vowel sign of the character before. 0 is no character.

All phrases are followed at a time, by the shift-and method: for each beginning of each
phrase a hypothesis has a bit that says whether its text ends with it.

`phrases_of` reads the constraints, `advance` follows hypotheses by one token, `unmet`
tells what they lack, and `allocate` shares the beam among them.

Shapes: B sentences, A of them undecided, K beams, M candidates to be one, C phrases of
a sentence, P tokens of the longest of them and L its characters, R characters of the
longest token, V vocabulary, N hypotheses, T their length.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_luong.decoding.constraints import add_offsets
from keras_luong.decoding.search_state import pad_to
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    Source,
    follow,
    known_count_of,
    where,
)

_LAST = 2**30  # behind all others
_SPACE = 4 * ord(" ")


class Spelling(NamedTuple):
    """What each token writes, by which hypotheses are read as text.

    The last token stands for all ids behind it, which a model may have too.

    Attributes:
        codes: int32, the codes of all tokens' characters, token after token.
        starts: int32 [V + 1], where those of each token begin; the last one is the end.
        bare: int32 [V], the token that writes the same without the space in front; the
            token itself if there is none.
    """

    codes: np.ndarray
    starts: np.ndarray
    bare: np.ndarray

    @classmethod
    def of(cls, texts: Sequence[str], is_of_word: Callable[[str], bool]) -> Spelling:
        """Makes it of what each token writes.

        Args:
            texts: The text of each token [V], "" if it writes none.
            is_of_word: Tells whether words are made of a character, so that a phrase
                that ends there has not ended if another such character follows.
        """
        code = {
            x: 4 * ord(x) + is_of_word(x) + 2 * unicodedata.category(x).startswith("M")
            for x in set().union(*texts)
        }
        ids = {text: i for i, text in enumerate(texts) if text}
        bare = [
            ids.get(text[1:], i) if text.startswith(" ") else i
            for i, text in enumerate(texts)
        ]
        return cls(
            np.array([code[x] for text in texts for x in text], "int32"),
            np.cumsum([0, *map(len, texts)]).astype("int32"),
            np.array(bare, "int32"),
        )

    def rows(self, tokens: tf.Tensor) -> tf.Tensor:
        """Returns the rows of tokens in the tables."""
        return tf.minimum(tokens, len(self.bare) - 1)

    @property
    def first(self) -> np.ndarray:
        """The code of each token's first character, int32 [V]; 0 if it has none."""
        first = np.append(self.codes, 0)[self.starts[:-1]]
        return np.where(np.diff(self.starts) > 0, first, 0)


class Constraints(NamedTuple):
    """The phrases that the hypotheses of each sentence must contain.

    Phrases may overlap; one that is given twice must occur twice.

    Attributes:
        ids: int32 [B, C, P], the tokens that usually write each phrase, right-padded
            with the search's `pad_id`; padding alone is no phrase.
        spelling: What tokens write: a phrase occurs where the text has it as whole
            words. None for sequences that are no text: it occurs where its tokens
            follow one another.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> must = kl.decoding.Constraints(np.array([[[5, 6], [8, 0]]]))
        >>> search = kl.BeamSearch(4, max_length=6)
        >>> found = search(model, np.array([[4, 5, 3]]), constraints=must)
        >>> {5, 6, 8} <= {*found.ids[0, 0].numpy()}
        True
    """

    ids: Any
    spelling: Spelling | None = None


class Phrases(NamedTuple):
    """Constraints as a search follows them."""

    ids: tf.Tensor  # [A, C, P]
    bare: tf.Tensor  # [A, C] the first token where no space is written in front
    lengths: tf.Tensor  # [A, C] in tokens
    earlier: tf.Tensor  # [A, C] how many equal ones come before; -1 if it is no phrase
    codes: tf.Tensor  # [A, C, L] what they write, a space in front included
    token_ends: tf.Tensor  # [A, C, L] tokens up to each character; 0 within a token
    begin: tf.Tensor  # [A, C] 1 if they write a space in front, else 0


class Progress(NamedTuple):
    """How far hypotheses have come with each phrase."""

    last: tf.Tensor  # int32 [A, K] the code of the last character
    counts: tf.Tensor  # int32 [A, K, C] how often it has occurred before the end
    matching: tf.Tensor  # bool [A, K, C, L] the text ends with its first characters


def phrases_of(constraints: Constraints, source: Source, pad_id: int) -> Phrases:
    """Returns constraints as a search follows them.

    Args:
        constraints: The constraints.
        source: The source that they are for.
        pad_id: The id of padding.

    Raises:
        ValueError: If the constraints have another shape than they should.
    """
    spelling = constraints.spelling
    ids = tf.cast(tf.convert_to_tensor(constraints.ids), tf.int32)
    count = known_count_of(source)
    like = tf.TensorShape([count, None, None])
    if ids.shape.rank is None or not like.is_compatible_with(ids.shape):
        raise ValueError(
            "The constraints must have a row of phrases for each of the sentences, "
            f"[B, C, P] in all. Received: {ids.shape} for B={count}"
        )
    ids = tf.pad(ids, [[0, 0], [0, 0], [0, 1]], constant_values=pad_id)  # at least one
    is_token = ids != pad_id
    lengths = tf.math.count_nonzero(is_token, axis=2, dtype=tf.int32)
    same = tf.reduce_all(ids[:, :, None] == ids[:, None], axis=3)
    earlier = tf.where(lengths == 0, -1, _count_before(same))

    # The characters of each token, and after which of them how many tokens end.
    codes = tf.where(is_token[..., None], _read(ids, spelling), 0)  # [B, C, P, R]
    counts = tf.math.count_nonzero(codes, axis=3, keepdims=True, dtype=tf.int32)
    P, R = tf.shape(ids)[2], tf.shape(codes)[3]
    is_last = tf.range(R) == counts - 1
    ends = tf.where(is_last, 1 + tf.range(P)[:, None], 0)

    # One after another, without what is between: [B, C, L].
    flat = [*tf.unstack(tf.shape(ids)[:2]), P * R]
    codes, ends = tf.reshape(codes, flat), tf.reshape(ends, flat)
    order = tf.argsort(tf.cast(codes == 0, tf.int32), axis=2, stable=True)
    order = order[:, :, : tf.maximum(1, tf.reduce_max(tf.reduce_sum(counts, [2, 3])))]
    codes, ends = (tf.gather(x, order, batch_dims=2) for x in (codes, ends))

    # How a phrase begins, with and without a space in front.
    has_space, bare = lengths < 0, ids[..., 0]  # where tokens are no text, no spaces
    if spelling is not None:
        has_space = codes[..., 0] == _SPACE
        bare = tf.gather(spelling.bare, spelling.rows(bare))
    only_space = has_space & (ends[..., 0] == 1)  # as of "▁" and ","
    bare = tf.where(only_space, ids[..., :2][..., -1], bare)
    begin = tf.cast(has_space, tf.int32)
    return Phrases(ids, bare, lengths, earlier, codes, ends, begin)


def tokens_of(phrases: Phrases) -> tf.Tensor:
    """Returns the tokens that may write each sentence's phrases, [B, C * (P + 1)]."""
    ids = tf.concat([phrases.ids, phrases.bare[..., None]], axis=2)
    B, C, P = tf.unstack(tf.shape(ids))
    return tf.reshape(ids, [B, C * P])


def start(phrases: Phrases, width: int | tf.Tensor) -> Progress:
    """Returns the progress of hypotheses without tokens, `width` of a sentence."""
    B, C, L = tf.unstack(tf.shape(phrases.codes))
    last, counts = tf.zeros([B, width], tf.int32), tf.zeros([B, width, C], tf.int32)
    return Progress(last, counts, tf.fill([B, width, C, L], False))


def unmet(phrases: Phrases, progress: Progress) -> tf.Tensor:
    """Returns which phrases a hypothesis would lack if it ended now, bool [A, K, C]."""
    at_end = tf.cast(_at_end(phrases, progress), tf.int32)
    return progress.counts + at_end <= phrases.earlier[:, None]


def unmet_by(constraints: Constraints, ids: tf.Tensor, pad_id: int) -> tf.Tensor:
    """Returns which phrases whole hypotheses lack, bool [B, N, C].

    Args:
        constraints: The constraints.
        ids: int32 [B, N, T], padded behind the end.
        pad_id: The id of padding.
    """
    phrases = phrases_of(constraints, ids, pad_id)
    end = tf.foldl(
        lambda now, tokens: advance(phrases, now, tokens, constraints.spelling),
        tf.transpose(ids, [2, 0, 1]),
        start(phrases, tf.shape(ids)[1]),
    )
    return unmet(phrases, end)


def advance(
    phrases: Phrases, progress: Progress, tokens: tf.Tensor, spelling: Spelling | None
) -> Progress:
    """Returns the progress after one more token of each hypothesis.

    Args:
        phrases: The phrases.
        progress: The progress before.
        tokens: int32 [A, K].
        spelling: What tokens write.
    """
    codes = _read(tokens, spelling)  # [A, K, R]
    longest = tf.reduce_max(tf.math.count_nonzero(codes, axis=2, dtype=tf.int32))
    places = tf.range(tf.shape(phrases.codes)[2])
    is_first = tf.equal(places, phrases.begin[..., None])

    def read(place, now):
        code = codes[:, :, place]  # [A, K]
        joined = _joined(now.last, code)
        # What stood at the end has occurred, unless this goes on with its last word.
        over = _at_end(phrases, now) & ~joined[..., None]
        counts = now.counts + tf.cast(over, tf.int32)
        # Each beginning is one longer; the first character begins a word.
        before = tf.pad(
            now.matching[..., :-1], [[0, 0]] * 3 + [[1, 0]], constant_values=True
        )
        before = tf.where(is_first[:, None], ~joined[..., None, None], before)
        matching = before & tf.equal(phrases.codes[:, None], code[..., None, None])
        after = Progress(code, counts, matching)

        def kept(x, before):  # in the shape that a loop knows
            return tf.reshape(where(code != 0, x, before), tf.shape(before))

        return place + 1, tf.nest.map_structure(kept, after, now)

    shapes = tf.TensorShape([]), tf.nest.map_structure(lambda x: x.shape, progress)
    _, after = tf.while_loop(
        lambda place, _: place < longest, read, (0, progress), shapes
    )
    return after


def allocate(
    best: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    logits: tf.Tensor,
    offsets: tf.Tensor,
    phrases: Phrases,
    progress: Progress,
    spelling: Spelling | None,
    ids: tf.Tensor | None = None,
) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Progress]:
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
        spelling: What tokens write.
        ids: int32 [M], the shortlisted words in ascending order, or None.

    Returns:
        The same as `best`, of those that are kept, and their progress.
    """
    rows, K = tf.shape(logits)[0], best[0].shape[1]
    lacks = unmet(phrases, progress)  # [A, K, C]

    # 1. Each hypothesis's next tokens of the phrases that it lacks.
    tokens = _next_tokens(logits, phrases, progress, spelling, ids)  # [A, K, C]

    # 2. Its best token that loses nothing of what is met.
    harmless = logits
    if spelling is not None:  # a word that goes on may be no phrase any more
        sure = progress.counts > phrases.earlier[:, None]
        at_risk = tf.reduce_any(~lacks & ~sure, axis=2, keepdims=True)
        words = tf.range(tf.shape(logits)[2]) if ids is None else ids
        first = tf.gather(spelling.first, spelling.rows(words))
        inside = _joined(progress.last[..., None], first)
        harmless = tf.where(at_risk & inside, IMPOSSIBLE, logits)
    own = tf.argmax(harmless, axis=2, output_type=tf.int32)[..., None]  # [A, K, 1]

    # 3. These and the best extensions of all, each of them once: [A, M].
    columns = tf.concat([_columns(ids, tokens), own], axis=2)
    log_probs = add_offsets(tf.gather(logits, columns, batch_dims=2), offsets)
    is_wanted = tf.concat([lacks, tf.ones_like(own, tf.bool)], axis=2)
    log_probs = tf.where(is_wanted, log_probs, IMPOSSIBLE)
    own = own if ids is None else tf.gather(ids, own)
    tokens = tf.concat([tokens, own], axis=2)
    parents = tf.range(tf.shape(tokens)[1])[:, None] + tf.zeros_like(tokens)
    log_probs, parents, tokens = (
        tf.concat([x, tf.reshape(more, [rows, -1])], axis=1)
        for x, more in zip(best, (log_probs, parents, tokens), strict=True)
    )
    same = (log_probs > IMPOSSIBLE)[:, None]
    same &= parents[:, :, None] == parents[:, None, :]
    same &= tokens[:, :, None] == tokens[:, None, :]
    log_probs = tf.where(_count_before(same) > 0, IMPOSSIBLE, log_probs)

    # 4. The bank of each.
    after = advance(phrases, follow(progress, parents), tokens, spelling)
    _, banks = _plans(phrases, after, spelling)

    # 5. The best of each bank, then the second best, and so on.
    ranked, order = tf.math.top_k(log_probs, tf.shape(log_probs)[1])
    banks = tf.gather(banks, order, batch_dims=1)
    turns = _count_before(banks[:, :, None] == banks[:, None, :])
    places = turns * (tf.reduce_max(banks) + 1) - banks
    places = tf.where(ranked > IMPOSSIBLE, places, _LAST)
    chosen = tf.gather(order, tf.math.top_k(-places, K).indices, batch_dims=1)
    return follow(((log_probs, parents, tokens), after), chosen)


def _next_tokens(logits, phrases, progress, spelling, ids):
    """Returns the next token of each phrase [A, K, C].

    A phrase begins with or without a space in front, whichever is more probable; after
    a letter only with one.
    """
    written, _ = _plans(phrases, progress, spelling)
    usual = _token_at(phrases.ids, written)
    bare = tf.zeros_like(usual) + phrases.bare[:, None]
    usual_logit, bare_logit = (
        tf.gather(logits, _columns(ids, x), batch_dims=2) for x in (usual, bare)
    )
    possible = (written == 0) & ~_goes_on(bare, progress, spelling)
    is_better = possible & (bare_logit > usual_logit)
    return tf.where(is_better, bare, usual)


def _plans(phrases, progress, spelling):
    """Finds how each hypothesis comes nearer to what it lacks.

    Where it goes on with a phrase within a word, another one that seemed to be met may
    turn out to be the beginning of a longer word. If more is lost than won by that, the
    phrase is better begun anew.

    Returns:
        How many tokens of each phrase are written [A, K, C], of use where it is not
        met; and the bank of each hypothesis [A, K]: how many tokens of phrases it has
        met. A step with the best next token always leads to a higher one, until all
        are met.
    """

    def tokens_in(chosen):  # phrases [A, K, C] -> [A, K, 1]
        lengths = tf.where(chosen, phrases.lengths[:, None], 0)
        return tf.reduce_sum(lengths, axis=2, keepdims=True)

    lacks = unmet(phrases, progress)
    ends = phrases.token_ends
    begun = tf.where(ends < phrases.lengths[..., None], ends, 0)
    written = tf.where(progress.matching, begun[:, None], 0)
    written = tf.reduce_max(written, axis=3)
    met = tokens_in(~lacks)
    sure = tokens_in(progress.counts > phrases.earlier[:, None])
    inside = _goes_on(_token_at(phrases.ids, written), progress, spelling)
    going_on = tf.where(inside, sure, met) + written
    banks = tf.concat([met, tf.where(lacks, going_on, 0)], axis=2)
    return tf.where(going_on < met, 0, written), tf.reduce_max(banks, axis=2)


def keep_nearest(
    log_probs: tf.Tensor, lacks: tf.Tensor, has_finished: tf.Tensor
) -> tf.Tensor:
    """Keeps the hypotheses that lack the fewest phrases.

    Args:
        log_probs: float32 [A, K], of hypotheses at the maximum length.
        lacks: bool [A, K, C], the phrases that they lack.
        has_finished: bool [A, 1], whether a finished hypothesis has all.

    Returns:
        The log-probabilities, -inf for the others.
    """
    counts = tf.math.count_nonzero(lacks, axis=2, dtype=tf.int32)
    counts = tf.where(log_probs > IMPOSSIBLE, counts, _LAST)
    fewest = tf.reduce_min(counts, axis=1, keepdims=True)
    return tf.where(counts == tf.where(has_finished, 0, fewest), log_probs, IMPOSSIBLE)


def put_free_first(
    free: Hypotheses, has_all: tf.Tensor, others: Hypotheses, pad_id: int
) -> Hypotheses:
    """Puts a free hypothesis that has all phrases before those that were made to.

    Args:
        free: The best hypothesis of each sentence without constraints, N = 1.
        has_all: bool [B], whether it has all phrases.
        others: N hypotheses of each sentence, or places with the length 0.
        pad_id: The id of padding.

    Returns:
        The first N of both, none of them twice.
    """
    length = tf.maximum(tf.shape(free.ids)[2], tf.shape(others.ids)[2])
    N = others.ids.shape[1]
    free, others = (pad_to(x, length, pad_id) for x in (free, others))
    again = tf.reduce_all(free.ids == others.ids, axis=2) & has_all[:, None]
    there = tf.concat([has_all[:, None], (others.lengths > 0) & ~again], axis=1)
    both = tf.nest.map_structure(lambda *x: tf.concat(x, axis=1), free, others)
    order = tf.argsort(tf.cast(~there, tf.int32), axis=1, stable=True)[:, :N]
    both, there = follow((both, there), order)
    nothing = Hypotheses(pad_id, 0, IMPOSSIBLE, IMPOSSIBLE, 0.0, 0.0)
    return Hypotheses(*(where(there, *x) for x in zip(both, nothing, strict=True)))


def _read(tokens: tf.Tensor, spelling: Spelling | None) -> tf.Tensor:
    """Returns the codes of tokens [...], padded on the right: int32 [..., R].

    Without a spelling each token is a character of its own, which makes no words.
    """
    if spelling is None:
        return 4 * (tokens + 1)[..., None]
    codes, starts = spelling.codes, spelling.starts
    tokens = spelling.rows(tokens)
    begin, end = (tf.gather(x, tokens)[..., None] for x in (starts[:-1], starts[1:]))
    places = begin + tf.range(int(np.max(np.diff(starts))))
    inside = tf.gather(codes, tf.minimum(places, len(codes) - 1))
    return tf.where(places < end, inside, 0)


def _goes_on(tokens: tf.Tensor, progress: Progress, spelling: Spelling | None) -> Any:
    """Tells whether tokens [A, K, C] go on with the last word of the text so far."""
    if spelling is None:
        return tf.zeros_like(tokens, tf.bool)
    first = tf.gather(spelling.first, spelling.rows(tokens))
    return _joined(progress.last[..., None], first)


def _joined(before, after):
    """Tells whether two neighbouring characters belong to one word."""
    is_sign = (after // 2 % 2 == 1) & (before != 0)
    return (before % 2 == 1) & (after % 2 == 1) | is_sign


def _at_end(phrases, progress):
    """Tells whether each phrase stands at the end of the text, bool [A, K, C]."""
    lengths = tf.maximum(phrases.lengths, 1)[..., None]
    is_last = tf.equal(phrases.token_ends, lengths)  # `==` would forget the known axes
    return tf.reduce_any(progress.matching & is_last[:, None], axis=3)


def _token_at(ids, places):
    """Returns the tokens of phrases [A, C, P] at places [A, K, C]."""
    here = tf.equal(tf.range(tf.shape(ids)[2]), places[..., None])
    return tf.reduce_sum(tf.where(here, ids[:, None], 0), axis=3)


def _columns(ids, tokens):
    """Returns the places of tokens among the shortlisted words, if there are some."""
    if ids is None:
        return tokens
    places = tf.searchsorted(ids, tf.reshape(tokens, [-1]))
    # What is on no list is padding.
    return tf.reshape(tf.minimum(places, tf.size(ids) - 1), tf.shape(tokens))


def _count_before(same):
    """Counts in each row of [B, M, M] what is true before the diagonal."""
    return tf.reduce_sum(tf.linalg.band_part(tf.cast(same, tf.int32), -1, 0), 2) - 1
