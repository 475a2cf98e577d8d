"""Global attention: a function of a query batch and a prepared memory (Eq. 7).

`attention_weights` is the mathematics. `LuongAttention` is the layer around it: `call`
reads what Keras hands it, `prepare` projects the source once, and `attend` is one step.

Shapes: B batch, Q queries, S source positions, Hq/Hv/Hk query/value/key units. Q is the
target length when a whole sequence is attended at once, 1 inside a recurrence and the
beam width during search: one implementation serves all three.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_axes, check_flag, check_rate, check_size
from keras_luong.compat import serialize_shared, set_keras_mask
from keras_luong.layers.base import BaseLayer, Kernel, arguments_of, weight_config
from keras_luong.layers.cells import draw_noise, dropped
from keras_luong.layers.inputs import (
    AttentionInputs,
    as_source,
    combined_masks,
    flattened,
    pair_mask,
    pair_masks,
    read_inputs,
    spread_batch,
    unpack_shapes,
)
from keras_luong.layers.memory import (
    Memory,
    batch_and_length,
    blanked,
    make_memory,
    mask_of,
    weights_dtype,
)
from keras_luong.layers.normalizers import (
    Normalizer,
    get_normalizer,
    hardened,
    masked_logits,
    masked_softmax,
)
from keras_luong.layers.projection import Project, dot, matmul
from keras_luong.layers.recurrence import INFERENCE, Mode, Noise, scan
from keras_luong.layers.scores import Score, make_score, prepare_keys
from keras_luong.types import Shape, Tensor, Tensors


def attention_weights(
    query: Tensor,
    keys: Tensor,
    mask: Tensor | None = None,
    score: Callable[..., Tensor] = dot,
    normalizer: str | Normalizer | None = None,
    project: Project = matmul,
) -> tuple[Tensor, Tensor]:
    """`a_t(s) = softmax_s score(h_t, h̄_s)` (Eq. 7), and the scores.

    Args:
        query: h_t, [B, Q, Hq].
        keys: h̄_s, as the score compares with them: those of all queries, [B, S, Hk], or
            each query's own, [B, Q, S, Hk].
        mask: bool, broadcasts to [B, Q, S]; True everywhere by default.
        score: A `Score`, or a function of (query, keys, project): their dot product by
            default (Eq. 8).
        normalizer: As in `LuongAttention`.
        project: How to multiply by matrices, see `matmul`.

    Returns:
        Weights, zeros where the mask is False, and scores: float32, or float64 where
        the query is, [B, Q, S].

    Example:
        >>> query, keys = np.ones((2, 4, 8), "float32"), np.ones((2, 5, 8), "float32")
        >>> weights, scores = kl.layers.attention_weights(query, keys)
        >>> float(weights[0, 0, 0]), float(scores[0, 0, 0])
        (0.20000000298023224, 8.0)
    """
    scores = score(query, keys, project=project)
    wide = ops.cast(scores, weights_dtype(scores.dtype))
    normalizer = get_normalizer(normalizer)
    if normalizer is masked_softmax:
        weights = masked_softmax(scores, mask)
    else:
        mask = ops.ones_like(wide, dtype="bool") if mask is None else mask
        weights = normalizer(wide, mask)
    dtype = weights_dtype(query.dtype)  # a user's own score may have another
    return ops.cast(weights, dtype), ops.cast(wide, dtype)


@keras.saving.register_keras_serializable(package="keras_luong")
class LuongAttention(BaseLayer):
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
        query_mask: bool [B, Q]; a masked query gets zeros. The query's own Keras mask
            by default, and so of the value.
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

    #: How many axes of positions a source may have; None for any number.
    source_axes: int | None = None

    #: Whether only scores will do that compare with the source: not "location".
    _compares = False

    #: Arguments that a subclass does not take, and what an error says of each.
    _lacks: dict[str, str] = {}

    #: Units of query, value and key, once it is built.
    _sizes: tuple[int | None, ...] = (None, None, None)

    #: Whether a batch size of 1 that is known at run time alone must be repeated too.
    #: Left to broadcasting, that costs nothing.
    _spreads_at_run_time = False

    _nested: tuple[str, ...] = ("score_mode", "normalizer")
    coverage_kernel = Kernel()

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
        if score_mode == "location" and (coverage or self._compares):
            raise ValueError(
                f"{'coverage=True' if coverage else type(self).__name__} needs a score "
                'that compares with the source, such as "general". Received: '
                'score_mode="location"'
            )
        for name, value in (("normalizer", normalizer), ("coverage", coverage)):
            if value and name in self._lacks:
                raise ValueError(
                    f"{type(self).__name__} has no {name}{self._lacks[name]}. "
                    f"Received: {value!r}"
                )
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
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> None:
        """Builds the score for queries [B, Q, Hq] and keys [B, S, Hk]."""
        shapes = unpack_shapes(query_shape, value_shape, key_shape)
        self._sizes = tuple(shape[-1] for shape in shapes)
        query_shape, _, key_shape = shapes
        for score in self._parts:
            if not score.built:  # a user's own may be, when it was loaded
                score.build(query_shape, key_shape)
        if self.coverage:
            units = self.score.key_units(query_shape, key_shape)
            self.coverage_kernel = self.add_kernel("coverage_kernel", units)

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
        # 1. What was given, in Keras's form or ours; variables as tensors.
        masks = (query_mask, value_mask, key_mask, attention_mask)
        inputs = AttentionInputs(query, value, key, *masks, positions)
        inputs = read_inputs(inputs, mask, self.source_axes, self._sizes)
        inputs = keras.tree.map_structure(
            lambda x: x.read_value() if hasattr(x, "read_value") else x, inputs
        )
        # 2. The source, and which of its positions each query may attend to.
        source_mask = combined_masks(inputs.value_mask, inputs.key_mask)
        memory = self.prepare(inputs.value, source_mask, inputs.key)
        positions = inputs.positions
        if positions is None:
            length = ops.shape(inputs.query)[1]
            positions = ops.expand_dims(ops.arange(length, dtype="int32"), 0)
        positions = ops.convert_to_tensor(positions)  # [B or 1, Q]
        pairs = pair_mask(inputs, positions, use_causal_mask)  # [B or 1, Q, S]
        # 3. A query, or a source, of batch size 1 is the same for the whole batch.
        query, query_mask, memory = spread_batch(
            (inputs.query, inputs.query_mask, memory),
            inputs._replace(attention_mask=pairs, positions=None),
            self._spreads_at_run_time,
        )
        # 4. All queries at once; or one after the other, if they know of one another.
        query = blanked(query, query_mask)
        shape = (*ops.shape(query)[:2], batch_and_length(memory)[1])
        mode = Mode(bool(training), Noise(attention=self.draw_noise(shape, training)))
        if self.has_state:
            context, weights, *logits = self._attend_in_turn(
                query, query_mask, memory, positions, mode, pairs, return_logits
            )
        else:
            context, weights, _, *logits = self.attend(
                query, memory, positions, (), mode, pairs, return_logits
            )
        # 5. A masked query gets zeros, and the lowest logits.
        if query_mask is not None:
            context, weights = [blanked(x, query_mask) for x in (context, weights)]
            is_word = ops.expand_dims(ops.cast(query_mask, "bool"), -1)
            logits = [masked_logits(x, is_word) for x in logits]
            set_keras_mask(context, query_mask)
        maps = [weights, *logits] if return_attention_scores else logits
        maps = [as_source(x, inputs.value) for x in maps]
        return (context, *maps) if maps else context

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
        key = flattened(key, 1, 1)
        _, of_value, of_key = self._sizes
        check_axes(value=(value, None, None, of_value), key=(key, None, None, of_key))
        value = blanked(value, mask)
        key = value if key is None else blanked(key, mask)
        keys = tuple(self._prepare_keys(score, key) for score in self._parts)
        return make_memory(value, keys if len(keys) > 1 else keys[0], mask)

    def _prepare_keys(self, score, key):
        """What one score makes of the keys, such as [B, S, Hk]."""
        try:
            return prepare_keys(score, key)
        except AttributeError as error:
            if score.built or not isinstance(error.obj, keras.layers.Layer):
                raise
            raise ValueError(
                f"{self.name} has no weights yet: call it once, or build(query_shape, "
                f"value_shape), before prepare. {type(error.obj).__name__} has no "
                f"{error.name!r}."
            ) from error

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
        mask = pair_masks(memory, attention_mask)  # [B, Q or 1, S], or None
        weights, scores, state = self.weigh(query, memory.keys, mask, state, mode)
        kept = ops.cast(dropped(weights, mode.noise.attention), memory.values.dtype)
        context = mode.project(memory.values, kept)  # c_t = Σ_s a_t(s) h̄_s
        logits = [masked_logits(scores, mask)] if return_logits else []
        return context, weights, state, *logits

    def weigh(
        self, query: Tensor, keys: Any, mask: Any, state: Sequence[Tensor], mode: Mode
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The weights (Eq. 7), which a subclass may compute in another way.

        Args:
            query: Decoder states [B, Q, Hq].
            keys: Prepared keys [B, S, Hk], or each query's own, [B, Q, S, Hk].
            mask: Where each query may attend to: bool [B, Q or 1, S]; None for all.
            state: What `initial_state` or the attention before returned.
            mode: How to compute it.

        Returns:
            Weights, zeros where the mask is False, and the scores that they are made
            of, each `weights_dtype` [B, Q, S]; and the new state.
        """
        if self.coverage:
            keys = self._with_coverage(keys, state[0])  # [B, Q, S, Hk]
        weights, scores = attention_weights(
            query, keys, mask, self.score, self.normalizer, mode.project
        )
        if self.hard and not mode.training:
            weights = hardened(weights)
        seen = [past + ops.cast(weights, past.dtype) for past in state]
        return weights, scores, seen

    def _with_coverage(self, keys, coverage):
        """`h̄_s + w_c Σ_{t'<t} a_t'(s)` (See et al. 2017, Eq. 11).

        Of keys [B, S, Hk] or [B, Q, W, Hk] and coverage [B, Q, S or W] makes
        [B, Q, S or W, Hk].
        """
        keys = keys if len(keys.shape) == 4 else ops.expand_dims(keys, 1)
        kernel = ops.cast(self.coverage_kernel, keys.dtype)
        return keys + ops.expand_dims(ops.cast(coverage, keys.dtype), -1) * kernel

    @property
    def has_state(self) -> bool:
        """Whether queries must come one after the other, see `initial_state`."""
        return self.coverage

    def initial_state(self, memory: Memory, queries: int = 1) -> list[Tensor]:
        """The state before the first target word.

        Args:
            memory: What `prepare` returned.
            queries: Number Q of queries per source: 1, or the beam width.

        Returns:
            List of `weights_dtype` [B, Q, S]; empty for an attention that remembers
            nothing.
        """
        if not self.has_state:
            return []
        batch_size, source_length = batch_and_length(memory)
        shape = (batch_size, queries, source_length)
        return [ops.zeros(shape, dtype=self.weights_dtype)]

    def _attend_in_turn(
        self, query, query_mask, memory, positions, mode, pairs, return_logits
    ):
        """One query after the other: context [B, Q, Hv], weights and logits."""
        batch_size, length = ops.shape(query)[:2]
        positions = ops.broadcast_to(positions, (batch_size, length))
        if query_mask is None:
            query_mask = ops.ones_like(positions)
        if mode.noise.attention is not None:  # one row serves the whole recurrence
            mode = mode._replace(noise=Noise(attention=mode.noise.attention[:, :1]))
        constants: tuple[Any, ...] = (memory, positions, ops.cast(query_mask, "bool"))
        constants = constants if pairs is None else (*constants, pairs)

        def step(query, states, constants, mode):
            memory, positions, mask, *pairs = constants
            before, turn = states  # [B, S] each, and which query it is, [B, 1]
            context, weights, after, *logits = self.attend(
                ops.expand_dims(query, 1),
                memory,
                ops.take_along_axis(positions, turn, axis=1),
                [ops.expand_dims(x, 1) for x in before],
                mode,
                ops.take(pairs[0], turn[0], axis=1) if pairs else None,
                return_logits,
            )
            # A masked query is as good as none: those after it do not know of it.
            is_word = ops.take_along_axis(mask, turn, axis=1)
            after = [
                ops.where(is_word, ops.squeeze(new, 1), old)
                for new, old in zip(after, before, strict=True)
            ]
            # A loop knows the sizes of all its outputs but one.
            maps = ops.concatenate([weights, *logits], -1) if logits else weights
            return (ops.squeeze(context, 1), ops.squeeze(maps, 1)), (after, turn + 1)

        first = [ops.squeeze(x, 1) for x in self.initial_state(memory)]
        turn = ops.zeros((batch_size, 1), dtype="int32")
        inputs = ops.swapaxes(query, 0, 1)
        outputs, _ = scan(step, inputs, (first, turn), constants, mode=mode)
        context, maps = [ops.swapaxes(x, 0, 1) for x in outputs]
        if not return_logits:
            return context, maps
        source_length = batch_and_length(memory)[1]
        return context, maps[..., :source_length], maps[..., source_length:]

    def draw_noise(self, shape: Any, training: Any) -> Tensor | None:
        """Dropout multipliers [B, Q or 1, S] of weights; None where none is dropped.

        With one row for all queries a whole recurrence shares it, as the recurrent
        layers of Keras share their dropout masks between steps.
        """
        rate, seed = self.dropout, self.seed_generator
        return draw_noise(shape, rate, training, seed, self.weights_dtype)

    @property
    def weights_dtype(self) -> str:
        """Dtype of the weights and of the state: float32, or the policy's float64."""
        return weights_dtype(self.compute_dtype)

    def compute_mask(self, query: Any, query_mask: Any = None) -> Any:
        """The context is masked where the query is."""
        return query_mask[0] if isinstance(query_mask, (list, tuple)) else query_mask

    def compute_output_shape(
        self, query_shape: Any, value_shape: Any = None, key_shape: Any = None
    ) -> Shape:
        """The context's shape, [B, Q, Hv]."""
        query, value, _ = unpack_shapes(query_shape, value_shape, key_shape)
        batch_size = value[0] if query[0] == 1 else query[0]
        return (batch_size, *query[1:-1], value[-1])

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Shapes and dtypes of what `call` returns for the same arguments."""
        options = arguments_of(self.call, args, kwargs)
        inputs = AttentionInputs(*[options[name] for name in AttentionInputs._fields])
        inputs = read_inputs(inputs, options["mask"], self.source_axes, self._sizes)
        shape = self.compute_output_shape(inputs.query.shape, inputs.value.shape)
        context = keras.KerasTensor(shape, self.compute_dtype)
        if inputs.query_mask is not None:
            set_keras_mask(context, inputs.query_mask)
        count = options["return_attention_scores"] + options["return_logits"]
        shape = (*shape[:-1], *inputs.value.shape[1:-1])
        maps = [keras.KerasTensor(shape, self.weights_dtype) for _ in range(count)]
        return (context, *maps) if maps else context

    @property
    def _parts(self):
        """The attention's scores: the keys of each are prepared."""
        return [self.score]

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "score_mode": serialize_shared(self.score_mode),
            "units": self.units,
            "max_source_length": self.max_source_length,
            "dropout": self.dropout,
            "normalizer": keras.saving.serialize_keras_object(self.normalizer),
            "hard": self.hard,
            "coverage": self.coverage,
            "seed": self.seed,
            **weight_config(self, "kernel"),
        }
