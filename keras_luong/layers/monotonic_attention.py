"""Monotonic attention: looks at the source from left to right, never back.

Monotonic chunkwise attention (MoChA) adds a soft look at the last few positions.

Shapes: B batch, Q queries, S source positions, w positions of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_choice, check_not_negative, check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.memory import Memory, weights_dtype
from keras_luong.layers.normalizers import LOWEST, masked_softmax
from keras_luong.layers.recurrence import Mode
from keras_luong.layers.scores import Score, another_score
from keras_luong.types import Tensor

SOFT_MODES = ("recursive", "parallel")
MODES = (*SOFT_MODES, "hard")


@keras.saving.register_keras_serializable(package="keras_luong")
class MonotonicAttention(LuongAttention):
    """Monotonic attention of Raffel et al. 2017 (arXiv:1704.00784), over any score.

    Each position is stopped at with probability `sigmoid(score + bias)`, see
    `monotonic_weights`. With `hard=True` inference takes the first position, from the
    last one on, whose probability is more than one half, and can run while the source
    is still coming in.

    Weights: the score's, and `score_bias`, a scalar.

    Args:
        score_mode: As in `LuongAttention`.
        units: As in `LuongAttention`.
        mode: How the weights are computed where they are not hard: "recursive", exact,
            or "parallel", TensorFlow Addons' default, for short sources.
        sigmoid_noise: Standard deviation of the Gaussian noise that training adds to
            the scores, which drives the probabilities towards 0 and 1; 1 if inference
            is to be hard.
        score_bias_init: Initial value of the bias: negative for long sources, so that
            the far ones are reached at all.
        **kwargs: `max_source_length`, `dropout`, `hard`, `seed`, `kernel_initializer`,
            `kernel_regularizer`, `kernel_constraint` as in `LuongAttention`, `name`,
            `dtype`.

    Call arguments, returns: As `LuongAttention`, for sources of one axis of positions;
    weights may sum to less than 1. Logits are the scores with their bias.

    Training the recursive mode inside a decoder's loop under XLA needs source lengths
    that are known when the graph is made; without XLA they may be any.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> states, memory = np.random.rand(2, 4, 8), np.random.rand(2, 5, 8)
        >>> attention = kl.MonotonicAttention("general", sigmoid_noise=1.0, hard=True)
        >>> tuple(attention(states, memory).shape)
        (2, 4, 8)
    """

    source_axes = 1  # from left to right
    has_state = True  # each query starts where the one before it stopped
    _lacks = {"normalizer": "", "coverage": ""}

    def __init__(
        self,
        score_mode: str | Score = "general",
        units: int | None = None,
        mode: str = "recursive",
        sigmoid_noise: float = 0.0,
        score_bias_init: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(score_mode, units, **kwargs)
        self.mode = check_choice("mode", mode, SOFT_MODES)
        self.sigmoid_noise = check_not_negative("sigmoid_noise", sigmoid_noise)
        self.score_bias_init = score_bias_init

    def build(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Builds the score, and makes its bias."""
        super().build(query_shape, value_shape, key_shape)
        initializer = keras.initializers.Constant(self.score_bias_init)
        self.score_bias = self.add_weight((), initializer, name="score_bias")

    def initial_state(self, memory: Memory, queries: int = 1) -> list[Tensor]:
        """The weights before the first query: all at the first position."""
        (nothing,) = super().initial_state(memory, queries)
        return [nothing + ops.one_hot(0, ops.shape(nothing)[-1], dtype=nothing.dtype)]

    def weigh(
        self, query: Tensor, keys: Any, mask: Any, state: Sequence[Tensor], mode: Mode
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """See `LuongAttention.weigh`; the state is the weights of the query before."""
        scores = self.score(query, keys, project=mode.project)
        scores = ops.cast(scores, weights_dtype(scores.dtype))
        scores = scores + ops.cast(self.score_bias, scores.dtype)
        if mode.training and self.sigmoid_noise:
            if keras.backend.backend() == "jax":
                raise ValueError(
                    "On JAX a loop draws the same numbers at every step, so that "
                    "sigmoid_noise must be 0 to train there. "
                    f"Received: {self.sigmoid_noise}"
                )
            noise = keras.random.normal(
                ops.shape(scores), dtype=scores.dtype, seed=self.seed_generator
            )
            scores = scores + self.sigmoid_noise * noise
        hard = self.hard and not mode.training
        stops = ops.cast(scores > 0, scores.dtype) if hard else ops.sigmoid(scores)
        stops = stops if mask is None else ops.where(mask, stops, 0.0)
        before = ops.cast(state[0], stops.dtype)
        weights = monotonic_weights(stops, before, "hard" if hard else self.mode)
        return weights, scores, [ops.cast(weights, state[0].dtype)]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "mode": self.mode,
            "sigmoid_noise": self.sigmoid_noise,
            "score_bias_init": self.score_bias_init,
        }


@keras.saving.register_keras_serializable(package="keras_luong")
class MonotonicChunkwiseAttention(MonotonicAttention):
    """MoChA, monotonic chunkwise attention of Chiu & Raffel 2018 (arXiv:1712.05382).

    A monotonic attention finds where to stop, and a second score weighs the chunk of
    `chunk_size` positions that end there by a softmax, see `chunkwise_weights`.
    Training has the expected weights, of all positions in parallel. With `hard=True`
    inference stops at one position, or at none, and looks at its chunk only; it can run
    while the source is still coming in.

    Each query starts where the one before it stopped, so that queries must come one
    after the other, as in `MonotonicAttention`.

    Weights: those of `MonotonicAttention`, and the second score's, `chunk_score`.

    Args:
        score_mode: Score that finds where to stop, as in `LuongAttention`.
        units: As in `LuongAttention`, of both scores.
        chunk_size: Positions of a chunk, w; 1 makes it a `MonotonicAttention`.
        chunk_score_mode: Score that weighs the chunk; by default like `score_mode`,
            with weights of its own.
        mode: How the probabilities of stopping are computed where they are not hard,
            as in `MonotonicAttention`.
        **kwargs: `sigmoid_noise`, `score_bias_init` as in `MonotonicAttention`;
            `max_source_length`, `dropout`, `hard`, `seed`, `kernel_initializer`,
            `kernel_regularizer`, `kernel_constraint` as in `LuongAttention`; `name`,
            `dtype`.

    Call arguments, returns: As `MonotonicAttention`; logits are those of stopping.

    Raises:
        ValueError, TypeError: An argument that is none of the above.

    Example:
        >>> attention = kl.MonotonicChunkwiseAttention(
        ...     "general", chunk_size=4, sigmoid_noise=1.0, hard=True
        ... )
        >>> states, memory = np.random.rand(2, 3, 8), np.random.rand(2, 9, 8)
        >>> tuple(attention(states, memory).shape)
        (2, 3, 8)
    """

    _nested = (*MonotonicAttention._nested, "chunk_score_mode")

    def __init__(
        self,
        score_mode: str | Score = "general",
        units: int | None = None,
        chunk_size: int = 2,
        chunk_score_mode: str | Score | None = None,
        mode: str = "recursive",
        **kwargs: Any,
    ) -> None:
        super().__init__(score_mode, units, mode, **kwargs)
        self.chunk_size = check_size("chunk_size", chunk_size)
        self.chunk_score_mode = chunk_score_mode
        if chunk_score_mode is None:
            chunk_score_mode = another_score(score_mode, 1)
        self.chunk_score = self._make_score(chunk_score_mode)
        self.chunk_score.owners.add(self)

    def weigh(
        self, query: Tensor, keys: Any, mask: Any, state: Sequence[Tensor], mode: Mode
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """See `LuongAttention.weigh`; the state is where the query before stopped."""
        keys, chunk_keys = keys
        stops, stop_scores, state = super().weigh(query, keys, mask, state, mode)
        scores = self.chunk_score(query, chunk_keys, project=mode.project)
        weights = chunkwise_weights(stops, scores, mask, self.chunk_size)
        return weights, stop_scores, state

    @property
    def _parts(self):
        return [self.score, self.chunk_score]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "chunk_size": self.chunk_size,
            "chunk_score_mode": serialize_shared(self.chunk_score_mode),
        }


def monotonic_weights(
    p_choose: Tensor, previous: Tensor, mode: str = "parallel"
) -> Tensor:
    """The alignment of Raffel et al. 2017 (arXiv:1704.00784).

    From where the query before stopped, position j is passed over with probability `1 -
    p_j` and stopped at with probability `p_j`. The weights are the probabilities of
    stopping at each position; they sum to less than 1 where all may be passed over.

    Args:
        p_choose: Probabilities of stopping, float32 [..., S]; 0 at padding.
        previous: The query before's weights, float32 [..., S]; before the first query
            all of it at position 0.
        mode: "recursive" (Eq. 9, exact), "parallel" (Eq. 10 and 11, cumulative
            products and sums; what lies behind a product of `1 - p` below 1e-10 is
            lost, which is most of a source of 100 words where p is about a half), or
            "hard" (section 2.2: p and previous are 0 or 1).

    Returns:
        float32 [..., S].

    Raises:
        ValueError: `mode` is none of these.
    """
    check_choice("mode", mode, MODES)
    if mode == "recursive":
        # q_j = (1 - p_{j-1}) q_{j-1} + previous_j, and a_j = p_j q_j
        return p_choose * _linear_recurrence(shifted(1 - p_choose, 1), previous)
    if mode == "hard":  # only from the stop before on, and there the first
        p_choose = p_choose * ops.cumsum(previous, axis=-1)
        return p_choose * ops.cast(ops.cumsum(p_choose, axis=-1) < 2, p_choose.dtype)
    # By logarithms: the product's own gradient divides by its factors.
    factors = ops.clip(1 - shifted(p_choose, 1), 1e-20, 1.0)
    passed = ops.exp(ops.cumsum(ops.log(factors), axis=-1))
    # A product too small to divide by would lose all of what comes after it.
    reached = ops.cumsum(previous / ops.clip(passed, 1e-10, 1.0), axis=-1)
    return p_choose * passed * reached


def _linear_recurrence(factors, terms):
    """`q_j = factors_j q_{j-1} + terms_j` along the last axis, by doubling.

    Before the step of size n, `q_j` holds the terms of the last n places, and
    `factors_j` what brings a sum n places further. (`ops.associative_scan` needs a size
    that is known when the graph is made.)
    """

    def double(step, factors, terms):
        terms = terms + factors * shifted(terms, step)
        return 2 * step, factors * shifted(factors, step), terms

    size = terms.shape[-1]
    if size is None:
        size = ops.shape(terms)[-1]
        start = ops.convert_to_tensor(1, "int32"), factors, terms
        most = 31  # doublings; XLA asks for a number
        return ops.while_loop(lambda step, *_: step < size, double, start, most)[-1]
    if not isinstance(size, int):  # JAX's sign for any size, to infer shapes alone
        return factors * terms
    step = 1
    while step < size:
        step, factors, terms = double(step, factors, terms)
    return terms


def chunkwise_weights(
    stops: Tensor, scores: Tensor, mask: Tensor | None, chunk_size: int
) -> Tensor:
    """The expected weights of Chiu & Raffel 2018 (arXiv:1712.05382), section 2.3.

    Where the monotonic attention stops, a softmax runs over the chunk of the `w`
    positions that end there: `β_j = Σ_k α_k exp(u_j) / Σ_l exp(u_l)`, k over the w
    stops whose chunks have j, and l over the chunk of k.

    Args:
        stops: α, probabilities of stopping at each position, [..., S]. Where they are 0
            but for one 1, these are the hard weights of inference.
        scores: u, of the same shape.
        mask: Which positions there are: bool, broadcasts to the scores; None for all.
        chunk_size: w.

    Returns:
        [..., S]; they sum to as much as the stops.
    """
    offsets = range(chunk_size)  # how far before its stop a position is
    mask = ops.ones_like(scores) if mask is None else mask
    mask = ops.cast(mask, "int32")
    of_chunks = ops.stack([shifted(scores, i) for i in offsets], -1)
    masks = ops.stack([shifted(mask, i) for i in offsets], -1) > 0
    # Location scores are -inf beyond their longest source: a chunk of these is even.
    shares = masked_softmax(ops.maximum(of_chunks, LOWEST), masks)
    shares = ops.expand_dims(stops, -1) * shares
    return sum(shifted(shares[..., i], -i) for i in offsets)


def shifted(x: Tensor, places: Any) -> Tensor:
    """Moves x along its last axis, where zeros come in.

    Args:
        x: [..., S].
        places: How far to the right, an int or an int tensor; an int may be negative,
            which is to the left.

    Returns:
        [..., S].
    """
    if not isinstance(places, int):  # in a loop, where no slice has a fixed size
        source = ops.arange(ops.shape(x)[-1]) - places
        return ops.where(source >= 0, ops.take(x, ops.maximum(source, 0), axis=-1), 0)
    if places == 0:
        return x
    nothing = [(0, 0)] * (len(x.shape) - 1)
    if places > 0:
        return ops.pad(x, [*nothing, (places, 0)])[..., :-places]
    return ops.pad(x, [*nothing, (0, -places)])[..., -places:]
