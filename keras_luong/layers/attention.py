"""Global attention: a function of a query batch and a prepared memory (Eq. 7).

Shapes: B batch, Q queries, S source positions, Hq/Hv query/value units. Q is the target
length when a whole sequence is attended at once, 1 inside a recurrence and the beam
width during search: one implementation serves all three.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_rate, check_size
from keras_luong.layers.cells import draw_noise, dropped
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, scan
from keras_luong.layers.scores import Project, Score, make_score
from keras_luong.types import Shape, Tensor


class Memory(NamedTuple):
    """A source prepared for attention: made once, then passed along, never stored.

    Attributes:
        values: What is averaged into the context: [B, S, Hv].
        keys: What queries are scored against, projected already: [B, S, Hk].
        mask: True where there is a word: bool [B, S].
        lengths: True source lengths: int32 [B].
    """

    values: Tensor
    keys: Tensor
    mask: Tensor
    lengths: Tensor


def make_memory(values: Tensor, keys: Tensor, mask: Tensor | None = None) -> Memory:
    """A `Memory` with its lengths; without a mask every position is a word."""
    if mask is None:
        mask = ops.ones(ops.shape(values)[:2], dtype="bool")
    mask = ops.cast(mask, "bool")
    # Weight 0 is not enough where padding holds NaN or infinity: 0 times it is NaN.
    values, keys = blanked(values, mask), blanked(keys, mask)
    return Memory(values, keys, mask, ops.sum(ops.cast(mask, "int32"), axis=-1))


def blanked(x: Tensor, mask: Tensor) -> Tensor:
    """Zeros where the mask [B, n] is False, even in the place of NaN: [B, n, H]."""
    mask = ops.expand_dims(ops.cast(mask, "bool"), -1)
    return ops.where(mask, x, ops.zeros_like(x))


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last axis in float32; exactly 0 where `mask` is False.

    A row without any True is all zeros (`keras.layers.Attention` makes it uniform).
    """
    lowest, highest = -3.4e38, 3.4e38  # half precision may have overflowed to inf
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
        score_mode: "dot", "scaled_dot", "general", "scaled_general", "concat",
            "normed_concat", "location", "reduced_rank", "cosine", or a `Score` layer of
            your own.
        units: Width of "concat", "normed_concat" (default: the query's) and
            "reduced_rank" (default: half of the smaller side).
        max_source_length: Number of source positions that "location" knows.
        dropout: Rate at which attention weights are dropped in training.
        normalizer: What makes weights of scores in place of the softmax: a function of
            (scores float32 [B, Q, S], mask bool) that gives 0 where the mask is False;
            register it with Keras, so that the layer can be saved.
        hard: Whether, at inference, all weight goes to the source position that has the
            most (the lowest of several).
        coverage: Whether the score sees how much attention each source position has had
            so far (See et al. 2017, Eq. 11): the keys become `h̄_s + w_c Σ_{t'<t}
            a_t'(s)`, with a learned vector `coverage_kernel`, in the space where the
            score compares. `CoverageLoss` is its loss.
        seed: Seed of the dropout.
        kernel_initializer: Initializer of the weights.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Decoder states [B, Q, Hq].
        value: Encoder states [B, S, Hv].
        key: What to score against, if not `value`: [B, S, Hk].
        query_mask: bool [B, Q]; a masked query gets zeros.
        value_mask: bool [B, S]; a masked position gets weight 0. A source without any
            True gives zeros.
        return_attention_scores: Whether to return the weights too.
        positions: Target positions of the queries, int [B or 1, Q]: 0, 1, 2, ... by
            default. Global attention does not depend on them.
        training: Whether to apply dropout.

    Returns:
        The context [B, Q, Hv]; with `return_attention_scores`, also the weights, before
        dropout: float32 [B, Q, S].

    Raises:
        ValueError, TypeError: An argument is none of the above, shapes do not fit, or
            "dot", "scaled_dot" or "cosine" meet a query and a key of different sizes.

    Example:
        >>> attention = kl.LuongAttention("general")
        >>> context = attention(decoder_states, encoder_states, value_mask=mask)
        >>> h_tilde = kl.AttentionalVector(512)(context, decoder_states)
    """

    def __init__(
        self,
        score_mode: str | Score = "general",
        units: int | None = None,
        max_source_length: int | None = None,
        dropout: float = 0.0,
        normalizer: Callable[[Tensor, Tensor], Tensor] | None = None,
        hard: bool = False,
        coverage: bool = False,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.score_mode = score_mode
        self.units = check_size("units", units, optional=True)
        self.max_source_length = check_size(
            "max_source_length", max_source_length, optional=True
        )
        self.dropout = check_rate("dropout", dropout)
        if normalizer is not None and not callable(normalizer):
            raise TypeError(
                "normalizer must be None (softmax) or a function of scores and mask. "
                f"Received: {normalizer!r}"
            )
        self.normalizer = normalizer
        self.hard = check_flag("hard", hard)
        self.coverage = check_flag("coverage", coverage)
        self.seed = seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.score = make_score(
            score_mode,
            units,
            max_source_length,
            self.kernel_initializer,
            dtype=self.dtype_policy,
        )
        if coverage and score_mode == "location":
            raise ValueError(
                "coverage=True needs a score that compares with the source. Received: "
                'score_mode="location"'
            )
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> None:
        """Builds the score for queries [B, Q, Hq] and keys [B, S, Hk]."""
        key_shape = key_shape or value_shape
        if not self.score.built:  # a user's own may be, when it was loaded
            self.score.build(query_shape, key_shape)
        if self.coverage:
            units = self.score.key_units(query_shape, key_shape)
            self.coverage_kernel = self._add_kernel("coverage_kernel", units)
        self._build_more(query_shape[-1])

    def _build_more(self, query_units):
        """Makes the weights that only a subclass has."""

    def _add_kernel(self, name, *shape):
        initializer = self.kernel_initializer.clone()
        return self.add_weight(shape=shape, name=name, initializer=initializer)

    @property
    def has_state(self) -> bool:
        """Whether queries must come one after the other, see `initial_state`."""
        return self.coverage

    def initial_state(self, memory: Memory, queries: int = 1) -> list[Tensor]:
        """What the attention knows before the first target word.

        Args:
            memory: What `prepare` returned.
            queries: Number Q of queries per source: 1, or the beam width.

        Returns:
            List of float32 [B, Q, S]; empty for an attention that remembers nothing.
        """
        if not self.has_state:
            return []
        batch_size, source_length = ops.shape(memory.mask)
        return [ops.zeros((batch_size, queries, source_length), dtype="float32")]

    def prepare(
        self, value: Tensor, mask: Tensor | None = None, key: Tensor | None = None
    ) -> Memory:
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
        key = value if key is None else key
        if mask is not None:  # its gradient would be NaN where padding is
            key = blanked(key, mask)
        try:
            keys = self.score.prepare(key)
        except AttributeError as error:
            if self.score.built:
                raise
            raise ValueError(
                f"{self.name} has no weights yet: call it once, or build(query_shape, "
                "value_shape), before prepare."
            ) from error
        return make_memory(value, keys, mask)

    def attend(
        self,
        query: Tensor,
        memory: Memory,
        positions: Tensor | None = None,
        state: Sequence[Tensor] = (),
        mode: Mode = INFERENCE,
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """Attends from every query to a prepared memory.

        Args:
            query: Decoder states [B, Q, Hq].
            memory: What `prepare` returned.
            positions: Target positions of the queries, int [B or 1, Q], counted from 0;
                global attention ignores them, local attention may not.
            state: What `initial_state` or the attention before returned.
            mode: How to compute it; the dropout multipliers are `mode.noise.attention`.

        Returns:
            Context [B, Q, Hv]; weights, float32 [B, Q, S]; and the new state.
        """
        weights, state = self._weigh(query, memory, state, mode)
        kept = ops.cast(dropped(weights, mode.noise.attention), memory.values.dtype)
        return mode.project(memory.values, kept), weights, state

    def _weigh(self, query, memory, state, mode):
        """Weights [B, Q, S] of all source positions, before dropout; the new state."""
        mask = ops.expand_dims(memory.mask, 1)
        coverage = state[0] if self.coverage else None
        weights = self.align(query, memory.keys, mask, coverage, mode.project)
        weights = self.choose(weights, mode.training)
        return weights, [past + weights for past in state]

    def align(
        self, query: Tensor, keys: Tensor, mask: Tensor, coverage: Any, project: Project
    ) -> Tensor:
        """Weights of N places for every query (Eq. 7); a subclass may have others.

        Args:
            query: Decoder states [B, Q, Hq].
            keys: Prepared keys [B, N, Hk], or the queries' own [B, Q, N, Hk].
            mask: Which places there are: bool [B, Q or 1, N].
            coverage: Sum of the earlier weights, float32 [B, Q, N], or None.
            project: How to multiply by weights.

        Returns:
            float32 [B, Q, N].
        """
        if coverage is not None:
            kernel = ops.cast(self.coverage_kernel, keys.dtype)
            keys = keys if len(keys.shape) == 4 else ops.expand_dims(keys, 1)
            keys = keys + ops.cast(coverage, keys.dtype)[..., None] * kernel
        scores = self.score(query, keys, project=project)
        normalizer = self.normalizer or masked_softmax
        return normalizer(ops.cast(scores, "float32"), mask)

    def choose(self, weights: Tensor, training: bool) -> Tensor:
        """The weights, or at inference where `hard`, only the highest."""
        return hardened(weights) if self.hard and not training else weights

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """Dropout multipliers [B, Q or 1, S] of weights; None where none is dropped.

        With one row for all queries a whole recurrence shares it, as the recurrent
        layers of Keras share their dropout masks between steps.
        """
        return draw_noise(shape, self.dropout, training, self.seed_generator, "float32")

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        positions: Tensor | None = None,
        training: bool | None = None,
    ) -> Any:
        """See the class."""
        shape = (*ops.shape(query)[:2], ops.shape(value)[1])
        if positions is None:
            positions = ops.arange(shape[1], dtype="int32")[None]
        positions = ops.convert_to_tensor(positions)
        _check_inputs(query, value, key, query_mask, value_mask, positions)
        memory = self.prepare(value, value_mask, key)
        noise = Noise(attention=self.draw_noise(shape, training))
        mode = Mode(bool(training), noise)
        if query_mask is not None:
            query = blanked(query, query_mask)
        if self.has_state:
            context, weights = self._attend_in_turn(
                query, query_mask, memory, positions, mode
            )
        else:
            context, weights, _ = self.attend(query, memory, positions, (), mode)
        if query_mask is not None:
            context = blanked(context, query_mask)
            weights = blanked(weights, query_mask)
        return (context, weights) if return_attention_scores else context

    def _attend_in_turn(self, query, mask, memory, positions, mode):
        """One query after the other, each knowing what the earlier ones looked at."""
        batch_size, length = ops.shape(query)[:2]
        positions = ops.broadcast_to(positions, (batch_size, length))
        mask = ops.ones_like(positions) if mask is None else mask
        if mode.noise.attention is not None:  # one row serves the whole recurrence
            mode = mode._replace(noise=Noise(attention=mode.noise.attention[:, :1]))

        def step(query, states, constants, mode):
            memory, positions, mask = constants
            before, turn = states
            context, weights, after = self.attend(
                query[:, None],
                memory,
                ops.take_along_axis(positions, turn, axis=1),
                [x[:, None] for x in before],
                mode,
            )
            # A masked query is as good as none: those after it do not know of it.
            there = ops.take_along_axis(mask, turn, axis=1)
            after = [
                ops.where(there, new[:, 0], old)
                for new, old in zip(after, before, strict=True)
            ]
            return (context[:, 0], weights[:, 0]), (after, turn + 1)

        state = [x[:, 0] for x in self.initial_state(memory)]
        outputs, _ = scan(
            step,
            ops.swapaxes(query, 0, 1),
            (state, ops.zeros((batch_size, 1), dtype="int32")),
            (memory, positions, ops.cast(mask, "bool")),
            mode=mode,
        )
        return tuple(ops.swapaxes(x, 0, 1) for x in outputs)

    def compute_output_shape(
        self, query_shape: Shape, value_shape: Shape, key_shape: Shape | None = None
    ) -> Shape:
        """The context's shape, [B, Q, Hv]."""
        return (*query_shape[:-1], value_shape[-1])

    def compute_mask(self, query: Tensor, query_mask: Tensor | None = None) -> Any:
        """The context is masked where the query is."""
        return query_mask

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        given = arguments_of(self.call, args, kwargs)
        query, value = given["query"].shape, given["value"].shape
        context = keras.KerasTensor((*query[:-1], value[-1]), self.compute_dtype)
        weights = keras.KerasTensor((*query[:-1], value[1]), "float32")
        return (context, weights) if given["return_attention_scores"] else context

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        score_mode = self.score_mode
        if not isinstance(score_mode, str):
            score_mode = keras.saving.serialize_keras_object(score_mode)
        config = {
            "score_mode": score_mode,
            "units": self.units,
            "max_source_length": self.max_source_length,
            "dropout": self.dropout,
            "normalizer": keras.saving.serialize_keras_object(self.normalizer),
            "hard": self.hard,
            "coverage": self.coverage,
            "seed": self.seed,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LuongAttention:
        """Rebuilds the layer, a user's own score and normalizer included."""
        own = {
            name: keras.saving.deserialize_keras_object(config[name])
            for name in ("score_mode", "normalizer")
            if isinstance(config[name], dict)
        }
        return cls(**{**config, **own})


def _check_inputs(query, value, key, query_mask, value_mask, positions):
    """Raises unless ranks, batch sizes and lengths fit together, and floats are floats.

    Integers would have been averaged by weights that are rounded to 0.
    """
    for name, x in (("query", query), ("value", value), ("key", key)):
        dtype = None if x is None else keras.backend.standardize_dtype(x.dtype)
        if dtype and "float" not in dtype:
            raise TypeError(f"{name} must be floating. Received: {name}.dtype={dtype}")
    check_axes(
        query=(query, "batch size", "query length", None),
        value=(value, "batch size", "source length", None),
        key=(key, "batch size", "source length", None),
        query_mask=(query_mask, "batch size", "query length"),
        value_mask=(value_mask, "batch size", "source length"),
        positions=(positions, None, "query length"),
    )


def arguments_of(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call's arguments by name, defaults included."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def hardened(weights: Tensor) -> Tensor:
    """All of the weight [..., N] at the highest, the first of several; zeros stay."""
    highest = ops.max(weights, axis=-1, keepdims=True, initial=0.0)
    # Not argmax, for which Keras has operations on bits that LiteRT lacks.
    winners = ops.logical_and(weights == highest, highest > 0)
    places = ops.cumsum(ops.cast(winners, "int32"), axis=-1)
    return ops.cast(ops.logical_and(winners, places == 1), weights.dtype)
