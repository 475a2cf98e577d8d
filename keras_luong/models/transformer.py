"""The Transformer of Vaswani et al. 2017 (arXiv:1706.03762), with pre-norm residuals.

Shapes: B batch, S source length, T target length, K beam, V target vocabulary, N heads,
L `cache_length`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_ids
from keras_luong.config.transformer import TransformerConfig
from keras_luong.layers.cached_attention import CachedMultiHeadAttention
from keras_luong.layers.positions import SinusoidalPositions
from keras_luong.models.translation_model import TranslationModel
from keras_luong.special_ids import PAD_ID
from keras_luong.types import Tensor


class Block(NamedTuple):
    """The layers of a block; those of the encoder have no cross-attention."""

    self_norm: Any
    self_attention: Any
    cross_norm: Any
    cross_attention: Any
    feedforward_norm: Any
    expand: Any
    contract: Any


class TransformerMemory(NamedTuple):
    """A source prepared for the decoder's blocks.

    Attributes:
        mask: True where there is a word: bool [B, S].
        keys: For each block, [B, N, d/N, S].
        values: Likewise, [B, N, S, d/N].
    """

    mask: Tensor
    keys: list[Tensor]
    values: list[Tensor]


@keras.saving.register_keras_serializable(package="keras_luong")
class Transformer(TranslationModel):
    """The translation model of Vaswani et al. 2017, normalised before each sub-layer.

    A sub-layer computes `x + Dropout(SubLayer(LayerNorm(x)))`, and both stacks end with
    a normalisation: unlike the paper's `LayerNorm(x + SubLayer(x))`, this needs no
    careful warm-up (Xiong et al. 2020, arXiv:2002.04745). Attention has no biases, as
    in the paper. A source without any word gives zeros for contexts and alignments.

    Args:
        config: A `TransformerConfig`.
        dtype: As in `Seq2Seq`.
        **kwargs: As in `Seq2Seq`.

    Call arguments, returns: As `Seq2Seq`; it is called, steps and is copied like that.

    Example:
        >>> from keras_luong.models import Transformer, TransformerConfig
        >>> config = TransformerConfig(90, 80, units=16, num_heads=2, num_layers=1)
        >>> model = Transformer(config)
        >>> source, target = np.array([[4, 5, 3]]), np.array([[2, 7]])
        >>> tuple(model({"source": source, "target": target}).shape)
        (1, 2, 80)
    """

    config_class = TransformerConfig

    @classmethod
    def teacher_forced(
        cls, layers: Any, config: Any, source: Tensor, target: Tensor
    ) -> Tensor:
        """The decoder's normalised outputs [B, T, d] of source and target ids."""
        return _decode(layers, target, *_encode(layers, source))

    def encode(self, source: Tensor) -> tuple[TransformerMemory, list[Tensor]]:
        """Reads source ids: everything that no target word changes.

        Args:
            source: int [B, S], padded with 0.

        Returns:
            The `TransformerMemory` that `step` takes as it is, and the first state, a
            list of tensors with a beam axis of one: the next word's position, int32
            [B, 1, 1], then every block's keys [B, 1, N, d/N, L] and values
            [B, 1, N, L, d/N] of the target words so far (word p at place p modulo L).
        """
        check_ids("source", source)
        encoded, mask = _encode(self, source)
        pairs = [x.cross_attention.keys_and_values(encoded) for x in self.decoder]
        keys, values = map(list, zip(*pairs, strict=True))
        batch_size, config = ops.shape(source)[0], self.config
        heads, units = config.num_heads, config.units // config.num_heads
        position = ops.zeros((batch_size, 1, 1), dtype="int32")
        cache = [
            ops.zeros((batch_size, 1, heads, *each), dtype=self.compute_dtype)
            for each in ((units, config.cache_length), (config.cache_length, units))
        ]
        state = [position] + cache * config.num_layers
        return TransformerMemory(ops.squeeze(mask, 1), keys, values), state

    def step_features(
        self, tokens: Tensor, state: list[Tensor], memory: TransformerMemory
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """`step` up to the decoder's normalised outputs [B, K, d].

        The alignment weights are the last block's cross-attention, averaged over its
        heads.
        """
        position, *caches = state
        new_state = [position + 1]
        mask = ops.expand_dims(memory.mask, 1)
        x = self.positions(self.target_embedding(tokens), position[..., 0])
        for i, block in enumerate(self.decoder):
            attended, *cache = _attend_to_own_words(
                block.self_attention, block.self_norm(x), position, *caches[:2]
            )
            x = x + attended
            attended, weights = block.cross_attention.attend(
                block.cross_norm(x), memory.keys[i], memory.values[i], mask
            )
            x = x + attended
            x = x + _feed_forward(block, x)
            new_state += cache
            caches = caches[2:]
        weights = ops.mean(ops.cast(weights, "float32"), axis=1)
        return self.decoder_norm(x), new_state, weights

    @classmethod
    def word_initializer(cls, config: Any) -> keras.initializers.Initializer:
        """Of the embeddings."""
        # Variance 1 after the scaling by √d_model, like that of the logits where tied.
        return keras.initializers.RandomNormal(stddev=config.units**-0.5)

    @classmethod
    def output_initializer(cls, config: Any) -> str:
        """Of the output layer's matrix: Keras's own."""
        return "glorot_uniform"

    @classmethod
    def make_stacks(cls, config: Any, dtype: Any) -> dict[str, Any]:
        """The layers between the embeddings and the output layer, by name."""
        depth = range(config.num_layers)
        return {
            "positions": SinusoidalPositions(dtype=dtype, name="positions"),
            "dropout": keras.layers.Dropout(
                config.dropout, dtype=dtype, name="dropout"
            ),
            "encoder": [_block(config, dtype, f"encoder_{i}", False) for i in depth],
            "encoder_norm": _norm(dtype, "encoder_norm"),
            "decoder": [_block(config, dtype, f"decoder_{i}", True) for i in depth],
            "decoder_norm": _norm(dtype, "decoder_norm"),
        }


def _encode(layers, source):
    """Source ids [B, S] -> what the encoder makes of them [B, S, d], mask [B, 1, S]."""
    mask = ops.expand_dims(ops.not_equal(source, PAD_ID), 1)
    x = layers.dropout(layers.positions(layers.source_embedding(source)))
    for block in layers.encoder:
        h = block.self_norm(x)
        x = x + layers.dropout(_attend(block.self_attention, h, h, mask))
        x = x + layers.dropout(_feed_forward(block, x))
    return layers.encoder_norm(x), mask


def _decode(layers, target, memory, mask):
    """Target ids [B, T], encoded source, its mask -> normalised outputs [B, T, d]."""
    # No target mask: padding at the end cannot reach what comes before it.
    x = layers.dropout(layers.positions(layers.target_embedding(target)))
    for block in layers.decoder:
        h = block.self_norm(x)
        x = x + layers.dropout(_attend(block.self_attention, h, h))
        h = block.cross_norm(x)
        x = x + layers.dropout(_attend(block.cross_attention, h, memory, mask))
        x = x + layers.dropout(_feed_forward(block, x))
    return layers.decoder_norm(x)


def _attend(attention, query, value, mask=None):
    """Attention as Keras calls it: under a mask, or else causal."""
    # Asked for its weights, Keras takes the same way as `attend`. The fused one that it
    # takes otherwise lets a source without any word attend to its padding.
    output, _ = attention(
        query,
        value,
        attention_mask=mask,
        use_causal_mask=mask is None,
        return_attention_scores=True,
    )
    return output


def _attend_to_own_words(attention, x, position, keys, values):
    """Self-attention of each hypothesis's new word to its last L words.

    Args:
        attention: A `CachedMultiHeadAttention`.
        x: The new words [B, K, d].
        position: Their position, int32 [B, K, 1].
        keys: Of the words before, [B, K, N, d/N, L].
        values: Likewise, [B, K, N, L, d/N].

    Returns:
        The output [B, K, d], and keys and values with the new words'.
    """
    beam_size, length = ops.shape(keys)[1], keys.shape[-1]
    # Each hypothesis has keys of its own: to the layer it is a sentence with one query.
    x, position, keys, values = (
        ops.reshape(y, (-1, *y.shape[2:]))
        for y in (x[:, :, None], position, keys, values)
    )
    places = ops.arange(length, dtype="int32")
    here = (places == position % length)[:, None]
    new_keys, new_values = attention.keys_and_values(x)
    keys = ops.where(here[:, None], new_keys, keys)
    values = ops.where(here[..., None], new_values, values)
    written = places <= position  # all of them, once the cache is full
    output, _ = attention.attend(x, keys, values, written[:, None])
    output = ops.squeeze(output, 1)
    return [
        ops.reshape(y, (-1, beam_size, *y.shape[1:])) for y in (output, keys, values)
    ]


def _feed_forward(block, x):
    """Eq. 2: `max(0, x W_1 + b_1) W_2 + b_2`, of the normalised x."""
    return block.contract(block.expand(block.feedforward_norm(x)))


def _block(config, dtype, name, cross):
    return Block(
        self_norm=_norm(dtype, f"{name}_self_norm"),
        self_attention=_attention(config, dtype, f"{name}_self_attention"),
        cross_norm=_norm(dtype, f"{name}_cross_norm") if cross else None,
        cross_attention=(
            _attention(config, dtype, f"{name}_cross_attention") if cross else None
        ),
        feedforward_norm=_norm(dtype, f"{name}_feedforward_norm"),
        expand=keras.layers.Dense(
            config.feedforward_units, "relu", dtype=dtype, name=f"{name}_expand"
        ),
        contract=keras.layers.Dense(config.units, dtype=dtype, name=f"{name}_contract"),
    )


def _norm(dtype, name):
    return keras.layers.LayerNormalization(epsilon=1e-6, dtype=dtype, name=name)


def _attention(config, dtype, name):
    # Glorot's limit for d x d matrices. Keras's own takes the kernels [d, N, d/N] for
    # convolutions and makes them several times too small.
    limit = (3 / config.units) ** 0.5
    return CachedMultiHeadAttention(
        config.num_heads,
        config.units // config.num_heads,
        dropout=config.attention_dropout,
        use_bias=False,
        kernel_initializer=keras.initializers.RandomUniform(-limit, limit),
        dtype=dtype,
        name=name,
    )
