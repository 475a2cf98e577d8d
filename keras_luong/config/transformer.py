"""What a `Transformer` is made of, as data."""

from __future__ import annotations

import dataclasses
from typing import Any

from keras_luong.config.fields import Rate
from keras_luong.config.model import ModelConfig, Ties


@dataclasses.dataclass(frozen=True)
class TransformerConfig(ModelConfig):
    """Hyperparameters of a `Transformer`; the defaults make a small one.

    Args:
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
        units: d_model, the size of embeddings and of every layer's output.
        num_layers: Blocks of the encoder and of the decoder, the paper's N.
        num_heads: Attention heads, each of `units / num_heads`.
        feedforward_units: d_ff, the inner size of feed-forward layers; 4 times `units`
            by default.
        dropout: Rate on embeddings and on the output of every sub-layer (section 5.4).
        attention_dropout: Rate on attention weights.
        tie_embeddings: None, "target" (target embedding = softmax weights, Press & Wolf
            2017) or "all" (and the source's, as in the paper: needs one shared
            vocabulary).
        cache_length: Target words that `step` remembers. Where a hypothesis grows
            longer, each layer attends to its last `cache_length` words only. Memory and
            time of a search grow with it; no weight depends on it.

    Raises:
        ValueError, TypeError: A value that cannot be, or two that don't fit together.

    Example:
        >>> from keras_luong.models import Transformer, TransformerConfig
        >>> config = TransformerConfig(90, 90, units=16, num_heads=2, num_layers=1)
        >>> model = Transformer(config)
    """

    units: int = 256
    num_layers: int = 3
    num_heads: int = 4
    feedforward_units: int | None = None
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    tie_embeddings: Ties = None
    cache_length: int = 256

    def implied(self) -> dict[str, Any]:
        """The usual inner size."""
        return {"feedforward_units": 4 * self.units}

    def check_together(self) -> None:
        """See `ModelConfig`."""
        if self.units % self.num_heads:
            raise ValueError(
                "units must be a multiple of num_heads. Received: "
                f"units={self.units}, num_heads={self.num_heads}"
            )
