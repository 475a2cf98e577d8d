"""The attentional encoder-decoder as a functional model that can also step.

Shapes: B batch, S source length, T target length, K beam, V target vocabulary.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_luong.checks import check_ids
from keras_luong.config.models import Seq2SeqConfig
from keras_luong.layers.attention import LuongAttention
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.decoder import InputFeedingDecoder
from keras_luong.layers.decoder_cell import DecoderCell
from keras_luong.layers.encoder import RecurrentEncoder
from keras_luong.layers.input_feeding_cell import InputFeedingDecoderCell
from keras_luong.layers.local_attention import LocalAttention
from keras_luong.layers.monotonic_attention import MonotonicAttention
from keras_luong.layers.pointer_generator import CoverageLoss, PointerGenerator
from keras_luong.models.translation_model import TranslationModel, logits
from keras_luong.types import Tensor

# What is dropped as a whole, as a `noise_shape` of Keras's dropout: units at all
# positions, or words with all their units.
UNITS, WORDS = (None, 1, None), (None, None, 1)


class CopyMemory(NamedTuple):
    """The memory of a model that copies.

    Attributes:
        memory: What the decoder's cell prepared.
        source: The source ids, int [B, S].
    """

    memory: Any
    source: Tensor


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
        Logits [B, T, V] of the word that follows each target position; with `copy`,
        log-probabilities.

    Example:
        >>> model = kl.Seq2Seq(kl.Seq2SeqConfig(90, 80, units=8))
        >>> model.compile("adam", kl.SequenceCrossentropy())
        >>> source, target = np.array([[4, 5, 3]]), np.array([[2, 7]])
        >>> tuple(model({"source": source, "target": target}).shape)
        (1, 2, 80)
        >>> memory, state = model.encode(source)
        >>> logits, state, weights = model.step(target[:, :1], state, memory)
        >>> tuple(logits.shape), tuple(weights.shape)
        ((1, 1, 80), (1, 1, 3))
    """

    config_class = Seq2SeqConfig

    @classmethod
    def teacher_forced(
        cls, layers: Any, config: Any, source: Tensor, target: Tensor
    ) -> Tensor:
        """The attentional vectors h̃ [B, T, H] of source and target ids."""
        return cls._decode(layers, config, source, target)[0]

    @classmethod
    def teacher_forced_outputs(
        cls, layers: Any, config: Any, source: Tensor, target: Tensor
    ) -> tuple[Tensor, Tensor]:
        """h̃ [B, T, H]; and logits, or log-probabilities, [B, T, V]."""
        if not config.copy:
            return super().teacher_forced_outputs(layers, config, source, target)
        h_tilde, embedded, weights = cls._decode(layers, config, source, target)
        read = [h_tilde, embedded]
        scores = logits(layers, h_tilde)
        return h_tilde, layers.pointer_generator(read, scores, weights, source)

    @classmethod
    def _decode(cls, layers, config, source, target):
        """h̃ [B, T, H], embedded words; and weights, where they are used."""
        memory, mask, states = cls._read(layers, source, config.word_dropout)
        memory = _dropped(memory, config.memory_dropout, UNITS, "memory_dropout")
        embedded = layers.target_embedding(target)
        embedded = _dropped(embedded, config.word_dropout, WORDS, "target_word_dropout")
        # No target mask: padding at the end cannot reach what comes before it.
        used = config.copy or config.coverage_loss > 0
        h_tilde = layers.decoder(
            embedded, memory, mask, initial_state=states, return_attention_scores=used
        )
        h_tilde, weights = h_tilde if used else (h_tilde, None)
        if config.coverage_loss:
            words = ops.not_equal(target, config.pad_id)
            h_tilde = CoverageLoss(config.coverage_loss)(h_tilde, weights, words)
        return h_tilde, embedded, weights

    def encode(self, source: Tensor) -> tuple[Any, list[Tensor]]:
        """Reads source ids: everything that no target word changes.

        Args:
            source: int [B, S], padded with 0.

        Returns:
            The memory, a nest of tensors [B, ...] that `step` takes as it is, and the
            first state, a list of tensors [B, 1, ...] with a beam axis of one.
        """
        check_ids("source", source)
        memory, mask, states = self._read(self, source)
        memory, states = self.decoder.cell.start(memory, mask, states)
        return CopyMemory(memory, source) if self.copies else memory, states

    def step_features(
        self, tokens: Tensor, state: list[Tensor], memory: Any
    ) -> tuple[Tensor, list[Tensor], Tensor]:
        """`step` up to the attentional vectors h̃ [B, K, H]."""
        memory = memory.memory if self.copies else memory
        return self.decoder.cell(self.target_embedding(tokens), state, memory)

    @classmethod
    def word_initializer(cls, config: Any) -> keras.initializers.Initializer:
        """Initializer of the embeddings and of W_s, with a vector for each word."""
        # With Keras's own 0.05 for embeddings all states start near zero and attention
        # uniform, and training takes three times as many steps to get away from there.
        # With Glorot's limit for W_s, 0.04 here, attention is hardly learned at all
        # (docs/multi30k.md).
        scale = config.init_scale or 0.5
        return keras.initializers.RandomUniform(-scale, scale)

    output_initializer = word_initializer

    @classmethod
    def make_layers(cls, config: Any, dtype: Any) -> SimpleNamespace:
        """The model's layers by name."""
        layers = super().make_layers(config, dtype)
        if config.copy:
            kernel = initializers(config)["kernel_initializer"]
            layers.pointer_generator = PointerGenerator(
                kernel_initializer=kernel, dtype=dtype, name="pointer_generator"
            )
        return layers

    @classmethod
    def make_stacks(cls, config: Any, dtype: Any) -> dict[str, Any]:
        """The layers between the embeddings and the output layer, by name."""
        return {
            "encoder": cls.make_encoder(config, dtype),
            "bridge": cls.make_bridge(config, dtype),
            "decoder": InputFeedingDecoder(
                cls.make_cell(config, dtype), dtype=dtype, name="decoder"
            ),
        }

    @classmethod
    def make_encoder(cls, config: Any, dtype: Any) -> RecurrentEncoder:
        """Reads embedded words: -> memory, final states."""
        return RecurrentEncoder(
            config.encoder_units,
            bidirectional=config.bidirectional,
            go_backwards=config.reverse_source,
            name="encoder",
            **recurrent_options(config, dtype),
        )

    @classmethod
    def make_bridge(cls, config: Any, dtype: Any) -> list[keras.layers.Dense]:
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
    def make_cell(cls, config: Any, dtype: Any) -> DecoderCell:
        """A step of the decoder."""
        return InputFeedingDecoderCell(
            config.units,
            make_attention(config, dtype),
            input_feeding=config.input_feeding,
            attentional_activation=config.attentional_activation,
            attentional_bias=config.attentional_bias,
            use_attentional_vector=config.use_attentional_vector,
            output_attention=config.output_attention,
            **cell_options(config, dtype),
        )

    @classmethod
    def first_states(cls, layers: Any, states: list[Tensor]) -> list[Tensor]:
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


#: What a model fixes whose decoder has no attentional vector.
NO_ATTENTIONAL_VECTOR = {
    "input_feeding": False,
    "attentional_activation": "tanh",
    "attentional_bias": False,
    "use_attentional_vector": True,
    "output_attention": True,
}


def initializers(config: Any) -> dict[str, Any]:
    """Initializer arguments of the recurrent layers."""
    if config.init_scale is None:
        return {"kernel_initializer": "glorot_uniform"}
    scale = config.init_scale
    uniform = keras.initializers.RandomUniform(-scale, scale)
    return {"kernel_initializer": uniform, "recurrent_initializer": uniform.clone()}


def recurrent_options(config: Any, dtype: Any) -> dict[str, Any]:
    """Arguments of every encoder and every decoder cell."""
    return {
        "num_layers": config.num_layers,
        "cell_type": config.cell_type,
        "dropout": config.dropout,
        "recurrent_dropout": config.recurrent_dropout,
        **initializers(config),
        "dtype": dtype,
    }


def cell_options(config: Any, dtype: Any) -> dict[str, Any]:
    """Arguments of every decoder cell."""
    return {
        **recurrent_options(config, dtype),
        "output_dropout": config.output_dropout,
        "residual": config.residual,
        "name": "decoder_cell",
    }


def make_attention(config: Any, dtype: Any) -> LuongAttention | None:
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
