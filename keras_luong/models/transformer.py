"""The Transformer of Vaswani et al. 2017 (arXiv:1706.03762), with pre-norm residuals.

Shapes: B batch, S source length, T target length, K beam, V target vocabulary, N heads,
L `cache_length`.

Sinusoidal positions (Vaswani et al. 2017, section 3.5).

Multi-head attention to keys and values that were made before.

Shapes: B batch, Q queries, S positions, N heads, d units.

Keys and values are laid out as the products want them, so that a search, which attends
to the same ones at every step, need not transpose them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_ids
from keras_luong.config.models import TransformerConfig
from keras_luong.layers.normalizers import masked_softmax
from keras_luong.models.translation_model import TranslationModel
from keras_luong.special_ids import PAD_ID
from keras_luong.types import Shape, Tensor


@keras.saving.register_keras_serializable(package="keras_luong")
class SinusoidalPositions(keras.layers.Layer):
    """Scales embeddings by √d_model and adds where they stand (sections 3.4 and 3.5).

    `PE(p, 2i) = sin(p / 10000^(2i/d))` and `PE(p, 2i+1) = cos(p / 10000^(2i/d))`.

    Call arguments:
        embedded: Embeddings [..., d].
        positions: int [...]; by default 0, 1, 2, ... along the last axis but one.

    Returns:
        Like `embedded`.
    """

    def call(self, embedded: Tensor, positions: Tensor | None = None) -> Tensor:
        """See the class."""
        units = embedded.shape[-1]
        if positions is None:
            positions = ops.arange(ops.shape(embedded)[-2])
        dtype = keras.backend.result_type(self.compute_dtype, "float32")
        dimension = ops.arange(units, dtype=dtype)
        parity = dimension % 2
        wavelength = 10000.0 ** ((dimension - parity) / units)
        angle = ops.expand_dims(ops.cast(positions, dtype), -1) / wavelength
        encoding = ops.where(parity == 0, ops.sin(angle), ops.cos(angle))
        return embedded * units**0.5 + ops.cast(encoding, embedded.dtype)

    def compute_output_shape(
        self, embedded_shape: Shape, positions_shape: Shape | None = None
    ) -> Shape:
        """The shape of the embeddings."""
        return embedded_shape


@keras.saving.register_keras_serializable(package="keras_luong")
class CachedMultiHeadAttention(keras.layers.MultiHeadAttention):
    """Keras's own layer, whose keys and values can be made before its queries.

    `attend(query, *keys_and_values(value), mask)` is what `call` computes outside of
    training, by the same sub-layers, whatever Keras has made of their kernels (LoRA or
    int8, say). It rests on four public properties, `query_dense` and so on, and on a
    method that Keras leaves to subclasses, `_masked_softmax`, whose name and arguments
    are the same from Keras 3.12 to 3.15. A query whose mask has no True gets weights of
    zero, and the softmax is computed in float32.

    Example:
        >>> from keras_luong.models.transformer import CachedMultiHeadAttention
        >>> attention = CachedMultiHeadAttention(num_heads=2, key_dim=4)
        >>> query, value = keras.ops.ones((2, 1, 8)), keras.ops.ones((2, 5, 8))
        >>> output = attention(query, value)  # builds it
        >>> keys, values = attention.keys_and_values(value)
        >>> mask = keras.ops.ones((2, 1, 5), "bool")
        >>> output, weights = attention.attend(query, keys, values, mask)
        >>> tuple(output.shape), tuple(weights.shape)
        ((2, 1, 8), (2, 2, 1, 5))
    """

    def keys_and_values(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """Projects [B, S, d] to keys [B, N, d/N, S] and values [B, N, S, d/N]."""
        keys = ops.transpose(self.key_dense(value), (0, 2, 3, 1))
        return keys, ops.transpose(self.value_dense(value), (0, 2, 1, 3))

    def attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attends to prepared keys and values, without dropout.

        Args:
            query: [B, Q, d].
            keys: [B, N, d/N, S].
            values: [B, N, S, d/N].
            mask: Which positions there are: bool [B, Q or 1, S].

        Returns:
            The output [B, Q, d], and the weights [B, N, Q, S].
        """
        query = ops.transpose(self.query_dense(query), (0, 2, 1, 3))
        scores = ops.matmul(query * keys.shape[-2] ** -0.5, keys)
        weights = self._masked_softmax(scores, mask)
        context = ops.transpose(ops.matmul(weights, values), (0, 2, 1, 3))
        return self.output_dense(context), weights

    def _masked_softmax(self, attention_scores, attention_mask=None):
        # Keras's has the layer's dtype, half precision perhaps, and makes NaN of scores
        # that overflowed in it.
        mask = None if attention_mask is None else attention_mask[:, None]
        weights = masked_softmax(attention_scores, mask)
        return ops.cast(weights, attention_scores.dtype)


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
        """Initializer of the embeddings."""
        # Variance 1 after the scaling by √d_model, like that of the logits where tied.
        return keras.initializers.RandomNormal(stddev=config.units**-0.5)

    @classmethod
    def output_initializer(cls, config: Any) -> str:
        """Initializer of the output layer's matrix: Keras's own."""
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
