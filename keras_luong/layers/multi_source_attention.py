"""Attention to several sources at once (Zoph & Knight 2016, arXiv:1601.00710).

Shapes: B batch, Q queries, S₁, S₂, ... source positions, Hq query units, Hv₁, Hv₂, ...
value units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.compat import serialize_shared
from keras_luong.layers.base import BaseLayer
from keras_luong.layers.memory import (
    Memory,
    batch_and_length,
    check_count,
    shapes_of,
    state_lengths,
)
from keras_luong.layers.recurrence import INFERENCE, Mode
from keras_luong.types import Shape, Tensor, Tensors


class Memories(NamedTuple):
    """Several sources, each prepared by its own attention.

    Attributes:
        each: The `Memory` of each.
        mask: The masks side by side: bool [B, S₁ + S₂ + ...].
    """

    each: tuple[Memory, ...]
    mask: Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class MultiSourceAttention(BaseLayer):
    """One attention for each of several sources; their contexts are side by side.

    For instance two sentences that say the same in two languages (Zoph & Knight 2016's
    multi-attention: `h̃ = tanh(W_c [c¹; c²; h])`), or a picture and a question about
    it. For two attentions to one source, give it twice.

    Args:
        attentions: List of attention layers such as `LuongAttention`.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Decoder states [B, Q, Hq].
        value: List of sources, each [B, S, Hv] with sizes of its own.
        query_mask: bool [B, Q]; a masked query gets zeros.
        value_mask: List of masks, each bool [B, S] or None.
        return_attention_scores: Whether to return the weights too.
        training: Whether to apply dropout.

    Returns:
        The contexts [B, Q, Hv₁ + Hv₂ + ...]; with `return_attention_scores`, also the
        weights [B, Q, S₁ + S₂ + ...].

    Raises:
        TypeError, ValueError: `attentions` is no list of attention layers, or the
            sources are not as many.

    Example:
        >>> german, french = np.random.rand(2, 5, 6), np.random.rand(2, 7, 6)
        >>> attention = kl.MultiSourceAttention(
        ...     [kl.LuongAttention("general"), kl.LuongAttention("concat")]
        ... )
        >>> decoder = kl.InputFeedingDecoder(kl.InputFeedingDecoderCell(8, attention))
        >>> tuple(decoder(np.random.rand(2, 4, 3), [german, french]).shape)
        (2, 4, 8)
    """

    _nested: tuple[str, ...] = ("attentions",)

    def __init__(self, attentions: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_list = isinstance(attentions, (list, tuple)) and len(attentions) > 0
        if not is_list or not all(hasattr(one, "attend") for one in attentions):
            raise TypeError(
                "attentions must be a list of attention layers such as "
                f"LuongAttention. Received: {attentions!r}"
            )
        self.supports_masking = True
        self.attentions = list(attentions)

    @property
    def num_sources(self) -> int:
        """How many sources there must be."""
        return len(self.attentions)

    @property
    def has_state(self) -> bool:
        """Whether queries must come one after the other: if they must for any."""
        return any(one.has_state for one in self.attentions)

    def state_lengths(self, source_length: Any = None) -> list[int | None]:
        """The last axis of each state, given the list of the sources' lengths."""
        lengths = source_length or [None] * self.num_sources
        pairs = zip(self.attentions, lengths, strict=True)
        return [size for one, length in pairs for size in state_lengths(one, length)]

    def build(self, query_shape: Shape, value_shape: Any = None) -> None:
        """Builds each attention."""
        _check_given(value_shape)
        check_count("value", value_shape, self.num_sources)
        for one, shape in zip(self.attentions, value_shape, strict=True):
            if not one.built:
                one.build(query_shape, tuple(shape))

    def prepare(self, value: Sequence[Tensor], mask: Any = None) -> Memories:
        """Projects each source once; see `LuongAttention.prepare`."""
        check_count("memory", shapes_of(value), self.num_sources)
        masks = [None] * self.num_sources if mask is None else mask
        sources = zip(self.attentions, value, masks, strict=True)
        each = tuple(one.prepare(x, its_mask) for one, x, its_mask in sources)
        all_masks = [
            ops.ones(batch_and_length(one), "bool") if one.mask is None else one.mask
            for one in each
        ]
        return Memories(each, ops.concatenate(all_masks, axis=1))

    def initial_state(self, memory: Memories, queries: int = 1) -> list[Tensor]:
        """The states of all attentions that have one, [B, Q, S] each."""
        pairs = zip(self.attentions, memory.each, strict=True)
        return [x for one, part in pairs for x in one.initial_state(part, queries)]

    def draw_noise(self, shape: Any, training: Any) -> Any:
        """Each attention's multipliers, for all S₁ + S₂ + ... positions."""
        drawn = tuple(one.draw_noise(shape, training) for one in self.attentions)
        return None if all(x is None for x in drawn) else drawn

    def attend(
        self,
        query: Tensor,
        memory: Memories,
        positions: Tensor | None = None,
        state: Sequence[Tensor] = (),
        mode: Mode = INFERENCE,
    ) -> tuple[Tensor, Tensor, Sequence[Tensor]]:
        """See `LuongAttention.attend`; contexts and weights are side by side."""
        states, noises = iter(state), mode.noise.attention
        contexts, weights, new = [], [], []
        start: Any = 0
        for i, (one, part) in enumerate(zip(self.attentions, memory.each, strict=True)):
            noise = None if noises is None else noises[i]
            if noise is not None:
                length = batch_and_length(part)[1]
                noise, start = noise[..., start : start + length], start + length
            own = [next(states)] if one.has_state else []
            its_mode = mode._replace(noise=mode.noise._replace(attention=noise))
            context, a, after = one.attend(query, part, positions, own, its_mode)
            contexts.append(context)
            weights.append(a)
            new.extend(after)
        return ops.concatenate(contexts, -1), ops.concatenate(weights, -1), new

    def call(
        self,
        query: Tensors,
        value: Tensors | None = None,
        query_mask: Tensor | None = None,
        value_mask: Tensors | None = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Any:
        """See the class."""
        value = _check_given(value)
        check_count("value", shapes_of(value), self.num_sources)
        masks = [None] * self.num_sources if value_mask is None else value_mask
        check_count("value_mask", shapes_of(masks), self.num_sources)
        attended = [
            one(
                query,
                source,
                query_mask=query_mask,
                value_mask=mask,
                return_attention_scores=True,
                training=training,
            )
            for one, source, mask in zip(self.attentions, value, masks, strict=True)
        ]
        context, weights = [
            ops.concatenate(parts, -1) for parts in zip(*attended, strict=True)
        ]
        return (context, weights) if return_attention_scores else context

    def compute_mask(self, query: Tensor, query_mask: Tensor | None = None) -> Any:
        """The contexts are masked where the query is."""
        return query_mask

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        attentions = [serialize_shared(one) for one in self.attentions]
        return {**super().get_config(), "attentions": attentions}


def _check_given(value):
    """Raises ValueError if there is no value: Keras would not say how to call it."""
    if value is None:
        raise ValueError(
            "MultiSourceAttention is called on a query and the list of sources, "
            "attention(query, [source_1, source_2]). Received: value=None"
        )
    return value
