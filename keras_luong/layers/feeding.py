"""What the next input of a decoder is, where it is not the teacher's.

By default it is the target itself. The others are kinds of `Feeding`: with some
probability the decoder's own output (scheduled sampling), always its own (free
running), or what somebody's function makes of both.

Shapes: B batch, T steps, E inputs, A outputs of the cell, V outputs of the decoder
(scores of words, or values), S source positions.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_flag, check_size
from keras_luong.compat import autocasting, output_spec, serialize_shared
from keras_luong.layers.base import BaseLayer
from keras_luong.layers.cells import dropped
from keras_luong.layers.decoder_cell import CellStates, DecoderCell
from keras_luong.layers.projection import Project, matmul
from keras_luong.layers.recurrence import Mode, scan
from keras_luong.types import Shape, Tensor


class Feeding(BaseLayer):
    """Base of layers that choose a decoder's next input.

    At each step the decoder reads either the teacher's input or its own, which is made
    of its output of the step before. The first input of every call, of each row, is the
    teacher's. Where own inputs have fewer columns than the teacher's, the last columns
    are the teacher's at all steps: auxiliary inputs, that are known beforehand.

    A subclass says in `is_own` when, and in `own_input` what; the rest has defaults.

    Args:
        seed: Seed of the random numbers.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Example: every third input of a row is the decoder's own output.

        >>> class EveryThird(kl.Feeding):
        ...     def is_own(self, length, batch_size):
        ...         own = keras.ops.arange(length) % 3 == 2
        ...         return keras.ops.broadcast_to(own[:, None], (length, batch_size))
        ...
        ...     def own_input(self, before, inputs, time):
        ...         return before
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> decoder = kl.InputFeedingDecoder(cell, feeding=EveryThird())
        >>> tuple(decoder(np.ones((2, 6, 8)), np.ones((2, 7, 8))).shape)
        (2, 6, 8)
    """

    _nested: tuple[str, ...] = ("embedding", "function", "rate")

    #: Whether it feeds back in training only, and leaves inference to the teacher.
    only_in_training: bool = False

    #: Number of steps, if that is not the number of inputs.
    steps: int | None = None

    def __init__(self, seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def is_own(self, length: Any, batch_size: Any) -> Tensor:
        """Where the decoder reads its own input: bool [T, B]. Drawn before the loop."""
        return ops.ones((length, batch_size), dtype="bool")

    def draw(self, length: Any, batch_size: Any) -> Tensor | None:
        """Random numbers in [0, 1) for `remember`, float32 [T, B]; None for none."""
        return None

    def remember(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        """Returns what the next step must know of this step's outputs [B, V]: [B, n].

        Args:
            outputs: As the decoder returns them.
            uniforms: Of `draw`, [B]; or None.
        """
        return outputs

    def own_input(self, before: Tensor, inputs: Tensor, time: Tensor) -> Tensor:
        """The decoder's own input, [B, E] or fewer columns.

        Args:
            before: What `remember` returned at the step before.
            inputs: The teacher's [B, E].
            time: int32 [B, 1], how many steps each row has made.
        """
        raise TypeError(f"{type(self).__name__} must define the method own_input")

    def next_input(self, before: Tensor, inputs: Tensor, time: Tensor) -> Tensor:
        """`own_input` beside the auxiliary columns of the teacher's: [B, E]."""
        own = ops.cast(self.own_input(before, inputs, time), inputs.dtype)
        units = own.shape[-1]
        if units == inputs.shape[-1]:
            return own
        return ops.concatenate([own, inputs[:, units:]], axis=-1)

    def uniform(self, length: Any, batch_size: Any) -> Tensor:
        """Random numbers in [0, 1): float32 [T, B]."""
        shape = (length, batch_size)
        return keras.random.uniform(shape, dtype="float32", seed=self.seed_generator)

    def build_for(self, outputs: Any, input_units: Any) -> None:
        """Makes the weights of its parts, and checks that sizes fit.

        Args:
            outputs: A symbolic tensor like a step's outputs, (None, V).
            input_units: E.

        Raises:
            TypeError: Own inputs are no tensor [B, E], such as None.
            ValueError: They do not fit into the teacher's.
        """
        self.build_parts(outputs)
        inputs = keras.KerasTensor((None, input_units), outputs.dtype)
        time = keras.KerasTensor((None, 1), "int32")
        fed = output_spec(self._trial, outputs, inputs, time)
        if len(getattr(fed, "shape", ())) != 2:
            raise TypeError(
                f"What {type(self).__name__} feeds must be a tensor [B, E]. Received: "
                f"{fed!r}"
            )
        self.own_units = fed.shape[-1]
        if not self.own_units or self.own_units > input_units:
            raise ValueError(
                f"What {type(self).__name__} feeds must fit into the decoder's inputs. "
                f"Received: {self.own_units} columns, inputs with {input_units}"
            )
        self.built = True

    def build_parts(self, outputs: Any) -> None:
        """Makes the weights of the layers that it is made of."""

    def _trial(self, outputs, inputs, time):
        uniforms = ops.zeros_like(time[:, 0], dtype="float32")
        return self.own_input(self.remember(outputs, uniforms), inputs, time)

    def check_inputs(self, shape: Shape) -> None:
        """Raises ValueError for inputs [B, T, E] of a length that does not fit."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "seed": self.seed}


class OwnOutput(Feeding):
    """Base of feedings of the decoder's own words, embedded, or of its own outputs.

    Args:
        embedding: A layer such as `keras.layers.Embedding`, from ids [B] to [B, E], of
            words that the outputs are the logits of; or None.
        sample: Whether the word is drawn from the softmax of the logits; if not, it is
            the most probable one.
        function: Without an embedding: what makes the next input [B, n] of the outputs
            [B, V], a layer or a function; the outputs themselves by default.
        rate: With which probability, where it is `only_in_training`; else it always
            does. See `ScheduledEmbedding`.
        **kwargs: As in `Feeding`.
    """

    def __init__(
        self,
        embedding: Any = None,
        sample: bool = False,
        function: Callable[[Tensor], Tensor] | None = None,
        rate: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._schedule: Any = None
        if embedding is not None and not isinstance(embedding, keras.layers.Layer):
            raise TypeError(
                "embedding must be a layer such as keras.layers.Embedding. Received: "
                f"{embedding!r}"
            )
        if function is not None:
            check_function(function)
        if embedding is not None and function is not None:
            raise ValueError(
                "The next input is made by an embedding or by a function. Received "
                f"both: embedding={embedding!r}, function={function!r}"
            )
        if check_flag("sample", sample) and embedding is None:
            raise ValueError("sample=True needs an embedding. Received: embedding=None")
        self.embedding, self.sample, self.function = embedding, sample, function
        if self.only_in_training:
            self._set_rate(rate)

    def _set_rate(self, rate):
        """Makes a weight of the rate, or of the number of calls that a schedule counts.

        So it is saved, and restored, with the other weights.
        """
        if isinstance(rate, keras.Variable):
            if rate.trainable:
                raise ValueError(
                    "rate must be a variable with trainable=False: no gradient reaches "
                    f"it. Received: {rate!r}"
                )
            self._variable = rate
            return
        if callable(rate):
            self._schedule = rate
            name, value, dtype = "iterations", 0.0, "int32"
        elif isinstance(rate, bool) or not isinstance(rate, numbers.Real):
            raise TypeError(
                "rate must be a number in [0, 1], a keras.Variable or a schedule. "
                f"Received: {rate!r}"
            )
        elif not 0 <= float(rate) <= 1:
            raise ValueError(f"rate must be in [0, 1]. Received: {rate!r}")
        else:
            name, value, dtype = "rate", float(rate), "float32"
        self._variable = self.add_weight(
            shape=(),
            initializer=keras.initializers.Constant(value),
            dtype=dtype,
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",
            name=name,
        )

    @property
    def rate(self) -> Any:
        """The probability as it is now; a variable unless there is a schedule."""
        if self._schedule is None:
            return self._variable
        return self._schedule(self._variable)

    def is_own(self, length: Any, batch_size: Any) -> Tensor:
        """Always, or drawn with the rate for every word; counts the call."""
        if not self.only_in_training:
            return super().is_own(length, batch_size)
        rate = ops.cast(self.rate, "float32")
        if self._schedule is not None:
            self._variable.assign_add(1)
        return self.uniform(length, batch_size) < rate

    def build_parts(self, outputs: Any) -> None:
        """Makes the weights of the embedding, or of the function if it is a layer."""
        words = getattr(self.embedding, "input_dim", None)
        if isinstance(words, int) and outputs.shape[-1] != words:
            raise ValueError(
                "embedding must have a row for each output, which are the logits of "
                f"words. Received: {outputs.shape[-1]} outputs, embedding.input_dim="
                f"{words}. The layer that makes logits is the decoder's output_layer, "
                "not one behind it"
            )
        build_layer(self.embedding, (None,))
        build_layer(self.function, outputs.shape)

    def draw(self, length: Any, batch_size: Any) -> Tensor | None:
        """A random number for each word that is sampled."""
        return self.uniform(length, batch_size) if self.sample else None

    def remember(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        """The outputs; or the chosen words, int32 [B, 1], without gradients."""
        if self.embedding is None:
            return outputs
        if uniforms is None:
            # Not argmax, for which Keras has operations on bits that LiteRT lacks.
            return ops.cast(ops.top_k(outputs, 1)[1], "int32")
        return sample_ids(outputs, uniforms)[:, None]

    def own_input(self, before: Tensor, inputs: Tensor, time: Tensor) -> Tensor:
        """The word's embedding, what the function makes, or the outputs."""
        if self.embedding is not None:
            return self.embedding(before[:, 0])
        return before if self.function is None else self.function(before)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; of a variable rate, the value that it has."""
        config = super().get_config()
        if self._schedule is not None:
            config["rate"] = keras.saving.serialize_keras_object(self._schedule)
        elif self.only_in_training:
            config["rate"] = float(ops.convert_to_numpy(self._variable))
        return config


@keras.saving.register_keras_serializable(package="keras_luong")
class CustomFeeding(Feeding):
    """A function of yours makes the next input.

    In training as at inference. As `tfa.seq2seq.CustomSampler`.
    `InputFeedingDecoder(cell, feeding=function)` is short for it.

    Args:
        function: `(outputs, teacher_input, time) -> next input [B, E]`, made of Keras's
            operations: the outputs [B, V] of the step before, the teacher's input
            [B, E] and, int32 [B, 1], how many steps each row has made. It is called at
            every step; what it returns for the first one is not used. Register it with
            `keras.saving.register_keras_serializable` to save it, or give a layer.
        steps: Number of steps T, if it is not that of the inputs; where the inputs are
            fewer, the teacher's later ones are zeros.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError, ValueError: An argument that is none of the above.

    Example:
        >>> def halfway(outputs, teacher_input, time):
        ...     return (outputs + teacher_input) / 2
        >>> cell = kl.InputFeedingDecoderCell(8, kl.LuongAttention())
        >>> decoder = kl.InputFeedingDecoder(cell, feeding=kl.CustomFeeding(halfway))
        >>> tuple(decoder(np.ones((2, 5, 8)), np.ones((2, 7, 8))).shape)
        (2, 5, 8)
    """

    def __init__(
        self,
        function: Callable[[Tensor, Tensor, Tensor], Tensor],
        steps: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.function = check_function(function)
        self.steps = check_size("steps", steps, optional=True)

    def own_input(self, before: Tensor, inputs: Tensor, time: Tensor) -> Tensor:
        """Calls the function."""
        return self.function(before, inputs, time)

    def check_inputs(self, shape: Shape) -> None:
        """Raises ValueError if there are more inputs than steps."""
        if self.steps and shape[1] is not None and shape[1] > self.steps:
            raise ValueError(
                f"inputs must have at most {self.steps} steps. Received: "
                f"inputs.shape={tuple(shape)}"
            )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        function = serialize_shared(self.function)
        return {**super().get_config(), "function": function, "steps": self.steps}


def sample_ids(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Draws from the softmax of logits, by its cumulative distribution.

    Args:
        logits: [B, V].
        uniforms: Numbers in [0, 1), float32 [B].

    Returns:
        int32 [B]; never one whose probability is 0.
    """
    wide = keras.backend.result_type(logits.dtype, "float32")
    probabilities = ops.softmax(ops.cast(logits, wide))
    cumulated = ops.cumsum(probabilities, axis=-1)
    threshold = ops.cast(uniforms[:, None], wide) * cumulated[:, -1:]
    # Rounding may lift the threshold to the total, and sums in parallel, as JAX's, may
    # fall a little from one word to the next: then the last word that can be is drawn.
    possible = probabilities > 0
    reached = ops.cast(possible & (cumulated > threshold), "int32")
    last = ops.shape(logits)[-1] - 1 - ops.argmax(ops.flip(possible, -1), -1)
    drawn = ops.where(ops.any(reached > 0, axis=-1), ops.argmax(reached, -1), last)
    return ops.cast(drawn, "int32")


def as_feeding(given: Any) -> Feeding | None:
    """Makes a `Feeding` of a decoder's argument `feeding`, or raises TypeError."""
    if given is None or isinstance(given, Feeding):
        return given
    if callable(given) and not isinstance(given, type):
        return CustomFeeding(given)
    raise TypeError(
        "feeding must be None, a Feeding such as FreeRunning(10), or a function "
        f"(outputs, teacher_input, time) -> next input. Received: {given!r}"
    )


def check_function(function: Any) -> Any:
    """Returns the function, or raises TypeError if it cannot be called."""
    if not callable(function):
        raise TypeError(f"function must be callable. Received: {function!r}")
    return function


def build_layer(layer: Any, shape: Shape) -> None:
    """Makes a layer's weights, which cannot be made in a loop."""
    if isinstance(layer, keras.layers.Layer) and not layer.built:
        layer.build(shape)
        layer.built = True


def scan_feeding(
    cell: DecoderCell,
    feeding: Feeding,
    finish: Callable[[Tensor, Project], Tensor],
    inputs: Tensor,
    states: CellStates,
    memory: Any,
    mask: Tensor | None,
    mode: Mode,
    noise: Tensor | None,
    keep_weights: bool,
) -> tuple[tuple[Tensor, ...], CellStates]:
    """Runs a cell over inputs that are its own outputs, or the teacher's.

    All that is random is drawn before the loop.

    Args:
        cell: The cell.
        feeding: Which inputs.
        finish: `(the cell's output, project) -> the decoder's`: [B, A] -> [B, V].
        inputs: The teacher's, time-major [T, B, E].
        states: Those before.
        memory: What the cell's `prepare` returned.
        mask: bool [T, B], or None.
        mode: How to compute the steps.
        noise: Dropout multipliers of the inputs [B, E], or None.
        keep_weights: Whether to return the alignment weights.

    Returns:
        The outputs [T, B, V] and maybe the weights [T, B, S]; the final states.
    """
    length, batch_size = ops.shape(inputs)[:2]
    units, start, dtype = inputs.shape[-1], states.position, inputs.dtype
    # 1. What a step reads, in one tensor [T, B, E + 1 or 2]: its input, whether it is
    #    its own, and a random number if some are drawn.
    is_own = feeding.is_own(length, batch_size)
    drawn = feeding.draw(length, batch_size)
    wide = keras.backend.result_type(dtype, "float32")
    columns = [x[..., None] for x in (is_own, drawn) if x is not None]
    packed = ops.concatenate([ops.cast(x, wide) for x in (inputs, *columns)], axis=-1)

    def remember(outputs, packed):
        number = None if drawn is None else packed[:, units + 1]
        return feeding.remember(outputs, number)

    # 2. What the first step knows of the one before: an output of zeros.
    nothing = ops.zeros((batch_size, cell.output_units), dtype=dtype)
    before = remember(ops.zeros_like(finish(nothing, matmul)), packed[0])

    def step(packed, carried, memory, mode):
        states, before = carried
        teacher = ops.cast(packed[:, :units], dtype)  # [B, E]
        fed = feeding.next_input(before, teacher, states.position)
        own = (packed[:, units : units + 1] > 0.5) & (states.position > start)
        x = dropped(ops.where(own, fed, teacher), noise)
        z = cell.project_inputs(x, mode)
        (y, weights), states = cell.step(z, states, memory, mode)
        y = finish(y, mode.project)  # [B, V]
        outputs = (y, weights) if keep_weights else (y,)
        return outputs, (states, remember(y, packed))

    # 3. The loop.
    mode = mode._replace(own_inputs=True)
    outputs, (states, _) = scan(step, packed, (states, before), memory, mask, mode)
    return outputs, states


def apply_in_loop(layer: Any, x: Tensor, project: Project) -> Tensor:
    """A layer's outputs [B, V], within a loop.

    The weights of a plain `keras.layers.Dense` have their gradients taken out of it.
    """
    if type(layer) is not keras.layers.Dense or layer.quantization_mode is not None:
        return layer(x)
    if layer.lora_enabled:
        return layer(x)
    x = ops.cast(x, layer.compute_dtype)
    with autocasting(layer):
        y = project(layer.kernel, x, bias=layer.bias)
    return y if layer.activation is None else layer.activation(y)


@keras.saving.register_keras_serializable(package="keras_luong")
class ScheduledEmbedding(OwnOutput):
    """Scheduled sampling of words (Bengio et al. 2015, arXiv:1506.03099).

    In training each input is, with the probability `rate`, the embedding of a word
    that the decoder itself says at the step before, which is drawn from the softmax of
    its logits. As `tfa.seq2seq.ScheduledEmbeddingTrainingSampler`. At inference the
    decoder is teacher forced.

    Args:
        rate: The probability. As of a Keras optimizer's `learning_rate`: a number in
            [0, 1], which `feeding.rate.assign(...)` changes, also while it trains; a
            `keras.Variable` with `trainable=False`; or a schedule from the number of
            training calls to it, such as a
            `keras.optimizers.schedules.LearningRateSchedule`.
        embedding: The layer that embeds the teacher's words too, from ids [B] to
            [B, E]. It is trained through its use here as through its other uses.
            `keras.models.clone_model` and `from_config` copy each layer alone, and so
            this one twice: to copy a model, save and load it.
        sample: Whether words are drawn; if not, they are the most probable ones.
        seed: Seed of the random numbers.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError, ValueError: An argument that is none of the above.

    Example:
        >>> embedding = keras.layers.Embedding(100, 16)
        >>> slowly = keras.optimizers.schedules.PolynomialDecay(0.0, 10_000, 0.5)
        >>> decoder = kl.InputFeedingDecoder(
        ...     kl.InputFeedingDecoderCell(32, kl.LuongAttention()),
        ...     feeding=kl.ScheduledEmbedding(slowly, embedding),
        ...     output_layer=keras.layers.Dense(100),
        ... )
        >>> words, memory = np.ones((2, 5), "int32"), np.ones((2, 7, 32), "float32")
        >>> tuple(decoder(embedding(words), memory, training=True).shape)
        (2, 5, 100)
    """

    only_in_training = True

    def __init__(
        self,
        rate: Any,
        embedding: keras.layers.Layer,
        sample: bool = True,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if embedding is None:
            raise TypeError("embedding must be a layer. Received: None")
        super().__init__(embedding, sample, rate=rate, seed=seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        embedding = serialize_shared(self.embedding)
        return {**super().get_config(), "embedding": embedding, "sample": self.sample}


@keras.saving.register_keras_serializable(package="keras_luong")
class ScheduledOutput(OwnOutput):
    """Scheduled sampling of values: with some probability, the output is the input.

    As `tfa.seq2seq.ScheduledOutputTrainingSampler`. Gradients flow through what is fed
    back. At inference the decoder is teacher forced.

    Args:
        rate: As in `ScheduledEmbedding`.
        function: What makes the next input [B, n] of the outputs [B, V]: a layer, or a
            registered function (tfa's `next_inputs_fn`); the outputs themselves by
            default. Where n is below the size of the inputs, the last columns of these
            are auxiliary inputs (tfa's `auxiliary_inputs`).
        seed: Seed of the random numbers.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError, ValueError: An argument that is none of the above.

    Example:
        >>> decoder = kl.InputFeedingDecoder(
        ...     kl.InputFeedingDecoderCell(32, kl.LuongAttention()),
        ...     feeding=kl.ScheduledOutput(0.25),
        ...     output_layer=keras.layers.Dense(1),
        ... )
        >>> values, memory = np.ones((2, 5, 1)), np.ones((2, 7, 32))
        >>> tuple(decoder(values, memory, training=True).shape)
        (2, 5, 1)
    """

    only_in_training = True

    def __init__(
        self,
        rate: Any,
        function: Callable[[Tensor], Tensor] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(function=function, rate=rate, seed=seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "function": serialize_shared(self.function)}


@keras.saving.register_keras_serializable(package="keras_luong")
class FreeRunning(OwnOutput):
    """The decoder reads its own outputs, for a given number of steps.

    In training as at inference. As `tfa.seq2seq.InferenceSampler`, or with an
    embedding as `GreedyEmbeddingSampler` and `SampleEmbeddingSampler`; but it does not
    stop at an end token, which a search such as `keras_luong.GreedySearch` does.

    The decoder's inputs are [B, `given`, E], most often one start symbol or value. To
    go on later, give the final states, and the next input: `decoder(outputs[:, -1:],
    memory, initial_state=states)`, or the embedding of the last word.

    Args:
        steps: Number of steps T.
        embedding: The layer that embeds words, from ids [B] to [B, E]; None to feed
            back the outputs themselves, with gradients.
        sample: Whether the word is drawn from the softmax of the logits; if not, it is
            the most probable one.
        function: Without an embedding: what makes the next input of the outputs, as in
            `ScheduledOutput`.
        given: How many of the first inputs are read as they are. With a mask, rows may
            have fewer, and go on from where theirs end. Where there are auxiliary
            inputs, as in `ScheduledOutput`, the decoder's inputs are [B, T, E], and
            only these are read of the later ones. Where the length of the inputs is
            not known when a graph is made it cannot be checked: of fewer than `given`,
            those that lack are read as zeros.
        seed: Seed of the random numbers.
        **kwargs: `name`, `dtype` and other arguments of `keras.layers.Layer`.

    Raises:
        TypeError, ValueError: An argument that is none of the above.

    Example:
        >>> forecaster = kl.InputFeedingDecoder(
        ...     kl.InputFeedingDecoderCell(32, kl.LuongAttention()),
        ...     feeding=kl.FreeRunning(12),
        ...     output_layer=keras.layers.Dense(1),
        ... )
        >>> last_value, memory = np.ones((2, 1, 1)), np.ones((2, 7, 32))
        >>> tuple(forecaster(last_value, memory).shape)
        (2, 12, 1)
    """

    steps: int

    def __init__(
        self,
        steps: int,
        embedding: keras.layers.Layer | None = None,
        sample: bool = False,
        function: Callable[[Tensor], Tensor] | None = None,
        given: int = 1,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(embedding, sample, function, seed=seed, **kwargs)
        self.steps = check_size("steps", steps)
        self.given = check_size("given", given, largest=steps)

    def is_own(self, length: Any, batch_size: Any) -> Tensor:
        """True after the first `given` steps."""
        own = ops.arange(self.steps) >= self.given
        return ops.broadcast_to(own[:, None], (self.steps, batch_size))

    def check_inputs(self, shape: Shape) -> None:
        """Raises ValueError for inputs [B, T, E] of a length that does not fit."""
        auxiliary = self.own_units < shape[-1]
        lengths = {self.steps} if auxiliary else {self.given, self.steps}
        if shape[1] is not None and shape[1] not in lengths:
            raise ValueError(
                f"The length of inputs must be {' or '.join(map(str, sorted(lengths)))}"
                f" with FreeRunning(steps={self.steps}, given={self.given})"
                f"{' and auxiliary inputs' * auxiliary}. "
                f"Received: inputs.shape={tuple(shape)}"
            )

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "steps": self.steps,
            "embedding": serialize_shared(self.embedding),
            "sample": self.sample,
            "function": serialize_shared(self.function),
            "given": self.given,
        }
