"""The attentional encoder-decoder as a functional model that can also step.

Shapes: B batch, S source length, T target length, K beam, V target vocabulary.
"""

from __future__ import annotations

from types import SimpleNamespace

import keras
from keras import ops

from keras_luong.config.seq2seq import Seq2SeqConfig
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.coverage_loss import CoverageLoss
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.input_feeding_cell import InputFeedingDecoderCell
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.models.restricted import logits
from keras_luong.models.translation_model import TranslationModel

# What is dropped as a whole, as a `noise_shape` of Keras's dropout: units at all
# positions, or words with all their units.
UNITS, WORDS = (None, 1, None), (None, None, 1)


@keras.saving.register_keras_serializable(package="keras_luong")
class Seq2Seq(TranslationModel):
    """The translation model of Luong, Pham & Manning 2015, and its relatives.

    Called on ids, it is a teacher-forced functional model for `fit`. `encode` and
    `step` run it a word at a time, which is all that a search needs.

    Args:
        config: A `Seq2SeqConfig`.
        dtype: Dtype policy of all layers, such as "mixed_bfloat16"; Keras's global
            policy by default.
        **kwargs: `name` and other arguments of `keras.Model`.

    To copy a model, use `Seq2Seq.from_config(model.get_config())`:
    `keras.models.clone_model` makes a plain functional model, which cannot step.

    Call arguments:
        inputs: {"source": int [B, S], "target": int [B, T]}. Sources end with the end
            id and are padded with 0. Targets are what the decoder reads: the begin id,
            then all words but the end.

    Returns:
        Logits [B, T, V] of the word that follows each target position.

    Example:
        >>> config = kl.Seq2SeqConfig(8000, 8000, units=512)
        >>> model = kl.Seq2Seq(config)
        >>> model.compile("adam", kl.SequenceCrossentropy())
        >>> memory, state = model.encode(source)
        >>> logits, state, weights = model.step(tokens, state, memory)
    """

    config_class = Seq2SeqConfig

    def __init__(self, config, dtype=None, **kwargs):
        self.check(config)
        layers = self.make_layers(config, dtype)
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        memory, mask, states = self._read(layers, source, config.word_dropout)
        memory = _dropped(memory, config.memory_dropout, UNITS, "memory_dropout")
        embedded = layers.target_embedding(target)
        embedded = _dropped(embedded, config.word_dropout, WORDS, "target_word_dropout")
        # No target mask: padding at the end cannot reach what comes before it.
        options = {"return_attention_scores": config.coverage_loss > 0}
        h_tilde = layers.decoder(
            embedded, memory, mask, initial_state=states, **options
        )
        if config.coverage_loss:
            words = ops.not_equal(target, config.pad_id)
            h_tilde = CoverageLoss(config.coverage_loss)(*h_tilde, words)
        super().__init__(
            inputs={"source": source, "target": target},
            features=h_tilde,
            outputs=logits(layers, h_tilde),  # W_s h̃ of Eq. 6
            **kwargs,
        )
        self.config = config
        # So that `compile` scales the loss where the layers compute in float16.
        self.dtype_policy = layers.decoder.dtype_policy
        # Named only now, so that Keras knows the layers in the graph's order, as in a
        # `clone_model`, and `set_weights` fits both.
        self.source_embedding = layers.source_embedding
        self.encoder = layers.encoder
        self.bridge = layers.bridge
        self.target_embedding = layers.target_embedding
        self.decoder = layers.decoder
        self.output_layer = layers.output_layer

    def encode(self, source):
        """Reads source ids: everything that no target word changes.

        Args:
            source: int [B, S], padded with 0.

        Returns:
            The memory, a nest of tensors [B, ...] that `step` takes as it is, and the
            first state, a list of tensors [B, 1, ...] with a beam axis of one.
        """
        memory, mask, states = self._read(self, source)
        cell = self.decoder.cell
        memory = cell.prepare(memory, mask)
        states = [ops.expand_dims(state, 1) for state in states]
        return memory, cell.initial_states((ops.shape(source)[0], 1), states, memory)

    def advance(self, tokens, state, memory):
        """`step` up to the attentional vectors h̃ [B, K, H]."""
        return self.decoder.cell(self.target_embedding(tokens), state, memory)

    @classmethod
    def make_layers(cls, config, dtype):
        """The model's layers by name."""
        layers = SimpleNamespace()
        layers.target_embedding = _target_embedding(config, dtype)
        layers.source_embedding = layers.target_embedding
        if config.tie_embeddings != "all":
            layers.source_embedding = _source_embedding(config, dtype)
        layers.encoder = cls.make_encoder(config, dtype)
        layers.bridge = cls.make_bridge(config, dtype)
        cell = cls.make_cell(config, dtype)
        layers.decoder = InputFeedingDecoder(cell, dtype=dtype, name="decoder")
        layers.output_layer = None
        if config.tie_embeddings is None:
            layers.output_layer = _output_layer(config, dtype)
        return layers

    @classmethod
    def make_encoder(cls, config, dtype):
        """Reads embedded words: -> memory, final states."""
        return RecurrentEncoder(
            config.encoder_units,
            num_layers=config.num_layers,
            bidirectional=config.bidirectional,
            go_backwards=config.reverse_source,
            **encoder_options(config, dtype),
        )

    @classmethod
    def make_bridge(cls, config, dtype):
        """A tanh layer for each of the encoder's final states, or nothing."""
        if config.bridge is None:
            return []
        return [
            keras.layers.Dense(
                config.units,
                activation="tanh",
                kernel_initializer=initializers(config)["kernel_initializer"],
                dtype=dtype,
                name=f"bridge_{i}",
            )
            for i in range(config.num_layers * CELL_TYPES[config.cell_type].num_states)
        ]

    @classmethod
    def make_cell(cls, config, dtype):
        """A step of the decoder."""
        return InputFeedingDecoderCell(
            config.units,
            make_attention(config, dtype),
            input_feeding=config.input_feeding,
            **cell_options(config, dtype),
        )

    @classmethod
    def first_states(cls, layers, states):
        """The decoder's recurrent states from the encoder's final ones."""
        if not layers.bridge:
            return states
        pairs = zip(layers.bridge, states, strict=True)
        return [layer(state) for layer, state in pairs]

    @classmethod
    def _read(cls, layers, source, word_dropout=0.0):
        """Source ids [B, S] -> memory, its mask, the decoder's recurrent states."""
        mask = ops.not_equal(source, Seq2SeqConfig.pad_id)
        embedded = layers.source_embedding(source)
        embedded = _dropped(embedded, word_dropout, WORDS, "source_word_dropout")
        memory, *states = layers.encoder(embedded, mask=mask)
        return memory, mask, cls.first_states(layers, states)


def _dropped(x, rate, noise_shape, name):
    """Vectors [B, S, n], in training without some `UNITS` or some `WORDS`."""
    if not rate:
        return x
    return keras.layers.Dropout(rate, noise_shape, name=name, dtype=x.dtype)(x)


def initializers(config):
    """Initializer arguments of the recurrent layers."""
    if config.init_scale is None:
        return {"kernel_initializer": "glorot_uniform"}
    scale = config.init_scale
    uniform = keras.initializers.RandomUniform(-scale, scale)
    return {
        "kernel_initializer": uniform,
        "recurrent_initializer": uniform.clone(),
    }


def _word_initializer(config):
    """Of the matrices with a vector for each word: the embeddings and W_s."""
    # Embeddings of Keras's own 0.05: all states start near zero and attention uniform,
    # and it takes three times as many steps to get away from there. Glorot's W_s, with
    # a limit of 0.04 here: attention is hardly learned at all (docs/multi30k.md).
    scale = config.init_scale or 0.5
    return keras.initializers.RandomUniform(-scale, scale)


def _source_embedding(config, dtype):
    return keras.layers.Embedding(
        config.source_vocab_size,
        config.embedding_dim,
        embeddings_initializer=_word_initializer(config),
        dtype=dtype,
        name="source_embedding",
    )


def _output_layer(config, dtype):
    """W_s of Eq. 6."""
    return keras.layers.Dense(
        config.target_vocab_size,
        use_bias=False,
        kernel_initializer=_word_initializer(config),
        dtype=dtype,
        name="output",
    )


def _target_embedding(config, dtype):
    """The target embedding, and where tied, the softmax weights: W_s = Eᵀ."""
    layer = keras.layers.Embedding
    if config.tie_embeddings:
        layer = keras.layers.ReversibleEmbedding
    return layer(
        config.target_vocab_size,
        config.embedding_dim,
        embeddings_initializer=_word_initializer(config),
        dtype=dtype,
        name="embedding" if config.tie_embeddings == "all" else "target_embedding",
    )


def encoder_options(config, dtype):
    """What every encoder is made with."""
    return {
        "cell_type": config.cell_type,
        "dropout": config.dropout,
        "recurrent_dropout": config.recurrent_dropout,
        **initializers(config),
        "dtype": dtype,
        "name": "encoder",
    }


def make_attention(config, dtype):
    """The attention layer that a configuration names, or None."""
    if config.attention is None:
        return None
    options = {
        "units": config.attention_units,
        "dropout": config.attention_dropout,
        "hard": config.hard_attention,
        "coverage": config.coverage,
        "kernel_initializer": initializers(config)["kernel_initializer"],
        "dtype": dtype,
        "name": "attention",
    }
    score_mode = config.score_mode
    if config.attention.startswith("local"):
        alignment = {"local-m": "monotonic", "local-p": "predictive"}[config.attention]
        options["gaussian"] = config.gaussian
        options["renormalize"] = config.renormalize
        return LocalAttention(config.window, alignment, score_mode, **options)
    options["max_source_length"] = config.max_source_length
    if config.attention == "monotonic":
        for name in ("sigmoid_noise", "score_bias_init"):
            options[name] = getattr(config, name)
        return MonotonicAttention(score_mode, mode=config.monotonic_mode, **options)
    return LuongAttention(score_mode, **options)


def cell_options(config, dtype):
    """What every decoder cell is made with."""
    return {
        "num_layers": config.num_layers,
        "cell_type": config.cell_type,
        "dropout": config.dropout,
        "recurrent_dropout": config.recurrent_dropout,
        "output_dropout": config.output_dropout,
        "residual": config.residual,
        **initializers(config),
        "dtype": dtype,
        "name": "decoder_cell",
    }
