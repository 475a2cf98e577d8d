"""Feeding back: what the next input of a decoder's loop is.

By default it is the teacher's: the target itself. The others are kinds of `Feeding`:
with some probability the decoder's own output (`scheduled_sampling`), always its own
(`free_running`), or, here, what somebody's function makes of both.

Shapes: B batch, T steps, E inputs, V outputs (scores of words, or values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import keras
from keras import ops

from keras_luong.checks import check_flag, check_size
from keras_luong.compat import output_spec, serialize_shared
from keras_luong.layers.nested import Nested
from keras_luong.types import Shape, Tensor


class Feeding(Nested, keras.layers.Layer):
    """Base of what says where a decoder's next input comes from.

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
    only_in_training: ClassVar[bool] = False

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
        """What the next step has to know of this step's outputs [B, V]: [B, n].

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
        raise TypeError(f"{type(self).__name__} must say what is fed: def own_input")

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
        """Raises ValueError unless inputs of the shape [B, T, E] will do."""

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "seed": self.seed}


class EmbeddingOrOutput(Feeding):
    """Base of what feeds back the embedding of an own word, or the output itself.

    Args:
        embedding: A layer such as `keras.layers.Embedding`, from ids [B] to [B, E], of
            words that the outputs are the logits of; or None.
        sample: Whether the word is drawn from the softmax of the logits; if not, it is
            the most probable one.
        function: Without an embedding: what makes the next input [B, n] of the outputs
            [B, V], a layer or a function; the outputs themselves by default.
        **kwargs: As in `Feeding`.
    """

    def __init__(
        self,
        embedding: Any = None,
        sample: bool = False,
        function: Callable[[Tensor], Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
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
            raise ValueError("A word that is sampled needs an embedding. Received none")
        self.embedding, self.sample, self.function = embedding, sample, function

    def build_parts(self, outputs: Any) -> None:
        """Makes the weights of the embedding, or of the function if it is a layer."""
        words = getattr(self.embedding, "input_dim", None)
        if isinstance(words, int) and outputs.shape[-1] > words:
            raise ValueError(
                "embedding must have a row for each output, which are the logits of "
                f"words. Received: {outputs.shape[-1]} outputs, embedding.input_dim="
                f"{words}. A decoder's output_layer makes logits"
            )
        build_layer(self.embedding, (None,))
        build_layer(self.function, outputs.shape)

    def draw(self, length: Any, batch_size: Any) -> Tensor | None:
        """A random number for each word that is sampled."""
        return self.uniform(length, batch_size) if self.sample else None

    def remember(self, outputs: Tensor, uniforms: Tensor | None) -> Tensor:
        """The outputs; or an own word int32 [B, 1], through which no gradient flows."""
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


@keras.saving.register_keras_serializable(package="keras_luong")
class CustomFeeding(Feeding):
    """Somebody's own function says what the next input is.

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
        """What the function returns."""
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
    """A decoder's argument `feeding`; raises TypeError if it is none."""
    if given is None or isinstance(given, Feeding):
        return given
    if callable(given) and not isinstance(given, type):
        return CustomFeeding(given)
    raise TypeError(
        "feeding must be None, a Feeding such as FreeRunning(10), or a function "
        f"(outputs, teacher_input, time) -> next input. Received: {given!r}"
    )


def check_function(function: Any) -> Any:
    """Returns it if it can be called; raises TypeError if not."""
    if not callable(function):
        raise TypeError(f"function must be callable. Received: {function!r}")
    return function


def build_layer(layer: Any, shape: Shape) -> None:
    """Makes a layer's weights, which cannot be made in a loop."""
    if isinstance(layer, keras.layers.Layer) and not layer.built:
        layer.build(shape)
        layer.built = True
