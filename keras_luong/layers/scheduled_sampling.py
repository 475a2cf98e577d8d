"""Scheduled sampling: with some probability, a decoder's input is its own output.

Shapes: B batch, T steps, E inputs, V outputs (scores of words, or values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from keras_luong.compat import serialize_shared
from keras_luong.layers.feeding import EmbeddingOrOutput
from keras_luong.layers.scheduled_rate import ScheduledRate
from keras_luong.types import Tensor


class Scheduled(EmbeddingOrOutput):
    """Base of what feeds back with some probability, and in training only.

    Args:
        rate: See `ScheduledEmbedding`.
        **kwargs: As in `EmbeddingOrOutput`.
    """

    only_in_training = True

    def __init__(self, rate: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.schedule = ScheduledRate(rate, name="schedule")

    @property
    def rate(self) -> Any:
        """The probability as it is now; a variable unless there is a schedule."""
        return self.schedule.rate

    def is_own(self, length: Any, batch_size: Any) -> Tensor:
        """Drawn with the rate for every word; counts the call."""
        return self.uniform(length, batch_size) < self.schedule.next_rate()

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; of a variable, the value that it has."""
        return {**super().get_config(), "rate": self.schedule.serialized()}


@keras.saving.register_keras_serializable(package="keras_luong")
class ScheduledEmbedding(Scheduled):
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
        super().__init__(rate, embedding=embedding, sample=sample, seed=seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        embedding = serialize_shared(self.embedding)
        return {**super().get_config(), "embedding": embedding, "sample": self.sample}


@keras.saving.register_keras_serializable(package="keras_luong")
class ScheduledOutput(Scheduled):
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

    def __init__(
        self,
        rate: Any,
        function: Callable[[Tensor], Tensor] | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(rate, function=function, seed=seed, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {**super().get_config(), "function": serialize_shared(self.function)}
