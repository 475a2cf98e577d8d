"""Global attention: a function of a query batch and a prepared memory (Eq. 7).

Shapes: B batch, Q queries, S source positions, Hq/Hv query/value units. Q is the target
length when a whole sequence is attended at once, 1 inside a recurrence and the beam
width during search: one implementation serves all three.

The call of an attention layer as Keras sees it: what comes in, what goes out.

Shapes: B batch, Q queries, S source positions, Hq/Hv query/value units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_rate, check_size
from keras_luong.compat import autocasting, serialize_shared, set_keras_mask
from keras_luong.layers.base import (
    BaseLayer,
    Kernel,
    arguments_of,
    kernel_config,
)
from keras_luong.layers.cells import draw_noise, dropped
from keras_luong.layers.inputs import (
    AttentionInputs,
    as_source,
    combined_masks,
    flattened,
    pair_mask,
    read_inputs,
    shared_batch_size,
    spread,
    spread_memory,
    unpack_shapes,
)
from keras_luong.layers.normalizers import (
    Memory,
    Normalizer,
    blanked,
    get_normalizer,
    hardened,
    make_memory,
    mask_of,
    masked_logits,
    weights_dtype,
)
from keras_luong.layers.projection import Project
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, scan
from keras_luong.layers.scores import Score, make_score
from keras_luong.types import Shape, Tensor, Tensors


class AttentionCall(BaseLayer):
    """Base of attention layers: `call`, from what a subclass says of one attention.

    That is `prepare`, `attend`, `draw_noise`, `has_state`, `initial_state` and
    `weights_dtype`, see `LuongAttention`.
    """

    #: How many axes of positions a source may have; None for any number.
    source_axes: int | None = None

    #: Units of query, value and key, once it is built.
    _sizes: tuple[int | None, ...] = (None, None, None)

    prepare: Callable[..., Any]
    attend: Callable[..., Any]
    draw_noise: Callable[..., Any]
    has_state: Any
    weights_dtype: Any

    def call(
        self,
        query: Tensors,
        value: Tensor | None = None,
        key: Tensor | None = None,
        query_mask: Tensors | None = None,
        value_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        positions: Any = None,
        training: bool | None = None,
        mask: Tensors | None = None,
        key_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_logits: bool = False,
    ) -> Any:
        """See the class."""
        tensors = (query, value, key, query_mask, value_mask, key_mask)
        inputs = AttentionInputs(*tensors, attention_mask, positions)
        inputs = read_inputs(inputs, mask, self.source_axes, self._sizes)
        inputs, memory = self._read(inputs)
        context, maps = self._attend_from(
            inputs, memory, training, use_causal_mask, return_logits
        )
        if inputs.query_mask is not None:
            set_keras_mask(context, inputs.query_mask)
        maps = maps if return_attention_scores else maps[1:]
        maps = [as_source(x, inputs.value) for x in maps]
        return (context, *maps) if maps else context

    def _read(self, inputs):
        """The memory, and the inputs with queries of its batch size."""
        inputs = keras.tree.map_structure(_tensor, inputs)
        mask = combined_masks(inputs.value_mask, inputs.key_mask)
        memory = self.prepare(inputs.value, mask, inputs.key)
        size = shared_batch_size(*inputs[:-1])
        if size is None:
            return inputs, memory
        query, query_mask = spread(inputs.query, size), spread(inputs.query_mask, size)
        inputs = inputs._replace(query=query, query_mask=query_mask)
        return inputs, spread_memory(memory, size)

    def _attend_from(self, inputs, memory, training, use_causal_mask, return_logits):
        """The context [B, Q, Hv], and weights and perhaps logits [B, Q, S]."""
        query, query_mask, positions = inputs.query, inputs.query_mask, inputs.positions
        shape = (*ops.shape(query)[:2], ops.shape(memory.mask)[1])
        if positions is None:
            positions = ops.expand_dims(ops.arange(shape[1], dtype="int32"), 0)
        positions = ops.convert_to_tensor(positions)
        options: dict[str, Any] = {"return_logits": True} if return_logits else {}
        pairs = pair_mask(inputs, positions, use_causal_mask)
        if pairs is not None:  # a subclass's `attend` may not know of it
            options["attention_mask"] = pairs
        mode = Mode(bool(training), Noise(attention=self.draw_noise(shape, training)))
        if query_mask is not None:
            query = blanked(query, query_mask)
        if self.has_state:
            context, *maps = _attend_in_turn(
                self, query, query_mask, memory, positions, mode, options
            )
        else:
            context, weights, _, *logits = self.attend(
                query, memory, positions, (), mode, **options
            )
            maps = [weights, *logits]
        if query_mask is not None:
            context = blanked(context, query_mask)
            maps = _without_masked(maps, query_mask)
        return context, maps

    def compute_output_shape(
        self,
        query_shape: Any,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> Shape:
        """The context's shape, [B, Q, Hv]."""
        query, value, _ = unpack_shapes(query_shape, value_shape, key_shape)
        batch_size = value[0] if query[0] == 1 else query[0]
        return (batch_size, *query[1:-1], value[-1])

    def compute_mask(self, query: Any, query_mask: Any = None) -> Any:
        """The context is masked where the query is."""
        return query_mask[0] if isinstance(query_mask, (list, tuple)) else query_mask

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        given = arguments_of(self.call, args, kwargs)
        inputs = AttentionInputs(*[given[name] for name in AttentionInputs._fields])
        inputs = read_inputs(inputs, given["mask"], self.source_axes, self._sizes)
        shape = self.compute_output_shape(inputs.query.shape, inputs.value.shape)
        context = keras.KerasTensor(shape, self.compute_dtype)
        if inputs.query_mask is not None:
            set_keras_mask(context, inputs.query_mask)
        count = given["return_attention_scores"] + given["return_logits"]
        shape = (*shape[:-1], *inputs.value.shape[1:-1])
        maps = [keras.KerasTensor(shape, self.weights_dtype) for _ in range(count)]
        return (context, *maps) if maps else context


def _tensor(x):
    """A variable's value: Keras takes one of TensorFlow for a tensor."""
    return x.read_value() if hasattr(x, "read_value") else x


def _without_masked(maps, query_mask):
    """Zeros as the weights of masked queries, and the lowest logits."""
    weights, *logits = maps
    there = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
    return [blanked(weights, query_mask), *[masked_logits(x, there) for x in logits]]


def _attend_in_turn(attention, query, mask, memory, positions, mode, options):
    """One query after the other, each knowing what the earlier ones looked at."""
    batch_size, length = ops.shape(query)[:2]
    positions = ops.broadcast_to(positions, (batch_size, length))
    mask = ops.ones_like(positions) if mask is None else mask
    if mode.noise.attention is not None:  # one row serves the whole recurrence
        mode = mode._replace(noise=Noise(attention=mode.noise.attention[:, :1]))
    pairs = options.get("attention_mask")
    state = [ops.squeeze(x, 1) for x in attention.initial_state(memory)]
    constants = (memory, positions, ops.cast(mask, "bool"))
    (context, maps), _ = scan(
        _step_of(attention, options),
        ops.swapaxes(query, 0, 1),
        (state, ops.zeros((batch_size, 1), dtype="int32")),
        constants if pairs is None else (*constants, pairs),
        mode=mode,
    )
    context, maps = ops.swapaxes(context, 0, 1), ops.swapaxes(maps, 0, 1)
    if not options.get("return_logits"):
        return context, maps
    source_length = ops.shape(memory.mask)[1]
    return context, maps[..., :source_length], maps[..., source_length:]


def _step_of(attention, options):
    """One query's step, for `scan`: its state is the attention's, and whose turn it is.

    Its outputs are two, context [B, Hv] and weights [B, S], with the logits beside them
    if wanted: a loop knows the sizes of all its outputs but one.
    """

    def step(query, states, constants, mode):
        memory, positions, mask, *pairs = constants
        before, turn = states
        now = dict(options)
        if pairs:
            now["attention_mask"] = ops.take(pairs[0], turn[0], axis=1)
        context, weights, after, *logits = attention.attend(
            ops.expand_dims(query, 1),
            memory,
            ops.take_along_axis(positions, turn, axis=1),
            [ops.expand_dims(x, 1) for x in before],
            mode,
            **now,
        )
        # A masked query is as good as none: those after it do not know of it.
        there = ops.take_along_axis(mask, turn, axis=1)
        after = [
            ops.where(there, ops.squeeze(new, 1), old)
            for new, old in zip(after, before, strict=True)
        ]
        maps = ops.concatenate([weights, *logits], -1) if logits else weights
        return (ops.squeeze(context, 1), ops.squeeze(maps, 1)), (after, turn + 1)

    return step


@keras.saving.register_keras_serializable(package="keras_luong")
class LuongAttention(AttentionCall):
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
        normalizer: What makes weights of scores: "softmax" (also for None),
            "sparsemax", "entmax15", or a function of (scores float32 [B, Q, S], mask
            bool) that gives 0 where the mask is False; register such a function with
            Keras, so that the layer can be saved.
        hard: Whether, at inference, all weight goes to the source position that has the
            most (the lowest of several).
        coverage: Whether the score sees how much attention each source position has had
            so far (See et al. 2017, Eq. 11): the keys become `h̄_s + w_c Σ_{t'<t}
            a_t'(s)`, with a learned vector `coverage_kernel`, in the space where the
            score compares. `CoverageLoss` is its loss.
        seed: Seed of the dropout.
        kernel_initializer: Initializer of the weights.
        kernel_regularizer: Regularizer of the matrices, and of the vectors v_a and w_c.
        kernel_constraint: Constraint on the same.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Call arguments:
        query: Decoder states [B, Q, Hq]; or, as in `keras.layers.Attention`, the list
            [query, value] or [query, value, key].
        value: Encoder states [B, S, Hv], or, for instance of an image, [B, h, w, Hv],
            whose positions are attended to as one row. A query, or a value, of batch
            size 1 is the same for the whole batch.
        key: What to score against, if not `value`: [B, S, Hk].
        query_mask: bool [B, Q]; a masked query gets zeros.
        value_mask: bool [B, S] (or [B, h, w]); a masked position gets weight 0. A
            source without any True gives zeros.
        return_attention_scores: Whether to return the weights too.
        positions: Target positions of the queries, int [B or 1, Q]: 0, 1, 2, ... by
            default. Global attention does not depend on them, but for causal masks.
        training: Whether to apply dropout.
        mask: In place of the three masks, as in `keras.layers.Attention`: [query_mask,
            value_mask] or [query_mask, value_mask, key_mask].
        key_mask: Like `value_mask`, and both must be True.
        attention_mask: bool [B, Q, S] (or [B, Q, h, w]): which positions each query may
            attend to. As in `keras.layers.MultiHeadAttention`, B, Q and S may be 1, and
            [Q, S] is the same for the whole batch.
        use_causal_mask: Whether a query attends only to source positions up to its own
            target position.
        return_logits: Whether to return the scores too, from which a normalizer makes
            the weights, for a loss from logits (a pointer network's).

    Returns:
        The context [B, Q, Hv]. With `return_attention_scores` then the weights, before
        dropout: [B, Q, S] (or [B, Q, h, w]), float32, or float64 under that policy.
        With `return_logits` then the scores, of the same shape and dtype; -3.4e38,
        float32's lowest number, where a mask is False.

    Raises:
        ValueError, TypeError: An argument is none of the above, shapes do not fit, or
            "dot", "scaled_dot" or "cosine" meet a query and a key of different sizes.

    Example:
        >>> states, memory = np.random.rand(2, 4, 8), np.random.rand(2, 5, 8)
        >>> mask = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], bool)
        >>> attention = kl.LuongAttention("general")
        >>> context, weights = attention(
        ...     states, memory, value_mask=mask, return_attention_scores=True
        ... )
        >>> tuple(context.shape), tuple(weights.shape)
        ((2, 4, 8), (2, 4, 5))
        >>> h_tilde = kl.AttentionalVector(8)(context, states)
    """

    coverage_kernel = Kernel()

    _nested: tuple[str, ...] = ("score_mode", "normalizer")

    def __init__(
        self,
        score_mode: str | Score = "general",
        units: int | None = None,
        max_source_length: int | None = None,
        dropout: float = 0.0,
        normalizer: str | Normalizer | None = None,
        hard: bool = False,
        coverage: bool = False,
        seed: int | None = None,
        kernel_initializer: Any = "glorot_uniform",
        kernel_regularizer: Any = None,
        kernel_constraint: Any = None,
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
        get_normalizer(normalizer)  # or raises
        self.normalizer = normalizer
        self.hard = check_flag("hard", hard)
        self.coverage = check_flag("coverage", coverage)
        self.seed = seed
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.score = self._make_score(score_mode)
        self.score.owners.add(self)
        if coverage and score_mode == "location":
            raise ValueError(
                "coverage=True needs a score that compares with the source. Received: "
                'score_mode="location"'
            )
        self.seed_generator = keras.random.SeedGenerator(seed)

    def _make_score(self, score_mode):
        """The score of that name, with the layer's options; or somebody's own."""
        units, length = self.units, self.max_source_length
        return make_score(score_mode, units, length, **self._score_options())

    def _score_options(self):
        return {
            "kernel_initializer": self.kernel_initializer,
            "kernel_regularizer": self.kernel_regularizer,
            "kernel_constraint": self.kernel_constraint,
            "dtype": self.dtype_policy,
        }

    def build(
        self,
        query_shape: Any,
        value_shape: Shape | None = None,
        key_shape: Shape | None = None,
    ) -> None:
        """Builds the score for queries [B, Q, Hq] and keys [B, S, Hk]."""
        shapes = unpack_shapes(query_shape, value_shape, key_shape)
        query_shape, value_shape, key_shape = shapes
        self._sizes = tuple(shape[-1] for shape in shapes)
        if not self.score.built:  # a user's own may be, when it was loaded
            self.score.build(query_shape, key_shape)
        if self.coverage:
            units = self.score.key_units(query_shape, key_shape)
            self.coverage_kernel = self.add_kernel("coverage_kernel", units)
        self._build_more(query_shape, value_shape, key_shape)

    def _build_more(self, query_shape, value_shape, key_shape):
        """Makes the weights that only a subclass has."""

    @property
    def has_state(self) -> bool:
        """Whether queries must come one after the other, see `initial_state`."""
        return self.coverage

    @property
    def weights_dtype(self) -> str:
        """Dtype of the weights and of the state: float32, or the policy's float64."""
        return weights_dtype(self.compute_dtype)

    def initial_state(self, memory: Memory, queries: int = 1) -> list[Tensor]:
        """What the attention knows before the first target word.

        Args:
            memory: What `prepare` returned.
            queries: Number Q of queries per source: 1, or the beam width.

        Returns:
            List of `weights_dtype` [B, Q, S]; empty for an attention that remembers
            nothing.
        """
        if not self.has_state:
            return []
        batch_size, source_length = ops.shape(memory.mask)
        shape = (batch_size, queries, source_length)
        return [ops.zeros(shape, dtype=self.weights_dtype)]

    def prepare(
        self, value: Tensor, mask: Tensor | None = None, key: Tensor | None = None
    ) -> Memory:
        """Projects the source once: everything that no query changes.

        Args:
            value: Encoder states [B, S, Hv], or [B, h, w, Hv] with S = h w.
            mask: bool [B, S] (or [B, h, w]), True at words; the value's own Keras mask
                by default.
            key: What to score against, if not `value`: [B, S, Hk].

        Returns:
            A `Memory` for `attend`.

        Raises:
            ValueError: The score needs weights and has none yet, or `value` is the
                symbolic input of a functional model.
        """
        if isinstance(value, keras.KerasTensor):
            raise ValueError(
                f"{self.name}.prepare takes tensors, and is for the `call` of layers "
                "and models of your own. In a functional model call the attention "
                f"itself, on query and value. Received: value={value}"
            )
        value, mask = flattened(value, 1, 1), flattened(mask_of(value, mask), 1, 0)
        key = value if key is None else flattened(key, 1, 1)
        _, of_value, of_key = self._sizes
        check_axes(value=(value, None, None, of_value), key=(key, None, None, of_key))
        if mask is not None:  # its gradient would be NaN where padding is
            key = blanked(key, mask)
        try:
            with autocasting(self.score):
                keys = self._prepare_keys(key)
        except AttributeError as error:
            if self.score.built or not isinstance(error.obj, keras.layers.Layer):
                raise
            raise ValueError(
                f"{self.name} has no weights yet: call it once, or build(query_shape, "
                f"value_shape), before prepare. {type(error.obj).__name__} has no "
                f"{error.name!r}."
            ) from error
        return make_memory(value, keys, mask)

    def _prepare_keys(self, key):
        """What queries are scored against, [B, S, Hk]."""
        return self.score.prepare(key)

    def attend(
        self,
        query: Tensor,
        memory: Memory,
        positions: Tensor | None = None,
        state: Sequence[Tensor] = (),
        mode: Mode = INFERENCE,
        attention_mask: Tensor | None = None,
        return_logits: bool = False,
    ) -> tuple[Any, ...]:
        """Attends from every query to a prepared memory.

        Args:
            query: Decoder states [B, Q, Hq].
            memory: What `prepare` returned.
            positions: Target positions of the queries, int [B or 1, Q], counted from 0;
                global attention ignores them, local attention may not.
            state: What `initial_state` or the attention before returned.
            mode: How to compute it; the dropout multipliers are `mode.noise.attention`.
            attention_mask: Where each query may attend to: bool [B or 1, Q or 1, S].
            return_logits: Whether to return the scores too.

        Returns:
            Context [B, Q, Hv]; weights, `weights_dtype` [B, Q, S]; the new state; and,
            with `return_logits`, the scores, like the weights.
        """
        mask = combined_masks(ops.expand_dims(memory.mask, 1), attention_mask)
        weights, state, *logits = self._weigh(
            query, memory, mask, state, mode, return_logits
        )
        kept = ops.cast(dropped(weights, mode.noise.attention), memory.values.dtype)
        return mode.project(memory.values, kept), weights, state, *logits

    def _weigh(self, query, memory, mask, state, mode, return_logits):
        """Weights [B, Q, S] before dropout; the new state; perhaps the logits."""
        seen = state[0] if self.has_state else None
        weights = self.align(query, memory.keys, mask, seen, mode.project)
        weights = self.choose(weights, mode.training)
        after = [self._remember(past, ops.cast(weights, past.dtype)) for past in state]
        if not return_logits:
            return weights, after
        logits = self.logits(query, memory.keys, seen, mode.project)
        return weights, after, masked_logits(logits, mask)

    def _remember(self, seen, weights):
        """What the next query is to know, both [B, Q, S]."""
        return seen + weights

    def align(
        self, query: Tensor, keys: Tensor, mask: Tensor, coverage: Any, project: Project
    ) -> Tensor:
        """Weights of N places for every query (Eq. 7); a subclass may have others.

        Args:
            query: Decoder states [B, Q, Hq].
            keys: Prepared keys [B, N, Hk], or the queries' own [B, Q, N, Hk].
            mask: Which places there are: bool [B, Q or 1, N].
            coverage: What the query knows of the earlier weights, such as their sum,
                [B, Q, N]; or None.
            project: How to multiply by weights.

        Returns:
            `weights_dtype` [B, Q, N].
        """
        logits = self.logits(query, keys, coverage, project)
        return get_normalizer(self.normalizer)(logits, mask)

    def logits(
        self, query: Tensor, keys: Tensor, coverage: Any, project: Project
    ) -> Tensor:
        """The scores of N places, `weights_dtype` [B, Q, N]; arguments of `align`."""
        if coverage is not None:
            keys = keys if len(keys.shape) == 4 else ops.expand_dims(keys, 1)
            keys = keys + self._marks(ops.cast(coverage, keys.dtype), project)
        scores = self.score(query, keys, project=project)
        return ops.cast(scores, weights_dtype(scores.dtype))

    def _marks(self, coverage, project):
        """What is added to the keys: of [B, Q, N] makes [B, Q, N, Hk]."""
        kernel = ops.cast(self.coverage_kernel, coverage.dtype)
        return ops.expand_dims(coverage, -1) * kernel

    def choose(self, weights: Tensor, training: bool) -> Tensor:
        """The weights, or at inference where `hard`, only the highest."""
        return hardened(weights) if self.hard and not training else weights

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """Dropout multipliers [B, Q or 1, S] of weights; None where none is dropped.

        With one row for all queries a whole recurrence shares it, as the recurrent
        layers of Keras share their dropout masks between steps.
        """
        rate, seed = self.dropout, self.seed_generator
        return draw_noise(shape, rate, training, seed, self.weights_dtype)

    def quantize(
        self, mode: str | None = None, type_check: bool = True, config: Any = None
    ) -> None:
        """Stores the matrices of its scores in int8, and the layer's own."""
        for score in self._scores:
            if score.quantization_mode is None:
                score.quantize(mode)  # which may take this layer along
        if self.quantization_mode is None:
            super().quantize(mode, type_check, config)

    @property
    def _scores(self):
        return [self.score]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        mode, named = self.score_mode, isinstance(self.score_mode, str)
        config = {
            "score_mode": mode if named else serialize_shared(mode),
            "units": self.units,
            "max_source_length": self.max_source_length,
            "dropout": self.dropout,
            "normalizer": keras.saving.serialize_keras_object(self.normalizer),
            "hard": self.hard,
            "coverage": self.coverage,
            "seed": self.seed,
        }
        return {**super().get_config(), **config, **kernel_config(self)}
