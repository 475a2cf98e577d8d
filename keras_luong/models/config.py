"""What a `Seq2Seq` model is made of, as data."""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

from keras_luong.checks import (
    check_choice,
    check_flag,
    check_not_negative,
    check_rate,
    check_size,
)
from keras_luong.layers.cells import CELL_TYPES
from keras_luong.layers.monotonic_attention import SOFT_MODES as MONOTONIC_MODES
from keras_luong.layers.scores import SCORES
from keras_luong.special_ids import BOS_ID, EOS_ID, PAD_ID, UNK_ID

ATTENTIONS = ("global", "local-m", "local-p", "monotonic", None)
TIES = (None, "target", "all")
BRIDGES = (None, "dense")
DROPOUTS = (
    "dropout",
    "word_dropout",
    "recurrent_dropout",
    "memory_dropout",
    "attention_dropout",
)


@dataclasses.dataclass(frozen=True)
class Seq2SeqConfig:
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
    """

    source_vocab_size: int
    target_vocab_size: int
    units: int = 256
    embedding_dim: int | None = None
    num_layers: int = 1
    cell_type: str = "lstm"
    bidirectional: bool = True
    encoder_units: int | None = None
    bridge: str | None = None
    attention: str | None = "global"
    score_mode: str = "general"
    window: int = 10
    gaussian: bool | None = None
    renormalize: bool = False
    coverage: bool = False
    coverage_loss: float = 0.0
    hard_attention: bool = False
    sigmoid_noise: float = 0.0
    score_bias_init: float = 0.0
    monotonic_mode: str = "recursive"
    attention_units: int | None = None
    max_source_length: int | None = None
    input_feeding: bool = True
    reverse_source: bool = False
    residual: bool = False
    dropout: float = 0.2
    word_dropout: float = 0.0
    recurrent_dropout: float = 0.0
    memory_dropout: float = 0.0
    attention_dropout: float = 0.0
    output_dropout: float | None = None
    tie_embeddings: str | None = None
    init_scale: float | None = None

    pad_id: ClassVar[int] = PAD_ID
    unk_id: ClassVar[int] = UNK_ID
    bos_id: ClassVar[int] = BOS_ID
    eos_id: ClassVar[int] = EOS_ID

    def __post_init__(self):
        """Fills in what follows from other fields, then checks them all."""
        fill = object.__setattr__  # a frozen dataclass has no other way
        if self.embedding_dim is None:
            fill(self, "embedding_dim", self.units)
        for name in (
            "source_vocab_size",
            "target_vocab_size",
            "units",
            "num_layers",
            "window",
        ):
            fill(self, name, check_size(name, getattr(self, name)))
        if self.encoder_units is None:
            halves = self.bidirectional and not self.units % 2
            fill(self, "encoder_units", self.units // 2 if halves else self.units)
        for name in ("embedding_dim", "encoder_units"):
            fill(self, name, check_size(name, getattr(self, name)))
        for name in ("attention_units", "max_source_length"):
            fill(self, name, check_size(name, getattr(self, name), optional=True))
        for name in DROPOUTS:
            check_rate(name, getattr(self, name))
        if self.output_dropout is not None:
            check_rate("output_dropout", self.output_dropout)
        for name in (
            "bidirectional",
            "input_feeding",
            "reverse_source",
            "residual",
            "renormalize",
            "coverage",
            "hard_attention",
        ):
            check_flag(name, getattr(self, name))
        if self.gaussian is not None:
            check_flag("gaussian", self.gaussian)
        for name in ("coverage_loss", "sigmoid_noise"):
            fill(self, name, check_not_negative(name, getattr(self, name)))
        check_choice("cell_type", self.cell_type, CELL_TYPES)
        check_choice("attention", self.attention, ATTENTIONS)
        check_choice("monotonic_mode", self.monotonic_mode, MONOTONIC_MODES)
        check_choice("score_mode", self.score_mode, SCORES)
        check_choice("tie_embeddings", self.tie_embeddings, TIES)
        check_choice("bridge", self.bridge, BRIDGES)
        self._check_together()

    def _check_together(self):
        check_vocabularies(self)
        if self.tie_embeddings and self.embedding_dim != self.units:
            raise ValueError(
                "Tied embeddings need embedding_dim == units. Received: "
                f"embedding_dim={self.embedding_dim}, units={self.units}"
            )
        self._check_encoder()
        self._check_attention()
        scale = self.init_scale
        is_number = isinstance(scale, (int, float)) and math.isfinite(scale)
        if scale is not None and not (is_number and scale > 0):
            raise ValueError(
                f"init_scale must be positive or None. Received: {self.init_scale!r}"
            )

    def _check_attention(self):
        location = self.attention and self.score_mode == "location"
        if location and self.max_source_length is None:
            raise ValueError(
                'score_mode="location" needs max_source_length, the number of source '
                "positions that it knows (the end counted). Received: None"
            )
        if location and (self.coverage or self.attention.startswith("local")):
            raise ValueError(
                "Local attention and coverage need a score that compares with the "
                'source, such as "general". Received: score_mode="location"'
            )
        if self.coverage and self.attention in (None, "monotonic"):
            raise ValueError(
                "coverage=True needs global or local attention. Received: attention="
                f"{self.attention!r}"
            )
        for name in ("coverage_loss", "memory_dropout", "attention_dropout"):
            if (value := getattr(self, name)) and self.attention is None:
                raise ValueError(
                    f"{name} needs an attention. Received: {name}={value!r}, "
                    "attention=None"
                )

    def _check_encoder(self):
        if self.bidirectional and self.reverse_source:
            raise ValueError(
                "reverse_source=True needs bidirectional=False: a bidirectional "
                "encoder reads both ways already."
            )
        states = self.encoder_units * (2 if self.bidirectional else 1)
        if self.bridge is None and states != self.units:
            raise ValueError(
                f"The encoder's states have {states} units and the decoder's "
                f'{self.units}: use bridge="dense" or other encoder_units. '
                f"Received: encoder_units={self.encoder_units}, units={self.units}, "
                f"bidirectional={self.bidirectional}"
            )

    @classmethod
    def preset(cls, name, source_vocab_size, target_vocab_size, **changes):
        """The configuration called `name` in `presets.PRESETS`, with `changes`."""
        from keras_luong.models.presets import configure

        return configure(name, source_vocab_size, target_vocab_size, **changes)


def check_vocabularies(config):
    """Raises ValueError where the sizes of a configuration's vocabularies cannot be."""
    special = len((PAD_ID, UNK_ID, BOS_ID, EOS_ID))
    for name in ("source_vocab_size", "target_vocab_size"):
        if getattr(config, name) <= special:
            raise ValueError(
                f"{name} must be more than the {special} special ids. "
                f"Received: {getattr(config, name)}"
            )
    shared = config.source_vocab_size == config.target_vocab_size
    if config.tie_embeddings == "all" and not shared:
        raise ValueError(
            'tie_embeddings="all" needs one vocabulary for both sides. Received: '
            f"source_vocab_size={config.source_vocab_size}, "
            f"target_vocab_size={config.target_vocab_size}"
        )
