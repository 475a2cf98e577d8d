"""Sampling: each next token is drawn from the model's distribution, or part of it.

Shapes: B sentences, S source length, N samples of a sentence, V vocabulary, T longest
sample allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import operator
import sys
from typing import Annotated, Any

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.decoding.hoisting import begin, cast_once
from keras_luong.decoding.search_state import Written, collect, empty_arrays, write
from keras_luong.decoding.step_model import (
    IMPOSSIBLE,
    Hypotheses,
    SizeOrNone,
    Source,
    SpecialTokens,
    StepModel,
    check_source,
    count_of,
    follow,
    is_ids,
    keep_shapes,
    known_count_of,
    length_limits,
    split_log_softmax,
    vocab_size_in,
)

SEEDS = 2**63  # a seed is an int64
FEW = 256  # tokens to sort first, as they are usually enough for `top_p`


def _check_number(name: str, value: Any, above: float, what: str) -> float:
    """Returns the number if it is in (0, above) and not denormal (treated as 0)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number. Received: {value!r}")
    if not sys.float_info.min <= float(value) < above:
        raise ValueError(f"{name} must be {what}. Received: {value!r}")
    return float(value)


#: Kinds of numbers, checked by `keras_luong.config.fields.check_fields`.
Temperature = Annotated[
    float, functools.partial(_check_number, above=math.inf, what="positive and finite")
]
Share = Annotated[
    float,
    functools.partial(_check_number, above=math.nextafter(1, 2), what="in (0, 1]"),
]
Seed = Annotated[
    int | None,
    functools.partial(check_size, optional=True, smallest=0, largest=SEEDS - 1),
]


@dataclasses.dataclass(frozen=True, repr=False)
class RandomSampling(SpecialTokens):
    """A search that draws each next token from the model's distribution.

    With its defaults this is ancestral sampling: each sequence is drawn with its
    probability (padding and the begin token are never drawn; their share goes to the
    others). `temperature` sharpens or flattens the distribution of each token
    (`logits / temperature`); then `top_k` keeps the most probable tokens (Fan et al.
    2018, arXiv:1805.04833); then `top_p` keeps the most probable of those, until
    their share reaches `top_p` (nucleus sampling, Holtzman et al. 2020,
    arXiv:1904.09751). Tokens are drawn from the rest in proportion. The returned
    log-probabilities are the model's own, without temperature, `top_k` and `top_p`.

    Samples of a sentence are drawn independently, so some may be equal. They are sorted
    by log-probability, so the first one is an unbiased sample only with
    `num_samples=1`.

    **With a seed** the random numbers of a sentence, one for each step and sample,
    depend only on the seed and the sentence's ids without padding (of a source that is
    no ids: its values without zeros). So it gets the same samples each time, eagerly,
    in a `tf.function` and in a SavedModel, whatever the other sentences in the batch
    are. Two equal sentences in a batch get the same samples; use `num_samples` for
    different ones.

    **Without a seed** each row of each call gets a seed from an op that is initialised
    from the machine's entropy once per process, and keeps its state between calls. The
    seed is not traced into a constant, so a `tf.function` and a SavedModel also draw
    new samples at every call and in every process. `tf.random.set_seed` has no effect:
    otherwise a seed set while exporting would be the same on every server. With
    `enable_op_determinism`, TensorFlow needs a seed here.

    Args:
        temperature: Positive; below 1 samples are more alike, above 1 more varied.
        top_k: Number of most probable tokens to draw from; None for all.
        top_p: Share of the probability to draw from, in (0, 1]; None for all tokens.
        num_samples: N.
        max_length: Longest sample, the end token included; None for twice the
            sentence's source length plus 10, if the source is ids.
        seed: In [0, 2**63), or None.
        bos_id: The token that the model reads first; see `SpecialTokens`.
        eos_id: The token that ends a sample.
        pad_id: The id of padding, in sources of ids and results.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a size is below 1, or another number outside its range.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> search = kl.RandomSampling(
        ...     temperature=0.8, top_p=0.9, num_samples=5, seed=1, max_length=4
        ... )
        >>> hypotheses = search(model, np.array([[4, 5, 3]]))
        >>> hypotheses.ids.shape[:2]
        TensorShape([1, 5])
    """

    temperature: Temperature = 1.0
    top_k: Annotated[int | None, functools.partial(check_size, optional=True)] = None
    top_p: Share | None = None
    num_samples: int = 1
    max_length: SizeOrNone = 100
    seed: Seed = None

    def __call__(self, model: StepModel, source: Source) -> Hypotheses:
        """Draws `num_samples` hypotheses per sentence, scored by log-probability.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads: int32 [B, S] ids, right-padded with
                `pad_id`; or tensors [B, ...] of any dtype, or a tuple or dict of them.

        Raises:
            ValueError: If the source has the wrong shape, the maximum length needs one
                of ids, or the end token a larger vocabulary.
        """
        source = check_source(source)
        with cast_once(model):
            return self._search(model, source)

    def _search(self, model, source):
        _, tokens, state, step, (logits, weights) = begin(
            model, source, self, self.num_samples
        )
        self.check_logits(logits)
        limits = length_limits(source, self.max_length, self.pad_id)
        longest = self.max_length or 2 * tf.shape(source)[1] + 10
        uniforms = self._uniforms(source, limits, longest)
        limits = limits[:, tf.newaxis]
        lengths, log_probs = tf.zeros_like(tokens), tf.zeros_like(tokens, tf.float32)
        start = tokens, state, log_probs, lengths, tf.ones_like(tokens, tf.bool)

        def body(time, samples, written):
            tokens, state, log_probs, lengths, is_open = samples
            logits, state, weights = step(tokens, state)  # [B, N, V]
            tokens, gains = self._draw(logits, uniforms[:, time])  # [B, N]
            log_probs += tf.where(is_open, gains, 0.0)
            lengths += tf.cast(is_open, tf.int32)
            is_open &= (tokens != self.eos_id) & (lengths < limits)
            is_open &= log_probs > IMPOSSIBLE
            after = keep_shapes((tokens, state, log_probs, lengths, is_open), samples)
            written = write(written, time, Written(tokens, log_probs, weights))
            return time + 1, after, written

        def any_open(time, samples, written):
            return (time == 0) | tf.reduce_any(samples[-1])

        shape = [known_count_of(source), self.num_samples]
        written = empty_arrays(shape, [x.shape[2:] for x in weights], longest)
        loop = tf.while_loop(any_open, body, [tf.constant(0), start, written])
        steps, (_, _, log_probs, lengths, _), written = loop
        # Steps that were not taken have no shape.
        written = tf.nest.map_structure(lambda x: x.gather(tf.range(steps)), written)
        drawn = collect(written, lengths, log_probs, self.pad_id)
        return follow(drawn, tf.math.top_k(drawn.scores, self.num_samples).indices)

    def _draw(self, logits, uniforms):
        """Returns tokens [B, N] and their log-probabilities."""
        normalisers, possible = split_log_softmax(logits)
        ids = tf.range(tf.shape(logits)[-1])
        allowed = [ids != token for token in sorted(self.never_generated)]
        drawable = functools.reduce(operator.and_, [*allowed, possible])
        ranked = tf.where(drawable, logits, IMPOSSIBLE)
        tokens = draw(ranked, uniforms, self.temperature, self.top_k, self.top_p)
        # If nothing is possible: -inf - inf is -inf, whereas -inf - -inf would be NaN.
        normalisers = tf.where(possible, normalisers, math.inf)
        chosen = tf.gather(ranked, tokens, batch_dims=2)
        return tokens, chosen - tf.squeeze(normalisers, axis=-1)

    def _uniforms(self, source, limits, longest):
        """Returns all random numbers of the search, float64 [B, T, N] in [0, 1).

        Each sentence has its own stream of numbers, as many as it can need.
        """
        count = count_of(source)
        if self.seed is None:
            # tf.random.uniform would write the global seed into the graph.
            bounds = tf.constant([tf.int64.min, tf.int64.max], tf.int64)
            keys = tf.raw_ops.RandomUniformInt(
                shape=[count, 2], minval=bounds[0], maxval=bounds[1]
            )
        else:
            seeds = tf.fill([count], tf.constant(self.seed, tf.int64))
            keys = tf.stack([seeds, fingerprints(source, self.pad_id)], axis=1)

        def of_sentence(key_and_limit):
            key, limit = key_and_limit
            uniforms = tf.random.stateless_uniform(
                [limit, self.num_samples], key, dtype=tf.float64, alg="philox"
            )
            return tf.pad(uniforms, [[0, longest - limit], [0, 0]])

        # One row more, as `map_fn` does not know the shape of its output without rows.
        rows = tf.pad(keys, [[0, 1], [0, 0]]), tf.pad(limits, [[0, 1]])
        signature = tf.TensorSpec([self.max_length, self.num_samples], tf.float64)
        return tf.map_fn(of_sentence, rows, fn_output_signature=signature)[:-1]


def fingerprints(source: Source, pad_id: int) -> tf.Tensor:
    """Returns a hash of each sentence without its padding, int64 [B].

    Args:
        source: The source.
        pad_id: The id of padding; where the source is no ids, zeros are padding.
    """
    padding = pad_id if is_ids(source) else 0
    texts = [_values_as_text(x, padding) for x in tf.nest.flatten(source)]
    sentences = texts[0] if len(texts) == 1 else tf.strings.join(texts, "|")
    return tf.strings.to_hash_bucket_fast(sentences, SEEDS - 1)


def _values_as_text(x: tf.Tensor, padding: int) -> tf.Tensor:
    """Writes the values of each row that are not padding: string [B]."""
    if x.dtype == tf.string:
        return tf.strings.reduce_join(x, axis=range(1, x.shape.rank), separator=" ")
    values = tf.where(tf.cast(x, tf.bool), x, 0) if x.dtype.is_floating else x
    bits = {2: tf.int16, 4: tf.int32, 8: tf.int64}
    if x.dtype.is_floating:  # all of them, where a decimal number would lose some
        values = tf.bitcast(values, bits[x.dtype.size])
    words = tf.strings.as_string(values) + " "
    words = tf.where(values == tf.cast(padding, values.dtype), "", words)
    if x.shape.rank != 2:
        words = tf.reshape(words, [tf.shape(x)[0], -1])
    return tf.strings.reduce_join(words, axis=1)


def draw(
    logits: tf.Tensor,
    uniforms: tf.Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> tf.Tensor:
    """Draws tokens by given random numbers, by inverting their distribution.

    Each token has an interval in [0, 1), whose width is its probability. The intervals
    are in the order of the ids, or of falling probability if `top_k` or `top_p` is
    given. The token in whose interval the number lies is drawn. Of equally probable
    tokens `top_k` and `top_p` keep the lower ids.

    Args:
        logits: float32 [B, N, V], -inf where a token is impossible.
        uniforms: float64 [B, N] in [0, 1).
        temperature: See `RandomSampling`.
        top_k: See `RandomSampling`.
        top_p: See `RandomSampling`.

    Returns:
        int32 [B, N]. Impossible tokens are drawn only if there are no others.

    Example:
        >>> from keras_luong.decoding.sampling import draw
        >>> logits = tf.math.log([[[0.25, 0.75]]])
        >>> draw(logits, tf.constant([[0.3]], tf.float64)).numpy()
        array([[1]], dtype=int32)
    """
    # In float64: in float32 sums lose the improbable tokens of a large vocabulary.
    peak = tf.cast(tf.reduce_max(logits, axis=-1, keepdims=True), tf.float64)

    def masses_of(logits):
        return tf.exp((tf.cast(logits, tf.float64) - peak) / temperature)

    ids = None
    if top_k:
        logits, ids = _best(logits, top_k)
    if top_p:
        enough = top_p * tf.reduce_sum(masses_of(logits), axis=-1, keepdims=True)
        if not top_k:
            logits, ids = _sort(logits, masses_of, enough)
    masses = masses_of(logits)
    if top_p:
        masses = tf.where(tf.cumsum(masses, -1, exclusive=True) < enough, masses, 0.0)
    # Without mass there is no interval, whatever the rounding.
    ends = tf.where(masses > 0, tf.cumsum(masses, axis=-1), 0.0)
    places = uniforms[..., tf.newaxis] * tf.reduce_max(ends, axis=-1, keepdims=True)
    beyond = tf.cast(ends > places, tf.int32)
    first = tf.math.top_k(beyond, 1).indices[..., 0]  # of a tie
    return first if ids is None else tf.gather(ids, first, batch_dims=2)


def _best(logits, number):
    """Returns the best logits and their ids, as many as there are of a number."""
    size = vocab_size_in(logits)
    least = min if isinstance(size, int) else tf.minimum
    return tf.math.top_k(logits, least(number, size))


def _sort(logits, masses_of, enough):
    """Returns logits and ids, most probable first: a few if these suffice, or all.

    Sorting a whole vocabulary takes longer than a step of most models.
    """
    size, first = vocab_size_in(logits), _best(logits, FEW)
    if isinstance(size, int) and size <= FEW:
        return first
    missing = tf.reduce_sum(masses_of(first.values), -1, keepdims=True) < enough
    return tf.cond(
        tf.reduce_any(missing), lambda: tf.math.top_k(logits, size), lambda: first
    )
