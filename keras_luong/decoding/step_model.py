"""The interface between models and searches: `encode` once, then `step` by step.

`StepModel` is what a search needs of a model, `Hypotheses` what it finds, and
`SpecialTokens` the ids that both must know. Below them: how a search reads its source,
and takes a model's step.

Shapes: B sentences, S source length, T target length, K beam, N hypotheses of a
sentence, V vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias

import tensorflow as tf

from keras_luong.checks import check_same, check_size, check_tensorflow
from keras_luong.config.fields import check_fields
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID

IMPOSSIBLE = float("-inf")  # the log-probability of what cannot be
LARGEST_ID = 2**31 - 1  # ids are int32
LONGEST = 2**20  # tokens: far beyond any sentence, far from overflow

#: Kinds of numbers, checked by `keras_luong.config.fields.check_fields`.
TokenId = Annotated[int, partial(check_size, smallest=0, largest=LARGEST_ID)]
Size = Annotated[int, partial(check_size, largest=LONGEST)]
SizeOrZero = Annotated[int, partial(check_size, smallest=0, largest=LONGEST)]
SizeOrNone = Annotated[int | None, partial(check_size, optional=True, largest=LONGEST)]

#: A tensor [B, ...], or a tuple or dict of them.
Source: TypeAlias = Any


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class SpecialTokens:
    """The ids that a model's tokens begin, end and are padded with.

    The defaults are those of this library's tokenizers: 0 is padding, 1 the unknown
    token, 2 begins and 3 ends. Two or all three of them may be the same id: a model may
    be started with its end token or with padding, and may end with padding.

    Args:
        bos_id: The token that a model reads first. It is never generated, unless it is
            the end token too.
        eos_id: The token that ends a hypothesis, and the last one of it.
        pad_id: What fills rows of ids up, in sources, prefixes and results. It is never
            generated, unless it is the end token too: then the first one in a row is
            its end.

    Raises:
        TypeError: If an id is not an integer.
        ValueError: If an id is negative.

    Example:
        >>> tokens = kl.SpecialTokens(bos_id=1, eos_id=2)
        >>> tokens.never_generated, tokens.special_ids
        ({0, 1}, {'bos_id': 1, 'eos_id': 2, 'pad_id': 0})
    """

    bos_id: TokenId = BOS_ID
    eos_id: TokenId = EOS_ID
    pad_id: TokenId = PAD_ID

    def __post_init__(self) -> None:
        """Checks all fields, and converts NumPy numbers to Python's."""
        check_fields(self)

    @property
    def special_ids(self) -> dict[str, Any]:
        """The ids by the names of their fields."""
        return {name: getattr(self, name) for name in IDS}

    @property
    def never_generated(self) -> set[int]:
        """The ids of tokens that no hypothesis may have."""
        return {self.bos_id, self.pad_id} - {self.eos_id}

    def is_token(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns where target ids [B, T] are tokens and not padding, bool [B, T]."""
        is_padding = ids == self.pad_id
        if self.pad_id != self.eos_id:
            return ~is_padding
        return tf.cumsum(tf.cast(is_padding, tf.int32), axis=1, exclusive=True) == 0

    def check_logits(self, logits: tf.Tensor) -> None:
        """Raises ValueError if a model's logits [..., V] have no place for the end."""
        size = logits.shape[-1]
        if size is not None and self.eos_id >= size:
            raise ValueError(
                f"eos_id must be one of the model's {size} tokens, or nothing ends. "
                f"Received: eos_id={self.eos_id}"
            )

    def __repr__(self) -> str:
        """Returns the arguments; the special ids only where they are not the usual."""
        values = {x.name: getattr(self, x.name) for x in dataclasses.fields(self)}
        ids = {name: values.pop(name) for name in IDS}
        shown = {**values, **{k: v for k, v in ids.items() if v != USUAL[k]}}
        arguments = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({arguments})"


USUAL: dict[str, Any] = {x.name: x.default for x in dataclasses.fields(SpecialTokens)}
IDS = tuple(USUAL)


class StepModel(Protocol):
    """The interface of a model that a search needs: your own needs nothing else.

    A nest is any `tf.nest` structure: a tuple, list, dict or named tuple of tensors.

    In a graph `step` is traced once, before a search's loop. What it computes of
    weights and memory alone is computed once too, see `keras_luong.decoding.hoisting`.

    A model may also have two methods that searches use where they can:
    `cast_weights()` (see `keras_luong.decoding.hoisting`), and `restricted(ids,
    allowed)`, which returns a `StepModel` with a part of its vocabulary, for a
    `Shortlist`. If it writes source words, as their ids are target ids, it has an
    attribute `copies` that is True. If it has a `config` with `source_vocab_size` and
    `target_vocab_size`, these are checked.

    Example: a model that reads images and writes tokens. Its tokens begin with 1, end
    with 2 and are padded with 0.

        >>> class Captioner(keras.Model):
        ...     def __init__(self, vocab_size, units):
        ...         super().__init__()
        ...         self.see = keras.layers.Conv2D(units, 3, activation="relu")
        ...         self.positions = keras.layers.Reshape((-1, units))
        ...         self.embed = keras.layers.Embedding(vocab_size, units)
        ...         self.cell = keras.layers.GRUCell(units)
        ...         self.attention = kl.LuongAttention()
        ...         self.score = keras.layers.Dense(vocab_size)
        ...
        ...     def encode(self, images):
        ...         memory = self.positions(self.see(images))
        ...         return memory, keras.ops.mean(memory, axis=1, keepdims=True)
        ...
        ...     def step(self, tokens, state, memory):
        ...         shape = keras.ops.shape(state)  # [B, K, units]
        ...         rows = lambda x: keras.ops.reshape(x, (-1, shape[-1]))
        ...         h, _ = self.cell(rows(self.embed(tokens)), rows(state))
        ...         h = keras.ops.reshape(h, shape)
        ...         context, weights = self.attention(
        ...             h, memory, return_attention_scores=True
        ...         )
        ...         return self.score(context + h), h, weights
        >>> model = Captioner(vocab_size=10, units=8)
        >>> images = np.random.default_rng(0).random((3, 9, 9, 1), "float32")
        >>> search = kl.BeamSearch(4, max_length=6, bos_id=1, eos_id=2)
        >>> kl.generate(model, images, search).ids.shape[:2]
        TensorShape([3, 1])
    """

    def encode(self, source: Source) -> tuple[Any, Any]:
        """Reads the source.

        Args:
            source: What the search was given: int32 [B, S] ids, padded with the
                search's `pad_id`; or features [B, S, F], images [B, h, w, C] or other
                tensors of any dtype, or a tuple or dict of them.

        Returns:
            `(memory, state)`: nests of tensors. The memory, with leaves [B, ...], is
            passed to every step unchanged. The state, with leaves [B, 1, ...], is
            gathered as the beams change places.
        """

    def step(
        self, tokens: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor | None]:
        """Reads one token per beam and scores the next.

        Args:
            tokens: int32 [B, K], at first the search's `bos_id`.
            state: A nest with leaves [B, K, ...], whose shapes stay the same.
            memory: The memory that `encode` returned.

        Returns:
            `(logits [B, K, V], state, weights)`, where the weights are the attention
            [B, K, S] (or [B, K, h, w] and the like), or None if there is none.
        """


class Search(Protocol):
    """The interface of a search that a `Translator` needs.

    Example:
        >>> from keras_luong.decoding import force
        >>> class Copy:  # a "search" that answers with the source itself
        ...     def __call__(self, model, source):
        ...         return force(model, source, source)
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> Copy()(model, np.array([[4, 5, 3]])).ids.numpy()
        array([[[4, 5, 3]]], dtype=int32)
    """

    def __call__(self, model: StepModel, source: Source, /) -> Hypotheses:
        """Finds target sequences.

        Args:
            model: A `StepModel`.
            source: What the model's `encode` reads.

        Returns:
            `Hypotheses`.
        """


class Hypotheses(NamedTuple):
    """The results of a search, the best hypothesis of each sentence first.

    Attributes:
        ids: int32 [B, N, T], without the begin token, up to and with the end token
            (absent if the maximum length cut the hypothesis), then padding.
        lengths: int32 [B, N], the end token included. 0 where the search found fewer
            than N hypotheses of non-zero probability.
        scores: float32 [B, N], by which they are ranked; -inf where there is none.
        log_probs: float32 [B, N], the sum over the tokens.
        weights: float32 [B, N, T, S], the attention at each token, 0 after the end. S
            is what the model's own step says, such as two axes; it is 0 for a model
            without attention.
        token_log_probs: float32 [B, N, T], log-probability of each token, 0 after the
            end.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(9, 9, units=4))
        >>> found = kl.GreedySearch(max_length=4)(model, np.array([[4, 5, 3]]))
        >>> T = found.ids.shape[-1]
        >>> found.ids.shape == (1, 1, T), found.weights.shape == (1, 1, T, 3)
        (True, True)
    """

    ids: tf.Tensor
    lengths: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    weights: tf.Tensor
    token_log_probs: tf.Tensor


def check_source(source: Any) -> Source:
    """Returns a source as tensors; integers of two axes, which are ids, as int32.

    Args:
        source: A tensor [B, ...], or something to make one of; or a tuple or dict of
            them, which may be nested.

    Raises:
        TypeError: If it cannot be made tensors.
        ValueError: If a tensor has no axis of sentences, or one of ids has no column,
            or they have different numbers of sentences.
    """
    check_tensorflow()
    if isinstance(source, tuple):  # of more than numbers
        is_nest = any(getattr(x, "shape", ()) != () for x in tf.nest.flatten(source))
    else:
        is_nest = isinstance(source, Mapping)
    if is_nest:
        nest = tf.nest.map_structure(_tensor, source)
    else:
        nest = _tensor(source, alone=True)
    leaves = tf.nest.flatten(nest)
    if not leaves:
        raise ValueError(f"The source must hold a tensor. Received: {source!r}")
    counts = {f"tensor {i}": known_count_of(x) for i, x in enumerate(leaves)}
    check_same("The number of sentences in the source", **counts)
    return nest


def _tensor(x, alone=False):
    try:
        x = tf.convert_to_tensor(x)
    except (TypeError, ValueError) as error:
        raise TypeError(
            "The source must be a tensor, or a tuple or dict of tensors (of a "
            f"RaggedTensor give its to_tensor()). Received: {x!r:.200}"
        ) from error
    rank = x.shape.rank
    ids = x.dtype.is_integer and rank in (1, 2, None)
    # One number for each sentence may be its length, but it is no sentence.
    number = rank == 0 or (alone and ids and rank == 1)
    if number or (rank is not None and 0 in x.shape[1:]):
        raise ValueError(
            "The source must have a row for each sentence: the shape [B, S] if it is "
            f"ids, S at least 1. Received: {x.shape}"
        )
    return tf.cast(x, tf.int32) if ids else x


def count_of(source: Source) -> tf.Tensor:
    """Returns the number of sentences, an int32 scalar."""
    return tf.shape(tf.nest.flatten(source)[0])[0]


def known_count_of(source: Source) -> int | None:
    """Returns the number of sentences if the graph knows it, else None."""
    shape = tf.nest.flatten(source)[0].shape
    return None if shape.rank is None else shape[0]


def is_ids(source: Source) -> bool:
    """Tells whether a source is one tensor of ids, int32 [B, S]."""
    is_tensor = tf.is_tensor(source)
    return is_tensor and source.dtype == tf.int32 and source.shape.rank in (2, None)


def check_target_ids(name: str, ids: tf.Tensor, source: Source) -> tf.Tensor:
    """Returns ids of the target language as int32, a row for each source.

    Args:
        name: Name of the argument, such as "prefix_ids", for the error message.
        ids: Integers [B, any].
        source: The source.

    Raises:
        ValueError: If the ids are of another shape.
    """
    ids = tf.cast(tf.convert_to_tensor(ids), tf.int32)
    rows = tf.TensorShape([known_count_of(source)])
    if ids.shape.rank != 2 or not rows.is_compatible_with(ids.shape[:1]):
        raise ValueError(
            f"{name} must have a row for each of the sentences, two axes. Received: "
            f"{ids.shape} for a source of {described(source)}"
        )
    return ids


def token_counts(ids: tf.Tensor, pad_id: int = PAD_ID) -> tf.Tensor:
    """Returns the number of ids without padding in each row [B, T], int32 [B]."""
    return tf.reduce_sum(tf.cast(ids != pad_id, tf.int32), axis=1)


def source_lengths(source: Source, pad_id: int, needed_by: str) -> tf.Tensor:
    """Returns the number of ids that are not padding in each sentence, int32 [B].

    Args:
        source: A source of ids, right-padded with `pad_id`.
        pad_id: The id of padding.
        needed_by: What needs the lengths, for the error message.

    Raises:
        ValueError: If the source is no ids, so that nothing says where it ends.
    """
    if not is_ids(source):
        raise ValueError(
            f"{needed_by} needs a source of ids, int32 [B, S], whose length without "
            f"padding is known. Give a max_length. Received: {described(source)}"
        )
    return token_counts(source, pad_id)


def length_limits(source: Source, max_length: int | None, pad_id: int) -> tf.Tensor:
    """Returns the maximum length of each sentence's hypotheses, int32 [B].

    Args:
        source: The source.
        max_length: The maximum of all, or None for twice the sentence's own length
            (without padding, so it does not depend on other sentences) plus 10.
        pad_id: The id of padding.

    Raises:
        ValueError: If there is no maximum, and the source is no ids.
    """
    if max_length is not None:
        return tf.fill([count_of(source)], max_length)
    return 2 * source_lengths(source, pad_id, "max_length=None") + 10


def described(source: Any) -> Any:
    """Returns the dtypes and shapes in a nest, for an error message."""
    return tf.nest.map_structure(
        lambda x: f"{x.dtype.name} {x.shape}" if hasattr(x, "shape") else repr(x),
        source,
    )


def source_mask(source: Source, pad_id: int, positions: tf.TensorShape) -> tf.Tensor:
    """Returns which of the attended positions are no padding, bool [B, S] or [B, 1].

    Args:
        source: The source.
        pad_id: The id of padding.
        positions: The shape [S] of a step's attention. Where it is another than that of
            ids, as for images, no position is padding.
    """
    if is_ids(source) and source.shape[1:].is_compatible_with(positions):
        return source != pad_id
    return tf.fill([count_of(source), 1], True)


def check_step_model(name: str, model: Any) -> None:
    """Raises TypeError unless `model` has the methods of a `StepModel`.

    And ValueError where Keras does not compute with TensorFlow.
    """
    check_tensorflow()
    if not all(callable(getattr(model, method, None)) for method in ("encode", "step")):
        raise TypeError(
            f"{name} must have methods `encode` and `step`, such as Seq2Seq. "
            f"Received: {model!r}"
        )


def copies(model: Any) -> bool:
    """Returns whether a model writes source words, as their ids are target ids."""
    return getattr(model, "copies", False)


def vocab_size_of(model: Any, side: str) -> int | None:
    """Returns the size of a vocabulary by the model's config, or None if unknown.

    Args:
        model: A `StepModel`, with or without a `config`.
        side: "source" or "target".
    """
    return getattr(getattr(model, "config", None), f"{side}_vocab_size", None)


def restricted(model: Any, ids: tf.Tensor, allowed: tf.Tensor) -> StepModel:
    """Returns the model with a part of its target vocabulary.

    Args:
        model: A `StepModel` with a method `restricted`, as those of keras_luong have.
        ids: int32 [M], the ids of the words to score.
        allowed: bool [B, M], which of them each sentence may use.

    Raises:
        TypeError: If the model has no method `restricted`.
    """
    if not hasattr(model, "restricted"):
        raise TypeError(
            "A search with a shortlist needs a model with a method `restricted`, as "
            f"those of keras_luong have. Received: {model!r}"
        )
    return model.restricted(ids, allowed)


def take_step(
    model: StepModel, tokens: tf.Tensor, state: Any, memory: Any
) -> tuple[tf.Tensor, Any, list[tf.Tensor]]:
    """Takes a model's step, and knows shapes that its graph may have lost.

    Args:
        model: A `StepModel`.
        tokens: int32 [B, K].
        state: Its state.
        memory: Its memory.

    Returns:
        Logits, float32 [B, K, V]; the new state; the attention as float32 [B, K, ...],
        or nothing if there is none.
    """
    logits, new_state, weights = model.step(tokens, state, memory)
    count = tokens.shape[1]  # the graph of a loaded model may have lost it
    logits = ensure_shape(tf.cast(logits, tf.float32), [None, count, None])
    attention = []
    if weights is not None:
        rank = 3 if weights.shape.rank is None else weights.shape.rank
        shape = [None, count, *[None] * (rank - 2)]
        attention = [ensure_shape(tf.cast(weights, tf.float32), shape)]
    return logits, keep_shapes(new_state, state), attention


def repeated(state: Any, count: int) -> Any:
    """Returns a first state, a nest with leaves [B, 1, ...], for several beams."""
    if count == 1:
        return state
    return tf.nest.map_structure(
        lambda x: tf.tile(x, [1, count, *[1] * (x.shape.rank - 2)]), state
    )


def vocab_size_in(logits: tf.Tensor) -> Any:
    """Returns V of logits [..., V]: an int, or a tensor if the graph doesn't know it.

    It does not where the tokens are positions of the source, as in a pointer network.
    """
    size = logits.shape[-1]
    return tf.shape(logits)[-1] if size is None else size


def split_log_softmax(logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Splits a log-softmax: the logits rank the tokens, the normaliser is the rest.

    A search needs the log-probabilities of a few tokens only, so it ranks the logits
    and subtracts the normaliser from the few that it keeps. Forbidden tokens keep their
    share of the probability, so scores are the model's own.

    Args:
        logits: float32 [..., V].

    Returns:
        The normalisers `log Σ exp(logits)`, float32 [..., 1], and whether they are
        finite, bool [..., 1]. They are not finite if all logits are -inf, or one of
        them is NaN or +inf; then no token is possible.
    """
    # Not tf.reduce_logsumexp, which takes care of rows that are not possible anyway.
    peak = tf.reduce_max(logits, axis=-1, keepdims=True)
    total = tf.reduce_sum(tf.exp(logits - peak), axis=-1, keepdims=True)
    normalisers = tf.math.log(total) + peak
    return normalisers, tf.math.is_finite(normalisers)


def flat_positions(weights: tf.Tensor) -> tf.Tensor:
    """Returns attention with one axis of positions: [A, K, ...] -> [A, K, S]."""
    if weights.shape.rank == 3:
        return weights
    size = weights.shape[2:].num_elements()
    rows = tf.shape(weights)[0] if size is None else -1
    return tf.reshape(weights, [rows, weights.shape[1], -1 if size is None else size])


def follow(nest: Any, parents: tf.Tensor) -> Any:
    """Gathers tensors by beams: `out[b, k] = x[b, parents[b, k]]`.

    Args:
        nest: Tensors [B, K, ...].
        parents: int32 [B, K'].

    Returns:
        The same nest of tensors [B, K', ...].
    """
    return tf.nest.map_structure(lambda x: tf.gather(x, parents, batch_dims=1), nest)


def where(mask: tf.Tensor, x: tf.Tensor, other: Any) -> tf.Tensor:
    """Does the same as `tf.where`, if a mask lacks the last axes of `x`."""
    for _ in range(x.shape.rank - mask.shape.rank):
        mask = mask[..., tf.newaxis]
    return tf.where(mask, x, other)


def any_rows(x: tf.Tensor) -> tf.TensorShape:
    """Returns the shape of a tensor [A, ...] for any number A."""
    return tf.TensorShape([None, *x.shape[1:]])


def keep_shapes(nest: Any, like: Any) -> Any:
    """Restores static shapes that a model's reshapes lost, as loops need them.

    Args:
        nest: Tensors.
        like: The same nest, of tensors with these static shapes.

    Returns:
        `nest`.
    """
    tf.nest.assert_same_structure(nest, like)
    return tf.nest.map_structure(lambda x, y: ensure_shape(x, y.shape), nest, like)


def ensure_shape(x: tf.Tensor, shape: Any) -> tf.Tensor:
    """Does the same as `tf.ensure_shape`, without an op if the shape is known.

    Args:
        x: A tensor.
        shape: Its shape, None where a size is not known.

    Returns:
        `x`.
    """
    known = x.shape.is_subtype_of(tf.TensorShape(shape))
    return x if known else tf.ensure_shape(x, shape)
