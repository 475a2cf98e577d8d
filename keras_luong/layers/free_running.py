"""Free running: a decoder reads what it said itself, for a given number of steps.

Shapes: B batch, T steps, E inputs, V outputs (scores of words, or values).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from keras_luong.checks import check_size
from keras_luong.compat import serialize_shared
from keras_luong.layers.feeding import EmbeddingOrOutput
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class FreeRunning(EmbeddingOrOutput):
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
        """After those that are given."""
        own = ops.arange(self.steps) >= self.given
        return ops.broadcast_to(own[:, None], (self.steps, batch_size))

    def check_inputs(self, shape: Shape) -> None:
        """Raises ValueError unless inputs of the shape [B, T, E] will do."""
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
