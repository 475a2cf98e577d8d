"""Global attention: a function of a query batch and a prepared memory (Eq. 5 and 7).

Shapes: B batch, Q queries, S source positions, Hq/Hv query/value units. Q is the target
length when a whole sequence is attended at once, 1 inside a recurrence and the beam
width during search: one implementation serves all three.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_rate, check_same, check_size
from keras_luong.layers.scores import make_score, matmul


class Memory(NamedTuple):
    """A source prepared for attention: made once, then passed along, never stored.

    Attributes:
        values: What is averaged into the context: [B, S, Hv].
        keys: What queries are scored against, projected already: [B, S, Hk].
        mask: True where there is a word: bool [B, S].
        lengths: True source lengths: int32 [B].
    """

    values: Any
    keys: Any
    mask: Any
    lengths: Any


def make_memory(values, keys, mask=None):
    """A `Memory` with its lengths; without a mask every position is a word."""
    if mask is None:
        mask = ops.ones(ops.shape(values)[:2], dtype="bool")
    mask = ops.cast(mask, "bool")
    # Weight 0 is not enough where padding holds NaN or infinity: 0 times it is NaN.
    words = ops.expand_dims(mask, -1)
    values = ops.where(words, values, ops.zeros_like(values))
    keys = ops.where(words, keys, ops.zeros_like(keys))
    return Memory(values, keys, mask, ops.sum(ops.cast(mask, "int32"), axis=-1))


def check_attention_inputs(query, value, key=None, query_mask=None, value_mask=None):
    """Raises ValueError unless ranks, batch sizes and lengths fit together."""
    ranks = {"query": 3, "value": 3, "key": 3, "query_mask": 2, "value_mask": 2}
    given = zip(ranks, (query, value, key, query_mask, value_mask), strict=True)
    shapes = {name: tuple(x.shape) for name, x in given if x is not None}
    for name, shape in shapes.items():
        if len(shape) != ranks[name]:
            raise ValueError(
                f"{name} must have {ranks[name]} axes. Received: {name}.shape={shape}"
            )
    check_same("Batch size", **{name: shape[0] for name, shape in shapes.items()})
    for side in (("query", "query_mask"), ("value", "key", "value_mask")):
        lengths = {name: shapes[name][1] for name in side if name in shapes}
        check_same("Length", **lengths)


def masked_softmax(scores, mask):
    """Softmax over the last axis in float32; exactly 0 where `mask` is False.

    A row without any True is all zeros (`keras.layers.Attention` makes it uniform).
    """
    lowest, highest = -3.4e38, 3.4e38  # half precision may have overflown to inf
    scores = ops.minimum(ops.cast(scores, "float32"), highest)
    scores = ops.where(mask, scores, lowest)
    peak = ops.max(scores, axis=-1, keepdims=True, initial=lowest)
    exponentials = ops.where(mask, ops.exp(scores - ops.stop_gradient(peak)), 0.0)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    return exponentials / ops.where(total > 0, total, 1.0)


@keras.saving.register_keras_serializable(package="keras_luong")
class LuongAttention(keras.layers.Layer):
    """Global attention of Luong, Pham & Manning 2015 (arXiv:1508.04025), Eq. 7 and 8.

    `a_t(s) = softmax_s score(h_t, h̄_s)` and `c_t = Σ_s a_t(s) h̄_s`.

    Args:
        score_mode: "dot", "scaled_dot", "general", "concat", "location",
            "reduced_rank", "cosine", or a `Score` layer of your own.
        units: Width of "concat" (default: the query's) and "reduced_rank" (default:
            half of the smaller side).
        max_source_length: Number of source positions that "location" knows.
        dropout: Rate at which attention weights are dropped in training.
        seed: Seed of the dropout.
        kernel_initializer: Initializer of the score's weights.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Decoder states [B, Q, Hq].
        value: Encoder states [B, S, Hv].
        key: What to score against, if not `value`: [B, S, Hk].
        query_mask: bool [B, Q]; a masked query gets zeros.
        value_mask: bool [B, S]; a masked position gets weight 0. A source without any
            True gives zeros.
        return_attention_scores: Whether to return the weights too.
        training: Whether to apply dropout.

    Returns:
        The context [B, Q, Hv]; with `return_attention_scores`, also the weights, before
        dropout: float32 [B, Q, S].

    Raises:
        ValueError, TypeError: `score_mode`, `units`, `max_source_length` or `dropout`
            is none of the above, or "dot", "scaled_dot" or "cosine" meet a query and a
            key of different sizes.

    Example:
        >>> attention = kl.LuongAttention("general")
        >>> context = attention(decoder_states, encoder_states, value_mask=mask)
        >>> h_tilde = kl.AttentionalVector(512)(context, decoder_states)
    """

    def __init__(
        self,
        score_mode="general",
        units=None,
        max_source_length=None,
        dropout=0.0,
        seed=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.score_mode = score_mode
        self.units = units
        self.max_source_length = max_source_length
        self.dropout = check_rate("dropout", dropout)
        self.seed = seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.score = make_score(
            score_mode,
            units,
            max_source_length,
            self.kernel_initializer,
            dtype=self.dtype_policy,
        )
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, query_shape, value_shape, key_shape=None):
        """Builds the score for queries [B, Q, Hq] and keys [B, S, Hk]."""
        if not self.score.built:  # a user's own may be, when it was loaded
            self.score.build(query_shape, key_shape or value_shape)

    def prepare(self, value, mask=None, key=None):
        """Projects the source once: everything that no query changes.

        Args:
            value: Encoder states [B, S, Hv].
            mask: bool [B, S], True at words; all of them by default.
            key: What to score against, if not `value`: [B, S, Hk].

        Returns:
            A `Memory` for `attend`.

        Raises:
            ValueError: The score needs weights and has none yet.
        """
        try:
            keys = self.score.prepare(value if key is None else key)
        except AttributeError as error:
            if self.score.built:
                raise
            raise ValueError(
                f"{self.name} has no weights yet: call it once, or build(query_shape, "
                "value_shape), before prepare."
            ) from error
        return make_memory(value, keys, mask)

    def attend(self, query, memory, positions=None, noise=None, project=matmul):
        """Attends from every query to a prepared memory.

        Args:
            query: Decoder states [B, Q, Hq].
            memory: What `prepare` returned.
            positions: Target positions of the queries, int [B, Q], counted from 0;
                global attention ignores them, local attention may not.
            noise: Dropout multipliers from `dropout_noise`, or None.
            project: How to multiply by weights (`keras_luong.layers.scores.matmul`).

        Returns:
            Context [B, Q, Hv] and weights, float32 [B, Q, S].
        """
        del positions
        scores = self.score(query, memory.keys, project=project)
        weights = masked_softmax(scores, ops.expand_dims(memory.mask, 1))
        kept = weights if noise is None else weights * noise
        context = ops.matmul(ops.cast(kept, memory.values.dtype), memory.values)
        return context, weights

    def dropout_noise(self, shape, training):
        """Multipliers [B, Q or 1, S] of weights: 0 or 1/(1-rate); None if none apply.

        With one row for all queries a whole recurrence shares it, as the recurrent
        layers of Keras share their dropout masks between steps.
        """
        if not (training and self.dropout):
            return None
        ones = ops.ones(shape, dtype="float32")
        return keras.random.dropout(ones, self.dropout, seed=self.seed_generator)

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        """See the class."""
        check_attention_inputs(query, value, key, query_mask, value_mask)
        memory = self.prepare(value, value_mask, key)
        shape = (*ops.shape(query)[:2], ops.shape(value)[1])
        context, weights = self.attend(
            query, memory, noise=self.dropout_noise(shape, training)
        )
        if query_mask is not None:
            query_mask = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
            context = ops.where(query_mask, context, ops.zeros_like(context))
            weights = ops.where(query_mask, weights, 0.0)
        return (context, weights) if return_attention_scores else context

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """The context's shape, [B, Q, Hv]."""
        del key_shape
        return (*query_shape[:-1], value_shape[-1])

    def compute_mask(self, query, query_mask=None):
        """The context is masked where the query is."""
        del query
        return query_mask

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        return_attention_scores=False,
        training=None,
    ):
        """Shapes and dtypes of `call`'s results."""
        del key, query_mask, value_mask, training
        context = keras.KerasTensor(
            (*query.shape[:-1], value.shape[-1]), dtype=self.compute_dtype
        )
        weights = keras.KerasTensor((*query.shape[:-1], value.shape[1]), "float32")
        return (context, weights) if return_attention_scores else context

    def get_config(self):
        """The constructor's arguments."""
        score_mode = self.score_mode
        if not isinstance(score_mode, str):
            score_mode = keras.saving.serialize_keras_object(score_mode)
        config = {
            "score_mode": score_mode,
            "units": self.units,
            "max_source_length": self.max_source_length,
            "dropout": self.dropout,
            "seed": self.seed,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Rebuilds the layer, a user's own score included."""
        score_mode = config["score_mode"]
        if isinstance(score_mode, dict):
            score_mode = keras.saving.deserialize_keras_object(score_mode)
        return cls(**{**config, "score_mode": score_mode})


@keras.saving.register_keras_serializable(package="keras_luong")
class AttentionalVector(keras.layers.Layer):
    """`h̃_t = tanh(W_c [c_t; h_t])` (Luong et al. 2015, Eq. 5), without a bias.

    Weight: `kernel` [Hv + Hq, units], the context's rows first.

    Args:
        units: Size of h̃.
        kernel_initializer: Initializer of `kernel`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        context: [..., Hv].
        query: [..., Hq].

    Returns:
        h̃: [..., units].

    Example:
        >>> h_tilde = kl.AttentionalVector(512)(context, decoder_states)
    """

    def __init__(self, units, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.units = check_size("units", units)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, context_shape, query_shape):
        """Makes `kernel` [Hv + Hq, units]."""
        self.kernel = self.add_weight(
            shape=(context_shape[-1] + query_shape[-1], self.units),
            name="kernel",
            initializer=self.kernel_initializer,
        )

    def call(self, context, query, project=matmul):
        """See the class."""
        return ops.tanh(project(self.kernel, ops.concatenate([context, query], -1)))

    def compute_output_shape(self, context_shape, query_shape):
        """[..., units]."""
        del query_shape
        return (*context_shape[:-1], self.units)

    def get_config(self):
        """The constructor's arguments."""
        initializer = keras.initializers.serialize(self.kernel_initializer)
        config = {"units": self.units, "kernel_initializer": initializer}
        return {**super().get_config(), **config}
