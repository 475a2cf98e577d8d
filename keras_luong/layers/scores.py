"""Scores: how well a decoder state matches each source position (Eq. 8).

A score multiplies by weight matrices, and by keys, only through the
`project(weights, inputs)` that it is handed, see `keras_luong.layers.projection`.

Shapes: B batch, Q queries, S source positions, W window, Hq/Hv/Hk query/value/key
units. Keys are shared by all queries, [B, S, Hk], or, where local attention gathered a
window around each query, the query's own: [B, Q, W, Hk].
"""

from __future__ import annotations

import inspect
import math
import weakref
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_choice, check_size
from keras_luong.compat import autocasting
from keras_luong.layers.base import BaseLayer, Kernel, weight_config
from keras_luong.layers.memory import weights_dtype
from keras_luong.layers.projection import Project, dot, matmul
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class Score(BaseLayer):
    """A score function: dot product of query and key unless a subclass says otherwise.

    To write your own, subclass it: make weights in `build`, do what depends on the
    source alone in `prepare` (it runs once per source sentence), and the rest in
    `call` (it runs for every target word). `call` must take `project` and multiply with
    it by matrices that no target word changes (weights, keys): training is faster then.

    Keys are [B, S, Hk], or, in `LocalAttention`, the window of each query: [B, Q, W,
    Hk]. `call` of this class and `dot` take both; with any other operation, add an axis
    to shared keys first (`key if len(key.shape) == 4 else ops.expand_dims(key, 1)`).
    Register the class with Keras to save models that have it. One score may serve
    several attention layers of a model; `keras.models.clone_model` gives each its own.

    Args:
        units: Width of the scores that have one.
        kernel_initializer: Initializer of the weights that `add_kernel` makes.
        kernel_regularizer: Regularizer of the same.
        kernel_constraint: Constraint on the same.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: [B, Q, Hq].
        key: Prepared keys: [B, S, Hk] or [B, Q, W, Hk].
        project: How to multiply by weights and keys, see `matmul`.

    Returns:
        Scores [B, Q, S] or [B, Q, W].

    Raises:
        TypeError, ValueError: `units` is no positive integer.

    Example:
        >>> matmul = kl.layers.matmul
        >>> @keras.saving.register_keras_serializable("mine")
        ... class BiasedGeneral(kl.Score):
        ...     def build(self, query_shape, key_shape):
        ...         of_query, of_key = (query_shape[-1], 8), (key_shape[-1], 8)
        ...         self.query_kernel = self.add_weight(of_query, name="query_kernel")
        ...         self.key_kernel = self.add_weight(of_key, name="key_kernel")
        ...         self.bias = self.add_weight((8,), "zeros", name="bias")
        ...
        ...     def prepare(self, key):
        ...         return matmul(self.key_kernel, key) + self.bias
        ...
        ...     def call(self, query, key, project=matmul):
        ...         return super().call(project(self.query_kernel, query), key, project)
        >>> attention = kl.LuongAttention(BiasedGeneral())
        >>> tuple(attention(np.random.rand(2, 4, 6), np.random.rand(2, 5, 7)).shape)
        (2, 4, 7)
    """

    def __init__(
        self,
        units: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True  # the attention takes care of masks
        self.units = check_size("units", units, optional=True)
        self.kernel_initializer = keras.initializers.get(
            kernel_initializer or "glorot_uniform"
        )
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        #: The layers that have it, such as a `LuongAttention`, which adds itself.
        self.owners: weakref.WeakSet[Any] = weakref.WeakSet()

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes the weights for queries [B, Q, Hq] and unprepared keys [B, S, Hv]."""

    def prepare(self, key: Tensor) -> Tensor:
        """Maps keys [B, S, Hv], once per source, to what `call` compares with."""
        return key

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Scores queries [B, Q, Hq] against prepared keys; [B, Q, S] or [B, Q, W]."""
        return dot(query, key, project)

    def key_units(self, query_shape: Shape, key_shape: Shape) -> Any:
        """Size Hk of the keys that `prepare` makes, of a score that is built."""
        prepare = keras.layers.Lambda(lambda key: self.prepare(key))
        return prepare.compute_output_shape(key_shape)[-1]

    def compute_output_shape(self, query_shape: Shape, key_shape: Shape) -> Shape:
        """[B, Q, S], or [B, Q, W] for gathered keys."""
        return (*query_shape[:-1], key_shape[-2])

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """See `BaseLayer`; the attention layers that have the score go along.

        A model quantizes only layers that have no others in them, and an attention has
        its score.
        """
        super().quantize(mode, type_check, config)
        for layer in self.owners:
            if layer.built and layer.quantization_mode is None:
                layer.quantize(mode)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        options = weight_config(self, "kernel")
        return {**super().get_config(), "units": self.units, **options}


@keras.saving.register_keras_serializable(package="keras_luong")
class DotScore(Score):
    """`score(h_t, h̄_s) = h_tᵀ h̄_s` (Eq. 8, dot)."""

    _score_mode = "dot"

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Checks that query and key have the same size."""
        if query_shape[-1] != key_shape[-1]:
            raise ValueError(
                f'score_mode="{self._score_mode}" compares query and key directly, so '
                "both need the same last dimension. Received: query.shape="
                f"{tuple(query_shape)}, key.shape={tuple(key_shape)}. "
                '"general" or "concat" take any.'
            )


@keras.saving.register_keras_serializable(package="keras_luong")
class ScaledDotScore(DotScore):
    """`h_tᵀ h̄_s / √H` (Vaswani et al. 2017, Eq. 1)."""

    _score_mode = "scaled_dot"

    def prepare(self, key: Tensor) -> Tensor:
        """Scales the keys once, rather than the scores at every step."""
        return key / math.sqrt(key.shape[-1])


@keras.saving.register_keras_serializable(package="keras_luong")
class CosineScore(DotScore):
    """`h_tᵀ h̄_s / (‖h_t‖ ‖h̄_s‖)` (Graves et al. 2014, Eq. 6); 0 for zero vectors."""

    _score_mode = "cosine"

    def prepare(self, key: Tensor) -> Tensor:
        """Normalises the keys to unit length."""
        return _unit_length(key)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Cosine of query [B, Q, H] and prepared keys."""
        return dot(_unit_length(query), key, project)


def _unit_length(x):
    wide = ops.cast(x, weights_dtype(x.dtype))  # half precision would overflow
    square = ops.sum(ops.square(wide), axis=-1, keepdims=True)
    return x * ops.cast(ops.rsqrt(ops.maximum(square, 1e-12)), x.dtype)


@keras.saving.register_keras_serializable(package="keras_luong")
class GeneralScore(Score):
    """`h_tᵀ W_a h̄_s` (Eq. 8, general). Weight: `kernel` [Hq, Hv]."""

    kernel = Kernel()

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes `kernel` [Hq, Hv]."""
        self.kernel = self.add_kernel("kernel", query_shape[-1], key_shape[-1])

    def prepare(self, key: Tensor) -> Tensor:
        """`W_a h̄_s` for every source position."""
        return matmul(ops.transpose(self.kernel), key)


@keras.saving.register_keras_serializable(package="keras_luong")
class ScaledGeneralScore(GeneralScore):
    """`g h_tᵀ W_a h̄_s`, `scale=True` of `tfa.seq2seq.LuongAttention`.

    Weights: `kernel` [Hq, Hv], `gain` [] (g), 1 at first.
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes `kernel` and `gain`."""
        super().build(query_shape, key_shape)
        self.gain = self.add_weight(shape=(), name="gain", initializer="ones")

    def prepare(self, key: Tensor) -> Tensor:
        """`g W_a h̄_s` for every source position."""
        keys = super().prepare(key)
        return keys * ops.cast(self.gain, keys.dtype)


@keras.saving.register_keras_serializable(package="keras_luong")
class ReducedRankScore(Score):
    """`(U h_t)ᵀ (V h̄_s)`: a general score of rank `units`.

    Weights: `query_kernel` [Hq, units], `value_kernel` [Hv, units]. `units` defaults to
    half of the smaller of Hq and Hv.
    """

    query_kernel = Kernel()
    value_kernel = Kernel()

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes `query_kernel` and `value_kernel`."""
        smaller = min(query_shape[-1] or 0, key_shape[-1] or 0)
        units = self.units or max(1, smaller // 2)
        self.query_kernel = self.add_kernel("query_kernel", query_shape[-1], units)
        self.value_kernel = self.add_kernel("value_kernel", key_shape[-1], units)

    def prepare(self, key: Tensor) -> Tensor:
        """`V h̄_s` for every source position."""
        return matmul(self.value_kernel, key)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Dot product in the reduced space."""
        return dot(project(self.query_kernel, query), key, project)


@keras.saving.register_keras_serializable(package="keras_luong")
class ConcatScore(Score):
    """`v_aᵀ tanh(W_a [h_t; h̄_s])` (Eq. 8, concat; additive in Bahdanau et al. 2015).

    Weights: `query_kernel` [Hq, units], `value_kernel` [Hv, units], `scale` [units].
    `units` defaults to the query's.
    """

    query_kernel = Kernel()
    value_kernel = Kernel()
    scale = Kernel()

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes `query_kernel`, `value_kernel` and `scale`."""
        units = self.units or query_shape[-1]
        self.query_kernel = self.add_kernel("query_kernel", query_shape[-1], units)
        self.value_kernel = self.add_kernel("value_kernel", key_shape[-1], units)
        self.scale = self.add_kernel("scale", units)

    def prepare(self, key: Tensor) -> Tensor:
        """The source's half of `W_a [h_t; h̄_s]`."""
        return matmul(self.value_kernel, key)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Adds the query's half to every key: [B, Q, S or W, units] in between."""
        query = ops.expand_dims(project(self.query_kernel, query), 2)
        key = key if len(key.shape) == 4 else ops.expand_dims(key, 1)
        scale = ops.expand_dims(self.direction(), -1)
        return ops.squeeze(matmul(scale, ops.tanh(query + key)), -1)

    def direction(self) -> Tensor:
        """v_a [units]."""
        return self.scale


@keras.saving.register_keras_serializable(package="keras_luong")
class NormedConcatScore(ConcatScore):
    """`g v_aᵀ/‖v_a‖ tanh(W_a [h_t; h̄_s] + b)`: "concat" with a normalised weight.

    `normalize=True` of `tfa.seq2seq.BahdanauAttention`, "normed_bahdanau" of
    tensorflow/nmt, after Salimans & Kingma 2016 (arXiv:1602.07868), Eq. 2.

    Weights: those of "concat", `gain` [] (g), √(1/units) at first, and `bias` [units].
    """

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes the weights of "concat", `gain` and `bias`."""
        super().build(query_shape, key_shape)
        units = self.units or query_shape[-1] or 0
        gain = keras.initializers.Constant(1 / math.sqrt(units))
        self.gain = self.add_weight(shape=(), name="gain", initializer=gain)
        self.bias = self.add_weight(shape=(units,), name="bias", initializer="zeros")

    def prepare(self, key: Tensor) -> Tensor:
        """The source's half of `W_a [h_t; h̄_s] + b`."""
        keys = super().prepare(key)
        return keys + ops.cast(self.bias, keys.dtype)

    def direction(self) -> Tensor:
        """`g v_a/‖v_a‖` [units]."""
        return self.gain * _unit_length(self.scale)


@keras.saving.register_keras_serializable(package="keras_luong")
class LocationScore(Score):
    """`a_t = softmax(W_a h_t)`: from the query alone (Eq. 8, location).

    As in the paper, a short sentence uses the first rows of `W_a` only, and words
    beyond `max_source_length` are never attended to. Weight: `kernel`
    [Hq, max_source_length].
    """

    kernel = Kernel()

    def __init__(self, max_source_length: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if max_source_length is None:
            raise ValueError(
                'score_mode="location" needs max_source_length, the number of source '
                "positions that it knows. Received: max_source_length=None"
            )
        self.max_source_length = check_size("max_source_length", max_source_length)

    def build(self, query_shape: Shape, key_shape: Shape) -> None:
        """Makes `kernel` [Hq, max_source_length]."""
        length = self.max_source_length
        self.kernel = self.add_kernel("kernel", query_shape[-1], length)

    def call(self, query: Tensor, key: Tensor, project: Project = matmul) -> Tensor:
        """Scores of the first S positions; -inf past `max_source_length`."""
        if len(key.shape) == 4:
            raise ValueError(
                'score_mode="location" scores positions, not keys: local attention '
                'needs a score that compares with the source, such as "general".'
            )
        position = ops.arange(ops.shape(key)[1])
        column = ops.minimum(position, self.max_source_length - 1)
        scores = ops.take(project(self.kernel, query), column, axis=-1)
        never = ops.cast(float("-inf"), scores.dtype)
        return ops.where(position < self.max_source_length, scores, never)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "max_source_length": self.max_source_length}


SCORES: dict[str, type[Score]] = {
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "scaled_general": ScaledGeneralScore,
    "concat": ConcatScore,
    "normed_concat": NormedConcatScore,
    "location": LocationScore,
    "reduced_rank": ReducedRankScore,
    "cosine": CosineScore,
}


def make_score(
    score_mode: str | Score,
    units: int | None = None,
    max_source_length: int | None = None,
    **options: Any,
) -> Score:
    """Returns the Score named by `score_mode`, or `score_mode` itself if it is one.

    Args:
        score_mode: A name from `SCORES`, or a `Score` layer.
        units: Width of "concat", "normed_concat" and "reduced_rank"; the others have
            none.
        max_source_length: Number of positions of "location", which needs it; the
            others don't.
        **options: Other arguments of `Score`: `kernel_initializer`, `dtype` and so on.

    Raises:
        ValueError: An unknown name, or a size that is missing or not positive.
        TypeError: `score_mode` is neither a name nor a `Score`, or its `call` doesn't
            take `project`.
    """
    if isinstance(score_mode, Score):
        parameters = inspect.signature(score_mode.call).parameters.values()
        if not any(p.name == "project" or p.kind == p.VAR_KEYWORD for p in parameters):
            raise TypeError(
                f"{type(score_mode).__name__}.call must take project, and multiply by "
                "matrices with it: def call(self, query, key, project=matmul). "
                f"Received: def call{inspect.signature(score_mode.call)}"
            )
        return score_mode
    if not isinstance(score_mode, str):
        raise TypeError(
            f"score_mode must be one of {list(SCORES)} or a Score layer. "
            f"Received: {score_mode!r}"
        )
    check_choice("score_mode", score_mode, SCORES)
    if score_mode == "location":
        options["max_source_length"] = max_source_length
    return SCORES[score_mode](units=units, **options)


def prepare_keys(score: Score, key: Tensor) -> Tensor:
    """What a score's `prepare` makes of keys, in the score's dtype.

    A user's own may have another than its attention. Keras casts what `call` gets, but
    not what other methods do.

    Args:
        score: One that is built.
        key: [B, S, Hk], of any floating dtype.
    """
    with autocasting(score):
        wanted = score.compute_dtype if score.autocast else key.dtype
        return score.prepare(ops.cast(key, wanted))


def another_score(score_mode: Any, number: int) -> Any:
    """One more score of the same kind, with weights of its own, for `make_score`.

    Args:
        score_mode: As `make_score` takes it: of a name it is the same name, of a user's
            own score a copy.
        number: What is added to the name of the copy.
    """
    if not isinstance(score_mode, Score):
        return score_mode
    config = {**score_mode.get_config(), "name": f"{score_mode.name}_{number}"}
    return type(score_mode).from_config(config)
