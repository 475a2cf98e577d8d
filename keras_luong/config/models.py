"""What a model is made of, as data: `Seq2SeqConfig` and `TransformerConfig`."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal, NoReturn, TypeVar

from keras_luong.checks import check_choice
from keras_luong.config.fields import (
    NotNegative,
    Number,
    Positive,
    Rate,
    VocabSize,
    check_fields,
)
from keras_luong.config.presets import PRESETS
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

Ties = Literal["target", "all"] | None
Config = TypeVar("Config", bound="ModelConfig")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Hyperparameters of a model; a subclass has the model's own.

    Args:
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
    """

    source_vocab_size: VocabSize
    target_vocab_size: VocabSize

    pad_id: ClassVar[int] = PAD_ID
    unk_id: ClassVar[int] = UNK_ID
    bos_id: ClassVar[int] = BOS_ID
    eos_id: ClassVar[int] = EOS_ID

    def __post_init__(self) -> None:
        """Checks all fields; a subclass then fills in those that follow from others."""
        check_fields(self)
        shared = self.source_vocab_size == self.target_vocab_size
        if getattr(self, "tie_embeddings", None) == "all" and not shared:
            self._refuse(
                'tie_embeddings="all" needs one vocabulary for both sides.',
                "source_vocab_size",
                "target_vocab_size",
            )

    def _fill(self, **values: Any) -> None:
        """Sets fields that are None."""
        for name, value in values.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    def _refuse(self, why: str, *fields: str) -> NoReturn:
        """Raises ValueError for fields that do not fit each other."""
        received = ", ".join(f"{name}={getattr(self, name)!r}" for name in fields)
        raise ValueError(f"{why} Received: {received}")

    @classmethod
    def preset(
        cls: type[Config],
        name: str,
        source_vocab_size: int,
        target_vocab_size: int,
        **changes: Any,
    ) -> Config:
        """The configuration of a preset.

        Args:
            name: A name in `keras_luong.config.presets.PRESETS`.
            source_vocab_size: Number of source ids, the four special ones included.
            target_vocab_size: Number of target ids, likewise.
            **changes: Fields that are to differ from the preset's.

        Raises:
            ValueError, TypeError: An unknown preset, one of another model, or values
                that cannot be.

        Example:
            >>> config = kl.Seq2SeqConfig.preset("luong2015-base", 50000, 50000)
            >>> config.units, config.num_layers, config.attention
            (1000, 4, None)
        """
        preset = PRESETS[check_choice("preset", name, PRESETS)]
        known = {field.name for field in dataclasses.fields(cls)}
        if not preset.fields.keys() <= known:
            raise ValueError(
                f"The preset {name} is no {cls.__name__}: it makes a {preset.model}"
            )
        if strangers := sorted(changes.keys() - known):
            raise ValueError(
                f"The preset {name} has no {', '.join(strangers)}; it has "
                f"{', '.join(sorted(known))}"
            )
        fields = {**preset.fields, **changes}
        return cls(source_vocab_size, target_vocab_size, **fields)


Attention = Literal["global", "local-m", "local-p", "monotonic"] | None
Activation = Literal["tanh", "relu", "linear"] | None
CellType = Literal["lstm", "layer_norm_lstm", "gru", "simple_rnn"]
MonotonicMode = Literal["recursive", "parallel"]
ScoreMode = Literal[
    "dot",
    "scaled_dot",
    "general",
    "scaled_general",
    "concat",
    "normed_concat",
    "location",
    "reduced_rank",
    "cosine",
]


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """Hyperparameters of a `Seq2Seq` model; the defaults make a small, modern one.

    Args:
        source_vocab_size: Number of source ids, the four special ones included.
        target_vocab_size: Number of target ids, likewise.
        units: Size of every decoder layer and of h̃.
        embedding_dim: Size of word embeddings; `units` by default.
        num_layers: Layers of the encoder and of the decoder.
        cell_type: "lstm", "layer_norm_lstm", "gru" or "simple_rnn".
        bidirectional: Whether the encoder reads both ways (Bahdanau et al. 2015).
        encoder_units: Size of each encoder layer and direction; by default such that
            the encoder's states fit the decoder: `units`, or half when bidirectional.
        bridge: How encoder states start the decoder: None (as they are) or "dense" (a
            tanh layer for each, which fits any `encoder_units`).
        attention: "global"; "local-m" or "local-p" (a window that moves along, or to a
            predicted position); "monotonic" (Raffel et al. 2017); or None.
        score_mode: Score of the attention, see `LuongAttention`.
        window: Half the width of local attention's window, D.
        gaussian: Whether local attention prefers the middle of its window (Eq. 10); by
            default "local-p" does, as in the paper.
        renormalize: Whether local attention's weights sum to 1 after that.
        coverage: Whether global and local scores see past attention (See et al. 2017).
        coverage_loss: Weight of the loss of attention to what had attention already,
            see `CoverageLoss`.
        hard_attention: Whether inference attends to one source position only.
        sigmoid_noise: Noise on monotonic attention's scores in training.
        score_bias_init: Initial bias of its scores: negative for long sources.
        monotonic_mode: How its soft weights are computed, "recursive" or "parallel".
        attention_units: Width of the "concat", "normed_concat" and "reduced_rank"
            scores.
        max_source_length: Positions of the "location" score, which needs it.
        input_feeding: Whether h̃ enters the next step (section 3.3).
        attentional_activation: That of h̃: "tanh" (Eq. 5), "relu", or None or "linear"
            for none.
        attentional_bias: Whether h̃ has a bias, as in JoeyNMT.
        use_attentional_vector: Whether there is a W_c (Eq. 5); if not, the context
            itself is h̃.
        output_attention: Whether words are predicted from h̃; if not, from the top
            layer's h, and h̃ is only fed back.
        output_bias: Whether the output layer has a bias.
        copy: Whether words may be copied from the source, by the attention (See et al.
            2017; `PointerGenerator`). Needs one shared vocabulary.
        reverse_source: Whether a unidirectional encoder reads the source reversed.
        residual: Whether decoder layers after the first add their inputs (GNMT's
            encoder and decoder: those after the second; Wu et al. 2016, section 3.1).
        dropout: Rate on embeddings, between layers and on h̃ (Zaremba et al. 2015), with
            one mask for a whole sentence (Gal & Ghahramani 2016).
        word_dropout: Rate at which whole words, of the source and of those that the
            decoder reads, become zeros (Sennrich & Zhang 2019, arXiv:1905.11901); as
            in every dropout, what stays is scaled up.
        recurrent_dropout: Rate on what recurs in encoder and decoder, their h (Gal &
            Ghahramani 2016).
        memory_dropout: Rate on the encoder's states that the decoder attends to: a
            unit is dropped in all words of a sentence (Gal & Ghahramani 2016's masks).
        attention_dropout: Rate on attention weights (Vaswani et al. 2017's code). With
            input feeding, and in local attention, one mask for a sentence; else another
            for each target word.
        output_dropout: Rate on h̃ before the output layer (Zaremba et al. 2015's last);
            `dropout` by default.
        tie_embeddings: None, "target" (target embedding = softmax weights, Press & Wolf
            2017) or "all" (and the source's: needs one shared vocabulary).
        init_scale: Initialise all matrices with U[-init_scale, init_scale], 0.1 in the
            paper; None for 0.5 in embeddings and W_s, Keras's defaults elsewhere.

    Raises:
        ValueError, TypeError: A value that cannot be, or two that don't fit together.

    Example:
        >>> config = kl.Seq2SeqConfig(8000, 8000, units=512, score_mode="dot")
        >>> paper = kl.Seq2SeqConfig.preset("luong2015-global-dot", 50000, 50000)
        >>> config.units, paper.units
        (512, 1000)
    """

    units: int = 256
    embedding_dim: int | None = None
    num_layers: int = 1
    cell_type: CellType = "lstm"
    bidirectional: bool = True
    encoder_units: int | None = None
    bridge: Literal["dense"] | None = None
    attention: Attention = "global"
    score_mode: ScoreMode = "general"
    window: int = 10
    gaussian: bool | None = None
    renormalize: bool = False
    coverage: bool = False
    coverage_loss: NotNegative = 0.0
    hard_attention: bool = False
    sigmoid_noise: NotNegative = 0.0
    score_bias_init: Number = 0.0
    monotonic_mode: MonotonicMode = "recursive"
    attention_units: int | None = None
    max_source_length: int | None = None
    input_feeding: bool = True
    attentional_activation: Activation = "tanh"
    attentional_bias: bool = False
    use_attentional_vector: bool = True
    output_attention: bool = True
    output_bias: bool = False
    copy: bool = False
    reverse_source: bool = False
    residual: bool = False
    dropout: Rate = 0.2
    word_dropout: Rate = 0.0
    recurrent_dropout: Rate = 0.0
    memory_dropout: Rate = 0.0
    attention_dropout: Rate = 0.0
    output_dropout: Rate | None = None
    tie_embeddings: Ties = None
    init_scale: Positive | None = None

    def __post_init__(self) -> None:
        """Checks all fields, and fills in sizes that fit the decoder's."""
        super().__post_init__()
        halves = self.bidirectional and not self.units % 2
        self._fill(
            embedding_dim=self.units,
            encoder_units=self.units // 2 if halves else self.units,
        )
        if self.tie_embeddings and self.embedding_dim != self.units:
            self._refuse(
                "Tied embeddings need embedding_dim == units.", "embedding_dim", "units"
            )
        if self.output_bias and self.tie_embeddings:
            self._refuse(
                "Tied embeddings have no bias: output_bias=True needs "
                "tie_embeddings=None.",
                "tie_embeddings",
            )
        # The encoder.
        if self.bidirectional and self.reverse_source:
            self._refuse(
                "reverse_source=True needs bidirectional=False: a bidirectional "
                "encoder reads both ways already.",
                "bidirectional",
            )
        states = (self.encoder_units or self.units) * (2 if self.bidirectional else 1)
        if self.bridge is None and states != self.units:
            self._refuse(
                f"The encoder's states have {states} units and the decoder's "
                f'{self.units}: use bridge="dense" or other encoder_units.',
                *("encoder_units", "units", "bidirectional"),
            )
        # The attention.
        location = self.attention and self.score_mode == "location"
        if location and self.max_source_length is None:
            self._refuse(
                'score_mode="location" needs max_source_length, the number of source '
                "positions that it knows (the end counted).",
                "max_source_length",
            )
        if location and (self.coverage or str(self.attention).startswith("local")):
            self._refuse(
                "Local attention and coverage need a score that compares with the "
                'source, such as "general".',
                "score_mode",
            )
        if self.coverage and self.attention in (None, "monotonic"):
            self._refuse("coverage=True needs global or local attention.", "attention")
        if self.attention is None:
            has_vector = self.use_attentional_vector and self.output_attention
            if self.attentional_bias or not has_vector:
                self._refuse(
                    "Without attention the output is h, and there is no attentional "
                    "vector to choose.",
                    *("attention", "attentional_bias"),
                    *("use_attentional_vector", "output_attention"),
                )
            for name in ("coverage_loss", "memory_dropout", "attention_dropout"):
                if getattr(self, name):
                    self._refuse(f"{name} needs an attention.", name, "attention")
        # Copies of source words.
        if self.copy and self.source_vocab_size != self.target_vocab_size:
            self._refuse(
                "copy=True needs one vocabulary for both sides, as source words are "
                "copied by their ids.",
                *("source_vocab_size", "target_vocab_size"),
            )
        if self.copy and self.attention is None:
            self._refuse(
                "copy=True needs an attention, which says what to copy.", "attention"
            )


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

    def __post_init__(self) -> None:
        """Checks all fields, and fills in the usual inner size."""
        super().__post_init__()
        self._fill(feedforward_units=4 * self.units)
        if self.units % self.num_heads:
            self._refuse("units must be a multiple of num_heads.", "units", "num_heads")


def model_config_class(preset: str) -> type[ModelConfig]:
    """Returns the class of the configuration of a preset's model."""
    is_transformer = PRESETS[preset].model == "Transformer"
    return TransformerConfig if is_transformer else Seq2SeqConfig
