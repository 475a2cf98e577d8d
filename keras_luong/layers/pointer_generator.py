"""Copying: words are generated from the vocabulary, or copied from the source.

Shapes: B batch, Q queries, S source positions, V vocabulary, n extra ids, H features.

The coverage loss: attention that goes where it has been costs something.

Shapes: B batch, T target length, S source length.
"""

from __future__ import annotations

import math
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_ids, check_not_negative, check_size
from keras_luong.compat import get_keras_mask
from keras_luong.layers.base import BaseLayer, arguments_of, weight_config
from keras_luong.layers.memory import weights_dtype
from keras_luong.layers.projection import matmul
from keras_luong.types import Shape, Tensor, Tensors


def coverage_loss(weights: Tensor) -> Tensor:
    """`Σ_s min(a_t(s), Σ_{t'<t} a_t'(s))`: attention to what had attention already.

    See, Liu & Manning 2017 (arXiv:1704.04368), Eq. 12.

    Args:
        weights: Attention weights [B, T, S].

    Returns:
        float32 [B, T].

    Example:
        >>> from keras_luong.layers.pointer_generator import coverage_loss
        >>> loss = coverage_loss(np.array([[[0.5, 0.5], [0.0, 1.0]]]))
        >>> keras.ops.convert_to_numpy(loss)
        array([[0. , 0.5]], dtype=float32)
    """
    weights = ops.cast(weights, "float32")
    before = ops.cumsum(weights, axis=1) - weights
    return ops.sum(ops.minimum(weights, before), axis=-1)


@keras.saving.register_keras_serializable(package="keras_luong")
class CoverageLoss(BaseLayer):
    """Adds the coverage loss of some attention weights to a model's loss.

    What goes through it comes out as it was. The loss that is added is `factor` times
    the mean of `coverage_loss` over the target words; on several replicas, the mean of
    the replicas' means.

    Args:
        factor: Its weight beside the cross-entropy; See et al. use 1 once training has
            converged.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

    Call arguments:
        outputs: Anything, such as contexts [B, T, Hv].
        weights: Attention weights [B, T, S].
        mask: bool [B, T], True at target words; by default the Keras mask of `outputs`
            or, where they have none, of `weights`; else all are.

    Returns:
        `outputs`, with their Keras mask.

    Raises:
        TypeError, ValueError: `factor` is no number, or negative or not finite.

    Example:
        >>> states, memory = np.random.rand(2, 4, 8), np.random.rand(2, 5, 8)
        >>> attention = kl.LuongAttention("general", coverage=True)
        >>> context, weights = attention(states, memory, return_attention_scores=True)
        >>> loss = kl.CoverageLoss(1.0)
        >>> context = loss(context, weights)  # what it is, and the loss beside it
        >>> len(loss.losses)
        1
    """

    _keeps_dtypes = True  # attention weights are float32 under any policy

    def __init__(self, factor: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.factor = check_not_negative("factor", factor)

    def call(self, outputs: Any, weights: Tensor, mask: Tensor | None = None) -> Any:
        """See the class."""
        _check(outputs, weights, mask)
        losses = coverage_loss(weights)
        if mask is None:  # Keras itself looks for masks of several tensors elsewhere
            mask = get_keras_mask(outputs)
        if mask is None:
            mask = get_keras_mask(weights)
        counted = ops.ones_like(losses) if mask is None else ops.cast(mask, "float32")
        words = ops.maximum(ops.sum(counted), 1.0)
        self.add_loss(self.factor * ops.sum(losses * counted) / words)
        return outputs

    def compute_mask(self, outputs: Any, previous_mask: Any = None) -> Any:
        """The mask of `outputs`, whatever words the loss counts."""
        return keras.tree.map_structure(get_keras_mask, outputs)

    def compute_output_spec(
        self, outputs: Any, weights: Tensor, mask: Any = None
    ) -> Any:
        """Shape and dtype of `outputs`."""
        _check(outputs, weights, mask)
        return keras.tree.map_structure(
            lambda x: keras.KerasTensor(x.shape, dtype=x.dtype), outputs
        )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "factor": self.factor}


def _check(outputs, weights, mask):
    for x in keras.tree.flatten(outputs):
        if not hasattr(x, "shape"):
            raise TypeError(
                "outputs must be a tensor or an array, or a list or dict of them. "
                f"Received: {x!r} among them"
            )
    check_axes(
        weights=(weights, "batch size", "target length", None),
        mask=(mask, "batch size", "target length"),
    )


#: A probability that stands for 0, so that logarithms and gradients are finite.
NOTHING = 1e-30


def copied_weights(weights: Tensor, source_ids: Tensor, size: int) -> Tensor:
    """`Σ_{i: w_i = w} a_i` for every id w: how much attention it has in the source.

    Args:
        weights: Attention weights [B, Q, S].
        source_ids: int [B, S], the ids of the source positions, in [0, size).
        size: Number of ids.

    Returns:
        [B, Q, size].

    Example:
        >>> from keras_luong.layers.pointer_generator import copied_weights
        >>> weights = np.array([[[0.5, 0.25, 0.25]]], "float32")
        >>> copied = copied_weights(weights, np.array([[2, 0, 2]]), 4)
        >>> keras.ops.convert_to_numpy(copied).tolist()
        [[[0.25, 0.0, 0.75, 0.0]]]
    """
    # A scatter is several times faster than a product with one-hot vectors, on a CPU,
    # under XLA and in LiteRT, and needs no [B, S, V].
    shape = B, Q, _ = ops.shape(weights)
    places = (
        ops.arange(B, dtype="int32")[:, None, None],
        ops.arange(Q, dtype="int32")[None, :, None],
        ops.cast(source_ids, "int32")[:, None, :],
    )
    places = ops.stack([ops.broadcast_to(place, shape) for place in places], axis=-1)
    return ops.scatter(places, weights, (B, Q, size))


@keras.saving.register_keras_serializable(package="keras_luong")
class PointerGenerator(BaseLayer):
    """An output that generates words or copies them (See, Liu & Manning 2017).

    `P(w) = p_gen P_vocab(w) + (1 - p_gen) Σ_{i: w_i = w} a_i` (arXiv:1704.04368, Eq. 9)
    with `p_gen = σ(w · features + b)` (Eq. 8). The source's ids are ids of the target
    vocabulary, or of words outside of it: each source may number its own unknown words
    V, V + 1, ..., V + n - 1, and these can be copied. Once such an id is written, the
    decoder reads the unknown word's embedding.

    Where attention weights do not sum to 1 (of a source without words, in monotonic or
    local attention), the probabilities are divided by their sum.

    Weights: `kernel` [H, 1] and `bias` [1].

    Args:
        num_extra_ids: How many ids n beyond the vocabulary there are.
        kernel_initializer, bias_initializer: As in `keras.layers.Dense`.
        kernel_regularizer, bias_regularizer: Likewise.
        kernel_constraint, bias_constraint: Likewise.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        features: What decides whether to generate, [B, Q, H] or a list of such, as the
            paper's context, state and input; an attentional vector and the embedded
            word before will do.
        logits: Of the vocabulary, [B, Q, V]; for one step [B, V], and likewise the
            others.
        attention_weights: [B, Q, S].
        source_ids: int [B, S]. Ids outside of [0, V + n) are not copied.

    Returns:
        Log-probabilities [B, Q, V + n], float32, or float64 under that policy. They are
        logits too, as their softmax is themselves: a cross-entropy from logits and a
        search take them. An extra id that is not in the source has 1e-30 for
        probability, so that every loss is finite.

    Raises:
        ValueError, TypeError: An argument that is none of the above, or shapes do not
            fit.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> states, memory = rng.random((1, 2, 8)), rng.random((1, 3, 8))
        >>> attention = kl.LuongAttention()
        >>> context, weights = attention(states, memory, return_attention_scores=True)
        >>> h_tilde = kl.AttentionalVector(8)(context, states)
        >>> logits = keras.layers.Dense(9)(h_tilde)
        >>> source_ids = np.array([[4, 9, 3]])  # 9 is a word that nobody knows
        >>> copying = kl.PointerGenerator(num_extra_ids=2)
        >>> tuple(copying(h_tilde, logits, weights, source_ids).shape)
        (1, 2, 11)
    """

    _keeps_dtypes = True
    _sizes: list[Any] | None = None  # H of each of the features, once built

    def __init__(
        self,
        num_extra_ids: int = 0,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_extra_ids = check_size("num_extra_ids", num_extra_ids, smallest=0)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)

    def build(
        self,
        features_shape: Any,
        logits_shape: Shape,
        attention_weights_shape: Shape,
        source_ids_shape: Shape,
    ) -> None:
        """Makes `kernel` and `bias`."""
        several = isinstance(features_shape[0], (list, tuple))
        self._sizes = [shape[-1] for shape in _as_list(features_shape, several)]
        self.kernel = self.add_weight(
            shape=(sum(self._sizes), 1),
            name="kernel",
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        self.bias = self.add_weight(
            shape=(1,),
            name="bias",
            initializer=self.bias_initializer,
            regularizer=self.bias_regularizer,
            constraint=self.bias_constraint,
        )

    def call(
        self,
        features: Tensors,
        logits: Tensor,
        attention_weights: Tensor,
        source_ids: Tensor,
    ) -> Tensor:
        """See the class."""
        self._check(features, logits, attention_weights, source_ids)
        gate = self._gate(features)
        logits, weights = (ops.cast(x, gate.dtype) for x in (logits, attention_weights))
        if len(logits.shape) == 2:
            gate, logits, weights = (x[:, None] for x in (gate, logits, weights))
            return ops.squeeze(self._mixed(gate, logits, weights, source_ids), 1)
        return self._mixed(gate, logits, weights, source_ids)

    def p_gen(self, features: Any) -> Tensor:
        """`p_gen` (Eq. 8), the probability of generating and not copying.

        Args:
            features: As of a call.

        Returns:
            [B, Q], or [B] of one step.
        """
        return ops.squeeze(ops.sigmoid(self._gate(features)), -1)

    def _gate(self, features):
        """The logit of p_gen, [..., 1]."""
        each = _as_list(features, isinstance(features, (list, tuple)))
        each = [ops.cast(x, self.compute_dtype) for x in each]
        gate = matmul(self.kernel, ops.concatenate(each, -1), bias=self.bias)
        return ops.cast(gate, weights_dtype(self.compute_dtype))

    def _mixed(self, gate, logits, weights, source_ids):
        """Log-probabilities [B, Q, V + n] of float tensors [B, Q, ...]."""
        size = logits.shape[-1] or ops.shape(logits)[-1]  # a shortlist has any size
        size = size + self.num_extra_ids
        in_vocabulary = ops.logical_and(source_ids >= 0, source_ids < size)
        weights = ops.where(in_vocabulary[:, None], weights, 0.0)
        copied = copied_weights(weights, ops.where(in_vocabulary, source_ids, 0), size)
        generate, copy = ops.log_sigmoid(gate), ops.log_sigmoid(-gate)
        generated = generate + ops.log_softmax(logits, axis=-1)
        if self.num_extra_ids:
            extra = ((0, 0), (0, 0), (0, self.num_extra_ids))
            generated = ops.pad(generated, extra, constant_values=math.log(NOTHING))
        total = ops.sum(weights, axis=-1, keepdims=True)
        return _log_sum(generated, copy, copied) - _log_sum(generate, copy, total)

    def _check(self, features, logits, attention_weights, source_ids):
        several = isinstance(features, (list, tuple))
        axes = ["batch size", "number of queries"][: len(logits.shape) - 1]
        features = _as_list(features, several)
        sizes = self._sizes or [None] * len(features)
        if len(features) != len(sizes):
            raise ValueError(
                f"features must be {len(sizes)} tensors, as when it was built. "
                f"Received: {len(features)}"
            )
        names = [f"features[{i}]" if several else "features" for i in range(len(sizes))]
        check_axes(
            logits=(logits, *(axes or ["batch size"]), None),
            **{
                name: (x, *axes, size)
                for name, x, size in zip(names, features, sizes, strict=True)
            },
            attention_weights=(attention_weights, *axes, "source length"),
            source_ids=(source_ids, "batch size", "source length"),
        )
        check_ids("source_ids", source_ids)

    def compute_mask(self, features: Any, previous_mask: Any = None) -> Any:
        """The mask of the features, or of the first of them."""
        return get_keras_mask(keras.tree.flatten(features)[0])

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> keras.KerasTensor:
        """Shape and dtype of the log-probabilities."""
        arguments = arguments_of(self.call, args, kwargs)
        self._check(*(arguments[name] for name in ARGUMENTS))
        *axes, size = arguments["logits"].shape
        size = None if size is None else size + self.num_extra_ids
        return keras.KerasTensor((*axes, size), weights_dtype(self.compute_dtype))

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        config: dict[str, Any] = {"num_extra_ids": self.num_extra_ids}
        return {
            **super().get_config(),
            **config,
            **weight_config(self, "kernel", "bias"),
        }


ARGUMENTS = "features", "logits", "attention_weights", "source_ids"


def _as_list(given, several):
    return list(given) if several else [given]


def _log_sum(generated, copy, weights):
    """`log(exp(generated) + exp(copy) weights)`, with finite gradients at weight 0."""
    there = weights > NOTHING
    copied = copy + ops.log(ops.where(there, weights, 1.0))
    # Not ops.logaddexp: where both are the same, its gradient goes to one of them.
    highest = ops.stop_gradient(ops.maximum(generated, copied))
    total = ops.exp(generated - highest) + ops.exp(copied - highest)
    return ops.where(there, highest + ops.log(total), generated)
