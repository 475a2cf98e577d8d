"""Pointer networks: what is written are positions of the source.

Shapes: B batch, S source positions, T target length, K beam, E inputs of the decoder,
Hv memory units. Ids: 0 is the end, and also begins and pads a target; position s of the
source is id s + 1.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_axes, check_ids
from keras_luong.compat import serialize_shared
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.base import BaseLayer, arguments_of
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.memory import Memory, check_count, mask_of, shapes_of
from keras_luong.layers.normalizers import masked_softmax
from keras_luong.types import Shape, Tensor, Tensors


class PointerMemory(NamedTuple):
    """A source prepared for a `PointerNetwork`'s steps.

    Attributes:
        inputs: What the decoder reads of each id: [B, 1 + S, E].
        pointed: What is pointed at, the end first, as the attention prepared it.
        source: What the decoder's cell prepared.
    """

    inputs: Tensor
    pointed: Memory
    source: Any


@keras.saving.register_keras_serializable(package="keras_luong")
class PointerNetwork(BaseLayer):
    """A decoder that points at its source (Vinyals, Fortunato & Jaitly 2015).

    `u_t(s) = vᵀ tanh(W_1 e_s + W_2 d_t)`, `p(C_t) = softmax_s u_t` (arXiv:1506.03134,
    Eq. 3): the score of an attention is the logit of a position, and the next step
    reads what stands at the position before. Targets are ids: 0 is the end, and also
    begins and pads a target; position s is id s + 1. So the "vocabulary" has 1 + S ids,
    as many as this source has.

    In a search the ids are `bos_id=0, eos_id=0, pad_id=0`, and `no_repeat_ngram=1`
    points at no position twice.

    Weights: `begin` [E] is read first, `end` [Hv] is what the end's score compares
    with; the others are the cell's and the attention's.

    Args:
        cell: A `DecoderCell`, such as `InputFeedingDecoderCell(units, attention=None)`;
            one with attention has a glimpse of the source before it points (Vinyals,
            Bengio & Kudlur 2016, arXiv:1511.06391).
        attention: A `LuongAttention` without coverage, whose scores are the logits; the
            paper's, "concat", by default.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        targets: int [B, T], the ids before those to predict: 0, then all but the last.
        memory: Encoder states [B, S, Hv].
        memory_mask: bool [B, S], True at what can be pointed at; all by default.
        inputs: What the decoder reads of each position, [B, S, E]: the encoder's
            inputs, in the paper; by default the memory.
        initial_state: List of the recurrent states [B, H]; zeros by default.
        training: Whether to apply dropout.

    Returns:
        Logits [B, T, 1 + S], float32 (float64 under that policy): -3.4e38, float32's
        lowest number, where the mask is False.

    Raises:
        ValueError, TypeError: An argument that is none of the above, or shapes do not
            fit.

    Example: a model to train and to search with.

        >>> class Sorter(keras.Model):
        ...     def __init__(self, units):
        ...         super().__init__()
        ...         self.encoder = kl.RecurrentEncoder(units)
        ...         cell = kl.InputFeedingDecoderCell(units, attention=None)
        ...         self.pointer = kl.PointerNetwork(cell)
        ...
        ...     def call(self, inputs, training=None):
        ...         memory, *state = self.encoder(inputs["source"])
        ...         targets = inputs["target"]
        ...         return self.pointer(targets, memory, initial_state=state)
        ...
        ...     def encode(self, source):
        ...         memory, *state = self.encoder(source)
        ...         return self.pointer.encode(memory, initial_state=state)
        ...
        ...     def step(self, tokens, state, memory):
        ...         return self.pointer.step(tokens, state, memory)
        >>> model = Sorter(8)
        >>> numbers = np.random.default_rng(0).random((2, 5, 1), "float32")
        >>> tuple(model({"source": numbers, "target": np.zeros((2, 1), "int32")}).shape)
        (2, 1, 6)
        >>> search = kl.BeamSearch(
        ...     2, max_length=6, no_repeat_ngram=1, bos_id=0, eos_id=0, pad_id=0)
        >>> positions = kl.generate(model, numbers, search).ids[:, 0] - 1
    """

    _nested: tuple[str, ...] = ("cell", "attention")
    _keeps_dtypes = True

    def __init__(
        self, cell: DecoderCell, attention: LuongAttention | None = None, **kwargs: Any
    ) -> None:
        if kwargs.get("dtype") is None:
            kwargs["dtype"] = getattr(cell, "dtype_policy", None)
        super().__init__(**kwargs)
        self.decoder = InputFeedingDecoder(cell, dtype=self.dtype_policy)
        self.cell = cell
        if attention is None:
            attention = LuongAttention("concat", dtype=self.dtype_policy)
        points = isinstance(attention, LuongAttention) and not attention.has_state
        if not points or isinstance(attention, LocalAttention):
            raise TypeError(
                "attention must be a LuongAttention without coverage, which scores all "
                f"positions alike. Received: {attention!r}"
            )
        self.attention = attention

    def build(
        self, targets_shape: Shape, memory_shape: Shape, inputs_shape: Any = None
    ) -> None:
        """Builds the cell and the attention, and makes `begin` and `end`."""
        units = (inputs_shape or memory_shape)[-1]
        if not self.decoder.built:
            self.decoder.build((*targets_shape, units), tuple(memory_shape))
        if not self.attention.built:
            query_shape = (*targets_shape, self.cell.output_units)
            self.attention.build(query_shape, tuple(memory_shape))
        options = {"initializer": "glorot_uniform"}
        self.begin = self.add_weight((1, units), name="begin", **options)
        self.end = self.add_weight((1, memory_shape[-1]), name="end", **options)

    def call(
        self,
        targets: Tensor,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        inputs: Tensor | None = None,
        initial_state: Tensors | None = None,
        training: bool | None = None,
    ) -> Tensor:
        """See the class."""
        self._check(targets, memory, memory_mask, inputs)
        read = self._with(self.begin, memory if inputs is None else inputs)
        query = self.decoder(
            _rows(read, targets),
            memory,
            memory_mask=memory_mask,
            initial_state=initial_state,
            training=training,
        )
        return self._point(query, self._pointed(memory, memory_mask))

    def encode(
        self,
        memory: Tensor,
        memory_mask: Tensor | None = None,
        inputs: Tensor | None = None,
        initial_state: Any = None,
    ) -> tuple[PointerMemory, list[Tensor]]:
        """Prepares a source for `step`, as the `encode` of a `StepModel` must.

        Args:
            memory: As of a call; likewise the others.
            memory_mask: bool [B, S]; the memory's own Keras mask by default.
            inputs: [B, S, E].
            initial_state: List of [B, H].

        Returns:
            The memory and the first state, [B, 1, ...].
        """
        memory_mask = mask_of(memory, memory_mask)
        memory = ops.convert_to_tensor(memory)
        self._check(None, memory, memory_mask, inputs)
        if not self.built:
            shape = None if inputs is None else inputs.shape
            self.build((None, None), memory.shape, shape)
        cast = self._cast(memory)
        source, states = self.cell.start(cast, memory_mask, initial_state)
        read = self._with(self.begin, memory if inputs is None else inputs)
        return PointerMemory(read, self._pointed(memory, memory_mask), source), states

    def step(
        self, tokens: Tensor, state: list[Tensor], memory: PointerMemory
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """Reads one id per hypothesis and scores the next, as in a `StepModel`.

        Args:
            tokens: int [B, K], at first 0.
            state: From `encode` or an earlier `step`.
            memory: From `encode`.

        Returns:
            Logits [B, K, 1 + S], -inf where the mask is False; the new state; and the
            probabilities of the positions, [B, K, S].
        """
        read = _rows(memory.inputs, tokens)
        query, state, _ = self.cell(read, state, memory.source)
        logits = self._point(query, memory.pointed)
        if memory.pointed.mask is None:
            return logits, state, masked_softmax(logits)[..., 1:]
        mask = ops.expand_dims(memory.pointed.mask, 1)
        weights = masked_softmax(logits, mask)[..., 1:]
        return ops.where(mask, logits, float("-inf")), state, weights

    def _point(self, query, pointed):
        *_, logits = self.attention.attend(query, pointed, return_logits=True)
        return logits

    def _pointed(self, memory, mask):
        """Prepares the positions that are pointed at: the end, then the source's."""
        if mask is not None:
            mask = ops.cast(mask, "bool")
            mask = ops.concatenate([ops.ones_like(mask[:, :1]), mask], axis=1)
        return self.attention.prepare(self._with(self.end, memory), mask)

    def _with(self, first, x):
        """Puts `first` [1, H] before the rows of x [B, n, H]: -> [B, 1 + n, H]."""
        x = self._cast(x)
        shape = (ops.shape(x)[0], 1, first.shape[-1])
        first = ops.broadcast_to(ops.cast(first, x.dtype), shape)
        return ops.concatenate([first, x], axis=1)

    def _cast(self, x):
        return ops.cast(x, self.compute_dtype)

    def _check(self, targets, memory, memory_mask, inputs):
        if targets is not None:
            check_ids("targets", targets)
        check_count("memory", shapes_of(memory), None)
        units, read = None, None
        if self.built:
            units, read = self.end.shape[-1], self.begin.shape[-1]
        check_axes(
            memory=(memory, "batch size", "source length", units),
            targets=(targets, "batch size", None),
            memory_mask=(memory_mask, "batch size", "source length"),
            inputs=(inputs, "batch size", "source length", read),
        )

    def compute_mask(self, targets: Tensor, previous_mask: Any = None) -> Any:
        """The logits are masked where the targets are."""
        return previous_mask

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> keras.KerasTensor:
        """Shape and dtype of the logits."""
        arguments = arguments_of(self.call, args, kwargs)
        names = "targets", "memory", "memory_mask", "inputs"
        self._check(*(arguments[name] for name in names))
        length = arguments["memory"].shape[1]
        size = None if length is None else length + 1
        shape = (*arguments["targets"].shape, size)
        return keras.KerasTensor(shape, self.attention.weights_dtype)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "cell": serialize_shared(self.cell),
            "attention": serialize_shared(self.attention),
        }


def _rows(x, ids):
    """The rows of x [B, n, H] that ids [B, K] name: [B, K, H]."""
    return ops.take_along_axis(x, ops.cast(ids, "int32")[..., None], axis=1)
