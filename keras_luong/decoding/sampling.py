"""Sampling: each next token is drawn from the model's distribution, or part of it.

Shapes: B batch, S source length, N samples of a sentence, V vocabulary, T
longest sample allowed.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import sys
from functools import partial
from typing import Annotated, Any, NamedTuple

import tensorflow as tf

from keras_luong.checks import check_size
from keras_luong.config.fields import check_fields
from keras_luong.decoding.cast_once import cast_once
from keras_luong.decoding.hypotheses import IMPOSSIBLE, Hypotheses, Written, collect
from keras_luong.decoding.stepping import (
    SizeOrNone,
    StepModel,
    check_source_ids,
    follow,
    keep_shapes,
    length_limits,
    split_log_softmax,
)
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

SEEDS = 2**63  # a seed is an int64
FEW = 256  # tokens to sort first, as they are usually enough for `top_p`


def _check_number(name: str, value: Any, above: float, what: str) -> float:
    """Returns the number if it is in (0, above) and not denormal (treated as 0)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number. Received: {value!r}")
    if not sys.float_info.min <= float(value) < above:
        raise ValueError(f"{name} must be {what}. Received: {value!r}")
    return float(value)


class Samples(NamedTuple):
    """The samples of each sentence so far."""

    tokens: tf.Tensor  # [B, N] the last ones; [B, 1] before the first step
    log_probs: tf.Tensor  # [B, N]
    lengths: tf.Tensor  # [B, N]
    is_open: tf.Tensor  # [B, N]
    state: Any  # nest of [B, N, ...], or [B, 1, ...] before the first step


@dataclasses.dataclass(frozen=True)
class RandomSampling:
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
    depend only on the seed and the sentence's ids without padding. So it gets the same
    samples each time, eagerly, in a `tf.function` and in a SavedModel, whatever the
    other sentences in the batch are. Two equal sentences in a batch get the same
    samples; use `num_samples` for different ones.

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
            sentence's source length plus 10.
        seed: In [0, 2**63), or None.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If a size is below 1, or another number outside its range.

    Example:
        >>> search = RandomSampling(temperature=0.8, top_p=0.9, num_samples=5, seed=1)
        >>> hypotheses = search(model, source_ids)
        >>> hypotheses.ids  # [B, 5, T]
    """

    temperature: Annotated[
        float, partial(_check_number, above=math.inf, what="positive and finite")
    ] = 1.0
    top_k: Annotated[int | None, partial(check_size, optional=True)] = None
    top_p: (
        Annotated[
            float,
            partial(_check_number, above=math.nextafter(1, 2), what="in (0, 1]"),
        ]
        | None
    ) = None
    num_samples: int = 1
    max_length: SizeOrNone = 100
    seed: Annotated[
        int | None, partial(check_size, optional=True, smallest=0, largest=SEEDS - 1)
    ] = None

    def __post_init__(self) -> None:
        """Checks the settings, and converts NumPy numbers to Python's."""
        check_fields(self)

    def __call__(self, model: StepModel, source_ids: tf.Tensor) -> Hypotheses:
        """Draws `num_samples` hypotheses per sentence, scored by log-probability.

        Args:
            model: A `StepModel`.
            source_ids: int32 [B, S], right-padded with `PAD_ID`.

        Raises:
            ValueError: If the ids are not of this shape.
        """
        source_ids = check_source_ids(source_ids)
        with cast_once(model):
            return self._search(model, source_ids)

    def _search(self, model, source_ids):
        memory, state = model.encode(source_ids)
        limits = length_limits(source_ids, self.max_length)
        uniforms = self._uniforms(source_ids, limits)

        def take_step(time, samples, written):
            logits, state, weights = self._step(model, samples, memory)
            tokens, gains = self._draw(logits, uniforms[:, time])
            samples = _extend(samples, tokens, gains, state, limits[:, tf.newaxis])
            weights = tf.cast(weights, tf.float32)
            written = written.write(time, tokens, weights, samples.log_probs)
            return time + 1, samples, written

        def body(time, samples, written):
            time, after, written = take_step(time, samples, written)
            return time, keep_shapes(after, samples), written

        def any_open(time, samples, written):
            return tf.reduce_any(samples.is_open)

        first = take_step(tf.constant(0), *self._start(source_ids, state))
        steps, samples, written = tf.while_loop(any_open, body, first)
        hypotheses = collect(
            *written.first(steps), lengths=samples.lengths, scores=samples.log_probs
        )
        order = tf.math.top_k(hypotheses.scores, self.num_samples).indices
        return follow(hypotheses, order)

    def _start(self, source_ids, state):
        """Returns empty samples and records; the state still has one beam."""
        batch = tf.shape(source_ids)[0]
        shape = [batch, self.num_samples]
        samples = Samples(
            tokens=tf.fill([batch, 1], BOS_ID),
            log_probs=tf.zeros(shape),
            lengths=tf.zeros(shape, tf.int32),
            is_open=tf.fill(shape, True),
            state=state,
        )
        shape = [source_ids.shape[0], self.num_samples, source_ids.shape[1]]
        return samples, Written.empty(shape, self._longest(source_ids))

    def _step(self, model, samples, memory):
        """Takes the model's step for each sample; the first is the same for all."""
        logits, state, weights = model.step(samples.tokens, samples.state, memory)
        outputs = logits, keep_shapes(state, samples.state), weights
        if samples.tokens.shape[1] == self.num_samples:
            return outputs
        return follow(outputs, tf.zeros_like(samples.lengths))

    def _draw(self, logits, uniforms):
        """Returns tokens [B, N] and their log-probabilities."""
        logits = tf.cast(logits, tf.float32)
        normalisers, possible = split_log_softmax(logits)
        ids = tf.range(tf.shape(logits)[-1])
        never = (ids == PAD_ID) | (ids == BOS_ID)
        ranked = tf.where(possible & ~never, logits, IMPOSSIBLE)
        tokens = draw(ranked, uniforms, self.temperature, self.top_k, self.top_p)
        # If nothing is possible: -inf - inf is -inf, whereas -inf - -inf would be NaN.
        normalisers = tf.where(possible, normalisers, math.inf)
        chosen = tf.gather(ranked, tokens, batch_dims=2)
        return tokens, chosen - tf.squeeze(normalisers, axis=-1)

    def _longest(self, source_ids):
        """Returns T, an int or a scalar tensor."""
        return self.max_length or 2 * tf.shape(source_ids)[1] + 10

    def _uniforms(self, source_ids, limits):
        """Returns all random numbers of the search, float64 [B, T, N] in [0, 1).

        Each sentence has its own stream of numbers, as many as it can need.
        """
        longest = self._longest(source_ids)

        def of_sentence(key_and_limit):
            key, limit = key_and_limit
            uniforms = tf.random.stateless_uniform(
                [limit, self.num_samples], key, dtype=tf.float64, alg="philox"
            )
            return tf.pad(uniforms, [[0, longest - limit], [0, 0]])

        # One row more, as `map_fn` does not know the shape of its output without rows.
        keys = tf.pad(self._keys(source_ids), [[0, 1], [0, 0]])
        rows = keys, tf.pad(limits, [[0, 1]])
        signature = tf.TensorSpec([self.max_length, self.num_samples], tf.float64)
        return tf.map_fn(of_sentence, rows, fn_output_signature=signature)[:-1]

    def _keys(self, source_ids):
        """Returns seeds of stateless random ops, one per sentence: int64 [B, 2]."""
        batch = tf.shape(source_ids)[0]
        if self.seed is None:
            # tf.random.uniform would write the global seed into the graph.
            bounds = tf.constant([tf.int64.min, tf.int64.max], tf.int64)
            return tf.raw_ops.RandomUniformInt(
                shape=[batch, 2], minval=bounds[0], maxval=bounds[1]
            )
        words = tf.strings.as_string(source_ids) + " "
        words = tf.where(source_ids == PAD_ID, "", words)
        sentences = tf.strings.reduce_join(words, axis=1)
        fingerprints = tf.strings.to_hash_bucket_fast(sentences, SEEDS - 1)
        seeds = tf.fill([batch], tf.constant(self.seed, tf.int64))
        return tf.stack([seeds, fingerprints], axis=1)


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
        >>> draw(tf.math.log([[[0.25, 0.75]]]), tf.constant([[0.3]], tf.float64))
        <tf.Tensor: shape=(1, 1), dtype=int32, numpy=array([[1]], dtype=int32)>
    """
    # In float64: in float32 sums lose the improbable tokens of a large vocabulary.
    best = tf.cast(tf.reduce_max(logits, axis=-1, keepdims=True), tf.float64)

    def masses_of(logits):
        return tf.exp((tf.cast(logits, tf.float64) - best) / temperature)

    ids = None
    if top_k:
        logits, ids = tf.math.top_k(logits, min(top_k, logits.shape[-1]))
    if top_p:
        enough = top_p * tf.reduce_sum(masses_of(logits), axis=-1, keepdims=True)
        if not top_k:
            logits, ids = _sort(logits, masses_of, enough)
    masses = masses_of(logits)
    if top_p:
        masses = tf.where(tf.cumsum(masses, -1, exclusive=True) < enough, masses, 0.0)
    places = _first_beyond(masses, uniforms)
    return places if ids is None else tf.gather(ids, places, batch_dims=2)


def _sort(logits, masses_of, enough):
    """Returns logits and ids, most probable first: a few if these suffice, or all.

    Sorting a whole vocabulary takes longer than a step of most models.
    """
    size = logits.shape[-1]
    first = tf.math.top_k(logits, min(FEW, size))
    if size <= FEW:
        return first
    missing = tf.reduce_sum(masses_of(first.values), -1, keepdims=True) < enough
    return tf.cond(
        tf.reduce_any(missing), lambda: tf.math.top_k(logits, size), lambda: first
    )


def _first_beyond(masses, uniforms):
    """Returns the index [B, N] of the interval that contains each number."""
    # Without mass there is no interval, whatever the rounding.
    ends = tf.where(masses > 0, tf.cumsum(masses, axis=-1), 0.0)
    places = uniforms[..., tf.newaxis] * tf.reduce_max(ends, axis=-1, keepdims=True)
    beyond = tf.cast(ends > places, tf.int32)
    return tf.math.top_k(beyond, 1).indices[..., 0]  # a tie: the first one


def _extend(samples, tokens, gains, state, limits):
    """Extends the samples that are still open by a token."""
    log_probs = samples.log_probs + tf.where(samples.is_open, gains, 0.0)
    lengths = samples.lengths + tf.cast(samples.is_open, tf.int32)
    goes_on = (tokens != EOS_ID) & (lengths < limits) & (log_probs > IMPOSSIBLE)
    return Samples(tokens, log_probs, lengths, samples.is_open & goes_on, state)
